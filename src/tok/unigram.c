/* unigram.c - segments a word into the pieces with the best sum of scores (Kudo 2018), by dynamic
 * programming over the positions of the word.
 *
 * Scores are added in double precision, from the left. Of candidates with equal scores, the first
 * one is used, as in Hugging Face's tokenizers. A character without a piece costs ten more than the
 * worst piece. Adjacent characters without a piece become one unknown id. */
#include "tok/inside.h"

#include <stdlib.h>

/* Id of the unknown piece, which is always 2 in T5Tokenizer. */
enum { UNKNOWN = 2 };

typedef struct place { /* best segmentation of a word up to this position */
    double  score;
    int64_t from; /* start of the last piece; -1: none yet */
    int32_t id;
} place;

static void offer_score(place *p, double score, int64_t from, int32_t id)
{
    if (p->from < 0 || score > p->score)
        *p = (place){ score, from, id };
}

static void best_path(const xd_tok *t, const char *s, size_t len, place *best)
{
    for (size_t from = 0; from < len;) {
        size_t one = xd_utf8_len(s + from), to = from;
        int    single = 0;
        while (to < len && to - from < t->longest) {
            to += xd_utf8_len(s + to);
            size_t n = to - from;
            int    id = n <= t->longest && t->lens[n] ? xd_spm_find(t->spm, s + from, n) : -1;
            if (id < 0)
                continue;
            offer_score(best + to, t->v.p[id].score + best[from].score, (int64_t)from, id);
            single |= n == one;
        }
        if (!single)
            offer_score(best + from + one, t->unknown + best[from].score, (int64_t)from, UNKNOWN);
        from += one;
    }
}

/* Reverses the links between positions, so that pieces can be read from the left: for a piece that
 * begins at i, best[i].from becomes the piece's end, and best[i] gets the piece's id. */
static void reverse_path(place *best, size_t len)
{
    int64_t to = (int64_t)len, next = -1;
    int32_t id = -1;
    while (to >= 0) {
        int64_t from = best[to].from;
        int32_t mine = best[to].id;
        best[to].from = next;
        best[to].id = id;
        next = to;
        id = mine;
        to = to == 0 ? -1 : from;
    }
}

void xd_unigram(const xd_tok *t, const char *s, size_t len, xd_ids *out)
{
    place *best = malloc((len + 1) * sizeof *best);
    if (!best) {
        out->failed = 1;
        return;
    }
    for (size_t i = 0; i <= len; i++)
        best[i] = (place){ 0, i ? -1 : 0, -1 };
    best_path(t, s, len, best);
    reverse_path(best, len);
    for (int64_t at = 0; at < (int64_t)len;) {
        int64_t next = best[at].from, start = at;
        int32_t id = best[at].id;
        while (id == UNKNOWN && next < (int64_t)len && best[next].id == UNKNOWN)
            next = best[next].from;
        if (id == UNKNOWN) { /* a piece may consist of several unknown characters */
            int found = xd_spm_find(t->spm, s + start, (size_t)(next - start));
            id = found < 0 ? UNKNOWN : found;
        }
        xd_ids_add(out, id);
        at = next;
    }
    free(best);
}
