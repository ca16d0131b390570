/* cudnn_plan.h - compiles, stores and runs cuDNN's execution plans for attention and convolutions.
 * An execution plan computes one shape of either scaled dot-product attention (SDPA) or a
 * convolution with its bias and residual. cuDNN needs at least 0.4 s of one core to compile a plan.
 *
 * An execution plan of cuDNN can be serialized to about 70 KB of JSON text. With the same version
 * of cuDNN and the same model of GPU, a plan is restored from its JSON text in a millisecond. */
#ifndef XD_BACKEND_CUDA_CUDNN_PLAN_H
#define XD_BACKEND_CUDA_CUDNN_PLAN_H

#include "backend/backend.h"
#include "backend/cuda/cudnn.h"
#include "base/err.h"
#include "tensor/tensor.h"

/* Shape and strides of the attention out[b,i,h] = sum_j softmax_j(scale q k) v. Strides are in
 * elements, for the dimensions [B,n,H]. The last dimension D is contiguous, and the address of each
 * row of a head is a multiple of 16 bytes. */
typedef struct xd_cudnn_attention {
    int64_t n, m, q[3], k[3], v[3], out[3];
    int64_t lse[3]; /* strides of the F32 log-sum-exp; all 0: no log-sum-exp is computed */
    int32_t B, H, Hk, D;
    int32_t type;    /* type of q, k, v and out: XD_BF16 or XD_F16 */
    int32_t lengths; /* 1: the samples have different numbers of keys */
} xd_cudnn_attention;

/* Shape and strides of the convolution out[t,h,w,O] = conv(in[t,h,w,C], w) + bias + residual of
 * xd_conv. Strides are in elements, for the axes t, h, w. Channels are contiguous, the weight is
 * dense [O,kt,kh,kw,C], and the address of each position of the image is a multiple of 16 bytes. */
typedef struct xd_cudnn_conv {
    int64_t in[3], out[3], s_in[3], s_out[3], s_residual[3];
    /* lo and hi: number of zeros that pad the start and the end of each axis */
    int32_t kernel[3], stride[3], lo[3], hi[3];
    int32_t axes;     /* 3, or 2 if t counts the images of a batch */
    int32_t C, O;     /* multiples of 8 */
    int32_t type;     /* type of in, out, residual and weight: XD_BF16 or XD_F16 */
    int32_t bias;     /* 0: no bias; 1: a bias of type F32; 2: a bias of the type `type` */
    int32_t residual; /* 1: the convolution adds a residual */
} xd_cudnn_conv;

/* Key of an execution plan. Equal shapes have equal bytes, including padding bytes, so shapes can
 * be compared by memcmp. */
typedef struct xd_cudnn_shape {
    int64_t op; /* XD_OP_ATTN or XD_OP_CONV */
    union {
        xd_cudnn_attention attention;
        xd_cudnn_conv      conv;
    } of;
} xd_cudnn_shape;

typedef struct xd_cudnn_plan {
    /* all cuDNN descriptors in the order of creation; the last descriptor is the plan */
    cudnnBackendDescriptor_t made[28];
    int                      n;
    int64_t                  workspace; /* bytes of device memory that a call needs */
} xd_cudnn_plan;

/* Addresses of the operands of one call; `scale` is read from host memory during the call.
 * Addresses of operands that the execution plan does not use are NULL. */
typedef struct xd_cudnn_operands {
    const void    *in, *w, *bias, *residual; /* operands of a convolution, which also has `out` */
    const void    *q, *k, *v;
    void          *out;
    float         *lse;
    /* [B] number of valid queries, and number of valid keys, of each sample; read only if
     * xd_cudnn_attention.lengths is 1. */
    const int32_t *queries, *keys;
    float          scale;
} xd_cudnn_operands;

/* Compiles a plan for the GPU that the finished cuDNN descriptor `device` describes.
 * xd_cudnn_plan_make may be called by any thread. Returns XD_EUNSUPPORTED with the reason in e if
 * cuDNN does not support this shape. */
xd_status xd_cudnn_plan_make(const xd_cudnn *lib, cudnnBackendDescriptor_t device,
                             const xd_cudnn_shape *a, xd_cudnn_plan *p, xd_err *e);
/* Returns the serialized text of a plan, malloc'ed and terminated by a 0, or NULL if cuDNN cannot
 * serialize the plan. */
char     *xd_cudnn_plan_text(const xd_cudnn *lib, const xd_cudnn_plan *p);
/* Restores a plan from its serialized text. Returns XD_EFORMAT if the text is from another version
 * of cuDNN or another GPU. */
xd_status xd_cudnn_plan_read(const xd_cudnn *lib, cudnnBackendDescriptor_t device, const char *text,
                             xd_cudnn_plan *p, xd_err *e);
/* Queues the work of execution plan p on the stream of the cuDNN handle `h`. */
cudnnStatus_t xd_cudnn_plan_run(const xd_cudnn *lib, cudnnHandle_t h, const xd_cudnn_plan *p,
                                const xd_cudnn_operands *o, void *workspace);
void          xd_cudnn_plan_drop(const xd_cudnn *lib, xd_cudnn_plan *p);
/* Returns a finished cuDNN descriptor of GPU number `id` of this process. If `json` is not NULL,
 * `id` is ignored, and the descriptor describes the GPU whose properties are in the JSON text
 * `json`. Returns NULL if the descriptor cannot be created. */
cudnnBackendDescriptor_t xd_cudnn_device(const xd_cudnn *lib, int id, const char *json);

#endif
