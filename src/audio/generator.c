/* generator.c - generates samples from rows by transposed convolutions and residual branches */
#include "audio/generator.h"

#include <stdio.h>
#include <string.h>

#include "base/minmax.h"
#include "exec/op.h"
#include "exec/weight_norm.h"

enum { ENDS = 7 }; /* kernel of the first and the last convolution */
/* Slope of the last leaky ReLU below 0, which has PyTorch's default. */
static const float last_slope = 0.01f;

/* ---- configuration -------------------------------------------------------------------------- */

xd_status xd_gen_read(xd_gen_cfg *c, const xd_gen_keys *keys, const xd_json *obj, const char *what,
                      xd_err *e)
{
    const xd_json *list = xd_json_get(obj, keys->dilation);
    int            n = xd_json_size(list);
    double         v;
    for (int i = 0; i < XD_GEN_KERNELS; i++)
        c->dilation[i] = (xd_ints){ 3, { 1, 3, 5 } };
    for (int i = 0; i < n && i < XD_GEN_KERNELS; i++) {
        const xd_json *row = xd_json_at(list, i);
        c->dilation[i].n = (int)xd_min(xd_json_size(row), XD_GEN_DILATIONS);
        for (int k = 0; k < c->dilation[i].n; k++) {
            if (!xd_json_number(xd_json_at(row, k), &v) || v < 1 || v > 1000)
                return xd_fail(e, XD_EFORMAT, "%s: %s has no valid number", what, keys->dilation);
            c->dilation[i].v[k] = (int64_t)v;
        }
    }
    return XD_OK;
}

xd_status xd_gen_check(const xd_gen_cfg *c, const xd_gen_keys *keys, const char *what, xd_err *e)
{
    if (c->up.n > XD_GEN_STAGES || c->up.n != c->up_kernel.n || c->kernel.n > XD_GEN_KERNELS)
        return xd_fail(e, XD_EFORMAT, "%s: %d %s, %d %s and %d %s do not fit together", what,
                       c->up.n, keys->up, c->up_kernel.n, keys->up_kernel, c->kernel.n,
                       keys->kernel);
    for (int i = 0; i < c->up.n; i++)
        if (c->up.v[i] < 1 || c->up_kernel.v[i] < c->up.v[i] || c->up_kernel.v[i] > 1000)
            return xd_fail(e, XD_EFORMAT, "%s: %s %lld is less than the factor %lld", what,
                           keys->up_kernel, (long long)c->up_kernel.v[i], (long long)c->up.v[i]);
    for (int i = 0; i < c->kernel.n; i++)
        if (c->kernel.v[i] < 1 || c->kernel.v[i] > 1000 || c->kernel.v[i] % 2 == 0)
            return xd_fail(e, XD_EUNSUPPORTED, "%s: %s %lld is not an odd number", what,
                           keys->kernel, (long long)c->kernel.v[i]);
    if (c->in < 1 || c->out < 1 || c->hidden < 1 || c->hidden >> c->up.n < 1)
        return xd_fail(e, XD_EFORMAT, "%s: %s %lld cannot be halved %d times", what, keys->hidden,
                       (long long)c->hidden, c->up.n);
    return XD_OK;
}

/* Returns the number of rows that n rows become in a stage (PyTorch's ConvTranspose1d). */
static int64_t enlarged(const xd_gen_cfg *c, int stage, int64_t n)
{
    int64_t s = c->up.v[stage], k = c->up_kernel.v[stage];
    return n > 0 ? (n - 1) * s + k - 2 * ((k - s) / 2) : 0;
}

int64_t xd_gen_rows(const xd_gen_cfg *c, int64_t n)
{
    for (int i = 0; i < c->up.n; i++)
        n = enlarged(c, i, n);
    return n;
}

/* ---- weights -------------------------------------------------------------------------------- */

static void w_conv(xd_decl *d, const xd_gen_cfg *c, xd_cnv *w, const char *name,
                   const int64_t shape[3], int bias)
{
    if (c->normed)
        xd_w_conv_normed(d, w, name, shape, bias);
    else
        xd_w_conv(d, w, name,
                  &(xd_conv_spec){ .out = shape[0],
                                   .in = shape[1],
                                   .nk = 1,
                                   .kernel = { 1, 1, (int)shape[2] },
                                   .bias = bias });
}

static void w_numbered_snake(xd_decl *d, const xd_gen_cfg *c, xd_snake *w, int i, int64_t C)
{
    xd_w_enter(d, c->names->act, i);
    xd_w_snake(d, w, C);
    xd_w_leave(d);
}

static void w_branch(xd_decl *d, const xd_gen_cfg *c, xd_gen_branch *w, int64_t C, int branch)
{
    const int64_t shape[3] = { C, C, c->kernel.v[branch] };
    char          name[32];
    for (int i = 0; i < c->dilation[branch].n; i++) {
        snprintf(name, sizeof name, "convs1.%d", i);
        w_conv(d, c, &w->conv1[i], name, shape, 1);
        snprintf(name, sizeof name, "convs2.%d", i);
        w_conv(d, c, &w->conv2[i], name, shape, 1);
        if (c->snake) {
            w_numbered_snake(d, c, &w->act1[i], 2 * i, C);
            w_numbered_snake(d, c, &w->act2[i], 2 * i + 1, C);
        }
    }
}

static void w_stage(xd_decl *d, const xd_gen_cfg *c, xd_gen *g, int i, int64_t C)
{
    const int64_t shape[3] = { C, C / 2, c->up_kernel.v[i] };
    char          name[32];
    snprintf(name, sizeof name, "%s.%d%s", c->names->up, i, c->names->up_end);
    if (c->normed)
        xd_w_spread_normed(d, &g->stage[i].up, &g->stage[i].bias, name, shape);
    else
        xd_w_spread(d, &g->stage[i].up, &g->stage[i].bias, name, shape);
    for (int k = 0; k < c->kernel.n; k++) {
        xd_w_enter(d, "%s.%d", c->names->branch, i * c->kernel.n + k);
        w_branch(d, c, &g->stage[i].branch[k], C / 2, k);
        xd_w_leave(d);
    }
}

void xd_gen_weights(xd_decl *d, const xd_gen_cfg *c, xd_gen *g)
{
    int64_t C = c->hidden;
    w_conv(d, c, &g->in, c->names->in, (int64_t[]){ C, c->in, ENDS }, 1);
    for (int i = 0; i < c->up.n; i++, C /= 2)
        w_stage(d, c, g, i, C);
    if (c->snake) {
        xd_w_enter(d, "%s", c->names->last_act);
        xd_w_snake(d, &g->last, C);
        xd_w_leave(d);
    }
    w_conv(d, c, &g->out, c->names->out, (int64_t[]){ c->out, C, ENDS }, c->final_bias);
}

/* ---- running -------------------------------------------------------------------------------- */

static void fill_zeros(void *ctx, float *buf)
{
    memset(buf, 0, *(const size_t *)ctx);
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

/* Computes a transposed convolution. Tap j of input row i is added to output row i s + j - p, which
 * is row a of the output's rows that have the same remainder when they are divided by s. */
static xd_tensor spread(xd_exec *x, const xd_gen_cfg *c, const xd_gen *g, int stage, xd_tensor in)
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

static xd_tensor act(xd_exec *x, const xd_gen_cfg *c, const xd_snake *w, xd_tensor in, float slope)
{
    return c->snake ? xd_snake_rows(x, w, in) : leaky(x, in, slope);
}

/* Adds the output of a branch, divided by the number of branches, to `sum`. */
static void add_branch(xd_exec *x, const xd_gen_cfg *c, const xd_gen_branch *w,
                       const xd_ints *dilation, xd_tensor in, xd_tensor sum)
{
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor h = xd_new_f32(x, in.d[0], in.d[1]);
    xd_copy_to(x, h, in);
    for (int i = 0; i < dilation->n; i++) {
        size_t    inner = xd_arena_mark(x->tmp);
        xd_tensor a = xd_new_f32(x, in.d[0], in.d[1]), b = xd_new_f32(x, in.d[0], in.d[1]);
        convolve(x, a, act(x, c, &w->act1[i], h, c->slope), &w->conv1[i], dilation->v[i]);
        convolve(x, b, act(x, c, &w->act2[i], a, c->slope), &w->conv2[i], 1);
        xd_add(x, h, b);
        xd_arena_rewind(x->tmp, inner);
    }
    xd_axpby(x, sum, 1.0f / (float)c->kernel.n, h, 1);
    xd_arena_rewind(x->tmp, mark);
}

static void fill_one(void *ctx, float *buf)
{
    (void)ctx;
    *buf = 1;
}

/* Clamps elements to -1..1: 1 - relu(2 - relu(x + 1)). */
static void clamp(xd_exec *x, xd_tensor t)
{
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor one = xd_new_f32(x, 1, 1), v = xd_view(t.p, XD_F32, 2, (int64_t[]){ xd_count(t), 1 });
    xd_fill(x, one, fill_one, NULL);
    one.d[0] = v.d[0], one.s[0] = 0;
    xd_axpby(x, v, 1, one, 1);
    xd_activate(x, v, XD_RELU);
    xd_axpby(x, v, 2, one, -1);
    xd_activate(x, v, XD_RELU);
    xd_axpby(x, v, 1, one, -1);
    xd_arena_rewind(x->tmp, mark);
}

void xd_gen_run(xd_exec *x, const xd_gen_cfg *c, const xd_gen *g, xd_tensor in, xd_tensor out)
{
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor h = xd_new_f32(x, in.d[0], c->hidden);
    convolve(x, h, in, &g->in, 1);
    for (int i = 0; i < c->up.n; i++) {
        xd_tensor up = spread(x, c, g, i, c->snake ? h : leaky(x, h, c->slope));
        h = xd_new_f32(x, up.d[0], up.d[1]);
        set_zero(x, h);
        for (int k = 0; k < c->kernel.n; k++)
            add_branch(x, c, &g->stage[i].branch[k], &c->dilation[k], up, h);
    }
    if (xd_check(x, h.d[0] == out.d[0] && out.d[1] == c->out, "%lld samples do not fit into %lld",
                 (long long)h.d[0], (long long)out.d[0])) {
        convolve(x, out, act(x, c, &g->last, h, last_slope), &g->out, 1);
        if (c->snake)
            clamp(x, out);
        else
            xd_activate(x, out, XD_TANH);
    }
    xd_arena_rewind(x->tmp, mark);
}
