/* test_svdquant.c - layers of SVDQuant as matrices of plain numbers, and what is refused
 *
 * tests/golden/quantized/svdquant.safetensors has layers as deepcompressor writes them for
 * nunchaku, every fifth row of the numbers that they stand for, and their biases. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/reader.h"
#include "model/quantized.h"
#include "model/svdquant.h"
#include "scratch.h"

static const char golden[] = "tests/golden/quantized/svdquant.safetensors";

/* ---- the source of the file ---------------------------------------------------------------- */

static int     gotten;    /* tensors in use */
static int64_t announced; /* elements that will be read */

static int src_has(void *self, const char *name, xd_tensor *shape)
{
    int64_t i = xd_st_find(self, name);
    if (i >= 0)
        *shape = xd_st_shape(self, i);
    return i >= 0;
}

static xd_status src_get(void *self, const char *name, xd_tensor *t, xd_err *e)
{
    xd_status s = xd_st_get(self, xd_st_find(self, name), t, e);
    gotten += s == XD_OK;
    return s;
}

static void src_done(void *self, const char *name)
{
    xd_st_done(self, xd_st_find(self, name));
    gotten--;
}

static void src_will(void *self, const char *name, int64_t first, int64_t n)
{
    int64_t i = xd_st_find(self, name);
    assert_true(i >= 0 && first >= 0 && n >= 0 && first + n <= xd_count(xd_st_shape(self, i)));
    announced += n;
}

static xd_source raw_of(xd_st *st)
{
    return (xd_source){
        .has = src_has, .get = src_get, .done = src_done, .will = src_will, .self = st
    };
}

/* ---- numbers ------------------------------------------------------------------------------- */

typedef struct opened {
    xd_st       *st;
    xd_svdquant *svd;
    xd_source    raw, src;
} opened;

static void open_golden(opened *o)
{
    xd_err e = { 0 };
    assert_int_equal(xd_st_open(&o->st, golden, "model", &e), XD_OK);
    o->raw = raw_of(o->st);
    assert_int_equal(xd_svdquant_open(&o->svd, o->st, &o->raw, golden, &e), XD_OK);
    assert_non_null(o->svd);
    o->src = xd_svdquant_source(o->svd);
}

static void close_golden(opened *o)
{
    assert_int_equal(gotten, 0);
    xd_svdquant_close(&o->svd);
    xd_st_close(&o->st);
}

static float *wanted(opened *o, const char *begin, const char *name, int64_t *n)
{
    char      full[64];
    xd_tensor t;
    xd_err    e = { 0 };
    snprintf(full, sizeof full, "%s.%s", begin, name);
    int64_t i = xd_st_find(o->st, full);
    assert_int_equal(xd_st_get(o->st, i, &t, &e), XD_OK);
    *n = xd_count(t);
    float *to = malloc((size_t)*n * sizeof *to);
    assert_non_null(to);
    memcpy(to, t.p, (size_t)*n * sizeof *to);
    xd_st_done(o->st, i);
    return to;
}

static void compare(const char *what, const float *got, const float *want, int64_t n, double most)
{
    double gap = 0, peak = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - (double)want[i]);
        gap = d > gap || isnan(d) ? d : gap;
        peak = fmax(peak, fabs((double)want[i]));
    }
    print_message("# %s: within %.1e of %.2f\n", what, gap, peak);
    assert_true(peak > 0 && gap <= most * peak);
}

/* Columns [at, at + columns) of NAME.weight against want.PART. */
static void check_matrix(opened *o, const char *name, const char *part, int64_t at, int64_t columns)
{
    xd_reader r;
    xd_err    e = { 0 };
    int64_t   n, rows;
    float    *want = wanted(o, "want", part, &n), *x = NULL;
    char      full[64];
    snprintf(full, sizeof full, "a.%s.weight", name);
    assert_int_equal(xd_reader_open(&r, &o->src, full, &e), XD_OK);
    assert_true(r.t.nd == 2 && r.t.d[1] >= at + columns && !xd_reader_plain(&r));
    rows = (r.rows + 4) / 5;
    assert_int_equal(n, rows * columns);
    assert_non_null(x = malloc((size_t)(rows * columns + r.cols) * sizeof *x));
    for (int64_t i = 0; i < rows; i++) {
        float *row = x + rows * columns;
        xd_reader_rows(&r, 5 * i, 1, row, 0);
        memcpy(x + i * columns, row + at, (size_t)columns * sizeof *x);
        /* Pieces that begin and end anywhere are the same numbers. */
        for (int64_t k = i % 7, m; k < columns; k += m) {
            float piece[64];
            m = 1 + (i + k) % 37;
            m = k + m > columns ? columns - k : m;
            r.codes.read(&r.codes, 5 * i, at + k, m, piece);
            assert_memory_equal(piece, row + at + k, (size_t)m * sizeof *piece);
        }
    }
    xd_reader_close(&r);
    compare(name, x, want, n, 1e-6);
    free(x);
    free(want);
}

/* What was shifted has biases that were rounded to bf16 after the shift was taken into them. */
static void check_bias(opened *o, const char *name, const char *part, const char *other)
{
    xd_tensor t;
    xd_err    e = { 0 };
    int64_t   n, m = 0;
    float    *want = wanted(o, "bias", part, &n), *more = NULL;
    char      full[64];
    snprintf(full, sizeof full, "a.%s.bias", name);
    assert_int_equal(o->src.get(o->src.self, full, &t, &e), XD_OK);
    assert_true(t.type == XD_F32 && t.nd == 1 && t.d[0] == n);
    if (other)
        more = wanted(o, "bias", other, &m);
    for (int64_t i = 0; i < m; i++)
        want[i] += more[i];
    compare(full, t.p, want, n, strstr(name, "fc2") ? 4e-3 : 1e-6);
    o->src.done(o->src.self, full);
    free(more);
    free(want);
}

static void layers_are_matrices(void **state)
{
    static const char *const names[] = { "qkv_proj", "out_proj", "mlp_fc2", "norm.linear",
                                         "norm1.linear" };
    static const int64_t     columns[] = { 128, 128, 256, 64, 64 };
    opened                   o;
    (void)state;
    open_golden(&o);
    for (int i = 0; i < 5; i++) {
        check_matrix(&o, names[i], names[i], 0, columns[i]);
        check_bias(&o, names[i], names[i], NULL);
    }
    close_golden(&o);
}

static void layers_stand_side_by_side(void **state)
{
    opened    o;
    xd_tensor t;
    (void)state;
    open_golden(&o);
    check_matrix(&o, "out_proj+mlp_fc2", "out_proj", 0, 128);
    check_matrix(&o, "out_proj+mlp_fc2", "mlp_fc2", 128, 256);
    check_bias(&o, "out_proj+mlp_fc2", "out_proj", "mlp_fc2");
    assert_false(o.src.has(o.src.self, "a.out_proj+qkv_proj.weight", &t)); /* other rows */
    assert_false(o.src.has(o.src.self, "a.out_proj+none.weight", &t));
    assert_false(o.src.has(o.src.self, "a.out.weight", &t));
    close_golden(&o);
}

/* Names that are no layers are those of the file; a layer's tensors are its own. */
static void other_names_pass(void **state)
{
    opened    o;
    xd_tensor t;
    xd_err    e = { 0 };
    (void)state;
    open_golden(&o);
    assert_true(o.src.has(o.src.self, "want.qkv_proj", &t));
    assert_int_equal(t.type, XD_F32);
    assert_int_equal(o.src.get(o.src.self, "want.qkv_proj", &t, &e), XD_OK);
    o.src.done(o.src.self, "want.qkv_proj");
    int64_t owned = 0;
    for (int64_t i = 0; i < xd_st_count(o.st); i++)
        owned += xd_svdquant_owns(o.svd, i);
    assert_int_equal(owned, xd_st_count(o.st) - 10);
    assert_false(xd_svdquant_owns(NULL, 0));
    announced = 0;
    o.src.will(o.src.self, "a.mlp_fc2.weight", 0, 128 * 256);
    const int64_t all = announced;
    assert_true(all >= 128 * 256 / 2 + 512 + 32 * (128 + 256));
    announced = 0;
    o.src.will(o.src.self, "a.mlp_fc2.weight", 64 * 256, 16 * 256);
    assert_true(announced > 0 && announced < all);
    o.src.will(o.src.self, "want.qkv_proj", 3, 4);
    close_golden(&o);
}

/* ---- refusals ------------------------------------------------------------------------------ */

typedef struct file {
    xd_st_item item[8];
    int        n;
} file;

static void put(file *f, const char *name, xd_dtype type, int64_t a, int64_t b)
{
    static char zeros[1 << 16];
    f->item[f->n].name = name;
    f->item[f->n++].t = xd_view(zeros, type, b ? 2 : 1, (int64_t[]){ a, b });
}

/* words NULL: it is read. */
static void opens(const file *f, xd_status code, const char *words)
{
    xd_st        *st;
    xd_svdquant  *svd;
    xd_quantized *q;
    xd_err        e = { 0 };
    const char   *path = in_scratch("bad.safetensors");
    assert_int_equal(xd_st_write(path, f->item, f->n, 1, NULL, &e), XD_OK);
    assert_int_equal(xd_st_open(&st, path, "model", &e), XD_OK);
    xd_source raw = raw_of(st);
    xd_status s = xd_svdquant_open(&svd, st, &raw, "bad", &e);
    if (words)
        print_message("# %s\n", e.msg);
    assert_int_equal(s, code);
    if (words)
        assert_non_null(strstr(e.msg, words));
    assert_true(s == XD_OK ? svd != NULL : !svd);
    assert_int_equal(xd_quantized_open(&q, st, "bad", &e), XD_OK);
    assert_null(q); /* which leaves such layers alone */
    xd_svdquant_close(&svd);
    xd_st_close(&st);
}

static file layer_of(xd_dtype scales, int64_t in, int64_t rank)
{
    file f = { .n = 0 };
    put(&f, "a.qweight", XD_I8, 128, in / 2);
    put(&f, "a.wscales", scales, in / 64, 128);
    put(&f, "a.smooth", XD_BF16, in, 0);
    put(&f, "a.bias", XD_BF16, 128, 0);
    put(&f, "a.lora_down", XD_BF16, in, rank);
    put(&f, "a.lora_up", XD_BF16, 128, rank);
    return f;
}

static void other_layers_are_refused(void **state)
{
    (void)state;
    file f = layer_of(XD_BF16, 128, 16);
    opens(&f, XD_OK, NULL);
    f.n = 4; /* without a thin product */
    opens(&f, XD_OK, NULL);
    f = layer_of(XD_F8E4M3, 128, 16);
    opens(&f, XD_EUNSUPPORTED,
          "a.qweight holds SVDQuant's 4-bit floats (nvfp4), which are "
          "not supported: use the model's file in int4");
    f = layer_of(XD_BF16, 128, 8);
    opens(&f, XD_EFORMAT, "bad: a.qweight and its scales are not a layer of SVDQuant");
    f = layer_of(XD_BF16, 64, 16);
    opens(&f, XD_EFORMAT, "not a layer of SVDQuant");
    f = layer_of(XD_BF16, 128, 16);
    f.n = 5; /* half a product */
    opens(&f, XD_EFORMAT, "not a layer of SVDQuant");
    f = layer_of(XD_BF16, 128, 16);
    f.item[1].t.d[0] = 1; /* scales of half the columns */
    opens(&f, XD_EFORMAT, "not a layer of SVDQuant");
    f = (file){ .n = 0 };
    put(&f, "a.qweight", XD_I32, 48, 32);
    put(&f, "a.wscales", XD_BF16, 1, 192);
    put(&f, "a.wzeros", XD_BF16, 1, 192);
    opens(&f, XD_OK, NULL);
    f.item[0].t.d[0] = 32;
    opens(&f, XD_EFORMAT, "not a modulation of SVDQuant with 3 or 6 outputs per feature");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_are_matrices),
        cmocka_unit_test(layers_stand_side_by_side),
        cmocka_unit_test(other_names_pass),
        cmocka_unit_test(other_layers_are_refused),
    };
    if (scratch_open() != 0)
        return 1;
    int bad = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_clean();
    scratch_close();
    return bad;
}
