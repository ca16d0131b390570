/* context.h - xd_context, the state with which requests run: model, device, plan, ranks. */
#ifndef XD_PIPELINE_CONTEXT_H
#define XD_PIPELINE_CONTEXT_H

#include "base/cancel.h"
#include "model/model.h"
#include "observe/trace.h"
#include "plan/balance.h"
#include "plan/plan.h"
#include "ranks/world.h"

enum { XD_MAXREFS = 16 }; /* maximum number of reference images of a request */

/* What to do with weights that do not fit into a device's own memory. Values of xd_offload. AUTO:
 * stream as many blocks as necessary; NONE: refuse the request; STREAM: stream all blocks of all
 * networks. */
typedef enum xd_offload { XD_OFFLOAD_AUTO, XD_OFFLOAD_NONE, XD_OFFLOAD_STREAM } xd_offload;

/* Changes of settings that an engine may make by itself if a request does not fit into memory
 * (xd_open_args.fit). */
enum { XD_FIT_OFFLOAD = 1, XD_FIT_DIT = 2, XD_FIT_TEXT = 4 };

/* Caches that an engine keeps between requests. Engines that share weights also share these caches
 * of embeddings and colours. */
typedef struct xd_engine_caches {
    /* embeddings of earlier prompts (text_cache.h); NULL: no cache yet */
    struct xd_text_cache *embeddings;
    /* colours of latents for previews (preview.h); NULL: not known yet */
    struct xd_colours    *colours;
} xd_engine_caches;

/* State with which a request is checked, counted and run. Every engine has one context. A
 * prediction makes another context, which represents one rank of a plan and only counts. */
typedef struct xd_context {
    xd_model              model;
    const struct xd_work *work; /* functions that the rank runs between messages (work.h) */
    xd_dev               *dev, *count;
    xd_plan               plan;
    xd_world              world; /* groups of ranks: all ranks, and the ranks in use */
    void             *window;    /* shared-memory arena of this host's ranks; NULL: private arena */
    /* this rank's coordinates among the ranks in use; all degrees are 1 if the rank is idle */
    xd_topo           topo;
    /* count communicator like `world.used`, which counts messages and sends none */
    xd_comm          *count_world;
    xd_topo           count_topo;
    /* ranks that split text encoders; NULL: text encoders are not split */
    xd_comm          *text, *count_text;
    xd_dtype          type; /* compute type */
    int               keep; /* 1: text encoders stay loaded */
    xd_offload        offload;
    xd_engine_caches *caches; /* caches of the engine that owns the weights; NULL: no caches */
    int               once;   /* 1: the engine serves one request only */
    size_t    spare; /* bytes of unused host memory that this rank may use to read files ahead */
    /* bytes of weights to read from disk, for each kind of component; 0: unknown */
    double    cold[XD_KINDS];
    int       bench; /* 1: inputs that only affect the image may be absent */
    /* number of frames of each input image of the current request, on rank 0; 0: unknown */
    int64_t   image_frames[XD_MAXREFS];
    int       unread; /* 1: the request is only counted, so initial images are not read */
    /* number of engines of this host that run concurrently; 0 and 1: one engine */
    int       neighbours;
    int       borrowed;          /* 1: another engine owns the weights, so this engine frees none */
    int       switched;          /* 1: there are weights for other LoRA files (lora_sets.h) */
    double    budget;            /* memory budget in bytes (memory_budget.h); 0: all free memory */
    int       fit;               /* XD_FIT_*: allowed changes if a request does not fit */
    long long holds;             /* bytes of loaded weights, as last passed to xd_budget_hold */
    const xd_canceller *cancel;  /* canceller of the running request; NULL: none */
    xd_trace           *trace;   /* recorder of events; NULL: no recording */
    xd_balance         *balance; /* relative sizes of uneven shards; NULL: even shards */
    int64_t             adaptive; /* 1: shards may change between two steps (adapt.h) */
    uint64_t            hash;     /* hash of the model's contents */
} xd_context;

/* Makes a separate context for counting, with the model of `base` (borrowed; base must outlive it)
 * on its count device. In the new context no weights are loaded, no groups of ranks are open,
 * components are not split, images are not read, and memory has no limit. Changes of the fork do
 * not affect `base`. Close the fork with xd_context_fork_close, also after a failure. */
xd_status xd_context_fork(xd_context *fork, const xd_context *base, xd_err *e);
void      xd_context_fork_close(xd_context *fork, const xd_context *base);

#endif
