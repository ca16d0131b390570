/* tile.c - decoding and encoding in overlapping tiles, blended as diffusers' AutoencoderKL does.
 *
 * Tiles run row by row. Each is blended into with the last rows of the tile above, then with the
 * last columns of the one to its left, both as they are after their own blending, and gives its
 * upper left part to the result. So only two bands are kept: the lower rows of every tile of the
 * row above and the right columns of the tile before.
 *
 * Several ranks compute their tiles first, and rank 0 blends all of them in the order of one rank;
 * so it keeps its own, and a rank that has sent one keeps it until it has arrived. */
#include <stdlib.h>

#include "exec/op.h"
#include "vae/vae.h"

typedef struct tiling {
    xd_exec      *x;
    const xd_net *n;
    void        (*run)(xd_exec *x, const xd_net *n, xd_tensor in, xd_tensor out);
    int64_t       H, W;         /* cells of the image                                         */
    int64_t       tile, step;   /* cells: side of a tile, distance of neighbours               */
    int64_t       fi[2], fo[2]; /* elements of a cell's side in `in` and `out`: h, w           */
    const xd_deal *deal;        /* whose tiles they are; NULL: mine                           */
    xd_tensor     in, out;      /* one frame [1,H,W,C] of each                                 */
    xd_tensor     above;        /* [columns of tiles, rows, W of a tile, C]                    */
    xd_tensor     left;         /* [1, H of a tile, columns, C]                                */
} tiling;

typedef struct tile { int64_t i, j, y, x, h, w; } tile;         /* indices; place, size in cells */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Part of an image [1,H,W,C] as [h,w,C]. */
static xd_tensor box(xd_tensor t, int64_t y, int64_t h, int64_t x, int64_t w)
{
    xd_tensor r = t;
    r.p = (char *)t.p + (y * t.s[1] + x * t.s[2]) * (int64_t)xd_dtype_size(t.type);
    r.nd = 3;
    r.d[0] = h, r.d[1] = w, r.d[2] = t.d[3], r.d[3] = 1;
    r.s[0] = t.s[1], r.s[1] = t.s[2], r.s[2] = t.s[3], r.s[3] = 0;
    return r;
}

/* Row (axis 0) or column (axis 1) k of a box, as [n,C]. */
static xd_tensor line(xd_tensor t, int axis, int64_t k)
{
    xd_tensor r = t;
    r.p = (char *)t.p + k * t.s[axis] * (int64_t)xd_dtype_size(t.type);
    r.nd = 2;
    r.d[0] = t.d[1 - axis], r.d[1] = t.d[2], r.d[2] = 1;
    r.s[0] = t.s[1 - axis], r.s[1] = t.s[2], r.s[2] = 0;
    return r;
}

/* b = a (1 - k/n) + b k/n for the first n lines of b and the last n of a. */
static void blend(xd_exec *x, xd_tensor a, xd_tensor b, int axis, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        double t = (double)k / (double)n;
        xd_axpby(x, line(b, axis, k), (float)(1 - t), line(a, axis, a.d[axis] - n + k), (float)t);
    }
}

/* Rows of the band that the tile above row `i`, or columns that the one left of it, has kept:
 * never more than that tile has. */
static int64_t band(const tiling *g, int64_t extent, int64_t i, int64_t f)
{
    return least(g->tile - g->step, extent - (i - 1) * g->step) * f;
}

static void blend_neighbours(const tiling *g, const tile *t, xd_tensor out)
{
    int64_t h = t->h * g->fo[0], w = t->w * g->fo[1];
    if (t->i > 0) {
        int64_t n = band(g, g->H, t->i, g->fo[0]);
        blend(g->x, box(xd_rows(g->above, t->j, 1), 0, n, 0, w), box(out, 0, h, 0, w), 0,
              least(n, h));
    }
    if (t->j > 0) {
        int64_t n = band(g, g->W, t->j, g->fo[1]);
        blend(g->x, box(g->left, 0, h, 0, n), box(out, 0, h, 0, w), 1, least(n, w));
    }
}

/* Keeps what the neighbours to come will need, gives the rest to the image. */
static void keep(const tiling *g, const tile *t, xd_tensor out)
{
    int64_t h = t->h * g->fo[0], w = t->w * g->fo[1];
    int64_t over = g->tile - g->step;
    int64_t n = least(over * g->fo[0], h), m = least(over * g->fo[1], w);
    int64_t mine_h = least(h, g->step * g->fo[0]), mine_w = least(w, g->step * g->fo[1]);
    if (t->y + g->step < g->H)
        xd_copy_to(g->x, box(xd_rows(g->above, t->j, 1), 0, n, 0, w), box(out, h - n, n, 0, w));
    if (t->x + g->step < g->W)
        xd_copy_to(g->x, box(g->left, 0, h, 0, m), box(out, 0, h, w - m, m));
    xd_copy_to(g->x, box(g->out, t->y * g->fo[0], mine_h, t->x * g->fo[1], mine_w),
               box(out, 0, mine_h, 0, mine_w));
}

static tile tile_at(const tiling *g, int64_t k)
{
    int64_t cols = (g->W + g->step - 1) / g->step;
    tile    t = { k / cols, k % cols, k / cols * g->step, k % cols * g->step, 0, 0 };
    t.h = least(g->tile, g->H - t.y);
    t.w = least(g->tile, g->W - t.x);
    return t;
}

static int64_t tiles_of(const tiling *g)
{
    return ((g->H + g->step - 1) / g->step) * ((g->W + g->step - 1) / g->step);
}

/* Extents of what becomes of a tile. */
static void result_of(const tiling *g, const tile *t, int64_t d[4])
{
    d[0] = 1, d[1] = t->h * g->fo[0], d[2] = t->w * g->fo[1], d[3] = g->out.d[3];
}

static void compute(const tiling *g, const tile *t, xd_tensor out)
{
    xd_exec  *x = g->x;
    size_t    mark = xd_arena_mark(x->tmp);
    int64_t   hi = t->h * g->fi[0], wi = t->w * g->fi[1], d[4] = { 1, hi, wi, g->in.d[3] };
    xd_tensor in = xd_new_as(x, XD_F32, 4, d);
    xd_copy_to(x, box(in, 0, hi, 0, wi), box(g->in, t->y * g->fi[0], hi, t->x * g->fi[1], wi));
    g->run(x, g->n, in, out);
    xd_arena_rewind(x->tmp, mark);
}

static void open_bands(tiling *g)
{
    int64_t cols = (g->W + g->step - 1) / g->step, over = g->tile - g->step, C = g->out.d[3];
    int64_t above[4] = { cols, over * g->fo[0], least(g->tile, g->W) * g->fo[1], C };
    int64_t left[4] = { 1, least(g->tile, g->H) * g->fo[0], over * g->fo[1], C };
    g->above = xd_new_as(g->x, XD_F32, 4, above);
    g->left = xd_new_as(g->x, XD_F32, 4, left);
}

static void all_tiles(tiling *g)
{
    xd_exec *x = g->x;
    open_bands(g);
    for (int64_t k = 0; k < tiles_of(g); k++) {
        size_t  mark = xd_arena_mark(x->tmp);
        tile    t = tile_at(g, k);
        int64_t d[4];
        result_of(g, &t, d);
        xd_tensor out = xd_new_as(x, XD_F32, 4, d);
        compute(g, &t, out);
        blend_neighbours(g, &t, out);
        keep(g, &t, out);
        xd_arena_rewind(x->tmp, mark);
    }
}

/* ---- tiles of several ranks --------------------------------------------------------------- */

/* The part of `slab` behind *at that holds a tile; the next one starts on a multiple of 64 bytes. */
static xd_tensor next_of(const tiling *g, xd_tensor slab, const tile *t, int64_t *at)
{
    int64_t d[4];
    result_of(g, t, d);
    xd_tensor v = xd_view((float *)slab.p + *at, XD_F32, 4, d);
    *at += (xd_count(v) + 15) / 16 * 16;
    return v;
}

/* Rank 0, which has its own in the slab: the tiles come together in the order of one rank. */
static void join(tiling *g, xd_tensor slab)
{
    xd_exec *x = g->x;
    int64_t  at = 0;
    open_bands(g);
    for (int64_t k = 0; k < tiles_of(g); k++) {
        size_t    mark = xd_arena_mark(x->tmp);
        tile      t = tile_at(g, k);
        int64_t   d[4];
        xd_tensor out;
        result_of(g, &t, d);
        if (g->deal->owner[k] == 0) {
            out = next_of(g, slab, &t, &at);
        } else {
            out = xd_new_as(x, XD_F32, 4, d);
            g->deal->take(g->deal, x, out, g->deal->owner[k]);
        }
        blend_neighbours(g, &t, out);
        keep(g, &t, out);
        xd_arena_rewind(x->tmp, mark);
    }
}

static void my_tiles(tiling *g)
{
    xd_exec *x = g->x;
    int64_t  total = 0, at = 0;
    for (int64_t k = 0; k < tiles_of(g); k++) {
        tile t = tile_at(g, k);
        if (g->deal->owner[k] == g->deal->rank)
            next_of(g, (xd_tensor){ .p = x->tmp->base }, &t, &total);
    }
    xd_tensor slab = xd_new_as(x, XD_F32, 1, &total);
    for (int64_t k = 0; k < tiles_of(g); k++) {
        tile t = tile_at(g, k);
        if (g->deal->owner[k] != g->deal->rank)
            continue;
        xd_tensor out = next_of(g, slab, &t, &at);
        compute(g, &t, out);
        if (g->deal->rank)
            g->deal->give(g->deal, x, out);
    }
    if (g->deal->rank == 0)
        join(g, slab);
    g->deal->done(g->deal, x);
}

static void one_frame(tiling *g, xd_tensor in, xd_tensor out)
{
    size_t mark = xd_arena_mark(g->x->tmp);
    g->in = in, g->out = out;
    if (g->deal)
        my_tiles(g);
    else
        all_tiles(g);
    xd_arena_rewind(g->x->tmp, mark);
}

typedef struct weighed { int64_t area, k; } weighed;

static int larger_first(const void *a, const void *b)
{
    const weighed *p = a, *q = b;
    return p->area != q->area ? (p->area < q->area ? 1 : -1) : (p->k > q->k) - (p->k < q->k);
}

static void measure(tiling *g, const xd_vae_info *v, int64_t h, int64_t w)
{
    g->H = h, g->W = w;
    g->tile = v->tile;
    g->step = (int64_t)((double)v->tile * (1 - v->overlap));
    if (g->step < 1)
        g->step = 1;
}

int64_t xd_vae_tiles(const xd_vae_info *v, int64_t h, int64_t w)
{
    tiling g = { .x = NULL };
    measure(&g, v, h, w);
    return h <= g.tile && w <= g.tile ? 1 : tiles_of(&g);
}

xd_status xd_vae_owners(const xd_vae_info *v, int64_t h, int64_t w, int ranks, int *owner,
                        xd_err *e)
{
    tiling   g = { .x = NULL };
    int64_t  n = xd_vae_tiles(v, h, w), *load = calloc((size_t)ranks, sizeof *load);
    weighed *t = malloc((size_t)n * sizeof *t);
    measure(&g, v, h, w);
    for (int64_t k = 0; t && k < n; k++)
        t[k] = (weighed){ tile_at(&g, k).h * tile_at(&g, k).w, k };
    if (t && load)
        qsort(t, (size_t)n, sizeof *t, larger_first);
    for (int64_t k = 0; t && load && k < n; k++) {
        int to = 0;
        for (int r = 1; r < ranks; r++)
            to = load[r] < load[to] ? r : to;
        owner[t[k].k] = to;
        load[to] += t[k].area;
    }
    xd_status s = t && load ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory to deal %lld tiles",
                                              (long long)n);
    free(t);
    free(load);
    return s;
}

/* diffusers' sizes where a tile is a multiple of four cells; where it is not, whole cells are
 * overlapped, so that the parts still add up to the image. */
static void tiled(xd_exec *x, const xd_vae_info *v, tiling *g, xd_tensor in, xd_tensor out,
                  xd_tensor lat)
{
    g->x = x;
    measure(g, v, lat.d[1], lat.d[2]);
    if (g->H <= g->tile && g->W <= g->tile) {
        g->run(x, g->n, in, out);
        return;
    }
    if (!xd_check(x, v->cell[0] == 1 && in.nd == 4 && out.nd == 4 && in.d[0] == out.d[0] &&
                  in.d[1] == g->H * g->fi[0] && in.d[2] == g->W * g->fi[1] &&
                  out.d[1] == g->H * g->fo[0] && out.d[2] == g->W * g->fo[1],
                  "tiles: an input of %lld x %lld does not go with an output of %lld x %lld",
                  (long long)in.d[2], (long long)in.d[1], (long long)out.d[2],
                  (long long)out.d[1]))
        return;
    for (int64_t t = 0; t < in.d[0]; t++)
        one_frame(g, xd_rows(in, t, 1), xd_rows(out, t, 1));
}

void xd_vae_decode_tiled(xd_exec *x, const xd_vae *v, const xd_net *n, xd_tensor lat,
                         xd_tensor rgb, const xd_deal *deal)
{
    xd_vae_info i;
    v->info(n->cfg, &i);
    tiling g = { .n = n, .run = v->decode, .deal = deal, .fi = { 1, 1 },
                 .fo = { i.cell[1], i.cell[2] } };
    tiled(x, &i, &g, lat, rgb, lat);
}

void xd_vae_encode_tiled(xd_exec *x, const xd_vae *v, const xd_net *n, xd_tensor rgb,
                         xd_tensor moments, const xd_deal *deal)
{
    xd_vae_info i;
    v->info(n->cfg, &i);
    tiling g = { .n = n, .run = v->encode, .deal = deal, .fi = { i.cell[1], i.cell[2] },
                 .fo = { 1, 1 } };
    tiled(x, &i, &g, rgb, moments, moments);
}
