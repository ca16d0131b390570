/* vocoder.c - turns a mel spectrogram into samples like diffusers' LTX2Vocoder, which is the
 * generator of HiFi-GAN (Kong et al. 2020, arXiv:2010.05646).
 *
 * Each stage enlarges the rows by a transposed convolution, and then takes the mean of several
 * branches of residual convolutions with different kernels and dilations. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "audio/audio.h"
#include "base/minmax.h"
#include "exec/op.h"

enum { MAXSTAGES = 8, MAXKERNELS = 8, MAXDILATIONS = 8, ENDS = 7 };
/* Slope of the last activation below 0, which has PyTorch's default. */
static const float last_slope = 0.01f;

typedef struct cfg {
    int64_t in, hidden, out;
    xd_ints up_kernel, up, kernel, dilation[MAXKERNELS];
    int     antialias, final_bias, rate;
    float   slope;
    char    act[XD_FIELD_TEXT], last[XD_FIELD_TEXT];
} cfg;

#define AT(m) offsetof(cfg, m)
static const xd_field fields[] = {
    { "in_channels", AT(in), 'l', 128, NULL },
    { "hidden_channels", AT(hidden), 'l', 1024, NULL },
    { "out_channels", AT(out), 'l', 2, NULL },
    { "upsample_kernel_sizes", AT(up_kernel), 'L', 0, NULL },
    { "upsample_factors", AT(up), 'L', 0, NULL },
    { "resnet_kernel_sizes", AT(kernel), 'L', 0, NULL },
    { "resnet_dilations", 0, '-', 0, NULL },
    { "act_fn", AT(act), 's', 0, "leaky_relu" },
    { "leaky_relu_negative_slope", AT(slope), 'f', 0.1, NULL },
    { "antialias", AT(antialias), 'b', 0, NULL },
    { "antialias_ratio", 0, '-', 0, NULL },
    { "antialias_kernel_size", 0, '-', 0, NULL },
    { "final_act_fn", AT(last), 's', 0, "tanh" },
    { "final_bias", AT(final_bias), 'b', 1, NULL },
    { "output_sampling_rate", AT(rate), 'i', 24000, NULL },
    { NULL, 0, 0, 0, NULL },
};

typedef struct branch { xd_cnv conv1[MAXDILATIONS], conv2[MAXDILATIONS]; } branch;

typedef struct glob {
    xd_cnv in, out;
    struct {
        xd_lin    up;
        xd_tensor bias;
        branch    branch[MAXKERNELS];
    } stage[MAXSTAGES];
} glob;

/* ---- configuration -------------------------------------------------------------------------- */

/* Reads the lists of dilations, one for each kernel size. */
static xd_status read_dilations(void *c_, const xd_json *obj, const char *what, xd_err *e)
{
    cfg           *c = c_;
    const xd_json *list = xd_json_get(obj, "resnet_dilations");
    int            n = xd_json_size(list);
    double         v;
    for (int i = 0; i < MAXKERNELS; i++)
        c->dilation[i] = (xd_ints){ 3, { 1, 3, 5 } };
    for (int i = 0; i < n && i < MAXKERNELS; i++) {
        const xd_json *row = xd_json_at(list, i);
        c->dilation[i].n = (int)xd_min(xd_json_size(row), MAXDILATIONS);
        for (int k = 0; k < c->dilation[i].n; k++) {
            if (!xd_json_number(xd_json_at(row, k), &v) || v < 1 || v > 1000)
                return xd_fail(e, XD_EFORMAT, "%s: resnet_dilations has no valid number", what);
            c->dilation[i].v[k] = (int64_t)v;
        }
    }
    return XD_OK;
}

static xd_status check_config(void *c_, xd_err *e)
{
    cfg *c = c_;
    if (!c->up.n)
        c->up = (xd_ints){ 5, { 6, 5, 2, 2, 2 } };
    if (!c->up_kernel.n)
        c->up_kernel = (xd_ints){ 5, { 16, 15, 8, 4, 4 } };
    if (!c->kernel.n)
        c->kernel = (xd_ints){ 3, { 3, 7, 11 } };
    if (!c->dilation[0].n)
        for (int i = 0; i < MAXKERNELS; i++)
            c->dilation[i] = (xd_ints){ 3, { 1, 3, 5 } };
    if (strcmp(c->act, "leaky_relu") || strcmp(c->last, "tanh") || c->antialias)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "vocoder: act_fn '%s', final_act_fn '%s' or antialias %d is not supported; "
                       "only 'leaky_relu', 'tanh' and 0 are",
                       c->act, c->last, c->antialias);
    if (c->up.n > MAXSTAGES || c->up.n != c->up_kernel.n || c->kernel.n > MAXKERNELS)
        return xd_fail(e, XD_EFORMAT,
                       "vocoder: %d upsample_factors, %d upsample_kernel_sizes and %d "
                       "resnet_kernel_sizes do not fit together",
                       c->up.n, c->up_kernel.n, c->kernel.n);
    for (int i = 0; i < c->up.n; i++)
        if (c->up.v[i] < 1 || c->up_kernel.v[i] < c->up.v[i] || c->up_kernel.v[i] > 1000)
            return xd_fail(e, XD_EFORMAT,
                           "vocoder: upsample_kernel_sizes %lld is less than the factor %lld",
                           (long long)c->up_kernel.v[i], (long long)c->up.v[i]);
    for (int i = 0; i < c->kernel.n; i++)
        if (c->kernel.v[i] < 1 || c->kernel.v[i] > 1000 || c->kernel.v[i] % 2 == 0)
            return xd_fail(e, XD_EUNSUPPORTED,
                           "vocoder: resnet_kernel_sizes %lld is not an odd number",
                           (long long)c->kernel.v[i]);
    if (c->in < 1 || c->out < 1 || c->rate < 1 || c->hidden < 1 || c->hidden >> c->up.n < 1)
        return xd_fail(e, XD_EFORMAT, "vocoder: hidden_channels %lld cannot be halved %d times",
                       (long long)c->hidden, c->up.n);
    return XD_OK;
}

static void info(const void *c_, xd_audio_info *out)
{
    const cfg *c = c_;
    *out = (xd_audio_info){ .in = c->in, .out = c->out, .rate = c->rate };
}

/* Returns the number of rows that n rows become in a stage (PyTorch's ConvTranspose1d). */
static int64_t enlarged(const cfg *c, int stage, int64_t n)
{
    int64_t s = c->up.v[stage], k = c->up_kernel.v[stage];
    return n > 0 ? (n - 1) * s + k - 2 * ((k - s) / 2) : 0;
}

static int64_t rows(const void *c, int64_t n)
{
    for (int i = 0; i < ((const cfg *)c)->up.n; i++)
        n = enlarged(c, i, n);
    return n;
}

/* ---- weights -------------------------------------------------------------------------------- */

static void w_conv(xd_decl *d, xd_cnv *w, const char *name, const int64_t shape[3], int bias)
{
    xd_w_conv(d, w, name,
              &(xd_conv_spec){ .out = shape[0],
                               .in = shape[1],
                               .nk = 1,
                               .kernel = { 1, 1, (int)shape[2] },
                               .bias = bias });
}

static void w_branch(xd_decl *d, branch *w, int64_t C, int64_t k, int n)
{
    char name[32];
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "convs1.%d", i);
        w_conv(d, &w->conv1[i], name, (int64_t[]){ C, C, k }, 1);
        snprintf(name, sizeof name, "convs2.%d", i);
        w_conv(d, &w->conv2[i], name, (int64_t[]){ C, C, k }, 1);
    }
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg *c = c_;
    glob      *g = g_;
    int64_t    C = c->hidden;
    char       name[32];
    w_conv(d, &g->in, "conv_in", (int64_t[]){ C, c->in, ENDS }, 1);
    for (int i = 0; i < c->up.n; i++, C /= 2) {
        snprintf(name, sizeof name, "upsamplers.%d", i);
        xd_w_spread(d, &g->stage[i].up, &g->stage[i].bias, name,
                    (int64_t[]){ C, C / 2, c->up_kernel.v[i] });
        for (int k = 0; k < c->kernel.n; k++) {
            xd_w_enter(d, "resnets.%d", i * c->kernel.n + k);
            w_branch(d, &g->stage[i].branch[k], C / 2, c->kernel.v[k], c->dilation[k].n);
            xd_w_leave(d);
        }
    }
    w_conv(d, &g->out, "conv_out", (int64_t[]){ c->out, C, ENDS }, c->final_bias);
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

/* Adds the output of a branch, with the factor `by`, to `sum`. */
static void add_branch(xd_exec *x, const cfg *c, const branch *w, const xd_ints *dilation,
                       xd_tensor in, xd_tensor sum)
{
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor h = xd_new_f32(x, in.d[0], in.d[1]);
    xd_copy_to(x, h, in);
    for (int i = 0; i < dilation->n; i++) {
        size_t    inner = xd_arena_mark(x->tmp);
        xd_tensor a = xd_new_f32(x, in.d[0], in.d[1]), b = xd_new_f32(x, in.d[0], in.d[1]);
        convolve(x, a, leaky(x, h, c->slope), &w->conv1[i], dilation->v[i]);
        convolve(x, b, leaky(x, a, c->slope), &w->conv2[i], 1);
        xd_add(x, h, b);
        xd_arena_rewind(x->tmp, inner);
    }
    xd_axpby(x, sum, 1.0f / (float)c->kernel.n, h, 1);
    xd_arena_rewind(x->tmp, mark);
}

static void run(xd_exec *x, const xd_net *n, xd_tensor in, xd_tensor out)
{
    const cfg  *c = n->cfg;
    const glob *g = n->glob;
    size_t      mark = xd_arena_mark(x->tmp);
    xd_tensor   h = xd_new_f32(x, in.d[0], c->hidden);
    convolve(x, h, in, &g->in, 1);
    for (int i = 0; i < c->up.n; i++) {
        xd_tensor up = spread(x, c, g, i, leaky(x, h, c->slope));
        h = xd_new_f32(x, up.d[0], up.d[1]);
        set_zero(x, h);
        for (int k = 0; k < c->kernel.n; k++)
            add_branch(x, c, &g->stage[i].branch[k], &c->dilation[k], up, h);
    }
    if (xd_check(x, h.d[0] == out.d[0] && out.d[1] == c->out, "%lld samples do not fit into %lld",
                 (long long)h.d[0], (long long)out.d[0])) {
        convolve(x, out, leaky(x, h, last_slope), &g->out, 1);
        xd_activate(x, out, XD_TANH);
    }
    xd_arena_rewind(x->tmp, mark);
}

extern const xd_audio xd_audio_vocoder;

const xd_audio xd_audio_vocoder = {
    .net = { .name = "vocoder",
             .classes = { "LTX2Vocoder" },
             .fields = fields,
             .cfg_size = sizeof(cfg),
             .glob_size = sizeof(glob),
             .read = read_dilations,
             .check = check_config,
             .weights = weights },
    .info = info,
    .rows = rows,
    .run = run,
};
