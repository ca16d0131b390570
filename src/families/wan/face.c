/* face.c - runs the motion encoder and the face encoder of Wan Animate (face.h) like diffusers'
 * WanAnimateMotionEncoder and WanAnimateFaceEncoder.
 *
 * The motion encoder is that of LIA (Wang et al. 2022, arXiv:2203.09043): weights of its layers are
 * multiplied by 1/sqrt(inputs), which is done to the results here, and downsampling blurs first.
 * Diffusers encodes several frames at once (motion_encode_batch_size), which changes no result;
 * here frames are encoded one after the other. */
#include "families/wan/face.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/minmax.h"
#include "dit/layers.h"

enum { TAPS = 4, SMALLEST = 4, MOST_SIZE = SMALLEST << XD_FACE_BLOCKS };
static const float  blur_taps[TAPS] = { 0.125f, 0.375f, 0.375f, 0.125f };
static const float  slope = 0.2f; /* of the leaky ReLU */
static const float  norm_eps = 1e-6f;
static const double root_2 = 1.41421356237309504880;

/* ---- configuration ------------------------------------------------------------------------ */

/* Returns diffusers' default number of channels for frames with this side. */
static int64_t usual_channels(int64_t side)
{
    return side <= 32 ? 512 : 16384 / side;
}

xd_status xd_face_config(xd_face_cfg *c, const xd_json *obj, xd_err *e)
{
    const xd_json *own = xd_json_get(obj, "motion_encoder_channel_sizes");
    c->blocks = 0;
    for (int64_t side = c->size; side >= SMALLEST && c->blocks <= XD_FACE_BLOCKS; side /= 2) {
        char   key[24];
        double v = (double)usual_channels(side);
        snprintf(key, sizeof key, "%lld", (long long)side);
        if (!xd_json_null(own) &&
            (!xd_json_number(xd_json_get(own, key), &v) || !(v >= 1) || v > 65536 || v != floor(v)))
            return xd_fail(e, XD_EFORMAT,
                           "transformer: motion_encoder_channel_sizes needs a number of channels "
                           "from 1 to 65536 for the side %s",
                           key);
        c->channels[c->blocks++] = (int64_t)v;
    }
    c->blocks--;
    return XD_OK;
}

xd_status xd_face_check(const xd_face_cfg *c, int64_t nlayers, xd_err *e)
{
    const xd_config_range r[] = {
        { "motion_encoder_size", c->size, SMALLEST, MOST_SIZE },
        { "motion_style_dim", c->style, 1, 1 << 20 },
        { "motion_dim", c->motions, 1, 1 << 16 },
        { "motion_encoder_dim", c->vector, c->motions, 1 << 20 },
        { "face_encoder_hidden_dim", c->hidden, 1, 1 << 20 },
        { "face_encoder_num_heads", c->heads, 1, 1024 },
        { "inject_face_latents_blocks", c->every, 1, 10000 },
    };
    if (xd_check_ranges(r, sizeof r / sizeof r[0], e) != XD_OK)
        return XD_EFORMAT;
    if (c->size & (c->size - 1))
        return xd_fail(e, XD_EFORMAT, "transformer: motion_encoder_size %lld is not a power of 2",
                       (long long)c->size);
    if (nlayers % c->every)
        return xd_fail(e, XD_EFORMAT,
                       "transformer: num_layers %lld is not a multiple of "
                       "inject_face_latents_blocks, %d",
                       (long long)nlayers, c->every);
    if (nlayers / c->every > XD_FIELD_LIST)
        return xd_fail(e, XD_EFORMAT,
                       "transformer: num_layers %lld and inject_face_latents_blocks %d make %lld "
                       "face adapters; at most %d are supported",
                       (long long)nlayers, c->every, (long long)(nlayers / c->every),
                       XD_FIELD_LIST);
    return XD_OK;
}

/* ---- weights ------------------------------------------------------------------------------ */

static void conv_weights(xd_decl *d, xd_face_conv *w, const char *name, const int64_t shape[3],
                         int stride, int acts)
{
    int kernel = (int)shape[2];
    xd_w_conv(d, &w->w, name,
              &(xd_conv_spec){ .out = shape[0],
                               .in = shape[1],
                               .nk = 2,
                               .kernel = { 1, kernel, kernel },
                               .stride = { 1, stride, stride } });
    if (!acts)
        return;
    xd_w_enter(d, "%s.act_fn", name);
    xd_w_vec(d, &w->bias, "bias", 1, shape);
    xd_w_leave(d);
}

static void motion_weights(xd_decl *d, const xd_face_cfg *c, xd_face_weights *w)
{
    const int64_t *n = c->channels;
    xd_w_enter(d, "motion_encoder");
    conv_weights(d, &w->in, "conv_in", (int64_t[]){ n[0], 3, 1 }, 1, 1);
    for (int i = 0; i < c->blocks; i++) {
        xd_w_enter(d, "res_blocks.%d", i);
        conv_weights(d, &w->a[i], "conv1", (int64_t[]){ n[i], n[i], 3 }, 1, 1);
        conv_weights(d, &w->b[i], "conv2", (int64_t[]){ n[i + 1], n[i], 3 }, 2, 1);
        conv_weights(d, &w->skip[i], "conv_skip", (int64_t[]){ n[i + 1], n[i], 1 }, 2, 0);
        xd_w_leave(d);
    }
    conv_weights(d, &w->out, "conv_out", (int64_t[]){ c->style, n[c->blocks], 4 }, 1, 0);
    for (int i = 0; i < XD_FACE_LINEARS; i++) {
        xd_w_enter(d, "motion_network");
        char name[8];
        snprintf(name, sizeof name, "%d", i);
        xd_w_linear(d, &w->linear[i], name,
                    &(xd_linear_spec){ .in = c->style,
                                       .out = i < XD_FACE_LINEARS - 1 ? c->style : c->motions,
                                       .bias = 1 });
        xd_w_leave(d);
    }
    xd_w_vec(d, &w->directions, "motion_synthesis_weight", 2, (int64_t[]){ c->vector, c->motions });
    xd_w_leave(d);
}

void xd_face_declare(xd_decl *d, const xd_face_cfg *c, int64_t dim, xd_face_weights *w)
{
    const int64_t h = c->hidden;
    motion_weights(d, c, w);
    xd_w_enter(d, "face_encoder");
    xd_w_linear_as(d, &w->local, "conv1_local", 3, (int64_t[]){ c->heads * h, c->vector, 3 }, 1);
    xd_w_linear_as(d, &w->half[0], "conv2", 3, (int64_t[]){ h, h, 3 }, 1);
    xd_w_linear_as(d, &w->half[1], "conv3", 3, (int64_t[]){ h, h, 3 }, 1);
    xd_w_linear(d, &w->rows, "out_proj", &(xd_linear_spec){ .in = h, .out = dim, .bias = 1 });
    xd_w_vec(d, &w->padding, "padding_tokens", 4, (int64_t[]){ 1, 1, 1, dim });
    xd_w_leave(d);
}

/* ---- convolutions of a frame -------------------------------------------------------------- */

static xd_tensor new_frame(xd_exec *x, int64_t rows, int64_t cols, int64_t channels)
{
    return xd_new_as(x, XD_F32, 4, (int64_t[]){ 1, rows, cols, channels });
}

/* Returns rows [at, at + n) of dimension d, 1 or 2, of a frame [1,H,W,C]. */
static xd_tensor part_of(xd_tensor t, int d, int64_t at, int64_t n)
{
    t.p = (float *)t.p + at * t.s[d];
    t.d[d] = n;
    return t;
}

/* Blurs a frame along its rows (d 1) or columns (d 2), with `pad` zeros on both sides. */
static void blur_along(xd_exec *x, int d, int64_t pad, xd_tensor in, xd_tensor out)
{
    int64_t have = in.d[d], want = out.d[d], n = xd_min(have, want);
    xd_axpby(x, part_of(out, d, 0, n), 0, part_of(in, d, 0, n), 0);
    xd_axpby(x, part_of(out, d, want - n, n), 0, part_of(in, d, 0, n), 0);
    for (int64_t i = 0; i < TAPS; i++) {
        int64_t from = xd_max(0, i - pad), to = from - i + pad;
        n = xd_min(have - from, want - to);
        if (n > 0)
            xd_axpby(x, part_of(out, d, to, n), blur_taps[i], part_of(in, d, from, n), 1);
    }
}

static xd_tensor blur(xd_exec *x, xd_tensor in, int64_t pad)
{
    int64_t   more = 2 * pad - TAPS + 1, H = in.d[1] + more, W = in.d[2] + more, C = in.d[3];
    xd_tensor mid = new_frame(x, H, in.d[2], C), out = new_frame(x, H, W, C);
    blur_along(x, 1, pad, in, mid);
    blur_along(x, 2, pad, mid, out);
    return out;
}

/* Computes sqrt(2) leaky_relu(scale * y + bias) of y [..,C] in place. */
static void activate(xd_exec *x, xd_tensor frame, xd_tensor bias, double scale)
{
    size_t    mark = xd_arena_mark(x->tmp);
    int64_t   C = frame.d[3], n = xd_count(frame) / C;
    xd_tensor y = xd_reshape(frame, 2, (int64_t[]){ n, C }), t = xd_new_f32(x, n, C);
    xd_tensor all = xd_reshape(bias, 2, (int64_t[]){ 1, C });
    all.d[0] = n, all.s[0] = 0;
    xd_copy_to(x, t, all);
    xd_axpby(x, y, 1, t, (float)scale);
    xd_copy_to(x, t, y);
    xd_activate(x, t, XD_RELU);
    xd_axpby(x, y, (float)(root_2 * (1 - (double)slope)), t, (float)(root_2 * (double)slope));
    xd_arena_rewind(x->tmp, mark);
}

static double scale_of(int64_t in, int kernel)
{
    return 1 / sqrt((double)(in * kernel * kernel));
}

/* Computes a convolution, and its activation if it has one. */
static void convolve(xd_exec *x, xd_tensor out, xd_tensor in, const xd_face_conv *w,
                     const xd_conv_options *how)
{
    xd_conv_rows_into(x, out, in, &w->w, how);
    if (w->bias.nd)
        activate(x, out, w->bias, scale_of(in.d[3], w->w.w.kernel[2]));
}

/* Computes a convolution block: two convolutions, of which the second halves the sides, and a
 * convolution that skips both. */
static void run_conv_block(xd_exec *x, xd_tensor out, xd_tensor in, const xd_face_weights *w, int i)
{
    static const int one[3] = { 0, 1, 1 };
    size_t           mark = xd_arena_mark(x->tmp);
    xd_tensor        y = new_frame(x, in.d[1], in.d[2], in.d[3]);
    convolve(x, y, in, &w->a[i], &(xd_conv_options){ .lo = one, .hi = one });
    convolve(x, out, blur(x, y, 2), &w->b[i], &(xd_conv_options){ .stride = 2 });
    xd_arena_rewind(x->tmp, mark);
    xd_tensor skip = new_frame(x, out.d[1], out.d[2], out.d[3]);
    convolve(x, skip, blur(x, in, 1), &w->skip[i], &(xd_conv_options){ .stride = 2 });
    xd_axpby(x, out, (float)(scale_of(in.d[3], 1) / root_2), skip, (float)(1 / root_2));
    xd_arena_rewind(x->tmp, mark);
}

/* Computes the features [1,style] of a frame. pixels: F32 [size,size,3]; NULL: all are -1. */
static void run_frame(xd_exec *x, const xd_face_cfg *c, const xd_face_weights *w,
                      const float *pixels, xd_tensor out)
{
    size_t    mark = xd_arena_mark(x->tmp);
    int64_t   side = c->size, n = side * side * 3;
    float    *blank = NULL;
    xd_tensor in = new_frame(x, side, side, 3), h = new_frame(x, side, side, c->channels[0]);
    if (!pixels && !xd_counting(x) && xd_ok(x)) {
        if (!xd_check(x, (blank = malloc((size_t)n * sizeof *blank)) != NULL,
                      "no memory for a frame of a face video"))
            return;
        for (int64_t i = 0; i < n; i++)
            blank[i] = -1;
    }
    xd_put(x, in, pixels ? pixels : blank);
    free(blank);
    convolve(x, h, in, &w->in, &(xd_conv_options){ 0 });
    for (int i = 0; i < c->blocks; i++) {
        side /= 2;
        xd_tensor y = new_frame(x, side, side, c->channels[i + 1]);
        run_conv_block(x, y, h, w, i);
        h = y;
    }
    convolve(x, xd_reshape(out, 4, (int64_t[]){ 1, 1, 1, c->style }), h, &w->out,
             &(xd_conv_options){ 0 });
    xd_axpby(x, out, 0, (xd_tensor){ 0 }, (float)scale_of(c->channels[c->blocks], SMALLEST));
    xd_arena_rewind(x->tmp, mark);
}

/* ---- directions of motion ----------------------------------------------------------------- */

/* Reflects column `at` of v, a [n,m] matrix, by the Householder vector in rows k.. of column k. */
static void reflect(double *v, int64_t n, int64_t m, int64_t k, double *of, int64_t width,
                    int64_t at)
{
    double sum = 0, norm = 0;
    for (int64_t i = k; i < n; i++) {
        sum += v[i * m + k] * of[i * width + at];
        norm += v[i * m + k] * v[i * m + k];
    }
    for (int64_t i = k; i < n && norm > 0; i++)
        of[i * width + at] -= 2 * sum / norm * v[i * m + k];
}

/* Computes the orthogonal factor q [n,m] of the QR decomposition of v [n,m] by Householder
 * reflections, with the signs of LAPACK's dgeqrf. Overwrites v. */
static void orthogonal(double *v, int64_t n, int64_t m, double *q)
{
    for (int64_t k = 0; k < m; k++) {
        double norm = 0;
        for (int64_t i = k; i < n; i++)
            norm += v[i * m + k] * v[i * m + k];
        double diagonal = v[k * m + k] >= 0 ? -sqrt(norm) : sqrt(norm);
        int    plain = norm == v[k * m + k] * v[k * m + k]; /* nothing is reflected */
        v[k * m + k] -= plain ? v[k * m + k] : diagonal;
        for (int64_t j = k + 1; j < m; j++)
            reflect(v, n, m, k, v, m, j);
    }
    memset(q, 0, (size_t)(n * m) * sizeof *q);
    for (int64_t j = 0; j < m; j++)
        q[j * m + j] = 1;
    for (int64_t k = m - 1; k >= 0; k--)
        for (int64_t j = 0; j < m; j++)
            reflect(v, n, m, k, q, m, j);
}

/* Computes motions [n,m] q^T, with the orthogonal factor q of the directions, in host memory. */
static void combine(const xd_face_cfg *c, const float *directions, const float *motions, int64_t n,
                    double *work, float *out)
{
    int64_t V = c->vector, m = c->motions;
    double *q = work + V * m;
    for (int64_t i = 0; i < V * m; i++)
        work[i] = (double)(directions[i] + 1e-8f);
    orthogonal(work, V, m, q);
    for (int64_t i = 0; i < n * V; i++) {
        double sum = 0;
        for (int64_t k = 0; k < m; k++)
            sum += (double)motions[i / V * m + k] * q[i % V * m + k];
        out[i] = (float)sum;
    }
}

/* Returns the motion vectors [n,vector] of motions [n,motions]. */
static xd_tensor vectors_of(xd_exec *x, const xd_face_cfg *c, const xd_face_weights *w,
                            xd_tensor motions)
{
    int64_t   n = motions.d[0], V = c->vector, m = c->motions;
    xd_tensor out = xd_new_f32(x, n, V);
    if (xd_counting(x) || !xd_ok(x))
        return out;
    double *work = malloc((size_t)(2 * V * m) * sizeof *work);
    float  *host = malloc((size_t)(V * m + n * m + n * V) * sizeof *host);
    if (xd_check(x, work && host, "no memory for the motions of a face video")) {
        xd_get(x, host, w->directions);
        xd_get(x, host + V * m, motions);
        combine(c, host, host + V * m, n, work, host + V * m + n * m);
        xd_put(x, out, host + V * m + n * m);
    }
    free(work), free(host);
    return out;
}

/* Returns the motion vectors of n frames, [n,vector]. */
static xd_tensor run_motion(xd_exec *x, const xd_face_cfg *c, const xd_face_weights *w,
                            const float *face, int64_t n)
{
    int       each = face || xd_counting(x); /* memory is counted for a face video */
    xd_tensor y = xd_new_f32(x, each ? n : 1, c->style);
    for (int64_t i = 0; i < y.d[0]; i++)
        run_frame(x, c, w, face ? face + i * c->size * c->size * 3 : NULL, xd_rows(y, i, 1));
    for (int i = 0; i < XD_FACE_LINEARS; i++) {
        xd_axpby(x, y, 0, (xd_tensor){ 0 }, (float)scale_of(c->style, 1));
        y = xd_linear_f32(x, y, &w->linear[i]);
    }
    y = vectors_of(x, c, w, y);
    if (y.d[0] == n)
        return y;
    xd_tensor all = xd_new_f32(x, n, c->vector);
    y.d[0] = n, y.s[0] = 0;
    xd_copy_to(x, all, y);
    return all;
}

/* ---- the face encoder --------------------------------------------------------------------- */

/* Computes a causal convolution of rows [n,C] with a kernel of 3 rows, in which the first row
 * repeats. Row i of the result is at row `stride` i. */
static xd_tensor convolve_rows(xd_exec *x, xd_tensor in, const xd_lin *w, int64_t stride)
{
    enum { KERNEL = 3 };
    int64_t   n = (in.d[0] - 1) / stride + 1, C = in.d[1];
    xd_tensor wide = xd_new_f32(x, n, KERNEL * C);
    for (int64_t k = 0; k < KERNEL; k++) {
        int64_t   back = KERNEL - 1 - k, first = xd_min(n, (back + stride - 1) / stride);
        xd_tensor to = xd_view((float *)wide.p + k, XD_F32, 2, (int64_t[]){ n, C });
        to.s[0] = KERNEL * C, to.s[1] = KERNEL;
        xd_tensor from = xd_rows(in, 0, 1), later = to;
        from.d[0] = first, from.s[0] = 0;
        later.d[0] = first;
        xd_copy_to(x, later, from);
        if (first == n)
            continue;
        from = xd_rows(in, first * stride - back, 1);
        from.d[0] = n - first, from.s[0] = stride * in.s[0];
        xd_copy_to(x, xd_rows(to, first, n - first), from);
    }
    return xd_linear_f32(x, wide, w);
}

static xd_tensor norm_silu(xd_exec *x, xd_tensor in)
{
    xd_tensor y = xd_new_f32(x, in.d[0], in.d[1]);
    xd_norm_into(x, &(xd_norm){ .out = y, .in = in, .eps = norm_eps });
    xd_activate(x, y, XD_SILU);
    return y;
}

/* Copies one row [1,D] to every row of `out`. */
static void repeat_row(xd_exec *x, xd_tensor out, xd_tensor row)
{
    row.d[0] = out.d[0], row.s[0] = 0;
    xd_copy_to(x, out, row);
}

static void fill_zeros(void *ctx, float *buf)
{
    memset(buf, 0, (size_t)*(const int64_t *)ctx * sizeof *buf);
}

xd_tensor xd_face_read(xd_exec *x, const xd_face_cfg *c, const xd_face_weights *w, int64_t dim,
                       const float *face, int64_t latents)
{
    int64_t   rows = xd_face_rows(c), first = rows * dim, frames = xd_face_frames(latents);
    xd_tensor out = xd_new_f32(x, latents * rows, dim);
    if (!xd_check(x, latents >= 2,
                  "a face video needs at least 2 latent frames, one of which is a still image, but "
                  "there are %lld",
                  (long long)latents))
        return out;
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor wide = convolve_rows(x, run_motion(x, c, w, face, frames), &w->local, 1);
    xd_tensor line = xd_reshape(out, 2, (int64_t[]){ latents, first });
    xd_fill(x, xd_rows(line, 0, 1), fill_zeros, &first);
    for (int64_t i = 0; i < c->heads; i++) {
        xd_tensor y = xd_new_f32(x, frames, c->hidden);
        xd_copy_to(x, y, xd_cols(wide, i * c->hidden, c->hidden));
        for (int k = 0; k < 2; k++)
            y = convolve_rows(x, norm_silu(x, y), &w->half[k], 2);
        y = xd_linear_f32(x, norm_silu(x, y), &w->rows);
        xd_copy_to(x, xd_cols(xd_rows(line, 1, latents - 1), i * dim, dim), y);
    }
    repeat_row(x, xd_cols(xd_rows(line, 1, latents - 1), c->heads * dim, dim),
               xd_reshape(w->padding, 2, (int64_t[]){ 1, dim }));
    xd_arena_rewind(x->tmp, mark);
    return out;
}
