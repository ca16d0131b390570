/* upsampling.c - opens the two passes of a request, and enlarges latents in between (upsampling.h)
 */
#include "pipeline/upsampling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/minmax.h"
#include "exec/host.h"
#include "exec/op.h"
#include "pipeline/arenas.h"
#include "pipeline/context.h"
#include "pipeline/image_roles.h"
#include "upsample/upsample.h"

/* A1111's default strength of the second pass. */
static const double usual_strength = 0.7;

/* ---- the jobs of the passes --------------------------------------------------------------- */

int64_t xd_upsampling_factor(const xd_job *j, int i)
{
    return j->enlarged && !xd_job_hires(j->r) ? j->ctx->model.upsampler_info.by[i] : 1;
}

/* Returns a side of the second pass, in complete tokens, for a side of the request (0: the model's
 * default). i: 1 for the height, 2 for the width. */
static int64_t hires_side(const xd_job *j, int64_t side, int i)
{
    const xd_model *m = &j->ctx->model;
    int64_t         unit = m->vae_info.cell[i] * (int64_t)m->dit_info.patch[i];
    side = side ? side : m->dit_info.sample[i] * m->vae_info.cell[i];
    return xd_max(1, (int64_t)((double)side * j->given->hires.scale + 1e-6) / unit) * unit;
}

static xd_status check_hires(const xd_job *j, xd_err *e)
{
    const xd_model *m = &j->ctx->model;
    if (m->upsampler.upsampler)
        return xd_fail(e, XD_EINVAL, "hires_scale and latent_upsampler are given; use one of them");
    if (!xd_role_of_model(m, xd_job_has_mask(j->given))->starts)
        return xd_fail(e, XD_EINVAL,
                       "hires_scale is for models that can start from an image (--image with "
                       "--strength), which %s cannot",
                       m->recipe->name);
    if (xd_job_has_image(j->given))
        return xd_fail(e, XD_EINVAL, "hires_scale has a first pass from noise: omit --image");
    return XD_OK;
}

/* Sets the sizes and the schedule of the second pass of hires_scale. */
static void set_hires(xd_job *j)
{
    xd_request *own = &j->own;
    own->height = hires_side(j, own->height, 1);
    own->width = hires_side(j, own->width, 2);
    own->output.no_resolution_binning = 1;
    if (own->hires.steps)
        own->num_inference_steps = (int)own->hires.steps;
}

/* Replaces the schedule of the request by that of the second pass. usual: default sigmas, or
 * NULL. */
static void set_schedule(xd_request *r, const char *usual)
{
    const xd_request_upsampling *u = &r->upsampling;
    int                          lists = u->timesteps || u->sigmas;
    if (usual)
        r->schedule.flow_shift = 1, r->schedule.shift_terminal = 0;
    if (!u->num_inference_steps && !lists && !usual)
        return;
    r->num_inference_steps = (int)u->num_inference_steps;
    r->schedule.timesteps = u->timesteps;
    r->schedule.sigmas = lists ? u->sigmas : usual;
}

/* Refuses a second pass that starts from noise alone. */
static xd_status check_start(const xd_job *j, xd_err *e)
{
    double of[2] = { 0, 1 };
    if (xd_job_hires(j->r) || !j->ctx->model.recipe->enlarged_sigmas)
        return XD_OK;
    if (!j->sampler->shares)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "latent_upsampler of %s cannot be used with the scheduler %s, which cannot "
                       "add noise to latents",
                       j->ctx->model.recipe->name, j->sampler->name);
    j->sampler->shares(&j->samp, 0, of);
    return of[0] > 0 ? XD_OK
                     : xd_fail(e, XD_EINVAL,
                               "the schedule of the second pass begins with noise alone, which "
                               "would replace the enlarged latents: begin upsampled_sigmas below "
                               "1, or upsampled_timesteps below 1000");
}

/* Opens the job of the second pass. Without a second pass, it has neither steps nor inputs. */
static xd_status open_large(xd_job *j, xd_err *e)
{
    const xd_model *m = &j->ctx->model;
    const int      *by = m->upsampler_info.by, *cell = m->vae_info.cell;
    int             hires = xd_job_hires(j->r);
    const char     *usual = hires ? NULL : m->recipe->enlarged_sigmas;
    int             steps = hires || j->r->upsampling.denoise_strength > 0 || usual;
    xd_request     *own = &j->own, plain;
    xd_request_init(&plain);
    j->given = j->r;
    *own = *j->r;
    j->r = own;
    j->enlarged = 1;
    if (hires) {
        if (check_hires(j, e) != XD_OK)
            return XD_EINVAL;
        set_hires(j);
    } else {
        own->height = own->height ? own->height : m->dit_info.sample[1] * cell[1] * by[1];
        own->width = own->width ? own->width : m->dit_info.sample[2] * cell[2] * by[2];
        set_schedule(own, usual);
    }
    own->noise.values = NULL;
    own->previews = plain.previews;
    if (!steps) {
        own->images = plain.images;
        own->savings = plain.savings;
        own->checkpoint = plain.checkpoint;
        own->output.determinism_check = NULL;
    }
    xd_status s = xd_job_open_pass(j, e);
    if (!steps)
        j->samp.steps = 0;
    return s == XD_OK ? check_start(j, e) : s;
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
    own->hires = plain.hires;
    if (!xd_job_hires(j->given)) {
        own->height = j->size[0] / by[1];
        own->width = j->size[1] / by[2];
    }
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
    int         hires = xd_job_hires(j->r);
    const char *name = hires ? "hires_strength" : "denoise_strength";
    double      strength = !hires                     ? j->r->upsampling.denoise_strength
                           : j->r->hires.strength > 0 ? j->r->hires.strength
                                                      : usual_strength;
    if (!(strength > 0))
        return XD_OK;
    if (!j->enlarged)
        return xd_fail(e, XD_EINVAL, "denoise_strength %g needs latents: add --latent_upsampler",
                       strength);
    if (strength >= 1)
        return xd_fail(e, XD_EINVAL,
                       "%s 1 would replace the enlarged latents by noise; it must be below 1",
                       name);
    if ((int)(a->steps * strength) < 1)
        return xd_fail(e, XD_EINVAL,
                       "%s %g of %d steps leaves no step for the second pass; use a larger one, "
                       "or more %s",
                       name, strength, a->steps,
                       hires ? "hires_steps" : "upsampled_num_inference_steps");
    if (!j->sampler->shares)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "%s cannot be used with the scheduler %s, which cannot add noise to "
                       "latents",
                       name, j->sampler->name);
    a->strength = strength;
    a->rounds_down = !hires; /* image-to-image rounds as for an image */
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
    return j->small && j->ctx->model.upsampler.upsampler && j->ctx->topo.replica->rank == 0;
}

/* The two neighbours of a position of the interpolated axis, and the share of the second one. */
typedef struct place {
    int64_t at[2];
    double  share;
} place;

static place place_of(int64_t i, int64_t to, int64_t from, int nearest)
{
    double scale = (double)from / (double)to, at = fmax(0, ((double)i + 0.5) * scale - 0.5);
    if (nearest) {
        int64_t k = xd_min(from - 1, (int64_t)((double)i * scale));
        return (place){ { k, k }, 0 };
    }
    int64_t k = xd_min(from - 1, (int64_t)at);
    return (place){ { k, xd_min(from - 1, k + 1) }, at - (double)k };
}

/* Interpolates planes of latents to another size on the host, as PyTorch's interpolate does without
 * antialiasing and align_corners, which A1111's upscaler "Latent" calls. */
static void interpolate(const xd_job *j, const float *small, float *out)
{
    const char   *how = j->r->hires.upscaler;
    const xd_job *from = j->small;
    int           nearest = how && strcmp(how, "nearest") == 0;
    int64_t       s[2] = { from->cells[1], from->cells[2] }, d[2] = { j->cells[1], j->cells[2] };
    int64_t       planes = j->numbers / (d[0] * d[1]);
    for (int64_t k = 0; k < planes * d[0]; k++) {
        const float *plane = small + k / d[0] * s[0] * s[1];
        for (int64_t x = 0; x < d[1]; x++) {
            place  r = place_of(k % d[0], d[0], s[0], nearest);
            place  c = place_of(x, d[1], s[1], nearest);
            double up = (1 - c.share) * plane[r.at[0] * s[1] + c.at[0]] +
                        c.share * plane[r.at[0] * s[1] + c.at[1]];
            double down = (1 - c.share) * plane[r.at[1] * s[1] + c.at[0]] +
                          c.share * plane[r.at[1] * s[1] + c.at[1]];
            out[k * d[1] + x] = (float)((1 - r.share) * up + r.share * down);
        }
    }
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
    if (xd_job_hires(j->r)) {
        interpolate(j, small, out);
        return XD_OK;
    }
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
