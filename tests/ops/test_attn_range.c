/* test_attn_range.c - attention's exponentials: how exact they are, and scores that leave their
 * range, or are no numbers. Tolerances are in attn_problem.h where no other is said. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "attn_problem.h"

/* Queries 0, -1/500, -2/500 .. against the keys 0 and 1: the weight of the second value, the
 * output, is e^x / (1 + e^x). */
static void two_keys(const variant *v, problem *p, const shape *c)
{
    make(p, c);
    for (int64_t i = 0; i < c->n; i++)
        for (int64_t d = 0; d < 8; d++)
            put(&p->a.q, 0, i, 0, d, d ? 0 : (float)-i / 500);
    for (int64_t d = 0; d < 8; d++) {
        put(&p->k, 0, 0, 0, d, 0), put(&p->k, 0, 1, 0, d, d ? 0 : 1);
        put(&p->v, 0, 0, 0, d, 0), put(&p->v, 0, 1, 0, d, 1);
    }
    run(v, &p->a, XD_F32, 0);
}

/* The relative error of a weight is that of the exponential and of a few roundings: 1e-6. */
static void test_exponential(void **state)
{
    const variant *v = available(state);
    if (!v)
        return;
    shape   c = { 1, 4001, 1, 1, 8, { 2 }, XD_F32, XD_F32, .scale = 1 };
    problem p;
    two_keys(v, &p, &c);
    for (int64_t i = 0; i < c.n; i++) {
        double e = exp((double)get(&p.a.q, 0, i, 0, 0)), w = e / (1 + e);
        double g = (double)get(&p.a.out, 0, i, 0, 0), l = (double)get(&p.a.lse, 0, i, 0, 0);
        if (fabs(g - w) > 1e-6 * w || fabs(l - log1p(e)) > 1e-6)
            fail_msg("at %g: %.9g for %.9g, lse %.9g for %.9g", -(double)i / 500, g, w, l,
                     log1p(e));
    }
    end(&p.a);
    unmake(&p);
}

/* The same where probabilities are bf16: rounded they are 0.17 % (rms) and at most 0.4 % off, in
 * fixed point with a table 0.23 and 0.75 %. */
static void test_short_exponential(void **state)
{
    const variant *v = available(state);
    if (!v)
        return;
    shape   c = { 1, 4001, 1, 1, 8, { 2 }, XD_BF16, XD_F32, .scale = 1 };
    problem p;
    double  squares = 0, most = 0;
    two_keys(v, &p, &c);
    for (int64_t i = 0; i < c.n; i++) {
        double g = (double)get(&p.a.out, 0, i, 0, 0), e = exp((double)get(&p.a.q, 0, i, 0, 0));
        double off = fabs(g / (1 - g) / e - 1);
        squares += off * off;
        most = off > most || !(off >= 0) ? off : most;
    }
    if (!(most < 0.008) || !(squares < (double)c.n * 0.0026 * 0.0026))
        fail_msg("%g off at most, %g (rms)", most, sqrt(squares / (double)c.n));
    end(&p.a);
    unmake(&p);
}

/* Scores of +-150 leave the range of the exponential far behind; of +-0.01 they hardly differ. */
static void test_large_scores(void **state)
{
    const variant *v = available(state);
    if (!v)
        return;
    for (int t = 0; t < 8; t++) {
        shape c = { 1, 20, 1, 1, 16, { 600 }, XD_F32, XD_F32, .scale = 1e-3f };
        c.scale = t ? 10 : 1e-3f;
        check(v, &c);
    }
}

/* Scores that climb from key block to key block, by less and by more than what a row is rescaled
 * for, and scores that fall. */
static void test_climbing_scores(void **state)
{
    const variant *v = available(state);
    if (!v)
        return;
    for (int t = 0; t < 2; t++) {
        shape   c = { 1, 26, 1, 1, 16, { 1500 }, t ? XD_BF16 : XD_F32, XD_F32, .scale = 1 };
        problem p;
        make(&p, &c);
        for (int64_t j = 0; j < 1500; j++)
            put(&p.k, 0, j, 0, 0, (float)j / 100);
        for (int64_t i = 0; i < c.n; i++)
            for (int64_t d = 0; d < 16; d++)
                put(&p.a.q, 0, i, 0, d, d ? 0 : (float)(i - 8) / 4);
        solve_again(&p);
        run(v, &p.a, c.out, 0);
        compare(&p, v, &p.a);
        end(&p.a);
        unmake(&p);
    }
}

/* A first key that scores far below or above the others, by less and by more than a float's
 * exponent holds, and late keys that differ as much again. Results are bf16: scores are large. */
static void test_low_first_score(void **state)
{
    const variant *v = available(state);
    if (!v)
        return;
    static const float low[] = { -30, -80, -150, -3000, 40, 300 };
    for (size_t t = 0; t < sizeof low / sizeof *low; t++) {
        shape   c = { 1, 70, 2, 1, 40, { 300 }, XD_BF16, XD_BF16, .scale = 1 };
        problem p;
        make(&p, &c);
        for (int64_t j = 0; j < 300; j++)
            put(&p.k, 0, j, 0, 0, j == 0 ? low[t] : j >= 200 ? -low[t] : 0);
        for (int64_t i = 0; i < c.n; i++)
            for (int64_t h = 0; h < 2; h++)
                put(&p.a.q, 0, i, h, 0, i % 3 ? 1 : 0);
        solve_again(&p);
        run(v, &p.a, c.out, 0);
        compare(&p, v, &p.a);
        end(&p.a);
        unmake(&p);
    }
}

static void test_not_a_number(void **state)
{
    const variant *v = available(state);
    if (!v)
        return;
    shape   c = { 1, 3, 1, 1, 16, { 300 }, XD_F32, XD_F32, .scale = 1 };
    problem p;
    make(&p, &c);
    put(&p.a.q, 0, 1, 0, 3, NAN);
    run(v, &p.a, XD_F32, 0);
    assert_true(isnan(get(&p.a.out, 0, 1, 0, 0)) && isnan(get(&p.a.lse, 0, 1, 0, 0)));
    assert_false(isnan(get(&p.a.out, 0, 0, 0, 0)) || isnan(get(&p.a.out, 0, 2, 0, 0)));
    end(&p.a);
    unmake(&p);
}

/* In bf16: a query or a key that is no number, of either sign, or whose score no integer holds,
 * which has all weight (1e-2). Other rows keep their bits. */
static void test_no_number_beside(void **state)
{
    const variant *v = available(state);
    if (!v)
        return;
    static const float none[] = { NAN, -NAN, INFINITY };
    for (int64_t D = 64; D <= 72; D += 8)
        for (int t = 0; t < 4; t++) {
            shape   c = { 1, 40, 1, 1, D, { 400 }, XD_BF16, XD_F32, .scale = 1 };
            problem p;
            make(&p, &c);
            for (int64_t j = 0; j < 400; j++)
                put(&p.k, 0, j, 0, 0, t == 3 && j == 300 ? 8192 : 0);
            xd_attn_args clean = p.a;
            run(v, &clean, XD_F32, 0);
            put(&p.a.q, 0, 5, 0, 0, t < 3 ? none[t] : 4096);
            run(v, &p.a, XD_F32, 0);
            for (int64_t x = 0; x < D; x++) {
                const float g = get(&p.a.out, 0, 5, 0, x);
                assert_true(t < 3 ? isnan(g) : fabsf(g - get(&p.v, 0, 300, 0, x)) < 1e-2f);
                assert_true(get(&p.a.out, 0, 6, 0, x) == get(&clean.out, 0, 6, 0, x));
            }
            end(&p.a);
            end(&clean);
            put(&p.a.q, 0, 5, 0, 0, 1);
            put(&p.k, 0, 200, 0, 1, t < 3 ? none[t] : NAN);
            run(v, &p.a, XD_F32, 0);
            for (int64_t i = 0; i < c.n; i++)
                assert_true(!isfinite(get(&p.a.out, 0, i, 0, 0)) || t == 2);
            end(&p.a);
            unmake(&p);
        }
}

static void multiply_query(const problem *p, int64_t i, float by)
{
    for (int64_t d = 0; d < p->s.D; d++)
        put(&p->a.q, 0, i, 0, d, by * get(&p->a.q, 0, i, 0, d));
}

/* In bf16: two queries whose scores leave what an exponent holds, by little and by far, also
 * where some keys are hidden. Their neighbours keep their bits. */
static void test_growing_query(void **state)
{
    const variant *v = available(state);
    if (!v)
        return;
    static const float by[] = { 2.5f, 6, 30, 300, 3000 };
    for (int t = 0; t < 30; t++) {
        shape   c = { 1, 70, 1, 1, t % 2 ? 72 : 64, { 333 }, XD_BF16, XD_F32, .scale = 0.5f };
        problem p;
        c.causal = t / 2 % 3 == 1, c.window = t / 2 % 3 == 2 ? 20 : 0;
        make(&p, &c);
        xd_attn_args clean = p.a;
        run(v, &clean, XD_F32, 0);
        multiply_query(&p, 5, by[t / 6]);
        multiply_query(&p, 40, -by[t / 6]);
        solve_again(&p);
        run(v, &p.a, XD_F32, 0);
        compare(&p, v, &p.a);
        for (int64_t i = 0; i < c.n; i++)
            for (int64_t d = 0; d < c.D && i != 5 && i != 40; d++)
                assert_true(get(&p.a.out, 0, i, 0, d) == get(&clean.out, 0, i, 0, d));
        end(&p.a);
        end(&clean);
        unmake(&p);
    }
}

/* All scores of a row are near -68, 0 or 68: what an exponent holds as they are, but not their
 * sums with values. */
static void test_far_from_zero(void **state)
{
    const variant *v = available(state);
    if (!v)
        return;
    for (int64_t D = 64; D <= 72; D += 8) {
        shape   c = { 1, 70, 1, 1, D, { 333 }, XD_BF16, XD_BF16, .scale = 1 };
        problem p;
        make(&p, &c);
        for (int64_t j = 0; j < 333; j++)
            for (int64_t d = 0; d < D; d++)
                put(&p.k, 0, j, 0, d, d ? get(&p.k, 0, j, 0, d) / 8 : 8);
        for (int64_t i = 0; i < c.n; i++)
            for (int64_t d = 0; d < D; d++)
                put(&p.a.q, 0, i, 0, d,
                    d ? get(&p.a.q, 0, i, 0, d) / 8 : (float)(i % 3 - 1) * 8.5f);
        solve_again(&p);
        run(v, &p.a, c.out, 0);
        compare(&p, v, &p.a);
        end(&p.a);
        unmake(&p);
    }
}

static const attn_test tests[] = {
    { "exponential", test_exponential },           { "short_exponential", test_short_exponential },
    { "large_scores", test_large_scores },         { "climbing_scores", test_climbing_scores },
    { "low_first_score", test_low_first_score },   { "not_a_number", test_not_a_number },
    { "no_number_beside", test_no_number_beside }, { "growing_query", test_growing_query },
    { "far_from_zero", test_far_from_zero },
};

int main(void)
{
    return run_every("attn_range", tests, sizeof tests / sizeof *tests, NULL);
}
