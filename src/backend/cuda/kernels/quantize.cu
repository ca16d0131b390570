/* quantize.cu - kernels that quantize activation rows to int8 or e4m3, and convert 8-bit weights to
 * the type in which the weights are multiplied
 *
 * The results are bit-identical to those of the formulas in backend.h, because the kernels use F32
 * divisions and multiplications that the compiler neither approximates nor fuses. */
#include "backend/cuda/kernels/args.h"
#include "backend/cuda/kernels/elements.cuh"

GPU uint8_t to_integer(float v)
{
    const float r = rintf(v);
    return (uint8_t)(int8_t)(r > 127 ? 127 : r < -127 ? -127 : r);
}

GPU void store_integers(int8_t *p, const float x[8], float by)
{
    uint32_t u[2] = { 0, 0 };
    UNROLL
    for (int i = 0; i < 8; i++)
        u[i / 4] |= (uint32_t)to_integer(by > 0 ? gpu_multiply(x[i], by) : 0) << (i % 4 * 8);
    gpu_store8(p, uint2{ u[0], u[1] });
}

/* Returns the largest value of the 256 threads of a block. */
GPU float largest_of_block(float most)
{
    float *shared = (float *)gpu_shared();
    most = gpu_warp_max(most);
    if (LANE == 0)
        shared[WARP] = most;
    gpu_sync();
    UNROLL
    for (int w = 0; w < 8; w++)
        most = fmaxf(most, shared[w]);
    return most;
}

/* Quantizes a row whose elements are held as 16-bit values by the 256 threads of a block: v[k] has
 * the elements [c, c + 8) with c = 8 (256 k + threadIdx.x), or zeros if c is not below C. Elements
 * up to `wide` are written to q. Returns the scale of the row. */
template <int CHUNKS>
GPU float narrow_held(void *q, const uint4 v[CHUNKS], int64_t wide, int type, int e4m3)
{
    float most = 0, by, x[8];
    UNROLL
    for (int k = 0; k < CHUNKS; k++) {
        unpack_eight(x, v[k], type);
        UNROLL
        for (int i = 0; i < 8; i++)
            most = fmaxf(most, magnitude(x[i]));
    }
    const float scale = row_scale(largest_of_block(most), e4m3 ? 448.0f : 127.0f, &by);
    UNROLL
    for (int k = 0; k < CHUNKS; k++) {
        const int64_t c = ((int64_t)threadIdx.x + k * 256) * 8;
        if (c >= wide)
            continue;
        unpack_eight(x, v[k], type);
        if (e4m3)
            store_e4m3(q, c, x, by);
        else
            store_integers((int8_t *)q + c, x, by);
    }
    return scale;
}

/* Quantizes 16-bit rows of up to 16384 elements, in groups of eight at multiples of 16 bytes. A
 * block of threads handles a row and reads the row once. The block needs shared memory of one float
 * per warp. */
KERNEL(integers_wide, integers_args, 256, 2)
{
    enum { CHUNKS = 8, GROUP = 256 * 8 };
    const int64_t row = blockIdx.x, at = (int64_t)threadIdx.x * 8;
    uint4         v[CHUNKS];
    UNROLL
    for (int k = 0; k < CHUNKS; k++) {
        v[k] = uint4{ 0, 0, 0, 0 };
        if (at + k * GROUP < a.C)
            v[k] = gpu_load16((const uint16_t *)a.in + row * a.s_in + at + k * GROUP);
    }
    const float scale =
        narrow_held<CHUNKS>((uint8_t *)a.q + row * a.wide, v, a.wide, a.in_type, a.e4m3);
    if (threadIdx.x == 0)
        a.sx[row] = scale;
}

/* Computes act(a) * b and quantizes the rows to e4m3, as integers_wide does with the results of
 * glu. A block handles a row of at most XD_GLU_NARROW_MAX elements. The results of 16 bits are held
 * in shared memory, because registers would need a copy of the activations for each group. */
KERNEL(glu_e4m3, pair_args, 256, 2)
{
    enum { GROUP = 256 * 8 };
    const int64_t row = blockIdx.x, at = (int64_t)threadIdx.x * 8;
    uint4 *const  held = (uint4 *)(gpu_shared() + 64) + threadIdx.x;
    float         most = 0, by, x[8];
    ROLLED
    for (int k = 0; at + k * GROUP < a.C; k++) {
        const int64_t c = at + k * GROUP;
        float         w[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
        load_eight(x, a.a, row * a.s_a + c, a.a_type);
        if (a.b)
            load_eight(w, a.b, row * a.s_b + c, a.b_type);
        UNROLL
        for (int i = 0; i < 8; i++)
            x[i] = activate(x[i], a.act) * w[i];
        const uint4 v = { pack_two(x[0], x[1], a.via), pack_two(x[2], x[3], a.via),
                          pack_two(x[4], x[5], a.via), pack_two(x[6], x[7], a.via) };
        held[k * 256] = v;
        unpack_eight(x, v, a.via);
        UNROLL
        for (int i = 0; i < 8; i++)
            most = fmaxf(most, magnitude(x[i]));
    }
    const float scale = row_scale(largest_of_block(most), 448.0f, &by);
    ROLLED
    for (int k = 0; at + k * GROUP < a.C; k++) {
        unpack_eight(x, held[k * 256], a.via);
        store_e4m3((uint8_t *)a.out + row * a.C, at + k * GROUP, x, by);
    }
    if (threadIdx.x == 0)
        a.sx[row] = scale;
}

/* Quantizes all rows for which the faster kernel integers_wide cannot be used. A warp handles a row
 * and reads the row twice. */
KERNEL(integers, integers_args, 128, 1)
{
    const int64_t row = (int64_t)blockIdx.x * 4 + WARP;
    if (row >= a.n)
        return;
    float most = 0, by;
    for (int64_t c = LANE; c < a.C; c += 32)
        most = fmaxf(most, magnitude(load_one(a.in, row * a.s_in + c, a.in_type)));
    const float scale = row_scale(gpu_warp_max(most), a.e4m3 ? 448.0f : 127.0f, &by);
    for (int64_t c = LANE; c < a.wide; c += 32) {
        float v = c < a.C && by > 0 ? gpu_multiply(load_one(a.in, row * a.s_in + c, a.in_type), by)
                                    : 0;
        ((uint8_t *)a.q)[row * a.wide + c] = a.e4m3 ? to_e4m3(v) : to_integer(v);
    }
    if (LANE == 0)
        a.sx[row] = scale;
}

/* Computes int8 matrix products that cuBLASLt does not support. Each thread computes one element of
 * the result. */
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

/* Converts 8-bit weights to a wider type. Each thread converts 16 elements. */
KERNEL(widen, widen_args, 256, 2)
{
    const int64_t at = gpu_index() * 16;
    if (at >= a.n)
        return;
    const uint4    u = gpu_load16(a.in + at);
    const uint32_t w[4] = { u.x, u.y, u.z, u.w };
    float          v[16];
    UNROLL
    for (int i = 0; i < 16; i++) {
        const uint32_t bits = w[i / 4] >> (i % 4 * 8) & 255;
        v[i] = a.integers ? (float)(int8_t)bits : from_eight_bits(bits, 1);
    }
    store_eight(a.out, at, a.out_type, v);
    store_eight(a.out, at + 8, a.out_type, v + 8);
}

/* Converts rows of heads to codes with a scale (xd_code). A warp converts the D elements of one
 * head, which it reads twice. The scale may be unaligned, so it is written as four bytes. */
KERNEL(encode, code_args, 128, 1)
{
    const int64_t i = (int64_t)blockIdx.x * 4 + WARP;
    int64_t       row, head;
    if (i >= a.n * a.H)
        return;
    gpu_divide(i, a.H, &row, &head);
    const int64_t from = row * a.s_in0 + head * a.s_in1;
    uint8_t      *to = (uint8_t *)a.out + row * a.s_out0 + head * a.s_out1;
    float         most = 0, by;
    for (int64_t c = LANE; c < a.D; c += 32)
        most = fmaxf(most, magnitude(load_one(a.in, from + c, a.in_type)));
    const float scale = row_scale(gpu_warp_max(most), a.e4m3 ? 448.0f : 127.0f, &by);
    for (int64_t c = LANE; c < a.D; c += 32) {
        const float v = by > 0 ? gpu_multiply(load_one(a.in, from + c, a.in_type), by) : 0;
        to[c] = a.e4m3 ? to_e4m3(v) : to_integer(v);
    }
    if (LANE < 4)
        to[a.D + LANE] = (uint8_t)(gpu_f32_bits(scale) >> LANE * 8);
}

/* Converts codes with a scale to rows of heads. A warp converts one head. */
KERNEL(decode, code_args, 128, 1)
{
    const int64_t i = (int64_t)blockIdx.x * 4 + WARP;
    int64_t       row, head;
    if (i >= a.n * a.H)
        return;
    gpu_divide(i, a.H, &row, &head);
    const uint8_t *from = (const uint8_t *)a.in + row * a.s_in0 + head * a.s_in1;
    const int64_t  to = row * a.s_out0 + head * a.s_out1;
    uint32_t       bits = 0;
    UNROLL
    for (int k = 0; k < 4; k++)
        bits |= (uint32_t)from[a.D + k] << k * 8;
    const float scale = gpu_bits_f32(bits);
    for (int64_t c = LANE; c < a.D; c += 32) {
        const float v = a.e4m3 ? from_eight_bits(from[c], 1) : (float)(int8_t)from[c];
        store_one(a.out, to + c, a.out_type, gpu_multiply(v, scale));
    }
}
