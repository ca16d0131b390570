/* utf8.c - decodes and encodes UTF-8, tests for white space, and implements growing byte buffers */
#include "tok/inside.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

void xd_bytes_add(xd_bytes_buf *b, const void *p, size_t n)
{
    if (b->failed || !n)
        return;
    if (n > b->cap - b->len) {
        size_t cap = b->cap + b->cap / 2 + n + 64;
        char  *q = cap > n ? realloc(b->p, cap) : NULL;
        if (!q) {
            b->failed = 1;
            return;
        }
        b->p = q;
        b->cap = cap;
    }
    memcpy(b->p + b->len, p, n);
    b->len += n;
}

void xd_bytes_free(xd_bytes_buf *b)
{
    free(b->p);
    *b = (xd_bytes_buf){ 0 };
}

void xd_ids_add(xd_ids *o, int32_t id)
{
    if (o->n == o->cap && !o->failed) {
        int64_t  cap = o->cap * 2 + 64;
        int32_t *q = realloc(o->p, (size_t)cap * sizeof *q);
        o->failed = !q;
        if (q) {
            o->p = q;
            o->cap = cap;
        }
    }
    if (!o->failed)
        o->p[o->n++] = id;
}

int32_t xd_utf8_get(const char *s, size_t len, size_t *took)
{
    static const int32_t lowest[] = { 0, 0, 0x80, 0x800, 0x10000 };
    unsigned char        c = (unsigned char)s[0];
    size_t n = c < 0x80 ? 1 : c < 0xc0 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf8 ? 4 : 0;
    *took = 1;
    if (n == 1)
        return c;
    if (n == 0 || n > len)
        return -1;
    int32_t v = c & (0x7f >> n);
    for (size_t i = 1; i < n; i++) {
        if (((unsigned char)s[i] & 0xc0) != 0x80)
            return -1;
        v = (int32_t)((uint32_t)v << 6) | ((unsigned char)s[i] & 0x3f);
    }
    if (v < lowest[n] || v > 0x10ffff || (v >= 0xd800 && v < 0xe000))
        return -1;
    *took = n;
    return v;
}

int32_t xd_utf8_before(const char *s, size_t at, size_t *from)
{
    size_t took, i = at - 1;
    while (i > 0 && ((unsigned char)s[i] & 0xc0) == 0x80)
        i--;
    *from = i;
    return xd_utf8_get(s + i, at - i, &took);
}

void xd_utf8_put(int32_t c, xd_bytes_buf *out)
{
    utf8proc_uint8_t enc[4];
    utf8proc_ssize_t n = utf8proc_encode_char(c, enc);
    xd_bytes_add(out, enc, n > 0 ? (size_t)n : 0);
}

size_t xd_utf8_len(const char *s)
{
    unsigned char c = (unsigned char)*s;
    return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

int xd_is_space(int32_t c)
{
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

int xd_is_blank(int32_t c)
{
    return xd_is_space(c) || (c >= 0x1c && c <= 0x1f);
}
