/* auto_plan.h - chooses a parallel plan for an engine if the program does not give all degrees of
 * the plan. */
#ifndef XD_PREDICT_AUTO_PLAN_H
#define XD_PREDICT_AUTO_PLAN_H

#include "pipeline/context.h"
#include "pipeline/job.h"
#include "xdit/xdit.h"

/* Predicted times, in seconds, of the request for which the parallel plan was chosen; negative:
 * unknown. */
typedef struct xd_predicted_times {
    double text_s, load_s, denoise_s, decode_s, total_s;
    double read_s; /* seconds of reading from disk, which text_s, load_s and decode_s include */
    /* 1: total_s was logged, either when the plan was chosen or together with the bytes to read */
    int    logged;
} xd_predicted_times;

/* On rank 0, warns if the image of a request is far larger than the model's default size and takes
 * long. `seconds` is the predicted time of the request; negative: unknown. */
void xd_warn_far_larger(const xd_job *j, double seconds);

/* Chooses the degrees of a->parallel that are 0, so that all ranks are used. a->plan selects among
 * which plans to choose: "auto", or "auto-stale" to include plans whose images differ from those of
 * one rank. If a->plan is NULL, the degrees are not changed. Rank 0 predicts every plan and sends
 * the chosen plan to the other ranks. Sets *take to the chosen plan on each rank whose a->parallel
 * equals that of rank 0; on other ranks, sets *take to the rank's own a->parallel. If a->plan is
 * set, rank 0 also computes ctx->cold, the bytes of weights that must be read from disk. If the
 * image is far larger than the model's default size, rank 0 predicts the request even if all
 * degrees are given. `s` is this rank's status so far; if rank 0 has failed, no plan is chosen.
 * `hosts` is the number of hosts on which the ranks run. The call is collective over all ranks. */
xd_status xd_auto_plan(xd_context *ctx, const xd_open_args *a, int hosts, xd_status s,
                       xd_parallel *take, xd_predicted_times *predicted, xd_err *e);

#endif
