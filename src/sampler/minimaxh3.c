/* minimaxh3.c - makes Euler steps of rectified flow like diffusers' MiniMaxH3Scheduler.
 *
 * The noise levels are those of rectified flow in equal steps from 1 to 0, shifted (flow.c). The
 * requested number of steps counts the noise levels, the last level included, so that the network
 * runs once less. The scheduler's model predicts the direction to clean latents at times from 0 to
 * 1; here, the prediction is that from clean latents to noise at timesteps from 1000 to 0. */
#include <math.h>

#include "exec/op.h"
#include "sampler/schedule.h"

static int history_length(const xd_sched_cfg *c)
{
    (void)c;
    return 0;
}

static xd_status open_levels(xd_sampling *s, const xd_sched_cfg *c, const xd_steps *a, xd_err *e)
{
    xd_steps b = *a;
    b.own_sigmas = 1;
    b.threshold_noise = 0;
    if (!a->sigmas && !a->times && --b.steps < 1)
        return xd_fail(e, XD_EINVAL,
                       "num_inference_steps is %d; this scheduler needs at least 2, because it "
                       "counts the last noise level, which is 0",
                       a->steps);
    return xd_flow_open(s, c, &b, e);
}

/* Replaces the latents by a mixture of the latents and the predicted clean latents, in the order of
 * diffusers' arithmetic. */
static void mix_step(xd_exec *x, xd_sampling *s, int step, xd_tensor lat, xd_tensor pred,
                     const xd_tensor *hist, xd_tensor noise)
{
    const double *sigma = s->priv;
    float         ratio = (float)sigma[step + 1] / (float)sigma[step];
    (void)hist, (void)noise;
    xd_flow_clean(x, s, step, lat, pred);
    xd_axpby(x, lat, 1 - ratio, pred, ratio);
}

static const xd_field fields[] = {
    XD_SCHED_SIGMAS,
    XD_SCHED(num_train_timesteps, 'i', 1000, NULL),
    XD_SCHED(shift, 'd', 12, NULL),
    XD_SCHED(base_image_seq_len, 'l', 256, NULL),
    XD_SCHED(max_image_seq_len, 'l', 4096, NULL),
    XD_SCHED(time_shift_type, 's', 0, "exponential"),
    { NULL, 0, 0, 0, NULL },
};

extern const xd_sampler xd_sampler_minimaxh3;

const xd_sampler xd_sampler_minimaxh3 = {
    .name = "flow-points",
    .classes = { "MiniMaxH3Scheduler" },
    .fields = fields,
    .history = history_length,
    .open = open_levels,
    .close = xd_flow_close,
    .step = mix_step,
    .shares = xd_flow_shares,
    .clean = xd_flow_clean,
    .flow = 1,
    .takes = XD_TAKES_SIGMAS | XD_TAKES_TIMES,
};
