/* ddim.c - implements the sampler DDIM (Song et al. 2020, arXiv:2010.02502) like diffusers'
 * DDIMScheduler. If eta is above 0, steps add noise. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/op.h"
#include "sampler/schedule.h"

typedef struct ddim {
    double *acp;  /* [steps] cumulative alpha product at each step */
    double *prev; /* [steps] cumulative alpha product after each step */
} ddim;

static int count_draws(const xd_sampling *s, int step)
{
    (void)step;
    return s->cfg.eta > 0;
}

static int history_length(const xd_sched_cfg *c)
{
    (void)c;
    return 0;
}

static xd_status check_config(const xd_sched_cfg *c, xd_err *e)
{
    xd_status s = xd_prediction_check(c, e);
    if (s == XD_OK)
        s = xd_eta_check(c, e);
    if (s == XD_OK)
        s = xd_spacing_check(c, e);
    return s == XD_OK ? xd_refuse(c->thresholding, "thresholding", "true", e) : s;
}

static xd_status ddim_open(xd_sampling *s, const xd_sched_cfg *c, const xd_steps *a, xd_err *e)
{
    int       steps = a->steps;
    xd_levels l = { 0 };
    ddim     *d = s->priv = calloc(1, sizeof *d);
    xd_status st = check_config(c, e);
    if (st == XD_OK)
        st = xd_levels_open(&l, c, 0, e);
    s->time = calloc((size_t)steps + 1, sizeof *s->time);
    s->in_scale = calloc((size_t)steps + 1, sizeof *s->in_scale);
    if (d) {
        d->acp = calloc((size_t)steps + 1, sizeof *d->acp);
        d->prev = calloc((size_t)steps + 1, sizeof *d->prev);
    }
    if (st == XD_OK && (!d || !d->acp || !d->prev || !s->time || !s->in_scale))
        st = xd_fail(e, XD_ENOMEM, "no memory for a schedule of %d steps", steps);
    if (st == XD_OK)
        s->steps = xd_timesteps(c, steps, s->time);
    for (int i = 0; st == XD_OK && i < s->steps; i++) {
        int t = (int)s->time[i], to = t - c->num_train_timesteps / steps;
        if (t >= l.n) {
            st = xd_fail(e, XD_EFORMAT,
                         "the scheduler's steps_offset %d gives timestep %d of "
                         "%d",
                         c->steps_offset, t, l.n);
            break;
        }
        s->in_scale[i] = 1;
        d->acp[i] = l.acp[t < 0 ? l.n + t : t]; /* index -1 is the last element */
        d->prev[i] = to >= 0 ? l.acp[to] : c->set_alpha_to_one ? 1 : l.acp[0];
        if (a->leap && s->steps == 1)
            d->prev[i] = 1;
        st = xd_signal_check(c, t, d->acp[i], e);
    }
    if (st == XD_OK) {
        xd_skip_steps(s, a, d->acp, sizeof *d->acp, 0);
        memmove(d->prev, d->prev + s->skipped, (size_t)s->steps * sizeof *d->prev);
    }
    xd_levels_close(&l);
    return st;
}

static void ddim_shares(const xd_sampling *s, int step, double of[2])
{
    xd_acp_shares(step < s->steps ? ((const ddim *)s->priv)->acp[step] : 1, of);
}

static void ddim_close(xd_sampling *s)
{
    ddim *d = s->priv;
    if (d) {
        free(d->acp);
        free(d->prev);
    }
    free(d);
}

static void ddim_clean(xd_exec *x, const xd_sampling *s, int step, xd_tensor lat, xd_tensor pred)
{
    xd_to_clipped(x, &s->cfg, ((const ddim *)s->priv)->acp[step], lat, pred);
}

/* Returns the standard deviation of the noise that a step adds: formula (16) of the paper, times
 * eta. */
static double noise_of(const xd_sampling *s, double acp, double prev)
{
    return s->cfg.eta * sqrt(fmax((1 - prev) / (1 - acp) * (1 - acp / prev), 0));
}

static void ddim_step(xd_exec *x, xd_sampling *s, int step, xd_tensor lat, xd_tensor pred,
                      const xd_tensor *hist, xd_tensor noise)
{
    const ddim *d = s->priv;
    const char *type = s->cfg.prediction_type;
    double      ra = sqrt(d->acp[step]), rb = sqrt(1 - d->acp[step]);
    double      spread = noise_of(s, d->acp[step], d->prev[step]);
    xd_tensor   x0 = xd_new_f32(x, lat.d[0], lat.d[1]);
    (void)hist;
    if (count_draws(s, step))
        xd_noise_check(x, s, step, noise);
    xd_copy_to(x, x0, pred);
    ddim_clean(x, s, step, lat, x0);
    if (!strcmp(type, "v_prediction")) /* converts pred to the prediction of the noise */
        xd_axpby(x, pred, (float)rb, lat, (float)ra);
    else if (strcmp(type, "epsilon"))
        xd_axpby(x, pred, (float)(1 / rb), lat, (float)(-ra / rb));
    xd_axpby(x, lat, (float)sqrt(fmax(1 - d->prev[step] - spread * spread, 0)), pred, 0);
    xd_axpby(x, lat, (float)sqrt(d->prev[step]), x0, 1);
    if (spread > 0)
        xd_axpby(x, lat, (float)spread, noise, 1);
}

static const xd_field fields[] = {
    XD_SCHED_BETAS,
    XD_SCHED_THRESHOLDS,
    XD_SCHED(clip_sample, 'b', 1, NULL),
    XD_SCHED(clip_sample_range, 'd', 1, NULL),
    XD_SCHED(set_alpha_to_one, 'b', 1, NULL),
    XD_SCHED(steps_offset, 'i', 0, NULL),
    XD_SCHED(prediction_type, 's', 0, "epsilon"),
    XD_SCHED(timestep_spacing, 's', 0, "leading"),
    XD_SCHED(rescale_betas_zero_snr, 'b', 0, NULL),
    XD_SCHED(eta, 'd', 0, NULL),
    { NULL, 0, 0, 0, NULL },
};

extern const xd_sampler xd_sampler_ddim;

const xd_sampler xd_sampler_ddim = {
    .name = "ddim",
    .webui = "DDIM",
    .classes = { "DDIMScheduler" },
    .fields = fields,
    .history = history_length,
    .open = ddim_open,
    .close = ddim_close,
    .draws = count_draws,
    .step = ddim_step,
    .shares = ddim_shares,
    .clean = ddim_clean,
};
