/* euler.c - implements two samplers that make Euler steps on noise levels (Karras et al. 2022,
 * arXiv:2206.00364, algorithm 2 without churn).
 *
 * The first sampler is diffusers' EulerDiscreteScheduler. The second sampler, diffusers'
 * EulerAncestralDiscreteScheduler, adds noise in every step. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/op.h"
#include "sampler/schedule.h"

typedef struct euler { double *sigma; /* [steps + 2] noise levels */ } euler;

static int history_length(const xd_sched_cfg *c)
{
    (void)c;
    return 0;
}

static xd_status check_config(const xd_sched_cfg *c, xd_err *e)
{
    const char *p = c->prediction_type, *i = c->interpolation_type;
    const char *f = c->final_sigmas_type, *t = c->timestep_type;
    int         known = !strcmp(p, "epsilon") || !strcmp(p, "sample") || !strcmp(p, "v_prediction");
    xd_status   s = xd_refuse(!known, "prediction_type", p, e);
    if (s == XD_OK)
        s = xd_spacing_check(c, e);
    if (s == XD_OK)
        s = xd_refuse(strcmp(t, "discrete") && strcmp(t, "continuous"), "timestep_type", t, e);
    if (s == XD_OK)
        s = xd_refuse(strcmp(i, "linear") && strcmp(i, "log_linear"), "interpolation_type", i, e);
    if (s == XD_OK)
        s = xd_refuse(strcmp(f, "zero") && strcmp(f, "sigma_min"), "final_sigmas_type", f, e);
    return s == XD_OK ? xd_respacing_check(c, e) : s;
}

/* Writes the timesteps of a request, largest first. With "linspace" spacing, timesteps may be
 * fractions. Returns the number of timesteps, at most n + 1. */
static int spaced_timesteps(const xd_sched_cfg *c, int n, double *t)
{
    if (strcmp(c->timestep_spacing, "linspace") != 0)
        return xd_timesteps(c, n, t);
    for (int i = 0; i < n; i++)
        t[i] = (float)xd_linspace(c->num_train_timesteps - 1, n, n - 1 - i);
    return n;
}

int xd_euler_levels(const xd_levels *l, const xd_sched_cfg *c, const xd_steps *a, double *time,
                    double *sigma, int *times)
{
    int n = a->steps, k = *times = a->times ? n : spaced_timesteps(c, n, time);
    for (int i = 0; i < n && a->times; i++)
        time[i] = a->times[i];
    for (int i = 0; i < n && a->sigmas; i++) {
        sigma[i] = (float)a->sigmas[i];
        time[i] = xd_level_time(l, sigma[i]);
    }
    if (a->sigmas)
        return *times = n;
    if (!strcmp(c->interpolation_type, "linear"))
        for (int i = 0; i < k; i++)
            sigma[i] = xd_level_sigma(l, time[i]);
    else
        xd_sigmas_exponential(l->sigma[l->n - 1], l->sigma[0], k = n + 1, sigma);
    if (!xd_is_respaced(c))
        return k;
    xd_sigmas_respaced(c, sigma[0], sigma[k - 1], n, sigma);
    for (int i = 0; i < n; i++)
        time[i] = xd_level_time(l, sigma[i]);
    return *times = n;
}

static void finish_schedule(xd_sampling *s, const xd_steps *a, int levels, double end,
                            double *sigma)
{
    const xd_sched_cfg *c = &s->cfg;
    double              max = 0;
    int                 continuous = !strcmp(c->timestep_type, "continuous") &&
                                     !strcmp(c->prediction_type, "v_prediction");
    sigma[levels] = strcmp(c->final_sigmas_type, "zero") ? end : 0;
    if (a->sigmas)
        sigma[levels] = a->sigmas[levels];
    if (continuous)
        /* Continuous timesteps are computed from the noise levels, so there is one timestep per
         * level. With log_linear interpolation, there is one more level. */
        s->steps = levels;
    if (a->leap && s->steps == 1)
        sigma[1] = 0;
    for (int i = 0; i <= levels; i++) {
        sigma[i] = (float)sigma[i];
        max = sigma[i] > max ? sigma[i] : max;
    }
    int plain = strcmp(c->timestep_spacing, "leading") != 0;
    s->init_scale = plain ? max : sqrt(max * max + 1);
    for (int i = 0; i < s->steps; i++) {
        s->in_scale[i] = 1 / sqrt(sigma[i] * sigma[i] + 1);
        s->time[i] = continuous ? 0.25 * log(sigma[i]) : (double)(float)s->time[i];
    }
}

static xd_status euler_open(xd_sampling *s, const xd_sched_cfg *c, const xd_steps *a, xd_err *e)
{
    int       steps = a->steps;
    xd_levels l = { 0 };
    euler    *d = s->priv = calloc(1, sizeof *d);
    xd_status st = check_config(c, e);
    if (st == XD_OK)
        st = xd_levels_open(&l, c, 5.9604644775390625e-8 /* 2^-24 */, e);
    s->time = calloc((size_t)steps + 2, sizeof *s->time);
    s->in_scale = calloc((size_t)steps + 2, sizeof *s->in_scale);
    if (d)
        d->sigma = calloc((size_t)steps + 3, sizeof *d->sigma);
    if (st == XD_OK && (!d || !d->sigma || !s->time || !s->in_scale))
        st = xd_fail(e, XD_ENOMEM, "no memory for a schedule of %d steps", steps);
    if (st == XD_OK) {
        int levels = xd_euler_levels(&l, c, a, s->time, d->sigma, &s->steps);
        finish_schedule(s, a, levels, l.sigma[0], d->sigma);
        xd_skip_steps(s, a, d->sigma, sizeof *d->sigma, levels + 1 - s->steps);
    }
    xd_levels_close(&l);
    return st;
}

/* Returns two factors: before a step, the latents are of[0] times the image plus of[1] times noise.
 * of[0] is 1 at every noise level. */
static void euler_shares(const xd_sampling *s, int step, double of[2])
{
    of[0] = 1, of[1] = step < s->steps ? ((const euler *)s->priv)->sigma[step] : 0;
}

static void euler_close(xd_sampling *s)
{
    euler *d = s->priv;
    if (d)
        free(d->sigma);
    free(d);
}

static void euler_clean(xd_exec *x, const xd_sampling *s, int step, xd_tensor lat, xd_tensor pred)
{
    xd_level_clean(x, &s->cfg, ((const euler *)s->priv)->sigma[step], lat, pred);
}

/* Makes an Euler step, x' = x + (x - x0) / sigma * (next - sigma), where x0 follows from the
 * prediction. */
static void euler_step(xd_exec *x, xd_sampling *s, int step, xd_tensor lat, xd_tensor pred,
                       const xd_tensor *hist, xd_tensor noise)
{
    (void)noise;
    const double *sig = ((const euler *)s->priv)->sigma;
    double        v = sig[step], d = sig[step + 1] - v, q = v * v + 1;
    const char   *type = s->cfg.prediction_type;
    (void)hist;
    if (!strcmp(type, "epsilon"))
        xd_axpby(x, lat, (float)d, pred, 1);
    else if (!strcmp(type, "v_prediction")) /* x0 = x / q - v / sqrt(q) pred */
        xd_axpby(x, lat, (float)(d / sqrt(q)), pred, (float)(1 + d * v / q));
    else
        xd_axpby(x, lat, (float)(-d / v), pred, (float)(1 + d / v));
}

/* ---- ancestral ---------------------------------------------------------------------------- */

static xd_status ancestral_open(xd_sampling *s, const xd_sched_cfg *c, const xd_steps *a, xd_err *e)
{
    (void)c;
    xd_status st =
        xd_refuse(!strcmp(s->cfg.prediction_type, "sample"), "prediction_type", "sample", e);
    strcpy(s->cfg.interpolation_type, "linear");
    strcpy(s->cfg.timestep_type, "discrete");
    strcpy(s->cfg.final_sigmas_type, "zero");
    s->cfg.sigma_min = s->cfg.sigma_max = NAN;
    return st == XD_OK ? euler_open(s, &s->cfg, a, e) : st;
}

static int ancestral_draws(const xd_sampling *s, int step)
{
    (void)s, (void)step;
    return 1;
}

/* Makes an ancestral step: an Euler step to a noise level below the next one, after which noise is
 * added up to the next level. */
static void ancestral_step(xd_exec *x, xd_sampling *s, int step, xd_tensor lat, xd_tensor pred,
                           const xd_tensor *hist, xd_tensor noise)
{
    const double *sig = ((const euler *)s->priv)->sigma;
    double        v = sig[step], to = sig[step + 1];
    double        up = sqrt(to * to * (v * v - to * to) / (v * v)), d = sqrt(to * to - up * up) - v;
    (void)hist;
    xd_noise_check(x, s, step, noise);
    if (!strcmp(s->cfg.prediction_type, "epsilon"))
        xd_axpby(x, lat, (float)d, pred, 1);
    else
        xd_axpby(x, lat, (float)(d / sqrt(v * v + 1)), pred, (float)(1 + d * v / (v * v + 1)));
    if (up > 0)
        xd_axpby(x, lat, (float)up, noise, 1);
}

static const xd_field fields[] = {
    XD_SCHED_BETAS,
    XD_SCHED_SIGMAS,
    XD_SCHED(prediction_type, 's', 0, "epsilon"),
    XD_SCHED(interpolation_type, 's', 0, "linear"),
    XD_SCHED(timestep_spacing, 's', 0, "linspace"),
    XD_SCHED(timestep_type, 's', 0, "discrete"),
    XD_SCHED(steps_offset, 'i', 0, NULL),
    XD_SCHED(rescale_betas_zero_snr, 'b', 0, NULL),
    XD_SCHED(final_sigmas_type, 's', 0, "zero"),
    { NULL, 0, 0, 0, NULL },
};

static const xd_field ancestral_fields[] = {
    XD_SCHED_BETAS,
    XD_SCHED(prediction_type, 's', 0, "epsilon"),
    XD_SCHED(timestep_spacing, 's', 0, "linspace"),
    XD_SCHED(steps_offset, 'i', 0, NULL),
    XD_SCHED(rescale_betas_zero_snr, 'b', 0, NULL),
    { NULL, 0, 0, 0, NULL },
};

extern const xd_sampler xd_sampler_euler, xd_sampler_euler_ancestral;

const xd_sampler xd_sampler_euler_ancestral = {
    .name = "euler-ancestral",
    .webui = "Euler a",
    .classes = { "EulerAncestralDiscreteScheduler" },
    .fields = ancestral_fields,
    .history = history_length,
    .open = ancestral_open,
    .close = euler_close,
    .draws = ancestral_draws,
    .step = ancestral_step,
    .shares = euler_shares,
    .clean = euler_clean,
};
const xd_sampler xd_sampler_euler = {
    .name = "euler",
    .webui = "Euler",
    .classes = { "EulerDiscreteScheduler" },
    .fields = fields,
    .history = history_length,
    .open = euler_open,
    .close = euler_close,
    .step = euler_step,
    .shares = euler_shares,
    .clean = euler_clean,
    .takes = XD_TAKES_SIGMAS | XD_TAKES_TIMES,
    .last_sigma = 1,
};
