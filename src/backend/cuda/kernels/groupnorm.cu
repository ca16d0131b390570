/* groupnorm.cu - kernels of group norm, which first sum each group of channels over the image and
 * then normalize the image with these sums */
#include "backend/cuda/kernels/args.h"
#include "backend/cuda/kernels/elements.cuh"

/* Computes the sum and the sum of squares of a group of channels in F64. A block of threads handles
 * one image row and one group. The block needs shared memory of 2 doubles per thread. */
KERNEL(moments, moments_args, 128, 1)
{
    const int64_t r = blockIdx.x, g = blockIdx.y, wide = a.C / a.groups;
    const int     me = (int)threadIdx.x;
    double       *sums = (double *)gpu_shared(), s = 0, q = 0;
    for (int64_t i = me; i < a.P * wide; i += 128) {
        int64_t p, c;
        gpu_divide(i, wide, &p, &c);
        const int64_t at = r * a.s_row + p * a.s_position + g * wide + c;
        double        v = (double)load_one(a.in, at, a.in_type);
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

/* Computes the sums and sums of squares of groups of 2, 4, 8, ... channels in F64. A block of
 * threads handles an image row and 32 channels, or one group if a group has more than 32 channels.
 * A thread sums eight channels at every `each`-th position of the row. The block needs shared
 * memory of 16 doubles per thread. */
KERNEL(moments_wide, moments_args, 128, 1)
{
    const int     wide = (int)(a.C / a.groups), slab = wide > 32 ? wide : 32, chunks = slab / 8;
    const int     me = (int)threadIdx.x, each = 128 / chunks, first = me / chunks;
    const int64_t at = blockIdx.x * a.s_row + (int64_t)blockIdx.y * slab + me % chunks * 8;
    double       *sums = (double *)gpu_shared(), s[8], q[8];
    UNROLL
    for (int k = 0; k < 8; k++)
        s[k] = q[k] = 0;
    for (int64_t p = first; p < a.P; p += each) {
        float x[8];
        load_eight(x, a.in, at + p * a.s_position, a.in_type);
        UNROLL
        for (int k = 0; k < 8; k++) {
            const double v = (double)x[k];
            s[k] += v, q[k] += v * v;
        }
    }
    UNROLL
    for (int k = 0; k < 8; k++)
        sums[k * 128 + me] = s[k], sums[(8 + k) * 128 + me] = q[k];
    gpu_sync();
    for (int n = each / 2; n; n >>= 1) {
        if (first < n) {
            UNROLL
            for (int k = 0; k < 16; k++)
                sums[k * 128 + me] += sums[k * 128 + me + n * chunks];
        }
        gpu_sync();
    }
    for (int i = me; i < slab / wide * 2; i += 128) {
        double all = 0;
        for (int c = i / 2 * wide; c < (i / 2 + 1) * wide; c++)
            all += sums[(i % 2 * 8 + c % 8) * 128 + c / 8];
        a.sums[blockIdx.x * a.s_sum_row + (blockIdx.y * (slab / wide) + i / 2) * a.s_sum_group +
               i % 2] = all;
    }
}

/* Sums the columns of an F64 matrix. A block of threads sums one column of the matrix, and needs
 * shared memory of one double per thread. */
KERNEL(add_rows, add_rows_args, 128, 1)
{
    double   *sums = (double *)gpu_shared(), s = 0;
    const int me = (int)threadIdx.x;
    for (int64_t r = me; r < a.R; r += 128)
        s += a.in[r * a.step + blockIdx.x];
    sums[me] = s;
    gpu_sync();
    for (int n = 64; n; n >>= 1) {
        if (me < n)
            sums[me] += sums[me + n];
        gpu_sync();
    }
    if (!me)
        a.out[blockIdx.x] = sums[0];
}

/* Applies group norm. Each block of threads normalizes `each` elements. The block first computes
 * the mean and the scale of every group of channels, and stores them in shared memory as 2 floats
 * per group. */
KERNEL(gnorm, gnorm_args, 256, 1)
{
    const int64_t wide = a.C / a.groups, all = a.n * a.C;
    float        *of = (float *)gpu_shared();
    for (int g = (int)threadIdx.x; g < a.groups; g += 256) {
        const double *sums = a.sums + g * a.s_group;
        const double  mean = sums[0] / a.count, var = sums[a.s_moment] / a.count - mean * mean;
        of[2 * g] = (float)mean;
        of[2 * g + 1] = (float)(1 / sqrt((var > 0 ? var : 0) + (double)a.eps));
    }
    gpu_sync();
    const int64_t begin = blockIdx.x * a.each, end = begin + a.each < all ? begin + a.each : all;
    for (int64_t i = begin + (int)threadIdx.x; i < end; i += 256) {
        int64_t r, c, g, at, in = 0, out = 0, scale = 0, shift = 0;
        gpu_divide(i, a.C, &r, &c);
        gpu_divide(c, wide, &g, &at);
        UNROLL
        for (int k = 2; k >= 0; k--) {
            gpu_divide(r, a.d[k], &r, &at);
            in += at * a.s_in[k], out += at * a.s_out[k];
            if (a.cell[k]) {
                int64_t cell, left;
                gpu_divide(at, a.cell[k], &cell, &left);
                scale += cell * a.s_scale[k], shift += cell * a.s_shift[k];
            }
        }
        float v = (load_one(a.in, in + c, a.in_type) - of[2 * g]) * of[2 * g + 1];
        v = a.gain ? v * a.gain[c] : v;
        v = a.bias ? v + a.bias[c] : v;
        if (a.scale)
            v = v * a.scale[scale + c] + a.shift[shift + c];
        store_one(a.out, out + c, a.out_type, activate(v, a.silu ? SILU : NONE));
    }
}
