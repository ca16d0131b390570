/* http_body.c - receives and parses the body of a request; see http_body.h */
#include "serve/http_body.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <microhttpd.h>

enum { FORM_BUFFER = 64 << 10, MAX_PARTS = 64, MAX_VALUES = 10000 };

/* value of the header Retry-After in seconds; most uploads take less time */
static const char RETRY_S[] = "5";

static int append(char **p, size_t *bytes, size_t *cap, const char *data, size_t n)
{
    if (*bytes + n + 1 > *cap) {
        size_t cap_now = *cap ? *cap : 4096;
        while (cap_now < *bytes + n + 1)
            cap_now *= 2;
        char *more = realloc(*p, cap_now);
        if (!more)
            return 0;
        *p = more;
        *cap = cap_now;
    }
    memcpy(*p + *bytes, data, n);
    *bytes += n;
    (*p)[*bytes] = 0;
    return 1;
}

static xd_part *add_part(xd_body *b, const char *name, const char *file, const char *type)
{
    xd_http_call *c = b->call;
    xd_part      *parts =
        c->nparts < MAX_PARTS ? realloc(c->parts, ((size_t)c->nparts + 1) * sizeof *parts) : NULL;
    if (!parts) {
        b->status = 400;
        return NULL;
    }
    c->parts = parts;
    xd_part *p = &parts[c->nparts++];
    *p = (xd_part){ .name = strdup(name),
                    .file = file ? strdup(file) : NULL,
                    .type = type ? strdup(type) : NULL,
                    .data = calloc(1, 1) };
    if (!p->name || !p->data)
        b->status = 503;
    return p;
}

/* Returns nonzero if the received piece of a form continues the part that was last added to
 * c->parts. The first received piece of a form field may be empty. */
static int continues_part(const xd_http_call *c, const char *name, uint64_t at)
{
    const xd_part *last = c->nparts ? &c->parts[c->nparts - 1] : NULL;
    return last && (at || (!last->bytes && strcmp(last->name, name ? name : "") == 0));
}

/* Called by libmicrohttpd for each received piece of a form's field, in the order of the pieces.
 * `at` is the offset of the piece in the field. */
static enum MHD_Result on_piece(void *cls, enum MHD_ValueKind kind, const char *name,
                                const char *file, const char *type, const char *encoding,
                                const char *data, uint64_t at, size_t size)
{
    xd_body      *b = cls;
    xd_http_call *c = b->call;
    (void)kind;
    (void)encoding;
    xd_part *p = continues_part(c, name, at) ? &c->parts[c->nparts - 1]
                                             : add_part(b, name ? name : "", file, type);
    size_t   cap = p ? p->bytes + 1 : 0;
    if (b->status || !p || !append(&p->data, &p->bytes, &cap, data, size))
        b->status = b->status ? b->status : 503;
    return b->status ? MHD_NO : MHD_YES;
}

#define FORM "application/x-www-form-urlencoded"

void xd_body_begin(xd_body *b, xd_http_call *c, size_t max, xd_body_pool *pool)
{
    const char *type = xd_http_header(c, "Content-Type");
    *b = (xd_body){ .call = c, .max = max, .pool = pool };
    if (type &&
        (strncasecmp(type, "multipart/form-data", 19) == 0 || strncasecmp(type, FORM, 33) == 0)) {
        b->form = MHD_create_post_processor(c->connection, FORM_BUFFER, on_piece, b);
        if (!b->form)
            b->status = 400;
    }
}

/* Frees the received content of a body. */
static void free_content(xd_body *b)
{
    xd_http_call *c = b->call;
    free(b->data);
    b->data = NULL;
    b->bytes = b->cap = 0;
    for (int i = 0; i < c->nparts; i++)
        free(c->parts[i].name), free(c->parts[i].file), free(c->parts[i].type),
            free(c->parts[i].data);
    free(c->parts);
    c->parts = NULL;
    c->nparts = 0;
    atomic_fetch_sub(&b->pool->bytes, b->pooled);
    b->pooled = 0;
}

/* Adds bytes to the pool, which counts the bytes of all request bodies in memory. Returns 0 if the
 * bytes of all bodies exceed the pool's limit. */
static int count_bytes(xd_body *b, size_t bytes)
{
    b->pooled += bytes;
    size_t all = atomic_fetch_add(&b->pool->bytes, bytes) + bytes;
    return !b->pool->max || all <= b->pool->max;
}

/* Reads the body as JSON if its type is that of a form, which Python's urllib sets by default, but
 * its first byte begins JSON: a form would encode this byte. */
static void correct_type(xd_body *b, const char *data)
{
    const char *type = xd_http_header(b->call, "Content-Type");
    if (b->total || !b->form || data[0] != '{' || strncasecmp(type, FORM, 33) != 0)
        return;
    MHD_destroy_post_processor(b->form);
    b->form = NULL;
}

void xd_body_add(xd_body *b, const char *data, size_t bytes)
{
    correct_type(b, data);
    b->total += bytes;
    if (b->total > b->max)
        b->status = 413;
    else if (!b->status && !count_bytes(b, bytes))
        b->status = 503, b->pool_full = 1;
    if (b->status && b->pooled)
        free_content(b);
    if (b->status) /* read and drop the rest of a refused body, so that the reply reaches the
                             client */
        return;
    if (b->form && MHD_post_process(b->form, data, bytes) != MHD_YES)
        b->status = b->status ? b->status : 400;
    else if (!b->form && !append(&b->data, &b->bytes, &b->cap, data, bytes))
        b->status = 503;
}

static void refuse(const xd_body *b, xd_http_call *c)
{
    if (b->status == 413)
        xd_reply_error(c, 413, NULL, NULL, "the body exceeds the limit of %zu bytes (--max_body)",
                       b->max);
    else if (b->pool_full)
        xd_reply_error(c, 503, NULL, NULL,
                       "the bodies of all requests exceed the limit of %zu "
                       "bytes (--max_bodies): send this request again later",
                       b->pool->max),
            xd_reply_header(c, "Retry-After", RETRY_S);
    else if (b->status == 503)
        xd_reply_error(c, 503, NULL, NULL, "no memory for the body of a request");
    else
        xd_reply_error(c, 400, NULL, NULL,
                       "the body is not valid multipart/form-data with at most "
                       "%d parts",
                       MAX_PARTS);
}

/* Returns nonzero if the body has the media type of JSON, or begins with a byte that begins JSON
 * and has no type or a type that libraries of HTTP set by default. */
static int is_json(const xd_body *b, xd_http_call *c)
{
    const char *type = xd_http_header(c, "Content-Type");
    if (type && strncasecmp(type, "application/json", 16) == 0)
        return 1;
    return b->data && (b->data[0] == '{' || b->data[0] == '[') &&
           (!type || strncasecmp(type, "text/plain", 10) == 0 || strncasecmp(type, FORM, 33) == 0);
}

/* Returns nonzero if the text is UTF-8 without a NUL. Text that is not UTF-8 must not reach
 * replies, files and the log. */
static int is_text(const char *s, size_t n)
{
    const char *end = s + n;
    while (s < end) {
        size_t k = *s ? xd_utf8_bytes(s) : 0;
        if (!k)
            return 0;
        s += k;
    }
    return 1;
}

static int are_texts(const xd_http_call *c)
{
    for (int i = 0; i < c->nparts; i++) {
        const xd_part *p = &c->parts[i];
        if (!is_text(p->name, strlen(p->name)) || (!p->file && !is_text(p->data, p->bytes)))
            return 0;
    }
    return 1;
}

/* Returns nonzero if the number of values in a JSON text is small enough to parse the text. A JSON
 * value of two bytes needs a hundred bytes of memory when parsed. The number of commas and brackets
 * outside strings is an upper bound for the number of values. */
static int has_few_values(const char *s, const char *end)
{
    int n = 0, inside = 0;
    for (; s < end && n <= MAX_VALUES; s++) {
        if (inside && *s == '\\')
            s++;
        else if (*s == '"')
            inside = !inside;
        else
            n += !inside && (*s == ',' || *s == '[' || *s == '{');
    }
    return n <= MAX_VALUES;
}

static int read_json(xd_body *b, xd_http_call *c)
{
    xd_err e = { 0 };
    if (b->bytes >= 3 && memcmp(b->data, "\xef\xbb\xbf", 3) == 0) { /* UTF-8 byte order mark */
        c->body += 3;
        c->bytes -= 3;
    }
    if (!has_few_values(c->body, c->body + c->bytes))
        xd_reply_error(c, 400, NULL, NULL, "the body has more than %d values", MAX_VALUES);
    else if (xd_json_parse(&c->json, c->body, c->bytes, "the body", &e) != XD_OK)
        xd_reply_error(c, 400, NULL, NULL, "%s", e.msg);
    else if (!is_text(c->body, c->bytes))
        xd_reply_error(c, 400, NULL, NULL, "the body is not UTF-8");
    else
        return 1;
    return 0;
}

int xd_body_end(xd_body *b, xd_http_call *c)
{
    if (b->form && MHD_destroy_post_processor(b->form) != MHD_YES && !b->status)
        b->status = 400;
    b->form = NULL;
    if (b->status) {
        refuse(b, c);
        return 0;
    }
    c->body = b->data;
    c->bytes = b->bytes;
    if (!are_texts(c)) {
        xd_reply_error(c, 400, NULL, NULL, "a field of the form is not UTF-8");
        return 0;
    }
    return !b->bytes || !is_json(b, c) || read_json(b, c);
}

void xd_body_free(xd_body *b, xd_http_call *c)
{
    if (b->form)
        MHD_destroy_post_processor(b->form);
    xd_json_free(&c->json);
    if (b->pool) /* the pool counts the body only after xd_body_begin was called */
        free_content(b);
}
