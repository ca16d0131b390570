/* search.h - every plan there is, predicted and sorted */
#ifndef XD_PREDICT_SEARCH_H
#define XD_PREDICT_SEARCH_H

#include "predict/predict.h"

typedef struct xd_candidate {
    xd_parallel ask;            /* the flags it stands for                                     */
    xd_prediction f;              /* refused: as far as it came                                  */
    xd_err      why;            /* of a refused one                                            */
    char       *flags;          /* "--ulysses_degree 2 --use_parallel_vae", malloc'ed          */
    char       *name;           /* "u2r2pp2cfg2", malloc'ed                                    */
} xd_candidate;

enum { XD_SEARCH_MOST = 128 };          /* ranks; more only where degrees are given for all      */

typedef struct xd_search {
    xd_candidate *c;            /* [n], malloc'ed: the fastest first, refused ones last           */
    int           n, good;
} xd_search;

/* Every factorization of exactly `ranks` over the axes, with the degrees that `fixed` names (those
 * above 0; use_cfg_parallel when it is set) as they are. stale: plans whose images are not the exact
 * ones, too. XD_EINVAL when nothing is left or fits: `e` says the reason of the one that comes nearest. */
xd_status xd_search_plans(xd_search *s, const xd_context *ctx, const xd_request *r, const xd_parallel *fixed,
                          int ranks, int stale, const xd_machine *m, xd_err *e);
void      xd_search_free(xd_search *s);

#endif
