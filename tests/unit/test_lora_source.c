/* test_lora_source.c - rows of terms of every kind against sums in f64: all columns and some, other
 * rows, exchanged halves, several terms, stored in f32, f16 and bf16, on every instruction set of
 * this machine */
#define _XOPEN_SOURCE 700       /* setenv */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/par.h"
#include "exec/weight.h"
#include "model/component.h"
#include "model/lora.h"
#include "scratch.h"

/* The term is rows [ROW0, ROW0 + ROWS) of a module; LoKr: 19 x 7 by 9 x 19. */
enum { ROWS = 150, COLS = 133, ROW0 = 21, ALL = ROW0 + ROWS, RANK = 37, LOW = 3, NT = 12 };

static const struct {
    const char *name;
    int64_t     rows, cols;
} stored[NT] = {
    { "up", ALL, RANK }, { "down", RANK, COLS }, { "whole", ALL, COLS }, { "1a", ALL, LOW },
    { "1b", LOW, COLS }, { "2a", ALL, RANK },    { "2b", RANK, COLS },   { "k1", 19, 7 },
    { "k2a", 9, LOW },   { "k2b", LOW, 19 },     { "one.up", ALL, 1 },   { "one.down", 1, COLS },
};

static float *numbers[NT]; /* as the file has them */
static xd_st *file;

static void open_numbers(xd_dtype type)
{
    xd_st_item item[NT];
    xd_err     e = { 0 };
    for (int i = 0; i < NT; i++) {
        int64_t n = stored[i].rows * stored[i].cols;
        char   *p = malloc((size_t)n * xd_dtype_size(type));
        numbers[i] = realloc(numbers[i], (size_t)n * sizeof(float));
        assert_true(p && numbers[i]);
        for (int64_t k = 0; k < n; k++)
            numbers[i][k] = xd_random_weight((uint64_t)i, (uint64_t)k);
        xd_convert(p, type, numbers[i], XD_F32, n);
        xd_convert(numbers[i], XD_F32, p, type, n);
        item[i] = (xd_st_item){ stored[i].name, xd_view2(p, type, stored[i].rows, stored[i].cols) };
    }
    const char *path = in_scratch("terms.safetensors");
    if (xd_st_write(path, item, NT, 1, NULL, &e) != XD_OK ||
        xd_st_open(&file, path, "terms", &e) != XD_OK)
        fail_msg("%s", e.msg);
    for (int i = 0; i < NT; i++)
        free(item[i].t.p);
}

static const float *of(int64_t at)
{
    for (int i = 0; i < NT; i++)
        if (strcmp(stored[i].name, xd_st_name(file, at)) == 0)
            return numbers[i];
    fail_msg("no tensor %lld", (long long)at);
    return NULL;
}

/* Element [r, c] of a factor, in f64. */
static double factor_at(const xd_lora_factor *f, int64_t r, int64_t c)
{
    double sum = 0;
    if (f->b < 0)
        return (double)of(f->a)[r * f->cols + c];
    for (int64_t k = 0; k < f->rank; k++)
        sum += (double)of(f->a)[r * f->rank + k] * (double)of(f->b)[k * f->cols + c];
    return sum;
}

static double element_of(const xd_lora_term *t, int64_t row, int64_t c)
{
    int64_t        r = t->row0 + (t->swap ? (row + t->rows / 2) % t->rows : row);
    xd_lora_factor f = { t->up, t->down, t->rows, t->cols, t->rank };
    if (t->kind == XD_LORA_PRODUCT)
        return t->gain * factor_at(&f, r, c);
    if (t->kind == XD_LORA_HADAMARD)
        return t->gain * factor_at(&t->w[0], r, c) * factor_at(&t->w[1], r, c);
    return t->gain * factor_at(&t->w[0], r / t->w[1].rows, c / t->w[1].cols) *
           factor_at(&t->w[1], r % t->w[1].rows, c % t->w[1].cols);
}

static int64_t at(const char *name)
{
    return xd_st_find(file, name);
}

static int terms_of(xd_lora_term t[8])
{
    xd_lora_term of_any = { .file = file,
                            .row0 = ROW0,
                            .rows = ROWS,
                            .cols = COLS,
                            .up = -1,
                            .down = -1,
                            .magnitude = -1 };
    int          n = 0;
    for (int swap = 0; swap < 2; swap++) {
        t[n] = of_any;
        t[n].up = at("up"), t[n].down = at("down"), t[n].rank = RANK;
        t[n].gain = 0.3, t[n++].swap = swap;
    }
    t[n] = of_any;
    t[n].up = at("whole"), t[n++].gain = -0.7;
    t[n] = of_any;
    t[n].kind = XD_LORA_HADAMARD, t[n].gain = 0.2;
    t[n].w[0] = (xd_lora_factor){ at("1a"), at("1b"), ALL, COLS, LOW };
    t[n++].w[1] = (xd_lora_factor){ at("2a"), at("2b"), ALL, COLS, RANK };
    t[n] = of_any;
    t[n].kind = XD_LORA_KRONECKER, t[n].gain = 1.5;
    t[n].w[0] = (xd_lora_factor){ at("k1"), -1, 19, 7, 0 };
    t[n++].w[1] = (xd_lora_factor){ at("k2a"), at("k2b"), 9, 19, LOW };
    t[n] = of_any;
    t[n].up = at("one.up"), t[n].down = at("one.down"), t[n].rank = 1, t[n++].gain = 4;
    return n;
}

static int src_has(void *self, const char *name, xd_tensor *shape)
{
    (void)self;
    *shape = xd_view2(NULL, XD_F32, ROWS, COLS);
    return strcmp(name, "w.weight") == 0;
}

typedef struct adding {
    const xd_source *src;
    void            *sum;
    float           *to;
    int64_t          cols;
} adding;

static void add_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const adding *a = ctx;
    a->src->sums->add(a->sum, begin, end - begin, a->to + begin * a->cols, thread);
}

/* The rows with the columns of some spans, added to ones; malloc'ed. */
static float *add_all(const xd_source *src, const xd_span *span, int n)
{
    xd_err e = { 0 };
    adding a = { .src = src };
    for (int k = 0; k < n; k++)
        a.cols += span[k].n;
    assert_true(src->sums->has(src->sums_self, "w.weight"));
    assert_false(src->sums->has(src->sums_self, "v.weight"));
    assert_true(src->sums->takes(src->sums_self, "w.weight") > 0);
    if (src->sums->open(src->sums_self, "w.weight", span, n, &a.sum, &e) != XD_OK)
        fail_msg("%s", e.msg);
    a.to = malloc((size_t)(ROWS * a.cols) * sizeof *a.to);
    assert_non_null(a.to);
    for (int64_t i = 0; i < ROWS * a.cols; i++)
        a.to[i] = 1;
    xd_par_for(ROWS, add_rows, &a);
    src->sums->close(a.sum);
    return a.to;
}

static void compare(const xd_lora_term *t, int n)
{
    static const xd_span some[] = { { 3, 18 }, { 40, 64 }, { 130, 3 } }, all = { 0, COLS };
    xd_declared          one = { .name = "w.weight", .nd = 2, .d = { ROWS, COLS } };
    xd_weights           w = { .src = { .has = src_has } };
    xd_component         part = { .list = &one, .nlist = 1, .w = &w };
    xd_lora_src         *src = NULL;
    xd_err               e = { 0 };
    double               worst = 0, top = 0;
    if (xd_lora_src_open(&src, &part, t, n, &e) != XD_OK)
        fail_msg("%s", e.msg);
    float *x = add_all(&part.w->src, &all, 1), *y = add_all(&part.w->src, some, 3);
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < COLS; c++) {
            double want = 1;
            for (int i = 0; i < n; i++)
                want += element_of(&t[i], r, c);
            worst = fmax(worst, fabs((double)x[r * COLS + c] - want));
            top = fmax(top, fabs(want));
        }
    for (int64_t r = 0, i = 0; r < ROWS; r++)
        for (int k = 0; k < 3; k++)
            for (int64_t c = 0; c < some[k].n; c++)
                assert_memory_equal(&y[i++], &x[r * COLS + some[k].start + c], sizeof *y);
    if (!(worst <= 2e-6 * top))
        fail_msg("%.1e of the largest, at most 2e-6", worst / top);
    free(x), free(y);
    xd_lora_src_close(&src);
}

static void terms_are_those_of_f64(void **state)
{
    static const xd_dtype types[] = { XD_F32, XD_BF16, XD_F16 };
    xd_lora_term          t[8];
    (void)state;
    for (int isa = 0; isa < XD_NISAS; isa++) {
        if (!xd_isa_has((xd_isa)isa)) {
            printf("# skipped: this machine has no %s\n", xd_isa_name((xd_isa)isa));
            continue;
        }
        setenv("XDIT_ISA", xd_isa_name((xd_isa)isa), 1);
        for (int i = 0; i < 3; i++) {
            open_numbers(types[i]);
            int n = terms_of(t);
            for (int k = 0; k < n; k++)
                compare(&t[k], 1);
            compare(t, n);
            xd_st_close(&file);
        }
    }
    unsetenv("XDIT_ISA");
    for (int i = 0; i < NT; i++)
        free(numbers[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(terms_are_those_of_f64),
    };
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
