/* job.h - a request, checked against the model and completed with its defaults */
#ifndef XD_PIPELINE_JOB_H
#define XD_PIPELINE_JOB_H

#include "io/inpaint.h"
#include "pipeline/attn_table.h"
#include "pipeline/context.h"
#include "pipeline/step_cache.h"
#include "xdit/xdit.h"

enum { XD_MAXREFS = 16 };       /* max reference images of a request                           */

/* Kept pixels of an image that is inpainted in part (padding_mask_crop). */
typedef struct xd_job_paste {
    uint8_t *rgb, *grey;        /* complete image and mask as read, on rank 0                  */
    xd_grid  size;              /* size of both in pixels                                      */
    xd_box   box;               /* the generated part                                          */
} xd_job_paste;

typedef struct xd_job {
    xd_context *ctx;
    const xd_request *r;
    int64_t     asked[2], size[2];      /* pixels requested and generated: height, width       */
    int64_t     frames;         /* frames of the result; 1 for an image                        */
    double      fps;            /* of a video file; 0: an image                                */
    int64_t     cells[3];       /* latent cells: t, h, w                                       */
    int64_t     spare;          /* leading cells in t that pad a patch, not decoded            */
    int64_t     lat[4];         /* extents of the latents on the host: t, C, h, w              */
    int64_t     numbers;        /* elements of the latents                                     */
    int64_t     tokens, features;       /* latents as [tokens,features]                        */
    xd_layout   lay;
    xd_usual    usual;          /* defaults of the request                                     */
    int         npass;          /* max passes per step: 1; 2 with guidance; or 3                 */
    int         all_passes;     /* passes of every step in a prediction; 0: per step            */
    uint8_t    *skips;          /* [layers] 1: skipped in the third pass; NULL: no such pass   */
    double      guidance;       /* scale that combines the two passes (xd_job_guidance)        */
    double      distilled;      /* guidance scale input of the transformer, or NaN             */
    double      boundary;       /* fraction of training timesteps; negative: none              */
    double      guidance_2;     /* `guidance` of the steps below the boundary                  */
    int         both;           /* two transformers stay loaded (xd_memory_plan)               */
    int         loads[2];       /* times that the request has loaded each                      */
    double      strength;       /* strength of the initial image; 0: no image                  */
    int         max_text, images;
    int64_t     window[3];      /* attention_window: t, h, w; or -1, 0 and tokens on each side; all
                                   0: none                                                     */
    xd_attn_table ways;         /* DiTFastAttn; way NULL: all attention is computed             */
    int         picks;          /* 1: the request selects images (xd_job_pick)                 */
    int        *todo, ntodo;    /* indices of generated images, ascending; NULL: all           */
    int         asked_steps;    /* samp.steps plus those skipped by `strength`                 */
    const xd_sampler *sampler;
    xd_sampling samp;
    xd_counts   step_ops;       /* counted ops of the first step                               */
    xd_cache_spec cache;
    int64_t     cached[2];      /* step cache: skipped middle ranges, all middle ranges        */
    xd_cache_pair *changes;     /* [nchanges] changes reported by the cache                     */
    int         nchanges, max_changes;
    double      start_s;
    double      away_s;         /* seconds in on_turn (yield.h)                                */
    double      away_reported_s;        /* the part of away_s that is already reported         */
    int         may_yield;      /* 1: this rank computes and may yield (yield.h)               */
    int64_t     held;           /* leading image tokens fixed by an image; 0: none             */
    float      *image;          /* [H,W,3] initial image (host); NULL: none or freed           */
    float      *moments;        /* [h,w,2C] its moments, on every host; NULL: none             */
    /* As image and moments, but without the grey mask: the noise starts from these if the
     * transformer reads the others. NULL: start from pure noise. */
    float      *start_image, *start_moments;
    uint8_t    *mask;           /* [H,W] 1: inpaint, 0: keep; on every rank once encoded          */
    xd_job_paste paste;         /* rgb NULL: the complete image is generated                   */
    int64_t     rank0_images;   /* input images of rank 0's request                            */
    int         nrefs;          /* reference images (references.h)                             */
    float      *last_image;     /* [H,W,3] last frame, as `image`                               */
    float      *condition;      /* [t,h,w,2C] moments of the conditioning video (condition.h), on
                                   the host of every rank; NULL: none                          */
    float      *encoder_pixels; /* [images,3,S,S] for the image encoder, on rank 0 and ranks that
                                   split the encoder with it; NULL: none                       */
    xd_grid     ref_size[XD_MAXREFS], refs[XD_MAXREFS];         /* size in pixels; in tokens    */
    float      *ref_pixels[XD_MAXREFS]; /* [H,W,3] on rank 0 until encoded                      */
    xd_grid     seen_size[XD_MAXREFS];  /* size for the encoder (prompt_images.h)               */
    uint8_t    *seen[XD_MAXREFS];       /* [H,W,3] on ranks that encode text; NULL: none        */
    float      *ref_tokens;     /* [all tokens,F] on every rank's host; NULL: none             */
    float      *given_noise;    /* [images][t,C,h,w] on every rank; NULL: none                  */
} xd_job;

/* Converts a program's request of any version to one of this version. */
xd_status xd_request_take(xd_request *own, const xd_request *r, xd_err *e);
/* The texts of a request other than its prompts: the negative prompt, and the texts of the second
 * and third encoder. */
typedef enum xd_job_text_kind { XD_TEXT_NEGATIVE, XD_TEXT_2, XD_TEXT_3, XD_TEXT_NEGATIVE_2,
                                XD_TEXT_NEGATIVE_3, XD_JOB_TEXTS } xd_job_text_kind;
/* Returns the text of a prompt, or NULL. */
const char *xd_job_text(const xd_request *r, xd_job_text_kind kind, int64_t prompt);
int       xd_job_has_text(const xd_request *r, xd_job_text_kind kind);  /* 1: any prompt has one */
const char *xd_job_text_name(xd_job_text_kind kind);
int       xd_job_negatives(const xd_request *r);        /* 1, or one per prompt                 */
uint64_t  xd_job_texts_hash(const xd_request *r);       /* hash of prompts and all lists        */
/* Shortens the lists of texts to the first prompt's. */
void      xd_job_first_texts(xd_request *r);
/* Refuses texts that are not UTF-8, and lists of wrong length. */
xd_status xd_job_check_texts(const xd_request *r, xd_err *e);
int       xd_job_has_image(const xd_request *r);        /* has an initial or reference image    */
int       xd_job_has_last(const xd_request *r);         /* has a last frame                     */
int       xd_job_has_mask(const xd_request *r);
int64_t   xd_job_images(const xd_request *r);           /* number of input images               */
xd_status xd_job_open(xd_job *j, xd_context *ctx, const xd_request *r, xd_err *e);
void      xd_job_close(xd_job *j);
/* Returns 1 if the request wants attention scores in int8 and the device supports it in the compute
 * type. */
int       xd_job_int8_attention(const xd_job *j);
/* Returns 1 if the request wants fp8 inputs for layers with fp8 weights (gemm). */
int       xd_job_fp8_gemms(const xd_job *j);
/* Reads attention_window. Call after the tokens are set. */
xd_status xd_job_window(xd_job *j, xd_err *e);
/* Returns 1 if some steps reuse an earlier step's keys and values of reference images. */
int       xd_job_keeps_references(const xd_job *j);
/* Refuses a reference_interval that is invalid or not supported with this plan or these options. */
xd_status xd_job_check_references(const xd_job *j, xd_err *e);
/* Warns on rank 0 about options of the request that have no effect. */
void      xd_job_warn_unused(const xd_job *j);
/* Finds the scheduler of the request, else of the model; sets j->sampler, and reads its config with
 * the request's changes. */
xd_status xd_job_sampler(xd_job *j, xd_sched_cfg *cfg, xd_err *e);
/* Reads the request's list of sigmas or timesteps into the parameters of its schedule, and sets
 * j->asked_steps. *list is malloc'ed or NULL; free it after xd_sampling_open. */
xd_status xd_job_lists(xd_job *j, xd_steps *a, double **list, xd_err *e);
/* Appends the request's changes of the scheduler config, ", \"eta\": 0.5". */
void      xd_job_sampler_json(const xd_job *j, xd_text_buf *b);
/* Calls the request's callback on rank 0 to select images, and sends its answer to all ranks.
 * Collective. */
xd_status xd_job_pick(xd_job *j, xd_err *e);
/* Index of the k-th generated image; 1 if an image of this prompt is generated. */
int       xd_job_image(const xd_job *j, int k);
int       xd_job_uses_prompt(const xd_job *j, int prompt);
/* Returns the weight of the prompt's pass; the weights of both passes sum to 1. */
double    xd_job_guidance(const xd_job *j, int step);
/* Number of model evaluations of a step: 1, 2 with guidance, 3 with skipped layers; and the number
 * that most steps of the request have. */
int       xd_job_passes(const xd_job *j, int step);
int       xd_job_usual_passes(const xd_job *j);
/* Reads skip_guidance_layers; npass becomes 3. Call after the schedule and npass are set. */
xd_status xd_job_read_skips(xd_job *j, xd_err *e);
/* Returns 1 if the step has the pass that skips layers; the first such step, or -1. */
int       xd_job_has_skips(const xd_job *j, int step);
int       xd_job_first_skip(const xd_job *j);
/* Returns 1 if the pass skips the layer. */
int       xd_job_skips(const xd_job *j, int pass, int layer);
/* Returns the guidance scale of a step: guidance, or guidance_2. */
double    xd_job_scale(const xd_job *j, int step);
/* Reads the boundary and the guidance below it. Refuses steps without a transformer. */
xd_status xd_job_boundary(xd_job *j, xd_err *e);
/* Returns the index of a step's transformer (xd_model_dit). */
int       xd_job_dit(const xd_job *j, int step);
/* Return the range [begin, end) of consecutive steps around `step` with the same transformer. */
int       xd_job_dit_begin(const xd_job *j, int step);
int       xd_job_dit_end(const xd_job *j, int step);
/* Returns 1 if a step of the request needs transformer i. */
int       xd_job_uses_dit(const xd_job *j, int i);
/* Return how often the transformer changes between steps; for a later image the change before the
 * first step counts, too. */
int       xd_job_changes(const xd_job *j);
int       xd_job_changes_again(const xd_job *j);
/* Returns the guidance scale at or below which guidance is off: 1 or 0. */
double    xd_job_no_guidance(const xd_job *j);
/* Returns the number of tokens for this many rows of text or image, including the transformer's
 * padding. */
int64_t   xd_job_padded(const xd_job *j, int64_t rows);
/* Returns the number of F32 elements of the result's pixels [frames,H,W,3] in the requested
 * size. */
int64_t   xd_job_pixels(const xd_job *j);
/* Returns the flag of two-pass guidance: "true_cfg_scale" if the other guidance is distilled. */
const char *xd_job_guide(const xd_job *j);

#endif
