/* memory_plan.h - counts the memory that a request needs, before anything is loaded. */
#ifndef XD_PIPELINE_MEMORY_PLAN_H
#define XD_PIPELINE_MEMORY_PLAN_H

#include "pipeline/text_encode.h"

typedef struct xd_need {        /* bytes that a request needs on one rank, by part; _tmp: scratch
                                   memory of a part */
    size_t text, text_tmp, dit, dit_tmp, vae, vae_tmp, images, peak;
    size_t text_work, dit_work, vae_work;       /* extra bytes while weights are loaded        */
    size_t dit2;                /* the second transformer, if both stay loaded; else 0          */
    size_t dit2_work;           /* extra bytes while a transformer is loaded between two steps  */
    size_t preview, preview_tmp;        /* the preview decoder; 0: none                         */
    size_t method_bytes;        /* parallel methods: stale keys, values, message buffers       */
    /* For a device with its own memory, all values above are bytes of the device's memory, `images`
     * is 0, and `conds` is the bytes of text embeddings on the device. For other devices `conds`
     * and the values below are 0. */
    size_t conds;
    size_t messages;            /* device buffers and mailboxes for messages, never freed      */
    size_t host_work, host;     /* host memory: extra while weights are loaded; peak            */
    /* Pinned host memory for streamed blocks: of text encoders; of all. */
    size_t pinned_text, pinned;
    size_t streamed;            /* transformer bytes copied each time its blocks run            */
} xd_need;

typedef struct xd_memory_limits { /* limits in bytes on the memory that a request may use on this
                                     host */
    /* Limits of the machine's memory and of this process' address space; both include bytes already
     * held. */
    double machine, space;
    double held;                /* bytes of loaded weights                                     */
    double needed;              /* need of the request on all ranks of the host or device       */
    double device;              /* limit per rank, if a device is too small; 0: none           */
    int    huge;                /* 1: the image alone is too large, so nothing was counted     */
} xd_memory_limits;

/* Returns the peak of a memory need over text encoding, denoising and decoding, which run in
 * sequence. keep: 1: text encoders stay loaded. apart: 1: transformer and VAE are never loaded
 * together. */
size_t    xd_need_peak(const xd_need *n, int keep, int apart);
/* Computes the values `peak` and `host` of a memory need from the others. */
void      xd_need_sum(xd_need *n, const xd_job *j, int ranks);
/* Returns 1 if transformer and VAE of a request on this many ranks are never loaded together
 * (`apart`), as for the only image of an engine's only request on one rank. */
int       xd_need_apart(const xd_job *j, int ranks);
/* Adds the counted weights of the transformers to a memory need. If the request uses two, n->dit is
 * the size of the larger one; the caller sets n->dit2 to 0 if the two replace each other between
 * steps. */
void      xd_need_dits(xd_need *n, const xd_job *j);
/* Returns 1 if this or the next request would reload a dropped transformer. Both transformers then
 * stay loaded if memory is sufficient (xd_job.both). */
int       xd_need_both(const xd_job *j);
/* Counts the memory need of a request and finds the ranks that share weights. Returns XD_ENOMEM if
 * the peak exceeds the available memory. Collective over the ranks in use; all ranks return the
 * same status. */
xd_status xd_memory_plan(xd_job *j, const xd_prompts *w, xd_need *need, xd_memory_limits *limits,
                         xd_err *e);

/* Counts the memory need of decoding only: the VAE plus the components that are loaded. Drops the
 * transformer if memory is too small for both. */
xd_status xd_memory_plan_decode(xd_job *j, xd_need *need, xd_err *e);

/* Reports the bytes of this engine's loaded weights to the memory budget (memory_budget.h). */
void      xd_memory_hold(xd_context *ctx);

/* Replaces each of four values by its sum over the ranks of a host: needed bytes, held bytes,
 * number of ranks that read files ahead, bytes of other engines. Collective over the ranks of the
 * host. */
enum { XD_HOST_SUMS = 4 };
void      xd_memory_sum(xd_comm *host, double v[XD_HOST_SUMS]);

#endif
