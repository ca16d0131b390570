/* test_shares.c - uneven cuts: nothing lost, nothing twice, in proportion; stages against brute
 * force */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "exec/tokens.h"
#include "plan/plan.h"

static uint64_t seed = 7;

static int die(int n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((seed >> 33) % (uint64_t)n);
}

static void parts_cover_the_whole(void **state)
{
    (void)state;
    for (int k = 0; k < 2000; k++) {
        int     n = 1 + die(9);
        int64_t at[10] = { 0 }, len = die(300), next = 5;
        for (int i = 0; i < n; i++)
            at[i + 1] = at[i] + 1 + die(32);
        for (int i = 0; i < n; i++) {
            xd_span s = xd_cut_at((xd_span){ 5, len }, i, n, at);
            double  want = (double)len * (double)(at[i + 1] - at[i]) / (double)at[n];
            assert_int_equal(s.start, next);
            assert_true(fabs((double)s.n - want) <= 1);
            next += s.n;
        }
        assert_int_equal(next, 5 + len);
    }
}

static void even_weights_are_no_weights(void **state)
{
    static const int64_t at[6] = { 0, 32, 64, 96, 128, 160 };
    (void)state;
    for (int64_t len = 0; len < 40; len++)
        for (int i = 0; i < 5; i++) {
            xd_span a = xd_cut((xd_span) { 0, len }, i, 5),
                    b = xd_cut_at((xd_span) { 0, len }, i, 5, at);
            assert_int_equal(a.start, b.start);
            assert_int_equal(a.n, b.n);
        }
}

/* Of a layout with patches, text and uneven ranks every token has one owner. */
static void tokens_have_one_owner(void **state)
{
    static const int64_t at[4] = { 0, 32, 48, 49 };
    xd_layout l = { .len = { 61, 17 }, .npatch = 3, .nsp = 3, .txt_patch = 1, .share = at };
    (void)state;
    for (int s = 0; s < 2; s++) {
        int owners[61] = { 0 };
        for (int sp = 0; sp < 3; sp++)
            for (int64_t row = 0, t; (t = xd_token(&l, (xd_stream_id)s, XD_ALL, sp, row)) >= 0;
                 row++)
                owners[t]++;
        for (int64_t t = 0; t < l.len[s]; t++)
            assert_int_equal(owners[t], 1);
    }
    assert_int_equal(xd_own(&l, XD_TXT, 1, 0).n, 11);
    assert_int_equal(xd_own(&l, XD_TXT, 0, 0).n, 0);
}

static double time_of(const double *cost, const double *speed, const double ends[2], int stages,
                      const int *cut)
{
    double worst = 0;
    for (int s = 0; s < stages; s++) {
        double sum = (s == 0 ? ends[0] : 0) + (s == stages - 1 ? ends[1] : 0);
        for (int i = cut[s]; i < cut[s + 1]; i++)
            sum += cost[i];
        worst = fmax(worst, sum / speed[s]);
    }
    return worst;
}

/* The best of all cuts of n blocks into three stages. */
static double best_of(const double *cost, int n, const double *speed, const double ends[2])
{
    double best = INFINITY;
    for (int a = 0; a <= n; a++)
        for (int b = a; b <= n; b++)
            best = fmin(best, time_of(cost, speed, ends, 3, (int[]){ 0, a, b, n }));
    return best;
}

static void stages_are_the_best_there_are(void **state)
{
    (void)state;
    for (int k = 0; k < 500; k++) {
        int    n = 1 + die(12), cut[4];
        double cost[12], speed[3], ends[2] = { die(5), die(5) };
        for (int i = 0; i < n; i++)
            cost[i] = 1 + die(9);
        for (int s = 0; s < 3; s++)
            speed[s] = (1 + die(32)) / 32.0;
        xd_plan_balance(cost, n, 3, ends[0], ends[1], speed, cut);
        double want = best_of(cost, n, speed, ends);
        assert_int_equal(cut[0], 0);
        assert_int_equal(cut[3], n);
        assert_true(time_of(cost, speed, ends, 3, cut) <= want * (1 + 1e-6));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_cover_the_whole),
        cmocka_unit_test(even_weights_are_no_weights),
        cmocka_unit_test(tokens_have_one_owner),
        cmocka_unit_test(stages_are_the_best_there_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
