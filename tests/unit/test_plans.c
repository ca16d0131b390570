/* test_plans.c - predictions of plans as data, against the lines and the JSON made of them
 *
 * Uses the model of the demo on a machine known by its data sheet. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/json.h"
#include "xdit/tools.h"

static void collect(void *cookie, const char *line)
{
    xd_buf_add(cookie, "%s\n", line);
}

static xd_advise_args arguments(xd_text_buf *lines)
{
    xd_advise_args a;
    xd_advise_args_init(&a);
    a.model = "models/demo-pixart";
    a.cluster = "4xA10";
    a.ranks = 4;
    a.line = collect;
    a.cookie = lines;
    return a;
}

static xd_plans *predict(const xd_advise_args *a)
{
    xd_err    e = { 0 };
    xd_plans *p = NULL;
    assert_int_equal(xd_plans_predict(&p, a, &e), XD_OK);
    assert_non_null(p);
    return p;
}

static void advise(const xd_advise_args *a)
{
    xd_err e = { 0 };
    assert_int_equal(xd_advise(a, &e), XD_OK);
}

/* ---- lines ---------------------------------------------------------------------------------- */

static void number_is(const char *text, const char *format, double v)
{
    char want[32];
    snprintf(want, sizeof want, format, v);
    assert_string_equal(text, want);
}

/* The row of a plan in the table: "  1  u2cfg2   0.0012 ...". */
static void row_is(const char *lines, int i, const xd_plan_info *t)
{
    char        begin[40], name[24], v[4][16];
    const char *row;
    int         n;
    snprintf(begin, sizeof begin, "\n%3d  %s", i + 1, t->name);
    assert_non_null(row = strstr(lines, begin));
    assert_int_equal(sscanf(row, "%d %23s %15s", &n, name, v[0]), 3);
    const char *rest = row + strlen(begin) + strspn(row + strlen(begin), " ");
    assert_int_equal(*rest == '~', !t->same_image);
    assert_int_equal(sscanf(rest + (*rest == '~'), "%15s %15s %15s %15s", v[0], v[1], v[2], v[3]),
                     4);
    number_is(v[0], "%.4g", t->step_s);
    number_is(v[1], "%.3g", t->text_s);
    number_is(v[2], "%.3g", t->vae_s);
    number_is(v[3], "%.4g", t->request_s);
}

static void lines_are_made_of_data(void **state)
{
    xd_text_buf    lines = { 0 };
    xd_advise_args a = arguments(&lines);
    (void)state;
    a.all = 1;
    a.parallel.attn_layer_num_for_pp = "2,2,2,2"; /* refuses plans of other stages */
    xd_plans            *p = predict(&a);
    const xd_plans_info *info = xd_plans_about(p);
    advise(&a);
    assert_true(info->possible > 1 && info->count > info->possible);
    for (int i = 0; i < info->count; i++) {
        const xd_plan_info *t = xd_plans_get(p, i);
        assert_int_equal(t->refused != NULL, i >= info->possible);
        if (t->refused)
            assert_non_null(strstr(lines.p, t->refused));
        else
            row_is(lines.p, i, t);
    }
    assert_non_null(strstr(lines.p, xd_plans_get(p, 0)->flags));
    assert_null(xd_plans_get(p, info->count));
    assert_null(xd_plans_get(p, -1));
    xd_buf_free(&lines);
    xd_plans_free(&p);
    assert_null(p);
    xd_plans_free(&p);
}

static void details_are_made_of_data(void **state)
{
    xd_text_buf    lines = { 0 };
    xd_advise_args a = arguments(&lines);
    xd_plans      *p = predict(&a);
    char           line[256];
    (void)state;
    a.explain = 2;
    advise(&a);
    const xd_plan_info *t = xd_plans_get(p, 1);
    snprintf(line, sizeof line, "2: %s by data sheet, not fitted\nflags: %s\n", t->text, t->flags);
    assert_non_null(strstr(lines.p, line));
    snprintf(line, sizeof line, "text %.3g s", t->text_s);
    assert_non_null(strstr(lines.p, line));
    for (int r = 0; r < t->ranks; r++) {
        const xd_plan_rank *k = xd_plans_rank(p, 1, r);
        snprintf(line, sizeof line, "\n%4d  %-9s %-12s %-9s", r, xd_size_text((double)k->text).s,
                 xd_size_text((double)k->transformer).s, xd_size_text((double)k->vae).s);
        assert_non_null(strstr(lines.p, line));
    }
    assert_null(xd_plans_rank(p, 1, t->ranks));
    assert_null(xd_plans_rank(p, 1, -1));
    xd_buf_free(&lines);
    xd_plans_free(&p);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void field_is(const xd_json *j, const char *name, double v)
{
    double got = 0;
    assert_true(xd_json_number(xd_json_get(j, name), &got));
    assert_true(got >= v - 1e-5 * v && got <= v + 1e-5 * v); /* six digits are written */
}

static void plan_is(const xd_json *j, const xd_plan_info *t)
{
    assert_string_equal(xd_json_text(xd_json_get(j, "plan")), t->name);
    assert_string_equal(xd_json_text(xd_json_get(j, "flags")), t->flags);
    field_is(j, "step_s", t->step_s), field_is(j, "exact_step_s", t->exact_step_s);
    field_is(j, "text_s", t->text_s), field_is(j, "decode_s", t->decode_s);
    field_is(j, "request_s", t->request_s), field_is(j, "peak", t->peak);
    field_is(j, "sent", t->sent), field_is(j, "steps", t->steps), field_is(j, "ranks", t->ranks);
}

static void json_is_made_of_data(void **state)
{
    xd_text_buf    text = { 0 };
    xd_advise_args a = arguments(&text);
    xd_plans      *p = predict(&a);
    xd_err         e = { 0 };
    xd_json       *j = NULL;
    (void)state;
    a.json = 1;
    advise(&a);
    assert_int_equal(xd_json_parse(&j, text.p, strlen(text.p), "plans", &e), XD_OK);
    const xd_plans_info *info = xd_plans_about(p);
    const xd_json       *list = xd_json_get(j, "plans");
    assert_string_equal(xd_json_text(xd_json_get(j, "cluster")), info->cluster);
    assert_string_equal(xd_json_text(xd_json_get(j, "model")), info->model);
    assert_string_equal(xd_json_text(xd_json_get(j, "dtype")), info->dtype);
    assert_int_equal(xd_json_size(list), info->possible);
    for (int i = 0; i < info->possible; i++) {
        const xd_json *ranks = xd_json_get(xd_json_at(list, i), "rank");
        plan_is(xd_json_at(list, i), xd_plans_get(p, i));
        for (int r = 0; r < xd_json_size(ranks); r++) {
            field_is(xd_json_at(ranks, r), "peak", (double)xd_plans_rank(p, i, r)->peak);
            field_is(xd_json_at(ranks, r), "busy_s", xd_plans_rank(p, i, r)->busy_s);
            field_is(xd_json_at(ranks, r), "sent_a_step", xd_plans_rank(p, i, r)->sent);
        }
    }
    xd_json_free(&j);
    xd_buf_free(&text);
    xd_plans_free(&p);
}

/* ---- the data by themselves --------------------------------------------------------------- */

/* The plan of a record is the one that its name and its flags stand for. */
static void records_agree(void **state)
{
    xd_advise_args       a = arguments(NULL);
    xd_plans            *p = predict(&a);
    const xd_plans_info *info = xd_plans_about(p);
    xd_err               e = { 0 };
    (void)state;
    assert_int_equal(info->ranks, 4);
    assert_int_equal(info->cluster_ranks, 4);
    assert_false(info->fitted);
    for (int i = 0; i < info->possible; i++) {
        const xd_plan_info *t = xd_plans_get(p, i);
        xd_parallel         named = { 0 };
        double              most = 0;
        assert_int_equal(xd_parallel_read(&named, t->name, &e), XD_OK);
        assert_int_equal(xd_parallel_ranks(&named), xd_parallel_ranks(&t->parallel));
        assert_int_equal(xd_parallel_check(&t->parallel, t->ranks, &e), XD_OK);
        assert_true(i == 0 || t->request_s >= xd_plans_get(p, i - 1)->request_s);
        assert_true(t->request_s >= t->text_s + t->decode_s);
        for (int r = 0; r < t->ranks; r++)
            most = most > (double)xd_plans_rank(p, i, r)->peak
                       ? most
                       : (double)xd_plans_rank(p, i, r)->peak;
        assert_true(most == t->peak); /* every rank has a device of its own */
    }
    xd_plans_free(&p);
}

/* Texts of the arguments may be freed. */
static void arguments_are_copied(void **state)
{
    xd_advise_args a = arguments(NULL);
    char          *cluster = strdup("4xA10"), *text = strdup("every"), *model = strdup(a.model);
    (void)state;
    a.cluster = cluster, a.model = model;
    a.parallel.pipefusion_parallel_degree = 4;
    a.parallel.pipefusion_text = text;
    xd_plans *p = predict(&a);
    memset(cluster, 'x', strlen(cluster)), memset(text, 'x', strlen(text));
    memset(model, 'x', strlen(model));
    free(cluster), free(text), free(model);
    assert_non_null(strstr(xd_plans_about(p)->cluster, "A10"));
    assert_string_equal(xd_plans_get(p, 0)->parallel.pipefusion_text, "every");
    assert_non_null(strstr(xd_plans_about(p)->model, "demo-pixart"));
    xd_plans_free(&p);
}

static void failures_leave_nothing(void **state)
{
    xd_advise_args a = arguments(NULL);
    xd_err         e = { 0 };
    xd_plans      *p = NULL;
    (void)state;
    a.ranks = 5;
    assert_int_equal(xd_plans_predict(&p, &a, &e), XD_EINVAL);
    assert_null(p);
    assert_non_null(strstr(e.msg, "5 ranks"));
    a.ranks = 4, a.model = "nowhere", e = (xd_err){ 0 };
    assert_true(xd_plans_predict(&p, &a, &e) != XD_OK);
    assert_null(p);
    a.size = 0, e = (xd_err){ 0 };
    assert_int_equal(xd_plans_predict(&p, &a, &e), XD_EINVAL);
    assert_null(p);
}

/* Seconds of the steps of one rank, where `skipping` of 20 steps leave out a layer in a third
 * pass. */
static double seconds_of(int skipping, int *exact)
{
    xd_advise_args a = arguments(NULL);
    xd_request     r;
    xd_request_init(&r);
    r.num_inference_steps = 20;
    r.guidance.skip_guidance_layers = skipping ? "0" : NULL;
    r.guidance.skip_layer_guidance_start = 0; /* from step 1 on */
    r.guidance.skip_layer_guidance_stop = (skipping + 0.5) / 20;
    a.model = "tests/golden/sd35";
    a.request = &r;
    a.ranks = 1, a.cluster = "1xA10";
    xd_plans           *p = predict(&a);
    const xd_plan_info *t = xd_plans_get(p, 0);
    double s = t->exact_steps * t->exact_step_s + (t->steps - t->exact_steps) * t->step_s;
    assert_int_equal(t->steps, 20);
    assert_true(s > 0 && fabs(s + t->text_s + t->decode_s - t->request_s) < 1e-9 * s);
    *exact = t->exact_steps;
    xd_plans_free(&p);
    return s;
}

/* Only the steps with a third pass take its time, of about half of two passes. */
static void passes_count_by_steps(void **state)
{
    int    exact;
    double none = seconds_of(0, &exact), two = seconds_of(2, &exact), six = seconds_of(6, &exact);
    double all = seconds_of(19, &exact), pass_s = (two - none) / 2;
    (void)state;
    assert_int_equal(exact, 20);
    assert_true(pass_s > 0.3 * none / 20 && pass_s < 0.6 * none / 20);
    assert_true(fabs(six - none - 6 * pass_s) < 1e-6 * none);
    assert_true(fabs(all - none - 19 * pass_s) < 1e-6 * none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_made_of_data), cmocka_unit_test(details_are_made_of_data),
        cmocka_unit_test(json_is_made_of_data),   cmocka_unit_test(records_agree),
        cmocka_unit_test(arguments_are_copied),   cmocka_unit_test(failures_leave_nothing),
        cmocka_unit_test(passes_count_by_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
