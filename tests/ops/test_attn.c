/* test_attn.c - attention of every instruction set against a double-precision reference: shapes
 * and features.
 *
 * Cuts into segments, thread counts and subsets of queries must not change a bit. Tolerances are
 * in attn_problem.h. */
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
#include "base/par.h"

static const shape plain = { 1, 37, 2, 2, 64, { 70 }, XD_F32, XD_F32, .scale = 0.125f };

static void test_head_dims(void **state)
{
    const variant *v = available(state);
    if (!v)
        return;
    static const int64_t dims[] = { 1,  8,   9,   16,  20,  31,  40,  56,  64,  72,  80,   88,
                                    96, 112, 120, 128, 160, 192, 200, 255, 256, 512, 1024, 1152 };
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
        c.softcap = bits % 7 == 0 ? 0.5f : bits % 7 == 1 ? 3 : 0;
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
        c.softcap = k % 5 ? 0 : 0.7f;
        check(v, &c);
    }
}

static const int64_t cuts[][MAXSEG] = {
    { 700, 0, 0, 0 }, { 1, 698, 0, 1 }, { 0, 256, 255, 189 }, { 333, 17, 50, 300 }
};

/* Threads of the host, which a device does not compute with. */
#ifdef ATTN_ON_DEVICE
enum { THREADS = 1 };
#else
enum { THREADS = 3 };
#endif

/* No bit of attention to 700 keys depends on how they are cut, or on threads. */
static void check_cuts(const variant *v, const shape *c)
{
    problem      p;
    xd_attn_args a;
    seed = 5;
    make(&p, c);
    xd_par_set(1);
    run(v, &p.a, c->out, 0);
    a = p.a;
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        cut(&p, cuts[i]);
        for (int threads = 1; threads <= THREADS; threads++) {
            xd_par_set(threads);
            run(v, &p.a, c->out, 0);
            assert_same_bits(&a, &p.a, 0);
            end(&p.a);
        }
    }
    end(&a);
    unmake(&p);
    xd_par_set(2);
}

static void test_bits(void **state)
{
    const variant *v = available(state);
    if (!v)
        return;
    for (int t = 0; t < 4; t++) {
        shape c = { 1, 111, 4, 2, 72, { 700 }, .scale = 0.1f, .bias = t % 2 };
        c.type = c.out = t / 2 ? XD_BF16 : XD_F32;
        check_cuts(v, &c);
    }
}

/* No bit of 211 queries depends on which of them are in a call. */
static void check_some_queries(const variant *v, const shape *c)
{
    static const int64_t first[] = { 0, 1, 96, 200, 210 };
    problem              p;
    make(&p, c);
    run(v, &p.a, c->out, 0);
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        xd_attn_args a = p.a;
        a.q.p = (char *)a.q.p + (size_t)(first[i] * a.q.s[1]) * xd_dtype_size(c->type);
        a.q.d[1] = i + 1 < sizeof first / sizeof *first ? first[i + 1] - first[i] : 1;
        run(v, &a, c->out, 0);
        assert_same_bits(&p.a, &a, first[i]);
        end(&a);
    }
    end(&p.a);
    unmake(&p);
}

static void test_some_queries(void **state)
{
    const variant *v = available(state);
    if (!v)
        return;
    for (int t = 0; t < 2; t++) {
        shape c = { 2, 211, 3, 3, 64, { 300, 20 }, .scale = 0.1f, .len = 1 };
        c.type = c.out = t ? XD_BF16 : XD_F32;
        check_some_queries(v, &c);
    }
}

/* Queries in pieces, whose numbers of rows end with -1. */
static void check_pieces(const variant *v, const shape *c, const int64_t *rows)
{
    problem p;
    xd_qo   part[MAXSEG];
    make(&p, c);
    run(v, &p.a, c->out, 0);
    xd_attn_args a = p.a;
    for (a.part = part; rows[a.nparts] >= 0; a.nparts++)
        part[a.nparts].q.d[1] = rows[a.nparts];
    run(v, &a, c->out, 0);
    assert_same_bits(&p.a, &a, 0);
    end(&a);
    end(&p.a);
    unmake(&p);
}

static void test_pieces(void **state)
{
    const variant *v = available(state);
    for (int t = 0; v && t < 2; t++) {
        shape c = { 2, 211, 3, 3, 64, { 300, 20 }, .scale = 0.1f, .len = 1 };
        c.type = c.out = t ? XD_BF16 : XD_F32;
        check_pieces(v, &c, (const int64_t[]){ 1, 0, 110, 100, -1 });
    }
}

#ifdef ATTN_ON_DEVICE
/* What tensor cores take in bf16, and what they do not, in f16. */
static void test_f16(void **state)
{
    const variant *v = available(state);
    seed = 77;
    for (int k = 0; v && k < 24; k++) {
        shape c = { .B = 1 + draw(2), .n = draw(150), .Hk = 1 + draw(2), .D = 8 * (1 + draw(18)) };
        c.H = c.Hk * (1 + draw(2));
        for (int i = 0; i < MAXSEG; i++)
            c.seg[i] = draw(3) ? draw(100) : 0;
        c.type = k % 6 ? XD_F16 : k % 4 ? XD_F32 : XD_BF16;
        c.out = k % 3 ? XD_F16 : draw(2) ? XD_F32 : XD_BF16;
        c.window = draw(3) ? 0 : 1 + draw(50);
        c.causal = draw(4) == 0;
        c.bias = draw(4) ? 0 : 1;
        c.len = draw(3) == 0;
        c.layout = (int)draw(3);
        c.scale = 1 / sqrtf((float)c.D);
        check(v, &c);
    }
}

/* Heads that tensor cores take in blocks of 128 queries (up to 128) and of 64, in tiles of 64 and
 * of 32 keys: every feature that they take, then the bits. */
static void test_tiles(void **state)
{
    static const int64_t dims[] = { 64, 80, 96, 128, 136, 160, 192, 200, 256 };
    const variant       *v = available(state);
    seed = 11;
    for (int i = 0; v && i < 18; i++) {
        shape c = { 2, 70, 2, 1, dims[i / 2], { 31, 0, 33, 40 }, .scale = 0.1f };
        c.n = c.D > 128 ? 70 : 150;
        c.type = i % 2 ? XD_F16 : XD_BF16;
        for (int k = 0; k < 4; k++) {
            c.out = k % 3 ? c.type : XD_F32;
            c.causal = k & 1, c.window = k & 2 ? 37 : 0, c.len = k / 2;
            c.bias = c.D == 64 ? k % 3 : 0;
            check(v, &c);
        }
        shape whole = { 1, 9, 2, 1, c.D, { 700 }, c.type, c.type, .scale = 0.1f };
        shape some = { 1, 211, 1, 1, c.D, { 70, 20 }, c.type, XD_F32, .scale = 0.1f };
        whole.bias = i == 0;
        check_cuts(v, &whole);
        check_some_queries(v, &some);
    }
}

/* Large attention, which cuDNN takes: keys in one piece or several, lengths, grouped heads. The
 * first shape comes once more behind all others, from the table of plans. */
static void test_large(void **state)
{
    static const shape all[] = {
        { 1, 1024, 2, 2, 64, { 1024 }, XD_BF16, XD_BF16, .scale = 0.125f },
        { 2, 1030, 2, 1, 72, { 500, 0, 537 }, XD_BF16, XD_BF16, .len = 1, .scale = 0.1f },
        { 1, 3500, 2, 2, 40, { 300 }, XD_F16, XD_F16, .layout = 1, .scale = 0.2f },
        { 2, 1500, 2, 1, 8, { 701 }, XD_F16, XD_F16, .len = 1, .scale = 0.3f },
        { 1, 700, 1, 1, 128, { 1000, 1, 999 }, XD_BF16, XD_BF16, .layout = 1, .scale = 0.09f },
        { 1, 1100, 1, 1, 48, { 1000 }, XD_BF16, XD_BF16, .scale = 0.1f },
        { 1, 1100, 1, 1, 256, { 1000 }, XD_BF16, XD_BF16, .scale = 0.06f },
        { 2, 1100, 1, 1, 16, { 1000 }, XD_BF16, XD_BF16, .layout = 2, .scale = 0.2f },
        { 1, 1100, 1, 1, 16, { 1000 }, XD_BF16, XD_BF16, .causal = 1, .scale = 0.2f },
    };
    const variant *v = available(state);
    seed = 13;
    for (size_t i = 0; v && i <= sizeof all / sizeof *all; i++)
        check(v, &all[i % (sizeof all / sizeof *all)]);
    shape cut = { 1, 1500, 2, 1, 64, { 1600, 200 }, XD_BF16, XD_BF16, .scale = 0.1f };
    if (v)
        check_pieces(v, &cut, (const int64_t[]){ 650, 850, -1 });
}

/* Heads beyond those, by products of a library in bands of queries; two bands in the last case. */
static void test_widest_heads(void **state)
{
    static const int64_t dims[] = { 264, 384, 512, 1024, 1152 };
    const variant       *v = available(state);
    seed = 12;
    for (int i = 0; v && i < 2 * (int)(sizeof dims / sizeof *dims); i++) {
        shape c = { 2, 70, 2, 1 + i % 2, dims[i / 2], { 31, 0, 33, 40 }, .scale = 0.1f };
        c.type = i % 2 ? XD_F16 : XD_BF16;
        c.layout = i % 3;
        c.out = c.type;
        check(v, &c);
        c.out = XD_F32;
        check(v, &c);
        c.seg[0] = 100, c.seg[2] = c.seg[3] = 0;
        check(v, &c);
        shape whole = { 1, 9, 2, 1, c.D, { 700 }, c.type, c.type, .scale = 0.1f };
        shape some = { 1, 211, 1, 1, c.D, { 70, 20 }, c.type, XD_F32, .scale = 0.1f };
        check_cuts(v, &whole);
        check_some_queries(v, &some);
    }
    shape long_one = { 1, 66, 1, 1, 264, { 176000 }, XD_BF16, XD_F32, .scale = 0.1f };
    if (v)
        check(v, &long_one);
}
#endif

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
    a = p.a, a.q.d[3] = a.out.d[3] = 1153;
    assert_int_equal(v->run(&a, NULL), XD_EUNSUPPORTED);
    a = p.a, a.q.type = XD_F64;
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

static const attn_test tests[] = {
    { "head_dims", test_head_dims },
    { "lengths", test_lengths },
    { "features", test_features },
    { "random", test_random },
    { "bits", test_bits },
    { "some_queries", test_some_queries },
    { "pieces", test_pieces },
#ifdef ATTN_ON_DEVICE
    { "f16", test_f16 },
    { "tiles", test_tiles },
    { "widest_heads", test_widest_heads },
    { "large", test_large },
#endif
    { "refused", test_refused },
};

int main(void)
{
    return run_every("attn", tests, sizeof tests / sizeof *tests, NULL);
}
