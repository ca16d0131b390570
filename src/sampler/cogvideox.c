/* cogvideox.c - implements the two samplers of CogVideoX (Yang et al. 2024, arXiv:2408.06072),
 * which are diffusers' CogVideoXDDIMScheduler and CogVideoXDPMScheduler.
 *
 * Both samplers use noise levels with a shifted signal-to-noise ratio. The first sampler is DDIM
 * with eta 0. The second sampler is DPM-Solver++ 2M with noise (Lu et al. 2022, arXiv:2211.01095);
 * the previous prediction of the clean latents is its history. clip_sample is read but not used, as
 * in diffusers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/op.h"
#include "sampler/schedule.h"

typedef struct level {
    double acp, prev; /* cumulative alpha product at this step, and at the next step */
    int    last;      /* 1: this is the request's last timestep */
} level;

static int no_history(const xd_sched_cfg *c)
{
    (void)c;
    return 0;
}

static int one_history(const xd_sched_cfg *c)
{
    (void)c;
    return 1;
}

static xd_status level_at(level *v, const xd_levels *l, const xd_sched_cfg *c, int t, int steps,
                          xd_err *e)
{
    int to = t - c->num_train_timesteps / steps;
    if (t >= l->n)
        return xd_fail(e, XD_EFORMAT, "the scheduler's steps_offset %d gives timestep %d of %d",
                       c->steps_offset, t, l->n);
    v->acp = l->acp[t < 0 ? l->n + t : t]; /* index -1 is the last element */
    v->last = to < 0;
    v->prev = to >= 0 ? l->acp[to] : c->set_alpha_to_one ? 1 : l->acp[0];
    if (!(v->acp >= 0 && v->acp < 1))
        return xd_fail(e, XD_EFORMAT,
                       "the scheduler's betas give timestep %d an alphas_cumprod "
                       "of %g; it must be from 0 to below 1",
                       t, v->acp);
    return xd_signal_check(c, t, v->acp, e);
}

static xd_status cog_open(xd_sampling *s, const xd_sched_cfg *c, const xd_steps *a, xd_err *e)
{
    size_t    room = (size_t)a->steps + 1;
    xd_levels l = { 0 };
    xd_status st = xd_prediction_check(c, e);
    if (st == XD_OK)
        st = xd_spacing_check(c, e);
    if (st == XD_OK)
        st = xd_levels_shifted(&l, c, e);
    level *v = s->priv = calloc(room, sizeof *v);
    s->time = calloc(room, sizeof *s->time);
    s->in_scale = calloc(room, sizeof *s->in_scale);
    if (st == XD_OK && (!v || !s->time || !s->in_scale))
        st = xd_fail(e, XD_ENOMEM, "no memory for a schedule of %d steps", a->steps);
    if (st == XD_OK)
        s->steps = xd_timesteps(c, a->steps, s->time);
    for (int i = 0; st == XD_OK && i < s->steps; i++) {
        s->in_scale[i] = 1;
        st = level_at(v + i, &l, c, (int)s->time[i], a->steps, e);
    }
    xd_levels_close(&l);
    return st;
}

static void cog_close(xd_sampling *s)
{
    free(s->priv);
}

static void cog_clean(xd_exec *x, const xd_sampling *s, int step, xd_tensor lat, xd_tensor pred)
{
    xd_to_clean(x, &s->cfg, ((const level *)s->priv)[step].acp, lat, pred);
}

static void ddim_step(xd_exec *x, xd_sampling *s, int step, xd_tensor lat, xd_tensor pred,
                      const xd_tensor *hist, xd_tensor noise)
{
    level  v = ((const level *)s->priv)[step];
    double a = sqrt((1 - v.prev) / (1 - v.acp)), b = sqrt(v.prev) - sqrt(v.acp) * a;
    (void)hist, (void)noise;
    cog_clean(x, s, step, lat, pred);
    xd_axpby(x, lat, (float)b, pred, (float)a);
}

/* ---- DPM ---------------------------------------------------------------------------------- */

/* Returns 1 if a step has order 2. The first step and the last step have order 1, because the first
 * step has no earlier prediction, and the last step has no later noise level; diffusers draws noise
 * once in the first and in the last step. In other steps, diffusers draws noise twice: first for a
 * step of order 1, which is not used, then for the step of order 2. */
static int is_second_order(const xd_sampling *s, int step)
{
    return step > 0 && !((const level *)s->priv)[step].last;
}

static int count_draws(const xd_sampling *s, int step)
{
    return is_second_order(s, step) ? 2 : 1;
}

/* Returns half the logarithm of the signal-to-noise ratio; the result is infinite if signal or
 * noise is 0. */
static double half_log_snr(double acp)
{
    return 0.5 * log(acp / (1 - acp));
}

/* Computes the factors of a step. With the current latents x and the predicted clean latents x0,
 * the next latents are cx * x + f[0] * x0 + f[1] * (x0 of the previous step) + f[2] * noise.
 * Returns cx, the factor of the current latents x. */
static double step_factors(const xd_sampling *s, int step, double f[3])
{
    const level *v = (const level *)s->priv + step;
    double       now = half_log_snr(v->acp), h = half_log_snr(v->prev) - now;
    f[0] = -expm1(-2 * h) * sqrt(v->prev);
    f[1] = 0;
    f[2] = sqrt(1 - v->prev) * sqrt(-expm1(-2 * h));
    if (is_second_order(s, step)) {
        double r = (now - half_log_snr(v[-1].acp)) / h, slope = 1 / (2 * r); /* r may be inf or 0 */
        f[1] = isfinite(slope) ? -f[0] * slope : 0;
        f[0] -= f[1];
    }
    return sqrt((1 - v->prev) / (1 - v->acp)) * exp(-h);
}

static void dpm_step(xd_exec *x, xd_sampling *s, int step, xd_tensor lat, xd_tensor pred,
                     const xd_tensor *hist, xd_tensor noise)
{
    double f[3], cx = step_factors(s, step, f);
    xd_noise_check(x, s, step, noise);
    cog_clean(x, s, step, lat, pred);
    xd_axpby(x, lat, (float)f[0], pred, (float)cx);
    if (is_second_order(s, step))
        xd_axpby(x, lat, (float)f[1], hist[0], 1);
    xd_copy_to(x, hist[0], pred);
    xd_axpby(x, lat, (float)f[2], noise, 1);
}

static const xd_field fields[] = {
    XD_SCHED(num_train_timesteps, 'i', 1000, NULL),
    XD_SCHED(beta_start, 'd', 0.00085, NULL),
    XD_SCHED(beta_end, 'd', 0.012, NULL),
    XD_SCHED(beta_schedule, 's', 0, "scaled_linear"),
    XD_SCHED(clip_sample, 'b', 1, NULL),
    XD_SCHED(set_alpha_to_one, 'b', 1, NULL),
    XD_SCHED(steps_offset, 'i', 0, NULL),
    XD_SCHED(prediction_type, 's', 0, "epsilon"),
    XD_SCHED(clip_sample_range, 'd', 1, NULL),
    XD_SCHED(sample_max_value, 'd', 1, NULL),
    XD_SCHED(timestep_spacing, 's', 0, "leading"),
    XD_SCHED(rescale_betas_zero_snr, 'b', 0, NULL),
    XD_SCHED(snr_shift_scale, 'd', 3, NULL),
    { NULL, 0, 0, 0, NULL },
};

extern const xd_sampler xd_sampler_cogvideox_ddim, xd_sampler_cogvideox_dpm;

const xd_sampler xd_sampler_cogvideox_ddim = {
    .name = "cogvideox-ddim",
    .webui = "DDIM",
    .classes = { "CogVideoXDDIMScheduler" },
    .fields = fields,
    .history = no_history,
    .open = cog_open,
    .close = cog_close,
    .step = ddim_step,
    .clean = cog_clean,
};
const xd_sampler xd_sampler_cogvideox_dpm = {
    .name = "cogvideox-dpm",
    .webui = "DPM++ 2M SDE",
    .classes = { "CogVideoXDPMScheduler" },
    .fields = fields,
    .history = one_history,
    .open = cog_open,
    .close = cog_close,
    .draws = count_draws,
    .step = dpm_step,
    .clean = cog_clean,
};
