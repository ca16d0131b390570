/* test_engine.c - several engines in one process: each has its own log; tokens of results, names
 *
 * Uses the model of the demo. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "xdit/tools.h"

typedef struct heard {
    int  n, worst_level;
    char last[256];
} heard;

static void hear(void *cookie, int level, const char *line)
{
    heard *h = cookie;
    h->n++;
    h->worst_level = level > h->worst_level ? level : h->worst_level;
    strncpy(h->last, line, sizeof h->last - 1);
}

static xd_engine *open_demo(heard *h, int level)
{
    xd_err       e = { 0 };
    xd_engine   *g = NULL;
    xd_open_args a = { .size = sizeof a,
                       .model = "models/demo-pixart",
                       .log = hear,
                       .cookie = h,
                       .log_level = level };
    assert_int_equal(xd_open(&g, &a, &e), XD_OK);
    return g;
}

/* One step of a small image, with a negative prompt that is not used: one warning. */
static void generate(xd_engine *g)
{
    static const char *const prompt = "a red circle";
    xd_request               r;
    xd_result               *res = NULL;
    xd_err                   e = { 0 };
    xd_request_init(&r);
    r.prompts = &prompt, r.nprompts = 1;
    r.num_inference_steps = 1, r.output.latents_only = 1;
    r.guidance_scale = 1, r.negative_prompt = "blue";
    assert_int_equal(xd_generate(g, &r, &res, &e), XD_OK);
    xd_result_free(&res);
}

static void two_engines_have_two_logs(void **state)
{
    heard      first = { 0 }, second = { 0 };
    xd_engine *g, *h;
    (void)state;
    g = open_demo(&first, XD_LOG_DEBUG);
    assert_true(first.n > 0);
    assert_int_equal(first.worst_level, XD_LOG_DEBUG);
    int before = first.n;
    h = open_demo(&second, XD_LOG_WARN);
    assert_int_equal(first.n, before); /* opening the second is not the first's business */
    assert_int_equal(second.n, 0);
    generate(h);
    assert_int_equal(first.n, before);
    assert_int_equal(second.n, 1);
    assert_non_null(strstr(second.last, "negative prompt"));
    generate(g);
    assert_true(first.n > before);
    assert_int_equal(second.n, 1);
    before = first.n;
    xd_close(&h);
    assert_int_equal(first.n, before);
    generate(g); /* the second's end takes nothing from the first */
    assert_true(first.n > before);
    xd_close(&g);
}

/* The tokenizer makes ids 3 4 52 36 32 1 of the first prompt and 256 at most of the last, of which
 * the encoder reads 120. A token of the transformer is 16 x 16 pixels. */
static void tokens_are_counted(void **state)
{
    char        longest[2048] = "";
    const char *prompts[] = { "a red circle", "", longest };
    heard       h = { 0 };
    xd_engine  *g = open_demo(&h, XD_LOG_ERROR);
    xd_request  r;
    xd_result  *res = NULL;
    xd_err      e = { 0 };
    (void)state;
    for (int i = 0; i < 100; i++)
        strcat(longest, "red circle ");
    xd_request_init(&r);
    r.prompts = prompts, r.nprompts = 3, r.num_images_per_prompt = 2;
    r.num_inference_steps = 1, r.output.latents_only = 1, r.width = 96, r.height = 160;
    assert_int_equal(xd_generate(g, &r, &res, &e), XD_OK);
    static const int64_t text[] = { 6, 6, 1, 1, 120, 120 };
    for (int i = 0; i < 6; i++) {
        assert_int_equal(xd_result_tokens(res, i, "text"), text[i]);
        assert_int_equal(xd_result_tokens(res, i, "image"), 6 * 10);
        assert_int_equal(xd_result_tokens(res, i, "reference"), 0);
    }
    assert_int_equal(xd_result_tokens(res, 6, "text"), -1);
    assert_int_equal(xd_result_tokens(res, 0, "words"), -1);
    xd_result_free(&res);
    xd_close(&g);
}

/* Each name once; tests/serve/a1111.py generates with all of them. */
static void names_of_webui(void **state)
{
    int n = 0, euler = 0;
    (void)state;
    for (const char *name; (name = xd_scheduler_webui(n)); n++) {
        for (int i = 0; i < n; i++)
            assert_string_not_equal(xd_scheduler_webui(i), name);
        euler |= strcmp(name, "Euler") == 0;
    }
    assert_true(n > 8 && euler);
    assert_null(xd_scheduler_webui(n + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_engines_have_two_logs),
        cmocka_unit_test(tokens_are_counted),
        cmocka_unit_test(names_of_webui),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
