/* tile.c - decodes and encodes images in overlapping tiles, blended as in diffusers' autoencoders.
 *
 * A tile has all frames of a video. Tiles are computed row by row. First, the last rows of the tile
 * above are blended into a tile, then the last columns of the tile to its left; these two tiles
 * were blended before, unless tiles cover the image exactly (xd_vae_info.covers). Then the upper
 * left part of the tile is copied to the result. So only two kinds of bands must be kept: the lower
 * rows of all tiles in the row above, and the right columns of the previous tile.
 *
 * With several ranks each rank computes its own tiles first. Then rank 0 blends the tiles of all
 * ranks in the order that a single rank would use. A rank that sends a tile does not overwrite the
 * tile before rank 0 has received it. */
#include <stdlib.h>

#include "base/minmax.h"
#include "exec/op.h"
#include "vae/vae.h"

typedef struct tiling {
    xd_exec       *x;
    const xd_net  *n;
    void           (*run)(xd_exec *x, const xd_net *n, xd_tensor in, xd_tensor out);
    int64_t        H, W; /* size of the image in cells */
    /* Height and width, counted in cells: `tile` is the size of a tile, and `step` is the distance
     * from the upper left corner of a tile to that of the next tile. */
    int64_t        tile[2], step[2];
    int            covers;       /* 1: tiles are distributed as vae.h describes */
    int64_t        fi[2], fo[2]; /* rows and columns per cell of `in` (fi), and of `out` (fo) */
    int64_t        unit;         /* number of lines of `out` with the same blend weight */
    const xd_deal *deal;         /* which rank computes which tile; NULL: only one rank */
    xd_tensor      in, out;      /* [T,H,W,C]: input and output frames */
    xd_tensor      above;        /* lower rows of tiles: [tile columns x T, rows, tile width, C] */
    xd_tensor      left;         /* right columns of a tile: [T, tile height, columns, C] */
} tiling;

/* A tile: (i, j) is its row and column among the tiles; (y, x) is its position in the image, and
 * (h, w) its size, both in cells. */
typedef struct tile { int64_t i, j, y, x, h, w; } tile;

/* Returns a view of a rectangle of all frames [T,H,W,C]: h rows, beginning with row y, and w
 * columns, beginning with column x. */
static xd_tensor box_view(xd_tensor t, int64_t y, int64_t h, int64_t x, int64_t w)
{
    t.p = (char *)t.p + (y * t.s[1] + x * t.s[2]) * (int64_t)xd_dtype_size(t.type);
    t.d[1] = h, t.d[2] = w;
    return t;
}

/* Returns a view [T,n,C] of row k (axis 0) or column k (axis 1) of all frames. */
static xd_tensor line_view(xd_tensor t, int axis, int64_t k)
{
    xd_tensor r = t;
    r.p = (char *)t.p + k * t.s[1 + axis] * (int64_t)xd_dtype_size(t.type);
    r.nd = 3;
    r.d[1] = t.d[2 - axis], r.d[2] = t.d[3], r.d[3] = 1;
    r.s[1] = t.s[2 - axis], r.s[2] = t.s[3], r.s[3] = 0;
    return r;
}

/* Returns a view of the kept lower rows of the tile in tile column j of the row above. */
static xd_tensor bands_above(const tiling *g, int64_t j)
{
    return xd_rows(g->above, j * g->out.d[0], g->out.d[0]);
}

/* Returns the number of tiles along the rows (axis 0) or the columns (axis 1) of the image. */
static int64_t count_along(const tiling *g, int axis)
{
    int64_t extent = axis ? g->W : g->H, step = g->step[axis];
    if (g->covers)
        return 1 + xd_ceil_div(xd_max(extent - g->tile[axis], 0), step);
    return xd_ceil_div(extent, step);
}

/* Returns the first row or column of tile row or tile column i. If tiles cover the image exactly,
 * the cells by which the distances must be smaller than `step` are distributed over the distances,
 * from the first to the last one. */
static int64_t start_of(const tiling *g, int axis, int64_t i)
{
    int64_t n = count_along(g, axis) - 1, extent = axis ? g->W : g->H;
    int64_t more = n * g->step[axis] + g->tile[axis] - extent;
    if (!g->covers || !n)
        return i * g->step[axis];
    return i * g->step[axis] - i * (more / n) - xd_min(i, more % n);
}

static int64_t distance_after(const tiling *g, int axis, int64_t i)
{
    return start_of(g, axis, i + 1) - start_of(g, axis, i);
}

/* cols_of returns the number of tiles in a row of tiles; tiles_of returns the number of all
 * tiles. */
static int64_t cols_of(const tiling *g)
{
    return count_along(g, 1);
}

static int64_t tiles_of(const tiling *g)
{
    return count_along(g, 0) * cols_of(g);
}

/* Blends the last n lines of a into the first n lines of b: b = a (1 - k/n) + b k/n for line k. The
 * line number k in the weights 1 - k/n and k/n is rounded down to a multiple of g->unit. */
static void blend_lines(const tiling *g, xd_tensor a, xd_tensor b, int axis, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        double t = (double)(k / g->unit * g->unit) / (double)n;
        xd_axpby(g->x, line_view(b, axis, k), (float)(1 - t),
                 line_view(a, axis, a.d[1 + axis] - n + k), (float)t);
    }
}

/* Returns the number of lines that are kept from the tile above tile row i (axis 0), or from the
 * tile to the left of tile column i (axis 1); no more lines are kept than that tile has. */
static int64_t band_size(const tiling *g, int axis, int64_t i)
{
    int64_t before = start_of(g, axis, i - 1), extent = axis ? g->W : g->H;
    return xd_min(g->tile[axis] - distance_after(g, axis, i - 1), extent - before) * g->fo[axis];
}

static void blend_neighbours(const tiling *g, const tile *t, xd_tensor out)
{
    int64_t h = t->h * g->fo[0], w = t->w * g->fo[1];
    if (t->i > 0) {
        int64_t n = band_size(g, 0, t->i);
        blend_lines(g, box_view(bands_above(g, t->j), 0, n, 0, w), box_view(out, 0, h, 0, w), 0,
                    xd_min(n, h));
    }
    if (t->j > 0) {
        int64_t n = band_size(g, 1, t->j);
        blend_lines(g, box_view(g->left, 0, h, 0, n), box_view(out, 0, h, 0, w), 1, xd_min(n, w));
    }
}

/* Copies the lower rows and the right columns of a tile, which later tiles need, to g->above and
 * g->left. */
static void keep_bands(const tiling *g, const tile *t, xd_tensor out)
{
    int64_t h = t->h * g->fo[0], w = t->w * g->fo[1];
    if (t->i + 1 < count_along(g, 0)) {
        int64_t n = xd_min((g->tile[0] - distance_after(g, 0, t->i)) * g->fo[0], h);
        xd_copy_to(g->x, box_view(bands_above(g, t->j), 0, n, 0, w), box_view(out, h - n, n, 0, w));
    }
    if (t->j + 1 < cols_of(g)) {
        int64_t n = xd_min((g->tile[1] - distance_after(g, 1, t->j)) * g->fo[1], w);
        xd_copy_to(g->x, box_view(g->left, 0, h, 0, n), box_view(out, 0, h, w - n, n));
    }
}

/* Copies the upper left part of a tile to the image. */
static void copy_part(const tiling *g, const tile *t, xd_tensor out)
{
    int64_t h = t->i + 1 < count_along(g, 0) ? distance_after(g, 0, t->i) : t->h;
    int64_t w = t->j + 1 < cols_of(g) ? distance_after(g, 1, t->j) : t->w;
    h *= g->fo[0], w *= g->fo[1];
    xd_copy_to(g->x, box_view(g->out, t->y * g->fo[0], h, t->x * g->fo[1], w),
               box_view(out, 0, h, 0, w));
}

/* Writes a tile to the image: blends it with its neighbours, and keeps what its later neighbours
 * need, before or after it is blended. */
static void place_tile(const tiling *g, const tile *t, xd_tensor out)
{
    size_t    mark = xd_arena_mark(g->x->tmp);
    xd_tensor made = out;
    if (g->covers) {
        made = xd_new_as(g->x, XD_F32, 4, out.d);
        xd_copy_to(g->x, made, out);
    }
    blend_neighbours(g, t, out);
    keep_bands(g, t, made);
    copy_part(g, t, out);
    xd_arena_rewind(g->x->tmp, mark);
}

static tile tile_at(const tiling *g, int64_t k)
{
    int64_t cols = cols_of(g);
    tile    t = { k / cols, k % cols, start_of(g, 0, k / cols), start_of(g, 1, k % cols), 0, 0 };
    t.h = xd_min(g->tile[0], g->H - t.y);
    t.w = xd_min(g->tile[1], g->W - t.x);
    return t;
}

/* Writes the shape of a tile's output. */
static void result_of(const tiling *g, const tile *t, int64_t d[4])
{
    d[0] = g->out.d[0], d[1] = t->h * g->fo[0], d[2] = t->w * g->fo[1], d[3] = g->out.d[3];
}

static void compute_tile(const tiling *g, const tile *t, xd_tensor out)
{
    xd_exec  *x = g->x;
    size_t    mark = xd_arena_mark(x->tmp);
    int64_t   hi = t->h * g->fi[0], wi = t->w * g->fi[1], d[4] = { g->in.d[0], hi, wi, g->in.d[3] };
    xd_tensor in = xd_new_as(x, XD_F32, 4, d);
    xd_copy_to(x, box_view(in, 0, hi, 0, wi),
               box_view(g->in, t->y * g->fi[0], hi, t->x * g->fi[1], wi));
    g->run(x, g->n, in, out);
    xd_arena_rewind(x->tmp, mark);
}

static void open_bands(tiling *g)
{
    int64_t T = g->out.d[0], C = g->out.d[3], side[2], band[2];
    for (int i = 0; i < 2; i++) {
        /* The first distance is the smallest one. */
        int64_t step = count_along(g, i) > 1 ? distance_after(g, i, 0) : g->step[i];
        side[i] = xd_min(g->tile[i], i ? g->W : g->H) * g->fo[i];
        band[i] = (g->tile[i] - step) * g->fo[i];
    }
    g->above = xd_new_as(g->x, XD_F32, 4, (int64_t[]){ cols_of(g) * T, band[0], side[1], C });
    g->left = xd_new_as(g->x, XD_F32, 4, (int64_t[]){ T, side[0], band[1], C });
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
        if (k)
            xd_pause(x);
        xd_tensor out = xd_new_as(x, XD_F32, 4, d);
        compute_tile(g, &t, out);
        place_tile(g, &t, out);
        xd_arena_rewind(x->tmp, mark);
    }
}

/* ---- tiles of several ranks --------------------------------------------------------------- */

/* Returns a view of the next tile in `slab`, at element *at, and advances *at. The tiles in `slab`
 * are aligned to 64 bytes. */
static xd_tensor next_of(const tiling *g, xd_tensor slab, const tile *t, int64_t *at)
{
    int64_t d[4];
    result_of(g, t, d);
    xd_tensor v = xd_view((float *)slab.p + *at, XD_F32, 4, d);
    *at += (xd_count(v) + 15) / 16 * 16;
    return v;
}

/* Runs on rank 0, whose own tiles are in `slab`. Receives the tiles of the other ranks, and blends
 * all tiles in the order that a single rank would use. */
static void blend_tiles(tiling *g, xd_tensor slab)
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
            g->deal->receive(g->deal, x, out, g->deal->owner[k]);
        }
        place_tile(g, &t, out);
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
        compute_tile(g, &t, out);
        if (g->deal->rank)
            g->deal->send(g->deal, x, out);
    }
    if (g->deal->rank == 0)
        blend_tiles(g, slab);
    g->deal->wait(g->deal, x);
}

typedef struct weighed { int64_t area, k; } weighed;

static int larger_first(const void *a, const void *b)
{
    const weighed *p = a, *q = b;
    return p->area != q->area ? (p->area < q->area ? 1 : -1) : (p->k > q->k) - (p->k < q->k);
}

/* Sets the size and the distance of tiles for an image of h x w cells. Sizes and distances equal
 * those of diffusers if the overlap is an integer number of cells. If the overlap is not an integer
 * number of cells, the distance of tiles is rounded down to complete cells, so that the tiles still
 * cover the image. */
static void set_tiling(tiling *g, const xd_vae_info *v, int64_t h, int64_t w)
{
    g->H = h, g->W = w;
    g->covers = v->covers;
    for (int i = 0; i < 2; i++) {
        g->tile[i] = v->tile[i];
        g->step[i] = v->step[i] ? v->step[i] : (int64_t)((double)v->tile[i] * (1 - v->overlap[i]));
        if (g->step[i] < 1)
            g->step[i] = 1;
    }
}

xd_vae_info xd_vae_encoding(const xd_vae_info *v)
{
    xd_vae_info e = *v;
    for (int i = 0; i < 2; i++) {
        e.tile[i] *= v->patch ? v->patch : 1;
        e.step[i] *= v->patch ? v->patch : 1;
    }
    return e;
}

static xd_status check_pixels(const char *what, const char *axis, int64_t pixels, int cell,
                              xd_err *e)
{
    if (pixels % cell == 0)
        return XD_OK;
    return xd_fail(e, XD_EINVAL,
                   "vae_tile_%s_%s is %lld pixels, and must be a multiple of %d, the pixels of a "
                   "latent cell, such as %lld",
                   what, axis, (long long)pixels, cell, (long long)((pixels / cell + 1) * cell));
}

xd_status xd_vae_set_tiles(xd_vae_info *v, const int64_t size[2], const int64_t overlap[2],
                           xd_err *e)
{
    static const char *const axis[] = { "height", "width" };
    for (int i = 0; i < 2; i++) {
        int cell = v->cell[1 + i];
        if (check_pixels("size", axis[i], size[i], cell, e) != XD_OK ||
            (overlap[i] > 0 && check_pixels("overlap", axis[i], overlap[i], cell, e) != XD_OK))
            return XD_EINVAL;
        v->tile[i] = size[i] ? size[i] / cell : v->tile[i];
        if (overlap[i] >= v->tile[i] * cell)
            return xd_fail(e, XD_EINVAL,
                           "vae_tile_overlap_%s is %lld pixels, and must be less than the %s of a "
                           "tile, %lld pixels",
                           axis[i], (long long)overlap[i], axis[i], (long long)(v->tile[i] * cell));
        v->step[i] = overlap[i] < 0 ? v->step[i] : v->tile[i] - overlap[i] / cell;
    }
    return XD_OK;
}

int64_t xd_vae_tiles(const xd_vae_info *v, int64_t h, int64_t w)
{
    tiling g = { .x = NULL };
    set_tiling(&g, v, h, w);
    return h <= g.tile[0] && w <= g.tile[1] ? 1 : tiles_of(&g);
}

xd_status xd_vae_owners(const xd_vae_info *v, int64_t h, int64_t w, int ranks, int *owner,
                        xd_err *e)
{
    tiling   g = { .x = NULL };
    int64_t  n = xd_vae_tiles(v, h, w), *load = calloc((size_t)ranks, sizeof *load);
    weighed *t = malloc((size_t)n * sizeof *t);
    set_tiling(&g, v, h, w);
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
    xd_status s = t && load
                      ? XD_OK
                      : xd_fail(e, XD_ENOMEM, "no memory to distribute %lld tiles", (long long)n);
    free(t);
    free(load);
    return s;
}

/* Calls g->run for the complete image if the image is not larger than one tile, else for each
 * tile. */
static void run_tiled(xd_exec *x, const xd_vae_info *v, tiling *g, xd_tensor in, xd_tensor out,
                      xd_tensor lat)
{
    g->x = x;
    g->unit = g->unit ? g->unit : 1;
    set_tiling(g, v, lat.d[1], lat.d[2]);
    if (g->H <= g->tile[0] && g->W <= g->tile[1]) {
        if (!g->deal || g->deal->rank == g->deal->owner[0])
            g->run(x, g->n, in, out);
        return;
    }
    if (!xd_check(x,
                  in.nd == 4 && out.nd == 4 && in.d[0] > 0 && out.d[0] > 0 &&
                      in.d[1] == g->H * g->fi[0] && in.d[2] == g->W * g->fi[1] &&
                      out.d[1] == g->H * g->fo[0] && out.d[2] == g->W * g->fo[1],
                  "tiles: an input of %lld x %lld does not match an output of %lld x %lld",
                  (long long)in.d[2], (long long)in.d[1], (long long)out.d[2], (long long)out.d[1]))
        return;
    size_t mark = xd_arena_mark(x->tmp);
    g->in = in, g->out = out;
    if (g->deal)
        my_tiles(g);
    else
        all_tiles(g);
    xd_arena_rewind(x->tmp, mark);
}

void xd_vae_decode_tiled(xd_exec *x, const xd_vae *v, const xd_vae_info *info, const xd_net *n,
                         xd_tensor lat, xd_tensor rgb, const xd_deal *deal)
{
    tiling g = { .n = n,
                 .run = v->decode,
                 .deal = deal,
                 .fi = { 1, 1 },
                 .fo = { info->cell[1], info->cell[2] },
                 .unit = info->patch };
    run_tiled(x, info, &g, lat, rgb, lat);
}

void xd_vae_encode_tiled(xd_exec *x, const xd_vae *v, const xd_vae_info *info, const xd_net *n,
                         xd_tensor rgb, xd_tensor moments, const xd_deal *deal)
{
    xd_vae_info i = xd_vae_encoding(info);
    tiling      g = {
        .n = n, .run = v->encode, .deal = deal, .fi = { i.cell[1], i.cell[2] }, .fo = { 1, 1 }
    };
    run_tiled(x, &i, &g, rgb, moments, moments);
}
