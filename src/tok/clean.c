/* clean.c - prepares a prompt like the video pipelines of diffusers (prompt_clean): repairs the
 * text (ftfy.fix_text), replaces HTML entities twice, and replaces each run of white space by one
 * space. */
#include "tok/inside.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* ---- characters ----------------------------------------------------------------------------- */

static int is_dropped(int32_t c)
{
    return c < 9 || c == 0xb || (c >= 0xe && c < 0x20) || c == 0x7f ||
           (c >= 0x206a && c <= 0x206f) || c == 0xfeff || (c >= 0xfff9 && c <= 0xfffc);
}

/* Returns the letters of which the ligature c consists, or NULL if c is not a ligature. */
static const char *letters_of(int32_t c)
{
    static const struct {
        int32_t     c;
        const char *text;
    } two[] = {
        { 0x132, "IJ" },         { 0x133, "ij" },        { 0x149, "'n" },   { 0x1c4, "D\xc5\xbd" },
        { 0x1c5, "D\xc5\xbe" },  { 0x1c6, "d\xc5\xbe" }, { 0x1c7, "LJ" },   { 0x1c8, "Lj" },
        { 0x1c9, "lj" },         { 0x1ca, "NJ" },        { 0x1cb, "Nj" },   { 0x1cc, "nj" },
        { 0x1f1, "DZ" },         { 0x1f2, "Dz" },        { 0x1f3, "dz" },   { 0xfb00, "ff" },
        { 0xfb01, "fi" },        { 0xfb02, "fl" },       { 0xfb03, "ffi" }, { 0xfb04, "ffl" },
        { 0xfb05, "\xc5\xbft" }, { 0xfb06, "st" },
    };
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (two[i].c == c)
            return two[i].text;
    return NULL;
}

/* Appends the character c. If c is a half-width or full-width form, appends the character of normal
 * width instead. */
static void put_width(int32_t c, xd_bytes_buf *out)
{
    utf8proc_int32_t code[8];
    int              bound = 0;
    utf8proc_ssize_t n =
        c > 0xff00 && c < 0xfff0
            ? utf8proc_decompose_char(c, code, 8, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, &bound)
            : 0;
    if (n < 1 || n > 8)
        xd_utf8_put(c == 0x3000 ? ' ' : c, out);
    for (int i = 0; n <= 8 && i < n; i++)
        xd_utf8_put(code[i], out);
}

static int32_t plain_of(int32_t c)
{
    if (c == 0x2bc || (c >= 0x2018 && c <= 0x201b))
        return '\'';
    if (c >= 0x201c && c <= 0x201f)
        return '"';
    return c == '\r' || c == 0x2028 || c == 0x2029 || c == 0x85 ? '\n' : c;
}

static void write_plain(const char *s, size_t len, xd_bytes_buf *out)
{
    size_t took;
    for (size_t i = 0; i < len; i += took) {
        int32_t     c = xd_utf8_get(s + i, len - i, &took);
        const char *two = letters_of(c);
        if (c == '\r' && i + 1 < len && s[i + 1] == '\n')
            took = 2;
        if (two)
            xd_bytes_add(out, two, strlen(two));
        else
            put_width(plain_of(c), out);
    }
}

static void drop_controls(xd_bytes_buf *text)
{
    size_t n = 0, took;
    xd_replace(text, "\\x1b\\[[" XD_DIGIT ";]*[a-zA-Z]", "", 0);
    for (size_t i = 0; i < text->len; i += took) {
        int32_t c = xd_utf8_get(text->p + i, text->len - i, &took);
        if (!is_dropped(c)) {
            memmove(text->p + n, text->p + i, took);
            n += took;
        }
    }
    text->len = n;
}

/* ---- ftfy's fix_text ------------------------------------------------------------------------ */

static void compose(xd_bytes_buf *text)
{
    xd_codes c;
    if (text->failed || !xd_codes_read(&c, text->p, text->len)) {
        text->failed = 1;
        return;
    }
    text->failed |= !xd_codes_canonical(&c, XD_NFC_TODAY);
    text->len = 0;
    for (size_t i = 0; i < c.n; i++)
        xd_utf8_put(c.p[i], text);
    free(c.p);
}

/* Applies ftfy's repairs to a line of text again and again, until the repairs change nothing. */
static void fix_line(xd_bytes_buf *line, int unescape)
{
    int changed = 1;
    while (changed && !line->failed) {
        xd_bytes_buf before = { 0 }, a = { 0 };
        xd_bytes_add(&before, line->p, line->len);
        if (unescape) {
            xd_unescape_whole(line->p, line->len, &a);
            xd_bytes_free(line);
            *line = a;
            a = (xd_bytes_buf){ 0 };
        }
        xd_fix_charset(line);
        xd_fix_controls(line);
        write_plain(line->p, line->len, &a);
        a.failed |= line->failed | before.failed;
        xd_bytes_free(line);
        *line = a;
        drop_controls(line);
        compose(line);
        changed = before.len != line->len || (line->len && memcmp(before.p, line->p, line->len));
        xd_bytes_free(&before);
    }
}

void xd_fix_text(xd_bytes_buf *text)
{
    xd_bytes_buf out = { 0 };
    /* 0: the text has a "<" and may be HTML, so entities are kept. */
    int          unescape = 1;
    for (size_t i = 0, n; i < text->len && !out.failed; i += n) {
        const char  *end = memchr(text->p + i, '\n', text->len - i);
        xd_bytes_buf line = { 0 };
        n = end ? (size_t)(end - text->p) + 1 - i : text->len - i;
        unescape = unescape && !memchr(text->p + i, '<', n);
        xd_bytes_add(&line, text->p + i, n);
        fix_line(&line, unescape);
        out.failed |= line.failed;
        xd_bytes_add(&out, line.p, line.len);
        xd_bytes_free(&line);
    }
    out.failed |= text->failed;
    xd_bytes_free(text);
    *text = out;
}

void xd_unescape_twice(xd_bytes_buf *text)
{
    xd_bytes_buf a = { 0 };
    xd_unescape(text->p, text->len, &a);
    text->len = 0;
    xd_unescape(a.p, a.len, text);
    text->failed |= a.failed;
    xd_bytes_free(&a);
}

/* ---- all ------------------------------------------------------------ */

static void write_spaced(const char *s, size_t len, xd_bytes_buf *out)
{
    size_t took, begin = out->len;
    int    space = 0;
    for (size_t i = 0; i < len; i += took) {
        int32_t c = xd_utf8_get(s + i, len - i, &took);
        if (xd_is_blank(c)) {
            space = 1;
            continue;
        }
        if (space && out->len > begin)
            xd_bytes_add(out, " ", 1);
        xd_bytes_add(out, s + i, took);
        space = 0;
    }
}

void xd_caption_read(const char *text, xd_bytes_buf *out)
{
    size_t took, len = strlen(text);
    for (size_t i = 0; i < len; i += took) {
        int32_t c = xd_utf8_get(text + i, len - i, &took);
        xd_utf8_put(c < 0 ? 0xfffd : c, out);
    }
}

char *xd_caption_end(xd_bytes_buf *text)
{
    xd_bytes_add(text, "", 1);
    if (text->failed)
        xd_bytes_free(text);
    return text->p;
}

char *xd_caption_clean(const char *text)
{
    xd_bytes_buf a = { 0 }, b = { 0 };
    xd_caption_read(text, &a);
    xd_fix_text(&a);
    xd_unescape_twice(&a);
    write_spaced(a.p, a.len, &b);
    b.failed |= a.failed;
    xd_bytes_free(&a);
    return xd_caption_end(&b);
}
