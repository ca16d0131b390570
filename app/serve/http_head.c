/* http_head.c - a state machine that checks the bytes of HTTP requests; see http_head.h */
#include "serve/http_head.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/* States of the parser of HTTP requests. The states NAME to FIELDS_END are used for the header
 * lines of a request, and again for the trailer fields after the last chunk of its body. */
enum {
    LINE,
    LINE_END, /* the request line */
    NAME,
    VALUE,
    VALUE_END,
    FIELDS_END,
    BODY,
    SIZE,
    EXTENSION,
    SIZE_END,
    CHUNK,
    CHUNK_CR,
    CHUNK_LF, /* the body consists of chunks */
};
enum { LENGTH_DIGITS = 18, SIZE_DIGITS = 15 };

const char *xd_head_sentence(int status)
{
    return status == 501 ? "the only supported Transfer-Encoding is chunked"
                         : "a request must have one Host and at most one Content-Length or "
                           "Transfer-Encoding, names without a blank before the colon, and lines "
                           "that end with CR LF and contain no control characters";
}

static void refuse(xd_head *h, int status)
{
    h->status = status;
}

static int is_token(char c)
{
    return isalnum((unsigned char)c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static int is_text(char c)
{
    return c == '\t' || ((unsigned char)c >= ' ' && c != 0x7f);
}

static void add_byte(char *text, size_t size, size_t *n, char c)
{
    if (*n < size)
        text[*n] = c;
    *n += 1;
}

/* ---- parsing of the head of a request -------------------------------------------------------- */

static int is_named(const xd_head *h, const char *name)
{
    return h->nname == strlen(name) && strncasecmp(h->name, name, h->nname) == 0;
}

/* Parses the value of Content-Length, which must consist of digits only. */
static void take_length(xd_head *h)
{
    if (h->lengths++ || h->codings || !h->nvalue || h->nvalue > LENGTH_DIGITS) {
        refuse(h, 400);
        return;
    }
    h->left = 0;
    for (size_t i = 0; i < h->nvalue; i++) {
        if (h->value[i] < '0' || h->value[i] > '9')
            refuse(h, 400);
        h->left = 10 * h->left + (uint64_t)(h->value[i] - '0');
    }
}

static int is_1_1(const xd_head *h)
{
    return memcmp(h->version, "HTTP/1.1", 8) == 0;
}

static void take_field(xd_head *h)
{
    while (h->nvalue && h->nvalue <= sizeof h->value &&
           (h->value[h->nvalue - 1] == ' ' || h->value[h->nvalue - 1] == '\t'))
        h->nvalue--;
    if (is_named(h, "Content-Length")) {
        take_length(h);
    } else if (is_named(h, "Host")) {
        h->hosts++;
    } else if (is_named(h, "Transfer-Encoding")) {
        if (h->codings++ || h->lengths || !is_1_1(h))
            refuse(h, 400);
        else if (h->nvalue != 7 || strncasecmp(h->value, "chunked", 7) != 0)
            refuse(h, 501);
    }
}

static void begin_name(xd_head *h)
{
    h->state = NAME;
    h->nname = h->nvalue = 0;
}

static void end_head(xd_head *h)
{
    int chunks = h->codings > 0;
    if (h->hosts > 1 || (!h->hosts && is_1_1(h))) {
        refuse(h, 400);
        return;
    }
    if (!chunks && !h->left) {
        *h = (xd_head){ 0 };
        return;
    }
    h->in_body = 1;
    h->state = chunks ? SIZE : BODY;
    h->digits = 0;
}

static void read_name(xd_head *h, char c)
{
    if (c == '\r' && !h->nname)
        h->state = FIELDS_END;
    else if (c == ':' && h->nname)
        h->state = VALUE;
    else if (is_token(c))
        add_byte(h->name, sizeof h->name, &h->nname, c);
    else
        refuse(h, 400);
}

static void read_value(xd_head *h, char c, int end)
{
    if (c == '\r')
        h->state = end;
    else if (!is_text(c))
        refuse(h, 400);
    else if (h->nvalue || (c != ' ' && c != '\t'))
        add_byte(h->value, sizeof h->value, &h->nvalue, c);
}

static void read_line(xd_head *h, char c)
{
    if (c == '\r') {
        h->state = LINE_END;
    } else if (is_text(c)) {
        memmove(h->version, h->version + 1, sizeof h->version - 1);
        h->version[sizeof h->version - 1] = c;
    } else {
        refuse(h, 400);
    }
}

static void read_size(xd_head *h, char c)
{
    static const char digits[] = "0123456789abcdef";
    const char       *at = c ? strchr(digits, tolower((unsigned char)c)) : NULL;
    if (at && h->digits < SIZE_DIGITS) {
        h->left = 16 * (h->digits ? h->left : 0) + (uint64_t)(at - digits);
        h->digits++;
    } else if (h->digits && (c == ';' || c == '\r')) {
        h->state = c == ';' ? EXTENSION : SIZE_END;
    } else {
        refuse(h, 400);
    }
}

/* ---- parsing of a complete request ----------------------------------------------------------- */

/* Handles the line feed at the end of a line. Empty lines before the request line are allowed. */
static void end_line(xd_head *h)
{
    if (h->state == VALUE_END && !h->in_body)
        take_field(h);
    if (h->state == FIELDS_END && !h->in_body)
        end_head(h);
    else if (h->state == CHUNK_LF)
        h->state = SIZE, h->digits = 0;
    else if (h->state == SIZE_END && h->left)
        h->state = CHUNK;
    else if (h->state == FIELDS_END || (h->state == LINE_END && !h->version[sizeof h->version - 1]))
        *h = (xd_head){ 0 };
    else
        begin_name(h);
}

static void read_byte(xd_head *h, char c)
{
    switch (h->state) {
    case LINE: read_line(h, c); break;
    case NAME: read_name(h, c); break;
    case VALUE: read_value(h, c, VALUE_END); break;
    case SIZE: read_size(h, c); break;
    case EXTENSION: read_value(h, c, SIZE_END); break;
    case CHUNK_CR:
        if (c == '\r')
            h->state = CHUNK_LF;
        else
            refuse(h, 400);
        break;
    default:
        if (c == '\n')
            end_line(h);
        else
            refuse(h, 400);
    }
}

/* Skips at most n bytes of a body; returns the number of skipped bytes. */
static size_t skip_body(xd_head *h, size_t n)
{
    size_t k = h->left < n ? (size_t)h->left : n;
    h->left -= k;
    if (!h->left && h->state == BODY)
        *h = (xd_head){ 0 };
    else if (!h->left)
        h->state = CHUNK_CR;
    return k;
}

size_t xd_head_read(xd_head *h, char *p, size_t n)
{
    size_t kept = 0;
    for (size_t at = 0, k; at < n && !h->status; at += k) {
        int body = h->state == BODY || h->state == CHUNK;
        k = 1;
        if (body)
            k = skip_body(h, n - at);
        else
            read_byte(h, p[at]);
        if (h->status || (!body && h->state == EXTENSION))
            continue; /* the chunk extension is not forwarded */
        memmove(p + kept, p + at, k);
        kept += k;
    }
    return kept;
}
