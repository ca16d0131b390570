/* base64.c - encodes and decodes base64; see base64.h */
#include "serve/base64.h"

#include <stdlib.h>
#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static int value_of(int c)
{
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : c == '-' ? 62 : c == '_' ? 63 : -1;
}

char *xd_base64_read(const char *text, size_t n, size_t *bytes)
{
    unsigned char *to = malloc(n / 4 * 3 + 4);
    unsigned       bits = 0;
    int            have = 0, ends = 0;
    *bytes = 0;
    for (size_t i = 0; to && i < n; i++) {
        int v = value_of((unsigned char)text[i]);
        if (strchr(" \r\n\t", text[i]) && text[i])
            continue;
        ends += text[i] == '=';
        if (text[i] != '=' && (v < 0 || ends)) {
            free(to);
            return NULL;
        }
        if (v < 0)
            continue;
        bits = bits << 6 | (unsigned)v;
        have += 6;
        if (have >= 8)
            to[(*bytes)++] = (unsigned char)(bits >> (have -= 8));
    }
    return (char *)to;
}

void xd_base64_add(xd_text_buf *b, const unsigned char *data, size_t bytes)
{
    enum { AT_ONCE = 3 * 256 };
    char text[AT_ONCE / 3 * 4 + 1];
    for (size_t i = 0; i < bytes;) {
        size_t n = bytes - i < AT_ONCE ? bytes - i : AT_ONCE, k = 0;
        for (size_t end = i + n; i < end; i += 3) {
            size_t   left = end - i;
            unsigned v = (unsigned)data[i] << 16 | (left > 1 ? (unsigned)data[i + 1] << 8 : 0) |
                         (left > 2 ? data[i + 2] : 0u);
            text[k++] = digits[v >> 18];
            text[k++] = digits[v >> 12 & 63];
            text[k++] = left > 1 ? digits[v >> 6 & 63] : '=';
            text[k++] = left > 2 ? digits[v & 63] : '=';
        }
        text[k] = 0;
        xd_buf_add(b, "%s", text);
    }
}
