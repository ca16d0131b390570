/* test_attn_int8.c - attention with scores of int8: in plain C, and by VNNI where the processor has
 * it. The error is that of the outputs' root mean square, relative to exact ones; how much is
 * allowed stands in each test. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "attn_problem.h"
#include "backend/cpu/attn/attn.h"
#include "base/minmax.h"
#include "base/par.h"

static const variant plain_c = { "c", xd_attn_scratch_c, xd_attn_c, XD_ISA_C, 0 };
#if defined(__x86_64__)
static const variant vnni = { "int8", xd_attn_scratch_int8, xd_attn_int8, XD_ISA_AVX512BF16, 1 };
#else
static const variant vnni = { "c", xd_attn_scratch_c, xd_attn_c, XD_ISA_C, 0 };
#endif

/* The variants that run here: plain C, and VNNI or once more plain C. */
static const variant *fast(void)
{
    return xd_isa_has(vnni.needs) && xd_isa_has_vnni() ? &vnni : &plain_c;
}

static double relative_error(const problem *p, const xd_attn_args *a)
{
    const shape *c = &p->s;
    double       off = 0, all = 0;
    for (int64_t r = 0; r < c->B * c->n * c->H; r++)
        for (int64_t d = 0; d < c->D; d++) {
            const double e = p->out[r * c->D + d],
                         x = (double)get(&a->out, r / c->H / c->n, r / c->H % c->n, r % c->H, d);
            off += (x - e) * (x - e);
            all += e * e;
        }
    return all > 0 ? sqrt(off / all) : off > 0 ? INFINITY : 0;
}

/* The relative error of outputs, and that of plain C, which has the same integers and exact
 * probabilities, in *plain; lse within `lse` of max(1, |lse|). */
static double error_of(problem *p, double lse, double *plain)
{
    const variant *all[] = { &plain_c, fast() };
    double         error[2];
    for (int i = 0; i < 2; i++) {
        p->a.int8 = 1;
        run(all[i], &p->a, p->s.out, p->s.layout);
        error[i] = relative_error(p, &p->a);
        for (int64_t r = 0; r < p->s.B * p->s.n * p->s.H; r++) {
            const int64_t H = p->s.H, n = p->s.n;
            const double  g = (double)get(&p->a.lse, r / H / n, r / H % n, r % H, 0), e = p->lse[r];
            if (isinf(e) ? g != e : !(fabs(g - e) <= lse * fmax(1, fabs(e))))
                fail_msg("%s: lse %g for %g", all[i]->name, g, e);
        }
        end(&p->a);
    }
    *plain = error[0];
    return error[1];
}

static void check_error(const shape *c, double limit)
{
    problem p;
    double  plain;
    make(&p, c);
    const double error = error_of(&p, 2e-2, &plain);
    if (!(error <= limit) || !(plain <= limit) || !(fabs(error - plain) <= 0.6 * limit))
        fail_msg("B %d n %d H %d/%d D %d m %d+%d+%d+%d: %.4f off, %.4f in plain C, %.4f allowed",
                 (int)c->B, (int)c->n, (int)c->H, (int)c->Hk, (int)c->D, (int)c->seg[0],
                 (int)c->seg[1], (int)c->seg[2], (int)c->seg[3], error, plain, limit);
    unmake(&p);
}

static const shape usual = { 1, 37, 2, 2, 64, { 70 }, XD_BF16, XD_F32, .scale = 0.125f };

/* Uniform operands: 2 % at most, of bf16 outputs too. */
static void test_head_dims(void **state)
{
    static const int64_t dims[] = { 1,  2,  8,   9,   16,  20,  31,  40,  56,  64,  72,  80,
                                    88, 96, 112, 120, 128, 160, 192, 200, 255, 256, 512, 1024 };
    (void)state;
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        shape c = usual;
        c.D = dims[i];
        c.out = i % 2 ? XD_BF16 : XD_F32;
        c.scale = 1 / sqrtf((float)c.D);
        check_error(&c, 0.02);
    }
}

static void test_lengths(void **state)
{
    static const int64_t n[] = { 0, 1, 5, 12, 95, 96, 97, 200 };
    static const int64_t m[] = { 0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 383, 384, 385, 800 };
    (void)state;
    for (size_t i = 0; i < sizeof n / sizeof *n; i++)
        for (size_t j = 0; j < sizeof m / sizeof *m; j++) {
            shape c = usual;
            c.n = n[i];
            c.H = c.Hk = 1;
            c.D = 24;
            c.seg[0] = m[j];
            check_error(&c, 0.02);
        }
}

static void test_random(void **state)
{
    (void)state;
    seed = 2026;
    for (int k = 0; k < 40; k++) {
        shape c = { .B = 1 + draw(2), .n = draw(k % 10 ? 60 : 250), .Hk = 1 + draw(3) };
        c.H = c.Hk * (1 + draw(3));
        c.D = draw(8) ? 8 + draw(120) : 8 + draw(505);
        for (int i = 0; i < MAXSEG; i++)
            c.seg[i] = draw(3) ? draw(k % 7 ? 60 : 400) : 0;
        c.type = XD_BF16;
        c.out = draw(2) ? XD_F32 : XD_BF16;
        c.len = draw(3) == 0;
        c.layout = (int)draw(3);
        c.scale = 1 / sqrtf((float)c.D);
        check_error(&c, 0.025);
    }
}

static void add_to_keys(problem *p, int64_t channel, float what)
{
    for (int64_t j = 0; j < p->m; j++)
        put(&p->k, 0, j, 0, channel, get(&p->k, 0, j, 0, channel) + what);
}

/* Channels that are large in all keys alike, as transformers have them: without the mean the keys
 * of 40 +- 2 would have steps of 0.3, here they have steps of 0.016. 2 % are allowed. */
static void test_outlier_channels(void **state)
{
    (void)state;
    problem p;
    double  plain;
    shape   c = { 1, 96, 1, 1, 64, { 700 }, XD_BF16, XD_F32, .scale = 0.125f };
    make(&p, &c);
    add_to_keys(&p, 3, 40);
    add_to_keys(&p, 41, -25);
    solve_again(&p);
    const double error = error_of(&p, 2e-2, &plain);
    if (!(error <= 0.02) || !(plain <= 0.02))
        fail_msg("%.4f off, %.4f in plain C", error, plain);
    unmake(&p);
}

/* A few keys that are 50 times as large as the others take no bits from them: scales belong to
 * keys. They get all weight of half of the queries. */
static void test_outlier_tokens(void **state)
{
    (void)state;
    problem p;
    double  plain;
    shape   c = { 1, 96, 1, 1, 64, { 700 }, XD_BF16, XD_F32, .scale = 0.125f };
    make(&p, &c);
    for (int64_t j = 100; j < 700; j += 250)
        for (int64_t d = 0; d < 64; d++)
            put(&p.k, 0, j, 0, d, 50 * get(&p.k, 0, j, 0, d));
    solve_again(&p);
    const double error = error_of(&p, 0.1, &plain);
    if (!(error <= 0.06) || !(plain <= 0.06))
        fail_msg("%.4f off, %.4f in plain C", error, plain);
    unmake(&p);
}

static const int64_t cuts[][MAXSEG] = {
    { 700, 0, 0, 0 }, { 1, 698, 0, 1 }, { 0, 256, 255, 189 }, { 333, 17, 50, 300 }
};

/* Threads, cuts of the keys and other queries change no bit. */
static void test_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        shape        c = { 1, 111, 4, 2, 72, { 700 }, XD_BF16, XD_BF16, .scale = 0.1f };
        problem      p;
        xd_attn_args a;
        seed = 5;
        make(&p, &c);
        p.a.int8 = 1;
        xd_par_set(1);
        run(fast(), &p.a, c.out, 0);
        a = p.a;
        cut(&p, cuts[i]);
        for (int threads = 1; threads <= 3; threads++) {
            xd_par_set(threads);
            run(fast(), &p.a, c.out, 0);
            assert_same_bits(&a, &p.a, 0);
            end(&p.a);
        }
        xd_attn_args some = p.a;
        some.q.p = (char *)some.q.p + (size_t)(50 * some.q.s[1]) * 2;
        some.q.d[1] = 61;
        run(fast(), &some, c.out, 0);
        assert_same_bits(&a, &some, 50);
        end(&some);
        end(&a);
        unmake(&p);
    }
    xd_par_set(2);
}

/* Keys that are all alike, queries or keys of zeros: every key has the same weight, and outputs are
 * the mean of the values, to 1e-2. */
static void test_zero_rows(void **state)
{
    (void)state;
    for (int t = 0; t < 4; t++) {
        problem p;
        double  plain;
        shape   c = { 1, 30, 1, 1, 64, { 333 }, XD_BF16, XD_F32, .scale = 0.125f };
        make(&p, &c);
        for (int64_t j = 0; j < (t == 0 ? c.n : 333); j++)
            for (int64_t d = 0; d < 64; d++)
                put(t ? &p.k : &p.a.q, 0, j, 0, d, t == 2 ? 3 : t == 3 ? (float)d : 0);
        solve_again(&p);
        const double error = error_of(&p, 2e-2, &plain);
        if (!(error <= 0.01) || !(plain <= 0.01))
            fail_msg("case %d: %.4f off, %.4f in plain C", t, error, plain);
        unmake(&p);
    }
}

/* Of the last rows of a batch no key counts: zeros, and no key's integers are read. */
static void test_no_keys(void **state)
{
    (void)state;
    problem p;
    double  plain;
    shape   c = { 2, 9, 2, 2, 40, { 70 }, XD_BF16, XD_F32, .scale = 0.125f, .len = 1 };
    make(&p, &c);
    p.len[0] = 0, p.len[1] = 33;
    solve_again(&p);
    for (int64_t j = 33; j < 70; j++) /* padding that is no number */
        for (int64_t d = 0; d < 40; d++)
            put(&p.k, 1, j, 1, d, NAN), put(&p.k, 0, j, 0, d, NAN);
    const double error = error_of(&p, 2e-2, &plain);
    assert_true(error <= 0.02 && plain <= 0.02);
    unmake(&p);
}

/* A query that is no number makes its own row none; a key makes all rows none. */
static void test_no_number(void **state)
{
    (void)state;
    static const float none[] = { NAN, INFINITY };
    const variant     *all[] = { &plain_c, fast() };
    for (int t = 0; t < 4; t++) {
        shape   c = { 1, 40, 1, 1, 72, { 400 }, XD_BF16, XD_F32, .scale = 1 };
        problem p;
        make(&p, &c);
        p.a.int8 = 1;
        xd_attn_args clean = p.a;
        run(all[t / 2], &clean, XD_F32, 0);
        put(&p.a.q, 0, 5, 0, 0, none[t % 2]);
        run(all[t / 2], &p.a, XD_F32, 0);
        for (int64_t x = 0; x < 72; x++) {
            assert_true(isnan(get(&p.a.out, 0, 5, 0, x)));
            assert_true(get(&p.a.out, 0, 6, 0, x) == get(&clean.out, 0, 6, 0, x));
        }
        end(&p.a);
        end(&clean);
        put(&p.k, 0, 200, 0, 1, none[t % 2]);
        run(all[t / 2], &p.a, XD_F32, 0);
        for (int64_t i = 0; i < c.n; i++)
            assert_true(isnan(get(&p.a.out, 0, i, 0, 0)));
        end(&p.a);
        unmake(&p);
    }
}

/* Scores far beyond what an exponent holds, and climbing from key block to key block: outputs are
 * among the values (10 % above the largest, for the rounding of sums), and plain C and VNNI agree
 * to 5 % where one key does not have all weight by less than rounding. */
static void test_large_scores(void **state)
{
    (void)state;
    static const float scale[] = { 1, 10, 1000, 1e6f, 1e-6f };
    for (int t = 0; t < 10; t++) {
        problem p;
        shape   c = { 1, 26, 1, 1, 16, { 1500 }, XD_BF16, XD_F32, .scale = scale[t / 2] };
        make(&p, &c);
        for (int64_t j = 0; j < 1500; j++)
            put(&p.k, 0, j, 0, 0, (float)j / 100);
        for (int64_t i = 0; i < c.n; i++)
            for (int64_t d = 0; d < 16; d++)
                put(&p.a.q, 0, i, 0, d, d && t % 2 ? 0 : (float)(i - 8) / 4);
        p.a.int8 = 1;
        run(&plain_c, &p.a, XD_F32, 0);
        xd_attn_args plain = p.a;
        run(fast(), &p.a, XD_F32, 0);
        double off = 0, all = 0;
        for (int64_t i = 0; i < c.n; i++)
            for (int64_t d = 0; d < 16; d++) {
                const double x = (double)get(&p.a.out, 0, i, 0, d),
                             e = (double)get(&plain.out, 0, i, 0, d);
                assert_true(fabs(x) <= 1.1);
                off += (x - e) * (x - e), all += e * e;
            }
        if (scale[t / 2] <= 1 && !(off <= 0.05 * 0.05 * all))
            fail_msg("scale %g: %.3f off", (double)c.scale, sqrt(off / all));
        end(&plain);
        end(&p.a);
        unmake(&p);
    }
}

/* Masks, biases and caps are not for these kernels, and the device computes them as without int8:
 * the same bits. */
static void test_what_is_declined(void **state)
{
    (void)state;
    xd_dev *dev = NULL;
    xd_err  e = { 0 };
    assert_int_equal(xd_dev_open(&dev, "cpu", &e), XD_OK);
    const xd_dtype type = dev->int8_attn >> XD_BF16 & 1 ? XD_BF16 : XD_F32;
    for (int t = 0; t < 6; t++) {
        problem p;
        shape   c = { 1, 60, 2, 1, 40, { 100 }, type, XD_F32, .scale = 0.2f };
        c.window = t == 1 ? 33 : 0, c.causal = t == 2, c.bias = t == 3;
        c.softcap = t == 4 ? 3 : 0, c.scale = t == 5 ? -0.2f : 0.2f;
        make(&p, &c);
        xd_tensor out[2];
        for (int i = 0; i < 2; i++) {
            p.a.int8 = i;
            p.a.out = out[i] = alloc(XD_F32, 0, 1, 60, 2, 40);
            size_t bytes = dev->ops->scratch(dev, XD_OP_ATTN, &p.a);
            void  *tmp = aligned_alloc(64, (bytes / 64 + 1) * 64);
            assert_non_null(tmp);
            assert_int_equal(dev->ops->attn(dev, NULL, &p.a, tmp), XD_OK);
            free(tmp);
        }
        const int differ = memcmp(out[0].p, out[1].p, 60 * 2 * 40 * sizeof(float)) != 0;
        assert_int_equal(differ, t == 0 && dev->int8_attn);
        drop(&out[0]), drop(&out[1]);
        unmake(&p);
    }
    xd_dev_close(&dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_head_dims),        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_random),           cmocka_unit_test(test_outlier_channels),
        cmocka_unit_test(test_outlier_tokens),   cmocka_unit_test(test_bits),
        cmocka_unit_test(test_zero_rows),        cmocka_unit_test(test_no_keys),
        cmocka_unit_test(test_no_number),        cmocka_unit_test(test_large_scores),
        cmocka_unit_test(test_what_is_declined),
    };
    xd_par_set(2);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
