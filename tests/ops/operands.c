/* operands.c - random operands with guards, and comparison in double precision */
#include "operands.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/par.h"

xd_dev *dev;

/* ---- random numbers ----------------------------------------------------------------------- */

uint64_t state;

uint64_t any(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

int64_t upto(int64_t n) /* 0 .. n - 1 */
{
    return (int64_t)(any() % (uint64_t)n);
}

double real(void) /* -1 .. 1 */
{
    return (double)(int64_t)(any() >> 11) / 4503599627370496.0 - 1.0;
}

/* ---- operands ----------------------------------------------------------------------------- */

enum { MOST_BLOCKS = 16 };

typedef struct block {
    char  *p, *before; /* the bytes, and what they were */
    size_t bytes;
} block;

static block blocks[MOST_BLOCKS];
static int   nblocks;

void fresh(void)
{
    for (int i = 0; i < nblocks; i++) {
        free(blocks[i].p);
        free(blocks[i].before);
    }
    nblocks = 0;
}

void *element(const xd_tensor *t, int64_t i)
{
    int64_t off = 0;
    for (int k = t->nd - 1; k >= 0; k--) {
        off += i % t->d[k] * t->s[k];
        i /= t->d[k];
    }
    return (char *)t->p + off * (int64_t)xd_dtype_size(t->type);
}

double value(const void *p, xd_dtype t)
{
    double   d;
    float    f;
    uint16_t h;
    if (t == XD_F64) {
        memcpy(&d, p, sizeof d);
        return d;
    }
    if (t == XD_F8E4M3 || t == XD_F8E5M2) {
        xd_convert(&f, XD_F32, p, t, 1);
        return (double)f;
    }
    memcpy(&f, p, t == XD_F32 ? sizeof f : 0);
    memcpy(&h, p, t == XD_F32 ? 0 : sizeof h);
    return (double)(t == XD_F32 ? f : t == XD_BF16 ? xd_bf16_f32(h) : xd_f16_f32(h));
}

double at(const xd_tensor *t, int64_t i)
{
    return value(element(t, i), t->type);
}

/* Element [i, j] of an operand that may have one row for all. */
double at2(const xd_tensor *t, int64_t i, int64_t j)
{
    return at(t, (t->nd < 2 || t->d[0] == 1 ? 0 : i) * t->d[t->nd - 1] + j);
}

void set(const xd_tensor *t, int64_t i, double v)
{
    double e;
    float  f = (float)v;
    if (t->type == XD_F64)
        e = v;
    else
        xd_convert(&e, t->type, &f, XD_F32, 1);
    memcpy(element(t, i), &e, xd_dtype_size(t->type)); /* may be unaligned */
}

/* A block for a tensor of these extents whose rows (and outer dimensions) lie `gap` elements
 * further apart than they must; `shift` bytes unaligned. Elements are random in -1 .. 1. */
xd_tensor operand_at(xd_dtype type, int nd, const int64_t *d, int64_t gap, int64_t shift)
{
    int64_t   size = (int64_t)xd_dtype_size(type), n = 1;
    xd_tensor t = xd_view(NULL, type, nd, d);
    block    *b = &blocks[nblocks++];
    if (nblocks > MOST_BLOCKS)
        fail_msg("more than %d operands", MOST_BLOCKS);
    for (int k = nd - 1; k >= 0; k--) {
        t.s[k] = n;
        n *= d[k];
        n += k > 0 ? gap : 0;
    }
    b->bytes = (size_t)(n * size + 2 * GUARD + shift);
    b->p = malloc(b->bytes);
    b->before = malloc(b->bytes);
    if (!b->p || !b->before)
        fail_msg("no memory for a test");
    memset(b->p, 0xFF, b->bytes); /* NaNs: what reads between rows shows it */
    t.p = b->p + GUARD + shift;
    for (int64_t i = 0; i < xd_count(t); i++)
        set(&t, i, real());
    return t;
}

xd_tensor operand(xd_dtype type, int nd, const int64_t *d, int64_t gap)
{
    return operand_at(type, nd, d, gap, 0);
}

xd_tensor matrix(xd_dtype type, int64_t rows, int64_t cols, int64_t gap)
{
    return operand(type, 2, (int64_t[]){ rows, cols }, gap);
}

void remember(void)
{
    for (int i = 0; i < nblocks; i++)
        memcpy(blocks[i].before, blocks[i].p, blocks[i].bytes);
}

double tolerance(xd_dtype t)
{
    return t == XD_BF16 ? 1e-2 : t == XD_F16 ? 1e-3 : 1e-5;
}

void allow(const xd_tensor *out)
{
    const char *p = out->p;
    for (int b = 0; b < nblocks; b++)
        if (p >= blocks[b].p && p < blocks[b].p + blocks[b].bytes)
            for (int64_t i = 0; i < xd_count(*out); i++) {
                char *e = element(out, i);
                memcpy(blocks[b].before + (e - blocks[b].p), e, xd_dtype_size(out->type));
            }
}

void check(const char *what, const xd_tensor *out, const double *want)
{
    double  most = 1e-30, worst = 0;
    int64_t n = xd_count(*out), where = -1;
    for (int64_t i = 0; i < n; i++)
        most = fabs(want[i]) > most ? fabs(want[i]) : most;
    for (int64_t i = 0; i < n; i++) {
        double e = fabs(at(out, i) - want[i]);
        if (e > worst || isnan(e)) { /* a NaN stays */
            worst = e;
            where = i;
        }
    }
    if (!(worst <= tolerance(out->type) * most))
        fail_msg("%s: element %lld is %.9g, not %.9g (largest %.3g)", what, (long long)where,
                 at(out, where), want[where], most);
    allow(out);
    for (int b = 0; b < nblocks; b++)
        if (memcmp(blocks[b].p, blocks[b].before, blocks[b].bytes) != 0)
            fail_msg("%s: wrote outside its result (operand %d)", what, b);
}

/* Scratch of exactly the size that was asked for, with a guard behind it. */
void *scratch_for(xd_op op, const void *args, size_t *n)
{
    *n = dev->ops->scratch(dev, op, args);
    char *tmp = aligned_alloc(64, (*n + GUARD + 63) / 64 * 64);
    if (!tmp)
        fail_msg("no memory for %zu bytes of scratch", *n);
    memset(tmp + *n, 0x5A, GUARD);
    return tmp;
}

void scratch_done(const char *what, void *tmp, size_t n)
{
    for (size_t i = 0; i < GUARD; i++)
        if (((unsigned char *)tmp)[n + i] != 0x5A)
            fail_msg("%s: wrote behind its %zu bytes of scratch", what, n);
    free(tmp);
}

double *numbers(int64_t n)
{
    double *v = calloc((size_t)(n > 0 ? n : 1), sizeof *v);
    if (!v)
        fail_msg("no memory for %lld numbers", (long long)n);
    return v;
}

double act_of(double v, xd_act act)
{
    switch (act) {
    case XD_GELU_TANH: return 0.5 * v * (1 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
    case XD_GELU_ERF: return 0.5 * v * (1 + erf(v * 0.7071067811865476));
    case XD_GELU_QUICK: return v / (1 + exp(-1.702 * v));
    case XD_SILU: return v / (1 + exp(-v));
    case XD_RELU: return v < 0 ? 0 : v;
    case XD_TANH: return tanh(v);
    case XD_SIGMOID: return 1 / (1 + exp(-v));
    case XD_SINE_SQUARED: return sin(v) * sin(v);
    default: return v;
    }
}

/* BF16, or now and then F16 where the device computes in it. */
xd_dtype half(void)
{
    return xd_dev_compute(dev, XD_F16) == XD_F16 && upto(2) ? XD_F16 : XD_BF16;
}

xd_dtype f32_or_half(void)
{
    return upto(2) ? half() : XD_F32;
}

/* F32, and BF16 or F16 where this table multiplies such values. */
xd_dtype compute_type(void)
{
    return xd_dev_compute(dev, f32_or_half());
}

/* F32, and what else the biases of linear layers may have. */
xd_dtype bias_type(void)
{
    return dev->narrow_bias ? f32_or_half() : XD_F32;
}

int own_products(void)
{
    return strcmp(dev->name, "cuda-mirror") != 0 || getenv("XDIT_SIM_NO_PRODUCTS");
}

xd_tensor maybe(xd_tensor t)
{
    return upto(2) ? t : (xd_tensor){ 0 };
}
