/* loop.h - runs a request from its texts to its images. The code here exchanges the ranks'
 * messages, and calls replaceable functions for the computing between two messages (work.h).
 *
 * Engines run requests with this code, and predictions of time run the code once for every rank on
 * a device that only counts. Predictions count messages with the code that sends the messages in a
 * real run. */
#ifndef XD_PIPELINE_LOOP_H
#define XD_PIPELINE_LOOP_H

#include "pipeline/denoise.h"
#include "pipeline/memory_plan.h"
#include "pipeline/result.h"

typedef struct xd_loop {
    xd_job     *j;
    xd_prompts *w;
    xd_result  *r;
    xd_need     need;
    xd_arena    a;       /* scratch memory that denoising and the VAE use */
    xd_denoise  f;       /* state of denoising the current image; not open if f.j is NULL */
    double      first_s; /* time at which the request's first step began */
    int         apart;   /* 1: transformer and VAE are never loaded at the same time */
    int         fresh;   /* 1: some rank must load the transformer for this request */
} xd_loop;

/* Makes all checks that can refuse a request: options, prompts, memory. `s` is this rank's status
 * so far. Sets *room to the memory limits; room->machine is 0 if memory was not compared with a
 * limit. The call is collective over the ranks in use, which all return the same status. */
xd_status xd_loop_accept(xd_loop *l, xd_memory_limits *room, xd_status s, xd_err *e);
/* Runs an accepted request: encodes the texts, loads the weights, and generates and collects the
 * images. The call is collective over the ranks in use. */
xd_status xd_loop_images(xd_loop *l, xd_err *e);

#endif
