/* auto_plan.h - chooses a parallel plan for an engine if the program does not give all degrees of
 * the plan. */
#ifndef XD_PREDICT_AUTO_PLAN_H
#define XD_PREDICT_AUTO_PLAN_H

#include "pipeline/context.h"
#include "pipeline/job.h"
#include "xdit/xdit.h"

/* Predicted times, in seconds, of the request for which the plan was chosen; negative: unknown. */
typedef struct xd_predicted_times {
    double text_s, load_s, denoise_s, decode_s, total_s;
    double read_s;  /* seconds of reading from disk, included in text_s, load_s and decode_s */
    /* 1: total_s was logged when the plan was chosen or when the bytes to read were */
    int    logged;
} xd_predicted_times;

/* On rank 0, warns if a request is far larger than the model's own size and takes long. `seconds`
 * is the predicted time of the request; negative: unknown. */
void xd_warn_far_larger(const xd_job *j, double seconds);

/* Chooses the degrees of a->parallel that are 0 so that all ranks are used, in the way that a->plan
 * names: rank 0 predicts every plan and sends the chosen plan to the other ranks. *take is the
 * chosen plan on every rank with the same a->parallel as rank 0; on other ranks it is the rank's
 * own a->parallel. Before it chooses, and if there is only one rank, rank 0 sets ctx->cold. A
 * request far larger than the model's own size is always predicted. `s` is this rank's status so
 * far; a failed rank does not choose a plan. `hosts` is the number of hosts of the ranks.
 * Collective over all ranks. */
xd_status xd_auto_plan(xd_context *ctx, const xd_open_args *a, int hosts, xd_status s,
                       xd_parallel *take, xd_predicted_times *predicted, xd_err *e);

#endif
