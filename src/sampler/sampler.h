/* sampler.h - declares noise schedules and denoising steps, which are elementwise arithmetic on
 * rows of latents.
 *
 * A sampler is independent of the model and of the ranks. A sampler computes its schedule on the
 * host, in the precision of diffusers. A denoising step can be computed for any range of rows of
 * the latents, so patches and sequence parallelism need no special code. The history of a multistep
 * method is one array over all rows of a rank. */
#ifndef XD_SAMPLER_SAMPLER_H
#define XD_SAMPLER_SAMPLER_H

#include "base/json.h"
#include "exec/exec.h"

/* The keys of scheduler_config.json that the samplers read. A key that is missing in
 * scheduler_config.json gets the default of the diffusers class in use. */
typedef struct xd_sched_cfg {
    int     num_train_timesteps;
    double  beta_start, beta_end;
    /* schedule of the betas: "linear", "scaled_linear" or "squaredcos_cap_v2" */
    char    beta_schedule[XD_FIELD_TEXT];
    /* quantity that the model predicts: "epsilon", "sample", "v_prediction" or "flow_prediction" */
    char    prediction_type[XD_FIELD_TEXT];
    /* spacing of the timesteps: "linspace", "leading" or "trailing" */
    char    timestep_spacing[XD_FIELD_TEXT];
    int     steps_offset;
    int     solver_order;
    /* for DPM-Solver: "dpmsolver++" or, only for the multistep sampler, "sde-dpmsolver++" */
    char    algorithm_type[XD_FIELD_TEXT];
    char    solver_type[XD_FIELD_TEXT]; /* solver type of DPM-Solver: "midpoint" or "heun" */
    int     lower_order_final, euler_at_final;
    /* For LCM and TCD: number of timesteps used in the distillation, from which the timesteps of a
     * request are chosen. */
    int     original_inference_steps;
    /* timestep_scaling: only for LCM. eta: only for DDIM and TCD; the request sets it, not the
     * config. */
    double  timestep_scaling, eta;
    int     predict_x0;        /* for UniPC: 1 if steps use predicted latents without noise */
    xd_ints disable_corrector; /* for UniPC: indices of steps without a corrector */
    int     use_karras_sigmas, use_exponential_sigmas, use_beta_sigmas, use_lu_lambdas;
    int     use_flow_sigmas;
    double  flow_shift;
    char    final_sigmas_type[XD_FIELD_TEXT]; /* last noise level: "zero" or "sigma_min" */
    double  lambda_min_clipped;
    char    variance_type[XD_FIELD_TEXT];
    int     thresholding;
    double  dynamic_thresholding_ratio, sample_max_value;
    int     rescale_betas_zero_snr;
    double  sigma_data; /* for SCM: standard deviation of the latents during sampling */
    /* For SCM, in radians: the first timestep, and the second timestep if the request has two
     * steps. The request sets max_timesteps and intermediate_timesteps; the config does not contain
     * them. A value of NaN stands for the default. If intermediate_timesteps is 0, the steps have
     * equal lengths. */
    double  max_timesteps, intermediate_timesteps;
    double  snr_shift_scale; /* shift of the signal-to-noise ratio (see xd_levels_shifted) */
    /* If clip_sample is 1, predicted latents without noise are clipped. If set_alpha_to_one is 1,
     * DDIM's cumulative alpha product after the last step is 1. */
    int     clip_sample, set_alpha_to_one;
    int     skip_prk_steps; /* for PNDM: 1 if the sampler makes no Runge-Kutta steps */
    double  clip_sample_range;
    /* How Euler interpolates noise levels: "linear" or "log_linear". */
    char    interpolation_type[XD_FIELD_TEXT];
    /* Kind of timesteps that Euler passes to the network: "discrete" or "continuous". */
    char    timestep_type[XD_FIELD_TEXT];
    /* smallest and largest noise level with a special spacing (xd_is_respaced); NaN: the values of
     * the noise schedule */
    double  sigma_min, sigma_max;
    /* parameters of the shift of noise levels, for rectified flow */
    double  shift, base_shift, max_shift, shift_terminal;
    int64_t base_image_seq_len, max_image_seq_len;
    int     use_dynamic_shifting, invert_sigmas, stochastic_sampling;
    char    time_shift_type[XD_FIELD_TEXT]; /* kind of dynamic shift: "exponential" or "linear" */
} xd_sched_cfg;

/* The macro XD_SCHED is a row of xd_sampler.fields: a config key with its kind (xd_field) and
 * default. XD_SCHED_BETAS expands to the rows whose defaults several scheduler classes share. */
#define XD_SCHED(key, kind, number, text) \
    { #key, offsetof(xd_sched_cfg, key), kind, number, text }
#define XD_SCHED_BETAS                                          \
    XD_SCHED(num_train_timesteps, 'i', 1000, NULL),             \
    XD_SCHED(beta_start, 'd', 0.0001, NULL),                    \
    XD_SCHED(beta_end, 'd', 0.02, NULL),                        \
    XD_SCHED(beta_schedule, 's', 0, "linear")
#define XD_SCHED_THRESHOLDS                                     \
    XD_SCHED(thresholding, 'b', 0, NULL),                       \
    XD_SCHED(dynamic_thresholding_ratio, 'd', 0.995, NULL),     \
    XD_SCHED(sample_max_value, 'd', 1, NULL)
#define XD_SCHED_SIGMAS                                         \
    XD_SCHED(use_karras_sigmas, 'b', 0, NULL),                  \
    XD_SCHED(use_exponential_sigmas, 'b', 0, NULL),             \
    XD_SCHED(use_beta_sigmas, 'b', 0, NULL),                    \
    XD_SCHED(sigma_min, 'd', NAN, NULL),                        \
    XD_SCHED(sigma_max, 'd', NAN, NULL)
#define XD_SCHED_FLOW                                           \
    XD_SCHED(num_train_timesteps, 'i', 1000, NULL),             \
    XD_SCHED(shift, 'd', 1, NULL),                              \
    XD_SCHED(use_dynamic_shifting, 'b', 0, NULL),               \
    XD_SCHED(base_shift, 'd', 0.5, NULL),                       \
    XD_SCHED(max_shift, 'd', 1.15, NULL),                       \
    XD_SCHED(base_image_seq_len, 'l', 256, NULL),               \
    XD_SCHED(max_image_seq_len, 'l', 4096, NULL),               \
    XD_SCHED(time_shift_type, 's', 0, "exponential")
#define XD_SCHED_SHIFTS                                         \
    XD_SCHED(use_flow_sigmas, 'b', 0, NULL),                    \
    XD_SCHED(flow_shift, 'd', 1, NULL),                         \
    XD_SCHED(use_dynamic_shifting, 'b', 0, NULL),               \
    XD_SCHED(time_shift_type, 's', 0, "exponential"),           \
    XD_SCHED(base_shift, 'd', 0.5, NULL),                       \
    XD_SCHED(max_shift, 'd', NAN, NULL),                        \
    XD_SCHED(base_image_seq_len, 'l', 256, NULL),               \
    XD_SCHED(max_image_seq_len, 'l', 4096, NULL)

typedef struct xd_sampling xd_sampling; /* schedule and history of one request */

typedef struct xd_steps { /* settings of a schedule that depend on the request */
    int           steps;
    int64_t       tokens; /* number of image tokens, on which a dynamic shift depends */
    /* 1: the noise levels are spaced evenly from 1 to 1/steps, and then shifted. own_sigmas is used
     * only by samplers of rectified flow, and by unipc with use_flow_sigmas. */
    int           own_sigmas;
    /* Above 0, with own_sigmas: the noise levels form a linear-quadratic schedule. In a
     * linear-quadratic schedule, the levels fall linearly from 1 to 1 - threshold_noise in the
     * first half of the steps, and then along a parabola to 0. threshold_noise is used only by
     * samplers of rectified flow. */
    double        threshold_noise;
    /* For denoising that starts from an image: fraction of the steps that run; 0 or 1: all
     * steps. */
    double        strength;
    /* 1: the number of steps that `strength` selects is rounded down; 0: it is rounded up */
    int           rounds_down;
    /* For dpm++ with use_flow_sigmas: max_shift of the dynamic timestep shift, if the config does
     * not contain it. 0: the pipeline does not shift timesteps by image size. */
    double        max_shift;
    /* 1: if the schedule has only one step, the samplers DDIM, DDPM and Euler return the predicted
     * latents without noise. */
    int           leap;
    /* Used only by unipc. 1: as in pipelines that overwrite a step's input latents, the corrector
     * that follows a step without a corrector starts from the output of that step. */
    int           overwrites;
    /* Function that returns the logarithm of the dynamic timestep shift; NULL: the shift is
     * computed from the number of tokens and the config. */
    double        (*mu)(int64_t tokens, int steps);
    /* Noise levels and timesteps that the request sets itself: lists of `steps` values, largest
     * first, or NULL. For Euler, the list of sigmas has one more value, the last noise level. */
    const double *sigmas, *times;
} xd_steps;

/* Bits of xd_sampler.takes, which tell whether a sampler accepts a request's list of sigmas, and
 * its list of timesteps. Some samplers accept a list only if use_flow_sigmas is set, others only if
 * it is not set. */
enum { XD_TAKES_SIGMAS = 1, XD_TAKES_TIMES = 2 };

enum { XD_MAXHIST = 4 }; /* maximum number of history arrays of a sampler */

typedef struct xd_sampler {
    const char     *name; /* value of the option --scheduler, for example "dpm++" */
    /* name of the sampler in stable-diffusion-webui; NULL: it has no name there */
    const char     *webui;
    /* Name of the sampler in stable-diffusion-webui if algorithm_type is sde-dpmsolver++; NULL: it
     * has no name there. */
    const char     *webui_sde;
    const char     *classes[6]; /* diffusers' scheduler classes that the sampler implements */
    /* The config keys that the sampler reads into xd_sched_cfg, with their default values. */
    const xd_field *fields;
    int             (*history)(const xd_sched_cfg *c); /* returns the number of history arrays */
    xd_status       (*open)(xd_sampling *s, const xd_sched_cfg *c, const xd_steps *a, xd_err *e);
    void            (*close)(xd_sampling *s);
    /* Returns how many random tensors diffusers draws in a step; each is normally distributed and
     * has the shape of the latents. If `draws` is NULL, no step draws random tensors. */
    int             (*draws)(const xd_sampling *s, int step);
    /* Runs one denoising step on n rows of the latents. lat [n,C] F32 becomes the next latents.
     * pred [n,C] F32 is the guided prediction and may be overwritten. hist[i] [n,C] F32 contains
     * the rows of history array i that belong to the n rows of the latents. noise [n,C] F32
     * contains the n rows of the random tensor that the step drew last, or is absent if the step
     * draws none. */
    void            (*step)(xd_exec *x, xd_sampling *s, int step, xd_tensor lat, xd_tensor pred,
                            const xd_tensor *hist, xd_tensor noise);
    /* Replaces the guided prediction `pred` of a step by the latents without noise that follow from
     * `pred` and from `lat`, the latents before the step. Neither history nor random noise is
     * needed. */
    void (*clean)(xd_exec *x, const xd_sampling *s, int step, xd_tensor lat, xd_tensor pred);
    int  takes;      /* lists that the sampler accepts: XD_TAKES_SIGMAS, XD_TAKES_TIMES */
    int  last_sigma; /* 1: the request's sigmas include the last noise level */
    /* Writes two factors to of[0] and of[1]. The latents before the step are of[0] times the image
     * without noise plus of[1] times noise. `step` may be the number of steps, which stands for the
     * latents after the last step. If `shares` is NULL, the sampler cannot start from an image. */
    void (*shares)(const xd_sampling *s, int step, double of[2]);
    int  flow; /* 1: the sampler is for models of rectified flow */
} xd_sampler;

struct xd_sampling {
    const xd_sampler *def;
    xd_sched_cfg      cfg;
    /* Number of model evaluations, which may be one more than the request's number of steps, as in
     * diffusers. */
    int               steps;
    /* Number of steps at the start of the schedule that are skipped; always 0 for rectified
     * flow. */
    int               skipped;
    int               overwrites; /* value of xd_steps.overwrites */
    double           *time;       /* [steps] timestep of each step, an input of the network */
    /* Factor of the initial noise if there is no initial image (init_noise_sigma). */
    double            init_scale;
    /* [steps] factor of each step's latents in the input of the network */
    double           *in_scale;
    void             *priv;
};

extern const xd_sampler *const xd_samplers[]; /* all samplers; the array ends with NULL */

/* Appends the names of all samplers to a text, in the form "a, b". */
void              xd_sampler_names(xd_text_buf *b);
/* Returns the sampler with this name, which is a --scheduler name or a class name from
 * scheduler_config.json, or NULL if no sampler has the name. */
const xd_sampler *xd_sampler_find(const char *name);
/* Returns a sampler by its name in stable-diffusion-webui, ignoring case. If `name` is the name of
 * the model's own sampler `own`, returns `own`. If `own` has another name, returns the first
 * sampler with the name `name` whose field `flow` (rectified flow or not) equals `flow`, or NULL if
 * there is none. */
const xd_sampler *xd_sampler_webui(const char *name, const xd_sampler *own, int flow);
/* Returns 1 if stable-diffusion-webui uses this name for sampler s with algorithm_type
 * sde-dpmsolver++. */
int               xd_sampler_is_sde(const xd_sampler *s, const char *name);
/* Reads the config keys that sampler d uses from `obj`, the JSON object of a scheduler config. If
 * `obj` is NULL, all keys get their default values. `what` is the name of the config in error
 * messages. */
xd_status xd_sched_read(const xd_sampler *d, xd_sched_cfg *c, const xd_json *obj, const char *what,
                        xd_err *e);
/* Replaces values of solver_type and algorithm_type that the diffusers class `class_name` does not
 * support. The diffusers class replaces unsupported values in the same way when it reads a
 * config. */
void      xd_sched_rename(xd_sched_cfg *c, const char *class_name);
/* Returns 1 if sampler d reads this key of scheduler_config.json. */
int       xd_sched_has(const xd_sampler *d, const char *key);
/* Returns 1 if any step of the schedule draws noise. */
int       xd_sampling_draws(const xd_sampling *s);
/* Computes the noise schedule of a request. Close the schedule with xd_sampling_close. */
xd_status xd_sampling_open(xd_sampling *s, const xd_sampler *d, const xd_sched_cfg *c,
                           const xd_steps *a, xd_err *e);
/* Returns how many steps at the start of the schedule are skipped if strength is below 1, as
 * diffusers' get_timesteps does. A fractional number of steps is rounded up; in pipelines of
 * rectified flow, it is rounded down. */
int       xd_steps_skipped(const xd_steps *a, int flow);
void      xd_sampling_close(xd_sampling *s);

#endif
