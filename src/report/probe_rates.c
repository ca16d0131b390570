/* probe_rates.c - speed of kernels, each at a size that models use, on all ranks at once
 *
 * The fastest of the calls within a twentieth of a second counts, because other load disturbs only
 * some of them. Operands of memory-bound kernels are evicted from the caches next to the core
 * before every call, as happens in a model. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/par.h"
#include "report/bench.h"
#include "report/bench_compare.h"
#include "report/probe.h"
#include "report/quiet.h"

static const double SPAN_S = 0.05;

enum { LARGE = 2048, ROWS = 512, FEW = 16, TOKENS = 512, WIDTH = 1024, HEADS = 8, MOST_KEYS = 1024,
       FEW_KEYS = 120, FEW_TOKENS = 64, SIDE = 48, CHANNELS = 256, LEVEL = 64, GROUPS = 16,
       CACHE_BYTES = 4 << 20 };

typedef struct work {           /* a kernel and its operands, which are in one block           */
    xd_prober *p;
    xd_dtype   type, kept;      /* compute type; type of weights                               */
    xd_arena   a;
    xd_op      op;
    union {
        xd_gemm gemm; xd_attn_args attn; xd_conv conv; xd_norm norm; xd_moments moments;
        xd_gnorm gnorm;
        xd_glu glu; xd_copy copy;
    } u;
    xd_kv      kv;
    xd_weight  w;
    void      *tmp, *spoil;     /* NULL, or memory that is written before every call           */
    xd_status  status;
} work;

static void run_call(work *k)
{
    xd_dev       *d = k->p->dev;
    const xd_ops *o = d->ops;
    xd_status     s = XD_EUNSUPPORTED;
    switch (k->op) {
    case XD_OP_GEMM: s = o->gemm(d, NULL, &k->u.gemm, k->tmp); break;
    case XD_OP_ATTN: s = o->attn(d, NULL, &k->u.attn, k->tmp); break;
    case XD_OP_CONV: s = o->conv(d, NULL, &k->u.conv, k->tmp); break;
    case XD_OP_NORM: s = o->norm(d, NULL, &k->u.norm, k->tmp); break;
    case XD_OP_MOMENTS: s = o->moments(d, NULL, &k->u.moments, k->tmp); break;
    case XD_OP_GNORM: s = o->gnorm(d, NULL, &k->u.gnorm, k->tmp); break;
    case XD_OP_GLU: s = o->glu(d, NULL, &k->u.glu, k->tmp); break;
    case XD_OP_COPY: s = o->copy(d, NULL, &k->u.copy, k->tmp); break;
    default: break;
    }
    k->status = k->status == XD_OK ? s : k->status;
    d->mem->sync(d, NULL);
}

/* Seconds of the fastest call on this rank, while the others run the same kernel. */
static double fastest_call(work *k)
{
    double best = 1e30, begin, t;
    size_t need = k->p->dev->ops->scratch(k->p->dev, k->op, &k->u);
    k->tmp = xd_arena_get(&k->a, need + XD_ALIGN);
    if (!k->tmp && k->status == XD_OK)
        k->status = XD_ENOMEM;
    if (k->status == XD_OK)
        run_call(k);
    if (!k->p->quiet)
        xd_probe_meet(k->p);
    begin = xd_now_s();
    for (int i = 0; k->status == XD_OK && (i < 3 || xd_now_s() - begin < SPAN_S); i++) {
        if (k->spoil)
            memset(k->spoil, i, CACHE_BYTES);
        t = xd_now_s();
        run_call(k);
        t = xd_now_s() - t;
        best = t < best ? t : best;
    }
    return best;
}

static double all_of(work *k)
{
    double t = fastest_call(k);
    return k->p->quiet ? t : xd_probe_mean(k->p, t);
}

/* ---- operands ----------------------------------------------------------------------------- */

static xd_tensor new_operand(work *k, xd_dtype type, int nd, const int64_t *d)
{
    xd_tensor t = xd_view(NULL, type, nd, d);
    t.p = xd_arena_get(&k->a, xd_bytes(t));
    if (!t.p)
        k->status = XD_ENOMEM;
    for (int64_t i = 0; t.p && i < xd_count(t); i++) {
        float v = 0.01f * (float)(i % 199 - 99);
        if (type == XD_F32)
            ((float *)t.p)[i] = v;
        else if (type == XD_F64)
            ((double *)t.p)[i] = v;
        else
            xd_convert((char *)t.p + i * (int64_t)xd_dtype_size(type), type, &v, XD_F32, 1);
    }
    return t;
}

static xd_tensor new_matrix(work *k, xd_dtype type, int64_t rows, int64_t cols)
{
    return new_operand(k, type, 2, (int64_t[]){ rows, cols });
}

static void new_weight(work *k, int64_t out, int64_t in, int nk)
{
    xd_dev *d = k->p->dev;
    size_t  mark, need;
    k->w = (xd_weight){ .type = k->kept, .out = out, .in = in, .nk = nk,
                        .kernel = { 1, nk ? 3 : 1, nk ? 3 : 1 },
                        .stride = { 1, 1, 1 }, .groups = 1 };
    k->w.bytes = d->ops->pack_size(d, &k->w);
    k->w.p = xd_arena_get(&k->a, k->w.bytes);
    mark = xd_arena_mark(&k->a);
    xd_tensor src = new_operand(k, XD_F32, nk ? 4 : 2, (int64_t[]){ out, in, 3, 3 });
    need = d->ops->pack_tmp(d, &k->w, XD_F32);
    void *tmp = xd_arena_get(&k->a, need + XD_ALIGN);
    if (!k->w.p || !tmp)
        k->status = XD_ENOMEM;
    if (k->status == XD_OK)
        k->status = d->ops->pack(d, &k->w, src, tmp);
    xd_arena_rewind(&k->a, mark);
}

static void rewind_to(work *k, size_t mark)
{
    xd_arena_rewind(&k->a, mark);
    memset(&k->u, 0, sizeof k->u);
}

/* ---- kernels ------------------------------------------------------------------------------ */

static double gemm_s(work *k, int64_t rows)
{
    size_t mark = xd_arena_mark(&k->a);
    k->op = XD_OP_GEMM;
    k->u.gemm = (xd_gemm){ .out = new_matrix(k, k->type, rows, k->w.out),
                           .in = new_matrix(k, k->type, rows, k->w.in),
                           .w = &k->w };
    double t = all_of(k);
    rewind_to(k, mark);
    return t;
}

/* The size at which half of a rate is reached, from the rates at a small and a large size. */
static double half_at(double few, double rate_few, double many, double rate_many)
{
    double h = few * many * (rate_many - rate_few) / (many * rate_few - few * rate_many);
    return h > many ? many : h > 0 ? h : 0;
}

static double quantized_s(work *k, xd_dtype kept)
{
    size_t mark = xd_arena_mark(&k->a);
    k->kept = kept;
    new_weight(k, LARGE, LARGE, 0);
    double t = gemm_s(k, ROWS);
    k->kept = k->type;
    rewind_to(k, mark);
    return t;
}

static void measure_gemms(work *k, xd_rates *r)
{
    size_t mark = xd_arena_mark(&k->a);
    double flop = 2.0 * LARGE * LARGE;
    new_weight(k, LARGE, LARGE, 0);
    double many = flop * ROWS / gemm_s(k, ROWS), few = flop * FEW / gemm_s(k, FEW);
    r->gemm_rows = half_at(FEW, few, ROWS, many);
    r->gemm = many * (1 + r->gemm_rows / ROWS);
    rewind_to(k, mark);
    r->int8 = flop * ROWS / quantized_s(k, XD_I8) / many;
    r->fp8 = flop * ROWS / quantized_s(k, XD_F8E4M3) / many;
    /* Larger than the caches near the cores. */
    new_weight(k, (k->type == XD_BF16 ? 4 : 2) * LARGE, 2 * LARGE, 0);
    r->weights = (double)k->w.bytes / gemm_s(k, 1);
    rewind_to(k, mark);
    new_weight(k, 16, 16, 0);
    r->call_s = gemm_s(k, 1);
    rewind_to(k, mark);
}

static double attention_s(work *k, int64_t tokens, int64_t keys, int64_t D)
{
    size_t  mark = xd_arena_mark(&k->a);
    int64_t q[4] = { 1, tokens, HEADS, D }, kv[4] = { 1, keys, HEADS, D };
    k->op = XD_OP_ATTN;
    k->kv = (xd_kv){ new_operand(k, k->type, 4, kv), new_operand(k, k->type, 4, kv) };
    k->u.attn = (xd_attn_args){ .out = new_operand(k, k->type, 4, q),
                                .q = new_operand(k, k->type, 4, q),
                                .kv = &k->kv,
                                .nkv = 1,
                                .scale = 0.1f };
    double t = all_of(k);
    rewind_to(k, mark);
    return t;
}

static void measure_attention(work *k, xd_rates *r)
{
    double flop = 4.0 * HEADS * 64 * TOKENS;
    double many = flop * MOST_KEYS / attention_s(k, TOKENS, MOST_KEYS, 64);
    double keys = flop * FEW_KEYS / attention_s(k, TOKENS, FEW_KEYS, 64);
    double rows = flop / TOKENS * FEW_TOKENS * MOST_KEYS /
                  attention_s(k, FEW_TOKENS, MOST_KEYS, 64);
    r->attn_keys = half_at(FEW_KEYS, keys, MOST_KEYS, many);
    r->attn_rows = half_at(FEW_TOKENS, rows, TOKENS, many);
    double full = (1 + r->attn_keys / MOST_KEYS) * (1 + r->attn_rows / TOKENS);
    r->attn[0] = many * full;
    r->attn[1] = 2 * flop * MOST_KEYS / attention_s(k, TOKENS, MOST_KEYS, 128) * full;
}

static void measure_convs(work *k, xd_rates *r)
{
    size_t  mark = xd_arena_mark(&k->a);
    int64_t d[4] = { 1, SIDE, SIDE, CHANNELS };
    new_weight(k, CHANNELS, CHANNELS, 2);
    k->op = XD_OP_CONV;
    k->u.conv = (xd_conv){ .out = new_operand(k, k->type, 4, d),
                           .in = new_operand(k, k->type, 4, d),
                           .w = &k->w,
                           .stride = { 1, 1, 1 },
                           .lo = { 0, 1, 1 },
                           .hi = { 0, 1, 1 } };
    r->conv = 18.0 * SIDE * SIDE * CHANNELS * CHANNELS / all_of(k);
    rewind_to(k, mark);
}

/* Rates of element-wise kernels: bytes of operands over seconds. */
static void element_wise(work *k, xd_rates *r)
{
    size_t    mark = xd_arena_mark(&k->a);
    double    n = (double)LEVEL * LEVEL * LEVEL, t;
    xd_tensor x = new_matrix(k, XD_F32, TOKENS, WIDTH), y = new_matrix(k, k->type, TOKENS, WIDTH);
    xd_tensor row = new_matrix(k, XD_F32, 1, WIDTH);
    double    both = (double)xd_bytes(x) + (double)xd_bytes(y), es = (double)xd_dtype_size(k->type);
    k->spoil = xd_arena_get(&k->a, CACHE_BYTES);
    k->op = XD_OP_NORM;
    k->u.norm = (xd_norm){ .out = y, .in = x, .scale = row, .shift = row, .eps = 1e-6f };
    r->norm = (both + 2 * 4 * WIDTH) / all_of(k);
    k->op = XD_OP_COPY;
    k->u.copy = (xd_copy){ y, x };
    r->bytes = both / all_of(k);
    k->op = XD_OP_GLU;
    k->u.glu = (xd_glu){ .out = y, .a = y, .act = XD_GELU_TANH };
    r->act = 2 * (double)xd_bytes(y) / all_of(k);
    xd_tensor image = new_operand(k, k->type, 3, (int64_t[]){ LEVEL, LEVEL, LEVEL });
    xd_tensor flat = xd_reshape(image, 2, (int64_t[]){ LEVEL * LEVEL, LEVEL });
    xd_tensor sums = new_operand(k, XD_F64, 3, (int64_t[]){ LEVEL, GROUPS, 2 }),
              sum = new_operand(k, XD_F64, 2, (int64_t[]){ GROUPS, 2 });
    xd_tensor gain = new_operand(k, XD_F32, 1, (int64_t[]){ LEVEL });
    k->op = XD_OP_MOMENTS;
    k->u.moments = (xd_moments){ .out = sums, .in = image, .groups = GROUPS };
    t = all_of(k);
    k->op = XD_OP_GNORM;
    k->u.gnorm = (xd_gnorm){ .out = flat, .in = flat, .sums = sum, .gain = gain, .bias = gain,
                             .groups = GROUPS,
                             .silu = 1, .count = n / GROUPS, .eps = 1e-6f };
    t += all_of(k);
    r->gnorm = 3 * n * es / t;
    k->spoil = NULL;
    rewind_to(k, mark);
}

/* ---- all ---------------------------------------------------------------------------------- */

static xd_status open_work(work *k, xd_prober *p, xd_dtype type, xd_err *e)
{
    size_t bytes = (size_t)96 * LARGE * LARGE;
    *k = (work){ .p = p, .type = type, .kept = type };
    void *block = p->dev->mem->get(p->dev, bytes);
    xd_arena_init(&k->a, block, block ? bytes : 0);
    return block ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory for the %zu MB of a probe",
                                   bytes >> 20);
}

static xd_status close_work(work *k, xd_err *e)
{
    if (k->a.base)
        k->p->dev->mem->put(k->p->dev, k->a.base, k->a.cap);
    if (k->status != XD_OK)
        return xd_fail(e, k->status, "a kernel of the probe failed: %s", xd_status_name(k->status));
    return XD_OK;
}

xd_status xd_probe_rates(xd_prober *p, xd_dtype type, xd_rates *r, xd_err *e)
{
    work      k;
    xd_status s = open_work(&k, p, type, e);
    memset(r, 0, sizeof *r);
    k.status = s;
    measure_gemms(&k, r);
    measure_attention(&k, r);
    measure_convs(&k, r);
    element_wise(&k, r);
    return s == XD_OK ? close_work(&k, e) : s;
}

xd_status xd_probe_alone(xd_prober *p, xd_dtype type, double *times, xd_err *e)
{
    work      k;
    xd_status s = open_work(&k, p, type, e);
    double    all, alone = 0;
    k.status = s;
    new_weight(&k, LARGE, LARGE, 0);
    all = gemm_s(&k, ROWS);
    xd_probe_meet(p);
    p->quiet = 1;
    if (p->all->rank == 0)
        alone = gemm_s(&k, ROWS);
    p->quiet = 0;
    xd_quiet(p->all);
    *times = p->all->size > 1 ? xd_probe_mean(p, alone > 0 ? p->all->size * all / alone : 0) : 1;
    return s == XD_OK ? close_work(&k, e) : s;
}
