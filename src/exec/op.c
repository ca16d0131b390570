/* op.c - the ops of a model, made from device kernels and hooks */
#include "exec/op.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/host.h"
#include "exec/run.h"

static const xd_tensor none;

/* ---- memory ------------------------------------------------------------------------------- */

xd_tensor xd_new_as(xd_exec *x, xd_dtype type, int nd, const int64_t *d)
{
    xd_tensor t = xd_view(NULL, type, nd, d);
    size_t    bytes = xd_bytes(t);
    t.p = xd_ok(x) ? xd_arena_get(x->tmp, bytes ? bytes : 1) : NULL;
    if (!t.p && xd_ok(x))
        xd_exec_fail(x, XD_ENOMEM, "no room for a tensor of %zu bytes: %zu of %zu are in use",
                     bytes, x->tmp->used, x->tmp->cap);
    if (!t.p)                   /* NULL would mean absent; not followed after a failure */
        t.p = x->tmp->base;
    return t;
}

xd_tensor xd_new(xd_exec *x, int64_t rows, int64_t cols)
{
    return xd_new_as(x, x->act, 2, (int64_t[]){ rows, cols });
}

xd_tensor xd_new_f32(xd_exec *x, int64_t rows, int64_t cols)
{
    return xd_new_as(x, XD_F32, 2, (int64_t[]){ rows, cols });
}

static int is_plain(xd_tensor t)
{
    return t.type == XD_F32 && xd_contiguous(t);
}

void xd_put(xd_exec *x, xd_tensor to, const float *from)
{
    size_t mark = xd_arena_mark(x->tmp);
    if (x->dev->host_memory) {
        if (xd_ok(x) && !xd_counting(x))
            xd_copy_to(x, to, xd_view((void *)(uintptr_t)from, XD_F32, to.nd, to.d));
        return;
    }
    xd_tensor buf = is_plain(to) ? to : xd_new_as(x, XD_F32, to.nd, to.d);
    xd_upload(x, buf.p, from, xd_bytes(buf));
    if (!is_plain(to))
        xd_copy_to(x, to, buf);
    xd_arena_rewind(x->tmp, mark);
}

void xd_get(xd_exec *x, float *to, xd_tensor from)
{
    size_t mark = xd_arena_mark(x->tmp);
    if (x->dev->host_memory) {
        if (!xd_ok(x) || xd_counting(x))
            return;
        xd_copy_to(x, xd_view(to, XD_F32, from.nd, from.d), from);
        x->dev->mem->sync(x->dev, x->st);
        return;
    }
    xd_tensor buf = is_plain(from) ? from : xd_new_as(x, XD_F32, from.nd, from.d);
    if (!is_plain(from))
        xd_copy_to(x, buf, from);
    xd_download(x, to, buf.p, xd_bytes(buf));
    xd_arena_rewind(x->tmp, mark);
}

/* fn writes host memory, or the device's memory where the host can address it. */
static void fill_buffer(xd_exec *x, xd_tensor buf, void (*fn)(void *ctx, float *buf), void *ctx)
{
    float *host = buf.p;
    if (!xd_ok(x) || xd_counting(x))
        return;
    if (!x->dev->host_memory && !(host = malloc(xd_bytes(buf) + 1))) {
        xd_exec_fail(x, XD_ENOMEM, "no memory for %zu bytes", xd_bytes(buf));
        return;
    }
    fn(ctx, host);
    if (host == buf.p)
        return;
    xd_upload(x, buf.p, host, xd_bytes(buf));
    free(host);
}

void xd_fill(xd_exec *x, xd_tensor to, void (*fn)(void *ctx, float *buf), void *ctx)
{
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor buf = is_plain(to) ? to : xd_new_as(x, XD_F32, to.nd, to.d);
    fill_buffer(x, buf, fn, ctx);
    if (!is_plain(to))
        xd_copy_to(x, to, buf);
    xd_arena_rewind(x->tmp, mark);
}

void xd_copy_to(xd_exec *x, xd_tensor out, xd_tensor in)
{
    xd_run(x, XD_OP_COPY, "copy", &(xd_copy){ out, in });
}

xd_tensor xd_as(xd_exec *x, xd_tensor in, xd_dtype type)
{
    if (in.type == type)
        return in;
    xd_tensor t = xd_new_as(x, type, in.nd, in.d);
    xd_copy_to(x, t, in);
    return t;
}

/* ---- linear layers ------------------------------------------------------------------------ */

static void zeros(void *ctx, float *buf)
{
    memset(buf, 0, *(const size_t *)ctx);
}

/* out = residual + gate * act(in w^T + b). A layer that is cut by inputs gives partial sums, which
 * are added over the ranks before bias, activation, gate and residual. */
static void linear(xd_exec *x, xd_tensor out, xd_tensor in, const xd_lin *w, xd_act act,
                   xd_tensor gate, xd_tensor residual)
{
    size_t mark = xd_arena_mark(x->tmp);
    if (!xd_check(x, in.d[1] == w->w.in, "linear layer of %lld inputs got %lld",
                  (long long)w->w.in, (long long)in.d[1]))
        return;
    /* The int8 kernels quantize rows of any type, and bf16 kernels round f32 rows themselves. For
     * e4m3 weights, which are expanded to the compute type, the input has the compute type. */
    if (w->w.type != XD_I8 && !(w->w.type == XD_BF16 && in.type == XD_F32))
        in = xd_as(x, in, xd_is_quantized(w->w.type) ? x->act : w->w.type);
    if (w->split != XD_ROW) {
        xd_run(x, XD_OP_GEMM, "linear layer",
               &(xd_gemm){ .out = out, .in = in, .bias = w->b, .gate = gate,
                           .residual = residual, .w = &w->w, .act = act });
    } else {
        const xd_hooks *m = x->hooks;
        while (!m->sum)
            m = m->next;
        int       alone = m == &xd_hooks_local;
        xd_tensor part = alone ? out : xd_new_f32(x, out.d[0], out.d[1]);
        size_t bytes = (size_t)xd_count(part) * sizeof(float);
        if (!alone && !w->w.in)         /* a rank without input features adds 0                */
            xd_fill(x, part, zeros, &bytes);
        else
            xd_run(x, XD_OP_GEMM, "linear layer",
               &(xd_gemm){ .out = part, .in = in, .bias = alone ? w->b : none,
                           .gate = alone ? gate : none, .residual = alone ? residual : none,
                           .w = &w->w, .act = alone ? act : XD_NONE });
        m->sum(x, m, XD_OVER_FEATURES, part);
        if (!alone) {
            xd_tensor row = part;       /* a view with the bias in every row                   */
            row.p = w->b.p, row.s[0] = 0;
            if (w->b.p)
                xd_add(x, part, row);
            if (act != XD_NONE)
                xd_activate(x, part, act);
            if (residual.p)
                xd_add_gated(x, residual, gate, part);
            else
                xd_copy_to(x, out, part);
        }
    }
    xd_arena_rewind(x->tmp, mark);
}

void xd_linear_into(xd_exec *x, xd_tensor out, xd_tensor in, const xd_lin *w)
{
    linear(x, out, in, w, XD_NONE, none, none);
}

void xd_linear_act_into(xd_exec *x, xd_tensor out, xd_tensor in, const xd_lin *w, xd_act act)
{
    linear(x, out, in, w, act, none, none);
}

xd_tensor xd_linear(xd_exec *x, xd_tensor in, const xd_lin *w)
{
    return xd_linear_act(x, in, w, XD_NONE);
}

xd_tensor xd_linear_f32(xd_exec *x, xd_tensor in, const xd_lin *w)
{
    xd_tensor out = xd_new_f32(x, in.d[0], w->w.out);
    linear(x, out, in, w, XD_NONE, none, none);
    return out;
}

xd_tensor xd_linear_act(xd_exec *x, xd_tensor in, const xd_lin *w, xd_act act)
{
    xd_tensor out = xd_new(x, in.d[0], w->w.out);
    linear(x, out, in, w, act, none, none);
    return out;
}

void xd_linear_add(xd_exec *x, xd_tensor acc, xd_tensor gate, xd_tensor in, const xd_lin *w)
{
    linear(x, acc, in, w, XD_NONE, gate, acc);
}

xd_tensor xd_seg(xd_tensor y, const xd_lin *w, int i)
{
    int64_t at = 0;
    for (int k = 0; k < i; k++)
        at += w->seg[k];
    return xd_cols(y, at, w->seg[i]);
}

/* ---- norms and element-wise ops ----------------------------------------------------------- */

static xd_tensor norm(xd_exec *x, xd_norm a)
{
    a.out = xd_new(x, a.in.d[0], a.in.d[1]);
    xd_run(x, XD_OP_NORM, "norm", &a);
    return a.out;
}

xd_tensor xd_norm_mod(xd_exec *x, xd_tensor in, xd_tensor scale, xd_tensor shift, float eps)
{
    return norm(x, (xd_norm){ .in = in, .scale = scale, .shift = shift, .eps = eps });
}

xd_tensor xd_layer_norm(xd_exec *x, xd_tensor in, xd_tensor gain, xd_tensor bias, float eps)
{
    return norm(x, (xd_norm){ .in = in, .gain = gain, .bias = bias, .eps = eps });
}

void xd_norm_into(xd_exec *x, xd_tensor out, xd_tensor in, xd_tensor gain, xd_tensor bias,
                  xd_tensor scale, xd_tensor shift, float eps)
{
    xd_run(x, XD_OP_NORM, "norm", &(xd_norm){ .out = out, .in = in, .gain = gain, .bias = bias,
                                              .scale = scale, .shift = shift, .eps = eps });
}

xd_tensor xd_rms_norm(xd_exec *x, xd_tensor in, xd_tensor gain, float eps)
{
    return norm(x, (xd_norm){ .in = in, .gain = gain, .rms = 1, .eps = eps });
}

void xd_qk_norm_into(xd_exec *x, xd_tensor out, xd_tensor in, xd_tensor gain, float eps,
                     xd_tensor cos, xd_tensor sin)
{
    xd_run(x, XD_OP_QKNORM, "norm and rope of heads",
           &(xd_qknorm){ .out = out, .in = in, .gain = gain, .cos = cos, .sin = sin,
                         .norm = gain.p != NULL, .rms = 1, .eps = eps });
}

void xd_qk_layer_norm_into(xd_exec *x, xd_tensor out, xd_tensor in, xd_tensor gain, xd_tensor bias,
                           float eps, xd_tensor cos, xd_tensor sin)
{
    xd_run(x, XD_OP_QKNORM, "norm and rope of heads",
           &(xd_qknorm){ .out = out, .in = in, .gain = gain, .bias = bias, .cos = cos, .sin = sin,
                         .norm = 1, .eps = eps });
}

void xd_activate(xd_exec *x, xd_tensor io, xd_act act)
{
    xd_run(x, XD_OP_GLU, "activation", &(xd_glu){ .out = io, .a = io, .act = act });
}

xd_tensor xd_gated(xd_exec *x, xd_tensor a, xd_tensor b, xd_act act)
{
    xd_tensor out = xd_new(x, a.d[0], a.d[1]);
    xd_run(x, XD_OP_GLU, "gated activation", &(xd_glu){ .out = out, .a = a, .b = b, .act = act });
    return out;
}

void xd_add(xd_exec *x, xd_tensor acc, xd_tensor in)
{
    xd_run(x, XD_OP_ADDMUL, "addition", &(xd_addmul){ .acc = acc, .in = in });
}

void xd_add_gated(xd_exec *x, xd_tensor acc, xd_tensor gate, xd_tensor in)
{
    xd_run(x, XD_OP_ADDMUL, "gated addition", &(xd_addmul){ acc, gate, in });
}

void xd_axpby(xd_exec *x, xd_tensor y, float a, xd_tensor in, float b)
{
    xd_run(x, XD_OP_AXPBY, "combination", &(xd_axpby_args){ .y = y, .x = in, .a = a, .b = b });
}

/* ---- attention ---------------------------------------------------------------------------- */

/* [B*n,H,D] -> [B,n,H,D] */
static xd_tensor batched(xd_tensor t, int64_t B)
{
    xd_tensor r = t;
    r.nd = 4;
    r.d[0] = B, r.d[1] = t.d[0] / B, r.d[2] = t.d[1], r.d[3] = t.d[2];
    r.s[0] = t.s[0] * r.d[1], r.s[1] = t.s[0], r.s[2] = t.s[1], r.s[3] = t.s[2];
    return r;
}

static void attend(xd_exec *x, const xd_hooks *m, xd_tensor out, xd_tensor q, xd_tensor k,
                   xd_tensor v, xd_tensor bias, float scale, int causal)
{
    xd_kv kv = { batched(k, x->B), batched(v, x->B) };
    while (!m->attn)
        m = m->next;
    m->attn(x, m, &(xd_attn_args){ .out = batched(out, x->B), .q = batched(q, x->B),
                                   .bias = bias, .kv = &kv, .nkv = 1, .causal = causal,
                                   .scale = scale > 0 ? scale : 1.0f / sqrtf((float)q.d[2]) });
    x->site++;
}

static xd_tensor attention(xd_exec *x, const xd_hooks *m, xd_tensor q, xd_tensor k, xd_tensor v,
                           xd_tensor bias, float scale, int causal)
{
    xd_tensor out = xd_new_as(x, x->act, 3, (int64_t[]){ q.d[0], q.d[1], v.d[2] });
    attend(x, m, out, q, k, v, bias, scale, causal);
    return out;
}

void xd_attn_into(xd_exec *x, xd_tensor out, xd_tensor q, xd_tensor k, xd_tensor v, float scale)
{
    attend(x, x->hooks, out, q, k, v, none, scale, 0);
}

xd_tensor xd_attn(xd_exec *x, xd_tensor q, xd_tensor k, xd_tensor v, float scale)
{
    return attention(x, x->hooks, q, k, v, none, scale, 0);
}

xd_tensor xd_attn_of(xd_exec *x, xd_stream_id stream, xd_tensor q, xd_tensor k, xd_tensor v,
                     float scale)
{
    const xd_layout *whole = x->lay;
    xd_layout        one = *whole;
    for (int s = 0; s < XD_NSTREAMS; s++)
        if (s != (int)stream)
            one.len[s] = 0;
    x->lay = &one;
    xd_tensor out = xd_attn(x, q, k, v, scale);
    x->lay = whole;
    return out;
}

xd_tensor xd_attn_over(xd_exec *x, xd_tensor q, xd_tensor k, xd_tensor v, xd_tensor bias,
                       float scale)
{
    return attention(x, &xd_hooks_local, q, k, v, bias, scale, 0);
}

xd_tensor xd_attn_causal(xd_exec *x, xd_tensor q, xd_tensor k, xd_tensor v, float scale)
{
    return attention(x, &xd_hooks_local, q, k, v, none, scale, 1);
}

/* ---- tables, images, time ----------------------------------------------------------------- */

/* Copies rows of a table in host memory (a mapped file) for a device that cannot address it. */
static void rows_of_host(xd_exec *x, xd_tensor out, xd_tensor table, const int32_t *ids, int64_t n)
{
    xd_tensor some = xd_new_as(x, table.type, 2, (int64_t[]){ n, table.d[1] });
    size_t    row = (size_t)table.d[1] * xd_dtype_size(table.type);
    char     *host = xd_ok(x) && !xd_counting(x) ? malloc((size_t)n * row + 1) : NULL;
    for (int64_t i = 0; i < n && host; i++) {
        if (xd_check(x, ids[i] >= 0 && ids[i] < table.d[0], "token id %d is not one of %lld",
                     (int)ids[i], (long long)table.d[0]))
            memcpy(host + (size_t)i * row, (const char *)table.p + (size_t)ids[i] * row, row);
    }
    if (host)
        xd_upload(x, some.p, host, (size_t)n * row);
    free(host);
    xd_copy_to(x, out, some);
}

xd_tensor xd_lookup_rows(xd_exec *x, xd_tensor table, const int32_t *ids, int64_t n, xd_dtype type)
{
    xd_tensor out = xd_new_as(x, type, 2, (int64_t[]){ n, table.d[1] });
    size_t    mark = xd_arena_mark(x->tmp);
    if (!x->dev->host_memory && (xd_counting(x) || !x->dev->mem->owns(x->dev, table.p))) {
        rows_of_host(x, out, table, ids, n);
        xd_arena_rewind(x->tmp, mark);
        return out;
    }
    xd_tensor dev_ids = xd_new_as(x, XD_I32, 1, &n);
    xd_upload(x, dev_ids.p, ids, (size_t)n * sizeof *ids);
    xd_run(x, XD_OP_LOOKUP, "embedding", &(xd_lookup){ out, table, dev_ids });
    xd_arena_rewind(x->tmp, mark);
    return out;
}

static int64_t conv_extent(int64_t in, int k, int stride, int lo, int hi)
{
    return (in + lo + hi - k) / stride + 1;
}

void xd_conv2d_into(xd_exec *x, xd_tensor out, xd_tensor in, const xd_cnv *w, int stride,
                    const int lo[3], const int hi[3], xd_tensor residual)
{
    size_t        mark = xd_arena_mark(x->tmp);
    const xd_hooks *m = x->hooks;
    while (!m->conv)
        m = m->next;
    xd_conv a = { .out = out, .in = xd_as(x, in, w->w.type), .bias = w->b, .residual = residual,
                  .w = &w->w, .stride = { 1, stride, stride } };
    memcpy(a.lo, lo, sizeof a.lo);
    memcpy(a.hi, hi, sizeof a.hi);
    m->conv(x, m, &a);
    xd_arena_rewind(x->tmp, mark);
}

xd_tensor xd_conv2d(xd_exec *x, xd_tensor in, const xd_cnv *w, int stride, const int lo[3],
                    const int hi[3], xd_tensor residual)
{
    int64_t d[4] = { in.d[0], conv_extent(in.d[1], w->w.kernel[1], stride, lo[1], hi[1]),
                     conv_extent(in.d[2], w->w.kernel[2], stride, lo[2], hi[2]), w->w.out };
    xd_tensor out = residual.p ? residual : xd_new_as(x, x->act, 4, d);
    xd_conv2d_into(x, out, in, w, stride, lo, hi, residual);
    return out;
}

void xd_conv_rows_into(xd_exec *x, xd_tensor out, xd_tensor in, const xd_cnv *w, int stride,
                       const int lo[3], const int hi[3], xd_tensor residual)
{
    const xd_hooks *m = x->hooks;
    x->hooks = &xd_hooks_local;
    xd_conv2d_into(x, out, in, w, stride, lo, hi, residual);
    x->hooks = m;
}

xd_halo xd_halo_of(xd_exec *x, xd_tensor in, int lo, int hi)
{
    xd_halo        r;
    const xd_hooks *m = x->hooks;
    while (!m->halo)
        m = m->next;
    m->halo(x, m, in, lo, hi, &r.above, &r.below);
    return r;
}

void xd_conv3d_into(xd_exec *x, xd_tensor out, xd_tensor in, const xd_cnv *w, xd_tensor residual)
{
    const int *k = w->w.kernel, lo[3] = { 0, k[1] / 2, k[2] / 2 };
    xd_conv2d_into(x, out, in, w, 1, lo, (int[]){ 0, (k[1] - 1) / 2, (k[2] - 1) / 2 }, residual);
}

/* Adds the partial sums of all frames to those of the first frame: ranks share rows, not frames. */
static void fold_frames(xd_exec *x, xd_tensor partial, int64_t T, int64_t n)
{
    double *p = T > 1 ? xd_host_open(x, partial.p, (size_t)(T * n) * sizeof *p) : NULL;
    for (int64_t t = 1; t < T && p; t++)
        for (int64_t i = 0; i < n; i++)
            p[i] += p[t * n + i];
    xd_host_close(x, p, partial.p, (size_t)n * sizeof *p);
}

void xd_group_rows(xd_exec *x, xd_tensor partial, xd_tensor in)
{
    int64_t d[3] = { in.d[0] * in.d[1], in.d[2], in.d[3] };
    xd_run(x, XD_OP_MOMENTS, "group moments",
           &(xd_moments){ partial, xd_reshape(in, 3, d), (int)partial.d[1] });
}

void xd_group_close(xd_exec *x, xd_gsum *s, xd_tensor partial, xd_tensor of)
{
    const xd_hooks *m = x->hooks;
    int64_t       rows = of.d[1];
    while (!m->rowsum)
        m = m->next;
    m->rowsum(x, m, of.d[2], partial, s->sums, &rows);
    s->count = (double)of.d[0] * (double)rows * (double)of.d[2] * (double)(of.d[3] / s->groups);
}

xd_gsum xd_group_sums(xd_exec *x, xd_tensor in, int groups)
{
    int64_t   T = in.d[0], H = in.d[1];
    xd_gsum   s = { xd_new_as(x, XD_F64, 2, (int64_t[]){ groups, 2 }), groups, 0 };
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor partial = xd_new_as(x, XD_F64, 3, (int64_t[]){ T * H, groups, 2 });
    xd_group_rows(x, partial, in);
    fold_frames(x, partial, T, H * groups * 2);
    xd_group_close(x, &s, xd_rows(partial, 0, H), in);
    xd_arena_rewind(x->tmp, mark);
    return s;
}

void xd_group_apply_into(xd_exec *x, xd_tensor out, xd_tensor in, const xd_gsum *s, xd_tensor gain,
                         xd_tensor bias, xd_tensor scale, xd_tensor shift, float eps, int silu)
{
    int64_t flat[2] = { in.d[0] * in.d[1] * in.d[2], in.d[3] };
    int     whole = scale.p != NULL;
    xd_run(x, XD_OP_GNORM, "group norm",
           &(xd_gnorm){ .out = whole ? out : xd_reshape(out, 2, flat),
                        .in = whole ? in : xd_reshape(in, 2, flat), .sums = s->sums,
                        .gain = gain, .bias = bias, .scale = scale, .shift = shift,
                        .groups = s->groups, .silu = silu, .count = s->count, .eps = eps });
}

void xd_group_norm_into(xd_exec *x, xd_tensor out, xd_tensor in, xd_tensor gain, xd_tensor bias,
                        int groups, float eps, int silu)
{
    size_t  mark = xd_arena_mark(x->tmp);
    xd_gsum s = xd_group_sums(x, in, groups);
    xd_group_apply_into(x, out, in, &s, gain, bias, none, none, eps, silu);
    xd_arena_rewind(x->tmp, mark);
}

xd_tensor xd_group_norm(xd_exec *x, xd_tensor in, xd_tensor gain, xd_tensor bias, int groups,
                        float eps, int silu)
{
    xd_tensor out = xd_new_as(x, x->act, 4, in.d);
    xd_group_norm_into(x, out, in, gain, bias, groups, eps, silu);
    return out;
}

xd_tensor xd_enlarge(xd_exec *x, xd_tensor in, int t, int h, int w)
{
    int64_t   d[4] = { in.d[0] * t, in.d[1] * h, in.d[2] * w, in.d[3] };
    xd_tensor out = xd_new_as(x, in.type, 4, d);
    xd_run(x, XD_OP_RESIZE, "enlargement", &(xd_resize){ out, in, { t, h, w } });
    return out;
}

typedef struct embed { const double *t; int n; int64_t dim; int flip; double shift, scale; } embed;

static void fill_embed(void *ctx, float *buf)
{
    const embed *e = ctx;
    int64_t      half = e->dim / 2;
    for (int i = 0; i < e->n; i++, buf += e->dim) {
        for (int64_t k = 0; k < half; k++) {
            /* f32 arithmetic on purpose: large angles must round as in the reference */
            float freq = expf((float)-log(10000.0) * (float)k / (float)((double)half - e->shift));
            float angle = (float)e->scale * ((float)e->t[i] * freq);
            buf[(e->flip ? half : 0) + k] = sinf(angle);
            buf[(e->flip ? 0 : half) + k] = cosf(angle);
        }
        if (e->dim % 2)
            buf[e->dim - 1] = 0;
    }
}

xd_tensor xd_time_embed(xd_exec *x, const double *t, int n, int64_t dim, int flip, double shift,
                        double scale)
{
    embed     e = { t, n, dim, flip, shift, scale };
    xd_tensor out = xd_new_f32(x, n, dim);
    xd_fill(x, out, fill_embed, &e);
    return out;
}
