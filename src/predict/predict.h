/* predict.h - what a plan will take on a machine: seconds, bytes, memory, rank by rank
 *
 * The request is run on the count device as every rank of the plan, and the ranks' scripts are played
 * against each other (simulate.h). Neither weights nor ranks are needed. */
#ifndef XD_PREDICT_PREDICT_H
#define XD_PREDICT_PREDICT_H

#include "pipeline/memory_plan.h"
#include "predict/machine.h"
#include "predict/simulate.h"

typedef struct xd_prediction_rank {
    xd_need need;               /* memory by part                                              */
    double  busy_s, wait_s;     /* of a step that repeats                                      */
    double  sent, between;      /* bytes of a step that repeats; of those between hosts         */
    double  sent_all;           /* of the request                                              */
} xd_prediction_rank;

typedef struct xd_prediction {
    xd_plan plan;
    int     ranks;              /* that it uses                                                */
    double  text_s, exact_s, step_s, decode_s, request_s;       /* step_s: one that repeats      */
    int     steps, exact;       /* of an image; of those exact ones                            */
    int     rounds;             /* images that a replica generates one after the other            */
    double  from_s, to_s;       /* of the last step that was played, in the time that is told    */
    double  sent;               /* bytes of the request, all ranks                              */
    double  peak;               /* of the fullest rank (devices) or host (CPU)                  */
    int     fits, stale;        /* into the memory there is; its image is not the exact one    */
    xd_prediction_rank *rank;     /* [ranks], malloc'ed                                          */
} xd_prediction;

/* g is opened alone and for a bench, without files; nothing of it is loaded. Where the request's prompts
 * say something and the model's tokenizers are there, texts have their lengths; else the most there can be,
 * and a negative prompt that is not given is empty. It is the first request: weights are loaded. Freed with
 * xd_prediction_free also after a failure. XD_EINVAL: the plan cannot be. */
xd_status xd_predict(xd_prediction *f, const xd_context *base, const xd_request *r, const xd_parallel *a,
                     int ranks, const xd_machine *m, xd_err *e);
void      xd_prediction_free(xd_prediction *f);

/* A stretch of time of a rank in steps 0, 1, .. of the prediction: what 'c' computes, 'w' waits. */
typedef void xd_predicted_event(void *ctx, int rank, char what, double from, double to);
/* The same, telling the stretches of the denoising steps that were played. */
xd_status xd_predict_events(xd_prediction *f, const xd_context *base, const xd_request *r, const xd_parallel *a,
                             int ranks, const xd_machine *m, xd_predicted_event *told, void *cookie, xd_err *e);

#endif
