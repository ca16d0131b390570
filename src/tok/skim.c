/* skim.c - reads a large tokenizer.json without parsing its vocabulary to a tree.
 *
 * The vocabulary and the merges of a language model are 10 to 30 MB of JSON. The byte ranges of
 * vocabulary and merges are found in the text, and the strings in these ranges are read one by one.
 * The rest of the document is small and is parsed to a tree. */
#include "tok/inside.h"

#include <string.h>

/* ---- values --------------------------------------------------------------------------------- */

static void skip_blank(xd_skim *k)
{
    while (k->at < k->len && (k->p[k->at] == ' ' || k->p[k->at] == '\n' || k->p[k->at] == '\t' ||
                              k->p[k->at] == '\r'))
        k->at++;
}

int xd_skim_is(xd_skim *k, char c)
{
    skip_blank(k);
    if (k->at >= k->len || k->p[k->at] != c)
        return 0;
    k->at++;
    return 1;
}

/* Skips a JSON string. k->at must be after the opening quote. Returns 0 if there is no closing
 * quote. */
static int skip_string(xd_skim *k)
{
    for (; k->at < k->len; k->at++) {
        if (k->p[k->at] == '"') {
            k->at++;
            return 1;
        }
        k->at += k->p[k->at] == '\\';
    }
    return 0;
}

/* Skips a JSON value. Returns 0 if the value has no end. */
static int skip_value(xd_skim *k)
{
    int depth = 0;
    skip_blank(k);
    while (k->at < k->len) {
        char c = k->p[k->at];
        if (depth == 0 && (c == ',' || c == '}' || c == ']'))
            return 1;
        k->at++;
        if (c == '"') {
            if (!skip_string(k))
                return 0;
            if (depth == 0)
                return 1;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']') {
            if (--depth == 0)
                return 1;
        }
    }
    return 0;
}

/* ---- strings -------------------------------------------------------------------------------- */

static int hex_digits(const char *s, size_t left, int32_t *v)
{
    *v = 0;
    for (size_t i = 0; i < 4; i++) {
        char c = i < left ? s[i] : 'x';
        int  d = c >= '0' && c <= '9'   ? c - '0'
                 : c >= 'a' && c <= 'f' ? c - 'a' + 10
                 : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                        : -1;
        if (d < 0)
            return 0;
        *v = *v * 16 + d;
    }
    return 1;
}

/* Appends the character of an escape \uXXXX, or of two escapes that are a surrogate pair. k->at
 * must be after the "u" of the first escape. */
static int read_unicode(xd_skim *k, xd_bytes_buf *out)
{
    int32_t c, low;
    if (!hex_digits(k->p + k->at, k->len - k->at, &c))
        return 0;
    k->at += 4;
    if (c >= 0xd800 && c < 0xdc00) {
        if (k->len - k->at < 6 || k->p[k->at] != '\\' || k->p[k->at + 1] != 'u' ||
            !hex_digits(k->p + k->at + 2, k->len - k->at - 2, &low) || low < 0xdc00 ||
            low >= 0xe000)
            return 0;
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        k->at += 6;
    } else if (c >= 0xdc00 && c < 0xe000) {
        return 0;
    }
    xd_utf8_put(c, out);
    return 1;
}

static int read_escape(xd_skim *k, xd_bytes_buf *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char       *at;
    if (k->at >= k->len)
        return 0;
    char c = k->p[k->at++];
    if (c == 'u')
        return read_unicode(k, out);
    at = c ? strchr(from, c) : NULL;
    if (at)
        xd_bytes_add(out, &to[at - from], 1);
    return at != NULL;
}

int xd_skim_string(xd_skim *k, xd_bytes_buf *buf, xd_slice *out)
{
    if (!xd_skim_is(k, '"'))
        return 0;
    size_t from = k->at;
    int    plain = 1;
    buf->len = 0;
    while (k->at < k->len) {
        unsigned char c = (unsigned char)k->p[k->at];
        if (c == '"' || c == '\\') {
            if (c == '"' && plain) {
                *out = (xd_slice){ k->p + from, k->at++ - from };
                return 1;
            }
            xd_bytes_add(buf, k->p + from, k->at - from);
            k->at++;
            plain = 0;
            if (c == '"') {
                *out = (xd_slice){ buf->p ? buf->p : "", buf->len };
                return !buf->failed;
            }
            if (!read_escape(k, buf))
                return 0;
            from = k->at;
        } else if (c < 0x20 || c == 0xc0 || c == 0xc1 || c >= 0xf5) {
            return 0;
        } else {
            k->at++;
        }
    }
    return 0;
}

int xd_skim_id(xd_skim *k, int64_t *id)
{
    int64_t v = 0;
    size_t  from;
    skip_blank(k);
    for (from = k->at; k->at < k->len && k->p[k->at] >= '0' && k->p[k->at] <= '9'; k->at++)
        v = v < (int64_t)1 << 40 ? v * 10 + (k->p[k->at] - '0') : v;
    *id = v;
    return k->at > from && (k->at == k->len || !strchr(".eE+-", k->p[k->at]));
}

/* ---- the document --------------------------------------------------------------------------- */

xd_status xd_skim_broken(const xd_skim *k, const char *what, const char *part, xd_err *e)
{
    return xd_fail(e, XD_EFORMAT, "%s: %s is invalid near its byte %zu of %zu", what, part, k->at,
                   k->len);
}

/* Stores the value of an object's member as a range of bytes. Writes the text `instead` in the
 * place of the value to `rest`, the rest of the document. */
static void cut_out(xd_skim *k, size_t from, xd_slice *range, size_t *copied, const char *instead,
                    xd_bytes_buf *rest)
{
    *range = (xd_slice){ k->p + from, k->at - from };
    xd_bytes_add(rest, k->p + *copied, from - *copied);
    xd_bytes_add(rest, instead, 2);
    *copied = k->at;
}

static int is_key(const xd_slice *s, const char *key)
{
    return s->len == strlen(key) && !memcmp(s->p, key, s->len);
}

/* Reads the members of a tokenizer.json's object, and of its member "model" (`inner`). If the
 * document is truncated or not an object, it is left unchanged, so that the JSON parser reports the
 * error. */
static int skim_object(xd_skim *k, int inner, xd_skimmed *out, size_t *copied)
{
    xd_bytes_buf buf = { 0 };
    xd_slice     key = { 0 };
    int          good = xd_skim_is(k, '{');
    for (int more = good; more && good; more = good && xd_skim_is(k, ',')) {
        good = xd_skim_string(k, &buf, &key) && xd_skim_is(k, ':');
        skip_blank(k);
        size_t from = k->at;
        char   first = good && from < k->len ? k->p[from] : 0;
        if (good && !inner && is_key(&key, "model") && first == '{')
            good = skim_object(k, 1, out, copied);
        else
            good = good && skip_value(k);
        if (good && inner && is_key(&key, "vocab") && first == '{' && !out->vocab.p)
            cut_out(k, from, &out->vocab, copied, "{}", &out->rest);
        else if (good && inner && is_key(&key, "merges") && first == '[' && !out->merges.p)
            cut_out(k, from, &out->merges, copied, "[]", &out->rest);
    }
    good = good && xd_skim_is(k, '}');
    xd_bytes_free(&buf);
    return good;
}

xd_status xd_skim_read(xd_skimmed *out, const char *text, size_t len, xd_err *e)
{
    xd_skim k = { text, len, len >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0 };
    size_t  copied = 0;
    *out = (xd_skimmed){ 0 };
    if (!skim_object(&k, 0, out, &copied)) {
        out->vocab = out->merges = (xd_slice){ 0 };
        out->rest.len = copied = 0;
    }
    xd_bytes_add(&out->rest, text + copied, len - copied);
    return out->rest.failed ? xd_fail(e, XD_ENOMEM, "no memory for %zu bytes of JSON", len) : XD_OK;
}
