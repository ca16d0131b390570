/* test_qknorm.c - norm and rotary turn of heads, against complex numbers in double precision; norms
 * of rows; rotation of groups, against the matrix; attention whose queries lie in pieces */
#include "operands.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct heads { int64_t n, H, D; } heads;

/* Rows [n,H,D] that are a part of wider rows, as the parts of a fused layer are. */
static xd_tensor part(xd_dtype type, heads d)
{
    int64_t   wide = 1 + upto(3), at_col = upto(wide);
    xd_tensor t = matrix(type, d.n, wide * d.H * d.D, upto(2) * 5);
    return xd_heads(xd_cols(t, at_col * d.H * d.D, d.H * d.D), d.D);
}

static xd_tensor angles(heads d)
{
    xd_tensor t = matrix(XD_F32, upto(3) ? d.n : 1, d.D / 2, upto(2) * 3);
    if (upto(4) == 0)
        t.s[0] = 0; /* one row, seen many times */
    return t;
}

/* One head of D values, normalised with the gain and bias of h: in place. */
static void norm_of(const xd_qknorm *a, const xd_qk_heads *h, double *x, int64_t D)
{
    double mean = 0, var = 0;
    for (int64_t j = 0; j < D && !a->rms; j++)
        mean += x[j] / (double)D;
    for (int64_t j = 0; j < D; j++)
        var += pow(x[j] - mean, 2) / (double)D;
    for (int64_t j = 0; j < D; j++)
        x[j] = a->norm ? (x[j] - mean) / sqrt(var + (double)a->eps) : x[j];
    for (int64_t j = 0; j < D; j++)
        x[j] = x[j] * (h->gain.p ? at(&h->gain, j) : 1) + (h->bias.p ? at(&h->bias, j) : 0);
}

static void turn_of(const xd_qknorm *a, double *x, int64_t row, int64_t D)
{
    for (int64_t i = 0; a->cos.p && i < D / 2; i++) {
        int64_t p = a->halves ? i : 2 * i, q = a->halves ? i + D / 2 : p + 1;
        double  c = at2(&a->cos, row, i), s = at2(&a->sin, row, i), re = x[p], im = x[q];
        x[p] = re * c - im * s;
        x[q] = re * s + im * c;
    }
}

static xd_qk_heads some_heads(heads d, xd_tensor in, xd_tensor out)
{
    xd_qk_heads h = { .in = in, .out = out };
    h.gain = maybe(operand(XD_F32, 1, &d.D, 0));
    h.bias = maybe(operand(XD_F32, 1, &d.D, 0));
    return h;
}

static double *wanted(const xd_qknorm *a, const xd_qk_heads *h)
{
    const int64_t H = h->in.d[1], D = h->in.d[2], n = h->in.d[0] * H;
    double       *want = numbers(n * D);
    for (int64_t k = 0; k < n; k++) {
        double *x = want + k * D;
        for (int64_t j = 0; j < D; j++)
            x[j] = at(&h->in, k * D + j);
        norm_of(a, h, x, D);
        turn_of(a, x, k / H, D);
    }
    return want;
}

/* With `also` heads, 0 for none. */
static void qknorm_case(heads d, int64_t also)
{
    xd_qknorm a = {
        .norm = upto(4) > 0, .rms = (int)upto(2), .halves = (int)upto(2), .eps = 1e-4f
    };
    xd_dtype in = f32_or_half(), out = upto(3) ? f32_or_half() : in;
    int      in_place = in == out && upto(2);
    double  *keys = NULL;
    fresh();
    xd_tensor   t = part(in, d);
    xd_qk_heads h = some_heads(d, t, in_place ? t : part(out, d));
    a.in = h.in, a.out = h.out, a.gain = h.gain, a.bias = h.bias;
    if (also) {
        heads k = { d.n, also, d.D };
        t = part(in, k);
        a.also = some_heads(k, t, in_place ? t : part(out, k));
    }
    if (d.D % 2 == 0 && upto(4)) {
        a.cos = angles(d);
        a.sin = angles(d);
    }
    double *want = wanted(&a, &h);
    if (also)
        keys = wanted(&a, &a.also);
    remember();
    RUN(qknorm, XD_OP_QKNORM, &a);
    if (also)
        allow(&a.also.out);
    check("qknorm", &a.out, want);
    if (also)
        check("qknorm, also", &a.also.out, keys);
    free(want);
    free(keys);
}

void test_qknorm(void **unused)
{
    static const int64_t usual[] = { 64, 72, 80, 96, 128, 256 };
    (void)unused;
    qknorm_case((heads){ 0, 3, 8 }, 3);
    qknorm_case((heads){ 3, 0, 8 }, 0);
    qknorm_case((heads){ 3, 0, 8 }, 2);
    qknorm_case((heads){ 2, 2, XD_QKNORM_MAX }, 2);
    qknorm_case((heads){ 3, 40, 16 }, 35);
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < 6; k++)
            qknorm_case((heads){ 1 + upto(20), 1 + upto(12), usual[i] }, k * upto(5));
    for (int i = 0; i < 80; i++)
        qknorm_case((heads){ upto(12), 1 + upto(7), 1 + upto(70) }, upto(4));
}

static xd_tensor dense(xd_dtype type, heads d)
{
    return operand(type, 3, (int64_t[]){ d.n, d.H, d.D }, 0);
}

/* Keys beside queries do not change a bit of either. */
void test_qknorm_also(void **unused)
{
    (void)unused;
    for (int i = 0; i < 12; i++) {
        heads q = { 1 + upto(9), 1 + upto(20), 8 * (1 + upto(16)) }, k = { q.n, 1 + upto(20), q.D };
        xd_dtype type = f32_or_half();
        fresh();
        xd_qk_heads b = some_heads(k, dense(type, k), dense(type, k));
        xd_qk_heads h = some_heads(q, dense(type, q), dense(type, q));
        xd_qknorm   a = { .out = h.out,
                          .in = h.in,
                          .gain = h.gain,
                          .bias = h.bias,
                          .also = b,
                          .cos = angles(q),
                          .sin = angles(q),
                          .norm = 1,
                          .rms = i % 2,
                          .eps = 1e-6f };
        RUN(qknorm, XD_OP_QKNORM, &a);
        for (int part = 0; part < 2; part++) {
            xd_qk_heads *of = part ? &b : &h;
            xd_qknorm    one = a;
            one.also = (xd_qk_heads){ .out = { 0 } };
            one.in = of->in, one.gain = of->gain, one.bias = of->bias;
            one.out = operand(type, 3, of->in.d, 0);
            RUN(qknorm, XD_OP_QKNORM, &one);
            for (int64_t j = 0; j < xd_count(one.out); j++)
                assert_true(at(&one.out, j) == at(&of->out, j));
        }
    }
}

/* What the kernel cannot do is refused before anything is written. */
void test_qknorm_refusals(void **unused)
{
    (void)unused;
    fresh();
    int64_t   d[3] = { 2, 3, 6 }, odd[3] = { 2, 3, 5 };
    xd_qknorm a = { .in = operand(XD_F32, 3, d, 0), .out = operand(XD_F32, 3, d, 0), .norm = 1 };
    xd_qknorm b = a;
    b.out.type = XD_F64;
    assert_int_equal(dev->ops->qknorm(dev, NULL, &b, NULL), XD_EINVAL);
    b = a;
    b.cos = matrix(XD_F32, 2, 3, 0);
    assert_int_equal(dev->ops->qknorm(dev, NULL, &b, NULL), XD_EINVAL);
    b.sin = matrix(XD_F32, 2, 2, 0);
    assert_int_equal(dev->ops->qknorm(dev, NULL, &b, NULL), XD_EINVAL);
    b.sin = matrix(XD_F32, 2, 3, 0);
    assert_int_equal(dev->ops->qknorm(dev, NULL, &b, NULL), XD_OK);
    b.in = b.out = operand(XD_F32, 3, odd, 0);
    assert_int_equal(dev->ops->qknorm(dev, NULL, &b, NULL), XD_EINVAL);
    b = a;
    b.gain = matrix(XD_F32, 1, 5, 0);
    assert_int_equal(dev->ops->qknorm(dev, NULL, &b, NULL), XD_EINVAL);
    b = a;
    b.also = (xd_qk_heads){ .out = a.out, .in = a.in };
    b.also.in.d[0] = b.also.out.d[0] = 1;
    assert_int_equal(dev->ops->qknorm(dev, NULL, &b, NULL), XD_EINVAL);
    b.also = (xd_qk_heads){ .out = a.out, .in = operand(XD_BF16, 3, d, 0) };
    assert_int_equal(dev->ops->qknorm(dev, NULL, &b, NULL), XD_EINVAL);
    b = a;
    b.in.d[2] = b.out.d[2] = XD_QKNORM_MAX + 1;
    assert_int_equal(dev->ops->qknorm(dev, NULL, &b, NULL), XD_EINVAL);
}

/* ---- norms of rows -------------------------------------------------------------------------- */

xd_tensor row_operand(int64_t n, int64_t C)
{
    int kind = (int)upto(3);
    return kind == 0 ? (xd_tensor){ 0 } : matrix(XD_F32, kind == 1 ? 1 : n, C, upto(2) * 3);
}

/* What becomes of a.in, where something is added to it; NULL: nothing is. Rounding a sum to 16 bits
 * must not show in the result. */
static double *added(xd_norm *a, int64_t n, int64_t C)
{
    if (upto(2) || a->in.p == a->out.p ||
        (a->in.type != XD_F32 && (a->in.type != XD_BF16 || a->out.type != XD_BF16)))
        return NULL;
    double *sum = numbers(n * C);
    a->add = matrix(f32_or_half(), n, C, upto(2) * 5);
    a->gate = row_operand(n, C);
    for (int64_t i = 0; i < n * C; i++)
        sum[i] = at(&a->in, i) + at(&a->add, i) * (a->gate.p ? at2(&a->gate, i / C, i % C) : 1);
    return sum;
}

static void norm_case(int64_t n, int64_t C)
{
    xd_norm a = { .rms = (int)upto(2), .eps = 1e-5f };
    double *want = numbers(n * C);
    fresh();
    a.in = matrix(f32_or_half(), n, C, upto(2) * 7);
    a.out = upto(3) == 0 ? a.in : matrix(f32_or_half(), n, C, upto(2) * 3);
    double *sum = added(&a, n, C);
    a.gain = maybe(operand(XD_F32, 1, &C, 0));
    a.bias = maybe(operand(XD_F32, 1, &C, 0));
    a.scale = row_operand(n, C);
    a.shift = row_operand(n, C);
    a.like = upto(3) == 0 ? matrix(XD_F32, n, C, upto(2) * 3) : (xd_tensor){ 0 };
    for (int64_t i = 0; i < n; i++) {
        double s = 0, q = 0, length = 0;
        for (int64_t j = 0; j < C && !a.rms; j++)
            s += (sum ? sum[i * C + j] : at2(&a.in, n == 1 ? 0 : i, j)) / (double)C;
        for (int64_t j = 0; j < C; j++)
            q += pow((sum ? sum[i * C + j] : at(&a.in, i * C + j)) - s, 2) / (double)C;
        for (int64_t j = 0; j < C && a.like.p; j++)
            length += pow(at(&a.like, i * C + j), 2) / (double)C;
        for (int64_t j = 0; j < C; j++) {
            double v = ((sum ? sum[i * C + j] : at(&a.in, i * C + j)) - s) / sqrt(q + 1e-5);
            v = v * (a.like.p ? sqrt(length) : 1);
            v = v * (a.gain.p ? at(&a.gain, j) : 1) + (a.bias.p ? at(&a.bias, j) : 0);
            v = v * (a.scale.p ? 1 + at2(&a.scale, i, j) : 1);
            want[i * C + j] = v + (a.shift.p ? at2(&a.shift, i, j) : 0);
        }
    }
    remember();
    RUN(norm, XD_OP_NORM, &a);
    if (sum)
        allow(&a.in);
    check("norm", &a.out, want);
    if (sum)
        check("norm, sum", &a.in, sum);
    free(want);
    free(sum);
}

void test_norm(void **unused)
{
    (void)unused;
    norm_case(0, 8);
    norm_case(40, 1152);
    norm_case(3, 5000);
    for (int i = 0; i < 30; i++) /* a block of threads holds rows of up to 8192 elements */
        norm_case(1 + upto(4), i % 3 ? 8 * (513 + upto(512)) : i % 2 ? 8192 : 8200);
    for (int i = 0; i < 60; i++) /* eight channels at a time, where rows begin at 16 bytes */
        norm_case(2 + upto(6), 8 * (1 + upto(24)));
    for (int i = 0; i < 80; i++)
        norm_case(upto(20), 1 + upto(i % 4 ? 100 : 1500));
}

/* A norm with an addition before it, in rows that begin at multiples of 16 bytes and lie apart by
 * strides of their own: the stream and the result are those of both ops, one after the other. */
static void add_case(int64_t n, int64_t C, int64_t gates)
{
    xd_norm a = { .rms = (int)upto(2), .eps = 1e-5f };
    fresh();
    a.in = matrix(XD_F32, n, C, 8 * upto(3));
    a.out = matrix(f32_or_half(), n, C, 8 * upto(2));
    a.scale = row_operand(1, C);
    a.add = matrix(f32_or_half(), n, C, 16 + 8 * upto(3));
    a.gate = gates ? matrix(XD_F32, gates, C, 8 * upto(2)) : (xd_tensor){ 0 };
    double   *sum = numbers(n * C), *want = numbers(n * C);
    xd_tensor apart = matrix(XD_F32, n, C, 0), out = matrix(a.out.type, n, C, 0);
    for (int64_t i = 0; i < n * C; i++) {
        sum[i] =
            at(&a.in, i) + at(&a.add, i) * (gates ? at2(&a.gate, gates > 1 ? i / C : 0, i % C) : 1);
        set(&apart, i, at(&a.in, i));
    }
    xd_addmul first = { .acc = apart, .gate = a.gate, .in = a.add };
    xd_norm   then = a;
    then.in = apart, then.out = out, then.add = then.gate = (xd_tensor){ 0 };
    RUN(addmul, XD_OP_ADDMUL, &first);
    RUN(norm, XD_OP_NORM, &then);
    for (int64_t i = 0; i < n * C; i++)
        want[i] = at(&out, i);
    remember();
    RUN(norm, XD_OP_NORM, &a);
    allow(&a.in);
    check("norm after an addition", &a.out, want);
    check("the stream", &a.in, sum);
    free(sum);
    free(want);
}

void test_norm_adds(void **unused)
{
    static const int64_t widths[] = { 8,    256,  1152, 1280, 1920, 2048, 3072,
                                      4096, 4104, 5120, 6144, 8192, 8200 };
    (void)unused;
    for (int i = 0; i < (int)(sizeof widths / sizeof *widths); i++)
        for (int64_t gates = 0; gates < 3; gates++)
            add_case(5, widths[i], gates == 2 ? 5 : gates);
}

/* A large mean does not eat the variance. */
void test_norm_offset(void **unused)
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
        assert_true(fabs(at(&a.out, i) - want[i]) < 1e-3); /* 4096 has 2.4e-4 per ulp */
    free(want);
}

/* ---- rotation ------------------------------------------------------------------------------ */

/* Element [i,j] of the matrix: a product over the digits of i and j to the base 4. */
static double rotation_at(int64_t group, int64_t i, int64_t j)
{
    static const double h[4][4] = {
        { 1, 1, 1, -1 }, { 1, 1, -1, 1 }, { 1, -1, 1, 1 }, { -1, 1, 1, 1 }
    };
    double r = 1;
    for (; group > 1; group /= 4, i /= 4, j /= 4)
        r *= h[i % 4][j % 4] / 2;
    return r;
}

static void rotate_case(int64_t n, int64_t groups, int64_t group)
{
    const int64_t C = groups * group;
    double       *want = numbers(n * C);
    fresh();
    xd_rotate a = { .in = matrix(f32_or_half(), n, C, upto(2) * 5), .group = group };
    a.out = upto(3) == 0 ? a.in : matrix(f32_or_half(), n, C, upto(2) * 3);
    for (int64_t k = 0; k < n * C; k++) {
        want[k] = 0;
        for (int64_t i = 0; i < group; i++)
            want[k] +=
                at2(&a.in, k / C, k % C / group * group + i) * rotation_at(group, i, k % group);
    }
    remember();
    RUN(rotate, XD_OP_ROTATE, &a);
    check("rotate", &a.out, want);
    free(want);
}

void test_rotate(void **unused)
{
    static const int64_t sizes[] = { 1, 4, 16, 64, 256, 1024 };
    (void)unused;
    if (!dev->rotates)
        return;
    rotate_case(0, 2, 256);
    rotate_case(3, 0, 256);
    rotate_case(40, 3, 256);
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < 4; k++)
            rotate_case(1 + upto(4), 1 + upto(3), sizes[i]);
}

/* Every device rotates with the bits of xd_rotation, and two rotations give the row back. */
void test_rotation_bits(void **unused)
{
    (void)unused;
    for (int64_t g = 4; g <= XD_ROTATE_MAX && dev->rotates; g *= 4) {
        fresh();
        xd_rotate a = { .in = matrix(XD_F32, 1, g, 0), .out = matrix(XD_F32, 1, g, 0), .group = g };
        float     x[XD_ROTATE_MAX];
        memcpy(x, a.in.p, (size_t)g * sizeof *x);
        xd_rotation(x, g);
        RUN(rotate, XD_OP_ROTATE, &a);
        assert_memory_equal(a.out.p, x, (size_t)g * sizeof *x);
        xd_rotation(x, g);
        for (int64_t i = 0; i < g; i++)
            assert_true(fabs((double)x[i] - at(&a.in, i)) < 1e-5);
    }
    assert_true(xd_rotates(1) && xd_rotates(4) && xd_rotates(256) && xd_rotates(1024));
    assert_false(xd_rotates(0) || xd_rotates(2) || xd_rotates(48) || xd_rotates(4096));
}

void test_rotate_refusals(void **unused)
{
    (void)unused;
    fresh();
    xd_rotate a = { .in = matrix(XD_F32, 2, 48, 0), .out = matrix(XD_F32, 2, 48, 0), .group = 16 };
    assert_int_equal(dev->ops->rotate(dev, NULL, &a, NULL), dev->rotates ? XD_OK : XD_EUNSUPPORTED);
    for (int i = 0; i < 3 && dev->rotates; i++) {
        a.group = i == 0 ? 64 : i == 1 ? 8 : 4096;
        assert_int_equal(dev->ops->rotate(dev, NULL, &a, NULL), XD_EINVAL);
    }
}

/* ---- linear attention ---------------------------------------------------------------------- */

static double positive(const xd_tensor *t, int64_t r, int64_t h, int64_t i)
{
    const char  *p = (const char *)t->p;
    const double v =
        value(p + (r * t->s[0] + h * t->s[1] + i) * (int64_t)xd_dtype_size(t->type), t->type);
    return v > 0 ? v : 0;
}

/* As `positive`, rotated by the tables of the row, if there are any. */
static double turned(const xd_linattn *a, const xd_tensor *t, int64_t r, int64_t h, int64_t i)
{
    const double x = positive(t, r, h, i);
    if (!a->cos.p)
        return x;
    const double y = positive(t, r, h, i ^ 1);
    const double c = (double)((const float *)a->cos.p)[r * a->cos.s[0] + i / 2];
    const double s = (double)((const float *)a->sin.p)[r * a->sin.s[0] + i / 2];
    return i % 2 ? y * s + x * c : x * c - y * s;
}

static void add_tables(xd_linattn *a, int64_t rows, heads d)
{
    a->cos = matrix(XD_F32, rows, d.D / 2, 0);
    a->sin = matrix(XD_F32, rows, d.D / 2, 0);
}

/* The sums of m keys and values, then the attention of n queries over them. */
static void linattn_case(int64_t n, int64_t m, heads d, int turns)
{
    const int64_t D = d.D, size = D * (D + 1);
    double       *sums = numbers(d.H * size), *want = numbers(n * d.H * D);
    fresh();
    heads      keys = { m, d.H, D }, queries = { n, d.H, D };
    xd_linattn a = { .k = part(f32_or_half(), keys),
                     .v = part(f32_or_half(), keys),
                     .sums = operand(XD_F32, 3, (int64_t[]){ d.H, D, D + 1 }, 0) };
    if (turns)
        add_tables(&a, m, d);
    memset(sums, 0, (size_t)(d.H * size) * sizeof *sums);
    for (int64_t k = 0; k < m * d.H * size; k++) {
        const int64_t r = k / (d.H * size), h = k / size % d.H, i = k / (D + 1) % D,
                      j = k % (D + 1);
        const char   *v = (const char *)a.v.p +
                          (r * a.v.s[0] + h * a.v.s[1] + j) * (int64_t)xd_dtype_size(a.v.type);
        sums[h * size + i * (D + 1) + j] += j < D ? turned(&a, &a.k, r, h, i) * value(v, a.v.type)
                                                  : positive(&a.k, r, h, i);
    }
    remember();
    RUN(linattn, XD_OP_LINATTN, &a);
    check("sums of linear attention", &a.sums, sums);
    xd_linattn b = { .q = part(f32_or_half(), queries),
                     .out = part(f32_or_half(), queries),
                     .sums = a.sums };
    if (turns)
        add_tables(&b, n, d);
    for (int64_t k = 0; k < n * d.H * D; k++) {
        const int64_t r = k / (d.H * D), h = k / D % d.H, j = k % D;
        double        y = 0, by = 1e-15;
        for (int64_t i = 0; i < D; i++) {
            y += turned(&b, &b.q, r, h, i) * at(&a.sums, h * size + i * (D + 1) + j);
            by += positive(&b.q, r, h, i) * at(&a.sums, h * size + i * (D + 1) + D);
        }
        want[k] = y / by;
    }
    remember();
    RUN(linattn, XD_OP_LINATTN, &b);
    check("linear attention", &b.out, want);
    free(sums), free(want);
}

void test_linattn(void **unused)
{
    (void)unused;
    linattn_case(3, 200, (heads){ 0, 2, 32 }, 0);
    linattn_case(0, 5, (heads){ 0, 3, 8 }, 0);
    linattn_case(2, 0, (heads){ 0, 1, 5 }, 0);
    linattn_case(1, 70, (heads){ 0, 1, XD_LINATTN_MAX }, 0);
    linattn_case(3, 70, (heads){ 0, 1, XD_LINATTN_MAX }, 1);
    for (int i = 0; i < 8; i++) {
        linattn_case(1 + upto(9), 60 + upto(90), (heads){ 0, 1 + upto(4), 1 + upto(40) }, 0);
        linattn_case(1 + upto(9), 60 + upto(90), (heads){ 0, 1 + upto(4), 2 + 2 * upto(20) }, 1);
    }
    xd_linattn a = { .sums = operand(XD_F32, 3, (int64_t[]){ 1, 4, 4 }, 0) };
    assert_int_equal(dev->ops->linattn(dev, NULL, &a, NULL), XD_EINVAL);
}

/* The code of x in a row whose largest magnitude is `most`, as a float. */
static float code_of(float x, float most, xd_dtype type)
{
    const float r = type == XD_I8 ? rintf(x * (127.0f / most)) : x * (448.0f / most);
    return type == XD_I8 ? fminf(fmaxf(r, -127), 127) : xd_f8e4m3_f32(xd_f32_f8e4m3(r));
}

/* Codes and scales of rows, bit by bit, and the rows that become of them. */
static void code_case(heads d, xd_dtype type)
{
    double *want = numbers(d.n * d.H * d.D);
    fresh();
    heads   wide = { d.n, d.H, d.D + XD_CODE_SCALE };
    xd_code a = { .in = part(f32_or_half(), d),
                  .out = operand(type, 3, (int64_t[]){ wide.n, wide.H, wide.D }, 0) };
    remember();
    RUN(code, XD_OP_CODE, &a);
    for (int64_t r = 0; r < d.n * d.H; r++) {
        const uint8_t *c = (const uint8_t *)a.out.p + r * wide.D;
        float          most = 0, scale;
        memcpy(&scale, c + d.D, sizeof scale);
        for (int64_t j = 0; j < d.D; j++)
            most = fmaxf(most, fabsf((float)at(&a.in, r * d.D + j)));
        assert_true(scale == xd_quant_scale(type, most));
        for (int64_t j = 0; j < d.D; j++) {
            const float x = (float)at(&a.in, r * d.D + j), q = code_of(x, most, type);
            assert_true(q == (type == XD_I8 ? (float)(int8_t)c[j] : xd_f8e4m3_f32(c[j])));
            want[r * d.D + j] = (double)(q * scale);
        }
    }
    xd_code b = { .in = a.out, .out = part(f32_or_half(), d) };
    remember();
    RUN(code, XD_OP_CODE, &b);
    check("rows of codes", &b.out, want);
    free(want);
}

void test_code(void **unused)
{
    (void)unused;
    for (int i = 0; i < 2; i++) {
        const xd_dtype type = i ? XD_F8E4M3 : XD_I8;
        code_case((heads){ 5, 3, 72 }, type);
        code_case((heads){ 0, 3, 64 }, type);
        code_case((heads){ 2, 1, XD_CODE_MAX }, type);
        for (int k = 0; k < 6; k++)
            code_case((heads){ 1 + upto(9), 1 + upto(4), 1 + upto(150) }, type);
    }
    fresh();
    const float bad[] = { 1, -2, NAN, 0, 0, 0 };
    xd_tensor   in = operand(XD_F32, 3, (int64_t[]){ 2, 1, 3 }, 0);
    xd_code     a = { operand(XD_I8, 3, (int64_t[]){ 2, 1, 7 }, 0), in };
    xd_code     b = { operand(XD_F32, 3, (int64_t[]){ 2, 1, 3 }, 0), a.out };
    memcpy(in.p, bad, sizeof bad);
    RUN(code, XD_OP_CODE, &a);
    RUN(code, XD_OP_CODE, &b);
    for (int64_t i = 0; i < 6; i++)
        assert_true(i < 3 ? isnan(at(&b.out, i)) : at(&b.out, i) == 0);
    a.out.d[2] = 6;
    assert_int_equal(dev->ops->code(dev, NULL, &a, NULL), XD_EINVAL);
}

/* Rows of q, and output rows, that lie in pieces, one of them empty: no bit may differ from
 * those that lie together. */
void test_attn_pieces(void **unused)
{
    (void)unused;
    for (int r = 0; r < 12; r++) {
        int64_t  first = 1 + upto(90), rows[3] = { first, 0, 1 + upto(90) }, D = 8 * (1 + upto(32));
        int64_t  q[4] = { 1, rows[0] + rows[2], 1 + upto(3), D },
                 m[4] = { 1, 1 + upto(200), q[2], D };
        xd_dtype type = f32_or_half(), to = f32_or_half();
        xd_qo    part[3];
        fresh();
        xd_kv        kv = { operand(type, 4, m, 0), operand(type, 4, m, 0) };
        xd_attn_args a = { .q = operand(type, 4, q, 0),
                           .out = operand(to, 4, q, 0),
                           .kv = &kv,
                           .nkv = 1,
                           .scale = 0.3f };
        remember();
        RUN(attn, XD_OP_ATTN, &a);
        xd_tensor whole = a.out;
        for (int i = 0; i < 3; i++) {
            int64_t d[4] = { 1, rows[i], q[2], D };
            part[i] = (xd_qo){ operand(type, 4, d, i), operand(to, 4, d, 2 - i) };
            for (int64_t k = 0; k < xd_count(part[i].q); k++)
                set(&part[i].q, k, at(&a.q, (i ? first : 0) * q[2] * D + k));
        }
        a.part = part, a.nparts = 3;
        a.q.p = a.out.p = NULL;
        remember();
        RUN(attn, XD_OP_ATTN, &a);
        for (int i = 0; i < 3; i++)
            for (int64_t k = 0; k < xd_count(part[i].out); k++)
                assert_true(at(&part[i].out, k) == at(&whole, (i ? first : 0) * q[2] * D + k));
        part[1].q.d[1] = part[1].out.d[1] = 1;
        assert_int_equal(dev->ops->attn(dev, NULL, &a, NULL), XD_EINVAL);
    }
}

/* Rows [first, first + n) of every sample. */
static xd_tensor rows_of(xd_tensor t, int64_t first, int64_t n)
{
    t.p = (char *)t.p + first * t.s[1] * (int64_t)xd_dtype_size(t.type);
    t.d[1] = n;
    return t;
}

/* Cuts keys or values [B,m,H,D] into segments of 0, 1, 2, 3, 4, 0, ... rows. The last one lies at
 * the begin of `to`, which has the shape of `all`, and the first one at its end. */
static xd_tensor segment(const xd_tensor *all, const xd_tensor *to, int i)
{
    static const int rows_before[] = { 0, 0, 1, 3, 6 };
    const int64_t    first = i / 5 * 10 + rows_before[i % 5], n = i % 5;
    xd_tensor        from = rows_of(*all, first, n), t = rows_of(*to, all->d[1] - first - n, n);
    for (int64_t k = 0; k < xd_count(t); k++)
        set(&t, k, at(&from, k));
    return t;
}

/* More segments with keys and more samples than one launch takes, by tensor cores and without: no
 * bit differs from keys that lie together and from samples one by one. */
void test_attn_many(void **unused)
{
    enum { SEGMENTS = 57, SAMPLES = 19 }; /* 45 of them have keys */
    (void)unused;
    for (int r = 0; r < 6; r++) {
        int64_t D = r % 3 == 0 ? 64 : r % 3 == 1 ? 20 : 200;
        int64_t q[4] = { SAMPLES, 5, 2, D }, m[4] = { SAMPLES, 0, 2, D };
        int64_t len[SAMPLES];
        xd_kv   cut[SEGMENTS], kv, to;
        fresh();
        for (int i = 0; i < SEGMENTS; i++)
            m[1] += i % 5;
        kv.k = operand(r % 3 == 1 ? f32_or_half() : half(), 4, m, 0);
        kv.v = operand(kv.k.type, 4, m, 0);
        to = (xd_kv){ operand(kv.k.type, 4, m, 0), operand(kv.k.type, 4, m, 0) };
        xd_attn_args a = { .q = operand(kv.k.type, 4, q, 0),
                           .out = operand(XD_F32, 4, q, 0),
                           .lse = operand(XD_F32, 3, q, 0),
                           .kv = &kv,
                           .nkv = 1,
                           .scale = 0.3f,
                           .kv_len = r < 3 ? NULL : len };
        for (int b = 0; b < SAMPLES; b++)
            len[b] = upto(m[1] + 1);
        RUN(attn, XD_OP_ATTN, &a);
        xd_attn_args c = a;
        c.out = operand(XD_F32, 4, q, 0), c.lse = operand(XD_F32, 3, q, 0);
        c.kv = cut, c.nkv = SEGMENTS;
        for (int i = 0; i < SEGMENTS; i++)
            cut[i] = (xd_kv){ segment(&kv.k, &to.k, i), segment(&kv.v, &to.v, i) };
        RUN(attn, XD_OP_ATTN, &c);
        assert_memory_equal(a.out.p, c.out.p, xd_bytes(a.out));
        assert_memory_equal(a.lse.p, c.lse.p, xd_bytes(a.lse));
        for (int64_t b = 0; b < SAMPLES; b++) {
            xd_kv one = { xd_rows(kv.k, b, 1), xd_rows(kv.v, b, 1) };
            c.q = xd_rows(a.q, b, 1), c.kv = &one, c.nkv = 1;
            c.out = xd_rows(a.out, b, 1), c.lse = xd_rows(a.lse, b, 1);
            c.kv_len = a.kv_len ? len + b : NULL;
            memset(c.out.p, 0xff, xd_bytes(c.out));
            RUN(attn, XD_OP_ATTN, &c);
        }
        xd_tensor again = a.out;
        a.out = operand(XD_F32, 4, q, 0);
        RUN(attn, XD_OP_ATTN, &a);
        assert_memory_equal(a.out.p, again.p, xd_bytes(a.out));
    }
}
