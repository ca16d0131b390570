/* textbuf.c - implements a text buffer that grows. After a failed allocation, `failed` stays set
 * and appended text is dropped. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

/* Enlarges the buffer so that `more` bytes and the closing NUL fit. */
static int reserve(xd_text_buf *b, size_t more)
{
    size_t need = b->len + more + 1;
    if (b->failed)
        return 0;
    if (need <= b->cap)
        return 1;
    size_t cap = b->cap ? b->cap : 256;
    while (cap < need)
        cap *= 2;
    char *p = realloc(b->p, cap);
    if (!p) {
        b->failed = 1;
        return 0;
    }
    b->p = p;
    b->cap = cap;
    return 1;
}

static void add_bytes(xd_text_buf *b, const char *s, size_t n)
{
    if (!reserve(b, n))
        return;
    memcpy(b->p + b->len, s, n);
    b->len += n;
    b->p[b->len] = 0;
}

void xd_buf_vadd(xd_text_buf *b, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    if (n < 0)
        b->failed = 1;
    if (n >= 0 && reserve(b, (size_t)n)) {
        vsnprintf(b->p + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
}

void xd_buf_add(xd_text_buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    xd_buf_vadd(b, fmt, ap);
    va_end(ap);
}

static void add_escaped(xd_text_buf *b, unsigned char c)
{
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    const char       *at = strchr(from, c);
    if (at)
        xd_buf_add(b, "\\%c", to[at - from]);
    else
        xd_buf_add(b, "\\u%04x", c);
}

/* Appends the characters of s up to the first one for which `ends` is true, or the end of s. Bytes
 * that are not valid UTF-8 become U+FFFD. Returns the position after the last appended
 * character. */
static const char *add_utf8(xd_text_buf *b, const char *s, int (*ends)(const char *s))
{
    while (*s && !(ends && ends(s))) {
        const char *from = s;
        size_t      n;
        while (*s && !(ends && ends(s)) && (n = xd_utf8_bytes(s)) > 0)
            s += n;
        add_bytes(b, from, (size_t)(s - from));
        if ((unsigned char)*s >= 0x80 && !xd_utf8_bytes(s)) {
            add_bytes(b, "\xef\xbf\xbd", 3);
            s++;
        }
    }
    return s;
}

/* Returns 1 for U+0080 to U+009F: control characters that terminals execute. */
static int is_c1(const char *s)
{
    return (unsigned char)s[0] == 0xc2 && (unsigned char)s[1] >= 0x80 && (unsigned char)s[1] < 0xa0;
}

static int is_escaped(const char *s)
{
    return (unsigned char)*s < 0x20 || *s == '"' || *s == '\\' || *s == 0x7f || is_c1(s);
}

void xd_buf_utf8(xd_text_buf *b, const char *s)
{
    add_utf8(b, s, NULL);
}

void xd_buf_json_string(xd_text_buf *b, const char *s)
{
    add_bytes(b, "\"", 1);
    for (s = add_utf8(b, s, is_escaped); *s; s = add_utf8(b, s + 1, is_escaped)) {
        s += is_c1(s);
        add_escaped(b, (unsigned char)*s);
    }
    add_bytes(b, "\"", 1);
}

void xd_buf_free(xd_text_buf *b)
{
    free(b->p);
    *b = (xd_text_buf){ 0 };
}
