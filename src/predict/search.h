/* search.h - all possible plans, predicted and sorted */
#ifndef XD_PREDICT_SEARCH_H
#define XD_PREDICT_SEARCH_H

#include "predict/predict.h"

typedef struct xd_candidate {
    xd_parallel   parallel;     /* the flags of this plan                                      */
    xd_prediction f;            /* for a refused plan: the part that was computed              */
    xd_err        why;          /* reason for refusal of a refused plan                        */
    char         *flags;        /* "--ulysses_degree 2 --use_parallel_vae", malloc'ed          */
    char         *name;         /* "u2r2pp2cfg2", malloc'ed                                    */
} xd_candidate;

enum { XD_SEARCH_MOST = 128 };  /* max ranks unless all degrees are given                      */

typedef struct xd_search {
    xd_candidate *c;            /* [n], malloc'ed: fastest first, refused ones last            */
    int           n, good;
} xd_search;

/* Predicts every factorization of exactly `ranks` over the axes that keeps the given degrees of
 * `fixed` (those above 0; use_cfg_parallel if set). stale: include plans with inexact images.
 * XD_EINVAL if no plan is possible or fits: `e` has the reason of the nearest plan. */
xd_status xd_search_plans(xd_search *s, const xd_context *ctx, const xd_request *r,
                          const xd_parallel *fixed, int ranks, int stale, const xd_machine *m,
                          xd_err *e);
void      xd_search_free(xd_search *s);

#endif
