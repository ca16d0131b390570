/* test_record.c - the public records: programs compiled for an earlier or a later version, and what
 * is refused
 *
 * The structures below are those of an earlier and a later header. Uses the model of the demo. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "xdit/tools.h"

static const char model[] = "models/demo-pixart";

/* ---- a program of an earlier version ------------------------------------------------------ */

typedef struct old_open_args {
    size_t      size;
    const char *model, *dtype;
} old_open_args;

typedef struct old_request {
    size_t             size;
    const char *const *prompts;
    int                nprompts;
    const char        *negative_prompt;
    int64_t            width, height;
    int                num_frames;
    double             fps;
    int                num_inference_steps;
    double             guidance_scale;
} old_request;

_Static_assert(offsetof(old_request, guidance_scale) == offsetof(xd_request, guidance_scale),
               "the fields of an earlier version have their places");

/* Records of an earlier version, with what an overrun would destroy behind them. */
typedef struct old_program {
    old_open_args a;
    uint64_t      behind_args;
    old_request   r;
    uint64_t      behind_request;
} old_program;

static const uint64_t mark = 0x5ca1ab1e5ca1ab1e;

static xd_result *generate_old(void)
{
    static const char *const prompt = "a red circle";
    old_program              p = { .behind_args = mark, .behind_request = mark };
    xd_err                   e = { 0 };
    xd_engine               *g = NULL;
    xd_result               *res = NULL;
    xd_open_args_init_size((xd_open_args *)(void *)&p.a, sizeof p.a);
    xd_request_init_size((xd_request *)(void *)&p.r, sizeof p.r);
    assert_int_equal(p.a.size, sizeof p.a);
    assert_true(p.r.guidance_scale < 0);
    p.a.model = model;
    p.r.prompts = &prompt, p.r.nprompts = 1;
    p.r.num_inference_steps = 2;
    assert_int_equal(xd_open(&g, (const xd_open_args *)(void *)&p.a, &e), XD_OK);
    assert_int_equal(xd_generate(g, (const xd_request *)(void *)&p.r, &res, &e), XD_OK);
    assert_true(p.behind_args == mark && p.behind_request == mark);
    xd_close(&g);
    return res;
}

static xd_result *generate_new(void)
{
    static const char *const prompt = "a red circle";
    xd_err                   e = { 0 };
    xd_engine               *g = NULL;
    xd_result               *res = NULL;
    xd_open_args             a;
    xd_request               r;
    xd_open_args_init(&a);
    xd_request_init(&r);
    a.model = model;
    r.prompts = &prompt, r.nprompts = 1;
    r.num_inference_steps = 2;
    assert_int_equal(xd_open(&g, &a, &e), XD_OK);
    assert_int_equal(xd_generate(g, &r, &res, &e), XD_OK);
    xd_close(&g);
    return res;
}

/* Without the fields that it does not have a program gets their defaults. A result is read after
 * its engine is closed. */
static void an_earlier_program(void **state)
{
    xd_result *was = generate_old(), *is = generate_new();
    (void)state;
    const xd_image *a = xd_result_image(was, 0), *b = xd_result_image(is, 0);
    assert_int_equal(xd_result_count(was), 1);
    assert_int_equal(a->width, b->width);
    assert_memory_equal(a->data, b->data, (size_t)(a->width * a->height * 3));
    assert_string_equal(xd_result_parameters(was, 0), xd_result_parameters(is, 0));
    xd_result_free(&was);
    xd_result_free(&is);
}

/* Bytes behind the size are not read, whatever they are. */
static void a_record_ends_at_its_size(void **state)
{
    struct {
        old_open_args a;
        xd_open_args  rest;
    } p;
    xd_err     e = { 0 };
    xd_engine *g = NULL;
    (void)state;
    memset(&p, 0xa5, sizeof p);
    xd_open_args_init_size((xd_open_args *)(void *)&p.a, sizeof p.a);
    p.a.model = model;
    assert_int_equal(xd_open(&g, (const xd_open_args *)(void *)&p.a, &e), XD_OK);
    xd_close(&g);
}

/* ---- a program of a later version ---------------------------------------------------------- */

typedef struct later_open_args {
    xd_open_args now;
    int64_t      more[3];
} later_open_args;
typedef struct later_request {
    xd_request  now;
    const char *more;
} later_request;
typedef struct later_convert {
    xd_convert_args now;
    double          more;
} later_convert;
typedef struct later_inspect {
    xd_inspect_args now;
    double          more;
} later_inspect;

static void a_later_program(void **state)
{
    later_open_args a;
    later_inspect   i;
    later_convert   c;
    xd_err          e = { 0 };
    xd_engine      *g = NULL;
    (void)state;
    xd_open_args_init_size(&a.now, sizeof a);
    a.now.model = model;
    assert_int_equal(xd_open(&g, &a.now, &e), XD_OK); /* nothing new is set */
    xd_close(&g);
    assert_null(g);
    a.more[2] = 1;
    assert_int_equal(xd_open(&g, &a.now, &e), XD_EINVAL);
    assert_null(g);
    assert_non_null(strstr(e.msg, "xd_open_args has a field at byte"));
    assert_non_null(strstr(e.msg, "compiled for a newer version"));
    assert_non_null(strstr(e.msg, xd_version()));
    e = (xd_err){ 0 };
    xd_inspect_args_init_size(&i.now, sizeof i);
    i.now.model = model, i.more = 0.5;
    assert_int_equal(xd_inspect(&i.now, &e), XD_EINVAL);
    assert_non_null(strstr(e.msg, "xd_inspect_args has a field"));
    e = (xd_err){ 0 };
    xd_convert_args_init_size(&c.now, sizeof c);
    c.now.model = model, c.now.output = model, c.more = 0.5;
    assert_int_equal(xd_convert_model(&c.now, &e), XD_EINVAL);
    assert_non_null(strstr(e.msg, "xd_convert_args has a field"));
}

static void a_later_request(void **state)
{
    static const char *const prompt = "a red circle";
    later_request            r;
    xd_err                   e = { 0 };
    xd_engine               *g = NULL;
    xd_result               *res = NULL;
    xd_open_args             a;
    (void)state;
    xd_open_args_init(&a);
    xd_request_init_size(&r.now, sizeof r);
    assert_null(r.more);
    a.model = model;
    r.now.prompts = &prompt, r.now.nprompts = 1, r.now.num_inference_steps = 1;
    r.more = "x";
    a.plan_for = &r.now;
    assert_int_equal(xd_open(&g, &a, &e), XD_EINVAL); /* also where a record points to one */
    a.plan_for = NULL, e = (xd_err){ 0 };
    assert_int_equal(xd_open(&g, &a, &e), XD_OK);
    assert_int_equal(xd_generate(g, &r.now, &res, &e), XD_EINVAL);
    assert_null(res);
    assert_non_null(strstr(e.msg, "xd_request has a field at byte"));
    r.more = NULL, e = (xd_err){ 0 };
    assert_int_equal(xd_generate(g, &r.now, &res, &e), XD_OK);
    xd_result_free(&res);
    xd_close(&g);
}

/* ---- what is no record --------------------------------------------------------------------- */

static void refused(xd_status s, const xd_err *e, const char *text)
{
    assert_int_equal(s, XD_EINVAL);
    assert_non_null(strstr(e->msg, text));
}

static void records_need_their_size(void **state)
{
    xd_open_args    a = { .model = model };
    xd_request      r = { 0 };
    xd_inspect_args i = { 0 };
    xd_compare_args d = { 0 };
    xd_comparison   c = { 0 };
    xd_bench_args   b = { 0 };
    xd_advise_args  p = { 0 };
    xd_probe_args   q = { 0 };
    xd_pinged       t = { 0 };
    xd_engine      *g = NULL;
    xd_err          e = { 0 };
    (void)state;
    refused(xd_open(&g, &a, &e), &e, "call xd_open_args_init before");
    assert_null(g);
    memset(&a, 0xa5, sizeof a), e = (xd_err){ 0 }; /* what a stack may hold */
    refused(xd_open(&g, &a, &e), &e, "xd_open_args is not initialised");
    e = (xd_err){ 0 }, refused(xd_inspect(&i, &e), &e, "call xd_inspect_args_init before");
    e = (xd_err){ 0 },
    refused(xd_compare_files(&d, NULL, &e), &e, "call xd_compare_args_init before");
    e = (xd_err){ 0 },
    refused(xd_compare_images(&c, NULL, NULL, &e), &e, "call xd_comparison_init before");
    e = (xd_err){ 0 }, refused(xd_bench(&b, &e), &e, "call xd_bench_args_init before");
    e = (xd_err){ 0 }, refused(xd_advise(&p, &e), &e, "call xd_advise_args_init before");
    e = (xd_err){ 0 }, refused(xd_probe(&q, &e), &e, "call xd_probe_args_init before");
    e = (xd_err){ 0 }, refused(xd_ping(&t, &e), &e, "call xd_pinged_init before");
    xd_advise_args_init(&p);
    p.request = &r, e = (xd_err){ 0 };
    refused(xd_advise(&p, &e), &e, "call xd_request_init before");
}

/* xd_parallel has a fixed size and reserved fields. */
static void reserved_fields(void **state)
{
    xd_parallel p = { .ulysses_degree = 2 };
    xd_err      e = { 0 };
    (void)state;
    assert_int_equal(xd_parallel_check(&p, 2, &e), XD_OK);
    p.reserved[3] = 1;
    refused(xd_parallel_check(&p, 2, &e), &e, "xd_parallel has a field at byte");
    p.reserved[3] = 0, p.reserved_text[2] = "x", e = (xd_err){ 0 };
    refused(xd_parallel_check(&p, 2, &e), &e, "xd_parallel has a field at byte");
}

static void versions(void **state)
{
    char text[64];
    (void)state;
    snprintf(text, sizeof text, "%d.%d.%d", XDIT_VERSION_MAJOR, XDIT_VERSION_MINOR,
             XDIT_VERSION_PATCH);
    assert_string_equal(text, xd_version());
    assert_int_equal(xd_version_number(), XDIT_VERSION_NUMBER);
    assert_true(XDIT_VERSION_OF(1, 0, 0) > XDIT_VERSION_OF(0, 99, 99));
}

/* ---- components ----------------------------------------------------------------------------- */

static void files_of_components(void **state)
{
    xd_component_file f[2] = {
        { "vae", "models/demo-pixart/vae/diffusion_pytorch_model.safetensors" }, { 0 }
    };
    xd_open_args a = { .size = sizeof a, .model = model, .files = f, .nfiles = 1 };
    xd_engine   *g = NULL;
    xd_err       e = { 0 };
    (void)state;
    assert_int_equal(xd_open(&g, &a, &e), XD_OK);
    xd_close(&g);
    a.nfiles = 2;
    refused(xd_open(&g, &a, &e), &e, "has no component or no path");
    f[1] = (xd_component_file){ "unet", "x.safetensors" }, e = (xd_err){ 0 };
    refused(xd_open(&g, &a, &e), &e, "no such text encoder (it has t5xxl)");
    a.nfiles = 0, a.without = "t5xxl", e = (xd_err){ 0 };
    refused(xd_open(&g, &a, &e), &e, "cannot do without its text encoder t5xxl");
    a.without = "unet", e = (xd_err){ 0 };
    refused(xd_open(&g, &a, &e), &e, "has no text encoder unet to do without");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_earlier_program),
        cmocka_unit_test(a_record_ends_at_its_size),
        cmocka_unit_test(a_later_program),
        cmocka_unit_test(a_later_request),
        cmocka_unit_test(records_need_their_size),
        cmocka_unit_test(reserved_fields),
        cmocka_unit_test(versions),
        cmocka_unit_test(files_of_components),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
