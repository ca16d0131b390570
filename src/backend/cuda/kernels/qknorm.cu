/* qknorm.cu - kernels of the norm and rotary embedding of attention heads. One launch processes
 * queries and keys.
 *
 * If the two elements of a rotated pair are neighbours, the same lane has both elements. If the
 * pairs are (i, i + D/2), another lane has the second element, so heads are written to and read
 * from shared memory once. */
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

/* Returns the sum of v over the LANES lanes that process one head together. */
template <int LANES> GPU float sum_of_head(float v)
{
    UNROLL
    for (int m = LANES / 2; m; m >>= 1)
        v += gpu_xor(v, m);
    return v;
}

/* Normalizes the eight elements x of this lane, without gain and bias. `mine` is 1 if this lane has
 * elements of the head. */
template <int LANES> GPU void norm_eight(const qknorm_args &a, int mine, float x[8])
{
    float s = 0, mean, rstd;
    UNROLL
    for (int i = 0; i < 8; i++)
        s += a.rms ? x[i] * x[i] : x[i];
    mean = sum_of_head<LANES>(s) / (float)a.D;
    if (a.rms) {
        rstd = gpu_rsqrt(mean + a.eps);
        mean = 0;
    } else {
        float q = 0;
        UNROLL
        for (int i = 0; i < 8; i++)
            q += mine ? (x[i] - mean) * (x[i] - mean) : 0;
        rstd = gpu_rsqrt(sum_of_head<LANES>(q) / (float)a.D + a.eps);
    }
    UNROLL
    for (int i = 0; i < 8; i++)
        x[i] = (x[i] - mean) * rstd;
}

/* Normalizes and rotates EACH * 32 / LANES heads of queries or keys, from head `first` on. All
 * these heads are read before the first one is written. cos and sin are the cosines and sines of
 * this lane's four pairs. */
template <int LANES>
GPU void norm_slice(const qknorm_args &a, const qknorm_heads &h, int64_t row, int64_t first,
                    const float *cos, const float *sin)
{
    enum { EACH = 4, HEADS = 32 / LANES };
    const int64_t j = LANE % LANES * 8, head = first + LANE / LANES;
    float         x[EACH][8], g[8] = { 1, 1, 1, 1, 1, 1, 1, 1 }, b[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
    load_groups<EACH>(x, h.in, row * h.s_in0 + head * h.s_in1 + j, HEADS * h.s_in1,
                      j < a.D ? (h.H - head + HEADS - 1) / HEADS : 0, a.in_type);
    if (h.gain && j < a.D)
        load_eight(g, h.gain + j, 0, F32);
    if (h.bias && j < a.D)
        load_eight(b, h.bias + j, 0, F32);
    UNROLL
    for (int k = 0; k < EACH; k++) {
        if (a.norm)
            norm_eight<LANES>(a, j < a.D, x[k]);
        if (j >= a.D || head + k * HEADS >= h.H)
            continue;
        UNROLL
        for (int i = 0; i < 8; i++)
            x[k][i] = x[k][i] * g[i] + b[i];
        UNROLL
        for (int i = 0; i < 4 && a.cos; i++)
            turn(x[k] + 2 * i, cos[i], sin[i]);
        store_eight(h.out, row * h.s_out0 + (head + k * HEADS) * h.s_out1 + j, a.out_type, x[k]);
    }
}

/* Computes the norm and the rotary embedding with all heads in registers. This kernel needs a head
 * width D that is a multiple of 8 and at most 8 * LANES, operands aligned to 16 bytes, and either
 * no rotation or a rotation of neighbouring elements. A warp reads the rotation angles of its row
 * once for queries and keys. */
template <int LANES> GPU void norm_heads(const qknorm_args &a)
{
    int64_t row, slice;
    gpu_divide((int64_t)blockIdx.x * 8 + WARP, a.slices, &row, &slice);
    if (row >= a.n)
        return;
    const int64_t pair = LANE % LANES * 4, first = slice * (128 / LANES);
    float         cos[4] = { 1, 1, 1, 1 }, sin[4] = { 0, 0, 0, 0 };
    if (a.cos && 2 * pair < a.D) {
        load_four(cos, a.cos + row * a.s_cos + pair);
        load_four(sin, a.sin + row * a.s_sin + pair);
    }
    ROLLED
    for (int i = 0; i < 2; i++)
        if (first < a.of[i].H)
            norm_slice<LANES>(a, a.of[i], row, first, cos, sin);
}

KERNEL(qknorm_32, qknorm_args, 256, 3)
{
    norm_heads<4>(a);
}
KERNEL(qknorm_64, qknorm_args, 256, 3)
{
    norm_heads<8>(a);
}
KERNEL(qknorm_128, qknorm_args, 256, 3)
{
    norm_heads<16>(a);
}

/* Computes the norm and the rotary embedding in all other cases. A warp handles a head, whose D
 * floats are in shared memory. */
KERNEL(qknorm_any, qknorm_args, 128, 1)
{
    int64_t row, head;
    gpu_divide((int64_t)blockIdx.x * 4 + WARP, a.of[0].H + a.of[1].H, &row, &head);
    if (row >= a.n)
        return;
    const qknorm_heads &h = a.of[head >= a.of[0].H];
    head -= head >= a.of[0].H ? a.of[0].H : 0;
    float        *x = (float *)gpu_shared() + WARP * a.D, sum = 0, sq = 0, mean = 0, rstd = 1;
    const int64_t in = row * h.s_in0 + head * h.s_in1, out = row * h.s_out0 + head * h.s_out1;
    for (int64_t j = LANE; j < a.D; j += 32) {
        float v = x[j] = load_one(h.in, in + j, a.in_type);
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
        v = h.gain ? v * h.gain[j] : v;
        x[j] = h.bias ? v + h.bias[j] : v;
    }
    gpu_sync_warp();
    for (int64_t j = LANE; j < a.D; j += 32) {
        float y = x[j];
        if (a.cos) {
            int64_t half = a.D / 2, i = a.halves ? j % half : j / 2,
                    p = a.halves ? (j < half ? j + half : j - half) : j ^ 1;
            float   c = a.cos[row * a.s_cos + i], s = a.sin[row * a.s_sin + i];
            y = (a.halves ? j < half : j % 2 == 0) ? y * c - x[p] * s : y * c + x[p] * s;
        }
        store_one(h.out, out + j, a.out_type, y);
    }
}
