/* test_memory_budget.c - the budget of memory that a program allows its engines */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "pipeline/memory_budget.h"
#include "xdit/xdit.h"

static void without_a_budget(void **state)
{
    xd_context none = { .budget = 0 };
    (void)state;
    assert_true(xd_budget_left(&none, 7, 1e12) == 7);
    assert_true(xd_budget_least(&none, 7) == 7);
}

static void the_smaller_limit_counts(void **state)
{
    xd_context c = { .budget = 100 };
    (void)state;
    assert_true(xd_budget_least(&c, 90) == 90 && xd_budget_least(&c, 110) == 100);
    assert_true(xd_budget_left(&c, 50, 30) == 50);
    assert_true(xd_budget_left(&c, 80, 30) == 70);
    assert_true(xd_budget_left(&c, 80, 130) == 0);
}

static void the_limit_as_text(void **state)
{
    xd_context c = { .budget = 12e9 };
    char       text[160];
    (void)state;
    xd_budget_text(&c, 1, "memory", 12e9, text, sizeof text);
    assert_string_equal(text, "a budget of 12 GB (--memory)");
    xd_budget_text(&c, 1, "memory", 8e9, text, sizeof text);
    assert_string_equal(text, "a budget of 12 GB (--memory), of which other engines leave 8 GB");
    xd_budget_text(&c, 0, "memory", 3e9, text, sizeof text);
    assert_string_equal(text, "memory and 3 GB are available");
}

static void engines_have_it_together(void **state)
{
    xd_context a = { .budget = 100 }, b = a, beside = { .borrowed = 1 };
    (void)state;
    xd_budget_hold(&a, 60);
    xd_budget_hold(&beside, 60);
    assert_true(xd_budget_elsewhere(&a) == 0 && xd_budget_elsewhere(&b) == 60);
    xd_budget_hold(&b, 10);
    xd_budget_hold(&a, 40);
    assert_true(xd_budget_elsewhere(&a) == 10 && xd_budget_elsewhere(&b) == 40);
    xd_budget_hold(&a, 0);
    assert_true(xd_budget_elsewhere(&b) == 0);
    xd_budget_hold(&b, 0);
}

/* A second model finds what the first one leaves of 62 MB, of which the request takes 56. */
static void a_second_engine_has_the_rest(void **state)
{
    static const char *const prompt = "a red circle";
    xd_open_args             a = { .size = sizeof a,
                                   .model = "models/demo-pixart",
                                   .dtype = "f32",
                                   .device = "cpu",
                                   .threads = 1,
                                   .keep = 1,
                                   .memory = -1 };
    xd_engine               *g[2] = { NULL, NULL };
    xd_request               r;
    xd_result               *res = NULL;
    xd_err                   e = { 0 };
    (void)state;
    assert_int_equal(xd_open(&g[0], &a, &e), XD_EINVAL);
    assert_non_null(strstr(e.msg, "memory is -1"));
    xd_request_init(&r);
    r.prompts = &prompt, r.nprompts = 1, r.num_inference_steps = 1;
    a.memory = 1000000, e = (xd_err){ 0 };
    assert_int_equal(xd_open(&g[0], &a, &e), XD_OK);
    assert_int_equal(xd_generate(g[0], &r, &res, &e), XD_ENOMEM);
    assert_non_null(strstr(e.msg, " of a budget of 1 MB (--memory): text encoder"));
    xd_close(&g[0]);
    a.memory = 1000000000, e = (xd_err){ 0 };
    assert_int_equal(xd_open(&g[0], &a, &e), XD_OK);
    assert_int_equal(xd_generate(g[0], &r, &res, &e), XD_OK);
    xd_result_free(&res);
    xd_context other = { .budget = 1e9 };
    double     held = xd_budget_elsewhere(&other);
    assert_true(held > 5e6 && held < 1e8);
    a.memory = (int64_t)held + 1000000;
    assert_int_equal(xd_open(&g[1], &a, &e), XD_OK);
    assert_int_equal(xd_generate(g[1], &r, &res, &e), XD_ENOMEM);
    assert_non_null(strstr(e.msg, "of which other engines leave 1 MB"));
    xd_close(&g[0]);
    assert_true(xd_budget_elsewhere(&other) == 0);
    xd_close(&g[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_budget),
        cmocka_unit_test(the_smaller_limit_counts),
        cmocka_unit_test(the_limit_as_text),
        cmocka_unit_test(engines_have_it_together),
        cmocka_unit_test(a_second_engine_has_the_rest),
    };
    return cmocka_run_group_tests_name("memory_budget", tests, NULL, NULL);
}
