/* predict.h - prediction of a plan on a machine: seconds, bytes, memory, rank by rank
 *
 * The request runs on the count device once for every rank of the plan, and the ranks' records are
 * simulated together (simulate.h). Neither weights nor ranks are needed. */
#ifndef XD_PREDICT_PREDICT_H
#define XD_PREDICT_PREDICT_H

#include "pipeline/memory_plan.h"
#include "predict/machine.h"
#include "predict/simulate.h"

typedef struct xd_prediction_rank {
    xd_need need;               /* memory by part                                              */
    double  busy_s, wait_s;     /* per steady step                                             */
    double  sent, between;      /* bytes per steady step; the part between hosts               */
    double  sent_all;           /* bytes per request                                           */
    /* Number of blocks and of streamed blocks: of the transformer, and of the text encoder with the
     * most streamed blocks. */
    int     dit_blocks, dit_streamed, text_blocks, text_streamed;
} xd_prediction_rank;

/* The steps with a certain number of passes. */
typedef struct xd_predicted_steps {
    int    exact, others;       /* number of steps                                             */
    double exact_s, step_s;     /* seconds per step                                            */
} xd_predicted_steps;

typedef struct xd_prediction {
    xd_plan plan;
    int     ranks;              /* ranks in use                                                */
    /* exact_s: mean of the exact steps; step_s: mean of the other steps, or exact_s.            */
    double  text_s, exact_s, step_s, decode_s, request_s;
    xd_predicted_steps of[XD_MAXPASS + 1];      /* index: number of passes (xd_job_passes)      */
    double  encode_s;           /* VAE encoding of the request's images                         */
    /* Seconds that the request waits for a disk, per xd_kind of weights that are not in memory.
     * Prefetch during computation costs no wait. text_s and request_s include these seconds;
     * decode_s does not, as it is per image. 0: all weights are in memory, or the disk's speed is
     * unknown. */
    double  read_s[XD_KINDS];
    int     early;              /* the VAE is loaded with the transformer                      */
    int     steps, exact;       /* steps per image; the exact ones among them                  */
    int     rounds;             /* images per replica, generated in sequence                      */
    double  from_s, to_s;       /* begin and end of the last simulated step (event times)        */
    double  sent;               /* bytes per request, all ranks                                 */
    double  peak;               /* bytes on the fullest rank (devices) or host (CPU)            */
    double  streamed;           /* bytes copied to the device per step, max over ranks            */
    double  upload;             /* bytes/s of these copies                                      */
    int     apart;              /* transformer and VAE are never loaded together                */
    int     fits, stale;        /* fits into memory; the image is not the exact one            */
    double  left_out;           /* fraction of block ranges that a step cache is expected to skip;
                                   exact_s and step_s include it; 0: none */
    int     int8_attn, windowed;        /* attention with a small effect on the image           */
    int     fp8_gemms;          /* GEMMs in fp8, with a small effect on the image               */
    int     fast_attn;          /* attention outputs are shared (DiTFastAttn)                  */
    int     keeps_refs;         /* steps reuse earlier keys and values of reference images      */
    xd_prediction_rank *rank;     /* [ranks], malloc'ed                                          */
} xd_prediction;

/* Predicts the request `r` with plan `a`. base is an engine opened alone for a bench, without
 * files; nothing is loaded. If the prompts are not empty and the model's tokenizers are available,
 * texts have their real lengths; else the maximum, and an absent negative prompt is empty. The
 * request counts as the first one: it loads the weights. Free with xd_prediction_free also after a
 * failure. XD_EINVAL: the plan is impossible. */
xd_status xd_predict(xd_prediction *f, const xd_context *base, const xd_request *r,
                     const xd_parallel *a, int ranks, const xd_machine *m, xd_err *e);
double    xd_predicted_reading(const xd_prediction *f);         /* sum of read_s                */
/* The read_s of weights that are read when images are decoded; the read_s of weights read
 * before. */
double    xd_predicted_reading_to_decode(const xd_prediction *f);
double    xd_predicted_reading_to_load(const xd_prediction *f);
/* Returns the seconds that a request waits for `cold` bytes from a disk with `speed` bytes/s.
 * Prefetch starts `beside_s` seconds of computation before the weights are needed and may use
 * `room` bytes. */
double    xd_reading_wait_s(double cold, double speed, double room, double beside_s);
/* Adds the waits for cold[kind] bytes to the times; last_text_s: time of the last text encoder. */
void      xd_predict_reading(xd_prediction *f, const xd_job *j, const xd_machine *m,
                             double last_text_s);
/* Estimates the work that the request's step cache skips: for taylorseer, its schedule; for a cache
 * that measures changes, half of the steps after its warm-up, up to its limits. */
void      xd_predict_cache(xd_prediction *f, const xd_job *j);
/* Fills f->exact, the step counts of f->of, f->keeps_refs and f->fast_attn; returns the number of
 * steps before the repeating ones. Simulated steps share one computation of the reference images'
 * keys and values, so the last of them represents all steps that use it: *played then replaces j's
 * request. */
int       xd_predict_exact(xd_prediction *f, xd_job *j, xd_request *played);
/* Computes the means of the times in f->of, and returns the seconds of all steps of an image. */
double    xd_predict_steps(xd_prediction *f);
void      xd_prediction_free(xd_prediction *f);

/* A time span of a rank, in seconds of the prediction. what: as in xd_simulation_events. */
typedef void xd_predicted_event(void *ctx, int rank, char what, double from, double to);
/* As xd_predict; also calls `on_event` with the time spans of the simulated denoising steps. */
xd_status xd_predict_events(xd_prediction *f, const xd_context *base, const xd_request *r,
                            const xd_parallel *a, int ranks, const xd_machine *m,
                            xd_predicted_event *on_event, void *cookie, xd_err *e);

#endif
