/* sampler.h - noise schedules and steps: pure arithmetic on rows of latents.
 *
 * A sampler knows neither model nor ranks. Its schedule is computed on the host in the
 * precision diffusers uses; a step works on any range of rows, so patches and shares need
 * nothing special: multistep history is one array over all my rows. */
#ifndef XD_SAMPLER_SAMPLER_H
#define XD_SAMPLER_SAMPLER_H

#include "base/json.h"
#include "exec/exec.h"

/* scheduler_config.json, the keys of every scheduler that is built; defaults are diffusers' of
 * the class asked for (a class's own defaults are applied before the file's values). */
typedef struct xd_sched_cfg {
    int    num_train_timesteps;
    double beta_start, beta_end;
    char   beta_schedule[XD_FIELD_TEXT];        /* linear, scaled_linear, squaredcos_cap_v2     */
    char   prediction_type[XD_FIELD_TEXT];      /* epsilon, sample, v_prediction                */
    char   timestep_spacing[XD_FIELD_TEXT];     /* linspace, leading, trailing                  */
    int    steps_offset;
    int    solver_order;
    char   algorithm_type[XD_FIELD_TEXT];       /* dpmsolver++ (others are refused)             */
    char   solver_type[XD_FIELD_TEXT];          /* midpoint, heun                               */
    int    lower_order_final, euler_at_final;
    int    use_karras_sigmas, use_exponential_sigmas, use_beta_sigmas, use_lu_lambdas;
    int    use_flow_sigmas;
    double flow_shift;
    char   final_sigmas_type[XD_FIELD_TEXT];    /* zero, sigma_min                              */
    double lambda_min_clipped;
    char   variance_type[XD_FIELD_TEXT];
    int    thresholding;
    double dynamic_thresholding_ratio, sample_max_value;
    int    rescale_betas_zero_snr;
    double snr_shift_scale;                     /* CogVideoX                                    */
    int    clip_sample, set_alpha_to_one;       /* DDIM                                         */
    double clip_sample_range;
    char   interpolation_type[XD_FIELD_TEXT];   /* Euler: linear, log_linear                    */
    char   timestep_type[XD_FIELD_TEXT];        /* Euler: discrete, continuous                  */
    double sigma_min, sigma_max;                /* Euler; NaN: the schedule's                   */
    double shift, base_shift, max_shift, shift_terminal;        /* flow                         */
    int64_t base_image_seq_len, max_image_seq_len;
    int    use_dynamic_shifting, invert_sigmas, stochastic_sampling;
    char   time_shift_type[XD_FIELD_TEXT];      /* exponential, linear                          */
} xd_sched_cfg;

typedef struct xd_sampling xd_sampling;         /* one request's schedule and history          */

typedef struct xd_steps {       /* what a request asks of a schedule                            */
    int     steps;
    int64_t tokens;             /* of the image: dynamic shifting depends on it                */
    int     own_sigmas;         /* flow: levels are 1 .. 1/steps before the shift              */
    double  strength;           /* image to image: the last share of the steps; 0 or 1: all     */
    double  max_shift;          /* dpm++ with flow sigmas: of dynamic shifting, where the config has none; */
                                /* 0: the pipeline shifts nothing by its size                  */
    int     leap;               /* DDIM, Euler: a step that is alone ends at the clean latents it predicts */
} xd_steps;

enum { XD_MAXHIST = 4 };        /* arrays of history that a denoising loop has room for          */

typedef struct xd_sampler {
    const char *name;           /* "dpm++", the value of --scheduler                           */
    const char *webui;          /* what stable-diffusion-webui calls it; NULL: nothing          */
    const char *classes[6];     /* scheduler classes of diffusers it stands for                */
    const xd_field *fields;     /* of xd_sched_cfg, with the class's defaults                   */
    int (*history)(const xd_sched_cfg *c);      /* arrays the size of the latents it keeps      */
    xd_status (*open)(xd_sampling *s, const xd_sched_cfg *c, const xd_steps *a, xd_err *e);
    void (*close)(xd_sampling *s);
    /* Normal tensors the size of the latents that diffusers draws in a step, after those of the steps
     * before; NULL: none ever. */
    int (*draws)(const xd_sampling *s, int step);
    /* One step on rows: lat [n,C] F32 becomes the next latents; pred [n,C] F32 is the guided
     * prediction (may be overwritten); hist[i] [n,C] F32 are the same rows of the history, noise
     * [n,C] F32 of the last tensor that this step draws (absent when it draws none). */
    void (*step)(xd_exec *x, xd_sampling *s, int step, xd_tensor lat, xd_tensor pred,
                 const xd_tensor *hist, xd_tensor noise);
    int flow;                   /* of rectified flow: can start from an image                 */
} xd_sampler;

struct xd_sampling {
    const xd_sampler *def;
    xd_sched_cfg      cfg;
    int     steps;              /* model evaluations; diffusers may take one more than was asked  */
    double *time;               /* [steps] model time given to the network                      */
    double  init_scale;         /* init_noise_sigma: the initial noise is multiplied by it       */
    double  start_image, start_noise;   /* image to image: share of each in the first latents    */
    double *in_scale;           /* [steps] input of the model = latents * in_scale[step]         */
    void   *priv;
};

extern const xd_sampler *const xd_samplers[];   /* the registry, NULL at the end               */

/* Their names, "a, b"; appended. */
void xd_sampler_names(xd_text_buf *b);
/* By the name of --scheduler or by the class of scheduler_config.json; NULL: none. */
const xd_sampler *xd_sampler_find(const char *name);
/* Reads the config for that sampler; `obj` may be NULL. */
xd_status xd_sched_read(const xd_sampler *d, xd_sched_cfg *c, const xd_json *obj,
                        const char *what, xd_err *e);
/* Opens and closes a request's schedule. */
xd_status xd_sampling_open(xd_sampling *s, const xd_sampler *d, const xd_sched_cfg *c,
                           const xd_steps *a, xd_err *e);
/* Steps at the start that a strength below 1 leaves out (diffusers' get_timesteps). */
int       xd_steps_skipped(const xd_steps *a);
void      xd_sampling_close(xd_sampling *s);

#endif
