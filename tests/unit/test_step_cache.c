/* test_step_cache.c - step caches as texts, and the rules by which blocks are left out */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "pipeline/step_cache.h"

static xd_cache_spec read_spec(const char *text)
{
    xd_cache_spec c;
    xd_err        e = { 0 };
    if (xd_cache_read(&c, text, &e) != XD_OK)
        fail_msg("%s: %s", text ? text : "NULL", e.msg);
    return c;
}

static void refused(const char *text, const char *why)
{
    xd_cache_spec c;
    xd_err        e = { 0 };
    assert_int_equal(xd_cache_read(&c, text, &e), XD_EINVAL);
    if (!strstr(e.msg, why))
        fail_msg("%s: \"%s\" does not say \"%s\"", text, e.msg, why);
}

static void texts_are_read(void **state)
{
    (void)state;
    assert_null(read_spec(NULL).kind);
    assert_null(read_spec("none").kind);
    xd_cache_spec c = read_spec("fbcache");
    assert_string_equal(c.kind->name, "fbcache");
    assert_true(c.o.threshold == 0.05 && c.o.first == 1 && c.o.last == 0 && c.o.warmup == 0);
    assert_true(c.o.max_cached == -1 && c.o.max_continuous == -1 && c.o.order == 0);
    assert_true(read_spec("fbcache:0.12").o.threshold == 0.12);
    assert_string_equal(read_spec("FBCache:0.12").kind->name, "fbcache");
    assert_int_equal(read_spec("DBCache:warmup_steps=3").o.warmup, 3);
    c = read_spec("dbcache:Fn=4,Bn=2,threshold=0.2,warmup=3,max_cached=7,max_continuous=2,order=1");
    assert_true(c.o.first == 4 && c.o.last == 2 && c.o.threshold == 0.2 && c.o.warmup == 3);
    assert_true(c.o.max_cached == 7 && c.o.max_continuous == 2 && c.o.order == 1);
    c = read_spec("dbcache:0.3,Fn_compute_blocks=2,Bn_compute_blocks=1,max_warmup_steps=4,"
                  "taylorseer_order=2,max_cached_steps=5,max_continuous_cached_steps=3");
    assert_true(c.o.first == 2 && c.o.last == 1 && c.o.threshold == 0.3 && c.o.warmup == 4);
    assert_true(c.o.order == 2 && c.o.max_cached == 5 && c.o.max_continuous == 3);
    c = read_spec("taylorseer:order=3,interval=4,warmup=2,until=20");
    assert_true(c.o.order == 3 && c.o.interval == 4 && c.o.warmup == 2 && c.o.until == 20);
    c = read_spec("teacache:0.4,coefficients=1/-2.5/3e2/0/-0.125");
    static const double want[] = { 1, -2.5, 300, 0, -0.125 };
    assert_true(c.o.threshold == 0.4);
    assert_memory_equal(c.o.poly, want, sizeof want);
    assert_true(isnan(read_spec("teacache").o.poly[0]));
}

static void texts_are_refused(void **state)
{
    (void)state;
    refused("cachebox", "fbcache, dbcache, teacache, taylorseer");
    refused("fb", "step cache \"fb\"");
    refused("fbcache:x", "threshold is \"x\"");
    refused("fbcache:-1", "-1");
    refused("fbcache:0.1x", "threshold is \"0.1x\"");
    refused("fbcache:", "threshold is \"\"");
    refused("fbcache:Fn=2", "fbcache has no option \"Fn\"; it has: threshold");
    refused("dbcache:Fn=1.5", "Fn is \"1.5\"");
    refused("dbcache:Fn=0", "Fn is \"0\"");
    refused("dbcache:order=4", "order is \"4\"");
    refused("taylorseer:0.1", "taylorseer has no option \"threshold\"");
    refused("taylorseer:warmup=0", "warmup of at least 1 step");
    refused("teacache:coefficients=1/2/3/4", "coefficients is");
    refused("teacache:coefficients=1/2/3/4/5/6", "coefficients is");
    refused("teacache:coefficients=1/2/nan/4/5", "coefficients is");
}

static void rules_decide(void **state)
{
    xd_cache_spec c = read_spec("fbcache:0.1");
    xd_cache_unit u = { .known = 1 };
    (void)state;
    assert_true(c.kind->is_small(&c.o, &u, 0.1) && c.kind->is_small(&c.o, &u, 0));
    assert_false(c.kind->is_small(&c.o, &u, 0.1001) || c.kind->is_small(&c.o, &u, (double)NAN));
    /* 2 v + 0.01 of 0.02, 0.03, 0.02 and 0.02: 0.05, 0.12, then 0.17 is above 0.15, and 0.05. */
    c = read_spec("teacache:0.15,coefficients=0/0/0/2/0.01");
    assert_true(c.kind->is_small(&c.o, &u, 0.02) && fabs(u.sum - 0.05) < 1e-12);
    assert_true(c.kind->is_small(&c.o, &u, 0.03) && fabs(u.sum - 0.12) < 1e-12);
    assert_false(c.kind->is_small(&c.o, &u, 0.02));
    assert_true(u.sum == 0 && c.kind->is_small(&c.o, &u, 0.02));
    assert_false(c.kind->is_small(&c.o, &u, (double)NAN));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_read),
        cmocka_unit_test(texts_are_refused),
        cmocka_unit_test(rules_decide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
