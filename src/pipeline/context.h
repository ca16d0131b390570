/* context.h - the state that a request works with: model, device, plan, ranks */
#ifndef XD_PIPELINE_CONTEXT_H
#define XD_PIPELINE_CONTEXT_H


#include "base/cancel.h"
#include "model/model.h"
#include "observe/trace.h"
#include "plan/balance.h"
#include "plan/plan.h"
#include "ranks/world.h"

/* What happens to weights that a device's own memory does not hold: blocks are streamed, as many as
 * have to be; none, and the request is refused; or all blocks of all networks are streamed. */
typedef enum xd_offload { XD_OFFLOAD_AUTO, XD_OFFLOAD_NONE, XD_OFFLOAD_STREAM } xd_offload;

/* Changes that an engine takes by itself (xd_open_args.fit). */
enum { XD_FIT_OFFLOAD = 1, XD_FIT_DIT = 2, XD_FIT_TEXT = 4 };

/* State with which a request is checked, counted and run. An engine has one. A prediction makes
 * another, which stands for one rank of a plan and only counts. */
typedef struct xd_context xd_context;
struct xd_context {
    xd_model     model;
    xd_dev      *dev, *count;
    xd_plan      plan;
    xd_world     world;         /* all ranks, and the ranks that work on a request             */
    void        *window;   /* request arena mapped by the other ranks of this host; NULL: private */
    xd_topo      topo;          /* this rank's, in `used`; degrees of 1 on an idle rank        */
    xd_comm     *count_world;   /* `world.used` without messages, for counting                 */
    xd_topo      count_topo;
    xd_comm     *text, *count_text;     /* ranks that share a text encoder; NULL: one rank has it */
    xd_dtype     type;          /* compute type                                                */
    int          keep;          /* text encoders stay loaded                                   */
    xd_offload   offload;
    struct xd_text_cache *embeddings;   /* of earlier prompts (text_cache.h); NULL: none yet   */
    struct xd_colours *colours; /* of latents, learned (preview.h); NULL: none                 */
    int          once;          /* there will be one request                                   */
    size_t       spare;  /* memory of the host that the request leaves, my share: for files */
    double       cold[XD_KINDS];        /* bytes of weights that a disk must deliver; 0: unknown */
    int          bench;      /* a request may lack what only its image depends on          */
    int          unread;        /* an image to start from is not read: the request is counted   */
    int          neighbours;    /* engines of this host that work at the same time; 0, 1: none    */
    int          borrowed;      /* the weights are another engine's: nothing is freed           */
    /* Gives that engine what is loaded (out 1), or takes it; NULL: they are this engine's.      */
    void       (*lend)(xd_context *ctx, int out);
    double       budget;        /* bytes (memory_budget.h); 0: all memory that is free            */
    int          fit;           /* XD_FIT_*: what a request that does not fit may change          */
    long long    holds;         /* bytes of weights, as told to xd_budget_hold                    */
    const xd_canceller *cancel; /* of the request; or NULL                                     */
    xd_trace    *trace;         /* what is recorded; NULL: nothing is                          */
    xd_balance  *balance; /* these; NULL: even                                           */
    uint64_t     hash;          /* of the model                                                */
};

/* Makes a separate context for counting, with the model and device of `base` (borrowed; base
 * outlives it). Nothing is loaded in it, no group of ranks is open, components are whole, images
 * are not read. Changes in it do not affect `base`. */
void xd_context_fork(xd_context *fork, const xd_context *base);
void xd_context_fork_close(xd_context *fork, const xd_context *base);

#endif
