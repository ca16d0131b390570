/* scm.c - implements multistep consistency sampling of simplified consistency models (Lu and Song
 * 2024, arXiv:2410.11081) as in diffusers' SCMScheduler, with new noise in every step, for models
 * that were distilled from rectified flow as in Chen et al. 2025, arXiv:2503.09641.
 *
 * Latents are cos(t) times the clean latents plus sin(t) times noise, both multiplied by
 * sigma_data; t is an angle in radians. The network was trained for rectified flow: its timestep is
 * s = sin(t) / (sin(t) + cos(t)), its input the latents times r / sigma_data, with
 * r = sqrt(s^2 + (1-s)^2). The prediction v of the network becomes the velocity
 *   f = ((1-2s) input + (1-2s+2s^2) v) / r sigma_data,
 * from which the clean latents follow as cos(t) latents - sin(t) f. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/op.h"
#include "sampler/schedule.h"

static const double most_time = 1.57080, middle_time = 1.3; /* the pipeline's default timesteps */

/* The first level of a step, and the next level: factors of clean latents and noise. */
typedef struct level {
    double lat, pred;  /* clean latents = lat * latents + pred * prediction */
    double cos, noise; /* next latents = cos * clean latents + noise * noise */
} level;

static int history_length(const xd_sched_cfg *c)
{
    (void)c;
    return 0;
}

static xd_status check_config(const xd_sched_cfg *c, int steps, xd_err *e)
{
    xd_status s = xd_refuse(strcmp(c->prediction_type, "trigflow") != 0, "prediction_type",
                            c->prediction_type, e);
    if (s != XD_OK)
        return s;
    if (!(c->sigma_data > 0) || isinf(c->sigma_data))
        return xd_fail(e, XD_EFORMAT, "the scheduler's sigma_data is %g; it must be above 0",
                       c->sigma_data);
    double most = isnan(c->max_timesteps) ? most_time : c->max_timesteps;
    double middle = isnan(c->intermediate_timesteps) ? 0 : c->intermediate_timesteps;
    if (!(most > 0))
        return xd_fail(e, XD_EINVAL, "max_timesteps is %g; it must be above 0", most);
    if (middle > 0 && steps != 2)
        return xd_fail(e, XD_EINVAL,
                       "intermediate_timesteps is only for 2 steps, and num_inference_steps is %d",
                       steps);
    if (middle >= most)
        return xd_fail(e, XD_EINVAL,
                       "intermediate_timesteps is %g; it must be below max_timesteps, %g", middle,
                       most);
    return XD_OK;
}

/* Returns timestep i of n + 1, in f32 like diffusers: torch.linspace from the first timestep to
 * 0. */
static float time_at(const xd_sched_cfg *c, int n, int i)
{
    float  most = (float)(isnan(c->max_timesteps) ? most_time : c->max_timesteps);
    double middle = isnan(c->intermediate_timesteps) ? middle_time : c->intermediate_timesteps;
    if (n == 2 && middle > 0)
        return i == 0 ? most : i == 1 ? (float)middle : 0;
    float step = -most / (float)n;
    return i < (n + 1) / 2 ? most + step * (float)i : -step * (float)(n - i);
}

static xd_status scm_open(xd_sampling *s, const xd_sched_cfg *c, const xd_steps *a, xd_err *e)
{
    int       n = a->steps;
    xd_status st = check_config(c, n, e);
    level    *v = s->priv = calloc((size_t)n, sizeof *v);
    s->time = calloc((size_t)n, sizeof *s->time);
    s->in_scale = calloc((size_t)n, sizeof *s->in_scale);
    if (st == XD_OK && (!v || !s->time || !s->in_scale))
        st = xd_fail(e, XD_ENOMEM, "no memory for a schedule of %d steps", n);
    if (st != XD_OK)
        return st;
    s->steps = n;
    s->init_scale = c->sigma_data;
    for (int i = 0; i < n; i++) {
        const float now = time_at(c, n, i), next = time_at(c, n, i + 1);
        const float t = sinf(now) / (cosf(now) + sinf(now)), r = sqrtf(t * t + (1 - t) * (1 - t));
        s->time[i] = (double)t;
        s->in_scale[i] = (double)r / c->sigma_data;
        v[i].lat = (double)(cosf(now) - sinf(now) * (1 - 2 * t));
        v[i].pred = -(double)(sinf(now) * (1 - 2 * t + 2 * t * t) / r) * c->sigma_data;
        v[i].cos = (double)cosf(next);
        v[i].noise = (double)sinf(next) * c->sigma_data;
    }
    return XD_OK;
}

static void scm_close(xd_sampling *s)
{
    free(s->priv);
}

static int is_last(const xd_sampling *s, int step)
{
    return step == s->steps - 1;
}

/* Returns 1 for all steps but the last. Diffusers also draws noise in the last step, and multiplies
 * it by 0. */
static int scm_draws(const xd_sampling *s, int step)
{
    return !is_last(s, step);
}

/* Replaces the prediction by the clean latents times `by`. */
static void to_clean(xd_exec *x, const xd_sampling *s, int step, xd_tensor lat, xd_tensor pred,
                     double by)
{
    const level *v = (const level *)s->priv + step;
    xd_axpby(x, pred, (float)(v->lat * by), lat, (float)(v->pred * by));
}

static void scm_clean(xd_exec *x, const xd_sampling *s, int step, xd_tensor lat, xd_tensor pred)
{
    to_clean(x, s, step, lat, pred, 1 / s->cfg.sigma_data);
}

/* Computes the next latents. The last step ends at clean latents that are not multiplied by
 * sigma_data. */
static void scm_step(xd_exec *x, xd_sampling *s, int step, xd_tensor lat, xd_tensor pred,
                     const xd_tensor *hist, xd_tensor noise)
{
    const level *v = (const level *)s->priv + step;
    (void)hist;
    if (is_last(s, step)) {
        scm_clean(x, s, step, lat, pred);
        xd_copy_to(x, lat, pred);
        return;
    }
    to_clean(x, s, step, lat, pred, v->cos);
    xd_noise_check(x, s, step, noise);
    xd_copy_to(x, lat, pred);
    xd_axpby(x, lat, (float)v->noise, noise, 1);
}

static const xd_field fields[] = {
    XD_SCHED(num_train_timesteps, 'i', 1000, NULL),
    XD_SCHED(prediction_type, 's', 0, "trigflow"),
    XD_SCHED(sigma_data, 'd', 0.5, NULL),
    XD_SCHED(max_timesteps, 'd', NAN, NULL),
    XD_SCHED(intermediate_timesteps, 'd', NAN, NULL),
    { NULL, 0, 0, 0, NULL },
};

extern const xd_sampler xd_sampler_scm;

const xd_sampler xd_sampler_scm = {
    .name = "scm",
    .classes = { "SCMScheduler" },
    .fields = fields,
    .history = history_length,
    .open = scm_open,
    .close = scm_close,
    .draws = scm_draws,
    .step = scm_step,
    .clean = scm_clean,
};
