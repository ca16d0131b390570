/* fit.h - finds options with which a request fits into memory, by counting */
#ifndef XD_PREDICT_FIT_H
#define XD_PREDICT_FIT_H

#include "predict/search.h"

typedef struct xd_fit {
    const xd_context  *ctx;
    const xd_request  *r;
    const xd_machine  *m;       /* memory: of a host or of a device                            */
    const xd_parallel *fixed;   /* given degrees                                               */
    int                ranks;
    int                stale;   /* allow plans with inexact images                             */
    int                chosen;  /* 1: the plan is chosen; 0: `fixed` is the complete plan         */
    /* Bytes that a process of this machine may map; 0: the request is for another machine. */
    double             space;
    double             held;    /* bytes of weights already loaded                             */
    int                huge;    /* the image alone is too large: count smaller images only     */
    int                only;    /* XD_FIT_*: try only these changes; 0: all                      */
} xd_fit;

typedef struct xd_fit_choice {  /* changes of the first advice; all 0: no advice                 */
    int32_t offload, dit, text; /* --offload auto; weight types (xd_dtype), 0: unchanged         */
} xd_fit_choice;

/* Returns the bytes of the rank that needs the most memory. */
double    xd_fit_fullest(const xd_prediction *f);
/* As xd_search_plans for this many ranks, but plans that need more than a process may map are
 * last. */
xd_status xd_fit_search(const xd_fit *t, xd_search *s, int ranks, xd_err *e);
/* Among plans that do not fit, returns the one that needs the least memory; NULL if none was
 * counted. */
const xd_candidate *xd_fit_least(const xd_search *s);

/* Writes text to append to a refusal: "; what would fit: --weights_dtype int8 (13.1 GB)", or the
 * minimum that is needed with all changes that help. Each listed option has been counted and fits.
 * Order: options that change no pixel or hardly one (tiles, streaming), weight types (the larger
 * component's first, four bits last), tensor parallelism, fewer ranks, sizes.
 * plans: [n], each change is tried with each plan. Counts for one or two seconds at most. */
void      xd_fit_advice(const xd_fit *t, const xd_parallel *plans, int n, char *out, size_t size);
/* Returns the first advice among the changes `only`, and its text: "--offload auto (13.1 GB
 * ...)". */
xd_fit_choice xd_fit_choose(const xd_fit *t, const xd_parallel *plan, char *out, size_t size);
/* As xd_fit_advice, for the plans of a search without a plan that fits. */
void      xd_fit_advice_of(const xd_fit *t, const xd_search *s, char *out, size_t size);

#endif
