/* tile.c - decoding and encoding in overlapping tiles, blended as diffusers' AutoencoderKL does.
 *
 * Tiles run row by row. Each is blended into with the last rows of the tile above, then with the
 * last columns of the one to its left, both as they are after their own blending, and gives its
 * upper left part to the result. So only two bands are kept: the lower rows of every tile of the
 * row above and the right columns of the tile before. */
#include "exec/op.h"
#include "vae/vae.h"

typedef struct tiling {
    xd_exec      *x;
    const xd_net *n;
    void        (*run)(xd_exec *x, const xd_net *n, xd_tensor in, xd_tensor out);
    int64_t       H, W;         /* cells of the image                                         */
    int64_t       tile, step;   /* cells: side of a tile, distance of neighbours               */
    int64_t       fi[2], fo[2]; /* elements of a cell's side in `in` and `out`: h, w           */
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

static void one_tile(const tiling *g, const tile *t)
{
    xd_exec  *x = g->x;
    size_t    mark = xd_arena_mark(x->tmp);
    int64_t   hi = t->h * g->fi[0], wi = t->w * g->fi[1];
    int64_t   din[4] = { 1, hi, wi, g->in.d[3] };
    int64_t   dout[4] = { 1, t->h * g->fo[0], t->w * g->fo[1], g->out.d[3] };
    xd_tensor in = xd_new_as(x, XD_F32, 4, din), out = xd_new_as(x, XD_F32, 4, dout);
    xd_copy_to(x, box(in, 0, hi, 0, wi), box(g->in, t->y * g->fi[0], hi, t->x * g->fi[1], wi));
    g->run(x, g->n, in, out);
    blend_neighbours(g, t, out);
    keep(g, t, out);
    xd_arena_rewind(x->tmp, mark);
}

static void one_frame(tiling *g, xd_tensor in, xd_tensor out)
{
    size_t  mark = xd_arena_mark(g->x->tmp);
    int64_t rows = (g->H + g->step - 1) / g->step, cols = (g->W + g->step - 1) / g->step;
    int64_t over = g->tile - g->step, C = out.d[3];
    int64_t above[4] = { cols, over * g->fo[0], least(g->tile, g->W) * g->fo[1], C };
    int64_t left[4] = { 1, least(g->tile, g->H) * g->fo[0], over * g->fo[1], C };
    g->in = in, g->out = out;
    g->above = xd_new_as(g->x, XD_F32, 4, above);
    g->left = xd_new_as(g->x, XD_F32, 4, left);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            tile t = { i, j, i * g->step, j * g->step, 0, 0 };
            t.h = least(g->tile, g->H - t.y);
            t.w = least(g->tile, g->W - t.x);
            one_tile(g, &t);
        }
    xd_arena_rewind(g->x->tmp, mark);
}

/* diffusers' sizes where a tile is a multiple of four cells; where it is not, whole cells are
 * overlapped, so that the parts still add up to the image. */
static void tiled(xd_exec *x, const xd_vae_info *v, tiling *g, xd_tensor in, xd_tensor out,
                  xd_tensor lat)
{
    g->x = x;
    g->H = lat.d[1], g->W = lat.d[2];
    g->tile = v->tile;
    g->step = (int64_t)((double)v->tile * (1 - v->overlap));
    if (g->step < 1)
        g->step = 1;
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
                         xd_tensor rgb)
{
    xd_vae_info i;
    v->info(n->cfg, &i);
    tiling g = { .n = n, .run = v->decode, .fi = { 1, 1 }, .fo = { i.cell[1], i.cell[2] } };
    tiled(x, &i, &g, lat, rgb, lat);
}

void xd_vae_encode_tiled(xd_exec *x, const xd_vae *v, const xd_net *n, xd_tensor rgb,
                         xd_tensor moments)
{
    xd_vae_info i;
    v->info(n->cfg, &i);
    tiling g = { .n = n, .run = v->encode, .fi = { i.cell[1], i.cell[2] }, .fo = { 1, 1 } };
    tiled(x, &i, &g, rgb, moments, moments);
}
