/* test_reader.c - tensors of a source as plain numbers, and rows quantized without a device: the
 * bytes that a device packs */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/par.h"
#include "exec/reader.h"

enum { ROWS = 24, COLS = 96 };

static uint8_t fp8[ROWS * COLS];
static int     gets, dones, closes;
static size_t  passed;

/* ---- a source ------------------------------------------------------------------------------- */

static int has(void *self, const char *name, xd_tensor *t)
{
    *t = xd_view2(self, XD_F8E4M3, ROWS, COLS);
    return strcmp(name, "w") == 0;
}

static xd_status get(void *self, const char *name, xd_tensor *t, xd_err *e)
{
    gets++;
    return has(self, name, t) ? XD_OK : xd_fail(e, XD_EFORMAT, "%s is missing", name);
}

static void done(void *self, const char *name)
{
    (void)self, (void)name;
    dones++;
}

static xd_status scale(void *self, const char *name, float *s, xd_err *e)
{
    (void)self, (void)name, (void)e;
    *s = 0.5f;
    return XD_OK;
}

static void past(void *self, const char *name, const void *p, size_t bytes)
{
    (void)name;
    assert_true((const char *)p == (const char *)self + passed);
    passed += bytes;
}

static int sum_has(void *self, const char *name)
{
    (void)name;
    return *(int *)self;
}

static size_t sum_takes(void *self, const char *name)
{
    (void)self, (void)name;
    return 0;
}

static xd_status sum_open(void *self, const char *name, const xd_span *span, int n, void **sum,
                          xd_err *e)
{
    (void)name, (void)e;
    assert_true(n == 1 && span->start == 0 && span->n == COLS);
    *sum = self;
    return XD_OK;
}

/* Adds the number of the row. */
static void sum_add(const void *sum, int64_t row, int64_t n, float *to, int thread)
{
    (void)sum, (void)thread;
    for (int64_t i = 0; i < n * COLS; i++)
        to[i] += (float)(row + i / COLS);
}

static void sum_close(void *sum)
{
    (void)sum;
    closes++;
}

static const xd_source_sums sums = { sum_has, sum_takes, sum_open, sum_add, sum_close };

static void numbers_with_scale_and_terms(void **state)
{
    xd_err    e = { 0 };
    int       terms;
    float     x[ROWS * COLS];
    xd_reader r;
    (void)state;
    for (int i = 0; i < ROWS * COLS; i++)
        fp8[i] = xd_f32_f8e4m3((float)(i % 13) - 6);
    for (terms = 0; terms < 2; terms++) {
        xd_source src = { .has = has,
                          .get = get,
                          .done = done,
                          .self = fp8,
                          .scale = scale,
                          .past = past,
                          .sums = &sums,
                          .sums_self = &terms };
        gets = dones = closes = 0, passed = 0;
        assert_int_equal(xd_reader_open(&r, &src, "w", &e), XD_OK);
        assert_true(r.rows == ROWS && r.cols == COLS && !xd_reader_plain(&r));
        for (int64_t row = 0; row < ROWS; row += 8) {
            xd_reader_rows(&r, row, 8, x + row * COLS, 0);
            xd_reader_past(&r, row, 8);
        }
        for (int i = 0; i < ROWS * COLS; i++)
            assert_true(x[i] == 0.5f * (float)(i % 13 - 6) + (float)(terms * (i / COLS)));
        xd_reader_close(&r);
        assert_true(gets == 1 && dones == 1 && closes == terms && passed == sizeof fp8);
    }
    xd_source bare = { .has = has, .get = get, .done = done, .self = fp8 };
    assert_int_equal(xd_reader_open(&r, &bare, "w", &e), XD_OK);
    assert_true(xd_reader_plain(&r));
    xd_reader_close(&r);
    gets = dones = 0;
    assert_int_equal(xd_reader_open(&r, &bare, "v", &e), XD_EFORMAT);
    xd_reader_close(&r);
    assert_true(gets == 1 && dones == 0);
}

/* ---- codes ---------------------------------------------------------------------------------- */

static int64_t rotate;

static void read_code(const xd_coding *c, int64_t row, int64_t column, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = c->scale(c, row) * ((const int8_t *)c->data)[row * COLS + column + i];
}

static float code_scale(const xd_coding *c, int64_t row)
{
    (void)c;
    return row == 2 ? 0 : 0.1f * (float)(row + 1);
}

static int codes_of(void *self, const char *name, xd_coding *c)
{
    *c = (xd_coding){
        .read = read_code, .scale = code_scale, .rotate = rotate, .type = XD_I8, .self = self
    };
    return strcmp(name, "w") == 0;
}

static xd_status get_codes(void *self, const char *name, xd_tensor *t, xd_err *e)
{
    (void)name, (void)e;
    *t = xd_view2(self, XD_I8, ROWS, COLS);
    return XD_OK;
}

/* Integers with a scale a row are the same integers again, also where none of a row is 127; not
 * where rows are rotated or have terms. */
static void integers_stay_what_they_are(void **state)
{
    static int8_t in[ROWS * COLS], out[COLS];
    float         x[COLS];
    int           terms = 0;
    xd_err        e = { 0 };
    xd_reader     r;
    xd_source     src = { .has = has,
                          .get = get_codes,
                          .done = done,
                          .past = past,
                          .self = in,
                          .codes = codes_of,
                          .sums = &sums,
                          .sums_self = &terms };
    (void)state;
    for (int i = 0; i < ROWS * COLS; i++)
        in[i] = (int8_t)(i % (i / COLS % 2 ? 255 : 99) - (i / COLS % 2 ? 127 : 49));
    rotate = 0, passed = 0;
    assert_int_equal(xd_reader_open(&r, &src, "w", &e), XD_OK);
    assert_true(xd_reader_keeps(&r, XD_I8) && !xd_reader_plain(&r));
    for (int64_t row = 0; row < ROWS; row++) {
        xd_reader_rows(&r, row, 1, x, 0);
        float s = xd_reader_codes(&r, row, x, out);
        xd_reader_past(&r, row, 1);
        assert_true(s == code_scale(NULL, row));
        for (int i = 0; i < COLS; i++)
            assert_int_equal(out[i], row == 2 ? 0 : in[row * COLS + i]);
    }
    assert_int_equal(passed, 0);
    xd_reader_close(&r);
    for (terms = 0; terms < 2; terms++) {
        rotate = terms ? 0 : 16;
        assert_int_equal(xd_reader_open(&r, &src, "w", &e), XD_OK);
        assert_false(xd_reader_keeps(&r, XD_I8));
        xd_reader_close(&r);
    }
}

/* ---- rows ----------------------------------------------------------------------------------- */

/* Numbers of all magnitudes, ties, a row of zeros, one below the smallest scale, and NaN. */
static void fill(float x[ROWS][COLS])
{
    uint32_t h = 7;
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++) {
            h = h * 1664525u + 1013904223u;
            x[r][c] = ((float)(h >> 8) / 16777216.0f - 0.5f) * ldexpf(1, r - 12);
        }
    for (int c = 0; c < COLS; c++) {
        x[3][c] = 0;
        x[4][c] = 1e-38f;
        x[5][c] = (float)(c - 40) + 0.5f;
    }
    x[5][0] = 127; /* the scale is 1: the others are ties */
    x[6][9] = NAN;
    x[7][9] = -INFINITY;
    x[8][9] = FLT_MAX;
}

/* Without vector units scales stand first, then rows of a multiple of 64 bytes (cpu/quant.c). */
static void the_device_packs_the_same_integers(void **state)
{
    static float x[ROWS][COLS];
    xd_err       e = { 0 };
    xd_dev      *dev;
    xd_weight    w = { .type = XD_I8,
                       .out = ROWS,
                       .in = COLS,
                       .kernel = { 1, 1, 1 },
                       .stride = { 1, 1, 1 },
                       .groups = 1 };
    int8_t       q[COLS];
    (void)state;
    fill(x);
    setenv("XDIT_ISA", "c", 1);
    assert_int_equal(xd_dev_open(&dev, "cpu", &e), XD_OK);
    size_t bytes = dev->ops->pack_size(dev, &w), row = 128, scales = 128;
    assert_int_equal(bytes, scales + ROWS * row);
    assert_non_null(w.p = aligned_alloc(64, bytes));
    assert_int_equal(dev->ops->pack_rows(dev, &w, xd_view2(x, XD_F32, ROWS, COLS), 0), XD_OK);
    for (int r = 0; r < ROWS; r++) {
        float s = xd_quantize_row(XD_I8, x[r], COLS, q), want = ((const float *)w.p)[r];
        assert_true(s == want || (isnan(s) && isnan(want)));
        assert_memory_equal(q, (const char *)w.p + scales + (size_t)r * row, COLS);
    }
    assert_true(isnan(xd_quantize_row(XD_I8, x[6], COLS, q)) && q[0] == 0);
    assert_true(xd_quantize_row(XD_I8, x[5], COLS, q) == 1 && q[1] == -38 && q[2] == -38);
    free(w.p);
    xd_dev_close(&dev);
}

static void e4m3_is_the_nearest(void **state)
{
    static float x[ROWS][COLS];
    uint8_t      q[COLS];
    (void)state;
    fill(x);
    for (int r = 9; r < ROWS; r++) {
        float s = xd_quantize_row(XD_F8E4M3, x[r], COLS, q), most = 0;
        for (int c = 0; c < COLS; c++) {
            most = fmaxf(most, fabsf(x[r][c]));
            assert_true(fabsf(xd_f8e4m3_f32(q[c]) * s - x[r][c]) <=
                        fmaxf(fabsf(x[r][c]) / 15.9f, s / 1000));
        }
        assert_true(s == most / 448.0f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_with_scale_and_terms),
        cmocka_unit_test(integers_stay_what_they_are),
        cmocka_unit_test(the_device_packs_the_same_integers),
        cmocka_unit_test(e4m3_is_the_nearest),
    };
    xd_par_set(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
