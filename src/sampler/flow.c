/* flow.c - makes Euler steps along the straight paths of rectified flow (Liu et al. 2022,
 * arXiv:2209.03003) like diffusers' FlowMatchEulerDiscreteScheduler.
 *
 * The noise level sigma decreases from 1 to 0; the network reads the noise level as its timestep.
 * With dynamic shifting, larger images spend more steps at high noise (Esser et al. 2024,
 * arXiv:2403.03206, 5.3.2). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/op.h"
#include "sampler/schedule.h"

static int history_length(const xd_sched_cfg *c)
{
    (void)c;
    return 0;
}

static xd_status check_config(const xd_sched_cfg *c, int steps, xd_err *e)
{
    const char *t = c->time_shift_type;
    xd_status   s =
        xd_refuse(strcmp(t, "exponential") && strcmp(t, "linear"), "time_shift_type", t, e);
    if (s == XD_OK)
        s = xd_respacing_check(c, e);
    if (s == XD_OK && !(c->shift > 0 && c->shift < 1e6))
        s = xd_fail(e, XD_EFORMAT, "the scheduler's shift is %g; it must be above 0", c->shift);
    if (s == XD_OK)
        s = xd_shift_check(c, e);
    if (s == XD_OK && !(c->shift_terminal >= 0 && c->shift_terminal < 1))
        s = xd_fail(e, XD_EFORMAT, "the scheduler's shift_terminal is %g; it must be from 0 to 1",
                    c->shift_terminal);
    if (s == XD_OK && c->shift_terminal > 0 && steps < 2)
        s = xd_fail(e, XD_EINVAL,
                    "one step cannot be combined with the scheduler's "
                    "shift_terminal, %g: num_inference_steps must be at least 2",
                    c->shift_terminal);
    return s;
}

static double shift_sigma(double shift, double sigma)
{
    return shift * sigma / (1 + (shift - 1) * sigma);
}

/* Rounds a noise level that a pipeline passes to f32, because diffusers stores these levels in f32
 * and computes with them in f32. */
static double round_level(const xd_steps *a, double v)
{
    return a->own_sigmas || a->sigmas || a->times ? (double)(float)v : v;
}

/* Computes linear-quadratic noise levels (xd_steps.threshold_noise) like the pipelines of diffusers
 * that have a linear_quadratic_schedule. The parabola begins at the end of the line with the line's
 * slope, and would reach 0 after the last step. A single step, for which diffusers' formula divides
 * by zero, begins at 1. */
static void quadratic_levels(const xd_steps *a, double *sigma)
{
    int    half = a->steps / 2;
    double n = a->steps, linear = half > 0 ? half : 1, rest = n - linear, t = a->threshold_noise;
    double excess = linear - t * n, square = excess / (linear * rest * rest);
    double slope = t / linear - 2 * excess / (rest * rest);
    sigma[0] = 1;
    for (int i = 1; i < a->steps; i++) {
        double v = i < linear ? i * t / linear
                              : square * i * i + slope * i + square * linear * linear;
        sigma[i] = (float)(1 - v);
    }
}

/* Computes n noise levels, largest first, before they are shifted: 1 .. 1/n, or evenly spaced in
 * the range of the training levels. */
static void unshifted_levels(const xd_sched_cfg *c, const xd_steps *a, double *sigma)
{
    double N = c->num_train_timesteps, max = 1, min = 1 / N;
    if (!c->use_dynamic_shifting)
        max = (float)shift_sigma(c->shift, max), min = (float)shift_sigma(c->shift, (float)min);
    for (int i = 0; (a->sigmas || a->times) && i < a->steps; i++)
        sigma[i] = (float)(a->sigmas ? a->sigmas[i] : (float)a->times[i] / (float)N);
    if (a->sigmas || a->times)
        return;
    if (a->own_sigmas && a->threshold_noise > 0) {
        quadratic_levels(a, sigma);
        return;
    }
    if (a->own_sigmas)
        max = 1, min = 1.0 / a->steps;
    for (int i = 0; i < a->steps; i++) {
        double v = a->steps > 1 ? max + (min - max) * i / (a->steps - 1) : max;
        sigma[i] = round_level(a, v);
    }
}

static double shift_one(const xd_sched_cfg *c, const xd_steps *a, double k, double v)
{
    if (!c->use_dynamic_shifting)
        return round_level(a, round_level(a, c->shift * v) /
                                  round_level(a, 1 + round_level(a, (c->shift - 1) * v)));
    return round_level(a, k / round_level(a, k + round_level(a, round_level(a, 1 / v) - 1)));
}

static void shifted_levels(const xd_sched_cfg *c, const xd_steps *a, double *sigma)
{
    int    n = a->steps, linear = strcmp(c->time_shift_type, "linear") == 0;
    double mu = a->mu ? a->mu(a->tokens, n) : xd_shift_of(c, a->tokens);
    double k = round_level(a, linear ? mu : exp(mu));
    unshifted_levels(c, a, sigma);
    for (int i = 0; i < n; i++)
        sigma[i] = shift_one(c, a, k, sigma[i]);
    if (c->shift_terminal > 0) {
        double scale = round_level(a, round_level(a, 1 - sigma[n - 1]) /
                                          round_level(a, 1 - c->shift_terminal));
        for (int i = 0; i < n; i++)
            sigma[i] = round_level(a, 1 - round_level(a, round_level(a, 1 - sigma[i]) / scale));
    }
    double max = sigma[0], min = sigma[n - 1];
    if (xd_is_respaced(c))
        xd_sigmas_respaced(c, max, min, n, sigma);
}

xd_status xd_flow_open(xd_sampling *s, const xd_sched_cfg *c, const xd_steps *a, xd_err *e)
{
    int       n = a->steps, skip = xd_steps_skipped(a, 1);
    double   *sigma = s->priv = calloc((size_t)n + 1, sizeof *sigma);
    xd_status st = check_config(c, n, e);
    s->time = calloc((size_t)n, sizeof *s->time);
    s->in_scale = calloc((size_t)n, sizeof *s->in_scale);
    if (st == XD_OK && (!sigma || !s->time || !s->in_scale))
        st = xd_fail(e, XD_ENOMEM, "no memory for a schedule of %d steps", n);
    if (st != XD_OK)
        return st;
    shifted_levels(c, a, sigma);
    s->steps = n - skip;
    memmove(sigma, sigma + skip, (size_t)(n + 1 - skip) * sizeof *sigma);
    for (int i = 0; i <= s->steps && c->invert_sigmas; i++)
        sigma[i] = 1 - (float)sigma[i];
    for (int i = 0; i < s->steps; i++) {
        sigma[i] = (float)sigma[i];
        s->time[i] = a->times && !c->invert_sigmas
                         ? (float)a->times[i + skip]
                         : (float)sigma[i] * (float)c->num_train_timesteps;
        s->in_scale[i] = 1;
    }
    return XD_OK;
}

void xd_flow_shares(const xd_sampling *s, int step, double of[2])
{
    const double *sigma = s->priv;
    float         noise = (float)sigma[step];
    of[0] = 1 - noise, of[1] = noise;
}

void xd_flow_clean(xd_exec *x, const xd_sampling *s, int step, xd_tensor lat, xd_tensor pred)
{
    float level = (float)((const double *)s->priv)[step];
    xd_axpby(x, pred, 1, lat, s->cfg.invert_sigmas ? 1 - level : -level);
}

void xd_flow_close(xd_sampling *s)
{
    free(s->priv);
}

static int count_draws(const xd_sampling *s, int step)
{
    (void)step;
    return s->cfg.stochastic_sampling;
}

/* Makes an Euler step or, if stochastic_sampling is set, replaces the latents by the predicted
 * clean latents plus new noise. */
static void flow_step(xd_exec *x, xd_sampling *s, int step, xd_tensor lat, xd_tensor pred,
                      const xd_tensor *hist, xd_tensor noise)
{
    const double *sigma = s->priv;
    float         now = (float)sigma[step], next = (float)sigma[step + 1];
    (void)hist;
    if (!s->cfg.stochastic_sampling) {
        xd_axpby(x, lat, next - now, pred, 1);
        return;
    }
    xd_noise_check(x, s, step, noise);
    xd_axpby(x, lat, -now, pred, 1);
    if (next > 0)
        xd_axpby(x, lat, next, noise, 1 - next);
}

/* Opens FlowMatchLCMScheduler, whose steps are always stochastic. */
static xd_status lcm_open(xd_sampling *s, const xd_sched_cfg *c, const xd_steps *a, xd_err *e)
{
    s->cfg.stochastic_sampling = 1;
    return xd_flow_open(s, c, a, e);
}

static const xd_field fields[] = {
    XD_SCHED_SIGMAS,
    XD_SCHED_FLOW,
    XD_SCHED(invert_sigmas, 'b', 0, NULL),
    XD_SCHED(shift_terminal, 'd', 0, NULL),
    XD_SCHED(stochastic_sampling, 'b', 0, NULL),
    { NULL, 0, 0, 0, NULL },
};

extern const xd_sampler xd_sampler_flow, xd_sampler_flow_lcm;

const xd_sampler xd_sampler_flow_lcm = {
    .name = "flow-lcm",
    .webui = "LCM",
    .classes = { "FlowMatchLCMScheduler" },
    .fields = fields,
    .history = history_length,
    .open = lcm_open,
    .close = xd_flow_close,
    .draws = count_draws,
    .step = flow_step,
    .shares = xd_flow_shares,
    .clean = xd_flow_clean,
    .flow = 1,
    .takes = XD_TAKES_SIGMAS | XD_TAKES_TIMES,
};
const xd_sampler xd_sampler_flow = {
    .name = "flow-euler",
    .webui = "Euler",
    .classes = { "FlowMatchEulerDiscreteScheduler" },
    .fields = fields,
    .history = history_length,
    .open = xd_flow_open,
    .close = xd_flow_close,
    .draws = count_draws,
    .step = flow_step,
    .shares = xd_flow_shares,
    .clean = xd_flow_clean,
    .flow = 1,
    .takes = XD_TAKES_SIGMAS | XD_TAKES_TIMES,
};
