/* quantize.cu - rows of activations to int8 or e4m3, weights in eight bits to the type in which
 * they are multiplied
 *
 * The formulas of backend.h, to the bit: single divisions and multiplications in F32. */
#include <float.h>

#include "backend/cuda/kernels/args.h"
#include "backend/cuda/kernels/elements.cuh"

/* A warp a row, read twice. */
KERNEL(integers, integers_args, 128, 1)
{
    const int64_t row = (int64_t)blockIdx.x * 4 + WARP;
    if (row >= a.n)
        return;
    float most = 0, odd = 0;
    for (int64_t c = LANE; c < a.C; c += 32) {
        float v = fabsf(load_one(a.in, row * a.s_in + c, a.in_type));
        odd = v <= FLT_MAX ? odd : 1;
        most = fmaxf(most, v);
    }
    most = gpu_warp_max(most);
    odd = gpu_warp_max(odd);
    const float largest = a.e4m3 ? 448.0f : 127.0f;
    float scale = gpu_divide(most, largest);
    scale = odd != 0 ? NAN : scale < FLT_MIN ? 0 : scale;
    const float by = scale > 0 ? gpu_divide(largest, most) : 0;
    for (int64_t c = LANE; c < a.wide; c += 32) {
        float v =
            c < a.C && by > 0 ? gpu_multiply(load_one(a.in, row * a.s_in + c, a.in_type), by) : 0;
        const float r = rintf(v);
        ((uint8_t *)a.q)[row * a.wide + c] =
            a.e4m3 ? to_e4m3(v) : (uint8_t)(int8_t)(r > 127 ? 127 : r < -127 ? -127 : r);
    }
    if (LANE == 0)
        a.sx[row] = scale;
}

/* Where the library does not take a product: one thread a sum. */
KERNEL(integer_product, integer_product_args, 256, 1)
{
    const int64_t i = gpu_index();
    if (i >= a.n * a.O)
        return;
    const int8_t *x = a.in + i / a.O * a.wide, *w = a.w + i % a.O * a.wide;
    int32_t       sum = 0;
    for (int64_t k = 0; k < a.wide; k++)
        sum += (int32_t)x[k] * (int32_t)w[k];
    a.sums[i] = sum;
}

/* 16 elements a thread. */
KERNEL(widen, widen_args, 256, 2)
{
    const int64_t at = gpu_index() * 16;
    if (at >= a.n)
        return;
    const uint4 u = gpu_load16(a.in + at);
    const uint32_t w[4] = { u.x, u.y, u.z, u.w };
    float v[16];
    UNROLL
    for (int i = 0; i < 16; i++) {
        const uint32_t bits = w[i / 4] >> (i % 4 * 8) & 255;
        v[i] = a.integers ? (float)(int8_t)bits : from_eight_bits(bits, 1);
    }
    store_eight(a.out, at, a.out_type, v);
    store_eight(a.out, at + 8, a.out_type, v + 8);
}
