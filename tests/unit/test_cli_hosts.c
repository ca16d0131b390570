/* test_cli_hosts.c - the list of --hosts: its forms, its errors, and hosts that are lost */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "launch/hosts.h"
#include "scratch.h"

static void check_text(const xd_hosts *h, int ranks, const char *want)
{
    char *text = xd_hosts_text(h, ranks);
    assert_non_null(text);
    assert_string_equal(text, want);
    free(text);
}

static void lists(void **state)
{
    xd_hosts h;
    xd_err   e = { 0 };
    (void)state;
    assert_int_equal(xd_hosts_read(&h, "a:2, b ,[fe80::1]:3", &e), XD_OK);
    assert_int_equal(h.n, 3);
    assert_int_equal(xd_hosts_slots(&h), 6);
    check_text(&h, 6, "a:2,b:1,[fe80::1]:3");
    check_text(&h, 3, "a:2,b:1");
    assert_int_equal(xd_hosts_lose(&h, "a"), 1);
    assert_int_equal(xd_hosts_lose(&h, "a"), 0);
    assert_int_equal(xd_hosts_lose(&h, "c"), 0);
    assert_int_equal(xd_hosts_slots(&h), 4);
    check_text(&h, 3, "b:1,[fe80::1]:2");
    xd_hosts_free(&h);
    assert_int_equal(h.n, 0);
}

static void files(void **state)
{
    static const char text[] = "# two hosts\n\n one.example.org slots=2 \r\n10.0.0.2:4 # near\n"
                               "three";
    xd_hosts          h;
    xd_err            e = { 0 };
    (void)state;
    scratch_put("hosts", text, sizeof text - 1);
    assert_int_equal(xd_hosts_read(&h, in_scratch("hosts"), &e), XD_OK);
    check_text(&h, 99, "one.example.org:2,10.0.0.2:4,three:1");
    assert_int_equal(xd_hosts_lose(&h, "10.1.1.1"), 0); /* addresses have no domain */
    assert_int_equal(xd_hosts_lose(&h, "one"), 1);
    assert_int_equal(xd_hosts_lose(&h, "three.example.org"), 1);
    check_text(&h, 1, "10.0.0.2:1");
    xd_hosts_free(&h);
}

static void errors(void **state)
{
    static const char *const bad[][2] = {
        { "", "no host" },        { ",", "no host" }, { "a:0", "\"a:0\"" },
        { "a:x", "\"a:x\"" },     { ":2", "\":2\"" }, { "a,b:2,a:1", "a twice" },
        { "a:9999", "\"a:9999" }, { "-x", "\"-x\"" }, { "a:2x", "\"a:2x\"" },
        { "no/such", "no/such" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        xd_hosts h;
        xd_err   e = { 0 };
        assert_true(xd_hosts_read(&h, bad[i][0], &e) != XD_OK);
        assert_non_null(strstr(e.msg, bad[i][1]));
        assert_int_equal(h.n, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(lists), cmocka_unit_test(files),
                                        cmocka_unit_test(errors) };
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
