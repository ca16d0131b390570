/* kernels.c - row and element-wise kernels of the CPU device, compiled once per instruction set
 *
 * The kernels are plain loops that compilers vectorize. Rows are processed in chunks that stay in
 * the L1 cache, with f32 arithmetic for all element types. No loop calls a function of libm. The
 * macro ISA (c, avx2, avx512, avx512bf16) names the kernel table that a compilation of this file
 * exports. */
#include "backend/cpu/cpu.h"

#include <math.h>
#include <string.h>

#include "backend/cpu/element.h"
#ifdef __AVX512F__
#include "backend/cpu/gelu.h"
#endif
#include "backend/cpu/vec.h"
#include "base/clock.h"
#include "base/par.h"

enum {
    CHUNK = 1024, /* number of elements of a row in a chunk */
    GRAIN = 8192, /* minimum elements for which several threads are used */
};

/* ---- activations -------------------------------------------------------------------------- */

/* Computes e^x with a relative error of 1.2e-7. The result is 0 for x below -87.7, infinite for x
 * above 88.3, and arbitrary for a NaN. */
static inline float exp_f(float x)
{
    x = x < 88.5f ? x : 88.5f;
    x = x > -88.0f ? x : -88.0f;
    /* The last bit of this sum has the weight 1, so that the product is rounded to an integer. */
    float   n = x * 1.44269504f + 12582912.0f;
    int32_t e = (int32_t)(float_bits(n) - float_bits(12582912.0f));
    n -= 12582912.0f;
    /* ln 2 is split into two constants. The product of n and the first part of ln 2 is exact. */
    float r = x - n * 0.693359375f;
    r += n * 2.12194440e-4f;
    float p = 1.393365033e-3f;
    p = p * r + 8.363181545e-3f;
    p = p * r + 4.166646493e-2f;
    p = p * r + 1.666657697e-1f;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
    return p * bits_float((uint32_t)(e + 127) << 23);
}

static inline float sigmoid_f(float x)
{
    float y = 1.0f / (1.0f + exp_f(-x));
    return x != x ? x : y; /* a NaN stays a NaN */
}

static inline float silu_f(float x)
{
    return x / (1.0f + exp_f(-x));
}

/* Computes GELU, approximated by x times the logistic function of 1.702 x (Hendrycks and Gimpel
 * 2016, section 2). */
static inline float gelu_quick_f(float x)
{
    return x / (1.0f + exp_f(-1.702f * x));
}

/* Computes the tanh approximation of GELU, 0.5 x (1 + tanh(u)) = x / (1 + e^(-2u)), u = sqrt(2/pi)
 * (x + 0.044715 x^3) (Hendrycks and Gimpel 2016). */
static inline float gelu_tanh_f(float x)
{
    float u2 = 1.59576912f * (x + 0.044715f * x * x * x);
    return x / (1.0f + exp_f(-u2));
}

/* Computes exact GELU, x times the normal distribution function, with erfc(z) = e^(-z^2) t P(t) and
 * t = 1 / (1 + z/2). P is fitted to 6e-8 on 0 <= z <= 10. */
static inline float gelu_erf_f(float x)
{
    float z = fabsf(x) * 0.707106781f, t = 1.0f / (1.0f + 0.5f * z);
    float p = -5.831824270e-2f;
    p = p * t + 2.811919286e-1f;
    p = p * t - 4.808026843e-1f;
    p = p * t + 2.714708586e-1f;
    p = p * t - 2.259142480e-2f;
    p = p * t + 2.011966630e-1f;
    p = p * t + 2.434268150e-1f;
    p = p * t + 2.823378584e-1f;
    p = p * t + 2.820881945e-1f;
    float half = 0.5f * p * t * exp_f(-z * z);
    return x * (x > 0.0f ? 1.0f - half : half);
}

/* Computes tanh as (1 - e) / (1 + e), e = e^(-2 |x|), with the sign of x. A NaN stays a NaN. */
static inline float tanh_f(float x)
{
    float e = exp_f(-2.0f * fabsf(x)), t = (1.0f - e) / (1.0f + e);
    return x > 0.0f ? t : x < 0.0f ? -t : x;
}

/* Computes sin(x)^2, whose period is pi. pi is split into three constants; the products of n and
 * the first two are exact for |x| < 25000. The sine of the remainder is a Taylor polynomial. For
 * larger |x|, only the limits 0 and 1 are right. A NaN stays a NaN, and an infinity becomes one. */
static inline float sine_squared_f(float x)
{
    float n = x * 0.318309886f + 12582912.0f;
    n -= 12582912.0f;
    float r = x - n * 3.140625f;
    r -= n * 9.67502594e-4f;
    r -= n * 1.50995799e-7f;
    r = r > 1.6f ? 1.6f : r < -1.6f ? -1.6f : r;
    float z = r * r, p = -2.50521084e-8f;
    p = p * z + 2.75573192e-6f;
    p = p * z - 1.98412698e-4f;
    p = p * z + 8.33333333e-3f;
    p = p * z - 1.66666667e-1f;
    p = p * z * r + r;
    return p * p;
}

static inline float relu_f(float x)
{
    return x < 0.0f ? 0.0f : x; /* a NaN stays a NaN */
}

static void apply_act(float *y, const float *x, int64_t n, xd_act kind)
{
    switch (kind) {
    case XD_GELU_TANH:
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            y[i] = gelu_tanh_f(x[i]);
        break;
    case XD_GELU_ERF:
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            y[i] = gelu_erf_f(x[i]);
        break;
    case XD_GELU_QUICK:
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            y[i] = gelu_quick_f(x[i]);
        break;
    case XD_SILU:
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            y[i] = silu_f(x[i]);
        break;
    case XD_RELU:
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            y[i] = relu_f(x[i]);
        break;
    case XD_TANH:
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            y[i] = tanh_f(x[i]);
        break;
    case XD_SIGMOID:
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            y[i] = sigmoid_f(x[i]);
        break;
    case XD_SINE_SQUARED:
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            y[i] = sine_squared_f(x[i]);
        break;
    default:
        if (y != x)
            memcpy(y, x, (size_t)n * sizeof *y);
    }
}

/* ---- chunks ------------------------------------------------------------------------------- */

static void widen(float *to, const void *from, xd_dtype t, int64_t n)
{
    if (t == XD_BF16) {
        from_bf16s(to, from, n);
    } else if (t == XD_F16) {
        const uint16_t *p = from;
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            to[i] = from_f16(p[i]);
    } else if (t == XD_F8E4M3 || t == XD_F8E5M2) {
        const uint8_t *p = from;
        int            e5m2 = t == XD_F8E5M2;
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            to[i] = e5m2 ? from_f16((uint16_t)(p[i] << 8)) : from_e4m3(p[i]);
    } else if (t == XD_F64) {
        const double *p = from;
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            to[i] = (float)p[i];
    } else {
        memcpy(to, from, (size_t)n * sizeof *to);
    }
}

static void narrow(void *to, xd_dtype t, const float *from, int64_t n)
{
    if (t == XD_BF16) {
        to_bf16s(to, from, n);
    } else if (t == XD_F16) {
        uint16_t *p = to;
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            p[i] = to_f16(from[i]);
    } else if (to != (const void *)from) {
        memcpy(to, from, (size_t)n * sizeof *from);
    }
}

/* Converts floats to type t like the function `narrow`, but keeps denormal values. */
static void round_all(void *to, xd_dtype t, const float *from, int64_t n)
{
    if (t != XD_BF16) {
        narrow(to, t, from, n);
        return;
    }
    uint16_t *p = to;
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        p[i] = to_bf16(from[i]);
}

/* Returns elements [i, i + n) of a row as floats: the row's own memory if the row is F32, else
 * `buf` with the converted elements. */
static const float *load_floats(float *buf, const char *row, xd_dtype t, int64_t i, int64_t n)
{
    const char *p = row + i * (int64_t)xd_dtype_size(t);
    if (t == XD_F32)
        return (const float *)(const void *)p;
    widen(buf, p, t, n);
    return buf;
}

/* Returns the memory in which the elements of an output row from element i on are computed: the
 * row's own memory if the row is F32, else `buf`, which `narrow` then converts to the row's
 * type. */
static float *output_floats(float *buf, char *row, xd_dtype t, int64_t i)
{
    return t == XD_F32 ? (float *)(void *)row + i : buf;
}

static char *element_at(char *row, xd_dtype t, int64_t i)
{
    return row + i * (int64_t)xd_dtype_size(t);
}

static int64_t row_length(const xd_tensor *t)
{
    return t->nd ? t->d[t->nd - 1] : 1;
}

static int64_t row_count(const xd_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i + 1 < t->nd; i++)
        n *= t->d[i];
    return n;
}

/* Returns the address of row i of a tensor, whose rows are counted over all dimensions except the
 * last. Returns NULL if the tensor is absent. */
static char *row_at(const xd_tensor *t, int64_t i)
{
    int64_t off = 0;
    if (!t->p)
        return NULL;
    for (int k = t->nd - 2; k > 0; k--) {
        off += i % t->d[k] * t->s[k];
        i /= t->d[k];
    }
    if (t->nd > 1)
        off += i * t->s[0];
    return (char *)t->p + off * (int64_t)xd_dtype_size(t->type);
}

/* Returns row i of an operand, or the operand's only row if all rows of the output share this
 * row. */
static const float *row_or_only(const xd_tensor *t, int64_t i)
{
    return (const float *)(const void *)row_at(t, t->nd < 2 || t->d[0] == 1 ? 0 : i);
}

/* Reshapes a contiguous tensor to a single row. Returns 0 if the tensor is not contiguous. */
static int one_row(xd_tensor *t)
{
    if (!t->p)
        return 1;
    if (!xd_contiguous(*t))
        return 0;
    *t = xd_view2(t->p, t->type, 1, xd_count(*t));
    return 1;
}

/* ---- distributing rows x columns to threads ----------------------------------------------- */

/* The type of kernels that compute columns [c0, c0 + n) of row i of the output, where n <=
 * CHUNK. */
typedef void piece_fn(const void *args, int64_t i, int64_t c0, int64_t n);

typedef struct spread_ctx {
    piece_fn   *fn;
    const void *args;
    int64_t     cols, across; /* number of columns of a row; number of chunks of a row */
} spread_ctx;

static void spread_run(void *ctx, int64_t begin, int64_t end, int thread)
{
    const spread_ctx *s = ctx;
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        int64_t c0 = t % s->across * CHUNK, n = s->cols - c0;
        s->fn(s->args, t / s->across, c0, n < CHUNK ? n : CHUNK);
    }
}

static void run_pieces(int64_t nrows, int64_t ncols, piece_fn *fn, const void *args)
{
    spread_ctx s = { fn, args, ncols, (ncols + CHUNK - 1) / CHUNK };
    if (nrows * ncols <= GRAIN)
        spread_run(&s, 0, nrows * s.across, 0);
    else
        xd_par_for(nrows * s.across, spread_run, &s);
}

/* Distributes complete rows, instead of chunks of rows, to threads. */
static void spread_rows(int64_t nrows, int64_t ncols,
                        void (*fn)(void *ctx, int64_t begin, int64_t end, int thread), void *ctx)
{
    if (nrows > 0 && nrows * ncols <= GRAIN)
        fn(ctx, 0, nrows, 0);
    else
        xd_par_for(nrows, fn, ctx);
}

/* ---- norm --------------------------------------------------------------------------------- */

/* Computes the mean and 1 / deviation of a row in two passes, so that the variance is accurate even
 * with a large mean. */
static void row_moments(const xd_norm *a, const char *in, float *mean, float *rstd)
{
    float   buf[CHUNK];
    int64_t C = row_length(&a->in);
    double  s = 0, q = 0;
    *mean = 0;
    if (!a->rms) {
        for (int64_t c = 0; c < C; c += CHUNK) {
            int64_t n = C - c < CHUNK ? C - c : CHUNK;
            s += (double)sum_of(load_floats(buf, in, a->in.type, c, n), n);
        }
        *mean = (float)(s / (double)C);
    }
    for (int64_t c = 0; c < C; c += CHUNK) {
        int64_t n = C - c < CHUNK ? C - c : CHUNK;
        q += (double)square_sum_of(load_floats(buf, in, a->in.type, c, n), n, *mean);
    }
    *rstd = (float)(1.0 / sqrt(q / (double)C + (double)a->eps));
}

/* Returns the root mean square of row i of the operand `like`, or 1 if `like` is absent. */
static float length_of(const xd_norm *a, int64_t i)
{
    int64_t      C = row_length(&a->in);
    const float *row = a->like.p ? (const void *)row_at(&a->like, i) : NULL;
    return row ? sqrtf(square_sum_of(row, C, 0) / (float)C) : 1;
}

/* Returns the address of an operand's elements from column c on, or `instead` if the operand is
 * absent. */
static const float *from_column(const float *p, int64_t c, const float *instead)
{
    return p ? p + c : instead;
}

/* Normalizes rows in short slices of columns, so that the next row is fetched from memory while a
 * row is written. */
static void norm_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    enum { SLICE = 128 };
    const xd_norm *a = ctx;
    float          bi[SLICE], bo[SLICE], one[SLICE], zero[SLICE] = { 0 };
    int64_t        C = row_length(&a->in), size = (int64_t)xd_dtype_size(a->in.type);
    (void)thread;
    for (int i = 0; i < SLICE; i++)
        one[i] = 1;
    for (int64_t i = begin; i < end; i++) {
        const char  *in = row_at(&a->in, i), *next = i + 1 < end ? row_at(&a->in, i + 1) : NULL;
        char        *out = row_at(&a->out, i);
        const float *scales = row_or_only(&a->scale, i), *shifts = row_or_only(&a->shift, i);
        float        mean, rstd;
        row_moments(a, in, &mean, &rstd);
        rstd *= length_of(a, i);
        for (int64_t c = 0; c < C; c += SLICE) {
            int64_t      n = C - c < SLICE ? C - c : SLICE;
            const float *x = load_floats(bi, in, a->in.type, c, n);
            const float *gain = from_column(a->gain.p, c, one),
                        *bias = from_column(a->bias.p, c, zero);
            const float *scale = from_column(scales, c, zero),
                        *shift = from_column(shifts, c, zero);
            float *y = output_floats(bo, out, a->out.type, c);
#pragma omp simd
            for (int64_t k = 0; k < n; k++)
                y[k] = ((x[k] - mean) * rstd * gain[k] + bias[k]) * (1.0f + scale[k]) + shift[k];
            narrow(element_at(out, a->out.type, c), a->out.type, y, n);
            if (next)
                prefetch_bytes(next + c * size, n * size);
        }
    }
}

static void norm(const xd_norm *a)
{
    xd_norm b = *a;
    spread_rows(row_count(&a->in), row_length(&a->in), norm_rows, &b);
}

/* ---- group norm --------------------------------------------------------------------------- */

/* Computes the sums of channels [c0, c0 + n), and of their squares, over the positions of one image
 * row, in doubles. */
static void channel_sums(const xd_moments *a, int64_t r, int64_t c0, int64_t n, double *s,
                         double *q)
{
    float buf[CHUNK];
    for (int64_t i = 0; i < n; i++)
        s[i] = q[i] = 0;
    for (int64_t p = 0; p < a->in.d[1]; p++) {
        const char  *in = (const char *)a->in.p +
                          (r * a->in.s[0] + p * a->in.s[1]) * (int64_t)xd_dtype_size(a->in.type);
        const float *x = load_floats(buf, in, a->in.type, c0, n);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            double v = (double)x[i];
            s[i] += v;
            q[i] += v * v;
        }
    }
}

/* Computes the same sums as channel_sums, for BF16 elements. For every AT_ONCE elements, the sum
 * and the sum of squares are first computed in float, in which the square of a bf16 value is exact,
 * and then added in doubles. The order of additions depends only on the length of the row. */
enum { AT_ONCE = 16 };

/* Sums channels in registers, even and odd channels separately. A step sums WORDS vectors of
 * channels. Only complete steps within the first `most` channels are summed. Returns the number of
 * channels that were summed. */
static int64_t sums_in_registers(const uint16_t *in, int64_t step, int64_t most, double *s,
                                 double *q)
{
#if defined(__AVX512F__)
    enum { WORDS = 4 }; /* vectors of 32 channels in a step */
    const __m512i high = _mm512_set1_epi32((int)0xffff0000u);
    const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i last = _mm512_add_epi32(first, _mm512_set1_epi32(8));
    int64_t       c = 0;
    for (; c + 32 * WORDS <= most; c += 32 * WORDS) {
        __m512 sum[2 * WORDS], square[2 * WORDS];
        for (int w = 0; w < 2 * WORDS; w++)
            sum[w] = square[w] = _mm512_setzero_ps();
        for (int k = 0; k < AT_ONCE; k++)
            for (int w = 0; w < WORDS; w++) {
                __m512i u = _mm512_loadu_si512(in + k * step + c + 32 * w);
                __m512  even = _mm512_castsi512_ps(_mm512_slli_epi32(u, 16));
                __m512  odd = _mm512_castsi512_ps(_mm512_and_si512(u, high));
                sum[2 * w] = _mm512_add_ps(sum[2 * w], even);
                sum[2 * w + 1] = _mm512_add_ps(sum[2 * w + 1], odd);
                square[2 * w] = _mm512_fmadd_ps(even, even, square[2 * w]);
                square[2 * w + 1] = _mm512_fmadd_ps(odd, odd, square[2 * w + 1]);
            }
        for (int w = 0; w < WORDS; w++) {
            float t[2][32];
            _mm512_storeu_ps(t[0], _mm512_permutex2var_ps(sum[2 * w], first, sum[2 * w + 1]));
            _mm512_storeu_ps(t[0] + 16, _mm512_permutex2var_ps(sum[2 * w], last, sum[2 * w + 1]));
            _mm512_storeu_ps(t[1], _mm512_permutex2var_ps(square[2 * w], first, square[2 * w + 1]));
            _mm512_storeu_ps(t[1] + 16,
                             _mm512_permutex2var_ps(square[2 * w], last, square[2 * w + 1]));
            for (int i = 0; i < 32; i++) {
                s[c + 32 * w + i] += (double)t[0][i];
                q[c + 32 * w + i] += (double)t[1][i];
            }
        }
    }
    return c;
#else
    (void)in, (void)step, (void)most, (void)s, (void)q;
    return 0;
#endif
}

static void channel_sums_bf16(const xd_moments *a, int64_t r, int64_t c0, int64_t n, double *s,
                              double *q)
{
    int64_t         step = a->in.s[1], P = a->in.d[1], p = 0;
    const uint16_t *in = (const uint16_t *)a->in.p + r * a->in.s[0] + c0;
    for (int64_t i = 0; i < n; i++)
        s[i] = q[i] = 0;
    for (; p + AT_ONCE <= P; p += AT_ONCE, in += AT_ONCE * step) {
        int64_t done = sums_in_registers(in, step, n, s, q);
#pragma omp simd
        for (int64_t i = done; i < n; i++) {
            float v = bits_float((uint32_t)in[i] << 16), sum = v, squares = v * v;
            for (int k = 1; k < AT_ONCE; k++) {
                v = bits_float((uint32_t)in[i + k * step] << 16);
                sum += v;
                squares += v * v;
            }
            s[i] += (double)sum;
            q[i] += (double)squares;
        }
    }
    for (; p < P; p++, in += step) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            double v = (double)bits_float((uint32_t)in[i] << 16);
            s[i] += v;
            q[i] += v * v;
        }
    }
}

/* Computes the sums of groups of channels for some image rows. Channels are summed in runs of at
 * most RUN adjacent channels. If a group spans several runs, the sums of these runs are added one
 * by one. */
static void moments_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    enum { RUN = 512 };
    const xd_moments *a = ctx;
    double            s[RUN], q[RUN];
    int64_t           C = a->in.d[2], per = C / a->groups;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        double *out = (double *)a->out.p + r * a->out.s[0];
        for (int g = 0; g < a->groups; g++)
            out[g * a->out.s[1]] = out[g * a->out.s[1] + 1] = 0;
        for (int64_t c0 = 0; c0 < C; c0 += RUN) {
            int64_t n = C - c0 < RUN ? C - c0 : RUN;
            (a->in.type == XD_BF16 ? channel_sums_bf16 : channel_sums)(a, r, c0, n, s, q);
            for (int64_t i = 0; i < n; i++) {
                double *to = out + (c0 + i) / per * a->out.s[1];
                to[0] += s[i];
                to[1] += q[i];
            }
        }
    }
}

static void moments(const xd_moments *a)
{
    xd_moments b = *a;
    spread_rows(a->in.d[0], a->in.d[1] * a->in.d[2], moments_rows, &b);
}

typedef struct gnorm_ctx {
    const xd_gnorm *a;
    const float    *mul, *add;
} gnorm_ctx;

/* Computes y = x mul + add, followed by SiLU if `silu` is 1. */
static inline void scale_and_add(float *y, const float *x, const float *mul, const float *add,
                                 int64_t n, int silu)
{
    if (silu) {
#pragma omp simd
        for (int64_t k = 0; k < n; k++)
            y[k] = silu_f(x[k] * mul[k] + add[k]);
    } else {
#pragma omp simd
        for (int64_t k = 0; k < n; k++)
            y[k] = x[k] * mul[k] + add[k];
    }
}

/* Normalizes the channels of one pixel. The element types are compile-time constants, so that the
 * compiler vectorizes the loop without a buffer for intermediate values. */
static inline void gnorm_pixel(char *out, const char *in, const float *mul, const float *add,
                               int64_t n, int wide_in, int wide_out, int silu)
{
#pragma omp simd
    for (int64_t k = 0; k < n; k++) {
        float x = wide_in ? ((const float *)(const void *)in)[k]
                          : bits_float((uint32_t)((const uint16_t *)(const void *)in)[k] << 16);
        float y = x * mul[k] + add[k];
        y = silu ? silu_f(y) : y;
        if (wide_out)
            ((float *)(void *)out)[k] = y;
        else
            ((uint16_t *)(void *)out)[k] = to_bf16(y);
    }
}

#if defined(__AVX512F__)
/* Computes SiLU, x / (1 + e^-x), with an error of 1e-4, which suffices for results of 8 bits of
 * precision (bf16). */
static inline __m512 silu_approx(__m512 x)
{
    __m512 t = _mm512_mul_ps(x, _mm512_set1_ps(-1.44269504f));
    __m512 n = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_sub_ps(t, n), p = _mm512_set1_ps(9.67059e-3f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.5927756e-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(2.4022347e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(6.9312754e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1));
    return _mm512_mul_ps(x,
                         _mm512_rcp14_ps(_mm512_add_ps(_mm512_scalef_ps(p, n), _mm512_set1_ps(1))));
}

static inline void gnorm_silu_bf16(char *out, const char *in, const float *mul, const float *add,
                                   int64_t n)
{
    int64_t k = 0;
    for (; k + 16 <= n; k += 16) {
        __m512 x = _mm512_fmadd_ps(load_bf16(in + 2 * k), _mm512_loadu_ps(mul + k),
                                   _mm512_loadu_ps(add + k));
        _mm256_storeu_si256((__m256i *)(void *)(out + 2 * k), bf16(silu_approx(x)));
    }
    if (k < n) {
        __mmask16 m = lane_mask(n - k);
        __m512    x = _mm512_fmadd_ps(load_bf16_some(in + 2 * k, n - k),
                                      _mm512_maskz_loadu_ps(m, mul + k),
                                      _mm512_maskz_loadu_ps(m, add + k));
        _mm256_mask_storeu_epi16(out + 2 * k, m, bf16(silu_approx(x)));
    }
}
#else
static inline void gnorm_silu_bf16(char *out, const char *in, const float *mul, const float *add,
                                   int64_t n)
{
    gnorm_pixel(out, in, mul, add, n, 0, 0, 1);
}
#endif

static void gnorm_pixels(void *ctx, int64_t begin, int64_t end, int thread)
{
    const gnorm_ctx *g = ctx;
    const xd_gnorm  *a = g->a;
    int64_t          C = row_length(&a->in);
    int kind = 4 * (a->in.type == XD_F32) + 2 * (a->out.type == XD_F32) + (a->silu != 0);
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        char       *out = row_at(&a->out, i);
        const char *in = row_at(&a->in, i);
        switch (kind) {
        case 0: gnorm_pixel(out, in, g->mul, g->add, C, 0, 0, 0); break;
        case 1: gnorm_silu_bf16(out, in, g->mul, g->add, C); break;
        case 2: gnorm_pixel(out, in, g->mul, g->add, C, 0, 1, 0); break;
        case 3: gnorm_pixel(out, in, g->mul, g->add, C, 0, 1, 1); break;
        case 4: gnorm_pixel(out, in, g->mul, g->add, C, 1, 0, 0); break;
        case 5: gnorm_pixel(out, in, g->mul, g->add, C, 1, 0, 1); break;
        case 6: gnorm_pixel(out, in, g->mul, g->add, C, 1, 1, 0); break;
        default: gnorm_pixel(out, in, g->mul, g->add, C, 1, 1, 1); break;
        }
    }
}

/* Normalizes channels [c0, c0 + n) of those pixels of an image row that share one element of
 * `scale` and `shift`. */
static void gnorm_cell(const gnorm_ctx *g, const char *in, char *out, int64_t cell, int64_t c0,
                       int64_t n)
{
    const xd_gnorm *a = g->a;
    float           mul[CHUNK], add[CHUNK], bi[CHUNK], bo[CHUNK];
    const float    *s = (const float *)(const void *)row_at(&a->scale, cell) + c0;
    const float    *t = (const float *)(const void *)row_at(&a->shift, cell) + c0;
    int64_t         wide = a->in.d[2] / a->scale.d[2];
#pragma omp simd
    for (int64_t k = 0; k < n; k++) {
        mul[k] = g->mul[c0 + k] * s[k];
        add[k] = g->add[c0 + k] * s[k] + t[k];
    }
    for (int64_t w = 0; w < wide; w++) {
        const float *x = load_floats(
            bi, element_at((char *)(uintptr_t)in, a->in.type, w * a->in.s[2]), a->in.type, c0, n);
        char  *to = element_at(out, a->out.type, w * a->out.s[2]);
        float *y = output_floats(bo, to, a->out.type, c0);
        scale_and_add(y, x, mul, add, n, a->silu);
        narrow(element_at(to, a->out.type, c0), a->out.type, y, n);
    }
}

/* Applies group norm to rows (t, h) of an image, with `scale` and `shift` of a coarser resolution
 * than the image. */
static void gnorm_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const gnorm_ctx *g = ctx;
    const xd_gnorm  *a = g->a;
    const int64_t   *d = a->in.d, *z = a->scale.d;
    int64_t          wide = d[2] / z[2];
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t t = i / d[1] / (d[0] / z[0]), h = i % d[1] / (d[1] / z[1]);
        for (int64_t w = 0; w < z[2]; w++)
            for (int64_t c0 = 0; c0 < d[3]; c0 += CHUNK)
                gnorm_cell(g, row_at(&a->in, i * d[2] + w * wide),
                           row_at(&a->out, i * d[2] + w * wide), (t * z[1] + h) * z[2] + w, c0,
                           d[3] - c0 < CHUNK ? d[3] - c0 : CHUNK);
    }
}

static void gnorm(const xd_gnorm *a, float *ab)
{
    int64_t      C = row_length(&a->in), per = C / a->groups;
    const float *gain = a->gain.p, *bias = a->bias.p;
    gnorm_ctx    g = { a, ab, ab + C };
    for (int64_t c = 0; c < C; c++) {
        const double *s = (const double *)a->sums.p + c / per * a->sums.s[0];
        double        mean = s[0] / a->count, var = s[1] / a->count - mean * mean;
        double        rstd = 1.0 / sqrt((var > 0 ? var : 0) + (double)a->eps);
        double        mul = rstd * (gain ? (double)gain[c] : 1.0);
        ab[c] = (float)mul;
        ab[C + c] = (float)((bias ? (double)bias[c] : 0.0) - mean * mul);
    }
    if (!a->scale.p)
        spread_rows(row_count(&a->in), C, gnorm_pixels, &g);
    else if (xd_count(a->scale) > 0)
        spread_rows(a->in.d[0] * a->in.d[1], a->in.d[2] * C, gnorm_rows, &g);
}

/* ---- element-wise ------------------------------------------------------------------------- */

/* Applies an activation to n floats. If the results are converted to BF16, GELU is approximated
 * with bf16 accuracy. */
static void act_to(xd_dtype to, float *y, const float *x, int64_t n, xd_act kind)
{
#ifdef __AVX512F__
    if (kind == XD_GELU_TANH && to == XD_BF16) {
        brief_gelus(y, x, n);
        return;
    }
#else
    (void)to;
#endif
    apply_act(y, x, n, kind);
}

static void glu_piece(const void *args, int64_t i, int64_t c0, int64_t n)
{
    const xd_glu *g = args;
    float         ba[CHUNK], bb[CHUNK], bo[CHUNK], t[CHUNK];
    char         *out = row_at(&g->out, i), *b = row_at(&g->b, i);
    const float  *x = load_floats(ba, row_at(&g->a, i), g->a.type, c0, n);
    float        *y = output_floats(bo, out, g->out.type, c0);
    if (b) {
        const float *z = load_floats(bb, b, g->b.type, c0, n);
        act_to(g->out.type, t, x, n, g->act);
#pragma omp simd
        for (int64_t k = 0; k < n; k++)
            y[k] = t[k] * z[k];
    } else {
        act_to(g->out.type, y, x, n, g->act);
    }
    narrow(element_at(out, g->out.type, c0), g->out.type, y, n);
}

static void glu(const xd_glu *a)
{
    xd_glu  b = *a, f = *a;
    int     one = one_row(&f.out) && one_row(&f.a) && one_row(&f.b);
    xd_glu *g = one ? &f : &b;
    run_pieces(row_count(&g->out), row_length(&g->out), glu_piece, g);
}

static void addmul_piece(const void *args, int64_t i, int64_t c0, int64_t n)
{
    const xd_addmul *a = args;
    float            bi[CHUNK], bo[CHUNK];
    char            *acc = row_at(&a->acc, i);
    const float     *x = load_floats(bi, row_at(&a->in, i), a->in.type, c0, n);
    const float *old = load_floats(bo, acc, a->acc.type, c0, n), *gate = row_or_only(&a->gate, i);
    float       *y = output_floats(bo, acc, a->acc.type, c0);
    if (gate) {
        gate += c0;
#pragma omp simd
        for (int64_t k = 0; k < n; k++)
            y[k] = old[k] + gate[k] * x[k];
    } else {
#pragma omp simd
        for (int64_t k = 0; k < n; k++)
            y[k] = old[k] + x[k];
    }
    narrow(element_at(acc, a->acc.type, c0), a->acc.type, y, n);
}

static void addmul(const xd_addmul *a)
{
    run_pieces(row_count(&a->acc), row_length(&a->acc), addmul_piece, a);
}

static void axpby_piece(const void *args, int64_t i, int64_t c0, int64_t n)
{
    const xd_axpby_args *a = args;
    float               *y = (float *)(void *)row_at(&a->y, i) + c0, p = a->a, q = a->b;
    if (a->x.p) {
        const float *x = (const float *)(const void *)row_at(&a->x, i) + c0;
        /* y is not read if q is 0, because the memory of y may be uninitialized and contain a
         * NaN */
        if (q == 0) {
#pragma omp simd
            for (int64_t k = 0; k < n; k++)
                y[k] = p * x[k];
            return;
        }
#pragma omp simd
        for (int64_t k = 0; k < n; k++)
            y[k] = p * x[k] + q * y[k];
    } else {
#pragma omp simd
        for (int64_t k = 0; k < n; k++)
            y[k] = q * y[k];
    }
}

static void axpby(const xd_axpby_args *a)
{
    xd_axpby_args f = *a;
    if (!(one_row(&f.y) && one_row(&f.x)))
        f = *a;
    run_pieces(row_count(&f.y), row_length(&f.y), axpby_piece, &f);
}

/* ---- moving elements ---------------------------------------------------------------------- */

static void resize_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const xd_resize *a = ctx;
    int64_t          size = (int64_t)xd_dtype_size(a->in.type);
    size_t           bytes = (size_t)(a->in.d[3] * size);
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t t = i / a->out.d[1], h = i % a->out.d[1];
        char   *out = (char *)a->out.p + (t * a->out.s[0] + h * a->out.s[1]) * size;
        char   *in = (char *)a->in.p +
                     (t / a->factor[0] * a->in.s[0] + h / a->factor[1] * a->in.s[1]) * size;
        for (int64_t w = 0; w < a->out.d[2]; w++)
            memcpy(out + w * a->out.s[2] * size, in + w / a->factor[2] * a->in.s[2] * size, bytes);
    }
}

static void resize(const xd_resize *a)
{
    xd_resize b = *a;
    spread_rows(a->out.d[0] * a->out.d[1], a->out.d[2] * a->out.d[3], resize_rows, &b);
}

static void lookup_piece(const void *args, int64_t i, int64_t c0, int64_t n)
{
    const xd_lookup *a = args;
    float            raw[CHUNK], bo[CHUNK];
    int64_t          id = ((const int32_t *)a->ids.p)[i * a->ids.s[0]];
    char            *from = element_at((char *)a->table.p, a->table.type, id * a->table.s[0] + c0);
    char            *out = row_at(&a->out, i);
    float           *y = output_floats(bo, out, a->out.type, c0);
    /* The row is copied to aligned memory. */
    memcpy(raw, from, (size_t)n * xd_dtype_size(a->table.type));
    widen(y, raw, a->table.type, n);
    round_all(element_at(out, a->out.type, c0), a->out.type, y, n);
}

static void lookup(const xd_lookup *a)
{
    run_pieces(a->ids.d[0], row_length(&a->out), lookup_piece, a);
}

static void convert_elements(char *out, xd_dtype to, const char *in, xd_dtype from, int64_t n)
{
    float buf[CHUNK];
    if (to == from) {
        memmove(out, in, (size_t)n * xd_dtype_size(to));
        return;
    }
    for (int64_t c = 0; c < n; c += CHUNK) {
        int64_t      m = n - c < CHUNK ? n - c : CHUNK;
        const float *x = load_floats(buf, in, from, c, m);
        if (to == XD_F32)
            memcpy(element_at(out, to, c), x, (size_t)m * sizeof *x);
        else
            round_all(element_at(out, to, c), to, x, m);
    }
}

/* Copies n elements, which are `step` elements apart, into adjacent elements of `buf`. */
static const float *gather_strided(float *buf, const char *p, xd_dtype t, int64_t step, int64_t n)
{
    if (t == XD_F32) {
        const float *x = (const float *)(const void *)p;
        for (int64_t i = 0; i < n; i++)
            buf[i] = x[i * step];
    } else if (t == XD_F64) {
        const double *x = (const double *)(const void *)p;
        for (int64_t i = 0; i < n; i++)
            buf[i] = (float)x[i * step];
    } else if (t == XD_F8E4M3 || t == XD_F8E5M2) {
        for (int64_t i = 0; i < n; i++)
            widen(buf + i, p + i * step, t, 1);
    } else {
        const uint16_t *x = (const uint16_t *)(const void *)p;
        for (int64_t i = 0; i < n; i++)
            buf[i] = t == XD_BF16 ? bits_float((uint32_t)x[i * step] << 16) : from_f16(x[i * step]);
    }
    return buf;
}

static void scatter_strided(char *p, xd_dtype t, int64_t step, const float *x, int64_t n)
{
    if (t == XD_F32) {
        float *y = (float *)(void *)p;
        for (int64_t i = 0; i < n; i++)
            y[i * step] = x[i];
    } else {
        uint16_t *y = (uint16_t *)(void *)p;
        for (int64_t i = 0; i < n; i++)
            y[i * step] = t == XD_BF16 ? to_bf16(x[i]) : to_f16(x[i]);
    }
}

static void copy_piece(const void *args, int64_t i, int64_t c0, int64_t n)
{
    const xd_copy *a = args;
    int            k = a->out.nd ? a->out.nd - 1 : 0;
    int64_t        so = a->out.s[k], si = a->in.s[k];
    char          *out = element_at(row_at(&a->out, i), a->out.type, c0 * so);
    const char    *in = element_at(row_at(&a->in, i), a->in.type, c0 * si);
    float          buf[CHUNK];
    if (so == 1 && si == 1)
        convert_elements(out, a->out.type, in, a->in.type, n);
    else
        scatter_strided(out, a->out.type, so, gather_strided(buf, in, a->in.type, si, n), n);
}

/* Moves the dimension with the smallest stride of `out` to the end, then joins dimensions that are
 * contiguous in both tensors of a copy. */
static void join_dims(xd_copy *a)
{
    xd_tensor o = a->out, i = a->in;
    int       order[XD_MAXDIM], n = 0, m = 0;
    for (int k = 0; k < o.nd; k++) {
        int at_k = n;
        if (o.d[k] == 1)
            continue;
        while (at_k > 0 && o.s[order[at_k - 1]] < o.s[k]) {
            order[at_k] = order[at_k - 1];
            at_k--;
        }
        order[at_k] = k;
        n++;
    }
    for (int j = 0; j < n; j++) {
        int k = order[j];
        if (m && a->out.s[m - 1] == o.d[k] * o.s[k] && a->in.s[m - 1] == o.d[k] * i.s[k]) {
            a->out.d[m - 1] *= o.d[k];
            m--;
        } else {
            a->out.d[m] = o.d[k];
        }
        a->in.d[m] = a->out.d[m];
        a->out.s[m] = o.s[k];
        a->in.s[m] = i.s[k];
        m++;
    }
    if (m == 0) {
        a->out.d[0] = a->in.d[0] = a->out.s[0] = a->in.s[0] = 1;
        m = 1;
    }
    a->out.nd = a->in.nd = m;
}

/* A transposing copy, where `in` and `out` are contiguous along different dimensions. The copy
 * processes tiles of WIDE elements along the contiguous dimension of `in` by LONG elements along
 * the last dimension. Each tensor is accessed along its contiguous dimension. */
enum { WIDE = 16, LONG = CHUNK / 4 };

typedef struct transpose_ctx {
    /* the copy's tensors as views [.., J, C], where dimension J is contiguous in `in` */
    const xd_copy *a;
    /* extents of dimensions J and C; number of tiles along C and along J */
    int64_t        J, C, across, down;
} transpose_ctx;

static void transpose_tile(const transpose_ctx *t, char *out, const char *in, int64_t nj,
                           int64_t nc)
{
    const xd_copy *a = t->a;
    int            k = a->out.nd - 1;
    float          tile_in[LONG][WIDE], line[LONG];
    for (int64_t c = 0; c < nc; c++)
        widen(tile_in[c], in + c * a->in.s[k] * (int64_t)xd_dtype_size(a->in.type), a->in.type, nj);
    for (int64_t j = 0; j < nj; j++) {
        char *to = element_at(out, a->out.type, j * a->out.s[k - 1]);
        for (int64_t c = 0; c < nc; c++)
            line[c] = tile_in[c][j];
        if (a->out.s[k] == 1)
            round_all(to, a->out.type, line, nc);
        else
            scatter_strided(to, a->out.type, a->out.s[k], line, nc);
    }
}

static void transpose_run(void *ctx, int64_t begin, int64_t end, int thread)
{
    const transpose_ctx *t = ctx;
    const xd_copy       *a = t->a;
    int                  k = a->out.nd - 1;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t c0 = i % t->across * LONG, j0 = i / t->across % t->down * WIDE;
        /* first row of this tile, counted over all dimensions except the last */
        int64_t r = i / t->across / t->down * t->J;
        int64_t nc = t->C - c0 < LONG ? t->C - c0 : LONG, nj = t->J - j0 < WIDE ? t->J - j0 : WIDE;
        char   *out =
            element_at(row_at(&a->out, r), a->out.type, j0 * a->out.s[k - 1] + c0 * a->out.s[k]);
        char *in = element_at(row_at(&a->in, r), a->in.type, j0 + c0 * a->in.s[k]);
        transpose_tile(t, out, in, nj, nc);
    }
}

/* Moves the dimension along which `in` is contiguous to the second-last place. Returns 0 if `in` is
 * contiguous along the last dimension, or along no dimension. */
static int move_input_dim(xd_copy *a)
{
    int k = a->out.nd - 1, j = k;
    if (a->in.s[k] == 1 || a->out.d[k] < 4)
        return 0;
    for (int i = 0; i < k; i++)
        if (a->in.s[i] == 1 && a->out.d[i] >= 4)
            j = i;
    if (j == k)
        return 0;
    xd_tensor *both[2] = { &a->out, &a->in };
    for (int n = 0; n < 2; n++) {
        int64_t d = both[n]->d[j], step = both[n]->s[j];
        both[n]->d[j] = both[n]->d[k - 1];
        both[n]->s[j] = both[n]->s[k - 1];
        both[n]->d[k - 1] = d;
        both[n]->s[k - 1] = step;
    }
    return 1;
}

static void copy(const xd_copy *a)
{
    xd_copy b = *a;
    if (xd_count(a->out) == 0)
        return;
    join_dims(&b);
    if (move_input_dim(&b)) {
        int64_t       J = b.out.d[b.out.nd - 2], C = row_length(&b.out);
        transpose_ctx t = { &b, J, C, (C + LONG - 1) / LONG, (J + WIDE - 1) / WIDE };
        spread_rows(row_count(&b.out) / J * t.across * t.down, LONG * WIDE, transpose_run, &t);
        return;
    }
    run_pieces(row_count(&b.out), row_length(&b.out), copy_piece, &b);
}

/* ---- GEMM --------------------------------------------------------------------------------- */

static void epilogue_row(const xd_gemm *a, const float *acc, int64_t i, int64_t c0, int64_t n)
{
    float        t[CHUNK], br[CHUNK], bo[CHUNK];
    const float *bias = a->bias.p, *gate = a->gate.p;
    char        *res = row_at(&a->residual, i), *out = row_at(&a->out, i);
    float       *y = output_floats(bo, out, a->out.type, c0);
    memcpy(t, acc, (size_t)n * sizeof *t);
    if (bias) {
        bias += c0;
#pragma omp simd
        for (int64_t k = 0; k < n; k++)
            t[k] += bias[k];
    }
    apply_act(t, t, n, a->act);
    if (gate) {
        gate += c0;
#pragma omp simd
        for (int64_t k = 0; k < n; k++)
            t[k] *= gate[k];
    }
    if (res) {
        const float *r = load_floats(br, res, a->residual.type, c0, n);
#pragma omp simd
        for (int64_t k = 0; k < n; k++)
            t[k] += r[k];
    }
    memcpy(y, t, (size_t)n * sizeof *y);
    narrow(element_at(out, a->out.type, c0), a->out.type, y, n);
}

static void epilogue(const xd_gemm *a, const float *acc, int64_t ld, int64_t r0, int64_t n,
                     int64_t c0, int64_t m)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < m; c += CHUNK)
            epilogue_row(a, acc + i * ld + c, r0 + i, c0 + c, m - c < CHUNK ? m - c : CHUNK);
}

/* Multiplies matrices. Four rows by 8 columns of the product are computed at a time, with the sums
 * in registers. */
static void tile(float *acc, int64_t ldacc, const float *a, int64_t lda, const float *b, int64_t n,
                 int64_t K)
{
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int h = 0; h < 16; h += 8) {
            const float *a0 = a + i * lda, *a1 = a0 + lda, *a2 = a1 + lda, *a3 = a2 + lda;
            float       *y = acc + i * ldacc + h, s[4][8] = { { 0 } };
            for (int64_t k = 0; k < K; k++) {
                const float *w = b + k * 16 + h;
                float        x0 = a0[k], x1 = a1[k], x2 = a2[k], x3 = a3[k];
#pragma omp simd
                for (int j = 0; j < 8; j++) {
                    float v = w[j];
                    s[0][j] += x0 * v;
                    s[1][j] += x1 * v;
                    s[2][j] += x2 * v;
                    s[3][j] += x3 * v;
                }
            }
            for (int r = 0; r < 4; r++)
                for (int j = 0; j < 8; j++)
                    y[r * ldacc + j] += s[r][j];
        }
    for (; i < n; i++)
        for (int h = 0; h < 16; h += 8) {
            float s[8] = { 0 };
            for (int64_t k = 0; k < K; k++) {
                const float *w = b + k * 16 + h;
                float        x = a[i * lda + k];
#pragma omp simd
                for (int j = 0; j < 8; j++)
                    s[j] += x * w[j];
            }
            for (int j = 0; j < 8; j++)
                acc[i * ldacc + h + j] += s[j];
        }
}

/* ---- peak --------------------------------------------------------------------------------- */

/* The peak rate is measured with multiply-adds whose operands stay in registers. 12 independent
 * chains of vector operations keep two execution units with a latency of five or six cycles
 * busy. */
#if !defined(V_LOAD) && defined(__SSE2__)
#include <immintrin.h>
typedef __m128 vec;
#define V_SET(x) _mm_set1_ps(x)
#define V_FMA(a, b, c) _mm_add_ps(_mm_mul_ps(a, b), c)
#define V_ADD(a, b) _mm_add_ps(a, b)
#define V_STORE(p, v) _mm_storeu_ps(p, v)
#elif !defined(V_LOAD)
typedef float vec;
#define V_SET(x) (x)
#define V_FMA(a, b, c) ((a) * (b) + (c))
#define V_ADD(a, b) ((a) + (b))
#define V_STORE(p, v) (*(p) = (v))
#endif

/* Runs `n` rounds of 12 multiply-adds. The result is returned so that the compiler does not remove
 * the loop that computes it. */
static float fma_rounds(int64_t n, float x)
{
    vec   m = V_SET(x), c = V_SET(1e-3f), s[12];
    float out[16];
    for (int j = 0; j < 12; j++)
        s[j] = V_SET((float)j);
    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < 12; j++)
            s[j] = V_FMA(s[j], m, c);
    for (int j = 1; j < 12; j++)
        s[0] = V_ADD(s[0], s[j]);
    V_STORE(out, s[0]);
    return out[0];
}

static double run_burst(void)
{
    enum { ROUNDS = 60000 };
    static volatile float keep = 0.999f;
    double                t = xd_now_s();
    keep = fma_rounds(ROUNDS, keep) < 1e30f ? 0.999f : 0.99f;
    t = xd_now_s() - t;
    return 2e-9 * 12 * ROUNDS * (double)(sizeof(vec) / sizeof(float)) / (t > 1e-9 ? t : 1e-9);
}

const xd_kernels GLUE(xd_kernels_, ISA) = {
    .norm = norm,
    .moments = moments,
    .gnorm = gnorm,
    .glu = glu,
    .addmul = addmul,
    .axpby = axpby,
    .resize = resize,
    .lookup = lookup,
    .copy = copy,
    .epilogue = epilogue,
    .tile = tile,
    .burst = run_burst,
    .qknorm = GLUE(xd_qknorm_, ISA),
    .rotate = GLUE(xd_rotate_, ISA),
    .linattn = GLUE(xd_linattn_, ISA),
    .four = GLUE(xd_four_, ISA),
    .widen = widen,
    .most = GLUE(xd_max_magnitude_, ISA),
    .integers = GLUE(xd_integers_, ISA),
    .int_dot = GLUE(xd_int_dot_, ISA),
    .float_dot = GLUE(xd_float_dot_, ISA),
};
