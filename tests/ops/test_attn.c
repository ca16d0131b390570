/* test_attn.c - attention of every instruction set against a double-precision reference.
 *
 * Tolerances: 2e-5 of the largest output for f32 products and results, 1e-2 where products or
 * results are bf16; log-sum-exp 2e-5 (bf16 products: 1e-2) of max(1, |lse|). Cuts into segments,
 * thread counts and subsets of queries must not change a bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/attn/attn.h"
#include "backend/cpu/cpu.h"
#include "base/par.h"

enum { GUARD = 0xa5, EDGE = 64, MAXSEG = 4 };

typedef struct variant {
    const char *name;
    size_t    (*scratch)(const xd_attn_args *a, int threads);
    xd_status (*run)(const xd_attn_args *a, void *tmp);
    xd_isa      needs;
    int         pairs;          /* bf16 products of bf16 operands                             */
} variant;

typedef struct shape {
    int64_t  B, n, H, Hk, D, seg[MAXSEG];
    xd_dtype type, out;
    int64_t  window;
    int      causal, bias, len; /* bias 1: rows of keys, 2: any strides; len: kv_len          */
    int      layout;            /* 0: [B,n,H,D], 1: [B,H,n,D], 2: gaps everywhere              */
    float    scale;
} shape;

/* ---- data ---------------------------------------------------------------------------------- */

static uint64_t seed = 1;

static uint32_t draw(uint32_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % below;
}

static float uniform(void)
{
    return (float)draw(2000001) / 1000000 - 1;
}

/* A tensor [B,n,H,D] in memory that is all guard bytes, EDGE elements of them before and behind. */
static xd_tensor alloc(xd_dtype t, int layout, int64_t B, int64_t n, int64_t H, int64_t D)
{
    xd_tensor x = { .d = { B, n, H, D, 1 }, .type = t, .nd = 4 };
    int64_t   gap = layout == 2 ? 3 : 0;
    x.s[3] = 1;
    x.s[layout == 1 ? 1 : 2] = D + gap;
    x.s[layout == 1 ? 2 : 1] = layout == 1 ? n * D : H * (D + gap) + 2 * gap;
    x.s[0] = n * H * (D + gap) + 2 * gap * n + 5 * gap;
    size_t bytes = (size_t)(B * x.s[0] + 2 * EDGE) * xd_dtype_size(t);
    x.p = malloc(bytes);
    assert_non_null(x.p);
    memset(x.p, GUARD, bytes);
    x.p = (char *)x.p + EDGE * xd_dtype_size(t);
    return x;
}

static void drop(xd_tensor *x)
{
    if (x->p)
        free((char *)x->p - EDGE * xd_dtype_size(x->type));
    x->p = NULL;
}

static int64_t at(const xd_tensor *x, int64_t b, int64_t i, int64_t h, int64_t c)
{
    return b * x->s[0] + i * x->s[1] + h * x->s[2] + c * x->s[3];
}

static float get(const xd_tensor *x, int64_t b, int64_t i, int64_t h, int64_t c)
{
    int64_t k = at(x, b, i, h, c);
    return x->type == XD_F32 ? ((float *)x->p)[k] : xd_bf16_f32(((uint16_t *)x->p)[k]);
}

static void put(const xd_tensor *x, int64_t b, int64_t i, int64_t h, int64_t c, float v)
{
    int64_t k = at(x, b, i, h, c);
    if (x->type == XD_F32)
        ((float *)x->p)[k] = v;
    else
        ((uint16_t *)x->p)[k] = xd_f32_bf16(v);
}

static void fill(const xd_tensor *x, float size)
{
    for (int64_t b = 0; b < x->d[0]; b++)
        for (int64_t i = 0; i < x->d[1]; i++)
            for (int64_t h = 0; h < x->d[2]; h++)
                for (int64_t c = 0; c < x->d[3]; c++)
                    put(x, b, i, h, c, size * uniform());
}

/* Puts the guard bytes back into the elements; then all of the memory must be guard bytes. */
static void assert_guarded(const xd_tensor *x)
{
    size_t size = xd_dtype_size(x->type), bytes = (size_t)(x->d[0] * x->s[0] + 2 * EDGE) * size;
    const unsigned char *p = (const unsigned char *)x->p - EDGE * size;
    for (int64_t b = 0; b < x->d[0]; b++)
        for (int64_t i = 0; i < x->d[1]; i++)
            for (int64_t h = 0; h < x->d[2]; h++)
                for (int64_t c = 0; c < x->d[3]; c++)
                    memset((char *)x->p + (size_t)at(x, b, i, h, c) * size, GUARD, size);
    for (size_t k = 0; k < bytes; k++)
        if (p[k] != GUARD)
            fail_msg("byte %lld beside the output was written",
                     (long long)k - (long long)(EDGE * size));
}

/* ---- problems and their exact results ------------------------------------------------------ */

typedef struct problem {
    shape        s;
    int64_t      m, len[4];
    xd_tensor    k, v;          /* all keys in one                                            */
    xd_kv        kv[MAXSEG];
    xd_attn_args a;             /* without out and lse                                        */
    float       *rows[3];       /* q [B,H,n,D], k and v [B,Hk,m,D], as floats                  */
    double      *out, *lse;     /* exact: [B,n,H,D], [B,n,H]                                  */
    double       largest;
} problem;

static int visible(const problem *p, int64_t b, int64_t i, int64_t j)
{
    int64_t far = i > j ? i - j : j - i;
    return j < (p->s.len ? p->len[b] : p->m) && (!p->s.window || far <= p->s.window) &&
           (!p->s.causal || j <= i);
}

/* [B,n,H,D] as floats [B,H,n,D]. */
static float *gather(const xd_tensor *x)
{
    int64_t n = x->d[1], H = x->d[2], D = x->d[3];
    float  *to = malloc((size_t)(x->d[0] * n * H * D + 1) * sizeof *to), *f = to;
    assert_non_null(to);
    for (int64_t r = 0; r < x->d[0] * n * H; r++)
        for (int64_t d = 0; d < D; d++)
            *f++ = get(x, r / n / H, r % n, r / n % H, d);
    return to;
}

static void solve_row(problem *p, int64_t b, int64_t i, int64_t h, double *s)
{
    const shape *c = &p->s;
    const float *bias = p->a.bias.p, *q = p->rows[0] + ((b * c->H + h) * c->n + i) * c->D;
    int64_t      row = (b * c->n + i) * c->H + h, g = (b * c->Hk + h * c->Hk / c->H) * p->m;
    double       top = -INFINITY, l = 0, *o = p->out + row * c->D;
    for (int64_t j = 0; j < p->m; j++) {
        const float *k = p->rows[1] + (g + j) * c->D;
        double       x = 0;
        for (int64_t d = 0; d < c->D; d++)
            x += (double)q[d] * (double)k[d];
        x *= (double)c->scale;
        if (bias)
            x += (double)bias[h * p->a.bias.s[0] + i * p->a.bias.s[1] + j * p->a.bias.s[2]];
        s[j] = visible(p, b, i, j) ? x : -INFINITY;
        top = s[j] > top ? s[j] : top;
    }
    for (int64_t j = 0; j < p->m && top > -INFINITY; j++) {
        const float *v = p->rows[2] + (g + j) * c->D;
        double       e = exp(s[j] - top);
        l += e;
        for (int64_t d = 0; d < c->D && e > 0; d++)
            o[d] += e * (double)v[d];
    }
    for (int64_t d = 0; d < c->D; d++) {
        o[d] = l > 0 ? o[d] / l : 0;
        p->largest = fabs(o[d]) > p->largest ? fabs(o[d]) : p->largest;
    }
    p->lse[row] = l > 0 ? top + log(l) : -INFINITY;
}

static void solve(problem *p)
{
    const shape *c = &p->s;
    double      *s = calloc((size_t)p->m + 1, sizeof *s);
    p->rows[0] = gather(&p->a.q), p->rows[1] = gather(&p->k), p->rows[2] = gather(&p->v);
    p->out = calloc((size_t)(c->B * c->n * c->H * c->D) + 1, sizeof *p->out);
    p->lse = calloc((size_t)(c->B * c->n * c->H) + 1, sizeof *p->lse);
    assert_true(s && p->out && p->lse);
    for (int64_t b = 0; b < c->B; b++)
        for (int64_t i = 0; i < c->n; i++)
            for (int64_t h = 0; h < c->H; h++)
                solve_row(p, b, i, h, s);
    free(s);
}

/* After a change of the operands. */
static void solve_again(problem *p)
{
    for (int i = 0; i < 3; i++)
        free(p->rows[i]);
    free(p->out), free(p->lse);
    p->largest = 0;
    solve(p);
}

static void make_bias(problem *p)
{
    const shape *c = &p->s;
    int64_t      wide = p->m + 3, count = c->H * c->n * wide * 2;
    float       *f = malloc((size_t)(count + 1) * sizeof *f);
    assert_non_null(f);
    for (int64_t i = 0; i < count; i++)
        f[i] = draw(40) ? 3 * uniform() : -INFINITY;
    p->a.bias = (xd_tensor){ .p = f, .d = { c->H, c->n, p->m, 1, 1 }, .nd = 3 };
    p->a.bias.s[2] = c->bias == 2 ? 2 * c->n : 1;
    p->a.bias.s[1] = c->bias == 2 ? 2 : wide;
    p->a.bias.s[0] = c->n * wide * 2;
}

static void cut(problem *p, const int64_t *seg)
{
    int64_t first = 0;
    for (int i = 0; i < MAXSEG; i++) {
        p->kv[i] = (xd_kv){ p->k, p->v };
        p->kv[i].k.p = (char *)p->k.p + (size_t)(first * p->k.s[1]) * xd_dtype_size(p->k.type);
        p->kv[i].v.p = (char *)p->v.p + (size_t)(first * p->v.s[1]) * xd_dtype_size(p->v.type);
        p->kv[i].k.d[1] = p->kv[i].v.d[1] = seg[i];
        first += seg[i];
    }
    p->a.kv = p->kv;
    p->a.nkv = MAXSEG;
}

static void make(problem *p, const shape *c)
{
    *p = (problem){ .s = *c };
    for (int i = 0; i < MAXSEG; i++)
        p->m += c->seg[i];
    p->a = (xd_attn_args){ .scale = c->scale, .window = c->window, .causal = c->causal };
    p->a.q = alloc(c->type, c->layout, c->B, c->n, c->H, c->D);
    p->k = alloc(c->type, (c->layout + 1) % 3, c->B, p->m, c->Hk, c->D);
    p->v = alloc(c->type, c->layout, c->B, p->m, c->Hk, c->D);
    fill(&p->a.q, 2);
    fill(&p->k, 2);
    fill(&p->v, 1);
    cut(p, c->seg);
    for (int64_t b = 0; b < 4; b++)
        p->len[b] = p->m ? (int64_t)draw((uint32_t)p->m + 1) : 0;
    if (c->len)
        p->a.kv_len = p->len;
    if (c->bias)
        make_bias(p);
    solve(p);
}

static void unmake(problem *p)
{
    drop(&p->a.q);
    drop(&p->k);
    drop(&p->v);
    free(p->a.bias.p);
    for (int i = 0; i < 3; i++)
        free(p->rows[i]);
    free(p->out);
    free(p->lse);
}

/* Runs into fresh out and lse; the scratch holds nothing but NaNs and ends in guard bytes. */
static void run(const variant *v, xd_attn_args *a, xd_dtype out, int layout)
{
    const xd_tensor *q = &a->q;
    a->out = alloc(out, layout, q->d[0], q->d[1], q->d[2], q->d[3]);
    a->lse = alloc(XD_F32, layout == 1 ? 0 : 1, q->d[0], q->d[1], q->d[2], 1);
    size_t         bytes = v->scratch(a, xd_par_threads()), whole = (bytes / 64 + 2) * 64;
    unsigned char *tmp = aligned_alloc(64, whole);
    assert_non_null(tmp);
    memset(tmp, 0xff, bytes);
    memset(tmp + bytes, GUARD, whole - bytes);
    assert_int_equal(v->run(a, tmp), XD_OK);
    for (size_t i = bytes; i < whole; i++)
        assert_int_equal(tmp[i], GUARD);
    free(tmp);
}

static void end(xd_attn_args *a)
{
    assert_guarded(&a->out);
    assert_guarded(&a->lse);
    drop(&a->out);
    drop(&a->lse);
}

static void say(const shape *c, const variant *v)
{
    print_message("%s: B %d n %d H %d/%d D %d m %d+%d+%d+%d %s>%s window %d causal %d bias %d "
                  "len %d layout %d scale %g\n",
                  v->name, (int)c->B, (int)c->n, (int)c->H, (int)c->Hk, (int)c->D, (int)c->seg[0],
                  (int)c->seg[1], (int)c->seg[2], (int)c->seg[3], xd_dtype_name(c->type),
                  xd_dtype_name(c->out), (int)c->window, c->causal, c->bias, c->len, c->layout,
                  (double)c->scale);
}

static void compare(const problem *p, const variant *v, const xd_attn_args *a)
{
    const shape *c = &p->s;
    int          loose = v->pairs && c->type == XD_BF16;
    double       tol = (loose || c->out == XD_BF16 ? 1e-2 : 2e-5) * p->largest;
    double       far = 0, off = 0;
    for (int64_t r = 0; r < c->B * c->n * c->H; r++) {
        int64_t b = r / c->H / c->n, i = r / c->H % c->n, h = r % c->H;
        double  e = p->lse[r], g = (double)get(&a->lse, b, i, h, 0);
        for (int64_t d = 0; d < c->D; d++) {
            double x = fabs((double)get(&a->out, b, i, h, d) - p->out[r * c->D + d]);
            far = x > far || isnan(x) ? x : far;
        }
        if (isinf(e) ? g != e : !(fabs(g - e) <= (loose ? 1e-2 : 2e-5) * fmax(1, fabs(e))))
            off = fabs(g - e);
    }
    if (!(far <= tol) || off != 0) {
        say(c, v);
        fail_msg("out is %g off, %g allowed; lse %g off", far, tol, off);
    }
}

static void check(const variant *v, const shape *c)
{
    problem p;
    make(&p, c);
    run(v, &p.a, c->out, c->layout);
    compare(&p, v, &p.a);
    end(&p.a);
    unmake(&p);
}

/* ---- tests ---------------------------------------------------------------------------------- */

/* NULL, with the reason printed, where this processor cannot run the variant: meson takes cmocka's
 * own way of skipping for a failure. */
static const variant *available(void **state)
{
    const variant *v = *state;
    if (xd_isa_has(v->needs))
        return v;
    print_message("# skipped: this processor has no %s\n", xd_isa_name(v->needs));
    return NULL;
}

static const shape plain = { 1, 37, 2, 2, 64, { 70 }, XD_F32, XD_F32, .scale = 0.125f };

static void test_head_dims(void **state)
{
    const variant *v = available(state);
    if (!v)
        return;
    static const int64_t dims[] = { 1,  8,  9,  16, 20, 31, 40,  56,  64,  72,  80,
                                    88, 96, 112, 120, 128, 160, 192, 200, 255, 256, 512 };
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (int t = 0; t < 2; t++) {
            shape c = plain;
            c.D = dims[i];
            c.type = c.out = t ? XD_BF16 : XD_F32;
            c.scale = 1 / sqrtf((float)c.D);
            check(v, &c);
        }
}

static void test_lengths(void **state)
{
    const variant *v = available(state);
    if (!v)
        return;
    static const int64_t n[] = { 0, 1, 5, 12, 95, 96, 97, 200 };
    static const int64_t m[] = { 0, 1, 2, 15, 16, 17, 63, 64, 65, 383, 384, 385, 800 };
    for (size_t i = 0; i < sizeof n / sizeof *n; i++)
        for (size_t j = 0; j < sizeof m / sizeof *m; j++) {
            shape c = plain;
            c.n = n[i];
            c.H = c.Hk = 1;
            c.D = 24;
            c.seg[0] = m[j];
            c.type = (i + j) % 3 ? XD_F32 : XD_BF16;
            check(v, &c);
        }
}

static void test_features(void **state)
{
    const variant *v = available(state);
    if (!v)
        return;
    for (int bits = 0; bits < 48; bits++) {
        shape c = { 2, 101, 4, 2, 40, { 100, 0, 31, 150 }, XD_F32, XD_F32, .scale = 0.2f };
        c.bias = bits % 3;
        c.causal = bits / 3 % 2;
        c.window = bits / 6 % 2 ? 33 : 0;
        c.len = bits / 12 % 2;
        c.type = bits / 24 % 2 ? XD_BF16 : XD_F32;
        c.out = bits % 5 == 0 ? XD_BF16 : XD_F32;
        c.layout = bits % 3;
        check(v, &c);
    }
}

static void test_random(void **state)
{
    const variant *v = available(state);
    if (!v)
        return;
    seed = 2024;
    for (int k = 0; k < 60; k++) {
        shape c = { .B = 1 + draw(2), .n = draw(k % 10 ? 60 : 250), .Hk = 1 + draw(3) };
        c.H = c.Hk * (1 + draw(3));
        c.D = draw(8) ? 8 + draw(120) : 8 + draw(505);
        for (int i = 0; i < MAXSEG; i++)
            c.seg[i] = draw(3) ? draw(k % 7 ? 60 : 400) : 0;
        c.type = draw(2) ? XD_F32 : XD_BF16;
        c.out = draw(2) ? XD_F32 : XD_BF16;
        c.window = draw(3) ? 0 : 1 + draw(50);
        c.causal = draw(4) == 0;
        c.bias = draw(3) ? 0 : 1 + (int)draw(2);
        c.len = draw(3) == 0;
        c.layout = (int)draw(3);
        c.scale = draw(10) ? 1 / sqrtf((float)c.D) : draw(2) ? 0 : -0.3f;
        check(v, &c);
    }
}

static void assert_same_bits(const xd_attn_args *x, const xd_attn_args *y, int64_t first)
{
    for (int64_t b = 0; b < y->out.d[0]; b++)
        for (int64_t i = 0; i < y->out.d[1]; i++)
            for (int64_t h = 0; h < y->out.d[2]; h++) {
                size_t size = xd_dtype_size(y->out.type);
                int64_t kx = at(&x->out, b, first + i, h, 0), ky = at(&y->out, b, i, h, 0);
                assert_memory_equal((char *)x->out.p + (size_t)kx * size,
                                    (char *)y->out.p + (size_t)ky * size,
                                    (size_t)y->out.d[3] * size);
                assert_memory_equal((float *)x->lse.p + at(&x->lse, b, first + i, h, 0),
                                    (float *)y->lse.p + at(&y->lse, b, i, h, 0), sizeof(float));
            }
}

static const int64_t cuts[][MAXSEG] = {
    { 700, 0, 0, 0 }, { 1, 698, 0, 1 }, { 0, 256, 255, 189 }, { 333, 17, 50, 300 }
};

static void test_bits(void **state)
{
    const variant *v = available(state);
    if (!v)
        return;
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
            for (int threads = 1; threads <= 3; threads++) {
                shape        c = { 1, 111, 4, 2, 72, { 700 }, .scale = 0.1f, .bias = (int)i % 2 };
                problem      p;
                xd_attn_args a;
                c.type = c.out = t ? XD_BF16 : XD_F32;
                seed = 5;
                make(&p, &c);
                xd_par_set(1);
                run(v, &p.a, c.out, 0);
                a = p.a;
                cut(&p, cuts[i]);
                xd_par_set(threads);
                run(v, &p.a, c.out, 0);
                assert_same_bits(&a, &p.a, 0);
                end(&p.a);
                end(&a);
                unmake(&p);
            }
    xd_par_set(2);
}

static void test_some_queries(void **state)
{
    const variant *v = available(state);
    if (!v)
        return;
    static const int64_t first[] = { 0, 1, 96, 200, 210 };
    for (int t = 0; t < 2; t++) {
        shape   c = { 2, 211, 3, 3, 64, { 300, 20 }, .scale = 0.1f, .len = 1 };
        problem p;
        c.type = c.out = t ? XD_BF16 : XD_F32;
        make(&p, &c);
        run(v, &p.a, c.out, 0);
        for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
            xd_attn_args a = p.a;
            a.q.p = (char *)a.q.p + (size_t)(first[i] * a.q.s[1]) * xd_dtype_size(c.type);
            a.q.d[1] = i + 1 < sizeof first / sizeof *first ? first[i + 1] - first[i] : 1;
            run(v, &a, c.out, 0);
            assert_same_bits(&p.a, &a, first[i]);
            end(&a);
        }
        end(&p.a);
        unmake(&p);
    }
}

/* Queries 0, -1/500, -2/500 .. against the keys 0 and 1: the weight of the second value, the output, is
 * e^x / (1 + e^x). */
static void two_keys(const variant *v, problem *p, const shape *c)
{
    make(p, c);
    for (int64_t i = 0; i < c->n; i++)
        for (int64_t d = 0; d < 8; d++)
            put(&p->a.q, 0, i, 0, d, d ? 0 : (float)-i / 500);
    for (int64_t d = 0; d < 8; d++) {
        put(&p->k, 0, 0, 0, d, 0), put(&p->k, 0, 1, 0, d, d ? 0 : 1);
        put(&p->v, 0, 0, 0, d, 0), put(&p->v, 0, 1, 0, d, 1);
    }
    run(v, &p->a, XD_F32, 0);
}

/* The relative error of a weight is that of the exponential and of a few roundings: 1e-6. */
static void test_exponential(void **state)
{
    const variant *v = available(state);
    if (!v)
        return;
    shape   c = { 1, 4001, 1, 1, 8, { 2 }, XD_F32, XD_F32, .scale = 1 };
    problem p;
    two_keys(v, &p, &c);
    for (int64_t i = 0; i < c.n; i++) {
        double e = exp((double)get(&p.a.q, 0, i, 0, 0)), w = e / (1 + e);
        double g = (double)get(&p.a.out, 0, i, 0, 0), l = (double)get(&p.a.lse, 0, i, 0, 0);
        if (fabs(g - w) > 1e-6 * w || fabs(l - log1p(e)) > 1e-6)
            fail_msg("at %g: %.9g for %.9g, lse %.9g for %.9g", -(double)i / 500, g, w, l,
                     log1p(e));
    }
    end(&p.a);
    unmake(&p);
}

/* The same where probabilities are bf16: rounded they are 0.17 % (rms) and at most 0.4 % off, in fixed point
 * with a table 0.23 and 0.75 %. */
static void test_short_exponential(void **state)
{
    const variant *v = available(state);
    if (!v)
        return;
    shape   c = { 1, 4001, 1, 1, 8, { 2 }, XD_BF16, XD_F32, .scale = 1 };
    problem p;
    double  squares = 0, most = 0;
    two_keys(v, &p, &c);
    for (int64_t i = 0; i < c.n; i++) {
        double g = (double)get(&p.a.out, 0, i, 0, 0), e = exp((double)get(&p.a.q, 0, i, 0, 0));
        double off = fabs(g / (1 - g) / e - 1);
        squares += off * off;
        most = off > most || !(off >= 0) ? off : most;
    }
    if (!(most < 0.008) || !(squares < (double)c.n * 0.0026 * 0.0026))
        fail_msg("%g off at most, %g (rms)", most, sqrt(squares / (double)c.n));
    end(&p.a);
    unmake(&p);
}

/* Scores of +-150 leave the range of the exponential far behind; of +-0.01 they hardly differ. */
static void test_large_scores(void **state)
{
    const variant *v = available(state);
    if (!v)
        return;
    for (int t = 0; t < 8; t++) {
        shape c = { 1, 20, 1, 1, 16, { 600 }, XD_F32, XD_F32, .scale = 1e-3f };
        c.scale = t ? 10 : 1e-3f;
        check(v, &c);
    }
}

/* Scores that climb from key block to key block, by less and by more than what a row is rescaled
 * for, and scores that fall. */
static void test_climbing_scores(void **state)
{
    const variant *v = available(state);
    if (!v)
        return;
    for (int t = 0; t < 2; t++) {
        shape   c = { 1, 26, 1, 1, 16, { 1500 }, t ? XD_BF16 : XD_F32, XD_F32, .scale = 1 };
        problem p;
        make(&p, &c);
        for (int64_t j = 0; j < 1500; j++)
            put(&p.k, 0, j, 0, 0, (float)j / 100);
        for (int64_t i = 0; i < c.n; i++)
            for (int64_t d = 0; d < 16; d++)
                put(&p.a.q, 0, i, 0, d, d ? 0 : (float)(i - 8) / 4);
        solve_again(&p);
        run(v, &p.a, c.out, 0);
        compare(&p, v, &p.a);
        end(&p.a);
        unmake(&p);
    }
}

/* A first key that scores far below or above the others, by less and by more than a float's exponent
 * holds, and late keys that differ as much again. Results are bf16: scores are large. */
static void test_low_first_score(void **state)
{
    const variant *v = available(state);
    if (!v)
        return;
    static const float low[] = { -30, -80, -150, -3000, 40, 300 };
    for (size_t t = 0; t < sizeof low / sizeof *low; t++) {
        shape   c = { 1, 70, 2, 1, 40, { 300 }, XD_BF16, XD_BF16, .scale = 1 };
        problem p;
        make(&p, &c);
        for (int64_t j = 0; j < 300; j++)
            put(&p.k, 0, j, 0, 0, j == 0 ? low[t] : j >= 200 ? -low[t] : 0);
        for (int64_t i = 0; i < c.n; i++)
            for (int64_t h = 0; h < 2; h++)
                put(&p.a.q, 0, i, h, 0, i % 3 ? 1 : 0);
        solve_again(&p);
        run(v, &p.a, c.out, 0);
        compare(&p, v, &p.a);
        end(&p.a);
        unmake(&p);
    }
}

static void test_not_a_number(void **state)
{
    const variant *v = available(state);
    if (!v)
        return;
    shape   c = { 1, 3, 1, 1, 16, { 300 }, XD_F32, XD_F32, .scale = 1 };
    problem p;
    make(&p, &c);
    put(&p.a.q, 0, 1, 0, 3, NAN);
    run(v, &p.a, XD_F32, 0);
    assert_true(isnan(get(&p.a.out, 0, 1, 0, 0)) && isnan(get(&p.a.lse, 0, 1, 0, 0)));
    assert_false(isnan(get(&p.a.out, 0, 0, 0, 0)) || isnan(get(&p.a.out, 0, 2, 0, 0)));
    end(&p.a);
    unmake(&p);
}

/* In bf16: a query or a key that is no number, of either sign, or whose score no integer holds, which has all
 * weight (1e-2). Other rows keep their bits. */
static void test_no_number_beside(void **state)
{
    const variant *v = available(state);
    if (!v)
        return;
    static const float none[] = { NAN, -NAN, INFINITY };
    for (int64_t D = 64; D <= 72; D += 8)
        for (int t = 0; t < 4; t++) {
            shape   c = { 1, 40, 1, 1, D, { 400 }, XD_BF16, XD_F32, .scale = 1 };
            problem p;
            make(&p, &c);
            for (int64_t j = 0; j < 400; j++)
                put(&p.k, 0, j, 0, 0, t == 3 && j == 300 ? 8192 : 0);
            xd_attn_args clean = p.a;
            run(v, &clean, XD_F32, 0);
            put(&p.a.q, 0, 5, 0, 0, t < 3 ? none[t] : 4096);
            run(v, &p.a, XD_F32, 0);
            for (int64_t x = 0; x < D; x++) {
                const float g = get(&p.a.out, 0, 5, 0, x);
                assert_true(t < 3 ? isnan(g) : fabsf(g - get(&p.v, 0, 300, 0, x)) < 1e-2f);
                assert_true(get(&p.a.out, 0, 6, 0, x) == get(&clean.out, 0, 6, 0, x));
            }
            end(&p.a);
            end(&clean);
            put(&p.a.q, 0, 5, 0, 0, 1);
            put(&p.k, 0, 200, 0, 1, t < 3 ? none[t] : NAN);
            run(v, &p.a, XD_F32, 0);
            for (int64_t i = 0; i < c.n; i++)
                assert_true(!isfinite(get(&p.a.out, 0, i, 0, 0)) || t == 2);
            end(&p.a);
            unmake(&p);
        }
}

static void test_refused(void **state)
{
    const variant *v = available(state);
    if (!v)
        return;
    shape        c = { 1, 3, 4, 2, 16, { 5, 6 }, XD_F32, XD_F32, .scale = 1 };
    problem      p;
    xd_attn_args a;
    make(&p, &c);
    run(v, &p.a, XD_F32, 0);
    a = p.a, a.q.d[2] = a.out.d[2] = a.lse.d[2] = 3;
    assert_int_equal(v->run(&a, NULL), XD_EINVAL);
    a = p.a, a.q.d[3] = a.out.d[3] = 513;
    assert_int_equal(v->run(&a, NULL), XD_EUNSUPPORTED);
    a = p.a, a.q.type = XD_F16;
    assert_int_equal(v->run(&a, NULL), XD_EUNSUPPORTED);
    a = p.a, a.q.s[3] = 2;
    assert_int_equal(v->run(&a, NULL), XD_EINVAL);
    a = p.a, a.out.d[1] = 2;
    assert_int_equal(v->run(&a, NULL), XD_EINVAL);
    p.kv[1].v.d[1]--;
    assert_int_equal(v->run(&p.a, NULL), XD_EINVAL);
    end(&p.a);
    unmake(&p);
}

/* Attention over two sets of keys, joined, is attention over all; 2e-5. */
static void test_merge(void **state)
{
    const variant *v = available(state);
    if (!v)
        return;
    for (int64_t half = 0; half <= 90; half += 30) {
        shape        c = { 2, 25, 4, 2, 40, { 90 }, XD_F32, XD_F32, .scale = 0.3f };
        problem      p;
        xd_attn_args x, y;
        c.layout = (int)(half / 30 % 3);
        make(&p, &c);
        const int64_t seg[MAXSEG] = { half, 90 - half, 0, 0 };
        cut(&p, seg);
        x = y = p.a;
        x.nkv = 1, y.kv++, y.nkv = 1;
        run(v, &x, XD_F32, c.layout);
        run(v, &y, XD_F32, (c.layout + 1) % 3);
        assert_int_equal(xd_merge_cpu(&(xd_merge){ x.out, x.lse, y.out, y.lse }), XD_OK);
        compare(&p, v, &x);
        end(&x);
        end(&y);
        unmake(&p);
    }
}

/* A side without keys leaves the other alone, whatever it holds; bf16 partials are accepted. */
static void test_merge_nothing(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        xd_tensor o = alloc(XD_F32, 0, 1, 3, 1, 8), l = alloc(XD_F32, 0, 1, 3, 1, 1);
        xd_tensor po = alloc(t ? XD_BF16 : XD_F32, 2, 1, 3, 1, 8);
        xd_tensor pl = alloc(XD_F32, 2, 1, 3, 1, 1);
        for (int64_t i = 0; i < 3; i++) {
            for (int64_t d = 0; d < 8; d++) {
                put(&o, 0, i, 0, d, i == 1 ? NAN : 3);
                put(&po, 0, i, 0, d, i == 0 ? NAN : 5);
            }
            put(&l, 0, i, 0, 0, i == 1 ? -INFINITY : 1);
            put(&pl, 0, i, 0, 0, i == 0 ? -INFINITY : 1);
        }
        assert_int_equal(xd_merge_cpu(&(xd_merge){ o, l, po, pl }), XD_OK);
        for (int64_t d = 0; d < 8; d++) {
            assert_true(get(&o, 0, 0, 0, d) == 3 && get(&o, 0, 1, 0, d) == 5);
            assert_true(fabsf(get(&o, 0, 2, 0, d) - 4) < 1e-6f);
        }
        assert_true(get(&l, 0, 0, 0, 0) == 1 && get(&l, 0, 1, 0, 0) == 1);
        assert_true(fabsf(get(&l, 0, 2, 0, 0) - 1.69314718f) < 1e-6f);
        po.d[1] = 2;
        assert_int_equal(xd_merge_cpu(&(xd_merge){ o, l, po, pl }), XD_EINVAL);
        po.d[1] = 3;
        assert_guarded(&o), assert_guarded(&l);
        drop(&o), drop(&l), drop(&po), drop(&pl);
    }
}

static variant variants[] = {
    { "c", xd_attn_scratch_c, xd_attn_c, XD_ISA_C, 0 },
#if defined(__x86_64__)
    { "avx2", xd_attn_scratch_avx2, xd_attn_avx2, XD_ISA_AVX2, 0 },
    { "avx512", xd_attn_scratch_avx512, xd_attn_avx512, XD_ISA_AVX512, 0 },
    { "bf16emu", xd_attn_scratch_bf16emu, xd_attn_bf16emu, XD_ISA_AVX512, 1 },
    { "avx512bf16", xd_attn_scratch_avx512bf16, xd_attn_avx512bf16, XD_ISA_AVX512BF16, 1 },
#endif
#ifdef XD_WITH_AMX
    { "amx", xd_attn_scratch_amx, xd_attn_amx, XD_ISA_AMX, 1 },
#endif
};

static const struct {
    const char      *name;
    CMUnitTestFunction fn;
} tests[] = {
    { "head_dims", test_head_dims },       { "lengths", test_lengths },
    { "features", test_features },         { "random", test_random },
    { "bits", test_bits },                 { "some_queries", test_some_queries },
    { "exponential", test_exponential },   { "large_scores", test_large_scores },
    { "short_exponential", test_short_exponential },
    { "climbing_scores", test_climbing_scores }, { "low_first_score", test_low_first_score },
    { "not_a_number", test_not_a_number }, { "no_number_beside", test_no_number_beside },
    { "refused", test_refused },           { "merge", test_merge },
};

int main(void)
{
    enum { NV = sizeof variants / sizeof *variants, NT = sizeof tests / sizeof *tests };
    static struct CMUnitTest all[NV * NT + 1];
    static char              names[NV * NT][64];
    for (size_t i = 0; i < NV * NT; i++) {
        strcat(strcat(strcpy(names[i], variants[i / NT].name), " "), tests[i % NT].name);
        all[i] = (struct CMUnitTest){ names[i], tests[i % NT].fn, NULL, NULL, &variants[i / NT] };
    }
    all[NV * NT] = (struct CMUnitTest)cmocka_unit_test(test_merge_nothing);
    xd_par_set(2);
    return cmocka_run_group_tests_name("attn", all, NULL, NULL);
}
