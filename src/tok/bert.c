/* bert.c - tokenizes a text for BERT (Devlin et al. 2019) like transformers 5's BertTokenizer.
 *
 * Normalization removes control characters, makes every Chinese character a word, removes accents
 * and converts to lower case; each of these four steps can be turned off. The text is split at
 * white space, and every punctuation mark is a word. From a word, the longest piece with which it
 * begins is split off, then the longest piece with which the rest begins, and so on; pieces that do
 * not begin a word have a prefix ("##"). A word that cannot be segmented completely becomes one
 * unknown id. The categories of characters are those of an older Unicode version; the tables in
 * this file list the differences to utf8proc. */
#include "tok/inside.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { PREFIX_MAX = 64 };

struct xd_bert {
    xd_pieces     v;
    xd_bert_rules rules;
    char          prefix[PREFIX_MAX];
    size_t        nprefix;
    int32_t       unknown;
};

#define IN(list, c) xd_in_ranges(list, sizeof list / sizeof *list, c)

/* ---- opening -------------------------------------------------------------------------------- */

int xd_json_flag(const xd_json *o, const char *key, int otherwise)
{
    int v;
    return xd_json_bool(xd_json_get(o, key), &v) ? v : otherwise;
}

void xd_bert_rules_of_config(xd_bert_rules *r, const xd_json *cfg)
{
    r->clean = 1;
    r->split_chinese = xd_json_flag(cfg, "tokenize_chinese_chars", 1);
    r->lower = xd_json_flag(cfg, "do_lower_case", 1);
    r->strip = xd_json_flag(cfg, "strip_accents", r->lower);
    r->prefix = "##";
    r->max_chars = 100;
}

static xd_status must_be(const xd_json *tj, const char *key, const char *type, const char *what,
                         xd_err *e)
{
    const char *have = xd_json_text(xd_json_get(xd_json_get(tj, key), "type"));
    return have && !strcmp(have, type) ? XD_OK
                                       : xd_fail(e, XD_EUNSUPPORTED,
                                                 "%s: the %s of its WordPiece model is %s; "
                                                 "only %s is supported",
                                                 what, key, have ? have : "none", type);
}

xd_status xd_bert_rules_of_json(xd_bert_rules *r, const xd_json *tj, const char *what, xd_err *e)
{
    const xd_json *norm = xd_json_get(tj, "normalizer"), *model = xd_json_get(tj, "model");
    const char    *prefix = xd_json_text(xd_json_get(model, "continuing_subword_prefix"));
    double         max_chars;
    xd_status      s = must_be(tj, "normalizer", "BertNormalizer", what, e);
    if (s == XD_OK)
        s = must_be(tj, "pre_tokenizer", "BertPreTokenizer", what, e);
    r->clean = xd_json_flag(norm, "clean_text", 1);
    r->split_chinese = xd_json_flag(norm, "handle_chinese_chars", 1);
    r->lower = xd_json_flag(norm, "lowercase", 1);
    r->strip = xd_json_flag(norm, "strip_accents", r->lower);
    r->prefix = prefix ? prefix : "##";
    r->max_chars = 100;
    if (xd_json_number(xd_json_get(model, "max_input_chars_per_word"), &max_chars))
        r->max_chars = max_chars >= 0 && max_chars < 1e15 ? (int64_t)max_chars : 100;
    if (s == XD_OK && strlen(r->prefix) > PREFIX_MAX)
        s = xd_fail(e, XD_EFORMAT,
                    "%s: continuing_subword_prefix has %zu bytes, 0 to %d are "
                    "possible",
                    what, strlen(r->prefix), (int)PREFIX_MAX);
    return s;
}

xd_status xd_bert_open(xd_bert **out, const xd_bert_files *f, xd_err *e)
{
    xd_bert *b = calloc(1, sizeof *b);
    *out = NULL;
    if (!b)
        return xd_fail(e, XD_ENOMEM, "no memory for a tokenizer");
    b->rules = f->rules;
    b->nprefix = strlen(f->rules.prefix);
    memcpy(b->prefix, f->rules.prefix, b->nprefix);
    b->rules.prefix = NULL;
    b->unknown = -1;
    xd_status s = f->lines ? xd_pieces_lines(&b->v, f->lines, f->len, f->name, e)
                           : xd_pieces_json(&b->v, f->vocab, 1, f->name, e);
    if (s == XD_OK)
        *out = b;
    else
        xd_bert_close(b);
    return s;
}

void xd_bert_unknown(xd_bert *b, int32_t id)
{
    b->unknown = id;
}

void xd_bert_close(xd_bert *b)
{
    if (!b)
        return;
    xd_pieces_free(&b->v);
    free(b);
}

const xd_pieces *xd_bert_pieces(const xd_bert *b)
{
    return &b->v;
}

/* ---- kinds of characters -------------------------------------------------------------------- */

static int is_chinese(int32_t c)
{
    static const xd_range blocks[] = {
        { 0x3400, 0x4dbf },   { 0x4e00, 0x9fff },   { 0xf900, 0xfaff },   { 0x20000, 0x2a6df },
        { 0x2a700, 0x2b81f }, { 0x2b920, 0x2ceaf }, { 0x2f800, 0x2fa1f },
    };
    return IN(blocks, c);
}

/* Returns 1 for characters that normalization removes: control characters except white space,
 * format characters, private-use characters, and U+FFFD, the replacement of invalid bytes. */
static int is_noise(int32_t c)
{
    static const xd_range later[] = { { 0x890, 0x8e2 }, { 0x110cd, 0x1343f } };
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CC: return c != '\t' && c != '\n' && c != '\r';
    case UTF8PROC_CATEGORY_CF: return !IN(later, c);
    case UTF8PROC_CATEGORY_CO: return 1;
    default: return c == 0xfffd || c < 0;
    }
}

/* Returns 1 for a nonspacing mark, such as a combining accent. */
static int is_accent(int32_t c)
{
    static const xd_range later[] = {
        { 0x5c8, 0x5c9 },     { 0x7fd, 0x7fd },     { 0x897, 0x8e1 },     { 0x9fe, 0x9fe },
        { 0xafa, 0xaff },     { 0xb53, 0xb55 },     { 0xc04, 0xc3c },     { 0xd00, 0xd00 },
        { 0xd3b, 0xd3c },     { 0xd81, 0xd81 },     { 0xeba, 0xeba },     { 0xece, 0xece },
        { 0x180f, 0x1886 },   { 0x1abf, 0x1af0 },   { 0x1df6, 0x1dfb },   { 0xa82c, 0xa82c },
        { 0xa8c5, 0xa8c5 },   { 0xa8ff, 0xa8ff },   { 0xa9bd, 0xa9bd },   { 0x10d24, 0x10f85 },
        { 0x11070, 0x11074 }, { 0x110c2, 0x110c2 }, { 0x111c9, 0x111c9 }, { 0x111cf, 0x111cf },
        { 0x1123e, 0x11241 }, { 0x1133b, 0x1133b }, { 0x113bb, 0x1145e }, { 0x1182f, 0x1612f },
        { 0x16f4f, 0x16f4f }, { 0x16fe4, 0x16fe4 }, { 0x1cf00, 0x1d128 }, { 0x1d25b, 0x1d25c },
        { 0x1e000, 0x1e6f5 }, { 0x1e944, 0x1e94a },
    };
    return c == 0x1734 || (utf8proc_category(c) == UTF8PROC_CATEGORY_MN && !IN(later, c));
}

/* Returns 1 for punctuation. Of the printable ASCII characters, all except letters, digits and
 * space are punctuation. */
static int is_punctuation(int32_t c)
{
    static const xd_range later[] = {
        { 0x61d, 0x61d },     { 0x9fd, 0xa76 },     { 0xc77, 0xc84 },     { 0x1b4e, 0x1b4f },
        { 0x1b7d, 0x1b7f },   { 0x2e43, 0x2e63 },   { 0x10d6e, 0x10f89 }, { 0x113d4, 0x1145d },
        { 0x11660, 0x116b9 }, { 0x1183b, 0x11fff }, { 0x12ff1, 0x12ff2 }, { 0x16d6d, 0x16fe2 },
        { 0x1e5ff, 0x1e95f },
    };
    if (c < 0x80)
        return c > ' ' && c < 0x7f && !((c | 32) >= 'a' && (c | 32) <= 'z') &&
               !(c >= '0' && c <= '9');
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return !IN(later, c);
    default: return c == 0x166d || c == 0x111c9;
    }
}

/* ---- normalization -------------------------------------------------------------------------- */

/* Removes control and format characters (is_noise), and inserts spaces before and after Chinese
 * characters. */
static int separate_characters(xd_codes *c, const xd_bert_rules *r)
{
    enum { GROWS = 3 };
    int32_t *p = c->n < SIZE_MAX / 64 ? malloc((GROWS * c->n + 1) * sizeof *p) : NULL;
    size_t   n = 0;
    for (size_t i = 0; p && i < c->n; i++) {
        int32_t x = c->p[i];
        int     split_chinese = r->split_chinese && is_chinese(x);
        if (r->clean && is_noise(x))
            continue;
        if (split_chinese)
            p[n++] = ' ';
        p[n++] = r->clean && xd_is_space(x) ? ' ' : x;
        if (split_chinese)
            p[n++] = ' ';
    }
    free(c->p);
    *c = (xd_codes){ p, n };
    return p != NULL;
}

void xd_bert_normalize(const xd_bert *b, const char *s, size_t len, xd_bytes_buf *out)
{
    const xd_bert_rules *r = &b->rules;
    xd_codes             c;
    if (!xd_codes_read(&c, s, len) || !separate_characters(&c, r) ||
        (r->strip && !xd_codes_canonical(&c, 0))) {
        out->failed = 1;
        free(c.p);
        return;
    }
    for (size_t i = 0; i < c.n; i++) {
        if (r->strip && is_accent(c.p[i]))
            continue;
        if (r->lower)
            xd_lower(c.p[i], out);
        else
            xd_utf8_put(c.p[i], out);
    }
    free(c.p);
}

/* ---- segmentation of words ------------------------------------------------------------------ */

static int64_t count_characters(const char *s, size_t len)
{
    int64_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += ((unsigned char)s[i] & 0xc0) != 0x80;
    return n;
}

/* Finds the longest piece with which the word w begins. Returns the piece's id and sets *took to
 * its length, or returns -1 if there is no such piece. */
static int32_t longest_piece(const xd_bert *b, const char *w, size_t len, int begins, size_t *took)
{
    char   s[XD_PIECE_MAX + PREFIX_MAX];
    size_t before = begins ? 0 : b->nprefix;
    if (before >= b->v.longest)
        return -1;
    size_t n = len < b->v.longest - before ? len : b->v.longest - before;
    memcpy(s, b->prefix, before);
    memcpy(s + before, w, n);
    if (n < len)
        while (n && ((unsigned char)w[n] & 0xc0) == 0x80)
            n--;
    for (; n; xd_utf8_before(w, n, &n)) {
        int32_t id = xd_pieces_find(&b->v, s, before + n);
        if (id >= 0) {
            *took = n;
            return id;
        }
    }
    return -1;
}

static void encode_word(const xd_bert *b, const char *w, size_t len, xd_ids *out)
{
    int64_t first = out->n;
    int     known = count_characters(w, len) <= b->rules.max_chars;
    for (size_t at = 0, took = 0; known && at < len && !out->failed; at += took) {
        int32_t id = longest_piece(b, w + at, len - at, at == 0, &took);
        known = id >= 0;
        if (known)
            xd_ids_add(out, id);
    }
    if (!known) {
        out->n = first;
        xd_ids_add(out, b->unknown);
    }
}

void xd_bert_words(const xd_bert *b, const char *s, size_t len, xd_ids *out)
{
    size_t from = 0, took;
    for (size_t i = 0; i < len; i += took) {
        int32_t c = xd_utf8_get(s + i, len - i, &took);
        int     mark = is_punctuation(c);
        if (!mark && !xd_is_space(c))
            continue;
        encode_word(b, s + from, i - from, out);
        if (mark)
            encode_word(b, s + i, took, out);
        from = i + took;
    }
    encode_word(b, s + from, len - from, out);
}
