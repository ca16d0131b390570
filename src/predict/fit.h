/* fit.h - finds options with which a request fits into memory, by counting the memory need with
 * each option. */
#ifndef XD_PREDICT_FIT_H
#define XD_PREDICT_FIT_H

#include "predict/search.h"

typedef struct xd_fit {
    const xd_context  *ctx;
    const xd_request  *r;
    const xd_machine  *m;     /* machine, with its memory per host or per device */
    const xd_parallel *fixed; /* degrees of parallelism that the user has set */
    int                ranks;
    /* 1: the search includes plans whose images differ from those of one rank */
    int                stale;
    /* 1: a search chooses among plans that contain the degrees in `fixed`. 0: `fixed` is the
     * complete plan. */
    int                chosen;
    /* Address space that a process of this machine may use, in bytes. 0: the request is predicted
     * for another machine. */
    double             space;
    double             held; /* bytes of weights that are already loaded */
    /* 1: the pixels of the image alone need too much memory, so only smaller images are tried */
    int                huge;
    int                only; /* changes that may be tried (XD_FIT_*); 0: all changes */
} xd_fit;

/* Changes of options that make a request fit into memory. If all fields are 0, no such change was
 * found. */
typedef struct xd_fit_choice {
    /* offload: 1 to set --offload auto. dit, text: new weight types (xd_dtype) of the transformer
     * and the text encoders. 0: the option is not changed. */
    int32_t offload, dit, text;
} xd_fit_choice;

/* Returns the memory need, in bytes, of the rank that needs the most memory. */
double              xd_fit_fullest(const xd_prediction *f);
/* Predicts plans for this number of ranks as xd_search_plans does, but moves plans that need more
 * memory than a process may use to the end of the list. */
xd_status           xd_fit_search(const xd_fit *t, xd_search *s, int ranks, xd_err *e);
/* Returns the plan with the smallest memory need among the plans that do not fit into memory, or
 * NULL if no plan's memory need was counted. */
const xd_candidate *xd_fit_least(const xd_search *s);

/* Writes advice that is appended to the error of a request that does not fit: "; what would fit:
 * --weights_dtype int8 (13.1 GB)". If no set of changes makes the request fit, the advice is the
 * set of changes with which the request needs the least memory, and how much it then needs. A set
 * of changes is suggested only after counting has shown that the request fits into memory with it.
 * The first changes that are tried leave the pixels unchanged or nearly unchanged: for example, VAE
 * tiles, or weights in host memory that are copied to the device when they are needed. If these
 * changes do not suffice, other types of weights are tried, first for the larger component, and
 * four bits last; and after that, tensor parallelism, fewer ranks, and smaller images. Each change
 * is tried with each of the n plans. Counting the memory for the advice takes at most a few
 * seconds. */
void xd_fit_advice(const xd_fit *t, const xd_parallel *plans, int n, char *out, size_t size);
/* Returns the first set of changes that t->only allows and with which the request fits into memory
 * with plan `plan`. Writes the changes to `out` as text, such as "--offload auto (13.1 GB ...)". */
xd_fit_choice xd_fit_choose(const xd_fit *t, const xd_parallel *plan, char *out, size_t size);
/* Call xd_fit_advice_of after a search in which no plan fits. Writes advice as xd_fit_advice does,
 * for the found plans that need the least memory. */
void          xd_fit_advice_of(const xd_fit *t, const xd_search *s, char *out, size_t size);

#endif
