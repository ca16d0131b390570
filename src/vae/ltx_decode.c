/* ltx_decode.c - decodes latents to videos with AutoencoderKLLTXVideo and AutoencoderKLLTX2Video.
 *
 * Versions from 0.9.1 on modulate the decoder's norms by a timestep, and may add noise that is
 * equal for all frames and, except for a factor, for all channels.
 *
 * The layers are a list of stages. Latent frames pass the stages one after the other, and each
 * stage keeps the frames that it needs for the next latent frame, so memory does not grow with the
 * number of frames. Where convolutions read the next frame, a stage computes its last frames only
 * after the last latent frame: the stages are then ended one after the other, and what a stage
 * still computes passes the later stages. A single latent frame passes all stages at once.
 *
 * In the arena, the frames that stages keep come first. The current feature map `h` follows them,
 * as the first memory of a pass. */
#include <stdlib.h>

#include "base/minmax.h"
#include "base/rng.h"
#include "vae/ltx_layers.h"
#include "vae/maps.h"
#include "vae/scale_rows.h"

enum { MAX_STAGES = 2 + XD_LTX_RES * (XD_LTX_LEVELS + 1) + 2 * XD_LTX_LEVELS };

static const xd_tensor none;

typedef struct stage {
    /* The layer: a residual block, an upsampling convolution, or the first or the last
     * convolution. */
    const xd_ltx_res *res;
    const xd_lin     *time;
    const xd_cnv     *conv;
    const int        *by;       /* factors of frames, rows and columns of upsampling, or NULL */
    int               residual; /* 1: upsampling has a shortcut */
    int               begun;    /* 1: upsampling has computed its first frame */
    int64_t           H, W;     /* rows and columns of the stage's input */
    xd_ltx_state      s;
} stage;

typedef struct decoder {
    xd_ltx_run r;
    stage     *stage; /* [n] */
    int        n;
    xd_tensor  rgb;
    int64_t    done; /* number of frames in rgb */
} decoder;

/* ---- stages --------------------------------------------------------------------------------- */

/* Returns a new stage, whose input has as many rows and columns as the result of the last one. */
static stage *add_stage(decoder *d, const xd_cnv *conv)
{
    stage *s = &d->stage[d->n], *old = d->n ? s - 1 : NULL;
    *s = (stage){ .conv = conv, .s = { .rows = 1 } };
    if (old) {
        int64_t up = old->by ? old->by[1] : 1, right = old->by ? old->by[2] : 1;
        s->H = old->H * up, s->W = old->W * right;
        s->s.rows = old->s.rows * up;
    }
    d->n++;
    return s;
}

static void add_blocks(decoder *d, const xd_ltx_res *w, int64_t n, const xd_lin *time,
                       uint64_t *noise)
{
    for (int64_t i = 0; i < n; i++) {
        stage *s = add_stage(d, NULL);
        s->res = &w[i], s->time = time;
        s->s.noise = *noise;
        for (int k = 0; k < 2; k++)
            *noise = w[i].noise[k].p ? xd_hash_mix(*noise, 1) : *noise;
    }
}

/* Lists the stages for latents of H x W cells. */
static void list_stages(decoder *d, int64_t H, int64_t W, uint64_t noise)
{
    const xd_ltx_cfg  *c = d->r.c;
    const xd_ltx_half *w = d->r.w;
    int                m = c->levels[1];
    stage             *s = add_stage(d, &w->in);
    s->H = H, s->W = W;
    add_blocks(d, w->mid.res, c->dec_layers.v[m], w->mid.time, &noise);
    for (int l = 0; l < m; l++) {
        const xd_ltx_level *level = &w->level[l];
        int                 at = m - 1 - l;
        if (level->side.conv[0].w.out)
            add_blocks(d, &level->side, 1, NULL, &noise);
        if (c->dec_scales.v[at]) {
            s = add_stage(d, &level->resample);
            s->by = c->up[l], s->residual = (int)c->residual.v[at];
        }
        add_blocks(d, level->res, c->dec_layers.v[at], level->time, &noise);
    }
    add_stage(d, &w->out);
}

/* Allocates what stages keep between passes. */
static void open_stages(decoder *d)
{
    xd_exec *x = d->r.x;
    for (int i = 0; i < d->n; i++) {
        stage        *s = &d->stage[i];
        const xd_cnv *w = s->conv ? s->conv : &s->res->conv[0];
        int           late = d->r.past < XD_LTX_AROUND && (s->res || s->residual);
        s->s.piecewise = 1;
        s->s.kept[0].t = xd_map_as(x, w->w.type, XD_LTX_AROUND, s->H, s->W, w->w.in);
        if (s->res)
            s->s.kept[1].t =
                xd_map_as(x, s->res->conv[1].w.type, XD_LTX_AROUND, s->H, s->W, w->w.out);
        if (late)
            s->s.late =
                xd_map(x, s->res ? XD_LTX_AROUND : 1, s->H, s->W, s->res ? w->w.out : w->w.in);
    }
}

static xd_ltx_conv conv_of(stage *s, xd_tensor in)
{
    return (xd_ltx_conv){
        .in = in, .w = s->conv, .kept = s->s.piecewise ? s->s.kept : NULL, .last = s->s.last
    };
}

/* ---- layers --------------------------------------------------------------------------------- */

static void run_first(decoder *d, stage *s, xd_tensor z)
{
    xd_ltx_run *r = &d->r;
    xd_ltx_conv c = conv_of(s, z);
    r->h = xd_map_at(r->x, r->base, xd_ltx_conv_results(r, &c), s->H, s->W, s->conv->w.out);
    xd_ltx_convolve(r, r->h, &c, none);
}

/* Adds to a frame of the enlarged map the channels of the old map, of which by[0] by[1] by[2]
 * become one position each; the channels are repeated until there are as many as in the new map.
 * `frame` is one of the by[0] frames that the old frame becomes. */
static void add_old(xd_ltx_run *r, xd_tensor to, xd_tensor old, int64_t frame, const int *by)
{
    xd_exec  *x = r->x;
    size_t    mark = xd_arena_mark(x->tmp);
    int64_t   C = to.d[3], plane = by[1] * by[2], k = old.d[3] / (by[0] * plane);
    xd_tensor all = xd_map(x, 1, to.d[1], to.d[2], C);
    for (int64_t i = 0; i < C; i += k) {
        xd_tensor part = all;
        if (part.p)
            part.p = (char *)part.p + i * (int64_t)xd_dtype_size(part.type);
        part.d[3] = k;
        xd_copy_to(x, xd_map_spread(part, by[1], by[2]),
                   xd_map_grouped(old, k, by[0] * plane, frame * plane, by[1], by[2]));
    }
    xd_add(x, xd_map_rows(to), xd_map_rows(all));
    xd_arena_rewind(x->tmp, mark);
}

/* Writes the frames of the convolution's result y to the enlarged map, beginning with frame `at` of
 * it, with the shortcut from frames `old`. Frames before the map's first one are dropped. */
static void write_enlarged(xd_ltx_run *r, const stage *s, xd_tensor y, xd_tensor old, int64_t at)
{
    const int *by = s->by;
    int64_t    f = by[0], plane = by[1] * by[2], C = r->h.d[3];
    for (int64_t i = 0; i < f * y.d[0]; i++) {
        if (at + i < 0)
            continue;
        xd_tensor to = xd_rows(r->h, at + i, 1);
        xd_copy_to(r->x, xd_map_spread(to, by[1], by[2]),
                   xd_map_grouped(xd_rows(y, i / f, 1), C, f * plane, i % f * plane, by[1], by[2]));
        if (s->residual)
            add_old(r, to, xd_rows(old, i / f, 1), i % f, by);
    }
}

/* Multiplies frames, rows and columns by a convolution whose channels become positions; of the
 * first frame only the last one is kept. The old map is copied behind the new one, which overwrites
 * it. */
static void run_upsample(decoder *d, stage *s)
{
    xd_ltx_run *r = &d->r;
    xd_exec    *x = r->x;
    xd_tensor   old = r->h;
    xd_ltx_conv c = conv_of(s, old);
    int64_t     T = old.d[0], H = old.d[1], W = old.d[2], D = old.d[3], late = s->s.nlate;
    int64_t     f = s->by[0], plane = s->by[1] * s->by[2], C = s->conv->w.out / (f * plane);
    int64_t     all = xd_ltx_conv_results(r, &c), drop = s->begun || !all ? 0 : f - 1;
    r->h = xd_map_at(x, r->base, f * all - drop, s->by[1] * H, s->by[2] * W, C);
    if (xd_count(old) > xd_count(r->h))
        xd_map_at(x, r->base, T, H, W, D);
    xd_tensor copy = xd_map(x, late + T, H, W, D);
    c.in = xd_rows(copy, late, T);
    xd_ltx_copy_frames(x, c.in, old);
    xd_ltx_copy_frames(x, copy, late ? xd_rows(s->s.late, 0, late) : xd_rows(old, 0, 0));
    int64_t   n = xd_ltx_conv_frames(r, &c, all, s->conv->w.out);
    xd_tensor y = xd_map(x, xd_min(n, all), H, W, s->conv->w.out);
    if (!all)
        xd_ltx_convolve(r, y, &c, none);
    for (int64_t t = 0, k; t < all; t += k) {
        k = xd_min(n, all - t);
        xd_ltx_conv_part(r, &c, t, xd_rows(y, 0, k), none);
        write_enlarged(r, s, xd_rows(y, 0, k), xd_rows(copy, t, k), f * t - drop);
    }
    if (s->s.late.nd) {
        s->s.nlate = late + T - all;
        xd_ltx_copy_frames(x, s->s.late, xd_rows(copy, all, s->s.nlate));
    }
    s->begun |= all > 0;
    r->h = xd_map_at(x, r->base, f * all - drop, s->by[1] * H, s->by[2] * W, C);
}

/* Computes the decoder's last layers, a few frames at a time. */
static void run_last(decoder *d, stage *s)
{
    xd_ltx_run *r = &d->r;
    xd_exec    *x = r->x;
    xd_ltx_conv c = conv_of(s, r->h);
    int64_t     T = xd_ltx_conv_results(r, &c), n = xd_ltx_conv_frames(r, &c, T, s->conv->w.out);
    c.norm = 1;
    if (r->w->table.p) {
        xd_tensor m = xd_ltx_modulation(r, r->w->time, r->w->table);
        c.shift = xd_rows(m, 0, 1), c.scale = xd_rows(m, 1, 1);
    }
    xd_tensor y = xd_map_as(x, XD_F32, xd_min(n, T), s->H, s->W, s->conv->w.out);
    if (!T)
        xd_ltx_convolve(r, y, &c, none);
    for (int64_t t = 0, k; t < T; t += k) {
        k = xd_min(n, T - t);
        xd_ltx_conv_part(r, &c, t, xd_rows(y, 0, k), none);
        for (int64_t i = 0; i < k; i++)
            xd_ltx_copy_patches(x, xd_rows(y, i, 1), xd_rows(d->rgb, d->done++, 1), r->c->patch, 0);
    }
}

/* Returns latents that are normalized, (z - mean) scaling / std, or from which this is undone. */
static xd_tensor scaled(xd_exec *x, const xd_net *n, xd_tensor lat, int undo)
{
    const xd_ltx_cfg *c = n->cfg;
    float            *v = xd_ltx_statistics(x, n), *std = v ? v + c->latent_channels : NULL;
    for (int64_t i = 0; v && i < c->latent_channels; i++) {
        std[i] = undo ? std[i] / (float)c->scaling : (float)c->scaling / std[i];
        v[i] = undo ? v[i] : -v[i] * std[i];
    }
    xd_tensor z = v ? xd_scale_rows(x, xd_map_rows(lat), std, v) : xd_map_rows(lat);
    free(v);
    return xd_reshape(z, 4, lat.d);
}

xd_tensor xd_ltx_normalize(xd_exec *x, const xd_net *n, xd_tensor z)
{
    return scaled(x, n, z, 0);
}

xd_tensor xd_ltx_denormalize(xd_exec *x, const xd_net *n, xd_tensor z)
{
    return scaled(x, n, z, 1);
}

/* ---- passes --------------------------------------------------------------------------------- */

/* Computes stage i and the later ones from the frames z (stage 0), or from no frames. `last`: 1:
 * stage i gets no further frames; 2: neither do the later ones. */
static void run_pass(decoder *d, int i, xd_tensor z, int last)
{
    xd_ltx_run *r = &d->r;
    size_t      mark = xd_arena_mark(r->x->tmp);
    r->base = mark;
    for (int k = i; k < d->n && (k == i || r->h.d[0]); k++) {
        stage *s = &d->stage[k];
        s->s.last = last == 2 || (last && k == i);
        if (k == 0)
            run_first(d, s, z);
        else if (k == i)
            r->h = xd_map_at(r->x, r->base, 0, s->H, s->W,
                             s->res ? s->res->conv[0].w.in : s->conv->w.in);
        if (k == 0)
            continue;
        xd_pause(r->x);
        if (s->res)
            xd_ltx_residual(r, s->res, s->time, &s->s);
        else if (s->by)
            run_upsample(d, s);
        else
            run_last(d, s);
    }
    xd_arena_rewind(r->x->tmp, mark);
}

/* Computes all frames of the latents z. */
static void run_passes(decoder *d, xd_tensor z)
{
    int64_t T = z.d[0];
    if (T == 1) {
        run_pass(d, 0, z, 2);
        return;
    }
    open_stages(d);
    for (int64_t t = 0; t < T; t++)
        run_pass(d, 0, xd_rows(z, t, 1), 0);
    for (int i = 0; i < d->n && d->r.past < XD_LTX_AROUND; i++)
        run_pass(d, i, xd_rows(z, 0, 0), 1);
}

/* Returns the timestep as the decoder reads it. */
static double timestep(xd_exec *x, const xd_ltx_half *w)
{
    float scale = 0;
    if (w->scale.p)
        xd_get(x, &scale, w->scale);
    return x->decoding ? x->decoding->time * (double)scale : 0;
}

void xd_ltx_decode(xd_exec *x, const xd_net *n, xd_tensor lat, xd_tensor rgb)
{
    const xd_ltx_cfg *c = n->cfg;
    size_t            mark = xd_arena_mark(x->tmp);
    decoder           d = { .rgb = rgb };
    uint64_t          seed = x->decoding ? (uint64_t)x->decoding->seed : 0;
    xd_vae_info       v;
    xd_ltx_info(c, &v);
    d.r = (xd_ltx_run){ .x = x, .c = c, .w = &((const xd_ltx_glob *)n->glob)->dec };
    d.r.mirrors = c->mirrors, d.r.past = c->dec_causal ? 2 : 1;
    if (!xd_map_video_fits(x, rgb, lat, v.cell[1], c->latent_channels, lat.d[0]) ||
        !xd_map_frames_fit(x, rgb.d[0], xd_vae_frames(&v, lat.d[0])))
        return;
    xd_tensor z = xd_ltx_denormalize(x, n, lat);
    d.r.time = timestep(x, d.r.w);
    d.stage = calloc(MAX_STAGES, sizeof *d.stage);
    if (d.stage) {
        list_stages(&d, lat.d[1], lat.d[2], xd_hash_mix(xd_hash_text("decoder noise"), seed));
        run_passes(&d, z);
    } else {
        xd_exec_fail(x, XD_ENOMEM, "no memory for %d layers", MAX_STAGES);
    }
    free(d.stage);
    xd_arena_rewind(x->tmp, mark);
}
