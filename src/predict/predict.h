/* predict.h - predicts seconds, bytes sent and memory of each rank for a request with a plan on a
 * machine.
 *
 * The request runs once for every rank of the plan on a count device, which computes nothing and
 * records which kernels the rank calls. From the records of all ranks, a simulation then computes
 * when the ranks compute and wait (simulate.h). A prediction needs neither weights nor real
 * ranks. */
#ifndef XD_PREDICT_PREDICT_H
#define XD_PREDICT_PREDICT_H

#include "pipeline/memory_plan.h"
#include "predict/machine.h"
#include "predict/simulate.h"

enum { XD_PREDICTED_TEXTS = 8 }; /* maximum number of texts that are predicted for a request */

typedef struct xd_prediction_rank {
    xd_need need; /* bytes of memory that the rank needs, by component */
    /* seconds of computing and of waiting per step, in the steps after the exact ones */
    double  busy_s, wait_s;
    /* bytes sent per step, in the steps after the exact ones: to all ranks (sent), and between
     * hosts (between) */
    double  sent, between;
    double  sent_all; /* bytes that the rank sends per request */
    /* Bytes sent in all steps of an image, for each group of prompts (xd_predicted_text). */
    double  denoised[XD_PREDICTED_TEXTS];
    /* Number of blocks, and number of blocks that are copied to the device each time they are used
     * (streamed): of the transformer, and of the text encoder with the most streamed blocks. */
    int     dit_blocks, dit_streamed, text_blocks, text_streamed;
} xd_prediction_rank;

/* Number and predicted time of the steps that have a certain number of guidance passes. */
typedef struct xd_predicted_steps {
    /* number of steps that use no values of earlier steps (exact steps), and of other steps */
    int    exact, others;
    double exact_s, step_s; /* predicted seconds of an exact step, and of another step */
} xd_predicted_steps;

/* A group of prompts of a request whose embeddings have the same number of rows, or similar numbers
 * if a request has many different ones. */
typedef struct xd_predicted_text {
    int                prompt; /* index of the prompt that represents the group */
    /* number of rounds (see `rounds` of xd_prediction) in which no replica has a longer text */
    int                rounds;
    /* indexed by the number of guidance passes of a step */
    xd_predicted_steps of[XD_MAXPASS + 1];
} xd_predicted_text;

typedef struct xd_prediction {
    xd_plan             plan;
    int                 ranks; /* number of ranks that the plan uses */
    /* Predicted seconds. exact_s is the mean time of an exact step (which uses no values of earlier
     * steps). step_s is the mean time of the other steps, or exact_s if all steps are exact. */
    double              text_s, exact_s, step_s, decode_s, request_s;
    /* Groups of prompts, from the shortest to the longest. The predicted values of ranks are for
     * the longest prompts. */
    xd_predicted_text   text[XD_PREDICTED_TEXTS];
    int                 texts;
    double              encode_s; /* seconds of VAE encoding of the request's images */
    /* For requests that denoise twice (upsampling.h): seconds of the first denoising loop and of
     * the latent upsampler, in all rounds; the other fields are for the second denoising loop. 0:
     * the request denoises once. */
    double              first_s;
    /* seconds of both denoising loops of a request, in all rounds; 0: the request denoises once */
    double              passes_s;
    /* Seconds that the request waits for a disk, for each kind of component (xd_kind) whose weights
     * are not in memory. Reading weights ahead during computation causes no waiting. text_s and
     * request_s include this waiting time; decode_s does not, because it is the time per image. 0:
     * all weights are in memory, or the disk's speed is unknown. */
    double              read_s[XD_KINDS];
    int                 early; /* 1: the VAE is loaded together with the transformer */
    /* number of steps per image; number of these steps that use no values of earlier steps (exact
     * steps) */
    int                 steps, exact;
    int                 rounds;       /* number of images that a replica generates in sequence */
    double              from_s, to_s; /* times at which the last simulated step begins and ends */
    double              sent;         /* bytes that all ranks together send for a request */
    /* peak bytes of the GPU or, on CPUs, of the host that needs the most memory */
    double              peak;
    /* bytes of weights that are copied to the device in each step, on the rank that copies the
     * most */
    double              streamed;
    double              upload; /* bytes/s at which streamed weights are copied to the device */
    int                 apart;  /* 1: transformer and VAE are never loaded together */
    /* fits: 1 if the request fits into memory; stale: 1 if some steps use values of earlier
     * steps */
    int                 fits, stale;
    int                 coded; /* 1: messages between hosts are rounded to 8 bits */
    /* Fraction of the transformer's block ranges that a step cache is expected to skip; exact_s and
     * step_s take it into account. 0: the request uses no step cache. */
    double              left_out;
    /* Options in use that save time and change the image: a set of xd_request_saved. */
    uint64_t            saved;
    int                 fast_attn;  /* 1: some attention outputs are reused (DiTFastAttn) */
    int                 keeps_refs; /* 1: steps reuse keys and values of reference images */
    xd_prediction_rank *rank;       /* [ranks] prediction for each rank, malloc'ed */
} xd_prediction;

/* Predicts the request `r` with plan `a`. `base` is the context of an engine that was opened on one
 * rank for a benchmark, without weight files. xd_predict loads no weights. If the prompts are not
 * empty and the model's tokenizers are available, texts have their real lengths. If the prompts are
 * empty or the tokenizers are missing, texts are assumed to have the maximum length, and a missing
 * negative prompt to be empty. The prediction is for the first request of an engine, which loads
 * the weights. Call xd_prediction_free also after a failure. Returns XD_EINVAL if the plan is
 * impossible. */
xd_status xd_predict(xd_prediction *f, const xd_context *base, const xd_request *r,
                     const xd_parallel *a, int ranks, const xd_machine *m, xd_err *e);
/* returns the sum of the disk waits in read_s */
double    xd_predicted_reading(const xd_prediction *f);
/* Return the seconds that the request waits for the disk (read_s) when images are decoded, and
 * before. */
double    xd_predicted_reading_to_decode(const xd_prediction *f);
double    xd_predicted_reading_to_load(const xd_prediction *f);
/* Returns how many seconds a request waits until `cold` bytes have been read from a disk with a
 * speed of `speed` bytes/s. The bytes are read ahead, into at most `room` bytes of free memory,
 * during the `beside_s` seconds of computation before the weights are needed. */
double    xd_reading_wait_s(double cold, double speed, double room, double beside_s);
/* Adds the waits for weights that must be read from a disk (xd_context.cold) to the predicted
 * times. `last_text_s` is the predicted time of the last text encoder. */
void xd_predict_reading(xd_prediction *f, const xd_job *j, const xd_machine *m, double last_text_s);
/* Estimates which fraction of the transformer's blocks the request's step cache skips. The step
 * cache taylorseer skips steps by a schedule, which is used here. For step caches that measure
 * changes, half of the steps after the warm-up are assumed to be skipped, up to the cache's
 * limits. */
void xd_predict_cache(xd_prediction *f, const xd_job *j);
/* Sets f->exact, f->keeps_refs, f->fast_attn and the numbers of steps in f->text. Returns the
 * number of steps to simulate before the steps that all take equally long. If steps reuse the keys
 * and values of reference images, the last simulated step represents all of these steps, and
 * *played becomes the request to simulate instead of j's request. */
int  xd_predict_exact(xd_prediction *f, xd_job *j, xd_request *played);
/* Returns the predicted seconds of all steps in all rounds. xd_predict_steps also computes the
 * means of the times in f->text. */
double xd_predict_steps(xd_prediction *f);
void   xd_prediction_free(xd_prediction *f);

/* Callback for one time span of a rank, from `from` to `to` in predicted seconds. `what` is the
 * kind of the span, as in xd_simulation_events. */
typedef void xd_predicted_event(void *ctx, int rank, char what, double from, double to);
/* Predicts as xd_predict does, and calls `on_event` for the time spans of the simulated denoising
 * steps. */
xd_status    xd_predict_events(xd_prediction *f, const xd_context *base, const xd_request *r,
                               const xd_parallel *a, int ranks, const xd_machine *m,
                               xd_predicted_event *on_event, void *cookie, xd_err *e);

#endif
