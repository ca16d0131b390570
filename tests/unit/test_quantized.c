/* test_quantized.c - weights in codes of quantizers, and what is refused
 *
 * tests/golden/quantized has such weights and the numbers that they stand for. */
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

#include "exec/op.h"
#include "model/quantized.h"
#include "scratch.h"

typedef struct part {
    xd_st        *st;
    xd_quantized *q;
    xd_source     src;
    xd_dev       *dev;
} part;

/* ---- a source ------------------------------------------------------------------------------ */

static int src_has(void *self, const char *name, xd_tensor *shape)
{
    const part *p = self;
    int64_t     i = xd_st_find(p->st, name);
    if (i >= 0)
        *shape = xd_quantized_shape(p->q, p->st, i);
    return i >= 0;
}

static xd_status src_get(void *self, const char *name, xd_tensor *t, xd_err *e)
{
    const part *p = self;
    return xd_quantized_get(p->q, p->st, xd_st_find(p->st, name), t, e);
}

static void src_done(void *self, const char *name)
{
    const part *p = self;
    xd_quantized_done(p->q, p->st, xd_st_find(p->st, name));
}

static int src_codes(void *self, const char *name, xd_coding *c)
{
    const part *p = self;
    return xd_quantized_codes(p->q, xd_st_find(p->st, name), c);
}

static void open_part(part *p, const char *file)
{
    xd_err e = { 0 };
    *p = (part){ 0 };
    setenv("XDIT_ISA", "c", 1); /* whose packed form is plain rows (backend/cpu/quant.c) */
    assert_int_equal(xd_dev_open(&p->dev, "cpu", &e), XD_OK);
    assert_int_equal(xd_st_open(&p->st, file, "model", &e), XD_OK);
    assert_int_equal(xd_quantized_open(&p->q, p->st, file, &e), XD_OK);
    assert_non_null(p->q);
    assert_int_equal(xd_quantized_check(p->q, "", &e), XD_OK);
    p->src = (xd_source){
        .has = src_has, .get = src_get, .done = src_done, .self = p, .codes = src_codes
    };
}

static void close_part(part *p)
{
    xd_quantized_close(&p->q);
    xd_st_close(&p->st);
    xd_dev_close(&p->dev);
}

static const char comfy[] = "tests/golden/quantized/comfy.safetensors";
static const char nf4[] = "tests/golden/quantized/nf4.safetensors";

/* A tensor of the file as it is stored. */
static xd_tensor stored(part *p, const char *name)
{
    xd_tensor t;
    xd_err    e = { 0 };
    assert_int_equal(xd_st_get(p->st, xd_st_find(p->st, name), &t, &e), XD_OK);
    return t;
}

static xd_decl decl_of(part *p, xd_dtype blocks, xd_store **store, xd_err *e)
{
    assert_int_equal(xd_store_open(store, p->dev, e), XD_OK);
    return (xd_decl){ .visit = XD_VISIT_LOAD,
                      .dev = p->dev,
                      .type = XD_F32,
                      .blocks = blocks,
                      .src = &p->src,
                      .tp = 1,
                      .store = *store,
                      .err = e };
}

/* ---- numbers ------------------------------------------------------------------------------- */

/* The numbers of NAME.weight against want.NAME: equal, or within `most` of the largest. */
static void check_numbers(part *p, const char *name, double most)
{
    char      full[64];
    xd_tensor shape, got;
    xd_store *store;
    xd_err    e = { 0 };
    snprintf(full, sizeof full, "want.%s", name);
    const xd_tensor want = stored(p, full);
    snprintf(full, sizeof full, "%s.weight", name);
    assert_true(src_has(p, full, &shape));
    assert_int_equal(shape.nd, 2);
    assert_memory_equal(shape.d, want.d, sizeof want.d);
    xd_decl d = decl_of(p, XD_F32, &store, &e);
    xd_w_vec(&d, &got, full, 2, shape.d);
    assert_string_equal(e.msg, "");
    double gap = 0, peak = 0;
    for (int64_t i = 0; i < xd_count(want); i++) {
        float w;
        memcpy(&w, (const char *)want.p + 4 * i, 4);
        gap = fmax(gap, fabs((double)(((float *)got.p)[i] - w)));
        peak = fmax(peak, fabs((double)w));
    }
    print_message("# %s: within %.1e of %.2f\n", name, gap, peak);
    assert_true(peak > 0 && gap <= most * peak);
    xd_store_close(&store);
}

static void codes_mean_numbers(void **state)
{
    part p;
    (void)state;
    open_part(&p, comfy);
    check_numbers(&p, "row", 0);
    check_numbers(&p, "one", 0);
    check_numbers(&p, "turned", 5e-7);
    check_numbers(&p, "small", 5e-7);
    check_numbers(&p, "four", 5e-7);
    close_part(&p);
    open_part(&p, nf4);
    check_numbers(&p, "nested", 0);
    check_numbers(&p, "plain", 0);
    check_numbers(&p, "fp4", 0);
    close_part(&p);
}

/* 8-bit floats stay what they are, in a container of bytes, too. */
static void floats_keep_their_type(void **state)
{
    part      p;
    xd_tensor t;
    xd_coding c;
    (void)state;
    open_part(&p, comfy);
    assert_true(src_has(&p, "bytes.weight", &t));
    assert_int_equal(t.type, XD_F8E4M3);
    assert_false(src_codes(&p, "bytes.weight", &c));
    assert_true(src_has(&p, "float.weight", &t));
    assert_int_equal(t.type, XD_F8E4M3);
    close_part(&p);
}

/* ---- matrices ------------------------------------------------------------------------------ */

/* Packed integers and scales of a matrix against those of the file. */
static void check_integers(part *p, const char *name, xd_split split, int tp_at)
{
    char      full[64];
    xd_store *store;
    xd_lin    l;
    xd_err    e = { 0 };
    snprintf(full, sizeof full, "%s.weight", name);
    const xd_tensor q = stored(p, full);
    snprintf(full, sizeof full, "%s.weight_scale", name);
    const xd_tensor s = stored(p, full);
    xd_decl         d = decl_of(p, XD_I8, &store, &e);
    d.tp = 2, d.tp_at = tp_at;
    xd_w_linear(&d, &l, name, &(xd_linear_spec){ .in = q.d[1], .out = q.d[0], .split = split });
    assert_string_equal(e.msg, "");
    assert_int_equal(l.w.type, XD_I8);
    const int64_t half = tp_at ? 1 : 0, row0 = split == XD_COL ? half * q.d[0] / 2 : 0;
    const int64_t col0 = split == XD_ROW ? half * q.d[1] / 2 : 0;
    const char   *rows = (char *)l.w.p + (l.w.out * 4 + 63) / 64 * 64;
    for (int64_t r = 0; r < l.w.out; r++) {
        assert_memory_equal(rows + r * ((l.w.in + 63) / 64 * 64),
                            (char *)q.p + (row0 + r) * q.d[1] + col0, (size_t)l.w.in);
        assert_memory_equal((char *)l.w.p + 4 * r,
                            (char *)s.p + (xd_count(s) > 1 ? 4 * (row0 + r) : 0), 4);
    }
    xd_store_close(&store);
}

/* The integers of the file and their scales are those of the matrix, whatever part of it a rank
 * has. */
static void integers_are_kept(void **state)
{
    static const char *const names[] = { "row", "one" };
    part                     p;
    (void)state;
    open_part(&p, comfy);
    for (int i = 0; i < 2; i++)
        for (int at = 0; at < 2; at++) {
            check_integers(&p, names[i], XD_COL, at);
            check_integers(&p, names[i], XD_ROW, at);
        }
    close_part(&p);
}

/* y = x w^T with the numbers of the file and with a layer of integers: relative error of the
 * largest. Rows of x have an outlier. */
static double product_error(part *p, const char *name, xd_lin *l, int64_t col0)
{
    enum { ROWS = 8, ROOM = 4 << 20 };
    char     full[64];
    xd_arena a;
    xd_exec  x;
    void    *room = malloc(ROOM);
    assert_non_null(room);
    xd_arena_init(&a, room, ROOM);
    xd_exec_init(&x, p->dev, &a, XD_F32);
    snprintf(full, sizeof full, "want.%s", name);
    const xd_tensor want = stored(p, full);
    const int64_t   in = l->w.in, out = l->w.out;
    xd_tensor       input = xd_new_f32(&x, ROWS, in);
    for (int64_t i = 0; i < ROWS * in; i++)
        ((float *)input.p)[i] = xd_random_weight(3, (uint64_t)i) * (i % in == 7 ? 30 : 1);
    xd_tensor got = xd_linear(&x, input, l);
    double    gap = 0, peak = 0;
    for (int64_t i = 0; i < ROWS * out; i++) {
        double sum = 0;
        for (int64_t k = 0; k < in; k++) {
            float w;
            memcpy(&w, (const char *)want.p + 4 * (i % out * want.d[1] + col0 + k), 4);
            sum += (double)w * (double)((float *)input.p)[i / out * in + k];
        }
        gap = fmax(gap, fabs(sum - (double)((float *)got.p)[i]));
        peak = fmax(peak, fabs(sum));
    }
    assert_true(xd_ok(&x));
    free(room);
    return gap / peak;
}

/* A rank's columns of a matrix that was rotated: they stay rotated where the cut is between
 * groups. */
static void check_rotated(part *p, const char *name, int64_t tp, int64_t unit, int64_t rotate)
{
    for (int at = 0; at < tp; at++) {
        char      full[64];
        xd_store *store;
        xd_lin    l;
        xd_err    e = { 0 };
        xd_tensor shape;
        snprintf(full, sizeof full, "%s.weight", name);
        assert_true(src_has(p, full, &shape));
        xd_decl d = decl_of(p, XD_I8, &store, &e);
        d.tp = (int)tp, d.tp_at = at;
        xd_w_linear(&d, &l, name,
                    &(xd_linear_spec){
                        .in = shape.d[1], .out = shape.d[0], .split = XD_ROW, .unit = unit });
        assert_string_equal(e.msg, "");
        assert_int_equal(l.rotate, rotate);
        assert_int_equal(l.w.type, rotate ? XD_I8 : XD_F32);
        const double gap = product_error(p, name, &l, at * (shape.d[1] / tp));
        print_message("# %s, rank %d of %d: product within %.1e\n", name, at, (int)tp, gap);
        assert_true(gap < (rotate ? 0.02 : 1e-5));
        xd_store_close(&store);
    }
}

static void rotated_matrices_multiply(void **state)
{
    part p;
    (void)state;
    open_part(&p, comfy);
    check_rotated(&p, "turned", 1, 0, 256);
    check_rotated(&p, "turned", 2, 0, 256);
    check_rotated(&p, "turned", 4, 0, 0); /* 128 columns each */
    check_rotated(&p, "small", 1, 0, 16);
    check_rotated(&p, "four", 1, 0, 256);
    p.dev->rotates = 0;
    check_rotated(&p, "turned", 1, 0, 0);
    close_part(&p);
}

/* ---- refusals ------------------------------------------------------------------------------ */

typedef struct file {
    xd_st_item  item[8];
    int         n;
    const char *meta[3];
} file;

static void put(file *f, const char *name, xd_dtype type, int nd, int64_t a, int64_t b,
                const void *data)
{
    static char zeros[4096];
    f->item[f->n].name = name;
    f->item[f->n++].t =
        xd_view((void *)(uintptr_t)(data ? data : zeros), type, nd, (int64_t[]){ a, b });
}

static void put_text(file *f, const char *name, const char *text)
{
    put(f, name, XD_U8, 1, (int64_t)strlen(text), 1, text);
}

static void refused(const file *f, xd_status code, const char *words)
{
    xd_st        *st;
    xd_quantized *q;
    xd_err        e = { 0 };
    const char   *path = in_scratch("bad.safetensors");
    assert_int_equal(xd_st_write(path, f->item, f->n, 1, f->meta[0] ? f->meta : NULL, &e), XD_OK);
    assert_int_equal(xd_st_open(&st, path, "model", &e), XD_OK);
    xd_status s = xd_quantized_open(&q, st, "bad", &e);
    if (s == XD_OK) {
        assert_int_equal(xd_quantized_check(q, "other.", &e), XD_OK);
        s = xd_quantized_check(q, "", &e);
    }
    print_message("# %s\n", e.msg);
    assert_int_equal(s, code);
    assert_non_null(strstr(e.msg, words));
    xd_quantized_close(&q);
    xd_st_close(&st);
}

static const char int8[] = "{\"format\": \"int8_tensorwise\"}";

static void bad_formats_are_refused(void **state)
{
    (void)state;
    file f = { .n = 0 };
    put(&f, "a.weight", XD_U8, 2, 8, 8, NULL);
    put_text(&f, "a.comfy_quant", "{\"format\": \"nvfp4\"}");
    refused(&f, XD_EUNSUPPORTED, "a.weight has the format nvfp4, which is not supported");
    f.n = 1;
    put_text(&f, "a.comfy_quant", "{\"format\": \"int8_ten");
    refused(&f, XD_EFORMAT, "a.comfy_quant");
    f.n = 1;
    put_text(&f, "a.comfy_quant", "{}");
    refused(&f, XD_EFORMAT, "a.weight has no name");
    f.n = 1;
    refused(&f, XD_EUNSUPPORTED, "a.weight has the type U8 and an unknown quantization");
    f.meta[0] = "_quantization_metadata", f.meta[1] = "{\"layers\": {\"a\": ";
    refused(&f, XD_EFORMAT, "_quantization_metadata");
    f.meta[1] = "{\"layers\": {\"a\": {\"format\": \"mxfp8\"}}}";
    refused(&f, XD_EUNSUPPORTED, "format mxfp8");
    f.meta[1] = "{\"layers\": {\"a\": {\"format\": \"q4_0\"}}}";
    refused(&f, XD_EFORMAT, "a.weight has the format q4_0, but is not a matrix of blocks of 18");
    f.n = 0;
    put(&f, "a.weight", XD_U8, 2, 8, 36, NULL);
    f.meta[1] = "{\"layers\": {\"a\": {\"format\": \"q4_0\", \"convrot\": true}}}";
    refused(&f, XD_EUNSUPPORTED, "a.weight of 64 columns is rotated in groups of 256");
    f = (file){ .n = 0 };
    put(&f, "a.qweight", XD_I8, 2, 8, 8, NULL);
    put(&f, "a.wscales", XD_F32, 2, 8, 8, NULL);
    refused(&f, XD_EUNSUPPORTED, "a.qweight holds codes of SVDQuant (nunchaku), which is not");
    f.n = 1;
    refused(&f, XD_EUNSUPPORTED, "a.qweight holds codes of AWQ or GPTQ, which is not supported: ");
    f.item[0].name = "a.weight._data";
    refused(&f, XD_EUNSUPPORTED, "a.weight._data holds codes of optimum-quanto, which is not");
    f.item[0].name = "a.weight";
    put(&f, "a.SCB", XD_F32, 1, 8, 1, NULL);
    refused(&f, XD_EUNSUPPORTED, "a.weight holds 8-bit integers of bitsandbytes, which");
    f.item[0].t.type = XD_F8E4M3;
    f.item[1].name = "a.weight_scale_inv";
    refused(&f, XD_EUNSUPPORTED, "a.weight is in fp8 with block scales (weight_scale_inv)");
}

static void bad_scales_are_refused(void **state)
{
    const float bad[2] = { 1, -1 };
    (void)state;
    file f = { .n = 0 };
    put(&f, "a.weight", XD_I8, 2, 2, 8, NULL);
    put_text(&f, "a.comfy_quant", int8);
    refused(&f, XD_EFORMAT, "its scales a.weight_scale are missing");
    put(&f, "a.weight_scale", XD_F32, 1, 3, 1, NULL);
    refused(&f, XD_EFORMAT,
            "a.weight_scale has 3 elements of type F32; it must have one, or one "
            "for each of "
            "the 2 rows");
    f.n = 2;
    put(&f, "a.weight_scale", XD_F32, 2, 2, 1, bad);
    refused(&f, XD_EFORMAT, "the scale a.weight_scale has the number -1");
    f.n = 1;
    put(&f, "a.weight_scale", XD_F32, 1, 2, 1, NULL);
    put_text(&f, "a.comfy_quant", "{\"format\": \"int8_tensorwise\", \"convrot\": true}");
    refused(&f, XD_EUNSUPPORTED, "a.weight of 8 columns is rotated in groups of 256");
    f.n = 2;
    put_text(&f, "a.comfy_quant", int8);
    put(&f, "a.pre_quant_scale", XD_F32, 1, 8, 1, NULL);
    refused(&f, XD_EUNSUPPORTED, "a.pre_quant_scale smooths the inputs of the weight a.weight");
    f = (file){ .n = 0 };
    put(&f, "a.weight", XD_F32, 2, 2, 8, NULL);
    put(&f, "a.weight_scale", XD_F32, 1, 2, 1, NULL);
    put_text(&f, "a.comfy_quant", int8);
    refused(&f, XD_EFORMAT, "is not a matrix of type I8");
}

static void bad_bitsandbytes_is_refused(void **state)
{
    static const char note[] = "a.weight.quant_state.bitsandbytes__nf4";
    static const char good[] = "{\"blocksize\": 64, \"shape\": [4, 32]}";
    (void)state;
    file f = { .n = 0 };
    put(&f, "a.weight", XD_U8, 2, 64, 1, NULL);
    put_text(&f, note, "{\"blocksize\": 64, \"shape\": [4, 33]}");
    refused(&f, XD_EFORMAT, "the 64 bytes of the weight a.weight of bitsandbytes do not match");
    f.n = 1;
    put_text(&f, note, good);
    refused(&f, XD_EFORMAT, "has no tensor a.weight.absmax of 2 elements");
    put(&f, "a.weight.absmax", XD_F32, 1, 2, 1, NULL);
    refused(&f, XD_EFORMAT, "has no tensor a.weight.quant_map of 16 elements");
    f.n = 2;
    put(&f, "a.weight.absmax", XD_U8, 1, 2, 1, NULL);
    put(&f, "a.weight.quant_map", XD_F32, 1, 16, 1, NULL);
    refused(&f, XD_EFORMAT, "has no nested_blocksize");
}

static void plain_files_have_no_codes(void **state)
{
    xd_st        *st;
    xd_quantized *q;
    xd_err        e = { 0 };
    file          f = { .n = 0 };
    (void)state;
    put(&f, "a.weight", XD_F32, 2, 2, 8, NULL);
    put(&f, "tekken_model", XD_U8, 1, 8, 1, NULL);
    assert_int_equal(xd_st_write(in_scratch("plain.safetensors"), f.item, f.n, 1, NULL, &e), XD_OK);
    assert_int_equal(xd_st_open(&st, in_scratch("plain.safetensors"), "model", &e), XD_OK);
    assert_int_equal(xd_quantized_open(&q, st, "plain", &e), XD_OK);
    assert_null(q);
    assert_int_equal(xd_quantized_check(q, "", &e), XD_OK);
    xd_st_close(&st);
    assert_true(xd_quantized_is_note("x.weight_scale_2"));
    assert_true(xd_quantized_is_note("x.attn.comfy_attention.config"));
    assert_false(xd_quantized_is_note("x.weight"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_mean_numbers),          cmocka_unit_test(floats_keep_their_type),
        cmocka_unit_test(integers_are_kept),           cmocka_unit_test(rotated_matrices_multiply),
        cmocka_unit_test(bad_formats_are_refused),     cmocka_unit_test(bad_scales_are_refused),
        cmocka_unit_test(bad_bitsandbytes_is_refused), cmocka_unit_test(plain_files_have_no_codes),
    };
    if (scratch_open() != 0)
        return 1;
    int bad = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_clean();
    scratch_close();
    return bad;
}
