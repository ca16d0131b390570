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

#include "operands.h"
#include "base/par.h"

/* ---- GEMM --------------------------------------------------------------------------------- */

void pack(xd_weight *w, xd_tensor src)
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

void unpack(xd_weight *w)
{
    dev->mem->put(dev, w->p, w->bytes + GUARD);
}

/* The weight as the device holds it: rounded to its type. */
static double rounded(const xd_tensor *t, int64_t i, xd_dtype type)
{
    double v = at(t, i);
    if (type == XD_F16)
        return (double)xd_f16_f32(xd_f32_f16((float)v));
    return type == XD_BF16 ? (double)xd_bf16_f32(xd_f32_bf16((float)v)) : v;
}

static void gemm_case(int64_t M, int64_t N, int64_t K)
{
    static const xd_dtype sources[] = { XD_F32, XD_F16, XD_BF16 };
    xd_dtype              type = compute_type(), to = f32_or_half(), src = sources[upto(3)];
    xd_weight             w = { .type = type, .out = N, .in = K, .groups = 1 };
    xd_gemm               a = { .act = (xd_act)upto(XD_NACTS) };
    double               *want = numbers(M * N), *plain = numbers(N * K);
    int                   residual = (int)upto(4);
    if (K > 10000) /* a result of tanh is small beside the sum and its rounding */
        a.act = XD_NONE;
    fresh();
    xd_tensor ws = operand_at(src, 2, (int64_t[]){ N, K }, 0, upto(2));
    for (int64_t i = 0; i < N * K; i++)
        plain[i] = rounded(&ws, i, type);
    pack(&w, ws);
    a.w = &w;
    a.in = matrix(type, M, K, upto(2) * 3);
    a.out = matrix(to, M, N, upto(2) * 5);
    a.bias = maybe(operand(bias_type(), 1, &N, 0));
    a.gate = maybe(matrix(XD_F32, 1, N, 0));
    if (residual == 1)
        a.residual = a.out;
    else if (residual >= 2)
        a.residual = matrix(residual == 2 ? to : f32_or_half(), M, N, upto(2) * 7);
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
    static const int64_t outs[] = { 1, 17, 63, 65, 200 };
    static const int64_t ins[] = { 1, 2, 3, 31, 33, 64, 130, 2305, 4608 };
    (void)unused;
    gemm_case(0, 5, 7);
    gemm_case(1, 1, 1);
    gemm_case(1, 1152, 256);
    gemm_case(37, 24, 4608);
    for (size_t n = 0; n < sizeof outs / sizeof *outs; n++)
        for (size_t k = 0; k < sizeof ins / sizeof *ins; k++)
            gemm_case(1 + upto(13), outs[n], ins[k]);
    for (int64_t m = 15; m < 42; m += 2)
        gemm_case(m, 33, m + 20);
    gemm_case(40, 70, 20000); /* sums of long rows wait */
    for (int i = 0; i < 6; i++)
        gemm_case(1100, 1024, 19); /* outputs that are larger than caches */
    for (int i = 0; i < 60; i++)
        gemm_case(upto(70), 1 + upto(90), 1 + upto(130));
    for (int i = 0; i < 8; i++)
        gemm_case(1 + upto(300), 8 * (1 + upto(24)), 16 * (1 + upto(16)));
}

/* Floats give the bits of the bf16 values that they are rounded to. */
static void test_gemm_rounds(void **unused)
{
    static const int64_t M[] = { 1, 15, 33, 70, 130, 600 }, K[] = { 1, 31, 33, 130, 1152, 4609 };
    (void)unused;
    if (xd_dev_compute(dev, XD_BF16) != XD_BF16 || !own_products()) {
        printf("# skipped: %s\n",
               own_products() ? "this machine computes in f32" : "products are a library's");
        return;
    }
    for (size_t i = 0; i < sizeof M / sizeof *M; i++)
        for (size_t k = 0; k < sizeof K / sizeof *K; k++) {
            xd_weight w = { .type = XD_BF16, .out = 70, .in = K[k], .groups = 1 };
            fresh();
            pack(&w, matrix(XD_F32, 70, K[k], 0));
            xd_gemm a = { .w = &w,
                          .in = matrix(XD_F32, M[i], K[k], upto(2) * 3),
                          .out = matrix(XD_F32, M[i], 70, 0) };
            xd_gemm b = a;
            b.in = matrix(XD_BF16, M[i], K[k], 0), b.out = matrix(XD_F32, M[i], 70, 0);
            RUN(copy, XD_OP_COPY, &((xd_copy){ b.in, a.in }));
            RUN(gemm, XD_OP_GEMM, &a);
            RUN(gemm, XD_OP_GEMM, &b);
            assert_memory_equal(a.out.p, b.out.p, xd_bytes(a.out));
            unpack(&w);
        }
}

/* The same call gives the same bits. */
static void test_gemm_repeats(void **unused)
{
    (void)unused;
    xd_weight w = { .type = compute_type(), .out = 200, .in = 300, .groups = 1 };
    fresh();
    pack(&w, matrix(XD_F32, 200, 300, 0));
    xd_gemm a = { .w = &w,
                  .in = matrix(w.type, 333, 300, 0),
                  .out = matrix(XD_F32, 333, 200, 0),
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

/* Layers of one shape have weights, biases and outputs of their own. */
static void test_gemm_layers(void **unused)
{
    enum { M = 24, N = 32, K = 48, LAYERS = 3 };
    xd_weight w[LAYERS];
    xd_gemm   a[LAYERS];
    double   *want = numbers(M * N);
    (void)unused;
    fresh();
    for (int l = 0; l < LAYERS; l++) {
        w[l] = (xd_weight){ .type = xd_dev_best(dev), .out = N, .in = K, .groups = 1 };
        xd_tensor from = matrix(w[l].type, N, K, 0);
        pack(&w[l], from);
        a[l] = (xd_gemm){ .w = &w[l],
                          .in = matrix(w[l].type, M, K, 0),
                          .out = matrix(w[l].type, M, N, 0),
                          .bias = operand(dev->narrow_bias ? w[l].type : XD_F32, 1,
                                          (int64_t[]){ N }, 0) };
        for (int64_t i = 0; i < M; i++)
            for (int64_t j = 0; j < N; j++) {
                double s = at(&a[l].bias, j);
                for (int64_t k = 0; k < K; k++)
                    s += at2(&a[l].in, i, k) * at2(&from, j, k);
                want[i * N + j] = s;
            }
        remember();
        RUN(gemm, XD_OP_GEMM, &a[l]);
        check("a layer of the same shape", &a[l].out, want);
    }
    for (int l = 0; l < LAYERS; l++)
        unpack(&w[l]);
    free(want);
}

/* A row's bits depend neither on the rows beside it nor on the number of threads, where products
 * are our own. */
static void test_gemm_rows(void **unused)
{
    static const int64_t ins[] = { 75, 130, 2900 };
    int                  own = own_products() &&
                               (xd_dev_best(dev) == XD_BF16 || strcmp(dev->ops->name, "avx2") == 0),
                         cores = xd_par_threads();
    (void)unused;
    for (int t = 0; t < 9 && (own || t < 1); t++) {
        int64_t   M = 500, N = t % 3 ? 200 : 30, K = ins[t / 3];
        xd_weight w = { .type = xd_dev_best(dev), .out = N, .in = K, .groups = 1 };
        if (!own && strcmp(dev->ops->name, "c") != 0) {
            printf("# skipped: products are the library's\n");
            return;
        }
        fresh();
        pack(&w, matrix(XD_F32, N, K, 0));
        xd_gemm a = { .w = &w,
                      .in = matrix(w.type, M, K, 3),
                      .bias = operand(XD_F32, 1, &N, 0),
                      .residual = matrix(XD_F32, M, N, 0),
                      .act = XD_GELU_TANH };
        xd_gemm b = a;
        a.out = matrix(t % 2 ? XD_F32 : XD_BF16, M, N, 0);
        b.out = matrix(a.out.type, M, N, 0);
        xd_par_set(1);
        RUN(gemm, XD_OP_GEMM, &a);
        for (int threads = 1; threads < 4; threads++) {
            xd_par_set(threads);
            for (int64_t r = 0, n; r < M; r += n) {
                xd_gemm c = b;
                n = threads == 3 ? M : 1 + r / 2;
                n = n < M - r ? n : M - r;
                c.in = xd_rows(b.in, r, n);
                c.out = xd_rows(b.out, r, n);
                c.residual = xd_rows(b.residual, r, n);
                RUN(gemm, XD_OP_GEMM, &c);
            }
            assert_memory_equal(a.out.p, b.out.p, xd_bytes(a.out));
            memset(b.out.p, 0, xd_bytes(b.out));
        }
        unpack(&w);
    }
    xd_par_set(cores);
}

/* GELU of numbers all over its range, as bf16: half a unit in the last place, what kernels round
 * off and a library's approximation. */
static void check_gelu(const xd_tensor *in, const xd_tensor *out)
{
    for (int64_t i = 0; i < in->d[0]; i++) {
        double x = at2(in, i, 0), want = act_of(x, XD_GELU_TANH), is = at2(out, i, i % out->d[1]);
        double more = own_products() ? 0 : fabs(x) / 4096;
        if (!(fabs(is - want) <= fabs(want) / 256 * 1.01 + 1e-6 + more))
            fail_msg("gelu of %g is %g, not %g", x, is, want);
    }
}

static void test_gelu(void **unused)
{
    enum { M = 3000, N = 40 };
    (void)unused;
    xd_weight w = { .type = compute_type(), .out = N, .in = 1, .groups = 1 };
    fresh();
    xd_tensor one = matrix(XD_F32, N, 1, 0);
    for (int64_t i = 0; i < N; i++)
        set(&one, i, 1);
    pack(&w, one);
    xd_gemm a = {
        .w = &w, .in = matrix(w.type, M, 1, 0), .out = matrix(XD_BF16, M, N, 0), .act = XD_GELU_TANH
    };
    xd_glu g = { .out = matrix(XD_BF16, M, 1, 0), .a = a.in, .act = XD_GELU_TANH };
    for (int64_t i = 0; i < M; i++)
        set(&a.in, i,
            i % 3 ? (double)(i - M / 2) / 120 : pow(2, (double)-(i % 20)) * (i % 2 ? 1 : -1));
    RUN(gemm, XD_OP_GEMM, &a);
    check_gelu(&a.in, &a.out);
    RUN(glu, XD_OP_GLU, &g);
    check_gelu(&a.in, &g.out);
    set(&a.in, M - 1, NAN);
    RUN(gemm, XD_OP_GEMM, &a);
    RUN(glu, XD_OP_GLU, &g);
    assert_true(isnan(at2(&a.out, M - 1, 0)) && isnan(at2(&g.out, M - 1, 0)));
    unpack(&w);
}

/* Sums beyond the range of f16 end at its largest number; infinities stay. */
static void test_f16_ends(void **unused)
{
    static const double sums[][3] = {
        { 65000, 65000, 65504 }, { -60000, -60000, -65504 }, { 1, 2, 3 }, { INFINITY, 1, INFINITY }
    };
    (void)unused;
    if (xd_dev_compute(dev, XD_F16) != XD_F16) {
        printf("# skipped: this device does not compute in f16\n");
        return;
    }
    for (int64_t n = 4; n <= 8; n += 4) {
        fresh();
        xd_addmul a = { .acc = matrix(XD_F16, 1, n, 0), .in = matrix(XD_F16, 1, n, 0) };
        for (int64_t i = 0; i < n; i++)
            set(&a.acc, i, sums[i % 4][0]), set(&a.in, i, sums[i % 4][1]);
        RUN(addmul, XD_OP_ADDMUL, &a);
        for (int64_t i = 0; i < n; i++)
            assert_true(at(&a.acc, i) == sums[i % 4][2]);
    }
}

/* ---- convolution -------------------------------------------------------------------------- */

typedef struct conv_spec {
    int64_t T, H, W, C, O;
    int     nk, kernel[3], stride[3], groups;
} conv_spec;

static double conv_at(const xd_conv *a, const double *w, int64_t t, int64_t h, int64_t x, int64_t o)
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
                    int64_t k =
                        (((o * I + i) * q->kernel[0] + kt) * q->kernel[1] + kh) * q->kernel[2] + kw;
                    int64_t e = ((it * a->in.d[1] + ih) * a->in.d[2] + iw) * a->in.d[3] + c0 + i;
                    s += w[k] * at(&a->in, e);
                }
    return s;
}

/* step: elements between the rows of an input with gaps, beyond its channels. apart: only the
 * residual has gaps. */
static void conv_case(const conv_spec *c, xd_dtype type, xd_dtype to, int step, int apart)
{
    xd_weight w = {
        .type = type, .out = c->O, .in = c->C / c->groups, .nk = c->nk, .groups = c->groups
    };
    xd_conv a = { .w = &w };
    int64_t d[4] = { c->T, c->H, c->W, c->C }, o[4] = { 0, 0, 0, c->O }, ks[5] = { w.out, w.in };
    int     n = 2, gap = apart ? 0 : (int)upto(3);
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
    a.in = operand(type, 4, d, gap == 1 ? step : 0);
    a.out = operand(to, 4, o, gap == 2 ? 3 : 0);
    a.bias = maybe(operand(bias_type(), 1, &c->O, 0));
    if (apart || upto(2))
        a.residual = !apart && upto(2) ? a.out : operand(to, 4, o, gap == 2 ? 3 : step);
    int64_t e = 0;
    for (int64_t t = 0; t < o[0]; t++)
        for (int64_t h = 0; h < o[1]; h++)
            for (int64_t x = 0; x < o[2]; x++)
                for (int64_t k = 0; k < o[3]; k++, e++)
                    want[e] = conv_at(&a, plain, t, h, x, k) + (a.bias.p ? at(&a.bias, k) : 0) +
                              (a.residual.p ? at(&a.residual, e) : 0);
    remember();
    char what[200];
    snprintf(what, sizeof what,
             "conv%dd %lldx%lldx%lldx%lld to %lld, kernel %dx%dx%d, stride "
             "%d, pad %d %d %d + %d %d %d, groups %d, %s to %s, gap %d",
             c->nk, (long long)c->T, (long long)c->H, (long long)c->W, (long long)c->C,
             (long long)c->O, c->kernel[0], c->kernel[1], c->kernel[2], c->stride[2], a.lo[0],
             a.lo[1], a.lo[2], a.hi[0], a.hi[1], a.hi[2], c->groups, xd_dtype_name(type),
             xd_dtype_name(to), gap);
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
        { 1, 8, 6, 3, 24, 3, { 3, 3, 3 }, { 1, 1, 1 }, 1 },
        { 1, 4, 20, 12, 12, 3, { 3, 3, 3 }, { 1, 1, 1 }, 1 },
        { 1, 9, 3, 13, 8, 3, { 2, 3, 3 }, { 2, 1, 1 }, 1 },
        { 1, 24, 2, 32, 32, 2, { 1, 3, 3 }, { 1, 2, 2 }, 1 },
        { 2, 17, 1, 1, 20, 2, { 1, 3, 3 }, { 1, 1, 3 }, 1 },
        { 1, 33, 3, 8, 8, 3, { 1, 3, 3 }, { 1, 2, 3 }, 1 },
    };
    (void)unused;
    for (int k = 0; k < 3; k++)
        for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
            conv_case(&fixed[i], compute_type(), f32_or_half(), 5, 0);
    for (int i = 0; i < 30; i++) {
        int       k = 1 + 2 * (int)upto(3), s = 1 + (int)upto(2);
        conv_spec c = { 1 + upto(2),  1 + upto(14), 1 + upto(14),
                        1 + upto(40), 1 + upto(40), 2,
                        { 1, k, k },  { 1, s, s },  1 };
        conv_case(&c, compute_type(), f32_or_half(), 5, 0);
    }
    for (int i = 0; i < 60; i++) { /* one frame, few columns, few channels */
        conv_spec c = { 1 + upto(2),
                        1 + upto(20),
                        1 + upto(4),
                        1 + upto(20),
                        1 + upto(20),
                        3,
                        { 1 + (int)upto(3), 1 + (int)upto(3), 1 + (int)upto(3) },
                        { 1 + (int)upto(2), 1 + (int)upto(2), 1 + (int)upto(3) },
                        1 };
        conv_case(&c, i % 2 ? compute_type() : xd_dev_compute(dev, half()), f32_or_half(), 5, 0);
    }
}

/* Channels in steps of 8 and rows at multiples of 16 bytes, as tensor cores take them: tiles that
 * an image does not fill, several steps of channels, paddings on all sides. */
static void test_conv_wide(void **unused)
{
    (void)unused;
    for (int i = 0; i < 24; i++) {
        int       k = 1 + (int)upto(3), s = 1 + (int)upto(2), nk = 2 + (int)upto(2);
        conv_spec c = { 1 + upto(3),
                        1 + upto(12),
                        1 + upto(12),
                        8 * (1 + upto(9)),
                        i % 3 ? 8 * (1 + upto(9)) : 1 + upto(150),
                        nk,
                        { nk == 3 ? k : 1, k, k },
                        { 1, s, s },
                        1 };
        conv_case(&c, xd_dev_compute(dev, half()), f32_or_half(), 8, 0);
    }
}

/* Convolutions that cuDNN computes, where a device has it and XDIT_CUDNN=all. */
static void test_conv_large(void **unused)
{
    static const conv_spec of[] = {
        { 1, 40, 36, 48, 32, 2, { 1, 3, 3 }, { 1, 1, 1 }, 1 },
        { 2, 33, 47, 32, 40, 2, { 1, 3, 3 }, { 1, 2, 2 }, 1 },
        { 3, 21, 25, 96, 64, 2, { 1, 1, 1 }, { 1, 1, 1 }, 1 },
        { 5, 17, 19, 32, 24, 3, { 3, 3, 3 }, { 1, 1, 1 }, 1 },
        { 4, 19, 22, 40, 32, 3, { 3, 3, 3 }, { 2, 2, 2 }, 1 },
    };
    (void)unused;
    for (int i = 0; i < 15 && xd_dev_best(dev) != XD_F32; i++) {
        const xd_dtype type = xd_dev_compute(dev, half());
        conv_case(&of[i % 5], type, type, 8, i < 5);
    }
}

/* ---- norms -------------------------------------------------------------------------------- */

/* The sums of rows of F64, in a place of their own or in that of the first row. */
static void rows_case(int64_t R, int64_t n)
{
    double    *want = numbers(n);
    xd_moments m = { .groups = 0 };
    fresh();
    m.in = matrix(XD_F64, R, n, upto(2) * 3);
    m.out = upto(2) && R ? xd_view(m.in.p, XD_F64, 1, &n) : operand(XD_F64, 1, &n, 0);
    for (int64_t i = 0; i < R * n; i++)
        want[i % n] += at(&m.in, i);
    remember();
    RUN(moments, XD_OP_MOMENTS, &m);
    check("sums of rows", &m.out, want);
    free(want);
}

static void gnorm_case(int64_t R, int64_t P, int64_t C, int G)
{
    xd_dtype   type = f32_or_half();
    int64_t    per = C / G;
    double    *want = numbers(R * G * 2), *sums = numbers(G * 2), *y = numbers(R * P * C);
    xd_moments m = { .groups = G };
    fresh();
    m.in = operand(type, 3, (int64_t[]){ R, P, C }, upto(2) * 3);
    m.out = operand(XD_F64, 3, (int64_t[]){ R, G, 2 }, 0);
    for (int64_t i = 0; i < R * P * C; i++) {
        double  v = at(&m.in, i);
        int64_t g = i % C / per, r = i / (P * C);
        want[(r * G + g) * 2] += v;
        want[(r * G + g) * 2 + 1] += v * v;
    }
    remember();
    RUN(moments, XD_OP_MOMENTS, &m);
    check("moments", &m.out, want);

    rows_case(R, G * 2);
    xd_gnorm a = {
        .groups = G, .silu = (int)upto(2), .count = (double)(R * P * per), .eps = 1e-6f
    };
    fresh();
    a.in = matrix(type, R * P, C, upto(2) * 3);
    a.out = upto(3) == 0 ? a.in : matrix(f32_or_half(), R * P, C, upto(2) * 5);
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
    gnorm_case(9, 20, 128, 32); /* groups of 4, 2, 64 and 128 in slabs */
    gnorm_case(2, 40, 64, 32);
    gnorm_case(3, 17, 128, 2);
    gnorm_case(2, 9, 256, 2);
    rows_case(300, 6);
    gnorm_case(2, 3, 1600, 2); /* a group wider than one run of channels */
    for (int i = 0; i < 30; i++) {
        int G = 1 + (int)upto(8);
        gnorm_case(1 + upto(6), 1 + upto(20), G * (1 + upto(20)), G);
    }
}

/* Scaled and shifted by a coarser image. */
static void gnorm_scaled(const int64_t *z, const int64_t *times, int64_t C, int G)
{
    xd_dtype type = f32_or_half();
    int64_t  d[4], c[4] = { z[0], z[1], z[2], C }, per = C / G;
    xd_gnorm a = { .groups = G, .silu = (int)upto(2), .count = 100, .eps = 1e-6f };
    for (int i = 0; i < 4; i++)
        d[i] = i < 3 ? z[i] * times[i] : C;
    fresh();
    a.in = operand(type, 4, d, upto(2) * 3);
    a.out = upto(3) == 0 ? a.in : operand(f32_or_half(), 4, d, upto(2) * 5);
    a.sums = operand(XD_F64, 2, (int64_t[]){ G, 2 }, 0);
    a.gain = maybe(operand(XD_F32, 1, &C, 0));
    a.bias = maybe(operand(XD_F32, 1, &C, 0));
    a.scale = operand(XD_F32, 4, c, upto(2) * 3);
    a.shift = operand(XD_F32, 4, c, upto(2) * 3);
    double *y = numbers(xd_count(a.in));
    for (int64_t g = 0; g < G; g++)
        set(&a.sums, g * 2 + 1, 150);
    for (int64_t i = 0; i < xd_count(a.in); i++) {
        int64_t k = i % C, w = i / C % d[2], h = i / C / d[2] % d[1], t = i / C / d[2] / d[1];
        int64_t cell = ((t / times[0] * z[1] + h / times[1]) * z[2] + w / times[2]) * C + k;
        double  mean = at(&a.sums, k / per * 2) / 100;
        double  v = (at(&a.in, i) - mean) / sqrt(1.5 - mean * mean + 1e-6);
        v = v * (a.gain.p ? at(&a.gain, k) : 1) + (a.bias.p ? at(&a.bias, k) : 0);
        v = v * at(&a.scale, cell) + at(&a.shift, cell);
        y[i] = a.silu ? act_of(v, XD_SILU) : v;
    }
    remember();
    RUN(gnorm, XD_OP_GNORM, &a);
    check("gnorm scaled", &a.out, y);
    a.scale.d[2] = d[2] + 1;
    assert_int_equal(dev->ops->gnorm(dev, NULL, &a, NULL), XD_EINVAL);
    free(y);
}

static void test_gnorm_scaled(void **unused)
{
    (void)unused;
    gnorm_scaled((int64_t[]){ 1, 0, 3 }, (int64_t[]){ 1, 2, 2 }, 8, 2);
    gnorm_scaled((int64_t[]){ 1, 4, 5 }, (int64_t[]){ 1, 8, 8 }, 32, 4);
    /* two runs of channels */
    gnorm_scaled((int64_t[]){ 1, 1, 2 }, (int64_t[]){ 2, 1, 3 }, 1600, 2);
    for (int i = 0; i < 30; i++)
        gnorm_scaled((int64_t[]){ 1 + upto(2), 1 + upto(3), 1 + upto(4) },
                     (int64_t[]){ 1 + upto(2), 1 + upto(4), 1 + upto(4) }, 4 * (1 + upto(9)), 4);
}

/* ---- element-wise ------------------------------------------------------------------------- */

static void test_glu(void **unused)
{
    (void)unused;
    for (int c = 0; c < 80; c++) {
        /* In every third case eight elements are one access, in rows of several strides. */
        int64_t n = c ? upto(30) : 0, eight = c % 3 ? 1 : 8, gap = c % 3 ? 3 : 8;
        int64_t C = eight * (1 + upto((c % 4 ? 90 : 3000) / eight));
        xd_glu  g = { .act = (xd_act)upto(XD_NACTS + 1) };
        double *want = numbers(n * C);
        fresh();
        g.a = matrix(f32_or_half(), n, C, upto(2) * gap);
        g.b = maybe(matrix(f32_or_half(), n, C, upto(3) * gap));
        g.out = upto(3) == 0 ? g.a : matrix(f32_or_half(), n, C, upto(2) * gap);
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
    static const double ends[][2] = {
        { HUGE_VAL, HUGE_VAL }, { 1e30, 1e30 }, { 200, 200 }, { -200, 0 }, { -1e30, 0 }
    };
    (void)unused;
    for (int act = XD_NONE; act <= XD_NACTS; act++) {
        fresh();
        xd_glu g = { .act = (xd_act)act,
                     .a = matrix(XD_F32, 1, N, 0),
                     .out = matrix(XD_F32, 1, N, 0) };
        for (int64_t i = 0; i < N; i++)
            set(&g.a, i, (double)(i - N / 2) * 20.0 / N);
        RUN(glu, XD_OP_GLU, &g);
        for (int64_t i = 0; i < N; i++) {
            double want = act_of(at(&g.a, i), (xd_act)act), e = fabs(at(&g.out, i) - want);
            if (!(e <= 1e-6 * fabs(want) + 1e-7))
                fail_msg("activation %d of %.9g is %.9g, not %.9g", act, at(&g.a, i), at(&g.out, i),
                         want);
        }
        for (size_t k = 0; k < sizeof ends / sizeof *ends; k++)
            set(&g.a, (int64_t)k, ends[k][0]);
        set(&g.a, 5, NAN);
        RUN(glu, XD_OP_GLU, &g);
        for (int64_t k = 0; k < 5 && act != XD_NONE && act != XD_SINE_SQUARED; k++) {
            int    bounded = act == XD_TANH || act == XD_SIGMOID;
            double end = bounded ? act_of(ends[k][0], (xd_act)act) : ends[k][1];
            if (isinf(end) ? !(at(&g.out, k) > 1e38)
                           : fabs(at(&g.out, k) - end) > 1e-6 * fabs(end) + 1e-30)
                fail_msg("activation %d of %g is %g", act, ends[k][0], at(&g.out, k));
        }
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
        a.acc = matrix(f32_or_half(), n, C, upto(2) * 3);
        a.in = matrix(f32_or_half(), n, C, upto(2) * 3);
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
        T(test_gemm),
        T(test_gemm_rounds),
        T(test_gemm_repeats),
        T(test_gemm_rows),
        T(test_gemm_layers),
        T(test_gelu),
        T(test_conv),
        T(test_conv_wide),
        T(test_conv_large),
        T(test_norm),
        T(test_norm_offset),
        T(test_gnorm),
        T(test_gnorm_scaled),
        T(test_glu),
        T(test_activations),
        T(test_attn_many),
        T(test_f16_ends),
        T(test_addmul),
        T(test_axpby),
        T(test_qknorm),
        T(test_qknorm_refusals),
        T(test_qknorm_also),
        T(test_norm_adds),
        T(test_rotate),
        T(test_rotation_bits),
        T(test_rotate_refusals),
        T(test_linattn),
        T(test_code),
        T(test_attn_pieces),
        T(test_quant_types),
        T(test_quant_gemm),
        T(test_quant_error),
        T(test_quant_rows),
        T(test_quant_odd),
        T(test_quant_scales),
        T(test_quant_refusals),
        T(test_quant_fp8),
        T(test_quant_norm),
        T(test_quant_wide),
        T(test_resize),
        T(test_lookup),
        T(test_copy),
        T(test_conversions),
        T(test_threads),
        T(test_memory),
        T(test_names),
        T(test_count),
        T(test_peak),
    };
    xd_err e = { 0 };
    seeded(NULL);
    xd_status s = xd_dev_open(&dev, "cpu", &e);
    if (s == XD_EUNSUPPORTED && getenv("XDIT_ISA")) {
        printf("1..0 # SKIP %s\n", e.msg);
        return 0;
    }
    if (s) {
        printf("Bail out! %s\n", e.msg);
        return 1;
    }
    if (getenv("XDIT_TEST_ONLY"))
        cmocka_set_test_filter(getenv("XDIT_TEST_ONLY"));
    int failed = cmocka_run_group_tests_name("ops", tests, NULL, NULL);
    xd_dev_close(&dev);
    return failed;
}
