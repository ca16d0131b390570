/* schedule.h - inside the sampler room: noise levels and the timesteps picked from them.
 *
 * Numbers that diffusers keeps in f32 are rounded to f32 here too, since schedules differ in the
 * last digits otherwise. */
#ifndef XD_SAMPLER_SCHEDULE_H
#define XD_SAMPLER_SCHEDULE_H

#include "sampler/sampler.h"

typedef struct xd_levels {      /* the training schedule, t = 0 .. n-1                         */
    int     n;
    double *acp;                /* cumulative product of 1 - beta                              */
    double *sigma;              /* sqrt((1 - acp) / acp)                                       */
} xd_levels;

/* zero_end: what the last acp becomes with rescale_betas_zero_snr (0: left as it is). Freed with
 * xd_levels_close also after a failure. */
xd_status xd_levels_open(xd_levels *l, const xd_sched_cfg *c, double zero_end, xd_err *e);
void      xd_levels_close(xd_levels *l);

/* As CogVideoX's samplers want it: acp is shifted by snr_shift_scale, then rescaled to end in 0 where
 * rescale_betas_zero_snr asks for it; f64 throughout with scaled_linear betas, else f32. No sigma. */
xd_status xd_levels_shifted(xd_levels *l, const xd_sched_cfg *c, xd_err *e);

/* Fractional timestep of a noise level, by interpolation of log sigma. */
double xd_level_time(const xd_levels *l, double sigma);
/* Linear interpolation of sigma at a fractional timestep. */
double xd_level_sigma(const xd_levels *l, double t);

/* n noise levels from the largest to the smallest (sigma_max .. sigma_min), as Karras et al. 2022
 * (rho 7), exponentially, or as Lu et al. 2022 (rho 1, on log sigma). */
void xd_sigmas_karras(double max, double min, int n, double *out);
void xd_sigmas_exponential(double max, double min, int n, double *out);
void xd_sigmas_lu(double max, double min, int n, double *out);

/* numpy's round: halves to even. */
double xd_round_even(double v);

/* Whole timesteps fall where numpy's rounding errors put them: element i of
 * linspace(0, stop, n), and of arange(from, 0, -step), whose length is xd_arange_count. */
double xd_linspace(double stop, int n, int i);
double xd_arange(double from, double step, int i);
int    xd_arange_count(double from, double step);

/* DDIM's whole timesteps for n steps, largest first, into t [n + 1]; returns how many. One that trailing
 * spacing rounds to 0 becomes -1, the last as Python counts. */
int    xd_timesteps(const xd_sched_cfg *c, int n, double *t);

/* XD_EUNSUPPORTED or XD_EFORMAT when a key that all samplers read has no value they can take. */
xd_status xd_spacing_check(const xd_sched_cfg *c, xd_err *e);

/* XD_EUNSUPPORTED unless prediction_type is epsilon, sample or v_prediction. */
xd_status xd_prediction_check(const xd_sched_cfg *c, xd_err *e);

/* XD_EFORMAT when epsilon is predicted at timestep t, where `acp` says that there is no signal. */
xd_status xd_signal_check(const xd_sched_cfg *c, int t, double acp, xd_err *e);

/* Dynamic shifting: the exponent of an image of so many tokens, on the line through the config's two points.
 * XD_EFORMAT when they are no line. */
xd_status xd_shift_check(const xd_sched_cfg *c, xd_err *e);
double    xd_shift_of(const xd_sched_cfg *c, int64_t tokens);

/* The prediction at the cumulative product acp (epsilon, sample or v_prediction) becomes the clean
 * latents, in place. */
void      xd_to_clean(xd_exec *x, const xd_sched_cfg *c, double acp, xd_tensor lat, xd_tensor pred);
/* Clips to [-r, r], on the host: few configs ask for it. */
void      xd_clip_sample(xd_exec *x, xd_tensor t, float r);

/* XD_EUNSUPPORTED naming the key when `on`. */
xd_status xd_refuse(int on, const char *key, const char *value, xd_err *e);

#endif
