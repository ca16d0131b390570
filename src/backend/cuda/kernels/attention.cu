/* attention.cu - kernels of flash attention, which compute 16-bit types on tensor cores, and of a
 * plain attention for all types
 *
 * In the flash kernels a block of threads computes 64 * HIGH queries of one head, and each of the
 * block's 4 warps computes 16 * HIGH of these queries (HIGH is 1 or 2). Keys and values are loaded
 * in tiles of KEYS keys by cp.async. Shared memory holds two tiles of keys and two tiles of values.
 * Scores, exponentials and accumulators stay in registers. The keys of all segments are numbered in
 * one sequence, and tile t holds the keys KEYS * t to KEYS * (t + 1) - 1. Therefore the order of
 * sums, and every bit of the result, does not depend on how keys are split into segments. The
 * elements of a head are padded with zeros to D16, a multiple of 16 (for example from 72 to 80).
 *
 * A fragment of keys or values that a warp reads from shared memory is used for 16 * HIGH queries.
 * With 32 queries, shared memory is read half as often for each product as with 16 queries. For
 * heads of 128 and more elements, the accumulators need so many registers that the queries stay in
 * shared memory. For a head of 256 elements, a block of threads uses 99 KiB of shared memory, which
 * every supported GPU has.
 *
 * The instruction mma.m16n8k16 multiplies fragments A and B and adds the products to fragment C.
 * With g = lane / 4 and t = lane % 4, a lane has elements of rows g and g + 8 of A and C, of column
 * g of B, and of columns 2 t and 2 t + 1 of C. */
#include "backend/cuda/kernels/args.h"
#include "backend/cuda/kernels/elements.cuh"

GPU const attention_segment *segments_of(const attention_args &a)
{
    return a.list ? a.list : a.segment;
}

/* Returns the index of the segment that contains key j, where j counts the keys of all segments. */
GPU int segment_of(const attention_args &a, int64_t j)
{
    const attention_segment *all = segments_of(a);
    int                      s = 0;
    while (s + 1 < a.segments && j >= all[s + 1].start)
        s++;
    return s;
}

/* Sets [*lo, *hi) to the range of keys to which query i attends. */
GPU void range_of(const attention_args &a, int64_t i, int64_t len, int64_t *lo, int64_t *hi)
{
    *lo = 0, *hi = len;
    if (a.causal && i + 1 < *hi)
        *hi = i + 1;
    if (a.window > 0) {
        *lo = i - a.window > 0 ? i - a.window : 0;
        *hi = i + a.window + 1 < *hi ? i + a.window + 1 : *hi;
    }
}

/* Packs two values, whose magnitudes are at most 1, as f16 or bf16. */
template <int f16> GPU uint32_t pack_small(float lo, float hi)
{
    return f16 ? gpu_pack_f16(lo, hi) : gpu_pack_bf16(lo, hi);
}

/* The current key segment of the tile loader. The segment contains the keys [begin, end), counted
 * over all segments. The fields k and v are the addresses of this thread's chunk in the segment's
 * first key row and first value row. The fields step_k and step_v are the numbers of elements from
 * one row to the next. */
struct flash_source {
    const bf16 *k, *v;
    int64_t     step_k, step_v;
    int         s, begin, end, len;
};

/* The functions of the flash kernel for one set of template arguments. The argument f16 is 1 for
 * queries of F16, and 0 for queries of BF16. The output has the type of the queries, or F32. HELD
 * is 1 if registers hold the fragments of the queries, and 0 if the queries are read from shared
 * memory for each tile. BIAS is 1 if there is a bias. */
template <int D16, int KEYS, int HIGH, int BIAS, int f16> struct flash {
    enum {
        ROW = D16 + 8, /* elements between rows of a tile in shared memory */
        STEPS = D16 / 16,
        QUERIES = 64 * HIGH,
        HELD = D16 < 128,
        TILE = KEYS * ROW,
        CHUNKS = D16 / 8, /* number of 16-byte chunks of a row */
        /* number of rows that the block of threads copies at once */
        EACH = 128 / CHUNKS,
        PASSES = (KEYS + EACH - 1) / EACH,
    };

    /* Advances the tile loader to the segment that contains key `from`, counted over all
     * segments. */
    GPU void find_segment(const attention_args &a, flash_source *p, int from, int64_t b, int64_t h)
    {
        const int me = (int)threadIdx.x;
        ROLLED
        while (from >= p->end) {
            const attention_segment &g = segments_of(a)[++p->s];
            p->step_k = g.s_k[1], p->step_v = g.s_v[1];
            p->k = (const bf16 *)g.k + b * g.s_k[0] + h * g.s_k[2] + me / CHUNKS * p->step_k +
                   me % CHUNKS * 8;
            p->v = (const bf16 *)g.v + b * g.s_v[0] + h * g.s_v[2] + me / CHUNKS * p->step_v +
                   me % CHUNKS * 8;
            p->begin = (int)g.start, p->end = (int)(g.start + g.m);
            p->end = p->end < p->len ? p->end : p->len;
        }
    }

    /* Copies this thread's 16-byte chunks of the rows [lo, hi) of a tile of keys or values. Row 0
     * of the tile is row `row` of the segment. Zeros are written to the columns from D on and to
     * the rows [hi, zeros). */
    GPU void copy_rows(bf16 *to, const bf16 *from, int64_t row, int64_t step, int D, int lo, int hi,
                       int zeros)
    {
        const int   r0 = (int)threadIdx.x / CHUNKS, c = (int)threadIdx.x % CHUNKS * 8;
        const int   bytes = c < D ? 16 : 0;
        const bf16 *p = from + row * step;
        to += r0 * ROW + c;
        UNROLL
        for (int i = 0; i < PASSES; i++, p += EACH * step) {
            const int r = i * EACH + r0;
            if ((128 % CHUNKS == 0 || r0 < EACH) && r >= lo && r < zeros)
                gpu_cp_async16(to + i * EACH * ROW, p, r < hi ? bytes : 0);
        }
    }

    /* Loads the keys and values [from, from + KEYS) into their tiles of shared memory. */
    GPU void load_tile(const attention_args &a, flash_source *p, bf16 *ks, bf16 *vs, int from,
                       int64_t b, int64_t h)
    {
        find_segment(a, p, from, b, h);
        if (from + KEYS <= p->end) {
            copy_rows(ks, p->k, from - p->begin, p->step_k, a.D, 0, KEYS, KEYS);
            copy_rows(vs, p->v, from - p->begin, p->step_v, a.D, 0, KEYS, KEYS);
            return;
        }
        for (int lo = 0;;) {
            const int hi = p->end - from < KEYS ? p->end - from : KEYS;
            const int last = hi == KEYS || p->end == p->len, zeros = last ? KEYS : hi;
            copy_rows(ks, p->k, from - p->begin, p->step_k, a.D, lo, hi, zeros);
            copy_rows(vs, p->v, from - p->begin, p->step_v, a.D, lo, hi, zeros);
            if (last)
                return;
            lo = hi;
            find_segment(a, p, from + lo, b, h);
        }
    }

    /* Loads the block's queries, from query q0 on, into shared memory. */
    GPU void load_queries(const attention_args &a, bf16 *qs, int64_t q0, int64_t b, int64_t h)
    {
        ROLLED
        for (int at = (int)threadIdx.x; at < QUERIES * CHUNKS; at += 128) {
            const int   r = at / CHUNKS, c = at % CHUNKS * 8, there = q0 + r < a.n && c < a.D;
            const bf16 *p = (const bf16 *)a.q;
            if (there)
                p += b * a.s_q[0] + (q0 + r) * a.s_q[1] + h * a.s_q[2] + c;
            if (a.q_wide) {
                gpu_cp_async16(qs + r * ROW + c, p, there ? 16 : 0);
            } else {
                UNROLL
                for (int k = 0; k < 8; k++)
                    qs[r * ROW + c + k] = there ? p[k] : 0;
            }
        }
        gpu_cp_commit();
        gpu_cp_wait<0>();
        gpu_sync();
    }

    /* Computes the scores s = q k^T of this warp's queries. q is the address of the query row in
     * shared memory that this lane passes to ldmatrix. `held` contains the fragments of the queries
     * in registers. */
    GPU void multiply_keys(float s[HIGH][KEYS / 8][4], const uint32_t held[HIGH][STEPS][4],
                           const bf16 *q, const bf16 *ks)
    {
        const bf16 *krow = ks + (LANE % 8 + LANE / 16 * 8) * ROW + LANE / 8 % 2 * 8;
        UNROLL
        for (int m = 0; m < HIGH; m++)
            UNROLL
        for (int i = 0; i < KEYS / 8; i++)
            s[m][i][0] = s[m][i][1] = s[m][i][2] = s[m][i][3] = 0;
        UNROLL
        for (int k = 0; k < STEPS; k++) {
            uint32_t qf[HIGH][4];
            UNROLL
            for (int m = 0; m < HIGH; m++) {
                if (HELD)
                    qf[m][0] = held[m][k][0], qf[m][1] = held[m][k][1], qf[m][2] = held[m][k][2],
                    qf[m][3] = held[m][k][3];
                else
                    gpu_ldmatrix4(qf[m], q + m * 16 * ROW + k * 16);
            }
            UNROLL
            for (int i = 0; i < KEYS / 16; i++) {
                uint32_t kf[4];
                gpu_ldmatrix4(kf, krow + i * 16 * ROW + k * 16);
                UNROLL
                for (int m = 0; m < HIGH; m++) {
                    gpu_mma<f16>(s[m][2 * i], qf[m], kf);
                    gpu_mma<f16>(s[m][2 * i + 1], qf[m], kf + 2);
                }
            }
        }
    }

    /* Multiplies the scores by a factor that turns them into exponents of two, and adds the bias.
     * The score of a key to which a query does not attend becomes minus infinity. The keys [from,
     * to) need no mask, because all queries of the block of threads attend to them. This lane has
     * the scores of the queries with the indices row, row + 8, ... */
    GPU void scale_scores(const attention_args &a, float s[HIGH][KEYS / 8][4], int64_t j0,
                          int64_t row, int64_t h, int64_t len, int64_t from, int64_t to)
    {
        const float two = 1.4426950408889634f, scale = a.scale * two;
        if (!BIAS && j0 >= from && j0 + (int)KEYS <= to) {
            UNROLL
            for (int m = 0; m < HIGH; m++)
                UNROLL
            for (int c = 0; c < KEYS / 8; c++)
                UNROLL
            for (int k = 0; k < 4; k++)
                s[m][c][k] *= scale;
            return;
        }
        UNROLL
        for (int m = 0; m < 2 * HIGH; m++) {
            int64_t lo, hi;
            range_of(a, row + 8 * m, len, &lo, &hi);
            if (BIAS && row + 8 * m >= a.first + a.n)
                hi = 0;
            const int    f = (int)(lo - j0 > 0 ? lo - j0 : 0),
                         e = (int)(hi - j0 < (int)KEYS ? hi - j0 : (int)KEYS);
            const float *bias = a.bias + h * a.s_bias[0] + (row + 8 * m) * a.s_bias[1];
            UNROLL
            for (int c = 0; c < KEYS / 8; c++)
                UNROLL
            for (int k = 0; k < 2; k++) {
                const int j = c * 8 + LANE % 4 * 2 + k;
                float    &v = s[m / 2][c][m % 2 * 2 + k];
                if (j < f || j >= e)
                    v = -INFINITY;
                else
                    v = v * scale + (BIAS ? bias[(j0 + j) * a.s_bias[2]] * two : 0);
            }
        }
    }

    /* Replaces the scores of a row by their exponentials, and updates the row's maximum score
     * `top`, its `sum` of exponentials and its accumulators `o`. */
    GPU void exponentiate(float s[KEYS / 8][4], float o[D16 / 8][4], float *top, float *sum, int r)
    {
        float big = *top, add = 0;
        UNROLL
        for (int c = 0; c < KEYS / 8; c++)
            big = fmaxf(big, fmaxf(s[c][2 * r], s[c][2 * r + 1]));
        big = fmaxf(big, gpu_xor(big, 1));
        big = fmaxf(big, gpu_xor(big, 2));
        const float zero = big == -INFINITY ? 0 : big, shrink = gpu_exp2(*top - zero);
        *top = big;
        UNROLL
        for (int c = 0; c < KEYS / 8; c++)
            UNROLL
        for (int k = 0; k < 2; k++) {
            float &v = s[c][2 * r + k];
            v = gpu_exp2(v - zero);
            add += v;
        }
        *sum = *sum * shrink + add;
        if (shrink != 1) {
            UNROLL
            for (int i = 0; i < D16 / 8; i++) {
                o[i][2 * r] *= shrink;
                o[i][2 * r + 1] *= shrink;
            }
        }
    }

    /* Computes o += s v: adds the values, weighted by the exponentials s, to the accumulators o. */
    GPU void multiply_values(float o[HIGH][D16 / 8][4], const float s[HIGH][KEYS / 8][4],
                             const bf16 *vs)
    {
        const bf16 *vrow = vs + LANE % 16 * ROW + LANE / 16 * 8;
        UNROLL
        for (int k = 0; k < KEYS / 16; k++) {
            uint32_t p[HIGH][4];
            UNROLL
            for (int m = 0; m < HIGH; m++)
                UNROLL
            for (int i = 0; i < 4; i++) {
                const float *two = &s[m][2 * k + i / 2][i % 2 * 2];
                p[m][i] = pack_small<f16>(two[0], two[1]);
            }
            UNROLL
            for (int i = 0; i < STEPS; i++) {
                uint32_t vf[4];
                gpu_ldmatrix4_t(vf, vrow + k * 16 * ROW + i * 16);
                UNROLL
                for (int m = 0; m < HIGH; m++) {
                    gpu_mma<f16>(o[m][2 * i], p[m], vf);
                    gpu_mma<f16>(o[m][2 * i + 1], p[m], vf + 2);
                }
            }
        }
    }

    /* Normalizes and stores the result of query i. The accumulators of the query are row g (for r =
     * 0) or g + 8 (for r = 1) of the warp's 16 rows, with g = lane / 4. */
    GPU void store_row(const attention_args &a, const float o[D16 / 8][4], int r, float top,
                       float sum, int64_t i, int64_t b, int64_t h)
    {
        const int t = LANE % 4;
        sum += gpu_xor(sum, 1);
        sum += gpu_xor(sum, 2);
        if (i >= a.n)
            return;
        const float   by = sum > 0 ? 1 / sum : sum == 0 ? 0 : sum;
        const int64_t at = b * a.s_out[0] + i * a.s_out[1] + h * a.s_out[2];
        UNROLL
        for (int c = 0; c < D16 / 8; c++) {
            if (c * 8 + 2 * t >= a.D)
                continue;
            const float   x = o[c][2 * r] * by, y = o[c][2 * r + 1] * by;
            const int64_t to = at + c * 8 + 2 * t;
            if (a.out_type == F32) {
                store_one(a.out, to, F32, x), store_one(a.out, to + 1, F32, y);
                continue;
            }
            const uint32_t two = pack_two(x, y, f16 ? F16 : BF16);
            uint16_t      *p = (uint16_t *)a.out + to;
            if (a.out_wide)
                *(uint32_t *)p = two;
            else
                p[0] = (uint16_t)two, p[1] = (uint16_t)(two >> 16);
        }
        if (a.lse && t == 0)
            a.lse[b * a.s_lse[0] + i * a.s_lse[1] + h * a.s_lse[2]] =
                sum > 0    ? (top + log2f(sum)) * 0.6931471805599453f
                : sum == 0 ? -INFINITY
                           : sum;
    }

    GPU void run(const attention_args &a)
    {
        bf16         *qs = (bf16 *)gpu_shared();
        /* Shared memory for two tiles of keys, followed by two tiles of values. */
        bf16         *sm = qs + (HELD ? 0 : QUERIES * ROW);
        const int64_t b = blockIdx.y / a.H, h = blockIdx.y % a.H, hk = h * a.Hk / a.H;
        const int64_t q0 = (int64_t)blockIdx.x * QUERIES, len = a.len[b];
        const int64_t last = q0 + QUERIES < a.n ? q0 + QUERIES : a.n;
        const int64_t row = a.first + q0 + WARP * 16 * HIGH + LANE / 4;
        /* ranges of keys to which the block's first and last query attend */
        int64_t       lo, hi, lo1, hi1;
        range_of(a, a.first + q0, len, &lo, &hi);
        range_of(a, a.first + last - 1, len, &lo1, &hi1);
        const int tile0 = (int)(lo / KEYS), tiles = hi1 > lo ? (int)((hi1 - 1) / KEYS) + 1 : tile0;

        /* If HELD is 0, the queries are loaded to their own area of shared memory. If HELD is 1,
         * the queries are loaded to the area of the tiles, and from there into registers. */
        const bf16 *qrow = qs + (WARP * 16 * HIGH + LANE % 16) * ROW + LANE / 16 * 8;
        uint32_t    held[HIGH][STEPS][4];
        load_queries(a, qs, q0, b, h);
        if (HELD) {
            UNROLL
            for (int m = 0; m < HIGH; m++)
                UNROLL
            for (int k = 0; k < STEPS; k++)
                gpu_ldmatrix4(held[m][k], qrow + m * 16 * ROW + k * 16);
            gpu_sync();
        }

        float o[HIGH][D16 / 8][4], top[HIGH][2], sum[HIGH][2];
        UNROLL
        for (int m = 0; m < HIGH; m++) {
            top[m][0] = top[m][1] = -INFINITY, sum[m][0] = sum[m][1] = 0;
            UNROLL
            for (int i = 0; i < D16 / 8; i++)
                o[m][i][0] = o[m][i][1] = o[m][i][2] = o[m][i][3] = 0;
        }
        flash_source from = { 0, 0, 0, 0, -1, 0, 0, (int)len };
        if (tile0 < tiles)
            load_tile(a, &from, sm, sm + 2 * TILE, tile0 * KEYS, b, hk);
        gpu_cp_commit();
        ROLLED
        for (int n = tile0; n < tiles; n++) {
            const int now = (n - tile0) & 1;
            if (n + 1 < tiles)
                load_tile(a, &from, sm + (now ^ 1) * TILE, sm + (2 + (now ^ 1)) * TILE,
                          (n + 1) * KEYS, b, hk);
            gpu_cp_commit();
            gpu_cp_wait<1>();
            gpu_sync();
            float s[HIGH][KEYS / 8][4];
            multiply_keys(s, held, qrow, sm + now * TILE);
            scale_scores(a, s, (int64_t)n * KEYS, row, h, len, lo1, hi);
            UNROLL
            for (int m = 0; m < HIGH; m++)
                UNROLL
            for (int r = 0; r < 2; r++)
                exponentiate(s[m], o[m], &top[m][r], &sum[m][r], r);
            multiply_values(o, s, sm + (2 + now) * TILE);
            gpu_sync();
        }
        UNROLL
        for (int m = 0; m < HIGH; m++)
            UNROLL
        for (int r = 0; r < 2; r++)
            store_row(a, o[m], r, top[m][r], sum[m][r],
                      q0 + (WARP * HIGH + m) * 16 + LANE / 4 + 8 * r, b, h);
    }
};

#define FLASH(name, d, keys, high, bias)                                                           \
    KERNEL(name, attention_args, 128, 2) { flash<d, keys, high, bias, 0>::run(a); }                \
    KERNEL(name##_f16, attention_args, 128, 2) { flash<d, keys, high, bias, 1>::run(a); }
FLASH(flash_64, 64, 64, 2, 0)
FLASH(flash_80, 80, 32, 2, 0)
FLASH(flash_96, 96, 32, 2, 0)
FLASH(flash_128, 128, 32, 2, 0)
FLASH(flash_192, 192, 32, 1, 0)
FLASH(flash_256, 256, 32, 1, 0)
FLASH(flash_64_bias, 64, 32, 2, 1)

/* Computes attention for all types and for heads of up to 32 * MOST elements, also with a bias and
 * a soft cap. Each warp computes one query. Lane l holds the output elements l, l + 32, ... */
template <int MOST> GPU void attend_any(const attention_args &a)
{
    int64_t job = (int64_t)blockIdx.x * 4 + WARP, i = job % a.n, h = job / a.n % a.H,
            b = job / a.n / a.H;
    if (b >= a.B)
        return;
    float   o[MOST], top = -INFINITY, sum = 0, q[MOST];
    int64_t lo, hi, hk = h * a.Hk / a.H, at = b * a.s_q[0] + i * a.s_q[1] + h * a.s_q[2];
    UNROLL
    for (int k = 0; k < MOST; k++) {
        o[k] = 0;
        q[k] = LANE + 32 * k < a.D ? load_one(a.q, at + LANE + 32 * k, a.q_type) : 0;
    }
    range_of(a, a.first + i, a.len[b], &lo, &hi);
    for (int64_t j = lo; j < hi; j++) {
        const attention_segment &g = segments_of(a)[segment_of(a, j)];
        int64_t                  k0 = b * g.s_k[0] + (j - g.start) * g.s_k[1] + hk * g.s_k[2],
                                 v0 = b * g.s_v[0] + (j - g.start) * g.s_v[1] + hk * g.s_v[2];
        float                    s = 0;
        UNROLL
        for (int k = 0; k < MOST; k++)
            s += LANE + 32 * k < a.D ? q[k] * load_one(g.k, k0 + LANE + 32 * k, a.q_type) : 0;
        s = gpu_warp_sum(s) * a.scale;
        if (a.softcap > 0)
            s = a.softcap * tanhf(s / a.softcap);
        if (a.bias)
            s += a.bias[h * a.s_bias[0] + (a.first + i) * a.s_bias[1] + j * a.s_bias[2]];
        float big = s > top || s != s ? s : top, shrink = big == -INFINITY ? 1 : expf(top - big),
              p = big == -INFINITY ? 0 : expf(s - big);
        sum = sum * shrink + p;
        top = big;
        UNROLL
        for (int k = 0; k < MOST; k++)
            o[k] = o[k] * shrink +
                   (LANE + 32 * k < a.D ? p * load_one(g.v, v0 + LANE + 32 * k, a.q_type) : 0);
    }
    at = b * a.s_out[0] + i * a.s_out[1] + h * a.s_out[2];
    float by = sum != 0 ? 1 / sum : 0;
    UNROLL
    for (int k = 0; k < MOST; k++)
        if (LANE + 32 * k < a.D) {
            store_one(a.out, at + LANE + 32 * k, a.out_type, o[k] * by);
        }
    if (a.lse && LANE == 0)
        a.lse[b * a.s_lse[0] + i * a.s_lse[1] + h * a.s_lse[2]] = sum != 0 ? top + logf(sum)
                                                                           : -INFINITY;
}

/* The plain attention has two kernels: one for heads of up to 512 elements, and one for heads of up
 * to 1152 elements. */
KERNEL(attention_any, attention_args, 128, 1)
{
    attend_any<16>(a);
}
KERNEL(attention_wide, attention_args, 128, 1)
{
    attend_any<36>(a);
}
