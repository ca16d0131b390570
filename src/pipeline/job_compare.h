/* job_compare.h - do all ranks run the same request? */
#ifndef XD_PIPELINE_JOB_COMPARE_H
#define XD_PIPELINE_JOB_COMPARE_H

#include "pipeline/context.h"
#include "xdit/xdit.h"

typedef struct xd_job_agreed {       /* what rank 0 alone knows of a request                        */
    int64_t seed;               /* the one asked for, or drawn by chance                        */
    int     picks;              /* it will say which images are wanted                          */
} xd_job_agreed;

/* Fails on every rank whose request is not rank 0's. Collective over the ranks in use. */
xd_status xd_job_compare(const xd_context *ctx, const xd_request *r, xd_job_agreed *told, xd_err *e);

#endif
