/* upsampling.c - opens the two passes of a request, and enlarges latents in between (upsampling.h)
 */
#include "pipeline/upsampling.h"

#include <stdlib.h>
#include <string.h>

#include "exec/host.h"
#include "exec/op.h"
#include "pipeline/arenas.h"
#include "pipeline/context.h"
#include "upsample/upsample.h"

/* ---- the jobs of the passes --------------------------------------------------------------- */

int64_t xd_upsampling_factor(const xd_job *j, int i)
{
    return j->enlarged ? j->ctx->model.upsampler_info.by[i] : 1;
}

/* Replaces the schedule of the request by that of the second pass. */
static void set_schedule(xd_request *r)
{
    const xd_request_upsampling *u = &r->upsampling;
    int                          lists = u->timesteps || u->sigmas;
    if (!u->num_inference_steps && !lists)
        return;
    r->num_inference_steps = (int)u->num_inference_steps;
    r->schedule.timesteps = u->timesteps;
    r->schedule.sigmas = u->sigmas;
}

/* Opens the job of the second pass. Without a second pass, it has neither steps nor inputs. */
static xd_status open_large(xd_job *j, xd_err *e)
{
    const xd_model *m = &j->ctx->model;
    const int      *by = m->upsampler_info.by, *cell = m->vae_info.cell;
    int             steps = j->r->upsampling.denoise_strength > 0;
    xd_request     *own = &j->own, plain;
    xd_request_init(&plain);
    j->given = j->r;
    *own = *j->r;
    j->r = own;
    j->enlarged = 1;
    own->height = own->height ? own->height : m->dit_info.sample[1] * cell[1] * by[1];
    own->width = own->width ? own->width : m->dit_info.sample[2] * cell[2] * by[2];
    own->noise.values = NULL;
    own->previews = plain.previews;
    set_schedule(own);
    if (!steps) {
        own->images = plain.images;
        own->savings = plain.savings;
        own->checkpoint = plain.checkpoint;
        own->output.determinism_check = NULL;
    }
    xd_status s = xd_job_open_pass(j, e);
    if (!steps)
        j->samp.steps = 0;
    return s;
}

/* Opens the job of the first pass. */
static xd_status open_small(xd_job *j, xd_err *e)
{
    const int  *by = j->ctx->model.upsampler_info.by;
    xd_request *own, plain;
    xd_job     *small = j->small = calloc(1, sizeof *small);
    if (!small)
        return xd_fail(e, XD_ENOMEM, "no memory for a request");
    xd_request_init(&plain);
    own = &small->own;
    *own = *j->given;
    own->height = j->size[0] / by[1];
    own->width = j->size[1] / by[2];
    own->upsampling = plain.upsampling;
    own->checkpoint = plain.checkpoint;
    own->output.latents_only = 1;
    own->output.determinism_check = NULL;
    own->callbacks.wanted = NULL;
    small->ctx = j->ctx;
    small->given = j->given;
    small->r = own;
    return xd_job_open_pass(small, e);
}

xd_status xd_upsampling_open(xd_job *j, xd_err *e)
{
    xd_status s = open_large(j, e);
    if (s == XD_OK)
        s = open_small(j, e);
    if (s != XD_OK)
        return s;
    j->steps_before = j->small->samp.steps;
    j->all_steps = j->small->all_steps = j->steps_before + j->samp.steps;
    return XD_OK;
}

void xd_upsampling_close(xd_job *j)
{
    free(j->start_latents);
    j->start_latents = NULL;
    if (!j->small)
        return;
    j->small->todo = NULL; /* borrowed from j */
    xd_job_close(j->small);
    free(j->small);
    j->small = NULL;
}

xd_status xd_upsampling_strength(const xd_job *j, xd_steps *a, xd_err *e)
{
    double strength = j->r->upsampling.denoise_strength;
    if (!(strength > 0))
        return XD_OK;
    if (!j->enlarged)
        return xd_fail(e, XD_EINVAL, "denoise_strength %g needs latents: add --latent_upsampler",
                       strength);
    if (strength >= 1)
        return xd_fail(e, XD_EINVAL,
                       "denoise_strength 1 would replace the enlarged latents by noise; it must "
                       "be below 1");
    if ((int)(a->steps * strength) < 1)
        return xd_fail(e, XD_EINVAL,
                       "denoise_strength %g of %d steps leaves no step for the second pass; "
                       "use a larger one, or more upsampled_num_inference_steps",
                       strength, a->steps);
    if (!j->sampler->shares)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "denoise_strength cannot be used with the scheduler %s, which cannot add "
                       "noise to latents",
                       j->sampler->name);
    a->strength = strength;
    a->rounds_down = 1;
    return XD_OK;
}

void xd_upsampling_mix(const xd_job *j, float *noise)
{
    double  of[2]; /* weights of latents and noise */
    int64_t first = j->numbers / j->cells[0] * j->spare;
    if (!j->start_latents)
        return;
    j->sampler->shares(&j->samp, 0, of);
    for (int64_t i = first; i < j->numbers; i++)
        noise[i] = (float)of[1] * noise[i] + (float)of[0] * j->start_latents[i];
}

/* ---- enlarging ---------------------------------------------------------------------------- */

/* Copies latents between planes [T,C,n] and cells [T,n,C]: planes * scale + shift. */
static void to_cells(const float *planes, const int64_t d[3], double scale, double shift, float *to)
{
    for (int64_t t = 0; t < d[0]; t++)
        for (int64_t c = 0; c < d[1]; c++)
            for (int64_t i = 0; i < d[2]; i++)
                to[(t * d[2] + i) * d[1] + c] =
                    (float)((double)planes[(t * d[1] + c) * d[2] + i] * scale + shift);
}

static void to_planes(const float *cells, const int64_t d[3], double scale, double shift, float *to)
{
    for (int64_t t = 0; t < d[0]; t++)
        for (int64_t c = 0; c < d[1]; c++)
            for (int64_t i = 0; i < d[2]; i++)
                to[(t * d[1] + c) * d[2] + i] =
                    (float)((double)cells[(t * d[2] + i) * d[1] + c] * scale + shift);
}

/* Copies a tensor [T,h,w,C] of the device to planes [T,C,n]. `cells` is a buffer for it. */
static void get_planes(xd_exec *x, xd_tensor t, const int64_t d[3], float *cells, float *planes)
{
    xd_get(x, cells, t);
    if (xd_ok(x) && !xd_counting(x))
        to_planes(cells, d, 1, 0, planes);
}

/* Host buffers of a call; NULL while counting. */
typedef struct buffers {
    float *cells;          /* for the larger latents */
    float *before, *after; /* planes of the smaller and the larger latents, not normalized */
} buffers;

/* Changes the statistics of the enlarged latents as the request asks. */
static void change_statistics(const xd_job *j, const buffers *b, const int64_t s[3],
                              const int64_t d[3])
{
    const xd_request_upsampling *u = &j->r->upsampling;
    if (u->adain_factor > 0)
        xd_upsample_adain(b->after, d, b->before, s, u->adain_factor);
    if (u->tone_map_compression_ratio > 0)
        xd_upsample_tone_map(b->after, d[0] * d[1] * d[2], u->tone_map_compression_ratio);
}

/* Enlarges latents, which are neither read nor written while counting. */
static void enlarge(xd_exec *x, const xd_job *j, const xd_net *vae_net, const xd_net *net,
                    const float *lat, const buffers *b, float *out)
{
    const xd_model    *m = &j->ctx->model;
    const xd_vae_info *v = &m->vae_info;
    const xd_vae      *vae = m->vae.vae;
    const xd_job      *from = j->small;
    int64_t            T = from->cells[0] - from->spare, C = v->channels;
    int64_t            s[3] = { T, C, from->cells[1] * from->cells[2] };
    int64_t            d[3] = { j->cells[0] - j->spare, C, j->cells[1] * j->cells[2] };
    xd_tensor small = xd_new_as(x, XD_F32, 4, (int64_t[]){ T, from->cells[1], from->cells[2], C });
    xd_tensor large = xd_new_as(x, XD_F32, 4, (int64_t[]){ d[0], j->cells[1], j->cells[2], C });
    if (b->cells)
        to_cells(lat + from->spare * C * s[2], s, 1 / v->scaling, v->shift, b->cells);
    xd_put(x, small, b->cells);
    if (vae->denormalize)
        small = vae->denormalize(x, vae_net, small);
    m->upsampler.upsampler->run(x, net, small, large);
    get_planes(x, small, s, b->cells, b->before);
    get_planes(x, large, d, b->cells, b->after);
    if (xd_ok(x) && b->cells) {
        change_statistics(j, b, s, d);
        to_cells(b->after, d, 1, 0, b->cells);
    }
    xd_put(x, large, b->cells);
    if (vae->normalize)
        large = vae->normalize(x, vae_net, large);
    xd_get(x, b->cells, large);
    if (xd_ok(x) && b->cells)
        to_planes(b->cells, d, v->scaling, -v->shift * v->scaling, out + j->spare * C * d[2]);
}

static int is_here(const xd_job *j)
{
    return j->small && j->ctx->topo.replica->rank == 0;
}

xd_status xd_upsampling_count(xd_job *j, size_t *weights, size_t *bytes, xd_err *e)
{
    xd_context   *ctx = j->ctx;
    xd_component *p = &ctx->model.upsampler;
    xd_exec       x;
    xd_arena      a;
    *weights = *bytes = 0;
    if (!is_here(j))
        return XD_OK;
    xd_status s = xd_component_count(&ctx->model.vae, ctx->count, ctx->type, e);
    if (s == XD_OK)
        s = xd_component_count(p, ctx->count, ctx->type, e);
    if (s == XD_OK)
        s = xd_device_arena_open(&a, ctx->count, 0, e);
    if (s != XD_OK)
        return s;
    xd_exec_init(&x, ctx->count, &a, ctx->type);
    enlarge(&x, j, &ctx->model.vae.count->shadow, &p->count->shadow, NULL, &(buffers){ 0 }, NULL);
    *weights = p->count->packed + p->count->work;
    *bytes = xd_arena_peak(&a);
    xd_device_arena_close(&a, ctx->count);
    return xd_exec_status(&x, e);
}

xd_status xd_upsampling_load(xd_job *j, xd_err *e)
{
    xd_context *ctx = j->ctx;
    return is_here(j) ? xd_component_load(&ctx->model.upsampler, ctx->dev, ctx->type, 0, e) : XD_OK;
}

xd_status xd_upsampling_compute(xd_job *j, xd_arena *a, const float *small, float *out, xd_err *e)
{
    xd_context *ctx = j->ctx;
    size_t      n = (size_t)j->numbers * sizeof(float);
    buffers     b = { malloc(n), malloc(n), malloc(n) };
    xd_exec     x;
    xd_arena_rewind(a, 0);
    xd_exec_init(&x, ctx->dev, a, ctx->type);
    x.cancel = ctx->cancel;
    if (b.cells && b.before && b.after)
        enlarge(&x, j, &ctx->model.vae.w->net, &ctx->model.upsampler.w->net, small, &b, out);
    else
        xd_exec_fail(&x, XD_ENOMEM, "no memory for enlarged latents");
    free(b.cells);
    free(b.before);
    free(b.after);
    return xd_exec_status(&x, e);
}
