/* tile_tmpl.h - defines the register tiles of the matrix multiplications of attention, once for all
 * vector widths.
 *
 *   c[i][j] (+)= sum_k a[i][k] . b[k][j] for i < MR rows and j < NV vectors (plus half a vector if
 *   HALF is 1)
 *
 * The index k runs over 32-bit units, which are floats or pairs of bf16; the dot product of two
 * pairs is the sum of both products. The matrix a is row-major with rows `lda` units apart, b is a
 * packed panel with NV vectors for each unit, and the rows of c are `ldc` floats apart. All MR x NV
 * accumulators stay in registers, so MR NV + NV + 1 must not exceed the number of registers. The
 * including file defines the types vf and vu, LANES, LDS and the v_ functions, and softmax_state
 * and softmax_next (values_tmpl.h). */
#ifndef XD_BACKEND_CPU_ATTN_TILE_TMPL_H
#define XD_BACKEND_CPU_ATTN_TILE_TMPL_H

typedef void score_fn(int64_t kn, const unit *a, int64_t lda, const unit *b, float *c, float *top,
                      int add);
typedef void sum_fn(int64_t kn, const unit *a, const unit *b, float *c, int64_t ldc, int add);

typedef void soft_fn(int64_t kn, const unit *a, const unit *b, float *c, int64_t ldc, int add,
                     softmax_state *s);

#define TILE_ROWS_2(X) X(0) X(1)
#define TILE_ROWS_3(X) TILE_ROWS_2(X) X(2)
#define TILE_ROWS_4(X) TILE_ROWS_3(X) X(3)
#define TILE_ROWS_6(X) TILE_ROWS_4(X) X(4) X(5)
#define TILE_ROWS_8(X) TILE_ROWS_6(X) X(6) X(7)
#define TILE_ROWS_12(X) TILE_ROWS_8(X) X(8) X(9) X(10) X(11)

#define TILE_FROM(i, j) (NV > (j) && MORE ? v_load(c + (i)*ldc + (j)*LANES) : v_zero())
#define TILE_BEGIN(i)                                                                              \
    vf c##i##_0 = TILE_FROM(i, 0), c##i##_1 = TILE_FROM(i, 1), c##i##_2 = TILE_FROM(i, 2),         \
       c##i##_3 = TILE_FROM(i, 3), c##i##_4 = TILE_FROM(i, 4);                                     \
    vh h##i = HALF && MORE ? v_load_half(c + (i)*ldc + NV * LANES) : v_zero_half();

#define TILE_STEP(i)                                                                               \
    {                                                                                              \
        const vu t = v_spread(a + (i)*lda + k);                                                    \
        c##i##_0 = v_dot(c##i##_0, t, b0);                                                         \
        if (NV > 1)                                                                                \
            c##i##_1 = v_dot(c##i##_1, t, b1);                                                     \
        if (NV > 2)                                                                                \
            c##i##_2 = v_dot(c##i##_2, t, b2);                                                     \
        if (NV > 3)                                                                                \
            c##i##_3 = v_dot(c##i##_3, t, b3);                                                     \
        if (NV > 4)                                                                                \
            c##i##_4 = v_dot(c##i##_4, t, b4);                                                     \
        if (HALF)                                                                                  \
            h##i = v_dot_half(h##i, t, bh);                                                        \
    }

#define TILE_OUT(i, j)                                                                             \
    if (NV > (j)) {                                                                                \
        float *o = c + (i)*ldc + (j)*LANES;                                                        \
        v_store(o, ADD ? v_add(c##i##_##j, v_load(o)) : c##i##_##j);                               \
    }
#define TILE_STORE(i)                                                                              \
    TILE_OUT(i, 0)                                                                                 \
    TILE_OUT(i, 1)                                                                                 \
    TILE_OUT(i, 2)                                                                                 \
    TILE_OUT(i, 3)                                                                                 \
    TILE_OUT(i, 4)                                                                                 \
    if (HALF) {                                                                                    \
        float *o = c + (i)*ldc + NV * LANES;                                                       \
        v_store_half(o, ADD ? v_add_half(h##i, v_load_half(o)) : h##i);                            \
    }                                                                                              \
    (void)h##i;

/* Stores row i of a register tile of scores. Row i of `top`, a vector with the maximum score of the
 * row in each lane, is updated as well. */
#define TILE_STORE_TOP(i)                                                                          \
    {                                                                                              \
        vf t = v_max(c##i##_0, v_load(top + (i)*LANES));                                           \
        if (NV > 1)                                                                                \
            t = v_max(t, c##i##_1);                                                                \
        if (NV > 2)                                                                                \
            t = v_max(t, v_max(c##i##_2, NV > 3 ? c##i##_3 : c##i##_2));                           \
        if (HALF)                                                                                  \
            t = v_max(t, v_wide(h##i));                                                            \
        v_store(top + (i)*LANES, t);                                                               \
        TILE_STORE(i)                                                                              \
    }

#define TILE_UNIT(MR)                                                                              \
    {                                                                                              \
        const vu b0 = v_units(b), b1 = NV > 1 ? v_units(b + LANES) : b0;                           \
        const vu b2 = NV > 2 ? v_units(b + 2 * LANES) : b0;                                        \
        const vu b3 = NV > 3 ? v_units(b + 3 * LANES) : b0;                                        \
        const vu b4 = NV > 4 ? v_units(b + 4 * LANES) : b0;                                        \
        const vuh bh = v_units_half(HALF ? b + NV * LANES : b);                                    \
        TILE_ROWS_##MR(TILE_STEP)                                                                  \
        (void)b1, (void)b2, (void)b3, (void)b4, (void)bh;                                          \
        k++, b += (NV + HALF) * LANES;                                                             \
    }

#define SCORE_TILE(name, MR, NVS, HALFS)                                                           \
    static void name(int64_t kn, const unit *a, int64_t lda, const unit *b, float *c, float *top,  \
                     int add)                                                                      \
    {                                                                                              \
        enum { NV = NVS, HALF = HALFS, ADD = 0 };                                                  \
        const int64_t ldc = LDS;                                                           \
        const int     MORE = add;                                                                  \
        TILE_ROWS_##MR(TILE_BEGIN)                                                                 \
        for (int64_t k = 0; k < kn;)                                                               \
            TILE_UNIT(MR)                                                                          \
        TILE_ROWS_##MR(TILE_STORE_TOP)                                                             \
    }

/* Defines a function that computes a register tile of value sums. Rows of probabilities are LDS
 * 32-bit units apart. Because LDS is a constant, the function needs fewer address registers than a
 * tall tile would otherwise need. */
#define SUM_TILE(name, MR, NVS, HALFS)                                                             \
    static void name(int64_t kn, const unit *a, const unit *b, float *c, int64_t ldc, int add)     \
    {                                                                                              \
        enum { NV = NVS, HALF = HALFS, MORE = 0 };                                                 \
        const int64_t lda = LDS;                                                           \
        const int     ADD = add;                                                                   \
        TILE_ROWS_##MR(TILE_BEGIN)                                                                 \
        for (int64_t k = 0; k < kn;)                                                               \
            TILE_UNIT(MR)                                                                          \
        TILE_ROWS_##MR(TILE_STORE)                                                                 \
    }

/* Defines a function that computes a register tile of value sums, as SUM_TILE does. After every
 * EVERY 32-bit units, the function also runs one softmax step of `s`, on execution units that the
 * multiplications leave idle. */
#define SOFT_TILE(name, MR, NVS, HALFS, EVERY)                                                     \
    static void name(int64_t kn, const unit *a, const unit *b, float *c, int64_t ldc, int add,     \
                     softmax_state *s)                                                             \
    {                                                                                              \
        enum { NV = NVS, HALF = HALFS, MORE = 0 };                                                 \
        const int64_t lda = LDS;                                                           \
        const int     ADD = add;                                                                   \
        int64_t       k = 0;                                                                       \
        softmax_state     e = *s;                                                                  \
        TILE_ROWS_##MR(TILE_BEGIN)                                                                 \
        for (; e.left > 0 && k + (EVERY) <= kn;) {                                                 \
            softmax_next(&e);                                                                      \
            TILE_UNIT(MR)                                                                          \
            if ((EVERY) > 1)                                                                       \
                TILE_UNIT(MR)                                                                      \
            if ((EVERY) > 2) {                                                                     \
                TILE_UNIT(MR)                                                                      \
                TILE_UNIT(MR)                                                                      \
            }                                                                                      \
        }                                                                                          \
        while (k < kn)                                                                             \
            TILE_UNIT(MR)                                                                          \
        TILE_ROWS_##MR(TILE_STORE)                                                                 \
        *s = e;                                                                                    \
    }

#endif
