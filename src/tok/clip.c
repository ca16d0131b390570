/* clip.c - CLIP's words: a text normalized and cut as transformers 5's CLIPTokenizer does it.
 *
 * Normalized means NFC, white space as one space, lower case, in this order. That tokenizer takes
 * each of its tables from another version of Unicode: composition from 9, letters and digits from
 * 16, lower case from 17. The lists here say where the libraries may be older or newer. */
#include "tok/inside.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

struct xd_clip {
    xd_bpe     *bpe;
    pcre2_code *pattern;
};

/* What PCRE2 10.42 does not know of the letters and numbers of Unicode 16. */
#define LETTERS "\\p{L}"                                                                          \
    "\\x{1c89}\\x{1c8a}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}-\\x{105f3}"               \
    "\\x{10d4a}-\\x{10d65}\\x{10d6f}-\\x{10d85}\\x{10ec2}-\\x{10ec4}\\x{1123f}\\x{11240}"         \
    "\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}-\\x{113b5}\\x{113b7}\\x{113d1}"          \
    "\\x{113d3}\\x{11bc0}-\\x{11be0}\\x{11f02}\\x{11f04}-\\x{11f10}\\x{11f12}-\\x{11f33}"         \
    "\\x{1342f}\\x{13441}-\\x{13446}\\x{13460}-\\x{143fa}\\x{16100}-\\x{1611d}"                   \
    "\\x{16d40}-\\x{16d6c}\\x{18cff}\\x{1b132}\\x{1b155}\\x{1df25}-\\x{1df2a}"                    \
    "\\x{1e030}-\\x{1e06d}\\x{1e4d0}-\\x{1e4eb}\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}\\x{2b739}"         \
    "\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"
#define NUMBERS "\\p{N}"                                                                          \
    "\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}\\x{11f50}-\\x{11f59}"        \
    "\\x{16130}-\\x{16139}\\x{16d70}-\\x{16d79}\\x{1ccf0}-\\x{1ccf9}\\x{1d2c0}-\\x{1d2d3}"        \
    "\\x{1e4f0}-\\x{1e4f9}\\x{1e5f1}-\\x{1e5fa}"

/* White space is one space by now. Group 1 is a literal that this pattern finds as a whole
 * although its brackets and its word become words of their own. */
static const char words[] = "<\\|((?:start|end)oftext)\\|>|'(?:[stmd]|re|ve|ll)|[" LETTERS "]++"
                            "|[" NUMBERS "]|[^ " LETTERS NUMBERS "]++";

xd_status xd_clip_open(xd_clip **out, const xd_bpe_files *f, xd_err *e)
{
    xd_clip   *c = calloc(1, sizeof *c);
    int        code;
    PCRE2_SIZE at;
    *out = NULL;
    if (!c)
        return xd_fail(e, XD_ENOMEM, "no memory for a tokenizer");
    xd_status s = xd_bpe_open(&c->bpe, f, e);
    if (s == XD_OK) {
        c->pattern = pcre2_compile((PCRE2_SPTR)words, sizeof words - 1, PCRE2_UTF, &code, &at,
                                   NULL);
        if (!c->pattern)
            s = xd_fail(e, XD_EUNSUPPORTED, "PCRE2 refuses the pattern of CLIP's words, error %d",
                        code);
    }
    if (s == XD_OK)
        *out = c;
    else
        xd_clip_close(c);
    return s;
}

void xd_clip_close(xd_clip *c)
{
    if (!c)
        return;
    xd_bpe_close(c->bpe);
    pcre2_code_free(c->pattern);
    free(c);
}

xd_bpe *xd_clip_bpe(const xd_clip *c)
{
    return c->bpe;
}

/* ---- normalization -------------------------------------------------------------------------- */

typedef struct codes { int32_t *p; size_t n; } codes;

/* What Unicode 9 had not yet and later versions order or compose: it stays as it is and nothing
 * moves across it. Whole blocks stand here that came later. */
static int is_later(int32_t c)
{
    static const int32_t later[][2] = {
        {0x7fd, 0x7fd},     {0x870, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},
        {0xc3c, 0xc3c},     {0xd3b, 0xd3c},     {0xeba, 0xeba},     {0x1715, 0x1715},
        {0x1abf, 0x1aff},   {0x1df6, 0x1dfa},   {0xa82c, 0xa82c},   {0x105c0, 0x105ff},
        {0x10d00, 0x10d8f}, {0x10e80, 0x10fff}, {0x11070, 0x11070}, {0x1133b, 0x1133b},
        {0x11380, 0x113ff}, {0x1145e, 0x1145e}, {0x11800, 0x1184f}, {0x11900, 0x1195f},
        {0x119a0, 0x11abf}, {0x11b60, 0x11b7f}, {0x11d00, 0x11ddf}, {0x11f00, 0x11f5f},
        {0x16100, 0x1613f}, {0x16d40, 0x16d7f}, {0x16ff0, 0x16ff1}, {0x1e030, 0x1e08f},
        {0x1e100, 0x1e2ff}, {0x1e4d0, 0x1e4ff}, {0x1e5d0, 0x1e6ff},
    };
    for (size_t i = 0; c >= 0x7fd && i < sizeof later / sizeof *later; i++)
        if (c >= later[i][0] && c <= later[i][1])
            return 1;
    return 0;
}

static int class_of(int32_t c)
{
    return c < 0x300 ? 0 : utf8proc_get_property(c)->combining_class;
}

/* Puts a run of combining characters in the order of their classes, equals as they were: by
 * counting, because a run may be as long as the text. `spare` holds n. */
static void order(int32_t *p, size_t n, int32_t *spare)
{
    size_t first[257] = {0};
    for (size_t i = 0; i < n; i++)
        first[class_of(p[i]) + 1]++;
    for (int k = 0; k < 256; k++)
        first[k + 1] += first[k];
    for (size_t i = 0; i < n; i++)
        spare[first[class_of(p[i])]++] = p[i];
    memcpy(p, spare, n * sizeof *p);
}

/* Canonical composition in place of n decomposed code points; gives how many are left. */
static size_t compose(int32_t *p, size_t n, int32_t *spare)
{
    for (size_t i = 0, k; i < n; i = k) {
        int sorted = 1;
        for (k = i + 1; class_of(p[i]) && k < n && class_of(p[k]); k++)
            sorted &= class_of(p[k - 1]) <= class_of(p[k]);
        if (!sorted)
            order(p + i, k - i, spare);
    }
    utf8proc_ssize_t left = utf8proc_normalize_utf32(p, (utf8proc_ssize_t)n,
                                                     UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    return left < 0 ? n : (size_t)left;
}

enum { GROWS = 4 };                     /* code points of the longest canonical decomposition   */

/* Replaces c by its canonical composition: nothing below U+0300 composes with its like. */
static int nfc(codes *c)
{
    size_t n = 0, begin = 0;
    int    simple = 1;
    for (size_t i = 0; i < c->n; i++)
        simple &= c->p[i] < 0x300;
    if (simple)
        return 1;
    size_t   cap = c->n < SIZE_MAX / 64 ? c->n * GROWS : 0;
    int32_t *p = cap ? malloc(cap * sizeof *p) : NULL;
    int32_t *spare = cap ? malloc(cap * sizeof *spare) : NULL;
    for (size_t i = 0; p && spare && i < c->n; i++) {
        int bound;
        if (is_later(c->p[i])) {
            n = begin + compose(p + begin, n - begin, spare);
            p[n++] = c->p[i];
            begin = n;
            continue;
        }
        utf8proc_ssize_t k = utf8proc_decompose_char(c->p[i], p + n, GROWS, UTF8PROC_DECOMPOSE,
                                                     &bound);
        if (k < 1 || k > GROWS) {
            p[n] = c->p[i];
            k = 1;
        }
        n += (size_t)k;
    }
    if (p && spare)
        n = begin + compose(p + begin, n - begin, spare);
    free(spare);
    if (!spare) {
        free(p);
        p = NULL;
    }
    if (p) {
        free(c->p);
        *c = (codes) {p, n};
    }
    return p != NULL;
}

/* Lower case of one character, where utf8proc may be older than Unicode 17. */
static int32_t lower(int32_t c)
{
    static const struct { int32_t from, to, by, step; } later[] = {
        {0x1c89, 0x1c89, 1, 1},         {0xa7cb, 0xa7cb, 0x264 - 0xa7cb, 1},
        {0xa7cc, 0xa7ce, 1, 2},         {0xa7d2, 0xa7d4, 1, 2},
        {0xa7da, 0xa7da, 1, 1},         {0xa7dc, 0xa7dc, 0x19b - 0xa7dc, 1},
        {0x10d50, 0x10d65, 0x20, 1},    {0x16ea0, 0x16eb8, 0x1b, 1},
    };
    for (size_t i = 0; c >= 0x1c89 && i < sizeof later / sizeof *later; i++)
        if (c >= later[i].from && c <= later[i].to && (c - later[i].from) % later[i].step == 0)
            return c + later[i].by;
    return utf8proc_tolower(c);
}

static void put(int32_t c, xd_bytes_buf *out)
{
    utf8proc_uint8_t enc[4];
    utf8proc_ssize_t n = utf8proc_encode_char(c, enc);
    xd_bytes_add(out, enc, n > 0 ? (size_t)n : 0);
}

void xd_clip_normalize(const char *s, size_t len, xd_bytes_buf *out)
{
    size_t took;
    codes  c = {len < SIZE_MAX / 64 ? malloc((len + 1) * sizeof *c.p) : NULL, 0};
    for (size_t i = 0; c.p && i < len; i += took)
        c.p[c.n++] = xd_utf8_get(s + i, len - i, &took);
    if (!c.p || !nfc(&c)) {
        out->failed = 1;
        free(c.p);
        return;
    }
    for (size_t i = 0; i < c.n; i++) {
        if (c.p[i] == 0x130) {          /* the only one that becomes two                        */
            xd_bytes_add(out, "i\xcc\x87", 3);
        } else if (!xd_is_space(c.p[i])) {
            put(lower(c.p[i]), out);
        } else if (i == 0 || !xd_is_space(c.p[i - 1])) {
            xd_bytes_add(out, " ", 1);
        }
    }
    free(c.p);
}

/* ---- words ---------------------------------------------------------------------------------- */

void xd_clip_words(const xd_clip *c, const char *s, size_t len, xd_ids *out)
{
    pcre2_match_data *m = len ? pcre2_match_data_create(2, NULL) : NULL;
    PCRE2_SIZE        at = 0;
    int               found = 1;
    while (m && at < len && found > 0 && !out->failed) {
        found = pcre2_match(c->pattern, (PCRE2_SPTR)s, len, at, PCRE2_NO_UTF_CHECK, m, NULL);
        const PCRE2_SIZE *v = pcre2_get_ovector_pointer(m);
        if (found == 2) {
            xd_bpe_word(c->bpe, s + v[0], v[2] - v[0], out);
            xd_bpe_word(c->bpe, s + v[2], v[3] - v[2], out);
            xd_bpe_word(c->bpe, s + v[3], v[1] - v[3], out);
        } else if (found == 1) {
            xd_bpe_word(c->bpe, s + v[0], v[1] - v[0], out);
        }
        at = v[1];
    }
    out->failed |= len && (!m || (found < 0 && found != PCRE2_ERROR_NOMATCH));
    pcre2_match_data_free(m);
}
