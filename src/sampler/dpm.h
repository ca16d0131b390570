/* dpm.h - used only in src/sampler: declares functions that both the multistep and the singlestep
 * DPM-Solver++ use. */
#ifndef XD_SAMPLER_DPM_H
#define XD_SAMPLER_DPM_H

#include "sampler/schedule.h"

/* Opens the schedule of a DPM-Solver++ sampler; the caller must have checked the sampler's config.
 * Timesteps of noise levels with the spacings of Karras and Lu are rounded to integers. With the
 * beta schedule squaredcos_cap_v2, timesteps with these spacings are rounded only if `rounds` is 1,
 * and truncated if `rounds` is 0. */
xd_status xd_dpm_open(xd_sampling *s, const xd_steps *a, int rounds, xd_err *e);
void      xd_dpm_close(xd_sampling *s);

/* Returns noise level i of the schedule, where i is 0 .. s->steps. */
xd_point xd_dpm_point(const xd_sampling *s, int i);
void     xd_dpm_shares(const xd_sampling *s, int step, double of[2]);
void     xd_dpm_clean(xd_exec *x, const xd_sampling *s, int step, xd_tensor lat, xd_tensor pred);

/* Returns 1 if every step adds noise (sde-dpmsolver++). */
int xd_dpm_noisy(const xd_sched_cfg *c);

/* Factors of the terms that a step of DPM-Solver++ adds: of the prediction at the start of the step
 * (m), and of estimates of its first and second derivative. `h` is the length of the step, measured
 * in half the log signal-to-noise ratio. */
typedef struct xd_slopes { double m, first, second; } xd_slopes;
xd_slopes xd_dpm_slopes(const xd_sched_cfg *c, double alpha, double h, int order);

#endif
