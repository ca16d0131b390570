/* predict_messages.h - counts the bytes of a request's messages by running the request's loop
 * (pipeline/loop.h). */
#ifndef XD_PREDICT_PREDICT_MESSAGES_H
#define XD_PREDICT_PREDICT_MESSAGES_H

#include "pipeline/offload.h"
#include "predict/predict.h"

/* Bytes that a rank sends each time it runs a text encoder (text), denoises an image in all steps
 * (denoise, for each text), or decodes an image (decode). */
typedef struct xd_part_bytes {
    double     text[XD_MAXTEXT], decode;
    double     denoise[XD_PREDICTED_TEXTS];
    double     first[XD_PREDICTED_TEXTS]; /* like `denoise`, for the first of two passes */
    const int *text_of; /* [prompts] index of the text (xd_predicted_text) of each prompt */
} xd_part_bytes;

/* Runs the request of a job as the rank that j->ctx represents, on the count device j->ctx->dev and
 * a count communicator that has sent nothing. `need` is the memory need of the rank, `parts` are
 * its streamed blocks. *sent becomes the bytes that the rank sends for the request.
 * xd_predict_messages closes the weights and inputs of the job. */
xd_status xd_predict_messages(xd_job *j, xd_prompts *w, const xd_need *need,
                              const xd_offload_parts *parts, const xd_part_bytes *bytes,
                              double *sent, xd_err *e);

#endif
