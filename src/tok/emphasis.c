/* emphasis.c - splits prompts into parts with weights, and tokenizes them in chunks */
#include "tok/emphasis.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "tok/inside.h"

enum { BACKTRACK = 20 }; /* max number of tokens that move to the next chunk at a comma */
static const double ROUND = 1.1, SQUARE = 1 / 1.1;

/* ---- parts ---------------------------------------------------------------------------------- */

/* A part of a text: bytes [at, at + n) of `text`, all with one weight. */
typedef struct part {
    size_t at, n;
    double weight;
    int    breaks; /* 1: the part is a BREAK, without text */
} part;

typedef struct parts {
    part        *v;
    int          n, room, failed;
    xd_bytes_buf text; /* the texts of the parts, without brackets and backslashes */
} parts;

static void add_part(parts *p, const char *s, size_t n, int breaks)
{
    if (p->n == p->room) {
        int   room = p->room ? 2 * p->room : 16;
        part *v = realloc(p->v, (size_t)room * sizeof *v);
        p->failed |= !v;
        if (!v)
            return;
        p->v = v, p->room = room;
    }
    p->v[p->n++] = (part){ p->text.len, n, 1, breaks };
    xd_bytes_add(&p->text, s, n);
}

static int is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80;
}

/* Adds a text without brackets. Each word BREAK in the text, with the white space around the word,
 * becomes a part. */
static void add_text(parts *p, const char *s, size_t n)
{
    static const char word[] = "BREAK";
    const size_t      len = sizeof word - 1;
    size_t            from = 0;
    for (size_t i = 0; i + len <= n; i++) {
        if (memcmp(s + i, word, len) != 0 || (i && is_word(s[i - 1])) ||
            (i + len < n && is_word(s[i + len])))
            continue;
        size_t end = i;
        while (end > from && isspace((unsigned char)s[end - 1]))
            end--;
        add_part(p, s + from, end - from, 0);
        add_part(p, "", 0, 1);
        for (from = i + len; from < n && isspace((unsigned char)s[from]);)
            from++;
        i = from > 0 ? from - 1 : 0;
    }
    add_part(p, s + from, n - from, 0);
}

/* Reads ":1.3)" at s. Returns the number of bytes, 0 if s is something else. */
static size_t read_weight(const char *s, double *weight)
{
    const char *at = s + 1;
    char       *end;
    if (*s != ':')
        return 0;
    at += strspn(at, " \t\n");
    size_t digits = strspn(at + strspn(at, "+-"), "0123456789.");
    *weight = strtod(at, &end);
    if (!digits || end != at + strspn(at, "+-") + digits)
        return 0;
    end += strspn(end, " \t\n");
    return *end == ')' ? (size_t)(end + 1 - s) : 0;
}

/* Multiplies the weights of the parts behind the last open bracket. The list `open` has, for each
 * open bracket of one kind, the index of the first part behind it. */
static void close_bracket(parts *p, xd_ids *open, double weight)
{
    for (int i = open->p[--open->n]; i < p->n; i++)
        p->v[i].weight *= weight;
}

/* Reads the character or the text without brackets at s. Returns the number of bytes. */
static size_t read_one(parts *p, const char *s, xd_ids *round, xd_ids *square)
{
    double weight;
    size_t n = round->n ? read_weight(s, &weight) : 0;
    if (*s == '\\') {
        n = s[1] && strchr("()[]\\", s[1]) ? 2 : 1;
        add_part(p, s + 1, n - 1, 0);
    } else if (*s == '(' || *s == '[') {
        xd_ids_add(*s == '(' ? round : square, p->n);
        n = 1;
    } else if (n) {
        close_bracket(p, round, weight);
    } else if ((*s == ')' && round->n) || (*s == ']' && square->n)) {
        close_bracket(p, *s == ')' ? round : square, *s == ')' ? ROUND : SQUARE);
        n = 1;
    } else {
        n = strcspn(s, "\\()[]:");
        n = n ? n : 1;
        add_text(p, s, n);
    }
    return n;
}

/* Joins neighbouring parts of one weight, because they are tokenized together. */
static void join_parts(parts *p)
{
    int n = 0;
    for (int i = 0; i < p->n; i++) {
        part *last = n ? &p->v[n - 1] : NULL;
        if (last && !last->breaks && !p->v[i].breaks && last->weight == p->v[i].weight)
            last->n += p->v[i].n;
        else
            p->v[n++] = p->v[i];
    }
    p->n = n;
}

static void read_parts(parts *p, const char *text)
{
    xd_ids round = { 0 }, square = { 0 };
    while (*text && !p->failed) {
        text += read_one(p, text, &round, &square);
        p->failed |= round.failed || square.failed;
    }
    while (round.n && !p->failed)
        close_bracket(p, &round, ROUND);
    while (square.n && !p->failed)
        close_bracket(p, &square, SQUARE);
    free(round.p);
    free(square.p);
    p->failed |= p->text.failed;
    if (!p->failed)
        join_parts(p);
}

/* ---- chunks --------------------------------------------------------------------------------- */

typedef struct filling {
    const xd_tok *t;
    int64_t       chunk, room; /* ids of a chunk, and of its text */
    int64_t       n, comma;    /* ids of the text so far; those up to the last comma; -1: none */
    int64_t       had;         /* ids of the complete chunks */
    int32_t       comma_id;
    xd_tok_chunks out;
    xd_err       *e;
    xd_status     s;
} filling;

/* Makes room for another chunk, whose ids are all padding. */
static void begin_chunk(filling *f)
{
    int64_t  n = f->had + f->chunk;
    int32_t *ids = realloc(f->out.ids, (size_t)n * sizeof *ids);
    if (ids)
        f->out.ids = ids;
    float *weights = realloc(f->out.weights, (size_t)n * sizeof *weights);
    if (weights)
        f->out.weights = weights;
    f->n = 0, f->comma = -1;
    if (!ids || !weights) {
        f->s = xd_fail(f->e, XD_ENOMEM, "no memory for %lld token ids", (long long)n);
        return;
    }
    int32_t pad = xd_tok_pad(f->t);
    for (int64_t i = f->had; i < n; i++)
        ids[i] = pad < 0 ? f->t->end : pad, weights[i] = 1;
    ids[f->had] = f->t->head.p[0];
}

static void end_chunk(filling *f)
{
    f->out.ids[f->had + 1 + f->n] = f->t->tail.p[0];
    f->had = f->out.n = f->had + f->chunk;
}

/* Ends a full chunk. Tokens after a comma near the end of the chunk move to the next chunk. */
static void turn_chunk(filling *f)
{
    int64_t moved = f->comma >= 0 && f->n - f->comma < BACKTRACK ? f->n - f->comma : 0;
    int32_t ids[BACKTRACK];
    float   weights[BACKTRACK];
    int64_t from = f->had + 1 + f->n - moved;
    int32_t pad = f->out.ids[f->had + f->chunk - 1];
    memcpy(ids, f->out.ids + from, (size_t)moved * sizeof *ids);
    memcpy(weights, f->out.weights + from, (size_t)moved * sizeof *weights);
    for (int64_t i = from; i < from + moved; i++)
        f->out.ids[i] = pad, f->out.weights[i] = 1;
    f->n -= moved;
    end_chunk(f);
    begin_chunk(f);
    if (f->s != XD_OK)
        return;
    memcpy(f->out.ids + f->had + 1, ids, (size_t)moved * sizeof *ids);
    memcpy(f->out.weights + f->had + 1, weights, (size_t)moved * sizeof *weights);
    f->n = moved;
}

static void add_id(filling *f, int32_t id, double weight)
{
    if (f->n == f->room && id == f->comma_id) /* this comma is in the next chunk, with no text */
        f->comma = -1;
    if (f->n == f->room)
        turn_chunk(f);
    if (f->s != XD_OK)
        return;
    f->out.ids[f->had + 1 + f->n] = id;
    f->out.weights[f->had + 1 + f->n++] = (float)weight;
    if (id == f->comma_id)
        f->comma = f->n;
}

static void add_ids(filling *f, const char *text, const part *p)
{
    int32_t *ids = NULL;
    int64_t  n = 0, whole;
    f->s = xd_tok_cut_plain(f->t, text + p->at, p->n, 0, 1, &ids, &n, &whole, f->e);
    for (int64_t i = 0; i < n && f->s == XD_OK; i++)
        add_id(f, ids[i], p->weight);
    free(ids);
}

static int32_t id_of_comma(const xd_tok *t)
{
    xd_err   e = { 0 };
    int32_t *ids = NULL, id = -1;
    int64_t  n = 0, whole;
    if (xd_tok_cut_plain(t, ",", 1, 0, 1, &ids, &n, &whole, &e) == XD_OK && n == 1)
        id = ids[0];
    free(ids);
    return id;
}

xd_status xd_tok_weighted(const xd_tok *t, const char *text, int64_t chunk, xd_tok_chunks *out,
                          xd_err *e)
{
    parts   p = { 0 };
    filling f = { .t = t, .chunk = chunk, .room = chunk - 2, .comma_id = id_of_comma(t), .e = e };
    *out = (xd_tok_chunks){ 0 };
    if (t->head.n != 1 || t->tail.n != 1 || f.room < 1)
        return xd_fail(e, XD_EFORMAT,
                       "prompt_weighting needs a tokenizer with an opening and a closing token");
    read_parts(&p, text);
    if (p.failed)
        f.s = xd_fail(e, XD_ENOMEM, "no memory for the parts of a prompt");
    if (f.s == XD_OK)
        begin_chunk(&f);
    for (int i = 0; i < p.n && f.s == XD_OK; i++) {
        if (!p.v[i].breaks) {
            add_ids(&f, (const char *)p.text.p, &p.v[i]);
            continue;
        }
        end_chunk(&f);
        begin_chunk(&f);
    }
    if (f.s == XD_OK && (f.n || !f.had))
        end_chunk(&f);
    free(p.v);
    free(p.text.p);
    if (f.s != XD_OK)
        xd_tok_chunks_free(&f.out);
    *out = f.out;
    return f.s;
}

xd_status xd_tok_chunks_extend(const xd_tok *t, int64_t chunk, int64_t n, xd_tok_chunks *c,
                               xd_err *e)
{
    filling f = { .t = t, .chunk = chunk, .room = chunk - 2, .out = *c, .had = c->n, .e = e };
    while (f.had < n && f.s == XD_OK) {
        begin_chunk(&f);
        if (f.s == XD_OK)
            end_chunk(&f);
    }
    *c = f.out;
    return f.s;
}

void xd_tok_chunks_free(xd_tok_chunks *c)
{
    free(c->ids);
    free(c->weights);
    *c = (xd_tok_chunks){ 0 };
}
