/* fit.h - options with which a request fits into memory, found by counting */
#ifndef XD_PREDICT_FIT_H
#define XD_PREDICT_FIT_H

#include "predict/search.h"

typedef struct xd_fit {
    const xd_context  *ctx;
    const xd_request  *r;
    const xd_machine  *m;       /* its memory is that of a host, or of a device                */
    const xd_parallel *fixed;   /* degrees that are given                                      */
    int                ranks;
    int                stale;   /* plans with inexact images are allowed                       */
    int                chosen;  /* the plan is chosen for the flags; 0: `fixed` is the whole plan */
    /* Bytes that a process of this machine may map; 0: another machine is asked about. */
    double             space;
    double             held;    /* bytes of weights that it already has                        */
    int                huge;    /* the image alone is too large: only smaller ones are counted */
    int                only;    /* XD_FIT_*: only these changes are tried; 0: all                */
} xd_fit;

typedef struct xd_fit_choice {  /* changes of the first piece of advice; all 0: there is none    */
    int32_t offload, dit, text; /* --offload auto; types of weights (xd_dtype), 0: as they are   */
} xd_fit_choice;

/* Bytes of the rank that needs most. */
double    xd_fit_fullest(const xd_prediction *f);
/* The plans for this many ranks, as xd_search_plans, but with those last that need more than a
 * process may map. */
xd_status xd_fit_search(const xd_fit *t, xd_search *s, int ranks, xd_err *e);
/* Of plans that do not fit: the one that needs least; NULL if none was counted. */
const xd_candidate *xd_fit_least(const xd_search *s);

/* Text to append to a refusal: "; what would fit: --weights_dtype int8 (13.1 GB)", or the least
 * that is needed with all changes that help. Each option has been counted and fits. Order: what
 * changes no pixel or hardly one (tiles, streaming), types of weights (those of the larger
 * component first, four bits last), tensor parallelism, fewer ranks, sizes.
 * plans: [n], tried with each change. Counts for at most a second or two. */
void      xd_fit_advice(const xd_fit *t, const xd_parallel *plans, int n, char *out, size_t size);
/* The first advice among the changes `only`, and its text: "--offload auto (13.1 GB ...)". */
xd_fit_choice xd_fit_choose(const xd_fit *t, const xd_parallel *plan, char *out, size_t size);
/* As xd_fit_advice, for the plans of a search in which none fits. */
void      xd_fit_advice_of(const xd_fit *t, const xd_search *s, char *out, size_t size);

#endif
