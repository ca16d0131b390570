/* tok.c - converts a text to token ids: first finds added tokens, then tokenizes the text between
 * them. The steps of tokenizing are described in inside.h. */
#include "tok/inside.h"

#include <stdlib.h>
#include <string.h>

void xd_tok_close(xd_tok **tp)
{
    xd_tok *t = *tp;
    if (!t)
        return;
    for (int i = 0; i < t->nadded; i++) {
        free(t->added[i].text);
        free(t->added[i].name);
    }
    free(t->added);
    free(t->slot);
    free(t->order[0]);
    free(t->order[1]);
    xd_spm_close(t->spm);
    xd_clip_close(t->clip);
    xd_bert_close(t->bert);
    xd_lm_close(t->lm);
    free(t->head.p);
    free(t->tail.p);
    xd_vocab_free(&t->v);
    free(t);
    *tp = NULL;
}

int64_t xd_tok_vocab(const xd_tok *t)
{
    return t->next;
}

int32_t xd_tok_bos(const xd_tok *t)
{
    return t->begin;
}

int32_t xd_tok_eos(const xd_tok *t)
{
    return t->end;
}

int32_t xd_tok_pad(const xd_tok *t)
{
    return t->pad;
}

int xd_tok_is_lm(const xd_tok *t)
{
    return t->lm != NULL;
}

int xd_tok_pads_left(const xd_tok *t)
{
    return t->pad_left;
}

int64_t xd_tok_max(const xd_tok *t)
{
    return t->max;
}

/* ByT5's special tokens have the ids before those of the bytes. */
static const char *const before_bytes[] = { "<pad>", "</s>", "<unk>" };
enum { BYTES_FROM = sizeof before_bytes / sizeof *before_bytes, BYTES = 256 };

void xd_tok_open_bytes(xd_tok *t)
{
    t->bytes = 1;
    t->next = BYTES_FROM + BYTES;
}

static int32_t find_before_bytes(const char *s, size_t len)
{
    for (int32_t i = 0; i < BYTES_FROM; i++)
        if (strlen(before_bytes[i]) == len && !memcmp(before_bytes[i], s, len))
            return i;
    return -1;
}

int32_t xd_tok_find(const xd_tok *t, const char *s, size_t len)
{
    if (t->bytes)
        return find_before_bytes(s, len);
    if (t->clip)
        return xd_pieces_find(xd_bpe_pieces(xd_clip_bpe(t->clip)), s, len);
    if (t->lm)
        return xd_pieces_find(xd_lm_pieces(t->lm), s, len);
    return t->bert ? xd_pieces_find(xd_bert_pieces(t->bert), s, len) : xd_spm_find(t->spm, s, len);
}

void xd_tok_normalize(const xd_tok *t, const char *s, size_t len, xd_bytes_buf *out)
{
    if (t->bytes)
        xd_bytes_add(out, s, len);
    else if (t->clip)
        xd_clip_normalize(s, len, out);
    else if (t->bert)
        xd_bert_normalize(t->bert, s, len, out);
    else if (t->lm)
        xd_lm_normalize(t->lm, s, len, out);
    else
        xd_charsmap_apply(&t->map, s, len, out);
}

/* ---- a text --------------------------------------------------------------------------------- */

static const char mark[] = "\xe2\x96\x81"; /* U+2581, the mark of a space */
enum { MARK = sizeof mark - 1 };

/* Tokenizes a run of text without white space. Puts the space mark U+2581 before the run, and
 * splits the run before every further space mark. */
static void encode_words(const xd_tok *t, const char *s, size_t len, xd_ids *out)
{
    xd_bytes_buf b = { 0 };
    if (len < MARK || memcmp(s, mark, MARK))
        xd_bytes_add(&b, mark, MARK);
    xd_bytes_add(&b, s, len);
    out->failed |= b.failed;
    for (size_t i = 0; i < b.len && !out->failed;) {
        size_t end = i + xd_utf8_len(b.p + i);
        while (end < b.len && (b.len - end < MARK || memcmp(b.p + end, mark, MARK)))
            end += xd_utf8_len(b.p + end);
        xd_unigram(t, b.p + i, end - i, out);
        i = end;
    }
    free(b.p);
}

static void encode_runs(const xd_tok *t, const char *s, size_t len, xd_ids *out)
{
    size_t start = 0, took;
    for (size_t i = 0; i < len; i += took) {
        int32_t c = xd_utf8_get(s + i, len - i, &took);
        if (!xd_is_space(c))
            continue;
        if (i > start)
            encode_words(t, s + start, i - start, out);
        start = i + took;
    }
    if (len > start)
        encode_words(t, s + start, len - start, out);
}

/* Replaces each byte that is not valid UTF-8 by U+FFFD, as SentencePiece does. */
static void clean_utf8(const char *s, size_t len, xd_bytes_buf *out)
{
    size_t took;
    for (size_t i = 0; i < len; i += took) {
        int32_t c = xd_utf8_get(s + i, len - i, &took);
        xd_bytes_add(out, c < 0 ? "\xef\xbf\xbd" : s + i, c < 0 ? 3 : took);
    }
}

static void encode_segments(const xd_tok *t, int normalized, const char *s, size_t len,
                            xd_ids *out);

/* Normalizes the text between added tokens. The character map of a T5 vocabulary may contain any
 * bytes, so the normalized text may have invalid UTF-8, which is replaced. */
static void encode_between(const xd_tok *t, const char *s, size_t len, xd_ids *out)
{
    xd_bytes_buf raw = { 0 }, norm = { 0 };
    xd_tok_normalize(t, s, len, &raw);
    clean_utf8(raw.p, raw.len, &norm);
    out->failed |= raw.failed | norm.failed;
    if (norm.len && !out->failed)
        encode_segments(t, 1, norm.p, norm.len, out);
    free(raw.p);
    free(norm.p);
}

/* Splits a text at added tokens. First splits the raw text at the tokens that are searched in raw
 * text. Then normalizes the parts between these tokens, and splits the parts at the tokens that are
 * searched in normalized text. */
static void encode_segments(const xd_tok *t, int normalized, const char *s, size_t len, xd_ids *out)
{
    size_t from = 0;
    while (from < len) {
        size_t begin = len, end = len;
        int    i = xd_added_find(t, normalized, s, len, from, from, &begin, &end);
        if (i < 0)
            begin = end = len;
        if (normalized && t->bytes) {
            for (size_t k = from; k < begin; k++)
                xd_ids_add(out, BYTES_FROM + (unsigned char)s[k]);
        } else if (normalized && t->clip) {
            xd_clip_words(t->clip, s + from, begin - from, out);
        } else if (normalized && t->bert) {
            xd_bert_words(t->bert, s + from, begin - from, out);
        } else if (normalized && t->lm) {
            xd_lm_words(t->lm, s + from, begin - from, out);
        } else if (normalized) {
            encode_runs(t, s + from, begin - from, out);
        } else if (begin > from) {
            encode_between(t, s + from, begin - from, out);
        }
        if (i < 0)
            return;
        xd_ids_add(out, t->added[i].id);
        from = end;
    }
}

/* Truncates the list of ids: after its first `first` elements, at most `room` ids remain. */
static void keep_ids(const xd_tok *t, xd_ids *o, int64_t first, int64_t room)
{
    int64_t n = o->n - first;
    if (n <= room)
        return;
    if (t->cut_left)
        memmove(o->p + first, o->p + first + (n - room), (size_t)room * sizeof *o->p);
    o->n = first + room;
}

xd_status xd_tok_ids(const xd_tok *t, const char *text, size_t len, int64_t max, int32_t **ids,
                     int64_t *n, xd_err *e)
{
    int64_t whole;
    return xd_tok_cut_plain(t, text, len, max, 0, ids, n, &whole, e);
}

static void add_some(xd_ids *out, const xd_ids *from, int64_t n)
{
    for (int64_t i = 0; i < n && i < from->n; i++)
        xd_ids_add(out, from->p[i]);
}

xd_status xd_tok_cut_plain(const xd_tok *t, const char *text, size_t len, int64_t max,
                           int no_special, int32_t **ids, int64_t *n, int64_t *untruncated,
                           xd_err *e)
{
    xd_bytes_buf b = { 0 };
    xd_ids       out = { 0 };
    int64_t      limit = max > 0 ? max : INT64_MAX;
    int64_t      heads = no_special ? 0 : t->head.n, tails = no_special ? 0 : t->tail.n;
    *ids = NULL;
    *n = 0;
    heads = heads < limit ? heads : limit;
    add_some(&out, &t->head, heads);
    clean_utf8(text, len, &b);
    if (b.len && !b.failed)
        encode_segments(t, 0, b.p, b.len, &out);
    free(b.p);
    *untruncated = out.n + tails;
    if (!out.failed) /* the special tokens before and after a text remain */
        keep_ids(t, &out, heads, limit > heads + tails ? limit - heads - tails : 0);
    if (t->bytes && out.n && out.p[out.n - 1] == t->end) /* ByT5 adds no second </s> */
        tails = 0;
    add_some(&out, &t->tail, tails < limit - heads ? tails : limit - heads);
    if (!out.p && !out.failed) { /* a text may have no token ids */
        xd_ids_add(&out, 0);
        out.n = 0;
    }
    if (out.failed || b.failed) {
        free(out.p);
        if ((out.failed | b.failed) & XD_FAILED_ENDLESS)
            return xd_fail(e, XD_EFORMAT,
                           "a regular expression of its pre_tokenizer exceeds "
                           "PCRE2's match limit on this text of %zu bytes: shorten the text, "
                           "or use the model's original tokenizer",
                           len);
        return xd_fail(e, XD_ENOMEM, "no memory for the ids of a text of %zu bytes", len);
    }
    *ids = out.p;
    *n = out.n;
    return XD_OK;
}
