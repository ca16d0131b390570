/* elementwise.cu - kernels for activations, gates, sums and the epilogue of a GEMM. A thread
 * handles one element, or eight if 16-byte accesses are allowed. */
#include "backend/cuda/kernels/args.h"
#include "backend/cuda/kernels/elements.cuh"

/* In the *_wide kernels each thread handles eight elements. The number of columns, C, must be a
 * multiple of 8, and all operands must begin at multiples of 16 bytes. */
KERNEL(glu_wide, pair_args, 256, 2)
{
    int64_t i = gpu_index() * 8, r, c;
    if (i >= a.n * a.C)
        return;
    float v[8], w[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    gpu_divide(i, a.C, &r, &c);
    load_eight(v, a.a, r * a.s_a + c, a.a_type);
    if (a.b)
        load_eight(w, a.b, r * a.s_b + c, a.b_type);
    UNROLL
    for (int j = 0; j < 8; j++)
        v[j] = activate(v[j], a.act) * w[j];
    store_eight(a.out, r * a.s_out + c, a.out_type, v);
}

KERNEL(glu, pair_args, 256, 1)
{
    int64_t i = gpu_index(), r, c;
    if (i >= a.n * a.C)
        return;
    gpu_divide(i, a.C, &r, &c);
    float v = activate(load_one(a.a, r * a.s_a + c, a.a_type), a.act);
    if (a.b)
        v *= load_one(a.b, r * a.s_b + c, a.b_type);
    store_one(a.out, r * a.s_out + c, a.out_type, v);
}

KERNEL(addmul_wide, pair_args, 256, 2)
{
    int64_t i = gpu_index() * 8, r, c;
    if (i >= a.n * a.C)
        return;
    float v[8], g[8] = { 1, 1, 1, 1, 1, 1, 1, 1 }, w[8];
    gpu_divide(i, a.C, &r, &c);
    load_eight(v, a.a, r * a.s_a + c, a.a_type);
    if (a.gate)
        load_eight(g, a.gate, r * a.s_gate + c, F32);
    load_eight(w, a.out, r * a.s_out + c, a.out_type);
    UNROLL
    for (int j = 0; j < 8; j++)
        w[j] += v[j] * g[j];
    store_eight(a.out, r * a.s_out + c, a.out_type, w);
}

KERNEL(addmul, pair_args, 256, 1)
{
    int64_t i = gpu_index(), r, c;
    if (i >= a.n * a.C)
        return;
    gpu_divide(i, a.C, &r, &c);
    const int64_t o = r * a.s_out + c;
    float         v = load_one(a.a, r * a.s_a + c, a.a_type);
    v = a.gate ? v * a.gate[r * a.s_gate + c] : v;
    store_one(a.out, o, a.out_type, load_one(a.out, o, a.out_type) + v);
}

KERNEL(axpby, axpby_args, 256, 1)
{
    const copy_args &w = a.view;
    int64_t          i = gpu_index(), o = 0, in = 0, r = i;
    if (i >= w.n)
        return;
    UNROLL
    for (int k = 4; k >= 0; k--) {
        int64_t at;
        gpu_divide(r, w.d[k], &r, &at);
        o += at * w.s_out[k], in += at * w.s_in[k];
    }
    float       *out = (float *)w.out;
    const float *x = (const float *)w.in;
    const float  old = x && a.b == 0 ? 0 : a.b * out[o];
    out[o] = x ? a.a * x[in] + old : old;
}

/* Returns the accumulator of a GEMM at [r,c], multiplied by the scales of its row and column. */
GPU float scaled_sum(const epilogue_args &a, int64_t r, int64_t c)
{
    if (a.integers)
        return gpu_multiply((float)((const int32_t *)a.acc)[r * a.s_acc + c],
                            gpu_multiply(a.sx[r], a.sw[c]));
    float v = ((const float *)a.acc)[r * a.s_acc + c];
    v = a.sx ? gpu_multiply(v, a.sx[r]) : v;
    return a.sw ? gpu_multiply(v, a.sw[c]) : v;
}

KERNEL(epilogue, epilogue_args, 256, 1)
{
    int64_t i = gpu_index(), r, c;
    if (i >= a.n * a.O)
        return;
    gpu_divide(i, a.O, &r, &c);
    float v = scaled_sum(a, r, c);
    v = activate(a.bias ? v + load_one(a.bias, c, a.bias_type) : v, a.act);
    v = a.gate ? v * a.gate[c] : v;
    if (a.residual)
        v += load_one(a.residual, r * a.s_residual + c, a.residual_type);
    store_one(a.out, r * a.s_out + c, a.out_type, v);
}

/* Computes the epilogue of a GEMM with F32 accumulators. Each thread handles eight columns. The
 * number of columns, O, must be a multiple of 8, and all operands must begin at multiples of 16
 * bytes. */
KERNEL(epilogue_wide, epilogue_args, 256, 2)
{
    int64_t i = gpu_index() * 8, r, c;
    if (i >= a.n * a.O)
        return;
    gpu_divide(i, a.O, &r, &c);
    float       v[8], w[8] = { 0, 0, 0, 0, 0, 0, 0, 0 }, b[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
    const float x = a.sx ? a.sx[r] : 1;
    load_eight(v, a.acc, r * a.s_acc + c, 0);
    if (a.residual)
        load_eight(w, a.residual, r * a.s_residual + c, a.residual_type);
    if (a.bias)
        load_eight(b, a.bias, c, a.bias_type);
    UNROLL
    for (int j = 0; j < 8; j++) {
        v[j] = a.sx ? gpu_multiply(v[j], x) : v[j];
        v[j] = a.sw ? gpu_multiply(v[j], a.sw[c + j]) : v[j];
        v[j] = activate(a.bias ? v[j] + b[j] : v[j], a.act);
        v[j] = a.gate ? v[j] * a.gate[c + j] : v[j];
        v[j] = a.residual ? w[j] + v[j] : v[j];
    }
    store_eight(a.out, r * a.s_out + c, a.out_type, v);
}
