/* test_gguf.c - GGUF files: what is read, and what is refused with which words */
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "io/safetensors.h"
#include "scratch.h"

#include "gguf_sample.h"

/* ---- a file ------------------------------------------------------------------------------- */

enum { U32 = 4, I32 = 5, TEXT = 8, LIST = 9, U16 = 2 };
enum { F32 = 0, Q8_0 = 8, Q4_K = 12, IQ2_XXS = 16 };

typedef struct bytes {
    unsigned char p[8192];
    size_t        n;
} bytes;

static void add(bytes *b, uint64_t v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        b->p[b->n++] = (unsigned char)(v >> 8 * i);
}

static void add_text(bytes *b, const char *text)
{
    add(b, strlen(text), 8);
    memcpy(b->p + b->n, text, strlen(text));
    b->n += strlen(text);
}

static void begin(bytes *b, int version, uint64_t tensors, uint64_t keys)
{
    b->n = 0;
    memcpy(b->p, "GGUF", 4);
    b->n = 4;
    add(b, (uint64_t)version, 4);
    add(b, tensors, 8);
    add(b, keys, 8);
}

static void add_key(bytes *b, const char *key, int type, uint64_t v, size_t n)
{
    add_text(b, key);
    add(b, (uint64_t)type, 4);
    add(b, v, n);
}

static void add_words(bytes *b, const char *key, const char *value)
{
    add_text(b, key);
    add(b, TEXT, 4);
    add_text(b, value);
}

/* Extents innermost first, as in the file. */
static void add_tensor(bytes *b, const char *name, int type, uint64_t d0, uint64_t d1, uint64_t at)
{
    add_text(b, name);
    add(b, 2, 4);
    add(b, d0, 8);
    add(b, d1, 8);
    add(b, (uint64_t)type, 4);
    add(b, at, 8);
}

/* The data: n bytes 0, 1, 2 ... at the next multiple of 32. */
static void add_data(bytes *b, size_t n)
{
    while (b->n % 32)
        b->p[b->n++] = 0;
    for (size_t i = 0; i < n; i++)
        b->p[b->n++] = (unsigned char)i;
}

static xd_status try_open(const char *name, xd_st **s, xd_err *e)
{
    *e = (xd_err){ 0 };
    return xd_st_open(s, in_scratch(name), "model", e);
}

static xd_st *opened(const char *name)
{
    xd_st *s;
    xd_err e;
    if (try_open(name, &s, &e) != XD_OK)
        fail_msg("%s", e.msg);
    return s;
}

static void refused_as(const char *name, xd_status code, const char *words)
{
    xd_st *s;
    xd_err e;
    assert_int_equal(try_open(name, &s, &e), code);
    assert_null(s);
    if (!strstr(e.msg, words))
        fail_msg("\"%s\" does not say \"%s\"", e.msg, words);
}

static void refused(const bytes *b, xd_status code, const char *words)
{
    scratch_put("bad.gguf", b->p, b->n);
    refused_as("bad.gguf", code, words);
}

/* ---- what is read ------------------------------------------------------------------------- */

static void check_tensor(xd_st *s, const char *name, xd_dtype type, const char *shape)
{
    char    text[96];
    int64_t i = xd_st_find(s, name);
    assert_true(i >= 0);
    xd_tensor t = xd_st_shape(s, i);
    assert_int_equal(t.type, type);
    assert_string_equal(xd_shape_text(t.nd, t.d, text, sizeof text), shape);
}

/* The file that the package gguf has written. */
static void sample_is_read(void **state)
{
    (void)state;
    float     x[64];
    xd_tensor t;
    xd_err    e = { 0 };
    scratch_put("sample.gguf", gguf_sample, sizeof gguf_sample);
    xd_st *s = opened("sample.gguf");
    assert_true(xd_st_is_gguf(s));
    assert_string_equal(xd_st_path(s), in_scratch("sample.gguf"));
    assert_int_equal(xd_st_count(s), 4);
    check_tensor(s, "a", XD_Q8_0, "2x32");
    check_tensor(s, "b", XD_Q4_K, "4x1x128");
    check_tensor(s, "c", XD_F32, "3");
    check_tensor(s, "d", XD_F16, "3x2x1");
    assert_string_equal(xd_st_dtype(s, 1), "Q4_K");
    assert_int_equal(xd_st_bytes(s), 2 * 34 + 2 * 144 + 12 + 12);
    assert_int_equal(xd_st_get(s, 0, &t, &e), XD_OK);
    xd_convert(x, XD_F32, t.p, t.type, 64);
    for (int i = 0; i < 64; i++) /* steps of 32/127 and 31/127, as f16 */
        assert_true(x[i] - (float)(i - 32) < 0.13f && (float)(i - 32) - x[i] < 0.13f);
    xd_st_done(s, 0);
    assert_int_equal(xd_st_get(s, 2, &t, &e), XD_OK);
    xd_convert(x, XD_F32, t.p, t.type, 3);
    assert_true(x[0] == 1 && x[1] == 2.5f && x[2] == -3);
    assert_string_equal(xd_st_meta(s, "general.architecture"), "flux");
    assert_string_equal(xd_st_meta(s, "some.count"), "4000000000");
    assert_string_equal(xd_st_meta(s, "some.sign"), "-7");
    assert_string_equal(xd_st_meta(s, "some.ratio"), "0.25");
    assert_string_equal(xd_st_meta(s, "some.truth"), "1");
    assert_null(xd_st_meta(s, "some.words"));
    xd_st_close(&s);
}

static void versions_and_alignment(void **state)
{
    (void)state;
    for (int version = 2; version <= 3; version++) {
        bytes     b;
        xd_tensor t;
        xd_err    e = { 0 };
        begin(&b, version, 1, 1);
        add_key(&b, "general.alignment", U32, 8, 4);
        add_tensor(&b, "x", Q8_0, 32, 2, 16);
        while (b.n % 8)
            b.p[b.n++] = 0;
        size_t data = b.n;
        for (int i = 0; i < 16 + 68; i++)
            b.p[b.n++] = (unsigned char)i;
        scratch_put("v.gguf", b.p, b.n);
        xd_st *s = opened("v.gguf");
        size_t at;
        xd_st_place(s, 0, &at);
        assert_int_equal(at, data + 16);
        assert_int_equal(xd_st_get(s, 0, &t, &e), XD_OK);
        assert_memory_equal(t.p, b.p + at, 68);
        xd_st_close(&s);
    }
}

static void five_extents_and_none(void **state)
{
    (void)state;
    bytes b;
    begin(&b, 3, 3, 0);
    add_text(&b, "five");
    add(&b, 5, 4);
    for (uint64_t i = 1; i <= 5; i++)
        add(&b, i, 8);
    add(&b, F32, 4);
    add(&b, 0, 8);
    add_text(&b, "one");
    add(&b, 0, 4);
    add(&b, F32, 4);
    add(&b, 480, 8);
    add_tensor(&b, "none", F32, 0, 7, 512);
    add_data(&b, 512);
    scratch_put("five.gguf", b.p, b.n);
    xd_st *s = opened("five.gguf");
    check_tensor(s, "five", XD_F32, "5x4x3x2x1");
    check_tensor(s, "one", XD_F32, "scalar");
    check_tensor(s, "none", XD_F32, "7x0");
    xd_st_close(&s);
}

static void hash_sees_the_header(void **state)
{
    (void)state;
    unsigned char other[sizeof gguf_sample];
    uint64_t      h[2];
    memcpy(other, gguf_sample, sizeof other);
    for (size_t i = 0; i + 4 < sizeof other; i++)
        if (!memcmp(other + i, "flux", 4))
            memcpy(other + i, "pigs", 4);
    scratch_put("h0.gguf", gguf_sample, sizeof gguf_sample);
    scratch_put("h1.gguf", other, sizeof other);
    for (int i = 0; i < 2; i++) {
        xd_st *s = opened(i ? "h1.gguf" : "h0.gguf");
        h[i] = xd_st_hash(s);
        assert_true(xd_st_hash(s) == h[i]);
        xd_st_close(&s);
    }
    assert_true(h[0] != h[1]);
}

/* ---- shards and folders ------------------------------------------------------------------- */

static void put_shard(const char *name, const char *tensor, int told)
{
    bytes b;
    begin(&b, 3, 1, 2);
    add_key(&b, "split.no", U16, 0, 2);
    add_key(&b, "split.count", U16, (uint64_t)told, 2);
    add_tensor(&b, tensor, F32, 2, 2, 0);
    add_data(&b, 16);
    scratch_put(name, b.p, b.n);
}

static void shards_are_one_file(void **state)
{
    (void)state;
    scratch_clean();
    put_shard("w-00001-of-00002.gguf", "b", 2);
    refused_as("w-00001-of-00002.gguf", XD_EIO, "w-00002-of-00002.gguf");
    put_shard("w-00002-of-00002.gguf", "a", 2);
    static const char *const by[] = { "w-00001-of-00002.gguf", "w-00002-of-00002.gguf", "" };
    for (int i = 0; i < 3; i++) { /* by each of them, and by their folder */
        xd_st *s = opened(by[i]);
        assert_int_equal(xd_st_count(s), 2);
        check_tensor(s, "a", XD_F32, "2x2");
        check_tensor(s, "b", XD_F32, "2x2");
        xd_st_close(&s);
    }
    put_shard("w-00001-of-00002.gguf", "a", 2);
    refused_as("w-00001-of-00002.gguf", XD_EFORMAT, "a exists twice");
    put_shard("w-00001-of-00002.gguf", "b", 3);
    refused_as("w-00002-of-00002.gguf", XD_EFORMAT, "one of 2 files by its name");
    put_shard("alone.gguf", "b", 3);
    refused_as("alone.gguf", XD_EFORMAT, "NAME-00001-of-00003.gguf");
}

static void folders_with_one_file(void **state)
{
    (void)state;
    scratch_clean();
    scratch_put("mmproj-x.gguf", gguf_sample, sizeof gguf_sample);
    refused_as("", XD_EIO, "has no weights");
    scratch_put("x-Q4_K.gguf", gguf_sample, sizeof gguf_sample);
    xd_st *s = opened("");
    assert_string_equal(xd_st_path(s), in_scratch("x-Q4_K.gguf"));
    xd_st_close(&s);
    scratch_put("y-Q8_0.gguf", gguf_sample, sizeof gguf_sample);
    refused_as("", XD_EUNSUPPORTED, "2 GGUF files");
    float      x[2] = { 1, 2 };
    xd_st_item one = { "x", xd_view2(x, XD_F32, 1, 2) };
    assert_int_equal(xd_st_write(in_scratch("model.safetensors"), &one, 1, 1, NULL, NULL), XD_OK);
    s = opened(""); /* the usual name goes first */
    assert_false(xd_st_is_gguf(s));
    xd_st_close(&s);
    scratch_clean();
}

/* ---- what is refused ---------------------------------------------------------------------- */

/* Every beginning of a file is refused as truncated, with both sizes. */
static void truncated(void **state)
{
    (void)state;
    char words[64];
    for (size_t n = 4; n < sizeof gguf_sample; n++) {
        if (n == sizeof gguf_sample - 1) /* the package pads the last tensor */
            n = sizeof gguf_sample;
        xd_st *s;
        xd_err e;
        scratch_put("cut.gguf", gguf_sample, n);
        xd_status st = try_open("cut.gguf", &s, &e);
        if (st == XD_OK) { /* nothing but the padding is missing */
            assert_true(n >= sizeof gguf_sample - 32);
            xd_st_close(&s);
            continue;
        }
        assert_int_equal(st, XD_EFORMAT);
        snprintf(words, sizeof words, "%zu", n);
        if (!strstr(e.msg, "truncated") || !strstr(e.msg, words))
            fail_msg("%zu bytes: %s", n, e.msg);
    }
}

static void wrong_versions(void **state)
{
    (void)state;
    bytes b;
    begin(&b, 1, 0, 0);
    refused(&b, XD_EUNSUPPORTED, "version 1: 2 and 3 are read");
    begin(&b, 4, 0, 0);
    refused(&b, XD_EUNSUPPORTED, "version 4");
    begin(&b, 3 << 24, 0, 0);
    refused(&b, XD_EUNSUPPORTED, "big-endian");
}

static void absurd_counts(void **state)
{
    (void)state;
    bytes b;
    begin(&b, 3, UINT64_MAX, 0);
    refused(&b, XD_EFORMAT, "18446744073709551615 tensors do not fit");
    begin(&b, 3, 0, UINT64_MAX / 2);
    refused(&b, XD_EFORMAT, "keys do not fit");
    begin(&b, 3, 0, 1);
    add(&b, UINT64_MAX, 8);
    add(&b, 0, 8);
    refused(&b, XD_EFORMAT, "truncated");
    begin(&b, 3, 0, 1);
    add_text(&b, "list");
    add(&b, LIST, 4);
    add(&b, I32, 4);
    add(&b, UINT64_MAX, 8);
    refused(&b, XD_EFORMAT, "truncated");
    begin(&b, 3, 1, 0);
    add_text(&b, "x");
    add(&b, 9, 4);
    add_data(&b, 64);
    refused(&b, XD_EFORMAT, "x has 9 dimensions");
    begin(&b, 3, 1, 0);
    add_tensor(&b, "x", F32, UINT64_MAX / 2, UINT64_MAX / 2, 0);
    refused(&b, XD_EFORMAT, "is too large");
    begin(&b, 3, 1, 0);
    add_tensor(&b, "x", F32, 2, 2, UINT64_MAX - 31);
    refused(&b, XD_EFORMAT, "which is too large");
}

static void wrong_values(void **state)
{
    (void)state;
    bytes b;
    begin(&b, 3, 0, 1);
    add_key(&b, "k", 13, 0, 8);
    refused(&b, XD_EFORMAT, "key k has a value of type 13");
    begin(&b, 3, 0, 1);
    add_key(&b, "general.alignment", U32, 24, 4);
    refused(&b, XD_EFORMAT, "alignment of 24 bytes");
    begin(&b, 3, 0, 1);
    add_text(&b, "nested");
    for (int i = 0; i < 6; i++) {
        add(&b, LIST, 4);
        if (i)
            add(&b, 1, 8);
    }
    add_data(&b, 64);
    refused(&b, XD_EFORMAT, "nested lists");
    begin(&b, 3, 1, 1);
    add_text(&b, "comfy.gguf.orig_shape.x");
    add(&b, LIST, 4);
    add(&b, I32, 4);
    add(&b, 2, 8);
    add(&b, 3, 4);
    add(&b, 5, 4);
    add_tensor(&b, "x", F32, 4, 4, 0);
    add_data(&b, 64);
    refused(&b, XD_EFORMAT, "orig_shape.x is not a shape of its 16 elements");
}

static void wrong_tensors(void **state)
{
    (void)state;
    bytes b;
    begin(&b, 3, 1, 0);
    add_tensor(&b, "x", IQ2_XXS, 256, 1, 0);
    add_data(&b, 66);
    refused(&b, XD_EUNSUPPORTED, "x has the type IQ2_XXS, which is not supported");
    refused(&b, XD_EUNSUPPORTED, "Q8_0, Q2_K, Q3_K, Q4_K");
    begin(&b, 3, 1, 0);
    add_tensor(&b, "x", 999, 256, 1, 0);
    refused(&b, XD_EUNSUPPORTED, "type number 999");
    begin(&b, 3, 1, 0);
    add_tensor(&b, "x", Q4_K, 32, 8, 0);
    add_data(&b, 144);
    refused(&b, XD_EFORMAT, "have 32 elements, not a multiple of 256 (Q4_K)");
    begin(&b, 3, 1, 0);
    add_tensor(&b, "x", F32, 4, 4, 4);
    add_data(&b, 128);
    refused(&b, XD_EFORMAT, "not a multiple of the alignment");
    begin(&b, 3, 2, 0);
    add_tensor(&b, "x", F32, 4, 4, 0);
    add_tensor(&b, "y", F32, 4, 4, 32);
    add_data(&b, 128);
    refused(&b, XD_EFORMAT, "tensor y begins at byte 32 of the data and overlaps");
    begin(&b, 3, 1, 0);
    add_tensor(&b, "x", F32, 4, 4, 64);
    add_data(&b, 64);
    refused(&b, XD_EFORMAT, "is truncated");
    begin(&b, 3, 2, 0);
    add_tensor(&b, "x", F32, 4, 4, 0);
    add_tensor(&b, "x", F32, 4, 4, 64);
    add_data(&b, 128);
    refused(&b, XD_EFORMAT, "x exists twice");
    begin(&b, 3, 0, 1);
    add(&b, 3, 8);
    add(&b, 'a' | 'b' << 16, 3);
    add_data(&b, 64);
    refused(&b, XD_EFORMAT, "zero byte");
}

/* A long list of words is passed over, through several buffers. */
static void vocabulary_is_passed_over(void **state)
{
    (void)state;
    enum { WORDS = 20000, EACH = 8 + 7 };
    size_t         n = 4 + 4 + 16 + 8 + 5 + 4 + 4 + 8 + WORDS * EACH + 200, at;
    unsigned char *p = calloc(n, 1);
    bytes          b;
    assert_non_null(p);
    begin(&b, 3, 1, 2);
    add_text(&b, "words");
    add(&b, LIST, 4);
    add(&b, TEXT, 4);
    add(&b, WORDS, 8);
    memcpy(p, b.p, at = b.n);
    for (int i = 0; i < WORDS; i++, at += EACH) {
        p[at] = 7;
        memcpy(p + at + 8, "a word.", 7);
    }
    b.n = 0;
    add_words(&b, "after", "them");
    add_tensor(&b, "x", F32, 1, 1, 0);
    memcpy(p + at, b.p, b.n);
    at = (at + b.n + 31) / 32 * 32;
    memcpy(p + at, &(float){ 42 }, 4);
    scratch_put("words.gguf", p, at + 4);
    free(p);
    xd_st    *s = opened("words.gguf");
    xd_tensor t;
    xd_err    e = { 0 };
    assert_string_equal(xd_st_meta(s, "after"), "them");
    assert_int_equal(xd_st_get(s, 0, &t, &e), XD_OK);
    assert_memory_equal(t.p, &(float){ 42 }, 4);
    xd_st_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sample_is_read),
        cmocka_unit_test(versions_and_alignment),
        cmocka_unit_test(five_extents_and_none),
        cmocka_unit_test(hash_sees_the_header),
        cmocka_unit_test(shards_are_one_file),
        cmocka_unit_test(folders_with_one_file),
        cmocka_unit_test(truncated),
        cmocka_unit_test(wrong_versions),
        cmocka_unit_test(absurd_counts),
        cmocka_unit_test(wrong_values),
        cmocka_unit_test(wrong_tensors),
        cmocka_unit_test(vocabulary_is_passed_over),
    };
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
