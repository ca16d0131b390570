/* caption.c - prepares prompts like those pipelines of diffusers whose models were trained on
 * captions from the web: converts them to lower case and strips white space, or also removes
 * typical parts of such captions (_clean_caption).
 *
 * Lower case is that of Python's str.lower(), which handles two characters by Unicode's
 * SpecialCasing without a language. White space is what Python's str.isspace() accepts. */
#include "tok/inside.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* Returns 1 for characters with Unicode's property Cased: letters of category Lu, Ll, Lt, and
 * Other_Lowercase and Other_Uppercase. */
static int is_cased(int32_t c)
{
    static const xd_range other[] = {
        { 0xaa, 0xaa },       { 0xba, 0xba },       { 0x2b0, 0x2b8 },     { 0x2c0, 0x2c1 },
        { 0x2e0, 0x2e4 },     { 0x345, 0x345 },     { 0x37a, 0x37a },     { 0x1d2c, 0x1d6a },
        { 0x1d78, 0x1d78 },   { 0x1d9b, 0x1dbf },   { 0x2071, 0x2071 },   { 0x207f, 0x207f },
        { 0x2090, 0x209c },   { 0x2160, 0x217f },   { 0x24b6, 0x24e9 },   { 0x2c7c, 0x2c7d },
        { 0xa69c, 0xa69d },   { 0xa770, 0xa770 },   { 0xa7f8, 0xa7f9 },   { 0xab5c, 0xab5f },
        { 0x10780, 0x10780 }, { 0x10783, 0x10785 }, { 0x10787, 0x107b0 }, { 0x107b2, 0x107ba },
        { 0x1f130, 0x1f149 }, { 0x1f150, 0x1f169 }, { 0x1f170, 0x1f189 },
    };
    utf8proc_category_t g = utf8proc_category(c);
    return g == UTF8PROC_CATEGORY_LU || g == UTF8PROC_CATEGORY_LL || g == UTF8PROC_CATEGORY_LT ||
           xd_in_ranges(other, sizeof other / sizeof *other, c);
}

/* Returns 1 for characters with Unicode's property Case_Ignorable: marks, format characters,
 * modifiers, and punctuation in words. */
static int is_ignorable(int32_t c)
{
    static const int32_t middle[] = { 0x27,   0x2e,   0x3a,   0xb7,   0x387,  0x55f,
                                      0x5f4,  0x2018, 0x2019, 0x2024, 0x2027, 0xfe13,
                                      0xfe52, 0xfe55, 0xff07, 0xff0e, 0xff1a };
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return 1;
    default: break;
    }
    for (size_t i = 0; i < sizeof middle / sizeof *middle; i++)
        if (c == middle[i])
            return 1;
    return 0;
}

/* Returns 1 if the capital sigma at s[at .. at+2) is the last letter of its word. */
static int is_final(const char *s, size_t len, size_t at)
{
    size_t  i = at, took;
    int32_t c = 0;
    int     cased = 0;
    while (i > 0) {
        c = xd_utf8_before(s, i, &i);
        if (!is_ignorable(c)) {
            cased = is_cased(c);
            break;
        }
    }
    if (!cased)
        return 0;
    for (i = at + 2; i < len; i += took) {
        c = xd_utf8_get(s + i, len - i, &took);
        if (!is_ignorable(c))
            return !is_cased(c);
    }
    return 1;
}

static void lower_case(const char *s, size_t len, xd_bytes_buf *out)
{
    size_t took;
    for (size_t i = 0; i < len; i += took) {
        int32_t c = xd_utf8_get(s + i, len - i, &took);
        if (c == 0x130) { /* lower case of U+0130 is two characters */
            xd_bytes_add(out, "i\xcc\x87", 3);
        } else if (c == 0x3a3) {
            xd_bytes_add(out, is_final(s, len, i) ? "\xcf\x82" : "\xcf\x83", 2);
        } else if (c < 0) {
            xd_bytes_add(out, s + i, took);
        } else {
            xd_utf8_put(utf8proc_tolower(c), out);
        }
    }
}

/* Strips white space, like Python's str.strip(). */
static void strip(xd_bytes_buf *text)
{
    size_t from = 0, end, took;
    while (from < text->len && xd_is_blank(xd_utf8_get(text->p + from, text->len - from, &took)))
        from += took;
    end = from;
    for (size_t i = from; i < text->len; i += took)
        if (!xd_is_blank(xd_utf8_get(text->p + i, text->len - i, &took)))
            end = i + took;
    if (end > from) /* the address may be NULL if the text is empty */
        memmove(text->p, text->p + from, end - from);
    text->len = end - from;
}

/* Converts a text to lower case and strips white space, like Python's str.lower().strip(). */
static void lower_and_strip(xd_bytes_buf *text)
{
    xd_bytes_buf b = { 0 };
    lower_case(text->p, text->len, &b);
    text->len = 0;
    text->failed |= b.failed;
    strip(&b);
    if (b.len)
        xd_bytes_add(text, b.p, b.len);
    xd_bytes_free(&b);
}

char *xd_caption_strip(const char *text)
{
    xd_bytes_buf b = { 0 };
    xd_caption_read(text, &b);
    strip(&b);
    return xd_caption_end(&b);
}

char *xd_caption_plain(const char *text)
{
    xd_bytes_buf b = { 0 };
    xd_caption_read(text, &b);
    lower_and_strip(&b);
    return xd_caption_end(&b);
}

/* ---- captions from the web ------------------------------------------------------------------ */

static int hex_of(char c)
{
    return c >= '0' && c <= '9'                     ? c - '0'
           : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                    : -1;
}

/* Returns the length in bytes, at most three, of the incomplete UTF-8 character at s. */
static size_t broken_length(const unsigned char *s, size_t len)
{
    size_t whole = s[0] < 0xc2 ? 1 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 1, n = 1;
    unsigned low = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
    unsigned high = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
    for (; n < whole && n < len && s[n] >= low && s[n] <= high; n++) {
        low = 0x80;
        high = 0xbf;
    }
    return n;
}

/* Decodes bytes as UTF-8 and appends the characters. Invalid bytes become U+FFFD. */
static void put_decoded(const xd_bytes_buf *bytes, xd_bytes_buf *out)
{
    size_t took;
    for (size_t i = 0; i < bytes->len; i += took) {
        const char *s = bytes->p + i;
        int32_t     c = xd_utf8_get(s, bytes->len - i, &took);
        if (c < 0)
            took = broken_length((const unsigned char *)s, bytes->len - i);
        xd_utf8_put(c < 0 ? 0xfffd : c, out);
    }
}

/* Decodes "%41" and "+" as in URLs, like urllib's unquote_plus. If a character is encoded as
 * several bytes, the bytes are decoded together. */
static void unquote(xd_bytes_buf *text)
{
    xd_bytes_buf run = { 0 }, out = { 0 };
    for (size_t i = 0; i < text->len; i++) {
        const char *s = text->p + i;
        int         high = text->len - i > 2 ? hex_of(s[1]) : -1;
        int         low = high < 0 ? -1 : hex_of(s[2]);
        char        c = *s == '+' ? ' ' : *s == '%' && low >= 0 ? (char)(high * 16 + low) : *s;
        if (*s & 0x80) {
            put_decoded(&run, &out);
            run.len = 0;
            xd_bytes_add(&out, s, 1);
            continue;
        }
        i += *s == '%' && low >= 0 ? 2 : 0;
        xd_bytes_add(&run, &c, 1);
    }
    put_decoded(&run, &out);
    out.failed |= run.failed | text->failed;
    xd_bytes_free(&run);
    xd_bytes_free(text);
    *text = out;
}

typedef struct rule { const char *find, *by; } rule;

#define S     "[" XD_SPACES "]"
#define W     "[" XD_LETTERS "]"
#define D     "[" XD_DIGIT "]"
#define EDGE  "(?:(?<=" W ")(?!" W ")|(?<!" W ")(?=" W "))"
#define SITE  "[a-zA-Z0-9.\\-]+[.](?:com|co|ru|net|org|edu|gov|it)[/\\-" XD_LETTERS "]*" EDGE    \
    "/?(?!@)"
/* Makes the search for URLs faster: if no URL begins at a position, SKIPPED continues the search at
 * the end of the word, or at the next position in the word at which the pattern `but` matches. */
#define SKIPPED(but) "(?:(?!" but ")[a-zA-Z0-9.\\-])+(*SKIP)(*FAIL)"
#define FILES "(?:png|jpg|jpeg|bmp|webp|eps|pdf|apk|mp4)"

static const rule before_html[] = {
    { "<person>", "person" },
    { EDGE "(?:https?:(?:/{1,3}|[a-zA-Z0-9%])|" SITE "|" SKIPPED("https?:") ")", "" },
    { EDGE "(?:www:(?:/{1,3}|[a-zA-Z0-9%])|" SITE "|" SKIPPED("www:") ")", "" },
};

static const rule before_repair[] = {
    { "@" W "+" EDGE, "" },
    { "[\\x{31c0}-\\x{9fff}]+", "" }, /* Chinese characters and the blocks next to them */
    { "[\\-\\x{58a}\\x{5be}\\x{1400}\\x{1806}\\x{2010}-\\x{2015}\\x{2e17}\\x{2e1a}\\x{2e3a}\\x{"
      "2e3b}"
      "\\x{2e40}\\x{301c}\\x{3030}\\x{30a0}\\x{fe31}\\x{fe32}\\x{fe58}\\x{fe63}\\x{ff0d}]+",
      "-" },
    { "[`\\x{b4}\\x{ab}\\x{bb}\\x{201c}\\x{201d}\\x{a8}]", "\"" },
    { "[\\x{2018}\\x{2019}]", "'" },
    { "&quot;?", "" },
    { "&amp", "" },
    { D "{1,3}\\." D "{1,3}\\." D "{1,3}\\." D "{1,3}", " " }, /* IP addresses */
    { D ":" D D S "+$", "" },
    { "\\\\n", " " },
    { "#" D "{1,3}" EDGE, "" },
    { "#" D "{5,}" EDGE, "" },
    { EDGE D "{6,}" EDGE, "" },
    { "(?<![^" XD_SPACES "])[^" XD_SPACES "]+\\." FILES, "" },
    { "[\"']{2,}", "\"" },
    { "\\.{2,}", " " },
    { "[#\\x{ae}\\x{2022}\\x{a9}\\x{2122}&@\\x{b7}\\x{ba}\\x{bd}-\\x{bf}\\x{a1}\\x{a7}~)("
      "\\]\\[}{|\\\\/*]+",
      " " },
    { "(?<!" S ")" S "++\\." S "++", " " },
};

static const rule after_repair[] = {
    { EDGE "[a-zA-Z]{1,3}" D "{3,15}" EDGE, "" }, /* product codes (ABC12345) */
    { EDGE "[a-zA-Z]+" D "+[a-zA-Z]+" EDGE, "" },
    { EDGE D "+[a-zA-Z]+" D "+" EDGE, "" },
    { "(?:worldwide" S "+)?(?:free" S "+)?shipping", "" },
    { "(?:free" S ")?download(?:" S "free)?", "" },
    { EDGE "click" EDGE S "(?:for|on)" S W "+", "" },
    { EDGE FILES "(?:" S "images?)?", "" },
    { EDGE "page" S "+" D "+" EDGE, "" },
    { EDGE D "*[a-zA-Z]+" D "+[a-zA-Z]+" D "+[a-zA-Z" XD_DIGIT "]*" EDGE, " " },
    { EDGE D "+\\.?" D "*[x\\x{445}\\x{d7}]" D "+\\.?" D "*" EDGE, "" }, /* sizes (600x400) */
    { EDGE S "+:" S "+", ": " },
    { "([^" XD_DIGIT "][,./])" EDGE, "$1 " },
    { S "+", " " },
    { "^[\"']((?s:.)+)[\"']$", "$1" },
    { "^['_,\\-:;]", "" },
    { "['_,\\-:+]$", "" },
    { "^\\.[^" XD_SPACES "]+$", "" },
};

static void apply(xd_bytes_buf *text, const rule *r, size_t n)
{
    for (size_t i = 0; i < n && !text->failed; i++)
        xd_replace(text, r[i].find, r[i].by, 0);
}
#define APPLY(text, rules) apply(text, rules, sizeof rules / sizeof *rules)

/* If a text has more than three dashes, replaces them by spaces: in file names and URLs, dashes
 * separate words. */
static void part_words(xd_bytes_buf *text)
{
    int joints = 0;
    for (size_t i = 0; i < text->len; i++)
        joints += text->p[i] == '-' || text->p[i] == '_';
    for (size_t i = 0; joints > 3 && i < text->len; i++)
        if (text->p[i] == '-' || text->p[i] == '_')
            text->p[i] = ' ';
}

static void clean(xd_bytes_buf *text)
{
    unquote(text);
    lower_and_strip(text);
    APPLY(text, before_html);
    xd_html_text(text);
    APPLY(text, before_repair);
    part_words(text);
    xd_fix_text(text);
    xd_unescape_twice(text);
    APPLY(text, after_repair);
    xd_replace(text, "^" S "+|" S "+\\z", "", 0);
}

char *xd_caption_of_web(const char *text)
{
    xd_bytes_buf b = { 0 };
    xd_caption_read(text, &b);
    clean(&b);
    clean(&b);
    return xd_caption_end(&b);
}
