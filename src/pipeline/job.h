/* job.h - a request, checked against the model and completed with its defaults */
#ifndef XD_PIPELINE_JOB_H
#define XD_PIPELINE_JOB_H

#include "io/inpaint.h"
#include "pipeline/attn_table.h"
#include "pipeline/context.h"
#include "pipeline/step_cache.h"
#include "xdit/xdit.h"

enum { XD_MAXREFS = 16 };       /* reference images of a request                               */

/* What is left of an image of which a part is inpainted. */
typedef struct xd_job_paste {
    uint8_t *rgb, *grey;        /* the whole image and its mask, as read, on rank 0            */
    xd_grid  size;              /* their pixels                                                */
    xd_box   box;               /* the part                                                    */
} xd_job_paste;

typedef struct xd_job {
    xd_context *ctx;
    const xd_request *r;
    int64_t     asked[2], size[2];      /* pixels requested and generated: height, width       */
    int64_t     frames;         /* of the result; 1 for an image                               */
    double      fps;            /* of a video file; 0: an image                                */
    int64_t     cells[3];       /* latent cells: t, h, w                                       */
    int64_t     spare;          /* leading cells in t that only fill a patch: not decoded      */
    int64_t     lat[4];         /* extents of the latents on the host: t, C, h, w              */
    int64_t     numbers;        /* their number of elements                                    */
    int64_t     tokens, features;       /* of the latents as tokens                            */
    xd_layout   lay;
    xd_usual    usual;          /* defaults of the request                                     */
    int         npass;          /* most passes of a step (XD_PASS_...): 1; 2 with guidance; or 3 */
    int         all_passes;     /* of every step, in a prediction; 0: as the step has them      */
    uint8_t    *skips;          /* [layers] 1: left out of the third pass; NULL: there is none */
    double      guidance;       /* scale that combines the two passes (xd_job_guidance)        */
    double      distilled;      /* guidance scale that the transformer reads, or NaN           */
    double      boundary;       /* share of the training times; negative: none                 */
    double      guidance_2;     /* `guidance` of the steps below the boundary                  */
    int         both;           /* two transformers stay loaded (xd_memory_plan)               */
    int         loads[2];       /* how often the request has come to each                      */
    double      strength;       /* of the initial image; 0: there is none                      */
    int         max_text, images;
    int64_t     window[3];      /* attention_window: t, h, w, or -1, 0 and tokens of a line; all
                                   0: there is none                                            */
    xd_attn_table ways;         /* of attention; way is NULL: all are computed                  */
    int         picks;          /* the request leaves out some images (xd_job_pick)            */
    int        *todo, ntodo;    /* those that are generated, in order; NULL: all               */
    int         asked_steps;    /* samp.steps plus the steps that a strength leaves out        */
    const xd_sampler *sampler;
    xd_sampling samp;
    xd_counts   step_ops;       /* of the first step, counted                                  */
    xd_cache_spec cache;
    int64_t     cached[2];      /* middle ranges of an image that were left out, and all       */
    xd_cache_pair *changes;     /* [nchanges] of the image, of a cache that tells them          */
    int         nchanges, most_changes;
    double      start_s;
    double      away_s, told_s; /* seconds in on_turn; of these, those of earlier parts (turns.h) */
    int         in_turns;       /* this rank computes, and there may be turns                  */
    int64_t     held;           /* image tokens, the first ones, that an image holds; 0: none  */
    float      *image;          /* [H,W,3] initial image on the host; NULL: none, or freed     */
    float      *moments;        /* [h,w,2C] of it, on the host of every rank; NULL: none       */
    /* The same of an image without the grey of its mask, where the transformer reads the other and
     * the noise starts from this one; NULL: it is noise alone. */
    float      *start_image, *start_moments;
    uint8_t    *mask;           /* [H,W] 1: inpainted, 0: kept; on every rank once it is encoded  */
    xd_job_paste paste;         /* rgb is NULL: the whole image is generated                   */
    int64_t     told_images;    /* images of rank 0's request                                  */
    int         nrefs;          /* reference images (references.h)                             */
    float      *last_image;     /* [H,W,3] of the last frame, as `image`                        */
    float      *condition;      /* [t,h,w,2C] of the video that the first and the last frame make,
                                   on the host of every rank; NULL: none                       */
    float      *encoder_pixels; /* [images,3,S,S] for the encoder of images, on rank 0 and on those
                                   that share it with it; NULL: none                           */
    xd_grid     ref_size[XD_MAXREFS], refs[XD_MAXREFS];         /* their pixels; their tokens   */
    float      *ref_pixels[XD_MAXREFS]; /* [H,W,3] on rank 0, until they are encoded            */
    xd_grid     seen_size[XD_MAXREFS];  /* pixels of what an encoder sees (prompt_images.h)     */
    uint8_t    *seen[XD_MAXREFS];       /* [H,W,3] of it on ranks that encode text; NULL: none  */
    float      *ref_tokens;     /* [tokens of all, F] on the host of every rank; NULL: none    */
    float      *given_noise;    /* [images][t,C,h,w] of the request, on every rank; NULL: none  */
} xd_job;

/* Takes a program's request, of any version, into one of this version. */
xd_status xd_request_take(xd_request *own, const xd_request *r, xd_err *e);
/* The texts of a request beside its prompts: the negative prompt, and those of the second and the
 * third encoder. */
typedef enum xd_job_text_kind { XD_TEXT_NEGATIVE, XD_TEXT_2, XD_TEXT_3, XD_TEXT_NEGATIVE_2,
                                XD_TEXT_NEGATIVE_3, XD_JOB_TEXTS } xd_job_text_kind;
/* The text of a prompt, or NULL. */
const char *xd_job_text(const xd_request *r, xd_job_text_kind kind, int64_t prompt);
int       xd_job_has_text(const xd_request *r, xd_job_text_kind kind);  /* of any prompt        */
const char *xd_job_text_name(xd_job_text_kind kind);
int       xd_job_negatives(const xd_request *r);        /* one, or one for each prompt          */
uint64_t  xd_job_texts_hash(const xd_request *r);       /* of the prompts and all lists         */
/* Shortens lists of texts to that of the first prompt. */
void      xd_job_first_texts(xd_request *r);
/* Refuses texts that are not UTF-8 and lists of a wrong length. */
xd_status xd_job_check_texts(const xd_request *r, xd_err *e);
int       xd_job_has_image(const xd_request *r);        /* an image to start from, or to read   */
int       xd_job_has_last(const xd_request *r);         /* an image that a video ends with      */
int       xd_job_has_mask(const xd_request *r);
int64_t   xd_job_images(const xd_request *r);           /* how many images the request has      */
xd_status xd_job_open(xd_job *j, xd_context *ctx, const xd_request *r, xd_err *e);
void      xd_job_close(xd_job *j);
/* 1: the request asks for scores of int8, and the device has them in the compute type. */
int       xd_job_int8_attention(const xd_job *j);
/* 1: layers with fp8 weights have inputs of fp8, too, as the request asks (gemm). */
int       xd_job_fp8_gemms(const xd_job *j);
/* Reads attention_window, after the tokens are known. */
xd_status xd_job_window(xd_job *j, xd_err *e);
/* 1: there are reference images, and some steps use their keys and values of an earlier step. */
int       xd_job_keeps_references(const xd_job *j);
/* Refuses a reference_interval that is wrong, or not for this plan or these options. */
xd_status xd_job_check_references(const xd_job *j, xd_err *e);
/* Warns on rank 0 of options of the request that make no difference. */
void      xd_job_warn_unused(const xd_job *j);
/* Finds the scheduler of the request or of the model, sets j->sampler, and reads its config with
 * what the request changes of it. */
xd_status xd_job_sampler(xd_job *j, xd_sched_cfg *cfg, xd_err *e);
/* Reads the request's list of sigmas or timesteps into the parameters of its schedule, and sets
 * j->asked_steps. *list is malloc'ed, or NULL; free it after xd_sampling_open. */
xd_status xd_job_lists(xd_job *j, xd_steps *a, double **list, xd_err *e);
/* Appends what the request has changed of the scheduler, ", \"eta\": 0.5". */
void      xd_job_sampler_json(const xd_job *j, xd_text_buf *b);
/* Asks the request which images are wanted: rank 0 asks, all ranks get the answer. Collective. */
xd_status xd_job_pick(xd_job *j, xd_err *e);
/* The number of the k-th image that is generated; is an image of this prompt generated? */
int       xd_job_image(const xd_job *j, int k);
int       xd_job_uses_prompt(const xd_job *j, int prompt);
/* The weight of the prompt's pass, of two that add up to 1. */
double    xd_job_guidance(const xd_job *j, int step);
/* Model evaluations of a step: 1, 2 with guidance, 3 where layers are skipped. And those that most
 * steps of the request have. */
int       xd_job_passes(const xd_job *j, int step);
int       xd_job_usual_passes(const xd_job *j);
/* Reads skip_guidance_layers, behind the schedule and npass, which becomes 3. */
xd_status xd_job_read_skips(xd_job *j, xd_err *e);
/* Does the step have the pass that skips layers? The first such step; -1: there is none. */
int       xd_job_has_skips(const xd_job *j, int step);
int       xd_job_first_skip(const xd_job *j);
/* Does the pass leave out the layer? */
int       xd_job_skips(const xd_job *j, int pass, int layer);
/* The guidance scale of a step: guidance, or guidance_2. */
double    xd_job_scale(const xd_job *j, int step);
/* Reads the boundary and the guidance below it. Refuses steps whose transformer is absent. */
xd_status xd_job_boundary(xd_job *j, xd_err *e);
/* The transformer of a step (xd_model_dit). */
int       xd_job_dit(const xd_job *j, int step);
/* The first of the steps around `step` that one transformer computes, and the one behind the last
 * of them. */
int       xd_job_dit_begin(const xd_job *j, int step);
int       xd_job_dit_end(const xd_job *j, int step);
/* Does a step of the request need transformer i? */
int       xd_job_uses_dit(const xd_job *j, int i);
/* How often the next step is one of the other transformer; of a later image the first step
 * counts, too. */
int       xd_job_changes(const xd_job *j);
int       xd_job_changes_again(const xd_job *j);
/* The guidance scale up to which there is no guidance: 1, or 0. */
double    xd_job_no_guidance(const xd_job *j);
/* So many rows of text or of the image with the padding that the transformer reads as tokens. */
int64_t   xd_job_padded(const xd_job *j, int64_t rows);
/* F32 elements of the result's pixels: [frames,H,W,3] of the requested size. */
int64_t   xd_job_pixels(const xd_job *j);
/* The flag of the guidance that takes two passes: "true_cfg_scale" if the other one
 * is distilled. */
const char *xd_job_guide(const xd_job *j);

#endif
