/* schedule.h - inside the room: noise levels, and the timesteps chosen from them.
 *
 * Values that diffusers keeps in f32 are rounded to f32 here as well. Otherwise schedules differ
 * from diffusers' in the last digits. */
#ifndef XD_SAMPLER_SCHEDULE_H
#define XD_SAMPLER_SCHEDULE_H

#include "sampler/sampler.h"

typedef struct xd_levels {      /* the training schedule, t = 0 .. n-1                         */
    int     n;
    double *acp;                /* cumulative product of 1 - beta                              */
    double *sigma;              /* sqrt((1 - acp) / acp)                                       */
} xd_levels;

/* zero_end: value of the last acp with rescale_betas_zero_snr (0: unchanged). Call
 * xd_levels_close also after a failure. */
xd_status xd_levels_open(xd_levels *l, const xd_sched_cfg *c, double zero_end, xd_err *e);
void      xd_levels_close(xd_levels *l);

/* Levels with a shifted signal-to-noise ratio: acp is shifted by snr_shift_scale and then, with
 * rescale_betas_zero_snr, rescaled to end at 0. Computed in f64 with scaled_linear betas, else
 * in f32. Does not set sigma. */
xd_status xd_levels_shifted(xd_levels *l, const xd_sched_cfg *c, xd_err *e);

/* Fractional timestep of a noise level, by interpolation of log sigma. */
double xd_level_time(const xd_levels *l, double sigma);
/* Linear interpolation of sigma at a fractional timestep. */
double xd_level_sigma(const xd_levels *l, double t);

/* n noise levels from the largest to the smallest (sigma_max .. sigma_min), spaced as in Karras
 * et al. 2022 (rho 7), exponentially, as in Lu et al. 2022 (rho 1, on log sigma), or as quantiles
 * of the beta distribution with both parameters 0.6 (Lee et al. 2024, arXiv:2407.12173). */
void xd_sigmas_karras(double max, double min, int n, double *out);
void xd_sigmas_exponential(double max, double min, int n, double *out);
void xd_sigmas_lu(double max, double min, int n, double *out);
void xd_sigmas_beta(double max, double min, int n, double *out);
double xd_beta_quantile(double p);

/* The same as use_karras_sigmas, use_exponential_sigmas or use_beta_sigmas asks, between sigma_max
 * and sigma_min of the config, whatever its class, where it has them; does one of them ask? The
 * check returns XD_EFORMAT if several do. */
int       xd_is_respaced(const xd_sched_cfg *c);
void      xd_sigmas_respaced(const xd_sched_cfg *c, double max, double min, int n, double *out);
xd_status xd_respacing_check(const xd_sched_cfg *c, xd_err *e);

/* numpy's round: halves to even. */
double xd_round_even(double v);

/* Element i of numpy's linspace(0, stop, n) and of arange(from, 0, -step), whose length is
 * xd_arange_count. They repeat numpy's rounding errors, which decide the integer timesteps. */
double xd_linspace(double stop, int n, int i);
double xd_arange(double from, double step, int i);
int    xd_arange_count(double from, double step);

/* Integer timesteps of DDIM for n steps, largest first, into t [n + 1]; returns their number.
 * Where trailing spacing rounds to 0 the timestep is -1, which Python's indexing takes as the
 * last. */
int    xd_timesteps(const xd_sched_cfg *c, int n, double *t);

/* Integer timesteps of the multistep solvers, which leave out the last of n + 1 points, from below
 * `last`; largest first, into t [n + 1]; returns their number. */
int    xd_solver_timesteps(const xd_sched_cfg *c, int last, int n, double *t);

/* XD_EUNSUPPORTED or XD_EFORMAT if a key that all samplers read has an invalid value. */
xd_status xd_spacing_check(const xd_sched_cfg *c, xd_err *e);

/* XD_EUNSUPPORTED unless prediction_type is epsilon, sample or v_prediction. */
xd_status xd_prediction_check(const xd_sched_cfg *c, xd_err *e);

/* XD_EINVAL unless eta is from 0 to 1. */
xd_status xd_eta_check(const xd_sched_cfg *c, xd_err *e);

/* XD_EFORMAT if epsilon is predicted at timestep t but the signal there, `acp`, is 0. */
xd_status xd_signal_check(const xd_sched_cfg *c, int t, double acp, xd_err *e);

/* Dynamic shifting: xd_shift_of is the exponent for an image of so many tokens, on the line
 * through the two points of the config. xd_shift_check returns XD_EFORMAT if the two points are
 * no line. */
xd_status xd_shift_check(const xd_sched_cfg *c, xd_err *e);
double    xd_shift_of(const xd_sched_cfg *c, int64_t tokens);

/* Solvers with use_flow_sigmas: sets flow_shift to the dynamic shift, where the config asks for it
 * and the pipeline shifts by size. */
void      xd_shift_levels(xd_sched_cfg *c, const xd_steps *a);

/* A noise level of the solvers: the level itself, signal, noise, and half the log signal-to-noise
 * ratio, which is infinite at the end of the schedule. */
typedef struct xd_point { double level, alpha, sigma, lambda; } xd_point;
xd_point  xd_point_of(const xd_sched_cfg *c, double level);
/* Converts the prediction (epsilon, sample, v_prediction or flow_prediction) at a level to clean
 * latents, in place. */
void      xd_point_clean(xd_exec *x, const xd_sched_cfg *c, xd_point p, xd_tensor lat,
                         xd_tensor pred);

/* Converts the prediction (epsilon, sample or v_prediction) at the cumulative product acp to
 * clean latents, in place. */
void      xd_to_clean(xd_exec *x, const xd_sched_cfg *c, double acp, xd_tensor lat, xd_tensor pred);
/* The same, clipped where clip_sample asks for it: at the cumulative product acp, or at the level
 * sigma of latents whose image is not scaled. */
void      xd_to_clipped(xd_exec *x, const xd_sched_cfg *c, double acp, xd_tensor lat,
                        xd_tensor pred);
void      xd_level_clean(xd_exec *x, const xd_sched_cfg *c, double sigma, xd_tensor lat,
                         xd_tensor pred);

/* Drops the steps before the first one of a request that starts from an image: of the times, the
 * scales and `levels`, elements of `size` bytes, of which there are `more` than steps. */
void      xd_skip_steps(xd_sampling *s, const xd_steps *a, void *levels, size_t size, int more);
/* The shares of image and noise where the cumulative product is acp. */
void      xd_acp_shares(double acp, double of[2]);

/* Fails the context if a step that draws noise was given none. */
void      xd_noise_check(xd_exec *x, const xd_sampling *s, int step, xd_tensor noise);

/* Times and levels of Euler's and Heun's methods: n steps, or n + 1 where trailing spacing has one
 * more; into arrays of n + 2. Returns the number of levels, and the number of times in *times. */
int       xd_euler_levels(const xd_levels *l, const xd_sched_cfg *c, const xd_steps *a,
                          double *time, double *sigma, int *times);

/* The schedule of FlowMatchEulerDiscreteScheduler: priv is the levels, doubles, one more than
 * steps. */
xd_status xd_flow_open(xd_sampling *s, const xd_sched_cfg *c, const xd_steps *a, xd_err *e);
void      xd_flow_close(xd_sampling *s);
void      xd_flow_shares(const xd_sampling *s, int step, double of[2]);
void      xd_flow_clean(xd_exec *x, const xd_sampling *s, int step, xd_tensor lat, xd_tensor pred);

/* XD_EUNSUPPORTED, naming the key, if `on`. */
xd_status xd_refuse(int on, const char *key, const char *value, xd_err *e);

#endif
