/* avx2.c - attention in AVX2 and FMA; BF16 operands are converted when packed */
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "backend/cpu/attn/attn.h"
#include "backend/cpu/attn/plan.h"

enum {
    LANES = 8, PAIRS = 0, TILES = 0, QROWS = 6, SCORE_WIDTH = 2, HALVES = 0, LDS = XD_ATTN_LDS
};

typedef float  unit;
typedef __m256 vf, vu, vh, vuh;

static inline vf v_zero(void) { return _mm256_setzero_ps(); }
static inline vf v_set(float x) { return _mm256_set1_ps(x); }
static inline vf v_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void v_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
static inline vf v_add(vf x, vf y) { return _mm256_add_ps(x, y); }
static inline vf v_mul(vf x, vf y) { return _mm256_mul_ps(x, y); }
static inline vf v_max(vf x, vf y) { return _mm256_max_ps(x, y); }
static inline vf v_fma(vf x, vf y, vf z) { return _mm256_fmadd_ps(x, y, z); }
static inline float v_first(vf x) { return _mm256_cvtss_f32(x); }
static inline vu v_units(const unit *p) { return _mm256_loadu_ps(p); }
static inline void v_put_units(unit *p, vu x) { _mm256_storeu_ps(p, x); }
static inline vu v_spread(const unit *p) { return _mm256_broadcast_ss(p); }
static inline vf v_dot(vf acc, vu x, vu y) { return _mm256_fmadd_ps(x, y, acc); }

static inline float v_hmax(vf x)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

static inline float v_hadd(vf x)
{
    __m128 m = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    m = _mm_add_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_add_ss(m, _mm_movehdup_ps(m)));
}

/* As in wide.h. */
static inline vf v_exp2(vf x)
{
    const vf magic = v_set(12582912.0f), t = v_add(x, magic);
    const vf f = _mm256_sub_ps(x, _mm256_sub_ps(t, magic));
    const vf live = _mm256_cmp_ps(x, v_set(-100.0f), _CMP_NLT_UQ);
    vf       p = v_fma(v_set(0.00132647273f), f, v_set(0.00967151299f));
    p = v_fma(p, f, v_set(0.0555073358f));
    p = v_fma(p, f, v_set(0.240222424f));
    p = v_fma(p, f, v_set(0.693147004f));
    p = v_fma(p, f, v_set(1.0f));
    const __m256i r = _mm256_add_epi32(_mm256_castps_si256(p),
                                       _mm256_slli_epi32(_mm256_castps_si256(t), 23));
    return _mm256_and_ps(live, _mm256_castsi256_ps(r));
}

/* Half a vector takes as long as a whole one: never called. */
static inline vh v_zero_half(void) { return v_zero(); }
static inline vh v_load_half(const float *p) { return v_load(p); }
static inline void v_store_half(float *p, vh x) { v_store(p, x); }
static inline vf v_wide(vh x) { return x; }
static inline vh v_add_half(vh x, vh y) { return v_add(x, y); }
static inline vuh v_units_half(const unit *p) { return v_units(p); }
static inline vh v_dot_half(vh acc, vu x, vuh y) { return v_dot(acc, x, y); }

static inline void put_probs(float *to, vf x, vf y)
{
    v_store(to, x);
    v_store(to + LANES, y);
}

#include "backend/cpu/attn/tile.h"

SCORE_TILE(score1, 6, 1, 0)
SCORE_TILE(score2, 6, 2, 0)
SUM_TILE(sum1, 12, 1, 0)
SUM_TILE(sum2, 6, 2, 0)
SUM_TILE(sum3, 4, 3, 0)
SOFT_TILE(soft1, 8, 1, 0, 1)
SOFT_TILE(soft2, 4, 2, 0, 2)
SOFT_TILE(soft3, 3, 3, 0, 2)

static score_fn *const SCORE_TILES[1][3] = { { 0, score1, score2 } };
static sum_fn *const   SUM_TILES[1][4] = { { 0, sum1, sum2, sum3 } };
static const int64_t   SUM_ROWS[] = { 0, 12, 6, 4 };
static soft_fn *const  SOFT_TILES[1][4] = { { 0, soft1, soft2, soft3 } };
static const int64_t   SOFT_ROWS[] = { 0, 8, 4, 3 };

static inline int64_t sum_width(int64_t left)
{
    return left == 1 ? 1 : left % 2 ? 3 : 2;
}

static inline __m256i first_lanes(int64_t n)
{
    const __m256i at = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n > 8 ? 8 : (int)n), at);
}

/* The first n lanes of x, -infinity in the others. */
static inline vf v_keep(vf x, int64_t n)
{
    return _mm256_blendv_ps(v_set(-INFINITY), x, _mm256_castsi256_ps(first_lanes(n)));
}

static inline vu get_units(const char *row, xd_dtype type, int64_t u, int64_t D)
{
    const int64_t left = D - u;
    if (left <= 0)
        return v_zero();
    if (type == XD_F32 && left >= 8)
        return _mm256_loadu_ps((const float *)(const void *)row + u);
    if (type == XD_F32)
        return _mm256_maskload_ps((const float *)(const void *)row + u, first_lanes(left));
    uint16_t h[8] = { 0 };
    memcpy(h, row + 2 * u, left < 8 ? (size_t)left * 2 : 16);
    const __m256i w = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)h));
    return _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
}

static inline vu get_values(const char *row, const char *next, xd_dtype type, int64_t c,
                            int64_t D)
{
    (void)next;
    return get_units(row, type, c, D);
}

static inline void transpose(vu v[8])
{
    vu t[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        v[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        v[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        v[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        v[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(v[i], v[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(v[i], v[i + 4], 0x31);
    }
    for (int i = 0; i < 8; i++)
        v[i] = t[i];
}

static inline void put_out(char *to, xd_dtype type, vf x, int64_t n)
{
    float    f[8];
    uint16_t h[8];
    if (type == XD_F32) {
        if (n >= 8)
            _mm256_storeu_ps((float *)(void *)to, x);
        else
            _mm256_maskstore_ps((float *)(void *)to, first_lanes(n), x);
        return;
    }
    _mm256_storeu_ps(f, x);
    for (int64_t i = 0; i < n; i++)
        h[i] = xd_f32_bf16(f[i]);
    memcpy(to, h, (size_t)n * 2);
}

#include "backend/cpu/attn/vector.h"

size_t xd_attn_scratch_avx2(const xd_attn_args *a, int threads)
{
    return flash_scratch(a, threads);
}

xd_status xd_attn_avx2(const xd_attn_args *a, void *tmp)
{
    return flash_attn(a, tmp);
}
