/* rotate.c - rotates groups of elements of a row (xd_rotation); compiled once per instruction set
 *
 * A step of the rotation works on elements a, b, c, d that are 4^k apart: with h = ((a + b) + (c +
 * d)) / 2, the elements become h - d, h - c, h - b, h - a. A step whose elements are 16 or more
 * apart combines different vectors. A step whose elements are 1 or 4 apart exchanges elements of
 * one vector. The order of additions is the same with every instruction set. */
#include "backend/cpu/cpu.h"

#include <string.h>

#include "backend/cpu/element.h"
#include "backend/cpu/vec.h"
#include "base/par.h"

enum { GRAIN = 8192 }; /* minimum elements for which several threads are used */

#if defined(__AVX512F__)
/* Computes a step of the rotation on elements of one vector, which are 1 or 4 apart. The macro
 * argument NEXT exchanges a with b (and c with d), OTHER exchanges the pairs (a, b) and (c, d), and
 * BACK reverses the order of a, b, c, d. */
#define STEP(x, NEXT, OTHER, BACK)                                                                 \
    (_mm512_sub_ps(_mm512_mul_ps(half, sum_of_four(_mm512_add_ps(x, NEXT(x)), OTHER)), BACK(x)))
#define sum_of_four(t, OTHER) _mm512_add_ps(t, OTHER(t))
#define NEXT1(x) _mm512_permute_ps(x, 0xB1)
#define OTHER1(x) _mm512_permute_ps(x, 0x4E)
#define BACK1(x) _mm512_permute_ps(x, 0x1B)
#define NEXT4(x) _mm512_shuffle_f32x4(x, x, 0xB1)
#define OTHER4(x) _mm512_shuffle_f32x4(x, x, 0x4E)
#define BACK4(x) _mm512_shuffle_f32x4(x, x, 0x1B)

static int64_t small_steps(float *x, int64_t n)
{
    const __m512 half = _mm512_set1_ps(0.5f);
    if (n < 16)
        return 1;
    for (int64_t i = 0; i < n; i += 16) {
        __m512 v = _mm512_loadu_ps(x + i);
        v = STEP(v, NEXT1, OTHER1, BACK1);
        v = STEP(v, NEXT4, OTHER4, BACK4);
        _mm512_storeu_ps(x + i, v);
    }
    return 16;
}
#elif defined(__AVX2__)
#define SWAP_HALVES(x) _mm256_permute2f128_ps(x, x, 1)

static int64_t small_steps(float *x, int64_t n)
{
    const __m256 half = _mm256_set1_ps(0.5f);
    if (n < 16)
        return 1;
    for (int64_t i = 0; i < n; i += 16) {
        __m256 v[2], t[2];
        for (int k = 0; k < 2; k++) {
            v[k] = _mm256_loadu_ps(x + i + 8 * k);
            t[k] = _mm256_add_ps(v[k], _mm256_permute_ps(v[k], 0xB1));
            t[k] = _mm256_mul_ps(half, _mm256_add_ps(t[k], _mm256_permute_ps(t[k], 0x4E)));
            v[k] = _mm256_sub_ps(t[k], _mm256_permute_ps(v[k], 0x1B));
            t[k] = _mm256_add_ps(v[k], SWAP_HALVES(v[k]));
        }
        t[0] = _mm256_mul_ps(half, _mm256_add_ps(t[0], t[1]));
        _mm256_storeu_ps(x + i, _mm256_sub_ps(t[0], SWAP_HALVES(v[1])));
        _mm256_storeu_ps(x + i + 8, _mm256_sub_ps(t[0], SWAP_HALVES(v[0])));
    }
    return 16;
}
#else
static int64_t small_steps(float *x, int64_t n)
{
    (void)x, (void)n;
    return 1;
}
#endif

/* Computes a step of the rotation on elements a, b, c, d that are `step` apart. */
static void one_step(float *x, int64_t n, int64_t step)
{
    for (int64_t i = 0; i < n; i += 4 * step) {
        float *a = x + i, *b = a + step, *c = b + step, *d = c + step;
#pragma omp simd
        for (int64_t j = 0; j < step; j++) {
            float h = 0.5f * ((a[j] + b[j]) + (c[j] + d[j]));
            float p = h - d[j], q = h - c[j], r = h - b[j], s = h - a[j];
            a[j] = p, b[j] = q, c[j] = r, d[j] = s;
        }
    }
}

static void rotate_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const xd_rotate *a = ctx;
    float            x[XD_ROTATE_MAX];
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        for (int64_t i = 0; i < a->in.d[1]; i += a->group) {
            const void *from = xd_at(a->in, r, i);
            void       *to = xd_at(a->out, r, i);
            if (a->in.type == XD_BF16)
                from_bf16s(x, from, a->group);
            else
                memcpy(x, from, (size_t)a->group * sizeof *x);
            for (int64_t step = small_steps(x, a->group); step < a->group; step *= 4)
                one_step(x, a->group, step);
            if (a->out.type == XD_BF16)
                to_bf16s(to, x, a->group);
            else
                memcpy(to, x, (size_t)a->group * sizeof *x);
        }
}

void GLUE(xd_rotate_, ISA)(const xd_rotate *a)
{
    xd_rotate b = *a;
    if (a->in.d[0] * a->in.d[1] < GRAIN)
        rotate_rows(&b, 0, a->in.d[0], 0);
    else
        xd_par_for(a->in.d[0], rotate_rows, &b);
}
