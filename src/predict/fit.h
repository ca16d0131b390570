/* fit.h - finds options with which a request fits into memory, by counting the memory need with
 * each option. */
#ifndef XD_PREDICT_FIT_H
#define XD_PREDICT_FIT_H

#include "predict/search.h"

typedef struct xd_fit {
    const xd_context  *ctx;
    const xd_request  *r;
    const xd_machine  *m;       /* machine, with the memory of a host or of a device           */
    const xd_parallel *fixed;   /* the degrees of parallelism that the user has given          */
    int                ranks;
    int                stale;   /* 1: allow plans with inexact images                          */
    int                chosen;  /* 1: a plan is searched; 0: `fixed` is the complete plan         */
    /* Bytes that a process of this machine may map; 0: the request is for another machine. */
    double             space;
    double             held;    /* bytes of weights that are already loaded                    */
    int                huge;    /* 1: the image alone is too large: count only smaller images  */
    int                only;    /* try only these changes (XD_FIT_*); 0: all changes             */
} xd_fit;

typedef struct xd_fit_choice {  /* the option changes of the first advice; all 0: no advice      */
    int32_t offload, dit, text; /* 1: --offload auto; weight types (xd_dtype), 0: unchanged      */
} xd_fit_choice;

/* Returns the memory need, in bytes, of the rank that needs the most memory. */
double    xd_fit_fullest(const xd_prediction *f);
/* Searches plans for this many ranks as xd_search_plans does, but puts plans that need more memory
 * than a process may map at the end of the list. */
xd_status xd_fit_search(const xd_fit *t, xd_search *s, int ranks, xd_err *e);
/* Returns the plan with the smallest memory need among the plans that do not fit into memory, or
 * NULL if no plan's memory need was counted. */
const xd_candidate *xd_fit_least(const xd_search *s);

/* Writes text to append to a refusal: "; what would fit: --weights_dtype int8 (13.1 GB)", or, if no
 * single change is enough, the memory that is needed with all changes that help. Each listed option
 * has been counted and fits. The order of options is: those that change no pixel or hardly one
 * (tiles, streaming), weight types (of the larger component first, four bits last), tensor
 * parallelism, fewer ranks, image sizes. Each change is tried with each of the n plans. Spends at
 * most one or two seconds on counting. */
void      xd_fit_advice(const xd_fit *t, const xd_parallel *plans, int n, char *out, size_t size);
/* Returns the first advice among the changes t->only, and writes its text: "--offload auto (13.1 GB
 * ...)". */
xd_fit_choice xd_fit_choose(const xd_fit *t, const xd_parallel *plan, char *out, size_t size);
/* Writes advice as xd_fit_advice does, for the plans of a search in which no plan fits. */
void      xd_fit_advice_of(const xd_fit *t, const xd_search *s, char *out, size_t size);

#endif
