/* probe_rates.c - measures the speed of kernels, at sizes that models use, on all ranks at once.
 *
 * A kernel is called repeatedly for 1/20 s, and the fastest call is the result, because other load
 * disturbs only some of the calls. Before every call of a memory-bound kernel, the kernel's
 * operands are evicted from the caches next to the core, as happens in a model. An asynchronous
 * device gets larger operands and several calls at a time, as in a model. For an asynchronous
 * device, the time of a call is the time of the kernel or, for small kernels, of the launch. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/par.h"
#include "report/bench.h"
#include "report/bench_compare.h"
#include "report/probe.h"
#include "report/quiet.h"

static const double SPAN_S = 0.05;

enum { CACHE_BYTES = 4 << 20, MOST_CALLS = 256 };
/* minimum seconds that are timed at once; shorter calls are timed together */
static const double CALLS_S = 0.002;

typedef struct sizes {
    int large, rows, few, tokens, most_keys, few_keys, few_tokens, heads, side, channels;
    int lines, width, level, groups; /* sizes of operands for memory-bound kernels */
} sizes;

static const sizes of_cpu = { 2048, 512, 16, 512, 1024, 120, 64, 8, 48, 256, 512, 1024, 64, 16 };
static const sizes of_gpu = { 4096, 4096, 128, 4096,  4096, 512, 256,
                              16,   128,  512, 16384, 4096, 384, 32 };
static const sizes of_slow = { 128, 64, 16, 64, 64, 16, 16, 2, 12, 32, 64, 128, 16, 8 };

static const sizes *sizes_of(const xd_prober *p)
{
    return !p->apart ? &of_cpu : p->slow ? &of_slow : &of_gpu;
}

typedef struct work { /* a kernel and its operands, in one memory block */
    xd_prober   *p;
    const sizes *z;
    xd_dtype     type, kept; /* type: compute type; kept: element type of the stored weights */
    int          fp8;        /* 1: the inputs of GEMMs are converted to e4m3, too */
    xd_arena     a;
    xd_op        op;
    union {
        xd_gemm      gemm;
        xd_attn_args attn;
        xd_conv      conv;
        xd_norm      norm;
        xd_moments   moments;
        xd_gnorm     gnorm;
        xd_glu       glu;
        xd_copy      copy;
    } u;
    xd_kv     kv;
    xd_weight w;
    /* tmp: the kernel's scratch memory. spoil: memory that is written before every call, to evict
     * the operands from the caches; or NULL. */
    void     *tmp, *spoil;
    xd_status status;
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
}

/* Returns the mean seconds of a call, from n consecutive calls. */
static double time_calls(work *k, int n)
{
    xd_dev *d = k->p->dev;
    double  t;
    if (k->spoil)
        memset(k->spoil, n, CACHE_BYTES);
    t = xd_now_s();
    for (int i = 0; i < n; i++)
        run_call(k);
    d->mem->sync(d, NULL);
    return (xd_now_s() - t) / n;
}

/* Returns the number of kernel calls that are timed together. */
static int count_calls(work *k)
{
    int n = 1;
    while (k->p->apart && k->status == XD_OK && n < MOST_CALLS && n * time_calls(k, n) < CALLS_S)
        n *= 2;
    return n;
}

/* Returns the seconds of the fastest call on this rank, while the other ranks run the same
 * kernel. */
static double fastest_call(work *k)
{
    double best = 1e30, begin, t;
    size_t need = k->p->dev->ops->scratch(k->p->dev, k->op, &k->u);
    k->tmp = xd_arena_get(&k->a, need + XD_ALIGN);
    if (!k->tmp && k->status == XD_OK)
        k->status = XD_ENOMEM;
    if (k->status == XD_OK)
        time_calls(k, 1);
    int calls = count_calls(k);
    if (!k->p->quiet)
        xd_probe_meet(k->p);
    begin = xd_now_s();
    for (int i = 0; k->status == XD_OK && (i < 3 || xd_now_s() - begin < SPAN_S); i++) {
        t = time_calls(k, calls);
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

static void put_values(void *p, xd_dtype type, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float v = 0.01f * (float)(i % 199 - 99);
        if (type == XD_F32)
            ((float *)p)[i] = v;
        else if (type == XD_F64)
            ((double *)p)[i] = v;
        else
            xd_convert((char *)p + i * (int64_t)xd_dtype_size(type), type, &v, XD_F32, 1);
    }
}

/* Fills the operand t with a repeated sequence of values. */
static void upload_values(work *k, xd_tensor t)
{
    xd_dev *d = k->p->dev;
    int64_t n = xd_count(t), piece = n < 199 << 12 ? n : 199 << 12;
    size_t  es = xd_dtype_size(t.type);
    void   *host = malloc((size_t)piece * es);
    if (!host)
        k->status = XD_ENOMEM;
    else
        put_values(host, t.type, piece);
    for (int64_t i = 0; i < n && k->status == XD_OK; i += piece)
        k->status = d->mem->upload(d, NULL, (char *)t.p + (size_t)i * es, host,
                                   (size_t)(n - i < piece ? n - i : piece) * es);
    free(host);
}

static xd_tensor new_operand(work *k, xd_dtype type, int nd, const int64_t *d)
{
    xd_tensor t = xd_view(NULL, type, nd, d);
    t.p = xd_arena_get(&k->a, xd_bytes(t));
    if (!t.p)
        k->status = XD_ENOMEM;
    else if (k->p->apart)
        upload_values(k, t);
    else
        put_values(t.p, type, xd_count(t));
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
    k->w = (xd_weight){ .type = k->kept,
                        .out = out,
                        .in = in,
                        .nk = nk,
                        .kernel = { nk > 2 ? 3 : 1, nk ? 3 : 1, nk ? 3 : 1 },
                        .stride = { 1, 1, 1 },
                        .groups = 1 };
    k->w.bytes = d->ops->pack_size(d, &k->w);
    k->w.p = xd_arena_get(&k->a, k->w.bytes);
    mark = xd_arena_mark(&k->a);
    xd_tensor src = xd_view(NULL, XD_F32, 2 + nk, (int64_t[]){ out, in, 3, 3, 3 });
    src.p = k->p->apart ? malloc(xd_bytes(src)) : xd_arena_get(&k->a, xd_bytes(src));
    need = d->ops->pack_tmp(d, &k->w, XD_F32);
    void *tmp = xd_arena_get(&k->a, need + XD_ALIGN);
    if (!k->w.p || !tmp || !src.p)
        k->status = XD_ENOMEM;
    else
        put_values(src.p, XD_F32, xd_count(src));
    if (k->status == XD_OK)
        k->status = d->ops->pack(d, &k->w, src, tmp);
    if (k->p->apart)
        free(src.p);
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
                           .w = &k->w,
                           .fp8 = k->fp8 };
    double t = all_of(k);
    rewind_to(k, mark);
    return t;
}

/* From the rates at a small and at a large size, computes and returns the size at which half of the
 * full rate is reached. */
static double half_at(double few, double rate_few, double many, double rate_many)
{
    double h = few * many * (rate_many - rate_few) / (many * rate_few - few * rate_many);
    return h > many ? many : h > 0 ? h : 0;
}

static double quantized_s(work *k, xd_dtype kept)
{
    const sizes *z = k->z;
    size_t       mark = xd_arena_mark(&k->a);
    k->kept = kept;
    new_weight(k, z->large, z->large, 0);
    double t = gemm_s(k, z->rows);
    k->kept = k->type;
    rewind_to(k, mark);
    return t;
}

static double weights_rate(work *k)
{
    size_t mark = xd_arena_mark(&k->a);
    new_weight(k, (k->type == XD_BF16 ? 4 : 2) * k->z->large, 2 * k->z->large, 0);
    double rate = (double)k->w.bytes / gemm_s(k, 1);
    rewind_to(k, mark);
    return rate;
}

static void measure_gemms(work *k, xd_rates *r)
{
    const sizes *z = k->z;
    size_t       mark = xd_arena_mark(&k->a);
    double       flop = 2.0 * z->large * z->large;
    new_weight(k, z->large, z->large, 0);
    double many = flop * z->rows / gemm_s(k, z->rows), few = flop * z->few / gemm_s(k, z->few);
    r->gemm_rows = half_at(z->few, few, z->rows, many);
    r->gemm = many * (1 + r->gemm_rows / z->rows);
    rewind_to(k, mark);
    r->int8 = flop * z->rows / quantized_s(k, XD_I8) / many;
    r->fp8 = flop * z->rows / quantized_s(k, XD_F8E4M3) / many;
    k->fp8 = k->p->dev->fp8_gemm && k->type != XD_F32;
    r->fp8_gemm = k->fp8 ? flop * z->rows / quantized_s(k, XD_F8E4M3) / many : 0;
    k->fp8 = 0;
    /* weights_rate measures a GEMM whose weights are larger than the caches near the cores. Devices
     * with their own memory have no separate rate for weights. */
    if (!k->p->apart)
        r->weights = weights_rate(k);
    new_weight(k, 16, 16, 0);
    r->call_s = gemm_s(k, 1);
    rewind_to(k, mark);
}

static double attention_s(work *k, int64_t tokens, int64_t keys, int64_t D)
{
    const sizes *z = k->z;
    size_t       mark = xd_arena_mark(&k->a);
    int64_t      q[4] = { 1, tokens, z->heads, D }, kv[4] = { 1, keys, z->heads, D };
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
    const sizes *z = k->z;
    double       flop = 4.0 * z->heads * 64 * z->tokens;
    double       many = flop * z->most_keys / attention_s(k, z->tokens, z->most_keys, 64);
    double       keys = flop * z->few_keys / attention_s(k, z->tokens, z->few_keys, 64);
    double       rows = flop / z->tokens * z->few_tokens * z->most_keys /
                        attention_s(k, z->few_tokens, z->most_keys, 64);
    r->attn_keys = half_at(z->few_keys, keys, z->most_keys, many);
    r->attn_rows = half_at(z->few_tokens, rows, z->tokens, many);
    double full = (1 + r->attn_keys / z->most_keys) * (1 + r->attn_rows / z->tokens);
    r->attn[0] = many * full;
    r->attn[1] = 2 * flop * z->most_keys / attention_s(k, z->tokens, z->most_keys, 128) * full;
}

/* Returns the flop/s of a convolution with the weight that outputs `frames` frames of `rows`
 * rows. */
static double conv_rate(work *k, int64_t frames, int64_t rows)
{
    const int *n = k->w.kernel;
    int64_t    W = k->z->side, C = k->w.in;
    size_t     mark = xd_arena_mark(&k->a);
    k->op = XD_OP_CONV;
    k->u.conv = (xd_conv){
        .out = new_operand(k, k->type, 4, (int64_t[]){ frames, rows, W, C }),
        .in = new_operand(k, k->type, 4, (int64_t[]){ frames + n[0] - 1, rows + n[1] - 1, W, C }),
        .w = &k->w,
        .stride = { 1, 1, 1 },
        .lo = { 0, 0, 1 },
        .hi = { 0, 0, 1 }
    };
    double rate = 2.0 * n[0] * n[1] * n[2] * (double)(frames * rows * W * C * C) / all_of(k);
    rewind_to(k, mark);
    return rate;
}

/* On CPUs, also measures a convolution of a single row, as at the edges of a band of rows, and a
 * convolution of several frames, as of the autoencoders of videos. */
static void measure_convs(work *k, xd_rates *r)
{
    const sizes *z = k->z;
    size_t       mark = xd_arena_mark(&k->a);
    new_weight(k, z->channels, z->channels, 2);
    r->conv = conv_rate(k, 1, z->side);
    if (!k->p->apart) {
        r->conv_rows = half_at(1, conv_rate(k, 1, 1), z->side, r->conv);
        r->conv *= 1 + r->conv_rows / z->side;
        rewind_to(k, mark);
        new_weight(k, z->channels / 2, z->channels / 2, 3);
        r->conv_3d = conv_rate(k, 2, z->side) * (1 + r->conv_rows / z->side);
    }
    rewind_to(k, mark);
}

/* Sets the rates of element-wise kernels, in bytes of operands per second. */
static void element_wise(work *k, xd_rates *r)
{
    const sizes *z = k->z;
    size_t       mark = xd_arena_mark(&k->a);
    double       n = (double)z->level * z->level * z->level, t;
    xd_tensor    x = new_matrix(k, XD_F32, z->lines, z->width),
                 y = new_matrix(k, k->type, z->lines, z->width);
    xd_tensor    row = new_matrix(k, XD_F32, 1, z->width);
    double both = (double)xd_bytes(x) + (double)xd_bytes(y), es = (double)xd_dtype_size(k->type);
    k->spoil = k->p->apart ? NULL : xd_arena_get(&k->a, CACHE_BYTES);
    k->op = XD_OP_NORM;
    k->u.norm = (xd_norm){ .out = y, .in = x, .scale = row, .shift = row, .eps = 1e-6f };
    r->norm = (both + 2 * 4 * z->width) / all_of(k);
    k->op = XD_OP_COPY;
    k->u.copy = (xd_copy){ y, x };
    r->bytes = both / all_of(k);
    k->op = XD_OP_GLU;
    k->u.glu = (xd_glu){ .out = y, .a = y, .act = XD_GELU_TANH };
    r->act = 2 * (double)xd_bytes(y) / all_of(k);
    xd_tensor image = new_operand(k, k->type, 3, (int64_t[]){ z->level, z->level, z->level });
    xd_tensor flat = xd_reshape(image, 2, (int64_t[]){ z->level * z->level, z->level });
    xd_tensor sums = new_operand(k, XD_F64, 3, (int64_t[]){ z->level, z->groups, 2 }),
              sum = new_operand(k, XD_F64, 2, (int64_t[]){ z->groups, 2 });
    xd_tensor gain = new_operand(k, XD_F32, 1, (int64_t[]){ z->level });
    k->op = XD_OP_MOMENTS;
    k->u.moments = (xd_moments){ .out = sums, .in = image, .groups = z->groups };
    t = all_of(k);
    k->op = XD_OP_GNORM;
    k->u.gnorm = (xd_gnorm){ .out = flat,
                             .in = flat,
                             .sums = sum,
                             .gain = gain,
                             .bias = gain,
                             .groups = z->groups,
                             .silu = 1,
                             .count = n / z->groups,
                             .eps = 1e-6f };
    t += all_of(k);
    r->gnorm = 3 * n * es / t;
    k->spoil = NULL;
    rewind_to(k, mark);
}

/* ---- all ---------------------------------------------------------------------------------- */

static xd_status open_work(work *k, xd_prober *p, xd_dtype type, xd_err *e)
{
    const sizes *z = sizes_of(p);
    size_t       bytes = (size_t)96 * (size_t)z->large * (size_t)z->large;
    *k = (work){ .p = p, .z = z, .type = type, .kept = type };
    void *block = p->dev->mem->get(p->dev, bytes);
    xd_arena_init(&k->a, block, block ? bytes : 0);
    return block ? XD_OK
                 : xd_fail(e, XD_ENOMEM, "no memory for the %zu MB of a probe", bytes >> 20);
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
    new_weight(&k, k.z->large, k.z->large, 0);
    all = gemm_s(&k, k.z->rows);
    xd_probe_meet(p);
    p->quiet = 1;
    if (p->all->rank == 0)
        alone = gemm_s(&k, k.z->rows);
    p->quiet = 0;
    xd_quiet(p->all);
    *times = p->all->size > 1 ? xd_probe_mean(p, alone > 0 ? p->all->size * all / alone : 0) : 1;
    return s == XD_OK ? close_work(&k, e) : s;
}
