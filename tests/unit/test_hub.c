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

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(short_names) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
