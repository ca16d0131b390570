/* test_hub.c - names of models without their folders */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/json.h"
#include "model/model.h"

static void short_names(void **state)
{
    static const char *const cases[][2] = {
        { "/srv/models/small", "\"small\"" },
        { "small/", "\"small\"" },
        { "small", "\"small\"" },
        { "/", "\"\"" },
        { "", "\"\"" },
        { "/data/loras/style.safetensors", "\"style.safetensors\"" },
        { "/data/hub/models--org--the-name/snapshots/0123abcd", "\"org/the-name\"" },
        { "hub/models--org--a--b/snapshots/0123abcd/", "\"org/a--b\"" },
        { "models--alone/snapshots/0123abcd", "\"alone\"" },
        { "models--org--name/others/0123abcd", "\"0123abcd\"" },
        { "snapshots/0123abcd", "\"0123abcd\"" },
        { "/x/a\"b", "\"a\\\"b\"" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        xd_text_buf b = { 0 };
        xd_model_short_name(cases[i][0], &b);
        assert_int_equal(b.failed, 0);
        assert_string_equal(b.p, cases[i][1]);
        xd_buf_free(&b);
    }
}

static void downloads(void **state)
{
    static const char *const cases[][2] = {
        { "/hub/models--org--the--name/snapshots/0123/vae has no weights",
          "/hub/models--org--the--name/snapshots/0123/vae has no weights; \"hf download "
          "org/the--name\" downloads missing files" },
        { "/hub/models--org--name has none", "/hub/models--org--name has none" },
        { "/hub/models--name/snapshots/01--2 lacks", "/hub/models--name/snapshots/01--2 lacks" },
        { "/data/model has none", "/data/model has none" },
        { "/hub/models--a--b/snapshots/0: \"hf download a/b\"",
          "/hub/models--a--b/snapshots/0: \"hf download a/b\"" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        xd_err e = { 0 };
        assert_int_equal(xd_model_fail_cached(&e, xd_fail(&e, XD_EIO, "%s", cases[i][0])), XD_EIO);
        assert_string_equal(e.msg, cases[i][1]);
    }
    xd_err e = { 0 };
    xd_model_fail_cached(&e, xd_fail(&e, XD_EFORMAT, "%s", cases[0][0]));
    assert_string_equal(e.msg, cases[0][0]); /* what is broken is not missing */
    assert_int_equal(xd_model_fail_cached(NULL, XD_EIO), XD_EIO);
    assert_int_equal(xd_model_fail_cached(&e, XD_OK), XD_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(short_names),
                                        cmocka_unit_test(downloads) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
