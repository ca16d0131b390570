/* preview_decoder.c - decodes previews with a tiny autoencoder */
#include "pipeline/preview_decoder.h"

#include <stdlib.h>

#include "exec/host.h"
#include "exec/op.h"
#include "pipeline/arenas.h"
#include "pipeline/preview.h"

static int is_needed(const xd_job *j)
{
    return j->ctx->model.preview.vae && xd_preview_asked(j) && j->ctx->topo.replica->rank == 0;
}

/* Decodes a frame with the tiny autoencoder, from unscaled latents `cells` [h,w,C] to pixels `rgb`,
 * both in host memory. While memory is counted, neither cells nor rgb is accessed. */
static void run_decoder(xd_exec *x, const xd_job *j, const xd_net *net, const float *cells,
                        float *rgb)
{
    const xd_model *m = &j->ctx->model;
    const int      *cell = m->preview_info.cell;
    size_t          mark = xd_arena_mark(x->tmp);
    int64_t         h = j->lat[2], w = j->lat[3];
    xd_tensor       in = xd_new_as(x, XD_F32, 4, (int64_t[]){ 1, h, w, j->lat[1] });
    xd_tensor       out = xd_new_as(x, XD_F32, 4, (int64_t[]){ 1, h * cell[1], w * cell[2], 3 });
    xd_put(x, in, cells);
    m->preview.vae->decode(x, net, in, out);
    xd_get(x, rgb, out);
    xd_arena_rewind(x->tmp, mark);
}

static xd_status count_run(xd_job *j, size_t *bytes, xd_err *e)
{
    xd_context *ctx = j->ctx;
    xd_exec     x;
    xd_arena    a;
    xd_status   s = xd_device_arena_open(&a, ctx->count, 0, e);
    if (s != XD_OK)
        return s;
    xd_exec_init(&x, ctx->count, &a, ctx->type);
    float *any = (float *)(void *)a.base;
    run_decoder(&x, j, &ctx->model.preview.count->shadow, any, any);
    *bytes = xd_arena_peak(&a);
    xd_device_arena_close(&a, ctx->count);
    return xd_exec_status(&x, e);
}

xd_status xd_preview_count(xd_job *j, size_t *weights, size_t *bytes, xd_err *e)
{
    xd_component *p = &j->ctx->model.preview;
    *weights = *bytes = 0;
    if (!is_needed(j))
        return XD_OK;
    xd_status s = xd_component_count(p, j->ctx->count, j->ctx->type, e);
    *weights = p->count->packed + p->count->work;
    return s == XD_OK ? count_run(j, bytes, e) : s;
}

xd_status xd_preview_load(xd_job *j, xd_err *e)
{
    xd_context *ctx = j->ctx;
    return is_needed(j) ? xd_component_load(&ctx->model.preview, ctx->dev, ctx->type, 0, e) : XD_OK;
}

/* Returns a malloc'ed copy [h,w,C] of a frame's latents [C,h,w], with the scaling undone. */
static float *cells_of(const xd_job *j, const float *lat)
{
    const xd_vae_info *v = &j->ctx->model.preview_info;
    int64_t            C = j->lat[1], n = j->lat[2] * j->lat[3];
    float             *cells = malloc((size_t)(C * n) * sizeof *cells + 1);
    for (int64_t i = 0; cells && i < n; i++)
        for (int64_t c = 0; c < C; c++)
            cells[i * C + c] = (float)((double)lat[c * n + i] / v->scaling + v->shift);
    return cells;
}

float *xd_preview_decode(const xd_job *j, const float *lat, xd_grid *size)
{
    xd_context *ctx = j->ctx;
    xd_model   *m = &ctx->model;
    const int  *cell = m->preview_info.cell;
    xd_err      e = { 0 };
    xd_exec     x;
    xd_arena    a;
    size_t      bytes = 0;
    if (!m->preview.vae || !m->preview.w->store || count_run((xd_job *)(uintptr_t)j, &bytes, &e) ||
        xd_device_arena_open(&a, ctx->dev, bytes, &e) != XD_OK)
        return NULL;
    *size = (xd_grid){ j->lat[2] * cell[1], j->lat[3] * cell[2] };
    float *cells = cells_of(j, lat);
    float *rgb = malloc((size_t)(size->rows * size->cols) * 3 * sizeof *rgb + 1);
    xd_exec_init(&x, ctx->dev, &a, ctx->type);
    x.cancel = ctx->cancel;
    if (cells && rgb)
        run_decoder(&x, j, &m->preview.w->net, cells, rgb);
    xd_device_arena_close(&a, ctx->dev);
    free(cells);
    if (cells && rgb && xd_ok(&x))
        return rgb;
    free(rgb);
    return NULL;
}
