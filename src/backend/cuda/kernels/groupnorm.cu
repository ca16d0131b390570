/* groupnorm.cu - sums of the groups of image rows, and the normalisation with them */
#include "backend/cuda/kernels/args.h"
#include "backend/cuda/kernels/elements.cuh"

/* Sum and sum of squares in F64: a block for a row and a group. Shared memory: 2 doubles a
 * thread. */
KERNEL(moments, moments_args, 128, 1)
{
    const int64_t r = blockIdx.x, g = blockIdx.y, wide = a.C / a.groups;
    const int me = (int)threadIdx.x;
    double *sums = (double *)gpu_shared(), s = 0, q = 0;
    for (int64_t i = me; i < a.P * wide; i += 128) {
        int64_t at = r * a.s_row + i / wide * a.s_position + g * wide + i % wide;
        double v = (double)load_one(a.in, at, a.in_type);
        s += v, q += v * v;
    }
    sums[2 * me] = s, sums[2 * me + 1] = q;
    gpu_sync();
    for (int n = 64; n; n >>= 1) {
        if (me < n) {
            sums[2 * me] += sums[2 * (me + n)];
            sums[2 * me + 1] += sums[2 * (me + n) + 1];
        }
        gpu_sync();
    }
    if (me < 2)
        a.sums[r * a.s_sum_row + g * a.s_sum_group + me] = sums[me];
}

KERNEL(gnorm, gnorm_args, 256, 1)
{
    int64_t i = gpu_index(), c = i % a.C, r = i / a.C;
    if (i >= a.n * a.C)
        return;
    int64_t in = 0, out = 0, scale = 0, shift = 0;
    UNROLL
    for (int k = 2; k >= 0; k--) {
        int64_t at = r % a.d[k];
        r /= a.d[k];
        in += at * a.s_in[k], out += at * a.s_out[k];
        scale += a.cell[k] ? at / a.cell[k] * a.s_scale[k] : 0;
        shift += a.cell[k] ? at / a.cell[k] * a.s_shift[k] : 0;
    }
    const double *sums = a.sums + c / (a.C / a.groups) * a.s_group;
    double mean = sums[0] / a.count, var = sums[a.s_moment] / a.count - mean * mean;
    float rstd = (float)(1 / sqrt((var > 0 ? var : 0) + (double)a.eps));
    float v = (load_one(a.in, in + c, a.in_type) - (float)mean) * rstd;
    v = a.gain ? v * a.gain[c] : v;
    v = a.bias ? v + a.bias[c] : v;
    if (a.scale)
        v = v * a.scale[scale + c] + a.shift[shift + c];
    store_one(a.out, out + c, a.out_type, activate(v, a.silu ? SILU : NONE));
}
