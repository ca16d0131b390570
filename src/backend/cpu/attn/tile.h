/* tile.h - register tiles of the attention products, written once for all vector widths.
 *
 *   c[i][j] (+)= sum_k a[i][k] . b[k][j]       i < MR rows, j < NV vectors
 *
 * k counts units: floats, or pairs of bf16 whose two products are both added. `a` is row-major
 * with `lda` units from row to row, `b` a packed panel of NV vectors a unit, c floats with ldc
 * from row to row. All MR x NV sums stay in registers, so MR NV + NV + 1 must not exceed their
 * number. Who includes this has defined the types vf and vu, LANES, and the v_ functions. */
#ifndef XD_BACKEND_CPU_ATTN_TILE_H
#define XD_BACKEND_CPU_ATTN_TILE_H

typedef void tile_fn(int64_t kn, const unit *a, int64_t lda, const unit *b, float *c, int64_t ldc,
                     int add);

#define TILE_ROWS_2(X) X(0) X(1)
#define TILE_ROWS_3(X) TILE_ROWS_2(X) X(2)
#define TILE_ROWS_4(X) TILE_ROWS_3(X) X(3)
#define TILE_ROWS_6(X) TILE_ROWS_4(X) X(4) X(5)
#define TILE_ROWS_8(X) TILE_ROWS_6(X) X(6) X(7)
#define TILE_ROWS_12(X) TILE_ROWS_8(X) X(8) X(9) X(10) X(11)

#define TILE_ZERO(i)                                                                               \
    vf c##i##_0 = v_zero(), c##i##_1 = c##i##_0, c##i##_2 = c##i##_0, c##i##_3 = c##i##_0,         \
       c##i##_4 = c##i##_0;

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
    }

#define TILE_OUT(i, j)                                                                             \
    if (NV > (j)) {                                                                                \
        float *o = c + (i)*ldc + (j)*LANES;                                                        \
        v_store(o, add ? v_add(c##i##_##j, v_load(o)) : c##i##_##j);                               \
    }
#define TILE_STORE(i)                                                                              \
    TILE_OUT(i, 0)                                                                                 \
    TILE_OUT(i, 1)                                                                                 \
    TILE_OUT(i, 2)                                                                                 \
    TILE_OUT(i, 3)                                                                                 \
    TILE_OUT(i, 4)

/* LDA is `lda_` for a stride that is known only at run time, or a constant, which saves the
 * address registers that tall tiles do not have. */
#define TILE(name, MR, NVS, LDA)                                                                   \
    static void name(int64_t kn, const unit *a, int64_t lda_, const unit *b, float *c,             \
                     int64_t ldc, int add)                                                         \
    {                                                                                              \
        enum { NV = NVS };                                                                         \
        const int64_t lda = (LDA);                                                                 \
        TILE_ROWS_##MR(TILE_ZERO)                                                                  \
        (void)lda_;                                                                                \
        for (int64_t k = 0; k < kn; k++, b += NV * LANES) {                                        \
            const vu b0 = v_units(b), b1 = NV > 1 ? v_units(b + LANES) : b0;                       \
            const vu b2 = NV > 2 ? v_units(b + 2 * LANES) : b0;                                    \
            const vu b3 = NV > 3 ? v_units(b + 3 * LANES) : b0;                                    \
            const vu b4 = NV > 4 ? v_units(b + 4 * LANES) : b0;                                    \
            TILE_ROWS_##MR(TILE_STEP)                                                              \
            (void)b1, (void)b2, (void)b3, (void)b4;                                                \
        }                                                                                          \
        TILE_ROWS_##MR(TILE_STORE)                                                                 \
    }

#endif
