/* test_json.c - documents, records read by a table, and text that is written */
#define _XOPEN_SOURCE 700        /* P_tmpdir */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "scratch.h"

#define BAD "\xef\xbf\xbd"      /* U+FFFD, for a byte that is no UTF-8 */

static xd_json *parsed(const char *text)
{
    xd_json *j;
    xd_err   e = { 0 };
    if (xd_json_parse(&j, text, strlen(text), "text", &e) != XD_OK)
        fail_msg("%s: %s", text, e.msg);
    return j;
}

static void refused(const char *text, size_t len, const char *why)
{
    xd_json *j;
    xd_err   e = { 0 };
    assert_int_equal(xd_json_parse(&j, text, len, "text", &e), XD_EFORMAT);
    assert_null(j);
    if (strncmp(e.msg, "text: ", 6) != 0 || !strstr(e.msg, why))
        fail_msg("\"%s\" is refused with \"%s\", not with \"%s\"", text, e.msg, why);
}

static void values_of_all_kinds(void **state)
{
    (void)state;
    xd_json *j = parsed("\xef\xbb\xbf {\"s\": \"a\\u00e9\\n\", \"n\": -1.5e3, \"t\": true, "
                        "\"f\":false, \"z\":null, \"l\": [1, [2], {}], "
                        "\"o\": {\"k\": 1, \"k\": 2}} \n");
    double   d = 0;
    int      b = 0;
    assert_true(xd_json_is_object(j) && !xd_json_is_list(j));
    assert_int_equal(xd_json_size(j), 7);
    assert_string_equal(xd_json_text(xd_json_get(j, "s")), "a\xc3\xa9\n");
    assert_true(xd_json_number(xd_json_get(j, "n"), &d) && d == -1500);
    assert_true(xd_json_bool(xd_json_get(j, "t"), &b) && b == 1);
    assert_true(xd_json_bool(xd_json_get(j, "f"), &b) && b == 0);
    assert_true(xd_json_null(xd_json_get(j, "z")) && xd_json_null(xd_json_get(j, "none")));
    assert_false(xd_json_null(xd_json_get(j, "f")));
    const xd_json *l = xd_json_get(j, "l");
    assert_int_equal(xd_json_size(l), 3);
    assert_true(xd_json_number(xd_json_at(xd_json_at(l, 1), 0), &d) && d == 2);
    assert_null(xd_json_at(l, 3));
    assert_null(xd_json_at(l, -1));
    assert_true(xd_json_number(xd_json_get(xd_json_get(j, "o"), "k"), &d) && d == 2);
    assert_false(xd_json_number(xd_json_get(j, "t"), &d) || xd_json_bool(xd_json_get(j, "n"), &b));
    assert_null(xd_json_text(l));
    assert_null(xd_json_get(l, "k"));
    assert_null(xd_json_get(NULL, "k"));
    xd_json_free(&j);
    assert_null(j);
    xd_json_free(&j);
}

static void walking_meets_every_member(void **state)
{
    (void)state;
    xd_json *j = parsed("{\"a\":0,\"b\":[9,9],\"c\":2,\"d\":{\"x\":1}}");
    char     keys[8] = "";
    int      i = 0;
    for (const xd_json *v = xd_json_first(j); v; v = xd_json_next(v)) {
        strcat(keys, xd_json_key(v));
        assert_ptr_equal(v, xd_json_at(j, i++));
    }
    assert_string_equal(keys, "abcd");
    assert_null(xd_json_key(j));
    assert_null(xd_json_next(j));
    assert_null(xd_json_first(xd_json_get(j, "a")));
    xd_json_free(&j);
}

static void numbers_as_python_writes_them(void **state)
{
    (void)state;
    xd_json *j = parsed("[NaN, Infinity,-Infinity, \"NaN\", \"Infinity\", [NaN], {\"NaN\":NaN}, "
                        "1e-08]");
    double   d = 0;
    assert_true(xd_json_number(xd_json_at(j, 0), &d) && isnan(d));
    assert_null(xd_json_text(xd_json_at(j, 0)));
    assert_true(xd_json_number(xd_json_at(j, 1), &d) && isinf(d) && d > 0);
    assert_true(xd_json_number(xd_json_at(j, 2), &d) && isinf(d) && d < 0);
    assert_false(xd_json_number(xd_json_at(j, 3), &d));
    assert_string_equal(xd_json_text(xd_json_at(j, 3)), "NaN");
    assert_string_equal(xd_json_text(xd_json_at(j, 4)), "Infinity");
    assert_true(xd_json_number(xd_json_at(xd_json_at(j, 5), 0), &d) && isnan(d));
    assert_true(xd_json_number(xd_json_get(xd_json_at(j, 6), "NaN"), &d) && isnan(d));
    assert_true(xd_json_number(xd_json_at(j, 7), &d) && d == 1e-8);
    xd_json_free(&j);
    j = parsed("NaN");
    assert_true(xd_json_number(j, &d) && isnan(d));
    xd_json_free(&j);
}

static void bad_texts_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } bad[] = {
        { "", "line 1" },
        { "  ", "line 1" },
        { "{", "line 1" },
        { "{\"a\":1,}", "column 8" },
        { "[1 2]", "column 4" },
        { "[1]\n x", "text after" },
        { "{} {}", "text after" },
        { "[nan]", "column 2" },
        { "[-NaN]", "column" },
        { "[12Infinity]", "column" },
        { "\"abc", "without end" },
        { "[\"a\\\"]", "without end" },
        { "[\"a\tb\"]", "control" },
        { "[\"\\u0000\"]", "NUL" },
        { "[\"\xff\"]", "UTF-8" },
        { "{\"a\" 1}", "column" },
        { "{1:2}", "column" },
        { "[\n\n1,]", "3, column 3" },
        { "tru", "column" },
        { "[1]]", "after" },
        { "[\x01]", "control" },
        { "NaNNaN", "after" },
        { "\"\\ud800\"", "line" },
        { "'a'", "column 1" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(bad[i].text, strlen(bad[i].text), bad[i].why);
    refused("[1]\0", 4, "control");
    refused("[\"\0\"]", 5, "control");
}

static void depth_is_limited(void **state)
{
    (void)state;
    char     text[129];
    xd_json *j;
    memset(text, '[', 64);
    memset(text + 64, ']', 64);
    text[128] = 0;
    j = parsed(text);
    xd_json_free(&j);
    memset(text, '[', 65);
    refused(text, 128, "64 levels");
    size_t n = 1000000;
    char  *deep = malloc(n);
    assert_non_null(deep);
    memset(deep, '[', n);
    refused(deep, n, "64 levels");
    free(deep);
}

static void files_are_named_in_errors(void **state)
{
    (void)state;
    xd_json *j;
    xd_err   e = { 0 };
    scratch_put("good.json", "{\"a\": 1}", 8);
    scratch_put("bad.json", "{\"a\": 1", 7);
    assert_int_equal(xd_json_read(&j, in_scratch("good.json"), &e), XD_OK);
    assert_int_equal(xd_json_size(j), 1);
    xd_json_free(&j);
    assert_int_equal(xd_json_read(&j, in_scratch("bad.json"), &e), XD_EFORMAT);
    assert_non_null(strstr(e.msg, "bad.json"));
    assert_null(j);
    xd_err_clear(&e);
    assert_int_equal(xd_json_read(&j, in_scratch("none.json"), &e), XD_EIO);
    assert_null(j);
    scratch_clean();
}

/* ---- records ------------------------------------------------------------------------------- */

typedef struct record {
    int      i, b;
    int64_t  l;
    float    f;
    double   d;
    char     s[XD_FIELD_TEXT];
    xd_ints  ints;
    xd_names texts;
    xd_ints  flags;
    xd_reals reals;
} record;

static const xd_field fields[] = {
    { "i", offsetof(record, i), 'i', 7, NULL },
    { "size", offsetof(record, l), 'l', 64, NULL },
    { "old_size", offsetof(record, l), 'l', 1, NULL },
    { "f", offsetof(record, f), 'f', 0.5, NULL },
    { "d", offsetof(record, d), 'd', -1, NULL },
    { "b", offsetof(record, b), 'b', 1, NULL },
    { "s", offsetof(record, s), 's', 0, "default" },
    { "ints", offsetof(record, ints), 'L', 0, NULL },
    { "texts", offsetof(record, texts), 'S', 0, NULL },
    { "flags", offsetof(record, flags), 'B', 0, NULL },
    { "reals", offsetof(record, reals), 'D', 0, NULL },
    { "known", 0, '-', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

static xd_status read_record(record *r, const char *text, xd_err *e)
{
    xd_json  *j = parsed(text);
    xd_status st = xd_fields_read(fields, r, j, "config", e);
    xd_json_free(&j);
    return st;
}

static void defaults_stand(void **state)
{
    (void)state;
    static const char *const none[] = { NULL, "{}",
                                        "{\"i\":null,\"size\":null,\"old_size\":null,"
                                        "\"f\":null,\"d\":null,\"b\":null,\"s\":null,\"ints\":null,"
                                        "\"texts\":null}" };
    for (int k = 0; k < 3; k++) {
        record r;
        xd_err e = { 0 };
        memset(&r, 0x55, sizeof r);
        assert_int_equal(none[k] ? read_record(&r, none[k], &e)
                                 : xd_fields_read(fields, &r, NULL, "config", &e),
                         XD_OK);
        assert_true(r.i == 7 && r.l == 64 && r.f == 0.5f && r.d == -1.0 && r.b == 1);
        assert_string_equal(r.s, "default");
        assert_true(r.ints.n == 0 && r.texts.n == 0 && r.flags.n == 0 && r.reals.n == 0);
    }
}

static void all_kinds_are_read(void **state)
{
    (void)state;
    record r;
    xd_err e = { 0 };
    assert_int_equal(read_record(&r,
                                 "{\"i\": -3.0, \"size\": 9007199254740992, \"f\": 1e-6, "
                                 "\"d\": 0.1, \"b\": false, \"s\": \"text\", \"ints\": [1, 2, -3], "
                                 "\"texts\": [\"a\", \"\"], \"flags\": [false, true], "
                                 "\"reals\": [0.5, -2, 1e-3], "
                                 "\"known\": {\"x\": []}, \"new\": 1}",
                                 &e),
                     XD_OK);
    assert_true(r.i == -3 && r.l == 9007199254740992 && r.f == 1e-6f && r.d == 0.1 && r.b == 0);
    assert_string_equal(r.s, "text");
    assert_true(r.ints.n == 3 && r.ints.v[2] == -3);
    assert_true(r.flags.n == 2 && r.flags.v[0] == 0 && r.flags.v[1] == 1);
    assert_true(r.reals.n == 3 && r.reals.v[0] == 0.5 && r.reals.v[1] == -2 &&
                r.reals.v[2] == 1e-3);
    assert_int_equal(r.texts.n, 2);
    assert_string_equal(r.texts.v[0], "a");
    assert_int_equal(read_record(&r, "{\"size\": [8, 8], \"f\": \"Infinity\", \"d\": NaN}", &e),
                     XD_OK);
    assert_true(r.l == 8 && isinf(r.f) && isnan(r.d));
    assert_int_equal(read_record(&r, "{\"f\": -Infinity, \"d\": \"-Infinity\"}", &e), XD_OK);
    assert_true(isinf(r.f) && r.f < 0 && isinf(r.d) && r.d < 0);
}

static void first_alias_wins(void **state)
{
    (void)state;
    record r;
    xd_err e = { 0 };
    assert_int_equal(read_record(&r, "{\"old_size\": 5, \"size\": 6}", &e), XD_OK);
    assert_int_equal(r.l, 6);
    assert_int_equal(read_record(&r, "{\"old_size\": 5}", &e), XD_OK);
    assert_int_equal(r.l, 5);
    assert_int_equal(read_record(&r, "{\"old_size\": 5, \"size\": null}", &e), XD_OK);
    assert_int_equal(r.l, 5);
}

static const xd_field nested[] = {
    { "inner", 0, '>', 0, NULL },
    { "rope.full.theta", offsetof(record, d), 'd', 3, NULL },
    { "rope.theta", offsetof(record, d), 'd', 3, NULL },
    { "i", offsetof(record, i), 'i', 7, NULL },
    { NULL, 0, 0, 0, NULL },
};

/* Paths into objects, and an object whose keys count where those at the top are absent. */
static void nested_keys_are_read(void **state)
{
    static const struct {
        const char *text;
        double      d;
        int         i;
    } cases[] = {
        { "{}", 3, 7 },
        { "{\"rope\": {\"theta\": 4}, \"i\": 1}", 4, 1 },
        { "{\"rope\": {\"theta\": 4, \"full\": {\"theta\": 5}}}", 5, 7 },
        { "{\"rope\": {\"theta\": 4, \"full\": {\"theta\": null}}}", 4, 7 },
        { "{\"rope\": 4, \"inner\": null}", 3, 7 },
        { "{\"inner\": {\"rope\": {\"theta\": 6}, \"i\": 2}}", 6, 2 },
        { "{\"inner\": {\"rope\": {\"theta\": 6}, \"i\": 2}, \"i\": 1}", 6, 1 },
        { "{\"inner\": {\"i\": 2}, \"i\": null, \"rope\": {\"theta\": 4}}", 4, 2 },
    };
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        record   r = { 0 };
        xd_err   e = { 0 };
        xd_json *j = parsed(cases[k].text);
        assert_int_equal(xd_fields_read(nested, &r, j, "config", &e), XD_OK);
        if (r.d != cases[k].d || r.i != cases[k].i)
            fail_msg("%s: %g and %d", cases[k].text, r.d, r.i);
        xd_json_free(&j);
    }
    record   r;
    xd_err   e = { 0 };
    xd_json *j = parsed("{\"inner\": 1}");
    assert_int_equal(xd_fields_read(nested, &r, j, "config", &e), XD_EFORMAT);
    assert_non_null(strstr(e.msg, "\"inner\" should be an object"));
    xd_json_free(&j);
}

static void wrong_types_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } bad[] = {
        { "[1]", "not a JSON object" },
        { "{\"i\": 1.5}", "config: \"i\" should be an integer, not 1.5" },
        { "{\"i\": 3000000000}", "not 3000000000" },
        { "{\"i\": \"1\"}", "not \"1\"" },
        { "{\"i\": true}", "not true" },
        { "{\"i\": NaN}", "an integer" },
        { "{\"size\": 1e17}", "an integer" },
        { "{\"size\": [8, 9]}", "not a list of 2" },
        { "{\"size\": []}", "not a list of 0" },
        { "{\"f\": \"inf\"}", "a number, not \"inf\"" },
        { "{\"f\": 1e300}", "a number" },
        { "{\"d\": {}}", "not an object of 0" },
        { "{\"b\": 1}", "true or false, not 1" },
        { "{\"s\": 1}", "a string" },
        { "{\"s\": \"0123456789012345678901234567890123456789012345678901234567890123\"}",
          "64 bytes" },
        { "{\"ints\": 1}", "a list of integers, not 1" },
        { "{\"ints\": [1, 0.5]}", "not 0.5" },
        { "{\"texts\": [\"a\", null]}", "a list of strings, not null" },
        { "{\"texts\": \"a\"}", "a list of strings" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        record r;
        xd_err e = { 0 };
        assert_int_equal(read_record(&r, bad[i].text, &e), XD_EFORMAT);
        if (!strstr(e.msg, bad[i].why) || strncmp(e.msg, "config: ", 8) != 0)
            fail_msg("%s is refused with \"%s\", not with \"%s\"", bad[i].text, e.msg, bad[i].why);
    }
}

/* Keys of which only the default is supported. */
static void other_values_are_refused(void **state)
{
    static const xd_field only[] = { { "kernel", 0, '=', 3, NULL },
                                     { "crosses", 0, '=', 0, NULL },
                                     { "type", 0, '=', 0, "default" },
                                     { NULL, 0, 0, 0, NULL } };
    static const struct {
        const char *json, *name;
    } t[] = {
        { "{}", NULL },
        { "{\"kernel\": 3, \"crosses\": [false, false], \"type\": \"default\"}", NULL },
        { "{\"kernel\": null, \"crosses\": null, \"type\": null}", NULL },
        { "{\"kernel\": 5}", "\"kernel\" is 5" },
        { "{\"crosses\": [false, true]}", "\"crosses\" is a list of 2" },
        { "{\"crosses\": \"timestep\"}", "\"crosses\" is \"timestep\"" },
        { "{\"type\": \"gated\"}", "\"type\" is \"gated\"" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        xd_json  *j = NULL;
        xd_err    e = { 0 };
        int       none = 0;
        xd_status want = t[i].name ? XD_EUNSUPPORTED : XD_OK;
        assert_int_equal(xd_json_parse(&j, t[i].json, strlen(t[i].json), "config", &e), XD_OK);
        assert_int_equal(xd_fields_read(only, &none, j, "config", &e), want);
        assert_true(!t[i].name || strstr(e.msg, t[i].name));
        xd_json_free(&j);
    }
}

/* As many members as fit are read, one more is refused with both numbers. */
static void long_lists_are_refused(void **state)
{
    (void)state;
    for (int n = XD_FIELD_LIST; n <= XD_FIELD_LIST + 1; n++) {
        xd_text_buf b = { 0 };
        record      r;
        xd_err      e = { 0 };
        char        why[64];
        for (int i = 0; i < n; i++)
            xd_buf_add(&b, "%s%d", i ? "," : "{\"ints\": [", i);
        xd_buf_add(&b, "]}");
        snprintf(why, sizeof why, "%d members; the maximum is %d", n, XD_FIELD_LIST);
        assert_int_equal(read_record(&r, b.p, &e), n > XD_FIELD_LIST ? XD_EFORMAT : XD_OK);
        if (n > XD_FIELD_LIST)
            assert_non_null(strstr(e.msg, why));
        else
            assert_true(r.ints.n == n && r.ints.v[n - 1] == n - 1);
        xd_buf_free(&b);
    }
}

static void hear(void *cookie, int level, const char *line)
{
    xd_text_buf *b = cookie;
    xd_buf_add(b, "%d %s\n", level, line);
}

static void unknown_keys_are_listed(void **state)
{
    (void)state;
    xd_text_buf b = { 0 };
    record      r;
    xd_err      e = { 0 };
    xd_log_enter(&(xd_logger){ hear, &b, XD_LOG_DEBUG });
    assert_int_equal(read_record(&r,
                                 "{\"i\": 1, \"new\": [1, 2], \"known\": 2, \"_x\": \"y\", "
                                 "\"_class_name\": \"Net\", \"_diffusers_version\": \"1\"}",
                                 &e),
                     XD_OK);
    xd_log_enter(NULL);
    assert_string_equal(b.p, "3 config: unknown key \"new\": a list of 2\n"
                             "3 config: unknown key \"_x\": \"y\"\n");
    xd_buf_free(&b);
}

/* ---- writing ------------------------------------------------------------------------------- */

static void text_grows(void **state)
{
    (void)state;
    xd_text_buf b = { 0 };
    for (int i = 0; i < 10000; i++)
        xd_buf_add(&b, "%d,", i % 10);
    assert_int_equal(b.len, 20000);
    assert_int_equal(strlen(b.p), 20000);
    assert_int_equal(b.failed, 0);
    assert_string_equal(b.p + 19990, "5,6,7,8,9,");
    xd_buf_free(&b);
    assert_null(b.p);
}

static void strings_are_escaped(void **state)
{
    (void)state;
    xd_text_buf b = { 0 };
    xd_buf_json_string(&b, "a\"b\\c\n\t\x01\x7f\xc3\xa9\xf0\x9f\x98\x80/");
    assert_string_equal(b.p, "\"a\\\"b\\\\c\\n\\t\\u0001\\u007f\xc3\xa9\xf0\x9f\x98\x80/\"");
    xd_buf_free(&b);
    xd_buf_json_string(&b, "\xff|\xc3|\xe0\x80\x80|\xed\xa0\x80|\xf4\x90\x80\x80|\xe2\x82");
    assert_string_equal(b.p, "\"" BAD "|" BAD "|" BAD BAD BAD "|" BAD BAD BAD "|" BAD BAD BAD BAD
                             "|" BAD BAD "\"");
    xd_buf_free(&b);
    xd_buf_json_string(&b, "\xc2\x80\xc2\x9b\xc2\x9f\xc2\xa0|\xc2");
    assert_string_equal(b.p, "\"\\u0080\\u009b\\u009f\xc2\xa0|" BAD "\"");
    xd_buf_free(&b);
    xd_buf_json_string(&b, "");
    assert_string_equal(b.p, "\"\"");
    xd_buf_free(&b);
}

/* What is written as a string is read back as the same string, for every single character. */
static void strings_come_back(void **state)
{
    (void)state;
    for (int c = 1; c < 0x80; c++) {
        char        s[3] = { (char)c, 'x', 0 };
        xd_text_buf b = { 0 };
        xd_buf_json_string(&b, s);
        xd_json *j = parsed(b.p);
        assert_string_equal(xd_json_text(j), s);
        xd_json_free(&j);
        xd_buf_free(&b);
    }
}

static void values_are_written(void **state)
{
    (void)state;
    static const char text[] = "{ \"a\": [1, 2.5, -3e20, true, null], "
                               "\"b\": {\"c\": \"x\\\"\\n\"} }";
    xd_text_buf       b = { 0 }, c = { 0 };
    xd_json          *j = parsed(text);
    xd_buf_json(&b, j);
    assert_string_equal(b.p, "{\"a\":[1,2.5,-3e+20,true,null],\"b\":{\"c\":\"x\\\"\\n\"}}");
    xd_buf_json(&c, xd_json_get(xd_json_get(j, "b"), "c"));
    assert_string_equal(c.p, "\"x\\\"\\n\"");
    xd_buf_json(&c, NULL);
    assert_true(c.failed);
    xd_json_free(&j);
    xd_buf_free(&b);
    xd_buf_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_of_all_kinds),
        cmocka_unit_test(walking_meets_every_member),
        cmocka_unit_test(numbers_as_python_writes_them),
        cmocka_unit_test(bad_texts_are_refused),
        cmocka_unit_test(depth_is_limited),
        cmocka_unit_test(files_are_named_in_errors),
        cmocka_unit_test(defaults_stand),
        cmocka_unit_test(all_kinds_are_read),
        cmocka_unit_test(first_alias_wins),
        cmocka_unit_test(nested_keys_are_read),
        cmocka_unit_test(wrong_types_are_refused),
        cmocka_unit_test(other_values_are_refused),
        cmocka_unit_test(long_lists_are_refused),
        cmocka_unit_test(unknown_keys_are_listed),
        cmocka_unit_test(text_grows),
        cmocka_unit_test(strings_are_escaped),
        cmocka_unit_test(strings_come_back),
        cmocka_unit_test(values_are_written),
    };
    return cmocka_run_group_tests_name("json", tests, scratch_set_up, scratch_tear_down);
}
