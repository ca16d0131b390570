/* fuzz_json.c - any bytes as a JSON document, and as a config read by a table of all kinds.
 *
 * Besides not crashing: what is read can be walked in two ways that agree, every text written
 * again is read as the same text, and a refusal has a sentence. */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "fuzz.h"

typedef struct record {
    int      i, b;
    int64_t  l;
    float    f;
    double   d;
    char     s[XD_FIELD_TEXT];
    xd_ints  ints;
    xd_names names;
    xd_ints  flags;
    xd_reals reals;
} record;

static const xd_field fields[] = {
    { "i", offsetof(record, i), 'i', 1, NULL },
    { "l", offsetof(record, l), 'l', 2, NULL },
    { "sample_size", offsetof(record, l), 'l', 3, NULL },
    { "f", offsetof(record, f), 'f', 0.5, NULL },
    { "d", offsetof(record, d), 'd', -1, NULL },
    { "b", offsetof(record, b), 'b', 1, NULL },
    { "s", offsetof(record, s), 's', 0, "text" },
    { "ints", offsetof(record, ints), 'L', 0, NULL },
    { "names", offsetof(record, names), 'S', 0, NULL },
    { "flags", offsetof(record, flags), 'B', 0, NULL },
    { "reals", offsetof(record, reals), 'D', 0, NULL },
    { "known", 0, '-', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

static void check_text(const char *s)
{
    xd_text_buf b = { 0 };
    xd_json    *j;
    xd_buf_json_string(&b, s);
    MUST(!b.failed);
    MUST(xd_json_parse(&j, b.p, b.len, "text", NULL) == XD_OK && xd_json_text(j));
    xd_buf_free(&b);
    xd_buf_json_string(&b, xd_json_text(j)); /* once more: bad UTF-8 is replaced */
    xd_json *k;
    MUST(xd_json_parse(&k, b.p, b.len, "text", NULL) == XD_OK);
    MUST(!strcmp(xd_json_text(j), xd_json_text(k)));
    xd_json_free(&j);
    xd_json_free(&k);
    xd_buf_free(&b);
}

static void walk(const xd_json *j, int depth)
{
    double d;
    int    b, n = 0;
    MUST(depth <= 65);
    int kinds = xd_json_is_object(j) + xd_json_is_list(j) + (xd_json_text(j) != NULL) +
                xd_json_number(j, &d) + xd_json_bool(j, &b) + xd_json_null(j);
    MUST(kinds == 1);
    if (xd_json_text(j))
        check_text(xd_json_text(j));
    for (const xd_json *v = xd_json_first(j); v; v = xd_json_next(v)) {
        MUST(v == xd_json_at(j, n++));
        MUST((xd_json_key(v) != NULL) == xd_json_is_object(j));
        MUST(!xd_json_key(v) || xd_json_get(j, xd_json_key(v)));
        walk(v, depth + 1);
    }
    MUST(n == xd_json_size(j));
}

static void check_record(const xd_json *j)
{
    record r;
    xd_err e = { 0 };
    memset(&r, 0x5a, sizeof r);
    if (xd_fields_read(fields, &r, j, "input", &e) != XD_OK) {
        MUST(e.code == XD_EFORMAT && !strncmp(e.msg, "input: ", 7));
        return;
    }
    MUST(memchr(r.s, 0, sizeof r.s));
    MUST(r.b == 0 || r.b == 1);
    MUST(r.ints.n >= 0 && r.ints.n <= XD_FIELD_LIST && r.names.n >= 0 &&
         r.names.n <= XD_FIELD_LIST);
    for (int i = 0; i < r.names.n; i++)
        MUST(memchr(r.names.v[i], 0, XD_FIELD_TEXT));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    xd_json *j;
    xd_err   e = { 0 };
    if (xd_json_parse(&j, (const char *)data, size, "input", &e) != XD_OK) {
        MUST(!j && e.code == XD_EFORMAT && !strncmp(e.msg, "input: ", 7));
        return 0;
    }
    walk(j, 0);
    check_record(j);
    xd_json_free(&j);
    return 0;
}
