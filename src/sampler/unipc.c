/* unipc.c - implements the sampler UniPC (Zhao et al. 2023, arXiv:2302.04867), of order 1 to 3,
 * like diffusers' UniPCMultistepScheduler.
 *
 * A step has two parts. First, the step corrects the latents that the previous step computed, with
 * the network's prediction for these latents; then it computes the next latents. The history has
 * solver_order arrays with converted predictions (the newest in array step % order), and one more
 * array with the latents at the start of the previous step. The correction and the computation of
 * the next latents are linear combinations, whose factors are computed on the host. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/op.h"
#include "sampler/schedule.h"

enum { MOST = 3 }; /* max order of a step */

/* Factors of a linear combination that gives the latents after a step. `lat` is the factor of the
 * latents at the start of the step. `new` is used only in a correction: the factor of the
 * prediction at the end of the step. m[0] is the factor of the newest kept prediction, m[1] of the
 * prediction before that, and so on. */
typedef struct sum {
    double lat, new, m[MOST];
    int    order;
} sum;

static int history_length(const xd_sched_cfg *c)
{
    return (c->solver_order < MOST ? c->solver_order : MOST) + 1;
}

/* ---- schedule ----------------------------------------------------------------------------- */

static xd_status check_names(const xd_sched_cfg *c, xd_err *e)
{
    const char *p = c->prediction_type, *f = c->final_sigmas_type, *t = c->solver_type;
    int         flow = strcmp(p, "flow_prediction") == 0;
    xd_status   s = flow ? XD_OK : xd_prediction_check(c, e);
    if (s == XD_OK && flow && !c->predict_x0)
        s = xd_fail(e, XD_EFORMAT,
                    "the scheduler's prediction_type cannot be flow_prediction "
                    "if predict_x0 is false");
    if (s == XD_OK)
        s = xd_refuse(strcmp(f, "zero") && strcmp(f, "sigma_min"), "final_sigmas_type", f, e);
    if (s == XD_OK)
        s = xd_refuse(strcmp(t, "bh1") && strcmp(t, "bh2"), "solver_type", t, e);
    t = c->time_shift_type;
    if (s == XD_OK && c->use_dynamic_shifting && c->use_flow_sigmas)
        s = xd_refuse(strcmp(t, "exponential") != 0, "time_shift_type", t, e);
    return s;
}

static xd_status check_levels(const xd_sched_cfg *c, int steps, xd_err *e)
{
    if (xd_respacing_check(c, e) != XD_OK)
        return XD_EFORMAT;
    if (c->use_flow_sigmas && (c->use_exponential_sigmas || c->use_beta_sigmas))
        return xd_fail(e, XD_EFORMAT,
                       "the scheduler's use_flow_sigmas cannot be combined with "
                       "use_exponential_sigmas or use_beta_sigmas");
    if (!(c->shift_terminal >= 0 && c->shift_terminal < 1) ||
        (c->shift_terminal > 0 && !c->use_flow_sigmas))
        return xd_fail(e, XD_EFORMAT,
                       "the scheduler's shift_terminal is %g; it must be from 0 to "
                       "1, and requires use_flow_sigmas",
                       c->shift_terminal);
    if (c->shift_terminal > 0 && steps < 2)
        return xd_fail(e, XD_EINVAL,
                       "one step cannot be combined with the scheduler's "
                       "shift_terminal, %g: num_inference_steps must be at least 2",
                       c->shift_terminal);
    if (!(c->flow_shift > 0 && c->flow_shift < 1e6))
        return xd_fail(e, XD_EFORMAT, "the scheduler's flow_shift is %g; it must be above 0",
                       c->flow_shift);
    return XD_OK;
}

static xd_status check_config(xd_sched_cfg *c, int steps, xd_err *e)
{
    xd_sched_rename(c, "UniPCMultistepScheduler");
    if (c->solver_order < 1 || c->solver_order > MOST)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "the scheduler's solver_order is %d; it can be 1, 2 or "
                       "3",
                       c->solver_order);
    xd_status s = check_names(c, e);
    if (s == XD_OK)
        s = xd_refuse(c->thresholding, "thresholding", "true", e);
    if (s == XD_OK)
        s = check_levels(c, steps, e);
    if (s == XD_OK)
        s = xd_shift_check(c, e);
    return s == XD_OK ? xd_spacing_check(c, e) : s;
}

/* Computes the timesteps and noise levels of rectified flow. The first noise level stays below 1,
 * because the log signal-to-noise ratio is infinite at noise level 1. */
static void flow_levels(const xd_sched_cfg *c, const xd_steps *a, double *time, double *sigma)
{
    int    n = a->steps;
    double N = c->num_train_timesteps, step = (1 / N - 1) / n, k = c->flow_shift;
    if (a->own_sigmas)
        step = n > 1 ? (1.0 / n - 1) / (n - 1) : 0;
    for (int i = 0; i < n; i++) {
        double v = a->sigmas ? a->sigmas[i]
                   : a->own_sigmas && i && i == n - 1
                       ? 1.0 / n
                       : i * step + 1; /* as in numpy's linspace, the last value is exact */
        sigma[i] = c->use_dynamic_shifting ? k / (k + (1 / v - 1)) : k * v / (1 + (k - 1) * v);
    }
    double scale = (1 - sigma[n - 1]) / (1 - c->shift_terminal);
    for (int i = 0; i < n && c->shift_terminal > 0; i++)
        sigma[i] = 1 - (1 - sigma[i]) / scale;
    if (fabs(sigma[0] - 1) < 1e-6)
        sigma[0] -= 1e-6;
    for (int i = 0; i < n; i++)
        time[i] = trunc(sigma[i] * N);
}

/* Computes respaced noise levels, which do not follow from evenly spaced timesteps (for example,
 * Karras sigmas), and the timesteps of these levels. */
static void spaced_levels(const xd_levels *l, const xd_sched_cfg *c, int n, double *time,
                          double *sigma)
{
    xd_sigmas_respaced(c, l->sigma[l->n - 1], l->sigma[0], n, sigma);
    for (int i = 0; i < n; i++) {
        double t = xd_level_time(l, sigma[i]);
        time[i] = c->use_karras_sigmas ? xd_round_even(t) : trunc(t);
        if (c->use_flow_sigmas) {
            sigma[i] = sigma[i] / (sigma[i] + 1);
            time[i] = trunc(sigma[i] * c->num_train_timesteps);
        }
    }
}

/* Fills two arrays of n + 2 elements with the timesteps and the noise levels of a request. Returns
 * the number of sampling steps. */
static int make_schedule(const xd_levels *l, const xd_sched_cfg *c, const xd_steps *a, double *time,
                         double *sigma)
{
    double end = l->sigma[0];
    int    n = a->steps, k = n;
    if (xd_is_respaced(c)) {
        spaced_levels(l, c, n, time, sigma);
        end = sigma[n - 1];
    } else if (c->use_flow_sigmas) {
        flow_levels(c, a, time, sigma);
        end = sigma[n - 1];
    } else {
        k = xd_solver_timesteps(c, c->num_train_timesteps, n, time);
        for (int i = 0; i < k; i++)
            sigma[i] = xd_level_sigma(l, time[i]);
    }
    sigma[k] = strcmp(c->final_sigmas_type, "zero") ? end : 0;
    for (int i = 0; i <= k; i++)
        sigma[i] = (float)sigma[i];
    return k;
}

static xd_status unipc_open(xd_sampling *s, const xd_sched_cfg *cfg, const xd_steps *a, xd_err *e)
{
    int       steps = a->steps;
    xd_levels l = { 0 };
    double   *sigma = s->priv = calloc((size_t)steps + 3, sizeof *sigma);
    (void)cfg;
    s->overwrites = a->overwrites;
    xd_status st = check_config(&s->cfg, steps, e);
    if (st == XD_OK && a->sigmas && (!s->cfg.use_flow_sigmas || xd_is_respaced(&s->cfg)))
        st = xd_fail(e, XD_EINVAL,
                     "unipc supports a list of sigmas only with use_flow_sigmas, "
                     "without other spacings (use_..._sigmas)");
    if (st == XD_OK)
        st = xd_levels_open(&l, &s->cfg, 5.9604644775390625e-8 /* 2^-24 */, e);
    s->time = calloc((size_t)steps + 2, sizeof *s->time);
    s->in_scale = calloc((size_t)steps + 2, sizeof *s->in_scale);
    if (st == XD_OK && (!sigma || !s->time || !s->in_scale))
        st = xd_fail(e, XD_ENOMEM, "no memory for a schedule of %d steps", steps);
    if (st == XD_OK) {
        xd_shift_levels(&s->cfg, a);
        s->steps = make_schedule(&l, &s->cfg, a, s->time, sigma);
        for (int i = 0; i < s->steps; i++)
            s->in_scale[i] = 1;
        xd_skip_steps(s, a, sigma, sizeof *sigma, 1);
    }
    xd_levels_close(&l);
    return st;
}

static void unipc_close(xd_sampling *s)
{
    free(s->priv);
}

/* ---- steps -------------------------------------------------------------------------------- */

static xd_point point_at(const xd_sampling *s, int i)
{
    return xd_point_of(&s->cfg, ((const double *)s->priv)[i]);
}

static void unipc_shares(const xd_sampling *s, int step, double of[2])
{
    xd_point p = point_at(s, step);
    of[0] = step < s->steps ? p.alpha : 1, of[1] = step < s->steps ? p.sigma : 0;
}

static void unipc_clean(xd_exec *x, const xd_sampling *s, int step, xd_tensor lat, xd_tensor pred)
{
    xd_point_clean(x, &s->cfg, point_at(s, step), lat, pred);
}

/* Replaces the network's prediction by the clean latents that follow from it or, if predict_x0 is
 * not set, by the noise. */
static void convert(xd_exec *x, const xd_sampling *s, int step, xd_tensor lat, xd_tensor pred)
{
    xd_point    p = point_at(s, step);
    const char *type = s->cfg.prediction_type;
    if (s->cfg.predict_x0)
        unipc_clean(x, s, step, lat, pred);
    else if (!strcmp(type, "sample"))
        xd_axpby(x, pred, (float)(1 / p.sigma), lat, (float)(-p.alpha / p.sigma));
    else if (!strcmp(type, "v_prediction"))
        xd_axpby(x, pred, (float)p.sigma, lat, (float)p.alpha);
}

/* Returns the order of a step. The order is lower at the start, where there are too few previous
 * predictions, and, with lower_order_final, at the end. */
static int order_of(const xd_sampling *s, int step)
{
    int most = s->cfg.solver_order, left = s->steps - step;
    if (s->cfg.lower_order_final && left < most)
        most = left;
    return step + 1 < most ? step + 1 : most;
}

/* Returns the highest order, at most `order`, that a step from a level can have. Two levels with
 * equal log signal-to-noise ratios give no slope; neither does a step to the end of the schedule,
 * where the ratio is infinite. */
static int usable_order(const xd_sampling *s, int from, int order)
{
    if (isinf(point_at(s, from + 1).lambda))
        return 1;
    for (int i = 1; i < order; i++)
        if (point_at(s, from - i + 1).lambda == point_at(s, from - i).lambda)
            return i;
    return order;
}

/* Solves a linear system of n equations, sum over k of r[k]^i rho[k] = b[i], by elimination. */
static void solve_powers(int n, const double *r, const double *b, double *rho)
{
    double a[MOST][MOST + 1];
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < n; k++)
            a[i][k] = i ? a[i - 1][k] * r[k] : 1;
        a[i][n] = b[i];
    }
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++) {
            double w = a[j][i] / a[i][i];
            for (int k = i; k <= n; k++)
                a[j][k] -= w * a[i][k];
        }
    for (int i = n - 1; i >= 0; i--) {
        rho[i] = a[i][n];
        for (int k = i + 1; k < n; k++)
            rho[i] -= a[i][k] * rho[k];
        rho[i] /= a[i][i];
    }
}

/* Computes the right-hand sides of the linear system in section 3.1 of the paper, for a step of
 * length hh and the paper's B(h). */
static void right_sides(int n, double hh, double B, double *b)
{
    double phi = expm1(hh) / hh - 1, factorial = 1;
    for (int i = 0; i < n; i++) {
        b[i] = phi * factorial / B;
        factorial *= i + 2;
        phi = phi / hh - 1 / factorial;
    }
}

/* Returns the linear combination of a step of this order from noise level `from` to the next level.
 * If `corrects` is set, the combination includes the prediction at the next level. */
static sum step_sum(const xd_sampling *s, int from, int order, int corrects)
{
    xd_point t = point_at(s, from + 1), s0 = point_at(s, from);
    int      x0 = s->cfg.predict_x0;
    double   h = t.lambda - s0.lambda, hh = x0 ? -h : h, scale = x0 ? t.alpha : t.sigma;
    double   r[MOST] = { 0 }, b[MOST] = { 0 }, rho[MOST] = { 0 };
    sum      v = { .lat = x0 ? t.sigma / s0.sigma : t.alpha / s0.alpha };
    if (h == 0)
        return (sum){ .lat = 1, .order = 1 };
    v.order = order = usable_order(s, from, order);
    v.m[0] = x0 ? -scale * expm1(hh) : t.sigma - t.alpha * s0.sigma / s0.alpha;
    if (order == 1 && !corrects)
        return v;
    double B = strcmp(s->cfg.solver_type, "bh1") ? expm1(hh) : hh;
    int    n = corrects ? order : order - 1;
    for (int i = 0; i < order - 1; i++)
        r[i] = (point_at(s, from - i - 1).lambda - s0.lambda) / h;
    if (corrects)
        r[n - 1] = 1;
    right_sides(n, hh, B, b);
    if (n == 1)
        rho[0] = 0.5;
    else
        solve_powers(n, r, b, rho);
    for (int i = 0; i < order - 1; i++) {
        v.m[i + 1] = -scale * B * rho[i] / r[i];
        v.m[0] -= v.m[i + 1];
    }
    v.new = corrects ? -scale * B * rho[n - 1] : 0;
    v.m[0] -= v.new;
    return v;
}

static int is_corrected(const xd_sampling *s, int step)
{
    const xd_ints *off = &s->cfg.disable_corrector;
    for (int i = 0; i < off->n; i++)
        if (off->v[i] == step - 1 + s->skipped)
            return 0;
    return step > 0;
}

/* Computes lat = v.lat * lat + v.m[0] * p0 + v.m[1] * p1 + ..., where p0 is the newest kept
 * prediction (that of step `newest`), p1 is the prediction before p0, and so on. */
static void add_sum(xd_exec *x, const xd_sampling *s, const sum *v, int newest, xd_tensor lat,
                    const xd_tensor *hist)
{
    for (int i = 0; i < v->order; i++)
        xd_axpby(x, lat, (float)v->m[i], hist[(newest - i) % s->cfg.solver_order],
                 i ? 1 : (float)v->lat);
}

static void unipc_step(xd_exec *x, xd_sampling *s, int step, xd_tensor lat, xd_tensor pred,
                       const xd_tensor *hist, xd_tensor noise)
{
    int       n = s->cfg.solver_order, corrected = is_corrected(s, step);
    xd_tensor start = hist[n];
    (void)noise;
    convert(x, s, step, lat, pred);
    if (corrected) {
        sum c = step_sum(s, step - 1, order_of(s, step - 1), 1);
        xd_copy_to(x, lat, start);
        add_sum(x, s, &c, step - 1, lat, hist);
        xd_axpby(x, lat, (float)c.new, pred, 1);
    }
    sum p = step_sum(s, step, order_of(s, step), 0);
    xd_copy_to(x, hist[step % n], pred);
    xd_copy_to(x, start, lat);
    add_sum(x, s, &p, step, lat, hist);
    if (s->overwrites && !corrected)
        xd_copy_to(x, start, lat);
}

static const xd_field fields[] = {
    XD_SCHED_BETAS,
    XD_SCHED_THRESHOLDS,
    XD_SCHED_SIGMAS,
    XD_SCHED_SHIFTS,
    XD_SCHED(solver_order, 'i', 2, NULL),
    XD_SCHED(prediction_type, 's', 0, "epsilon"),
    XD_SCHED(predict_x0, 'b', 1, NULL),
    XD_SCHED(solver_type, 's', 0, "bh2"),
    XD_SCHED(lower_order_final, 'b', 1, NULL),
    XD_SCHED(disable_corrector, 'L', 0, NULL),
    XD_SCHED(timestep_spacing, 's', 0, "linspace"),
    XD_SCHED(steps_offset, 'i', 0, NULL),
    XD_SCHED(final_sigmas_type, 's', 0, "zero"),
    XD_SCHED(rescale_betas_zero_snr, 'b', 0, NULL),
    XD_SCHED(shift_terminal, 'd', 0, NULL),
    { NULL, 0, 0, 0, NULL },
};

extern const xd_sampler xd_sampler_unipc;

const xd_sampler xd_sampler_unipc = {
    .name = "unipc",
    .webui = "UniPC",
    .classes = { "UniPCMultistepScheduler" },
    .fields = fields,
    .history = history_length,
    .open = unipc_open,
    .close = unipc_close,
    .step = unipc_step,
    .shares = unipc_shares,
    .clean = unipc_clean,
    .takes = XD_TAKES_SIGMAS,
};
