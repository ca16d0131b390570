/* dpm.c - implements the multistep sampler DPM-Solver++ (Lu et al. 2022, arXiv:2211.01095) like
 * diffusers' DPMSolverMultistepScheduler. The order of a step is 1 to 3. Either no step adds noise,
 * or every step does (sde-dpmsolver++).
 *
 * The history has solver_order arrays with predictions of the clean latents. The newest prediction
 * is in array step % order, so that no array is copied. A step is a linear combination of latents,
 * predictions and noise; its factors are computed on the host. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/op.h"
#include "sampler/dpm.h"

typedef struct dpm {
    double *sigma; /* [steps + 1] noise levels; the last one is the final level */
} dpm;

static int history_length(const xd_sched_cfg *c)
{
    return c->solver_order;
}

int xd_dpm_noisy(const xd_sched_cfg *c)
{
    return strcmp(c->algorithm_type, "sde-dpmsolver++") == 0;
}

static int count_draws(const xd_sampling *s, int step)
{
    (void)step;
    return xd_dpm_noisy(&s->cfg);
}

/* ---- schedule ----------------------------------------------------------------------------- */

static xd_status check_config(xd_sched_cfg *c, xd_err *e)
{
    xd_sched_rename(c, "DPMSolverMultistepScheduler");
    if (c->solver_order < 1 || c->solver_order > 3)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "the scheduler's solver_order is %d; it can be 1, 2 or "
                       "3",
                       c->solver_order);
    if (xd_respacing_check(c, e) != XD_OK)
        return XD_EFORMAT;
    if (c->use_flow_sigmas && (xd_is_respaced(c) || c->use_lu_lambdas))
        return xd_fail(e, XD_EFORMAT,
                       "the scheduler's use_flow_sigmas cannot be combined with "
                       "other spacings of levels (use_..._sigmas)");
    const char *p = c->prediction_type;
    int       known = !strcmp(p, "epsilon") || !strcmp(p, "sample") || !strcmp(p, "v_prediction") ||
                      !strcmp(p, "flow_prediction");
    xd_status s = xd_refuse(strcmp(c->algorithm_type, "dpmsolver++") && !xd_dpm_noisy(c),
                            "algorithm_type", c->algorithm_type, e);
    if (s == XD_OK)
        s = xd_refuse(strcmp(c->solver_type, "midpoint") && strcmp(c->solver_type, "heun"),
                      "solver_type", c->solver_type, e);
    if (s == XD_OK)
        s = xd_refuse(!known, "prediction_type", p, e);
    if (s == XD_OK)
        s = xd_refuse(strcmp(c->final_sigmas_type, "zero") &&
                          strcmp(c->final_sigmas_type, "sigma_min"),
                      "final_sigmas_type", c->final_sigmas_type, e);
    if (s == XD_OK)
        s = xd_refuse(c->thresholding, "thresholding", "true", e);
    if (s == XD_OK && c->use_dynamic_shifting && c->use_flow_sigmas)
        s = xd_refuse(strcmp(c->time_shift_type, "exponential"), "time_shift_type",
                      c->time_shift_type, e);
    if (s == XD_OK)
        s = xd_shift_check(c, e);
    if (s == XD_OK)
        s = xd_refuse(!strcmp(c->prediction_type, "epsilon") &&
                          !strncmp(c->variance_type, "learned", 7),
                      "variance_type", c->variance_type, e);
    return s;
}

/* The timesteps with the smallest log signal-to-noise ratios are clipped. Returns the number of
 * timesteps that remain. */
static int last_time(const xd_levels *l, const xd_sched_cfg *c)
{
    int clipped = 0;
    for (int i = 0; i < l->n; i++)
        clipped += -log(l->sigma[i]) < c->lambda_min_clipped;
    return l->n - clipped;
}

/* Fills two arrays of n + 2 elements with the timesteps and the noise levels of a request. Returns
 * the number of sampling steps. */
static int make_schedule(const xd_levels *l, const xd_sched_cfg *c, const xd_steps *a, int rounds,
                         double *time, double *sigma)
{
    int    n = a->steps, k = n, whole = 1;
    double N = c->num_train_timesteps;
    if (a->times)
        memcpy(time, a->times, (size_t)n * sizeof *time);
    else
        k = xd_solver_timesteps(c, last_time(l, c), n, time);
    if (c->use_lu_lambdas && !c->use_karras_sigmas)
        xd_sigmas_lu(l->sigma[l->n - 1], l->sigma[0], n, sigma);
    else if (xd_is_respaced(c))
        xd_sigmas_respaced(c, l->sigma[l->n - 1], l->sigma[0], n, sigma);
    else if (c->use_flow_sigmas)
        for (int i = 0; i < n; i++) {
            double s = 1 - (i ? (n - i) * ((1 / N - 1) / n) + 1 : 1 / N); /* numpy's linspace */
            sigma[i] = c->flow_shift * s / (1 + (c->flow_shift - 1) * s);
            time[i] = trunc(sigma[i] * N);
        }
    else
        whole = 0;
    for (int i = 0; !whole && i < k; i++)
        sigma[i] = xd_level_sigma(l, time[i]);
    if (!whole || c->use_flow_sigmas)
        return whole ? n : k;
    for (int i = 0; i < n; i++) {
        double t = xd_level_time(l, sigma[i]);
        int    exact = !c->use_karras_sigmas && !c->use_lu_lambdas;
        int    round = !exact && (rounds || strcmp(c->beta_schedule, "squaredcos_cap_v2"));
        time[i] = round ? xd_round_even(t) : trunc(t);
    }
    return n;
}

xd_status xd_dpm_open(xd_sampling *s, const xd_steps *a, int rounds, xd_err *e)
{
    int       steps = a->steps;
    xd_levels l = { 0 };
    dpm      *d = s->priv = calloc(1, sizeof *d);
    xd_status st = check_config(&s->cfg, e);
    if (st == XD_OK)
        st = xd_spacing_check(&s->cfg, e);
    if (st == XD_OK)
        st = xd_levels_open(&l, &s->cfg, 5.9604644775390625e-8 /* 2^-24 */, e);
    if (st == XD_OK && last_time(&l, &s->cfg) < 1)
        st = xd_fail(e, XD_EFORMAT,
                     "the scheduler's lambda_min_clipped is %g, which leaves no "
                     "timestep",
                     s->cfg.lambda_min_clipped);
    s->time = calloc((size_t)steps + 2, sizeof *s->time);
    s->in_scale = calloc((size_t)steps + 2, sizeof *s->in_scale);
    if (d)
        d->sigma = calloc((size_t)steps + 3, sizeof *d->sigma);
    if (st == XD_OK && (!d || !d->sigma || !s->time || !s->in_scale))
        st = xd_fail(e, XD_ENOMEM, "no memory for a schedule of %d steps", steps);
    if (st == XD_OK) {
        xd_shift_levels(&s->cfg, a);
        s->steps = make_schedule(&l, &s->cfg, a, rounds, s->time, d->sigma);
        d->sigma[s->steps] = strcmp(s->cfg.final_sigmas_type, "zero") ? l.sigma[0] : 0;
        for (int i = 0; i <= s->steps; i++)
            d->sigma[i] = (float)d->sigma[i];
        for (int i = 0; i < s->steps; i++)
            s->in_scale[i] = 1;
        s->init_scale = 1;
        xd_skip_steps(s, a, d->sigma, sizeof *d->sigma, 1);
    }
    xd_levels_close(&l);
    return st;
}

void xd_dpm_close(xd_sampling *s)
{
    dpm *d = s->priv;
    if (d)
        free(d->sigma);
    free(d);
}

static xd_status dpm_open(xd_sampling *s, const xd_sched_cfg *c, const xd_steps *a, xd_err *e)
{
    (void)c;
    return xd_dpm_open(s, a, 0, e);
}

/* ---- steps -------------------------------------------------------------------------------- */

xd_point xd_dpm_point(const xd_sampling *s, int i)
{
    return xd_point_of(&s->cfg, ((const dpm *)s->priv)->sigma[i]);
}

void xd_dpm_shares(const xd_sampling *s, int step, double of[2])
{
    xd_point p = xd_dpm_point(s, step);
    of[0] = step < s->steps ? p.alpha : 1, of[1] = step < s->steps ? p.sigma : 0;
}

void xd_dpm_clean(xd_exec *x, const xd_sampling *s, int step, xd_tensor lat, xd_tensor pred)
{
    xd_point_clean(x, &s->cfg, xd_dpm_point(s, step), lat, pred);
}

/* Returns the order of a step. The order is lower near the start, where there are too few previous
 * predictions, and near the end. */
static int order_of(const xd_sampling *s, int step)
{
    const xd_sched_cfg *c = &s->cfg;
    int                 few = c->lower_order_final && s->steps + s->skipped < 15;
    if (step == s->steps - 1 && (c->euler_at_final || few || !strcmp(c->final_sigmas_type, "zero")))
        return 1;
    int order = step + 1 < c->solver_order ? step + 1 : c->solver_order;
    return step == s->steps - 2 && few && order > 2 ? 2 : order;
}

/* The factors of a step's linear combination: the factor of the latents, the factors of the latest
 * predictions (newest first), and the factor of the noise. */
typedef struct factors { double lat, m[3], noise; } factors;

xd_slopes xd_dpm_slopes(const xd_sched_cfg *c, double alpha, double h, int order)
{
    double k = xd_dpm_noisy(c) ? 2 * h : h, em = exp(-k) - 1, heun = alpha * (em / k + 1);
    int    middle = order == 2 && strcmp(c->solver_type, "heun") != 0;
    double second = (em + k) / (k * k) - 0.5;
    return (xd_slopes){ -alpha * em, middle ? -0.5 * alpha * em : heun,
                        xd_dpm_noisy(c) ? -alpha * (second + 1) : -alpha * second };
}

/* Returns the factors of a step. A schedule with almost as many steps as there are timesteps
 * repeats some timesteps; a step from a timestep to the same timestep changes nothing and has no
 * slope. */
static factors step_factors(const xd_sampling *s, int step, int order)
{
    xd_point t = xd_dpm_point(s, step + 1), s0 = xd_dpm_point(s, step);
    double   h = t.lambda - s0.lambda;
    int      noisy = xd_dpm_noisy(&s->cfg);
    if (h == 0)
        return (factors){ .lat = 1 };
    for (int i = 1; i < order; i++)
        if (xd_dpm_point(s, step - i + 1).lambda == xd_dpm_point(s, step - i).lambda)
            order = i;
    xd_slopes v = xd_dpm_slopes(&s->cfg, t.alpha, h, order);
    factors   f = { .lat = t.sigma / s0.sigma * (noisy ? exp(-h) : 1),
                    .m = { v.m },
                    .noise = noisy ? t.sigma * sqrt(1 - exp(-2 * h)) : 0 };
    if (order == 1)
        return f;
    double r0 = (s0.lambda - xd_dpm_point(s, step - 1).lambda) / h;
    if (order == 2) {
        f.m[0] += v.first / r0;
        f.m[1] = -v.first / r0;
        return f;
    }
    double r1 = (xd_dpm_point(s, step - 1).lambda - xd_dpm_point(s, step - 2).lambda) / h;
    /* The factors of two slopes of the prediction: d10 is the factor of (m0 - m1) / r0, and d11 is
     * the factor of (m1 - m2) / r1, where m0 is the newest prediction. */
    double d10 = v.first * (1 + r0 / (r0 + r1)) + v.second / (r0 + r1);
    double d11 = -(v.first * r0 + v.second) / (r0 + r1);
    f.m[0] += d10 / r0;
    f.m[1] = -d10 / r0 + d11 / r1;
    f.m[2] = -d11 / r1;
    return f;
}

static void dpm_step(xd_exec *x, xd_sampling *s, int step, xd_tensor lat, xd_tensor pred,
                     const xd_tensor *hist, xd_tensor noise)
{
    int     n = s->cfg.solver_order, order = order_of(s, step);
    factors f = step_factors(s, step, order);
    if (xd_dpm_noisy(&s->cfg))
        xd_noise_check(x, s, step, noise);
    xd_dpm_clean(x, s, step, lat, pred);
    xd_copy_to(x, hist[step % n], pred);
    xd_axpby(x, lat, (float)f.m[0], pred, (float)f.lat);
    for (int i = 1; i < order; i++)
        xd_axpby(x, lat, (float)f.m[i], hist[(step - i) % n], 1);
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
    XD_SCHED(lower_order_final, 'b', 1, NULL),
    XD_SCHED(euler_at_final, 'b', 0, NULL),
    XD_SCHED(use_lu_lambdas, 'b', 0, NULL),
    XD_SCHED(final_sigmas_type, 's', 0, "zero"),
    XD_SCHED(lambda_min_clipped, 'd', -INFINITY, NULL),
    XD_SCHED(variance_type, 's', 0, ""),
    XD_SCHED(timestep_spacing, 's', 0, "linspace"),
    XD_SCHED(steps_offset, 'i', 0, NULL),
    XD_SCHED(rescale_betas_zero_snr, 'b', 0, NULL),
    { NULL, 0, 0, 0, NULL },
};

extern const xd_sampler xd_sampler_dpm;

const xd_sampler xd_sampler_dpm = {
    .name = "dpm++",
    .webui = "DPM++ 2M",
    .webui_sde = "DPM++ 2M SDE",
    .classes = { "DPMSolverMultistepScheduler", "dpm-solver++" },
    .fields = fields,
    .history = history_length,
    .open = dpm_open,
    .close = xd_dpm_close,
    .draws = count_draws,
    .step = dpm_step,
    .shares = xd_dpm_shares,
    .clean = xd_dpm_clean,
    .takes = XD_TAKES_TIMES,
};
