/* test_simulate.c - scripts of ranks played against each other, against times worked out by hand */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "predict/simulate.h"

enum { MOST = 8 };

static double computed; /* seconds since the rank was last asked */

static double ask(void *ctx)
{
    double s = computed;
    (void)ctx;
    computed = 0;
    return s;
}

typedef struct stage {
    xd_machine     m;
    xd_simulation *p;
    xd_lane        lane[MOST];
    int            n;
    xd_err         e;
} stage;

/* Latency 1, 100 bytes a second; what of it overlaps is said. */
static void open_stage(stage *s, int ranks, int per_host, double overlap)
{
    memset(s, 0, sizeof *s);
    s->m = (xd_machine){ .hosts = 2,
                         .ranks = per_host,
                         .inside = { 1, 100, overlap, 0 },
                         .between = { 10, 10, overlap, 0 } };
    s->n = ranks;
    assert_int_equal(xd_simulation_open(&s->p, ranks, &s->m, &s->e), XD_OK);
}

static xd_comm *be(stage *s, int rank)
{
    xd_comm *c = NULL;
    computed = 0;
    assert_int_equal(
        xd_comm_record(&c, rank, s->n, xd_simulation_record(s->p, rank, ask, NULL), &s->e), XD_OK);
    return c;
}

/* Time that passes after the last message shows in a mark. */
static void done(stage *s, xd_comm *c)
{
    xd_simulation_mark(s->p, 0);
    xd_comm_close(&c);
}

static void run(stage *s)
{
    if (xd_simulation_run(s->p, s->lane, &s->e) != XD_OK)
        fail_msg("%s", s->e.msg);
}

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * (1 + fabs(want))))
        fail_msg("%.12g is not %.12g", got, want);
}

static xd_tensor bytes(int64_t n)
{
    static char any;
    return xd_view(&any, XD_U8, 1, &n);
}

static void wait_for(xd_comm *c, xd_req r)
{
    c->ops->wait(c, &r, 1);
}

/* Rank 0 computes 5 s and sends 200 bytes; rank 1 computes 2 s and waits. */
static void one_message(void **state)
{
    stage s;
    (void)state;
    for (int k = 0; k <= 2; k++) {
        double overlap = 0.5 * k;
        open_stage(&s, 2, 2, overlap);
        xd_comm *c = be(&s, 0);
        computed = 5;
        xd_req r = c->ops->send(c, bytes(200), 1);
        computed = 1;
        wait_for(c, r);
        done(&s, c);
        c = be(&s, 1);
        r = c->ops->recv(c, bytes(200), 0);
        computed = 2;
        wait_for(c, r);
        computed = 4;
        done(&s, c);
        run(&s);
        near(s.lane[1].end_s, 5 + 1 + 2 + 4);
        near(s.lane[1].busy_s, 6);
        near(s.lane[1].wait_s, 6);
        near(s.lane[0].inside, 200);
        near(s.lane[0].end_s, 7); /* its memory is free when the link has taken it */
        near(s.lane[0].busy_s, 6);
        xd_simulation_close(&s.p);
    }
}

/* What is computed while a message comes is slowed down by what does not overlap; once, if two
 * come. */
static void overlap(void **state)
{
    stage s;
    (void)state;
    for (int k = 0; k <= 2; k++) {
        open_stage(&s, 2, 2, 0.5 * k);
        xd_comm *c = be(&s, 0);
        xd_req   r = c->ops->send(c, bytes(200), 1);
        wait_for(c, r);
        done(&s, c);
        c = be(&s, 1);
        r = c->ops->recv(c, bytes(200), 0);
        computed = 10;
        wait_for(c, r);
        done(&s, c);
        run(&s);
        near(s.lane[1].end_s, 10 + 2 - k);
        near(s.lane[1].busy_s, 10);
        xd_simulation_close(&s.p);
    }
    open_stage(&s, 3, 3, 0.5);
    for (int r = 0; r < 3; r++) {
        xd_comm *c = be(&s, r);
        xd_req   q[2] = { { 0 }, { 0 } };
        for (int i = 0; i < (r ? 1 : 2); i++)
            q[i] = r ? c->ops->send(c, bytes(200), 0) : c->ops->recv(c, bytes(200), i + 1);
        computed = 3;
        c->ops->wait(c, q, 2);
        done(&s, c);
    }
    run(&s);
    near(s.lane[0].end_s, 3 + 0.5 * 2 + 1 + 0.5 * 1); /* the second comes at 5, beside 3 - 2 s */
    xd_simulation_close(&s.p);
}

/* Two ranks exchange; one is late by 3 s. All of it overlaps. */
static void collective(void **state)
{
    stage     s;
    xd_tensor give[2] = { bytes(300), bytes(300) };
    (void)state;
    open_stage(&s, 2, 2, 1);
    for (int r = 0; r < 2; r++) {
        xd_comm *c = be(&s, r);
        computed = 3 * r;
        wait_for(c, c->ops->exchange(c, give, give));
        done(&s, c);
    }
    run(&s);
    near(s.lane[0].end_s, 3 + 1 + 3);
    near(s.lane[1].end_s, 3 + 3); /* its own has arrived at 4 */
    near(s.lane[0].wait_s, 7);
    xd_simulation_close(&s.p);
}

/* A ring of 4, each computes 2 s while 100 bytes go round, three times. */
static void ring(void **state)
{
    stage s;
    (void)state;
    open_stage(&s, 4, 4, 1);
    for (int r = 0; r < 4; r++) {
        xd_comm *c = be(&s, r);
        for (int i = 0; i < 3; i++) {
            xd_req q[2] = { c->ops->recv(c, bytes(100), (r + 3) % 4),
                            c->ops->send(c, bytes(100), (r + 1) % 4) };
            computed = i == 2 ? 1 : 3; /* hidden, hidden, 1 s late */
            c->ops->wait(c, q, 2);
        }
        done(&s, c);
    }
    run(&s);
    for (int r = 0; r < 4; r++) {
        near(s.lane[r].end_s, 3 + 3 + 2);
        near(s.lane[r].busy_s, 7);
        near(s.lane[r].wait_s, 1);
        near(s.lane[r].inside, 300);
    }
    xd_simulation_close(&s.p);
}

/* A pipeline of 3 stages and 4 pieces of 10 s, messages that take no time: 10 (4 + 3 - 1). */
static void bubble(void **state)
{
    stage s;
    (void)state;
    open_stage(&s, 3, 3, 1);
    s.m.inside = (xd_wire){ 0, 1e12, 1, 0 };
    for (int r = 0; r < 3; r++) {
        xd_comm *c = be(&s, r);
        for (int i = 0; i < 4; i++) {
            if (r > 0)
                wait_for(c, c->ops->recv(c, bytes(8), r - 1));
            computed = 10;
            xd_simulation_mark(s.p, 10 + i);
            if (r < 2)
                wait_for(c, c->ops->send(c, bytes(8), r + 1));
        }
        done(&s, c);
    }
    run(&s);
    for (int r = 0; r < 3; r++) {
        if (fabs(s.lane[r].end_s - (40 + 10 * r)) > 1e-6)
            fail_msg("stage %d ends at %g", r, s.lane[r].end_s);
        if (fabs(xd_simulation_mark_s(s.p, r, 11) - (20 + 10 * r)) > 1e-6)
            fail_msg("stage %d ends its second piece at %g", r, xd_simulation_mark_s(s.p, r, 11));
    }
    assert_true(xd_simulation_mark_s(s.p, 0, 5) < 0 && xd_simulation_mark_s(s.p, 0, 99) < 0);
    xd_simulation_close(&s.p);
}

/* Two pairs over hosts share one port of a host; inside they do not. */
static void contention(void **state)
{
    stage s;
    (void)state;
    for (int far = 0; far < 2; far++) {
        open_stage(&s, 4, far ? 2 : 4, 1);
        for (int r = 0; r < 4; r++) {
            xd_comm *c = be(&s, r);
            wait_for(c, r < 2 ? c->ops->send(c, bytes(100), r + 2)
                              : c->ops->recv(c, bytes(100), r - 2));
            done(&s, c);
        }
        run(&s);
        double first = fmin(s.lane[2].end_s, s.lane[3].end_s),
               last = fmax(s.lane[2].end_s, s.lane[3].end_s);
        near(first, far ? 10 + 10 : 1 + 1);
        near(last, far ? 10 + 20 : 1 + 1);
        near(s.lane[0].between, far ? 100 : 0);
        near(s.lane[0].inside, far ? 0 : 100);
        xd_simulation_close(&s.p);
    }
}

/* Four ranks, 100 bytes from each to each other, and nothing is computed: overlap has no say.
 * What a host shares delays its ranks when it is less than their links together. */
static void shared(void **state)
{
    stage     s;
    xd_tensor give[4] = { bytes(100), bytes(100), bytes(100), bytes(100) };
    (void)state;
    for (int k = 0; k < 3; k++) {
        double last = 0;
        open_stage(&s, 4, 4, 0.25);
        s.m.inside.shared = k * 200.0 * k;
        for (int r = 0; r < 4; r++) {
            xd_comm *c = be(&s, r);
            wait_for(c, c->ops->exchange(c, give, give));
            done(&s, c);
        }
        run(&s);
        for (int r = 0; r < 4; r++)
            last = fmax(last, s.lane[r].end_s);
        near(last, 1 + (k == 1 ? 12 * 100 / 200.0 : 3));
        xd_simulation_close(&s.p);
    }
}

/* Two ranks send to a third, which gets one message after the other. */
static void arriving(void **state)
{
    stage s;
    (void)state;
    for (int far = 0; far < 2; far++) {
        open_stage(&s, 3, far ? 1 : 3, 1);
        for (int r = 0; r < 3; r++) {
            xd_comm *c = be(&s, r);
            xd_req   q[2] = { { 0 }, { 0 } };
            for (int i = 0; i < (r < 2 ? 1 : 2); i++)
                q[i] = r < 2 ? c->ops->send(c, bytes(100), 2) : c->ops->recv(c, bytes(100), i);
            c->ops->wait(c, q, 2);
            done(&s, c);
        }
        run(&s);
        near(s.lane[0].end_s, far ? 10 : 1);
        near(s.lane[2].end_s, far ? 20 + 10 : 2 + 1);
        xd_simulation_close(&s.p);
    }
}

/* Groups are told apart by number and color; ranks in them have their own numbers. */
static void groups(void **state)
{
    stage s;
    (void)state;
    open_stage(&s, 4, 4, 1);
    for (int r = 0; r < 4; r++) {
        xd_comm *c = be(&s, r), *pair = NULL;
        assert_int_equal(c->ops->split(c, r % 2, r / 2, 2, &pair, &s.e), XD_OK);
        computed = r;
        wait_for(pair, pair->rank ? pair->ops->recv(pair, bytes(100), 0)
                                  : pair->ops->send(pair, bytes(100), 1));
        xd_comm_close(&pair);
        done(&s, c);
    }
    run(&s);
    near(s.lane[2].end_s, 0 + 1 + 1);
    near(s.lane[3].end_s, 1 + 1 + 1);
    xd_simulation_close(&s.p);
}

static void deadlock(void **state)
{
    stage s;
    (void)state;
    open_stage(&s, 2, 2, 1);
    for (int r = 0; r < 2; r++) {
        xd_comm *c = be(&s, r);
        wait_for(c, c->ops->recv(c, bytes(1), 1 - r));
        wait_for(c, c->ops->send(c, bytes(1), 1 - r));
        done(&s, c);
    }
    assert_int_equal(xd_simulation_run(s.p, s.lane, &s.e), XD_EINVAL);
    assert_non_null(strstr(s.e.msg, "deadlock"));
    xd_simulation_close(&s.p);
}

static double sum[128];

static void add(void *ctx, char what, double from, double to)
{
    double *last = ctx;
    sum[(int)what] += to - from;
    if (what == 'm') /* messages overlap, and come last */
        return;
    assert_true(from == *last && to > from); /* without gaps, in order */
    *last = to;
}

static void telling(void **state)
{
    stage  s;
    double last = 0;
    (void)state;
    open_stage(&s, 2, 2, 1);
    for (int r = 0; r < 2; r++) {
        xd_comm  *c = be(&s, r);
        xd_tensor give[2] = { bytes(100), bytes(100) };
        computed = 1 + r;
        wait_for(c, c->ops->exchange(c, give, give));
        computed = 4;
        done(&s, c);
    }
    run(&s);
    sum['c'] = sum['w'] = sum['m'] = 0;
    xd_simulation_events(s.p, 0, add, &last);
    near(last, s.lane[0].end_s);
    near(sum['c'], 5);
    near(sum['m'], 1 + 1); /* from 2 to 4 s */
    near(sum['w'], s.lane[0].wait_s);
    near(sum['w'], 2 + 1 + 1 - 1);
    xd_simulation_close(&s.p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_message), cmocka_unit_test(overlap),  cmocka_unit_test(collective),
        cmocka_unit_test(ring),        cmocka_unit_test(bubble),   cmocka_unit_test(contention),
        cmocka_unit_test(groups),      cmocka_unit_test(deadlock), cmocka_unit_test(telling),
        cmocka_unit_test(shared),      cmocka_unit_test(arriving),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
