/* test_image_difference.c - level differences, PSNR and SSIM against the numbers of scikit-image
 * (gaussian_weights, sigma 1.5, use_sample_covariance False, data_range 255), and of images below a
 * window against the formula of the paper, computed in Python */
#include "report/image_difference.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/par.h"

/* Two images by a formula; levels of the second differ by at most k / 2. */
static void fill(uint8_t *a, uint8_t *b, int w, int h, int k)
{
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            for (int c = 0; c < 3; c++) {
                int va = (x * 7 + y * 13 + c * 40 + x * y % 11 * 9) % 256;
                int vb = va + (x * 5 + y * 3 + c) % k - k / 2;
                *a++ = (uint8_t)va;
                *b++ = (uint8_t)(vb < 0 ? 0 : vb > 255 ? 255 : vb);
            }
}

typedef struct known {
    int    w, h, k, most;
    double ssim, psnr, mean; /* psnr 0: not compared */
} known;

static const known cases[] = {
    { 31, 17, 9, 4, 0.9986622606930643, 39.94728409240102, 2.2011385199240987 },
    { 64, 48, 41, 20, 0.9718037387816558, 26.867636694111972, 9.933051215277779 },
    { 11, 11, 5, 2, 0.9994967299487971, 45.211173851742565, 1.1763085399449036 },
    { 8, 6, 9, 4, 0.9977148449766938, 0, 0 },
    { 1, 4, 9, 4, 0.9985302929662064, 0, 0 },
};

static void numbers_of_others(void **state)
{
    (void)state;
    for (int threads = 1; threads < 4; threads += 2)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            const known  *n = &cases[i];
            xd_difference d = { 0 };
            xd_err        e = { 0 };
            size_t        bytes = (size_t)(n->w * n->h) * 3;
            uint8_t      *a = malloc(bytes), *b = malloc(bytes);
            assert_non_null(a);
            assert_non_null(b);
            xd_par_set(threads);
            fill(a, b, n->w, n->h, n->k);
            assert_int_equal(xd_difference_add(&d, a, b, n->w, n->h, &e), XD_OK);
            assert_true(fabs(d.ssim - n->ssim) < 1e-12);
            assert_int_equal(d.levels, (int64_t)bytes);
            if (n->psnr > 0) {
                assert_int_equal(d.most, n->most);
                assert_true(fabs(xd_difference_psnr(&d) - n->psnr) < 1e-10);
                assert_true(fabs(d.absolute / (double)d.levels - n->mean) < 1e-12);
            }
            free(a);
            free(b);
        }
    xd_par_set(0);
}

static void equal_images(void **state)
{
    xd_difference d = { 0 };
    xd_err        e = { 0 };
    uint8_t       a[12 * 12 * 3], b[12 * 12 * 3];
    (void)state;
    fill(a, b, 12, 12, 9);
    assert_int_equal(xd_difference_add(&d, a, a, 12, 12, &e), XD_OK);
    assert_true(isinf(xd_difference_psnr(&d)) && xd_difference_psnr(&d) > 0);
    assert_true(fabs(d.ssim - 1) < 1e-12);
    assert_int_equal(d.most, 0);
    assert_int_equal(xd_difference_add(&d, a, b, 12, 12, &e), XD_OK);
    assert_int_equal(xd_difference_add(&d, b, a, 12, 12, &e), XD_OK);
    assert_int_equal(d.frames, 3);
    assert_int_equal(d.worst, 1);
}

/* Shades of the map: 0, 1, 3, 255 levels. */
static void where_they_differ(void **state)
{
    const uint8_t a[4 * 3] = { 9, 9, 9, 10, 9, 8, 7, 7, 7, 0, 0, 0 };
    const uint8_t b[4 * 3] = { 9, 9, 9, 10, 8, 8, 7, 8, 4, 0, 255, 1 };
    const uint8_t want[4] = { 0, 32, 64, 255 };
    uint8_t       map[4 * 3];
    (void)state;
    xd_difference_map(a, b, 2, 2, map);
    for (int i = 0; i < 12; i++)
        assert_int_equal(map[i], want[i / 3]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_others),
        cmocka_unit_test(equal_images),
        cmocka_unit_test(where_they_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
