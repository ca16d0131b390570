/* test_sampler.c - whole trajectories against diffusers' schedulers (tools/golden/cases/sampler.py
 * made them), ranges of rows, and settings that are refused.
 *
 * Tolerances: timesteps 2e-3 of one training step (numpy keeps log sigma in f32), the scale of the
 * noise 1e-6, the latents at the end, and after every step where the reference has them, 1e-5 of
 * the largest value on the way (tolerance_of), the number that a generator of noise gives after the
 * last step 1e-6. */
#include "sampler/sampler.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "exec/op.h"
#include "sampler/schedule.h"

enum { ROWS = 4, COLS = 2, NUMBERS = ROWS * COLS, TMP = 1 << 16, SEED = 7, MOST_STEPS = 1000 };

static const float start[NUMBERS] = { 1.5f, -0.7f, 0.2f, -2.1f, 0.9f, 3.0f, -0.05f, 0.6f };
static const float image[NUMBERS] = { 0.8f, -1.1f, 0.3f, 0.05f, -0.6f, 1.2f, 0.7f, -0.4f };

typedef struct rig {
    xd_dev  *dev;
    xd_exec  x;
    xd_arena tmp;
    void    *mem;
} rig;

static int open_rig(void **state)
{
    static rig r;
    xd_err     e = { 0 };
    *state = &r;
    r.mem = aligned_alloc(XD_ALIGN, TMP);
    if (!r.mem || xd_dev_open(&r.dev, "cpu", &e) != XD_OK)
        return -1;
    xd_arena_init(&r.tmp, r.mem, TMP);
    xd_exec_init(&r.x, r.dev, &r.tmp, XD_F32);
    return 0;
}

static int close_rig(void **state)
{
    rig *r = *state;
    xd_dev_close(&r->dev);
    free(r->mem);
    return 0;
}

/* ---- trajectories --------------------------------------------------------------------------- */

typedef struct latents {
    float lat[NUMBERS], pred[NUMBERS], hist[XD_MAXHIST][NUMBERS], noise[NUMBERS];
    float clean[NUMBERS]; /* that the last step has predicted */
    int   drawn;          /* tensors of noise, as many as diffusers draws */
} latents;

/* Rows [from, from + n) of the latents take one step. */
static void step_rows(rig *r, xd_sampling *s, int step, latents *l, int from, int n)
{
    xd_tensor hist[XD_MAXHIST], noise = { 0 };
    int64_t   d[] = { n, COLS };
    size_t    mark = xd_arena_mark(&r->tmp);
    for (int i = 0; i < XD_MAXHIST; i++)
        hist[i] = xd_view(l->hist[i] + from * COLS, XD_F32, 2, d);
    if (s->def->draws && s->def->draws(s, step))
        noise = xd_view(l->noise + from * COLS, XD_F32, 2, d);
    s->def->step(&r->x, s, step, xd_view(l->lat + from * COLS, XD_F32, 2, d),
                 xd_view(l->pred + from * COLS, XD_F32, 2, d), hist, noise);
    xd_arena_rewind(&r->tmp, mark);
    if (!xd_ok(&r->x))
        fail_msg("%s", r->x.err.msg);
}

/* The pseudo model of the golden script. */
static void predict(const xd_sampling *s, int step, latents *l)
{
    float t = 0.1f * (float)sin(s->time[step] / 100);
    for (int i = 0; i < NUMBERS; i++)
        l->pred[i] = 0.3f * l->lat[i] * (float)s->in_scale[step] + t;
}

/* The noise of a step: the last tensor of those it draws from a generator of its own. */
static void draw(const xd_sampling *s, int step, latents *l)
{
    int n = s->def->draws ? s->def->draws(s, step) : 0;
    l->drawn += n;
    if (n)
        xd_noise_torch(l->noise, NUMBERS, SEED, l->drawn - 1);
}

/* The clean latents of a step that is to come; the latents stay as they are. */
static void predict_clean(rig *r, const xd_sampling *s, int step, latents *l)
{
    float   lat[NUMBERS];
    int64_t d[] = { ROWS, COLS };
    memcpy(lat, l->lat, sizeof lat);
    memcpy(l->clean, l->pred, sizeof l->clean);
    s->def->clean(&r->x, s, step, xd_view(l->lat, XD_F32, 2, d), xd_view(l->clean, XD_F32, 2, d));
    assert_memory_equal(l->lat, lat, sizeof lat);
    assert_true(xd_ok(&r->x));
}

/* `path`, where it is not NULL, gets the first and the last of the latents after every step. */
static void run_along(rig *r, xd_sampling *s, latents *l, int pieces, int from_image, double *path)
{
    double of[2] = { 0, s->init_scale };
    memset(l, 0, sizeof *l);
    if (from_image)
        s->def->shares(s, 0, of);
    for (int i = 0; i < NUMBERS; i++)
        l->lat[i] = (float)of[0] * image[i] + (float)of[1] * start[i];
    for (int step = 0; step < s->steps; step++) {
        predict(s, step, l);
        draw(s, step, l);
        if (step == s->steps - 1)
            predict_clean(r, s, step, l);
        for (int k = 0; k < pieces; k++) {
            int a = ROWS * k / pieces, b = ROWS * (k + 1) / pieces;
            step_rows(r, s, step, l, a, b - a);
        }
        if (path)
            path[2 * step] = l->lat[0], path[2 * step + 1] = l->lat[NUMBERS - 1];
    }
}

static void run(rig *r, xd_sampling *s, latents *l, int pieces)
{
    run_along(r, s, l, pieces, 0, NULL);
}

static double number(const xd_json *j, const char *key)
{
    double v = NAN;
    if (!xd_json_number(xd_json_get(j, key), &v))
        fail_msg("the golden file has no %s", key);
    return v;
}

/* What a pipeline asks beside the config: kept in the same object by the script. */
static double also(const xd_json *c, const char *key)
{
    double v = 0;
    xd_json_number(xd_json_get(xd_json_get(c, "config"), key), &v);
    return v;
}

/* A list that the request gives, kept in the same object; NULL: none. */
static const double *given(const xd_json *c, const char *key, double *v)
{
    const xd_json *list = xd_json_get(xd_json_get(c, "config"), key);
    for (int i = 0; i < xd_json_size(list); i++)
        assert_true(i < 16 && xd_json_number(xd_json_at(list, i), &v[i]));
    return xd_json_is_list(list) ? v : NULL;
}

static void open_case(xd_sampling *s, const xd_json *c)
{
    static double sigmas[16], times[16];
    int           own = 0, leap = 0;
    xd_json_bool(xd_json_get(xd_json_get(c, "config"), "own"), &own);
    xd_json_bool(xd_json_get(xd_json_get(c, "config"), "leap"), &leap);
    xd_steps          a = { .steps = (int)number(c, "steps"),
                            .tokens = (int64_t)also(c, "tokens"),
                            .own_sigmas = own,
                            .strength = also(c, "strength"),
                            .max_shift = also(c, "most"),
                            .leap = leap,
                            .sigmas = given(c, "given_sigmas", sigmas),
                            .times = given(c, "given_times", times) };
    xd_sched_cfg      cfg;
    xd_err            e = { 0 };
    const xd_sampler *d = xd_sampler_find(xd_json_text(xd_json_get(c, "class")));
    assert_non_null(d);
    if (xd_sched_read(d, &cfg, xd_json_get(c, "config"), "golden", &e) != XD_OK ||
        xd_sampling_open(s, d, &cfg, &a, &e) != XD_OK)
        fail_msg("%s", e.msg);
    assert_true(d->history(&cfg) <= XD_MAXHIST);
}

/* Without predict_x0 diffusers subtracts large numbers in f32, and loses digits. */
static double tolerance_of(const xd_json *c)
{
    int x0 = 1;
    xd_json_bool(xd_json_get(xd_json_get(c, "config"), "predict_x0"), &x0);
    return x0 ? 1e-5 : 1e-4;
}

/* Are all numbers of the list those of v, to within `most`? A list that is absent is. */
static int follows(const xd_json *list, const double *v, int n, double top, double most,
                   double *how)
{
    double is;
    if (xd_json_is_list(list) && xd_json_size(list) != n)
        return 0;
    for (int i = 0; xd_json_is_list(list) && i < n; i++) {
        assert_int_equal(xd_json_number(xd_json_at(list, i), &is), 1);
        *how = (v[i] - is) / top;
        if (!(fabs(*how) <= most))
            return 0;
    }
    return 1;
}

/* Do the latents at the end have no noise left? Not with settings that end at another level, nor
 * where DDIM's steps do not divide the timesteps. */
static int ends_clean(const xd_sampling *s, const xd_json *c)
{
    const xd_json *config = xd_json_get(c, "config");
    const char    *final = xd_json_text(xd_json_get(config, "final_sigmas_type"));
    int            one = 1, steps = (int)number(c, "steps");
    xd_json_bool(xd_json_get(config, "set_alpha_to_one"), &one);
    return (!final || strcmp(final, "zero") == 0) && one && strcmp(s->def->name, "tcd") != 0 &&
           strcmp(s->def->name, "pndm") != 0 && !xd_json_get(config, "interpolation_type") &&
           !xd_json_get(config, "given_sigmas") && !xd_json_get(config, "given_times") &&
           !xd_json_get(config, "invert_sigmas") && steps < 500 &&
           (!(strstr(s->def->name, "ddim") || strstr(s->def->name, "cogvideox")) ||
            s->cfg.num_train_timesteps % steps == 0);
}

/* What differs, or NULL. *clean counts cases whose last step predicts the latents at its end. */
static const char *differs(rig *r, xd_sampling *s, const xd_json *c, double *how, int *clean)
{
    static latents l;
    static double  path[2 * MOST_STEPS];
    const xd_json *times = xd_json_get(c, "times"), *end = xd_json_get(c, "end");
    double         v, top = number(c, "top"), init = number(c, "init");
    int            from_image = 0;
    *how = s->steps;
    if (xd_json_size(times) != s->steps)
        return "steps";
    for (int i = 0; i < s->steps; i++) {
        assert_int_equal(xd_json_number(xd_json_at(times, i), &v), 1);
        *how = s->time[i] - v;
        if (!(fabs(*how) <= 2e-3))
            return "time";
    }
    *how = s->init_scale / init - 1;
    if (!(fabs(*how) <= 1e-6))
        return "scale of the noise";
    assert_true(s->steps <= MOST_STEPS);
    xd_json_bool(xd_json_get(xd_json_get(c, "config"), "image"), &from_image);
    run_along(r, s, &l, 1, from_image, path);
    if (!follows(xd_json_get(c, "path"), path, 2 * s->steps, top, tolerance_of(c), how))
        return "the latents of a step";
    for (int i = 0; i < NUMBERS; i++) {
        assert_int_equal(xd_json_number(xd_json_at(end, i), &v), 1);
        *how = ((double)l.lat[i] - v) / top;
        if (!(fabs(*how) <= tolerance_of(c)))
            return "latents";
        *how = ends_clean(s, c) ? ((double)l.clean[i] - v) / top : 0;
        if (!(fabs(*how) <= tolerance_of(c)))
            return "clean latents";
    }
    *clean += ends_clean(s, c);
    xd_noise_torch(l.noise, NUMBERS, SEED, l.drawn);
    int told = !xd_json_null(xd_json_get(c, "next"));
    *how = l.noise[0] - (told || xd_sampling_draws(s) ? number(c, "next") : l.noise[0]);
    return fabs(*how) <= 1e-6 ? NULL : "the noise after the last step";
}

static void trajectories(void **state)
{
    xd_json *j;
    xd_err   e = { 0 };
    int      bad = 0, n = 0, clean = 0;
    if (xd_json_read(&j, "tests/golden/sampler.json", &e) != XD_OK)
        fail_msg("%s", e.msg);
    for (const xd_json *c = xd_json_first(j); c; c = xd_json_next(c), n++) {
        xd_sampling s;
        double      how;
        open_case(&s, c);
        const char *what = differs(*state, &s, c, &how, &clean);
        if (what) {
            bad++;
            print_message("# case %d, %s with %g steps: %s differs by %g\n", n,
                          xd_json_text(xd_json_get(c, "class")), number(c, "steps"), what, how);
        }
        xd_sampling_close(&s);
    }
    xd_json_free(&j);
    assert_true(n > 300 && clean > 200);
    assert_int_equal(bad, 0);
}

/* ---- other properties ----------------------------------------------------------------------- */

static xd_status open_text(xd_sampling *s, const char *name, const char *config, int steps,
                           xd_err *e)
{
    xd_json          *j = NULL;
    xd_sched_cfg      cfg;
    const xd_sampler *d = xd_sampler_find(name);
    assert_non_null(d);
    memset(s, 0, sizeof *s);
    assert_int_equal(xd_json_parse(&j, config, strlen(config), "scheduler_config.json", e), XD_OK);
    xd_status st = xd_sched_read(d, &cfg, j, "scheduler_config.json", e);
    if (st == XD_OK)
        st = xd_sampling_open(s, d, &cfg, &(xd_steps){ .steps = steps }, e);
    xd_json_free(&j);
    return st;
}

/* Shares of a later step are those of the first one of a schedule that is cut there, and behind the
 * last one there is no noise. */
static void shares_of_steps(void **state)
{
    (void)state;
    int n = 0;
    for (int i = 0; xd_samplers[i]; i++) {
        const xd_sampler *d = xd_samplers[i];
        xd_sampling       whole, cut;
        xd_sched_cfg      cfg;
        xd_err            e = { 0 };
        double            a[2], b[2], end[2];
        if (!d->shares)
            continue;
        assert_int_equal(xd_sched_read(d, &cfg, NULL, "defaults", &e), XD_OK);
        cfg.skip_prk_steps = 1; /* the default, which is refused, is false */
        assert_int_equal(xd_sampling_open(&whole, d, &cfg, &(xd_steps){ .steps = 8 }, &e), XD_OK);
        assert_int_equal(
            xd_sampling_open(&cut, d, &cfg, &(xd_steps){ .steps = 8, .strength = 0.625 }, &e),
            XD_OK);
        d->shares(&whole, whole.steps - cut.steps, a);
        d->shares(&cut, 0, b);
        d->shares(&cut, cut.steps, end);
        assert_true(cut.steps < whole.steps && a[1] > 0 && a[0] == b[0] && a[1] == b[1]);
        assert_true(end[0] == 1 && end[1] == 0);
        xd_sampling_close(&whole);
        xd_sampling_close(&cut);
        n++;
    }
    assert_int_equal(n, 15);
}

/* The prediction that a network makes of this image and noise, where latents have these shares. */
static float predicted(const char *type, const double of[2], float image_, float noise)
{
    double a = of[0], b = of[1], x = (double)image_, e = (double)noise;
    return (float)(!strcmp(type, "epsilon")        ? e
                   : !strcmp(type, "sample")       ? x
                   : !strcmp(type, "v_prediction") ? (a * e - b * x) / sqrt(a * a + b * b)
                                                   : e - x);
}

/* Of latents that are mixed from an image and noise the exact prediction gives back the image, to
 * within 2e-6 of the larger of both at the scale of the image. */
static void check_clean(rig *r, const char *name, const char *config, const char *type)
{
    static latents l;
    xd_sampling    s;
    xd_err         e = { 0 };
    assert_int_equal(open_text(&s, name, config, 8, &e), XD_OK);
    for (int step = 0; step < s.steps; step++) {
        double of[2];
        s.def->shares(&s, step, of);
        for (int n = 0; n < NUMBERS; n++) {
            l.lat[n] = (float)(of[0] * (double)image[n] + of[1] * (double)start[n]);
            l.pred[n] = predicted(type, of, image[n], start[n]);
        }
        predict_clean(r, &s, step, &l);
        for (int n = 0; n < NUMBERS; n++)
            if (!(fabs((double)(l.clean[n] - image[n])) <= 2e-6 * (1 + of[1] / of[0])))
                fail_msg("%s %s step %d: %g is not %g", name, config, step, (double)l.clean[n],
                         (double)image[n]);
    }
    xd_sampling_close(&s);
}

static void clean_latents(void **state)
{
    static const char *const types[] = { "epsilon", "v_prediction", "sample" };
    static const struct {
        const char *name, *more;
        int         types;
    } cases[] = {
        { "dpm++", "", 3 },
        { "dpm++-single", "", 3 },
        { "unipc", "", 3 },
        { "unipc", ",\"predict_x0\":false", 3 },
        { "euler", "", 3 },
        { "heun", "", 3 },
        { "ddim", ",\"clip_sample\":false", 3 },
        { "ddpm", ",\"clip_sample\":false", 3 },
        { "lcm", "", 3 },
        { "tcd", "", 3 },
        { "euler-ancestral", "", 2 },
        { "dpm++", ",\"use_flow_sigmas\":true,\"flow_shift\":3", 0 },
        { "unipc", ",\"use_flow_sigmas\":true,\"flow_shift\":3", 0 },
        { "flow-euler", ",\"shift\":3", 0 },
        { "flow-lcm", "", 0 },
        { "flow-heun", "", 0 },
        { "flow-points", ",\"shift\":3", 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int k = 0; k < cases[i].types || k == 0; k++) {
            const char *type = cases[i].types ? types[k] : "flow_prediction";
            char        config[200];
            snprintf(config, sizeof config, "{\"prediction_type\":\"%s\"%s}", type, cases[i].more);
            check_clean(*state, cases[i].name, config, type);
        }
}

/* Clipped, where the sampler's own steps are. */
static void clipped(void **state)
{
    static latents l;
    xd_sampling    s;
    xd_err         e = { 0 };
    assert_int_equal(open_text(&s, "ddim", "{\"prediction_type\":\"sample\"}", 8, &e), XD_OK);
    memcpy(l.pred, start, sizeof l.pred);
    predict_clean(*state, &s, 3, &l);
    for (int n = 0; n < NUMBERS; n++)
        assert_true(l.clean[n] == fminf(fmaxf(start[n], -1), 1));
    xd_sampling_close(&s);
}

/* Patches and shares step their own rows: same bits as all rows at once. */
static void ranges(void **state)
{
    static const struct {
        const char *name, *config;
    } cases[] = {
        { "dpm++", "{\"solver_order\":3}" },
        { "ddim", "{}" },
        { "euler", "{}" },
        { "flow-euler", "{}" },
        { "cogvideox-ddim", "{}" },
        { "cogvideox-dpm", "{}" },
        { "unipc", "{\"solver_order\":3}" },
        { "heun", "{}" },
        { "flow-heun", "{}" },
        { "flow-lcm", "{}" },
        { "flow-points", "{}" },
        { "lcm", "{}" },
        { "tcd", "{}" },
        { "euler-ancestral", "{}" },
        { "dpm++", "{\"solver_order\":3,\"algorithm_type\":\"sde-dpmsolver++\"}" },
        { "dpm++-single", "{\"solver_order\":3}" },
    };
    static latents whole, part;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int pieces = 2; pieces <= ROWS; pieces++) {
            xd_sampling s;
            xd_err      e = { 0 };
            assert_int_equal(open_text(&s, cases[i].name, cases[i].config, 17, &e), XD_OK);
            run(*state, &s, &whole, 1);
            run(*state, &s, &part, pieces);
            assert_memory_equal(whole.lat, part.lat, sizeof whole.lat);
            assert_true(whole.lat[0] != start[0] && isfinite(whole.lat[0]));
            xd_sampling_close(&s);
        }
}

/* As many steps as there are timesteps repeat some of them; the latents must stay finite. */
static void many_steps(void **state)
{
    static const char *const spacings[] = { "linspace", "leading", "trailing" };
    static const char *const names[] = { "dpm++",         "ddim",  "euler", "cogvideox-ddim",
                                         "cogvideox-dpm", "unipc", "heun",  "euler-ancestral",
                                         "dpm++-single" };
    static latents           l;
    for (int order = 1; order <= 3; order++)
        for (int i = 0; i < 27; i++) {
            char        config[200];
            xd_sampling s;
            xd_err      e = { 0 };
            snprintf(config, sizeof config,
                     "{\"solver_order\":%d,\"timestep_spacing\":\"%s\",\"solver_type\":\"%s\"}",
                     order, spacings[i / 9], i % 2 ? "heun" : "midpoint");
            assert_int_equal(open_text(&s, names[i % 9], config, 1000, &e), XD_OK);
            run(*state, &s, &l, 1);
            for (int k = 0; k < NUMBERS; k++)
                if (!isfinite(l.lat[k]))
                    fail_msg("%s %s: not a number", names[i % 9], config);
            xd_sampling_close(&s);
        }
}

static void names(void **state)
{
    static const struct {
        const char *name, *is;
    } cases[] = {
        { "dpm++", "dpm++" },
        { "dpm-solver++", "dpm++" },
        { "DPMSolverMultistepScheduler", "dpm++" },
        { "pndm", "pndm" },
        { "PNDMScheduler", "pndm" },
        { "ddim", "ddim" },
        { "DDIMScheduler", "ddim" },
        { "euler", "euler" },
        { "EulerDiscreteScheduler", "euler" },
        { "cogvideox-ddim", "cogvideox-ddim" },
        { "CogVideoXDDIMScheduler", "cogvideox-ddim" },
        { "cogvideox-dpm", "cogvideox-dpm" },
        { "CogVideoXDPMScheduler", "cogvideox-dpm" },
        { "ddpm", "ddpm" },
        { "DDPMScheduler", "ddpm" },
        { "unipc", "unipc" },
        { "UniPCMultistepScheduler", "unipc" },
        { "HeunDiscreteScheduler", "heun" },
        { "FlowMatchHeunDiscreteScheduler", "flow-heun" },
        { "DPMSolverSinglestepScheduler", "dpm++-single" },
        { "LCMScheduler", "lcm" },
        { "FlowMatchLCMScheduler", "flow-lcm" },
        { "TCDScheduler", "tcd" },
        { "MiniMaxH3Scheduler", "flow-points" },
        { "EulerAncestralDiscreteScheduler", "euler-ancestral" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const xd_sampler *d = xd_sampler_find(cases[i].name);
        assert_non_null(d);
        assert_string_equal(d->name, cases[i].is);
    }
    assert_null(xd_sampler_find("KDPM2DiscreteScheduler"));
    assert_null(xd_sampler_find(""));
    assert_null(xd_sampler_find(NULL));
}

/* What is not built is refused by one sentence with the key and the value. */
typedef struct refusal {
    const char *name, *config, *says, *too;
    int         steps;
} refusal;

static void check_refusals(const refusal *c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        xd_sampling s;
        xd_err      e = { 0 };
        if (open_text(&s, c[i].name, c[i].config, c[i].steps, &e) == XD_OK)
            fail_msg("%s opens with %s", c[i].name, c[i].config);
        if (!strstr(e.msg, c[i].says) || !strstr(e.msg, c[i].too))
            fail_msg("%s: '%s' does not say '%s' and '%s'", c[i].config, e.msg, c[i].says,
                     c[i].too);
        xd_sampling_close(&s);
    }
}

static void refused(void **state)
{
    static const refusal cases[] = {
        { "dpm++", "{\"algorithm_type\":\"sde-dpmsolver\"}", "algorithm_type", "sde-", 20 },
        { "dpm++", "{\"thresholding\":true}", "thresholding", "true", 20 },
        { "dpm++", "{\"solver_order\":4}", "solver_order", "4", 20 },
        { "dpm++", "{\"solver_order\":0}", "solver_order", "0", 20 },
        { "dpm++", "{\"solver_type\":\"exact\"}", "solver_type", "exact", 20 },
        { "dpm++", "{\"beta_schedule\":\"sigmoid\"}", "beta_schedule", "sigmoid", 20 },
        { "dpm++", "{\"prediction_type\":\"x\"}", "prediction_type", "x", 20 },
        { "dpm++", "{\"timestep_spacing\":\"odd\"}", "timestep_spacing", "odd", 20 },
        { "dpm++", "{\"use_beta_sigmas\":true,\"use_karras_sigmas\":true}", "use_beta_sigmas",
          "only one", 20 },
        { "dpm++", "{\"use_flow_sigmas\":true,\"use_karras_sigmas\":true}", "use_flow_sigmas",
          "cannot be combined", 20 },
        { "dpm++", "{\"use_karras_sigmas\":true,\"use_exponential_sigmas\":true}", "only one",
          "use_karras_sigmas", 20 },
        { "dpm++", "{\"variance_type\":\"learned\"}", "variance_type", "learned", 20 },
        { "dpm++-single", "{\"variance_type\":\"learned_range\"}", "variance_type", "learned_range",
          20 },
        { "ddpm", "{\"variance_type\":\"learned_range\"}", "variance_type", "learned_range", 20 },
        { "ddpm", "{\"variance_type\":\"fixed_large_log\"}", "variance_type", "fixed_large_log",
          20 },
        { "ddpm", "{\"steps_offset\":1000}", "steps_offset", "1000", 20 },
        { "dpm++", "{\"trained_betas\":[0.1,0.2]}", "trained_betas", "", 20 },
        { "dpm++", "{\"num_train_timesteps\":0}", "num_train_timesteps", "0", 1 },
        { "dpm++", "{\"num_train_timesteps\":2147483647}", "num_train_timesteps", "2147483647", 1 },
        { "dpm++", "{\"lambda_min_clipped\":1e9}", "lambda_min_clipped", "1e+09", 20 },
        { "dpm++", "{\"beta_end\":7}", "beta_end", "7", 20 },
        { "dpm++", "{\"steps_offset\":-5}", "steps_offset", "-5", 20 },
        { "dpm++", "{}", "num_inference_steps", "0", 0 },
        { "dpm++", "{}", "num_inference_steps", "1001", 1001 },
        { "ddim", "{\"thresholding\":true}", "thresholding", "true", 20 },
        { "pndm", "{}", "skip_prk_steps", "false", 20 },
        { "pndm", "{\"skip_prk_steps\":true,\"prediction_type\":\"sample\"}", "prediction_type",
          "sample", 20 },
        { "ddim", "{\"timestep_spacing\":\"odd\"}", "timestep_spacing", "odd", 20 },
        { "ddim", "{\"steps_offset\":60}", "steps_offset", "60", 20 },
        { "ddim", "{\"steps_offset\":-5}", "steps_offset", "-5", 20 },
        { "ddim", "{\"trained_betas\":[0.1,0.2]}", "trained_betas", "", 20 },
        { "ddim", "{\"rescale_betas_zero_snr\":true,\"timestep_spacing\":\"trailing\"}", "epsilon",
          "rescale_betas_zero_snr", 20 },
        { "scm", "{\"prediction_type\":\"epsilon\"}", "prediction_type", "epsilon", 2 },
        { "scm", "{\"sigma_data\":0}", "sigma_data", "0", 2 },
        { "scm", "{\"intermediate_timesteps\":1.3}", "intermediate_timesteps", "2 steps", 4 },
        { "scm", "{\"intermediate_timesteps\":1.6}", "intermediate_timesteps", "1.6", 2 },
        { "scm", "{\"max_timesteps\":0}", "max_timesteps", "0", 2 },
        { "flow-euler", "{\"shift_terminal\":0.1}", "shift_terminal", "num_inference_steps", 1 },
        { "euler", "{\"interpolation_type\":\"cubic\"}", "interpolation_type", "cubic", 20 },
        { "euler", "{\"final_sigmas_type\":\"x\"}", "final_sigmas_type", "x", 20 },
        { "euler", "{\"use_beta_sigmas\":true,\"use_exponential_sigmas\":true}", "only one",
          "use_beta_sigmas", 20 },
        { "euler", "{\"timestep_type\":\"x\"}", "timestep_type", "x", 20 },
        { "euler", "{\"use_karras_sigmas\":true,\"sigma_min\":-1}", "sigma_min", "-1", 20 },
        { "cogvideox-ddim", "{\"prediction_type\":\"flow\"}", "prediction_type", "flow", 20 },
        { "cogvideox-ddim", "{\"beta_schedule\":\"sigmoid\"}", "beta_schedule", "sigmoid", 20 },
        { "cogvideox-ddim", "{\"snr_shift_scale\":0}", "snr_shift_scale", "0", 20 },
        { "cogvideox-ddim", "{\"beta_start\":0}", "alphas_cumprod", "of 1", 20 },
        { "cogvideox-ddim", "{\"beta_end\":7}", "beta_end", "7", 20 },
        { "cogvideox-dpm", "{\"steps_offset\":60}", "steps_offset", "60", 20 },
        { "cogvideox-dpm", "{\"timestep_spacing\":\"odd\"}", "timestep_spacing", "odd", 20 },
        { "cogvideox-dpm", "{\"trained_betas\":[0.1,0.2]}", "trained_betas", "", 20 },
        { "cogvideox-dpm", "{\"rescale_betas_zero_snr\":true,\"timestep_spacing\":\"trailing\"}",
          "epsilon", "rescale_betas_zero_snr", 20 },
    };
    (void)state;
    check_refusals(cases, sizeof cases / sizeof *cases);
}

static void refused_solvers(void **state)
{
    static const refusal cases[] = {
        { "unipc", "{\"solver_order\":4}", "solver_order", "4", 20 },
        { "unipc", "{\"solver_type\":\"x\"}", "solver_type", "x", 20 },
        { "unipc", "{\"solver_p\":{}}", "solver_p", "not supported", 20 },
        { "unipc", "{\"thresholding\":true}", "thresholding", "true", 20 },
        { "unipc", "{\"predict_x0\":false,\"prediction_type\":\"flow_prediction\"}", "predict_x0",
          "flow_prediction", 20 },
        { "unipc", "{\"prediction_type\":\"x\"}", "prediction_type", "x", 20 },
        { "unipc", "{\"final_sigmas_type\":\"x\"}", "final_sigmas_type", "x", 20 },
        { "unipc", "{\"flow_shift\":0}", "flow_shift", "0", 20 },
        { "unipc", "{\"shift_terminal\":0.1}", "shift_terminal", "use_flow_sigmas", 20 },
        { "unipc", "{\"shift_terminal\":0.1,\"use_flow_sigmas\":true}", "shift_terminal",
          "at least 2", 1 },
        { "unipc", "{\"use_flow_sigmas\":true,\"use_exponential_sigmas\":true}", "use_flow_sigmas",
          "use_exponential_sigmas", 20 },
        { "unipc", "{\"use_karras_sigmas\":true,\"sigma_max\":0}", "sigma_max", "0", 20 },
        { "unipc", "{\"use_karras_sigmas\":true,\"use_exponential_sigmas\":true}", "only one",
          "use_karras_sigmas", 20 },
        { "flow-euler", "{\"use_karras_sigmas\":true,\"use_beta_sigmas\":true}", "only one",
          "use_karras_sigmas", 20 },
        { "flow-lcm", "{\"scale_factors\":[0.5]}", "scale_factors", "not supported", 20 },
        { "flow-heun", "{\"shift\":0}", "shift", "0", 20 },
        { "flow-points", "{\"shift\":0}", "shift", "0", 20 },
        { "flow-points", "{}", "num_inference_steps is 1", "at least 2", 1 },
        { "dpm++", "{\"use_karras_sigmas\":true,\"sigma_min\":-1}", "sigma_min", "-1", 20 },
        { "heun", "{\"use_karras_sigmas\":true,\"use_beta_sigmas\":true}", "only one",
          "use_karras_sigmas", 20 },
        { "heun", "{\"prediction_type\":\"x\"}", "prediction_type", "x", 20 },
        { "euler-ancestral", "{\"prediction_type\":\"sample\"}", "prediction_type", "sample", 20 },
        { "lcm", "{}", "original_inference_steps", "50", 51 },
        { "lcm", "{\"original_inference_steps\":2000}", "original_inference_steps", "2000", 4 },
        { "lcm", "{\"thresholding\":true}", "thresholding", "true", 4 },
        { "tcd", "{\"eta\":1.5}", "eta", "1.5", 4 },
        { "ddim", "{\"eta\":2}", "eta", "2", 4 },
        { "tcd", "{\"original_inference_steps\":0}", "original_inference_steps", "0", 4 },
    };
    (void)state;
    check_refusals(cases, sizeof cases / sizeof *cases);
}

/* Quantiles of the beta distribution as scipy computes them. */
static void beta_quantiles(void **state)
{
    static const double is[][2] = {
        { 1e-6, 1.855882462405304e-10 }, { 0.01, 0.0008612388215429059 },
        { 0.1, 0.03958440558878085 },    { 0.3, 0.2340170038752357 },
        { 0.5, 0.5000000000000001 },     { 0.7, 0.7659829961247643 },
        { 0.9, 0.9604155944112192 },     { 0.999, 0.9999814412614826 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof is / sizeof *is; i++)
        if (!(fabs(xd_beta_quantile(is[i][0]) / is[i][1] - 1) < 1e-12))
            fail_msg("of %g: %.17g", is[i][0], xd_beta_quantile(is[i][0]));
    assert_true(xd_beta_quantile(0) == 0 && xd_beta_quantile(1) == 1);
}

/* Lists that are no schedule. */
static void refused_lists(void **state)
{
    static const double falls[] = { 1, 0.5, 0.2 }, rises[] = { 0.2, 0.5, 1 }, high[] = { 3, 2, 1 };
    static const double times[] = { 900, 500, 100 }, split[] = { 900, 500.5, 100 };
    static const double same[] = { 2, 2 };
    static const struct {
        const char   *name, *config;
        const double *sigmas, *times;
        const char   *says;
    } cases[] = {
        { "flow-euler", "{}", rises, NULL, "decrease" },
        { "flow-euler", "{}", high, NULL, "1 of the sigmas is 3" },
        { "flow-euler", "{}", falls, times, "sigmas and timesteps" },
        { "flow-heun", "{}", falls, NULL, "list of sigmas" },
        { "ddim", "{}", NULL, times, "list of timesteps" },
        { "unipc", "{}", falls, NULL, "use_flow_sigmas" },
        { "dpm++", "{}", NULL, split, "2 of the timesteps is 500.5" },
        { "euler", "{\"use_karras_sigmas\":true}", NULL, times, "timesteps" },
        { "euler", "{}", same, NULL, "the last of the sigmas" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        xd_sampling       s;
        xd_json          *j = NULL;
        xd_err            e = { 0 };
        xd_sched_cfg      cfg;
        const xd_sampler *d = xd_sampler_find(cases[i].name);
        xd_steps          a = { .steps = cases[i].sigmas == same ? 1 : 3,
                                .sigmas = cases[i].sigmas,
                                .times = cases[i].times };
        assert_int_equal(xd_json_parse(&j, cases[i].config, strlen(cases[i].config), "x", &e),
                         XD_OK);
        assert_int_equal(xd_sched_read(d, &cfg, j, "x", &e), XD_OK);
        if (xd_sampling_open(&s, d, &cfg, &a, &e) == XD_OK || !strstr(e.msg, cases[i].says))
            fail_msg("%s: '%s' does not say '%s'", cases[i].name, e.msg, cases[i].says);
        xd_sampling_close(&s);
        xd_json_free(&j);
    }
}

/* Levels that rise from 0 to 1, of a linear-quadratic schedule, as diffusers' MochiPipeline makes
 * them; a single step, which diffusers has not, goes all the way. */
static void rising_levels(void **state)
{
    static const double want[] = { 0, 12.499988555908203, 24.999977111816406, 141.66665649414062,
                                   466.6666259765625 };
    static latents      l;
    xd_err              e = { 0 };
    xd_json            *j = NULL;
    xd_sched_cfg        cfg;
    const xd_sampler   *d = xd_sampler_find("flow-euler");
    assert_int_equal(xd_json_parse(&j, "{\"invert_sigmas\":true}", 22, "x", &e), XD_OK);
    assert_int_equal(xd_sched_read(d, &cfg, j, "x", &e), XD_OK);
    for (int steps = 1; steps <= 5; steps += 4) {
        xd_sampling s;
        xd_steps    a = { .steps = steps, .own_sigmas = 1, .threshold_noise = 0.025 };
        assert_int_equal(xd_sampling_open(&s, d, &cfg, &a, &e), XD_OK);
        assert_int_equal(s.steps, steps);
        for (int i = 0; i < steps; i++)
            assert_true(fabs(s.time[i] - (steps > 1 ? want[i] : 0)) < 1e-4);
        /* latents on the way from `start` to `image`, whose direction is predicted */
        for (int step = 0; step < steps; step++) {
            float at = (float)s.time[step] / 1000;
            for (int n = 0; n < NUMBERS; n++)
                l.lat[n] = (1 - at) * start[n] + at * image[n], l.pred[n] = image[n] - start[n];
            predict_clean(*state, &s, step, &l);
            for (int n = 0; n < NUMBERS; n++)
                assert_float_equal(l.clean[n], image[n], 2e-6);
        }
        xd_sampling_close(&s);
    }
    xd_json_free(&j);
}

/* Noise that is left out is an error, not an image without it. */
static void no_noise(void **state)
{
    static latents           l;
    rig                     *r = *state;
    xd_exec                  x;
    xd_sampling              s;
    xd_err                   e = { 0 };
    int64_t                  d[] = { ROWS, COLS };
    xd_tensor                hist = xd_view(l.hist[0], XD_F32, 2, d);
    static const char *const noisy[] = { "ddpm",     "cogvideox-dpm",   "lcm",  "tcd",
                                         "flow-lcm", "euler-ancestral", "ddim", "dpm++" };
    xd_tensor                hists[] = { hist, hist, hist };
    for (int i = 0; i < 8; i++) {
        xd_exec_init(&x, r->dev, &r->tmp, XD_F32);
        assert_int_equal(open_text(&s, noisy[i],
                                   i < 7 ? "{\"eta\":0.5}"
                                         : "{\"algorithm_type\":"
                                           "\"sde-dpmsolver++\"}",
                                   5, &e),
                         XD_OK);
        s.def->step(&x, &s, 0, xd_view(l.lat, XD_F32, 2, d), xd_view(l.pred, XD_F32, 2, d), hists,
                    (xd_tensor){ 0 });
        assert_false(xd_ok(&x));
        assert_non_null(strstr(x.err.msg, "no noise"));
        xd_sampling_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trajectories),    cmocka_unit_test(shares_of_steps),
        cmocka_unit_test(clean_latents),   cmocka_unit_test(clipped),
        cmocka_unit_test(ranges),          cmocka_unit_test(many_steps),
        cmocka_unit_test(names),           cmocka_unit_test(refused),
        cmocka_unit_test(refused_solvers), cmocka_unit_test(no_noise),
        cmocka_unit_test(beta_quantiles),  cmocka_unit_test(refused_lists),
        cmocka_unit_test(rising_levels),
    };
    return cmocka_run_group_tests(tests, open_rig, close_rig);
}
