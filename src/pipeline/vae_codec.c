/* vae_codec.c - decodes latents to pixels and encodes pixels to latents with the VAE */
#include <stdlib.h>
#include <string.h>

#include "pipeline/vae_codec.h"
#include "base/minmax.h"
#include "comm/kinds.h"
#include "exec/op.h"
#include "model/component.h"
#include "model/model.h"
#include "pipeline/arenas.h"
#include "pipeline/context.h"
#include "pipeline/decode_noise.h"
#include "pipeline/image_roles.h"
#include "pipeline/job.h"
#include "pipeline/pixels.h"
#include "pipeline/preview.h"
#include "pipeline/yield.h"
#include "pipeline/vae_shards.h"
#include "pipeline/work.h"
#include "ranks/world.h"

/* Converts latents to the input of the VAE's decoder, latents / scaling + shift, in place. */
static void unscale_latents(xd_exec *x, const xd_vae_info *v, xd_tensor flat)
{
    size_t mark = xd_arena_mark(x->tmp);
    xd_axpby(x, flat, 0, (xd_tensor){ 0 }, (float)(1 / v->scaling));
    if (v->shift != 0) {
        float     c = (float)v->shift;
        xd_tensor one = xd_new_as(x, XD_F32, 1, (int64_t[]){ 1 });
        xd_tensor all = xd_new_as(x, XD_F32, 1, flat.d);
        xd_put(x, one, &c);
        one.d[0] = flat.d[0], one.s[0] = 0; /* stride 0 repeats one element */
        xd_copy_to(x, all, one);
        xd_axpby(x, flat, 1, all, 1);
    }
    xd_arena_rewind(x->tmp, mark);
}

int xd_vae_on_this_rank(const xd_job *j)
{
    return j->ctx->plan.vae_rows || j->ctx->topo.replica->rank == 0;
}

/* Copies a tensor in host memory, with any strides, to a contiguous F32 tensor on the device. */
static void put_view(xd_exec *x, xd_tensor to, xd_tensor from)
{
    float *flat = x->dev->host_memory || xd_counting(x) ? NULL : malloc(xd_bytes(to) + 1);
    if (x->dev->host_memory) {
        xd_copy_to(x, to, from);
    } else if (flat) {
        xd_comm_pack(flat, from);
        xd_put(x, to, flat);
    }
    free(flat);
}

/* Unscales latents and decodes the result to pixels. lat and rgb are in host memory and are not
 * accessed while counting. */
void xd_vae_decode(xd_exec *x, const xd_job *j, const xd_net *net, const float *lat, float *rgb)
{
    const xd_model    *m = &j->ctx->model;
    const xd_vae_info *v = &j->vae;
    size_t             mark = xd_arena_mark(x->tmp);
    int64_t            C = v->channels, h = j->cells[1], w = j->cells[2], W = j->size[1];
    int64_t            T = j->cells[0] - j->spare, row = W * j->channels;
    xd_vae_shards      s;
    if (!xd_vae_shards_open(&s, x, j, v, (xd_grid){ h, w })) {
        xd_vae_shards_close(&s);
        return;
    }
    int64_t   kept = xd_job_clip_frames(j);
    int64_t   n = s.own.n, cell = j->size[0] / h, first = j->all_frames - kept,
              pixels[4] = { j->all_frames, n * cell, W, j->channels };
    xd_tensor in = xd_new_as(x, XD_F32, 4, (int64_t[]){ T, n, w, C });
    xd_tensor out = s.whole ? xd_new_as(x, XD_F32, 4, pixels)
                            : xd_view(x->tmp->base, XD_F32, 4, pixels);
    for (int64_t t = 0; t < T; t++) {
        xd_tensor src = xd_view((void *)(uintptr_t)(lat + (t + j->spare) * C * h * w), XD_F32, 3,
                                (int64_t[]){ C, h, w });
        src = xd_rows(xd_permute(src, (int[]){ 1, 2, 0 }), s.own.start, n);
        put_view(x, xd_reshape(xd_rows(in, t, 1), 3, (int64_t[]){ n, w, C }), src);
    }
    unscale_latents(x, v, xd_reshape(in, 1, (int64_t[]){ T * n * w * C }));
    xd_decoding input = xd_decode_input(j, s.own.start);
    xd_decode_mix(x, j, net, in, s.own.start);
    x->decoding = &input;
    if (xd_vae_shards_tiles(&s))
        x->pause = NULL; /* no yields: the ranks decode different numbers of tiles */
    if (s.tiled)
        xd_vae_decode_tiled(x, m->vae.vae, v, net, in, out, xd_vae_shards_tiles(&s));
    else
        m->vae.vae->decode(x, net, in, out);
    x->decoding = NULL;
    if (s.bands > 1)
        for (int64_t t = 0; t < kept; t++)
            xd_vae_shards_gather(&s, xd_rows(out, first + t, 1), row, cell,
                                 rgb ? rgb + t * j->size[0] * row : NULL);
    else if (s.whole)
        xd_get(x, rgb, xd_rows(out, first, kept));
    xd_vae_shards_close(&s);
    xd_arena_rewind(x->tmp, mark);
}

/* Computes the features [h,w,C] of a control image for a side network that reads pixels. */
static void read_pixels(xd_exec *x, const xd_job *j, const xd_net *net, const xd_vae_clip *clip,
                        const float *rgb, float *features)
{
    const xd_side *side = j->ctx->model.dit.dit->side;
    size_t         mark = xd_arena_mark(x->tmp);
    int64_t        H = clip->pixels.rows, W = clip->pixels.cols, C = j->ctx->model.dit_info.lat_ch;
    xd_tensor      in = xd_new_as(x, XD_F32, 4, (int64_t[]){ 1, H, W, 3 });
    xd_tensor out = xd_new_as(x, XD_F32, 4, (int64_t[]){ 1, H / side->cell, W / side->cell, C });
    xd_put(x, in, rgb);
    side->read_pixels(x, net, clip->side - 1, in, out);
    xd_get(x, features, out);
    xd_arena_rewind(x->tmp, mark);
}

/* Returns the component that encodes a clip, or the VAE if `clip` is NULL. */
static xd_component *encoder_of(const xd_job *j, const xd_vae_clip *clip)
{
    return clip && clip->side ? &j->ctx->model.dit : &j->ctx->model.vae;
}

static int channels_of(const xd_vae_clip *clip)
{
    return clip->channels ? clip->channels : 3;
}

/* Copies the band [rows,W,channels] of a frame to the encoder's input on the device. For an
 * encoder that also reads alpha, pixels without alpha become opaque. */
static void put_pixels(xd_exec *x, xd_tensor to, const float *rgb, int channels)
{
    int64_t n = to.d[1] * to.d[2], K = to.d[3];
    if (K == channels || xd_counting(x) || !xd_ok(x)) {
        xd_put(x, to, rgb);
        return;
    }
    float *all = malloc((size_t)(n * K) * sizeof *all + 1);
    if (!xd_check(x, all != NULL, "no memory for the pixels of an image to encode"))
        return;
    for (int64_t i = 0; i < n * K; i++)
        all[i] = i % K < channels ? rgb[i / K * channels + i % K] : 1;
    xd_put(x, to, all);
    free(all);
}

void xd_vae_encode_frames(xd_exec *x, const xd_job *j, const xd_net *net, const xd_vae_clip *clip,
                          const float *rgb, float *moments)
{
    if (clip->side) {
        read_pixels(x, j, net, clip, rgb, moments);
        return;
    }
    const xd_model *m = &j->ctx->model;
    size_t          mark = xd_arena_mark(x->tmp);
    const int      *factor = m->vae_info.cell;
    int64_t C = 2 * m->vae_info.channels, h = clip->pixels.rows / factor[1], W = clip->pixels.cols,
            w = W / factor[2], frames = clip->frames, T = xd_vae_latents(&m->vae_info, frames),
            cell = factor[1];
    xd_vae_info   v = xd_vae_encoding(&j->vae);
    xd_vae_shards s;
    if (!xd_vae_shards_open(&s, x, j, &v, (xd_grid){ h, w })) {
        xd_vae_shards_close(&s);
        return;
    }
    int       K = xd_vae_pixel_channels(&v), channels = channels_of(clip);
    int64_t   n = s.own.n, d[4] = { T, n, w, C };
    xd_tensor in = xd_new_as(x, XD_F32, 4, (int64_t[]){ frames, n * cell, W, K });
    xd_tensor out = s.whole ? xd_new_as(x, XD_F32, 4, d) : xd_view(x->tmp->base, XD_F32, 4, d);
    for (int64_t t = 0; t < frames; t++)
        put_pixels(x, xd_rows(in, t, 1),
                   rgb + (xd_counting(x) ? 0 : (t * h + s.own.start) * cell * W * channels),
                   channels);
    if (xd_vae_shards_tiles(&s))
        x->pause = NULL;
    if (s.tiled)
        xd_vae_encode_tiled(x, m->vae.vae, &j->vae, net, in, out, xd_vae_shards_tiles(&s));
    else
        m->vae.vae->encode(x, net, in, out);
    for (int64_t t = 0; s.bands > 1 && t < T; t++)
        xd_vae_shards_allgather(&s, xd_rows(out, t, 1), w * C, 1,
                                moments + (xd_counting(x) ? 0 : t * h * w * C));
    if (s.bands == 1 && s.whole)
        xd_get(x, moments, out);
    if (xd_vae_shards_tiles(&s))
        xd_vae_shards_broadcast(&s, moments, T * h * w * C);
    xd_vae_shards_close(&s);
    xd_arena_rewind(x->tmp, mark);
}

/* Counts the memory in bytes for encoding a clip, or for decoding if `clip` is NULL. */
static xd_status count_vae(xd_job *j, const xd_vae_clip *clip, size_t *bytes, xd_err *e)
{
    xd_component *p = encoder_of(j, clip);
    xd_exec       x;
    xd_arena      a;
    xd_status     s = xd_component_count(p, j->ctx->count, j->ctx->type, e);
    if (s == XD_OK)
        s = xd_device_arena_open(&a, j->ctx->count, 0, e);
    if (s != XD_OK)
        return s;
    xd_exec_init(&x, j->ctx->count, &a, j->ctx->type);
    float *any = (float *)(void *)a.base;
    if (clip)
        xd_vae_encode_frames(&x, j, &p->count->shadow, clip, any, any);
    else
        xd_vae_decode(&x, j, &p->count->shadow, any, any);
    *bytes = xd_arena_peak(&a);
    xd_device_arena_close(&a, j->ctx->count);
    return xd_exec_status(&x, e);
}

xd_status xd_vae_decode_count(xd_job *j, size_t *bytes, xd_err *e)
{
    return count_vae(j, NULL, bytes, e);
}

xd_status xd_vae_encode_frames_count(xd_job *j, const xd_vae_clip *clip, size_t *bytes, xd_err *e)
{
    return count_vae(j, clip, bytes, e);
}

/* Returns 1 if the VAE encodes an image of the result's size. It encodes none if there is no image,
 * and all side networks read pixels. */
static int encodes_result_size(const xd_job *j)
{
    const xd_dit_info *d = &j->ctx->model.dit_info;
    int                only_pixels = d->sides && d->pixels == (1 << d->sides) - 1;
    return !j->nrefs && (xd_job_has_image(j->r) || !only_pixels);
}

int xd_vae_encodes(const xd_job *j)
{
    return encodes_result_size(j) || j->parts > 1 || (j->leading && !j->nconditions) || j->nrefs;
}

xd_status xd_vae_encode_count(xd_job *j, size_t *bytes, xd_err *e)
{
    int         all = j->role->reads_video || j->role->reads_control_video;
    xd_vae_clip clip = { .frames = all ? xd_job_clip_frames(j) : 1,
                         .pixels = { j->size[0], j->size[1] } };
    for (int i = 0; i < j->nconditions; i++)
        clip.frames = xd_max(clip.frames, j->conditions[i].frames);
    size_t    one;
    xd_status s = XD_OK;
    *bytes = 0;
    if (encodes_result_size(j))
        s = count_vae(j, &clip, bytes, e);
    for (int i = 0; i < j->ctx->model.dit_info.sides && s == XD_OK; i++) {
        clip.side = j->ctx->model.dit_info.pixels >> i & 1 ? 1 + i : 0;
        if (clip.side)
            s = count_vae(j, &clip, &one, e);
        *bytes = clip.side ? xd_max_size(*bytes, one) : *bytes;
    }
    clip.side = 0;
    for (int i = 1; i < j->parts && s == XD_OK; i++)
        s = count_vae(j, &clip, &one, e);
    clip.frames = 1;
    for (int i = 0; i < j->leading && !j->nconditions && s == XD_OK; i++)
        s = count_vae(j, &clip, &one, e);
    for (int i = 0; i < j->nrefs && s == XD_OK; i++) {
        clip.pixels = j->ref_size[i];
        clip.channels = j->channels;
        s = count_vae(j, &clip, &one, e);
        *bytes = i == 0 || one > *bytes ? one : *bytes;
    }
    return s;
}

/* ---- images on the ranks ------------------------------------------------------------------ */

static void open_exec(xd_exec *x, xd_job *j, xd_arena *a)
{
    xd_arena_rewind(a, 0);
    xd_exec_init(x, j->ctx->dev, a, j->ctx->type);
    x->cancel = j->ctx->cancel;
    xd_world_watch(&j->ctx->world, x);
    xd_yield_watch(j, x);
}

/* Allocates memory on this rank for the pixels that rank 0 will send. */
static int allocate_pixels(const xd_context *ctx, float **pixels[2], int64_t n)
{
    for (int i = 0; i < 2; i++)
        if (pixels[i] && !*pixels[i] &&
            !(*pixels[i] = xd_host_buffer(ctx, (size_t)n * sizeof(float))))
            return 0;
    return 1;
}

/* Returns the frames of a clip for the VAE, malloc'ed, and frees the pixels of its images. Returns
 * NULL if there is no memory. */
static float *fill_clip(const xd_vae_clip *clip, float **pixels[2])
{
    int64_t n = clip->pixels.rows * clip->pixels.cols * channels_of(clip);
    float  *all = calloc((size_t)(clip->frames * n), sizeof *all);
    for (int i = 0; i < 2; i++) {
        if (!pixels[i])
            continue;
        if (all)
            memcpy(all + (i ? clip->frames - 1 : 0) * n, *pixels[i], (size_t)n * sizeof *all);
        free(*pixels[i]), *pixels[i] = NULL;
    }
    return all;
}

xd_status xd_vae_compute_clip(xd_job *j, xd_arena *a, const xd_vae_clip *clip, float **pixels[2],
                              float *moments, xd_err *e)
{
    xd_exec x;
    if (clip->frames > 1 && !clip->whole && !(*pixels[0] = fill_clip(clip, pixels)))
        return xd_fail(e, XD_ENOMEM, "no memory for %lld frames to encode",
                       (long long)clip->frames);
    open_exec(&x, j, a);
    xd_vae_encode_frames(&x, j, &encoder_of(j, clip)->w->net, clip, *pixels[0], moments);
    return xd_exec_status(&x, e);
}

/* With a parallel VAE every replica encodes; otherwise only rank 0 does. */
xd_status xd_vae_encode_clip(xd_job *j, xd_arena *a, const xd_vae_clip *clip, float **pixels[2],
                             float **moments, xd_err *e)
{
    xd_context        *ctx = j->ctx;
    const xd_vae_info *v = &ctx->model.vae_info;
    int                all = ctx->plan.vae_rows && !clip->side;
    xd_grid            size = clip->pixels;
    int64_t            n = (clip->side ? 1 : 2) * v->channels * (size.rows / v->cell[1]) *
                           (size.cols / v->cell[2]) * xd_vae_latents(v, clip->frames);
    int64_t   in = (clip->whole ? clip->frames : 1) * size.rows * size.cols * channels_of(clip);
    xd_status s = XD_OK;
    *moments = xd_host_buffer(ctx, (size_t)n * sizeof **moments);
    if (!*moments || (all && !allocate_pixels(ctx, pixels, in)))
        s = xd_fail(e, XD_ENOMEM, "no memory for an image to encode");
    s = xd_world_agree(&ctx->world, s, e);
    for (int i = 0; i < 2 && all; i++)
        if (s == XD_OK && pixels[i])
            s = xd_world_broadcast(&ctx->world, *pixels[i], in * (int64_t)sizeof(float), e);
    if (s == XD_OK && !all && ctx->world.used->rank) {
        s = xd_yield_follow(j, e);
    } else if (s == XD_OK) {
        xd_yield_begin(j);
        s = ctx->work->encode_clip(j, a, clip, pixels, *moments, e);
        xd_yield_end(j);
    }
    /* the reported times exclude the time for which other engines ran during encoding */
    xd_yield_seconds(j);
    s = xd_world_agree(&ctx->world, s, e);
    if (s == XD_OK && !all)
        s = xd_world_broadcast(&ctx->world, *moments, n * (int64_t)sizeof **moments, e);
    for (int i = 0; i < 2; i++)
        if (pixels[i])
            free(*pixels[i]), *pixels[i] = NULL;
    return s;
}

xd_status xd_vae_encode_own_clip(xd_job *j, xd_arena *a, const xd_vae_clip *clip, float **pixels,
                                 float **moments, xd_status s, xd_err *e)
{
    const xd_vae_info *v = &j->ctx->model.vae_info;
    xd_comm           *c = j->ctx->topo.replica;
    int                all = j->ctx->plan.vae_rows, me = j->ctx->world.used->rank;
    float            **of[2] = { pixels, NULL };
    int64_t            cells = clip->pixels.rows / v->cell[1] * (clip->pixels.cols / v->cell[2]);
    int64_t            n = 2 * v->channels * cells * xd_vae_latents(v, clip->frames);
    int64_t in = clip->frames * clip->pixels.rows * clip->pixels.cols * channels_of(clip);
    *moments = xd_host_buffer(j->ctx, (size_t)n * sizeof **moments);
    if (s == XD_OK && (!*moments || (all && !allocate_pixels(j->ctx, of, in))))
        s = xd_fail(e, XD_ENOMEM, "no memory for a video to encode");
    s = xd_world_agree_in(c, me, s, e);
    if (s == XD_OK && all && c->size > 1)
        s = xd_world_wait(c, c->ops->bcast(c, xd_view(*pixels, XD_F32, 1, &in), 0), e);
    if (s == XD_OK && (all || c->rank == 0))
        s = j->ctx->work->encode_clip(j, a, clip, of, *moments, e);
    s = s == XD_ECOMM ? s : xd_world_agree_in(c, me, s, e);
    if (s == XD_OK && !all && c->size > 1)
        s = xd_world_wait(c, c->ops->bcast(c, xd_view(*moments, XD_F32, 1, &n), 0), e);
    free(*pixels), *pixels = NULL;
    return s;
}

/* Resizes (bilinear) and crops the image to the requested size if another size was generated;
 * replaces *rgb with a malloc'ed image. */
static xd_status fit_size(const xd_job *j, float **rgb, xd_err *e)
{
    xd_grid from = { j->size[0], j->size[1] }, to = { j->asked[0], j->asked[1] };
    if (from.rows == to.rows && from.cols == to.cols)
        return XD_OK;
    size_t n = (size_t)(to.rows * to.cols * j->channels);
    float *out = malloc(n * sizeof *out + 1);
    if (!out)
        return xd_fail(e, XD_ENOMEM, "no memory for an image of %lld x %lld", (long long)to.cols,
                       (long long)to.rows);
    xd_pixels_fit(*rgb, from, out, to, j->channels, 0);
    free(*rgb);
    *rgb = out;
    return XD_OK;
}

xd_status xd_vae_decode_image(xd_job *j, xd_arena *a, const float *lat, float **rgb, xd_err *e)
{
    xd_exec x;
    open_exec(&x, j, a);
    xd_vae_decode(&x, j, &j->ctx->model.vae.w->net, lat, *rgb);
    if (xd_ok(&x) && *rgb)
        xd_preview_learn(j, lat, *rgb);
    if (xd_ok(&x))
        return *rgb ? fit_size(j, rgb, e) : XD_OK;
    return xd_exec_status(&x, e);
}
