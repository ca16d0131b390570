/* test_annotate.c - control images have the pixels that OpenCV's functions compute
 * (tools/golden/cases/annotate.py).
 *
 * Edges, gray images and exact reductions are equal bit by bit. Blurred images are at most 1 of 255
 * levels off, because OpenCV rounds its kernel; reductions of sizes that are no multiple of N are
 * at most 1 level off. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/annotate.h"
#include "io/safetensors.h"

static int tolerance(const char *how)
{
    return strncmp(how, "blur", 4) == 0 || strncmp(how, "tile", 4) == 0;
}

/* Compares the control image `name`, which is "IMAGE.HOW", with the annotator's result. */
static void check_image(xd_st *st, const char *name, xd_tensor want)
{
    const char  *dot = strchr(name, '.'), *how = dot + 1;
    char         key[64];
    xd_tensor    rgb;
    xd_annotator a;
    xd_err       e = { 0 };
    snprintf(key, sizeof key, "rgb.%.*s", (int)(dot - name), name);
    int64_t i = xd_st_find(st, key), w, h;
    assert_true(i >= 0);
    assert_int_equal(xd_st_get(st, i, &rgb, NULL), XD_OK);
    h = rgb.d[0], w = rgb.d[1];
    size_t   n = (size_t)(w * h * 3);
    uint8_t *own = malloc(n);
    assert_non_null(own);
    memcpy(own, rgb.p, n);
    assert_int_equal(xd_annotator_read(&a, "how", how, (int64_t)strlen(how), &e), XD_OK);
    assert_int_equal(xd_annotate(&a, &own, &w, &h, &e), XD_OK);
    assert_int_equal(h, want.d[0]);
    assert_int_equal(w, want.d[1]);
    const uint8_t *q = want.p;
    int            worst = 0;
    for (int64_t k = 0; k < w * h * 3; k++)
        worst = abs(own[k] - q[k]) > worst ? abs(own[k] - q[k]) : worst;
    if (worst > tolerance(how))
        fail_msg("%s: %d levels off", name, worst);
    free(own);
}

static void images_are_those_of_opencv(void **state)
{
    xd_st *st;
    xd_err e = { 0 };
    int    n = 0;
    (void)state;
    if (xd_st_open(&st, "tests/golden/annotate.safetensors", "", &e) != XD_OK)
        fail_msg("%s", e.msg);
    for (int64_t i = 0; i < xd_st_count(st); i++) {
        const char *name = xd_st_name(st, i);
        xd_tensor   t;
        if (strncmp(name, "rgb.", 4) == 0)
            continue;
        assert_int_equal(xd_st_get(st, i, &t, NULL), XD_OK);
        check_image(st, name, t);
        n++;
    }
    xd_st_close(&st);
    assert_int_equal(n, 40);
}

static void bad_names_are_refused(void **state)
{
    static const char *const bad[] = { "",          "sobel",   "canny:", "canny:1", "canny:1:2:3",
                                       "canny:x:2", "gray:1",  "tile:3", "blur:0",  "canny:-1:2",
                                       "blur:nan",  "tile:128" };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        xd_annotator a;
        xd_err       e = { 0 };
        xd_status    s = xd_annotator_read(&a, "how", bad[i], (int64_t)strlen(bad[i]), &e);
        assert_int_equal(s, XD_EINVAL);
        assert_non_null(strstr(e.msg, "how"));
        assert_non_null(strstr(e.msg, bad[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(images_are_those_of_opencv),
                                        cmocka_unit_test(bad_names_are_refused) };
    return cmocka_run_group_tests_name("annotate", tests, NULL, NULL);
}
