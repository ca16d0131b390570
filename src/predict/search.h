/* search.h - predicts all possible parallel plans and sorts them by predicted time. */
#ifndef XD_PREDICT_SEARCH_H
#define XD_PREDICT_SEARCH_H

#include "predict/predict.h"

typedef struct xd_candidate {
    xd_parallel   parallel; /* degrees and options of the plan */
    /* Predicted time and memory of the candidate plan. If the plan is refused, some fields of the
     * prediction are not set. */
    xd_prediction f;
    xd_err        why;   /* reason why the plan was refused; code XD_OK: the plan was not refused */
    char         *flags; /* malloc'ed flags, such as "--ulysses_degree 2 --use_parallel_vae" */
    char         *name;  /* malloc'ed short name, such as "u2r2pp2cfg2" */
} xd_candidate;

/* maximum number of ranks in a search in which some degrees of parallelism are not fixed */
enum { XD_SEARCH_MOST = 128 };

typedef struct xd_search {
    xd_candidate *c; /* [n] malloc'ed plans: the fastest plan first, refused plans last */
    int           n, good;
} xd_search;

/* Predicts every plan whose degrees multiply to exactly `ranks` and equal the degrees that `fixed`
 * sets (those above 0, and use_cfg_parallel). If `stale` is 1, includes plans whose images differ
 * from those of one rank. If no plan is possible or fits into memory, returns an error that tells
 * why the first plan of the sorted list was refused. */
xd_status xd_search_plans(xd_search *s, const xd_context *ctx, const xd_request *r,
                          const xd_parallel *fixed, int ranks, int stale, const xd_machine *m,
                          xd_err *e);
void      xd_search_free(xd_search *s);

#endif
