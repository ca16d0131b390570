/* auto_plan.h - chooses a plan for an engine whose degrees are not all given */
#ifndef XD_PREDICT_AUTO_PLAN_H
#define XD_PREDICT_AUTO_PLAN_H

#include "pipeline/context.h"
#include "pipeline/job.h"
#include "xdit/xdit.h"

typedef struct xd_predicted_times {  /* seconds of the request for which the plan was chosen;     */
                                     /* negative: unknown */
    double text_s, load_s, denoise_s, decode_s, total_s;
    double read_s;  /* the part of text, load and decode spent on reading from a disk */
    int    logged;  /* 1: total_s was logged, with the plan or with the bytes to read */
} xd_predicted_times;

/* Warns on rank 0 of a request far larger than the model's own size if `seconds`, its predicted
 * time (negative: unknown), is long. */
void xd_warn_far_larger(const xd_job *j, double seconds);

/* Fills the degrees of a->parallel that are 0 so that all ranks are used, with the plan that
 * a->plan names: rank 0 predicts every plan and sends its choice to the others. *take is that plan
 * on every rank with the same a->parallel, else the rank's own a->parallel. Before a choice, and
 * with one rank, rank 0 fills ctx->cold. A request far larger than the model's own size is always
 * predicted. `s`: this rank's status so far; a failed rank does not choose. hosts: number of hosts
 * of the ranks. Collective over all ranks. */
xd_status xd_auto_plan(xd_context *ctx, const xd_open_args *a, int hosts, xd_status s,
                       xd_parallel *take, xd_predicted_times *predicted, xd_err *e);

#endif
