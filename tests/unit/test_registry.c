/* test_registry.c - registries that grow: what has no room is refused, lists of names hold all */
#define _GNU_SOURCE /* memmem */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "families/recipe.h"
#include "parallel/method.h"
#include "sampler/sampler.h"
#include "xdit/tools.h"

static int kept;

static int history(const xd_sched_cfg *c)
{
    (void)c;
    return kept;
}

static xd_status open_none(xd_sampling *s, const xd_sched_cfg *c, const xd_steps *a, xd_err *e)
{
    (void)c, (void)e;
    s->steps = a->steps;
    return XD_OK;
}

/* A sampler with more history than there is room for is refused, not cut. */
static void long_history(void **state)
{
    const xd_sampler d = { .name = "greedy", .history = history, .open = open_none };
    xd_sched_cfg     c = { .num_train_timesteps = 1000 };
    xd_steps         a = { .steps = 2 };
    xd_sampling      s;
    xd_err           e = { 0 };
    (void)state;
    kept = XD_MAXHIST;
    assert_int_equal(xd_sampling_open(&s, &d, &c, &a, &e), XD_OK);
    xd_sampling_close(&s);
    kept = XD_MAXHIST + 1;
    assert_int_equal(xd_sampling_open(&s, &d, &c, &a, &e), XD_EUNSUPPORTED);
    assert_non_null(strstr(e.msg, "greedy has 5 history arrays; the limit is 4"));
}

static int opened;

static xd_status open_link(const xd_method_args *a, const xd_hooks *next, xd_hooks **out, xd_err *e)
{
    (void)a, (void)next, (void)e;
    opened++;
    *out = NULL;
    return XD_OK;
}

static void close_link(xd_hooks *m)
{
    (void)m;
}

static void long_stack(void **state)
{
    static const xd_method link = { "dummy", open_link, close_link };
    const xd_method       *list[XD_MAXMETHODS + 2];
    xd_method_args         a = { .what = XD_FOR_DIT };
    xd_method_stack        c;
    xd_err                 e = { 0 };
    char                   words[64];
    (void)state;
    for (int i = 0; i <= XD_MAXMETHODS; i++)
        list[i] = &link;
    list[XD_MAXMETHODS + 1] = NULL;
    assert_int_equal(xd_method_stack_open_of(&c, list, &a, &e), XD_EUNSUPPORTED);
    assert_int_equal(opened, 0);
    snprintf(words, sizeof words, "there are %d parallel methods", XD_MAXMETHODS + 1);
    assert_non_null(strstr(e.msg, words));
    xd_method_stack_close(&c);
    list[XD_MAXMETHODS] = NULL;
    e = (xd_err){ 0 };
    assert_int_equal(xd_method_stack_open_of(&c, list, &a, &e), XD_OK);
    assert_int_equal(opened, XD_MAXMETHODS);
    xd_method_stack_close(&c);
}

/* Is the word there, between others? */
static int names(const char *text, size_t n, const char *word)
{
    size_t k = strlen(word);
    for (const char *p = text; (p = memmem(p, n - (size_t)(p - text), word, k)); p++)
        if ((p == text || strchr(" ,\n(", p[-1])) && strchr(" ,\n);", p[k]))
            return 1;
    return 0;
}

/* The help names every sampler that there is. */
static void samplers(void **state)
{
    int              n;
    const xd_option *o = xd_request_options(&n);
    const char      *help = NULL;
    (void)state;
    for (int i = 0; i < n; i++)
        help = strcmp(o[i].name, "scheduler") == 0 ? o[i].help : help;
    assert_non_null(help);
    for (int i = 0; xd_samplers[i]; i++)
        if (!names(help, strlen(help), xd_samplers[i]->name))
            fail_msg("the help of --scheduler lacks %s: %s", xd_samplers[i]->name, help);
    assert_false(names(help, strlen(help), "prk"));
}

/* However many there are: a list grows. */
static void pipelines(void **state)
{
    xd_text_buf b = { 0 };
    (void)state;
    for (int i = 0; i < 40; i++)
        xd_recipe_names(&b);
    assert_int_equal(b.failed, 0);
    assert_true(b.len > 4096);
    for (int i = 0; xd_recipe_at(i); i++)
        assert_non_null(strstr(b.p, xd_recipe_at(i)->pipelines[0]));
    xd_buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_history),
        cmocka_unit_test(long_stack),
        cmocka_unit_test(samplers),
        cmocka_unit_test(pipelines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
