/* fit.h - which other options let a request fit into memory, found by counting */
#ifndef XD_PREDICT_FIT_H
#define XD_PREDICT_FIT_H

#include "predict/search.h"

typedef struct xd_fit {
    const xd_context  *ctx;
    const xd_request  *r;
    const xd_machine  *m;       /* its memory is that of a host, or of a device                 */
    const xd_parallel *fixed;   /* degrees that are given                                      */
    int                ranks;
    int                stale;   /* plans whose image is not the exact one may be taken         */
    int                chosen;  /* the plan is chosen for the flags; 0: `fixed` is all of it     */
    /* bytes that a process of this machine may map; 0: it is another one */
    double             space;
    double             held;    /* bytes of weights that it has already                        */
    int                huge;    /* the image alone is too much: only smaller ones are counted   */
} xd_fit;

/* Bytes of the fullest rank. */
double    xd_fit_fullest(const xd_prediction *f);
/* The plans of so many ranks, those last that need more than a process may map; the rest as
 * xd_search_plans has it. */
xd_status xd_fit_search(const xd_fit *t, xd_search *s, int ranks, xd_err *e);
/* Of plans that do not fit: the one that needs least, NULL where none was counted. */
const xd_candidate *xd_fit_least(const xd_search *s);

/* What the flags could be instead, to follow a refusal: "; what would fit: --weights_dtype int8
 * (13.1 GB)", or the least that is needed with all that helps. Each has been counted and fits:
 * types of weights first, those of the larger component before the smaller one's, then tensor
 * parallelism, tiles, fewer ranks, sizes. plans: [n] that are
 * tried with each change. Counts for a second or two at most. */
void      xd_fit_advice(const xd_fit *t, const xd_parallel *plans, int n, char *out, size_t size);
/* The same for plans that were searched in vain. */
void      xd_fit_advice_of(const xd_fit *t, const xd_search *s, char *out, size_t size);

#endif
