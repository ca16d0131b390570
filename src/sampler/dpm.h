/* dpm.h - inside the room: what the multistep and the singlestep form of DPM-Solver++ share */
#ifndef XD_SAMPLER_DPM_H
#define XD_SAMPLER_DPM_H

#include "sampler/schedule.h"

/* The schedule; the config of s is checked. `rounds`: times of Karras's levels are whole numbers
 * with any betas. */
xd_status xd_dpm_open(xd_sampling *s, const xd_steps *a, int rounds, xd_err *e);
void      xd_dpm_close(xd_sampling *s);

/* Level i of the schedule, 0 .. s->steps. */
xd_point  xd_dpm_point(const xd_sampling *s, int i);
void      xd_dpm_shares(const xd_sampling *s, int step, double of[2]);
void      xd_dpm_clean(xd_exec *x, const xd_sampling *s, int step, xd_tensor lat, xd_tensor pred);

/* Is noise added in every step (sde-dpmsolver++)? */
int       xd_dpm_noisy(const xd_sched_cfg *c);

/* Factors of the prediction at the start of a step of h in half the log signal-to-noise ratio, and
 * of its first and second slope. */
typedef struct xd_slopes { double m, first, second; } xd_slopes;
xd_slopes xd_dpm_slopes(const xd_sched_cfg *c, double alpha, double h, int order);

#endif
