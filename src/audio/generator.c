/* generator.c - generates samples from rows by transposed convolutions and residual branches */
#include "audio/generator.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "audio/filters.h"
#include "base/minmax.h"
#include "exec/op.h"
#include "exec/weight_norm.h"

enum { ENDS = 7 }; /* kernel of the first and the last convolution */
/* Slope of the last leaky ReLU below 0, which has PyTorch's default. */
static const float last_slope = 0.01f;

typedef xd_generator         cfg;
typedef xd_generator_weights glob;
typedef xd_generator_branch  branch;

/* ---- configuration -------------------------------------------------------------------------- */

const xd_generator_form xd_generator_vocoder = {
    .what = "vocoder",
    .hidden_key = "hidden_channels",
    .up_key = "upsample_factors",
    .up_kernel_key = "upsample_kernel_sizes",
    .kernel_key = "resnet_kernel_sizes",
    .dilation_key = "resnet_dilations",
    .in = "conv_in",
    .up = "upsamplers",
    .up_end = "",
    .branch = "resnets",
    .out = "conv_out",
    .act = { "acts1.%d", "acts2.%d" },
    .last_act = "act_out",
    .act_step = 1,
    .filters = 1,
};

xd_status xd_generator_read(cfg *c, const xd_generator_form *form, const xd_json *obj,
                            const char *prefix, const char *what, xd_err *e)
{
    char name[XD_FIELD_TEXT];
    snprintf(name, sizeof name, "%sfinal_act_fn", prefix);
    const xd_json *last = xd_json_get(obj, name);
    if (last && xd_json_null(last))
        c->last[0] = 0;
    snprintf(name, sizeof name, "%s%s", prefix, form->dilation_key);
    const xd_json *list = xd_json_get(obj, name);
    int            n = xd_json_size(list);
    double         v;
    for (int i = 0; i < XD_GENERATOR_KERNELS; i++)
        c->dilation[i] = (xd_ints){ 3, { 1, 3, 5 } };
    for (int i = 0; i < n && i < XD_GENERATOR_KERNELS; i++) {
        const xd_json *row = xd_json_at(list, i);
        c->dilation[i].n = (int)xd_min(xd_json_size(row), XD_GENERATOR_DILATIONS);
        for (int k = 0; k < c->dilation[i].n; k++) {
            if (!xd_json_number(xd_json_at(row, k), &v) || v < 1 || v > 1000)
                return xd_fail(e, XD_EFORMAT, "%s: %s has no valid number", what, name);
            c->dilation[i].v[k] = (int64_t)v;
        }
    }
    return XD_OK;
}

static int is_snake(const cfg *c)
{
    return strncmp(c->act, "snake", 5) == 0;
}

static xd_status check_activations(const cfg *c, xd_err *e)
{
    if ((strcmp(c->act, "leaky_relu") || c->antialias) && strcmp(c->act, "snake") &&
        strcmp(c->act, "snakebeta"))
        return xd_fail(e, XD_EUNSUPPORTED,
                       "%s: act_fn '%s' with antialias %d is not supported; 'leaky_relu' "
                       "with antialias 0, 'snake' and 'snakebeta' are",
                       c->form->what, c->act, c->antialias);
    if (c->last[0] && strcmp(c->last, "tanh") && strcmp(c->last, "clamp"))
        return xd_fail(e, XD_EUNSUPPORTED,
                       "%s: final_act_fn '%s' is not supported; 'tanh', 'clamp' and null are",
                       c->form->what, c->last);
    if (is_snake(c) && (c->ratio < 1 || c->taps < 4 * c->ratio || c->taps > XD_MAXTAPS ||
                        c->taps % (2 * c->ratio)))
        return xd_fail(e, XD_EUNSUPPORTED,
                       "%s: antialias_kernel_size %d is not supported; it must be a multiple "
                       "of %d, twice antialias_ratio, from %d to %d",
                       c->form->what, c->taps, 2 * c->ratio, 4 * c->ratio, XD_MAXTAPS);
    return XD_OK;
}

static xd_status check_sizes(const cfg *c, xd_err *e)
{
    const xd_generator_form *f = c->form;
    if (c->up.n > XD_GENERATOR_STAGES || c->up.n != c->up_kernel.n ||
        c->kernel.n > XD_GENERATOR_KERNELS)
        return xd_fail(e, XD_EFORMAT, "%s: %d %s, %d %s and %d %s do not fit together", f->what,
                       c->up.n, f->up_key, c->up_kernel.n, f->up_kernel_key, c->kernel.n,
                       f->kernel_key);
    for (int i = 0; i < c->up.n; i++)
        if (c->up.v[i] < 1 || c->up_kernel.v[i] < c->up.v[i] || c->up_kernel.v[i] > 1000)
            return xd_fail(e, XD_EFORMAT, "%s: %s %lld is less than the factor %lld", f->what,
                           f->up_kernel_key, (long long)c->up_kernel.v[i], (long long)c->up.v[i]);
    for (int i = 0; i < c->kernel.n; i++)
        if (c->kernel.v[i] < 1 || c->kernel.v[i] > 1000 || c->kernel.v[i] % 2 == 0)
            return xd_fail(e, XD_EUNSUPPORTED, "%s: %s %lld is not an odd number", f->what,
                           f->kernel_key, (long long)c->kernel.v[i]);
    if (c->in < 1 || c->out < 1 || c->hidden < 1 || c->hidden >> c->up.n < 1)
        return xd_fail(e, XD_EFORMAT, "%s: %s %lld cannot be halved %d times", f->what,
                       f->hidden_key, (long long)c->hidden, c->up.n);
    return XD_OK;
}

xd_status xd_generator_check(cfg *c, const xd_generator_form *form, const xd_ints *up,
                             const xd_ints *up_kernel, xd_err *e)
{
    c->form = form;
    if (!c->up.n)
        c->up = *up;
    if (!c->up_kernel.n)
        c->up_kernel = *up_kernel;
    if (!c->kernel.n)
        c->kernel = (xd_ints){ 3, { 3, 7, 11 } };
    if (!c->dilation[0].n)
        for (int i = 0; i < XD_GENERATOR_KERNELS; i++)
            c->dilation[i] = (xd_ints){ 3, { 1, 3, 5 } };
    xd_status s = check_activations(c, e);
    return s == XD_OK ? check_sizes(c, e) : s;
}

/* Returns the number of rows that n rows become in a stage (PyTorch's ConvTranspose1d). */
static int64_t enlarged(const cfg *c, int stage, int64_t n)
{
    int64_t s = c->up.v[stage], k = c->up_kernel.v[stage];
    return n > 0 ? (n - 1) * s + k - 2 * ((k - s) / 2) : 0;
}

int64_t xd_generator_rows(const cfg *c, int64_t n)
{
    for (int i = 0; i < c->up.n; i++)
        n = enlarged(c, i, n);
    return n;
}

/* ---- weights -------------------------------------------------------------------------------- */

static void w_conv(xd_decl *d, const cfg *c, xd_cnv *w, const char *name, const int64_t shape[3],
                   int bias)
{
    if (c->form->normed)
        xd_w_conv_normed(d, w, name, shape, bias);
    else
        xd_w_conv(d, w, name,
                  &(xd_conv_spec){ .out = shape[0],
                                   .in = shape[1],
                                   .nk = 1,
                                   .kernel = { 1, 1, (int)shape[2] },
                                   .bias = bias });
}

static float rate_of(float log_rate)
{
    return expf(log_rate);
}

static float gain_of(float log_beta)
{
    return 1.0f / (expf(log_beta) + 1e-9f);
}

/* Declares a snake activation. Without beta, the gain is that of alpha, which is listed once. */
static void w_snake(xd_decl *d, const cfg *c, xd_snake *w, int64_t C, int beta, int filtered)
{
    const int64_t taps[] = { 1, 1, c->taps };
    const char   *alpha = filtered ? "act.alpha" : "alpha";
    if (filtered && c->form->filters) {
        xd_w_vec(d, &w->up, "upsample.filter", 3, taps);
        xd_w_vec(d, &w->down, "downsample.filter", 3, taps);
    } else if (filtered) { /* filters that the config determines */
        xd_w_unread(d, "upsample.filter", 3, taps);
        xd_w_unread(d, "downsample.lowpass.filter", 3, taps);
    }
    xd_w_vec_of(d, &w->rate, alpha, C, rate_of);
    if (beta)
        xd_w_vec_of(d, &w->gain, filtered ? "act.beta" : "beta", C, gain_of);
    else if (d->visit != XD_VISIT_LIST)
        xd_w_vec_of(d, &w->gain, alpha, C, gain_of);
}

/* Declares the activation before convolution k of pair i. */
static void w_act(xd_decl *d, const cfg *c, xd_snake *w, int64_t C, int i, int k)
{
    if (!is_snake(c))
        return;
    xd_w_enter(d, c->form->act[k], c->form->act_step * i + (c->form->act_step - 1) * k);
    w_snake(d, c, w, C, strcmp(c->act, "snake") != 0, c->antialias);
    xd_w_leave(d);
}

static void w_branch(xd_decl *d, const cfg *c, branch *w, int64_t C, int kernel)
{
    const int64_t shape[3] = { C, C, c->kernel.v[kernel] };
    char          name[32];
    for (int i = 0; i < c->dilation[kernel].n; i++) {
        w_act(d, c, &w->act1[i], C, i, 0);
        w_act(d, c, &w->act2[i], C, i, 1);
        snprintf(name, sizeof name, "convs1.%d", i);
        w_conv(d, c, &w->conv1[i], name, shape, 1);
        snprintf(name, sizeof name, "convs2.%d", i);
        w_conv(d, c, &w->conv2[i], name, shape, 1);
    }
}

static void w_stage(xd_decl *d, const cfg *c, glob *g, int i, int64_t C)
{
    const int64_t shape[3] = { C, C / 2, c->up_kernel.v[i] };
    char          name[32];
    snprintf(name, sizeof name, "%s.%d%s", c->form->up, i, c->form->up_end);
    (c->form->normed ? xd_w_spread_normed : xd_w_spread)(d, &g->stage[i].up, &g->stage[i].bias,
                                                         name, shape);
    for (int k = 0; k < c->kernel.n; k++) {
        xd_w_enter(d, "%s.%d", c->form->branch, i * c->kernel.n + k);
        w_branch(d, c, &g->stage[i].branch[k], C / 2, k);
        xd_w_leave(d);
    }
}

void xd_generator_declare(xd_decl *d, const cfg *c, glob *g)
{
    int64_t C = c->hidden;
    w_conv(d, c, &g->in, c->form->in, (int64_t[]){ C, c->in, ENDS }, 1);
    for (int i = 0; i < c->up.n; i++, C /= 2)
        w_stage(d, c, g, i, C);
    if (is_snake(c)) {
        xd_w_enter(d, "%s", c->form->last_act);
        w_snake(d, c, &g->act, C, 1, 1); /* filtered with any `antialias` */
        xd_w_leave(d);
    }
    w_conv(d, c, &g->out, c->form->out, (int64_t[]){ c->out, C, ENDS }, c->final_bias);
}

/* ---- running -------------------------------------------------------------------------------- */

static void fill_zeros(void *ctx, float *buf)
{
    memset(buf, 0, *(const size_t *)ctx);
}

static void fill_ones(void *ctx, float *buf)
{
    for (int64_t i = 0; i < *(const int64_t *)ctx; i++)
        buf[i] = 1;
}

static void set_zero(xd_exec *x, xd_tensor t)
{
    size_t bytes = xd_bytes(t);
    if (bytes)
        xd_fill(x, t, fill_zeros, &bytes);
}

/* Computes a convolution of rows [n,C] with a dilation and as many rows of output. Rows whose
 * distance is the dilation are the columns of one row of an image. */
static void convolve(xd_exec *x, xd_tensor out, xd_tensor in, const xd_cnv *w, int64_t dilation)
{
    const int             side = w->w.kernel[2] / 2, pad[3] = { 0, 0, side };
    const int64_t         n = in.d[0], m = xd_ceil_div(n, dilation), C = in.d[1], O = out.d[1];
    size_t                mark = xd_arena_mark(x->tmp);
    const xd_conv_options how = { .lo = pad, .hi = pad };
    if (dilation == 1 || !n) {
        xd_conv_rows_into(x, xd_reshape(out, 4, (int64_t[]){ 1, 1, n, O }),
                          xd_reshape(in, 4, (int64_t[]){ 1, 1, n, C }), w, &how);
        return;
    }
    xd_tensor all = xd_new_f32(x, m * dilation, C), result = xd_new_f32(x, m * dilation, O);
    set_zero(x, xd_rows(all, n, m * dilation - n));
    xd_copy_to(x, xd_rows(all, 0, n), in);
    xd_tensor from = xd_new_as(x, XD_F32, 4, (int64_t[]){ 1, dilation, m, C });
    xd_tensor to = xd_new_as(x, XD_F32, 4, (int64_t[]){ 1, dilation, m, O });
    xd_tensor v = xd_view(all.p, XD_F32, 4, from.d);
    v.s[0] = 0, v.s[1] = C, v.s[2] = dilation * C;
    xd_copy_to(x, from, v);
    xd_conv_rows_into(x, to, from, w, &how);
    v = xd_view(result.p, XD_F32, 4, to.d);
    v.s[0] = 0, v.s[1] = O, v.s[2] = dilation * O;
    xd_copy_to(x, v, to);
    xd_copy_to(x, out, xd_rows(result, 0, n));
    xd_arena_rewind(x->tmp, mark);
}

/* Returns the leaky ReLU of t: slope * t + (1 - slope) * relu(t). */
static xd_tensor leaky(xd_exec *x, xd_tensor t, float slope)
{
    xd_tensor out = xd_new_f32(x, t.d[0], t.d[1]);
    xd_copy_to(x, out, t);
    xd_activate(x, out, XD_RELU);
    xd_axpby(x, out, slope, t, 1 - slope);
    return out;
}

/* Adds sin(a t)^2 / b to t. */
static void add_waves(xd_exec *x, const xd_snake *w, xd_tensor t)
{
    const int64_t n = t.d[0], C = t.d[1];
    size_t        mark = xd_arena_mark(x->tmp);
    xd_tensor     y = xd_new_f32(x, n, C), rate = w->rate, gain = w->gain;
    rate.nd = 2, rate.d[1] = C, rate.s[1] = 1, rate.d[0] = n, rate.s[0] = 0;
    gain.nd = 2, gain.d[1] = C, gain.s[1] = 1, gain.d[0] = 1, gain.s[0] = C;
    xd_gated_into(x, y, t, rate, XD_NONE);
    xd_activate(x, y, XD_SINE_SQUARED);
    xd_add_gated(x, t, gain, y);
    xd_arena_rewind(x->tmp, mark);
}

/* Returns t + sin(a t)^2 / b. Against aliasing, the function is computed at a higher rate. */
static xd_tensor snake(xd_exec *x, const cfg *c, const xd_snake *w, xd_tensor t, int filtered)
{
    const int64_t n = t.d[0], C = t.d[1];
    xd_tensor     out = xd_new_f32(x, n, C);
    if (!filtered) {
        xd_copy_to(x, out, t);
        add_waves(x, w, out);
        return out;
    }
    size_t    mark = xd_arena_mark(x->tmp);
    xd_taps   f = xd_taps_antialias(c->taps, c->ratio);
    int64_t   before = xd_taps_before(&f), wide = n * c->ratio;
    xd_tensor all = xd_new_f32(x, before + wide + xd_taps_after(&f), C);
    if (c->form->filters)
        xd_get(x, f.v, w->up);
    else
        xd_taps_kaiser(&f);
    xd_taps_enlarge(x, xd_rows(all, before, wide), t, &f);
    add_waves(x, w, xd_rows(all, before, wide));
    if (c->form->filters)
        xd_get(x, f.v, w->down);
    xd_taps_reduce(x, out, all, &f);
    xd_arena_rewind(x->tmp, mark);
    return out;
}

static xd_tensor activated(xd_exec *x, const cfg *c, const xd_snake *w, xd_tensor t)
{
    return is_snake(c) ? snake(x, c, w, t, c->antialias) : leaky(x, t, c->slope);
}

/* Computes 1 - relu(2 - relu(x + 1)), which is right for all x, infinities included. */
void xd_audio_clamp(xd_exec *x, xd_tensor io)
{
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor one = xd_new_f32(x, 1, io.d[1]);
    xd_fill(x, one, fill_ones, &(int64_t){ io.d[1] });
    one.d[0] = io.d[0], one.s[0] = 0;
    xd_axpby(x, io, 1, one, 1);
    xd_activate(x, io, XD_RELU);
    xd_axpby(x, io, 2, one, -1);
    xd_activate(x, io, XD_RELU);
    xd_axpby(x, io, 1, one, -1);
    xd_arena_rewind(x->tmp, mark);
}

/* Computes a transposed convolution. Tap j of input row i is added to output row i s + j - p, which
 * is row a of the output's rows that have the same remainder when they are divided by s. */
static xd_tensor spread(xd_exec *x, const cfg *c, const glob *g, int stage, xd_tensor in)
{
    const int64_t s = c->up.v[stage], k = c->up_kernel.v[stage], p = (k - s) / 2;
    const int64_t n = in.d[0], O = g->stage[stage].bias.d[0], rows_out = enlarged(c, stage, n);
    xd_tensor     out = xd_new_f32(x, rows_out, O), bias = g->stage[stage].bias;
    size_t        mark = xd_arena_mark(x->tmp);
    xd_tensor     y = xd_linear_f32(x, in, &g->stage[stage].up);
    bias.nd = 2, bias.d[1] = O, bias.s[1] = 1, bias.d[0] = rows_out, bias.s[0] = 0;
    xd_copy_to(x, out, bias);
    for (int64_t j = 0; j < k; j++) {
        int64_t   first = j >= p ? 0 : xd_ceil_div(p - j, s), at = first * s + j - p;
        int64_t   m = at < rows_out ? xd_min(n - first, (rows_out - 1 - at) / s + 1) : 0;
        xd_tensor to = xd_view((float *)out.p + at * O, XD_F32, 2, (int64_t[]){ m, O });
        to.s[0] = s * O;
        if (m > 0)
            xd_add(x, to, xd_cols(xd_rows(y, first, m), j * O, O));
    }
    xd_arena_rewind(x->tmp, mark);
    return out;
}

/* Adds the output of a branch, divided by the number of branches, to `sum`. */
static void add_branch(xd_exec *x, const cfg *c, const branch *w, const xd_ints *dilation,
                       xd_tensor in, xd_tensor sum)
{
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor h = xd_new_f32(x, in.d[0], in.d[1]);
    xd_copy_to(x, h, in);
    for (int i = 0; i < dilation->n; i++) {
        size_t    inner = xd_arena_mark(x->tmp);
        xd_tensor a = xd_new_f32(x, in.d[0], in.d[1]), b = xd_new_f32(x, in.d[0], in.d[1]);
        convolve(x, a, activated(x, c, &w->act1[i], h), &w->conv1[i], dilation->v[i]);
        convolve(x, b, activated(x, c, &w->act2[i], a), &w->conv2[i], 1);
        xd_add(x, h, b);
        xd_arena_rewind(x->tmp, inner);
    }
    xd_axpby(x, sum, 1.0f / (float)c->kernel.n, h, 1);
    xd_arena_rewind(x->tmp, mark);
}

void xd_generator_run(xd_exec *x, const cfg *c, const glob *g, xd_tensor in, xd_tensor out)
{
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor h = xd_new_f32(x, in.d[0], c->hidden);
    convolve(x, h, in, &g->in, 1);
    for (int i = 0; i < c->up.n; i++) {
        xd_tensor up = spread(x, c, g, i, is_snake(c) ? h : leaky(x, h, c->slope));
        h = xd_new_f32(x, up.d[0], up.d[1]);
        set_zero(x, h);
        for (int k = 0; k < c->kernel.n; k++)
            add_branch(x, c, &g->stage[i].branch[k], &c->dilation[k], up, h);
    }
    if (xd_check(x, h.d[0] == out.d[0] && out.d[1] == c->out, "%lld samples do not fit into %lld",
                 (long long)h.d[0], (long long)out.d[0])) {
        convolve(x, out, is_snake(c) ? snake(x, c, &g->act, h, 1) : leaky(x, h, last_slope),
                 &g->out, 1);
        if (strcmp(c->last, "tanh") == 0)
            xd_activate(x, out, XD_TANH);
        else if (c->last[0])
            xd_audio_clamp(x, out);
    }
    xd_arena_rewind(x->tmp, mark);
}
