/* attn_problem.c - see attn_problem.h */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "attn_problem.h"
#include "backend/cpu/attn/attn.h"
#include "backend/cpu/cpu.h"
#include "base/par.h"

enum { GUARD = 0xa5, EDGE = 64 };

/* ---- data ---------------------------------------------------------------------------------- */

uint64_t seed = 1;

uint32_t draw(uint32_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % below;
}

static float uniform(void)
{
    return (float)draw(2000001) / 1000000 - 1;
}

xd_tensor alloc(xd_dtype t, int layout, int64_t B, int64_t n, int64_t H, int64_t D)
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

void drop(xd_tensor *x)
{
    if (x->p)
        free((char *)x->p - EDGE * xd_dtype_size(x->type));
    x->p = NULL;
}

static int64_t at(const xd_tensor *x, int64_t b, int64_t i, int64_t h, int64_t c)
{
    return b * x->s[0] + i * x->s[1] + h * x->s[2] + c * x->s[3];
}

float get(const xd_tensor *x, int64_t b, int64_t i, int64_t h, int64_t c)
{
    int64_t k = at(x, b, i, h, c);
    float   v;
    xd_convert(&v, XD_F32, (char *)x->p + k * (int64_t)xd_dtype_size(x->type), x->type, 1);
    return v;
}

void put(const xd_tensor *x, int64_t b, int64_t i, int64_t h, int64_t c, float v)
{
    int64_t k = at(x, b, i, h, c);
    xd_convert((char *)x->p + k * (int64_t)xd_dtype_size(x->type), x->type, &v, XD_F32, 1);
}

static void fill(const xd_tensor *x, float size)
{
    for (int64_t b = 0; b < x->d[0]; b++)
        for (int64_t i = 0; i < x->d[1]; i++)
            for (int64_t h = 0; h < x->d[2]; h++)
                for (int64_t c = 0; c < x->d[3]; c++)
                    put(x, b, i, h, c, size * uniform());
}

void assert_guarded(const xd_tensor *x)
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

/* One thread computes it: ThreadSanitizer would only make it slow. */
#if defined(__GNUC__)
__attribute__((no_sanitize("thread")))
#endif
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
        if (c->softcap > 0)
            x = (double)c->softcap * tanh(x / (double)c->softcap);
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

void solve_again(problem *p)
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

void cut(problem *p, const int64_t *seg)
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

void make(problem *p, const shape *c)
{
    *p = (problem){ .s = *c };
    for (int i = 0; i < MAXSEG; i++)
        p->m += c->seg[i];
    p->a = (xd_attn_args){
        .scale = c->scale, .window = c->window, .causal = c->causal, .softcap = c->softcap
    };
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

void unmake(problem *p)
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

/* Rows [row, row + n) of [B,n,H,D]. */
static xd_tensor rows_of(const xd_tensor *t, int64_t row, int64_t n)
{
    xd_tensor x = *t;
    x.p = (char *)t->p + row * t->s[1] * (int64_t)xd_dtype_size(t->type);
    x.d[1] = n;
    return x;
}

void run(const variant *v, xd_attn_args *a, xd_dtype out, int layout)
{
    const xd_tensor *q = &a->q;
    xd_attn_args     b;
    xd_qo            piece[MAXSEG];
    int64_t          row = 0;
    a->out = alloc(out, layout, q->d[0], q->d[1], q->d[2], q->d[3]);
    a->lse = alloc(XD_F32, layout == 1 ? 0 : 1, q->d[0], q->d[1], q->d[2], 1);
    b = *a;
    for (int i = 0; i < a->nparts; row += a->part[i++].q.d[1])
        piece[i] =
            (xd_qo){ rows_of(q, row, a->part[i].q.d[1]), rows_of(&a->out, row, a->part[i].q.d[1]) };
    if (a->nparts)
        b.part = piece, b.q.p = b.out.p = NULL;
    size_t         bytes = v->scratch(&b, xd_par_threads()), whole = (bytes / 64 + 2) * 64;
    unsigned char *tmp = aligned_alloc(64, whole);
    assert_non_null(tmp);
    memset(tmp, 0xff, bytes);
    memset(tmp + bytes, GUARD, whole - bytes);
    assert_int_equal(v->run(&b, tmp), XD_OK);
    for (size_t i = bytes; i < whole; i++)
        assert_int_equal(tmp[i], GUARD);
    free(tmp);
}

void end(xd_attn_args *a)
{
    assert_guarded(&a->out);
    assert_guarded(&a->lse);
    drop(&a->out);
    drop(&a->lse);
}

static void say(const shape *c, const variant *v)
{
    print_message("%s: B %d n %d H %d/%d D %d m %d+%d+%d+%d %s>%s window %d causal %d bias %d "
                  "len %d layout %d scale %g cap %g\n",
                  v->name, (int)c->B, (int)c->n, (int)c->H, (int)c->Hk, (int)c->D, (int)c->seg[0],
                  (int)c->seg[1], (int)c->seg[2], (int)c->seg[3], xd_dtype_name(c->type),
                  xd_dtype_name(c->out), (int)c->window, c->causal, c->bias, c->len, c->layout,
                  (double)c->scale, (double)c->softcap);
}

void compare(const problem *p, const variant *v, const xd_attn_args *a)
{
    const shape *c = &p->s;
    int          loose = v->pairs && c->type != XD_F32;
    double       half = c->type == XD_BF16 || c->out == XD_BF16 ? 1e-2 : 2e-3;
    double       tol = (loose || c->out != XD_F32 ? half : 2e-5) * p->largest;
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

void check(const variant *v, const shape *c)
{
    problem p;
    make(&p, c);
    run(v, &p.a, c->out, c->layout);
    compare(&p, v, &p.a);
    end(&p.a);
    unmake(&p);
}

const variant *available(void **state)
{
    const variant *v = *state;
    if (xd_isa_has(v->needs))
        return v;
    print_message("# skipped: this processor has no %s\n", xd_isa_name(v->needs));
    return NULL;
}

void assert_same_bits(const xd_attn_args *x, const xd_attn_args *y, int64_t first)
{
    for (int64_t b = 0; b < y->out.d[0]; b++)
        for (int64_t i = 0; i < y->out.d[1]; i++)
            for (int64_t h = 0; h < y->out.d[2]; h++) {
                size_t  size = xd_dtype_size(y->out.type);
                int64_t kx = at(&x->out, b, first + i, h, 0), ky = at(&y->out, b, i, h, 0);
                assert_memory_equal((char *)x->out.p + (size_t)kx * size,
                                    (char *)y->out.p + (size_t)ky * size,
                                    (size_t)y->out.d[3] * size);
                assert_memory_equal((float *)x->lse.p + at(&x->lse, b, first + i, h, 0),
                                    (float *)y->lse.p + at(&y->lse, b, i, h, 0), sizeof(float));
            }
}

/* ---- variants ------------------------------------------------------------------------------ */

#ifdef ATTN_ON_DEVICE /* one variant: the attention of the device that opens as "cpu" */

static xd_dev *device(void)
{
    static xd_dev *d;
    xd_err         e = { 0 };
    if (!d && xd_dev_open(&d, "cpu", &e) != XD_OK)
        fail_msg("%s", e.msg);
    return d;
}

static size_t device_scratch(const xd_attn_args *a, int threads)
{
    (void)threads;
    return device()->ops->scratch(device(), XD_OP_ATTN, a);
}

static xd_status device_attn(const xd_attn_args *a, void *tmp)
{
    return device()->ops->attn(device(), NULL, a, tmp);
}

static variant variants[] = { { "cuda", device_scratch, device_attn, XD_ISA_C, 1 } };

#else

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

#endif

int run_every(const char *group, const attn_test *tests, size_t n, void (*once)(void **state))
{
    enum { NV = sizeof variants / sizeof *variants, MOST = 16 };
    static struct CMUnitTest all[NV * MOST + 1];
    static char              names[NV * MOST][64];
    if (n > MOST)
        return 1;
    for (size_t i = 0; i < NV * n; i++) {
        strcat(strcat(strcpy(names[i], variants[i / n].name), " "), tests[i % n].name);
        all[i] = (struct CMUnitTest){ names[i], tests[i % n].fn, NULL, NULL, &variants[i / n] };
    }
    if (once)
        all[NV * n] = (struct CMUnitTest){ "once", once, NULL, NULL, NULL };
    xd_par_set(2);
    if (getenv("XDIT_TEST_ONLY"))
        cmocka_set_test_filter(getenv("XDIT_TEST_ONLY"));
    return _cmocka_run_group_tests(group, all, NV * n + (once != NULL), NULL, NULL);
}
