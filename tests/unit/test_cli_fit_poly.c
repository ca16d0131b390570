/* test_cli_fit_poly.c - polynomials by least squares: known ones to 1e-9 of the values, that of
 * numpy.polyfit of some noise to 1e-6 of each coefficient */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/fit_poly.h"

static void known_polynomials(void **state)
{
    static const double want[XD_FIT_POWERS] = { 498.65, -283.78, 55.86, -3.82, 0.264 };
    double              p[30][2], got[XD_FIT_POWERS];
    (void)state;
    for (int i = 0; i < 30; i++) {
        p[i][0] = 0.02 + 0.009 * i;
        p[i][1] = xd_fit_at(want, p[i][0]);
    }
    assert_true(xd_fit_poly((const double (*)[2])p, 30, got));
    for (int i = 0; i < 30; i++)
        assert_true(fabs(xd_fit_at(got, p[i][0]) - p[i][1]) < 1e-9);
    assert_true(xd_fit_poly((const double (*)[2])p, XD_FIT_POWERS, got));
    assert_true(fabs(xd_fit_explained((const double (*)[2])p, 30, want) - 1) < 1e-12);
}

/* numpy.polyfit(x, y, 4) of the same points. */
static void noisy_points(void **state)
{
    static const double p[8][2] = { { 0.1, 0.31 }, { 0.15, 0.36 }, { 0.2, 0.34 }, { 0.25, 0.47 },
                                    { 0.3, 0.41 }, { 0.4, 0.62 },  { 0.5, 0.58 }, { 0.6, 0.93 } };
    static const double want[XD_FIT_POWERS] = { 79.75643416, -102.5037701, 45.57650355,
                                                -7.290640792, 0.6941501458 };
    double              got[XD_FIT_POWERS];
    (void)state;
    assert_true(xd_fit_poly(p, 8, got));
    for (int i = 0; i < XD_FIT_POWERS; i++)
        assert_true(fabs(got[i] / want[i] - 1) < 1e-6);
    double share = xd_fit_explained(p, 8, got);
    assert_true(fabs(share - 0.945784866) < 1e-6);
}

static void no_polynomial(void **state)
{
    double p[9][2] = { { 0 } }, got[XD_FIT_POWERS];
    (void)state;
    for (int i = 0; i < 9; i++)
        p[i][0] = i % 4, p[i][1] = i;
    assert_false(xd_fit_poly((const double (*)[2])p, 9, got));
    assert_false(xd_fit_poly((const double (*)[2])p, 0, got));
    for (int i = 0; i < 9; i++)
        p[i][0] = i;
    assert_true(xd_fit_poly((const double (*)[2])p, 9, got));
    p[3][1] = (double)NAN;
    assert_false(xd_fit_poly((const double (*)[2])p, 9, got));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_polynomials),
        cmocka_unit_test(noisy_points),
        cmocka_unit_test(no_polynomial),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
