/* qknorm.cu - norm and rotary embedding of heads: a warp a head
 *
 * Lane l holds the elements 4 l .. 4 l + 3 of every 128. A turned element's partner is another
 * lane's when pairs are halves, so heads pass through shared memory once. */
#include "backend/cuda/kernels/args.h"
#include "backend/cuda/kernels/elements.cuh"

GPU void load_four(float x[4], const float *p)
{
    const uint4 v = gpu_load16(p);
    x[0] = gpu_bits_f32(v.x), x[1] = gpu_bits_f32(v.y);
    x[2] = gpu_bits_f32(v.z), x[3] = gpu_bits_f32(v.w);
}

GPU void turn(float x[2], float c, float s)
{
    const float u = x[0], v = x[1];
    x[0] = u * c - v * s;
    x[1] = v * c + u * s;
}

/* D <= 128, D % 8 == 0, pairs of neighbours or none, operands aligned to 16 bytes: all in
 * registers. */
KERNEL(qknorm_near, qknorm_args, 256, 4)
{
    int64_t job = (int64_t)blockIdx.x * 8 + WARP, row = job / a.H, head = job % a.H;
    if (row >= a.n)
        return;
    float x[4] = { 0, 0, 0, 0 };
    const int64_t j = 4 * LANE, in = row * a.s_in0 + head * a.s_in1 + j,
                  out = row * a.s_out0 + head * a.s_out1 + j;
    const int mine = j < a.D;
    if (mine) {
        if (a.in_type != F32) {
            uint2 v = gpu_load8((const uint16_t *)a.in + in);
            unpack_two(x, v.x, a.in_type);
            unpack_two(x + 2, v.y, a.in_type);
        } else {
            load_four(x, (const float *)a.in + in);
        }
    }
    if (a.norm) {
        float s = a.rms ? x[0] * x[0] + x[1] * x[1] + x[2] * x[2] + x[3] * x[3]
                        : x[0] + x[1] + x[2] + x[3];
        float mean = gpu_warp_sum(s) / (float)a.D, rstd;
        if (a.rms) {
            rstd = gpu_rsqrt(mean + a.eps);
            mean = 0;
        } else {
            float q = 0;
            UNROLL
            for (int i = 0; i < 4; i++)
                q += mine ? (x[i] - mean) * (x[i] - mean) : 0;
            rstd = gpu_rsqrt(gpu_warp_sum(q) / (float)a.D + a.eps);
        }
        UNROLL
        for (int i = 0; i < 4; i++)
            x[i] = (x[i] - mean) * rstd;
    }
    if (!mine)
        return;
    float g[4];
    if (a.gain) {
        load_four(g, a.gain + j);
        UNROLL
        for (int i = 0; i < 4; i++)
            x[i] *= g[i];
    }
    if (a.bias) {
        load_four(g, a.bias + j);
        UNROLL
        for (int i = 0; i < 4; i++)
            x[i] += g[i];
    }
    if (a.cos) {
        const uint2 cos = gpu_load8(a.cos + row * a.s_cos + j / 2),
                    sin = gpu_load8(a.sin + row * a.s_sin + j / 2);
        turn(x, gpu_bits_f32(cos.x), gpu_bits_f32(sin.x));
        turn(x + 2, gpu_bits_f32(cos.y), gpu_bits_f32(sin.y));
    }
    if (a.out_type != F32) {
        gpu_store8((uint16_t *)a.out + out, uint2 { pack_two(x[0], x[1], a.out_type),
                                                    pack_two(x[2], x[3], a.out_type) });
    } else {
        gpu_store16((float *)a.out + out, uint4 { gpu_f32_bits(x[0]), gpu_f32_bits(x[1]),
                                                  gpu_f32_bits(x[2]), gpu_f32_bits(x[3]) });
    }
}

/* Any other: shared memory holds D floats a warp. */
KERNEL(qknorm_any, qknorm_args, 128, 1)
{
    int64_t job = (int64_t)blockIdx.x * 4 + WARP, row = job / a.H, head = job % a.H;
    if (row >= a.n)
        return;
    float *x = (float *)gpu_shared() + WARP * a.D, sum = 0, sq = 0, mean = 0, rstd = 1;
    const int64_t in = row * a.s_in0 + head * a.s_in1, out = row * a.s_out0 + head * a.s_out1;
    for (int64_t j = LANE; j < a.D; j += 32) {
        float v = x[j] = load_one(a.in, in + j, a.in_type);
        sum += a.rms ? v * v : v;
    }
    if (a.norm) {
        mean = gpu_warp_sum(sum) / (float)a.D;
        if (a.rms) {
            rstd = gpu_rsqrt(mean + a.eps);
            mean = 0;
        } else {
            for (int64_t j = LANE; j < a.D; j += 32)
                sq += (x[j] - mean) * (x[j] - mean);
            rstd = gpu_rsqrt(gpu_warp_sum(sq) / (float)a.D + a.eps);
        }
    }
    for (int64_t j = LANE; j < a.D; j += 32) {
        float v = (x[j] - mean) * rstd;
        v = a.gain ? v * a.gain[j] : v;
        x[j] = a.bias ? v + a.bias[j] : v;
    }
    gpu_sync_warp();
    for (int64_t j = LANE; j < a.D; j += 32) {
        float y = x[j];
        if (a.cos) {
            int64_t half = a.D / 2, i = a.halves ? j % half : j / 2,
                    p = a.halves ? (j < half ? j + half : j - half) : j ^ 1;
            float c = a.cos[row * a.s_cos + i], s = a.sin[row * a.s_sin + i];
            y = (a.halves ? j < half : j % 2 == 0) ? y * c - x[p] * s : y * c + x[p] * s;
        }
        store_one(a.out, out + j, a.out_type, y);
    }
}
