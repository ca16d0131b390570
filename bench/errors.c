/* errors.c - how far products of small weights are from those of f32
 *
 *   errors [WIDTH]                                             3072 inputs and outputs by default
 *
 * Random matrices of full width: normal numbers; with some columns of weights that are 8 times as
 * large; with some inputs that are 20 times as large, as those of transformers are; with both. A
 * line for each type: the error of the outputs, as a share of them, in their root mean squares. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/op.h"
#include "exec/weight.h"

enum { ROWS = 128, KINDS = 4, SUPER = 256 };

static int64_t width = 3072;
static xd_dev *dev;

static void stop(const char *why)
{
    fprintf(stderr, "errors: %s\n", why);
    exit(1);
}

static void *room(size_t bytes)
{
    void *p = malloc(bytes);
    if (!p)
        stop("no memory");
    return p;
}

/* A normal number, as the sum of twelve uniform ones. */
static float normal(uint64_t seed, uint64_t i)
{
    float sum = 0;
    for (uint64_t k = 0; k < 12; k++)
        sum += xd_random_weight(seed, 12 * i + k);
    return 0.288675f * sum;
}

/* ---- blocks --------------------------------------------------------------------------------- */

/* 32 numbers of a scale that the largest has 127 of. */
static void to_q8_0(uint8_t *to, const float *x)
{
    float most = 0;
    for (int i = 0; i < 32; i++)
        most = fmaxf(most, fabsf(x[i]));
    const uint16_t half = xd_f32_f16(most / 127);
    const float    d = xd_f16_f32(half);
    memcpy(to, &half, sizeof half);
    for (int i = 0; i < 32; i++)
        to[2 + i] = (uint8_t)(int8_t)(d > 0 ? lrintf(x[i] / d) : 0);
}

/* x ~ d q - m of 32 numbers, q of 0 to 15: of some ranges the one of least squared error. */
static void fit_range(const float *x, float *d, float *m)
{
    float low = 0, high = x[0], best = INFINITY;
    for (int i = 0; i < 32; i++)
        low = fminf(low, x[i]), high = fmaxf(high, x[i]);
    for (int t = 0; t <= 20; t++) {
        const float s = (high - low) / (14.0f + 0.1f * (float)t);
        float       sx = 0, sq = 0, sqq = 0, sxq = 0, error = 0;
        for (int i = 0; i < 32 && s > 0; i++) {
            const float q = fminf(15, fmaxf(0, rintf((x[i] - low) / s)));
            sx += x[i], sq += q, sqq += q * q, sxq += x[i] * q;
        }
        const float over = 32 * sqq - sq * sq;
        const float scale = over > 0 ? (32 * sxq - sx * sq) / over : s;
        const float least = fminf(0, over > 0 ? (sx - scale * sq) / 32 : low);
        for (int i = 0; i < 32 && scale > 0; i++) {
            const float q = fminf(15, fmaxf(0, rintf((x[i] - least) / scale)));
            error += powf(scale * q + least - x[i], 2);
        }
        if (error < best)
            best = error, *d = scale, *m = -least;
    }
}

/* Scales and minima of 6 bits in the order of Q4_K. */
static void put_six(uint8_t *s, const int *scale, const int *min)
{
    for (int g = 0; g < 8; g++)
        if (g < 4) {
            s[g] = (uint8_t)(scale[g] | (scale[4 + g] >> 4) << 6);
            s[4 + g] = (uint8_t)(min[g] | (min[4 + g] >> 4) << 6);
        } else {
            s[4 + g] = (uint8_t)((scale[g] & 15) | (min[g] & 15) << 4);
        }
}

static void to_q4_k(uint8_t *to, const float *x)
{
    float d[8], m[8], dm = 0, mm = 0;
    int   scale[8], min[8];
    for (int g = 0; g < 8; g++) {
        d[g] = m[g] = 0;
        fit_range(x + 32 * g, &d[g], &m[g]);
        dm = fmaxf(dm, d[g]), mm = fmaxf(mm, m[g]);
    }
    const uint16_t half[2] = { xd_f32_f16(dm / 63), xd_f32_f16(mm / 63) };
    const float    ds = xd_f16_f32(half[0]), ms = xd_f16_f32(half[1]);
    memcpy(to, half, sizeof half);
    memset(to + 16, 0, 128);
    for (int g = 0; g < 8; g++) {
        scale[g] = ds > 0 ? (int)fminf(63, rintf(d[g] / ds)) : 0;
        min[g] = ms > 0 ? (int)fminf(63, rintf(m[g] / ms)) : 0;
        const float s = ds * (float)scale[g], l = ms * (float)min[g];
        for (int i = 0; i < 32; i++) {
            const float q = s > 0 ? fminf(15, fmaxf(0, rintf((x[32 * g + i] + l) / s))) : 0;
            to[16 + 32 * (g / 2) + i] |= (uint8_t)((int)q << 4 * (g % 2));
        }
    }
    put_six(to + 4, scale, min);
}

/* ---- products ------------------------------------------------------------------------------- */

typedef struct matrix { xd_dtype type; void *at; } matrix;

static int has(void *self, const char *name, xd_tensor *t)
{
    (void)name;
    *t = xd_view2(NULL, ((matrix *)self)->type, width, width);
    return 1;
}

static xd_status get(void *self, const char *name, xd_tensor *t, xd_err *e)
{
    (void)e;
    has(self, name, t);
    t->p = ((matrix *)self)->at;
    return XD_OK;
}

/* The outputs of a layer whose weight is m, kept as `blocks`. */
static void multiply(const matrix *m, xd_dtype blocks, const float *in, float *out)
{
    const xd_source src = { .has = has, .get = get, .self = (void *)(uintptr_t)m };
    const size_t    bytes = (size_t)64 << 20;
    xd_err    e = { 0 };
    xd_store *store;
    xd_arena  a;
    xd_exec   x;
    xd_lin    l;
    void     *p = room(bytes);
    if (xd_store_open(&store, dev, &e) != XD_OK)
        stop(e.msg);
    xd_decl d = { .visit = XD_VISIT_LOAD, .dev = dev, .type = XD_F32, .blocks = blocks,
                  .src = &src, .tp = 1, .store = store, .err = &e, .stays = XD_STAYS_BLOCKS };
    xd_w_linear(&d, &l, "w", &(xd_linear_spec){ .in = width, .out = width, .split = XD_COL });
    if (e.code != XD_OK)
        stop(e.msg);
    xd_arena_init(&a, p, bytes);
    xd_exec_init(&x, dev, &a, XD_F32);
    xd_tensor y = xd_linear_f32(&x, xd_view2((void *)(uintptr_t)in, XD_F32, ROWS, width), &l);
    if (!xd_ok(&x))
        stop(x.err.msg);
    memcpy(out, y.p, (size_t)(ROWS * width) * sizeof *out);
    xd_store_close(&store);
    free(p);
}

static double share(const float *y, const float *want)
{
    double error = 0, all = 0;
    for (int64_t i = 0; i < ROWS * width; i++) {
        error += pow((double)y[i] - (double)want[i], 2);
        all += pow((double)want[i], 2);
    }
    return sqrt(error / all);
}

typedef struct way { const char *name; xd_dtype blocks, stored; int turns; } way;
static const way ways[] = {
    { "int8", XD_I8, XD_F32, 0 },
    { "fp8", XD_F8E4M3, XD_F32, 0 },
    { "int4", XD_Q4_0, XD_F32, 1 },
    { "int4, not rotated", XD_Q4_0, XD_F32, 0 },
    { "Q4_K", XD_F32, XD_Q4_K, 0 },
    { "Q8_0", XD_F32, XD_Q8_0, 0 },
};
enum { WAYS = sizeof ways / sizeof *ways };

static void one_kind(int kind, double error[WAYS])
{
    const int64_t n = width * width;
    float   *w = room((size_t)n * sizeof *w), *in = room((size_t)(ROWS * width) * sizeof *in);
    float   *want = room((size_t)(ROWS * width) * sizeof *want), *got = room(sizeof *got *
                                                                     (size_t)(ROWS * width));
    uint8_t *blocks = room(xd_dtype_bytes(XD_Q8_0, n));
    for (int64_t i = 0; i < n; i++)
        w[i] = 0.02f * normal(1, (uint64_t)i) * (kind & 1 && i % width % 97 == 5 ? 8 : 1);
    for (int64_t i = 0; i < ROWS * width; i++)
        in[i] = normal(2, (uint64_t)i) * (kind & 2 && i % width % 211 == 9 ? 20 : 1);
    multiply(&(matrix){ XD_F32, w }, XD_F32, in, want);
    for (int k = 0; k < WAYS; k++) {
        const way *y = &ways[k];
        for (int64_t i = 0; i < n && y->stored == XD_Q4_K; i += SUPER)
            to_q4_k(blocks + xd_dtype_bytes(XD_Q4_K, i), w + i);
        for (int64_t i = 0; i < n && y->stored == XD_Q8_0; i += 32)
            to_q8_0(blocks + xd_dtype_bytes(XD_Q8_0, i), w + i);
        dev->rotates = y->turns;
        multiply(&(matrix){ y->stored, y->stored == XD_F32 ? (void *)w : (void *)blocks },
                 y->blocks, in, got);
        error[k] = share(got, want);
    }
    free(w), free(in), free(want), free(got), free(blocks);
}

int main(int argc, char **argv)
{
    double error[KINDS][WAYS];
    xd_err e = { 0 };
    if (argc > 2 || (argc == 2 && ((width = atoll(argv[1])) < SUPER || width % SUPER)))
        stop("usage: errors [WIDTH], a multiple of 256");
    if (xd_dev_open(&dev, "cpu", &e) != XD_OK)
        stop(e.msg);
    for (int k = 0; k < KINDS; k++)
        one_kind(k, error[k]);
    printf("| error of outputs, %% | normal | columns of weights | inputs | both |\n");
    printf("|---|--:|--:|--:|--:|\n");
    for (int i = 0; i < WAYS; i++)
        printf("| %s | %.2f | %.2f | %.2f | %.2f |\n", ways[i].name, 100 * error[0][i],
               100 * error[1][i], 100 * error[2][i], 100 * error[3][i]);
    xd_dev_close(&dev);
    return 0;
}
