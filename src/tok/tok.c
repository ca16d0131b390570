/* tok.c - opening a T5 tokenizer and turning a text into ids; inside.h tells the five steps. */
#include "tok/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

enum { MAX_FILE = 1 << 28 };            /* bytes of a vocabulary; the largest have 2^24         */

/* ---- opening -------------------------------------------------------------------------------- */

/* The vocabulary is read: gives it to the library and prepares the search. */
static xd_status finish(xd_tok *t, const char *what, xd_err *e)
{
    xd_bytes_buf model = {0};
    char         why[256] = "";
    if (t->v.n < 3)
        return xd_fail(e, XD_EFORMAT, "%s has %d pieces, the three special ones alone are more",
                       what, t->v.n);
    if (xd_charsmap_open(&t->map, t->v.map.p, t->v.map.len, what, e) != XD_OK)
        return XD_EFORMAT;
    xd_vocab_model(&t->v, &model);
    if (!model.failed)
        t->spm = xd_spm_open(model.p, model.len, why, sizeof why);
    free(model.p);
    if (model.failed)
        return xd_fail(e, XD_ENOMEM, "no memory for the model in %s", what);
    if (!t->spm || xd_spm_size(t->spm) != t->v.n)
        return xd_fail(e, XD_EFORMAT, "SentencePiece refuses %s: %s", what,
                       why[0] ? why : "pieces are missing");
    t->unknown = t->v.p[0].score;
    for (int i = 0; i < t->v.n; i++) {
        const xd_piece *p = &t->v.p[i];
        t->unknown = p->score < t->unknown ? p->score : t->unknown;
        t->longest = p->len > t->longest ? p->len : t->longest;
        t->lens[p->len] = 1;
    }
    t->unknown -= 10;
    t->next = t->v.n;
    return XD_OK;
}

/* T5's sentinels stand behind the pieces of a spiece.model, the last one first. */
static xd_status add_sentinels(xd_vocab *v, const xd_json *cfg, const char *what, xd_err *e)
{
    xd_status s = XD_OK;
    for (int i = xd_special_extra_ids(cfg) - 1; i >= 0 && s == XD_OK; i--) {
        char name[32];
        int  n = snprintf(name, sizeof name, "<extra_id_%d>", i);
        s = xd_vocab_add(v, name, (size_t)n, 0, XD_PIECE_NORMAL, what, e);
    }
    return s;
}

static xd_status open_with(xd_tok **out, const char *data, size_t len,
                           const xd_special_files *f, const char *what, xd_err *e)
{
    xd_tok *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t)
        return xd_fail(e, XD_ENOMEM, "no memory for a tokenizer");
    xd_status s = data ? xd_vocab_spiece(&t->v, data, len, what, e)
                       : xd_vocab_json(&t->v, f->tj, what, e);
    if (s == XD_OK && data)
        s = add_sentinels(&t->v, f->cfg, what, e);
    if (s == XD_OK)
        s = finish(t, what, e);
    if (s == XD_OK)
        s = xd_special_read(t, f, e);
    if (s == XD_OK)
        *out = t;
    else
        xd_tok_close(&t);
    return s;
}

xd_status xd_tok_open_spiece(xd_tok **t, const void *data, size_t len, xd_err *e)
{
    xd_special_files f = {.spiece = 1};
    return open_with(t, data ? data : "", len, &f, "the SentencePiece model", e);
}

xd_status xd_tok_open_json(xd_tok **t, const char *text, size_t len, xd_err *e)
{
    xd_json  *j = NULL;
    *t = NULL;
    xd_status s = xd_json_parse(&j, text, len, "tokenizer.json", e);
    if (s == XD_OK) {
        xd_special_files f = {.tj = j};
        s = open_with(t, NULL, 0, &f, "tokenizer.json", e);
    }
    xd_json_free(&j);
    return s;
}

/* A JSON file of the directory; none is no error. */
static xd_status read_beside(xd_json **j, const char *dir, const char *name, xd_err *e)
{
    char     *path = xd_path_join(dir, name);
    xd_status s = XD_OK;
    *j = NULL;
    if (!path)
        return xd_fail(e, XD_ENOMEM, "no memory for a path");
    if (xd_file_exists(path))
        s = xd_json_read(j, path, e);
    free(path);
    return s;
}

/* Opens the vocabulary of a directory whose other files are read. */
static xd_status open_vocab(xd_tok **t, const char *dir, xd_special_files *f, xd_err *e)
{
    char     *path = xd_path_join(dir, "spiece.model"), *data = NULL;
    size_t    len = 0;
    xd_status s = XD_OK;
    if (!path)
        return xd_fail(e, XD_ENOMEM, "no memory for a path");
    f->spiece = xd_file_exists(path);
    if (!f->spiece) {
        free(path);
        path = xd_path_join(dir, "tokenizer.json");
        if (!path)
            return xd_fail(e, XD_ENOMEM, "no memory for a path");
        if (!f->tj)
            s = xd_fail(e, XD_EIO, "%s has neither spiece.model nor tokenizer.json", dir);
    } else {
        s = xd_file_read(path, MAX_FILE, &data, &len, e);
    }
    if (s == XD_OK)
        s = open_with(t, data, len, f, path, e);
    free(data);
    free(path);
    return s;
}

xd_status xd_tok_open_t5(xd_tok **t, const char *dir, xd_err *e)
{
    xd_json  *cfg = NULL, *map = NULL, *old = NULL, *tj = NULL;
    xd_status s;
    *t = NULL;
    if (!xd_file_is_dir(dir))
        return xd_fail(e, XD_EIO, "%s is not a directory", dir);
    s = read_beside(&cfg, dir, "tokenizer_config.json", e);
    if (s == XD_OK)
        s = read_beside(&map, dir, "special_tokens_map.json", e);
    if (s == XD_OK)
        s = read_beside(&old, dir, "added_tokens.json", e);
    char *spiece = xd_path_join(dir, "spiece.model");
    if (s == XD_OK && !spiece)
        s = xd_fail(e, XD_ENOMEM, "no memory for a path");
    /* The large file is read only for its vocabulary or for tokens that nobody else declares. */
    if (s == XD_OK && (!xd_file_exists(spiece) || !xd_json_get(cfg, "added_tokens_decoder")))
        s = read_beside(&tj, dir, "tokenizer.json", e);
    free(spiece);
    if (s == XD_OK) {
        xd_special_files f = {.cfg = cfg, .map = map, .old = old, .tj = tj};
        s = open_vocab(t, dir, &f, e);
    }
    xd_json_free(&cfg);
    xd_json_free(&map);
    xd_json_free(&old);
    xd_json_free(&tj);
    return s;
}

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
    xd_spm_close(t->spm);
    xd_vocab_free(&t->v);
    free(t);
    *tp = NULL;
}

int64_t xd_tok_vocab(const xd_tok *t)
{
    return t->next;
}

/* ---- a text --------------------------------------------------------------------------------- */

static const char mark[] = "\xe2\x96\x81";      /* U+2581, which stands for a space             */
enum { MARK = sizeof mark - 1 };

/* One run without white space: begins with the mark, and is cut before every further mark. */
static void words(const xd_tok *t, const char *s, size_t len, xd_ids *out)
{
    xd_bytes_buf b = {0};
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

static void runs(const xd_tok *t, const char *s, size_t len, xd_ids *out)
{
    size_t start = 0, took;
    for (size_t i = 0; i < len; i += took) {
        int32_t c = xd_utf8_get(s + i, len - i, &took);
        if (!xd_is_space(c))
            continue;
        if (i > start)
            words(t, s + start, i - start, out);
        start = i + took;
    }
    if (len > start)
        words(t, s + start, len - start, out);
}

/* Invalid bytes become U+FFFD, one each, as SentencePiece reads them. */
static void clean(const char *s, size_t len, xd_bytes_buf *out)
{
    size_t took;
    for (size_t i = 0; i < len; i += took) {
        int32_t c = xd_utf8_get(s + i, len - i, &took);
        xd_bytes_add(out, c < 0 ? "\xef\xbf\xbd" : s + i, c < 0 ? 3 : took);
    }
}

static void segments(const xd_tok *t, int normalized, const char *s, size_t len, xd_ids *out);

/* Normalizes what lies between added tokens. The map may be any bytes: the result is made valid
 * again. */
static void between(const xd_tok *t, const char *s, size_t len, xd_ids *out)
{
    xd_bytes_buf raw = {0}, norm = {0};
    xd_charsmap_apply(&t->map, s, len, &raw);
    clean(raw.p, raw.len, &norm);
    out->failed |= raw.failed | norm.failed;
    if (norm.len && !out->failed)
        segments(t, 1, norm.p, norm.len, out);
    free(raw.p);
    free(norm.p);
}

/* Splits at added tokens: first those of the raw text, then, in what lies between and is
 * normalized, the others. */
static void segments(const xd_tok *t, int normalized, const char *s, size_t len, xd_ids *out)
{
    size_t from = 0;
    while (from < len) {
        size_t begin = len, end = len;
        int    i = xd_added_find(t, normalized, s, len, from, from, &begin, &end);
        if (i < 0)
            begin = end = len;
        if (normalized) {
            runs(t, s + from, begin - from, out);
        } else if (begin > from) {
            between(t, s + from, begin - from, out);
        }
        if (i < 0)
            return;
        xd_ids_add(out, t->added[i].id);
        from = end;
    }
}

xd_status xd_tok_ids(const xd_tok *t, const char *text, size_t len, int64_t max, int32_t **ids,
                     int64_t *n, xd_err *e)
{
    xd_bytes_buf b = {0};
    xd_ids       out = {0};
    *ids = NULL;
    *n = 0;
    clean(text, len, &b);
    if (b.len && !b.failed)
        segments(t, 0, b.p, b.len, &out);
    free(b.p);
    if (max > 0 && out.n > max - 1) {   /* the closing token stays                              */
        if (t->cut_left)
            memmove(out.p, out.p + (out.n - (max - 1)), (size_t)(max - 1) * sizeof *out.p);
        out.n = max - 1;
    }
    xd_ids_add(&out, t->end);
    if (out.failed || b.failed) {
        free(out.p);
        return xd_fail(e, XD_ENOMEM, "no memory for the ids of a text of %zu bytes", len);
    }
    *ids = out.p;
    *n = out.n;
    return XD_OK;
}
