/* conv.cu - kernels that compute convolutions of channels-last images as implicit GEMMs, and matrix
 * products with a fused epilogue
 *
 * Rows of the GEMM are output pixels, and columns are output channels. The summed dimension K runs
 * over the kernel's taps and, for each tap, over the input channels. The rows of a tile are
 * gathered by cp.async in chunks of 8 channels, with zeros where a tap is outside the image. A
 * block of 8 warps computes 128 x 128 outputs, and each warp 64 x 32 of them, in steps of 32 along
 * K. Shared memory holds three pipeline stages, each with the operands of one step along K. A
 * linear layer is computed as a convolution with one tap, whose output is an image one pixel high
 * with a pixel for each row (To = Ho = 1, Wo = rows). */
#include "backend/cuda/kernels/args.h"
#include "backend/cuda/kernels/elements.cuh"

enum { M = 128, N = 128, K = 32, ROW = K + 8, STAGES = 3, STAGE = (M + N) * ROW };
/* number of floats in a row of accumulators in shared memory, including padding against bank
 * conflicts */
enum { PATCH = 32 + 4 };

/* Applies the epilogue to eight accumulators x of row r, columns c to c + 7, and stores the results
 * in `out`. The activation works on shared memory in a loop, one element at a time, so that the
 * code of the activation exists only once. */
GPU void finish(const conv_args &a, float *x, int64_t r, int c)
{
    if (r >= (int64_t)a.To * a.Ho * a.Wo || c >= a.O)
        return;
    const int64_t t = r / a.Wo / a.Ho, h = r / a.Wo % a.Ho, w = r % a.Wo;
    const int64_t o = t * a.s_out[0] + h * a.s_out[1] + w * a.s_out[2] + c,
                  q = t * a.s_residual[0] + h * a.s_residual[1] + w * a.s_residual[2] + c;
    const int     n = a.O - c < 8 ? a.O - c : 8;
    if (!a.wide || a.act != NONE) {
        ROLLED
        for (int i = 0; i < n; i++) {
            float v = activate(a.bias ? x[i] + load_one(a.bias, c + i, a.bias_type) : x[i], a.act);
            v = a.gate ? v * a.gate[c + i] : v;
            if (a.wide) {
                x[i] = v;
                continue;
            }
            if (a.residual)
                v += load_one(a.residual, q + i, a.residual_type);
            store_one(a.out, o + i, a.out_type, v);
        }
        if (!a.wide)
            return;
    }
    float y[8], z[8];
    load_eight(y, x, 0, 0);
    if (a.act == NONE && a.bias) {
        load_eight(z, a.bias, c, a.bias_type);
        UNROLL
        for (int i = 0; i < 8; i++)
            y[i] += z[i];
    }
    if (a.act == NONE && a.gate) {
        load_eight(z, a.gate, c, 0);
        UNROLL
        for (int i = 0; i < 8; i++)
            y[i] *= z[i];
    }
    if (a.residual) {
        load_eight(z, a.residual, q, a.residual_type);
        UNROLL
        for (int i = 0; i < 8; i++)
            y[i] += z[i];
    }
    store_eight(a.out, o, a.out_type, y);
}

/* Computes a convolution with tensor cores. f16 is 1 for F16 operands, and 0 for BF16 operands. */
template <int f16> GPU void run_conv(const conv_args &a)
{
    bf16         *sm = (bf16 *)gpu_shared();
    const int     lane = LANE, warp = WARP, tid = (int)threadIdx.x;
    const int64_t row0 = (int64_t)blockIdx.x * M, rows = (int64_t)a.To * a.Ho * a.Wo;
    const int     col0 = (int)blockIdx.y * N, taps = a.kernel[0] * a.kernel[1] * a.kernel[2];
    const int     cs = (a.C + K - 1) / K, steps = taps * cs;
    /* In every step along K, this thread loads chunk tid % 4 (8 channels) of the rows tid / 4 and
     * tid / 4 + 64 of the tile. */
    const int     chunk = tid % 4 * 8, my = tid / 4;
    int           at[2][3];
    UNROLL
    for (int i = 0; i < 2; i++) {
        int64_t r = row0 + my + 64 * i;
        at[i][2] = (int)(r % a.Wo) * a.stride[2] - a.lo[2];
        at[i][1] = (int)(r / a.Wo % a.Ho) * a.stride[1] - a.lo[1];
        at[i][0] = r < rows ? (int)(r / a.Wo / a.Ho) * a.stride[0] - a.lo[0] : -(1 << 28);
    }
    /* The state of the next step to load: its kernel tap, its first channel and its pipeline stage
     * in shared memory. */
    int  tap = 0, dt = 0, dh = 0, dw = 0, c0 = 0, stage = 0;
    auto load = [&]() {
        const int c = c0 + chunk, there = c < a.C;
        bf16     *to = sm + stage * STAGE;
        UNROLL
        for (int i = 0; i < 2; i++) {
            const int t = at[i][0] + dt, h = at[i][1] + dh, w = at[i][2] + dw;
            const int in = there && t >= 0 && t < a.T && h >= 0 && h < a.Hin && w >= 0 && w < a.Win;
            const bf16 *p =
                (const bf16 *)a.in + (in ? t * a.s_in[0] + h * a.s_in[1] + w * a.s_in[2] + c : 0);
            gpu_cp_async16(to + (my + 64 * i) * ROW + chunk, p, in ? 16 : 0);
        }
        UNROLL
        for (int i = 0; i < 2; i++) {
            const int   o = col0 + my + 64 * i, in = there && o < a.O;
            const bf16 *p = (const bf16 *)a.w + (in ? ((int64_t)o * taps + tap) * a.C + c : 0);
            gpu_cp_async16(to + (M + my + 64 * i) * ROW + chunk, p, in ? 16 : 0);
        }
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        c0 += K;
        if (c0 < a.C)
            return;
        c0 = 0, tap++;
        if (++dw == a.kernel[2]) {
            dw = 0;
            if (++dh == a.kernel[1])
                dh = 0, dt++;
        }
    };
    float acc[4][4][4];
    UNROLL
    for (int i = 0; i < 64; i++)
        (&acc[0][0][0])[i] = 0;
    const int wr = warp / 4 * 64, wc = warp % 4 * 32;
    UNROLL
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps)
            load();
        gpu_cp_commit();
    }
    for (int s = 0, now = 0; s < steps; s++, now = now + 1 == STAGES ? 0 : now + 1) {
        gpu_cp_wait<STAGES - 2>();
        gpu_sync();
        if (s + STAGES - 1 < steps)
            load();
        gpu_cp_commit();
        const bf16 *A = sm + now * STAGE, *B = A + M * ROW;
        UNROLL
        for (int k = 0; k < K; k += 16) {
            uint32_t fa[4][4], fb[2][4];
            UNROLL
            for (int i = 0; i < 4; i++)
                gpu_ldmatrix4(fa[i], A + (wr + 16 * i + lane % 16) * ROW + k + lane / 16 * 8);
            UNROLL
            for (int j = 0; j < 2; j++)
                gpu_ldmatrix4(fb[j], B + (wc + 16 * j + lane % 8 + lane / 16 * 8) * ROW + k +
                                         lane / 8 % 2 * 8);
            UNROLL
            for (int i = 0; i < 4; i++)
                UNROLL
            for (int j = 0; j < 4; j++)
                gpu_mma<f16>(acc[i][j], fa[i], fb[j / 2] + j % 2 * 2);
        }
    }
    /* The accumulators are rearranged in shared memory, 32 rows of a warp at a time, so that each
     * lane reads 8 adjacent columns. */
    float       *patch = (float *)gpu_shared() + warp * 32 * PATCH;
    const float *mine = patch + lane / 4 * PATCH + lane % 4 * 8;
    gpu_sync();
    ROLLED
    for (int half = 0; half < 2; half++) {
        UNROLL
        for (int i = 0; i < 2; i++)
            UNROLL
        for (int j = 0; j < 4; j++)
            UNROLL
        for (int k = 0; k < 4; k++)
            patch[(16 * i + lane / 4 + k / 2 * 8) * PATCH + 8 * j + lane % 4 * 2 + k % 2] =
                half ? acc[i + 2][j][k] : acc[i][j][k];
        gpu_sync_warp();
        ROLLED
        for (int r = 0; r < 32; r += 8)
            finish(a, (float *)mine + r * PATCH, row0 + wr + 32 * half + lane / 4 + r,
                   col0 + wc + lane % 4 * 8);
        gpu_sync_warp();
    }
}

KERNEL(conv, conv_args, 256, 2)
{
    run_conv<0>(a);
}
KERNEL(conv_f16, conv_args, 256, 2)
{
    run_conv<1>(a);
}

/* Computes a convolution for weights and images of any type and width. Each thread computes one
 * element of the output. */
KERNEL(conv_any, conv_args, 128, 1)
{
    const int64_t i = (int64_t)blockIdx.x * 128 + threadIdx.x, rows = (int64_t)a.To * a.Ho * a.Wo;
    if (i >= rows * a.O)
        return;
    const int64_t r = i / a.O, c = i % a.O, taps = (int64_t)a.kernel[0] * a.kernel[1] * a.kernel[2];
    const int64_t t = r / a.Wo / a.Ho, h = r / a.Wo % a.Ho, w = r % a.Wo;
    const int64_t each = a.O / a.groups, c0 = c / each * a.C;
    float         v = 0;
    for (int64_t tap = 0; tap < taps; tap++) {
        const int64_t x = w * a.stride[2] - a.lo[2] + tap % a.kernel[2],
                      y = h * a.stride[1] - a.lo[1] + tap / a.kernel[2] % a.kernel[1];
        const int64_t z = t * a.stride[0] - a.lo[0] + tap / a.kernel[2] / a.kernel[1];
        if (x < 0 || x >= a.Win || y < 0 || y >= a.Hin || z < 0 || z >= a.T)
            continue;
        const int64_t in = z * a.s_in[0] + y * a.s_in[1] + x * a.s_in[2] + c0,
                      k = (c * taps + tap) * a.C;
        for (int64_t j = 0; j < a.C; j++)
            v += load_one(a.in, in + j, a.in_type) * load_one(a.w, k + j, a.in_type);
    }
    v = activate(a.bias ? v + load_one(a.bias, c, a.bias_type) : v, a.act);
    v = a.gate ? v * a.gate[c] : v;
    const int64_t o = t * a.s_out[0] + h * a.s_out[1] + w * a.s_out[2] + c,
                  q = t * a.s_residual[0] + h * a.s_residual[1] + w * a.s_residual[2] + c;
    if (a.residual)
        v += load_one(a.residual, q, a.residual_type);
    store_one(a.out, o, a.out_type, v);
}
