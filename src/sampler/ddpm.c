/* ddpm.c - implements ancestral sampling (Ho et al. 2020, arXiv:2006.11239) like diffusers'
 * DDPMScheduler.
 *
 * A step computes the latents at the next timestep of the list, and adds noise with the variance of
 * the true posterior. The last step computes clean latents. The coefficients of a step are f32, as
 * in diffusers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/op.h"
#include "sampler/schedule.h"

typedef struct level {
    double acp; /* cumulative alpha product at this step */
    /* The next latents are a sum of three terms; these are the factors of the predicted clean
     * latents, of the current latents and of the noise. */
    float  x0, lat, noise;
} level;

static int history_length(const xd_sched_cfg *c)
{
    (void)c;
    return 0;
}

/* Checks the config's variance_type. The value fixed_small_log is accepted, because its variances
 * are those of fixed_small, only computed by another formula in diffusers. The value
 * fixed_large_log is refused, because diffusers takes the square root of a logarithm that is
 * negative. Learned variances are refused, because no supported model predicts them. */
static xd_status check_config(const xd_sched_cfg *c, xd_err *e)
{
    const char *v = c->variance_type;
    xd_status   s = xd_prediction_check(c, e);
    if (s == XD_OK)
        s = xd_spacing_check(c, e);
    if (s == XD_OK)
        s = xd_refuse(strcmp(v, "fixed_small") && strcmp(v, "fixed_small_log") &&
                          strcmp(v, "fixed_large"),
                      "variance_type", v, e);
    return s == XD_OK ? xd_refuse(c->thresholding, "thresholding", "true", e) : s;
}

/* Computes the coefficients of a step from the cumulative alpha product `acp` to the product
 * `prev`, by formulas (6) and (7) of the paper. */
static level level_of(const xd_sched_cfg *c, double acp, double prev, int t)
{
    float at = (float)acp, ap = (float)prev, alpha = at / ap, beta = 1 - alpha;
    float variance = strcmp(c->variance_type, "fixed_large") ? (1 - ap) / (1 - at) * beta : beta;
    return (level){ acp, sqrtf(ap) * beta / (1 - at), sqrtf(alpha) * (1 - ap) / (1 - at),
                    t > 0 ? sqrtf(fmaxf(variance, 1e-20f)) : 0 };
}

static xd_status fill_steps(xd_sampling *s, const xd_levels *l, const xd_steps *a, xd_err *e)
{
    const xd_sched_cfg *c = &s->cfg;
    level              *v = s->priv;
    for (int i = 0; i < s->steps; i++) {
        int t = (int)s->time[i], to = i + 1 < s->steps ? (int)s->time[i + 1] : -1;
        if (t >= l->n)
            return xd_fail(e, XD_EFORMAT,
                           "the scheduler's steps_offset %d gives timestep %d "
                           "of %d",
                           c->steps_offset, t, l->n);
        s->in_scale[i] = 1;
        double acp = l->acp[t < 0 ? l->n + t : t]; /* index -1 is the last element */
        v[i] = level_of(c, acp, to >= 0 ? l->acp[to] : 1, t);
        if (a->leap && s->steps == 1)
            v[i] = (level){ acp, 1, 0, 0 };
        if (xd_signal_check(c, t, acp, e) != XD_OK)
            return XD_EFORMAT;
    }
    return XD_OK;
}

static xd_status ddpm_open(xd_sampling *s, const xd_sched_cfg *c, const xd_steps *a, xd_err *e)
{
    size_t    n = (size_t)a->steps + 1;
    xd_levels l = { 0 };
    xd_status st = check_config(c, e);
    if (st == XD_OK)
        st = xd_levels_open(&l, c, 0, e);
    s->priv = calloc(n, sizeof(level));
    s->time = calloc(n, sizeof *s->time);
    s->in_scale = calloc(n, sizeof *s->in_scale);
    if (st == XD_OK && (!s->priv || !s->time || !s->in_scale))
        st = xd_fail(e, XD_ENOMEM, "no memory for a schedule of %d steps", a->steps);
    if (st == XD_OK) {
        s->steps = a->times ? a->steps : xd_timesteps(c, a->steps, s->time);
        if (a->times)
            memcpy(s->time, a->times, (size_t)s->steps * sizeof *s->time);
        st = fill_steps(s, &l, a, e);
    }
    if (st == XD_OK)
        xd_skip_steps(s, a, s->priv, sizeof(level), 0);
    xd_levels_close(&l);
    return st;
}

static void ddpm_shares(const xd_sampling *s, int step, double of[2])
{
    xd_acp_shares(step < s->steps ? ((const level *)s->priv)[step].acp : 1, of);
}

static void ddpm_close(xd_sampling *s)
{
    free(s->priv);
}

static int count_draws(const xd_sampling *s, int step)
{
    return s->time[step] > 0;
}

static void ddpm_clean(xd_exec *x, const xd_sampling *s, int step, xd_tensor lat, xd_tensor pred)
{
    xd_to_clipped(x, &s->cfg, ((const level *)s->priv)[step].acp, lat, pred);
}

static void ddpm_step(xd_exec *x, xd_sampling *s, int step, xd_tensor lat, xd_tensor pred,
                      const xd_tensor *hist, xd_tensor noise)
{
    const level *v = (const level *)s->priv + step;
    (void)hist;
    if (count_draws(s, step))
        xd_noise_check(x, s, step, noise);
    ddpm_clean(x, s, step, lat, pred);
    xd_axpby(x, lat, v->x0, pred, v->lat);
    if (v->noise > 0)
        xd_axpby(x, lat, v->noise, noise, 1);
}

static const xd_field fields[] = {
    XD_SCHED_BETAS,
    XD_SCHED_THRESHOLDS,
    XD_SCHED(variance_type, 's', 0, "fixed_small"),
    XD_SCHED(clip_sample, 'b', 1, NULL),
    XD_SCHED(clip_sample_range, 'd', 1, NULL),
    XD_SCHED(prediction_type, 's', 0, "epsilon"),
    XD_SCHED(timestep_spacing, 's', 0, "leading"),
    XD_SCHED(steps_offset, 'i', 0, NULL),
    XD_SCHED(rescale_betas_zero_snr, 'b', 0, NULL),
    { NULL, 0, 0, 0, NULL },
};

extern const xd_sampler xd_sampler_ddpm;

const xd_sampler xd_sampler_ddpm = {
    .name = "ddpm",
    .webui = "DDPM",
    .classes = { "DDPMScheduler" },
    .fields = fields,
    .history = history_length,
    .open = ddpm_open,
    .close = ddpm_close,
    .draws = count_draws,
    .step = ddpm_step,
    .shares = ddpm_shares,
    .clean = ddpm_clean,
    .takes = XD_TAKES_TIMES,
};
