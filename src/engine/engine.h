/* engine.h - the engine behind the public API, and the rooms a request walks through
 *
 *   job    the request, checked and completed with the model's defaults
 *   words  prompts -> token ids -> embeddings
 *   flow   noise -> the denoising loop -> latents
 *   light  latents -> VAE -> pixels, and back
 *
 * A room hands the next one a value. The same code runs on the count device first: that is the
 * memory plan. */
#ifndef XD_ENGINE_ENGINE_H
#define XD_ENGINE_ENGINE_H

#include <stdatomic.h>

#include "engine/balance.h"
#include "engine/flow.h"
#include "engine/model.h"
#include "engine/plan.h"
#include "engine/trace.h"
#include "engine/world.h"
#include "xdit/xdit.h"

typedef struct xd_foreseen {    /* seconds of the request the plan was chosen for; negative: unknown */
    double text_s, denoise_s, decode_s, total_s;
} xd_foreseen;

/* What a request is checked, counted and run with. An engine has one; whoever predicts makes another, which
 * stands for one rank of a plan and counts. */
typedef struct xd_context {
    xd_model     model;
    xd_dev      *dev, *count;
    xd_plan      plan;
    xd_world     world;        /* the ranks there are, and those that work on a request          */
    void        *lent;          /* memory of a request that they read; NULL: it is mine alone    */
    xd_topo      topo;          /* of mine, in `used`; degrees of 1 on an idle rank              */
    xd_comm     *count_world;   /* the same without messages, for counting                      */
    xd_topo      count_topo;
    xd_comm     *text, *count_text;     /* ranks that share a text encoder; NULL: one has it     */
    xd_dtype     type;          /* compute type                                                */
    int          keep;          /* text encoders stay loaded                                   */
    int          once;          /* there will be one request                                   */
    size_t       spare;         /* memory of the host that the request leaves, my share: for files */
    int          bench;      /* a request may lack what only its picture depends on          */
    int          unread;        /* a picture to start from is not read: the request is counted   */
    const atomic_int *cancel;   /* not 0: the request is to end                                */
    xd_trace    *trace;         /* what is recorded; NULL: nothing is                          */
    xd_balance  *balance; /* these; NULL: even                                           */
    uint64_t     hash;          /* of the model                                                */
} xd_context;

struct xd_engine {
    xd_context   ctx;
    xd_foreseen  foreseen;
    int          balanced;      /* shares follow measured speeds                               */
    atomic_int   cancel;        /* set by xd_cancel, from any thread                           */
};

/* How an engine is opened: its weights are those of the files, else random; this rank works by
 * itself whoever else was launched; what is painted does not matter. */
enum { XD_WITH_FILES = 1, XD_ALONE = 2, XD_FOR_BENCH = 4 };
xd_status xd_open_with(xd_engine **g, const xd_open_args *a, int how, xd_err *e);

/* ---- types -------------------------------------------------------------------------------- */

/* From the flags: what is computed in, and (with the files open) what matrices of blocks are kept in. */
xd_status   xd_types_compute(xd_context *ctx, const xd_open_args *a, xd_err *e);
xd_status   xd_types_weights(xd_context *ctx, const xd_open_args *a, xd_err *e);
/* That of a component: "bf16", "int8", "fp8". */
const char *xd_types_name(const xd_part *p, xd_dtype compute);
/* Does text_weights_dtype say anything of this text encoder? */
int         xd_types_quantizes(const xd_part *text);
int         xd_types_stores_fp8(const xd_part *p);      /* do its files hold matrices in fp8?    */

/* ---- job ---------------------------------------------------------------------------------- */

typedef struct xd_job {
    xd_context       *ctx;
    const xd_request *r;
    int64_t     asked[2], size[2];      /* pixels asked for and painted: height, width          */
    int64_t     frames;         /* of the result: 1 for a picture                               */
    double      fps;            /* of a video's file; 0: a picture                              */
    int64_t     cells[3];       /* latent cells: t, h, w                                        */
    int64_t     spare;          /* of those in t, the first that only fill a patch: not decoded  */
    int64_t     lat[4];         /* extents of the latents on the host: t, C, h, w                */
    int64_t     numbers;        /* in them                                                      */
    int64_t     tokens, features;       /* of the latents as tokens                             */
    xd_layout   lay;
    int         npass;          /* model evaluations per step: 1, or 2 with guidance             */
    double      guidance;       /* joins the two passes (xd_job_guidance)                       */
    double      distilled;      /* guidance scale that the transformer reads, or NaN             */
    double      strength;       /* of the picture that is painted over; 0: there is none        */
    int         max_text, images;
    int         picks;          /* the request leaves some out (xd_job_pick)                    */
    int        *todo, ntodo;    /* those that are made, in order; NULL: all                     */
    int         asked_steps;    /* samp.steps, and those that a strength leaves out             */
    const xd_sampler *sampler;
    xd_sampling samp;
    double      start_s;
    float      *picture;        /* [H,W,3] to start from, on the host; NULL: none, or given away */
    float      *moments;        /* [h,w,2C] of it, on the host of every rank; NULL: none        */
} xd_job;

xd_status xd_job_open(xd_job *j, xd_context *ctx, const xd_request *r, xd_err *e);
void      xd_job_close(xd_job *j);
/* Asks the request which images are wanted: rank 0 asks, all get the answer. Collective. */
xd_status xd_job_pick(xd_job *j, xd_err *e);
/* The number of the k-th image that is made; is one of this prompt's made? */
int       xd_job_image(const xd_job *j, int k);
int       xd_job_paints(const xd_job *j, int prompt);
/* What joins the two passes of a step. */
double    xd_job_guidance(const xd_job *j, int step);
/* F32 numbers of the result's pixels: [frames,H,W,3] of the size asked for. */
int64_t   xd_job_pixels(const xd_job *j);
/* The flag of the guidance that takes two passes: "true_cfg_scale" where the other is distilled. */
const char *xd_job_guide(const xd_job *j);
/* Shows latents, as [C,h,w] or, of a video, [t,C,h,w]. */
void      xd_job_show(const xd_job *j, const char *name, int step, const float *lat);

/* ---- start -------------------------------------------------------------------------------- */

xd_status xd_start_read(xd_job *j, xd_err *e);  /* the picture, on rank 0                       */
/* Its Gaussian, on every rank; the autoencoder is loaded where images are decoded. Collective. */
xd_status xd_start_encode(xd_job *j, xd_arena *a, xd_err *e);
/* Normal numbers of an image's latents, and [C,h,w] for the sample of the Gaussian when there is one
 * (sample is not touched else). */
void      xd_start_draw(const xd_job *j, xd_rng *g, float *noise, float *sample);
/* The picture's latents [C,h,w] from a sample's normal numbers, in place. */
void      xd_start_sample(const xd_job *j, float *sample);
/* The first latents of a picture's: noise in, in place. */
void      xd_start_mix(const xd_job *j, float *noise, const float *sample);
void      xd_start_close(xd_job *j);

/* ---- words -------------------------------------------------------------------------------- */

typedef struct xd_words {       /* the prompts of a request, the negative one last             */
    int       n, ntext;         /* prompts; text encoders                                      */
    int32_t **ids;              /* [n ntext]: prompt by prompt, of every encoder                */
    int64_t  *len;              /* [n ntext]                                                   */
    int64_t  *whole;            /* [n ntext]: ids if no prompt were cut                        */
    int64_t  *real;             /* [n ntext]: ids that are seen; others are padding                */
    int64_t  *rows;             /* [n] of the embedding of a prompt                            */
    xd_cond  *cond;             /* [n]                                                         */
} xd_words;

xd_status xd_words_open(xd_words *w, const xd_job *j, xd_err *e);       /* token ids            */
/* Embeddings: loads the text encoder, gives it back unless the engine keeps it. `bytes` of arena are
 * what xd_memory_plan counted for the longest text. Collective. */
xd_status xd_words_encode(xd_words *w, xd_job *j, size_t bytes, xd_err *e);
void      xd_words_close(xd_words *w, xd_context *ctx);
/* Warns of prompts that are too long to be read to their end. */
void      xd_words_say(const xd_words *w, const xd_job *j);
/* Arena bytes of encoding n tokens with encoder k, by counting. */
xd_status xd_words_count(const xd_job *j, int k, int64_t n, size_t *bytes, xd_err *e);
/* The most rows that the embedding of a prompt can have. */
int64_t   xd_words_most(const xd_job *j);
int       xd_words_fixed(const xd_job *j);              /* whatever max_sequence_length is     */
/* The most ids of every encoder that are no padding: of embeddings that are counted or made up.      */
void      xd_words_real(const xd_job *j, int64_t real[XD_MAXTEXT]);

/* ---- light -------------------------------------------------------------------------------- */

/* lat [t,C,h,w] on the host -> rgb [frames,H,W,3] F32 on the host, in about [-1,1]. With a parallel VAE all
 * ranks of the replica call it, with the same latents, and its rank 0 gets the picture. */
void      xd_light(xd_exec *x, const xd_job *j, const xd_net *net, const float *lat, float *rgb);
/* Does this rank take part in what the autoencoder does for its replica? */
int       xd_light_here(const xd_job *j);
xd_status xd_light_count(xd_job *j, size_t *bytes, xd_err *e);
/* rgb [H,W,3] F32 on the host, in [-1,1] -> moments [h,w,2C] F32 on the host: mean and log variance of
 * the autoencoder's latents, not scaled. With a parallel VAE all ranks of the replica call it, with
 * the same picture, and all get the moments. */
void      xd_light_encode(xd_exec *x, const xd_job *j, const xd_net *net, const float *rgb,
                          float *moments);
xd_status xd_light_encode_count(xd_job *j, size_t *bytes, xd_err *e);
/* Resizes (bilinear) and crops to the size that was asked for when another one was painted;
 * `rgb` is replaced by a malloc'ed picture. */
xd_status xd_light_fit(const xd_job *j, float **rgb, xd_err *e);

/* ---- memory ------------------------------------------------------------------------------- */

typedef struct xd_need {        /* bytes a request needs, by part                               */
    size_t text, text_tmp, dit, dit_tmp, vae, vae_tmp, images, peak;
    size_t text_work, dit_work, vae_work;       /* while weights are loaded                        */
    size_t links;               /* of the loop: keys and values of other steps, what goes round */
} xd_need;

/* Of the parts, one after the other; text encoders stay with `keep`. apart: transformer and
 * autoencoder are never loaded together. */
size_t    xd_need_peak(const xd_need *n, int keep, int apart);
/* So it is for a request on so many ranks: of the only picture of an engine's only request. */
int       xd_need_apart(const xd_job *j, int ranks);
/* Counts, finds out who shares weights, and refuses with XD_ENOMEM when the peak is more than there
 * is. Collective over the ranks in use, which agree. */
xd_status xd_memory_plan(xd_job *j, const xd_words *w, xd_need *need, xd_err *e);

/* Adds up over the ranks of a host: bytes they need, bytes they have already, and how many read files
 * ahead. Collective over them. */
enum { XD_HOST_SUMS = 3 };
void      xd_memory_sum(xd_comm *host, double v[XD_HOST_SUMS]);

/* Reads the files of a part ahead of its load, into memory that the request leaves (part_ahead.c). */
void      xd_read_ahead(xd_context *ctx, xd_part *p);

/* An arena on memory of a device; for a count device it is endless. */
xd_status xd_room_open(xd_arena *a, xd_dev *dev, size_t bytes, xd_err *e);
void      xd_room_close(xd_arena *a, xd_dev *dev);

/* ---- result ------------------------------------------------------------------------------- */

xd_status xd_result_open(xd_result **r, const xd_job *j, xd_err *e);
/* Takes the latents [t,C,h,w] and the picture (both malloc'ed; rgb may be NULL) of image i. */
xd_status xd_result_add(xd_result *r, const xd_job *j, int i, float *lat, float *rgb, xd_err *e);
/* Latents [t,C,h,w] of image i and how many numbers they are; for tests. */
const float *xd_result_lat(const xd_result *r, int i, int64_t *n);
void      xd_result_time(xd_result *r, const char *part, double seconds);
/* The same of one image. */
void      xd_result_image_time(xd_result *r, int i, const char *part, double seconds);
void      xd_result_traffic(xd_result *r, int64_t bytes);

/* Says `t` to the request's on_tensor, if it listens. */
void xd_show(const xd_job *j, const char *name, int step, int nd, const int64_t *d,
             const float *data);
void xd_stage(const xd_job *j, const char *name);

#endif
