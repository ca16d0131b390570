/* ops.c - every op of the CPU's table on shapes of real models: against plain C, against oneDNN
 * called directly, and against what the machine can do.
 *
 *   ops [--threads N] [--seconds S] [--tiny] [--json] [OP...]        the set is that of XDIT_ISA
 *
 * Products, convolutions and attention are a share of the register peak, which is measured
 * before and after each (the higher one counts; machines are shared, and their speed changes
 * from one second to the next). Other ops are a share of the speed at which the same threads
 * copy as many bytes, so that what stays in a cache is compared with that cache. Plain C is the
 * table "c" in the same process on the same shape; of products, convolutions and attention on
 * fewer rows of it, scaled by the work. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/clock.h"
#include "base/pages.h"
#include "base/par.h"
#include "ops.h"

enum { HELD = 32, MOST = 2000 };

typedef struct held {
    void  *p;
    size_t bytes;
} held;

typedef struct bench {
    xd_dev   *fast, *plain, *count;
    xd_dev   *dev;   /* the one that a case is built for */
    xd_dtype  type;  /* of the activations of the case */
    int       small; /* few rows */
    int       tiny, json, rows;
    double    seconds;
    held      held[HELD];
    int       nheld;
    xd_op     op; /* the case that was built */
    args      a;
    xd_weight w;
    xd_kv     kv;
    char      what[96];
} bench;

static const char *const names[XD_NOPS] = {
    "gemm", "attn",   "norm",   "moments", "gnorm",  "glu",    "addmul",  "axpby",
    "conv", "resize", "lookup", "copy",    "qknorm", "rotate", "linattn", "code",
};

/* ---- time --------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median_seconds(xd_status (*call)(void *ctx), void *ctx, double budget)
{
    static double t[MOST];
    int           n = 0;
    if (call(ctx) != XD_OK)
        return 0;
    double start = xd_now_s();
    while (n < MOST && (n < 3 || xd_now_s() - start < budget)) {
        double t0 = xd_now_s();
        if (call(ctx) != XD_OK)
            return 0;
        t[n++] = xd_now_s() - t0;
    }
    qsort(t, (size_t)n, sizeof *t, by_size);
    return t[n / 2];
}

typedef struct span {
    char       *to;
    const char *from;
    size_t      bytes;
} span;

static void copy_part(void *ctx, int64_t begin, int64_t end, int thread)
{
    const span *s = ctx;
    (void)thread;
    memcpy(s->to + begin, s->from + begin, (size_t)(end - begin));
}

static xd_status copy_all(void *ctx)
{
    span *s = ctx;
    xd_par_for((int64_t)s->bytes, copy_part, s);
    return XD_OK;
}

/* GB/s of a copy that reads and writes so many bytes together. */
static double copy_speed(double bytes, double budget)
{
    size_t half = (size_t)(bytes / 2) + 64;
    span   s = { xd_pages_map(half, -1), NULL, half };
    char  *from = xd_pages_map(half, -1);
    double t = 0;
    s.from = from;
    if (s.to && from) {
        memset(s.to, 1, half);
        memset(from, 2, half);
        t = median_seconds(copy_all, &s, budget);
    }
    xd_pages_unmap(s.to, half);
    xd_pages_unmap(from, half);
    return t > 0 ? 2e-9 * (double)half / t : 0;
}

typedef struct call {
    const bench *b;
    void        *tmp;
} call;

static xd_status run_op(const bench *b, xd_dev *d, void *tmp)
{
    const xd_ops *o = d->ops;
    switch (b->op) {
    case XD_OP_GEMM: return o->gemm(d, NULL, &b->a.gemm, tmp);
    case XD_OP_ATTN: return o->attn(d, NULL, &b->a.attn, tmp);
    case XD_OP_NORM: return o->norm(d, NULL, &b->a.norm, tmp);
    case XD_OP_MOMENTS: return o->moments(d, NULL, &b->a.moments, tmp);
    case XD_OP_GNORM: return o->gnorm(d, NULL, &b->a.gnorm, tmp);
    case XD_OP_GLU: return o->glu(d, NULL, &b->a.glu, tmp);
    case XD_OP_ADDMUL: return o->addmul(d, NULL, &b->a.addmul, tmp);
    case XD_OP_AXPBY: return o->axpby(d, NULL, &b->a.axpby, tmp);
    case XD_OP_CONV: return o->conv(d, NULL, &b->a.conv, tmp);
    case XD_OP_RESIZE: return o->resize(d, NULL, &b->a.resize, tmp);
    case XD_OP_LOOKUP: return o->lookup(d, NULL, &b->a.lookup, tmp);
    case XD_OP_COPY: return o->copy(d, NULL, &b->a.copy, tmp);
    case XD_OP_QKNORM: return o->qknorm(d, NULL, &b->a.qknorm, tmp);
    case XD_OP_ROTATE: return o->rotate(d, NULL, &b->a.rotate, tmp);
    case XD_OP_LINATTN: return o->linattn(d, NULL, &b->a.linattn, tmp);
    case XD_OP_CODE: return o->code(d, NULL, &b->a.code, tmp);
    case XD_NOPS: break;
    }
    return XD_EINVAL;
}

static xd_status run_call(void *ctx)
{
    const call *c = ctx;
    return run_op(c->b, c->b->dev, c->tmp);
}

/* ---- operands ----------------------------------------------------------------------------- */

static void *take(bench *b, size_t bytes)
{
    void *p = b->nheld < HELD ? xd_pages_map(bytes + 1, -1) : NULL;
    if (!p) {
        fprintf(stderr, "ops: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    b->held[b->nheld++] = (held){ p, bytes + 1 };
    return p;
}

static void drop_all(bench *b)
{
    for (int i = 0; i < b->nheld; i++)
        xd_pages_unmap(b->held[i].p, b->held[i].bytes);
    b->nheld = 0;
}

enum { PATTERN = 4099 }; /* elements until the numbers come again */

static void fill(void *ctx, int64_t begin, int64_t end, int thread)
{
    const xd_tensor *t = ctx;
    size_t           size = xd_dtype_size(t->type);
    float            f[PATTERN];
    (void)thread;
    for (int64_t i = 0; i < PATTERN; i++)
        f[i] = (float)((uint64_t)i * 2654435761u % 2001) / 1000.0f - 1.0f;
    for (int64_t i = begin, n; i < end; i += n) {
        char *at = (char *)t->p + (size_t)i * size;
        n = end - i < PATTERN ? end - i : PATTERN;
        if (i == begin)
            xd_convert(at, t->type, f, XD_F32, n);
        else
            memcpy(at, at - PATTERN * size, (size_t)n * size);
    }
}

static xd_tensor filled(bench *b, xd_dtype type, int nd, const int64_t *d)
{
    xd_tensor t = xd_view(NULL, type, nd, d);
    t.p = take(b, xd_bytes(t));
    xd_par_for(xd_count(t), fill, &t);
    return t;
}

static xd_tensor row(bench *b, int64_t n)
{
    return filled(b, XD_F32, 1, &n);
}

static xd_tensor rows(bench *b, xd_dtype type, int64_t n, int64_t C)
{
    return filled(b, type, 2, (int64_t[]){ n, C });
}

static void pack(bench *b, int nd, const int64_t *d)
{
    xd_dev   *dev = b->dev;
    xd_tensor src = filled(b, XD_F32, nd, d);
    size_t    n = dev->ops->pack_tmp(dev, &b->w, XD_F32);
    void     *tmp = n ? take(b, n) : NULL;
    b->w.p = take(b, dev->ops->pack_size(dev, &b->w));
    if (dev->ops->pack(dev, &b->w, src, tmp) != XD_OK) {
        fprintf(stderr, "ops: a weight cannot be packed\n");
        exit(1);
    }
}

/* Fewer tokens, or rows of an image, for plain C and for a glance. */
static int64_t few(const bench *b, int64_t n, int64_t most)
{
    return (b->small || b->tiny) && n > most ? most : n;
}

/* Fewer features, for a glance. */
static int64_t narrow(const bench *b, int64_t n)
{
    return b->tiny && n > 64 ? 64 : n;
}

/* ---- cases: products, convolutions, attention ----------------------------------------------- */

typedef struct spec { /* a shape of a case: what the numbers mean is the case's */
    int64_t v[6];
} spec;

/* tokens, in, out, how: 0 bias, 1 bias and gelu, 2 bias, gate and residual in f32; weights: 1
 * int8, 2 fp8 */
static void gemm(bench *b, const spec *s)
{
    static const char *const kept[] = { "", ", int8", ", fp8" };
    static const char *const text[] = { "bias", "bias, gelu", "bias, gate, residual" };
    int64_t M = few(b, s->v[0], 64), K = narrow(b, s->v[1]), N = narrow(b, s->v[2]), how = s->v[3];
    b->op = XD_OP_GEMM;
    xd_dtype type = s->v[4] == 1 ? XD_I8 : s->v[4] == 2 ? XD_F8E4M3 : b->type;
    b->w = (xd_weight){
        .type = type, .out = N, .in = K, .kernel = { 1, 1, 1 }, .stride = { 1, 1, 1 }, .groups = 1
    };
    pack(b, 2, (int64_t[]){ N, K });
    xd_gemm *a = &b->a.gemm;
    *a = (xd_gemm){ .w = &b->w, .act = how == 1 ? XD_GELU_TANH : XD_NONE };
    a->in = rows(b, b->type, M, K);
    a->out = rows(b, how == 2 ? XD_F32 : b->type, M, N);
    a->bias = row(b, N);
    if (how == 2) {
        a->gate = row(b, N);
        a->residual = a->out;
    }
    snprintf(b->what, sizeof b->what, "%lld x %lld to %lld, %s%s", (long long)s->v[0],
             (long long)s->v[1], (long long)s->v[2], text[how], kept[s->v[4]]);
}

/* frames, side, in, out, kernel, kernel of time (0: a 2-D one) */
static void conv(bench *b, const spec *s)
{
    int64_t T = s->v[1] ? few(b, s->v[0], 3) : 1, side = few(b, s->v[1], 16);
    int64_t C = narrow(b, s->v[2]), O = narrow(b, s->v[3]);
    int     k = (int)s->v[4], kt = (int)s->v[5];
    b->op = XD_OP_CONV;
    b->w = (xd_weight){ .type = b->type,
                        .out = O,
                        .in = C,
                        .nk = kt ? 3 : 2,
                        .kernel = { kt ? kt : 1, k, k },
                        .stride = { 1, 1, 1 },
                        .groups = 1 };
    pack(b, kt ? 5 : 4, kt ? (int64_t[]){ O, C, kt, k, k } : (int64_t[]){ O, C, k, k });
    xd_conv *a = &b->a.conv;
    *a = (xd_conv){
        .w = &b->w, .stride = { 1, 1, 1 }, .lo = { 0, k / 2, k / 2 }, .hi = { 0, k / 2, k / 2 }
    };
    a->in = filled(b, b->type, 4, (int64_t[]){ T, side, side, C });
    a->out = filled(b, b->type, 4, (int64_t[]){ kt ? T - kt + 1 : T, side, side, O });
    a->bias = row(b, O);
    snprintf(b->what, sizeof b->what, "%lld x %lld x %lld, %lld to %lld, %s%dx%d",
             (long long)s->v[0], (long long)s->v[1], (long long)s->v[1], (long long)s->v[2],
             (long long)s->v[3], kt ? "3x" : "", k, k);
}

/* queries, keys, heads, head_dim */
static void attn(bench *b, const spec *s)
{
    int64_t n = few(b, s->v[0], 64), m = b->tiny ? few(b, s->v[1], 64) : s->v[1], D = s->v[3];
    int64_t H = b->tiny && s->v[2] > 2 ? 2 : s->v[2];
    int64_t q[] = { 1, n, H, D }, k[] = { 1, m, H, D };
    b->op = XD_OP_ATTN;
    b->kv = (xd_kv){ filled(b, b->type, 4, k), filled(b, b->type, 4, k) };
    b->a.attn = (xd_attn_args){ .q = filled(b, b->type, 4, q),
                                .out = filled(b, b->type, 4, q),
                                .kv = &b->kv,
                                .nkv = 1,
                                .scale = 0.1f };
    snprintf(b->what, sizeof b->what, "%lld of %lld, %lld heads of %lld", (long long)s->v[0],
             (long long)s->v[1], (long long)s->v[2], (long long)D);
}

/* ---- cases: rows --------------------------------------------------------------------------- */

/* tokens, features, rms */
static void norm(bench *b, const spec *s)
{
    int64_t n = few(b, s->v[0], 1024), C = s->v[1];
    b->op = XD_OP_NORM;
    b->a.norm = (xd_norm){ .out = rows(b, b->type, n, C),
                           .in = rows(b, XD_F32, n, C),
                           .rms = s->v[2] != 0,
                           .eps = 1e-6f };
    if (s->v[2])
        b->a.norm.gain = row(b, C);
    else
        b->a.norm.scale = rows(b, XD_F32, 1, C), b->a.norm.shift = rows(b, XD_F32, 1, C);
    snprintf(b->what, sizeof b->what, "%s, %lld x %lld",
             s->v[2] ? "rms norm" : "layer norm, modulation", (long long)s->v[0], (long long)C);
}

/* tokens, heads, head_dim, norm: 0 none, 1 rms; the turn is there */
static void qknorm(bench *b, const spec *s)
{
    int64_t n = few(b, s->v[0], 1024), d[] = { n, s->v[1], s->v[2] };
    b->op = XD_OP_QKNORM;
    b->a.qknorm = (xd_qknorm){ .out = filled(b, b->type, 3, d),
                               .in = filled(b, b->type, 3, d),
                               .cos = rows(b, XD_F32, n, s->v[2] / 2),
                               .sin = rows(b, XD_F32, n, s->v[2] / 2),
                               .norm = s->v[3] != 0,
                               .rms = 1,
                               .eps = 1e-6f };
    if (s->v[3])
        b->a.qknorm.gain = row(b, s->v[2]);
    snprintf(b->what, sizeof b->what, "%sturn, %lld tokens, %lld heads of %lld",
             s->v[3] ? "rms norm, " : "", (long long)s->v[0], (long long)s->v[1],
             (long long)s->v[2]);
}

/* tokens, features, group: of the inputs of ConvRot weights */
static void rotate(bench *b, const spec *s)
{
    int64_t n = few(b, s->v[0], 256);
    b->op = XD_OP_ROTATE;
    b->a.rotate = (xd_rotate){ .out = rows(b, b->type, n, s->v[1]),
                               .in = rows(b, b->type, n, s->v[1]),
                               .group = s->v[2] };
    snprintf(b->what, sizeof b->what, "groups of %lld, %lld x %lld", (long long)s->v[2],
             (long long)s->v[0], (long long)s->v[1]);
}

/* tokens, heads, head_dim, direction: 0 to codes of int8, 1 to codes of fp8, 2 from int8 */
static void code(bench *b, const spec *s)
{
    static const char *const ways[] = { "to int8", "to fp8", "from int8" };
    int64_t                  n = few(b, s->v[0], 256), H = s->v[1], D = s->v[2];
    xd_tensor                v = filled(b, b->type, 3, (int64_t[]){ n, H, D });
    xd_tensor                c = xd_view(take(b, (size_t)(n * H * (D + XD_CODE_SCALE))),
                                         s->v[3] == 1 ? XD_F8E4M3 : XD_I8, 3,
                                         (int64_t[]){ n, H, D + XD_CODE_SCALE });
    b->op = XD_OP_CODE;
    b->a.code = (xd_code){ .out = c, .in = v };
    if (s->v[3] == 2)
        b->dev->ops->code(b->dev, NULL, &b->a.code, NULL), b->a.code = (xd_code){ v, c };
    snprintf(b->what, sizeof b->what, "%s, %lld x %lld x %lld", ways[s->v[3]], (long long)s->v[0],
             (long long)H, (long long)D);
}

/* tokens, features, gated */
static void glu(bench *b, const spec *s)
{
    int64_t n = few(b, s->v[0], 256), C = s->v[1];
    b->op = XD_OP_GLU;
    b->a.glu =
        (xd_glu){ .out = rows(b, b->type, n, C), .a = rows(b, b->type, n, C), .act = XD_GELU_TANH };
    if (s->v[2])
        b->a.glu.b = rows(b, b->type, n, C);
    snprintf(b->what, sizeof b->what, "gelu%s, %lld x %lld", s->v[2] ? ", gate" : "",
             (long long)s->v[0], (long long)C);
}

static void addmul(bench *b, const spec *s)
{
    int64_t n = few(b, s->v[0], 1024), C = s->v[1];
    b->op = XD_OP_ADDMUL;
    b->a.addmul =
        (xd_addmul){ rows(b, XD_F32, n, C), rows(b, XD_F32, 1, C), rows(b, b->type, n, C) };
    snprintf(b->what, sizeof b->what, "%lld x %lld", (long long)s->v[0], (long long)C);
}

static void axpby(bench *b, const spec *s)
{
    int64_t n = few(b, s->v[0], 1024), C = s->v[1];
    b->op = XD_OP_AXPBY;
    b->a.axpby = (xd_axpby_args){ rows(b, XD_F32, n, C), rows(b, XD_F32, n, C), 0.5f, 0.5f };
    snprintf(b->what, sizeof b->what, "%lld x %lld", (long long)s->v[0], (long long)C);
}

/* side, channels */
static void moments(bench *b, const spec *s)
{
    int64_t n = few(b, s->v[0], 32), C = s->v[1];
    b->op = XD_OP_MOMENTS;
    b->a.moments = (xd_moments){ filled(b, XD_F64, 3, (int64_t[]){ n, 32, 2 }),
                                 filled(b, b->type, 3, (int64_t[]){ n, n, C }), 32 };
    snprintf(b->what, sizeof b->what, "%lld x %lld x %lld", (long long)s->v[0], (long long)s->v[0],
             (long long)C);
}

/* side, channels */
static void gnorm(bench *b, const spec *s)
{
    int64_t   n = few(b, s->v[0], 32), C = s->v[1];
    xd_tensor sums = filled(b, XD_F64, 2, (int64_t[]){ 32, 2 });
    for (int i = 0; i < 64; i++)
        ((double *)sums.p)[i] = i % 2 ? (double)(n * n) : 1;
    b->op = XD_OP_GNORM;
    b->a.gnorm = (xd_gnorm){ .out = rows(b, b->type, n * n, C),
                             .in = rows(b, b->type, n * n, C),
                             .sums = sums,
                             .gain = row(b, C),
                             .bias = row(b, C),
                             .groups = 32,
                             .silu = 1,
                             .count = (double)(n * n * C / 32),
                             .eps = 1e-6f };
    snprintf(b->what, sizeof b->what, "silu, %lld x %lld x %lld", (long long)s->v[0],
             (long long)s->v[0], (long long)C);
}

/* side, channels */
static void resize(bench *b, const spec *s)
{
    int64_t n = few(b, s->v[0], 32), C = s->v[1];
    b->op = XD_OP_RESIZE;
    b->a.resize = (xd_resize){ filled(b, b->type, 4, (int64_t[]){ 1, 2 * n, 2 * n, C }),
                               filled(b, b->type, 4, (int64_t[]){ 1, n, n, C }),
                               { 1, 2, 2 } };
    snprintf(b->what, sizeof b->what, "%lld x %lld x %lld, twice as wide and high",
             (long long)s->v[0], (long long)s->v[0], (long long)C);
}

/* tokens, features */
static void lookup(bench *b, const spec *s)
{
    int64_t   n = few(b, s->v[0], 32), C = s->v[1], words = b->tiny ? 64 : 32128;
    xd_tensor ids = xd_view(take(b, (size_t)n * 4), XD_I32, 1, &n);
    for (int64_t i = 0; i < n; i++)
        ((int32_t *)ids.p)[i] = (int32_t)(i * 7919 % words);
    b->op = XD_OP_LOOKUP;
    b->a.lookup = (xd_lookup){ rows(b, XD_F32, n, C), rows(b, b->type, words, C), ids };
    snprintf(b->what, sizeof b->what, "%lld of 32128 rows of %lld", (long long)s->v[0],
             (long long)C);
}

/* rows, features, how: 0 from f32, 1 channels last to channels first */
static void copy(bench *b, const spec *s)
{
    int64_t n = few(b, s->v[0], 1024), C = s->v[1];
    b->op = XD_OP_COPY;
    if (s->v[2])
        b->a.copy = (xd_copy){ rows(b, b->type, C, n),
                               xd_permute(rows(b, b->type, n, C), (int[]){ 1, 0 }) };
    else
        b->a.copy = (xd_copy){ rows(b, b->type, n, C), rows(b, XD_F32, n, C) };
    snprintf(b->what, sizeof b->what, "%lld x %lld, %s", (long long)s->v[0], (long long)C,
             s->v[2] ? "turned" : "from f32");
}

/* PixArt-XL (1152, heads of 72), FLUX.1 (3072, heads of 128), CogVideoX (heads of 64), T5-XXL
 * (4096), the KL decoder of 512 pixels and CogVideoX's. */
static const struct {
    void  (*build)(bench *b, const spec *s);
    xd_op op;
    spec  s;
} cases[] = {
    { gemm, XD_OP_GEMM, { { 1024, 1152, 1152, 2 } } },
    { gemm, XD_OP_GEMM, { { 1024, 1152, 4608, 1 } } },
    { gemm, XD_OP_GEMM, { { 1024, 4608, 1152, 2 } } },
    { gemm, XD_OP_GEMM, { { 4096, 1152, 3456, 0 } } },
    { gemm, XD_OP_GEMM, { { 1536, 3072, 9216, 0 } } },
    { gemm, XD_OP_GEMM, { { 1536, 3072, 12288, 1 } } },
    { gemm, XD_OP_GEMM, { { 1536, 15360, 3072, 2 } } },
    { gemm, XD_OP_GEMM, { { 120, 4096, 10240, 1 } } },
    { gemm, XD_OP_GEMM, { { 1, 1152, 6912, 0 } } },
    { gemm, XD_OP_GEMM, { { 1024, 1152, 4608, 1, 1 } } },
    { gemm, XD_OP_GEMM, { { 1536, 3072, 9216, 0, 1 } } },
    { gemm, XD_OP_GEMM, { { 1536, 3072, 9216, 0, 2 } } },
    { conv, XD_OP_CONV, { { 1, 64, 512, 512, 3 } } },
    { conv, XD_OP_CONV, { { 1, 128, 512, 512, 3 } } },
    { conv, XD_OP_CONV, { { 1, 256, 256, 256, 3 } } },
    { conv, XD_OP_CONV, { { 1, 512, 128, 128, 3 } } },
    { conv, XD_OP_CONV, { { 1, 512, 128, 3, 3 } } },
    { conv, XD_OP_CONV, { { 1, 256, 512, 256, 1 } } },
    { conv, XD_OP_CONV, { { 6, 60, 512, 512, 3, 3 } } },
    { attn, XD_OP_ATTN, { { 1024, 1024, 16, 72 } } },
    { attn, XD_OP_ATTN, { { 4096, 4096, 16, 72 } } },
    { attn, XD_OP_ATTN, { { 4096, 120, 16, 72 } } },
    { attn, XD_OP_ATTN, { { 1536, 1536, 24, 128 } } },
    { attn, XD_OP_ATTN, { { 2048, 17776, 4, 64 } } },
    { attn, XD_OP_ATTN, { { 1024, 1024, 16, 88 } } },
    { attn, XD_OP_ATTN, { { 4096, 4096, 1, 512 } } },
    { norm, XD_OP_NORM, { { 1024, 1152, 0 } } },
    { norm, XD_OP_NORM, { { 4608, 3072, 0 } } },
    { norm, XD_OP_NORM, { { 512, 4096, 1 } } },
    { qknorm, XD_OP_QKNORM, { { 1536, 24, 128, 1 } } },
    { qknorm, XD_OP_QKNORM, { { 4608, 24, 128, 1 } } },
    { rotate, XD_OP_ROTATE, { { 1536, 3072, 256 } } },
    { rotate, XD_OP_ROTATE, { { 1536, 12288, 256 } } },
    { code, XD_OP_CODE, { { 4608, 24, 128, 0 } } },
    { code, XD_OP_CODE, { { 4608, 24, 128, 1 } } },
    { code, XD_OP_CODE, { { 4608, 24, 128, 2 } } },
    { glu, XD_OP_GLU, { { 1024, 4608, 0 } } },
    { glu, XD_OP_GLU, { { 512, 10240, 1 } } },
    { addmul, XD_OP_ADDMUL, { { 1024, 1152 } } },
    { addmul, XD_OP_ADDMUL, { { 4608, 3072 } } },
    { axpby, XD_OP_AXPBY, { { 4096, 64 } } },
    { axpby, XD_OP_AXPBY, { { 4096, 1152 } } },
    { moments, XD_OP_MOMENTS, { { 256, 256 } } },
    { moments, XD_OP_MOMENTS, { { 512, 128 } } },
    { gnorm, XD_OP_GNORM, { { 256, 256 } } },
    { gnorm, XD_OP_GNORM, { { 512, 128 } } },
    { resize, XD_OP_RESIZE, { { 128, 512 } } },
    { lookup, XD_OP_LOOKUP, { { 512, 4096 } } },
    { copy, XD_OP_COPY, { { 4096, 1152, 0 } } },
    { copy, XD_OP_COPY, { { 65536, 128, 1 } } },
};
enum { NCASES = sizeof cases / sizeof *cases };

/* ---- one case ------------------------------------------------------------------------------ */

/* Flops, or where there are none bytes, of the case that is built. */
static double work_of(bench *b, double *flops, double *bytes)
{
    xd_counts c;
    xd_dev_counts(b->count, &c, 1);
    run_op(b, b->count, NULL);
    xd_dev_counts(b->count, &c, 1);
    *flops = c.flops;
    *bytes = c.bytes;
    return c.flops > 0 ? c.flops : c.bytes;
}

static double seconds_of(bench *b, double budget)
{
    size_t bytes = b->dev->ops->scratch(b->dev, b->op, &b->a);
    call   c = { b, bytes ? take(b, bytes) : NULL };
    return median_seconds(run_call, &c, budget);
}

/* Builds the case on the plain table and says how many seconds it takes for so much work. */
static double plain_seconds(bench *b, int i, double work)
{
    double   flops, bytes, mine, s;
    xd_dtype type = b->type;
    b->dev = b->plain;
    b->small = cases[i].op == XD_OP_GEMM || cases[i].op == XD_OP_CONV || cases[i].op == XD_OP_ATTN;
    if (b->small && cases[i].op != XD_OP_ATTN)
        b->type = XD_F32;
    cases[i].build(b, &cases[i].s);
    mine = work_of(b, &flops, &bytes);
    s = seconds_of(b, b->seconds / 4) * work / mine;
    drop_all(b);
    b->dev = b->fast;
    b->small = 0;
    b->type = type;
    return s;
}

static double higher(double a, double b)
{
    return a > b ? a : b;
}

static int bench_case(bench *b, int i)
{
    double flops, bytes, top, s, lib, plain, work;
    char   what[96];
    cases[i].build(b, &cases[i].s);
    snprintf(what, sizeof what, "%s", b->what);
    work = work_of(b, &flops, &bytes);
    int product = flops > 0;
    top = product ? xd_dev_peak(b->fast, b->type, 0, 0.03) : copy_speed(bytes, b->seconds / 4);
    s = seconds_of(b, b->seconds);
    top = higher(top, product ? xd_dev_peak(b->fast, b->type, 0, 0.03)
                              : copy_speed(bytes, b->seconds / 4));
    lib = lib_seconds(b->fast, b->op, &b->a, b->seconds);
    drop_all(b);
    plain = plain_seconds(b, i, work);
    if (s <= 0) {
        fprintf(stderr, "ops: %s %s does not run\n", names[cases[i].op], what);
        return 1;
    }
    double speed = 1e-9 * work / s, share = top > 0 ? speed / top : 0;
    if (b->json) {
        printf("%s{\"op\": \"%s\", \"what\": \"%s\", \"seconds\": %.4g, \"%s\": %.5g, \"limit\": "
               "%.5g, "
               "\"share\": %.4g, \"plain_seconds\": %.4g, \"library_seconds\": %.4g}",
               b->rows++ ? ",\n" : "", names[cases[i].op], what, s, product ? "gflops" : "gbytes_s",
               speed, top, share, plain, lib);
        return 0;
    }
    printf("%-8s %-46s %9.3f ms %8.1f %-7s %5.1f %% of %-6.0f %7.1f x C", names[cases[i].op], what,
           s * 1e3, speed, product ? "GFLOP/s" : "GB/s", 100 * share, top, plain / s);
    if (lib > 0)
        printf(" %6.2f x oneDNN", lib / s);
    putchar('\n');
    return 0;
}

/* ---- the program --------------------------------------------------------------------------- */

static int usage(FILE *f, int code)
{
    fputs("Usage: ops [--threads N] [--seconds S] [--tiny] [--json] [OP...]\n"
          "  every op of the table, or those named, of:",
          f);
    for (int i = 0; i < XD_NOPS; i++)
        fprintf(f, " %s", names[i]);
    fputs("\n  --threads N   default: one for each core\n"
          "  --seconds S   of each measurement (0.2)\n"
          "  --tiny        small shapes, to see that it works\n"
          "  XDIT_ISA=avx2 (or avx512, avx512bf16) chooses the kernels\n",
          f);
    return code;
}

/* The device under test, plain C, and the one that counts. */
static int open_devices(bench *b)
{
    xd_err e = { 0 };
    if (xd_dev_open(&b->fast, "cpu", &e) == XD_OK &&
        xd_dev_open_count(&b->count, NULL, &e) == XD_OK) {
        setenv("XDIT_ISA", "c", 1);
        xd_dev_open(&b->plain, "cpu", &e);
    }
    if (e.code)
        fprintf(stderr, "ops: %s\n", e.msg);
    b->dev = b->fast;
    return e.code == 0;
}

int main(int argc, char **argv)
{
    bench b = { .seconds = 0.2 };
    int   threads = 0, wanted[XD_NOPS] = { 0 }, some = 0, failed = 0;
    for (int i = 1; i < argc; i++) {
        int known = 0;
        for (int k = 0; k < XD_NOPS; k++)
            if (strcmp(argv[i], names[k]) == 0)
                known = wanted[k] = some = 1;
        if (strcmp(argv[i], "--json") == 0)
            b.json = known = 1;
        else if (strcmp(argv[i], "--tiny") == 0)
            b.tiny = known = 1;
        else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc)
            threads = atoi(argv[++i]), known = 1;
        else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc)
            b.seconds = strtod(argv[++i], NULL), known = 1;
        else if (strcmp(argv[i], "--help") == 0)
            return usage(stdout, 0);
        if (!known)
            return usage(stderr, 2);
    }
    threads = xd_par_set(threads);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!open_devices(&b))
        return 1;
    b.type = xd_dev_compute(b.fast, XD_BF16);
    double f32 = xd_dev_peak(b.fast, XD_F32, 0, 0.03), bf16 = xd_dev_peak(b.fast, XD_BF16, 0, 0.03);
    printf(b.json ? "{\"device\": \"%s\", \"threads\": %d, \"peak_f32\": %.5g, \"peak_bf16\": "
                    "%.5g, \"dtype\": "
                    "\"%s\", \"ops\": [\n"
                  : "%s, %d threads, peak f32 %.1f, bf16 %.1f GFLOP/s; computes in %s\n",
           b.fast->name, threads, f32, bf16, xd_dtype_name(b.type));
    for (int i = 0; i < NCASES; i++)
        if (!some || wanted[cases[i].op])
            failed |= bench_case(&b, i);
    if (b.json)
        puts("\n]}");
    xd_dev_close(&b.count);
    xd_dev_close(&b.plain);
    xd_dev_close(&b.fast);
    return failed;
}
