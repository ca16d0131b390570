/* auto_plan.h - the choice of a plan for an engine that has ranks but not all degrees */
#ifndef XD_PREDICT_AUTO_PLAN_H
#define XD_PREDICT_AUTO_PLAN_H

#include "pipeline/context.h"
#include "pipeline/job.h"
#include "xdit/xdit.h"

typedef struct xd_predicted_times {  /* seconds of the request the plan was chosen for; negative: */
                                     /* unknown */
    double text_s, load_s, denoise_s, decode_s, total_s;
    double read_s;  /* of these, what a disk takes; of text, load and decode */
    int    logged;  /* 1: total_s was logged, with the plan or with the bytes to read */
} xd_predicted_times;

/* Nothing is known. */
extern const xd_predicted_times xd_predicted_nothing;

/* Warns on rank 0 of a request that is far larger than the model's own size, if it is predicted to
 * take so long that it is worth a word; negative: unknown. */
void xd_warn_far_larger(const xd_job *j, double seconds);

/* Fills the degrees of a->parallel that are 0, so that the ranks are used, with those that
 * a->plan asks for: rank 0 predicts every plan, the others take its choice; `take` has it on all
 * ranks that ask for the same, else what they ask for. Before that rank 0 takes ctx->cold, where
 * there is a plan to choose for; one rank does too, and chooses nothing. A request that is far
 * larger than the model's own size is predicted in any case. `s`: how this rank
 * fared so far; one that has failed asks for nothing. hosts: on which the ranks are. Collective
 * over all ranks. */
xd_status xd_auto_plan(xd_context *ctx, const xd_open_args *a, int hosts, xd_status s,
                       xd_parallel *take, xd_predicted_times *predicted, xd_err *e);

#endif
