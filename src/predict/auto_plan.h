/* auto_plan.h - the choice of a plan for an engine that has ranks but not all degrees */
#ifndef XD_PREDICT_AUTO_PLAN_H
#define XD_PREDICT_AUTO_PLAN_H

#include "pipeline/context.h"
#include "xdit/xdit.h"

typedef struct xd_predicted_times {     /* predicted seconds; negative: unknown                */
    double text_s, denoise_s, decode_s, total_s;
} xd_predicted_times;

/* Fills in the degrees of a->parallel that are 0, for all ranks and with those that a->plan
 * gives. Rank 0 predicts every plan; the others take its choice. `take` gets it on all ranks
 * that ask for the same plan as rank 0, otherwise what the rank asks for. `s`: this rank's
 * status so far; a failed rank asks for nothing. hosts: the number of hosts of the ranks.
 * Collective over all ranks. */
xd_status xd_auto_plan(xd_context *ctx, const xd_open_args *a, int hosts, xd_status s,
                       xd_parallel *take, xd_predicted_times *predicted, xd_err *e);

#endif
