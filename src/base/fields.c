/* fields.c - fills a struct from a JSON object by a table of fields, see json.h.
 *
 * The table is processed twice, each time from its end to its start: first to set the defaults,
 * then to set the object's values. If several rows of the table have the same offset, the first of
 * these rows therefore takes precedence. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/word_list.h"

static const double exact = 9007199254740992.0; /* 2^53: integers up to this are exact */

typedef struct reader {
    const char *what;
    xd_err     *e;
} reader;

static const char *kind_name(char kind)
{
    switch (kind) {
    case 'i':
    case 'l': return "an integer";
    case 'f':
    case 'd': return "a number";
    case 'b': return "true or false";
    case 's': return "a string";
    case 'L': return "a list of integers";
    case 'N': return "an integer or a list of integers";
    case 'S': return "a list of strings";
    case 'B': return "a list of true and false";
    case 'D': return "a list of numbers";
    case 'T': return "a string or a list of strings";
    case 'G': return "a list of lists of integers from 1 to 63";
    }
    return "another type";
}

/* Returns a JSON value as text for an error message, as it is written in the file, but
 * shortened. */
static const char *value_text(const xd_json *v, char *buf, size_t size)
{
    double d;
    int    b;
    if (xd_json_text(v))
        snprintf(buf, size, "\"%.40s\"", xd_json_text(v));
    else if (xd_json_number(v, &d))
        snprintf(buf, size, "%.17g", d);
    else if (xd_json_bool(v, &b))
        snprintf(buf, size, "%s", b ? "true" : "false");
    else if (xd_json_null(v))
        snprintf(buf, size, "null");
    else
        snprintf(buf, size, "%s of %d", xd_json_is_list(v) ? "a list" : "an object",
                 xd_json_size(v));
    return buf;
}

static xd_status wrong_kind(const reader *r, const xd_field *f, const xd_json *v)
{
    char buf[64];
    return xd_fail(r->e, XD_EFORMAT, "%s: \"%s\" should be %s, not %s", r->what, f->json,
                   kind_name(f->kind), value_text(v, buf, sizeof buf));
}

static int is_integer(const xd_json *v, double limit, double *d)
{
    return xd_json_number(v, d) && *d == floor(*d) && fabs(*d) <= limit;
}

/* If the JSON value is a list of equal numbers, returns the list's first element, else the value
 * itself. */
static const xd_json *scalar_of(const xd_json *v)
{
    double a, b;
    if (!xd_json_is_list(v))
        return v;
    const xd_json *first = xd_json_first(v);
    if (!xd_json_number(first, &a))
        return NULL;
    for (const xd_json *k = first; k; k = xd_json_next(k))
        if (!xd_json_number(k, &b) || b != a)
            return NULL;
    return first;
}

static xd_status read_int(const reader *r, const xd_field *f, char *at, const xd_json *v)
{
    double d;
    if (!is_integer(scalar_of(v), f->kind == 'i' ? INT_MAX : exact, &d))
        return wrong_kind(r, f, v);
    if (f->kind == 'i')
        memcpy(at, &(int){ (int)d }, sizeof(int));
    else
        memcpy(at, &(int64_t){ (int64_t)d }, sizeof(int64_t));
    return XD_OK;
}

/* Reads a number, which may be a string: diffusers writes infinities as strings. */
static int get_real(const xd_json *v, double *d)
{
    static const struct {
        const char *text;
        double      value;
    } words[] = {
        { "Infinity", (double)INFINITY },
        { "-Infinity", -(double)INFINITY },
        { "NaN", (double)NAN },
    };
    const char *s = xd_json_text(v);
    if (xd_json_number(v, d))
        return 1;
    for (size_t i = 0; s && i < sizeof words / sizeof *words; i++)
        if (!strcmp(s, words[i].text)) {
            *d = words[i].value;
            return 1;
        }
    return 0;
}

static xd_status read_real(const reader *r, const xd_field *f, char *at, const xd_json *v)
{
    double d;
    if (!get_real(v, &d))
        return wrong_kind(r, f, v);
    if (f->kind == 'd') {
        memcpy(at, &d, sizeof d);
        return XD_OK;
    }
    float s = (float)d;
    if (isinf(s) && !isinf(d))
        return wrong_kind(r, f, v);
    memcpy(at, &s, sizeof s);
    return XD_OK;
}

static xd_status read_text(const reader *r, const xd_field *f, char *to, const xd_json *v)
{
    const char *s = xd_json_text(v);
    if (!s)
        return wrong_kind(r, f, v);
    if (strlen(s) >= XD_FIELD_TEXT)
        return xd_fail(r->e, XD_EFORMAT,
                       "%s: the text \"%.20s...\" of \"%s\" has %zu bytes; the "
                       "maximum is %d",
                       r->what, s, f->json, strlen(s), XD_FIELD_TEXT - 1);
    memset(to, 0, XD_FIELD_TEXT);
    memcpy(to, s, strlen(s));
    return XD_OK;
}

static xd_status list_fits(const reader *r, const xd_field *f, const xd_json *v)
{
    if (!xd_json_is_list(v))
        return wrong_kind(r, f, v);
    if (xd_json_size(v) > XD_FIELD_LIST)
        return xd_fail(r->e, XD_EFORMAT, "%s: the list \"%s\" has %d members; the maximum is %d",
                       r->what, f->json, xd_json_size(v), XD_FIELD_LIST);
    return XD_OK;
}

static xd_status read_ints(const reader *r, const xd_field *f, char *at, const xd_json *v)
{
    xd_ints   list = { 0 };
    double    d;
    xd_status st = list_fits(r, f, v);
    for (const xd_json *k = xd_json_first(v); st == XD_OK && k; k = xd_json_next(k)) {
        if (is_integer(k, exact, &d))
            list.v[list.n++] = (int64_t)d;
        else
            st = wrong_kind(r, f, k);
    }
    if (st == XD_OK)
        memcpy(at, &list, sizeof list);
    return st;
}

static xd_status read_int_or_ints(const reader *r, const xd_field *f, char *at, const xd_json *v)
{
    xd_ints list = { .n = 1 };
    double  d;
    if (!is_integer(v, exact, &d))
        return read_ints(r, f, at, v);
    list.v[0] = (int64_t)d;
    memcpy(at, &list, sizeof list);
    return XD_OK;
}

static xd_status read_bools(const reader *r, const xd_field *f, char *at, const xd_json *v)
{
    xd_ints   list = { 0 };
    int       b;
    xd_status st = list_fits(r, f, v);
    for (const xd_json *k = xd_json_first(v); st == XD_OK && k; k = xd_json_next(k)) {
        if (xd_json_bool(k, &b))
            list.v[list.n++] = b;
        else
            st = wrong_kind(r, f, k);
    }
    if (st == XD_OK)
        memcpy(at, &list, sizeof list);
    return st;
}

static xd_status read_reals(const reader *r, const xd_field *f, char *at, const xd_json *v)
{
    xd_reals  list = { 0 };
    xd_status st = list_fits(r, f, v);
    for (const xd_json *k = xd_json_first(v); st == XD_OK && k; k = xd_json_next(k))
        st = get_real(k, &list.v[list.n++]) ? XD_OK : wrong_kind(r, f, k);
    if (st == XD_OK)
        memcpy(at, &list, sizeof list);
    return st;
}

static xd_status read_texts(const reader *r, const xd_field *f, char *at, const xd_json *v)
{
    xd_names  list = { 0 };
    xd_status st = list_fits(r, f, v);
    for (const xd_json *k = xd_json_first(v); st == XD_OK && k; k = xd_json_next(k))
        st = read_text(r, f, list.v[list.n++], k);
    if (st == XD_OK)
        memcpy(at, &list, sizeof list);
    return st;
}

static xd_status read_text_or_texts(const reader *r, const xd_field *f, char *at, const xd_json *v)
{
    xd_names list = { .n = 1 };
    if (!xd_json_text(v))
        return read_texts(r, f, at, v);
    xd_status st = read_text(r, f, list.v[0], v);
    if (st == XD_OK)
        memcpy(at, &list, sizeof list);
    return st;
}

/* Reads a list of integers from 1 to 63 as a number whose digits to the base 64 are the integers,
 * the first one as the lowest digit. */
static int read_digits(const xd_json *v, int64_t *out)
{
    int64_t unit = 1;
    double  d;
    *out = 0;
    if (!xd_json_is_list(v) || xd_json_size(v) > 8)
        return 0;
    for (const xd_json *k = xd_json_first(v); k; k = xd_json_next(k), unit *= 64) {
        if (!is_integer(k, 63, &d) || d < 1)
            return 0;
        *out += unit * (int64_t)d;
    }
    return 1;
}

static xd_status read_lists(const reader *r, const xd_field *f, char *at, const xd_json *v)
{
    xd_ints   list = { 0 };
    xd_status st = list_fits(r, f, v);
    for (const xd_json *k = xd_json_first(v); st == XD_OK && k; k = xd_json_next(k))
        st = read_digits(k, &list.v[list.n++]) ? XD_OK : wrong_kind(r, f, k);
    if (st == XD_OK)
        memcpy(at, &list, sizeof list);
    return st;
}

/* Returns 1 if a value is the default of a field of kind '=': an empty list, or a bool, number or
 * text that equals the default, or a list of such bools or numbers. */
static int is_default(const xd_field *f, const xd_json *v)
{
    double d;
    int    b, all = 1;
    if (xd_json_text(v))
        return f->text && strcmp(xd_json_text(v), f->text) == 0;
    if (xd_json_bool(v, &b))
        return !f->text && b == (f->def != 0);
    if (xd_json_number(v, &d))
        return !f->text && d == f->def;
    for (int i = 0; i < xd_json_size(v) && all; i++)
        all = !xd_json_text(xd_json_at(v, i)) && is_default(f, xd_json_at(v, i));
    return xd_json_is_list(v) && all;
}

/* Refuses any value but the default of a field of kind '='. */
static xd_status check_default(const reader *r, const xd_field *f, const xd_json *v)
{
    char buf[64];
    if (is_default(f, v))
        return XD_OK;
    return xd_fail(r->e, XD_EUNSUPPORTED,
                   "%s: \"%s\" is %s, which is not supported; only its default is", r->what,
                   f->json, value_text(v, buf, sizeof buf));
}

static xd_status read_field(const reader *r, const xd_field *f, char *at, const xd_json *v)
{
    int b;
    switch (f->kind) {
    case 'i':
    case 'l': return read_int(r, f, at, v);
    case 'f':
    case 'd': return read_real(r, f, at, v);
    case 's': return read_text(r, f, at, v);
    case 'L': return read_ints(r, f, at, v);
    case 'N': return read_int_or_ints(r, f, at, v);
    case 'S': return read_texts(r, f, at, v);
    case 'B': return read_bools(r, f, at, v);
    case 'D': return read_reals(r, f, at, v);
    case 'T': return read_text_or_texts(r, f, at, v);
    case 'G': return read_lists(r, f, at, v);
    case '=': return check_default(r, f, v);
    case 'b':
        if (!xd_json_bool(v, &b))
            return wrong_kind(r, f, v);
        memcpy(at, &b, sizeof b);
    }
    return XD_OK;
}

static void set_default(const xd_field *f, char *at)
{
    float  s = (float)f->def;
    size_t n = f->text ? strlen(f->text) : 0;
    switch (f->kind) {
    case 'b':
    case 'i': memcpy(at, &(int){ (int)f->def }, sizeof(int)); break;
    case 'l': memcpy(at, &(int64_t){ (int64_t)f->def }, sizeof(int64_t)); break;
    case 'f': memcpy(at, &s, sizeof s); break;
    case 'd': memcpy(at, &f->def, sizeof f->def); break;
    case 's':
        memset(at, 0, XD_FIELD_TEXT);
        memcpy(at, f->text ? f->text : "", n < XD_FIELD_TEXT ? n : XD_FIELD_TEXT - 1);
        break;
    case 'G':
    case 'L':
    case 'N': memset(at, 0, sizeof(xd_ints)); break;
    case 'T':
    case 'S': memset(at, 0, sizeof(xd_names)); break;
    case 'B': memset(at, 0, sizeof(xd_ints)); break;
    case 'D': memset(at, 0, sizeof(xd_reals)); break;
    }
}

/* Config keys of diffusers and transformers that describe the config file, not the model. */
static const char of_file[] = "_class_name _diffusers_version _name_or_path _commit_hash "
                              "_use_default_values _auto_class transformers_version";

/* Returns 1 if `key` is the key of a row of the table, or the first key of a row's path. */
static int is_known(const xd_field *fields, const char *key)
{
    size_t n = strlen(key);
    for (const xd_field *f = fields; f->json; f++)
        if (strncmp(f->json, key, n) == 0 && (!f->json[n] || f->json[n] == '.'))
            return 1;
    return xd_list_has(of_file, key);
}

static void list_unknown(const xd_field *fields, const xd_json *obj, const char *what)
{
    if (!xd_log_on(XD_LOG_DEBUG))
        return;
    for (const xd_json *k = xd_json_first(obj); k; k = xd_json_next(k)) {
        char buf[64];
        if (!is_known(fields, xd_json_key(k)))
            xd_log(XD_LOG_DEBUG, "%s: unknown key \"%s\": %s", what, xd_json_key(k),
                   value_text(k, buf, sizeof buf));
    }
}

/* Returns the value at a path of keys in a JSON object, or NULL if there is none. */
static const xd_json *value_at(const xd_json *obj, const char *path)
{
    char        key[XD_FIELD_TEXT];
    const char *dot = strchr(path, '.');
    if (!dot)
        return xd_json_get(obj, path);
    snprintf(key, sizeof key, "%.*s", (int)(dot - path), path);
    return value_at(xd_json_get(obj, key), dot + 1);
}

/* Returns the nested object that the table's row of kind '>' names, or NULL if there is none. */
static const xd_json *section_of(const xd_field *fields, const xd_json *obj)
{
    for (const xd_field *f = fields; f->json; f++)
        if (f->kind == '>')
            return xd_json_get(obj, f->json);
    return NULL;
}

xd_status xd_fields_read(const xd_field *fields, void *out, const xd_json *obj, const char *what,
                         xd_err *e)
{
    reader r = { what, e };
    int    n = 0;
    if (obj && !xd_json_is_object(obj))
        return xd_fail(e, XD_EFORMAT, "%s: it is not a JSON object", what);
    while (fields[n].json)
        n++;
    const xd_json *section = section_of(fields, obj);
    if (!xd_json_null(section) && !xd_json_is_object(section))
        return xd_fail(e, XD_EFORMAT, "%s: \"%s\" should be an object", what, xd_json_key(section));
    for (int i = n - 1; i >= 0; i--)
        set_default(&fields[i], (char *)out + fields[i].off);
    for (int i = n - 1; i >= 0; i--) {
        const xd_json *v = value_at(obj, fields[i].json);
        if (xd_json_null(v))
            v = value_at(section, fields[i].json);
        xd_status st = xd_json_null(v) ? XD_OK
                                       : read_field(&r, &fields[i], (char *)out + fields[i].off, v);
        if (st != XD_OK)
            return st;
    }
    list_unknown(fields, obj, what);
    if (section)
        list_unknown(fields, section, what);
    return XD_OK;
}
