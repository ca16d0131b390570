/* gpu.cuh - defines the macros and functions that the CUDA kernels use. nvcc compiles the kernels
 * to GPU code, and a C++ compiler compiles them to CPU code for tests.
 *
 * A kernel has a single argument, a struct of args.h (plain C) that is passed by value. Kernels are
 * launched by name through the driver's cuLaunchKernel, so the engine is plain C and needs no CUDA
 * compiler. For example, KERNEL(norm_5, norm_args, 128, 4) { ... a.n ... } defines a kernel whose
 * blocks have 128 threads and use so few registers that 4 blocks fit on a multiprocessor.
 *
 * Shared memory is allocated dynamically (gpu_shared). Every instruction that is implemented in PTX
 * is also implemented in C, for the CPU. No other file contains PTX. On the CPU, each thread of a
 * block is a fiber (tests/sim/fibers.cc), and the lanes of a warp synchronize in the functions that
 * are collective on a GPU. */
#ifndef XD_BACKEND_CUDA_KERNELS_GPU_CUH
#define XD_BACKEND_CUDA_KERNELS_GPU_CUH

#include <stdint.h>

#ifdef __CUDACC__

#define GPU static __device__ __forceinline__
#define KERNEL(name, type, threads, blocks)                                                        \
    extern "C" __global__ void __launch_bounds__(threads, blocks)                                  \
        name(const __grid_constant__ type a)
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")
GPU char *gpu_shared()
{
    extern __shared__ __align__(128) char gpu_shared_bytes[];
    return gpu_shared_bytes;
}
#define LANE ((int)(threadIdx.x & 31))
#define WARP ((int)(threadIdx.x >> 5))

#else

#include <math.h>
#include <string.h>
#define GPU static inline __attribute__((always_inline, unused))
#define UNROLL
#define ROLLED
struct gpu_dim3 { unsigned x, y, z; };
struct uint4 { uint32_t x, y, z, w; };
struct uint2 { uint32_t x, y; };
struct float4 { float x, y, z, w; };
/* The values that a lane passes to the other lanes of its warp in a collective function. */
struct gpu_shown {
    uint32_t    a[4], b[2];
    float       c[4];
    const void *p;
    float       f;
};
struct gpu_warp {
    gpu_shown slot[2][32];
    int       turn[32];
};
extern gpu_dim3 gpu_thread, gpu_block, gpu_threads, gpu_blocks;
#define threadIdx gpu_thread
#define blockIdx gpu_block
#define blockDim gpu_threads
#define gridDim gpu_blocks
#define LANE ((int)(gpu_thread.x & 31))
#define WARP ((int)(gpu_thread.x >> 5))
char           *gpu_shared();
/* Waits until all lanes of the warp have reached the same place `where` of the code, and returns
 * the values of all lanes. The function `last` runs once, before any lane continues. */
gpu_shown      *gpu_show(const gpu_shown &mine, int where, void (*last)(gpu_shown *));
void            gpu_wait_block(int where);
void            gpu_copy_later(void *shared, const void *global, int bytes);
void            gpu_copy_group();
void            gpu_copy_wait(int groups_left);
void            gpu_mma_bf16(gpu_shown *s);
void            gpu_mma_f16(gpu_shown *s);
void            gpu_sum_lanes(gpu_shown *s);
void            gpu_max_lanes(gpu_shown *s);

struct gpu_kernel {
    const char *name;
    unsigned    size, threads;
    void        (*run)(const void *args);
};
#define KERNEL(name, type, threads, blocks)                                                        \
    static void name##_body(const type &a);                                                        \
    static void name##_run(const void *p) { name##_body(*(const type *)p); }                       \
    extern "C" __attribute__((visibility("default")))                                              \
    const gpu_kernel name = { #name, (unsigned)sizeof(type), threads, name##_run };                \
    static void name##_body(const type &a)

#endif

/* ---- conversions and arithmetic -------------------------------------------------------------- */

typedef uint16_t bf16;
GPU float        gpu_bits_f32(uint32_t u)
{
#ifdef __CUDACC__
    return __uint_as_float(u);
#else
    float f;
    memcpy(&f, &u, 4);
    return f;
#endif
}
GPU uint32_t gpu_f32_bits(float f)
{
#ifdef __CUDACC__
    return __float_as_uint(f);
#else
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
#endif
}
GPU float gpu_from_bf16(bf16 v)
{
    return gpu_bits_f32((uint32_t)v << 16);
}
GPU bf16 gpu_to_bf16(float f)
{
#ifdef __CUDACC__
    bf16 r;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(f));
    return r;
#else
    uint32_t u = gpu_f32_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return 0x7fff;
    return (bf16)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
#endif
}
/* Packs two values as bf16. The result has `lo` in its low half. */
GPU uint32_t gpu_pack_bf16(float lo, float hi)
{
#ifdef __CUDACC__
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
#else
    return gpu_to_bf16(lo) | (uint32_t)gpu_to_bf16(hi) << 16;
#endif
}
GPU float gpu_from_f16(uint16_t v)
{
#ifdef __CUDACC__
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v));
    return r;
#else
    const int   e = v >> 10 & 31, m = v & 1023;
    const float f = e == 31 ? (m ? NAN : INFINITY)
                    : e     ? ldexpf((float)(1024 + m), e - 25)
                            : ldexpf((float)m, -24);
    return v & 0x8000 ? -f : f;
#endif
}
GPU uint16_t gpu_to_f16(float f)
{
#ifdef __CUDACC__
    uint16_t r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(f));
    return r;
#else
    const uint32_t sign = gpu_f32_bits(f) >> 16 & 0x8000;
    const float    a = fabsf(f);
    if (!(a < 65520.0f))
        return (uint16_t)(a != a ? 0x7e00 : sign | 0x7c00);
    const int e = a < 6.103515625e-5f ? -14 : ilogbf(a);
    return (uint16_t)(sign | (((uint32_t)(e + 14) << 10) + (uint32_t)rintf(ldexpf(a, 10 - e))));
#endif
}
/* Packs two values as f16. The result has `lo` in its low half. */
GPU uint32_t gpu_pack_f16(float lo, float hi)
{
#ifdef __CUDACC__
    uint32_t r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
#else
    return gpu_to_f16(lo) | (uint32_t)gpu_to_f16(hi) << 16;
#endif
}
GPU float gpu_exp2(float x)
{
#ifdef __CUDACC__
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
#else
    return exp2f(x);
#endif
}
/* Divides a by b and rounds to nearest. The compiler never replaces the division in this function
 * by an approximation. */
GPU float gpu_divide(float a, float b)
{
#ifdef __CUDACC__
    return __fdiv_rn(a, b);
#else
    return a / b;
#endif
}
/* Multiplies a by b. The compiler never fuses the multiplication in this function into a
 * multiply-add. */
GPU float gpu_multiply(float a, float b)
{
#ifdef __CUDACC__
    return __fmul_rn(a, b);
#else
    return a * b;
#endif
}
GPU float gpu_rsqrt(float x)
{
#ifdef __CUDACC__
    return rsqrtf(x);
#else
    return 1.0f / sqrtf(x);
#endif
}

/* ---- memory ---------------------------------------------------------------------------------- */

GPU uint4 gpu_load16(const void *p)
{
#ifdef __CUDACC__
    return *(const uint4 *)p;
#else
    uint4 v;
    memcpy(&v, p, 16);
    return v;
#endif
}
GPU void gpu_store16(void *p, uint4 v)
{
#ifdef __CUDACC__
    *(uint4 *)p = v;
#else
    memcpy(p, &v, 16);
#endif
}
GPU void gpu_store8(void *p, uint2 v)
{
#ifdef __CUDACC__
    *(uint2 *)p = v;
#else
    memcpy(p, &v, 8);
#endif
}

/* Starts an asynchronous copy of 16 bytes to shared memory. Only the first `bytes` bytes (0 or 16)
 * are read, and the other bytes become zeros. The data has arrived after gpu_copy_wait and a
 * barrier. On the CPU, most blocks of threads copy the bytes only in gpu_copy_wait. The other
 * blocks, which a test selects by its random seed, copy the bytes at once, so that tests find
 * missing waits. */
GPU void gpu_cp_async16(void *shared, const void *global, int bytes)
{
#ifdef __CUDACC__
    uint32_t to = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(bytes)
                 : "memory");
#else
    gpu_copy_later(shared, global, bytes);
#endif
}
GPU void gpu_cp_commit()
{
#ifdef __CUDACC__
    asm volatile("cp.async.commit_group;" ::: "memory");
#else
    gpu_copy_group();
#endif
}
template <int left> GPU void gpu_cp_wait()
{
#ifdef __CUDACC__
    asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
#else
    gpu_copy_wait(left);
#endif
}

/* ---- synchronization and warp operations ----------------------------------------------------- */

#ifdef __CUDACC__
#define gpu_sync() __syncthreads()
GPU float gpu_xor(float v, int mask)
{
    return __shfl_xor_sync(0xffffffffu, v, mask);
}
GPU float gpu_from_lane(float v, int lane)
{
    return __shfl_sync(0xffffffffu, v, lane);
}
GPU void gpu_sync_warp()
{
    __syncwarp();
}
#else
#define gpu_sync() gpu_wait_block(__LINE__)
GPU float gpu_xor(float v, int mask, int where = __builtin_LINE())
{
    gpu_shown s;
    int       lane = LANE;
    s.f = v;
    return gpu_show(s, where, nullptr)[lane ^ mask].f;
}
GPU float gpu_from_lane(float v, int lane, int where = __builtin_LINE())
{
    gpu_shown s;
    s.f = v;
    return gpu_show(s, where, nullptr)[lane].f;
}
GPU void gpu_sync_warp(int where = __builtin_LINE())
{
    gpu_shown s;
    gpu_show(s, where, nullptr);
}
#endif
/* These functions return the sum and the maximum over the lanes of a warp, computed by a butterfly
 * exchange. All lanes receive bit-identical values of the sum and of the maximum. */
#ifdef __CUDACC__
GPU float gpu_warp_sum(float v)
{
    UNROLL
    for (int m = 16; m; m >>= 1)
        v += gpu_xor(v, m);
    return v;
}
GPU float gpu_warp_max(float v)
{
    UNROLL
    for (int m = 16; m; m >>= 1)
        v = fmaxf(v, gpu_xor(v, m));
    return v;
}
#else
GPU float gpu_warp_sum(float v, int where = __builtin_LINE())
{
    gpu_shown s;
    int       lane = LANE;
    s.f = v;
    return gpu_show(s, where, gpu_sum_lanes)[lane].f;
}
GPU float gpu_warp_max(float v, int where = __builtin_LINE())
{
    gpu_shown s;
    int       lane = LANE;
    s.f = v;
    return gpu_show(s, where, gpu_max_lanes)[lane].f;
}
#endif

/* Loads four 8x8 matrices of 16-bit elements from shared memory. Lane l passes the address of row l
 * % 8 of matrix l / 8. */
#ifdef __CUDACC__
GPU void gpu_ldmatrix4(uint32_t r[4], const void *row)
{
    uint32_t p = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(p)
                 : "memory");
}
GPU void gpu_ldmatrix4_t(uint32_t r[4], const void *row)
{
    uint32_t p = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(p)
                 : "memory");
}
/* Computes c[16x8] += a[16x16] b[16x8], where a and b are bf16 or f16. */
template <int is_f16> GPU void gpu_mma(float c[4], const uint32_t a[4], const uint32_t b[2])
{
#define GPU_MMA(type)                                                                              \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0,%1,%2,%3}, "     \
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                                          \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
    if (is_f16)
        GPU_MMA("f16");
    else
        GPU_MMA("bf16");
#undef GPU_MMA
}
#else
GPU void gpu_ldmatrix4(uint32_t r[4], const void *row, int where = __builtin_LINE())
{
    gpu_shown s;
    int       lane = LANE;
    s.p = row;
    const gpu_shown *all = gpu_show(s, where, nullptr);
    for (int i = 0; i < 4; i++)
        memcpy(&r[i], (const char *)all[8 * i + lane / 4].p + lane % 4 * 4, 4);
}
GPU void gpu_ldmatrix4_t(uint32_t r[4], const void *row, int where = __builtin_LINE())
{
    gpu_shown s;
    int       lane = LANE;
    s.p = row;
    const gpu_shown *all = gpu_show(s, where, nullptr);
    for (int i = 0; i < 4; i++) {
        uint16_t lo, hi;
        memcpy(&lo, (const char *)all[8 * i + lane % 4 * 2].p + lane / 4 * 2, 2);
        memcpy(&hi, (const char *)all[8 * i + lane % 4 * 2 + 1].p + lane / 4 * 2, 2);
        r[i] = lo | (uint32_t)hi << 16;
    }
}
template <int is_f16>
GPU void gpu_mma(float c[4], const uint32_t a[4], const uint32_t b[2], int where = __builtin_LINE())
{
    gpu_shown s;
    int       lane = LANE;
    memcpy(s.a, a, 16), memcpy(s.b, b, 8), memcpy(s.c, c, 16);
    memcpy(c, gpu_show(s, where, is_f16 ? gpu_mma_f16 : gpu_mma_bf16)[lane].c, 16);
}
#endif

#endif
