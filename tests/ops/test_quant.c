/* test_quant.c - products of quantized weights: integers to the bit, e4m3 to 1e-5 of the largest
 * result, and how far both are from the product that they stand for */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "operands.h"
#include "base/par.h"

/* ---- a second opinion --------------------------------------------------------------------- */

static float magnitude(const float *x, int64_t n)
{
    float m = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i]))
            return NAN;
        m = fabsf(x[i]) > m ? fabsf(x[i]) : m;
    }
    return m;
}

static float nearest_integer(float v)
{
    v = nearbyintf(v);
    return v > 127.0f ? 127.0f : v < -127.0f ? -127.0f : v;
}

/* The nearest e4m3 by looking at all of them; of two the even one. */
static float nearest_e4m3(float v)
{
    int best = 0;
    for (int i = 0; i < 0x7f; i++) {
        double d = fabs((double)xd_f8e4m3_f32((uint8_t)i) - fabs((double)v));
        double b = fabs((double)xd_f8e4m3_f32((uint8_t)best) - fabs((double)v));
        best = d < b || (d == b && i % 2 == 0) ? i : best;
    }
    return v < 0 ? -xd_f8e4m3_f32((uint8_t)best) : xd_f8e4m3_f32((uint8_t)best);
}

/* A row of numbers becomes q times the returned scale. */
static float quantize(float *q, const float *x, int64_t n, xd_dtype type, int input)
{
    float most = magnitude(x, n), s = most / (type == XD_I8 ? 127.0f : 448.0f);
    if (s < FLT_MIN)
        s = 0;
    for (int64_t i = 0; i < n; i++) {
        float most_q = type == XD_I8 ? 127.0f : 448.0f;
        float v = s > 0 ? (input ? x[i] * (most_q / most) : x[i] / s) : 0;
        q[i] = type == XD_I8 ? nearest_integer(v) : nearest_e4m3(v);
    }
    return s;
}

static float *floats(const xd_tensor *t)
{
    float *f = malloc((size_t)(xd_count(*t) + 1) * sizeof *f);
    assert_non_null(f);
    for (int64_t i = 0; i < xd_count(*t); i++)
        f[i] = (float)at(t, i);
    return f;
}

/* Are the inputs of a GEMM quantized? */
static int by_integers(const xd_weight *w)
{
    return w->type == XD_I8 && !w->floats;
}

/* Are they in fp8? The library of a device takes outputs in steps of 16. */
static int by_fp8(const xd_gemm *a)
{
    return a->sx.p || (a->fp8 && dev->fp8_gemm && a->w->type == XD_F8E4M3 && a->in.type != XD_F32 &&
                       a->w->out % 16 == 0 && !getenv("XDIT_SIM_NO_PRODUCTS"));
}

/* want[M,N] = the product in f64 of what is quantized; with `exact` by the formula of integers,
 * each step of which is one rounding in f32. */
static void product(double *want, const xd_gemm *a, const xd_tensor *ws, int exact)
{
    int64_t M = a->in.d[0], N = a->w->out, K = a->w->in;
    float  *x = floats(&a->in), *w = floats(ws), *sx = malloc((size_t)(M + 1) * sizeof *sx);
    assert_non_null(sx);
    for (int64_t i = 0; i < M; i++)
        sx[i] = by_integers(a->w) ? quantize(x + i * K, x + i * K, K, XD_I8, 1)
                : by_fp8(a)       ? quantize(x + i * K, x + i * K, K, XD_F8E4M3, 1)
                                  : 1.0f;
    for (int64_t o = 0; o < N; o++) {
        float sw = quantize(w + o * K, w + o * K, K, a->w->type, 0);
        for (int64_t i = 0; i < M; i++) {
            double sum = 0;
            for (int64_t k = 0; k < K; k++)
                sum += (double)x[i * K + k] * (double)w[o * K + k];
            float one = sx[i] * sw;
            want[i * N + o] = exact ? (double)((float)sum * one) : sum * (double)one;
        }
    }
    free(sx);
    free(w);
    free(x);
}

/* ---- tests -------------------------------------------------------------------------------- */

/* All e4m3 and e5m2 against their definition, all e4m3 back, and the middles between neighbours. */
void test_quant_types(void **unused)
{
    (void)unused;
    fresh();
    for (int i = 0; i < 256; i++) {
        int    e4 = i >> 3 & 15, m4 = i & 7, e5 = i >> 2 & 31, m5 = i & 3;
        double sign = i & 128 ? -1 : 1;
        double v4 = sign * (e4 ? ldexp(8 + m4, e4 - 10) : ldexp(m4, -9));
        double v5 = sign * (e5 ? ldexp(4 + m5, e5 - 17) : ldexp(m5, -16));
        float  f4 = xd_f8e4m3_f32((uint8_t)i), f5 = xd_f8e5m2_f32((uint8_t)i);
        if ((i & 127) == 127)
            assert_true(isnan(f4));
        else
            assert_true((double)f4 == v4 && xd_f32_f8e4m3(f4) == i);
        if (e5 == 31)
            assert_true(m5 ? isnan(f5) : isinf(f5) && (double)f5 * sign > 0);
        else
            assert_true((double)f5 == v5);
    }
    for (int i = 0; i < 0x7e; i++) {
        float a = xd_f8e4m3_f32((uint8_t)i), b = xd_f8e4m3_f32((uint8_t)(i + 1)), m = (a + b) / 2;
        assert_int_equal(xd_f32_f8e4m3(m), i % 2 ? i + 1 : i);
        assert_int_equal(xd_f32_f8e4m3(nextafterf(m, 0)), i);
        assert_int_equal(xd_f32_f8e4m3(-nextafterf(m, 500)), 128 + i + 1);
    }
    for (int t = 0; t < 2; t++) { /* the device's own conversions */
        xd_tensor f = matrix(XD_F32, 1, 256, 0), b = matrix(XD_F8E4M3, 1, 256, 0);
        b.type = t ? XD_F8E5M2 : XD_F8E4M3;
        for (int i = 0; i < 256; i++)
            ((uint8_t *)b.p)[i] = (uint8_t)i;
        RUN(copy, XD_OP_COPY, &((xd_copy){ f, b }));
        for (int i = 0; i < 256; i++) {
            float want = t ? xd_f8e5m2_f32((uint8_t)i) : xd_f8e4m3_f32((uint8_t)i),
                  got = ((float *)f.p)[i];
            assert_true(isnan(want) ? isnan(got) : want == got && signbit(want) == signbit(got));
        }
    }
    assert_int_equal(xd_f32_f8e4m3(1e9f), 0x7e);
    assert_int_equal(xd_f32_f8e4m3(-HUGE_VALF), 0xfe);
    assert_int_equal(xd_f32_f8e4m3(1e-40f), 0);
    assert_int_equal(xd_f32_f8e4m3(NAN) & 127, 127);
}

static const struct kind {
    const char *name;
    xd_dtype    type;
    int         floats;
} kinds[] = {
    { "int8", XD_I8, 0 },
    { "int8 by floats", XD_I8, 1 },
    { "e4m3", XD_F8E4M3, 0 },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void quant_case(const struct kind *kind, int64_t M, int64_t N, int64_t K)
{
    static const xd_dtype sources[] = { XD_F32, XD_F16, XD_BF16, XD_F64 };
    xd_weight w = { .type = kind->type, .out = N, .in = K, .groups = 1, .floats = kind->floats };
    xd_gemm   a = { .w = &w, .act = (xd_act)upto(XD_NACTS) };
    double   *want = numbers(M * N);
    fresh();
    xd_tensor ws = operand_at(sources[upto(4)], 2, (int64_t[]){ N, K }, 0, upto(2));
    pack(&w, ws);
    a.in = matrix(f32_or_half(), M, K, upto(2) * 3);
    a.out = matrix(f32_or_half(), M, N, upto(2) * 5);
    a.bias = maybe(operand(bias_type(), 1, &N, 0));
    a.gate = maybe(matrix(XD_F32, 1, N, 0));
    if (upto(2))
        a.residual = upto(2) ? a.out : matrix(f32_or_half(), M, N, upto(2) * 7);
    product(want, &a, &ws, 0);
    for (int64_t i = 0; i < M * N; i++) {
        double s = act_of(want[i] + (a.bias.p ? at(&a.bias, i % N) : 0), a.act);
        want[i] = s * (a.gate.p ? at(&a.gate, i % N) : 1) + (a.residual.p ? at(&a.residual, i) : 0);
    }
    remember();
    RUN(gemm, XD_OP_GEMM, &a);
    check(kind->name, &a.out, want);
    unpack(&w);
    free(want);
}

/* Inputs of fp8: they are rounded where the device multiplies such, and only there. */
static void fp8_case(int64_t M, int64_t N, int64_t K)
{
    xd_weight w = { .type = XD_F8E4M3, .out = N, .in = K, .groups = 1 };
    xd_gemm   a = { .w = &w, .fp8 = 1 };
    double   *want = numbers(M * N);
    fresh();
    xd_tensor ws = matrix(XD_F32, N, K, 0);
    pack(&w, ws);
    a.in = matrix(f32_or_half(), M, K, upto(2) * 3);
    a.out = matrix(f32_or_half(), M, N, upto(2) * 8);
    a.bias = maybe(operand(bias_type(), 1, &N, 0));
    product(want, &a, &ws, 0);
    for (int64_t i = 0; i < M * N; i++)
        want[i] += a.bias.p ? at(&a.bias, i % N) : 0;
    remember();
    RUN(gemm, XD_OP_GEMM, &a);
    check("fp8", &a.out, want);
    unpack(&w);
    free(want);
}

void test_quant_fp8(void **unused)
{
    (void)unused;
    print_message("# inputs of fp8 are %s here\n", dev->fp8_gemm ? "multiplied" : "not asked for");
    for (int i = 0; i < 20; i++)
        fp8_case(1 + upto(70), 16 * (1 + upto(8)), 1 + upto(300));
    for (int i = 0; i < 5; i++)
        fp8_case(1 + upto(30), 1 + upto(60), 1 + upto(90));
    fp8_case(1, 16, 1);
    fp8_case(130, 48, 4608);
}

/* Rows that a norm makes of e4m3: those of the GEMM, to the bit. odd: one holds a NaN. */
static void narrow_case(int64_t M, int64_t N, int64_t K, int odd)
{
    xd_weight w = { .type = XD_F8E4M3, .out = N, .in = K, .groups = 1 };
    xd_gemm   a = { .w = &w, .fp8 = 1 };
    double   *want = numbers(M * N);
    void     *rows = aligned_alloc(64, (size_t)(M * K + 63) / 64 * 64);
    assert_non_null(rows);
    fresh();
    xd_tensor ws = matrix(XD_F32, N, K, 0);
    pack(&w, ws);
    xd_norm norm = { .in = matrix(f32_or_half(), M, K, upto(2) * 3),
                     .rms = (int)upto(2),
                     .scale = maybe(matrix(XD_F32, 1, K, 0)),
                     .shift = maybe(matrix(XD_F32, M, K, 0)),
                     .via = half(),
                     .eps = 1e-5f };
    if (odd)
        set(&norm.in, upto(K), NAN);
    norm.out = a.in = matrix(norm.via, M, K, 0);
    a.out = matrix(f32_or_half(), M, N, 0);
    a.bias = maybe(operand(bias_type(), 1, &N, 0));
    RUN(norm, XD_OP_NORM, &norm);
    xd_gemm b = a;
    b.out = matrix(a.out.type, M, N, 0);
    b.sx = norm.sx = operand(XD_F32, 1, &M, 0);
    product(want, &b, &ws, 0);
    for (int64_t i = 0; i < M * N; i++)
        want[i] += a.bias.p ? at(&a.bias, i % N) : 0;
    b.in = norm.out = xd_view2(rows, XD_F8E4M3, M, K);
    remember();
    RUN(norm, XD_OP_NORM, &norm);
    allow(&norm.sx);
    RUN(gemm, XD_OP_GEMM, &b);
    if (!odd)
        check("e4m3 of a norm", &b.out, want);
    RUN(gemm, XD_OP_GEMM, &a);
    for (int64_t i = 0; i < M * N && by_fp8(&a); i++)
        assert_true(at(&b.out, i) == at(&a.out, i) ||
                    (odd && i < N && isnan(at(&b.out, i)) && isnan(at(&a.out, i))));
    unpack(&w);
    free(rows);
    free(want);
}

/* Rows that a gated activation makes of e4m3: those of the GEMM, to the bit. */
static void narrow_glu_case(int64_t M, int64_t K)
{
    xd_weight w = { .type = XD_F8E4M3, .out = 16, .in = K, .groups = 1 };
    xd_gemm   a = { .w = &w, .fp8 = 1 };
    void     *rows = aligned_alloc(64, (size_t)(M * K + 63) / 64 * 64);
    assert_non_null(rows);
    fresh();
    pack(&w, matrix(XD_F32, 16, K, 0));
    const xd_dtype type = half();
    xd_glu         g = { .a = matrix(type, M, K, upto(2) * 8),
                         .b = maybe(matrix(type, M, K, upto(3) * 8)),
                         .act = XD_SILU,
                         .via = type };
    g.out = a.in = matrix(type, M, K, 0);
    a.out = matrix(XD_F32, M, 16, 0);
    RUN(glu, XD_OP_GLU, &g);
    xd_gemm b = a;
    b.out = matrix(XD_F32, M, 16, 0);
    b.sx = g.sx = operand(XD_F32, 1, &M, 0);
    b.in = g.out = xd_view2(rows, XD_F8E4M3, M, K);
    RUN(glu, XD_OP_GLU, &g);
    RUN(gemm, XD_OP_GEMM, &b);
    RUN(gemm, XD_OP_GEMM, &a);
    for (int64_t i = 0; i < M * 16; i++)
        assert_true(at(&b.out, i) == at(&a.out, i) || !by_fp8(&a));
    g.out.d[1] = 17;
    assert_int_equal(dev->ops->glu(dev, NULL, &g, NULL), XD_EINVAL);
    unpack(&w);
    free(rows);
}

void test_quant_norm(void **unused)
{
    (void)unused;
    for (int i = 0; i < 12 && dev->fp8_gemm; i++)
        narrow_glu_case(1 + upto(9), 16 * (1 + upto(i % 4 ? 40 : 900)));
    for (int i = 0; i < 2 && dev->fp8_gemm; i++)
        narrow_glu_case(2, i ? XD_GLU_NARROW_MAX : 18432);
    if (!dev->fp8_gemm) {
        xd_norm a = { .in = matrix(XD_F32, 1, 16, 0), .sx = matrix(XD_F32, 1, 1, 0) };
        char    q[16];
        a.out = xd_view2(q, XD_F8E4M3, 1, 16), a.via = XD_BF16;
        assert_int_equal(dev->ops->norm(dev, NULL, &a, NULL), XD_EUNSUPPORTED);
        return;
    }
    for (int i = 0; i < 24; i++)
        narrow_case(1 + upto(30), 16 * (1 + upto(5)), 16 * (1 + upto(i % 4 ? 40 : 270)),
                    i % 5 == 4);
    static const int64_t wide[] = { 5120, 6144, 8192, 8208 };
    for (int i = 0; i < 8; i++)
        narrow_case(3, 16, wide[i / 2], i % 2);
}

/* Rows of 16 bits to integers and e4m3, at whose end zeros stand. */
void test_quant_wide(void **unused)
{
    (void)unused;
    for (int i = 0; i < 8; i++)
        fp8_case(1 + upto(9), 16, 8 * (1 + upto(i % 2 ? 2040 : 300)));
    fp8_case(2, 16, 16384);
    fp8_case(2, 16, 16392);
    quant_case(&kinds[0], 3, 16, 16384);
    quant_case(&kinds[0], 5, 20, 2056);
}

/* The same without anything behind the product, whose bits are known for integers. */
static void exact_case(int64_t M, int64_t N, int64_t K)
{
    xd_weight w = { .type = XD_I8, .out = N, .in = K, .groups = 1 };
    xd_gemm   a = { .w = &w };
    double   *want = numbers(M * N);
    fresh();
    xd_tensor ws = matrix(upto(2) ? XD_F32 : XD_BF16, N, K, 0);
    pack(&w, ws);
    a.in = matrix(f32_or_half(), M, K, upto(2) * 3);
    a.out = matrix(XD_F32, M, N, 0);
    product(want, &a, &ws, 1);
    RUN(gemm, XD_OP_GEMM, &a);
    for (int64_t i = 0; i < M * N; i++)
        if (at(&a.out, i) != want[i])
            fail_msg("int8 %lldx%lldx%lld: element %lld is %.9g, not %.9g", (long long)M,
                     (long long)N, (long long)K, (long long)i, at(&a.out, i), want[i]);
    unpack(&w);
    free(want);
}

void test_quant_gemm(void **unused)
{
    (void)unused;
    for (int t = 0; t < KINDS; t++) {
        const struct kind *type = &kinds[t];
        quant_case(type, 0, 5, 7);
        quant_case(type, 1, 1, 1);
        quant_case(type, 3, 130, 4608);
        quant_case(type, 45, 70, 30000);
        for (int64_t m = 15; m < 36; m += 3)
            quant_case(type, m, 50, 40 + m);
        for (int i = 0; i < 25; i++)
            quant_case(type, upto(70), 1 + upto(90), 1 + upto(130));
        for (int i = 0; i < 4; i++)
            quant_case(type, 1 + upto(200), 16 * (1 + upto(12)), 64 * (1 + upto(5)));
    }
    exact_case(1, 3, 5);
    exact_case(67, 96, 1152);
    exact_case(5, 33, 9000);
    for (int i = 0; i < 15; i++)
        exact_case(1 + upto(80), 1 + upto(100), 1 + upto(300));
}

/* A rounded integer is off by half of its scale, a rounded e4m3 by 2^-4 of itself or 2^-10 of its
 * scale: no sum of products may be further from the true one than these add up to. */
static void error_case(const struct kind *kind)
{
    enum { M = 9, N = 40, K = 500 };
    xd_weight w = { .type = kind->type, .out = N, .in = K, .groups = 1, .floats = kind->floats };
    double    most = 0;
    fresh();
    xd_tensor ws = matrix(XD_F32, N, K, 0);
    pack(&w, ws);
    xd_gemm a = { .w = &w, .in = matrix(XD_F32, M, K, 0), .out = matrix(XD_F32, M, N, 0) };
    float  *x = floats(&a.in), *v = floats(&ws);
    RUN(gemm, XD_OP_GEMM, &a);
    for (int64_t i = 0; i < M; i++)
        for (int64_t o = 0; o < N; o++) {
            double sx = by_integers(&w) ? (double)magnitude(x + i * K, K) / 127 : 0,
                   sw = (double)magnitude(v + o * K, K) / 127;
            double want = 0, limit = 1e-4;
            for (int64_t k = 0; k < K; k++) {
                double p = (double)x[i * K + k], q = (double)v[o * K + k];
                want += p * q;
                limit += kind->type == XD_I8 ? fabs(p) * sw / 2 + fabs(q) * sx / 2 + sx * sw / 4
                                             : fabs(p) * (fabs(q) / 16 + sw * 127 / 448 / 1024);
            }
            double e = fabs(at(&a.out, i * N + o) - want);
            most = e > most ? e : most;
            if (!(e <= limit))
                fail_msg("%s is off by %g of at most %g", kind->name, e, limit);
        }
    assert_true(most > 1e-4); /* something was quantized */
    unpack(&w);
    free(v);
    free(x);
}

void test_quant_error(void **unused)
{
    (void)unused;
    for (int t = 0; t < KINDS; t++)
        error_case(&kinds[t]);
}

/* A row's bits depend neither on the rows beside it nor on the number of threads. */
void test_quant_rows(void **unused)
{
    enum { M = 77, N = 90, K = 333 };
    int cores = xd_par_threads();
    (void)unused;
    for (int t = 0; t < 2 * KINDS; t++) {
        const struct kind *kind = &kinds[t % KINDS];
        xd_weight          w = {
            .type = kind->type, .out = N, .in = K, .groups = 1, .floats = kind->floats
        };
        fresh();
        pack(&w, matrix(XD_F32, N, K, 0));
        xd_gemm a = { .w = &w,
                      .in = matrix(t < KINDS ? XD_F32 : XD_BF16, M, K, 0),
                      .out = matrix(XD_F32, M, N, 0),
                      .act = XD_GELU_TANH };
        xd_gemm b = a;
        b.out = matrix(XD_F32, M, N, 0);
        xd_par_set(3);
        RUN(gemm, XD_OP_GEMM, &a);
        xd_par_set(1);
        for (int64_t r = 0, n; r < M; r += n) {
            n = 1 + r / 10;
            n = n < M - r ? n : M - r;
            xd_gemm c = b;
            c.in = xd_rows(b.in, r, n);
            c.out = xd_rows(b.out, r, n);
            RUN(gemm, XD_OP_GEMM, &c);
        }
        assert_memory_equal(a.out.p, b.out.p, xd_bytes(a.out));
        unpack(&w);
    }
    xd_par_set(cores);
}

/* Rows of zeros, of numbers too small for a scale, and with numbers that are none. */
void test_quant_odd(void **unused)
{
    enum { M = 5, N = 20, K = 100 };
    (void)unused;
    for (int t = 0; t < KINDS; t++) {
        xd_weight w = {
            .type = kinds[t].type, .out = N, .in = K, .groups = 1, .floats = kinds[t].floats
        };
        int64_t n = N;
        fresh();
        xd_tensor ws = matrix(XD_F32, N, K, 0);
        for (int64_t k = 0; k < K; k++) {
            set(&ws, k, 0);
            set(&ws, K + k, 1e-40);
        }
        set(&ws, 2 * K + 99, HUGE_VAL);
        set(&ws, 3 * K, NAN);
        pack(&w, ws);
        xd_gemm a = { .w = &w,
                      .in = matrix(XD_F32, M, K, 0),
                      .out = matrix(XD_F32, M, N, 0),
                      .bias = operand(bias_type(), 1, &n, 0) };
        for (int64_t k = 0; k < K; k++) {
            set(&a.in, k, 0);
            set(&a.in, K + k, 1e-40);
        }
        set(&a.in, 2 * K + 98, -HUGE_VAL);
        set(&a.in, 3 * K + 1, NAN);
        RUN(gemm, XD_OP_GEMM, &a);
        for (int64_t i = 0; i < M; i++)
            for (int64_t o = 0; o < N; o++) {
                double v = at(&a.out, i * N + o);
                int    odd = o == 2 || o == 3 || i == 3 || (i == 2 && by_integers(&w));
                int    zero = i < 2 || o < 2;
                if (i == 2 && !by_integers(&w))
                    continue; /* an infinity among numbers: what it makes of them */
                if (odd ? !isnan(v) : zero ? fabs(v - at(&a.bias, o)) > 1e-30 : !isfinite(v))
                    fail_msg("%s, [%d,%d] is %g", kinds[t].name, (int)i, (int)o, v);
            }
        unpack(&w);
    }
}

/* Scales that are handed in: of rows that are cut, and of a source that is e4m3 already. */
void test_quant_scales(void **unused)
{
    enum { N = 24, K = 160 };
    (void)unused;
    for (int t = 0; t < 2; t++) {
        xd_dtype  type = t ? XD_F8E4M3 : XD_I8;
        xd_weight w = { .type = type, .out = N, .in = K, .groups = 1 };
        float     scale[N];
        fresh();
        xd_tensor eye = matrix(XD_F32, K, K, 0), ws = matrix(XD_F32, N, K, 0);
        for (int64_t i = 0; i < K * K; i++)
            set(&eye, i, i / K == i % K);
        for (int i = 0; i < N; i++)
            scale[i] = xd_quant_scale(type, 1.0f + (float)i);
        w.scale = scale;
        pack(&w, ws);
        xd_gemm a = { .w = &w, .in = eye, .out = matrix(XD_F32, K, N, 0) };
        RUN(gemm, XD_OP_GEMM, &a);
        for (int64_t i = 0; i < K * N; i++) {
            float  v = (float)at(&ws, i % N * K + i / N) / scale[i % N], s = scale[i % N];
            float  q = t ? nearest_e4m3(v) : nearest_integer(v);
            double want = (double)q * (double)s, e = fabs(at(&a.out, i) - want);
            if (!(e <= 1e-5 * (double)s * 448))
                fail_msg("type %d: %g is %g, not %g", t, (double)v * (double)s, at(&a.out, i),
                         want);
        }
        unpack(&w);
    }
    for (int given = 0; given < 2; given++) {
        xd_weight w = { .type = XD_F8E4M3, .out = N, .in = K, .groups = 1 };
        float     scale[N];
        fresh();
        xd_tensor eye = matrix(XD_F32, K, K, 0), ws = matrix(XD_F8E4M3, N, K, 0);
        for (int64_t i = 0; i < K * K; i++)
            set(&eye, i, i / K == i % K);
        for (int i = 0; i < N; i++)
            scale[i] = 0.5f + (float)i;
        w.scale = given ? scale : NULL;
        pack(&w, ws);
        xd_gemm a = { .w = &w, .in = eye, .out = matrix(XD_F32, K, N, 0) };
        RUN(gemm, XD_OP_GEMM, &a);
        for (int64_t i = 0; i < K * N; i++)
            assert_true(at(&a.out, i) ==
                        at(&ws, i % N * K + i / N) * (given ? (double)scale[i % N] : 1));
        unpack(&w);
    }
}

void test_quant_refusals(void **unused)
{
    xd_dev   *c;
    xd_err    e = { 0 };
    xd_weight w = { .type = XD_I8, .out = 30, .in = 20, .groups = 1 }, r = w;
    (void)unused;
    fresh();
    pack(&w, matrix(XD_F32, 30, 20, 0));
    xd_gemm a = { .w = &w, .in = matrix(XD_F64, 3, 20, 0), .out = matrix(XD_F32, 3, 30, 0) };
    assert_int_equal(dev->ops->gemm(dev, NULL, &a, NULL), XD_EINVAL);
    a.in = matrix(XD_F32, 3, 21, 0);
    assert_int_equal(dev->ops->gemm(dev, NULL, &a, NULL), XD_EINVAL);
    a.in = matrix(XD_F32, 3, 20, 0);
    assert_int_equal(xd_dev_open_count(&c, dev, &e), XD_OK);
    assert_int_equal(c->ops->pack_size(c, &r), w.bytes);
    assert_int_equal(c->ops->scratch(c, XD_OP_GEMM, &a), dev->ops->scratch(dev, XD_OP_GEMM, &a));
    xd_dev_close(&c);
    assert_int_equal(xd_dev_open_count(&c, NULL, &e), XD_OK);
    assert_int_equal(c->ops->pack_size(c, &r), 30 * 20 + 30 * 4);
    xd_dev_close(&c);
    unpack(&w);
    xd_weight deep = { .type = XD_I8, .out = 1, .in = XD_INT8_MAX_INPUTS + 1, .groups = 1 };
    deep.p = dev->mem->get(dev, dev->ops->pack_size(dev, &deep));
    assert_non_null(deep.p);
    assert_int_equal(dev->ops->pack(dev, &deep, matrix(XD_F32, 1, deep.in, 0), NULL),
                     XD_EUNSUPPORTED);
    deep.type = XD_F8E4M3;
    deep.nk = 2;
    assert_int_equal(dev->ops->pack(dev, &deep, matrix(XD_F32, 1, deep.in, 0), NULL),
                     XD_EUNSUPPORTED);
    dev->mem->put(dev, deep.p, deep.bytes);
}
