/* test_ops.c - every slot of a device's table against double precision, on random shapes.
 *
 * The set under test is the one of XDIT_ISA; where this machine lacks it, all tests are skipped
 * and say so. Every operand lies in its own block with guard bytes around it and in the gaps of
 * its strides: whatever an op may not write must be unchanged. Tolerances are relative to the
 * largest expected value: 1e-5 where the result is f32 (or f64), 1e-2 where it is bf16, 1e-3
 * where it is f16. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "backend/backend.h"
#include "base/par.h"

static xd_dev *dev;

/* ---- random numbers ----------------------------------------------------------------------- */

static uint64_t state;

static uint64_t any(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static int64_t upto(int64_t n)          /* 0 .. n - 1 */
{
    return (int64_t)(any() % (uint64_t)n);
}

static double real(void)                /* -1 .. 1 */
{
    return (double)(int64_t)(any() >> 11) / 4503599627370496.0 - 1.0;
}

/* ---- operands ----------------------------------------------------------------------------- */

enum { GUARD = 192, MOST_BLOCKS = 16 };

typedef struct block {
    char *p, *before;           /* the bytes, and what they were                              */
    size_t bytes;
} block;

static block blocks[MOST_BLOCKS];
static int   nblocks;

static void fresh(void)
{
    for (int i = 0; i < nblocks; i++) {
        free(blocks[i].p);
        free(blocks[i].before);
    }
    nblocks = 0;
}

static void *element(const xd_tensor *t, int64_t i)
{
    int64_t off = 0;
    for (int k = t->nd - 1; k >= 0; k--) {
        off += i % t->d[k] * t->s[k];
        i /= t->d[k];
    }
    return (char *)t->p + off * (int64_t)xd_dtype_size(t->type);
}

static double value(const void *p, xd_dtype t)
{
    double   d;
    float    f;
    uint16_t h;
    if (t == XD_F64) {
        memcpy(&d, p, sizeof d);
        return d;
    }
    memcpy(&f, p, t == XD_F32 ? sizeof f : 0);
    memcpy(&h, p, t == XD_F32 ? 0 : sizeof h);
    return (double)(t == XD_F32 ? f : t == XD_BF16 ? xd_bf16_f32(h) : xd_f16_f32(h));
}

static double at(const xd_tensor *t, int64_t i)
{
    return value(element(t, i), t->type);
}

/* Element [i, j] of an operand that may have one row for all. */
static double at2(const xd_tensor *t, int64_t i, int64_t j)
{
    return at(t, (t->nd < 2 || t->d[0] == 1 ? 0 : i) * t->d[t->nd - 1] + j);
}

static void set(const xd_tensor *t, int64_t i, double v)
{
    double e;
    float  f = (float)v;
    if (t->type == XD_F64)
        e = v;
    else
        xd_convert(&e, t->type, &f, XD_F32, 1);
    memcpy(element(t, i), &e, xd_dtype_size(t->type));  /* may be unaligned                    */
}

/* A block for a tensor of these extents whose rows (and outer dimensions) lie `gap` elements
 * further apart than they must; `shift` bytes unaligned. Elements are random in -1 .. 1. */
static xd_tensor operand_at(xd_dtype type, int nd, const int64_t *d, int64_t gap, int64_t shift)
{
    int64_t   size = (int64_t)xd_dtype_size(type), n = 1;
    xd_tensor t = xd_view(NULL, type, nd, d);
    block    *b = &blocks[nblocks++];
    if (nblocks > MOST_BLOCKS)
        fail_msg("more than %d operands", MOST_BLOCKS);
    for (int k = nd - 1; k >= 0; k--) {
        t.s[k] = n;
        n *= d[k];
        n += k > 0 ? gap : 0;
    }
    b->bytes = (size_t)(n * size + 2 * GUARD + shift);
    b->p = malloc(b->bytes);
    b->before = malloc(b->bytes);
    if (!b->p || !b->before)
        fail_msg("no memory for a test");
    memset(b->p, 0xA5, b->bytes);
    t.p = b->p + GUARD + shift;
    for (int64_t i = 0; i < xd_count(t); i++)
        set(&t, i, real());
    return t;
}

static xd_tensor operand(xd_dtype type, int nd, const int64_t *d, int64_t gap)
{
    return operand_at(type, nd, d, gap, 0);
}

static xd_tensor matrix(xd_dtype type, int64_t rows, int64_t cols, int64_t gap)
{
    return operand(type, 2, (int64_t[]){ rows, cols }, gap);
}

static void remember(void)
{
    for (int i = 0; i < nblocks; i++)
        memcpy(blocks[i].before, blocks[i].p, blocks[i].bytes);
}

static double tolerance(xd_dtype t)
{
    return t == XD_BF16 ? 1e-2 : t == XD_F16 ? 1e-3 : 1e-5;
}

/* `out` holds `want`, and nothing else has changed since remember(). */
static void check(const char *what, const xd_tensor *out, const double *want)
{
    double  most = 1e-30, worst = 0;
    int64_t n = xd_count(*out), where = -1;
    for (int64_t i = 0; i < n; i++)
        most = fabs(want[i]) > most ? fabs(want[i]) : most;
    for (int64_t i = 0; i < n; i++) {
        double e = fabs(at(out, i) - want[i]);
        if (!(e <= worst)) {
            worst = e;
            where = i;
        }
    }
    if (!(worst <= tolerance(out->type) * most))
        fail_msg("%s: element %lld is %.9g, not %.9g (largest %.3g)", what, (long long)where,
                 at(out, where), want[where], most);
    for (int b = 0; b < nblocks; b++) {
        char *p = out->p;
        if (p >= blocks[b].p && p < blocks[b].p + blocks[b].bytes)
            for (int64_t i = 0; i < n; i++) {
                char *e = element(out, i);
                memcpy(blocks[b].before + (e - blocks[b].p), e, xd_dtype_size(out->type));
            }
        if (memcmp(blocks[b].p, blocks[b].before, blocks[b].bytes) != 0)
            fail_msg("%s: wrote outside its result (operand %d)", what, b);
    }
}

/* Scratch of exactly the size that was asked for, with a guard behind it. */
static void *scratch_for(xd_op op, const void *args, size_t *n)
{
    *n = dev->ops->scratch(dev, op, args);
    char *tmp = aligned_alloc(64, (*n + GUARD + 63) / 64 * 64);
    if (!tmp)
        fail_msg("no memory for %zu bytes of scratch", *n);
    memset(tmp + *n, 0x5A, GUARD);
    return tmp;
}

static void scratch_done(const char *what, void *tmp, size_t n)
{
    for (size_t i = 0; i < GUARD; i++)
        if (((unsigned char *)tmp)[n + i] != 0x5A)
            fail_msg("%s: wrote behind its %zu bytes of scratch", what, n);
    free(tmp);
}

#define RUN(op, OP, args) RUN_AS(#op, op, OP, args)
#define RUN_AS(what, op, OP, args)                                                          \
    do {                                                                                    \
        size_t run_n;                                                                       \
        void  *run_tmp = scratch_for(OP, args, &run_n);                                     \
        int    run_s = (int)dev->ops->op(dev, NULL, args, run_tmp);                         \
        if (run_s)                                                                          \
            fail_msg("%s: status %d", what, run_s);                                         \
        scratch_done(what, run_tmp, run_n);                                                  \
    } while (0)

static double *numbers(int64_t n)
{
    double *v = calloc((size_t)(n > 0 ? n : 1), sizeof *v);
    if (!v)
        fail_msg("no memory for %lld numbers", (long long)n);
    return v;
}

static double act_of(double v, xd_act act)
{
    switch (act) {
    case XD_GELU_TANH: return 0.5 * v * (1 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
    case XD_GELU_ERF:  return 0.5 * v * (1 + erf(v * 0.7071067811865476));
    case XD_SILU:      return v / (1 + exp(-v));
    case XD_RELU:      return v < 0 ? 0 : v;
    default:           return v;
    }
}

static xd_dtype f32_or_bf16(void)
{
    return upto(2) ? XD_BF16 : XD_F32;
}

/* F32, and BF16 where this table multiplies brains. */
static xd_dtype compute_type(void)
{
    return xd_dev_compute(dev, f32_or_bf16());
}

static xd_tensor maybe(xd_tensor t)
{
    return upto(2) ? t : (xd_tensor){ 0 };
}

/* ---- GEMM --------------------------------------------------------------------------------- */

static void pack(xd_weight *w, xd_tensor src)
{
    size_t n = dev->ops->pack_size(dev, w), t = dev->ops->pack_tmp(dev, w, src.type);
    assert_true(n > 0);
    w->p = dev->mem->get(dev, n + GUARD);
    char *tmp = dev->mem->get(dev, t + GUARD);
    assert_non_null(w->p);
    assert_non_null(tmp);
    memset((char *)w->p + n, 0x5A, GUARD);
    memset(tmp + t, 0x5A, GUARD);
    assert_int_equal(dev->ops->pack(dev, w, src, tmp), XD_OK);
    for (size_t i = 0; i < GUARD; i++) {
        assert_int_equal(((unsigned char *)w->p)[n + i], 0x5A);
        assert_int_equal(((unsigned char *)tmp)[t + i], 0x5A);
    }
    dev->mem->put(dev, tmp, t + GUARD);
}

static void unpack(xd_weight *w)
{
    dev->mem->put(dev, w->p, w->bytes + GUARD);
}

/* The weight as the device holds it: rounded to its type. */
static double rounded(const xd_tensor *t, int64_t i, xd_dtype type)
{
    double v = at(t, i);
    return type == XD_BF16 ? (double)xd_bf16_f32(xd_f32_bf16((float)v)) : v;
}

static void gemm_case(int64_t M, int64_t N, int64_t K)
{
    static const xd_dtype sources[] = { XD_F32, XD_F16, XD_BF16 };
    xd_dtype  type = compute_type(), to = f32_or_bf16(), src = sources[upto(3)];
    xd_weight w = { .type = type, .out = N, .in = K, .groups = 1 };
    xd_gemm   a = { .act = (xd_act)upto(XD_NACTS) };
    double   *want = numbers(M * N), *plain = numbers(N * K);
    int       residual = (int)upto(4);
    fresh();
    xd_tensor ws = operand_at(src, 2, (int64_t[]){ N, K }, 0, upto(2));
    for (int64_t i = 0; i < N * K; i++)
        plain[i] = rounded(&ws, i, type);
    pack(&w, ws);
    a.w = &w;
    a.in = matrix(type, M, K, upto(2) * 3);
    a.out = matrix(to, M, N, upto(2) * 5);
    a.bias = maybe(operand(XD_F32, 1, &N, 0));
    a.gate = maybe(matrix(XD_F32, 1, N, 0));
    if (residual == 1)
        a.residual = a.out;
    else if (residual >= 2)
        a.residual = matrix(residual == 2 ? to : f32_or_bf16(), M, N, upto(2) * 7);
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            double s = a.bias.p ? at(&a.bias, j) : 0;
            for (int64_t k = 0; k < K; k++)
                s += at2(&a.in, M == 1 ? 0 : i, k) * plain[j * K + k];
            s = act_of(s, a.act) * (a.gate.p ? at(&a.gate, j) : 1);
            want[i * N + j] = s + (a.residual.p ? at(&a.residual, i * N + j) : 0);
        }
    remember();
    RUN(gemm, XD_OP_GEMM, &a);
    check("gemm", &a.out, want);
    unpack(&w);
    free(plain);
    free(want);
}

static void test_gemm(void **unused)
{
    (void)unused;
    gemm_case(0, 5, 7);
    gemm_case(1, 1, 1);
    gemm_case(1, 1152, 256);
    gemm_case(37, 24, 4608);
    for (int i = 0; i < 60; i++)
        gemm_case(upto(70), 1 + upto(90), 1 + upto(130));
    for (int i = 0; i < 8; i++)
        gemm_case(1 + upto(300), 8 * (1 + upto(24)), 16 * (1 + upto(16)));
}

/* The same call gives the same bits. */
static void test_gemm_repeats(void **unused)
{
    (void)unused;
    xd_weight w = { .type = compute_type(), .out = 200, .in = 300, .groups = 1 };
    fresh();
    pack(&w, matrix(XD_F32, 200, 300, 0));
    xd_gemm a = { .w = &w, .in = matrix(w.type, 333, 300, 0), .out = matrix(XD_F32, 333, 200, 0),
                  .act = XD_GELU_TANH };
    xd_gemm b = a;
    b.out = matrix(XD_F32, 333, 200, 0);
    RUN(gemm, XD_OP_GEMM, &a);
    for (int i = 0; i < 3; i++) {
        RUN(gemm, XD_OP_GEMM, &b);
        assert_memory_equal(a.out.p, b.out.p, xd_bytes(a.out));
    }
    unpack(&w);
}

/* ---- convolution -------------------------------------------------------------------------- */

typedef struct conv_spec {
    int64_t T, H, W, C, O;
    int     nk, kernel[3], stride[3], groups;
} conv_spec;

static double conv_at(const xd_conv *a, const double *w, int64_t t, int64_t h, int64_t x,
                      int64_t o)
{
    const xd_weight *q = a->w;
    int64_t          I = q->in, per = q->out / q->groups, c0 = o / per * I;
    double           s = 0;
    for (int64_t i = 0; i < I; i++)
        for (int kt = 0; kt < q->kernel[0]; kt++)
            for (int kh = 0; kh < q->kernel[1]; kh++)
                for (int kw = 0; kw < q->kernel[2]; kw++) {
                    int64_t it = t * a->stride[0] - a->lo[0] + kt;
                    int64_t ih = h * a->stride[1] - a->lo[1] + kh;
                    int64_t iw = x * a->stride[2] - a->lo[2] + kw;
                    if (it < 0 || it >= a->in.d[0] || ih < 0 || ih >= a->in.d[1] || iw < 0 ||
                        iw >= a->in.d[2])
                        continue;
                    int64_t k = (((o * I + i) * q->kernel[0] + kt) * q->kernel[1] + kh) *
                                    q->kernel[2] + kw;
                    int64_t e = ((it * a->in.d[1] + ih) * a->in.d[2] + iw) * a->in.d[3] + c0 + i;
                    s += w[k] * at(&a->in, e);
                }
    return s;
}

static void conv_case(const conv_spec *c)
{
    xd_dtype  type = compute_type(), to = f32_or_bf16();
    xd_weight w = { .type = type, .out = c->O, .in = c->C / c->groups, .nk = c->nk,
                    .groups = c->groups };
    xd_conv   a = { .w = &w };
    int64_t   d[4] = { c->T, c->H, c->W, c->C }, o[4] = { 0, 0, 0, c->O }, ks[5] = { w.out, w.in };
    int       n = 2, gap = (int)upto(3);
    for (int i = 0; i < 3; i++) {
        w.kernel[i] = c->kernel[i];
        w.stride[i] = a.stride[i] = c->stride[i];
        a.lo[i] = (int)upto(c->kernel[i]);
        a.hi[i] = (int)upto(c->kernel[i]);
        if (d[i] + a.lo[i] + a.hi[i] < c->kernel[i])
            a.hi[i] = c->kernel[i] - 1;
        o[i] = (d[i] + a.lo[i] + a.hi[i] - c->kernel[i]) / c->stride[i] + 1;
        if (i >= 3 - c->nk)
            ks[n++] = c->kernel[i];
    }
    fresh();
    xd_tensor ws = operand(upto(2) ? XD_F32 : XD_F16, n, ks, 0);
    double   *plain = numbers(xd_count(ws)), *want = numbers(o[0] * o[1] * o[2] * o[3]);
    for (int64_t i = 0; i < xd_count(ws); i++)
        plain[i] = rounded(&ws, i, type);
    pack(&w, ws);
    a.in = operand(type, 4, d, gap == 1 ? 5 : 0);
    a.out = operand(to, 4, o, gap == 2 ? 3 : 0);
    a.bias = maybe(operand(XD_F32, 1, &c->O, 0));
    if (upto(2))
        a.residual = upto(2) ? a.out : operand(to, 4, o, gap == 2 ? 3 : 0);
    int64_t e = 0;
    for (int64_t t = 0; t < o[0]; t++)
        for (int64_t h = 0; h < o[1]; h++)
            for (int64_t x = 0; x < o[2]; x++)
                for (int64_t k = 0; k < o[3]; k++, e++)
                    want[e] = conv_at(&a, plain, t, h, x, k) +
                              (a.bias.p ? at(&a.bias, k) : 0) +
                              (a.residual.p ? at(&a.residual, e) : 0);
    remember();
    char what[200];
    snprintf(what, sizeof what, "conv%dd %lldx%lldx%lldx%lld to %lld, kernel %dx%dx%d, stride "
             "%d, pad %d %d %d + %d %d %d, groups %d, %s to %s, gap %d", c->nk, (long long)c->T,
             (long long)c->H, (long long)c->W, (long long)c->C, (long long)c->O, c->kernel[0],
             c->kernel[1], c->kernel[2], c->stride[2], a.lo[0], a.lo[1], a.lo[2], a.hi[0],
             a.hi[1], a.hi[2], c->groups, xd_dtype_name(type), xd_dtype_name(to), gap);
    RUN_AS(what, conv, XD_OP_CONV, &a);
    check(what, &a.out, want);
    unpack(&w);
    free(plain);
    free(want);
}

static void test_conv(void **unused)
{
    static const conv_spec fixed[] = {
        { 1, 9, 11, 4, 16, 2, { 1, 3, 3 }, { 1, 1, 1 }, 1 },
        { 1, 13, 7, 128, 3, 2, { 1, 3, 3 }, { 1, 1, 1 }, 1 },
        { 2, 8, 8, 3, 32, 2, { 1, 3, 3 }, { 1, 2, 2 }, 1 },
        { 1, 16, 16, 64, 64, 2, { 1, 3, 3 }, { 1, 1, 1 }, 1 },
        { 1, 6, 10, 64, 128, 2, { 1, 1, 1 }, { 1, 1, 1 }, 1 },
        { 1, 1, 1, 4, 4, 2, { 1, 1, 1 }, { 1, 1, 1 }, 1 },
        { 1, 12, 12, 32, 32, 2, { 1, 3, 3 }, { 1, 2, 2 }, 1 },
        { 1, 16, 16, 4, 72, 2, { 1, 2, 2 }, { 1, 2, 2 }, 1 },
        { 1, 9, 9, 16, 16, 2, { 1, 3, 3 }, { 1, 1, 1 }, 4 },
        { 1, 7, 9, 24, 24, 2, { 1, 3, 3 }, { 1, 1, 1 }, 24 },
        { 3, 5, 6, 16, 16, 3, { 3, 3, 3 }, { 1, 1, 1 }, 1 },
        { 4, 6, 5, 7, 5, 3, { 3, 1, 1 }, { 2, 1, 1 }, 1 },
        { 2, 6, 5, 3, 33, 3, { 1, 3, 3 }, { 1, 2, 2 }, 1 },
    };
    (void)unused;
    for (int k = 0; k < 3; k++)
        for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
            conv_case(&fixed[i]);
    for (int i = 0; i < 30; i++) {
        int       k = 1 + 2 * (int)upto(3), s = 1 + (int)upto(2);
        conv_spec c = { 1 + upto(2), 1 + upto(14), 1 + upto(14), 1 + upto(40), 1 + upto(40), 2,
                        { 1, k, k }, { 1, s, s }, 1 };
        conv_case(&c);
    }
}

/* ---- norms -------------------------------------------------------------------------------- */

static xd_tensor row_operand(int64_t n, int64_t C)
{
    int kind = (int)upto(3);
    return kind == 0 ? (xd_tensor){ 0 } : matrix(XD_F32, kind == 1 ? 1 : n, C, upto(2) * 3);
}

static void norm_case(int64_t n, int64_t C)
{
    xd_norm a = { .rms = (int)upto(2), .eps = 1e-5f };
    double *want = numbers(n * C);
    fresh();
    a.in = matrix(f32_or_bf16(), n, C, upto(2) * 7);
    a.out = upto(3) == 0 ? a.in : matrix(f32_or_bf16(), n, C, upto(2) * 3);
    a.gain = maybe(operand(XD_F32, 1, &C, 0));
    a.bias = maybe(operand(XD_F32, 1, &C, 0));
    a.scale = row_operand(n, C);
    a.shift = row_operand(n, C);
    for (int64_t i = 0; i < n; i++) {
        double s = 0, q = 0;
        for (int64_t j = 0; j < C && !a.rms; j++)
            s += at2(&a.in, n == 1 ? 0 : i, j) / (double)C;
        for (int64_t j = 0; j < C; j++)
            q += pow(at(&a.in, i * C + j) - s, 2) / (double)C;
        for (int64_t j = 0; j < C; j++) {
            double v = (at(&a.in, i * C + j) - s) / sqrt(q + 1e-5);
            v = v * (a.gain.p ? at(&a.gain, j) : 1) + (a.bias.p ? at(&a.bias, j) : 0);
            v = v * (a.scale.p ? 1 + at2(&a.scale, i, j) : 1);
            want[i * C + j] = v + (a.shift.p ? at2(&a.shift, i, j) : 0);
        }
    }
    remember();
    RUN(norm, XD_OP_NORM, &a);
    check("norm", &a.out, want);
    free(want);
}

static void test_norm(void **unused)
{
    (void)unused;
    norm_case(0, 8);
    norm_case(40, 1152);
    norm_case(3, 5000);
    for (int i = 0; i < 80; i++)
        norm_case(upto(20), 1 + upto(i % 4 ? 100 : 1500));
}

/* A large mean does not eat the variance. */
static void test_norm_offset(void **unused)
{
    (void)unused;
    xd_norm a = { .eps = 0 };
    double *want = numbers(256), mean = 0, var = 0;
    fresh();
    a.in = matrix(XD_F32, 1, 256, 0);
    a.out = matrix(XD_F32, 1, 256, 0);
    for (int64_t i = 0; i < 256; i++)
        set(&a.in, i, 4096 + at(&a.in, i));
    for (int64_t i = 0; i < 256; i++)
        mean += at(&a.in, i) / 256;
    for (int64_t i = 0; i < 256; i++)
        var += pow(at(&a.in, i) - mean, 2) / 256;
    for (int64_t i = 0; i < 256; i++)
        want[i] = (at(&a.in, i) - mean) / sqrt(var);
    RUN(norm, XD_OP_NORM, &a);
    for (int64_t i = 0; i < 256; i++)
        assert_true(fabs(at(&a.out, i) - want[i]) < 1e-3);      /* 4096 has 2.4e-4 per ulp    */
    free(want);
}

static void gnorm_case(int64_t R, int64_t P, int64_t C, int G)
{
    xd_dtype   type = f32_or_bf16();
    int64_t    per = C / G;
    double    *want = numbers(R * G * 2), *sums = numbers(G * 2), *y = numbers(R * P * C);
    xd_moments m = { .groups = G };
    fresh();
    m.in = operand(type, 3, (int64_t[]){ R, P, C }, upto(2) * 3);
    m.out = operand(XD_F64, 3, (int64_t[]){ R, G, 2 }, 0);
    for (int64_t i = 0; i < R * P * C; i++) {
        double v = at(&m.in, i);
        int64_t g = i % C / per, r = i / (P * C);
        want[(r * G + g) * 2] += v;
        want[(r * G + g) * 2 + 1] += v * v;
    }
    remember();
    RUN(moments, XD_OP_MOMENTS, &m);
    check("moments", &m.out, want);

    xd_gnorm a = { .groups = G, .silu = (int)upto(2), .count = (double)(R * P * per),
                   .eps = 1e-6f };
    fresh();
    a.in = matrix(type, R * P, C, upto(2) * 3);
    a.out = upto(3) == 0 ? a.in : matrix(f32_or_bf16(), R * P, C, upto(2) * 5);
    a.sums = operand(XD_F64, 2, (int64_t[]){ G, 2 }, 0);
    a.gain = maybe(operand(XD_F32, 1, &C, 0));
    a.bias = maybe(operand(XD_F32, 1, &C, 0));
    for (int64_t i = 0; i < R * P * C; i++) {
        sums[i % C / per * 2] += at(&a.in, i);
        sums[i % C / per * 2 + 1] += at(&a.in, i) * at(&a.in, i);
    }
    for (int64_t i = 0; i < G * 2; i++)
        set(&a.sums, i, sums[i]);
    for (int64_t i = 0; i < R * P * C; i++) {
        double *s = sums + i % C / per * 2, mean = s[0] / a.count;
        double  v = (at(&a.in, i) - mean) / sqrt(s[1] / a.count - mean * mean + 1e-6);
        v = v * (a.gain.p ? at(&a.gain, i % C) : 1) + (a.bias.p ? at(&a.bias, i % C) : 0);
        y[i] = a.silu ? act_of(v, XD_SILU) : v;
    }
    remember();
    RUN(gnorm, XD_OP_GNORM, &a);
    check("gnorm", &a.out, y);
    free(want);
    free(sums);
    free(y);
}

static void test_gnorm(void **unused)
{
    (void)unused;
    gnorm_case(0, 4, 8, 2);
    gnorm_case(9, 20, 128, 32);
    gnorm_case(2, 3, 1600, 2);          /* a group wider than one run of channels              */
    for (int i = 0; i < 30; i++) {
        int G = 1 + (int)upto(8);
        gnorm_case(1 + upto(6), 1 + upto(20), G * (1 + upto(20)), G);
    }
}

/* ---- element-wise ------------------------------------------------------------------------- */

static void test_glu(void **unused)
{
    (void)unused;
    for (int c = 0; c < 80; c++) {
        int64_t n = c ? upto(30) : 0, C = 1 + upto(c % 4 ? 90 : 3000);
        xd_glu  g = { .act = (xd_act)upto(XD_NACTS) };
        double *want = numbers(n * C);
        fresh();
        g.a = matrix(f32_or_bf16(), n, C, upto(2) * 3);
        g.b = maybe(matrix(f32_or_bf16(), n, C, upto(2) * 3));
        g.out = upto(3) == 0 ? g.a : matrix(f32_or_bf16(), n, C, upto(2) * 3);
        for (int64_t i = 0; i < n * C; i++)
            set(&g.a, i, at(&g.a, i) * 9);
        for (int64_t i = 0; i < n * C; i++)
            want[i] = act_of(at(&g.a, i), g.act) * (g.b.p ? at(&g.b, i) : 1);
        remember();
        RUN(glu, XD_OP_GLU, &g);
        check("glu", &g.out, want);
        free(want);
    }
}

/* The activations as such: at most 1e-6 of the value or 1e-7 absolute, NaN stays NaN, and both
 * ends are right. */
static void test_activations(void **unused)
{
    enum { N = 20001 };
    static const double ends[][2] = { { HUGE_VAL, HUGE_VAL }, { 1e30, 1e30 }, { 200, 200 },
                                      { -200, 0 }, { -1e30, 0 } };
    (void)unused;
    for (int act = XD_NONE; act < XD_NACTS; act++) {
        fresh();
        xd_glu g = { .act = (xd_act)act, .a = matrix(XD_F32, 1, N, 0),
                     .out = matrix(XD_F32, 1, N, 0) };
        for (int64_t i = 0; i < N; i++)
            set(&g.a, i, (double)(i - N / 2) * 20.0 / N);
        RUN(glu, XD_OP_GLU, &g);
        for (int64_t i = 0; i < N; i++) {
            double want = act_of(at(&g.a, i), (xd_act)act), e = fabs(at(&g.out, i) - want);
            if (!(e <= 1e-6 * fabs(want) + 1e-7))
                fail_msg("activation %d of %.9g is %.9g, not %.9g", act, at(&g.a, i),
                         at(&g.out, i), want);
        }
        for (size_t k = 0; k < sizeof ends / sizeof *ends; k++)
            set(&g.a, (int64_t)k, ends[k][0]);
        set(&g.a, 5, NAN);
        RUN(glu, XD_OP_GLU, &g);
        for (int64_t k = 0; k < 5 && act != XD_NONE; k++)
            if (isinf(ends[k][1]) ? !(at(&g.out, k) > 1e38)
                                  : fabs(at(&g.out, k) - ends[k][1]) > 1e-6 * fabs(ends[k][1]) + 1e-30)
                fail_msg("activation %d of %g is %g", act, ends[k][0], at(&g.out, k));
        assert_true(isnan(at(&g.out, 5)));
    }
}

static void test_addmul(void **unused)
{
    (void)unused;
    for (int c = 0; c < 60; c++) {
        int64_t   n = c ? upto(30) : 0, C = 1 + upto(c % 4 ? 90 : 3000);
        xd_addmul a;
        double   *want = numbers(n * C);
        fresh();
        a.acc = matrix(f32_or_bf16(), n, C, upto(2) * 3);
        a.in = matrix(f32_or_bf16(), n, C, upto(2) * 3);
        a.gate = row_operand(n, C);
        for (int64_t i = 0; i < n * C; i++)
            want[i] = at(&a.acc, i) + (a.gate.p ? at2(&a.gate, i / C, i % C) : 1) * at(&a.in, i);
        remember();
        RUN(addmul, XD_OP_ADDMUL, &a);
        check("addmul", &a.acc, want);
        free(want);
    }
}

static void test_axpby(void **unused)
{
    (void)unused;
    for (int c = 0; c < 40; c++) {
        int64_t       d[3] = { upto(4), 1 + upto(9), 1 + upto(2000) };
        int           nd = 1 + (int)upto(3);
        xd_axpby_args a = { .a = (float)real(), .b = (float)real() };
        fresh();
        a.y = operand(XD_F32, nd, d + 3 - nd, upto(2) * 3);
        a.x = maybe(operand(XD_F32, nd, d + 3 - nd, upto(2) * 3));
        double *want = numbers(xd_count(a.y));
        for (int64_t i = 0; i < xd_count(a.y); i++)
            want[i] = (double)a.b * at(&a.y, i) + (a.x.p ? (double)a.a * at(&a.x, i) : 0);
        remember();
        RUN(axpby, XD_OP_AXPBY, &a);
        check("axpby", &a.y, want);
        free(want);
    }
}

/* ---- moving ------------------------------------------------------------------------------- */

static void test_resize(void **unused)
{
    (void)unused;
    for (int c = 0; c < 30; c++) {
        int64_t   d[4] = { 1 + upto(2), upto(9), 1 + upto(9), 1 + upto(20) }, o[4], e = 0;
        xd_resize a;
        xd_dtype  type = f32_or_bf16();
        for (int i = 0; i < 4; i++) {
            if (i < 3)
                a.factor[i] = 1 + (int)upto(3);
            o[i] = i < 3 ? d[i] * a.factor[i] : d[i];
        }
        fresh();
        a.in = operand(type, 4, d, upto(2) * 3);
        a.out = operand(type, 4, o, upto(2) * 3);
        double *want = numbers(xd_count(a.out));
        for (int64_t t = 0; t < o[0]; t++)
            for (int64_t h = 0; h < o[1]; h++)
                for (int64_t w = 0; w < o[2]; w++)
                    for (int64_t k = 0; k < o[3]; k++)
                        want[e++] = at(&a.in, ((t / a.factor[0] * d[1] + h / a.factor[1]) * d[2] +
                                               w / a.factor[2]) * d[3] + k);
        remember();
        RUN(resize, XD_OP_RESIZE, &a);
        check("resize", &a.out, want);
        free(want);
    }
}

static void test_lookup(void **unused)
{
    static const xd_dtype types[] = { XD_F32, XD_BF16, XD_F16 };
    (void)unused;
    for (int c = 0; c < 40; c++) {
        int64_t   n = c ? upto(20) : 0, V = 1 + upto(50), C = 1 + upto(c % 4 ? 60 : 2500);
        xd_lookup a;
        int32_t  *ids = malloc((size_t)(n + 1) * sizeof *ids);
        double   *want = numbers(n * C);
        fresh();
        a.table = operand_at(types[upto(3)], 2, (int64_t[]){ V, C }, 0, upto(4));
        a.out = matrix(f32_or_bf16(), n, C, upto(2) * 3);
        a.ids = xd_view(ids, XD_I32, 1, &n);
        for (int64_t i = 0; i < n * C; i++) {
            if (i % C == 0)
                ids[i / C] = (int32_t)upto(V);
            want[i] = at(&a.table, ids[i / C] * C + i % C);
        }
        remember();
        RUN(lookup, XD_OP_LOOKUP, &a);
        check("lookup", &a.out, want);
        for (int k = 0; k < 2 && n > 0; k++) {
            ids[upto(n)] = k ? -1 : (int32_t)V;
            assert_int_equal(dev->ops->lookup(dev, NULL, &a, NULL), XD_EINVAL);
        }
        free(ids);
        free(want);
    }
}

static void test_copy(void **unused)
{
    static const xd_dtype from[] = { XD_F32, XD_BF16, XD_F16, XD_F64 };
    (void)unused;
    for (int c = 0; c < 150; c++) {
        int64_t d[XD_MAXDIM], o[XD_MAXDIM];
        int     nd = 1 + (int)upto(XD_MAXDIM), order[XD_MAXDIM], permute = (int)upto(2);
        for (int i = 0; i < nd; i++) {
            d[i] = upto(40) ? 1 + upto(nd > 3 ? 6 : c % 4 ? 40 : 300) : 0;
            order[i] = i;
        }
        for (int i = nd - 1; i > 0 && permute; i--) {
            int j = (int)upto(i + 1), k = order[i];
            order[i] = order[j];
            order[j] = k;
        }
        for (int i = 0; i < nd; i++)
            o[i] = d[order[i]];
        fresh();
        xd_copy a = { .in = xd_permute(operand(from[upto(4)], nd, d, upto(2) * 3), order),
                      .out = operand(from[upto(3)], nd, o, upto(2) * 5) };
        if (upto(5) == 0)
            a.in.s[upto(nd)] = 0;       /* one element, many times                             */
        double *want = numbers(xd_count(a.out));
        for (int64_t i = 0; i < xd_count(a.out); i++)
            want[i] = at(&a.in, i);
        remember();
        RUN(copy, XD_OP_COPY, &a);
        check("copy", &a.out, want);
        free(want);
    }
}

/* Conversions bit by bit: every half and every brain, and floats around all their edges. */
static void test_conversions(void **unused)
{
    enum { ALL = 65536 };
    static const xd_dtype small[2] = { XD_F16, XD_BF16 };
    (void)unused;
    for (int k = 0; k < 2; k++) {
        fresh();
        xd_tensor h = matrix(small[k], 1, ALL, 0), f = matrix(XD_F32, 1, ALL, 0);
        uint16_t *ph = h.p;
        float    *pf = f.p, want;
        for (int i = 0; i < ALL; i++)
            ph[i] = (uint16_t)i;
        RUN(copy, XD_OP_COPY, (&(xd_copy){ f, h }));
        for (int i = 0; i < ALL; i++) {
            want = k ? xd_bf16_f32((uint16_t)i) : xd_f16_f32((uint16_t)i);
            if (isnan(want) ? !isnan(pf[i]) : memcmp(&want, &pf[i], sizeof want) != 0)
                fail_msg("%s %04x becomes %g, not %g", k ? "bf16" : "f16", i, (double)pf[i],
                         (double)want);
        }
        for (int round = 0; round < 20; round++) {
            for (int i = 0; i < ALL; i++) {     /* one of the small numbers and some ulps      */
                uint32_t u;
                want = k ? xd_bf16_f32((uint16_t)i) : xd_f16_f32((uint16_t)i);
                memcpy(&u, &want, sizeof u);
                u += round < 3 ? (uint32_t)round - 1 : k ? 0x7fffu + (uint32_t)upto(3) :
                     round < 6 ? 0xfffu + (uint32_t)upto(3) : (uint32_t)any();
                memcpy(&pf[i], &u, sizeof u);
            }
            RUN(copy, XD_OP_COPY, (&(xd_copy){ h, f }));
            for (int i = 0; i < ALL; i++) {
                uint16_t w = k ? xd_f32_bf16(pf[i]) : xd_f32_f16(pf[i]);
                if (isnan(pf[i]) ? !isnan(at(&h, i)) : w != ph[i])
                    fail_msg("%a becomes %s %04x, not %04x", (double)pf[i], k ? "bf16" : "f16",
                             ph[i], w);
            }
        }
    }
}

/* ---- threads ------------------------------------------------------------------------------ */

static void all_row_ops(xd_tensor in, xd_tensor *out, xd_tensor sums)
{
    int64_t    C = in.d[1], n = in.d[0];
    xd_norm    norm = { .in = in, .out = out[0], .eps = 1e-6f };
    xd_glu     glu = { .out = out[1], .a = in, .act = XD_GELU_ERF };
    xd_moments mom = { .in = xd_reshape(in, 3, (int64_t[]){ n / 4, 4, C }), .out = sums,
                       .groups = 8 };
    RUN(norm, XD_OP_NORM, &norm);
    RUN(glu, XD_OP_GLU, &glu);
    RUN(moments, XD_OP_MOMENTS, &mom);
}

/* The row kernels give the same bits with any number of threads. */
static void test_threads(void **unused)
{
    xd_tensor a[2], b[2], sa, sb, in;
    int       cores = xd_par_threads();
    (void)unused;
    fresh();
    in = matrix(XD_F32, 64, 1000, 0);
    for (int i = 0; i < 2; i++) {
        a[i] = matrix(XD_F32, 64, 1000, 0);
        b[i] = matrix(XD_F32, 64, 1000, 0);
    }
    sa = operand(XD_F64, 3, (int64_t[]){ 16, 8, 2 }, 0);
    sb = operand(XD_F64, 3, (int64_t[]){ 16, 8, 2 }, 0);
    xd_par_set(1);
    all_row_ops(in, a, sa);
    for (int t = 2; t <= 5; t++) {
        xd_par_set(t);
        all_row_ops(in, b, sb);
        for (int i = 0; i < 2; i++)
            assert_memory_equal(a[i].p, b[i].p, xd_bytes(a[i]));
        assert_memory_equal(sa.p, sb.p, xd_bytes(sa));
    }
    xd_par_set(cores);
}

/* ---- devices ------------------------------------------------------------------------------ */

static void test_memory(void **unused)
{
    static const size_t sizes[] = { 1, 64, 4097, (size_t)5 << 20 };
    size_t        available, total, before;
    struct rlimit lim, old;
    (void)unused;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *p = dev->mem->get(dev, sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        memset(p, 1, sizes[i]);
        dev->mem->put(dev, p, sizes[i]);
    }
    dev->mem->memory(dev, &before, &total);
    assert_true(before > 0 && before <= total);
    assert_null(dev->mem->get(dev, SIZE_MAX - 5));
    assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
    lim = old;
    lim.rlim_cur = (rlim_t)1 << 40;     /* far more than is mapped, unless a sanitizer maps more */
    if (old.rlim_cur == RLIM_INFINITY && setrlimit(RLIMIT_AS, &lim) == 0) {
        dev->mem->memory(dev, &available, &total);
        assert_true(available <= (size_t)1 << 40);
        lim.rlim_cur = (rlim_t)1 << 20;
        assert_int_equal(setrlimit(RLIMIT_AS, &lim), 0);
        dev->mem->memory(dev, &available, &total);
        setrlimit(RLIMIT_AS, &old);
        assert_int_equal(available, 0);         /* more than 1 MiB is mapped already           */
    }
}

static void test_names(void **unused)
{
    xd_err  e = { 0 };
    xd_dev *d = NULL;
    (void)unused;
    assert_int_equal(xd_dev_open(&d, "gpu", &e), XD_EINVAL);
    assert_null(d);
    assert_non_null(strstr(e.msg, "gpu"));
    const char *isa = getenv("XDIT_ISA");
    char        keep[32] = "";
    snprintf(keep, sizeof keep, "%s", isa ? isa : "");
    setenv("XDIT_ISA", "mmx", 1);
    memset(&e, 0, sizeof e);
    assert_int_equal(xd_dev_open(&d, "cpu", &e), XD_EINVAL);
    assert_non_null(strstr(e.msg, "mmx"));
    assert_non_null(strstr(e.msg, "has c"));
    setenv("XDIT_ISA", keep, 1);
    assert_true(xd_dev_best(dev) == XD_F32 || strcmp(dev->ops->name, "avx512bf16") == 0);
    assert_int_equal(xd_dev_compute(dev, XD_F32), XD_F32);
}

static void test_count(void **unused)
{
    xd_dev   *c;
    xd_err    e = { 0 };
    xd_counts n;
    (void)unused;
    assert_int_equal(xd_dev_open_count(&c, dev, &e), XD_OK);
    assert_int_equal(c->counts, 1);
    assert_int_equal(xd_dev_compute(c, XD_BF16), xd_dev_compute(dev, XD_BF16));
    char *p = c->mem->get(c, 100), *q = c->mem->get(c, (size_t)1 << 40);
    assert_true(p && q >= p + 100 && (uintptr_t)p % 64 == 0 && (uintptr_t)q % 64 == 0);
    xd_weight w = { .type = XD_F32, .out = 30, .in = 20, .groups = 1 }, r = w;
    assert_int_equal(c->ops->pack_size(c, &w), dev->ops->pack_size(dev, &r));
    w.p = q;
    xd_gemm g = { .w = &w, .in = xd_view2(p, XD_F32, 10, 20), .out = xd_view2(q, XD_F32, 10, 30) };
    assert_int_equal(c->ops->scratch(c, XD_OP_GEMM, &g), dev->ops->scratch(dev, XD_OP_GEMM, &g));
    assert_int_equal(c->ops->gemm(c, NULL, &g, NULL), XD_OK);
    xd_kv        kv[2] = { { xd_view(p, XD_F32, 4, (int64_t[]){ 2, 5, 3, 8 }),
                             xd_view(p, XD_F32, 4, (int64_t[]){ 2, 5, 3, 8 }) } };
    kv[1] = kv[0];
    xd_attn_args t = { .kv = kv, .nkv = 2, .q = xd_view(p, XD_F32, 4, (int64_t[]){ 2, 7, 3, 8 }) };
    t.out = t.q;
    assert_int_equal(c->ops->attn(c, NULL, &t, NULL), XD_OK);
    xd_weight k = { .type = XD_F32, .out = 6, .in = 4, .nk = 2, .kernel = { 1, 3, 3 },
                    .stride = { 1, 1, 1 }, .groups = 1 };
    xd_conv   v = { .w = &k, .in = xd_view(p, XD_F32, 4, (int64_t[]){ 1, 9, 9, 4 }),
                    .out = xd_view(p, XD_F32, 4, (int64_t[]){ 1, 7, 7, 6 }) };
    assert_int_equal(c->ops->conv(c, NULL, &v, NULL), XD_OK);
    xd_copy y = { xd_view2(p, XD_BF16, 10, 10), xd_view2(q, XD_F32, 10, 10) };
    assert_int_equal(c->ops->copy(c, NULL, &y, NULL), XD_OK);
    xd_dev_counts(c, &n, 1);
    assert_true(n.gemm_flops == 2.0 * 10 * 20 * 30);
    assert_true(n.attn_flops == 4.0 * 2 * 3 * 7 * 10 * 8);
    assert_true(n.conv_flops == 2.0 * 49 * 6 * 4 * 9);
    assert_true(n.flops == n.gemm_flops + n.attn_flops + n.conv_flops);
    assert_int_equal(n.calls, 4);
    assert_true(n.bytes > 0);
    xd_dev_counts(c, &n, 0);
    assert_true(n.flops == 0 && n.calls == 0);
    xd_dev_close(&c);
    assert_null(c);
}

static void test_peak(void **unused)
{
    (void)unused;
    double p = xd_cpu_peak(dev, XD_F32, 1);
    assert_true(p > 0.1 && p < 1e6);
    assert_true(xd_cpu_peak(dev, XD_BF16, 1) > 0.1);
}

/* Every test gets its own, known random numbers. */
static int seeded(void **unused)
{
    static uint64_t n;
    (void)unused;
    state = 0x9e3779b97f4a7c15u + ++n;
    return 0;
}

static int done(void **unused)
{
    (void)unused;
    fresh();
    return 0;
}

#define T(f) cmocka_unit_test_setup_teardown(f, seeded, done)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_gemm), T(test_gemm_repeats), T(test_conv), T(test_norm), T(test_norm_offset),
        T(test_gnorm), T(test_glu), T(test_activations), T(test_addmul), T(test_axpby),
        T(test_resize), T(test_lookup), T(test_copy), T(test_conversions), T(test_threads),
        T(test_memory), T(test_names), T(test_count), T(test_peak),
    };
    xd_err e = { 0 };
    seeded(NULL);
    xd_status s = xd_dev_open(&dev, "cpu", &e);
    if (s == XD_EUNSUPPORTED) {
        printf("1..0 # SKIP %s\n", e.msg);
        return 0;
    }
    if (s) {
        printf("Bail out! %s\n", e.msg);
        return 1;
    }
    int failed = cmocka_run_group_tests_name("ops", tests, NULL, NULL);
    xd_dev_close(&dev);
    return failed;
}
