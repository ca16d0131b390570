/* clean.c - prepares a prompt as the video pipelines of diffusers do (prompt_clean): quotes,
 * ligatures and wide letters become plain ones and control characters go, as ftfy does it;
 * characters that HTML names are written out twice; runs of white space become one blank.
 *
 * Of ftfy, decoding that went wrong is not repaired, terminal escapes lose only their first
 * character, and half-width Katakana and combinations of marks are left to the tokenizer. Of HTML's
 * names, those of ASCII, Latin-1 and typography are known. */
#include "tok/inside.h"

#include <stdlib.h>
#include <string.h>

/* ---- characters ----------------------------------------------------------------------------- */

static int is_dropped(int32_t c)
{
    return c < 9 || c == 0xb || (c >= 0xe && c < 0x20) || c == 0x7f ||
           (c >= 0x206a && c <= 0x206f) || c == 0xfeff || (c >= 0xfff9 && c <= 0xfffc);
}

/* Letters that stand for several; NULL: c does not. */
static const char *letters_of(int32_t c)
{
    static const struct { int32_t c; const char *text; } two[] = {
        { 0x132, "IJ" }, { 0x133, "ij" }, { 0x149, "'n" }, { 0x1c4, "D\xc5\xbd" },
        { 0x1c5, "D\xc5\xbe" }, { 0x1c6, "d\xc5\xbe" }, { 0x1c7, "LJ" }, { 0x1c8, "Lj" },
        { 0x1c9, "lj" }, { 0x1ca, "NJ" }, { 0x1cb, "Nj" }, { 0x1cc, "nj" }, { 0x1f1, "DZ" },
        { 0x1f2, "Dz" }, { 0x1f3, "dz" }, { 0xfb00, "ff" }, { 0xfb01, "fi" }, { 0xfb02, "fl" },
        { 0xfb03, "ffi" }, { 0xfb04, "ffl" }, { 0xfb05, "\xc5\xbft" }, { 0xfb06, "st" },
    };
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (two[i].c == c)
            return two[i].text;
    return NULL;
}

static int32_t plain_of(int32_t c)
{
    if (c == 0x2bc || (c >= 0x2018 && c <= 0x201b))
        return '\'';
    if (c >= 0x201c && c <= 0x201f)
        return '"';
    if (c >= 0xff01 && c <= 0xff5e)
        return c - 0xff01 + 0x21;
    return c == 0x3000 ? ' ' : c;
}

static void write_plain(const char *s, size_t len, xd_bytes_buf *out)
{
    size_t took;
    for (size_t i = 0; i < len; i += took) {
        int32_t     c = xd_utf8_get(s + i, len - i, &took);
        const char *two = c < 0 ? NULL : letters_of(c);
        if (c < 0)              /* no UTF-8: for the tokenizer                                  */
            xd_bytes_add(out, s + i, took);
        else if (two)
            xd_bytes_add(out, two, strlen(two));
        else if (!is_dropped(c))
            xd_utf8_put(plain_of(c), out);
    }
}

/* ---- names of HTML -------------------------------------------------------------------------- */

static const char latin1[] =
    "nbsp iexcl cent pound curren yen brvbar sect uml copy ordf laquo not shy reg macr deg plusmn "
    "sup2 sup3 acute micro para middot cedil sup1 ordm raquo frac14 frac12 frac34 iquest Agrave "
    "Aacute Acirc Atilde Auml Aring AElig Ccedil Egrave Eacute Ecirc Euml Igrave Iacute Icirc Iuml "
    "ETH Ntilde Ograve Oacute Ocirc Otilde Ouml times Oslash Ugrave Uacute Ucirc Uuml Yacute THORN "
    "szlig agrave aacute acirc atilde auml aring aelig ccedil egrave eacute ecirc euml igrave "
    "iacute icirc iuml eth ntilde ograve oacute ocirc otilde ouml divide oslash ugrave uacute "
    "ucirc uuml yacute thorn yuml";

static const struct name { const char *name; int32_t c; int bare; } names[] = {
    { "AMP", '&', 1 }, { "amp", '&', 1 }, { "GT", '>', 1 }, { "gt", '>', 1 }, { "LT", '<', 1 },
    { "lt", '<', 1 }, { "QUOT", '"', 1 }, { "quot", '"', 1 }, { "apos", '\'', 0 },
    { "num", '#', 0 }, { "euro", 0x20ac, 0 }, { "hellip", 0x2026, 0 }, { "ndash", 0x2013, 0 },
    { "mdash", 0x2014, 0 }, { "lsquo", 0x2018, 0 }, { "rsquo", 0x2019, 0 },
    { "sbquo", 0x201a, 0 }, { "ldquo", 0x201c, 0 }, { "rdquo", 0x201d, 0 },
    { "bdquo", 0x201e, 0 }, { "lsaquo", 0x2039, 0 }, { "rsaquo", 0x203a, 0 },
    { "bull", 0x2022, 0 }, { "dagger", 0x2020, 0 }, { "trade", 0x2122, 0 }, { "ensp", 0x2002, 0 },
    { "emsp", 0x2003, 0 }, { "thinsp", 0x2009, 0 }, { "zwj", 0x200d, 0 }, { "zwnj", 0x200c, 0 },
    { "minus", 0x2212, 0 }, { "OElig", 0x152, 0 }, { "oelig", 0x153, 0 },
};

/* The character with this name; 0: none. `bare`: one that needs no semicolon behind it. */
static int32_t named_character(const char *s, size_t n, int bare)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i].name) == n && !memcmp(names[i].name, s, n) && (names[i].bare || !bare))
            return names[i].c;
    int32_t c = 0xa0;
    for (const char *p = latin1; *p; p += strcspn(p, " "), p += *p == ' ', c++)
        if (strcspn(p, " ") == n && !memcmp(p, s, n))
            return c;
    return 0;
}

static int digit_of(char c, int base)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return base == 16 && c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* What a number stands for: those of 128 to 159 are meant in Windows' Latin-1; -1: nothing. */
static int32_t numbered_character(int64_t v)
{
    static const int32_t windows[32] = {
        0x20ac, 0x81, 0x201a, 0x192, 0x201e, 0x2026, 0x2020, 0x2021, 0x2c6, 0x2030, 0x160, 0x2039,
        0x152, 0x8d, 0x17d, 0x8f, 0x90, 0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014,
        0x2dc, 0x2122, 0x161, 0x203a, 0x153, 0x9d, 0x17e, 0x178,
    };
    if (v >= 128 && v < 160)
        return windows[v - 128];
    if (v == 0 || (v >= 0xd800 && v <= 0xdfff) || v > 0x10ffff)
        return 0xfffd;
    int none = (v < 32 && v != 9 && v != 10 && v != 12 && v != 13) || v == 127 ||
               (v >= 0xfdd0 && v <= 0xfdef) || (v & 0xfffe) == 0xfffe;
    return none ? -1 : (int32_t)v;
}

/* Writes the character that "&#..." at s stands for. Returns the bytes read; 0: it is none. */
static size_t write_number(const char *s, size_t len, xd_bytes_buf *out)
{
    int     base = len > 2 && (s[2] | 0x20) == 'x' ? 16 : 10;
    size_t  from = base == 16 ? 3 : 2, i = from;
    int64_t v = 0;
    for (; i < len && digit_of(s[i], base) >= 0; i++)
        v = v > 0x10ffff ? v : v * base + digit_of(s[i], base);
    if (i == from)
        return 0;
    int32_t c = numbered_character(v);
    if (c >= 0)
        xd_utf8_put(c, out);
    return i + (i < len && s[i] == ';');
}

/* The same of "&name;", or of a name that needs no semicolon. */
static size_t write_name(const char *s, size_t len, xd_bytes_buf *out)
{
    size_t  n = 0;
    int32_t c = 0;
    while (n < 32 && 1 + n < len && !strchr("\t\n\f <&#;", s[1 + n]))
        n++;
    if (1 + n < len && s[1 + n] == ';' && (c = named_character(s + 1, n, 0)) != 0) {
        xd_utf8_put(c, out);
        return n + 2;
    }
    for (; n > 1; n--)
        if ((c = named_character(s + 1, n, 1)) != 0) {
            xd_utf8_put(c, out);
            return n + 1;
        }
    return 0;
}

static void write_unescaped(const char *s, size_t len, xd_bytes_buf *out)
{
    for (size_t i = 0; i < len;) {
        size_t took = 0;
        if (s[i] == '&' && i + 1 < len)
            took = s[i + 1] == '#' ? write_number(s + i, len - i, out)
                                   : write_name(s + i, len - i, out);
        if (!took)
            xd_bytes_add(out, s + i, took = 1);
        i += took;
    }
}

/* ---- all ------------------------------------------------------------ */

static void write_spaced(const char *s, size_t len, xd_bytes_buf *out)
{
    size_t took, begin = out->len;
    int    space = 0;
    for (size_t i = 0; i < len; i += took) {
        int32_t c = xd_utf8_get(s + i, len - i, &took);
        if (xd_is_space(c) || (c >= 0x1c && c <= 0x1f)) {
            space = 1;
            continue;
        }
        if (space && out->len > begin)
            xd_bytes_add(out, " ", 1);
        xd_bytes_add(out, s + i, took);
        space = 0;
    }
}

char *xd_caption_clean(const char *text)
{
    xd_bytes_buf a = { 0 }, b = { 0 };
    if (strchr(text, '<'))      /* ftfy: HTML itself keeps its names                            */
        xd_bytes_add(&b, text, strlen(text));
    else
        write_unescaped(text, strlen(text), &b);
    write_plain(b.p, b.len, &a);
    b.len = 0;
    write_unescaped(a.p, a.len, &b);
    a.len = 0;
    write_unescaped(b.p, b.len, &a);
    b.len = 0;
    write_spaced(a.p, a.len, &b);
    xd_bytes_add(&b, "", 1);
    int failed = a.failed || b.failed;
    xd_bytes_free(&a);
    if (failed)
        xd_bytes_free(&b);
    return failed ? NULL : b.p;
}
