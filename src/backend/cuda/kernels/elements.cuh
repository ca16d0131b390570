/* elements.cuh - loads and stores tensor elements, singly and in groups of eight, and computes
 * activations */
#ifndef XD_BACKEND_CUDA_KERNELS_ELEMENTS_CUH
#define XD_BACKEND_CUDA_KERNELS_ELEMENTS_CUH

#include "backend/cuda/kernels/gpu.cuh"

enum { F32, F16, BF16, F64, F8E4M3, F8E5M2 }; /* the same values as in xd_dtype */
/* The same values as in xd_act. */
enum { NONE, GELU_TANH, GELU_ERF, SILU, RELU, GELU_QUICK, TANH, SIGMOID, SINE_SQUARED };

/* Returns the index of this thread in a one-dimensional grid. */
GPU int64_t gpu_index()
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

/* Divides i by `wide`, with quotient q and remainder r. A 32-bit division is used if both numbers
 * fit into 32 bits, because a 64-bit division takes many times as long. */
GPU void gpu_divide(int64_t i, int64_t wide, int64_t *q, int64_t *r)
{
    if ((uint64_t)i <= 0xffffffffu && (uint64_t)wide <= 0xffffffffu) {
        const uint32_t w = (uint32_t)wide, n = (uint32_t)i / w;
        *q = n, *r = (uint32_t)i - n * w;
    } else {
        *q = i / wide, *r = i % wide;
    }
}

/* Loads an element of type F32, F16 or BF16 as a float. */
GPU float load_one(const void *p, int64_t at, int type)
{
    if (type == BF16)
        return gpu_from_bf16(((const bf16 *)p)[at]);
    return type == F16 ? gpu_from_f16(((const uint16_t *)p)[at]) : ((const float *)p)[at];
}

/* Clamps finite values to +-65504, so that they stay finite in F16. */
GPU float within_f16(float v)
{
    return fabsf(v) <= 3.4028234663852886e38f ? fmaxf(-65504.0f, fminf(v, 65504.0f)) : v;
}

GPU void store_one(void *p, int64_t at, int type, float v)
{
    if (type == BF16)
        ((bf16 *)p)[at] = gpu_to_bf16(v);
    else if (type == F16)
        ((uint16_t *)p)[at] = gpu_to_f16(within_f16(v));
    else
        ((float *)p)[at] = v;
}

/* Unpacks two 16-bit elements to floats; the first element is in the low half of u. */
GPU void unpack_two(float x[2], uint32_t u, int type)
{
    if (type == BF16) {
        x[0] = gpu_bits_f32(u << 16);
        x[1] = gpu_bits_f32(u & 0xffff0000u);
    } else {
        x[0] = gpu_from_f16((uint16_t)u);
        x[1] = gpu_from_f16((uint16_t)(u >> 16));
    }
}

GPU uint32_t pack_two(float lo, float hi, int type)
{
    return type == BF16 ? gpu_pack_bf16(lo, hi) : gpu_pack_f16(within_f16(lo), within_f16(hi));
}

GPU void unpack_eight(float x[8], const uint4 &v, int type)
{
    unpack_two(x, v.x, type), unpack_two(x + 2, v.y, type);
    unpack_two(x + 4, v.z, type), unpack_two(x + 6, v.w, type);
}

/* Loads eight elements from an address that must be a multiple of 16 bytes. */
GPU void load_eight(float x[8], const void *p, int64_t at, int type)
{
    if (type != F32) {
        unpack_eight(x, gpu_load16((const uint16_t *)p + at), type);
    } else {
        uint4    v = gpu_load16((const float *)p + at), w = gpu_load16((const float *)p + at + 4);
        uint32_t u[8] = { v.x, v.y, v.z, v.w, w.x, w.y, w.z, w.w };
        UNROLL
        for (int i = 0; i < 8; i++)
            x[i] = gpu_bits_f32(u[i]);
    }
}

/* Loads the first n of N groups of eight elements, which are `step` elements apart in memory. The
 * elements of the other groups become zeros. All loads are issued before a result is used. */
template <int N>
GPU void load_groups(float x[N][8], const void *p, int64_t at, int64_t step, int64_t n, int type)
{
    uint4 v[N];
    UNROLL
    for (int k = 0; k < N; k++) {
        UNROLL
        for (int i = 0; i < 8; i++)
            x[k][i] = 0;
        v[k] = uint4{ 0, 0, 0, 0 };
    }
    if (type == F32) {
        UNROLL
        for (int k = 0; k < N; k++)
            if (k < n)
                load_eight(x[k], p, at + k * step, F32);
        return;
    }
    UNROLL
    for (int k = 0; k < N; k++)
        if (k < n)
            v[k] = gpu_load16((const uint16_t *)p + at + k * step);
    UNROLL
    for (int k = 0; k < N; k++)
        unpack_eight(x[k], v[k], type);
}

GPU void store_eight(void *p, int64_t at, int type, const float x[8])
{
    if (type != F32) {
        gpu_store16((uint16_t *)p + at,
                    uint4{ pack_two(x[0], x[1], type), pack_two(x[2], x[3], type),
                           pack_two(x[4], x[5], type), pack_two(x[6], x[7], type) });
    } else {
        uint32_t u[8];
        UNROLL
        for (int i = 0; i < 8; i++)
            u[i] = gpu_f32_bits(x[i]);
        gpu_store16((float *)p + at, uint4{ u[0], u[1], u[2], u[3] });
        gpu_store16((float *)p + at + 4, uint4{ u[4], u[5], u[6], u[7] });
    }
}

/* Computes sin(v)^2 with the steps of the CPU's kernel (backend/cpu/kernels.c), because sinf has a
 * slow path for large arguments, which takes registers of every kernel with an activation. */
GPU float sine_squared(float v)
{
    const float n = v * 0.318309886f + 12582912.0f - 12582912.0f;
    float       r = v - n * 3.140625f - n * 9.67502594e-4f - n * 1.50995799e-7f;
    r = r > 1.6f ? 1.6f : r < -1.6f ? -1.6f : r;
    const float z = r * r;
    float       p = -2.50521084e-8f;
    p = p * z + 2.75573192e-6f;
    p = p * z - 1.98412698e-4f;
    p = p * z + 8.33333333e-3f;
    p = p * z - 1.66666667e-1f;
    p = p * z * r + r;
    return p * p;
}

GPU float activate(float v, int act)
{
    switch (act) {
    case GELU_TANH:
        return 0.5f * v * (1 + tanhf(0.7978845608028654f * (v + 0.044715f * v * v * v)));
    case GELU_ERF: return 0.5f * v * (1 + erff(v * 0.7071067811865475f));
    case SILU: return v / (1 + expf(-v));
    case RELU: return v > 0 || v != v ? v : 0;
    case GELU_QUICK: return v / (1 + expf(-1.702f * v));
    case TANH: return tanhf(v);
    case SIGMOID: return 1 / (1 + expf(-v));
    case SINE_SQUARED: return sine_squared(v);
    default: return v;
    }
}

/* Decodes an 8-bit float: e4m3 if `is_e4m3`, else e5m2. */
GPU float from_eight_bits(uint32_t u, int is_e4m3)
{
    uint32_t m = u & (is_e4m3 ? 7 : 3), e = is_e4m3 ? u >> 3 & 15 : u >> 2 & 31;
    float    v;
    if (is_e4m3 && (u & 127) == 127)
        v = NAN;
    else if (!is_e4m3 && e == 31)
        v = m ? NAN : INFINITY;
    else if (is_e4m3)
        v = e ? ldexpf((float)(8 + m), (int)e - 10) : ldexpf((float)m, -9);
    else
        v = e ? ldexpf((float)(4 + m), (int)e - 17) : ldexpf((float)m, -16);
    return u & 128 ? -v : v;
}

/* Returns the nearest e4m3 to v, ties to even, clamped to +-448. v must not be NaN. */
GPU uint8_t to_e4m3(float v)
{
    const float    m = fabsf(v);
    const uint32_t u = gpu_f32_bits(m), sign = v < 0 ? 128 : 0;
    if (m >= 448)
        return (uint8_t)(sign | 0x7e);
    /* 2^-6, the smallest normal e4m3 value; smaller e4m3 values are multiples of 2^-9 */
    if (m < 0.015625f)
        return (uint8_t)(sign | (uint32_t)rintf(m * 512));
    return (uint8_t)(sign | (((u + 0x7ffff + (u >> 20 & 1)) >> 20) - (120 << 3)));
}

/* Rounds two values to e4m3. The result has `lo` in its low byte. */
GPU uint32_t pack_e4m3(float lo, float hi)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    uint16_t r; /* adding 0 turns -0 into +0 */
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(hi + 0.0f), "f"(lo + 0.0f));
    return r;
#else
    return to_e4m3(lo) | (uint32_t)to_e4m3(hi) << 8;
#endif
}

/* Returns the magnitude of v, or infinity if v is NaN or infinite. */
GPU float magnitude(float v)
{
    const float m = fabsf(v);
    return m <= 3.4028234663852886e38f ? m : INFINITY;
}

/* Returns the quantization scale of a row whose largest magnitude is `most`. *by receives the
 * factor by which the row's elements are multiplied to quantize them. */
GPU float row_scale(float most, float largest, float *by)
{
    const float scale = gpu_divide(most, largest);
    *by = 0;
    if (most > 3.4028234663852886e38f)
        return NAN;
    if (scale < 1.17549435e-38f)
        return 0;
    *by = gpu_divide(largest, most);
    return scale;
}

/* Returns v rounded to F16 or BF16. */
GPU float rounded_to(float v, int type)
{
    return type == BF16 ? gpu_from_bf16(gpu_to_bf16(v)) : gpu_from_f16(gpu_to_f16(within_f16(v)));
}

/* Multiplies eight elements by the factor `by`, rounds them to e4m3, and stores them at a multiple
 * of 8 bytes. If `by` is 0, stores zeros without multiplying, because elements of x may be NaN. */
GPU void store_e4m3(void *p, int64_t at, const float x[8], float by)
{
    uint32_t u[4];
    UNROLL
    for (int i = 0; i < 4; i++)
        u[i] = by > 0 ? pack_e4m3(gpu_multiply(x[2 * i], by), gpu_multiply(x[2 * i + 1], by)) : 0;
    gpu_store8((uint8_t *)p + at, uint2{ u[0] | u[1] << 16, u[2] | u[3] << 16 });
}

GPU float load_typed(const void *p, int64_t at, int type)
{
    switch (type) {
    case F32: return ((const float *)p)[at];
    case F16: return gpu_from_f16(((const uint16_t *)p)[at]);
    case BF16: return gpu_from_bf16(((const bf16 *)p)[at]);
    case F64: return (float)((const double *)p)[at];
    default: return from_eight_bits(((const uint8_t *)p)[at], type == F8E4M3);
    }
}

GPU void store_typed(void *p, int64_t at, int type, float v)
{
    if (type == F32)
        ((float *)p)[at] = v;
    else if (type == BF16)
        ((bf16 *)p)[at] = gpu_to_bf16(v);
    else
        ((uint16_t *)p)[at] = gpu_to_f16(v);
}

#endif
