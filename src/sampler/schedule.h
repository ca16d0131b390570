/* schedule.h - used only in src/sampler: computes noise levels, and the timesteps of a request's
 * steps.
 *
 * Values that diffusers stores in f32 are rounded to f32 here too, because otherwise the last
 * digits of a schedule would differ from those of diffusers. */
#ifndef XD_SAMPLER_SCHEDULE_H
#define XD_SAMPLER_SCHEDULE_H

#include "sampler/sampler.h"

typedef struct xd_levels { /* noise levels for the training timesteps t = 0 .. n-1 */
    int     n;
    double *acp;   /* [n] cumulative product of 1 - beta */
    double *sigma; /* [n] noise level sqrt((1 - acp) / acp) */
} xd_levels;

/* Computes the noise levels of training from a scheduler config. If rescale_betas_zero_snr is set
 * and `zero_end` is not 0, the cumulative alpha product (acp) of the last timestep is set to
 * `zero_end`. After a failure, xd_levels_close must be called as well. */
xd_status xd_levels_open(xd_levels *l, const xd_sched_cfg *c, double zero_end, xd_err *e);
void      xd_levels_close(xd_levels *l);

/* Computes the noise levels of training with a shifted signal-to-noise ratio, without `sigma`: acp
 * (the cumulative product of 1 - beta) is shifted by snr_shift_scale; if rescale_betas_zero_snr is
 * set, acp is then rescaled to end at 0. The computation is in f64 for scaled_linear betas, else in
 * f32. */
xd_status xd_levels_shifted(xd_levels *l, const xd_sched_cfg *c, xd_err *e);

/* Returns the fractional timestep of a noise level, by linear interpolation of the timestep over
 * log sigma. */
double xd_level_time(const xd_levels *l, double sigma);
/* Returns the noise level sigma at a fractional timestep, by linear interpolation between the
 * levels of two timesteps. */
double xd_level_sigma(const xd_levels *l, double t);

/* Helpers for the spacing of noise levels. xd_sigmas_exponential writes n levels from `max` to
 * `min` that are spaced exponentially. xd_sigmas_lu writes n levels that are spaced as in Lu et al.
 * 2022 (rho 1, on log sigma). xd_beta_quantile returns a quantile of the beta distribution with
 * both parameters 0.6 (Lee et al. 2024, arXiv:2407.12173). */
void   xd_sigmas_exponential(double max, double min, int n, double *out);
void   xd_sigmas_lu(double max, double min, int n, double *out);
double xd_beta_quantile(double p);

/* xd_is_respaced returns 1 if use_karras_sigmas, use_exponential_sigmas or use_beta_sigmas is set.
 * xd_sigmas_respaced writes n noise levels with the spacing of the key that is set; the levels are
 * between sigma_max and sigma_min of the config or, if these are not set, between `max` and `min`.
 * xd_respacing_check returns XD_EFORMAT if several of the three keys are set. */
int       xd_is_respaced(const xd_sched_cfg *c);
void      xd_sigmas_respaced(const xd_sched_cfg *c, double max, double min, int n, double *out);
xd_status xd_respacing_check(const xd_sched_cfg *c, xd_err *e);

/* Rounds to an integer like numpy's round: a half is rounded to the even neighbour. */
double xd_round_even(double v);

/* Returns element i of numpy's linspace(0, stop, n). Rounding errors equal those of numpy, because
 * rounding errors decide which integer a timestep becomes. */
double xd_linspace(double stop, int n, int i);

/* Writes DDIM's integer timesteps for n steps to t [n + 1], largest first. Returns the number of
 * timesteps. With trailing spacing, a timestep that rounds to 0 becomes -1, which stands for the
 * last element in Python. */
int xd_timesteps(const xd_sched_cfg *c, int n, double *t);

/* Writes the integer timesteps of the multistep solvers to t [n + 1], largest first. The timesteps
 * are all but the smallest of n + 1 evenly spaced points below `last`. Returns the number of
 * timesteps. */
int xd_solver_timesteps(const xd_sched_cfg *c, int last, int n, double *t);

/* Checks the values of the config keys that all samplers read; returns XD_EUNSUPPORTED or
 * XD_EFORMAT if a value is invalid. */
xd_status xd_spacing_check(const xd_sched_cfg *c, xd_err *e);

/* Returns XD_EUNSUPPORTED unless the config's prediction_type is epsilon, sample or
 * v_prediction. */
xd_status xd_prediction_check(const xd_sched_cfg *c, xd_err *e);

/* Returns XD_EINVAL unless the config's eta is in [0, 1]. */
xd_status xd_eta_check(const xd_sched_cfg *c, xd_err *e);

/* Returns XD_EFORMAT if the model predicts epsilon and the cumulative alpha product `acp` at
 * timestep t is 0, because latents without noise then cannot be computed from epsilon. */
xd_status xd_signal_check(const xd_sched_cfg *c, int t, double acp, xd_err *e);

/* Functions that shift timesteps depending on the image size (dynamic shifting). xd_shift_of
 * returns the exponent of the shift for an image with `tokens` tokens; the exponent is a linear
 * function of the number of tokens, with the value base_shift at base_image_seq_len and max_shift
 * at max_image_seq_len. xd_shift_check returns XD_EFORMAT if the two sequence lengths are equal. */
xd_status xd_shift_check(const xd_sched_cfg *c, xd_err *e);
double    xd_shift_of(const xd_sched_cfg *c, int64_t tokens);

/* For solvers with use_flow_sigmas: if the config enables dynamic shifting and the pipeline shifts
 * by image size, sets the config's flow_shift to the dynamic shift. */
void xd_shift_levels(xd_sched_cfg *c, const xd_steps *a);

/* A noise level of the solvers: the level itself, the factor of the signal (alpha), the factor of
 * the noise (sigma), and half the log signal-to-noise ratio (lambda). lambda is infinite at the end
 * of the schedule. */
typedef struct xd_point { double level, alpha, sigma, lambda; } xd_point;
xd_point xd_point_of(const xd_sched_cfg *c, double level);
/* Replaces the prediction (epsilon, sample, v_prediction or flow_prediction) at noise level p by
 * the latents without noise that follow from it. */
void xd_point_clean(xd_exec *x, const xd_sched_cfg *c, xd_point p, xd_tensor lat, xd_tensor pred);

/* Replaces the prediction (epsilon, sample or v_prediction) at the noise level with cumulative
 * alpha product acp by the latents without noise that follow from it. */
void xd_to_clean(xd_exec *x, const xd_sched_cfg *c, double acp, xd_tensor lat, xd_tensor pred);
/* Replace a prediction by latents without noise, as xd_to_clean does, and clip them if clip_sample
 * is set. xd_to_clipped is for the noise level with cumulative alpha product acp. xd_level_clean is
 * for noise level sigma, at which latents are the unscaled image plus noise. */
void xd_to_clipped(xd_exec *x, const xd_sched_cfg *c, double acp, xd_tensor lat, xd_tensor pred);
void xd_level_clean(xd_exec *x, const xd_sched_cfg *c, double sigma, xd_tensor lat, xd_tensor pred);

/* If a request that starts from an image skips steps, removes the elements of the skipped steps
 * from s->time, s->in_scale and `levels`, an array of s->steps + `more` elements of `size`
 * bytes. */
void xd_skip_steps(xd_sampling *s, const xd_steps *a, void *levels, size_t size, int more);
/* Writes the factors of image and noise in noisy latents to of[0] and of[1]. The latents at the
 * noise level with cumulative alpha product acp are of[0] times the image plus of[1] times
 * noise. */
void xd_acp_shares(double acp, double of[2]);

/* Makes the execution context fail if the step draws noise but the tensor `noise` is absent. */
void xd_noise_check(xd_exec *x, const xd_sampling *s, int step, xd_tensor noise);

/* Writes the timesteps and noise levels of Euler's and Heun's methods for n steps to two arrays of
 * n + 2 elements. With trailing spacing, the schedule can have one step more than n. Returns the
 * number of noise levels, and writes the number of timesteps to *times. */
int xd_euler_levels(const xd_levels *l, const xd_sched_cfg *c, const xd_steps *a, double *time,
                    double *sigma, int *times);

/* Functions for the schedule of diffusers' FlowMatchEulerDiscreteScheduler, in which s->priv points
 * to steps + 1 noise levels (double). */
xd_status xd_flow_open(xd_sampling *s, const xd_sched_cfg *c, const xd_steps *a, xd_err *e);
void      xd_flow_close(xd_sampling *s);
void      xd_flow_shares(const xd_sampling *s, int step, double of[2]);
void      xd_flow_clean(xd_exec *x, const xd_sampling *s, int step, xd_tensor lat, xd_tensor pred);

/* If `on` is 1, returns XD_EUNSUPPORTED with an error message that contains the config key and its
 * value. */
xd_status xd_refuse(int on, const char *key, const char *value, xd_err *e);

#endif
