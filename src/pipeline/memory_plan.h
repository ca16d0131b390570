/* memory_plan.h - memory need of a request, counted before anything is loaded */
#ifndef XD_PIPELINE_MEMORY_PLAN_H
#define XD_PIPELINE_MEMORY_PLAN_H

#include "pipeline/text_encode.h"

typedef struct xd_need {        /* bytes that a request needs, by part                         */
    size_t text, text_tmp, dit, dit_tmp, vae, vae_tmp, images, peak;
    size_t text_work, dit_work, vae_work;       /* extra while weights are loaded              */
    size_t dit2;                /* the other transformer, if both stay loaded; else 0           */
    size_t dit2_work;           /* extra while a transformer is loaded between two steps        */
    size_t preview, preview_tmp;        /* preview decoder; 0: none                             */
    size_t method_bytes;        /* denoising: stale keys, values; message buffers              */
    /* On a device with its own memory all values above are bytes of that memory, `images` is 0, and
     * conds is the embeddings of the texts there. Else conds and the values below are 0. */
    size_t conds;
    size_t messages;            /* buffers and mailboxes, never freed                          */
    size_t host_work, host;     /* host: while weights are loaded; peak                         */
    size_t pinned_text, pinned; /* host: streamed blocks of text encoders; of all                */
    size_t streamed;            /* transformer bytes copied each time its blocks run            */
} xd_need;

typedef struct xd_memory_limits { /* bytes that a request may use on this host                   */
    /* Bytes of memory, of this process' address space; both include bytes already held. */
    double machine, space;
    double held;                /* bytes already held: loaded weights                          */
    double needed;              /* bytes of the request on all ranks of the host or the device  */
    double device;              /* limit per rank of a device that is too small; 0: none       */
    int    huge;                /* 1: the image alone is too large, not counted                */
} xd_memory_limits;

/* Returns the peak over the parts, which run in sequence; text encoders stay loaded with `keep`.
 * apart: transformer and VAE are never loaded together. */
size_t    xd_need_peak(const xd_need *n, int keep, int apart);
/* Computes the derived values `peak` and `host`. */
void      xd_need_sum(xd_need *n, const xd_job *j, int ranks);
/* Returns `apart` for a request on this many ranks: 1 for the only image of an engine's only
 * request. */
int       xd_need_apart(const xd_job *j, int ranks);
/* Adds the counted weights of the transformers. If the request uses two, `dit` is the larger one,
 * and the caller sets `dit2` to 0 if they replace each other between two steps. */
void      xd_need_dits(xd_need *n, const xd_job *j);
/* Returns 1 if this or the next request would reload a dropped transformer. Both then stay loaded
 * if memory holds them (xd_job.both). */
int       xd_need_both(const xd_job *j);
/* Counts, finds the ranks that share weights, and returns XD_ENOMEM if the peak exceeds the
 * available memory. Collective over the ranks in use; all return the same status. */
xd_status xd_memory_plan(xd_job *j, const xd_prompts *w, xd_need *need, xd_memory_limits *limits,
                         xd_err *e);

/* The same for decoding only: the VAE plus the components that are loaded. Drops the transformer if
 * memory does not hold both. */
xd_status xd_memory_plan_decode(xd_job *j, xd_need *need, xd_err *e);

/* Reports this engine's loaded weights to the budget. */
void      xd_memory_hold(xd_context *ctx);

/* Sums over the ranks of a host: needed bytes, held bytes, number of ranks that read files ahead,
 * bytes of other engines. Collective over these ranks. */
enum { XD_HOST_SUMS = 4 };
void      xd_memory_sum(xd_comm *host, double v[XD_HOST_SUMS]);

#endif
