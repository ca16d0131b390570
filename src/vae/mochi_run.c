/* mochi_run.c - decodes latents to videos with AutoencoderKLMochi.
 *
 * The decoder consists of residual blocks, whose group norms are over single frames, and of linear
 * layers that turn the channels of a position into several frames, rows and columns. Convolutions
 * read the current and the two earlier frames. Frames, rows and columns beyond the edges are copies
 * of those at the edges. The frames before the last frame of the first latent frame are dropped.
 *
 * Latent frames are decoded one after the other. In the arena, the frames that convolutions keep
 * for the next latent frame come first. The current feature map `h` follows them, as the first
 * memory of a latent frame. Besides h, only one other map and a few padded frames exist at the same
 * time. */
#include "base/minmax.h"
#include "exec/op.h"
#include "vae/maps.h"
#include "vae/mochi.h"
#include "vae/scale_rows.h"

enum { MAX_CACHES = 2 * XD_MOCHI_STAGES * XD_MOCHI_RES };

static const float eps = 1e-5f;

/* ---- convolutions ------------------------------------------------------------------------- */

typedef struct run {
    xd_exec             *x;
    const xd_mochi_cfg  *c;
    const xd_mochi_glob *g;
    size_t               base; /* position of the map h in the arena (a mark) */
    xd_tensor            h;    /* [T,H,W,C] at `base`: the current map */
    /* For each convolution, the padded frames that it keeps: [XD_PAST,H + 2,W + 2,C]. */
    xd_tensor            cache[MAX_CACHES];
    int ncache; /* number of convolutions in `cache`; 0 if there is one latent frame */
    int at;     /* index in `cache` of the convolution that runs next */
    int first;  /* 1: first latent frame, so no frames are kept yet */
} run;

static const xd_tensor none;

/* For all convolutions, in execution order, allocates the frames that the convolution keeps. */
static void open_caches(run *r, int64_t H, int64_t W)
{
    for (int s = 0; s <= xd_mochi_last(r->c); s++) {
        for (int i = 0; i < 2 * xd_mochi_layers(r->c, s); i++) {
            const xd_cnv *w = &r->g->stage[s].res[i / 2].conv[i % 2];
            r->cache[r->ncache++] = xd_map_as(r->x, w->w.type, XD_PAST, H + 2, W + 2, w->w.in);
        }
        if (xd_mochi_is_up(r->c, s))
            H *= xd_mochi_growth(r->c, s, &r->c->sides),
                W *= xd_mochi_growth(r->c, s, &r->c->sides);
    }
}

/* Returns a view of some rows and columns of each frame. */
static xd_tensor part_of(xd_tensor t, int64_t row, int64_t rows, int64_t col, int64_t cols)
{
    if (t.p)
        t.p = (char *)t.p + (row * t.s[1] + col * t.s[2]) * (int64_t)xd_dtype_size(t.type);
    t.d[1] = rows, t.d[2] = cols;
    return t;
}

/* Writes frames `in` [n,H,W,C] to `to` [n,H + 2,W + 2,C]. Rows beyond this rank's rows come from
 * other ranks; rows and columns beyond the image's edges are copies of those at the edges. */
static void pad(xd_exec *x, xd_tensor to, xd_tensor in)
{
    int64_t H = in.d[1], W = in.d[2];
    size_t  mark = xd_arena_mark(x->tmp);
    xd_halo beside = xd_halo_of(x, in, 1, 1);
    if (H) {
        xd_copy_to(x, part_of(to, 1, H, 1, W), in);
        xd_copy_to(x, part_of(to, 0, 1, 1, W),
                   beside.above.d[1] ? beside.above : part_of(in, 0, 1, 0, W));
        xd_copy_to(x, part_of(to, H + 1, 1, 1, W),
                   beside.below.d[1] ? beside.below : part_of(in, H - 1, 1, 0, W));
        xd_copy_to(x, part_of(to, 0, H + 2, 0, 1), part_of(to, 0, H + 2, 1, 1));
        xd_copy_to(x, part_of(to, 0, H + 2, W + 1, 1), part_of(to, 0, H + 2, W, 1));
    }
    xd_arena_rewind(x->tmp, mark);
}

/* Writes silu(norm(in)) to `to`. Each frame has its own statistics. */
static void norm_frames(xd_exec *x, xd_tensor to, xd_tensor in, const xd_mochi_res *w, int k)
{
    for (int64_t t = 0; t < in.d[0]; t++) {
        size_t    mark = xd_arena_mark(x->tmp);
        xd_tensor one = xd_rows(in, t, 1);
        xd_gsum   sum = xd_group_sums(x, one, XD_MOCHI_GROUPS);
        xd_group_apply_into(x, &sum,
                            &(xd_gnorm){ .out = xd_rows(to, t, 1),
                                         .in = one,
                                         .gain = w->gain[k],
                                         .bias = w->bias[k],
                                         .eps = eps,
                                         .silu = 1 });
        xd_arena_rewind(x->tmp, mark);
    }
}

/* Computes out = conv(silu(norm(in))) + plus, where plus may be the tensor `out`. In place of the
 * frames before the first one, the convolution reads copies of the first frame. */
static void convolve(run *r, xd_tensor out, xd_tensor in, const xd_mochi_res *w, int k,
                     xd_tensor plus)
{
    xd_exec  *x = r->x;
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor cache = r->ncache ? r->cache[r->at++] : none;
    int64_t   T = in.d[0], H = in.d[1], W = in.d[2], C = in.d[3], most = xd_map_frames(x, in);
    xd_tensor buf = xd_map_as(x, w->conv[k].w.type, XD_PAST + most, H + 2, W + 2, C);
    xd_tensor normed = xd_map_as(x, w->conv[k].w.type, most, H, W, C);
    for (int64_t t = 0; t < T; t += most) {
        int64_t n = xd_min(most, T - t);
        norm_frames(x, xd_rows(normed, 0, n), xd_rows(in, t, n), w, k);
        pad(x, xd_rows(buf, XD_PAST, n), xd_rows(normed, 0, n));
        for (int i = 0; !t && r->first && i < XD_PAST; i++)
            xd_copy_to(x, xd_rows(buf, i, 1), xd_rows(buf, XD_PAST, 1));
        if (!t && !r->first)
            xd_map_keep(x, buf, cache, XD_PAST);
        xd_conv_rows_into(x, xd_rows(out, t, n), xd_rows(buf, 0, XD_PAST + n), &w->conv[k],
                          &(xd_conv_options){ .residual = plus.p ? xd_rows(plus, t, n) : none });
        if (t + n < T || r->ncache)
            xd_map_keep(x, t + n < T ? buf : cache, xd_rows(buf, n, XD_PAST), XD_PAST);
    }
    xd_arena_rewind(x->tmp, mark);
}

/* ---- stages ------------------------------------------------------------------------------- */

/* Runs a residual block: h += conv2(silu(norm2(conv1(silu(norm1(h)))))) */
static void run_residual(run *r, const xd_mochi_res *w)
{
    const int64_t *d = r->h.d;
    size_t         mark = xd_arena_mark(r->x->tmp);
    xd_tensor      a = xd_map(r->x, d[0], d[1], d[2], d[3]);
    convolve(r, a, r->h, w, 0, none);
    convolve(r, r->h, a, w, 1, r->h);
    xd_arena_rewind(r->x->tmp, mark);
}

/* Enlarges the map h. The frames are computed from the last to the first, because the new map
 * overlaps the old map in memory; the frame that is read is copied first. */
static void enlarge(run *r, const xd_lin *w, int64_t ft, int64_t f, int64_t C)
{
    xd_exec  *x = r->x;
    xd_tensor old = r->h;
    int64_t   T = old.d[0], H = old.d[1], W = old.d[2];
    /* The arena must have room for the larger of the two maps. */
    r->h = xd_map_at(x, r->base, T * ft, H * f, W * f, C);
    if (xd_count(old) > xd_count(r->h))
        xd_map_at(x, r->base, T, H, W, old.d[3]);
    xd_tensor y = xd_map(x, 1, H, W, w->w.out);
    for (int64_t i = 0; i < T; i++) {
        int64_t t = xd_count(old) > xd_count(r->h) ? i : T - 1 - i;
        xd_linear_into(x, xd_map_rows(y), xd_map_rows(xd_rows(old, t, 1)), w);
        xd_map_unpack(x, xd_rows(r->h, t * ft, ft), y, f, ft, 0);
    }
    r->h = xd_map_at(x, r->base, T * ft, H * f, W * f, C);
}

static void run_stage(run *r, int s)
{
    const xd_mochi_stage *w = &r->g->stage[s];
    for (int i = 0; i < xd_mochi_layers(r->c, s); i++)
        run_residual(r, &w->res[i]);
    if (xd_mochi_is_up(r->c, s))
        enlarge(r, &w->proj, xd_mochi_growth(r->c, s, &r->c->frames),
                xd_mochi_growth(r->c, s, &r->c->sides), xd_mochi_width(r->c, s + 1));
}

/* Decodes one latent frame z [1,h,w,C]. Writes only the last frames, as many as rgb has. */
static void decode_frame(run *r, xd_tensor z, xd_tensor rgb)
{
    xd_exec *x = r->x;
    size_t   mark = xd_arena_mark(x->tmp);
    r->base = mark;
    r->at = 0;
    r->h = xd_map_at(x, r->base, 1, z.d[1], z.d[2], xd_mochi_width(r->c, 0));
    xd_linear_into(x, xd_map_rows(r->h), xd_map_rows(z), &r->g->in);
    for (int s = 0; s <= xd_mochi_last(r->c); s++)
        run_stage(r, s);
    xd_tensor h = xd_map_rows(xd_rows(r->h, r->h.d[0] - rgb.d[0], rgb.d[0]));
    xd_activate(x, h, XD_SILU);
    xd_linear_into(x, xd_map_rows(rgb), h, &r->g->out);
    xd_arena_rewind(x->tmp, mark);
}

/* Decodes latents that were normalized, lat = (z - mean) scaling / std, with the mean and std of
 * each channel. The decoder reads z. */
void xd_mochi_decode(xd_exec *x, const xd_net *n, xd_tensor lat, xd_tensor rgb)
{
    const xd_mochi_cfg *c = n->cfg;
    int64_t             C = c->latent_channels, T = lat.d[0], done = 0;
    float               gain[XD_FIELD_LIST], bias[XD_FIELD_LIST];
    size_t              mark = xd_arena_mark(x->tmp);
    run                 r = { .x = x, .c = c, .g = n->glob, .first = 1 };
    xd_vae_info         v;
    xd_mochi_info(c, &v);
    if (!xd_map_video_fits(x, rgb, lat, v.cell[1], C, T) ||
        !xd_map_frames_fit(x, rgb.d[0], xd_vae_frames(&v, T)))
        return;
    for (int64_t i = 0; i < C; i++)
        gain[i] = (float)(c->std.v[i] / c->scaling), bias[i] = (float)c->mean.v[i];
    xd_tensor z = xd_scale_rows(x, xd_map_rows(lat), gain, bias);
    z = xd_reshape(z, 4, lat.d);
    if (T > 1)
        open_caches(&r, lat.d[1], lat.d[2]);
    for (int64_t t = 0, k; t < T; t++, done += k, r.first = 0) {
        k = t ? v.cell[0] : 1;
        if (t)
            xd_pause(x);
        decode_frame(&r, xd_rows(z, t, 1), xd_rows(rgb, done, k));
    }
    xd_arena_rewind(x->tmp, mark);
}
