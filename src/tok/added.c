/* added.c - finds added tokens in a text. An added token is a literal string with its own id, which
 * is found anywhere in a text.
 *
 * Up to four tokenizer files declare the added tokens and their flags. As in transformers 5, the
 * added tokens in tokenizer_config.json take precedence; if a token is declared several times, the
 * first declaration is used; a token that is not in the vocabulary gets the next free id. */
#include "tok/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* ---- the list ------------------------------------------------------------------------------- */

/* Returns the slot of the hash table that has an added token's text, or a free slot if the table
 * does not have the text. */
static size_t name_slot(const xd_tok *t, const char *s)
{
    size_t i = xd_text_hash(s, strlen(s)) & (t->slots - 1);
    while (t->slot[i] >= 0 && strcmp(t->added[t->slot[i]].name, s) != 0)
        i = (i + 1) & (t->slots - 1);
    return i;
}

int32_t xd_added_id(const xd_tok *t, const char *s)
{
    int32_t i = t->slots ? t->slot[name_slot(t, s)] : -1;
    return i < 0 ? -1 : t->added[i].id;
}

/* Enlarges the list of added tokens. Also enlarges the hash table, so that at most half of the
 * table's slots are used. */
static xd_status grow_list(xd_tok *t, xd_err *e)
{
    int       cap = t->capadded * 2 + 128;
    size_t    slots = xd_table_size(cap);
    int32_t  *slot = malloc(slots * sizeof *slot);
    xd_added *p = slot ? realloc(t->added, (size_t)cap * sizeof *p) : NULL;
    t->added = p ? p : t->added;
    if (!p) {
        free(slot);
        return xd_fail(e, XD_ENOMEM, "no memory for %d added tokens", cap);
    }
    free(t->slot);
    t->capadded = cap;
    t->slot = slot;
    t->slots = slots;
    memset(slot, 0xff, slots * sizeof *slot);
    for (int i = 0; i < t->nadded; i++)
        slot[name_slot(t, t->added[i].name)] = i;
    return XD_OK;
}

static char *copy_text(const char *s, size_t len)
{
    char *p = malloc(len + 1);
    if (p) {
        memcpy(p, s, len);
        p[len] = 0;
    }
    return p;
}

xd_status xd_added_add(xd_tok *t, const char *s, xd_added_flags f, xd_err *e)
{
    size_t len = strlen(s);
    if (len == 0 || xd_added_id(t, s) >= 0)
        return XD_OK;
    if (t->nadded == t->capadded && grow_list(t, e) != XD_OK)
        return XD_ENOMEM;
    xd_bytes_buf norm = { 0 };
    if (f.normalized)
        xd_tok_normalize(t, s, len, &norm);
    else
        xd_bytes_add(&norm, s, len);
    int32_t  id = xd_tok_find(t, s, len);
    xd_added a = { .text = copy_text(norm.p ? norm.p : "", norm.len),
                   .name = copy_text(s, len),
                   .len = norm.len,
                   .id = id >= 0 ? id : t->next++,
                   .f = f };
    free(norm.p);
    if (norm.failed || !a.text || !a.name) {
        free(a.text);
        free(a.name);
        return xd_fail(e, XD_ENOMEM, "no memory for the added token %s", s);
    }
    t->slot[name_slot(t, s)] = t->nadded;
    t->added[t->nadded++] = a;
    return XD_OK;
}

/* ---- finding -------------------------------------------------------------------------------- */

/* Compares added tokens by their texts; a text comes before longer texts that begin with it. Tokens
 * with equal texts keep the order in which they were added. */
static int by_text(const void *x, const void *y)
{
    const xd_added *const *p = x, *const *q = y, *a = *p, *b = *q;
    int                    c = memcmp(a->text, b->text, a->len < b->len ? a->len : b->len);
    return c ? c : a->len != b->len ? (a->len > b->len) - (a->len < b->len) : (a > b) - (a < b);
}

xd_status xd_added_sort(xd_tok *t, xd_err *e)
{
    const xd_added **list = malloc(((size_t)t->nadded + 1) * sizeof *list);
    int              failed = !list;
    for (int k = 0; k < 2 && !failed; k++) {
        int n = 0;
        for (int i = 0; i < t->nadded; i++)
            if (!t->added[i].f.normalized == !k && t->added[i].len)
                list[n++] = &t->added[i];
        qsort(list, (size_t)n, sizeof *list, by_text);
        t->order[k] = malloc(((size_t)n + 1) * sizeof *t->order[k]);
        failed = !t->order[k];
        t->norder[k] = failed ? 0 : n;
        for (int i = 0; i < t->norder[k]; i++)
            t->order[k][i] = (int32_t)(list[i] - t->added);
    }
    free(list);
    return failed ? xd_fail(e, XD_ENOMEM, "no memory for %d added tokens", t->nadded) : XD_OK;
}

/* Searches the sorted tokens [lo, hi), whose texts all have the same first `at` bytes and are
 * longer than that. Returns the first token whose byte `at` is at least c. */
static int first_from(const xd_tok *t, const int32_t *order, int lo, int hi, size_t at, int c)
{
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if ((unsigned char)t->added[order[mid]].text[at] < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Returns the longest added token with which s begins, or -1 if there is none. Each byte of s
 * narrows the range of tokens that are still possible. */
static int longest_at(const xd_tok *t, int normalized, const char *s, size_t len)
{
    const int32_t *order = t->order[normalized];
    int            lo = 0, hi = t->norder[normalized], best = -1;
    for (size_t at = 0; lo < hi; at++) {
        if (t->added[order[lo]].len == at) {
            best = order[lo];
            while (lo < hi && t->added[order[lo]].len == at)
                lo++;
        }
        if (at == len)
            break;
        int c = (unsigned char)s[at];
        lo = first_from(t, order, lo, hi, at, c);
        hi = first_from(t, order, lo, hi, at, c + 1);
    }
    return best;
}

/* Returns 1 if c matches \w of regular expressions: letters, marks, digits, connectors, joiners,
 * and symbols that are letters in a circle or a square. The table in this function lists the
 * symbols in circles and squares, and the characters that Unicode 16 added. */
static int is_word(int32_t c)
{
    static const xd_range more[] = {
        { 0x897, 0x897 },     { 0x1c89, 0x1c8a },   { 0x200c, 0x200d },   { 0x24b6, 0x24e9 },
        { 0xa7cb, 0xa7cd },   { 0xa7da, 0xa7dc },   { 0x105c0, 0x105f3 }, { 0x10d40, 0x10d65 },
        { 0x10d69, 0x10d6d }, { 0x10d6f, 0x10d85 }, { 0x10ec2, 0x10ec4 }, { 0x10efc, 0x10efc },
        { 0x11380, 0x11389 }, { 0x1138b, 0x1138b }, { 0x1138e, 0x1138e }, { 0x11390, 0x113b5 },
        { 0x113b7, 0x113c0 }, { 0x113c2, 0x113c2 }, { 0x113c5, 0x113c5 }, { 0x113c7, 0x113ca },
        { 0x113cc, 0x113d3 }, { 0x113e1, 0x113e2 }, { 0x116d0, 0x116e3 }, { 0x11bc0, 0x11be0 },
        { 0x11bf0, 0x11bf9 }, { 0x11f5a, 0x11f5a }, { 0x13460, 0x143fa }, { 0x16100, 0x16139 },
        { 0x16d40, 0x16d6c }, { 0x16d70, 0x16d79 }, { 0x18cff, 0x18cff }, { 0x1ccf0, 0x1ccf9 },
        { 0x1e5d0, 0x1e5fa }, { 0x1f130, 0x1f149 }, { 0x1f150, 0x1f169 }, { 0x1f170, 0x1f189 },
        { 0x2ebf0, 0x2ee5d },
    };
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return 1;
    default: return xd_in_ranges(more, sizeof more / sizeof *more, c);
    }
}

static int is_alone(const char *s, size_t len, size_t begin, size_t end)
{
    size_t x;
    return (begin == 0 || !is_word(xd_utf8_before(s, begin, &x))) &&
           (end == len || !is_word(xd_utf8_get(s + end, len - end, &x)));
}

/* If an added token has the flag lstrip or rstrip, extends its match by the white space before or
 * after it. */
static void extend_match(const xd_added_flags *f, const char *s, size_t len, size_t from,
                         size_t *begin, size_t *end)
{
    size_t x;
    while (f->lstrip && *begin > from && xd_is_space(xd_utf8_before(s, *begin, &x)))
        *begin = x;
    if (*begin < from)
        *begin = from;
    while (f->rstrip && *end < len && xd_is_space(xd_utf8_get(s + *end, len - *end, &x)))
        *end += x;
}

int xd_added_find(const xd_tok *t, int normalized, const char *s, size_t len, size_t at,
                  size_t from, size_t *begin, size_t *end)
{
    while (at < len) {
        int i = longest_at(t, normalized, s + at, len - at);
        if (i < 0) {
            at++;
            continue;
        }
        const xd_added *a = &t->added[i];
        *begin = at;
        *end = at + a->len;
        if (!a->f.single_word || is_alone(s, len, *begin, *end)) {
            extend_match(&a->f, s, len, from, begin, end);
            return i;
        }
        at = *end;
    }
    return -1;
}

/* ---- the files ------------------------------------------------------------------------------ */

xd_status xd_added_json(xd_tok *t, const xd_json *j, int special, xd_err *e)
{
    const char    *s = xd_json_text(j);
    xd_added_flags f = { 0 };
    if (!s) {
        s = xd_json_text(xd_json_get(j, "content"));
        special = xd_json_flag(j, "special", special);
        f = (xd_added_flags){ xd_json_flag(j, "lstrip", 0), xd_json_flag(j, "rstrip", 0),
                              xd_json_flag(j, "single_word", 0),
                              xd_json_flag(j, "normalized", !special) };
    }
    return s ? xd_added_add(t, s, f, e) : XD_OK;
}

static xd_status add_list(xd_tok *t, const xd_json *list, xd_err *e)
{
    xd_status s = XD_OK;
    for (const xd_json *i = xd_json_first(list); i && s == XD_OK; i = xd_json_next(i))
        s = xd_added_json(t, i, 1, e);
    return s;
}

/* Adds the two lists of added tokens that all current tokenizer files have, in the order of the
 * tokens' ids. */
static xd_status add_declared(xd_tok *t, const xd_special_files *f, xd_err *e)
{
    const xd_json *list = xd_json_get(f->cfg, "added_tokens_decoder");
    if (list) {
        xd_status s = XD_OK;
        for (const xd_json *i = xd_json_first(list); i && s == XD_OK; i = xd_json_next(i))
            s = xd_added_json(t, i, 0, e);
        return s;
    }
    for (const xd_json *i = xd_json_first(f->old); i; i = xd_json_next(i)) {
        xd_added_flags plain = { .normalized = 1 };
        xd_status      s = xd_added_add(t, xd_json_key(i) ? xd_json_key(i) : "", plain, e);
        if (s != XD_OK)
            return s;
    }
    list = xd_json_get(f->tj, "added_tokens");
    for (const xd_json *i = xd_json_first(list); i; i = xd_json_next(i)) {
        xd_status s = xd_added_json(t, i, 0, e);
        if (s != XD_OK)
            return s;
    }
    return XD_OK;
}

static const xd_json *special_token(const xd_special_files *f, const char *key)
{
    int            whole = xd_json_get(f->cfg, "added_tokens_decoder") != NULL;
    const xd_json *j = whole ? NULL : xd_json_get(f->map, key);
    return j ? j : xd_json_get(f->cfg, key);
}

/* Keys of special tokens. For each kind of tokenizer, `usual` has the token's default text, or
 * NULL. */
static const struct {
    const char *key, *usual[XD_TOK_LM];
} names[] = {
    { "bos_token", { NULL, "<|startoftext|>", NULL, NULL } },
    { "eos_token", { "</s>", "<|endoftext|>", NULL, "</s>" } },
    { "unk_token", { "<unk>", "<|endoftext|>", "[UNK]", "<unk>" } },
    { "sep_token", { NULL, NULL, "[SEP]", NULL } },
    { "pad_token", { "<pad>", "<|endoftext|>", "[PAD]", "<pad>" } },
    { "cls_token", { NULL, NULL, "[CLS]", NULL } },
    { "mask_token", { NULL, NULL, "[MASK]", NULL } },
};
enum { NAMES = sizeof names / sizeof *names };

static xd_status add_named(xd_tok *t, const xd_special_files *f, xd_err *e)
{
    xd_status      s = XD_OK;
    int            strips = f->kind == XD_TOK_BYTES;
    xd_added_flags flags = { .lstrip = strips, .rstrip = strips };
    for (int i = 0; i < NAMES && s == XD_OK; i++) {
        const char    *usual = names[i].usual[f->kind];
        const xd_json *j = special_token(f, names[i].key);
        if (j)
            s = xd_added_json(t, j, 1, e);
        else if (usual && !f->named_only)
            s = xd_added_add(t, usual, flags, e);
    }
    return s;
}

const char *xd_special_name(const xd_special_files *f, const char *key)
{
    const xd_json *j = special_token(f, key);
    const char    *s = xd_json_text(j) ? xd_json_text(j) : xd_json_text(xd_json_get(j, "content"));
    for (int i = 0; i < NAMES && !s; i++)
        if (!strcmp(names[i].key, key))
            s = names[i].usual[f->kind];
    return s;
}

int xd_special_extra_ids(const xd_json *cfg, xd_tok_kind kind)
{
    double n;
    if (!xd_json_number(xd_json_get(cfg, "extra_ids"), &n))
        return kind == XD_TOK_BYTES ? 125 : 100;
    return n > 0 && n <= 10000 ? (int)n : 0;
}

static xd_status add_sentinels(xd_tok *t, const xd_special_files *f, xd_err *e)
{
    xd_status s = XD_OK;
    for (int i = 0; i < xd_special_extra_ids(f->cfg, f->kind) && s == XD_OK; i++) {
        char name[32];
        snprintf(name, sizeof name, "<extra_id_%d>", i);
        s = xd_added_add(t, name, (xd_added_flags){ 0 }, e);
    }
    return s;
}

static int has_sentinel(const xd_json *list)
{
    for (const xd_json *i = xd_json_first(list); i; i = xd_json_next(i)) {
        const char *s = xd_json_text(i);
        s = s ? s : xd_json_text(xd_json_get(i, "content"));
        if (s && strstr(s, "<extra_id_"))
            return 1;
    }
    return 0;
}

/* Adds the control pieces and the user-defined pieces of a spiece.model to the added tokens. */
static xd_status add_control(xd_tok *t, xd_err *e)
{
    for (int i = 0; i < t->v.n; i++) {
        const xd_piece *p = &t->v.p[i];
        char            s[XD_PIECE_MAX + 1];
        if (p->type != XD_PIECE_CONTROL && p->type != XD_PIECE_USER)
            continue;
        memcpy(s, t->v.text.p + p->at, p->len);
        s[p->len] = 0;
        xd_status st = xd_added_add(t, s, (xd_added_flags){ 0 }, e);
        if (st != XD_OK)
            return st;
    }
    return XD_OK;
}

/* Adds the remaining special tokens. If the config has a list of special tokens, only this list is
 * used. Otherwise, adds the control pieces of the model (or the list in special_tokens_map.json)
 * and the sentinels. */
static xd_status add_extra(xd_tok *t, const xd_special_files *f, xd_err *e)
{
    const xd_json *extra = xd_json_get(f->cfg, "extra_special_tokens");
    const xd_json *more = xd_json_get(f->cfg, "additional_special_tokens");
    if (xd_json_size(extra) > 0)
        return add_list(t, extra, e);
    if (more || extra)
        return add_list(t, more, e);
    if (f->kind != XD_TOK_T5 && f->kind != XD_TOK_BYTES)
        return add_list(t, special_token(f, "additional_special_tokens"), e);
    const xd_json *listed = f->spiece ? NULL : special_token(f, "additional_special_tokens");
    xd_status      s = listed ? add_list(t, listed, e) : f->spiece ? add_control(t, e) : XD_OK;
    if (s != XD_OK || has_sentinel(listed))
        return s;
    return add_sentinels(t, f, e);
}

xd_status xd_special_read(xd_tok *t, const xd_special_files *f, xd_err *e)
{
    static const char *const opening[XD_TOK_LM] = { NULL, "bos_token", "cls_token", NULL };
    xd_status                s = add_declared(t, f, e);
    if (s == XD_OK)
        s = add_named(t, f, e);
    if (s == XD_OK)
        s = add_extra(t, f, e);
    if (s != XD_OK)
        return s;
    const char *first = opening[f->kind],
               *last = f->kind == XD_TOK_BERT ? "sep_token" : "eos_token";
    const char *begin = first ? xd_special_name(f, first) : NULL, *end = xd_special_name(f, last);
    const char *pad = xd_special_name(f, "pad_token");
    const xd_json *p = special_token(f, "pad_token");
    t->begin = begin ? xd_added_id(t, begin) : -1;
    t->end = end ? xd_added_id(t, end) : -1;
    t->pad = pad && !(p && xd_json_null(p)) ? xd_added_id(t, pad) : -1;
    const char *side = xd_json_text(xd_json_get(f->cfg, "truncation_side"));
    double      max;
    t->cut_left = side && !strcmp(side, "left");
    if (xd_json_number(xd_json_get(f->cfg, "model_max_length"), &max) && max >= 1 && max < 1e9)
        t->max = (int64_t)max;
    if (t->end < 0)
        return xd_fail(e, XD_EFORMAT, "the tokenizer's %s is empty", last);
    if (first && t->begin < 0)
        return xd_fail(e, XD_EFORMAT, "the tokenizer's %s is empty", first);
    return xd_added_sort(t, e);
}
