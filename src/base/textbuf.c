/* textbuf.c - a text that grows; after a failed allocation it only remembers that it failed */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

/* Room for `more` bytes and the closing NUL. */
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

void xd_buf_add(xd_text_buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        b->failed = 1;
    if (n < 0 || !reserve(b, (size_t)n))
        return;
    va_start(ap, fmt);
    vsnprintf(b->p + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
}

/* Bytes of the UTF-8 character at s; 0 when there is none: a stray byte, an overlong form, a
 * surrogate, or past U+10FFFF. */
static size_t utf8_len(const unsigned char *s)
{
    unsigned c = s[0], low = 0x80, high = 0xbf;
    size_t   n = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : 4;
    if (c < 0x80)
        return 1;
    if (c < 0xc2 || c > 0xf4)
        return 0;
    if (c == 0xe0)
        low = 0xa0;
    if (c == 0xed)
        high = 0x9f;
    if (c == 0xf0)
        low = 0x90;
    if (c == 0xf4)
        high = 0x8f;
    if (s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    return n;
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

/* Appends the characters of s up to one that `ends` or its end; bytes that are not UTF-8 become U+FFFD. Returns
 * where it stopped. */
static const char *add_utf8(xd_text_buf *b, const char *s, int (*ends)(char c))
{
    while (*s && !(ends && ends(*s))) {
        const char *from = s;
        size_t      n;
        while (*s && !(ends && ends(*s)) && (n = utf8_len((const unsigned char *)s)) > 0)
            s += n;
        add_bytes(b, from, (size_t)(s - from));
        if ((unsigned char)*s >= 0x80) {
            add_bytes(b, "\xef\xbf\xbd", 3);
            s++;
        }
    }
    return s;
}

static int is_escaped(char c)
{
    return (unsigned char)c < 0x20 || c == '"' || c == '\\' || c == 0x7f;
}

void xd_buf_utf8(xd_text_buf *b, const char *s)
{
    add_utf8(b, s, NULL);
}

void xd_buf_json_string(xd_text_buf *b, const char *s)
{
    add_bytes(b, "\"", 1);
    for (s = add_utf8(b, s, is_escaped); *s; s = add_utf8(b, s + 1, is_escaped))
        add_escaped(b, (unsigned char)*s);
    add_bytes(b, "\"", 1);
}

void xd_buf_free(xd_text_buf *b)
{
    free(b->p);
    *b = (xd_text_buf){ 0 };
}
