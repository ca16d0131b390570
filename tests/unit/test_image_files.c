/* test_image_files.c - every image file that Pillow reads has the pixels and the size that
 * diffusers' load_image gives it (tools/golden/cases/image_files.py); what Pillow refuses is
 * refused.
 *
 * Formats with losses are at most 2 of 255 levels off, numbers of 16 bits 1, all others none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/image.h"
#include "io/safetensors.h"
#include "scratch.h"

static const uint8_t *bytes_of(xd_st *st, const char *kind, const char *name, xd_tensor *t)
{
    char key[80];
    snprintf(key, sizeof key, "%s.%s", kind, name);
    int64_t i = xd_st_find(st, key);
    if (i < 0)
        return NULL;
    assert_int_equal(xd_st_get(st, i, t, NULL), XD_OK);
    return t->p;
}

static int tolerance(const char *name)
{
    return strncmp(name, "near", 4) == 0 ? 2 : strncmp(name, "png_16", 6) == 0;
}

/* 1: as Pillow has it. */
static int check_file(xd_st *st, const char *name)
{
    xd_tensor      file, want;
    uint8_t       *rgb = NULL;
    int64_t        w = 0, h = 0, rw = 0, rh = 0;
    int            worst = 0;
    xd_err         e = { 0 };
    const uint8_t *p = bytes_of(st, "file", name, &file), *q = bytes_of(st, "rgb", name, &want);
    assert_non_null(p);
    scratch_put("odd.file", p, (size_t)file.d[0]);
    xd_status size = xd_image_size(in_scratch("odd.file"), &w, &h, &e);
    xd_err_clear(&e);
    xd_status s = xd_image_read(in_scratch("odd.file"), &rgb, &rw, &rh, &e);
    if (!q && (s != XD_EFORMAT || rgb || !strstr(e.msg, "odd.file")))
        print_error("%s is read, or refused without a sentence: \"%s\"\n", name, e.msg);
    if (!q)
        return s == XD_EFORMAT && !rgb && strstr(e.msg, "odd.file");
    if (s != XD_OK || size != XD_OK)
        print_error("%s: %s\n", name, e.msg);
    else if (rh != want.d[0] || rw != want.d[1] || w != rw || h != rh)
        print_error("%s: %lldx%lld, by its header %lldx%lld, not %lldx%lld\n", name, (long long)rw,
                    (long long)rh, (long long)w, (long long)h, (long long)want.d[1],
                    (long long)want.d[0]);
    else
        for (int64_t i = 0; i < rw * rh * 3; i++)
            worst = abs(rgb[i] - q[i]) > worst ? abs(rgb[i] - q[i]) : worst;
    if (worst > tolerance(name))
        print_error("%s: %d levels off\n", name, worst);
    free(rgb);
    return s == XD_OK && size == XD_OK && w == want.d[1] && h == want.d[0] && rw == w && rh == h &&
           worst <= tolerance(name);
}

static void files_are_read_as_by_pillow(void **state)
{
    xd_st *st;
    xd_err e = { 0 };
    int    all = 0, good = 0;
    (void)state;
    if (xd_st_open(&st, "tests/golden/image-files.safetensors", "", &e) != XD_OK)
        fail_msg("%s", e.msg);
    for (int64_t i = 0; i < xd_st_count(st); i++)
        if (strncmp(xd_st_name(st, i), "file.", 5) == 0) {
            good += check_file(st, xd_st_name(st, i) + 5);
            all++;
        }
    xd_st_close(&st);
    scratch_clean();
    assert_true(all > 100);
    assert_int_equal(good, all);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(files_are_read_as_by_pillow) };
    return cmocka_run_group_tests_name("image_files", tests, scratch_set_up, scratch_tear_down);
}
