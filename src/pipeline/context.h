/* context.h - the state that a request works with: model, device, plan, ranks */
#ifndef XD_PIPELINE_CONTEXT_H
#define XD_PIPELINE_CONTEXT_H

#include <stdatomic.h>

#include "model/model.h"
#include "observe/trace.h"
#include "plan/balance.h"
#include "plan/plan.h"
#include "ranks/world.h"

/* What a request is checked, counted and run with. An engine has one; whoever predicts makes another, which
 * stands for one rank of a plan and counts. */
typedef struct xd_context {
    xd_model     model;
    xd_dev      *dev, *count;
    xd_plan      plan;
    xd_world     world;        /* the ranks there are, and those that work on a request          */
    void        *window;          /* memory of a request that they read; NULL: it is mine alone    */
    xd_topo      topo;          /* of mine, in `used`; degrees of 1 on an idle rank              */
    xd_comm     *count_world;   /* the same without messages, for counting                      */
    xd_topo      count_topo;
    xd_comm     *text, *count_text;     /* ranks that share a text encoder; NULL: one has it     */
    xd_dtype     type;          /* compute type                                                */
    int          keep;          /* text encoders stay loaded                                   */
    int          once;          /* there will be one request                                   */
    size_t       spare;         /* memory of the host that the request leaves, my share: for files */
    int          bench;      /* a request may lack what only its image depends on          */
    int          unread;        /* an image to start from is not read: the request is counted   */
    const atomic_int *cancel;   /* not 0: the request is to end                                */
    xd_trace    *trace;         /* what is recorded; NULL: nothing is                          */
    xd_balance  *balance; /* these; NULL: even                                           */
    uint64_t     hash;          /* of the model                                                */
} xd_context;

/* A context of its own for counting, on the same model and device (borrowed from `base`, which outlives it): nothing
 * of it is loaded, no group of ranks is open, components are whole, images are not read. What is counted or changed
 * in it is not seen in `base`. */
void xd_context_fork(xd_context *fork, const xd_context *base);
void xd_context_fork_close(xd_context *fork, const xd_context *base);

#endif
