/* job_compare.h - checks that all ranks run one request with equal settings */
#ifndef XD_PIPELINE_JOB_COMPARE_H
#define XD_PIPELINE_JOB_COMPARE_H

#include "pipeline/context.h"
#include "xdit/xdit.h"

typedef struct xd_job_agreed {  /* what only rank 0 knows of a request                         */
    int64_t seed;               /* the seed that was given, or a random one                    */
    int     picks;              /* it will choose which images are wanted                      */
    int64_t images;             /* how many images it has to read (xd_job_images)              */
    int64_t size[2];            /* height and width, also those of a reference image; 0: none   */
} xd_job_agreed;

/* Fails on every rank if a rank's request differs from rank 0's. Collective over the
 * ranks in use. */
xd_status xd_job_compare(const xd_context *ctx, const xd_request *r, xd_job_agreed *told,
                         xd_err *e);

#endif
