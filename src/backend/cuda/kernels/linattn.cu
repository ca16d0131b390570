/* linattn.cu - kernels of linear attention. A thread computes one element of the sums, or one
 * element of the output. */
#include "backend/cuda/kernels/args.h"
#include "backend/cuda/kernels/elements.cuh"

/* Returns element i of head h of row r, or 0 if the element is negative. */
GPU float positive(const linattn_heads &t, int64_t r, int64_t h, int64_t i)
{
    const float v = load_one(t.p, r * t.s0 + h * t.s1 + i, t.type);
    return v < 0 ? 0 : v;
}

/* Returns element i of head h of row r, rotated by the row's angles, if there are any. */
GPU float turned(const linattn_args &a, int64_t r, int64_t h, int64_t i)
{
    const float x = positive(a.q, r, h, i);
    if (!a.cos)
        return x;
    const float y = positive(a.q, r, h, i ^ 1), c = a.cos[r * a.s_cos + i / 2];
    const float s = a.sin[r * a.s_sin + i / 2];
    return i % 2 ? y * s + x * c : x * c - y * s;
}

/* Computes sums[h,i,j] over all rows of keys and values. The sums of 64 rows are added before they
 * are added to the sums of all rows, which reduces rounding errors. */
KERNEL(linattn_sums, linattn_args, 256, 1)
{
    int64_t e = gpu_index(), h, i, j;
    if (e >= a.H * a.D * (a.D + 1))
        return;
    gpu_divide(e, a.D * (a.D + 1), &h, &i);
    gpu_divide(i, a.D + 1, &i, &j);
    float sum = 0;
    for (int64_t r = 0; r < a.n; r += 64) {
        const int64_t end = r + 64 < a.n ? r + 64 : a.n;
        float         part = 0;
        for (int64_t k = r; k < end; k++) {
            part += j < a.D ? turned(a, k, h, i) *
                                  load_one(a.v.p, k * a.v.s0 + h * a.v.s1 + j, a.v.type)
                            : positive(a.q, k, h, i);
        }
        sum += part;
    }
    a.sums[e] = sum;
}

KERNEL(linattn_out, linattn_args, 256, 1)
{
    int64_t e = gpu_index(), r, h, j;
    if (e >= a.n * a.H * a.D)
        return;
    gpu_divide(e, a.H * a.D, &r, &h);
    gpu_divide(h, a.D, &h, &j);
    const float *s = a.sums + h * a.D * (a.D + 1);
    float        y = 0, by = 0;
    for (int64_t i = 0; i < a.D; i++) {
        y += turned(a, r, h, i) * s[i * (a.D + 1) + j];
        by += positive(a.q, r, h, i) * s[i * (a.D + 1) + a.D];
    }
    store_one(a.v.p, r * a.v.s0 + h * a.v.s1 + j, a.v.type, y / (by + 1e-15f));
}
