/* auto_plan.h - the plan of an engine that is given ranks, and not all degrees */
#ifndef XD_PREDICT_AUTO_PLAN_H
#define XD_PREDICT_AUTO_PLAN_H

#include "pipeline/context.h"
#include "xdit/xdit.h"

typedef struct xd_predicted_times {    /* seconds of the request the plan was chosen for; negative: unknown */
    double text_s, denoise_s, decode_s, total_s;
} xd_predicted_times;

/* Fills the degrees of a->parallel that are 0, so that the ranks are used, with those that a->plan asks
 * for: rank 0 predicts every plan, the others take its choice; `take` has it on all ranks that ask for
 * the same, else what they ask for. `s`: how this rank fared so far; one that has failed asks for nothing.
 * hosts: on which the ranks are. Collective over all ranks. */
xd_status xd_auto_plan(xd_context *ctx, const xd_open_args *a, int hosts, xd_status s, xd_parallel *take,
                    xd_predicted_times *predicted, xd_err *e);

#endif
