/* test_search.c - names of plans, and which plans there are */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"
#include "predict/search.h"

/* ---- names -------------------------------------------------------------------------------- */

static void good_names(void **state)
{
    xd_parallel a = { 0 };
    xd_err      e = { 0 };
    (void)state;
    assert_int_equal(xd_parallel_read(&a, "u2r3pp4cfg2tp5dp6patch8warm1text2vae", &e), XD_OK);
    assert_int_equal(a.ulysses_degree, 2);
    assert_int_equal(a.ring_degree, 3);
    assert_int_equal(a.pipefusion_parallel_degree, 4);
    assert_int_equal(a.use_cfg_parallel, 1);
    assert_int_equal(a.tensor_parallel_degree, 5);
    assert_int_equal(a.data_parallel_degree, 6);
    assert_int_equal(a.num_pipeline_patch, 8);
    assert_int_equal(a.warmup_steps, 1);
    assert_int_equal(a.text_tensor_parallel_degree, 2);
    assert_int_equal(a.use_parallel_vae, 1);
    a = (xd_parallel){ .ulysses_degree = 2 }; /* the same said twice */
    assert_int_equal(xd_parallel_read(&a, "u2 cfg,r4-pp8_vae", &e), XD_OK);
    assert_int_equal(a.use_cfg_parallel, 1);
    assert_int_equal(a.ring_degree, 4);
    assert_int_equal(a.pipefusion_parallel_degree, 8);
    assert_int_equal(a.use_parallel_vae, 1);
}

static void bad_names(void **state)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        { "", "at \"\"" },
        { "x2", "at \"x2\"" },
        { "u", "number after u" },
        { "u0", "after u: 0" },
        { "2u", "at \"2u\"" },
        { "cfg3", "after cfg: 3" },
        { "u2u3", "has u 3, but --ulysses_degree is 2" },
        { "u99999999999", "after u: " },
        { "ulysses2", "u, r, pp, tp" },
        { "u2!", "at \"!\"" },
        { "vae2", "after vae: 2" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        xd_parallel a = { 0 };
        xd_err      e = { 0 };
        assert_int_equal(xd_parallel_read(&a, bad[i].text, &e), XD_EINVAL);
        if (!strstr(e.msg, bad[i].why))
            fail_msg("the refusal of \"%s\" is \"%s\"", bad[i].text, e.msg);
    }
}

/* ---- plans -------------------------------------------------------------------------------- */

static xd_engine *g;
static xd_machine m;

static int setup(void **state)
{
    xd_open_args a = { .size = sizeof a, .model = "models/demo-pixart", .threads = 1 };
    xd_err       e = { 0 };
    (void)state;
    return xd_machine_read(&m, "8xH100", &e) != XD_OK ||
           xd_open_with(&g, &a, XD_FOR_BENCH | XD_ALONE, &e) != XD_OK;
}

static int teardown(void **state)
{
    (void)state;
    xd_close(&g);
    return 0;
}

static xd_status search(xd_search *s, const xd_parallel *fixed, int ranks, int stale, int prompts,
                        double guidance, xd_err *e)
{
    static const char *const texts[] = { "", "", "", "", "", "" };
    xd_request               r;
    xd_request_init(&r);
    r.prompts = texts, r.nprompts = prompts;
    r.num_inference_steps = 3;
    r.guidance_scale = guidance;
    return xd_search_plans(s, &g->ctx, &r, fixed, ranks, stale, &m, e);
}

static int degree(int v)
{
    return v ? v : 1;
}

/* Ways to write n as u r pp tp cfg (dp where there are prompts for it), in order; pipelines
 * count twice. */
static int by_hand(int n, int stale, int prompts)
{
    int count = 0;
    for (int cfg = 1; cfg <= 2; cfg++)
        for (int u = 1; u <= n; u++)
            for (int r = 1; r <= n; r++)
                for (int p = 1; p <= (stale ? n : 1); p++)
                    for (int t = 1; t <= n; t++)
                        for (int d = 1; d <= prompts; d++)
                            if (cfg * u * r * p * t * d == n)
                                count += p > 1 ? 2 : 1;
    return count;
}

static void count(void **state)
{
    (void)state;
    for (int n = 1; n <= 8; n++)
        for (int stale = 0; stale < 2; stale++)
            for (int prompts = 1; prompts <= 2; prompts++) {
                xd_search s;
                xd_err    e = { 0 };
                if (n > 6 && prompts == 2)
                    continue;
                if (search(&s, &(xd_parallel){ 0 }, n, stale, prompts, 4.5, &e) != XD_OK)
                    fail_msg("%s", e.msg);
                assert_int_equal(s.n, by_hand(n, stale, prompts));
                for (int i = 0; i < s.n; i++) {
                    const xd_parallel *a = &s.c[i].parallel;
                    xd_parallel        back = { 0 };
                    assert_int_equal(xd_parallel_ranks(a), n);
                    assert_true(i >= s.good || !s.c[i].why.code);
                    assert_true(i < s.good || s.c[i].why.code);
                    assert_true(i == 0 || i >= s.good ||
                                s.c[i].f.request_s >= s.c[i - 1].f.request_s);
                    if (n > 1) { /* a name says the plan */
                        assert_int_equal(xd_parallel_read(&back, s.c[i].name, &e), XD_OK);
                        assert_int_equal(xd_parallel_ranks(&back), n);
                        assert_int_equal(degree(back.ulysses_degree), degree(a->ulysses_degree));
                        assert_int_equal(degree(back.tensor_parallel_degree),
                                         degree(a->tensor_parallel_degree));
                        assert_int_equal(back.num_pipeline_patch, a->num_pipeline_patch);
                    }
                    for (int k = 0; k < i; k++)
                        assert_string_not_equal(s.c[i].name, s.c[k].name);
                }
                xd_search_free(&s);
            }
}

static void fixed_degrees(void **state)
{
    xd_search s;
    xd_err    e = { 0 };
    (void)state;
    assert_int_equal(search(&s, &(xd_parallel){ .ulysses_degree = 2 }, 4, 1, 1, 4.5, &e), XD_OK);
    assert_int_equal(s.n, 5); /* cfg, ring, tensor, pipeline with 2 and 4 patches */
    for (int i = 0; i < s.n; i++)
        assert_int_equal(s.c[i].parallel.ulysses_degree, 2);
    xd_search_free(&s);
    xd_parallel a = { .pipefusion_parallel_degree = 2,
                      .num_pipeline_patch = 3,
                      .use_cfg_parallel = 1 };
    assert_int_equal(search(&s, &a, 4, 0, 1, 4.5, &e), XD_OK);
    assert_int_equal(s.n, 1); /* asked for, though not exact */
    assert_int_equal(s.c[0].parallel.num_pipeline_patch, 3);
    assert_string_equal(s.c[0].name, "pp2cfg2patch3warm1vae");
    xd_search_free(&s);
}

static void refused(const xd_parallel *a, int ranks, double guidance, const char *why)
{
    xd_search s;
    xd_err    e = { 0 };
    assert_int_equal(search(&s, a, ranks, 1, 1, guidance, &e), XD_EINVAL);
    if (!strstr(e.msg, why))
        fail_msg("the refusal is \"%s\", without \"%s\"", e.msg, why);
    xd_search_free(&s);
}

static void refusals(void **state)
{
    (void)state;
    refused(&(xd_parallel){ .ulysses_degree = 3 }, 4, 4.5, "exactly 4 ranks");
    refused(&(xd_parallel){ .data_parallel_degree = 3 }, 4, 4.5, "exactly 4 ranks");
    refused(&(xd_parallel){ .use_cfg_parallel = 1 }, 2, 1.0, "cfg 2");
}

/* Plans that do not fit come last and say what they need. */
static void too_big(void **state)
{
    xd_search s;
    xd_err    e = { 0 };
    double    had = m.memory;
    (void)state;
    m.memory = 1e6;
    assert_int_equal(search(&s, &(xd_parallel){ 0 }, 2, 1, 1, 4.5, &e), XD_ENOMEM);
    assert_non_null(strstr(e.msg, " and has 1 MB"));
    assert_int_equal(s.good, 0);
    xd_search_free(&s);
    m.memory = had;
}

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * fabs(want)))
        fail_msg("%.12g is not %.12g", got, want);
}

static xd_prediction predict(int latents_only, double read)
{
    static const char *const texts[] = { "", "" };
    xd_prediction            f;
    xd_request               r;
    xd_err                   e = { 0 };
    xd_request_init(&r);
    r.prompts = texts, r.nprompts = 2, r.num_inference_steps = 2;
    r.output.latents_only = latents_only;
    m.read = read;
    if (xd_predict(&f, &g->ctx, &r, &(xd_parallel){ 0 }, 1, &m, &e) != XD_OK)
        fail_msg("%s", e.msg);
    xd_prediction_free(&f);
    m.read = 0;
    return f;
}

/* What a disk must deliver takes its time once, however many images there are, and only what is
 * used. */
static void reading_is_counted(void **state)
{
    (void)state;
    xd_prediction warm = predict(0, 1e9), latents = predict(1, 1e9);
    near(xd_predicted_reading(&warm), 0);
    g->ctx.cold[XD_KIND_TEXT] = 9.5e9, g->ctx.cold[XD_KIND_DIT] = 24e9,
    g->ctx.cold[XD_KIND_VAE] = 3e8;
    xd_prediction cold = predict(0, 1.5e8), unknown = predict(0, 0), kept = predict(1, 1.5e8);
    memset(g->ctx.cold, 0, sizeof g->ctx.cold);
    assert_int_equal(warm.rounds, 2);
    near(cold.read_s[XD_KIND_TEXT], 9.5e9 / 1.5e8);
    near(cold.text_s, warm.text_s + 9.5e9 / 1.5e8);
    /* The transformer is read behind the text encoder, the autoencoder behind the last step. */
    near(cold.read_s[XD_KIND_DIT], 160 - warm.text_s);
    near(cold.read_s[XD_KIND_VAE], 2 - warm.exact_s);
    near(cold.decode_s, warm.decode_s);
    near(xd_predicted_reading(&cold), 33.8e9 / 1.5e8 - warm.text_s - warm.exact_s);
    near(cold.request_s, warm.request_s + xd_predicted_reading(&cold));
    near(unknown.request_s, warm.request_s);
    near(unknown.text_s, warm.text_s);
    near(kept.request_s, latents.request_s + 33.5e9 / 1.5e8 - warm.text_s); /* without a VAE */
}

/* Behind computing a disk is waited for as long as it takes more: max(read, compute) together. */
static void reading_is_hidden(void **state)
{
    const double MB = 1e6, GB = 1e9;
    (void)state;
    near(xd_reading_wait_s(2 * GB, 100 * MB, 8 * GB, 5), 15);
    near(xd_reading_wait_s(2 * GB, 100 * MB, 8 * GB, 50), 0);
    near(xd_reading_wait_s(2 * GB, 100 * MB, 0.5 * GB, 50), 15); /* memory for a quarter */
    near(xd_reading_wait_s(2 * GB, 100 * MB, -1 * GB, 50), 20);
    near(xd_reading_wait_s(20 * MB, 100 * MB, 8 * GB, 50), 0.2); /* too few for a thread */
    near(xd_reading_wait_s(0, 100 * MB, 8 * GB, 50), 0);
}

/* Ranks that decode together load the autoencoder with the transformer. */
static void reading_has_its_stage(void **state)
{
    xd_prediction f = { .read_s = { 1, 2, 4 } };
    (void)state;
    near(xd_predicted_reading_to_load(&f), 2);
    near(xd_predicted_reading_to_decode(&f), 4);
    f.early = 1;
    near(xd_predicted_reading_to_load(&f), 6);
    near(xd_predicted_reading_to_decode(&f), 0);
    near(xd_predicted_reading(&f), 7);
}

/* On CPUs encoders and autoencoders, too, read weights that no cache holds, on one rank as well. */
static void weights_are_read(void **state)
{
    const xd_machine had = m;
    (void)state;
    m.cache = 1e6;
    m.bf16.weights = m.f32.weights = 1e9;
    xd_prediction fast = predict(0, 0);
    m.bf16.weights = m.f32.weights = 1e6;
    xd_prediction slow = predict(0, 0);
    m = had;
    assert_true(fast.text_s < 0.1 && slow.text_s > 1);
    assert_true(fast.step_s < 0.1 && slow.step_s > 1);
    assert_true(fast.decode_s < 0.1 && slow.decode_s > 1);
}

static xd_prediction predict_prompts(const char *const *texts, int n, int replicas)
{
    xd_open_args  a = { .size = sizeof a, .model = "tests/golden/lumina2", .threads = 1 };
    xd_engine    *l = NULL;
    xd_prediction f = { 0 };
    xd_request    r;
    xd_err        e = { 0 };
    xd_request_init(&r);
    r.prompts = texts, r.nprompts = n, r.num_inference_steps = 3;
    r.width = r.height = 64;
    xd_status s = xd_open_with(&l, &a, XD_FOR_BENCH | XD_ALONE, &e);
    if (s == XD_OK)
        s = xd_predict(&f, &l->ctx, &r, &(xd_parallel){ .data_parallel_degree = replicas },
                       replicas, &m, &e);
    if (s != XD_OK)
        fail_msg("%s", e.msg);
    xd_prediction_free(&f);
    xd_close(&l);
    return f;
}

/* Each prompt takes the time of its own length; replicas wait for the longest of a round. */
static void prompts_have_lengths(void **state)
{
    static const char *const texts[] = { "red red red red red red", "red", "red red red" };
    static const int         prompts[] = { 1, 2, 0 }, rounds[2][3] = { { 1, 1, 1 }, { 0, 1, 1 } };
    (void)state;
    for (int replicas = 1; replicas <= 2; replicas++) {
        xd_prediction f = predict_prompts(texts, 3, replicas);
        double        steps_s = 0;
        assert_int_equal(f.texts, 3);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(f.text[i].prompt, prompts[i]);
            assert_int_equal(f.text[i].rounds, rounds[replicas - 1][i]);
            for (int p = 1; p <= XD_MAXPASS; p++)
                steps_s += f.text[i].rounds * f.text[i].of[p].exact * f.text[i].of[p].exact_s;
        }
        assert_true(f.text[0].of[2].exact_s < f.text[2].of[2].exact_s);
        near(f.rounds * 3 * f.exact_s, steps_s);
        near(f.request_s, f.text_s + steps_s + f.rounds * f.decode_s);
    }
}

/* Many lengths count as a few, and the longest is among them. */
static void lengths_are_rounded(void **state)
{
    enum { PROMPTS = 40 };
    static char        text[PROMPTS][4 * PROMPTS + 1];
    static const char *texts[PROMPTS];
    int                rounds = 0;
    (void)state;
    for (int i = 0; i < PROMPTS; i++) {
        texts[i] = text[i];
        for (int k = 0; k <= i; k++)
            strcat(text[i], "red ");
    }
    xd_prediction f = predict_prompts(texts, PROMPTS, 1);
    assert_in_range(f.texts, XD_PREDICTED_TEXTS / 2, XD_PREDICTED_TEXTS);
    for (int i = 0; i < f.texts; i++)
        rounds += f.text[i].rounds;
    assert_int_equal(rounds, PROMPTS);
    assert_int_equal(f.text[f.texts - 1].prompt, PROMPTS - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_names),
        cmocka_unit_test(bad_names),
        cmocka_unit_test(count),
        cmocka_unit_test(fixed_degrees),
        cmocka_unit_test(refusals),
        cmocka_unit_test(too_big),
        cmocka_unit_test(reading_is_counted),
        cmocka_unit_test(reading_is_hidden),
        cmocka_unit_test(reading_has_its_stage),
        cmocka_unit_test(weights_are_read),
        cmocka_unit_test(prompts_have_lengths),
        cmocka_unit_test(lengths_are_rounded),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
