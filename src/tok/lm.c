/* lm.c - tokenizes text for decoder language models: Qwen, Llama, Mistral, Gemma.
 *
 * The tokenizers of decoder language models are byte pair encodings that a tokenizer.json
 * describes. The normalizers change the text, the pre-tokenizers split the text into words, and the
 * merges of bpe.c segment a word. If the pre-tokenizers include ByteLevel, a word is first split
 * into bytes, otherwise into characters. A character without a piece becomes the pieces <0x00> ..
 * <0xFF> of its bytes. */
#include "tok/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 16 }; /* max number of normalizers, and of pre-tokenizers */

typedef enum norm_kind { NORM_NFC, NORM_NFD, NORM_REPLACE, NORM_PREPEND } norm_kind;
typedef struct norm {
    norm_kind   kind;
    xd_pattern *from; /* what NORM_REPLACE replaces */
    /* Text that a normalizer inserts (NORM_REPLACE, NORM_PREPEND). */
    char       *text;
} norm;

/* A pre-tokenizer. If `at` is NULL, the pre-tokenizer adds a space before words. */
typedef struct step {
    xd_pattern  *at;
    xd_split_how how;
    int          invert;
} step;

struct xd_lm {
    xd_bpe *bpe;
    norm    norm[STEPS];
    step    step[STEPS];
    int     nnorm, nstep;
    /* 1: byte-level; each character of a piece represents a byte. */
    int     bytes;
    int     whole;          /* 1: if a word equals a piece, it is not segmented */
    int     fallback, fuse; /* options byte_fallback and fuse_unk of the model */
    /* Ids of the bytes' pieces, and of the unknown piece; -1: none. */
    int32_t byte[256], unknown;
};

/* ---- rules ---------------------------------------------------------------------------------- */

static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
                           "|\\s+(?!\\S)|\\s+";
static const char qwen[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
                           "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

typedef struct rules {
    xd_lm      *l;
    const char *what;
    xd_err     *e;
} rules;

static const char *type_of(const xd_json *j)
{
    const char *type = xd_json_text(xd_json_get(j, "type"));
    return type ? type : "nameless";
}

static xd_status not_known(const rules *r, const char *part, const char *type)
{
    return xd_fail(r->e, XD_EUNSUPPORTED, "%s: its %s %s is not supported", r->what, part, type);
}

static xd_status add_norm(const rules *r, norm_kind kind, const char *from, const char *text)
{
    xd_lm *l = r->l;
    norm   n = { .kind = kind };
    if (l->nnorm == STEPS)
        return xd_fail(r->e, XD_EUNSUPPORTED, "%s has more than %d normalizers", r->what, STEPS);
    if (text && !(n.text = strdup(text)))
        return xd_fail(r->e, XD_ENOMEM, "no memory for a normalizer");
    xd_status s = from ? xd_pattern_open(&n.from, NULL, from, r->what, r->e) : XD_OK;
    if (s != XD_OK)
        free(n.text);
    else
        l->norm[l->nnorm++] = n;
    return s;
}

static xd_status read_norm(const rules *r, const xd_json *j)
{
    const char    *type = type_of(j);
    const xd_json *many = xd_json_get(j, "normalizers");
    if (xd_json_null(j))
        return XD_OK;
    if (!strcmp(type, "NFC") || !strcmp(type, "NFD"))
        return add_norm(r, type[2] == 'C' ? NORM_NFC : NORM_NFD, NULL, NULL);
    if (!strcmp(type, "Replace")) {
        const char *from = xd_json_text(xd_json_get(xd_json_get(j, "pattern"), "String"));
        const char *to = xd_json_text(xd_json_get(j, "content"));
        return from && to ? add_norm(r, NORM_REPLACE, from, to) : not_known(r, "normalizer", type);
    }
    if (!strcmp(type, "Prepend")) {
        const char *text = xd_json_text(xd_json_get(j, "prepend"));
        return text ? add_norm(r, NORM_PREPEND, NULL, text) : not_known(r, "normalizer", type);
    }
    if (strcmp(type, "Sequence"))
        return not_known(r, "normalizer", type);
    xd_status s = XD_OK;
    for (const xd_json *i = xd_json_first(many); i && s == XD_OK; i = xd_json_next(i))
        s = read_norm(r, i);
    return s;
}

/* Appends a pre-tokenizer to the list. If the pre-tokenizer has neither a regular expression nor a
 * text, it adds a space before a word. */
static xd_status add_step(const rules *r, const char *regex, const char *text, xd_split_how how,
                          int invert)
{
    xd_lm    *l = r->l;
    step      n = { .how = how, .invert = invert };
    xd_status s = XD_OK;
    if (l->nstep == STEPS)
        return xd_fail(r->e, XD_EUNSUPPORTED, "%s has more than %d pre-tokenizers", r->what, STEPS);
    if (regex || text)
        s = xd_pattern_open(&n.at, regex, text, r->what, r->e);
    if (s == XD_OK)
        l->step[l->nstep++] = n;
    return s;
}

static xd_status read_split(const rules *r, const xd_json *j)
{
    static const char *const behaviors[] = { "Isolated", "Removed", "MergedWithPrevious",
                                             "MergedWithNext", "Contiguous" };
    const xd_json           *pattern = xd_json_get(j, "pattern");
    const char              *regex = xd_json_text(xd_json_get(pattern, "Regex"));
    const char              *text = xd_json_text(xd_json_get(pattern, "String"));
    const char              *how = xd_json_text(xd_json_get(j, "behavior"));
    for (int i = 0; how && (regex || text) && i < 5; i++)
        if (!strcmp(how, behaviors[i]))
            return add_step(r, regex, regex ? NULL : text, (xd_split_how)i,
                            xd_json_flag(j, "invert", 0));
    return not_known(r, "pre_tokenizer Split with the behavior", how ? how : "none");
}

static xd_status read_bytes(const rules *r, const xd_json *j)
{
    xd_status s = XD_OK;
    if (xd_json_flag(j, "add_prefix_space", 1))
        s = add_step(r, NULL, NULL, XD_SPLIT_ISOLATED, 0);
    if (s == XD_OK && xd_json_flag(j, "use_regex", 1))
        s = add_step(r, gpt2, NULL, XD_SPLIT_ISOLATED, 0);
    r->l->bytes = 1;
    return s;
}

static xd_status read_steps(const rules *r, const xd_json *j)
{
    const char    *type = type_of(j);
    const xd_json *many = xd_json_get(j, "pretokenizers");
    if (xd_json_null(j))
        return XD_OK;
    if (r->l->bytes) /* ByteLevel must be the last pre-tokenizer */
        return not_known(r, "pre_tokenizer after ByteLevel,", type);
    if (!strcmp(type, "Split"))
        return read_split(r, j);
    if (!strcmp(type, "ByteLevel"))
        return read_bytes(r, j);
    if (strcmp(type, "Sequence"))
        return not_known(r, "pre_tokenizer", type);
    xd_status s = XD_OK;
    for (const xd_json *i = xd_json_first(many); i && s == XD_OK; i = xd_json_next(i))
        s = read_steps(r, i);
    return s;
}

static int is_nothing(const xd_json *j)
{
    const char *s = xd_json_text(j);
    double      n;
    return xd_json_null(j) || (s && !*s) || (xd_json_number(j, &n) && n == 0);
}

/* Reads the options in the member "model" of a tokenizer.json, and the id of the unknown piece. */
static xd_status read_model(const rules *r, const xd_json *model, const char *unknown)
{
    static const char *const absent[] = { "dropout", "continuing_subword_prefix",
                                          "end_of_word_suffix" };
    xd_lm                   *l = r->l;
    for (int i = 0; i < 3; i++)
        if (!is_nothing(xd_json_get(model, absent[i])))
            return not_known(r, "model with", absent[i]);
    l->whole = xd_json_flag(model, "ignore_merges", 0);
    l->fallback = xd_json_flag(model, "byte_fallback", l->fallback);
    l->fuse = xd_json_flag(model, "fuse_unk", l->fuse);
    const char *name = xd_json_text(xd_json_get(model, "unk_token"));
    name = model ? name : unknown;
    l->unknown = name ? xd_pieces_find(xd_bpe_pieces(l->bpe), name, strlen(name)) : -1;
    return XD_OK;
}

static xd_status find_bytes(const rules *r)
{
    xd_lm *l = r->l;
    for (int i = 0; i < 256; i++) {
        char   s[8];
        size_t n = l->bytes ? xd_byte_letter(i, s) : (size_t)snprintf(s, 8, "<0x%02X>", i);
        l->byte[i] = xd_pieces_find(xd_bpe_pieces(l->bpe), s, n);
        /* the bytes 0xc0, 0xc1 and 0xf5 to 0xff never occur in UTF-8 */
        if (l->bytes && l->byte[i] < 0 && i < 0xf5 && i != 0xc0 && i != 0xc1)
            return xd_fail(r->e, XD_EFORMAT, "%s has no piece for byte %d", r->what, i);
    }
    return XD_OK;
}

static xd_status rules_of_class(const rules *r, xd_lm_class named)
{
    xd_status s;
    if (named == XD_LM_GEMMA) {
        r->l->fallback = r->l->fuse = 1;
        return add_norm(r, NORM_REPLACE, " ", "\xe2\x96\x81");
    }
    s = add_norm(r, NORM_NFC, NULL, NULL);
    r->l->bytes = 1;
    return s == XD_OK ? add_step(r, qwen, NULL, XD_SPLIT_ISOLATED, 0) : s;
}

xd_status xd_lm_open(xd_lm **out, const xd_lm_files *f, xd_err *e)
{
    xd_lm    *l = calloc(1, sizeof *l);
    rules     r = { l, f->bpe.vocab_name, e };
    xd_status s = l ? xd_bpe_open(&l->bpe, &f->bpe, e)
                    : xd_fail(e, XD_ENOMEM, "no memory for a tokenizer");
    *out = NULL;
    if (s == XD_OK && f->rules) {
        s = read_norm(&r, xd_json_get(f->rules, "normalizer"));
        if (s == XD_OK)
            s = read_steps(&r, xd_json_get(f->rules, "pre_tokenizer"));
    } else if (s == XD_OK) {
        s = rules_of_class(&r, f->named);
    }
    if (s == XD_OK)
        s = read_model(&r, xd_json_get(f->rules, "model"), f->unknown);
    if (s == XD_OK)
        s = find_bytes(&r);
    if (s == XD_OK)
        *out = l;
    else
        xd_lm_close(l);
    return s;
}

void xd_lm_close(xd_lm *l)
{
    if (!l)
        return;
    for (int i = 0; i < l->nnorm; i++) {
        xd_pattern_close(l->norm[i].from);
        free(l->norm[i].text);
    }
    for (int i = 0; i < l->nstep; i++)
        xd_pattern_close(l->step[i].at);
    xd_bpe_close(l->bpe);
    free(l);
}

const xd_pieces *xd_lm_pieces(const xd_lm *l)
{
    return xd_bpe_pieces(l->bpe);
}

/* ---- normalization -------------------------------------------------------------------------- */

static void apply_canonical(int composed, const char *s, size_t len, xd_bytes_buf *out)
{
    xd_codes c;
    if (!xd_codes_read(&c, s, len) || !xd_codes_canonical(&c, composed))
        out->failed = 1;
    else
        for (size_t i = 0; i < c.n; i++)
            xd_utf8_put(c.p[i], out);
    free(c.p);
}

static void apply_norm(const norm *n, const char *s, size_t len, xd_bytes_buf *out)
{
    xd_cuts c = { 0 };
    switch (n->kind) {
    case NORM_NFC:
    case NORM_NFD: apply_canonical(n->kind == NORM_NFC, s, len, out); break;
    case NORM_PREPEND:
        if (len)
            xd_bytes_add(out, n->text, strlen(n->text));
        xd_bytes_add(out, s, len);
        break;
    default:
        xd_pattern_cut(n->from, s, len, &c);
        for (size_t i = 0; i < c.n; i++) {
            const char *text = c.p[i].match ? n->text : s + c.p[i].from;
            xd_bytes_add(out, text, c.p[i].match ? strlen(text) : c.p[i].to - c.p[i].from);
        }
        out->failed |= c.failed;
        free(c.p);
    }
}

void xd_lm_normalize(const xd_lm *l, const char *s, size_t len, xd_bytes_buf *out)
{
    xd_bytes_buf now = { 0 };
    xd_bytes_add(&now, s, len);
    for (int i = 0; i < l->nnorm; i++) {
        xd_bytes_buf next = { .failed = now.failed };
        apply_norm(&l->norm[i], now.p ? now.p : "", now.len, &next);
        xd_bytes_free(&now);
        now = next;
    }
    xd_bytes_add(out, now.p, now.len);
    out->failed |= now.failed;
    xd_bytes_free(&now);
}

/* ---- one word ------------------------------------------------------------------------------- */

/* Returns the id of the piece that equals the complete word, or -1 if there is no such piece. */
static int32_t whole_word(const xd_lm *l, const char *s, size_t len)
{
    char   text[XD_PIECE_MAX + 2];
    size_t n = 0;
    if (!l->bytes || len > XD_PIECE_MAX)
        return xd_pieces_find(xd_lm_pieces(l), s, len);
    for (size_t i = 0; i < len && n <= XD_PIECE_MAX; i++)
        n += xd_byte_letter((unsigned char)s[i], text + n);
    return xd_pieces_find(xd_lm_pieces(l), text, n);
}

/* Handles a character without a piece. If the character's bytes have pieces, adds the ids of these
 * pieces. Otherwise increments *pending, the number of unknown ids that must still be written. As
 * in transformers, pending ids are written before the next character that has a piece, and so after
 * the byte ids of characters without a piece. */
static void add_character(const xd_lm *l, const char *s, size_t len, int *pending, xd_ids *ids)
{
    int32_t id = xd_pieces_find(xd_lm_pieces(l), s, len);
    int     bytes = id < 0 && l->fallback;
    for (size_t i = 0; bytes && i < len; i++)
        bytes = l->byte[(unsigned char)s[i]] >= 0;
    if (bytes) {
        for (size_t i = 0; i < len; i++)
            xd_ids_add(ids, l->byte[(unsigned char)s[i]]);
    } else if (id < 0 && l->unknown >= 0) {
        if (*pending && !l->fuse)
            xd_ids_add(ids, l->unknown);
        *pending = 1;
    } else if (id >= 0) {
        if (*pending)
            xd_ids_add(ids, l->unknown);
        *pending = 0;
        xd_ids_add(ids, id);
    }
}

static void encode_word(const xd_lm *l, const char *s, size_t len, xd_ids *out)
{
    int32_t whole = l->whole && len ? whole_word(l, s, len) : -1;
    xd_ids  ids = { 0 };
    int     pending = 0;
    if (whole >= 0) {
        xd_ids_add(out, whole);
        return;
    }
    for (size_t i = 0, took; i < len && !ids.failed; i += took) {
        took = l->bytes ? 1 : xd_utf8_len(s + i);
        if (l->bytes)
            xd_ids_add(&ids, l->byte[(unsigned char)s[i]]);
        else
            add_character(l, s + i, took, &pending, &ids);
    }
    if (pending)
        xd_ids_add(&ids, l->unknown);
    out->failed |= ids.failed;
    if (ids.n && !out->failed)
        xd_bpe_merge(l->bpe, ids.p, (size_t)ids.n, out);
    free(ids.p);
}

/* ---- splitting into words ------------------------------------------------------------------- */

static void run_steps(const xd_lm *l, int k, const char *s, size_t len, xd_ids *out);

/* Adds a space before a word that does not begin with a space. Then runs the pre-tokenizers after
 * pre-tokenizer k. */
static void run_spaced(const xd_lm *l, int k, const char *s, size_t len, xd_ids *out)
{
    xd_bytes_buf b = { 0 };
    if (s[0] != ' ')
        xd_bytes_add(&b, " ", 1);
    xd_bytes_add(&b, s, len);
    out->failed |= b.failed;
    if (!out->failed)
        run_steps(l, k + 1, b.p, b.len, out);
    free(b.p);
}

/* Runs pre-tokenizer k and the following ones on a text. The function is recursive; the depth is
 * the number of pre-tokenizers. */
static void run_steps(const xd_lm *l, int k, const char *s, size_t len, xd_ids *out)
{
    xd_cuts c = { 0 };
    if (!len || out->failed)
        return;
    if (k == l->nstep) {
        encode_word(l, s, len, out);
        return;
    }
    if (!l->step[k].at) {
        run_spaced(l, k, s, len, out);
        return;
    }
    xd_pattern_cut(l->step[k].at, s, len, &c);
    xd_cuts_merge(&c, l->step[k].how, l->step[k].invert);
    out->failed |= c.failed;
    for (size_t i = 0; i < c.n && !out->failed; i++)
        run_steps(l, k + 1, s + c.p[i].from, c.p[i].to - c.p[i].from, out);
    free(c.p);
}

void xd_lm_words(const xd_lm *l, const char *s, size_t len, xd_ids *out)
{
    run_steps(l, 0, s, len, out);
}
