/* int8.c - computes attention with int8 scores, by the AVX512_VNNI instruction vpdpbusd.
 * Probabilities and values are bf16, as in avx512bf16.c.
 *
 * The method is SageAttention's (Zhang et al. 2024, arXiv:2410.02367): the mean of all keys of a
 * head is subtracted from the head's keys. Subtracting the mean does not change the result of the
 * softmax, and removes the common component that makes keys large. After this subtraction, each key
 * and each query is quantized to a row of integers with its own scale.
 *
 *   q.(k - mean) ~ scale_q scale_k sum_d iq[d] ik[d] with the integers iq of q and ik of k - mean
 *
 * Sums of integers are exact. The lowest bits of a sum are quantization noise, so a score is stored
 * in only 16 bits, after a multiplication by the ratio of the key's scale to the largest scale in
 * its key block. Probabilities are computed from these scores in 16-bit arithmetic. The difference
 * between a score and the row's largest score is multiplied by a factor. The product is an exponent
 * of two in fixed point with 7 fraction bits. Interpreted as bf16, such an exponent with the
 * fraction f has the mantissa 1 + f instead of 2^f; a table corrects the difference
 * (powers_tmpl.h). Eight instructions compute 32 probabilities from their scores.
 *
 * Keys are stored with 128 added, since vpdpbusd multiplies unsigned by signed bytes; accumulators
 * start with a value that cancels this offset. */
#include "backend/cpu/attn/attn.h"
#include "backend/cpu/attn/plan.h"

#include <math.h>

#include "backend/cpu/attn/pair_dots.h"
#include "backend/cpu/attn/powers.h"

enum {
    QUADS = 1,
    LDS = XD_ATTN_INT_LDS,
    /* the accumulators are rescaled when a row's largest score exceeds the row's reference score by
     * more than this exponent of two */
    LIFT = 8,
    /* a 16-bit score has this number of magnitude bits, so that the difference of two scores also
     * fits into 16 bits */
    TOP_BITS = 14,
    ONE = 128,        /* 1.0 in fixed point with 7 fraction bits */
    BIAS = 127 * ONE, /* exponent bias of bf16 in fixed point */
    FAR = 16383,      /* largest difference of two exponents in fixed point, about 2^-128 */
};

#define ONES 0x3f803f80u        /* the bits of two bf16 values of 1 */

/* Parameters of a query, which convert its scores with the current key block to exponents of two.
 * Each 16-bit parameter is stored twice in a 32-bit integer. The exponent of a score is factor
 * ((score - most) << left) / 2^15 + add, with score - most clamped to at least `least`. */
typedef struct query {
    float    scale; /* scale of the query's integers, times all constant factors */
    int32_t  start; /* initial value of accumulators: -128 times the sum of the query's integers */
    uint32_t most, least, left, factor, add;
} query;
_Static_assert(sizeof(query) <= XD_ATTN_INT_ROW * sizeof(float), "the plan allocates queries");

/* The state of a softmax in which the scores of a few query rows become probabilities in place, row
 * by row, 32 scores in each step. */
typedef struct softmax_state {
    unit        *row;   /* first row of scores; rows are LDS 32-bit units apart */
    const query *query; /* parameters of the query of each row */
    float       *sum;   /* sums of the probabilities of each row, LANES floats a row */
    /* first 32-bit unit of the next step; number of units of a row, rounded up to full steps */
    int64_t      at, width;
    int64_t      left; /* number of remaining steps of 32 scores */
} softmax_state;

static const uint16_t LESS[XD_POWERS] __attribute__((aligned(64))) = { XD_POWERS_LESS };

/* Computes 32 probabilities from the 32 scores at p. */
static inline vu powers(const unit *p, const query *q)
{
    const vu less0 = _mm512_load_si512(LESS), less1 = _mm512_load_si512(LESS + 32);
    vu       x = _mm512_subs_epi16(v_units(p), v_spread(&q->most));
    x = _mm512_max_epi16(x, v_spread(&q->least));
    x = _mm512_sllv_epi16(x, v_spread(&q->left));
    x = _mm512_add_epi16(_mm512_mulhrs_epi16(x, v_spread(&q->factor)), v_spread(&q->add));
    return _mm512_subs_epu16(x, _mm512_permutex2var_epi16(less0, _mm512_srli_epi16(x, 1), less1));
}

static inline void put_powers(unit *p, vu x, float *sum)
{
    v_put_units(p, x);
    v_store(sum, v_dot(v_load(sum), x, _mm512_set1_epi32((int)ONES)));
}

static inline void softmax_next(softmax_state *s)
{
    unit *p = s->row + s->at;
    put_powers(p, powers(p, s->query), s->sum);
    s->at += LANES;
    if (s->at == s->width) {
        s->at = 0;
        s->row += LDS;
        s->query++;
        s->sum += LANES;
    }
    s->left--;
}

#include "backend/cpu/attn/wide_sums_tmpl.h"
#include "backend/cpu/attn/values_tmpl.h"

/* ---- integers ----------------------------------------------------------------------------- */

/* Returns elements [c, c + 16) of a row, minus the mean unless `mean` is NULL, with zeros from
 * element D on. */
static inline vf elements(const char *row, const float *mean, int64_t c, int64_t D)
{
    const vf x = float_row(row, XD_BF16, c, D);
    return mean ? v_sub(x, v_load(mean + c)) : x;
}

/* Returns the largest magnitude of the elements of a row from which `mean` is subtracted, or NaN if
 * an element is NaN. */
static float largest(const char *row, const float *mean, int64_t D)
{
    /* Magnitudes are compared as integers, because the bit patterns of floats are in the order of
     * their magnitudes. The bits of a NaN are the largest. */
    vu most = _mm512_setzero_si512();
    for (int64_t c = 0; c < D; c += LANES)
        most = _mm512_max_epu32(most, _mm512_castps_si512(v_abs(elements(row, mean, c, D))));
    const uint32_t bits = _mm512_reduce_max_epu32(most);
    float          x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Returns 127 / most, the factor that quantizes a row with the largest magnitude `most`, or 0 if
 * the row cannot be quantized. */
static float inverse_of(float most)
{
    return most > 1e-30f && most < INFINITY ? 127 / most : 0;
}

/* Returns 64 elements of a row from element c on, multiplied by `by` and rounded to int8, as 16
 * 32-bit units. */
static inline vu integers(const char *row, const float *mean, int64_t c, int64_t D, float by)
{
    __m128i x[4];
    for (int i = 0; i < 4; i++) {
        const int64_t at = c + i * LANES;
        x[i] = at < D ? _mm512_cvtsepi32_epi8(
                            _mm512_cvtps_epi32(v_mul(elements(row, mean, at, D), v_set(by))))
                      : _mm_setzero_si128();
    }
    const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(x[0]), x[1], 1),
                  high = _mm256_inserti128_si256(_mm256_castsi128_si256(x[2]), x[3], 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

/* Adds a dot product of four bytes to each 32-bit lane of `sum`. Inline assembly is used because
 * gcc 12 keeps copies of the accumulators in memory if the intrinsic is used. */
static inline vu int_dot(vu sum, vu bytes, vu signed_bytes)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(bytes), "v"(signed_bytes));
    return sum;
}

/* ---- keys --------------------------------------------------------------------------------- */

static float *mean_of(const xd_attn_plan *p, unit *pair)
{
    return (float *)(void *)(pair + p->means);
}

/* Sums the keys of a key block. The sum of the keys is stored in the memory into which the key
 * block will be packed. */
static void sum_block(const job *w, int64_t pair, int64_t kb)
{
    const xd_attn_plan *p = &w->p;
    const char         *k[MOST_KEYS], *v[MOST_KEYS];
    const int64_t       b = (w->first + pair) / p->Hk, h = (w->first + pair) % p->Hk;
    const int64_t       j0 = kb * p->keys, n = xd_min(xd_attn_len(w->a, b, p->m) - j0, p->keys);
    float              *to = (float *)(void *)(packed_pair(w, pair) + kb * p->knext);
    if (n <= 0)
        return;
    xd_attn_rows(w->a, b, h, j0, n, k, v);
    prefetch_rows(k, 0, n, (size_t)p->D * 2);
    for (int64_t c = 0; c < p->dp; c += LANES) {
        vf sum = v_zero();
        for (int64_t j = 0; j < n; j++)
            sum = v_add(sum, elements(k[j], NULL, c, p->D));
        v_store(to + c, sum);
    }
}

static void sum_job(void *ctx, int64_t begin, int64_t end, int thread)
{
    const job    *w = ctx;
    const int64_t pairs = w->count / w->lots;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        for (int64_t x = 0; x < pairs; x++)
            sum_block(w, i % w->lots * pairs + x, i / w->lots);
}

/* Computes the mean of the keys of each (batch, key head) pair. The sums of the key blocks are
 * added in the order of the blocks. */
static void mean_job(void *ctx, int64_t begin, int64_t end, int thread)
{
    const job          *w = ctx;
    const xd_attn_plan *p = &w->p;
    (void)thread;
    for (int64_t pair = begin; pair < end; pair++) {
        unit         *all = packed_pair(w, pair);
        float        *mean = mean_of(p, all);
        const int64_t n = xd_attn_len(w->a, (w->first + pair) / p->Hk, p->m);
        memset(mean, 0, (size_t)p->dp * sizeof *mean);
        for (int64_t kb = 0; kb * p->keys < n; kb++)
            for (int64_t c = 0; c < p->dp; c++)
                mean[c] += ((const float *)(const void *)(all + kb * p->knext))[c];
        for (int64_t c = 0; c < p->dp && n; c++)
            mean[c] /= (float)n;
    }
}

static void measure_keys(job *w)
{
    xd_par_dynamic(w->lots * w->p.kblocks, sum_job, w);
    xd_par_for(w->count, mean_job, w);
}

/* Stores two things after the packed keys: the ratio of each key's scale to the largest scale of
 * the key block, and the largest magnitude of the block's keys. The ratios are in the order in
 * which the scores of the keys are stored. The ratio of the last key is repeated for the keys that
 * pad the block. */
static void put_scales(const xd_attn_plan *p, const float *most, int64_t n, unit *to)
{
    int16_t *share = (int16_t *)(void *)(to + p->scales);
    float    top = 0;
    for (int64_t j = 0; j < n; j++)
        top = most[j] > top || most[j] != most[j] ? most[j] : top;
    for (int64_t j = 0; j < step_count(n) * STEP_KEYS; j++) {
        const float of = most[xd_min(j, n - 1)], x = of < top ? of / top * 32768 + 0.5f : 32767;
        share[j / 32 * 32 + j % 16 * 2 + j / 16 % 2] = (int16_t)(x < 32767 ? x : 32767);
    }
    *(float *)(void *)(to + p->kunits - LANES) = top > 1e-30f || top != top ? top : 0;
}

static void place_keys(const job *w, const char **k, const char **v, int64_t n, int64_t kb,
                       unit *pair)
{
    const xd_attn_plan *p = &w->p;
    const float        *mean = mean_of(p, pair);
    unit               *to = pair + kb * p->knext;
    float               most[MOST_KEYS];
    prefetch_rows(k, 0, n, (size_t)p->D * 2);
    for (int64_t j = 0; j < n; j++)
        most[j] = largest(k[j], mean, p->D);
    prefetch_rows(v, 0, n, (size_t)p->D * 2);
    for (int64_t j = 0; j < n; j += SCORE_WIDTH * LANES) {
        const int64_t nv = xd_min(2 * step_count(n - j), SCORE_WIDTH);
        for (int64_t g = 0; g < nv; g++)
            for (int64_t u = 0; u < p->kdu; u += LANES) {
                vu x[LANES];
                for (int64_t i = 0; i < LANES; i++) {
                    const int64_t key = xd_min(j + g * LANES + i, n - 1);
                    x[i] = integers(k[key], mean, 4 * u, p->D, inverse_of(most[key]));
                }
                transpose(x);
                for (int64_t i = 0; i < LANES && u + i < p->kdu; i++)
                    v_put_units(to + j * p->kdu + ((u + i) * nv + g) * LANES,
                                _mm512_xor_si512(x[i], _mm512_set1_epi8(-128)));
            }
    }
    put_scales(p, most, n, to);
}

/* ---- queries ------------------------------------------------------------------------------ */

/* Returns the parameters of query i. The parameters of all queries are stored in the block's
 * scratch, after the maxima (`low`) and the sums (`l`) of the rows. */
static query *query_of(const block *k, int64_t i)
{
    return (query *)(void *)(k->l + (k->l - k->low)) + i;
}

/* Returns the number of low bits of a sum of integers that are dropped to store the sum as a 16-bit
 * score. */
static int noise_bits(int64_t D)
{
    int bits = 0;
    while (D * 127 * 127 >> bits > (1 << TOP_BITS))
        bits++;
    return bits;
}

static void load_query(const job *w, const block *k, int64_t i)
{
    const xd_attn_plan *p = &w->p;
    const float         most = largest(k->in[i], NULL, p->D), by = inverse_of(most);
    vu                  sum = _mm512_setzero_si512();
    for (int64_t u = 0; u < p->du; u += LANES) {
        const vu x = integers(k->in[i], NULL, 4 * u, p->D, by);
        sum = int_dot(sum, _mm512_set1_epi8(-128), x);
        v_put_units(k->q + i * p->ldq + u, x);
    }
    const float unit_score = (float)(1 << noise_bits(p->D)) / (127 * 127);
    *query_of(k, i) = (query){
        .scale = (by > 0 || most > 1 || most != most ? most : 0) * w->a->scale * log2e * unit_score,
        .start = -_mm512_reduce_add_epi32(sum),
    };
}

static void load_queries(const job *w, const block *k)
{
    const xd_attn_plan *p = &w->p;
    const int64_t       rows = (k->n + QROWS - 1) / QROWS * QROWS;
    for (int64_t i = 0; i < k->n; i++)
        load_query(w, k, i);
    memset(k->q + k->n * p->ldq, 0, (size_t)((rows - k->n) * p->ldq) * 4);
    for (int64_t i = k->n; i < rows; i++)
        *query_of(k, i) = (query){ 0 };
}

/* Returns the dot product of query i and the mean of the keys. The int8 scores do not include this
 * product. */
static double left_out(const job *w, const block *k, int64_t i)
{
    const xd_attn_plan *p = &w->p;
    const float        *mean = mean_of(p, packed_pair(w, k->b * p->Hk + k->h / p->rep - w->first));
    vf                  sum = v_zero();
    for (int64_t c = 0; c < p->D; c += LANES)
        sum = v_fma(elements(k->in[i], NULL, c, p->D), v_load(mean + c), sum);
    return (double)(w->a->scale * v_hadd(sum));
}

/* ---- scores ------------------------------------------------------------------------------- */

/* Converts two vectors of accumulators, x and y, to 16-bit scores. Each 32-bit element of the
 * result has a score of x in its low half and a score of y in its high half. */
static inline vu halves(vu x, vu y, vu down, vu up, vu shares)
{
    const vu high = _mm512_set1_epi32((int)0xffff0000u);
    x = _mm512_srlv_epi32(x, down);
    y = _mm512_sllv_epi32(y, up);
    return _mm512_mulhrs_epi16(_mm512_ternarylogic_epi32(high, y, x, 0xca), shares);
}

/* The operands and results of a tile of scores, which has 6 queries and 64 or 32 keys. */
typedef struct score_job {
    const unit  *q;
    int64_t      ldq, units;
    const unit  *keys, *shares;
    const query *query;
    unit        *s, *most; /* 16-bit scores; 32 maxima of each row of scores */
    vu           down, up;
} score_job;

#define SCORE_BEGIN(i)                                                                             \
    vu c##i##_0 = _mm512_set1_epi32(t->query[i].start), c##i##_1 = c##i##_0, c##i##_2 = c##i##_0,  \
       c##i##_3 = c##i##_0;

#define SCORE_STEP(i)                                                                              \
    {                                                                                              \
        const vu x = v_spread(q + (i)*ldq);                                                        \
        c##i##_0 = int_dot(c##i##_0, b0, x);                                                       \
        c##i##_1 = int_dot(c##i##_1, b1, x);                                                       \
        if (WIDE) {                                                                                \
            c##i##_2 = int_dot(c##i##_2, b2, x);                                                   \
            c##i##_3 = int_dot(c##i##_3, b3, x);                                                   \
        }                                                                                          \
    }

#define SCORE_END(i)                                                                               \
    {                                                                                              \
        const vu x = halves(c##i##_0, c##i##_1, t->down, t->up, v_units(t->shares));               \
        vu       most = _mm512_max_epi16(v_units(t->most + (i)*LANES), x);                         \
        v_put_units(t->s + (i)*LDS, x);                                                            \
        if (WIDE) {                                                                                \
            const vu y = halves(c##i##_2, c##i##_3, t->down, t->up, v_units(t->shares + LANES));   \
            most = _mm512_max_epi16(most, y);                                                      \
            v_put_units(t->s + (i)*LDS + LANES, y);                                                \
        }                                                                                          \
        v_put_units(t->most + (i)*LANES, most);                                                    \
    }

#define INT_SCORE_TILE(name, WIDTH)                                                                \
    static void name(const score_job *t)                                                           \
    {                                                                                              \
        enum { WIDE = (WIDTH) == 4 };                                                              \
        const unit   *q = t->q, *b = t->keys;                                                      \
        const int64_t ldq = t->ldq;                                                                \
        TILE_ROWS_6(SCORE_BEGIN)                                                                   \
        for (const unit *end = q + t->units; q < end; q++, b += (WIDTH) * LANES) {                 \
            const vu b0 = v_units(b), b1 = v_units(b + LANES);                                     \
            const vu b2 = WIDE ? v_units(b + 2 * LANES) : b0;                                      \
            const vu b3 = WIDE ? v_units(b + 3 * LANES) : b0;                                      \
            TILE_ROWS_6(SCORE_STEP)                                                                \
            (void)b2, (void)b3;                                                                    \
        }                                                                                          \
        TILE_ROWS_6(SCORE_END)                                                                     \
    }

INT_SCORE_TILE(scores_of_32, 2)
INT_SCORE_TILE(scores_of_64, 4)

static void compute_scores(const job *w, const block *k, int64_t n, const unit *keys)
{
    const xd_attn_plan *p = &w->p;
    const int           noise = noise_bits(p->D);
    unit               *most = (unit *)(void *)k->lane_max;
    score_job           t = { .ldq = p->ldq,
                              .units = p->du,
                              .down = _mm512_set1_epi32(noise),
                              .up = _mm512_set1_epi32(16 - noise) };
    for (int64_t i = 0; i < k->n + QROWS; i++)
        v_put_units(most + i * LANES, _mm512_set1_epi16(INT16_MIN));
    for (int64_t j = 0; j < n; j += SCORE_WIDTH * LANES) {
        const int wide = n - j > STEP_KEYS;
        t.keys = keys + j * p->kdu;
        t.shares = keys + p->scales + j / 2;
        for (int64_t i = 0; i < k->n; i += QROWS) {
            t.q = k->q + i * p->ldq;
            t.query = query_of(k, i);
            t.s = (unit *)(void *)(k->s + i * LDS + j / 2);
            t.most = most + i * LANES;
            (wide ? scores_of_64 : scores_of_32)(&t);
        }
    }
}

/* ---- softmax ------------------------------------------------------------------------------ */

/* Returns the largest of 32 16-bit values. */
static inline int max_of(vu x)
{
    const __m256i y = _mm256_max_epi16(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
    const __m128i z = _mm_max_epi16(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
    return (int16_t)(0x7fff ^ _mm_extract_epi16(
                                  _mm_minpos_epu16(_mm_xor_si128(z, _mm_set1_epi16(0x7fff))), 0));
}

static uint32_t twice(int x)
{
    return (uint32_t)(uint16_t)x * 0x10001u;
}

/* Sets the parameters of a query with which the scores of the current key block are converted to
 * exponents of two. `step` is the increase of the exponent for an increase of the score by 1, and
 * `add` is the exponent of the largest score, both in fixed point. */
static void set_exponents(query *q, int most, float step, float add)
{
    if (!(add > 4)) { /* every probability is 0, because its power of two is too small */
        *q = (query){ .scale = q->scale, .start = q->start };
        return;
    }
    step = step < 8192 ? step : 8192;
    /* Differences of exponents are clamped to at least 2 - add, so that no exponent becomes
     * negative by rounding. */
    const float lowest = 2 - (add < FAR ? add : FAR);
    /* `step` is split into factor * 2^(left - 15), with a factor below 2^15. */
    const int   e = _mm_cvtsi128_si32(_mm_castps_si128(_mm_set_ss(step))) >> 23;
    const int   left = e > 126 ? e - 126 : 0;
    const int   factor = (int)(step * (float)(32768 >> left) + 0.5f);
    q->most = twice(most);
    q->least = twice((int)(lowest / (step > 0.5f ? step : 0.5f)));
    q->left = twice(left);
    q->factor = twice(factor < 32767 ? factor : 32767);
    q->add = twice((int)(add + 0.5f));
}

/* Sets the reference score of query row i to the row's largest score. An earlier reference score is
 * kept if it is lower than the largest score by at most LIFT exponents of two. `scale` is the
 * largest scale of a key in the key block. */
static void set_reference(const job *w, const block *k, int64_t i, float scale)
{
    query      *q = query_of(k, i);
    const float step = q->scale * scale;
    const int   most = max_of(v_units((const unit *)(const void *)(k->lane_max + i * LANES)));
    const float top = (float)most * step;
    v_store(k->sum + i * LANES, v_zero());
    if (!(step < INFINITY) || !(k->l[i] == k->l[i])) {
        k->l[i] = NAN;
        set_exponents(q, 0, 0, 0);
        return;
    }
    if (top > k->top[i] + (float)LIFT) {
        if (k->top[i] > -INFINITY) {
            const float by = exp2f(k->top[i] - top);
            k->l[i] *= by;
            scale_row(k->o + i * w->p.dp, w->p.dp, by);
        }
        k->top[i] = top;
    }
    set_exponents(q, most, step * ONE, BIAS + (top - k->top[i]) * ONE);
}

static softmax_state soft_rows(const block *k, int64_t i, int64_t height, int64_t n, float c)
{
    const int64_t rows = xd_min(k->n - i, height), steps = n / STEP_KEYS;
    (void)c;
    return (softmax_state){
        .row = (unit *)(void *)(k->s + i * LDS),
        .query = query_of(k, i),
        .sum = k->sum + i * LANES,
        .width = steps * LANES,
        .left = rows > 0 ? rows * steps : 0,
    };
}

/* Computes the probabilities of row i in the last step, which has fewer than 32 keys. The
 * probabilities of keys from n on become 0. */
static void soft_end(const block *k, int64_t i, int64_t n)
{
    const int64_t  left = n % STEP_KEYS;
    const uint32_t low = left < LANES ? (1u << left) - 1 : 0xffff,
                   high = left > LANES ? (1u << (left - LANES)) - 1 : 0;
    unit          *p = (unit *)(void *)(k->s + i * LDS) + n / STEP_KEYS * LANES;
    const vu       x = powers(p, query_of(k, i));
    const vu keep = _mm512_or_si512(_mm512_maskz_set1_epi32((__mmask16)low, 0xffff),
                                    _mm512_maskz_set1_epi32((__mmask16)high, (int)0xffff0000u));
    put_powers(p, _mm512_and_si512(x, keep), k->sum + i * LANES);
}

static void attend_key_block(const job *w, block *k, int64_t kb, const unit *keys)
{
    const int64_t n = xd_min(k->keys - kb * w->p.keys, w->p.keys);
    const float   scale = *(const float *)(const void *)(keys + w->p.kunits - LANES);
    compute_scores(w, k, n, keys);
    for (int64_t i = 0; i < k->n; i++) {
        set_reference(w, k, i, scale);
        if (n % STEP_KEYS)
            soft_end(k, i, n);
    }
    softmax_and_sum(w, k, n, keys + w->p.kunits, 0);
    for (int64_t i = 0; i < k->n; i++)
        k->l[i] += v_hadd(v_load(k->sum + i * LANES));
    k->begun = 1;
}

static void attend_keys(const job *w, block *k, int64_t first, int64_t end, const unit *packed)
{
    const size_t out = (size_t)w->p.D * xd_dtype_size(w->a->out.type);
    init_block(w, k);
    for (int64_t i = 0; i < k->n; i++)
        prefetch_next_block(k, i, out, (size_t)w->p.D * 2);
    for (int64_t kb = first; kb < end; kb++)
        attend_key_block(w, k, kb, packed + kb * w->p.knext);
}

size_t xd_attn_scratch_int8(const xd_attn_args *a, int threads)
{
    return flash_scratch(a, threads);
}

xd_status xd_attn_int8(const xd_attn_args *a, void *tmp)
{
    return flash_attn(a, tmp);
}
