/* vae_codec.c - decodes latents to pixels and encodes pixels to latents with the VAE */
#include <math.h>
#include <stdlib.h>

#include "pipeline/vae_codec.h"
#include "base/par.h"
#include "comm/kinds.h"
#include "exec/op.h"
#include "model/component.h"
#include "model/model.h"
#include "pipeline/arenas.h"
#include "pipeline/job.h"
#include "pipeline/preview.h"
#include "pipeline/yield.h"
#include "pipeline/vae_shards.h"
#include "ranks/world.h"

/* Computes latents / scaling + shift in place, the input of the VAE's decoder. */
static void unscale_latents(xd_exec *x, const xd_vae_info *v, xd_tensor flat)
{
    size_t mark = xd_arena_mark(x->tmp);
    xd_axpby(x, flat, 0, (xd_tensor){ 0 }, (float)(1 / v->scaling));
    if (v->shift != 0) {
        float     c = (float)v->shift;
        xd_tensor one = xd_new_as(x, XD_F32, 1, (int64_t[]){ 1 });
        xd_tensor all = xd_new_as(x, XD_F32, 1, flat.d);
        xd_put(x, one, &c);
        one.d[0] = flat.d[0], one.s[0] = 0;     /* stride 0: the same value for all elements   */
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
    const xd_vae_info *v = &m->vae_info;
    size_t             mark = xd_arena_mark(x->tmp);
    int64_t            C = v->channels, h = j->cells[1], w = j->cells[2], W = j->size[1];
    int64_t            T = j->cells[0] - j->spare, row = W * 3;
    xd_vae_shards          s;
    if (!xd_vae_shards_open(&s, x, j, v, (xd_grid){ h, w })) {
        xd_vae_shards_close(&s);
        return;
    }
    int64_t   n = s.own.n, cell = j->size[0] / h, pixels[4] = { j->frames, n * cell, W, 3 };
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
    if (xd_vae_shards_tiles(&s))
        x->pause = NULL;        /* no yield, because ranks have different numbers of tiles     */
    if (s.tiled)
        xd_vae_decode_tiled(x, m->vae.vae, net, in, out, xd_vae_shards_tiles(&s));
    else
        m->vae.vae->decode(x, net, in, out);
    if (s.bands > 1)
        for (int64_t t = 0; t < j->frames; t++)
            xd_vae_shards_gather(&s, xd_rows(out, t, 1), row, cell,
                                 rgb ? rgb + t * j->size[0] * row : NULL);
    else if (s.whole)
        xd_get(x, rgb, out);
    xd_vae_shards_close(&s);
    xd_arena_rewind(x->tmp, mark);
}

void xd_vae_encode_frames(xd_exec *x, const xd_job *j, const xd_net *net, const xd_vae_clip *clip,
                          const float *rgb, float *moments)
{
    const xd_model *m = &j->ctx->model;
    size_t          mark = xd_arena_mark(x->tmp);
    const int      *factor = m->vae_info.cell;
    int64_t         C = 2 * m->vae_info.channels, h = clip->pixels.rows / factor[1],
                    W = clip->pixels.cols, w = W / factor[2], frames = clip->frames,
                    T = xd_vae_latents(&m->vae_info, frames), cell = factor[1];
    xd_vae_info     v = xd_vae_encoding(&m->vae_info);
    xd_vae_shards   s;
    if (!xd_vae_shards_open(&s, x, j, &v, (xd_grid){ h, w })) {
        xd_vae_shards_close(&s);
        return;
    }
    int64_t   n = s.own.n, d[4] = { T, n, w, C };
    xd_tensor in = xd_new_as(x, XD_F32, 4, (int64_t[]){ frames, n * cell, W, 3 });
    xd_tensor out = s.whole ? xd_new_as(x, XD_F32, 4, d) : xd_view(x->tmp->base, XD_F32, 4, d);
    for (int64_t t = 0; t < frames; t++)
        xd_put(x, xd_rows(in, t, 1),
               rgb + (xd_counting(x) ? 0 : (t * h + s.own.start) * cell * W * 3));
    if (xd_vae_shards_tiles(&s))
        x->pause = NULL;
    if (s.tiled)
        xd_vae_encode_tiled(x, m->vae.vae, net, in, out, xd_vae_shards_tiles(&s));
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

/* Counts the bytes of encoding a clip, or of decoding if `clip` is NULL. */
static xd_status count_vae(xd_job *j, const xd_vae_clip *clip, size_t *bytes, xd_err *e)
{
    xd_component  *p = &j->ctx->model.vae;
    xd_exec   x;
    xd_arena  a;
    xd_status s = xd_component_count(p, j->ctx->count, j->ctx->type, e);
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

xd_status xd_vae_encode_count(xd_job *j, size_t *bytes, xd_err *e)
{
    xd_vae_clip clip = { j->ctx->model.recipe->from_frames ? j->frames : 1,
                         { j->size[0], j->size[1] } };
    size_t      one;
    xd_status   s = j->nrefs ? XD_OK : count_vae(j, &clip, bytes, e);
    for (int i = 0; i < j->nrefs && s == XD_OK; i++) {
        clip.pixels = j->ref_size[i];
        s = count_vae(j, &clip, &one, e);
        *bytes = i == 0 || one > *bytes ? one : *bytes;
    }
    return s;
}

/* ---- resizing ----------------------------------------------------------------------------- */

typedef struct fit {            /* bilinear resizing, half-pixel centres (align_corners false) */
    const float *in;
    float       *out;
    int64_t      ih, iw, ow;    /* size of the input image; width of the output image          */
    int64_t      y0, x0;        /* offset of the cropped output in the resized image           */
    double       sy, sx;        /* input pixels per pixel of the resized image                 */
} fit;

typedef struct tap { int64_t a, b; float wb; } tap;

static tap tap_of(int64_t i, double step, int64_t n)
{
    double at = ((double)i + 0.5) * step - 0.5;
    at = at < 0 ? 0 : at;
    int64_t a = (int64_t)at;
    a = a < n - 1 ? a : n - 1;
    return (tap){ a, a + 1 < n ? a + 1 : a, (float)(at - (double)a) };
}

static void fit_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const fit *f = ctx;
    (void)thread;
    for (int64_t y = begin; y < end; y++) {
        tap          ty = tap_of(y + f->y0, f->sy, f->ih);
        const float *ra = f->in + ty.a * f->iw * 3, *rb = f->in + ty.b * f->iw * 3;
        for (int64_t x = 0; x < f->ow; x++) {
            tap tx = tap_of(x + f->x0, f->sx, f->iw);
            for (int c = 0; c < 3; c++) {
                float top = ra[tx.a * 3 + c] * (1 - tx.wb) + ra[tx.b * 3 + c] * tx.wb;
                float low = rb[tx.a * 3 + c] * (1 - tx.wb) + rb[tx.b * 3 + c] * tx.wb;
                f->out[(y * f->ow + x) * 3 + c] = top * (1 - ty.wb) + low * ty.wb;
            }
        }
    }
}

void xd_vae_fit(const float *rgb, xd_grid from, float *out, xd_grid to)
{
    int64_t ih = from.rows, iw = from.cols, oh = to.rows, ow = to.cols;
    double  ratio = fmax((double)oh / (double)ih, (double)ow / (double)iw);
    int64_t rh = (int64_t)((double)ih * ratio), rw = (int64_t)((double)iw * ratio);
    rh = rh < oh ? oh : rh;     /* rounding may give less than the requested size              */
    rw = rw < ow ? ow : rw;
    fit f = { rgb, out, ih, iw, ow, (rh - oh) / 2, (rw - ow) / 2, (double)ih / (double)rh,
              (double)iw / (double)rw };
    xd_par_for(oh, fit_rows, &f);
}

/* Resizes (bilinear) and crops the image to the requested size if another size was generated;
 * replaces *rgb with a malloc'ed image. */
static xd_status fit_size(const xd_job *j, float **rgb, xd_err *e)
{
    xd_grid from = { j->size[0], j->size[1] }, to = { j->asked[0], j->asked[1] };
    if (from.rows == to.rows && from.cols == to.cols)
        return XD_OK;
    float *out = malloc((size_t)(to.rows * to.cols) * 3 * sizeof *out + 1);
    if (!out)
        return xd_fail(e, XD_ENOMEM, "no memory for an image of %lld x %lld", (long long)to.cols,
                       (long long)to.rows);
    xd_vae_fit(*rgb, from, out, to);
    free(*rgb);
    *rgb = out;
    return XD_OK;
}

xd_status xd_vae_decode_image(xd_job *j, xd_arena *a, const float *lat, float **rgb, xd_err *e)
{
    xd_context *ctx = j->ctx;
    xd_exec     x;
    xd_arena_rewind(a, 0);
    xd_exec_init(&x, ctx->dev, a, ctx->type);
    x.cancel = ctx->cancel;
    xd_world_watch(&ctx->world, &x);
    xd_yield_watch(j, &x);
    xd_vae_decode(&x, j, &ctx->model.vae.w->net, lat, *rgb);
    if (xd_ok(&x) && *rgb)
        xd_preview_learn(j, lat, *rgb);
    if (xd_ok(&x))
        return *rgb ? fit_size(j, rgb, e) : XD_OK;
    return xd_exec_status(&x, e);
}
