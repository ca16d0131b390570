/* norm.cu - layer and RMS norm with modulation: a warp a row, which it holds in registers.
 *
 * CHUNKS x 256 elements at most; longer or unaligned rows, and those that take their length from
 * others, are read several times (norm_any). What is added to rows before is added here, so that
 * these are read and written once. */
#include "backend/cuda/kernels/args.h"
#include "backend/cuda/kernels/elements.cuh"

/* x += gate add, and back to memory. All is read before anything is written. */
template <int CHUNKS> GPU void add_row(const norm_args &a, int64_t row, float x[CHUNKS][8])
{
    const int64_t lane = LANE * 8;
    UNROLL
    for (int k = 0; k < CHUNKS; k++) {
        const int64_t c = k * 256 + lane;
        float v[8], g[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
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
        if (k * 256 + lane < a.C)
            store_eight(a.sum, row * a.s_in + k * 256 + lane, F32, x[k]);
}

template <int CHUNKS> GPU void norm_row(const norm_args &a, int64_t row)
{
    float x[CHUNKS][8], sum = 0, sq = 0;
    const int64_t C = a.C, lane = LANE * 8;
    load_groups<CHUNKS>(x, a.in, row * a.s_in + lane, 256, (C - lane + 255) / 256, a.in_type);
    if (a.add)
        add_row<CHUNKS>(a, row, x);
    UNROLL
    for (int k = 0; k < CHUNKS; k++)
        UNROLL
    for (int i = 0; i < 8; i++)
        sum += a.rms ? x[k][i] * x[k][i] : x[k][i];
    float mean = gpu_warp_sum(sum) / (float)C, rstd;
    if (a.rms) {
        rstd = gpu_rsqrt(mean + a.eps);
        mean = 0;
    } else {
        UNROLL
        for (int k = 0; k < CHUNKS; k++)
            UNROLL
        for (int i = 0; i < 8; i++) {
            float d = k * 256 + lane < C ? x[k][i] - mean : 0;
            sq += d * d;
        }
        rstd = gpu_rsqrt(gpu_warp_sum(sq) / (float)C + a.eps);
    }
    UNROLL
    for (int k = 0; k < CHUNKS; k++) {
        int64_t c = k * 256 + lane;
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
        store_eight(a.out, row * a.s_out + c, a.out_type, y);
    }
}

#define NORM(chunks, blocks)                                                                       \
    KERNEL(norm_##chunks, norm_args, 128, blocks)                                                  \
    {                                                                                              \
        int64_t row = (int64_t)blockIdx.x * 4 + WARP;                                              \
        if (row < a.n)                                                                             \
            norm_row<chunks>(a, row);                                                              \
    }
NORM(5, 7)
NORM(8, 5)
NORM(12, 4)
NORM(16, 3)

/* Any width, any alignment: a warp a row, read three times (the second and third time from a
 * cache). */
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
    for (int64_t c = LANE; c < a.C; c += 32) {
        float y = (load_one(a.in, row * a.s_in + c, a.in_type) - mean) * rstd;
        y = a.gain ? y * a.gain[c] : y;
        y = a.bias ? y + a.bias[c] : y;
        y = a.scale ? y * (1 + a.scale[row * a.s_scale + c]) : y;
        y = a.shift ? y + a.shift[row * a.s_shift + c] : y;
        store_one(a.out, row * a.s_out + c, a.out_type, y);
    }
}
