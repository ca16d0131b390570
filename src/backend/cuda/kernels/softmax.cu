/* softmax.cu - computes the softmax of rows of attention scores in device memory
 *
 * A block of threads handles a row and reads it three times: for the row's maximum, for the sum of
 * exponentials, and to write the probabilities. The block needs shared memory of two floats per
 * warp. */
#include "backend/cuda/kernels/args.h"
#include "backend/cuda/kernels/elements.cuh"

enum { SOFTMAX_THREADS = 128, SOFTMAX_WARPS = SOFTMAX_THREADS / 32 };

KERNEL(softmax, softmax_args, 128, 1)
{
    const int64_t r = blockIdx.x;
    const int     me = (int)threadIdx.x;
    const float  *x = a.scores + r * a.ld, by = a.scale * 1.4426950408889634f;
    float        *shared = (float *)gpu_shared(), top = -INFINITY, sum = 0, odd = 0;
    for (int64_t i = me; i < a.m; i += SOFTMAX_THREADS) {
        const float v = x[i] * by;
        top = fmaxf(top, v);
        odd = v != v ? 1 : odd;
    }
    top = gpu_warp_max(odd != 0 ? INFINITY : top);
    if (LANE == 0)
        shared[WARP] = top;
    gpu_sync();
    UNROLL
    for (int w = 0; w < SOFTMAX_WARPS; w++)
        top = fmaxf(top, shared[w]);
    const float zero = top == -INFINITY ? 0 : top;
    for (int64_t i = me; i < a.m; i += SOFTMAX_THREADS)
        sum += gpu_exp2(x[i] * by - zero);
    sum = gpu_warp_sum(sum);
    if (LANE == 0)
        shared[SOFTMAX_WARPS + WARP] = sum;
    gpu_sync();
    sum = 0;
    UNROLL
    for (int w = 0; w < SOFTMAX_WARPS; w++)
        sum += shared[SOFTMAX_WARPS + w];
    const float share = sum > 0 ? 1 / sum : sum == 0 ? 0 : sum;
    for (int64_t i = me; i < a.m; i += SOFTMAX_THREADS)
        store_typed(a.weights, r * a.ld + i, a.type, gpu_exp2(x[i] * by - zero) * share);
    if (a.lse && me == 0)
        a.lse[r * a.s_lse] = sum > 0    ? (zero + log2f(sum)) * 0.6931471805599453f
                             : sum == 0 ? -INFINITY
                                        : sum;
}
