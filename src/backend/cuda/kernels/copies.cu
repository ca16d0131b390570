/* copies.cu - kernels for copies with conversion, table lookups and enlargement of images */
#include "backend/cuda/kernels/args.h"
#include "backend/cuda/kernels/elements.cuh"

KERNEL(copy, copy_args, 256, 1)
{
    int64_t i = gpu_index(), o = 0, in = 0, r = i;
    if (i >= a.n)
        return;
    UNROLL
    for (int k = 4; k >= 0; k--) {
        int64_t at;
        gpu_divide(r, a.d[k], &r, &at);
        o += at * a.s_out[k], in += at * a.s_in[k];
    }
    store_typed(a.out, o, a.out_type, load_typed(a.in, in, a.in_type));
}

KERNEL(lengths, lengths_args, 256, 1)
{
    const int64_t i = gpu_index();
    if (i < a.n)
        a.to[i] = a.value[i];
}

/* Loads an element of F32, BF16 or F16 from any address, byte by byte. */
GPU float load_unaligned(const void *p, int64_t at, int type)
{
    const int      n = type == F32 ? 4 : 2;
    const uint8_t *b = (const uint8_t *)p + at * n;
    uint32_t       u = (uint32_t)b[0] | (uint32_t)b[1] << 8;
    if (type == F32)
        return gpu_bits_f32(u | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24);
    return type == F16 ? gpu_from_f16((uint16_t)u) : gpu_from_bf16((bf16)u);
}

KERNEL(lookup, lookup_args, 256, 1)
{
    int64_t i = gpu_index(), r, c;
    if (i >= a.n * a.C)
        return;
    gpu_divide(i, a.C, &r, &c);
    int32_t id = a.ids[r * a.s_ids];
    if (id < 0 || id >= a.rows) {
        *a.failed = 1;
        return;
    }
    store_typed(a.out, r * a.s_out + c, a.out_type,
                load_unaligned(a.table, id * a.s_table + c, a.table_type));
}

KERNEL(resize, resize_args, 256, 1)
{
    int64_t i = gpu_index(), r = i, at[4];
    if (i >= a.d[0] * a.d[1] * a.d[2] * a.d[3])
        return;
    UNROLL
    for (int k = 3; k >= 0; k--)
        gpu_divide(r, a.d[k], &r, &at[k]);
    int64_t o = at[3], in = at[3];
    UNROLL
    for (int k = 0; k < 3; k++) {
        int64_t from, left;
        gpu_divide(at[k], a.factor[k], &from, &left);
        o += at[k] * a.s_out[k], in += from * a.s_in[k];
    }
    if (a.size == 2)
        ((uint16_t *)a.out)[o] = ((const uint16_t *)a.in)[in];
    else
        ((uint32_t *)a.out)[o] = ((const uint32_t *)a.in)[in];
}
