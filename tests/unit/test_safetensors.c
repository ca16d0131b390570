/* test_safetensors.c - checkpoints: good ones and broken ones.
 *
 * Values are compared bit by bit. How they come to memory is in test_stfile.c, images are in
 * test_image.c. */
#define _XOPEN_SOURCE 700       /* P_tmpdir */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "checkpoint.h"
#include "scratch.h"

static void refused(const char *name, xd_status code, const char *why)
{
    xd_st    *s;
    xd_err    e = { 0 };
    xd_status st = xd_st_open(&s, in_scratch(name), "model", &e);
    if (st != code || !strstr(e.msg, why))
        fail_msg("%s: status %d with \"%s\", expected %d with \"%s\"", name, (int)st, e.msg,
                 (int)code, why);
    assert_null(s);
}

/* ---- writing and reading ------------------------------------------------------------------- */

static void check_f32(xd_st *s, const char *name, int n, const float *want)
{
    xd_tensor t;
    xd_err    e = { 0 };
    assert_int_equal(xd_st_get(s, xd_st_find(s, name), &t, &e), XD_OK);
    assert_int_equal(t.type, XD_F32);
    assert_int_equal(xd_count(t), n);
    assert_true(xd_contiguous(t));
    assert_memory_equal(t.p, want, (size_t)n * 4);
    xd_st_done(s, xd_st_find(s, name));
}

static void written_tensors_come_back(void **state)
{
    (void)state;
    static float      x[] = { 0, 1, 2, 3, 4, 5 };
    static double     d[] = { 0.5, -1 };
    static uint16_t   b[] = { 0x3f80, 0xc000 };
    static int64_t    l[] = { -7 };
    const char *const meta[] = { "format", "pt", "say \"x\"", "\n", NULL };
    xd_tensor         m = xd_view2(x, XD_F32, 2, 3);
    xd_st_item        items[] = {
        { "turned", xd_permute(m, (int[]){ 1, 0 }) },
        { "some", xd_cols(m, 1, 2) },
        { "d", xd_view(d, XD_F64, 1, (int64_t[]){ 2 }) },
        { "b", xd_view(b, XD_BF16, 1, (int64_t[]){ 2 }) },
        { "scalar", xd_view(l, XD_I64, 0, NULL) },
        { "none", xd_view2(x, XD_F32, 0, 3) },
        { "a \"name\"\n", m },
    };
    xd_err e = { 0 };
    for (int keep = 0; keep < 2; keep++) {
        assert_int_equal(xd_st_write(in_scratch("x.safetensors"), items, 7, keep, meta, &e), XD_OK);
        xd_st *s = opened("x.safetensors");
        assert_int_equal(xd_st_count(s), 7);
        assert_true(xd_st_mapped(s));
        for (int64_t i = 1; i < 7; i++)
            assert_true(strcmp(xd_st_name(s, i - 1), xd_st_name(s, i)) < 0);
        check_f32(s, "turned", 6, (float[]){ 0, 3, 1, 4, 2, 5 });
        check_f32(s, "some", 4, (float[]){ 1, 2, 4, 5 });
        check_f32(s, "a \"name\"\n", 6, x);
        if (!keep)
            check_f32(s, "b", 2, (float[]){ 1, -2 });
        xd_tensor t = xd_st_shape(s, xd_st_find(s, "d"));
        assert_int_equal(t.type, keep ? XD_F64 : XD_F32);
        assert_null(t.p);
        assert_int_equal(xd_st_shape(s, xd_st_find(s, "scalar")).nd, 0);
        assert_int_equal(xd_st_get(s, xd_st_find(s, "scalar"), &t, &e), XD_OK);
        assert_memory_equal(t.p, l, 8);
        assert_int_equal(xd_st_get(s, xd_st_find(s, "none"), &t, &e), XD_OK);
        assert_int_equal(xd_count(t), 0);
        int floats = 24 + 16 + 24; /* "turned", "some" and the last one */
        assert_int_equal(xd_st_bytes(s), floats + (keep ? 16 + 4 : 8 + 8) + 8);
        assert_int_equal(xd_st_find(s, "nobody"), -1);
        assert_string_equal(xd_st_dtype(s, xd_st_find(s, "scalar")), "I64");
        xd_st_close(&s);
    }
    assert_int_equal(xd_st_write(in_scratch("no/x"), items, 1, 0, NULL, &e), XD_EIO);
    assert_int_equal(scratch_clean(), 1);
}

static void long_rows_are_written(void **state)
{
    (void)state;
    enum { N = 1000 };
    static uint16_t x[2 * N];
    static float    want[2 * N];
    for (int i = 0; i < 2 * N; i++)
        want[i] = xd_bf16_f32(x[i] = (uint16_t)(i * 17 % 0x7f80));
    xd_st_item item = { "x", xd_view2(x, XD_BF16, 2, N) };
    xd_err     e = { 0 };
    assert_int_equal(xd_st_write(in_scratch("x.safetensors"), &item, 1, 0, NULL, &e), XD_OK);
    xd_st *s = opened("x.safetensors");
    check_f32(s, "x", 2 * N, want);
    xd_st_close(&s);
    assert_int_equal(xd_st_write(in_scratch("e.safetensors"), NULL, 0, 0, NULL, &e), XD_OK);
    s = opened("e.safetensors");
    assert_int_equal(xd_st_count(s), 0);
    xd_st_close(&s);
    scratch_clean();
}

/* ---- headers ------------------------------------------------------------------------------- */

static void bad_headers_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t      data;
        const char *why;
    } bad[] = {
        { "[]", 0, "not a JSON object" },
        { "{\"a\":", 0, "not JSON" },
        { "{\"a\":1}", 0, "tensor a has no shape" },
        { "{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "has no dtype" },
        { "{\"a\":{\"dtype\":4,\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "has no dtype" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "has no data_offsets" },
        { "{" T("a", "F32", "2", "0") "}", 8, "has no data_offsets" },
        { "{" T("a", "F32", "2", "8,0") "}", 8, "has no data_offsets" },
        { "{" T("a", "F32", "2", "-8,0") "}", 8, "has no data_offsets" },
        { "{" T("a", "F32", "2", "0.5,8.5") "}", 9, "no data_offsets" },
        { "{" T("a", "F32", "3", "0,8") "}", 8,
          "has 8 bytes, but its shape "
          "and dtype need 12" },
        { "{" T("a", "F32", "2", "0,9") "}", 9, "has 9 bytes" },
        { "{" T("a", "F32", "0", "0,4") "}", 4, "has 4 bytes" },
        { "{" T("a", "F32", "-2", "0,8") "}", 8, "dimension 0 of tensor a" },
        { "{" T("a", "F32", "2.5", "0,8") "}", 8, "is not a count" },
        { "{" T("a", "F32", "1e300", "0,8") "}", 8, "is not a count" },
        { "{" T("a", "F32", "NaN", "0,8") "}", 8, "is not a count" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":{\"x\":2},\"data_offsets\":[0,8]}}", 8,
          "has no shape" },
        /* 2^32 * 2^32 * 4 bytes are 0 in 64 bits. */
        { "{" T("a", "F32", "4294967296,4294967296", "0,0") "}", 0, "is too large" },
        { "{" T("a", "F32", "1099511627776,0,1099511627776", "0,0") "}", 0, "is too large" },
        { "{" T("a", "U8", "8", "0,8") "," T("b", "U8", "4", "7,11") "}", 11,
          "tensor b begins at byte 7 of the data and overlaps" },
        { "{" T("a", "U8", "8", "0,8") "," T("b", "U8", "8", "0,8") "}", 8, "overlaps another" },
        { "{" T("a", "U8", "4", "0,4") "," T("a", "U8", "4", "4,8") "}", 8, "a exists twice" },
        { "{" T("a", "Q9", "4", "0,40") "}", 8, "is truncated" },
        { "{" T("a", "U8", "8", "9007199254740984,9007199254740992") "}", 8, "is truncated" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_st("bad.safetensors", bad[i].header, bad[i].data);
        refused("bad.safetensors", XD_EFORMAT, bad[i].why);
    }
    scratch_clean();
}

static void truncated_files_name_both_sizes(void **state)
{
    (void)state;
    const char *header = "{" T("a", "F32", "100", "0,400") "}";
    size_t      h = strlen(header);
    char        why[100];
    put_st("t.safetensors", header, 400);
    for (size_t n = 8 + h + 399; n + 1 > 0; n -= n > 8 + h + 9 ? 37 : 1) {
        assert_int_equal(truncate(in_scratch("t.safetensors"), (off_t)n), 0);
        if (n < 8)
            snprintf(why, sizeof why, "truncated: it has %zu bytes", n);
        else if (n < 8 + h)
            snprintf(why, sizeof why, "needs %zu bytes, the file has %zu", 8 + h, n);
        else
            snprintf(why, sizeof why, "need %zu bytes, the file has %zu", 8 + h + 400, n);
        refused("t.safetensors", XD_EFORMAT, why);
    }
    scratch_clean();
}

static void other_kinds_of_files_are_named(void **state)
{
    (void)state;
    scratch_put("lfs.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:\n", 55);
    refused("lfs.safetensors", XD_EFORMAT, "git lfs pull");
    scratch_put("zip.bin", "PK\3\4\0\0\0\0\0\0", 10);
    refused("zip.bin", XD_EFORMAT, "save_pretrained");
    scratch_put("old.bin", "\x80\2\x8a\nl\xfc\x9c\x46\xf9\x20", 10);
    refused("old.bin", XD_EFORMAT, "save_pretrained");
    scratch_put("text", "once upon a time", 16);
    refused("text", XD_EFORMAT, "not a safetensors file");
    scratch_put("zero", "\0\0\0\0\0\0\0\0", 8);
    refused("zero", XD_EFORMAT, "not a safetensors file");
    scratch_clean();
}

static int  nwarn, ninfo;
static char last_line[4096];

static void hear(void *cookie, int level, const char *line)
{
    (void)cookie;
    nwarn += level == XD_LOG_WARN;
    ninfo += level == XD_LOG_INFO;
    snprintf(last_line, sizeof last_line, "%s", line);
}

static void gaps_are_allowed_and_said(void **state)
{
    (void)state;
    xd_tensor t;
    xd_err    e = { 0 };
    nwarn = 0;
    xd_log_enter(&(xd_logger){ hear, NULL, XD_LOG_INFO });
    put_st("gap.safetensors",
           "{" T("b", "U8", "2", "6,8") "," T("a", "F16", "2", "1,5") "," T("e", "F32", "3,0",
                                                                            "3,3") "}  ",
           10);
    xd_st *s = opened("gap.safetensors");
    xd_log_enter(NULL);
    assert_int_equal(nwarn, 1);
    assert_non_null(strstr(last_line, "4 of "));
    assert_int_equal(xd_st_get(s, xd_st_find(s, "a"), &t, &e), XD_OK);
    assert_memory_equal(t.p, "\1\2\3\4", 4);
    assert_int_equal(xd_st_get(s, xd_st_find(s, "b"), &t, &e), XD_OK);
    assert_memory_equal(t.p, "\6\7", 2);
    xd_st_close(&s);
    scratch_clean();
}

static void strange_tensors_are_refused_when_asked_for(void **state)
{
    (void)state;
    xd_tensor t;
    xd_err    e = { 0 };
    put_st("odd.safetensors",
           "{\"__metadata__\":{\"a\":\"b\"}," T("odd", "F8_E8M0", "4", "0,4") "," T(
               "deep", "U8", "1,1,1,1,2,2", "4,8") "," T("good", "BOOL", "2", "8,10") "}",
           10);
    xd_st *s = opened("odd.safetensors");
    assert_int_equal(xd_st_count(s), 3);
    assert_int_equal(xd_st_get(s, xd_st_find(s, "good"), &t, &e), XD_OK);
    assert_int_equal(t.type, XD_BOOL);
    assert_int_equal(xd_st_get(s, xd_st_find(s, "odd"), &t, &e), XD_EUNSUPPORTED);
    assert_non_null(strstr(e.msg, "tensor odd has the unsupported dtype F8_E8M0"));
    assert_string_equal(xd_st_dtype(s, xd_st_find(s, "odd")), "F8_E8M0");
    xd_err_clear(&e);
    assert_int_equal(xd_st_get(s, xd_st_find(s, "deep"), &t, &e), XD_EUNSUPPORTED);
    assert_non_null(strstr(e.msg, "6 dimensions"));
    assert_int_equal(xd_count(xd_st_shape(s, xd_st_find(s, "deep"))), 4);
    xd_st_close(&s);
    scratch_clean();
}

static void every_dtype_is_known(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        xd_dtype    type;
        int         size;
    } all[] = {
        { "F64", XD_F64, 8 },   { "F32", XD_F32, 4 },        { "F16", XD_F16, 2 },
        { "BF16", XD_BF16, 2 }, { "F8_E4M3", XD_F8E4M3, 1 }, { "F8_E5M2", XD_F8E5M2, 1 },
        { "I64", XD_I64, 8 },   { "I32", XD_I32, 4 },        { "I16", XD_I16, 2 },
        { "I8", XD_I8, 1 },     { "U8", XD_U8, 1 },          { "BOOL", XD_BOOL, 1 },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char header[200];
        snprintf(header, sizeof header, "{" T("a", "%s", "3,1", "0,%d") "}", all[i].name,
                 3 * all[i].size);
        put_st("d.safetensors", header, (size_t)(3 * all[i].size));
        xd_st *s = opened("d.safetensors");
        assert_int_equal(xd_st_shape(s, 0).type, all[i].type);
        assert_string_equal(xd_st_dtype(s, 0), all[i].name);
        xd_st_close(&s);
    }
    scratch_clean();
}

/* ---- directories --------------------------------------------------------------------------- */

static const char one[] = "{" T("a", "U8", "4", "0,4") "}";
static const char two[] = "{" T("b", "U8", "2", "0,2") "," T("c", "U8", "1", "2,3") "}";

static void put_text(const char *name, const char *text)
{
    scratch_put(name, text, strlen(text));
}

static void shards_are_one_checkpoint(void **state)
{
    (void)state;
    xd_tensor t;
    xd_err    e = { 0 };
    put_st("s1.safetensors", one, 4);
    put_st("s2.safetensors", two, 3);
    put_text("model.safetensors.index.json",
             "{\"metadata\":{\"total_size\":7},\"weight_map\":"
             "{\"c\":\"s2.safetensors\",\"a\":\"s1.safetensors\",\"b\":\"s2.safetensors\"}}");
    for (int k = 0; k < 2; k++) {
        xd_st *s = opened(k ? "model.safetensors.index.json" : "");
        assert_int_equal(xd_st_count(s), 3);
        assert_int_equal(xd_st_bytes(s), 7);
        assert_string_equal(xd_st_name(s, 2), "c");
        assert_int_equal(xd_st_get(s, 2, &t, &e), XD_OK);
        assert_memory_equal(t.p, "\2", 1);
        assert_int_equal(xd_st_get(s, 0, &t, &e), XD_OK);
        assert_memory_equal(t.p, "\0\1\2\3", 4);
        xd_st_close(&s);
    }
    /* A tensor in two files: the index says which. What it leaves out is still there. */
    put_st("s1.safetensors", "{" T("a", "U8", "4", "0,4") "," T("b", "U8", "3", "4,7") "}", 7);
    put_text("model.safetensors.index.json",
             "{\"weight_map\":{\"a\":\"s1.safetensors\",\"b\":\"s2.safetensors\"}}");
    xd_st *s = opened("");
    assert_int_equal(xd_st_count(s), 3);
    assert_int_equal(xd_st_shape(s, xd_st_find(s, "b")).d[0], 2);
    xd_st_close(&s);
    scratch_clean();
}

static void bad_indexes_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *index;
        xd_status   code;
        const char *why;
    } bad[] = {
        { "{}", XD_EFORMAT, "no weight_map" },
        { "{\"weight_map\":{}}", XD_EFORMAT, "no weight_map" },
        { "{\"weight_map\":[\"s1.safetensors\"]}", XD_EFORMAT, "no weight_map" },
        { "{\"weight_map\":{\"a\":\"../s1.safetensors\"}}", XD_EFORMAT, "not the name of a file" },
        { "{\"weight_map\":{\"a\":\"/s1.safetensors\"}}", XD_EFORMAT, "not the name of a file" },
        { "{\"weight_map\":{\"a\":\"..\"}}", XD_EFORMAT, "not the name of a file" },
        { "{\"weight_map\":{\"a\":\"\"}}", XD_EFORMAT, "not the name of a file" },
        { "{\"weight_map\":{\"a\":7}}", XD_EFORMAT, "not the name of a file" },
        { "{\"weight_map\":{\"a\":\"s1.safetensors\",\"x\":\"s9.safetensors\","
          "\"y\":\"s8.safetensors\"}}",
          XD_EIO, "2 of the 3 files" },
        { "{\"weight_map\":{\"a\":\"s1.safetensors\",\"x\":\"s1.safetensors\"}}", XD_EFORMAT,
          "tensor x is missing in s1.safetensors" },
        { "{\"weight_map\":{\"a\":\"s1.safetensors\",\"b\":\"s1.safetensors\","
          "\"c\":\"s2.safetensors\"}}",
          XD_EFORMAT, "tensor b is missing in s1.safetensors" },
        { "{\"weight_map\":", XD_EFORMAT, "not JSON" },
        { "{\"weight_map\":{\"a\":\"s1.safetensors\",\"e\":\"s3.safetensors\"}}", XD_EFORMAT,
          "truncated" },
    };
    put_st("s1.safetensors", one, 4);
    put_st("s2.safetensors", two, 3);
    put_st("s3.safetensors", one, 3);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_text("model.safetensors.index.json", bad[i].index);
        refused("", bad[i].code, bad[i].why);
    }
    scratch_clean();
}

/* The directory's files are taken away one by one, the best first. */
static void files_are_chosen(void **state)
{
    (void)state;
    static const struct {
        const char *name, *tensor;
    } order[] = {
        { "model.safetensors", "t0" },         { "model.safetensors.index.json", "t1" },
        { "model.fp16.safetensors", "t2" },    { "model.safetensors.index.fp16.json", "t3" },
        { "model.bf16.safetensors", "t4" },    { "model.bf16.safetensors.index.json", "t5" },
        { "model.non_ema.safetensors", "t6" },
    };
    enum { N = sizeof order / sizeof *order };
    for (int i = 0; i < N; i++) {
        char text[200], shard[64];
        snprintf(text, sizeof text, "{" T("t%d", "U8", "4", "0,4") "}", i);
        snprintf(shard, sizeof shard, "model-0000%d-of-00007.safetensors", i);
        put_st(strstr(order[i].name, ".json") ? shard : order[i].name, text, 4);
        snprintf(text, sizeof text, "{\"weight_map\":{\"t%d\":\"%s\"}}", i, shard);
        if (strstr(order[i].name, ".json"))
            put_text(order[i].name, text);
    }
    xd_log_enter(&(xd_logger){ hear, NULL, XD_LOG_INFO });
    for (int i = 0; i < N; i++) {
        ninfo = 0;
        xd_st *s = opened("");
        assert_string_equal(xd_st_name(s, 0), order[i].tensor);
        assert_int_equal(ninfo, i >= 2);
        assert_true(i < 2 || strstr(last_line, order[i].name));
        xd_st_close(&s);
        unlink(in_scratch(order[i].name));
    }
    xd_log_enter(NULL);
    refused("", XD_EIO, "only files like model-00001-of-00007.safetensors");
    scratch_clean();
}

static void missing_weights_are_explained(void **state)
{
    (void)state;
    static const char *const others[] = { "pytorch_model.bin", "model.pt", "x.ckpt", "x.pth" };
    refused("", XD_EIO, "neither model.safetensors nor model.safetensors.index.json");
    refused("nowhere", XD_EIO, "does not exist");
    for (int i = 0; i < 4; i++) {
        put_text(others[i], "weights");
        refused("", XD_EUNSUPPORTED, others[i]);
        refused("", XD_EUNSUPPORTED, "save_pretrained(..., safe_serialization=True)");
        scratch_clean();
    }
    assert_int_equal(symlink("blob-that-is-gone", in_scratch("model.safetensors")), 0);
    refused("", XD_EIO, "a link to a missing file");
    scratch_clean();
    assert_int_equal(mkdir(in_scratch("model.safetensors"), 0777), 0);
    refused("", XD_EIO, "not a regular file");
    scratch_clean();
}

/* ---- hash ---------------------------------------------------------------------------------- */

static uint64_t hash_of(const char *header, size_t n, size_t change)
{
    put_st("h.safetensors", header, n);
    if (change < n) {
        FILE *f = fopen(in_scratch("h.safetensors"), "r+b");
        assert_non_null(f);
        fseek(f, (long)(8 + strlen(header) + change), SEEK_SET);
        fputc((int)(~change & 255), f);
        fclose(f);
    }
    xd_st   *s = opened("h.safetensors");
    uint64_t h = xd_st_hash(s);
    xd_st_close(&s);
    return h;
}

static void hash_tells_files_apart(void **state)
{
    (void)state;
    const char *a = "{" T("a", "F16", "2,100", "0,400") "}";
    uint64_t    h = hash_of(a, 400, 400);
    assert_true(h == hash_of(a, 400, 400));
    for (size_t i = 0; i < 400; i += 19)
        assert_true(h != hash_of(a, 400, i));
    assert_true(h != hash_of("{" T("b", "F16", "2,100", "0,400") "}", 400, 400));
    assert_true(h != hash_of("{" T("a", "F16", "100,2", "0,400") "}", 400, 400));
    assert_true(h != hash_of("{" T("a", "BF16", "2,100", "0,400") "}", 400, 400));
    scratch_clean();
}

/* A file of 1000 pages and a bit: header and data are 64 pages in its hash. */
static void hash_samples_pages(void **state)
{
    (void)state;
    enum { N = 1000 * 4096 };
    const char *a = "{" T("a", "U8", "4096000", "0,4096000") "}";
    size_t      head = 8 + strlen(a), last = (head + N - 1) / 4096;
    uint64_t    h = hash_of(a, N, N);
    for (size_t i = 0; i < 64; i += 9) {
        size_t page = last * i / 63 * 4096, from = page < head ? head : page;
        size_t to = page + 4096 < head + N ? page + 4096 : head + N;
        assert_true(h != hash_of(a, N, from - head));
        assert_true(h != hash_of(a, N, to - 1 - head));
    }
    assert_true(h == hash_of(a, N, 4096 * 2)); /* the second sample is page 15 */
    assert_true(h != hash_of("{" T("a", "U8", "2048,2000", "0,4096000") "}", N, N));
    assert_true(h != hash_of("{ " T("a", "U8", "4096000", "0,4096000") "}", N, N));
    scratch_clean();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_tensors_come_back),
        cmocka_unit_test(long_rows_are_written),
        cmocka_unit_test(bad_headers_are_refused),
        cmocka_unit_test(truncated_files_name_both_sizes),
        cmocka_unit_test(other_kinds_of_files_are_named),
        cmocka_unit_test(gaps_are_allowed_and_said),
        cmocka_unit_test(strange_tensors_are_refused_when_asked_for),
        cmocka_unit_test(every_dtype_is_known),
        cmocka_unit_test(shards_are_one_checkpoint),
        cmocka_unit_test(bad_indexes_are_refused),
        cmocka_unit_test(files_are_chosen),
        cmocka_unit_test(missing_weights_are_explained),
        cmocka_unit_test(hash_tells_files_apart),
        cmocka_unit_test(hash_samples_pages),
    };
    return cmocka_run_group_tests_name("safetensors", tests, scratch_set_up, scratch_tear_down);
}
