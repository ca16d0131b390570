/* loop.h - the loop of a request: which messages the ranks exchange, and what they do in between
 * (work.h).
 *
 * Engines and predictions run this loop. A prediction runs it once as every rank, so that it counts
 * the messages of the code that sends them. */
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
    xd_arena    a;       /* scratch memory of denoising and of the VAE */
    xd_denoise  f;       /* denoising of the current image; f.j NULL: not open */
    double      first_s; /* time at which the request's first step began */
    int         apart;   /* 1: transformer and VAE are not loaded at the same time */
    int         fresh;   /* 1: some rank must load the transformer for this request */
} xd_loop;

/* Makes all checks that can refuse a request: options, prompts, memory. `s` is this rank's status
 * so far. *room becomes the memory limits; room->machine is 0 if memory was not compared.
 * Collective over the ranks in use; all ranks return the same status. */
xd_status xd_loop_accept(xd_loop *l, xd_memory_limits *room, xd_status s, xd_err *e);
/* Runs an accepted request: encodes the texts, loads the weights, and generates and collects the
 * images. Collective over the ranks in use. */
xd_status xd_loop_images(xd_loop *l, xd_err *e);

#endif
