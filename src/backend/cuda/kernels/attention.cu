/* attention.cu - attention of 16 bits by tensor cores (flash), any other attention by plain sums
 *
 * flash: a block takes 64 queries of one head, each of its 4 warps 16 of them; keys and values come
 * in tiles of KEYS by cp.async, two of each under way. Scores, exponentials and sums stay in
 * registers. Tile t has the keys KEYS t .. KEYS (t + 1) - 1 of the global order wherever they lie,
 * so that the order of sums, and with it every bit, does not depend on how keys are cut into
 * segments. Head dims are filled up with zeros to D16 (72 -> 80).
 *
 * Above 128 the sums of a head take up to half of a thread's registers. The queries then stay in
 * shared memory, and a tile has 32 keys, so that a head of 256 takes 99 KiB: what every GPU has.
 *
 * Fragments of m16n8k16, with g = lane / 4 and t = lane % 4: A holds rows g and g + 8, B and C
 * column g / columns 2 t. */
#include "backend/cuda/kernels/args.h"
#include "backend/cuda/kernels/elements.cuh"

enum { QUERIES = 64 };

GPU const attention_segment *segments_of(const attention_args &a)
{
    return a.list ? a.list : a.segment;
}

/* Key j of all: which segment, and where. */
GPU int segment_of(const attention_args &a, int64_t j)
{
    const attention_segment *all = segments_of(a);
    int s = 0;
    while (s + 1 < a.segments && j >= all[s + 1].start)
        s++;
    return s;
}

/* Rows [from, from + KEYS) of keys or values to shared memory: chunks of 16 bytes, zeros past the
 * end and past D. */
template <int D16, int KEYS, int V>
GPU void load_tile(const attention_args &a, bf16 *to, int64_t from, int64_t end, int64_t b,
                   int64_t h)
{
    enum { CHUNKS = D16 / 8, ROW = D16 + 8 };
    const attention_segment *all = segments_of(a);
    int first = segment_of(a, from);
    UNROLL
    for (int i = 0; i < KEYS * CHUNKS / 128; i++) {
        int at = i * 128 + (int)threadIdx.x, r = at / CHUNKS, c = at % CHUNKS * 8;
        int64_t j = from + r;
        int s = first;
        while (s + 1 < a.segments && j >= all[s + 1].start)
            s++;
        const attention_segment &g = all[s];
        const int there = j < end && c < a.D;
        const bf16 *p = (const bf16 *)(V ? g.v : g.k);
        const int64_t *st = V ? g.s_v : g.s_k;
        if (there)
            p += b * st[0] + (j - g.start) * st[1] + h * st[2] + c;
        gpu_cp_async16(to + r * ROW + c, p, there ? 16 : 0);
    }
}

/* Keys that query i may see: [*lo, *hi). */
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

/* Two numbers of at most 1. */
template <int f16> GPU uint32_t pack_small(float lo, float hi)
{
    return f16 ? gpu_pack_f16(lo, hi) : gpu_pack_bf16(lo, hi);
}

/* f16: 1 for queries of F16, 0 for BF16; `out` has their type or F32. HELD: 1 where registers hold
 * the fragments of queries, 0 where each tile reads them from shared memory. */
template <int D16, int KEYS, int f16> GPU void flash(const attention_args &a)
{
    enum { ROW = D16 + 8, STEPS = D16 / 16, TILE = KEYS * ROW, HELD = D16 <= 128 };
    bf16 *qs = (bf16 *)gpu_shared();
    bf16 *sm = qs + (HELD ? 0 : QUERIES * ROW); /* keys 0, keys 1, values 0, values 1            */
    const int lane = LANE, warp = WARP, g = lane / 4, t = lane % 4;
    const int64_t b = blockIdx.y / a.H, h = blockIdx.y % a.H, hk = h * a.Hk / a.H;
    const int64_t q0 = (int64_t)blockIdx.x * QUERIES;
    const int64_t len = a.len[b];
    const float scale = a.scale * 1.4426950408889634f;
    int64_t lo, hi, lo1, hi1, last = q0 + QUERIES < a.n ? q0 + QUERIES : a.n;
    range_of(a, a.first + q0, len, &lo, &hi);
    range_of(a, a.first + last - 1, len, &lo1, &hi1);
    lo = lo < lo1 ? lo : lo1, hi = hi > hi1 ? hi : hi1;
    const int64_t tile0 = lo / KEYS, tiles = hi > lo ? (hi - 1) / KEYS + 1 - tile0 : 0;

    /* Queries: to a place of their own, or through the first tile's into registers. */
    const bf16 *qrow = qs + (warp * 16 + lane % 16) * ROW + lane / 16 * 8;
    uint32_t qf[HELD ? STEPS : 1][4];
    ROLLED
    for (int i = 0; i < QUERIES * (D16 / 8) / 128; i++) {
        int at = i * 128 + (int)threadIdx.x, r = at / (D16 / 8), c = at % (D16 / 8) * 8;
        const int there = q0 + r < a.n && c < a.D;
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
    if (HELD) {
        UNROLL
        for (int k = 0; k < STEPS; k++)
            gpu_ldmatrix4(qf[k], qrow + k * 16);
        gpu_sync();
    }

    float o[D16 / 8][4], top[2] = { -INFINITY, -INFINITY }, sum[2] = { 0, 0 };
    UNROLL
    for (int i = 0; i < D16 / 8; i++)
        UNROLL
    for (int k = 0; k < 4; k++)
        o[i][k] = 0;
    if (tiles) {
        load_tile<D16, KEYS, 0>(a, sm, tile0 * KEYS, len, b, hk);
        load_tile<D16, KEYS, 1>(a, sm + 2 * TILE, tile0 * KEYS, len, b, hk);
    }
    gpu_cp_commit();
    for (int64_t n = 0; n < tiles; n++) {
        const bf16 *ks = sm + (n & 1) * TILE, *vs = sm + (2 + (n & 1)) * TILE;
        if (n + 1 < tiles) {
            const int64_t next = (tile0 + n + 1) * KEYS;
            load_tile<D16, KEYS, 0>(a, sm + (~n & 1) * TILE, next, len, b, hk);
            load_tile<D16, KEYS, 1>(a, sm + (2 + (~n & 1)) * TILE, next, len, b, hk);
        }
        gpu_cp_commit();
        gpu_cp_wait<1>();
        gpu_sync();
        float s[KEYS / 8][4];
        UNROLL
        for (int i = 0; i < KEYS / 8; i++)
            s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0;
        UNROLL
        for (int k = 0; k < STEPS; k++) {
            uint32_t *q = qf[HELD ? k : 0];
            if (!HELD)
                gpu_ldmatrix4(q, qrow + k * 16);
            UNROLL
            for (int i = 0; i < KEYS / 16; i++) {
                uint32_t kf[4];
                gpu_ldmatrix4(kf, ks + (i * 16 + lane % 8 + lane / 16 * 8) * ROW + k * 16 +
                                      lane / 8 % 2 * 8);
                gpu_mma<f16>(s[2 * i], q, kf);
                gpu_mma<f16>(s[2 * i + 1], q, kf + 2);
            }
        }
        /* Masks, where the tile is not seen by all. */
        const int64_t j0 = (tile0 + n) * KEYS;
        float big[2] = { top[0], top[1] };
        UNROLL
        for (int r = 0; r < 2; r++) {
            int64_t i = a.first + q0 + warp * 16 + g + 8 * r, from, to;
            range_of(a, i, len, &from, &to);
            int f = (int)(from - j0 > 0 ? from - j0 : 0),
                e = (int)(to - j0 < (int)KEYS ? to - j0 : (int)KEYS);
            UNROLL
            for (int c = 0; c < KEYS / 8; c++)
                UNROLL
            for (int k = 0; k < 2; k++) {
                int j = c * 8 + 2 * t + k;
                float &v = s[c][2 * r + k];
                v = j >= f && j < e ? v * scale : -INFINITY;
                big[r] = fmaxf(big[r], v);
            }
            big[r] = fmaxf(big[r], gpu_xor(big[r], 1));
            big[r] = fmaxf(big[r], gpu_xor(big[r], 2));
        }
        UNROLL
        for (int r = 0; r < 2; r++) {
            const float zero = big[r] == -INFINITY ? 0 : big[r], shrink = gpu_exp2(top[r] - zero);
            top[r] = big[r];
            float add = 0;
            UNROLL
            for (int c = 0; c < KEYS / 8; c++)
                UNROLL
            for (int k = 0; k < 2; k++) {
                float &v = s[c][2 * r + k];
                v = gpu_exp2(v - zero);
                add += v;
            }
            sum[r] = sum[r] * shrink + add;
            UNROLL
            for (int i = 0; i < D16 / 8; i++) {
                o[i][2 * r] *= shrink;
                o[i][2 * r + 1] *= shrink;
            }
        }
        UNROLL
        for (int k = 0; k < KEYS / 16; k++) {
            const uint32_t p[4] = { pack_small<f16>(s[2 * k][0], s[2 * k][1]),
                                    pack_small<f16>(s[2 * k][2], s[2 * k][3]),
                                    pack_small<f16>(s[2 * k + 1][0], s[2 * k + 1][1]),
                                    pack_small<f16>(s[2 * k + 1][2], s[2 * k + 1][3]) };
            UNROLL
            for (int i = 0; i < STEPS; i++) {
                uint32_t vf[4];
                gpu_ldmatrix4_t(vf, vs + (k * 16 + lane % 16) * ROW + i * 16 + lane / 16 * 8);
                gpu_mma<f16>(o[2 * i], p, vf);
                gpu_mma<f16>(o[2 * i + 1], p, vf + 2);
            }
        }
        gpu_sync();
    }
    UNROLL
    for (int r = 0; r < 2; r++) {
        sum[r] += gpu_xor(sum[r], 1);
        sum[r] += gpu_xor(sum[r], 2);
        const int64_t i = q0 + warp * 16 + g + 8 * r;
        if (i >= a.n)
            continue;
        const float by = sum[r] > 0 ? 1 / sum[r] : sum[r] == 0 ? 0 : sum[r];
        const int64_t at = b * a.s_out[0] + i * a.s_out[1] + h * a.s_out[2];
        UNROLL
        for (int c = 0; c < D16 / 8; c++) {
            if (c * 8 + 2 * t >= a.D)
                continue;
            const float x = o[c][2 * r] * by, y = o[c][2 * r + 1] * by;
            const int64_t to = at + c * 8 + 2 * t;
            if (a.out_type == F32) {
                store_one(a.out, to, F32, x), store_one(a.out, to + 1, F32, y);
                continue;
            }
            const uint32_t two = pack_two(x, y, f16 ? F16 : BF16);
            uint16_t *p = (uint16_t *)a.out + to;
            if (a.out_wide)
                *(uint32_t *)p = two;
            else
                p[0] = (uint16_t)two, p[1] = (uint16_t)(two >> 16);
        }
        if (a.lse && t == 0)
            a.lse[b * a.s_lse[0] + i * a.s_lse[1] + h * a.s_lse[2]] =
                sum[r] > 0    ? (top[r] + log2f(sum[r])) * 0.6931471805599453f
                : sum[r] == 0 ? -INFINITY
                              : sum[r];
    }
}

#define FLASH(d, keys, blocks)                                                                     \
    KERNEL(flash_##d, attention_args, 128, blocks) { flash<d, keys, 0>(a); }                       \
    KERNEL(flash_##d##_f16, attention_args, 128, blocks) { flash<d, keys, 1>(a); }
FLASH(64, 64, 3)
FLASH(80, 64, 3)
FLASH(96, 64, 2)
FLASH(128, 64, 2)
FLASH(192, 32, 2)
FLASH(256, 32, 2)

/* Any types, head dims to 32 MOST, bias, soft cap: a warp a query; lane l holds the elements l, l +
 * 32, ... of the output. */
template <int MOST> GPU void attend_any(const attention_args &a)
{
    int64_t job = (int64_t)blockIdx.x * 4 + WARP, i = job % a.n, h = job / a.n % a.H,
            b = job / a.n / a.H;
    if (b >= a.B)
        return;
    float o[MOST], top = -INFINITY, sum = 0, q[MOST];
    int64_t lo, hi, hk = h * a.Hk / a.H, at = b * a.s_q[0] + i * a.s_q[1] + h * a.s_q[2];
    UNROLL
    for (int k = 0; k < MOST; k++) {
        o[k] = 0;
        q[k] = LANE + 32 * k < a.D ? load_one(a.q, at + LANE + 32 * k, a.q_type) : 0;
    }
    range_of(a, a.first + i, a.len[b], &lo, &hi);
    for (int64_t j = lo; j < hi; j++) {
        const attention_segment &g = segments_of(a)[segment_of(a, j)];
        int64_t k0 = b * g.s_k[0] + (j - g.start) * g.s_k[1] + hk * g.s_k[2],
                v0 = b * g.s_v[0] + (j - g.start) * g.s_v[1] + hk * g.s_v[2];
        float s = 0;
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
        a.lse[b * a.s_lse[0] + i * a.s_lse[1] + h * a.s_lse[2]] =
            sum != 0 ? top + logf(sum) : -INFINITY;
}

/* Head dims to 512, and to 1024. */
KERNEL(attention_any, attention_args, 128, 1) { attend_any<16>(a); }
KERNEL(attention_wide, attention_args, 128, 1) { attend_any<32>(a); }
