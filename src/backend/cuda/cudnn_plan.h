/* cudnn_plan.h - plans of attention by cuDNN: its single operation SDPA, of one shape each
 *
 * A plan is compiled by the library: 0.4 s and more of a core. Its text, about 70 KB of JSON, gives
 * the same plan again in a millisecond, with that version of cuDNN and that model of GPU. */
#ifndef XD_BACKEND_CUDA_CUDNN_PLAN_H
#define XD_BACKEND_CUDA_CUDNN_PLAN_H

#include "backend/cuda/cudnn.h"
#include "base/err.h"
#include "tensor/tensor.h"

/* Attention that one plan serves: out[b,i,h] = sum_j softmax_j(scale q k) v. Equal ones have equal
 * bytes. Strides are those of [B,n,H] in elements; D is contiguous, and rows of heads begin at
 * multiples of 16 bytes. */
typedef struct xd_cudnn_shape {
    int64_t n, m, q[3], k[3], v[3], out[3];
    int64_t lse[3];             /* F32; zeros: not wanted                                      */
    int32_t B, H, Hk, D;
    int32_t type;               /* of q, k, v and out: XD_BF16 or XD_F16                       */
    int32_t lengths;            /* 1: samples have numbers of keys of their own                */
} xd_cudnn_shape;

typedef struct xd_cudnn_plan {
    cudnnBackendDescriptor_t made[20];  /* descriptors in the order of their making; the last is
                                         * the plan                                            */
    int     n;
    int64_t workspace;                  /* bytes                                               */
} xd_cudnn_plan;

/* Where one call finds its operands; scale: in host memory, read during the call. */
typedef struct xd_cudnn_operands {
    const void    *q, *k, *v;
    void          *out;
    float         *lse;
    const int32_t *queries, *keys;      /* [B], with lengths                                   */
    float          scale;
} xd_cudnn_operands;

/* Compiles a plan for the GPU that `device` (a finished descriptor) stands for. Any thread may call
 * it. XD_EUNSUPPORTED: cuDNN takes no such attention; e has its words. */
xd_status xd_cudnn_plan_make(const xd_cudnn *lib, cudnnBackendDescriptor_t device,
                             const xd_cudnn_shape *a, xd_cudnn_plan *p, xd_err *e);
/* The text of a plan, malloc'ed with a 0 behind; NULL: it has none. */
char     *xd_cudnn_plan_text(const xd_cudnn *lib, const xd_cudnn_plan *p);
/* The plan of a text. XD_EFORMAT: it is of another version of cuDNN or of another GPU. */
xd_status xd_cudnn_plan_read(const xd_cudnn *lib, cudnnBackendDescriptor_t device,
                             const char *text, xd_cudnn_plan *p, xd_err *e);
/* Queues a call on the stream of the handle. */
cudnnStatus_t xd_cudnn_plan_run(const xd_cudnn *lib, cudnnHandle_t h, const xd_cudnn_plan *p,
                                const xd_cudnn_operands *o, void *workspace);
void      xd_cudnn_plan_drop(const xd_cudnn *lib, xd_cudnn_plan *p);
/* A finished descriptor of GPU number `id` of this process, or with `json` of the GPU whose
 * properties that text has. NULL: it cannot be made. */
cudnnBackendDescriptor_t xd_cudnn_device(const xd_cudnn *lib, int id, const char *json);

#endif
