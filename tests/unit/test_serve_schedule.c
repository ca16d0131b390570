/* test_serve_schedule.c - the order of a server's tasks: short ones first, and what keeps it
 * fair */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "serve/schedule.h"

static const double now = 1000;

static xd_task waiting(double seconds, double since)
{
    return (xd_task){ .state = XD_TASK_QUEUED,
                      .expected_s = seconds,
                      .arrived_s = now - since,
                      .owner = (char[]){ "" } };
}

static double score(const xd_schedule *s, const xd_task *t)
{
    return xd_schedule_score(s, t, now);
}

static void short_first(void **state)
{
    (void)state;
    const xd_schedule s = { .default_s = 3 };
    xd_task a = waiting(2, 0), b = waiting(5, 0), unknown = waiting(0, 0), refused = waiting(-1, 0);
    assert_float_equal(score(&s, &a), 2, 1e-9);
    assert_true(score(&s, &a) < score(&s, &b));
    assert_float_equal(score(&s, &unknown), 3, 1e-9);
    assert_float_equal(score(&s, &refused), 3, 1e-9);
}

static void waiting_counts(void **state)
{
    (void)state;
    const xd_schedule s = { 0 };
    xd_task           old = waiting(100, XD_SCHEDULE_WAIT * 99), fresh = waiting(2, 0);
    assert_float_equal(score(&s, &old), 1, 1e-9);
    assert_true(score(&s, &old) < score(&s, &fresh));
}

/* 100 s, of which 10 are done: it has waited for half of what it would gain to be first. While it
 * runs on, its score stays: what it gained is used up as fast as it comes to its end. */
static void gains_are_used_up(void **state)
{
    (void)state;
    const xd_schedule s = { 0 };
    xd_task           t = waiting(100, 0);
    t.state = XD_TASK_RUNNING;
    t.images = 1, t.image = 1, t.steps = 100, t.step = 10;
    t.arrived_s = now - 10 - 50 * XD_SCHEDULE_WAIT;
    assert_float_equal(score(&s, &t), 90 - (50 - 10), 1e-9);
    t.step = 20;
    assert_float_equal(xd_schedule_score(&s, &t, now + 10), 50, 1e-9);
    t.step = 60; /* all is used up */
    assert_float_equal(xd_schedule_score(&s, &t, now + 50), 40, 1e-9);
}

static void rest_counts(void **state)
{
    (void)state;
    const xd_schedule s = { 0 };
    xd_task           t = waiting(100, 0);
    t.state = XD_TASK_RUNNING;
    t.images = 2, t.image = 2, t.steps = 10, t.step = 5;
    assert_float_equal(xd_schedule_remaining(&s, &t), 25, 1e-9);
    xd_task half = waiting(12, 0), most = waiting(13, 0);
    assert_true(xd_schedule_preempts(&s, &half, &t, now));
    assert_false(xd_schedule_preempts(&s, &most, &t, now));
    half.expected_s = 0; /* nobody knows */
    assert_false(xd_schedule_preempts(&s, &half, &t, now));
}

/* 100 s: 10 of text, two images of 25 s of steps and 20 s of decoding. */
static void parts_count(void **state)
{
    (void)state;
    const xd_schedule s = { 0 };
    xd_task           t = waiting(100, 0), other = waiting(9, 0);
    t.text_part = 0.1, t.decode_part = 0.4;
    t.state = XD_TASK_RUNNING;
    assert_float_equal(xd_schedule_remaining(&s, &t), 100, 1e-9);
    t.images = 2, t.image = 1, t.steps = 10, t.step = 5;
    assert_float_equal(xd_schedule_remaining(&s, &t), 77.5, 1e-9);
    t.step = 10; /* the first one is decoded */
    assert_float_equal(xd_schedule_remaining(&s, &t), 65, 1e-9);
    t.image = 2;
    assert_float_equal(xd_schedule_remaining(&s, &t), 20, 1e-9);
    assert_true(xd_schedule_preempts(&s, &other, &t, now));
    other.expected_s = 11;
    assert_false(xd_schedule_preempts(&s, &other, &t, now));
}

static void priorities(void **state)
{
    (void)state;
    const xd_schedule s = { 0 };
    xd_task           high = waiting(1000, 0), low = waiting(1, 3600), plain = waiting(5, 0);
    high.priority = 1;
    low.priority = -1;
    assert_true(score(&s, &high) < score(&s, &plain) && score(&s, &plain) < score(&s, &low));
    plain.state = XD_TASK_RUNNING;
    assert_true(xd_schedule_preempts(&s, &high, &plain, now));
    assert_false(xd_schedule_preempts(&s, &low, &plain, now));
}

static void deadlines(void **state)
{
    (void)state;
    const xd_schedule s = { 0 };
    xd_task           soon = waiting(50, 0), plain = waiting(20, 0);
    soon.deadline_s = now + 60; /* 10 s to spare */
    assert_float_equal(score(&s, &soon), 10, 1e-9);
    assert_true(score(&s, &soon) < score(&s, &plain));
    soon.deadline_s = now + 1000;
    assert_float_equal(score(&s, &soon), 50, 1e-9);
}

static void owners(void **state)
{
    (void)state;
    xd_schedule s = { 0 };
    xd_task     a = waiting(1, 0), b = waiting(8, 0);
    a.owner = (char[]){ "a" };
    b.owner = (char[]){ "b" };
    xd_schedule_charge(&s, "a", 30, now);
    xd_schedule_charge(&s, "b", 5, now);
    assert_float_equal(score(&s, &a), 1 + 25, 1e-9);
    assert_float_equal(score(&s, &b), 8, 1e-9);
    assert_float_equal(xd_schedule_score(&s, &a, now + XD_SCHEDULE_HALF),
                       1 + 12.5 - XD_SCHEDULE_HALF / XD_SCHEDULE_WAIT, 1e-9);
    xd_schedule_charge(&s, "b", 40, now);
    assert_float_equal(score(&s, &a), 1, 1e-9);
    xd_schedule_free(&s);
    assert_int_equal(s.nowners, 0);
}

static void apart(void **state)
{
    (void)state;
    assert_true(xd_schedule_should_split(2, 2, 1, 1.9));
    assert_false(xd_schedule_should_split(2, 2, 1, 2.1));
    assert_false(xd_schedule_should_split(1, 2, 1, 0.5));
    assert_false(xd_schedule_should_split(2, 8, 1, 6)); /* six ranks would be idle */
    assert_true(xd_schedule_should_split(7, 8, 1, 6));
    assert_false(xd_schedule_should_split(4, 1, 1, 1));
    assert_false(xd_schedule_should_split(4, 4, 1, -1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_first),
        cmocka_unit_test(waiting_counts),
        cmocka_unit_test(rest_counts),
        cmocka_unit_test(parts_count),
        cmocka_unit_test(gains_are_used_up),
        cmocka_unit_test(priorities),
        cmocka_unit_test(deadlines),
        cmocka_unit_test(owners),
        cmocka_unit_test(apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
