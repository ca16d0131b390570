/* predict.h - prediction of a plan on a machine: seconds, bytes, memory, rank by rank
 *
 * The request runs on the count device as every rank of the plan in turn, and the ranks' records
 * are simulated together (simulate.h). Neither weights nor ranks are needed. */
#ifndef XD_PREDICT_PREDICT_H
#define XD_PREDICT_PREDICT_H

#include "pipeline/memory_plan.h"
#include "predict/machine.h"
#include "predict/simulate.h"

typedef struct xd_prediction_rank {
    xd_need need;               /* memory by part                                              */
    double  busy_s, wait_s;     /* of a steady step                                            */
    double  sent, between;      /* bytes of a steady step; of them, those between hosts        */
    double  sent_all;           /* bytes of the request                                        */
    /* Blocks of the transformer and of the text encoder with most that is streamed, and of these
     * the streamed ones. */
    int     dit_blocks, dit_streamed, text_blocks, text_streamed;
} xd_prediction_rank;

/* The steps of an image that have a number of passes. */
typedef struct xd_predicted_steps {
    int    exact, others;       /* how many                                                    */
    double exact_s, step_s;     /* seconds of one                                              */
} xd_predicted_steps;

typedef struct xd_prediction {
    xd_plan plan;
    int     ranks;              /* that it uses                                                */
    /* Of a step: exact_s the mean of the exact ones, step_s that of the others, or exact_s. */
    double  text_s, exact_s, step_s, decode_s, request_s;
    xd_predicted_steps of[XD_MAXPASS + 1];      /* by the number of passes (xd_job_passes)      */
    double  encode_s;           /* of the images of the request, by the VAE                     */
    /* The disk: seconds that the request waits for the weights of each xd_kind that are not in
     * memory. Prefetch behind computing is not waited for. text_s and request_s include them,
     * decode_s does not: it is that of every image. 0: all is in memory, or the speed of the disk
     * is unknown. */
    double  read_s[XD_KINDS];
    int     early;              /* the VAE is loaded with the transformer                      */
    int     steps, exact;       /* of an image; of those exact ones                            */
    int     rounds;             /* images that a replica generates one after the other            */
    double  from_s, to_s;       /* of the last step that was played, in the time that is told    */
    double  sent;               /* bytes of the request, all ranks                              */
    double  peak;               /* of the fullest rank (devices) or host (CPU)                  */
    double  streamed;           /* bytes that a step copies to the device, of the rank with most  */
    double  upload;             /* bytes/s of these copies                                      */
    int     apart;              /* transformer and VAE are not loaded together                  */
    int     fits, stale;        /* into the memory there is; its image is not the exact one    */
    double  left_out;           /* share of block ranges that a step cache is expected to leave
                                   out, which is in exact_s and step_s; 0: none */
    int     int8_attn, windowed;        /* attention that changes the image a little            */
    int     fp8_gemms;          /* GEMMs that do                                                */
    int     fast_attn;          /* attentions are shared over steps and passes                 */
    int     keeps_refs;         /* steps use keys and values of reference images of earlier ones */
    xd_prediction_rank *rank;     /* [ranks], malloc'ed                                          */
} xd_prediction;

/* g is opened alone and for a bench, without files; nothing of it is loaded. Where the request's
 * prompts say something and the model's tokenizers are there, texts have their lengths; else the
 * most there can be, and a negative prompt that is not given is empty. It is the first request:
 * weights are loaded. Freed with xd_prediction_free also after a failure. XD_EINVAL: the plan
 * cannot be. */
xd_status xd_predict(xd_prediction *f, const xd_context *base, const xd_request *r,
                     const xd_parallel *a, int ranks, const xd_machine *m, xd_err *e);
double    xd_predicted_reading(const xd_prediction *f);         /* sum of read_s                */
/* read_s of the weights that are read when images are decoded, and of those read before. */
double    xd_predicted_reading_to_decode(const xd_prediction *f);
double    xd_predicted_reading_to_load(const xd_prediction *f);
/* Seconds that a request waits for `cold` bytes from a disk of so many bytes/s. Prefetch begins
 * `beside_s` of computing before they are needed and may use `room` bytes. */
double    xd_reading_wait_s(double cold, double speed, double room, double beside_s);
/* Adds the waits for cold[kind] bytes to the times; last_text_s: of the last text encoder. */
void      xd_predict_reading(xd_prediction *f, const xd_job *j, const xd_machine *m,
                             double last_text_s);
/* What a step cache of the request is expected to leave out: what taylorseer's schedule says; of
 * one that measures, half of the steps behind its warm-up, as far as it may. */
void      xd_predict_cache(xd_prediction *f, const xd_job *j);
/* Fills f->exact, the numbers of f->of, f->keeps_refs and f->fast_attn; returns the steps before
 * those that repeat. Steps that are simulated share one computation of the reference images' keys
 * and values, so that the last of them stands for all that use it: j's request becomes *played
 * then. */
int       xd_predict_exact(xd_prediction *f, xd_job *j, xd_request *played);
/* Means of the times in f->of, and the seconds of all steps of an image. */
double    xd_predict_steps(xd_prediction *f);
void      xd_prediction_free(xd_prediction *f);

/* A time span of a rank on the time scale of the prediction: what 'c' it computes,
 * 'w' it waits. */
typedef void xd_predicted_event(void *ctx, int rank, char what, double from, double to);
/* As xd_predict, and reports the time spans of the simulated denoising steps to `told`. */
xd_status xd_predict_events(xd_prediction *f, const xd_context *base, const xd_request *r,
                            const xd_parallel *a, int ranks, const xd_machine *m,
                            xd_predicted_event *told, void *cookie, xd_err *e);

#endif
