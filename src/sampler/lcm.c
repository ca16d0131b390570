/* lcm.c - implements two samplers of models that are distilled for few steps: that of latent
 * consistency models (Luo et al. 2023, arXiv:2310.04378), as in diffusers' LCMScheduler, and that
 * of trajectory consistency models (Zheng et al. 2024, arXiv:2402.19159), as in diffusers'
 * TCDScheduler.
 *
 * Both samplers choose their timesteps among the timesteps of the distillation
 * (original_inference_steps), and add new noise between steps. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/op.h"
#include "sampler/schedule.h"

typedef struct level {
    double acp; /* cumulative alpha product at this step */
    /* LCM: factors of the clean latents and of the latents before the step, which meet the boundary
     * condition of consistency models. */
    double clean, lat;
    /* TCD: cumulative alpha product at the timestep to which the step's prediction leads. */
    double to;
    double next; /* cumulative alpha product at the next step */
} level;

static int history_length(const xd_sched_cfg *c)
{
    (void)c;
    return 0;
}

static xd_status check_config(const xd_sched_cfg *c, int steps, int given, xd_err *e)
{
    int       most = c->original_inference_steps;
    xd_status s = xd_prediction_check(c, e);
    if (s == XD_OK && (most < 1 || most > c->num_train_timesteps))
        s = xd_fail(e, XD_EFORMAT,
                    "the scheduler's original_inference_steps is %d; it must be "
                    "from 1 to %d",
                    most, c->num_train_timesteps);
    if (s == XD_OK && !given && steps > most)
        s = xd_fail(e, XD_EINVAL,
                    "num_inference_steps is %d; it must be at most the scheduler's "
                    "original_inference_steps, %d",
                    steps, most);
    return s;
}

/* Chooses n timesteps among those that the distillation used. The chosen timesteps are sorted,
 * largest first. */
static void make_timesteps(const xd_sched_cfg *c, int n, double *t)
{
    int    most = c->original_inference_steps;
    double step = (double)most / n;
    for (int i = 0; i < n; i++)
        t[i] = (most - floor(i * step)) * (c->num_train_timesteps / most) - 1;
}

/* Opens the schedule, and sets all fields of the levels except `clean`, `lat` and `to`. */
static xd_status open_levels(xd_sampling *s, xd_levels *l, const xd_steps *a, xd_err *e)
{
    const xd_sched_cfg *c = &s->cfg;
    xd_status           st = check_config(c, a->steps, a->times != NULL, e);
    if (st == XD_OK)
        st = xd_levels_open(l, c, 0, e);
    level *v = s->priv = calloc((size_t)a->steps, sizeof *v);
    s->time = calloc((size_t)a->steps, sizeof *s->time);
    s->in_scale = calloc((size_t)a->steps, sizeof *s->in_scale);
    if (st == XD_OK && (!v || !s->time || !s->in_scale))
        st = xd_fail(e, XD_ENOMEM, "no memory for a schedule of %d steps", a->steps);
    if (st != XD_OK)
        return st;
    s->steps = a->steps;
    if (a->times)
        memcpy(s->time, a->times, (size_t)s->steps * sizeof *s->time);
    else
        make_timesteps(c, s->steps, s->time);
    for (int i = 0; i < s->steps && st == XD_OK; i++) {
        s->in_scale[i] = 1;
        v[i].acp = l->acp[(int)s->time[i]];
        v[i].next = i + 1 < s->steps ? l->acp[(int)s->time[i + 1]] : l->acp[0];
        st = xd_signal_check(c, (int)s->time[i], v[i].acp, e);
    }
    return st;
}

static void lcm_shares(const xd_sampling *s, int step, double of[2])
{
    xd_acp_shares(step < s->steps ? ((const level *)s->priv)[step].acp : 1, of);
}

static void lcm_close(xd_sampling *s)
{
    free(s->priv);
}

static void lcm_clean(xd_exec *x, const xd_sampling *s, int step, xd_tensor lat, xd_tensor pred)
{
    xd_to_clipped(x, &s->cfg, ((const level *)s->priv)[step].acp, lat, pred);
}

static int is_last(const xd_sampling *s, int step)
{
    return step == s->steps - 1;
}

static xd_status lcm_open(xd_sampling *s, const xd_sched_cfg *c, const xd_steps *a, xd_err *e)
{
    xd_levels l = { 0 };
    xd_status st = xd_refuse(c->thresholding, "thresholding", "true", e);
    if (st == XD_OK)
        st = open_levels(s, &l, a, e);
    level *v = s->priv;
    for (int i = 0; st == XD_OK && i < s->steps; i++) {
        double t = s->time[i] * c->timestep_scaling, q = t * t + 0.25;
        v[i].lat = 0.25 / q;
        v[i].clean = t / sqrt(q);
    }
    if (st == XD_OK)
        xd_skip_steps(s, a, v, sizeof *v, 0);
    xd_levels_close(&l);
    return st;
}

static int lcm_draws(const xd_sampling *s, int step)
{
    return !is_last(s, step);
}

static void lcm_step(xd_exec *x, xd_sampling *s, int step, xd_tensor lat, xd_tensor pred,
                     const xd_tensor *hist, xd_tensor noise)
{
    const level *v = (const level *)s->priv + step;
    (void)hist;
    lcm_clean(x, s, step, lat, pred);
    xd_axpby(x, lat, (float)v->clean, pred, (float)v->lat);
    if (is_last(s, step))
        return;
    xd_noise_check(x, s, step, noise);
    xd_axpby(x, lat, (float)sqrt(1 - v->next), noise, (float)sqrt(v->next));
}

/* ---- TCD ---------------------------------------------------------------------------------- */

/* Opens TCD. A step first computes the latents at the timestep (1 - eta) times the next timestep;
 * this product is computed in f32 as in diffusers. */
static xd_status tcd_open(xd_sampling *s, const xd_sched_cfg *c, const xd_steps *a, xd_err *e)
{
    xd_levels l = { 0 };
    xd_status st = xd_eta_check(c, e);
    if (st == XD_OK)
        st = open_levels(s, &l, a, e);
    level *v = s->priv;
    for (int i = 0; st == XD_OK && i < s->steps; i++) {
        float next = is_last(s, i) ? 0 : (float)s->time[i + 1];
        v[i].to = l.acp[(int)floorf((float)(1 - c->eta) * next)];
    }
    if (st == XD_OK)
        xd_skip_steps(s, a, v, sizeof *v, 0);
    xd_levels_close(&l);
    return st;
}

/* Computes the clean latents, which, as in diffusers, are not clipped. */
static void tcd_clean(xd_exec *x, const xd_sampling *s, int step, xd_tensor lat, xd_tensor pred)
{
    xd_to_clean(x, &s->cfg, ((const level *)s->priv)[step].acp, lat, pred);
}

static int tcd_draws(const xd_sampling *s, int step)
{
    return s->cfg.eta > 0 && !is_last(s, step);
}

static void tcd_step(xd_exec *x, xd_sampling *s, int step, xd_tensor lat, xd_tensor pred,
                     const xd_tensor *hist, xd_tensor noise)
{
    const level *v = (const level *)s->priv + step;
    double       now = sqrt((1 - v->to) / (1 - v->acp)); /* factor of the latents */
    (void)hist;
    tcd_clean(x, s, step, lat, pred);
    xd_axpby(x, lat, (float)(sqrt(v->to) - sqrt(v->acp) * now), pred, (float)now);
    if (!tcd_draws(s, step))
        return;
    double back = v->next / v->to;
    xd_noise_check(x, s, step, noise);
    xd_axpby(x, lat, (float)sqrt(1 - back), noise, (float)sqrt(back));
}

#define COMMON                                         \
    XD_SCHED(num_train_timesteps, 'i', 1000, NULL),    \
    XD_SCHED(beta_start, 'd', 0.00085, NULL),          \
    XD_SCHED(beta_end, 'd', 0.012, NULL),              \
    XD_SCHED(beta_schedule, 's', 0, "scaled_linear"),  \
    XD_SCHED(original_inference_steps, 'i', 50, NULL), \
    XD_SCHED(clip_sample, 'b', 0, NULL),               \
    XD_SCHED(clip_sample_range, 'd', 1, NULL),         \
    XD_SCHED(set_alpha_to_one, 'b', 1, NULL),          \
    XD_SCHED(steps_offset, 'i', 0, NULL),              \
    XD_SCHED(prediction_type, 's', 0, "epsilon"),      \
    XD_SCHED(timestep_spacing, 's', 0, "leading"),     \
    XD_SCHED(timestep_scaling, 'd', 10, NULL),         \
    XD_SCHED(rescale_betas_zero_snr, 'b', 0, NULL),    \
    XD_SCHED_THRESHOLDS

static const xd_field lcm_fields[] = { COMMON, { NULL, 0, 0, 0, NULL } };
/* Config keys of TCD. TCDScheduler's default eta is 0.3, but every pipeline passes its own eta,
 * whose default is 0. */
static const xd_field tcd_fields[] = { COMMON,
                                       XD_SCHED(eta, 'd', 0, NULL),
                                       { NULL, 0, 0, 0, NULL } };

extern const xd_sampler xd_sampler_lcm, xd_sampler_tcd;

const xd_sampler xd_sampler_lcm = {
    .name = "lcm",
    .webui = "LCM",
    .classes = { "LCMScheduler" },
    .fields = lcm_fields,
    .history = history_length,
    .open = lcm_open,
    .close = lcm_close,
    .draws = lcm_draws,
    .step = lcm_step,
    .shares = lcm_shares,
    .clean = lcm_clean,
    .takes = XD_TAKES_TIMES,
};
const xd_sampler xd_sampler_tcd = {
    .name = "tcd",
    .webui = "TCD",
    .classes = { "TCDScheduler" },
    .fields = tcd_fields,
    .history = history_length,
    .open = tcd_open,
    .close = lcm_close,
    .draws = tcd_draws,
    .step = tcd_step,
    .shares = lcm_shares,
    .clean = tcd_clean,
    .takes = XD_TAKES_TIMES,
};
