/* cudnn_plan.h - plans for attention by cuDNN: a single SDPA operation, one plan for each shape
 *
 * The library takes 0.4 s and more of a core to compile a plan. Its text, about 70 KB of JSON,
 * restores the plan in a millisecond with the same version of cuDNN and the same model of GPU. */
#ifndef XD_BACKEND_CUDA_CUDNN_PLAN_H
#define XD_BACKEND_CUDA_CUDNN_PLAN_H

#include "backend/cuda/cudnn.h"
#include "base/err.h"
#include "tensor/tensor.h"

/* Key of a plan: out[b,i,h] = sum_j softmax_j(scale q k) v. Equal shapes have equal bytes, padding
 * included. Strides are those of [B,n,H] in elements; D is contiguous, and rows of heads begin at
 * multiples of 16 bytes. */
typedef struct xd_cudnn_shape {
    int64_t n, m, q[3], k[3], v[3], out[3];
    int64_t lse[3];             /* of F32; zeros: not computed                                 */
    int32_t B, H, Hk, D;
    int32_t type;               /* of q, k, v and out: XD_BF16 or XD_F16                       */
    int32_t lengths;            /* 1: samples differ in their number of keys                   */
} xd_cudnn_shape;

typedef struct xd_cudnn_plan {
    cudnnBackendDescriptor_t made[20];  /* all descriptors in the order of creation; the last one
                                         * is the plan */
    int     n;
    int64_t workspace;                  /* bytes of device memory                              */
} xd_cudnn_plan;

/* Addresses of the operands of one call; `scale` is read from host memory during the call. */
typedef struct xd_cudnn_operands {
    const void    *q, *k, *v;
    void          *out;
    float         *lse;
    const int32_t *queries, *keys;  /* valid rows of each sample, [B]; if the shape has lengths */
    float          scale;
} xd_cudnn_operands;

/* Compiles a plan for the GPU of `device` (a finished descriptor). Callable by any thread.
 * XD_EUNSUPPORTED: cuDNN does not support this attention; e has the reason. */
xd_status xd_cudnn_plan_make(const xd_cudnn *lib, cudnnBackendDescriptor_t device,
                             const xd_cudnn_shape *a, xd_cudnn_plan *p, xd_err *e);
/* The text of a plan, malloc'ed and terminated by a 0; NULL: it has none. */
char     *xd_cudnn_plan_text(const xd_cudnn *lib, const xd_cudnn_plan *p);
/* Restores the plan of a text. XD_EFORMAT: it is of another version of cuDNN or another GPU. */
xd_status xd_cudnn_plan_read(const xd_cudnn *lib, cudnnBackendDescriptor_t device,
                             const char *text, xd_cudnn_plan *p, xd_err *e);
/* Queues one attention call on the stream of the handle. */
cudnnStatus_t xd_cudnn_plan_run(const xd_cudnn *lib, cudnnHandle_t h, const xd_cudnn_plan *p,
                                const xd_cudnn_operands *o, void *workspace);
void      xd_cudnn_plan_drop(const xd_cudnn *lib, xd_cudnn_plan *p);
/* Creates a finished descriptor of GPU number `id` of this process or, with `json`, of the GPU
 * whose properties that text has. NULL: failed. */
cudnnBackendDescriptor_t xd_cudnn_device(const xd_cudnn *lib, int id, const char *json);

#endif
