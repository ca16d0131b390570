/* predict_messages.h - counts the bytes of a request's messages by running the code of a request
 * (pipeline/loop.h) on a device that computes nothing. */
#ifndef XD_PREDICT_PREDICT_MESSAGES_H
#define XD_PREDICT_PREDICT_MESSAGES_H

#include "pipeline/offload.h"
#include "predict/predict.h"

/* Bytes that a rank sends each time it runs a text encoder (text), denoises an image in all steps
 * (denoise, for each group of prompts), or decodes an image (decode). */
typedef struct xd_part_bytes {
    double     text[XD_MAXTEXT], decode;
    double     denoise[XD_PREDICTED_TEXTS];
    /* bytes of `denoise` for the first one of two denoising loops (upsampling.h) */
    double     first[XD_PREDICTED_TEXTS];
    const int *text_of; /* [prompts] index of the group (xd_predicted_text) of each prompt */
} xd_part_bytes;

/* Runs the request of job j as the rank that j->ctx represents, on a device and with a communicator
 * that only count. `need` is the memory need of the rank; `parts` tells which blocks are copied to
 * the device when they are used. Sets *sent to the bytes that the rank sends for the request.
 * Closes the weights and inputs of the job. */
xd_status xd_predict_messages(xd_job *j, xd_prompts *w, const xd_need *need,
                              const xd_offload_parts *parts, const xd_part_bytes *bytes,
                              double *sent, xd_err *e);

#endif
