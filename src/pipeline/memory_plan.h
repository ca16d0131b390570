/* memory_plan.h - memory that a request needs, counted before anything is loaded */
#ifndef XD_PIPELINE_MEMORY_PLAN_H
#define XD_PIPELINE_MEMORY_PLAN_H

#include "pipeline/text_encode.h"

typedef struct xd_need {        /* bytes a request needs, by part                              */
    size_t text, text_tmp, dit, dit_tmp, vae, vae_tmp, images, peak;
    size_t text_work, dit_work, vae_work;       /* extra while weights are loaded              */
    size_t dit2;                /* of the other transformer, where both stay loaded; else 0     */
    size_t dit2_work;           /* extra while a transformer is loaded between two steps        */
    size_t preview, preview_tmp;        /* of the decoder of previews; 0: there is none         */
    size_t method_bytes;        /* of the loop: stale keys and values, buffers of messages     */
    /* On a device with a memory of its own all of the above is bytes of that memory, and so are the
     * embeddings of the texts; `images` is 0. Else these are 0. */
    size_t conds;
    size_t messages;            /* buffers and mailboxes, which are never given back           */
    size_t host_work, host;     /* of the host: while weights are loaded; the most at any time  */
    size_t pinned_text, pinned; /* of the host: streamed blocks of the text encoders, of all     */
    size_t streamed;            /* of the transformer, that are copied each time its blocks run */
} xd_need;

typedef struct xd_memory_limits { /* bytes that a request may take on this rank's host           */
    /* Of memory, of the address space of this process; including what the process holds. */
    double machine, space;
    double held;                /* bytes already held: loaded weights                          */
    double needed;              /* bytes of the request, of all ranks of the host or the device */
    double device;              /* for a rank, of a device whose memory is short; 0: it is not */
    int    huge;                /* the image alone is too large: nothing was counted           */
} xd_memory_limits;

/* Peak of the parts, one after the other; text encoders stay loaded with `keep`. apart:
 * transformer and VAE are never loaded together. */
size_t    xd_need_peak(const xd_need *n, int keep, int apart);
/* Computes what follows from the parts: `peak`, and `host`. */
void      xd_need_sum(xd_need *n, const xd_job *j, int ranks);
/* Is `apart` true for a request on this many ranks? Yes for the only image of an engine's
 * only request. */
int       xd_need_apart(const xd_job *j, int ranks);
/* Adds the weights of the transformer, as counted; of two that the request uses the larger one is
 * `dit`, and `dit2` is to be 0 where the other one takes its place between two steps. */
void      xd_need_dits(xd_need *n, const xd_job *j);
/* Would a request load a transformer that it has dropped, or the next request of its engine? Two
 * transformers then stay loaded where memory holds both (xd_job.both). */
int       xd_need_both(const xd_job *j);
/* Counts, finds the ranks that share weights, and refuses with XD_ENOMEM if the peak exceeds the
 * available memory. Collective over the ranks in use, which agree. */
xd_status xd_memory_plan(xd_job *j, const xd_prompts *w, xd_need *need, xd_memory_limits *limits,
                         xd_err *e);

/* The same for decoding alone: beside the VAE only what is loaded counts. The transformer is
 * dropped where memory does not hold both. */
xd_status xd_memory_plan_decode(xd_job *j, xd_need *need, xd_err *e);

/* Tells the budget which weights this engine holds now. */
void      xd_memory_hold(xd_context *ctx);

/* Sums over the ranks of a host: bytes they need, bytes they already have, and the number that
 * read files ahead, and bytes of other engines. Collective over them. */
enum { XD_HOST_SUMS = 4 };
void      xd_memory_sum(xd_comm *host, double v[XD_HOST_SUMS]);

#endif
