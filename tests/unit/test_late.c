/* test_late.c - additions that wait for the next norm: the numbers of additions at once, whatever
 * reads or writes the hidden state in between */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "exec/late.h"
#include "exec/op.h"

enum { N = 6, CUT = 2, D = 16, ROOM = 1 << 20, MOST = 4096 };

typedef struct scene {
    xd_dev   *dev;
    xd_arena  tmp;
    xd_exec   x;
    xd_late   late;
    xd_lin    lin;
    float     w[D * D], gates[3 * D], h0[N * D], got[MOST];
    xd_tensor h, in;
    int       n;
} scene;

static void open_scene(scene *s, int adds)
{
    xd_err e = { 0 };
    memset(s, 0, sizeof *s);
    assert_int_equal(xd_dev_open(&s->dev, "cpu", &e), XD_OK);
    s->dev->norm_adds = adds;
    xd_arena_init(&s->tmp, s->dev->mem->get(s->dev, ROOM), ROOM);
    xd_exec_init(&s->x, s->dev, &s->tmp, XD_F32);
    for (int i = 0; i < D * D; i++)
        s->w[i] = sinf(0.7f * (float)i);
    for (int i = 0; i < 3 * D; i++)
        s->gates[i] = cosf(1.3f * (float)i);
    s->lin.w = (xd_weight){
        .type = XD_F32, .out = D, .in = D, .kernel = { 1, 1, 1 }, .stride = { 1, 1, 1 }, .groups = 1
    };
    s->lin.w.bytes = s->dev->ops->pack_size(s->dev, &s->lin.w);
    s->lin.w.p = xd_arena_get(&s->tmp, s->lin.w.bytes);
    void *tmp = xd_arena_get(&s->tmp, s->dev->ops->pack_tmp(s->dev, &s->lin.w, XD_F32) + 1);
    assert_int_equal(s->dev->ops->pack(s->dev, &s->lin.w, xd_view2(s->w, XD_F32, D, D), tmp),
                     XD_OK);
    s->h = xd_new_f32(&s->x, N, D);
    s->in = xd_new_f32(&s->x, N, D);
    for (int i = 0; i < N * D; i++) {
        s->h0[i] = ((float *)s->h.p)[i] = sinf(0.31f * (float)i);
        ((float *)s->in.p)[i] = cosf(0.17f * (float)i);
    }
    xd_late_open(&s->x, &s->late, s->h);
}

static void close_scene(scene *s)
{
    s->dev->mem->put(s->dev, s->tmp.base, ROOM);
    xd_dev_close(&s->dev);
}

static xd_tensor gate(scene *s, int i)
{
    return xd_view2(s->gates + i * D, XD_F32, 1, D);
}

static void add(scene *s, int64_t at, int64_t n, xd_tensor g)
{
    xd_linear_add(&s->x, xd_rows(s->h, at, n), g, xd_rows(s->in, at, n), &s->lin);
}

/* A result, to be compared. */
static void keep(scene *s, xd_tensor t)
{
    assert_true(s->n + xd_count(t) <= MOST);
    memcpy(s->got + s->n, t.p, xd_bytes(t));
    s->n += (int)xd_count(t);
}

static void keep_norm(scene *s, int64_t at, int64_t n)
{
    keep(s, xd_norm_mod(&s->x, xd_rows(s->h, at, n), gate(s, 2), (xd_tensor){ 0 }, 1e-6f));
}

static void wait_is(const scene *s, int n)
{
    assert_int_equal(s->late.n, s->dev->norm_adds ? n : 0);
}

/* Two kinds of rows, and a gate that the end of a block takes away. */
static void add_and_norm(scene *s)
{
    add(s, 0, CUT, gate(s, 0));
    add(s, CUT, N - CUT, gate(s, 1));
    wait_is(s, 2);
    assert_int_equal(memcmp(s->h.p, s->h0, sizeof s->h0) == 0, s->dev->norm_adds);
    keep_norm(s, 0, CUT);
    keep_norm(s, CUT, N - CUT);
    wait_is(s, 0);
    size_t    mark = xd_arena_mark(&s->tmp);
    xd_tensor g = xd_new_f32(&s->x, 1, D);
    xd_copy_to(&s->x, g, gate(s, 2));
    add(s, CUT, N - CUT, g);
    xd_late_keep(&s->x, mark);
    xd_arena_rewind(&s->tmp, mark);
    memset(xd_new_f32(&s->x, N, D).p, 0xff, N * D * sizeof(float));
    wait_is(s, 1);
    keep_norm(s, CUT, N - CUT);
}

/* What sees the hidden state sees it as it should be. */
static void add_and_look(scene *s)
{
    xd_tensor copy = xd_new_f32(&s->x, N, D);
    add(s, 0, CUT, gate(s, 0));
    xd_copy_to(&s->x, copy, s->h);
    keep(s, copy);
    add(s, 0, CUT, gate(s, 1));
    add(s, 0, CUT, (xd_tensor){ 0 });
    wait_is(s, 1);
    keep(s, xd_linear(&s->x, s->h, &s->lin));
    add(s, 0, CUT, gate(s, 1));
    keep_norm(s, 0, N);
    add(s, CUT, N - CUT, gate(s, 0));
    keep(s, xd_linear(&s->x, xd_rows(s->h, 0, CUT), &s->lin));
    wait_is(s, 1);
    xd_axpby(&s->x, s->h, 1, s->in, 0.5f);
    keep(s, s->h);
    add(s, 0, N, gate(s, 2));
    xd_add(&s->x, s->in, s->h);
    keep(s, s->in);
    add(s, 0, CUT, gate(s, 2));
    xd_late_close(&s->x);
    keep(s, s->h);
}

static void test_late(void **unused)
{
    static scene late, now;
    (void)unused;
    open_scene(&late, 1);
    open_scene(&now, 0);
    for (int i = 0; i < 2; i++) {
        add_and_norm(i ? &late : &now);
        add_and_look(i ? &late : &now);
    }
    assert_true(xd_ok(&late.x) && xd_ok(&now.x));
    assert_int_equal(late.n, now.n);
    for (int i = 0; i < now.n; i++)
        if (!(fabsf(late.got[i] - now.got[i]) <= 1e-5f * (1 + fabsf(now.got[i]))))
            fail_msg("number %d of %d: %.9g, not %.9g", i, now.n, (double)late.got[i],
                     (double)now.got[i]);
    close_scene(&late);
    close_scene(&now);
}

/* Neither f16, which a product alone may leave, nor a device of the other kind. */
static void test_none(void **unused)
{
    static scene s;
    (void)unused;
    open_scene(&s, 0);
    assert_null(s.x.late);
    s.dev->norm_adds = 1;
    s.x.act = XD_F16;
    xd_late_open(&s.x, &s.late, s.h);
    assert_null(s.x.late);
    s.x.act = XD_F32;
    close_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_late), cmocka_unit_test(test_none) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
