/* context.h - defines xd_context, the state that all requests of an engine use: model, device,
 * plan, ranks. */
#ifndef XD_PIPELINE_CONTEXT_H
#define XD_PIPELINE_CONTEXT_H

#include "base/cancel.h"
#include "model/model.h"
#include "observe/trace.h"
#include "plan/balance.h"
#include "plan/plan.h"
#include "ranks/world.h"

enum { XD_MAXREFS = 16 }; /* maximum number of reference images of a request */

/* Choices (xd_offload) for weights that do not fit into a device's own memory. AUTO: keep as many
 * blocks as necessary in host memory, and copy them to the device when they are computed; NONE:
 * refuse the request; STREAM: copy all blocks of all networks when they are computed. */
typedef enum xd_offload { XD_OFFLOAD_AUTO, XD_OFFLOAD_NONE, XD_OFFLOAD_STREAM } xd_offload;

/* Changes of settings that an engine may make by itself if a request does not fit into memory
 * (xd_open_args.fit). */
enum { XD_FIT_OFFLOAD = 1, XD_FIT_DIT = 2, XD_FIT_TEXT = 4 };

/* Caches that an engine keeps between requests. Engines that share weights also share the caches of
 * embeddings and colours. */
typedef struct xd_engine_caches {
    /* embeddings of earlier prompts (text_cache.h); NULL: no cache yet */
    struct xd_text_cache *embeddings;
    /* factors that convert latents to colours for previews (preview.h); NULL: not known yet */
    struct xd_colours    *colours;
} xd_engine_caches;

/* State that is used to check a request, to count its memory, and to run it. Every engine has one
 * context. A prediction of time or memory makes another context, which represents one rank of a
 * plan, computes nothing, and only counts work and memory. */
typedef struct xd_context {
    xd_model              model;
    const struct xd_work *work; /* functions that the rank runs between messages (work.h) */
    xd_dev               *dev, *count;
    xd_plan               plan;
    xd_world              world; /* groups of ranks: all ranks, and the ranks in use */
    void             *window;    /* shared-memory arena of this host's ranks; NULL: private arena */
    /* this rank's coordinates in the grid of ranks; all parallel degrees are 1 if the rank is
     * idle */
    xd_topo           topo;
    /* communicator with the ranks of `world.used`, which only counts messages and sends none */
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
    /* for each kind of component, bytes of weights that must be read from disk; 0: unknown */
    double    cold[XD_KINDS];
    /* 1: benchmark, in which inputs that do not affect the computing time may be absent */
    int       bench;
    /* number of frames of each input image of the current request, on rank 0; 0: unknown */
    int64_t   image_frames[XD_MAXREFS];
    int       unread; /* 1: the request is only counted, so initial images are not read */
    /* number of engines of this host that run concurrently; 0 and 1: one engine */
    int       neighbours;
    int       borrowed; /* 1: another engine owns the weights, so this engine frees none */
    /* 1: weights with other LoRA files are also loaded (lora_sets.h) */
    int       switched;
    double    budget; /* memory budget in bytes (memory_budget.h); 0: all free memory */
    /* XD_FIT_*: changes of settings that are allowed if a request does not fit into memory */
    int       fit;
    long long holds;            /* bytes of loaded weights in the last call of xd_budget_hold */
    const xd_canceller *cancel; /* canceller of the running request; NULL: none */
    xd_trace           *trace;  /* recorder of events; NULL: no recording */
    /* relative sizes of the ranks' shares of the tokens; NULL: equal shares */
    xd_balance         *balance;
    /* 1: the ranks' shares of the tokens may change between two steps (adapt.h) */
    int64_t             adaptive;
    uint64_t            hash; /* hash of the model's contents */
    /* upscaler that enlarges results on rank 0 (enlarger.h); NULL: none */
    struct xd_enlarger *enlarger;
} xd_context;

/* Makes a second context that only counts memory and work. The new context borrows the model of
 * `base`, which must outlive it, and uses the device of `base` that only counts. In the new context
 * no weights are loaded, no groups of ranks are open, components are not split, images are not
 * read, and memory has no limit. Changes of the new context `fork` do not affect `base`. Close the
 * new context with xd_context_fork_close, even if xd_context_fork has failed. */
xd_status xd_context_fork(xd_context *fork, const xd_context *base, xd_err *e);
void      xd_context_fork_close(xd_context *fork, const xd_context *base);

#endif
