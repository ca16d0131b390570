/* test_saver.c - the thread that saves snapshots: the newest one waits, each has one owner, and the
 * last one is saved before the saver is closed */
#define _POSIX_C_SOURCE 200809L /* nanosleep */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>

#include "base/saver.h"

enum { MANY = 2000, SLOW_NS = 20000, BAD = 7 };

typedef struct picture { int number, words[256]; } picture;

static atomic_int            alive, saved, last, mixed, out_of_order;
static atomic_int            open_gate = 1; /* 0: save waits */
static const struct timespec slow = { 0, SLOW_NS };

static xd_status save(void *snapshot, xd_err *e)
{
    picture *p = snapshot;
    while (!atomic_load(&open_gate))
        nanosleep(&slow, NULL);
    nanosleep(&slow, NULL);
    for (int i = 0; i < 256; i++)
        if (p->words[i] != p->number)
            atomic_fetch_add(&mixed, 1);
    if (p->number <= atomic_load(&last))
        atomic_fetch_add(&out_of_order, 1);
    atomic_store(&last, p->number);
    atomic_fetch_add(&saved, 1);
    return p->number % BAD == 0 ? xd_fail(e, XD_EIO, "%d is bad", p->number) : XD_OK;
}

static void drop(void *snapshot)
{
    atomic_fetch_sub(&alive, 1);
    free(snapshot);
}

static xd_saver *opened(void)
{
    static const xd_saver_ops ops = { save, drop };
    xd_saver                 *s = xd_saver_open(&ops);
    assert_non_null(s);
    atomic_store(&alive, 0), atomic_store(&saved, 0), atomic_store(&last, 0);
    atomic_store(&mixed, 0), atomic_store(&out_of_order, 0), atomic_store(&open_gate, 1);
    return s;
}

static void put(xd_saver *s, int number)
{
    picture *p = xd_saver_reuse(s);
    if (!p) {
        p = malloc(sizeof *p);
        assert_non_null(p);
        atomic_fetch_add(&alive, 1);
    }
    p->number = number;
    for (int i = 0; i < 256; i++)
        p->words[i] = number;
    xd_saver_put(s, p);
}

/* Two snapshots are enough: one is saved, one waits or is filled. */
static void many_in_a_row(void **state)
{
    xd_saver *s = opened();
    (void)state;
    for (int i = 1; i <= MANY; i++) {
        put(s, i);
        assert_true(atomic_load(&alive) <= 2);
    }
    xd_saver_wait(s);
    assert_int_equal(atomic_load(&last), MANY);
    assert_true(atomic_load(&saved) <= MANY);
    xd_saver_close(&s);
    assert_null(s);
    assert_int_equal(atomic_load(&alive), 0);
    assert_int_equal(atomic_load(&mixed), 0);
    assert_int_equal(atomic_load(&out_of_order), 0);
}

static void the_newest_waits(void **state)
{
    xd_saver *s = opened();
    (void)state;
    atomic_store(&open_gate, 0);
    put(s, 1);
    while (atomic_load(&alive) < 2) { /* 1 may still wait, and is then replaced */
        nanosleep(&slow, NULL);
        put(s, 2);
    }
    put(s, 3);
    put(s, 4);
    atomic_store(&open_gate, 1);
    xd_saver_wait(s);
    assert_int_equal(atomic_load(&saved), 2);
    assert_int_equal(atomic_load(&last), 4);
    assert_int_equal(atomic_load(&out_of_order), 0);
    xd_saver_close(&s);
    assert_int_equal(atomic_load(&alive), 0);
}

static void closing_saves_what_waits(void **state)
{
    xd_saver *s = opened();
    (void)state;
    put(s, 1);
    put(s, 2);
    xd_saver_close(&s);
    assert_int_equal(atomic_load(&last), 2);
    assert_int_equal(atomic_load(&alive), 0);
    xd_saver_close(&s); /* NULL has no effect */
}

static void an_error_is_told_once(void **state)
{
    xd_saver *s = opened();
    xd_err    e = { 0 };
    (void)state;
    assert_int_equal(xd_saver_status(s, &e), XD_OK);
    put(s, BAD);
    xd_saver_wait(s);
    put(s, BAD + 1);
    xd_saver_wait(s);
    assert_int_equal(xd_saver_status(s, &e), XD_EIO);
    assert_string_equal(e.msg, "7 is bad");
    assert_int_equal(xd_saver_status(s, &e), XD_OK);
    xd_saver_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_in_a_row),
        cmocka_unit_test(the_newest_waits),
        cmocka_unit_test(closing_saves_what_waits),
        cmocka_unit_test(an_error_is_told_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
