/* test_boundary.c - which of two transformers computes a step, and with which guidance
 *
 * The times of five steps of wan22 are 999, 923, 818, 667, 429: those of diffusers, in
 * tests/golden/wan22. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "pipeline/job.h"
#include "pipeline/result.h"

static const char *const prompt[] = { "a ring" };

static xd_engine *open_model(const char *dir)
{
    xd_engine   *g = NULL;
    xd_err       e = { 0 };
    xd_open_args a = {
        .size = sizeof a, .model = dir, .dtype = "f32", .device = "cpu", .threads = 1
    };
    if (xd_open_with(&g, &a, 0, &e) != XD_OK)
        fail_msg("%s: %s", dir, e.msg);
    return g;
}

static xd_request request(void)
{
    xd_request r;
    xd_request_init(&r);
    r.prompts = prompt, r.nprompts = 1;
    r.width = 32, r.height = 32, r.num_frames = 5;
    r.num_inference_steps = 5;
    r.guidance_scale = 4;
    return r;
}

/* "00111": the transformer of each step. */
static void steps_are(xd_engine *g, const xd_request *r, const char *want, const double *scale)
{
    xd_job j;
    xd_err e = { 0 };
    if (xd_job_open(&j, &g->ctx, r, &e) != XD_OK)
        fail_msg("%s", e.msg);
    assert_int_equal(j.samp.steps, (int)strlen(want));
    for (int i = 0; i < j.samp.steps; i++) {
        assert_int_equal(xd_job_dit(&j, i), want[i] - '0');
        if (scale && xd_job_guidance(&j, i) != scale[i])
            fail_msg("step %d is guided by %g", i, xd_job_guidance(&j, i));
        assert_int_equal(xd_job_passes(&j, i), scale && scale[i] == 1 ? 1 : 2);
    }
    xd_job_close(&j);
}

static void refused(xd_engine *g, const xd_request *r, const char *why)
{
    xd_job j;
    xd_err e = { 0 };
    assert_int_equal(xd_job_open(&j, &g->ctx, r, &e), XD_EINVAL);
    if (!strstr(e.msg, why))
        fail_msg("refused with: %s", e.msg);
    xd_job_close(&j);
}

static void steps_of_two(void **state)
{
    xd_engine *g = open_model("tests/golden/wan22");
    xd_request r = request();
    (void)state;
    steps_are(g, &r, "00111", (double[]){ 4, 4, 4, 4, 4 });
    r.guidance.guidance_scale_2 = 2;
    steps_are(g, &r, "00111", (double[]){ 4, 4, 2, 2, 2 });
    r.guidance.guidance_scale_2 = 1;
    steps_are(g, &r, "00111", (double[]){ 4, 4, 1, 1, 1 });
    r.guidance.guidance_scale_2 = -1;
    r.guidance.boundary_ratio = 0.923; /* a step at the boundary is above it */
    steps_are(g, &r, "00111", NULL);
    r.guidance.boundary_ratio = 0.9231;
    steps_are(g, &r, "01111", NULL);
    r.guidance.boundary_ratio = 0;
    steps_are(g, &r, "00000", NULL);
    r.guidance.boundary_ratio = 1;
    steps_are(g, &r, "11111", NULL);
    xd_close(&g);
}

static void runs_of_steps(void **state)
{
    xd_engine *g = open_model("tests/golden/wan22");
    xd_request r = request();
    xd_job     j;
    xd_err     e = { 0 };
    (void)state;
    assert_int_equal(xd_job_open(&j, &g->ctx, &r, &e), XD_OK);
    assert_int_equal(xd_job_dit_begin(&j, 1), 0);
    assert_int_equal(xd_job_dit_end(&j, 0), 2);
    assert_int_equal(xd_job_dit_begin(&j, 4), 2);
    assert_int_equal(xd_job_dit_end(&j, 2), 5);
    assert_int_equal(xd_job_changes(&j), 1);
    assert_int_equal(xd_job_changes_again(&j), 2);
    assert_true(xd_job_uses_dit(&j, 0) && xd_job_uses_dit(&j, 1));
    xd_job_close(&j);
    r.guidance.boundary_ratio = 0.1;
    assert_int_equal(xd_job_open(&j, &g->ctx, &r, &e), XD_OK);
    assert_int_equal(xd_job_changes(&j), 0);
    assert_int_equal(xd_job_changes_again(&j), 0);
    assert_false(xd_job_uses_dit(&j, 1));
    xd_job_close(&j);
    xd_close(&g);
}

static void what_is_refused(void **state)
{
    xd_request r = request();
    xd_engine *g = open_model("tests/golden/wan22-low");
    (void)state;
    assert_int_equal(g->ctx.model.only_low, 1);
    r.num_inference_steps = 2;
    steps_are(g, &r, "00", NULL);
    r.guidance.boundary_ratio = 0.9;
    refused(g, &r,
            "step 1 of 2 has the timestep 999, above the boundary 900 (boundary_ratio "
            "0.9), and ");
    xd_close(&g);
    g = open_model("tests/golden/wan");
    r = request();
    r.guidance.guidance_scale_2 = 3;
    refused(g, &r, "no boundary_ratio");
    r.guidance.boundary_ratio = 0.9;
    refused(g, &r, "has no transformer_2 for it");
    xd_close(&g);
    g = open_model("tests/golden/flux");
    r.num_frames = 0;
    refused(g, &r, "two transformers (Wan); flux has one");
    xd_close(&g);
}

/* The sum of the latents of a request, whose weights are random. */
static double run(xd_engine *g, const xd_request *r)
{
    xd_result *out = NULL;
    xd_err     e = { 0 };
    int64_t    n;
    double     sum = 0;
    if (xd_generate(g, r, &out, &e) != XD_OK)
        fail_msg("%s", e.msg);
    const float *v = xd_result_lat(out, 0, &n);
    for (int64_t i = 0; i < n; i++)
        sum += (double)v[i] * (double)(i % 7 + 1);
    xd_result_free(&out);
    return sum;
}

static int is_loaded(xd_engine *g, int i)
{
    return xd_model_dit(&g->ctx.model, i)->w->store != NULL;
}

/* Both transformers stay for the next request where memory holds them; of the only request of an
 * engine each is freed behind its steps. */
static void what_stays_loaded(void **state)
{
    xd_engine *g = open_model("tests/golden/wan22");
    xd_request r = request();
    (void)state;
    r.output.latents_only = 1;
    double first = run(g, &r);
    assert_true(is_loaded(g, 0) && is_loaded(g, 1));
    assert_true(run(g, &r) == first);
    r.guidance.boundary_ratio = 0; /* of one transformer the other one is dropped */
    double other = run(g, &r);
    assert_true(is_loaded(g, 0) && !is_loaded(g, 1));
    r.guidance.boundary_ratio = -1;
    assert_true(run(g, &r) == first);
    g->ctx.once = 1;
    assert_true(run(g, &r) == first);
    assert_true(!is_loaded(g, 0) && is_loaded(g, 1));
    r.guidance.boundary_ratio = 0;
    assert_true(run(g, &r) == other);
    assert_true(is_loaded(g, 0) && !is_loaded(g, 1));
    xd_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(steps_of_two),
                                        cmocka_unit_test(runs_of_steps),
                                        cmocka_unit_test(what_is_refused),
                                        cmocka_unit_test(what_stays_loaded) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
