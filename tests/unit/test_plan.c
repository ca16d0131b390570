/* test_plan.c - stages of a plan: their cut against brute force */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "plan/plan.h"

static uint64_t seed = 7;

static int die(int n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((seed >> 33) % (uint64_t)n);
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
        cmocka_unit_test(stages_are_the_best_there_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
