/* cudnn_plans.h - declares the table of cuDNN's execution plans of a CUDA device */
#ifndef XD_BACKEND_CUDA_CUDNN_PLANS_H
#define XD_BACKEND_CUDA_CUDNN_PLANS_H

#include "backend/cuda/cuda.h"
#include "backend/cuda/cudnn_plan.h"

typedef struct xd_cudnn_known xd_cudnn_known; /* an entry of the table of execution plans */

/* Returns the device's state for calls of cuDNN, if the environment variable XDIT_CUDNN allows
 * cuDNN to compute the operation `op`. The first call that needs cuDNN loads it. Returns NULL if
 * the op is computed without cuDNN. */
struct xd_cuda_cudnn *xd_cuda_cudnn_for(xd_cuda_dev *c, xd_op op);
/* Makes the background thread compile the plan for a shape. */
void                  xd_cudnn_expect(struct xd_cuda_cudnn *x, const xd_cudnn_shape *shape);
/* Returns the table entry of a shape, and waits until its plan is compiled. Returns NULL if cuDNN
 * does not support the shape. */
xd_cudnn_known       *xd_cudnn_wait(struct xd_cuda_cudnn *x, const xd_cudnn_shape *shape);
/* Queues the work of a cuDNN execution plan. `what` names the work in an error message. Returns 0
 * if cuDNN does not run the plan; xd_cudnn_wait then returns NULL for this shape. */
int xd_cudnn_run(struct xd_cuda_cudnn *x, xd_cudnn_known *q, const xd_cudnn_operands *o,
                 const char *what, xd_status *s);

#endif
