/* search.h - all possible plans, predicted and sorted */
#ifndef XD_PREDICT_SEARCH_H
#define XD_PREDICT_SEARCH_H

#include "predict/predict.h"

typedef struct xd_candidate {
    xd_parallel   ask;          /* the flags it stands for                                     */
    xd_prediction f;            /* of a refused plan: the part that was computed               */
    xd_err        why;          /* of a refused plan                                           */
    char         *flags;        /* "--ulysses_degree 2 --use_parallel_vae", malloc'ed          */
    char         *name;         /* "u2r2pp2cfg2", malloc'ed                                    */
} xd_candidate;

enum { XD_SEARCH_MOST = 128 };  /* ranks; more only if all degrees are given                   */

typedef struct xd_search {
    xd_candidate *c;            /* [n], malloc'ed: the fastest first, refused ones last        */
    int           n, good;
} xd_search;

/* Every factorization of exactly `ranks` over the axes, with the degrees that `fixed` gives (those
 * above 0; use_cfg_parallel if it is set). stale: include plans with inexact images. XD_EINVAL if
 * no plan is left or fits: `e` has the reason of the plan that comes nearest. */
xd_status xd_search_plans(xd_search *s, const xd_context *ctx, const xd_request *r,
                          const xd_parallel *fixed, int ranks, int stale, const xd_machine *m,
                          xd_err *e);
void      xd_search_free(xd_search *s);

#endif
