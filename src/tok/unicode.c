/* unicode.c - processes texts as code points: finds characters in ranges, converts to lower case,
 * and computes the canonical forms (NFD, NFC) as the tokenizers library of transformers 5 does.
 *
 * The tables of the tokenizers library are from different versions of Unicode: decomposition and
 * composition from Unicode 9, lower case from Unicode 17. The tables in this file list the
 * differences to utf8proc. */
#include "tok/inside.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

int xd_in_ranges(const xd_range *r, size_t n, int32_t c)
{
    for (size_t i = 0; i < n && c >= r[i].from; i++)
        if (c <= r[i].to)
            return 1;
    return 0;
}

int xd_codes_read(xd_codes *c, const char *s, size_t len)
{
    size_t took;
    *c = (xd_codes){ len < SIZE_MAX / 64 ? malloc((len + 1) * sizeof *c->p) : NULL, 0 };
    for (size_t i = 0; c->p && i < len; i += took)
        c->p[c->n++] = xd_utf8_get(s + i, len - i, &took);
    return c->p != NULL;
}

/* ---- canonical forms ------------------------------------------------------------------------ */

/* Returns 1 for characters that are newer than Unicode 9 and that newer versions of Unicode reorder
 * or compose. Characters that are newer than Unicode 9 stay unchanged, and nothing is reordered
 * across them. A block of characters that are all newer than Unicode 9 is one range in the
 * table. */
static int is_later(int32_t c)
{
    static const xd_range later[] = {
        { 0x7fd, 0x7fd },     { 0x870, 0x89f },     { 0x8ca, 0x8d3 },     { 0x9fe, 0x9fe },
        { 0xc3c, 0xc3c },     { 0xd3b, 0xd3c },     { 0xeba, 0xeba },     { 0x1715, 0x1715 },
        { 0x1abf, 0x1aff },   { 0x1df6, 0x1dfa },   { 0xa82c, 0xa82c },   { 0x105c0, 0x105ff },
        { 0x10d00, 0x10d8f }, { 0x10e80, 0x10fff }, { 0x11070, 0x11070 }, { 0x1133b, 0x1133b },
        { 0x11380, 0x113ff }, { 0x1145e, 0x1145e }, { 0x11800, 0x1184f }, { 0x11900, 0x1195f },
        { 0x119a0, 0x11abf }, { 0x11b60, 0x11b7f }, { 0x11d00, 0x11ddf }, { 0x11f00, 0x11f5f },
        { 0x16100, 0x1613f }, { 0x16d40, 0x16d7f }, { 0x16ff0, 0x16ff1 }, { 0x1e030, 0x1e08f },
        { 0x1e100, 0x1e2ff }, { 0x1e4d0, 0x1e4ff }, { 0x1e5d0, 0x1e6ff },
    };
    return xd_in_ranges(later, sizeof later / sizeof *later, c);
}

static int class_of(int32_t c)
{
    return c < 0x300 ? 0 : utf8proc_get_property(c)->combining_class;
}

/* Sorts a run of combining characters by class, with a stable counting sort; another sort could be
 * slow, because a run may be as long as the text. */
static void order_marks(int32_t *p, size_t n, int32_t *scratch)
{
    size_t first[257] = { 0 };
    for (size_t i = 0; i < n; i++)
        first[class_of(p[i]) + 1]++;
    for (int k = 0; k < 256; k++)
        first[k + 1] += first[k];
    for (size_t i = 0; i < n; i++)
        scratch[first[class_of(p[i])]++] = p[i];
    memcpy(p, scratch, n * sizeof *p);
}

/* Sorts every run of combining characters in n decomposed code points. */
static void order_runs(int32_t *p, size_t n, int32_t *scratch)
{
    for (size_t i = 0, k; i < n; i = k) {
        int sorted = 1;
        for (k = i + 1; class_of(p[i]) && k < n && class_of(p[k]); k++)
            sorted &= class_of(p[k - 1]) <= class_of(p[k]);
        if (!sorted)
            order_marks(p + i, k - i, scratch);
    }
}

/* Reorders the combining characters of the code points p[0..n) and, if `composed` is set, composes
 * characters. Nothing is reordered across the ends of p[0..n). Returns the new number of code
 * points. */
static size_t finish_stretch(int32_t *p, size_t n, int composed, int32_t *scratch)
{
    order_runs(p, n, scratch);
    utf8proc_ssize_t left =
        !composed
            ? -1
            : utf8proc_normalize_utf32(p, (utf8proc_ssize_t)n, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    return left < 0 ? n : (size_t)left;
}

enum { GROWS = 4 }; /* max code points in the decomposition of a character */

int xd_codes_canonical(xd_codes *c, int form)
{
    int    composed = form != XD_NFD;
    size_t n = 0, begin = 0;
    int    simple = 1;
    for (size_t i = 0; i < c->n; i++) /* characters below U+0300 never compose */
        simple &= c->p[i] < (composed ? 0x300 : 0xc0);
    if (simple)
        return 1;
    size_t   cap = c->n < SIZE_MAX / 64 ? c->n * GROWS : 0;
    int32_t *p = cap ? malloc(cap * sizeof *p) : NULL;
    int32_t *scratch = cap ? malloc(cap * sizeof *scratch) : NULL;
    for (size_t i = 0; p && scratch && i < c->n; i++) {
        int bound;
        if (form != XD_NFC_TODAY && is_later(c->p[i])) {
            n = begin + finish_stretch(p + begin, n - begin, composed, scratch);
            p[n++] = c->p[i];
            begin = n;
            continue;
        }
        utf8proc_ssize_t k =
            utf8proc_decompose_char(c->p[i], p + n, GROWS, UTF8PROC_DECOMPOSE, &bound);
        if (k < 1 || k > GROWS) {
            p[n] = c->p[i];
            k = 1;
        }
        n += (size_t)k;
    }
    if (p && scratch)
        n = begin + finish_stretch(p + begin, n - begin, composed, scratch);
    free(scratch);
    if (!scratch) {
        free(p);
        p = NULL;
    }
    if (p) {
        free(c->p);
        *c = (xd_codes){ p, n };
    }
    return p != NULL;
}

/* ---- case ----------------------------------------------------------------------------------- */

/* Returns the lower case of a character, which must not be U+0130. Also knows characters of Unicode
 * 17 that utf8proc lacks. */
static int32_t lower_case(int32_t c)
{
    static const struct {
        int32_t from, to, by, step;
    } later[] = {
        { 0x1c89, 0x1c89, 1, 1 },      { 0xa7cb, 0xa7cb, 0x264 - 0xa7cb, 1 },
        { 0xa7cc, 0xa7ce, 1, 2 },      { 0xa7d2, 0xa7d4, 1, 2 },
        { 0xa7da, 0xa7da, 1, 1 },      { 0xa7dc, 0xa7dc, 0x19b - 0xa7dc, 1 },
        { 0x10d50, 0x10d65, 0x20, 1 }, { 0x16ea0, 0x16eb8, 0x1b, 1 },
    };
    for (size_t i = 0; c >= 0x1c89 && i < sizeof later / sizeof *later; i++)
        if (c >= later[i].from && c <= later[i].to && (c - later[i].from) % later[i].step == 0)
            return c + later[i].by;
    return utf8proc_tolower(c);
}

void xd_lower(int32_t c, xd_bytes_buf *out)
{
    if (c == 0x130) /* lower case of U+0130 is two characters */
        xd_bytes_add(out, "i\xcc\x87", 3);
    else
        xd_utf8_put(lower_case(c), out);
}
