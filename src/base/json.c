/* json.c - parses JSON documents in three steps: a prescan of the text, cJSON's parser, and
 * conversion of cJSON's tree to an xd_json tree.
 *
 * The prescan limits the nesting depth and refuses input that cJSON would accept silently (NUL
 * inside strings, raw control characters, bytes that are never UTF-8). The prescan also rewrites
 * Python's NaN and Infinity in place to text that cJSON accepts. The xd_json tree stores the
 * members of a value in an array, for access to the i-th member in constant time; cJSON has linked
 * lists. */
#include "base/json.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

enum { MAXDEPTH = 64 };                         /* max depth of nested lists and objects */
static const size_t max_file = (size_t)1 << 28; /* in bytes; large tokenizers need 2^25 */

/* The prescan replaces each NaN by this string in quotes before cJSON parses the text. With the
 * quotes, the replacement is as long as "NaN". No document can contain this string, because the
 * prescan refuses the byte 0xff. */
static const char nan_mark[] = "\xff";

struct xd_json {
    cJSON   *v;
    xd_json *kids; /* [n]: the members of a list or object */
    int      n;
    int      last; /* 1: this value is the last member of its parent */
};

/* ---- the prescan -------------------------------------------------------------------------- */

typedef struct scan {
    char       *p; /* copy of the document's text, ends in NUL */
    size_t      len, at;
    const char *what;
    int         depth;
    size_t      marks; /* number of commas and brackets, which is at least the number of values */
} scan;

static xd_status syntax_error(const scan *s, size_t at, const char *why, xd_err *e)
{
    size_t line = 1, col = 1;
    for (size_t i = 0; i < at && i < s->len; i++) {
        col++;
        if (s->p[i] == '\n')
            line++, col = 1;
    }
    return xd_fail(e, XD_EFORMAT, "%s: not JSON: %s in line %zu, column %zu", s->what, why, line,
                   col);
}

/* Checks a string, and moves the read position from the string's opening quote to after its closing
 * quote. */
static xd_status scan_string(scan *s, xd_err *e)
{
    for (s->at++; s->at < s->len; s->at++) {
        unsigned char c = (unsigned char)s->p[s->at];
        if (c == '"') {
            s->at++;
            return XD_OK;
        }
        if (c < 0x20)
            return syntax_error(s, s->at, "a control character inside a string", e);
        if (c == 0xc0 || c == 0xc1 || c >= 0xf5)
            return syntax_error(s, s->at, "a byte that is never UTF-8", e);
        if (c == '\\') {
            if (s->len - s->at > 5 && !memcmp(s->p + s->at, "\\u0000", 6))
                return syntax_error(s, s->at, "a NUL inside a string", e);
            s->at++;
        }
    }
    return syntax_error(s, s->len, "a string without end", e);
}

/* Rewrites Python's NaN and Infinity. Leaves other unquoted words to cJSON. */
static void scan_word(scan *s)
{
    char  *p = s->p + s->at;
    size_t left = s->len - s->at;
    if (s->at && !strchr(" \t\n\r,:[{-", p[-1])) {
        s->at++; /* not the start of a word: skips it */
        return;
    }
    if (left >= 3 && !memcmp(p, "NaN", 3)) {
        p[0] = p[2] = '"';
        p[1] = nan_mark[0];
        s->at += 3;
    } else if (left >= 8 && !memcmp(p, "Infinity", 8)) {
        memcpy(p, "1e999999", 8);
        s->at += 8;
    } else {
        s->at++;
    }
}

static xd_status prescan(scan *s, xd_err *e)
{
    while (s->at < s->len) {
        char c = s->p[s->at];
        if (c == '"') {
            xd_status st = scan_string(s, e);
            if (st != XD_OK)
                return st;
            continue;
        }
        if ((unsigned char)c < 0x20 && c != '\t' && c != '\n' && c != '\r')
            return syntax_error(s, s->at, "a control character", e);
        if (c == '[' || c == '{') {
            if (++s->depth > MAXDEPTH)
                return syntax_error(s, s->at, "more than 64 levels of nesting", e);
        } else if (c == ']' || c == '}') {
            s->depth--;
        }
        s->marks += c == ',' || c == '[' || c == '{';
        scan_word(s);
    }
    return XD_OK;
}

/* ---- the tree ----------------------------------------------------------------------------- */

static size_t count_nodes(const cJSON *v)
{
    size_t n = 1;
    for (const cJSON *c = v->child; c; c = c->next)
        n += count_nodes(c);
    return n;
}

/* Copies a subtree of cJSON's tree. `next` is the first unused element of the array that holds all
 * nodes of the xd_json tree. The function recurses at most MAXDEPTH levels deep. */
static xd_json *fill_nodes(xd_json *j, xd_json *next)
{
    j->kids = next;
    for (cJSON *c = j->v->child; c; c = c->next) {
        next->v = c;
        next->last = !c->next;
        next++;
        j->n++;
    }
    for (int i = 0; i < j->n; i++)
        next = fill_nodes(&j->kids[i], next);
    return next;
}

static xd_status grow_tree(xd_json **j, cJSON *root, const char *what, xd_err *e)
{
    size_t   n = count_nodes(root);
    xd_json *t = n < ((size_t)1 << 31) ? calloc(n, sizeof *t) : NULL;
    if (!t)
        return xd_fail(e, XD_ENOMEM, "%s: no memory for %zu JSON values", what, n);
    t->v = root;
    t->last = 1;
    fill_nodes(t, t + 1);
    *j = t;
    return XD_OK;
}

static int is_blank(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r'))
        p++;
    return p == end;
}

/* Called after cJSON has failed: tries to allocate as much memory as the document's values need.
 * Returns 1 if this allocation fails, because cJSON then probably ran out of memory; cJSON does not
 * distinguish that from a syntax error. */
static int lacks_memory(const scan *s)
{
    void *p = malloc((s->marks + 1) * (sizeof(cJSON) + 16) + 2 * s->len);
    free(p);
    return !p;
}

/* Parses the text that the prescan state `s` points to. The prescan modifies this text. */
static xd_status parse_own(xd_json **j, scan *s, xd_err *e)
{
    const char *end = s->p;
    if (s->len >= 3 && !memcmp(s->p, "\xef\xbb\xbf", 3)) /* skips a byte order mark */
        s->at = 3;
    size_t    start = s->at;
    xd_status st = prescan(s, e);
    if (st != XD_OK)
        return st;
    cJSON *root = cJSON_ParseWithLengthOpts(s->p + start, s->len - start, &end, 0);
    if (!root && lacks_memory(s))
        return xd_fail(e, XD_ENOMEM, "%s: no memory for the values of %zu bytes of JSON", s->what,
                       s->len);
    if (!root)
        return syntax_error(s, end ? (size_t)(end - s->p) : 0, "something unexpected", e);
    if (!is_blank(end, s->p + s->len))
        st = syntax_error(s, (size_t)(end - s->p), "text after the value", e);
    else
        st = grow_tree(j, root, s->what, e);
    if (st != XD_OK)
        cJSON_Delete(root);
    return st;
}

xd_status xd_json_parse(xd_json **j, const char *text, size_t len, const char *what, xd_err *e)
{
    scan s = { .p = malloc(len + 1), .len = len, .what = what };
    *j = NULL;
    if (!s.p)
        return xd_fail(e, XD_ENOMEM, "%s: no memory for %zu bytes of JSON", what, len);
    if (len)
        memcpy(s.p, text, len);
    s.p[len] = 0;
    xd_status st = parse_own(j, &s, e);
    free(s.p);
    return st;
}

xd_status xd_json_read(xd_json **j, const char *path, xd_err *e)
{
    scan s = { .what = path };
    *j = NULL;
    xd_status st = xd_file_read(path, max_file, &s.p, &s.len, e);
    if (st == XD_OK)
        st = parse_own(j, &s, e);
    free(s.p);
    return st;
}

void xd_json_free(xd_json **j)
{
    if (!j || !*j)
        return;
    cJSON_Delete((*j)->v);
    free(*j);
    *j = NULL;
}

/* ---- access ------------------------------------------------------------------------------- */

/* Returns the value of a key, or NULL if the object does not have the key. If a key occurs twice,
 * the last value is used, as in Python. */
const xd_json *xd_json_get(const xd_json *j, const char *key)
{
    if (!j || !cJSON_IsObject(j->v))
        return NULL;
    for (int i = j->n - 1; i >= 0; i--)
        if (!strcmp(j->kids[i].v->string, key))
            return &j->kids[i];
    return NULL;
}

int xd_json_size(const xd_json *j)
{
    return j ? j->n : 0;
}

const xd_json *xd_json_at(const xd_json *j, int i)
{
    return j && i >= 0 && i < j->n ? &j->kids[i] : NULL;
}

const xd_json *xd_json_first(const xd_json *j)
{
    return xd_json_at(j, 0);
}

const xd_json *xd_json_next(const xd_json *v)
{
    return v && !v->last ? v + 1 : NULL;
}

const char *xd_json_key(const xd_json *v)
{
    return v ? v->v->string : NULL;
}

static int is_nan(const xd_json *j)
{
    return cJSON_IsString(j->v) && !strcmp(j->v->valuestring, nan_mark);
}

const char *xd_json_text(const xd_json *j)
{
    return j && cJSON_IsString(j->v) && !is_nan(j) ? j->v->valuestring : NULL;
}

int xd_json_number(const xd_json *j, double *v)
{
    if (!j || (!cJSON_IsNumber(j->v) && !is_nan(j)))
        return 0;
    *v = cJSON_IsNumber(j->v) ? j->v->valuedouble : (double)NAN;
    return 1;
}

int xd_json_bool(const xd_json *j, int *v)
{
    if (!j || !cJSON_IsBool(j->v))
        return 0;
    *v = cJSON_IsTrue(j->v);
    return 1;
}

int xd_json_null(const xd_json *j)
{
    return !j || cJSON_IsNull(j->v);
}

int xd_json_is_object(const xd_json *j)
{
    return j && cJSON_IsObject(j->v);
}

int xd_json_is_list(const xd_json *j)
{
    return j && cJSON_IsArray(j->v);
}

void xd_buf_json(xd_text_buf *b, const xd_json *v)
{
    char *text = v ? cJSON_PrintUnformatted(v->v) : NULL;
    if (text)
        xd_buf_add(b, "%s", text);
    else
        b->failed = 1;
    cJSON_free(text);
}

void xd_json_about(xd_fact *fact, void *cookie)
{
    char text[64];
    snprintf(text, sizeof text, "cJSON %s", cJSON_Version());
    fact(cookie, "library", text);
}
