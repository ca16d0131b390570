/* caption.c - Python's str.lower().strip(): full lower-casing with Unicode's SpecialCasing for
 * no particular language, which affects two characters, and Python's own set of white space. */
#include "tok/inside.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* Cased: letters of category Lu, Ll, Lt, and what Unicode lists as Other_Lowercase and
 * Other_Uppercase. */
static int is_cased(int32_t c)
{
    static const xd_range other[] = {
        {0xaa, 0xaa},     {0xba, 0xba},     {0x2b0, 0x2b8},   {0x2c0, 0x2c1},
        {0x2e0, 0x2e4},   {0x345, 0x345},   {0x37a, 0x37a},   {0x1d2c, 0x1d6a},
        {0x1d78, 0x1d78}, {0x1d9b, 0x1dbf}, {0x2071, 0x2071}, {0x207f, 0x207f},
        {0x2090, 0x209c}, {0x2160, 0x217f}, {0x24b6, 0x24e9}, {0x2c7c, 0x2c7d},
        {0xa69c, 0xa69d}, {0xa770, 0xa770}, {0xa7f8, 0xa7f9}, {0xab5c, 0xab5f},
        {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107b0}, {0x107b2, 0x107ba},
        {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189},
    };
    utf8proc_category_t g = utf8proc_category(c);
    return g == UTF8PROC_CATEGORY_LU || g == UTF8PROC_CATEGORY_LL || g == UTF8PROC_CATEGORY_LT ||
           xd_in_ranges(other, sizeof other / sizeof *other, c);
}

/* Case_Ignorable: marks, format characters, modifiers, and punctuation inside words. */
static int is_ignorable(int32_t c)
{
    static const int32_t middle[] = {0x27,   0x2e,   0x3a,   0xb7,   0x387,  0x55f,
                                     0x5f4,  0x2018, 0x2019, 0x2024, 0x2027, 0xfe13,
                                     0xfe52, 0xfe55, 0xff07, 0xff0e, 0xff1a};
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_MN: case UTF8PROC_CATEGORY_ME: case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM: case UTF8PROC_CATEGORY_SK: return 1;
    default: break;
    }
    for (size_t i = 0; i < sizeof middle / sizeof *middle; i++)
        if (c == middle[i])
            return 1;
    return 0;
}

/* Is the capital sigma at s[at..at+2) the last letter of its word? */
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
        if (c == 0x130) {               /* the only character that becomes two                  */
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

/* str.isspace(): white space and the information separators. */
static int is_stripped(int32_t c)
{
    return xd_is_space(c) || (c >= 0x1c && c <= 0x1f);
}

char *xd_caption_plain(const char *text)
{
    xd_bytes_buf b = {0};
    size_t       from = 0, end, took;
    lower_case(text, strlen(text), &b);
    xd_bytes_add(&b, "", 1);
    if (b.failed) {
        free(b.p);
        return NULL;
    }
    size_t len = b.len - 1;
    while (from < len && is_stripped(xd_utf8_get(b.p + from, len - from, &took)))
        from += took;
    end = from;
    for (size_t i = from; i < len; i += took)
        if (!is_stripped(xd_utf8_get(b.p + i, len - i, &took)))
            end = i + took;
    memmove(b.p, b.p + from, end - from);
    b.p[end - from] = 0;
    return b.p;
}
