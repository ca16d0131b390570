/* window.c - implements local attention. An image token attends to all tokens that are not image
 * tokens, and to the image tokens near it in time, rows and columns. Tokens that are not image
 * tokens attend to all tokens.
 *
 * The method is based on sliding tiles (Zhang et al. 2025, arXiv:2502.04507): the image tokens are
 * split into tiles, and all queries of a tile attend to one box of keys around the tile. At the
 * edges of the image, boxes are shifted inwards, so that all boxes have the same size. The
 * attention of each tile is one kernel call, with the tile's queries in pieces and its keys in
 * segments. The attention of a tile needs no mask, so any attention kernel can compute it.
 *
 * A line window covers the tokens before and after each query in token order, and moves with the
 * query, as in xDiT. With a line window, the queries of a tile have a mask for the keys that only
 * some of the queries attend to.
 *
 * In the list of parallel methods, local attention comes last. The hook of local attention gets all
 * keys of this rank's heads, in the same token order as in a run on one rank, whichever parallel
 * methods come before it. The layout of tokens determines which queries the hook gets. A query's
 * keys depend only on the query's position, so results equal those of one rank. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/minmax.h"
#include "exec/op.h"
#include "parallel/rows.h"

extern const xd_method xd_method_window;

enum { NAXES = 3 };

/* Tiles are limited to most_tile tokens along each axis, or to MOST_LINE tokens in the case of a
 * line window. Large tiles are faster, because the keys of a box are packed once for each tile. */
static const int64_t most_tile[NAXES] = { 4, 10, 16 };
enum { MOST_LINE = 64 };

typedef struct window {
    xd_hooks       hooks;
    const xd_topo *topo;
    int64_t        size[NAXES]; /* box size per axis in tokens; 0: the complete axis */
    int            line;        /* 1: line window of size[2] / 2 tokens on each side */
    /* For a line window: the index, among the image tokens, of each query of the current tile. */
    int64_t        row[MOST_LINE];
    int            nrows;
    /* for each axis, grid is the number of image tokens, and most is the max number of tokens of a
     * tile */
    int64_t        grid[NAXES], most[NAXES];
    xd_kv         *seg;
    xd_qo         *part;
    /* segs: number of elements allocated for `seg`; parts: number of elements allocated for
     * `part`. */
    int            segs, parts;
    /* nseg: number of segments of the current tile; nparts: number of query parts of the current
     * tile. */
    int            nseg, nparts;
} window;

typedef struct box { xd_span at[NAXES]; } box; /* range of frames, rows, columns */

static int64_t box_size(const window *s, int axis)
{
    return s->size[axis] && s->size[axis] < s->grid[axis] ? s->size[axis] : s->grid[axis];
}

/* Returns the number of tiles along an axis, which is 1 if boxes span the complete axis. */
static int tiles_of(const window *s, int axis)
{
    int64_t size = box_size(s, axis), most = s->most[axis] < size ? s->most[axis] : size;
    if (s->line && axis == NAXES - 1)
        return (int)((s->grid[axis] + most - 1) / most);
    return size == s->grid[axis] ? 1 : (int)((s->grid[axis] + most - 1) / most);
}

/* Returns the union of the line windows of a tile's queries. */
static xd_span seen_on_line(const window *s, xd_span tile)
{
    const int64_t reach = s->size[NAXES - 1] / 2, start = xd_max(tile.start - reach, 0);
    return (xd_span){ start, xd_min(tile.start + tile.n + reach, s->grid[NAXES - 1]) - start };
}

/* Returns the range of keys along an axis to which the queries of a tile attend. */
static xd_span seen_by(const window *s, int axis, xd_span tile)
{
    const int64_t size = box_size(s, axis), twice = 2 * tile.start + tile.n - size;
    int64_t       start = twice > 0 ? twice / 2 : 0;
    if (s->line && axis == NAXES - 1)
        return seen_on_line(s, tile);
    return (xd_span){ start + size < s->grid[axis] ? start : s->grid[axis] - size, size };
}

/* Returns the next run of consecutive tokens of a box, or a run with n = 0 at the end. The caller
 * sets *row to 0 before the first call; the function advances *row over the rows of all frames of
 * the box. */
static xd_span next_run(const box *b, const int64_t *grid, int64_t *row)
{
    const xd_span *t = &b->at[0], *h = &b->at[1], *w = &b->at[2];
    xd_span        run = { 0, 0 };
    for (; *row < t->n * h->n; ++*row) {
        const int64_t frame = t->start + *row / h->n, y = h->start + *row % h->n;
        const int64_t start = (frame * grid[1] + y) * grid[2] + w->start;
        if (run.n && start != run.start + run.n)
            return run;
        run.start = run.n ? run.start : start;
        run.n += w->n;
    }
    return run;
}

/* ---- queries ------------------------------------------------------------------------------ */

/* Returns part u of the queries: the queries of Ulysses rank u, or all queries if they are in one
 * piece. */
static xd_qo part_of(const xd_attn_args *a, int u)
{
    return a->nparts ? a->part[u] : (xd_qo){ a->q, a->out };
}

static int part_count(const xd_attn_args *a)
{
    return a->nparts ? a->nparts : 1;
}

/* Return the number of rows of part u before its image tokens, and the number of rows after them,
 * which are tokens of audio. */
static int64_t rows_before(const xd_exec *x, const window *s, int u)
{
    const int sp = xd_topo_sp(s->topo, u, s->topo->at[XD_RING]);
    return xd_own_rows(x->lay, XD_ALL, sp) - xd_own(x->lay, XD_IMG, 0, sp).n -
           xd_own(x->lay, XD_AUDIO, 0, sp).n;
}

static int64_t rows_after(const xd_exec *x, const window *s, int u)
{
    return xd_own(x->lay, XD_AUDIO, 0, xd_topo_sp(s->topo, u, s->topo->at[XD_RING])).n;
}

static void add_rows(xd_exec *x, window *s, xd_qo part, int64_t row, int64_t n)
{
    if (n > 0 &&
        xd_check(x, s->nparts < s->parts, "window: more than %d pieces of queries", s->parts))
        s->part[s->nparts++] =
            (xd_qo){ xd_piece_of(part.q, row, n), xd_piece_of(part.out, row, n) };
}

/* Appends those image tokens of a run that are among this rank's queries. */
static void add_queries(xd_exec *x, window *s, const xd_attn_args *a, xd_span run)
{
    for (int u = 0; u < part_count(a); u++) {
        const xd_span own = xd_own(x->lay, XD_IMG, 0, xd_topo_sp(s->topo, u, s->topo->at[XD_RING]));
        const int64_t lo = run.start > own.start ? run.start : own.start,
                      end = run.start + run.n < own.start + own.n ? run.start + run.n
                                                                  : own.start + own.n;
        add_rows(x, s, part_of(a, u), rows_before(x, s, u) + lo - own.start, end - lo);
        for (int64_t i = lo; i < end && s->line; i++)
            s->row[s->nrows++] = i;
    }
}

/* ---- attention ---------------------------------------------------------------------------- */

/* Makes the mask of a tile's queries for a line window. The mask's columns are first the keys that
 * are not image tokens, then the image's keys. */
static xd_tensor mask_of(xd_exec *x, const window *s, int64_t heads, int64_t others, xd_span seen)
{
    const int64_t keys = others + seen.n, reach = s->size[NAXES - 1] / 2;
    xd_tensor     mask = xd_new_f32(x, s->nrows, keys);
    for (int i = 0; i < s->nrows && xd_ok(x) && !xd_counting(x); i++) {
        float *row = (float *)mask.p + i * keys;
        for (int64_t j = 0; j < keys; j++)
            row[j] = j < others || llabs(seen.start + j - others - s->row[i]) <= reach ? 0
                                                                                       : -INFINITY;
    }
    return (xd_tensor){
        .p = mask.p, .type = XD_F32, .nd = 3, .d = { heads, s->nrows, keys }, .s = { 0, keys, 1 }
    };
}

/* Computes attention of the gathered queries over the keys `kv`. */
static void attend(xd_exec *x, const xd_hooks *m, const xd_attn_args *a, const xd_kv *kv, int nkv,
                   xd_tensor mask)
{
    const window *s = m->priv;
    xd_attn_args  b = *a;
    b.bias = mask;
    b.part = s->part, b.nparts = s->nparts;
    b.kv = kv, b.nkv = nkv;
    b.q.d[1] = 0;
    for (int i = 0; i < s->nparts; i++)
        b.q.d[1] += s->part[i].q.d[1];
    b.out.d[1] = b.q.d[1];
    if (b.q.d[1])
        xd_next_attn(x, m, &b);
}

static void attend_tile(xd_exec *x, const xd_hooks *m, const xd_attn_args *a, const box *tile)
{
    window       *s = m->priv;
    const int64_t after = x->lay->len[XD_AUDIO], image = x->lay->len[XD_IMG];
    int64_t       before = -after, row = 0;
    box           seen;
    xd_span       run;
    for (int i = 0; i < NAXES; i++)
        seen.at[i] = seen_by(s, i, tile->at[i]);
    for (int i = 0; i < XD_NSTREAMS; i++)
        before += i == XD_IMG ? 0 : x->lay->len[i];
    s->nparts = s->nrows = 0;
    while ((run = next_run(tile, s->grid, &row)).n)
        add_queries(x, s, a, run);
    if (!s->nparts)
        return;
    s->nseg = xd_pick_keys(x, a, 0, before, s->seg, s->segs);
    s->nseg += xd_pick_keys(x, a, before + image, after, s->seg + s->nseg, s->segs - s->nseg);
    for (row = 0; (run = next_run(&seen, s->grid, &row)).n;)
        s->nseg +=
            xd_pick_keys(x, a, before + run.start, run.n, s->seg + s->nseg, s->segs - s->nseg);
    const size_t mark = xd_arena_mark(x->tmp);
    attend(x, m, a, s->seg, s->nseg,
           s->line ? mask_of(x, s, a->q.d[2], before + after, seen.at[NAXES - 1])
                   : (xd_tensor){ 0 });
    xd_arena_rewind(x->tmp, mark);
}

/* Returns 1 if both the queries and the keys of an attention call are all tokens of the layout. */
static int are_all_tokens(xd_exec *x, const window *s, const xd_attn_args *a)
{
    int64_t keys = 0, tokens = 0, rows = 0;
    for (int i = 0; i < a->nkv; i++)
        keys += a->kv[i].k.d[1];
    for (int i = 0; i < XD_NSTREAMS; i++)
        tokens += x->lay->len[i];
    for (int u = 0; u < part_count(a); u++)
        rows += xd_own_rows(x->lay, XD_ALL, xd_topo_sp(s->topo, u, s->topo->at[XD_RING]));
    return xd_check(x,
                    keys == tokens && rows == a->q.d[1] && x->lay->npatch == 1 && a->q.d[0] == 1 &&
                        !a->lse.p && !a->bias.p,
                    "attention_window: this model's attention is not over all tokens in order");
}

static void window_attn(xd_exec *x, const xd_hooks *m, xd_attn_args *a)
{
    window *s = m->priv;
    if (!x->lay->len[XD_IMG] || x->window_off || x->asking) {
        xd_next_attn(x, m, a);
        return;
    }
    if (!are_all_tokens(x, s, a))
        return;
    s->nparts = 0;
    for (int u = 0; u < part_count(a); u++) {
        const int64_t after = rows_after(x, s, u), rows = part_of(a, u).q.d[1];
        add_rows(x, s, part_of(a, u), 0, rows_before(x, s, u));
        add_rows(x, s, part_of(a, u), rows - after, after);
    }
    attend(x, m, a, a->kv, a->nkv, (xd_tensor){ 0 });
    const int n[NAXES] = { tiles_of(s, 0), tiles_of(s, 1), tiles_of(s, 2) };
    for (int i = 0; i < n[0] * n[1] * n[2]; i++) {
        const int at[NAXES] = { i / n[2] / n[1], i / n[2] % n[1], i % n[2] };
        box       tile;
        for (int k = 0; k < NAXES; k++)
            tile.at[k] = xd_cut((xd_span){ 0, s->grid[k] }, at[k], n[k]);
        attend_tile(x, m, a, &tile);
    }
}

/* ---- opening ------------------------------------------------------------------------------ */

static void close_window(xd_hooks *m)
{
    window *s = m->priv;
    free(s->seg), free(s->part), free(s);
}

/* Sets the size of the image and the max size of a tile along each axis. A line window treats the
 * image as one row that has all tokens. */
static void set_axes(window *s, const xd_method_args *a)
{
    const int line = s->line = a->window[0] < 0;
    for (int i = 0; i < NAXES; i++) {
        s->size[i] = line && i < NAXES - 1 ? 0 : a->window[i];
        s->grid[i] = !line ? a->lay->grid[i] : i < NAXES - 1 ? 1 : a->lay->len[XD_IMG];
        s->most[i] = line ? MOST_LINE : most_tile[i];
    }
}

static xd_status open_window(const xd_method_args *a, const xd_hooks *next, xd_hooks **out,
                             xd_err *e)
{
    *out = NULL;
    if (a->what != XD_FOR_DIT || !a->window || !(a->window[0] | a->window[1] | a->window[2]))
        return XD_OK;
    window *s = calloc(1, sizeof *s);
    if (!s)
        return xd_fail(e, XD_ENOMEM, "no memory for attention_window");
    s->hooks = (xd_hooks){ .attn = window_attn, .next = next, .priv = s };
    s->topo = a->topo;
    set_axes(s, a);
    /* the borders between the ranks' shards split runs of consecutive tokens, which needs more
     * segments and parts */
    const int cuts = XD_NSTREAMS * a->lay->nsp + 1;
    s->segs = (int)(box_size(s, 0) * box_size(s, 1)) + 2 * cuts;
    s->parts = (int)(s->grid[0] * s->grid[1]) + 2 * cuts;
    s->seg = calloc((size_t)s->segs, sizeof *s->seg);
    s->part = calloc((size_t)s->parts, sizeof *s->part);
    *out = &s->hooks;
    if (s->seg && s->part)
        return XD_OK;
    close_window(*out);
    *out = NULL;
    return xd_fail(e, XD_ENOMEM, "no memory for attention_window");
}

const xd_method xd_method_window = { "window", open_window, close_window };
