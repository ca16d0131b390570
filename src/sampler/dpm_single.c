/* dpm_single.c - implements the singlestep sampler DPM-Solver++ (Lu et al. 2022, arXiv:2211.01095,
 * algorithm 1) like diffusers' DPMSolverSinglestepScheduler. The order of a step is 1 to 3. Either
 * no step or every step adds noise.
 *
 * Sampling steps are divided into groups of 1 to solver_order steps. A step of order k starts again
 * from the latents at the start of its group, and uses the k predictions since the start of the
 * group. The history has solver_order arrays with predictions of the clean latents (the newest in
 * array step % order), and one more array with the latents at the start of the group. */
#include <math.h>
#include <string.h>

#include "exec/op.h"
#include "sampler/dpm.h"

enum { MOST = 3 }; /* max order of a step */

static int history_length(const xd_sched_cfg *c)
{
    return (c->solver_order < MOST ? c->solver_order : MOST) + 1;
}

static int count_draws(const xd_sampling *s, int step)
{
    (void)step;
    return xd_dpm_noisy(&s->cfg);
}

/* Opens the sampler for a request. The last steps have lower orders if the steps cannot be divided
 * into complete groups, or if the schedule ends at noise level 0. */
static xd_status single_open(xd_sampling *s, const xd_sched_cfg *c, const xd_steps *a, xd_err *e)
{
    strcpy(s->cfg.timestep_spacing, "linspace");
    xd_status st = xd_dpm_open(s, a, 1, e);
    int       whole = s->steps + s->skipped;
    if (st == XD_OK && (whole % c->solver_order || !strcmp(c->final_sigmas_type, "zero")))
        s->cfg.lower_order_final = 1;
    return st;
}

static int order_of(const xd_sampling *s, int step)
{
    const xd_sched_cfg *c = &s->cfg;
    int                 whole = s->steps + s->skipped, last = s->steps - step == 1;
    int                 order = (step + s->skipped) % c->solver_order + 1;
    if (last && !strcmp(c->final_sigmas_type, "zero"))
        return 1;
    if (last && c->lower_order_final && c->solver_order > 1 && whole % c->solver_order == 0)
        return 1;
    return step + 1 < order ? step + 1 : order; /* the first group may have fewer steps */
}

/* The factors of a step's linear combination: the factor of the latents, the factors of the latest
 * predictions (newest first), and the factor of the noise. */
typedef struct factors { double lat, m[MOST], noise; } factors;

/* Adds the terms of the predictions' slopes since the start of the group to the factors. The array
 * r has the times of the predictions, as fractions of the step. */
static void add_slopes(factors *f, const xd_sched_cfg *c, xd_slopes v, int order, const double *r)
{
    if (order == 2) { /* the slope is that between m0 and m1 */
        f->m[0] = v.first / r[0];
        f->m[1] -= f->m[0];
        return;
    }
    /* d0 is the factor of (m0 - m2) / r[0], and d1 is the factor of (m1 - m2) / r[1]. */
    double d0 = v.first, d1 = 0;
    if (!strcmp(c->solver_type, "heun")) {
        d0 = (2 * v.second - r[1] * v.first) / (r[0] - r[1]);
        d1 = (r[0] * v.first - 2 * v.second) / (r[0] - r[1]);
    }
    f->m[0] = d0 / r[0];
    f->m[1] = d1 / r[1];
    f->m[2] -= f->m[0] + f->m[1];
}

static factors step_factors(const xd_sampling *s, int step, int order)
{
    xd_point t = xd_dpm_point(s, step + 1), s0 = xd_dpm_point(s, step + 1 - order);
    double   h = t.lambda - s0.lambda, r[2] = { 0 };
    int      noisy = xd_dpm_noisy(&s->cfg);
    factors  f = { .lat = 1 };
    if (h == 0)
        return f;
    for (int i = 0; i < order - 1; i++)
        r[i] = (xd_dpm_point(s, step - i).lambda - s0.lambda) / h;
    xd_slopes v = xd_dpm_slopes(&s->cfg, t.alpha, h, order);
    f.lat = t.sigma / s0.sigma * (noisy ? exp(-h) : 1);
    f.noise = noisy ? t.sigma * sqrt(1 - exp(-2 * h)) : 0;
    f.m[order - 1] = v.m;
    if (order == 2 ? r[0] > 0 : order == 3 && r[1] > 0 && r[0] > r[1])
        add_slopes(&f, &s->cfg, v, order, r);
    return f;
}

static void single_step(xd_exec *x, xd_sampling *s, int step, xd_tensor lat, xd_tensor pred,
                        const xd_tensor *hist, xd_tensor noise)
{
    int       n = s->cfg.solver_order, order = order_of(s, step);
    xd_tensor start = hist[n];
    factors   f = step_factors(s, step, order);
    if (xd_dpm_noisy(&s->cfg))
        xd_noise_check(x, s, step, noise);
    xd_dpm_clean(x, s, step, lat, pred);
    xd_copy_to(x, hist[step % n], pred);
    if (order == 1)
        xd_copy_to(x, start, lat);
    xd_copy_to(x, lat, start);
    for (int i = 0; i < order; i++)
        xd_axpby(x, lat, (float)f.m[i], hist[(step - i) % n], i ? 1 : (float)f.lat);
    if (f.noise > 0)
        xd_axpby(x, lat, (float)f.noise, noise, 1);
}

static const xd_field fields[] = {
    XD_SCHED_BETAS,
    XD_SCHED_THRESHOLDS,
    XD_SCHED_SIGMAS,
    XD_SCHED_SHIFTS,
    XD_SCHED(solver_order, 'i', 2, NULL),
    XD_SCHED(prediction_type, 's', 0, "epsilon"),
    XD_SCHED(algorithm_type, 's', 0, "dpmsolver++"),
    XD_SCHED(solver_type, 's', 0, "midpoint"),
    XD_SCHED(lower_order_final, 'b', 0, NULL),
    XD_SCHED(final_sigmas_type, 's', 0, "zero"),
    XD_SCHED(lambda_min_clipped, 'd', -INFINITY, NULL),
    XD_SCHED(variance_type, 's', 0, ""),
    { NULL, 0, 0, 0, NULL },
};

extern const xd_sampler xd_sampler_dpm_single;

const xd_sampler xd_sampler_dpm_single = {
    .name = "dpm++-single",
    .webui = "DPM++ 2S",
    .classes = { "DPMSolverSinglestepScheduler" },
    .fields = fields,
    .history = history_length,
    .open = single_open,
    .close = xd_dpm_close,
    .draws = count_draws,
    .step = single_step,
    .shares = xd_dpm_shares,
    .clean = xd_dpm_clean,
    .takes = XD_TAKES_TIMES,
};
