/* audio_decode.c - turns the latents of audio into sound */
#include "pipeline/audio_decode.h"

#include <stdlib.h>

#include "base/minmax.h"
#include "exec/op.h"
#include "pipeline/arenas.h"
#include "pipeline/callbacks.h"

static int is_decoded(const xd_job *j)
{
    return j->audio_numbers && !j->r->output.latents_only && !j->r->audio.no_audio;
}

static int is_needed(const xd_job *j)
{
    return is_decoded(j) && j->ctx->model.audio[0].audio && j->ctx->topo.replica->rank == 0;
}

/* Returns the number of sides that the networks decode one after the other. */
static int64_t sides_of(const xd_job *j)
{
    return xd_max(j->ctx->model.dit_info.audio_sides, 1);
}

int64_t xd_audio_samples(const xd_job *j, int *channels, int *rate)
{
    const xd_model *m = &j->ctx->model;
    int64_t         n = j->audio_numbers ? j->audio[1] / sides_of(j) : 0;
    xd_audio_info   a = { 0 };
    for (int i = 0; i < XD_MAXAUDIO && m->audio[i].audio; i++) {
        m->audio[i].audio->info(m->audio[i].w->net.cfg, &a);
        n = m->audio[i].audio->rows(m->audio[i].w->net.cfg, n);
    }
    *channels = (int)(a.out * sides_of(j));
    *rate = a.rate;
    return a.rate && is_decoded(j) ? n : 0;
}

/* Runs the networks on rows [t,features], and writes the samples to `to` [n,channels]. */
static void run_networks(xd_exec *x, const xd_job *j, xd_tensor rows, xd_tensor to)
{
    const xd_model *m = &j->ctx->model;
    size_t          mark = xd_arena_mark(x->tmp);
    for (int i = 0; i < XD_MAXAUDIO && m->audio[i].audio; i++) {
        const xd_component *p = &m->audio[i];
        const xd_net       *n = xd_counting(x) ? &p->count->shadow : &p->w->net;
        xd_audio_info       a;
        p->audio->info(n->cfg, &a);
        xd_tensor out = xd_new_f32(x, p->audio->rows(n->cfg, rows.d[0]), a.out);
        p->audio->run(x, n, rows, out);
        rows = out;
    }
    xd_copy_to(x, to, rows);
    xd_arena_rewind(x->tmp, mark);
}

/* Computes the samples [n,channels] of the latents [C,t,m]; both are in host memory, and are not
 * accessed while memory is counted. Rows of a side follow those of the side before it. */
static void decode_sides(xd_exec *x, const xd_job *j, const float *lat, float *wave)
{
    int           channels, rate;
    const int64_t n = xd_audio_samples(j, &channels, &rate), sides = sides_of(j);
    const int64_t each = j->audio[1] / sides, of = channels / sides;
    xd_tensor     all = xd_new_f32(x, n, channels);
    xd_tensor     rows = xd_new_f32(x, j->audio[1], j->audio[0] * j->audio[2]);
    xd_tensor     cells = xd_new_as(x, XD_F32, 3, j->audio), v;
    xd_put(x, cells, lat);
    v = xd_view(rows.p, XD_F32, 3, j->audio);
    v.s[0] = j->audio[2], v.s[1] = rows.d[1];
    xd_copy_to(x, v, cells);
    for (int64_t i = 0; i < sides; i++)
        run_networks(x, j, xd_rows(rows, i * each, each), xd_cols(all, i * of, of));
    xd_get(x, wave, all);
}

static xd_status count_run(xd_job *j, size_t *bytes, xd_err *e)
{
    xd_context *ctx = j->ctx;
    xd_exec     x;
    xd_arena    a;
    xd_status   s = XD_OK;
    for (int i = 0; s == XD_OK && i < XD_MAXAUDIO && ctx->model.audio[i].audio; i++)
        s = xd_component_count(&ctx->model.audio[i], ctx->count, ctx->type, e);
    if (s == XD_OK)
        s = xd_device_arena_open(&a, ctx->count, 0, e);
    if (s != XD_OK)
        return s;
    xd_exec_init(&x, ctx->count, &a, ctx->type);
    float *any = (float *)(void *)a.base;
    decode_sides(&x, j, any, any);
    *bytes = xd_arena_peak(&a);
    xd_device_arena_close(&a, ctx->count);
    return xd_exec_status(&x, e);
}

xd_status xd_audio_count(xd_job *j, size_t *weights, size_t *bytes, xd_err *e)
{
    const xd_model *m = &j->ctx->model;
    *weights = *bytes = 0;
    if (!is_needed(j))
        return XD_OK;
    xd_status s = count_run(j, bytes, e);
    for (int i = 0; s == XD_OK && i < XD_MAXAUDIO && m->audio[i].audio; i++)
        *weights += m->audio[i].count->packed + m->audio[i].count->work;
    return s;
}

xd_status xd_audio_decode(xd_job *j, xd_err *e)
{
    xd_context *ctx = j->ctx;
    xd_model   *m = &ctx->model;
    xd_exec     x;
    xd_arena    a;
    size_t      bytes = 0;
    int         channels, rate;
    int64_t     n = xd_audio_samples(j, &channels, &rate);
    if (!is_needed(j) || !n)
        return XD_OK;
    xd_status s = count_run(j, &bytes, e);
    for (int i = 0; s == XD_OK && i < XD_MAXAUDIO && m->audio[i].audio; i++)
        s = xd_component_load(&m->audio[i], ctx->dev, ctx->type, 0, e);
    free(j->wave);
    j->wave = malloc((size_t)(n * channels) * sizeof *j->wave + 1);
    if (s == XD_OK && (!j->wave || !j->audio_latents))
        s = xd_fail(e, XD_ENOMEM, "no memory for %lld samples of audio", (long long)n);
    if (s == XD_OK)
        s = xd_device_arena_open(&a, ctx->dev, bytes, e);
    if (s == XD_OK) {
        xd_exec_init(&x, ctx->dev, &a, ctx->type);
        x.cancel = ctx->cancel;
        decode_sides(&x, j, j->audio_latents, j->wave);
        s = xd_exec_status(&x, e);
        xd_device_arena_close(&a, ctx->dev);
    }
    for (int i = 0; !ctx->keep && i < XD_MAXAUDIO && m->audio[i].audio; i++)
        xd_component_drop(&m->audio[i]);
    if (s == XD_OK)
        xd_callback_tensor(j, "audio", j->decoded, 2, (int64_t[]){ n, channels }, j->wave);
    return s;
}
