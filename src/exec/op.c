/* op.c - implements the operations that a model's code calls, by device kernels and hooks */
#include "exec/op.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/minmax.h"
#include "exec/host.h"
#include "exec/late.h"
#include "exec/run.h"
#include "exec/stored.h"
#include "exec/tables.h"

/* ---- memory ------------------------------------------------------------------------------- */

xd_tensor xd_new_as(xd_exec *x, xd_dtype type, int nd, const int64_t *d)
{
    xd_tensor t = xd_view(NULL, type, nd, d);
    size_t    bytes = xd_bytes(t);
    t.p = xd_ok(x) ? xd_arena_get(x->tmp, bytes ? bytes : 1) : NULL;
    if (!t.p && xd_ok(x))
        xd_exec_fail(x, XD_ENOMEM, "no memory for a tensor of %zu bytes: %zu of %zu are in use",
                     bytes, x->tmp->used, x->tmp->cap);
    /* After a failure, the tensor gets a valid pointer that is never dereferenced, because NULL
     * would mean an absent tensor. */
    if (!t.p)
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
        if (!xd_ok(x) || xd_counting(x))
            return;
        xd_copy_to(x, to, xd_view((void *)(uintptr_t)from, XD_F32, to.nd, to.d));
        x->dev->mem->sync(x->dev, x->st);
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

/* Calls fn to fill host memory, which is then uploaded to `buf`. If the host can address device
 * memory, fn fills `buf` directly. */
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

/* Returns the view [n,H,D] of t, which is [n,H,D] or [1,n,H,D]. */
static xd_tensor heads_of(xd_tensor t)
{
    return t.nd == 4 ? (xd_tensor){ .p = t.p,
                                    .d = { t.d[1], t.d[2], t.d[3], 1, 1 },
                                    .s = { t.s[1], t.s[2], t.s[3] },
                                    .type = t.type,
                                    .nd = 3 }
                     : t;
}

xd_tensor xd_encode(xd_exec *x, xd_tensor in, xd_dtype codes)
{
    int64_t d[XD_MAXDIM];
    memcpy(d, in.d, sizeof d);
    d[in.nd - 1] += XD_CODE_SCALE;
    xd_tensor out = xd_new_as(x, codes, in.nd, d);
    xd_encode_to(x, out, in);
    return out;
}

void xd_encode_to(xd_exec *x, xd_tensor out, xd_tensor in)
{
    xd_run(x, XD_OP_CODE, "conversion to 8 bits", &(xd_code){ heads_of(out), heads_of(in) });
}

void xd_decode_to(xd_exec *x, xd_tensor out, xd_tensor in)
{
    xd_run(x, XD_OP_CODE, "conversion from 8 bits", &(xd_code){ heads_of(out), heads_of(in) });
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

static void fill_zeros(void *ctx, float *buf)
{
    memset(buf, 0, *(const size_t *)ctx);
}

static void *scratch(xd_exec *x, size_t bytes)
{
    return bytes ? xd_new_as(x, XD_U8, 1, (int64_t[]){ (int64_t)bytes }).p : NULL;
}

/* Returns a view of n columns of an optional GEMM operand, such as the bias. If the operand is
 * absent, returns an absent tensor. */
static xd_tensor some_columns(xd_tensor t, int64_t first, int64_t n)
{
    return t.p ? xd_cols(t, first, n) : t;
}

/* Computes output columns [row, row + n) of a layer whose matrix stays as stored in its file: packs
 * rows [row, row + n) of the matrix, then multiplies the inputs by these rows. */
static void multiply_group(xd_exec *x, const xd_lin *l, const xd_gemm *a, int64_t row, int64_t n)
{
    xd_weight w = l->w;
    w.out = n;
    w.p = NULL;
    w.bytes = x->dev->ops->pack_size(x->dev, &w);
    w.p = scratch(x, w.bytes);
    void *copy = scratch(x, l->copy), *tmp = scratch(x, xd_stored_tmp(x->dev, &w));
    if (xd_ok(x) && l->stored) {
        xd_status s = xd_stored_pack(l->stored, &w, row, copy, tmp);
        if (s != XD_OK)
            xd_exec_fail(x, s, "packing rows of a linear layer failed: %s", xd_status_name(s));
    }
    xd_run(x, XD_OP_GEMM, "linear layer",
           &(xd_gemm){ .out = xd_cols(a->out, row, n),
                       .in = a->in,
                       .w = &w,
                       .act = a->act,
                       .bias = some_columns(a->bias, row, n),
                       .gate = some_columns(a->gate, row, n),
                       .residual = some_columns(a->residual, row, n) });
}

/* Runs the GEMM `a` with the weight matrix of a layer. If the matrix stays as stored in its file,
 * runs one GEMM for each group of rows of the matrix. */
static void multiply(xd_exec *x, const xd_lin *l, const xd_gemm *a)
{
    xd_gemm whole = *a;
    whole.w = &l->w;
    whole.fp8 = x->fp8_gemm;
    if (!l->group) {
        xd_run(x, XD_OP_GEMM, "linear layer", &whole);
        return;
    }
    for (int64_t row = 0; row < l->w.out && a->in.d[0] > 0; row += l->group) {
        size_t mark = xd_arena_mark(x->tmp);
        multiply_group(x, l, a, row, xd_min(l->group, l->w.out - row));
        xd_arena_rewind(x->tmp, mark);
    }
}

/* Runs the GEMM `a` of a layer whose inputs are split over ranks. The ranks' partial products are
 * summed before bias, activation, gate and residual are applied. */
static void run_cut_by_inputs(xd_exec *x, const xd_lin *w, xd_gemm a)
{
    const xd_hooks *m = x->hooks;
    while (!m->sum)
        m = m->next;
    if (m == &xd_hooks_local) {
        multiply(x, w, &a);
        m->sum(x, m, XD_OVER_FEATURES, a.out);
        return;
    }
    xd_tensor part = xd_new_f32(x, a.out.d[0], a.out.d[1]);
    size_t    bytes = (size_t)xd_count(part) * sizeof(float);
    if (!w->w.in) /* this rank has no input features and adds zeros to the sum */
        xd_fill(x, part, fill_zeros, &bytes);
    else
        multiply(x, w, &(xd_gemm){ .out = part, .in = a.in, .sx = a.sx });
    m->sum(x, m, XD_OVER_FEATURES, part);
    xd_tensor row = part; /* a view that repeats the bias of the layer for every row */
    row.p = a.bias.p, row.type = a.bias.type, row.s[0] = 0;
    if (a.bias.p)
        xd_add(x, part, row);
    if (a.act != XD_NONE)
        xd_activate(x, part, a.act);
    if (a.residual.p)
        xd_add_gated(x, a.residual, a.gate, part);
    else
        xd_copy_to(x, a.out, part);
}

/* Returns 1 if the GEMM of the layer can read inputs of C features per row in e4m3. */
static int takes_narrow(const xd_exec *x, const xd_lin *w, int64_t C)
{
    return x->fp8_gemm && x->dev->fp8_gemm && x->act != XD_F32 && w->w.type == XD_F8E4M3 &&
           !w->rotate && !w->group && C % 16 == 0;
}

/* Returns the f32 scale of each row of an e4m3 tensor; the scales are stored after the rows. */
static xd_tensor scales_behind(xd_tensor t)
{
    return xd_view((char *)t.p + xd_bytes(t), XD_F32, 1, t.d);
}

/* Computes out = residual + gate * act(in w^T + b). The caller sets the fields out, in, act, gate
 * and residual of `a`. */
static void run_linear(xd_exec *x, const xd_lin *w, xd_gemm a)
{
    size_t mark = xd_arena_mark(x->tmp);
    if (!xd_check(x, a.in.d[1] == w->w.in, "linear layer of %lld inputs got %lld",
                  (long long)w->w.in, (long long)a.in.d[1]))
        return;
    if (w->rotate) {
        xd_tensor turned = xd_new_as(x, a.in.type, 2, a.in.d);
        xd_run(x, XD_OP_ROTATE, "rotation", &(xd_rotate){ turned, a.in, w->rotate });
        a.in = turned;
    }
    /* GEMM kernels for int8 weights quantize input rows of any type, and kernels for 16-bit weights
     * round f32 input rows. All other inputs are converted here: to the weight's type or, for e4m3
     * weights, to the compute type. */
    if (a.in.type == XD_F8E4M3)
        a.sx = scales_behind(a.in);
    else if (w->w.type != XD_I8 && !(xd_dtype_size(w->w.type) == 2 && a.in.type == XD_F32))
        a.in = xd_as(x, a.in, xd_is_quantized(w->w.type) ? x->act : w->w.type);
    a.bias = w->b;
    if (w->split == XD_ROW)
        run_cut_by_inputs(x, w, a);
    else
        multiply(x, w, &a);
    xd_arena_rewind(x->tmp, mark);
}

void xd_linear_into(xd_exec *x, xd_tensor out, xd_tensor in, const xd_lin *w)
{
    run_linear(x, w, (xd_gemm){ .out = out, .in = in });
}

void xd_linear_act_into(xd_exec *x, xd_tensor out, xd_tensor in, const xd_lin *w, xd_act act)
{
    run_linear(x, w, (xd_gemm){ .out = out, .in = in, .act = act });
}

xd_tensor xd_linear(xd_exec *x, xd_tensor in, const xd_lin *w)
{
    return xd_linear_act(x, in, w, XD_NONE);
}

xd_tensor xd_linear_f32(xd_exec *x, xd_tensor in, const xd_lin *w)
{
    xd_tensor out = xd_new_f32(x, in.d[0], w->w.out);
    run_linear(x, w, (xd_gemm){ .out = out, .in = in });
    return out;
}

xd_tensor xd_linear_act(xd_exec *x, xd_tensor in, const xd_lin *w, xd_act act)
{
    xd_tensor out = xd_new(x, in.d[0], w->w.out);
    run_linear(x, w, (xd_gemm){ .out = out, .in = in, .act = act });
    return out;
}

void xd_linear_add(xd_exec *x, xd_tensor acc, xd_tensor gate, xd_tensor in, const xd_lin *w)
{
    xd_tensor y = xd_late_room(x, acc);
    if (!y.p) {
        run_linear(x, w, (xd_gemm){ .out = acc, .in = in, .gate = gate, .residual = acc });
        return;
    }
    run_linear(x, w, (xd_gemm){ .out = y, .in = in });
    xd_late_add(x, acc, gate, y);
}

xd_tensor xd_seg(xd_tensor y, const xd_lin *w, int i)
{
    int64_t at = 0;
    for (int k = 0; k < i; k++)
        at += w->seg[k];
    return xd_cols(y, at, w->seg[i]);
}

/* ---- norms and element-wise ops ----------------------------------------------------------- */

void xd_norm_into(xd_exec *x, const xd_norm *a)
{
    xd_norm b = *a;
    xd_late_take(x, &b);
    xd_run(x, XD_OP_NORM, "norm", &b);
}

static xd_tensor new_norm(xd_exec *x, xd_norm a)
{
    a.out = xd_new(x, a.in.d[0], a.in.d[1]);
    xd_norm_into(x, &a);
    return a.out;
}

/* Returns new rows [n,C] of e4m3, followed by memory for their scales. */
static xd_tensor new_narrow(xd_exec *x, int64_t n, int64_t C)
{
    xd_tensor room = xd_new_as(x, XD_U8, 1, (int64_t[]){ n * (C + (int64_t)sizeof(float)) });
    return xd_view2(room.p, XD_F8E4M3, n, C);
}

xd_tensor xd_norm_for(xd_exec *x, const xd_norm *a, const xd_lin *w, const xd_lin *also)
{
    int64_t n = a->in.d[0], C = a->in.d[1];
    if (!takes_narrow(x, w, C) || (also && !takes_narrow(x, also, C)))
        return new_norm(x, *a);
    xd_norm b = *a;
    b.out = new_narrow(x, n, C);
    b.sx = scales_behind(b.out);
    b.via = x->act;
    xd_norm_into(x, &b);
    return b.out;
}

xd_tensor xd_norm_mod(xd_exec *x, xd_tensor in, xd_tensor scale, xd_tensor shift, float eps)
{
    return new_norm(x, (xd_norm){ .in = in, .scale = scale, .shift = shift, .eps = eps });
}

xd_tensor xd_layer_norm(xd_exec *x, xd_tensor in, xd_tensor gain, xd_tensor bias, float eps)
{
    return new_norm(x, (xd_norm){ .in = in, .gain = gain, .bias = bias, .eps = eps });
}

xd_tensor xd_rms_norm(xd_exec *x, xd_tensor in, xd_tensor gain, float eps)
{
    return new_norm(x, (xd_norm){ .in = in, .gain = gain, .rms = 1, .eps = eps });
}

void xd_qk_norm_into(xd_exec *x, const xd_qknorm *a)
{
    xd_qknorm b = *a;
    b.norm = a->gain.p != NULL;
    b.rms = 1;
    xd_run(x, XD_OP_QKNORM, "norm and rope of heads", &b);
}

void xd_qk_layer_norm_into(xd_exec *x, const xd_qknorm *a)
{
    xd_qknorm b = *a;
    b.norm = 1;
    b.rms = 0;
    xd_run(x, XD_OP_QKNORM, "norm and rope of heads", &b);
}

void xd_activate(xd_exec *x, xd_tensor io, xd_act act)
{
    xd_run(x, XD_OP_GLU, "activation", &(xd_glu){ .out = io, .a = io, .act = act });
}

xd_tensor xd_gated(xd_exec *x, xd_tensor a, xd_tensor b, xd_act act)
{
    xd_tensor out = xd_new(x, a.d[0], a.d[1]);
    xd_gated_into(x, out, a, b, act);
    return out;
}

xd_tensor xd_gated_for(xd_exec *x, xd_tensor a, xd_tensor b, xd_act act, const xd_lin *w)
{
    const int64_t n = a.d[0], C = a.d[1];
    if (!takes_narrow(x, w, C) || C > XD_GLU_NARROW_MAX)
        return xd_gated(x, a, b, act);
    xd_glu g = { .out = new_narrow(x, n, C), .a = a, .b = b, .act = act, .via = x->act };
    g.sx = scales_behind(g.out);
    xd_run(x, XD_OP_GLU, "gated activation", &g);
    return g.out;
}

void xd_gated_into(xd_exec *x, xd_tensor out, xd_tensor a, xd_tensor b, xd_act act)
{
    xd_run(x, XD_OP_GLU, "gated activation", &(xd_glu){ .out = out, .a = a, .b = b, .act = act });
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

/* Returns a view of [B*n,H,D] as [B,n,H,D]: splits the rows of a batch by sample. */
static xd_tensor split_batch(xd_tensor t, int64_t B)
{
    xd_tensor r = t;
    r.nd = 4;
    r.d[0] = B, r.d[1] = t.d[0] / B, r.d[2] = t.d[1], r.d[3] = t.d[2];
    r.s[0] = t.s[0] * r.d[1], r.s[1] = t.s[0], r.s[2] = t.s[1], r.s[3] = t.s[2];
    return r;
}

typedef struct attn_call { /* arguments of xd_attn and of its variants */
    xd_tensor q, k, v, bias;
    xd_kv     prefix;
    float     scale, softcap;
    int64_t   window;
    int       causal, int8;
} attn_call;

static void run_attn(xd_exec *x, const xd_hooks *m, xd_tensor out, const attn_call *a)
{
    xd_kv kv = { split_batch(a->k, x->B), split_batch(a->v, x->B) };
    int   after = a->prefix.k.nd && a->prefix.k.d[0];
    xd_kv prefix = { 0 };
    if (after)
        prefix = (xd_kv){ split_batch(a->prefix.k, 1), split_batch(a->prefix.v, 1) };
    float scale = a->scale > 0 ? a->scale : 1.0f / sqrtf((float)a->q.d[2]);
    int   over_tokens = m == x->hooks;
    while (!m->attn)
        m = m->next;
    m->attn(x, m,
            &(xd_attn_args){ .out = split_batch(out, x->B),
                             .q = split_batch(a->q, x->B),
                             .bias = a->bias,
                             .kv = &kv,
                             .nkv = 1,
                             .prefix = after ? &prefix : NULL,
                             .causal = a->causal,
                             .window = a->window,
                             .softcap = a->softcap,
                             .int8 = a->int8,
                             .scale = scale });
    x->site += over_tokens;
}

static xd_tensor new_attn(xd_exec *x, const xd_hooks *m, const attn_call *a)
{
    xd_tensor out = xd_new_as(x, x->act, 3, (int64_t[]){ a->q.d[0], a->q.d[1], a->v.d[2] });
    run_attn(x, m, out, a);
    return out;
}

void xd_attn_into(xd_exec *x, xd_tensor out, xd_tensor q, xd_tensor k, xd_tensor v, float scale)
{
    run_attn(x, x->hooks, out,
             &(attn_call){ .q = q, .k = k, .v = v, .scale = scale, .int8 = x->int8_attn });
}

xd_tensor xd_attn(xd_exec *x, xd_tensor q, xd_tensor k, xd_tensor v, float scale)
{
    return new_attn(x, x->hooks,
                    &(attn_call){ .q = q, .k = k, .v = v, .scale = scale, .int8 = x->int8_attn });
}

xd_tensor xd_attn_after(xd_exec *x, xd_kv prefix, xd_tensor q, xd_tensor k, xd_tensor v,
                        float scale)
{
    return new_attn(
        x, x->hooks,
        &(attn_call){
            .q = q, .k = k, .v = v, .prefix = prefix, .scale = scale, .int8 = x->int8_attn });
}

/* Returns the layout of some streams of `l`, a set of XD_STREAM bits. */
static xd_layout layout_of(const xd_layout *l, unsigned streams)
{
    xd_layout some = *l;
    for (int s = 0; s < XD_NSTREAMS; s++)
        if (!(streams & XD_STREAM(s)))
            some.len[s] = 0;
    return some;
}

xd_tensor xd_attn_of(xd_exec *x, unsigned streams, xd_tensor q, xd_tensor k, xd_tensor v,
                     float scale)
{
    const xd_layout *whole = x->lay;
    const xd_layout  some = layout_of(whole, streams);
    x->lay = &some;
    xd_tensor out = xd_attn(x, q, k, v, scale);
    x->lay = whole;
    return out;
}

xd_tensor xd_attn_between(xd_exec *x, xd_stream_id from, xd_stream_id to, xd_tensor q, xd_tensor k,
                          xd_tensor v)
{
    const xd_layout *whole = x->lay;
    const xd_layout  queries = layout_of(whole, XD_STREAM(from)),
                     keys = layout_of(whole, XD_STREAM(to));
    x->lay = &keys;
    x->asking = &queries;
    xd_tensor out = xd_attn(x, q, k, v, 0);
    x->asking = NULL;
    x->lay = whole;
    return out;
}

xd_tensor xd_attn_grouped(xd_exec *x, xd_group group, xd_tensor q, xd_tensor k, xd_tensor v,
                          float scale)
{
    x->group = group;
    xd_tensor out = xd_attn(x, q, k, v, scale);
    x->group = XD_GROUP_NONE;
    return out;
}

xd_tensor xd_attn_over(xd_exec *x, xd_tensor q, xd_tensor k, xd_tensor v, xd_tensor bias,
                       float scale)
{
    return new_attn(x, &xd_hooks_local,
                    &(attn_call){ .q = q, .k = k, .v = v, .bias = bias, .scale = scale });
}

xd_tensor xd_attn_causal(xd_exec *x, xd_tensor q, xd_tensor k, xd_tensor v, float scale)
{
    return new_attn(x, &xd_hooks_local,
                    &(attn_call){ .q = q, .k = k, .v = v, .scale = scale, .causal = 1 });
}

void xd_attn_over_into(xd_exec *x, xd_tensor out, xd_tensor q, xd_tensor k, xd_tensor v,
                       const xd_attn_how *how)
{
    run_attn(x, &xd_hooks_local, out,
             &(attn_call){ .q = q,
                           .k = k,
                           .v = v,
                           .scale = how->scale,
                           .softcap = how->softcap,
                           .window = how->window,
                           .causal = how->causal });
}

/* ---- tables, images, time ----------------------------------------------------------------- */

/* Copies the rows `ids` of an embedding table in host memory (a mapped file) to a device that
 * cannot address host memory. */
static void copy_host_rows(xd_exec *x, xd_tensor out, xd_tensor table, const int32_t *ids,
                           int64_t n)
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

/* Decodes the rows `ids` of an embedding table in host memory whose elements have a block type. */
static void decode_rows(xd_exec *x, xd_tensor out, xd_tensor table, const int32_t *ids, int64_t n)
{
    const int64_t cols = table.d[1];
    const size_t  row = xd_dtype_bytes(out.type, cols);
    char         *host = xd_ok(x) ? malloc((size_t)n * row + 1) : NULL;
    if (!host)
        xd_exec_fail(x, XD_ENOMEM, "no memory for %lld rows of a table", (long long)n);
    for (int64_t i = 0; i < n && host; i++)
        if (xd_check(x, ids[i] >= 0 && ids[i] < table.d[0], "token id %d is not one of %lld",
                     (int)ids[i], (long long)table.d[0]))
            xd_convert_at(host + (size_t)i * row, out.type, table.p, table.type, ids[i] * cols,
                          cols);
    if (host)
        xd_upload(x, out.p, host, (size_t)n * row);
    free(host);
}

xd_tensor xd_lookup_rows(xd_exec *x, xd_tensor table, const int32_t *ids, int64_t n, xd_dtype type)
{
    xd_tensor out = xd_new_as(x, type, 2, (int64_t[]){ n, table.d[1] });
    size_t    mark = xd_arena_mark(x->tmp);
    if (xd_dtype_block(table.type) > 1) {
        decode_rows(x, out, table, ids, n);
        return out;
    }
    if (!x->dev->host_memory && (xd_counting(x) || !x->dev->mem->owns(x->dev, table.p))) {
        copy_host_rows(x, out, table, ids, n);
        xd_arena_rewind(x->tmp, mark);
        return out;
    }
    xd_tensor dev_ids = xd_new_as(x, XD_I32, 1, &n);
    xd_upload(x, dev_ids.p, ids, (size_t)n * sizeof *ids);
    xd_run(x, XD_OP_LOOKUP, "embedding", &(xd_lookup){ out, table, dev_ids });
    xd_arena_rewind(x->tmp, mark);
    return out;
}

xd_tensor xd_lookup_places(xd_exec *x, xd_tensor table, int64_t n,
                           int64_t (*place)(const void *ctx, int64_t i), const void *ctx)
{
    xd_tensor rows = { 0 };
    if (x->tables && xd_table_find(x, &(xd_table_key){ .of = table.p }, XD_F32,
                                   (int64_t[]){ n, table.d[1] }, &rows))
        return rows;
    int32_t *ids = malloc((size_t)n * sizeof *ids + 1);
    if (!ids) {
        xd_exec_fail(x, XD_ENOMEM, "no memory for %lld positions", (long long)n);
        return xd_new_f32(x, n, table.d[1]);
    }
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)place(ctx, i);
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor out = xd_lookup_rows(x, table, ids, n, XD_F32);
    free(ids);
    if (!x->tables)
        return out;
    xd_copy_to(x, rows, out);
    xd_arena_rewind(x->tmp, mark);
    return rows;
}

void xd_conv2d_into(xd_exec *x, xd_tensor out, xd_tensor in, const xd_cnv *w,
                    const xd_conv_options *o)
{
    size_t          mark = xd_arena_mark(x->tmp);
    int             stride = o->stride ? o->stride : 1;
    const xd_hooks *m = x->hooks;
    while (!m->conv)
        m = m->next;
    xd_conv a = { .out = out,
                  .in = xd_as(x, in, w->w.type),
                  .bias = w->b,
                  .residual = o->residual,
                  .w = &w->w,
                  .stride = { 1, stride, stride } };
    if (o->lo)
        memcpy(a.lo, o->lo, sizeof a.lo);
    if (o->hi)
        memcpy(a.hi, o->hi, sizeof a.hi);
    m->conv(x, m, &a);
    xd_arena_rewind(x->tmp, mark);
}

void xd_conv_rows_into(xd_exec *x, xd_tensor out, xd_tensor in, const xd_cnv *w,
                       const xd_conv_options *o)
{
    const xd_hooks *m = x->hooks;
    x->hooks = &xd_hooks_local;
    xd_conv2d_into(x, out, in, w, o);
    x->hooks = m;
}

xd_halo xd_halo_of(xd_exec *x, xd_tensor in, int lo, int hi)
{
    xd_halo_args    a = { .in = in, .lo = lo, .hi = hi };
    const xd_hooks *m = x->hooks;
    while (!m->halo)
        m = m->next;
    m->halo(x, m, &a);
    return (xd_halo){ a.above, a.below };
}

void xd_conv3d_into(xd_exec *x, xd_tensor out, xd_tensor in, const xd_cnv *w, xd_tensor residual)
{
    const int *k = w->w.kernel;
    const int  lo[3] = { 0, k[1] / 2, k[2] / 2 }, hi[3] = { 0, (k[1] - 1) / 2, (k[2] - 1) / 2 };
    xd_conv2d_into(x, out, in, w, &(xd_conv_options){ .lo = lo, .hi = hi, .residual = residual });
}

/* Adds the partial sums of all other frames to those of the first frame. Each image row then has
 * one partial sum, not one per frame, as the sum over ranks needs. */
static void fold_frames(xd_exec *x, xd_tensor partial, int64_t T, int64_t n)
{
    if (T > 1)
        xd_run(x, XD_OP_MOMENTS, "sums of frames",
               &(xd_moments){ xd_view(partial.p, XD_F64, 1, &n), xd_view2(partial.p, XD_F64, T, n),
                              0 });
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
    int64_t         rows = of.d[1];
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

void xd_group_apply_into(xd_exec *x, const xd_gsum *s, const xd_gnorm *a)
{
    int64_t  flat[2] = { a->in.d[0] * a->in.d[1] * a->in.d[2], a->in.d[3] };
    xd_gnorm b = *a;
    b.sums = s->sums;
    b.groups = s->groups;
    b.count = s->count;
    if (!a->scale.p) {
        b.out = xd_reshape(a->out, 2, flat);
        b.in = xd_reshape(a->in, 2, flat);
    }
    xd_run(x, XD_OP_GNORM, "group norm", &b);
}

xd_tensor xd_enlarge(xd_exec *x, xd_tensor in, int t, int h, int w)
{
    int64_t   d[4] = { in.d[0] * t, in.d[1] * h, in.d[2] * w, in.d[3] };
    xd_tensor out = xd_new_as(x, in.type, 4, d);
    xd_run(x, XD_OP_RESIZE, "enlargement", &(xd_resize){ out, in, { t, h, w } });
    return out;
}

typedef struct embed {
    const double *t;
    int           n;
    int64_t       dim;
    int           flip;
    double        shift;
} embed;

void xd_time_row(float *row, double t, int64_t dim, int flip, double shift)
{
    int64_t half = dim / 2;
    for (int64_t k = 0; k < half; k++) {
        /* angles are computed in f32 so that large angles are rounded as in diffusers */
        float freq = expf((float)-log(10000.0) * (float)k / (float)((double)half - shift));
        float angle = (float)t * freq;
        row[(flip ? half : 0) + k] = sinf(angle);
        row[(flip ? 0 : half) + k] = cosf(angle);
    }
    if (dim % 2)
        row[dim - 1] = 0;
}

static void fill_embed(void *ctx, float *buf)
{
    const embed *e = ctx;
    for (int i = 0; i < e->n; i++, buf += e->dim)
        xd_time_row(buf, e->t[i], e->dim, e->flip, e->shift);
}

xd_tensor xd_time_embed(xd_exec *x, const double *t, int n, int64_t dim, int flip, double shift)
{
    embed     e = { t, n, dim, flip, shift };
    xd_tensor out = xd_new_f32(x, n, dim);
    xd_fill(x, out, fill_embed, &e);
    return out;
}
