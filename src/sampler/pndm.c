/* pndm.c - implements the sampler PNDM (Liu et al. 2022, arXiv:2202.09778) like diffusers'
 * PNDMScheduler with skip_prk_steps: without Runge-Kutta steps, as in latent diffusion.
 *
 * n steps need n + 1 evaluations of the network. The second evaluation repeats the first step with
 * the mean of the predictions at both ends; each later step combines up to four predictions
 * (Adams-Bashforth). Four arrays of the history have the newest predictions. The last one first has
 * the latents before the first step, because it gets its first prediction in the fifth
 * evaluation. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/op.h"
#include "sampler/schedule.h"

enum { PREDICTIONS = 4, START = PREDICTIONS - 1 };

typedef struct level {
    double now, from, to; /* cumulative alpha product at the evaluation, and at the step's ends */
} level;

static int history_length(const xd_sched_cfg *c)
{
    (void)c;
    return PREDICTIONS;
}

static xd_status check_config(const xd_sched_cfg *c, xd_err *e)
{
    const char *type = c->prediction_type;
    if (!c->skip_prk_steps)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "the scheduler's skip_prk_steps is false; only true is supported with pndm");
    if (strcmp(type, "epsilon") != 0 && strcmp(type, "v_prediction") != 0)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "the scheduler's prediction_type '%s' is not epsilon or v_prediction", type);
    return xd_spacing_check(c, e);
}

/* Sets the timesteps of n steps; the second timestep is that of two evaluations. */
static void set_times(xd_sampling *s, int n)
{
    s->steps = xd_timesteps(&s->cfg, n, s->time);
    if (s->steps > 1) {
        memmove(s->time + 2, s->time + 1, (size_t)(s->steps - 1) * sizeof *s->time);
        s->steps++;
    }
    for (int i = 0; i < s->steps; i++)
        s->in_scale[i] = 1;
}

static xd_status find_level(const xd_sched_cfg *c, const xd_levels *l, int t, double *acp,
                            xd_err *e)
{
    if (t >= l->n)
        return xd_fail(e, XD_EFORMAT, "the scheduler's steps_offset %d gives timestep %d of %d",
                       c->steps_offset, t, l->n);
    *acp = t >= 0 ? l->acp[t] : c->set_alpha_to_one ? 1 : l->acp[0];
    return XD_OK;
}

static xd_status pndm_open(xd_sampling *s, const xd_sched_cfg *c, const xd_steps *a, xd_err *e)
{
    const size_t room = (size_t)a->steps + 2;
    const int    step = c->num_train_timesteps / a->steps;
    xd_levels    l = { 0 };
    level       *v = s->priv = calloc(room, sizeof *v);
    xd_status    st = check_config(c, e);
    if (st == XD_OK)
        st = xd_levels_open(&l, c, 0, e);
    s->time = calloc(room, sizeof *s->time);
    s->in_scale = calloc(room, sizeof *s->in_scale);
    if (st == XD_OK && (!v || !s->time || !s->in_scale))
        st = xd_fail(e, XD_ENOMEM, "no memory for a schedule of %d steps", a->steps);
    if (st == XD_OK) {
        set_times(s, a->steps);
        xd_skip_steps(s, a, v, sizeof *v, 0);
    }
    for (int i = 0; st == XD_OK && i < s->steps; i++) {
        const int t = (int)s->time[i];
        st = find_level(c, &l, t, &v[i].now, e);
        if (st == XD_OK)
            st = find_level(c, &l, i == 1 ? t + step : t, &v[i].from, e);
        if (st == XD_OK)
            st = find_level(c, &l, i == 1 ? t : t - step, &v[i].to, e);
        if (st == XD_OK)
            st = xd_signal_check(c, t, v[i].from, e);
    }
    xd_levels_close(&l);
    return st;
}

static void pndm_shares(const xd_sampling *s, int step, double of[2])
{
    xd_acp_shares(step < s->steps ? ((const level *)s->priv)[step].now : 1, of);
}

static void pndm_close(xd_sampling *s)
{
    free(s->priv);
}

static void pndm_clean(xd_exec *x, const xd_sampling *s, int step, xd_tensor lat, xd_tensor pred)
{
    xd_to_clean(x, &s->cfg, ((const level *)s->priv)[step].now, lat, pred);
}

/* Replaces the prediction by its combination with earlier ones, and keeps it unless it is that of
 * the second evaluation. */
static void combine(xd_exec *x, int step, xd_tensor pred, const xd_tensor *hist)
{
    static const double factors[PREDICTIONS][PREDICTIONS] = {
        { 1 },
        { 3.0 / 2, -1.0 / 2 },
        { 23.0 / 12, -16.0 / 12, 5.0 / 12 },
        { 55.0 / 24, -59.0 / 24, 37.0 / 24, -9.0 / 24 },
    };
    if (step == 1) {
        xd_axpby(x, pred, 0.5f, hist[0], 0.5f);
        return;
    }
    const int     at = step ? step - 1 : 0, n = at < START ? at : START;
    const double *f = factors[n];
    xd_copy_to(x, hist[at % PREDICTIONS], pred);
    for (int i = 1; i <= n; i++)
        xd_axpby(x, pred, (float)f[i], hist[(at - i) % PREDICTIONS], i > 1 ? 1 : (float)f[0]);
}

/* Computes formula (9) of the paper. */
static void pndm_step(xd_exec *x, xd_sampling *s, int step, xd_tensor lat, xd_tensor pred,
                      const xd_tensor *hist, xd_tensor noise)
{
    const level *v = (const level *)s->priv + step;
    const double a = v->from, b = v->to;
    const double by = a * sqrt(1 - b) + sqrt(a * (1 - a) * b);
    (void)noise;
    combine(x, step, pred, hist);
    if (step == 0)
        xd_copy_to(x, hist[START], lat);
    if (step == 1)
        xd_copy_to(x, lat, hist[START]);
    if (strcmp(s->cfg.prediction_type, "v_prediction") == 0)
        xd_axpby(x, pred, (float)sqrt(1 - a), lat, (float)sqrt(a));
    xd_axpby(x, lat, by > 0 ? (float)((a - b) / by) : 0, pred, (float)sqrt(b / a));
}

static const xd_field fields[] = {
    XD_SCHED_BETAS,
    XD_SCHED(skip_prk_steps, 'b', 0, NULL),
    XD_SCHED(set_alpha_to_one, 'b', 0, NULL),
    XD_SCHED(steps_offset, 'i', 0, NULL),
    XD_SCHED(prediction_type, 's', 0, "epsilon"),
    XD_SCHED(timestep_spacing, 's', 0, "leading"),
    { NULL, 0, 0, 0, NULL },
};

extern const xd_sampler xd_sampler_pndm;

const xd_sampler xd_sampler_pndm = {
    .name = "pndm",
    .webui = "PLMS",
    .classes = { "PNDMScheduler" },
    .fields = fields,
    .history = history_length,
    .open = pndm_open,
    .close = pndm_close,
    .step = pndm_step,
    .shares = pndm_shares,
    .clean = pndm_clean,
};
