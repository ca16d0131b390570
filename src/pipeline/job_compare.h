/* job_compare.h - checks that all ranks run the same request with the same settings. */
#ifndef XD_PIPELINE_JOB_COMPARE_H
#define XD_PIPELINE_JOB_COMPARE_H

#include "pipeline/context.h"
#include "xdit/xdit.h"

typedef struct xd_job_agreed { /* values of rank 0's request that all ranks use */
    int64_t seed;              /* seed of the request: the given seed, or a random seed */
    /* 1: a callback of the request selects which images are generated (xd_job_pick) */
    int     picks;
    int64_t images; /* number of input images (xd_job_images) */
    /* Height and width of the result, which may be the size of a reference image; 0: not set. */
    int64_t size[2];
    /* For models whose inputs may be videos, the number of frames of each input. */
    int64_t frames[XD_MAXREFS];
} xd_job_agreed;

/* Compares this rank's request with the request of rank 0, and fails if they differ. On every rank,
 * sets *told to the values that all ranks take from rank 0's request. The call is collective over
 * the ranks in use. */
xd_status xd_job_compare(const xd_context *ctx, const xd_request *r, xd_job_agreed *told,
                         xd_err *e);

#endif
