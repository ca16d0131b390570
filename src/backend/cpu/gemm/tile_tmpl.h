/* tile_tmpl.h - defines the register tiles of our GEMMs, which multiply up to XD_TILE input rows by
 * a panel of weights.
 *
 * c[i][j] (+)= sum_u a[i][u] . b[u][j] for i < ROWS and j < XD_PANEL, where u runs over the 32-bit
 * units of block.h. In a register tile, the products of all elements of a unit are added to one
 * 32-bit accumulator. While a tile is computed, data for later tiles is prefetched. NEXT_UNITS
 * units before the end of a tile, its accumulators and outputs are prefetched, because the L1 cache
 * no longer has them.
 *
 * The including file defines v_sums (a vector of accumulators), v_none (zeros), v_get and v_put
 * (load and store), v_join (adds two v_sums), v_dot (adds the products of two vectors of units to a
 * v_sums) and v_half (broadcasts half a unit). */
#ifndef XD_BACKEND_CPU_GEMM_TILE_TMPL_H
#define XD_BACKEND_CPU_GEMM_TILE_TMPL_H

#include <string.h>

#include "backend/cpu/gemm/finish.h"

/* number of 32-bit units before a tile's end at which its outputs are prefetched */
enum { NEXT_UNITS = 24 };

typedef struct tile_args {
    int64_t     units; /* number of full 32-bit units of an input row */
    const char *a;     /* input rows, `lda` bytes apart */
    int64_t     lda;
    const char *b;    /* packed panel of weights */
    float      *c;    /* accumulators of the tile, XD_PANEL for each input row */
    int         add;  /* 1: adds to the accumulators in c */
    int         rest; /* 1: half a unit (16 bits) follows the full units */
    const char *next; /* data to prefetch, one cache line for each 32-bit unit */
    int         last; /* 1: this is the last chunk of the rows; the GEMM's epilogue follows */
} tile_args;

typedef void tile_fn(const tile_args *t, const xd_gemm_job *p, int64_t at, int64_t r0);

#define TILE_ZERO(i)                                                                               \
    v_sums      c##i##0 = v_none(), c##i##1 = c##i##0, c##i##2 = c##i##0,                          \
            c##i##3 = c##i##0;                                                                     \
    const char *a##i = a + (i)*lda;

#define TILE_DOT(i, u)                                                                             \
    c##i##0 = v_dot(c##i##0, u, b0);                                                               \
    c##i##1 = v_dot(c##i##1, u, b1);                                                               \
    c##i##2 = v_dot(c##i##2, u, b2);                                                               \
    c##i##3 = v_dot(c##i##3, u, b3);

#define TILE_STEP(i)                                                                               \
    {                                                                                              \
        const __m512i u = v_unit(a##i + 4 * k);                                                    \
        TILE_DOT(i, u)                                                                             \
    }
#define TILE_REST(i)                                                                               \
    {                                                                                              \
        const __m512i u = v_half(a##i + 4 * kn);                                                   \
        TILE_DOT(i, u)                                                                             \
    }

#define TILE_PUT(i, j)                                                                             \
    {                                                                                              \
        float *o = c + (i)*XD_PANEL + (j)*16;                                                      \
        v_put(o, add ? v_join(c##i##j, v_get(o)) : c##i##j);                                       \
    }
#define TILE_STORE(i) TILE_PUT(i, 0) TILE_PUT(i, 1) TILE_PUT(i, 2) TILE_PUT(i, 3)

#define TILE_WEIGHTS(k)                                                                            \
    const __m512i b0 = _mm512_loadu_si512(b + (k)*256);                                            \
    const __m512i b1 = _mm512_loadu_si512(b + (k)*256 + 64);                                       \
    const __m512i b2 = _mm512_loadu_si512(b + (k)*256 + 128);                                      \
    const __m512i b3 = _mm512_loadu_si512(b + (k)*256 + 192);

#define TILE_UNTIL(ROWS, end)                                                                      \
    for (; k < (end); k++) {                                                                       \
        TILE_WEIGHTS(k)                                                                            \
        _mm_prefetch(next + 64 * k, _MM_HINT_T1);                                                  \
        ROWS_##ROWS(TILE_STEP)                                                                     \
    }

#define TILE(ROWS)                                                                                 \
    static void tile_##ROWS(const tile_args *t, const xd_gemm_job *p, int64_t at, int64_t r0)      \
    {                                                                                              \
        const int64_t kn = t->units, from_k = kn > NEXT_UNITS ? kn - NEXT_UNITS : 0, lda = t->lda; \
        const char   *a = t->a, *b = t->b, *next = t->next;                                        \
        float        *c = t->c;                                                                    \
        const int     add = t->add;                                                                \
        int64_t       k = 0;                                                                       \
        ROWS_##ROWS(TILE_ZERO)                                                                     \
        TILE_UNTIL(ROWS, from_k)                                                                   \
        for (int64_t i = 0; i < ROWS * XD_PANEL; i += 16)                                          \
            _mm_prefetch((const char *)(c + i), _MM_HINT_T0);                                      \
        if (t->last)                                                                               \
            prefetch_output(p, at * XD_PANEL, XD_PANEL, r0, ROWS);                                 \
        TILE_UNTIL(ROWS, kn)                                                                       \
        if (t->rest) {                                                                             \
            TILE_WEIGHTS(kn)                                                                       \
            ROWS_##ROWS(TILE_REST)                                                                 \
        }                                                                                          \
        ROWS_##ROWS(TILE_STORE)                                                                    \
    }

#define TILES                                                                                      \
    TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6)                                                \
    static tile_fn *const tiles[] = { 0, tile_1, tile_2, tile_3, tile_4, tile_5, tile_6 };

static inline __m512i v_unit(const char *p)
{
    int32_t u;
    memcpy(&u, p, sizeof u);
    return _mm512_set1_epi32(u);
}

#endif
