/* norm.cu - kernels of layer norm and RMS norm with modulation; a row is held in registers
 *
 * WARPS warps hold a row of at most WARPS x CHUNKS x 256 elements: a single warp in norm_5 to
 * norm_16, a block of eight warps in norm_wide. Rows that are longer or unaligned, and rows that
 * are multiplied by the RMS of another row, are not kept in registers but read several times
 * (norm_any). If the norm follows an addition, the same kernel also computes the addition, so that
 * rows are read and written only once. */
#include "backend/cuda/kernels/args.h"
#include "backend/cuda/kernels/elements.cuh"

enum { NORM_WARPS = 8 }; /* warps of a block of norm_wide */

/* Returns the first element of the row that this thread holds. The thread's further groups of eight
 * elements are each WARPS x 256 elements later. */
template <int WARPS> GPU int64_t first_element()
{
    return (WARPS == 1 ? LANE : (int)threadIdx.x) * 8;
}

/* Returns the sum, or the maximum of non-negative values, of the values v of all threads that hold
 * the row. Each call of a kernel for WARPS > 1 has its own `turn`, so that no call overwrites
 * shared memory that a slower warp still reads. */
template <int WARPS, int MAX> GPU float over_row(float v, int turn)
{
    v = MAX ? gpu_warp_max(v) : gpu_warp_sum(v);
    if (WARPS == 1)
        return v;
    float *shared = (float *)gpu_shared() + turn * WARPS;
    if (LANE == 0)
        shared[WARP] = v;
    gpu_sync();
    v = shared[0];
    UNROLL
    for (int w = 1; w < WARPS; w++)
        v = MAX ? fmaxf(v, shared[w]) : v + shared[w];
    return v;
}

/* Computes x += gate * add for a row, and also writes x to memory. A thread reads all its elements
 * before it writes the first one. */
template <int CHUNKS, int WARPS>
GPU void add_row(const norm_args &a, int64_t row, float x[CHUNKS][8])
{
    const int64_t lane = first_element<WARPS>();
    UNROLL
    for (int k = 0; k < CHUNKS; k++) {
        const int64_t c = k * WARPS * 256 + lane;
        float         v[8], g[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
        if (c >= a.C)
            continue;
        load_eight(v, a.add, row * a.s_add + c, a.add_type);
        if (a.gate)
            load_eight(g, a.gate, row * a.s_gate + c, F32);
        UNROLL
        for (int i = 0; i < 8; i++)
            x[k][i] += v[i] * g[i];
    }
    UNROLL
    for (int k = 0; k < CHUNKS; k++)
        if (k * WARPS * 256 + lane < a.C)
            store_eight(a.sum, row * a.s_in + k * WARPS * 256 + lane, F32, x[k]);
}

/* Quantizes the row x to e4m3. The results are those of the quantization kernel `integers` for a
 * row that is stored as type `via`. */
template <int CHUNKS, int WARPS>
GPU void narrow_row(const norm_args &a, int64_t row, const float x[CHUNKS][8])
{
    const int64_t lane = first_element<WARPS>();
    float         most = 0, by;
    UNROLL
    for (int k = 0; k < CHUNKS; k++)
        UNROLL
    for (int i = 0; i < 8; i++)
        most = fmaxf(most, magnitude(x[k][i]));
    const float scale = row_scale(over_row<WARPS, 1>(most, 2), 448.0f, &by);
    UNROLL
    for (int k = 0; k < CHUNKS; k++)
        if (k * WARPS * 256 + lane < a.C)
            store_e4m3(a.out, row * a.s_out + k * WARPS * 256 + lane, x[k], by);
    if (lane == 0)
        a.sx[row] = scale;
}

/* Normalizes a row that is kept in registers. NARROW is 1 if the output is e4m3. */
template <int CHUNKS, int WARPS, int NARROW> GPU void norm_row(const norm_args &a, int64_t row)
{
    enum { GROUP = WARPS * 256 };
    float         x[CHUNKS][8], sum = 0, sq = 0;
    const int64_t C = a.C, lane = first_element<WARPS>();
    load_groups<CHUNKS>(x, a.in, row * a.s_in + lane, GROUP, (C - lane + GROUP - 1) / GROUP,
                        a.in_type);
    if (a.add)
        add_row<CHUNKS, WARPS>(a, row, x);
    UNROLL
    for (int k = 0; k < CHUNKS; k++)
        UNROLL
    for (int i = 0; i < 8; i++)
        sum += a.rms ? x[k][i] * x[k][i] : x[k][i];
    float mean = over_row<WARPS, 0>(sum, 0) / (float)C, rstd;
    if (a.rms) {
        rstd = gpu_rsqrt(mean + a.eps);
        mean = 0;
    } else {
        UNROLL
        for (int k = 0; k < CHUNKS; k++)
            UNROLL
        for (int i = 0; i < 8; i++) {
            float d = k * GROUP + lane < C ? x[k][i] - mean : 0;
            sq += d * d;
        }
        rstd = gpu_rsqrt(over_row<WARPS, 0>(sq, 1) / (float)C + a.eps);
    }
    UNROLL
    for (int k = 0; k < CHUNKS; k++) {
        int64_t c = k * GROUP + lane;
        if (c >= C)
            continue;
        float g[8], y[8];
        UNROLL
        for (int i = 0; i < 8; i++)
            y[i] = (x[k][i] - mean) * rstd;
        if (a.gain) {
            load_eight(g, a.gain, c, 0);
            UNROLL
            for (int i = 0; i < 8; i++)
                y[i] *= g[i];
        }
        if (a.bias) {
            load_eight(g, a.bias, c, 0);
            UNROLL
            for (int i = 0; i < 8; i++)
                y[i] += g[i];
        }
        if (a.scale) {
            load_eight(g, a.scale, row * a.s_scale + c, 0);
            UNROLL
            for (int i = 0; i < 8; i++)
                y[i] *= 1 + g[i];
        }
        if (a.shift) {
            load_eight(g, a.shift, row * a.s_shift + c, 0);
            UNROLL
            for (int i = 0; i < 8; i++)
                y[i] += g[i];
        }
        if (!NARROW)
            store_eight(a.out, row * a.s_out + c, a.out_type, y);
        UNROLL
        for (int i = 0; i < 8 && NARROW; i++)
            x[k][i] = rounded_to(y[i], a.via);
    }
    if (NARROW)
        narrow_row<CHUNKS, WARPS>(a, row, x);
}

#define NORM(chunks, blocks, narrow_blocks)                                                        \
    KERNEL(norm_##chunks, norm_args, 128, blocks)                                                  \
    {                                                                                              \
        int64_t row = (int64_t)blockIdx.x * 4 + WARP;                                              \
        if (row < a.n)                                                                             \
            norm_row<chunks, 1, 0>(a, row);                                                        \
    }                                                                                              \
    KERNEL(norm_##chunks##_e4m3, norm_args, 128, narrow_blocks)                                    \
    {                                                                                              \
        int64_t row = (int64_t)blockIdx.x * 4 + WARP;                                              \
        if (row < a.n)                                                                             \
            norm_row<chunks, 1, 1>(a, row);                                                        \
    }
NORM(5, 7, 4)
NORM(8, 4, 3)
NORM(12, 3, 2)
NORM(16, 2, 2)

/* Normalizes rows of up to 8192 elements. A block of threads handles a row. */
KERNEL(norm_wide, norm_args, 256, 3)
{
    norm_row<4, NORM_WARPS, 0>(a, blockIdx.x);
}

KERNEL(norm_wide_e4m3, norm_args, 256, 3)
{
    norm_row<4, NORM_WARPS, 1>(a, blockIdx.x);
}

/* Returns element c of a row after the norm and its modulation. */
GPU float normed_one(const norm_args &a, int64_t row, int64_t c, float mean, float rstd)
{
    float y = (load_one(a.in, row * a.s_in + c, a.in_type) - mean) * rstd;
    y = a.gain ? y * a.gain[c] : y;
    y = a.bias ? y + a.bias[c] : y;
    y = a.scale ? y * (1 + a.scale[row * a.s_scale + c]) : y;
    return a.shift ? y + a.shift[row * a.s_shift + c] : y;
}

/* Computes the norm for rows of any width and alignment. A warp handles a row and reads the row
 * three times (the second and third time from a cache). For e4m3 output, the warp reads the row
 * once more to find the scale. */
KERNEL(norm_any, norm_args, 128, 1)
{
    int64_t row = (int64_t)blockIdx.x * 4 + WARP;
    if (row >= a.n)
        return;
    float sum = 0, sq = 0;
    for (int64_t c = LANE; c < a.C; c += 32) {
        float v = load_one(a.in, row * a.s_in + c, a.in_type);
        if (a.add) {
            float w = load_one(a.add, row * a.s_add + c, a.add_type);
            store_one(a.sum, row * a.s_in + c, a.in_type,
                      v + (a.gate ? w * a.gate[row * a.s_gate + c] : w));
            v = load_one(a.sum, row * a.s_in + c, a.in_type);
        }
        sum += a.rms ? v * v : v;
    }
    float mean = gpu_warp_sum(sum) / (float)a.C, rstd = 0;
    if (a.rms) {
        rstd = gpu_rsqrt(mean + a.eps);
        mean = 0;
    } else {
        for (int64_t c = LANE; c < a.C; c += 32) {
            float v = load_one(a.in, row * a.s_in + c, a.in_type) - mean;
            sq += v * v;
        }
        rstd = gpu_rsqrt(gpu_warp_sum(sq) / (float)a.C + a.eps);
    }
    if (a.like) {
        sq = 0;
        for (int64_t c = LANE; c < a.C; c += 32)
            sq += a.like[row * a.s_like + c] * a.like[row * a.s_like + c];
        rstd *= sqrtf(gpu_warp_sum(sq) / (float)a.C);
    }
    if (a.sx) {
        float most = 0, by;
        for (int64_t c = LANE; c < a.C; c += 32)
            most = fmaxf(most, magnitude(rounded_to(normed_one(a, row, c, mean, rstd), a.via)));
        const float scale = row_scale(gpu_warp_max(most), 448.0f, &by);
        for (int64_t c = LANE; c < a.C; c += 32) {
            float y = rounded_to(normed_one(a, row, c, mean, rstd), a.via);
            ((uint8_t *)a.out)[row * a.s_out + c] = by > 0 ? to_e4m3(gpu_multiply(y, by)) : 0;
        }
        if (LANE == 0)
            a.sx[row] = scale;
        return;
    }
    for (int64_t c = LANE; c < a.C; c += 32)
        store_one(a.out, row * a.s_out + c, a.out_type, normed_one(a, row, c, mean, rstd));
}
