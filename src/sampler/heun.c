/* heun.c - implements two samplers with Heun's method (Karras et al. 2022, arXiv:2206.00364,
 * algorithm 1 without churn): on noise levels, like diffusers' HeunDiscreteScheduler, and in
 * rectified flow, like diffusers' FlowMatchHeunDiscreteScheduler.
 *
 * n steps need 2 n - 1 evaluations of the network. An even evaluation makes an Euler step, and the
 * next, odd evaluation repeats that step with the mean of the slopes at both ends. The last step of
 * the schedule is only an Euler step. The history has two arrays: the slope at the start of the
 * step, and the latents at the start of the step. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/op.h"
#include "sampler/schedule.h"

static int history_length(const xd_sched_cfg *c)
{
    (void)c;
    return 2;
}

/* Returns the index of the noise level at which an evaluation of the network happens. */
static int level_of(int evaluation)
{
    return (evaluation + 1) / 2;
}

/* Each of n steps except the last one has two evaluations. Repeats the timesteps and the input
 * scales of the steps, so that there is one of each for every evaluation. Sets s->steps to the
 * number of evaluations. */
static xd_status repeat_steps(xd_sampling *s, int n, xd_err *e)
{
    double *time = calloc((size_t)n * 2, sizeof *time);
    double *scale = calloc((size_t)n * 2, sizeof *scale);
    s->steps = 2 * n - 1;
    for (int i = 0; time && scale && i < s->steps; i++)
        time[i] = s->time[level_of(i)], scale[i] = s->in_scale[level_of(i)];
    free(s->time);
    free(s->in_scale);
    s->time = time;
    s->in_scale = scale;
    return time && scale ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory for a schedule of %d steps", n);
}

/* Updates the latents after one evaluation of the network. `pred` must be the slope at the noise
 * level of this evaluation. */
static void heun_step(xd_exec *x, const double *sigma, int step, xd_tensor lat, xd_tensor pred,
                      const xd_tensor *hist)
{
    int    first = step % 2 == 0, i = step / 2;
    double dt = sigma[i + 1] - sigma[i];
    if (first) {
        xd_copy_to(x, hist[0], pred);
        xd_copy_to(x, hist[1], lat);
        xd_axpby(x, lat, (float)dt, pred, 1);
    } else {
        xd_copy_to(x, lat, hist[1]);
        xd_axpby(x, lat, (float)(dt / 2), hist[0], 1);
        xd_axpby(x, lat, (float)(dt / 2), pred, 1);
    }
}

/* ---- noise levels ------------------------------------------------------------------------- */

static void fill_levels(xd_sampling *s, const xd_levels *l, const xd_steps *a, double *sigma)
{
    int    times, n = xd_euler_levels(l, &s->cfg, a, s->time, sigma, &times);
    double max = 0;
    s->steps = n;
    sigma[n] = 0;
    for (int i = 0; i < n; i++) {
        sigma[i] = (float)sigma[i];
        max = fmax(max, sigma[i]);
        s->time[i] = (float)s->time[i];
        s->in_scale[i] = 1 / sqrt(sigma[i] * sigma[i] + 1);
    }
    s->init_scale = strcmp(s->cfg.timestep_spacing, "leading") ? max : sqrt(max * max + 1);
}

static xd_status discrete_open(xd_sampling *s, const xd_sched_cfg *c, const xd_steps *a, xd_err *e)
{
    xd_levels l = { 0 };
    size_t    room = (size_t)a->steps + 3;
    double   *sigma = s->priv = calloc(room, sizeof *sigma);
    xd_status st = xd_prediction_check(c, e);
    if (st == XD_OK)
        st = xd_spacing_check(c, e);
    if (st == XD_OK)
        st = xd_respacing_check(c, e);
    if (st == XD_OK)
        st = xd_levels_open(&l, c, 0, e);
    strcpy(s->cfg.interpolation_type, "linear");
    s->time = calloc(room, sizeof *s->time);
    s->in_scale = calloc(room, sizeof *s->in_scale);
    if (st == XD_OK && (!sigma || !s->time || !s->in_scale))
        st = xd_fail(e, XD_ENOMEM, "no memory for a schedule of %d steps", a->steps);
    if (st == XD_OK) {
        fill_levels(s, &l, a, sigma);
        xd_skip_steps(s, a, sigma, sizeof *sigma, 1);
        st = repeat_steps(s, s->steps, e);
    }
    xd_levels_close(&l);
    return st;
}

/* Returns two factors: before a step, the latents are of[0] times the image plus of[1] times noise.
 * of[0] is 1 at every noise level. */
static void discrete_shares(const xd_sampling *s, int step, double of[2])
{
    of[0] = 1, of[1] = step < s->steps ? ((const double *)s->priv)[level_of(step)] : 0;
}

static void discrete_close(xd_sampling *s)
{
    free(s->priv);
}

static void discrete_clean(xd_exec *x, const xd_sampling *s, int step, xd_tensor lat,
                           xd_tensor pred)
{
    xd_level_clean(x, &s->cfg, ((const double *)s->priv)[level_of(step)], lat, pred);
}

static void discrete_step(xd_exec *x, xd_sampling *s, int step, xd_tensor lat, xd_tensor pred,
                          const xd_tensor *hist, xd_tensor noise)
{
    const double *sigma = s->priv;
    double        v = sigma[level_of(step)];
    (void)noise;
    if (strcmp(s->cfg.prediction_type, "epsilon") || s->cfg.clip_sample) {
        discrete_clean(x, s, step, lat, pred);
        xd_axpby(x, pred, (float)(1 / v), lat, (float)(-1 / v));
    }
    heun_step(x, sigma, step, lat, pred, hist);
}

/* ---- rectified flow ----------------------------------------------------------------------- */

static xd_status flow_open(xd_sampling *s, const xd_sched_cfg *c, const xd_steps *a, xd_err *e)
{
    xd_status st = xd_flow_open(s, c, a, e);
    return st == XD_OK ? repeat_steps(s, s->steps, e) : st;
}

static void flow_shares(const xd_sampling *s, int step, double of[2])
{
    xd_flow_shares(s, level_of(step), of);
}

static void flow_clean(xd_exec *x, const xd_sampling *s, int step, xd_tensor lat, xd_tensor pred)
{
    xd_flow_clean(x, s, level_of(step), lat, pred);
}

static void flow_step(xd_exec *x, xd_sampling *s, int step, xd_tensor lat, xd_tensor pred,
                      const xd_tensor *hist, xd_tensor noise)
{
    (void)noise;
    heun_step(x, s->priv, step, lat, pred, hist);
}

static const xd_field fields[] = {
    XD_SCHED_SIGMAS,
    XD_SCHED(num_train_timesteps, 'i', 1000, NULL),
    XD_SCHED(beta_start, 'd', 0.00085, NULL),
    XD_SCHED(beta_end, 'd', 0.012, NULL),
    XD_SCHED(beta_schedule, 's', 0, "linear"),
    XD_SCHED(prediction_type, 's', 0, "epsilon"),
    XD_SCHED(clip_sample, 'b', 0, NULL),
    XD_SCHED(clip_sample_range, 'd', 1, NULL),
    XD_SCHED(timestep_spacing, 's', 0, "linspace"),
    XD_SCHED(steps_offset, 'i', 0, NULL),
    { NULL, 0, 0, 0, NULL },
};

/* Config keys of rectified flow. FlowMatchHeunDiscreteScheduler has no keys for dynamic shifting;
 * the keys here are those of the Euler scheduler, whose noise levels are used. */
static const xd_field flow_fields[] = {
    XD_SCHED_FLOW,
    { NULL, 0, 0, 0, NULL },
};

extern const xd_sampler xd_sampler_heun, xd_sampler_flow_heun;

const xd_sampler xd_sampler_heun = {
    .name = "heun",
    .webui = "Heun",
    .classes = { "HeunDiscreteScheduler" },
    .fields = fields,
    .history = history_length,
    .open = discrete_open,
    .close = discrete_close,
    .step = discrete_step,
    .shares = discrete_shares,
    .clean = discrete_clean,
    .takes = XD_TAKES_TIMES,
};
const xd_sampler xd_sampler_flow_heun = {
    .name = "flow-heun",
    .webui = "Heun",
    .classes = { "FlowMatchHeunDiscreteScheduler" },
    .fields = flow_fields,
    .history = history_length,
    .open = flow_open,
    .close = xd_flow_close,
    .step = flow_step,
    .shares = flow_shares,
    .clean = flow_clean,
    .flow = 1,
};
