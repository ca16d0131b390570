/* sampler.h - noise schedules and denoising steps: elementwise arithmetic on rows of latents.
 *
 * A sampler knows neither the model nor the ranks. It computes its schedule on the host in the
 * precision that diffusers uses. A step works on any range of rows, so patches and sequence
 * shards need no special code. The history of a multistep method is one array over all my rows. */
#ifndef XD_SAMPLER_SAMPLER_H
#define XD_SAMPLER_SAMPLER_H

#include "base/json.h"
#include "exec/exec.h"

/* The keys of scheduler_config.json that any sampler here reads. Missing keys have the defaults
 * of the diffusers class that is used. */
typedef struct xd_sched_cfg {
    int    num_train_timesteps;
    double beta_start, beta_end;
    char   beta_schedule[XD_FIELD_TEXT];        /* linear, scaled_linear, squaredcos_cap_v2     */
    char   prediction_type[XD_FIELD_TEXT];      /* epsilon, sample, v_prediction, flow_prediction */
    char   timestep_spacing[XD_FIELD_TEXT];     /* linspace, leading, trailing                  */
    int    steps_offset;
    int    solver_order;
    char   algorithm_type[XD_FIELD_TEXT];       /* dpmsolver++ (others: XD_EUNSUPPORTED)        */
    char   solver_type[XD_FIELD_TEXT];          /* midpoint, heun                               */
    int    lower_order_final, euler_at_final;
    int    original_inference_steps;            /* LCM, TCD                                     */
    double timestep_scaling, eta;               /* LCM; DDIM and TCD, of the request alone      */
    int    predict_x0;                          /* UniPC                                        */
    xd_ints disable_corrector;                  /* UniPC: steps behind which nothing is corrected */
    int    use_karras_sigmas, use_exponential_sigmas, use_beta_sigmas, use_lu_lambdas;
    int    use_flow_sigmas;
    double flow_shift;
    char   final_sigmas_type[XD_FIELD_TEXT];    /* zero, sigma_min                              */
    double lambda_min_clipped;
    char   variance_type[XD_FIELD_TEXT];
    int    thresholding;
    double dynamic_thresholding_ratio, sample_max_value;
    int    rescale_betas_zero_snr;
    double snr_shift_scale;                     /* xd_levels_shifted                            */
    int    clip_sample, set_alpha_to_one;       /* DDIM                                         */
    double clip_sample_range;
    char   interpolation_type[XD_FIELD_TEXT];   /* Euler: linear, log_linear                    */
    char   timestep_type[XD_FIELD_TEXT];        /* Euler: discrete, continuous                  */
    double sigma_min, sigma_max;                /* of levels that are respaced; NaN: of its own */
    double shift, base_shift, max_shift, shift_terminal;        /* flow                         */
    int64_t base_image_seq_len, max_image_seq_len;
    int    use_dynamic_shifting, invert_sigmas, stochastic_sampling;
    char   time_shift_type[XD_FIELD_TEXT];      /* exponential, linear                          */
} xd_sched_cfg;

typedef struct xd_sampling xd_sampling;         /* schedule and history of one request         */

typedef struct xd_steps {       /* parameters of a schedule from the request                    */
    int     steps;
    int64_t tokens;             /* image tokens, for dynamic shifting                          */
    int     own_sigmas;         /* rectified flow, unipc with use_flow_sigmas: levels are        */
                                /* 1 .. 1/steps before the shift                               */
    double  strength;           /* image to image: share of the steps that run; 0 or 1: all    */
    double  max_shift;          /* dpm++ with flow sigmas: for dynamic shifting without its key; */
                                /* 0: the pipeline does not shift by size                      */
    int     leap;               /* DDIM, Euler: a single step ends at the predicted clean latents */
    /* The logarithm of the dynamic shift; NULL: it follows from the tokens and the config. */
    double (*mu)(int64_t tokens, int steps);
    /* A list of the request, `steps` of them, largest first, or NULL; of Euler's sigmas one more,
     * the last level. */
    const double *sigmas, *times;
} xd_steps;

/* Lists that a sampler takes (`takes`); of some only with use_flow_sigmas, or without. */
enum { XD_TAKES_SIGMAS = 1, XD_TAKES_TIMES = 2 };

enum { XD_MAXHIST = 4 };        /* history arrays that the denoising loop provides for           */

typedef struct xd_sampler {
    const char *name;           /* "dpm++", the value of --scheduler                            */
    const char *webui;          /* name in stable-diffusion-webui; NULL: none                   */
    const char *webui_sde;      /* and with the algorithm_type sde-dpmsolver++                  */
    const char *classes[6];     /* diffusers scheduler classes it implements                    */
    const xd_field *fields;     /* of xd_sched_cfg, with the defaults of the class              */
    int (*history)(const xd_sched_cfg *c);      /* arrays, each like the latents                */
    xd_status (*open)(xd_sampling *s, const xd_sched_cfg *c, const xd_steps *a, xd_err *e);
    void (*close)(xd_sampling *s);
    /* Number of normal tensors of the size of the latents that diffusers draws in a step, after
     * those of earlier steps. NULL: none in any step. */
    int (*draws)(const xd_sampling *s, int step);
    /* One step on rows. lat [n,C] F32 becomes the next latents. pred [n,C] F32 is the guided
     * prediction and may be overwritten. hist[i] [n,C] F32 are these rows of the history. noise
     * [n,C] F32 are these rows of the last tensor that the step draws (absent if it draws none). */
    void (*step)(xd_exec *x, xd_sampling *s, int step, xd_tensor lat, xd_tensor pred,
                 const xd_tensor *hist, xd_tensor noise);
    /* The guided prediction of a step becomes, in place, the clean latents that it stands for. lat
     * are the latents before the step. Needs neither history nor noise. */
    void (*clean)(xd_exec *x, const xd_sampling *s, int step, xd_tensor lat, xd_tensor pred);
    int takes;                  /* XD_TAKES_...                                               */
    int last_sigma;             /* a list of sigmas has the last level, too                   */
    /* The shares of an image and of noise in latents as they are before a step, or behind the last
     * one (`step` is their number). NULL: it cannot start from an image. */
    void (*shares)(const xd_sampling *s, int step, double of[2]);
    int flow;                   /* rectified flow                                              */
} xd_sampler;

struct xd_sampling {
    const xd_sampler *def;
    xd_sched_cfg      cfg;
    int     steps;              /* model evaluations; diffusers may add one                      */
    int     skipped;            /* steps of the schedule before the first (0: rectified flow)  */
    double *time;               /* [steps] model time for the network                            */
    double  init_scale;         /* init_noise_sigma: factor of noise alone, without an image    */
    double *in_scale;           /* [steps] model input = latents * in_scale[step]                */
    void   *priv;
};

extern const xd_sampler *const xd_samplers[];   /* the registry; ends with NULL                */

/* Appends the names of all samplers, "a, b". */
void xd_sampler_names(xd_text_buf *b);
/* Finds a sampler by its --scheduler name or by a class of scheduler_config.json; NULL: none. */
const xd_sampler *xd_sampler_find(const char *name);
/* Finds a sampler by its name in stable-diffusion-webui, in any case of letters: `own` if that is
 * its name, else the first one of rectified flow, or of none; NULL: there is none. */
const xd_sampler *xd_sampler_webui(const char *name, const xd_sampler *own, int flow);
/* 1: the name asks the sampler for sde-dpmsolver++. */
int       xd_sampler_is_sde(const xd_sampler *s, const char *name);
/* Reads the config for this sampler; `obj` may be NULL. */
xd_status xd_sched_read(const xd_sampler *d, xd_sched_cfg *c, const xd_json *obj,
                        const char *what, xd_err *e);
/* Replaces names of solver_type and algorithm_type that belong to other classes, as this class does
 * where it reads a config: what another class makes of the same file follows from that. */
void      xd_sched_rename(xd_sched_cfg *c, const char *class_name);
/* Has the config of this sampler such a key? */
int       xd_sched_has(const xd_sampler *d, const char *key);
/* Does any step draw noise? */
int       xd_sampling_draws(const xd_sampling *s);
/* Opens and closes the schedule of a request. */
xd_status xd_sampling_open(xd_sampling *s, const xd_sampler *d, const xd_sched_cfg *c,
                           const xd_steps *a, xd_err *e);
/* Steps that are skipped at the start if strength is below 1 (diffusers' get_timesteps, which
 * rounds the other way in pipelines of rectified flow). */
int       xd_steps_skipped(const xd_steps *a, int flow);
void      xd_sampling_close(xd_sampling *s);

#endif
