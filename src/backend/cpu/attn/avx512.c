/* avx512.c - computes attention by AVX-512 instructions, with f32 arithmetic. BF16 operands are
 * converted to f32 when they are packed. */
#include "backend/cpu/attn/attn.h"
#include "backend/cpu/attn/plan.h"

enum { PAIRS = 0 };

#include "backend/cpu/attn/wide_tmpl.h"

typedef float  unit;
typedef __m512 vu;
typedef __m256 vuh;

/* clang-format off */
static inline vu   v_units(const unit *p) { return _mm512_loadu_ps(p); }
static inline void v_put_units(unit *p, vu x) { _mm512_storeu_ps(p, x); }
static inline vu   v_spread(const unit *p) { return _mm512_set1_ps(*p); }
static inline vf   v_dot(vf acc, vu x, vu y) { return _mm512_fmadd_ps(x, y, acc); }

static inline vuh v_units_half(const unit *p) { return _mm256_loadu_ps(p); }
/* clang-format on */

static inline vh v_dot_half(vh acc, vu x, vuh y)
{
    return _mm256_fmadd_ps(_mm512_castps512_ps256(x), y, acc);
}

static inline void put_probs(float *to, vf x, vf y)
{
    v_store(to, x);
    v_store(to + LANES, y);
}

#include "backend/cpu/attn/wide_tiles_tmpl.h"

static inline vu get_units(const char *row, xd_dtype type, int64_t u, int64_t D)
{
    return float_row(row, type, u, D);
}

static inline vu get_values(const char *row, const char *next, xd_dtype type, int64_t c, int64_t D)
{
    (void)next;
    return float_row(row, type, c, D);
}

static inline void transpose(vu v[16])
{
    __m512i r[16];
    for (int i = 0; i < 16; i++)
        r[i] = _mm512_castps_si512(v[i]);
    transpose_bits(r);
    for (int i = 0; i < 16; i++)
        v[i] = _mm512_castsi512_ps(r[i]);
}

#include "backend/cpu/attn/vector_tmpl.h"

size_t xd_attn_scratch_avx512(const xd_attn_args *a, int threads)
{
    return flash_scratch(a, threads);
}

xd_status xd_attn_avx512(const xd_attn_args *a, void *tmp)
{
    return flash_attn(a, tmp);
}
