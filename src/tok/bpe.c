/* bpe.c - byte pair encoding: reads vocabularies and merges, and segments a word into pieces.
 *
 * In a byte-level vocabulary, each character represents a byte: a printable Latin-1 character
 * represents its own byte, and U+0100 and the following characters represent the other 68 bytes. In
 * CLIP's vocabulary the last character of a word has the suffix "</w>". A word is first split into
 * bytes or characters. Then, again and again, the neighbouring pair of symbols with the lowest rank
 * (the leftmost of equal pairs) is merged, until no pair of the word has a rank. With a heap of
 * pairs and a linked list of symbols, a word is segmented in O(n log n) time. */
#include "tok/inside.h"

#include <stdlib.h>
#include <string.h>

typedef struct merge { int32_t left, right, rank, id; } merge; /* left < 0: a free slot */

struct xd_bpe {
    xd_pieces v;
    merge    *m; /* hash table of merges; the key is the pair of ids */
    size_t    mslots;
    /* Ids of one-byte pieces: byte[0] inside a word, byte[1] at a word's end; -1: none. */
    int32_t   byte[2][256];
    int32_t   unknown;
};

/* ---- bytes ---------------------------------------------------------------------------------- */

size_t xd_byte_letter(int byte, char out[2])
{
    int c = byte;
    if (byte <= 0x20)
        c = 0x100 + byte;
    else if (byte >= 0x7f && byte <= 0xa0)
        c = 0x121 + byte - 0x7f;
    else if (byte == 0xad)
        c = 0x143;
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    out[0] = (char)(0xc0 | c >> 6);
    out[1] = (char)(0x80 | (c & 0x3f));
    return 2;
}

static void find_bytes(xd_bpe *b)
{
    for (int i = 0; i < 256; i++) {
        char   s[6];
        size_t n = xd_byte_letter(i, s);
        b->byte[0][i] = xd_pieces_find(&b->v, s, n);
        memcpy(s + n, "</w>", 4);
        b->byte[1][i] = xd_pieces_find(&b->v, s, n + 4);
    }
}

/* ---- merges --------------------------------------------------------------------------------- */

/* Returns the slot of the hash table that has a pair of piece ids, or a free slot if the table does
 * not have the pair. */
static size_t find_merge(const xd_bpe *b, int32_t left, int32_t right)
{
    uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;
    size_t   i = (size_t)(h >> 32) & (b->mslots - 1);
    while (b->m[i].left >= 0 && (b->m[i].left != left || b->m[i].right != right))
        i = (i + 1) & (b->mslots - 1);
    return i;
}

static xd_status open_merges(xd_bpe *b, int n, const char *what, xd_err *e)
{
    if (n > XD_PIECES_MAX)
        return xd_fail(e, XD_EFORMAT, "%s has %d merges; at most %d are supported", what, n,
                       (int)XD_PIECES_MAX);
    b->mslots = xd_table_size(n);
    b->m = malloc(b->mslots * sizeof *b->m);
    if (!b->m)
        return xd_fail(e, XD_ENOMEM, "no memory for the %d merges of %s", n, what);
    memset(b->m, 0xff, b->mslots * sizeof *b->m);
    return XD_OK;
}

typedef struct part {
    const char *s;
    size_t      len;
} part;

/* Adds a merge to the hash table. If the list of merges repeats a pair, the last rank of the pair
 * is used. `number`, for error messages, is the number of the line or list entry, counted from
 * 1. */
static xd_status add_merge(xd_bpe *b, const part two[2], int rank, int number, const char *what,
                           xd_err *e)
{
    char   s[2 * XD_PIECE_MAX];
    size_t len = two[0].len + two[1].len;
    if (two[0].len > XD_PIECE_MAX || two[1].len > XD_PIECE_MAX)
        return xd_fail(e, XD_EFORMAT, "%s: a part of merge %d has more than %d bytes", what, number,
                       (int)XD_PIECE_MAX);
    memcpy(s, two[0].s, two[0].len);
    memcpy(s + two[0].len, two[1].s, two[1].len);
    int32_t left = xd_pieces_find(&b->v, s, two[0].len);
    int32_t right = xd_pieces_find(&b->v, two[1].s, two[1].len), id = xd_pieces_find(&b->v, s, len);
    if (left < 0 || right < 0 || id < 0) {
        part p = left < 0 ? two[0] : right < 0 ? two[1] : (part){ s, len };
        return xd_fail(e, XD_EFORMAT, "%s: '%.*s' of merge %d is not in the vocabulary", what,
                       (int)(p.len < 80 ? p.len : 80), p.s, number);
    }
    b->m[find_merge(b, left, right)] = (merge){ left, right, rank, id };
    return XD_OK;
}

/* Splits the text "a b" of a merge at its only space. Returns 0 if the text does not consist of two
 * parts. */
static int split_merge(const char *s, size_t len, part two[2])
{
    const char *gap = memchr(s, ' ', len);
    if (!gap)
        return 0;
    two[0] = (part){ s, (size_t)(gap - s) };
    two[1] = (part){ gap + 1, len - two[0].len - 1 };
    return two[0].len && two[1].len && !memchr(two[1].s, ' ', two[1].len);
}

static xd_status not_two(const char *what, const char *kind, int number, const char *s, size_t len,
                         xd_err *e)
{
    return xd_fail(e, XD_EFORMAT, "%s: %s %d, '%.*s', is not two parts with one space between",
                   what, kind, number, (int)(len < 80 ? len : 80), s);
}

/* Reads merges.txt, which has one pair per line; the first line has the lowest rank. Lines that
 * begin with #version are skipped. */
static xd_status read_lines(xd_bpe *b, const char *s, size_t len, const char *what, xd_err *e)
{
    int64_t lines = 1;
    for (size_t i = 0; i < len; i++)
        lines += s[i] == '\n';
    if (len == 0)
        return xd_fail(e, XD_EFORMAT, "%s is empty", what);
    if (lines > XD_PIECES_MAX)
        lines = XD_PIECES_MAX + 1;
    xd_status st = open_merges(b, (int)lines, what, e);
    int       number = 0;
    for (size_t at = 0; at < len && st == XD_OK;) {
        const char *end = memchr(s + at, '\n', len - at);
        size_t      n = end ? (size_t)(end - s) - at : len - at, all = n + 1;
        part        two[2];
        n -= n && s[at + n - 1] == '\r';
        number++;
        if (n < 8 || memcmp(s + at, "#version", 8))
            st = split_merge(s + at, n, two) ? add_merge(b, two, number, number, what, e)
                                             : not_two(what, "line", number, s + at, n, e);
        at += all;
    }
    return st;
}

/* Reads model.merges of a tokenizer.json, which is a list of strings "a b", or a list of pairs
 * ["a", "b"]. */
static xd_status read_list(xd_bpe *b, const xd_json *list, const char *what, xd_err *e)
{
    if (!xd_json_is_list(list))
        return xd_fail(e, XD_EFORMAT, "%s has no list model.merges", what);
    xd_status s = open_merges(b, xd_json_size(list), what, e);
    int       number = 0;
    for (const xd_json *i = xd_json_first(list); i && s == XD_OK; i = xd_json_next(i)) {
        const xd_json *first = xd_json_first(i);
        const char    *one = xd_json_text(i), *l = xd_json_text(first);
        const char    *r = first ? xd_json_text(xd_json_next(first)) : NULL;
        part           two[2];
        number++;
        if (l && r && *l && *r && xd_json_size(i) == 2) {
            two[0] = (part){ l, strlen(l) };
            two[1] = (part){ r, strlen(r) };
        } else if (!one || !split_merge(one, strlen(one), two)) {
            return not_two(what, "merge", number, one ? one : "", one ? strlen(one) : 0, e);
        }
        s = add_merge(b, two, number, number, what, e);
    }
    return s;
}

/* Reads one merge of model.merges. The reader `k` must be after the opening bracket of a pair, or
 * before a string. */
static xd_status read_pair(xd_bpe *b, xd_skim *k, xd_bytes_buf buf[2], int number, const char *what,
                           xd_err *e)
{
    xd_slice l, r;
    part     two[2];
    if (xd_skim_is(k, '[')) {
        if (!xd_skim_string(k, &buf[0], &l) || !xd_skim_is(k, ',') ||
            !xd_skim_string(k, &buf[1], &r) || !xd_skim_is(k, ']') || !l.len || !r.len)
            return not_two(what, "merge", number, "", 0, e);
        two[0] = (part){ l.p, l.len };
        two[1] = (part){ r.p, r.len };
    } else if (!xd_skim_string(k, &buf[0], &l) || !split_merge(l.p, l.len, two)) {
        return not_two(what, "merge", number, "", 0, e);
    }
    return add_merge(b, two, number, number, what, e);
}

static xd_status read_span(xd_bpe *b, xd_slice span, const char *what, xd_err *e)
{
    xd_skim      k = { span.p, span.len, 0 };
    xd_bytes_buf buf[2] = { { 0 }, { 0 } };
    size_t       quotes = 0;
    int          number = 0, pairs = xd_skim_is(&k, '[') && xd_skim_is(&k, '[');
    for (size_t i = 0; i < span.len; i++)
        quotes += span.p[i] == '"';
    quotes /= pairs ? 4 : 2;
    xd_status s = open_merges(b, quotes > XD_PIECES_MAX ? XD_PIECES_MAX + 1 : (int)quotes, what, e);
    k.at = 0;
    int more = s == XD_OK && xd_skim_is(&k, '[') && !xd_skim_is(&k, ']');
    for (; more && s == XD_OK; more = s == XD_OK && xd_skim_is(&k, ','))
        s = (size_t)number < quotes ? read_pair(b, &k, buf, ++number, what, e)
                                    : xd_skim_broken(&k, what, "the list of merges", e);
    if (s == XD_OK && number && !xd_skim_is(&k, ']'))
        s = xd_skim_broken(&k, what, "the list of merges", e);
    xd_bytes_free(&buf[0]);
    xd_bytes_free(&buf[1]);
    return s;
}

/* Derives the merges from the vocabulary: for each piece, every split into two other pieces becomes
 * a merge. The pieces of the vocabulary must be in the order of their ranks. */
static xd_status merges_of_pieces(xd_bpe *b, const char *what, xd_err *e)
{
    merge    *list = NULL;
    int       n = 0, cap = 0;
    xd_status s = XD_OK;
    for (int i = 0; i < b->v.n && s == XD_OK; i++) {
        const xd_piece_id *p = &b->v.p[i];
        const char        *text = b->v.text.p + p->at;
        for (size_t at = xd_utf8_len(text); at < p->len; at += xd_utf8_len(text + at)) {
            int32_t left = xd_pieces_find(&b->v, text, at);
            int32_t right = left < 0 ? -1 : xd_pieces_find(&b->v, text + at, p->len - at);
            if (right < 0)
                continue;
            if (n == cap) {
                cap = cap * 2 + 1024;
                merge *more = cap <= 4 * XD_PIECES_MAX ? realloc(list, (size_t)cap * sizeof *list)
                                                       : NULL;
                if (!more) {
                    s = xd_fail(e, XD_ENOMEM, "no memory for the merges of %s", what);
                    break;
                }
                list = more;
            }
            list[n] = (merge){ left, right, n, p->id };
            n++;
        }
    }
    if (s == XD_OK)
        s = open_merges(b, n, what, e);
    for (int i = 0; i < n && s == XD_OK; i++)
        b->m[find_merge(b, list[i].left, list[i].right)] = list[i];
    free(list);
    return s;
}

/* ---- opening -------------------------------------------------------------------------------- */

xd_status xd_bpe_open(xd_bpe **out, const xd_bpe_files *f, xd_err *e)
{
    xd_bpe *b = calloc(1, sizeof *b);
    *out = NULL;
    if (!b)
        return xd_fail(e, XD_ENOMEM, "no memory for a vocabulary");
    xd_status s = f->pieces    ? xd_pieces_list(&b->v, f->pieces, f->vocab_name, e)
                  : f->bytes.p ? xd_pieces_span(&b->v, f->bytes, f->vocab_name, e)
                               : xd_pieces_json(&b->v, f->vocab, 0, f->vocab_name, e);
    if (s == XD_OK && f->pieces)
        s = merges_of_pieces(b, f->vocab_name, e);
    else if (s == XD_OK && f->pairs.p)
        s = read_span(b, f->pairs, f->merges_name, e);
    else if (s == XD_OK)
        s = f->merges ? read_lines(b, f->merges, f->len, f->merges_name, e)
                      : read_list(b, f->list, f->merges_name, e);
    if (s == XD_OK) {
        find_bytes(b);
        b->unknown = -1;
        *out = b;
    } else {
        xd_bpe_close(b);
    }
    return s;
}

/* Sets the unknown piece. A vocabulary without an unknown piece must have a piece for every byte
 * that can occur in UTF-8. */
xd_status xd_bpe_unknown(xd_bpe *b, const char *s, const char *what, xd_err *e)
{
    b->unknown = xd_pieces_find(&b->v, s, strlen(s));
    for (int i = 0; i < 0xf5 && b->unknown < 0; i++)
        if (i != 0xc0 && i != 0xc1 && (b->byte[0][i] < 0 || b->byte[1][i] < 0))
            return xd_fail(e, XD_EFORMAT,
                           "%s has no piece for byte %d %s a word, nor the unk_token '%.80s'", what,
                           i, b->byte[0][i] < 0 ? "in" : "at the end of", s);
    return XD_OK;
}

void xd_bpe_close(xd_bpe *b)
{
    if (!b)
        return;
    xd_pieces_free(&b->v);
    free(b->m);
    free(b);
}

const xd_pieces *xd_bpe_pieces(const xd_bpe *b)
{
    return &b->v;
}

/* ---- one word ------------------------------------------------------------------------------- */

typedef struct symbol {
    int64_t prev, next;
    int32_t id;
    int     gone;
} symbol;
typedef struct pair {
    int64_t at;
    int32_t rank, id;
} pair;
typedef struct heap {
    pair   *p;
    int64_t n;
} heap;

static int merges_first(const pair *a, const pair *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push_pair(heap *h, pair p)
{
    int64_t i = h->n++;
    while (i > 0 && merges_first(&p, &h->p[(i - 1) / 2])) {
        h->p[i] = h->p[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    h->p[i] = p;
}

static pair pop_pair(heap *h)
{
    pair    top = h->p[0], last = h->p[--h->n];
    int64_t i = 0, k;
    while ((k = 2 * i + 1) < h->n) {
        k += k + 1 < h->n && merges_first(&h->p[k + 1], &h->p[k]);
        if (!merges_first(&h->p[k], &last))
            break;
        h->p[i] = h->p[k];
        i = k;
    }
    h->p[i] = last;
    return top;
}

/* If the pair of a symbol and its right neighbour has a rank, adds the pair to the heap. */
static void add_pair(const xd_bpe *b, heap *h, const symbol *s, int64_t at)
{
    const merge *m = &b->m[find_merge(b, s[at].id, s[s[at].next].id)];
    if (m->left >= 0)
        push_pair(h, (pair){ at, m->rank, m->id });
}

/* Merges pairs in the order of the heap. If the symbols of a pair have changed since the pair was
 * added, the pair is skipped, unless the new symbols merge to the same piece. Each merge adds two
 * pairs and removes one, so that the heap has at most 2n entries. */
static void merge_all(const xd_bpe *b, symbol *s, heap *h)
{
    while (h->n > 0) {
        pair    p = pop_pair(h);
        int64_t next = s[p.at].gone ? -1 : s[p.at].next;
        if (next < 0)
            continue;
        const merge *m = &b->m[find_merge(b, s[p.at].id, s[next].id)];
        if (m->left < 0 || m->id != p.id)
            continue;
        s[p.at].id = p.id;
        s[p.at].next = s[next].next;
        s[next].gone = 1;
        if (s[next].next >= 0)
            s[s[next].next].prev = p.at;
        if (s[p.at].prev >= 0)
            add_pair(b, h, s, s[p.at].prev);
        if (s[p.at].next >= 0)
            add_pair(b, h, s, p.at);
    }
}

enum { SMALL = 64 }; /* a word with more symbols needs an allocation */

void xd_bpe_merge(const xd_bpe *b, const int32_t *ids, size_t count, xd_ids *out)
{
    symbol  few[SMALL], *s = few;
    pair    small[2 * SMALL], *p = small;
    int64_t n = (int64_t)count;
    if (count > SMALL) {
        s = count < SIZE_MAX / 64 ? malloc(count * sizeof *s) : NULL;
        p = count < SIZE_MAX / 64 ? malloc(2 * count * sizeof *p) : NULL;
    }
    if (s && p) {
        heap h = { p, 0 };
        for (int64_t i = 0; i < n; i++)
            s[i] = (symbol){ i - 1, i + 1 < n ? i + 1 : -1, ids[i], 0 };
        for (int64_t i = 0; i + 1 < n; i++)
            add_pair(b, &h, s, i);
        merge_all(b, s, &h);
        for (int64_t i = n ? 0 : -1; i >= 0; i = s[i].next)
            xd_ids_add(out, s[i].id);
    } else {
        out->failed = 1;
    }
    if (count > SMALL) {
        free(s);
        free(p);
    }
}

void xd_bpe_word(const xd_bpe *b, const char *w, size_t len, xd_ids *out)
{
    int32_t few[SMALL] = { 0 }, *ids = len > SMALL ? malloc(len * sizeof *ids) : few;
    for (size_t i = 0; ids && i < len; i++) {
        int32_t id = b->byte[i == len - 1][(unsigned char)w[i]];
        ids[i] = id < 0 ? b->unknown : id;
    }
    if (ids)
        xd_bpe_merge(b, ids, len, out);
    else
        out->failed = 1;
    if (len > SMALL)
        free(ids);
}
