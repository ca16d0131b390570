/* search.h - predicts all possible parallel plans and sorts them by predicted time. */
#ifndef XD_PREDICT_SEARCH_H
#define XD_PREDICT_SEARCH_H

#include "predict/predict.h"

typedef struct xd_candidate {
    xd_parallel   parallel;     /* the plan's options                                          */
    /* Prediction of the plan; of a refused plan, only the part that was computed. */
    xd_prediction f;
    xd_err        why;          /* reason why a refused plan was refused                       */
    char         *flags; /* plan as flags "--ulysses_degree 2 --use_parallel_vae", malloc'ed */
    char         *name;         /* plan as short name "u2r2pp2cfg2", malloc'ed                 */
} xd_candidate;

enum { XD_SEARCH_MOST = 128 };  /* max number of ranks, unless all degrees are given           */

typedef struct xd_search {
    xd_candidate *c; /* [n] predicted plans, malloc'ed: fastest first, refused plans last */
    int           n, good;
} xd_search;

/* Predicts every plan whose degrees multiply to exactly `ranks` and equal the degrees that are
 * given in `fixed` (those above 0, and use_cfg_parallel if set). If `stale` is 1, includes plans
 * with inexact images. Returns XD_EINVAL if no plan is possible or fits into memory; `e` then has
 * the reason why the plan that came nearest was refused. */
xd_status xd_search_plans(xd_search *s, const xd_context *ctx, const xd_request *r,
                          const xd_parallel *fixed, int ranks, int stale, const xd_machine *m,
                          xd_err *e);
void      xd_search_free(xd_search *s);

#endif
