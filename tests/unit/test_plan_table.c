/* test_plan_table.c - an option of a plan is a row of one table: a row that is added is known to
 * everything that reads flags, writes them down, compares them or warns of them */
#define _GNU_SOURCE /* memmem */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/cli.h"
#include "plan/plan.h"
#include "plan/plan_table.h"
#include "predict/search.h"

/* ---- three rows more ------------------------------------------------------------------------ */

static xd_plan_row   rows[XD_PLAN_ROWS];
static xd_plan_table wide;

static int setup(void **state)
{
    static const xd_plan_row more[] = {
        { { "dummy_number", XD_OPT_INT, offsetof(xd_parallel, reserved[0]), 1, 99, NULL, "N",
            "a number" },
          XD_NAXES,
          "dum",
          0,
          "1",
          XD_NEEDS_NOTHING,
          "# dummies",
          0,
          XD_SUMS_OF_TENSOR },
        { { "dummy_switch", XD_OPT_FLAG, offsetof(xd_parallel, reserved[1]), 0, 1, NULL, NULL,
            "a switch" },
          XD_NAXES,
          "dsw",
          1,
          "",
          XD_NEEDS_RING,
          "dummy",
          0,
          XD_SAME_BITS },
        { { "dummy_text", XD_OPT_TEXT, offsetof(xd_parallel, reserved_text[0]), 0, 0, "red blue",
            "WHAT", "a text" },
          XD_NAXES,
          NULL,
          0,
          "red",
          XD_NEEDS_NOTHING,
          "# dummy",
          0,
          XD_SAME_BITS },
    };
    const xd_plan_table *t = xd_plan_table_now();
    (void)state;
    memcpy(rows, t->rows, (size_t)t->n * sizeof *rows);
    memcpy(rows + t->n, more, sizeof more);
    wide = (xd_plan_table){ rows, t->n + 3 };
    xd_plan_table_use(&wide);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    xd_plan_table_use(NULL);
    return 0;
}

static const xd_parallel dummies = {
    .ulysses_degree = 2, .ring_degree = 2, .reserved = { 3, 1 }, .reserved_text = { "blue" }
};

static void has(const char *text, const char *part)
{
    if (!text || !strstr(text, part))
        fail_msg("\"%s\" is not in \"%s\"", part, text ? text : "(nothing)");
}

static void lacks(const char *text, const char *part)
{
    if (!text || strstr(text, part))
        fail_msg("\"%s\" is in \"%s\"", part, text ? text : "(nothing)");
}

static void names(void **state)
{
    xd_text_buf name = { 0 }, flags = { 0 };
    xd_parallel a = { 0 };
    xd_err      e = { 0 };
    (void)state;
    assert_int_equal(xd_parallel_read(&a, "u2dum3,dsw", &e), XD_OK);
    assert_int_equal(a.reserved[0], 3);
    assert_int_equal(a.reserved[1], 1);
    assert_int_equal(xd_parallel_read(&a, "q", &e), XD_EINVAL);
    has(e.msg, "text, dum and dsw");
    xd_plan_name(&dummies, NULL, &name);
    xd_plan_flags(&dummies, NULL, &flags);
    assert_string_equal(name.p, "u2r2dum3dsw");
    assert_string_equal(flags.p, "--ulysses_degree 2 --ring_degree 2 --dummy_number 3 "
                                 "--dummy_switch --dummy_text blue");
    xd_buf_free(&name);
    xd_buf_free(&flags);
}

/* Rank 0 tells numbers; all compare all. */
static void between_ranks(void **state)
{
    int32_t     sent[XD_PLAN_ROWS];
    uint64_t    mine[XD_PLAN_ROWS], other[XD_PLAN_ROWS];
    xd_parallel take = { .reserved_text = { "blue" } };
    (void)state;
    xd_plan_pack(&dummies, sent);
    xd_plan_unpack(sent, &take);
    assert_memory_equal(&take, &dummies, sizeof take);
    assert_int_equal(xd_plan_hashes(&dummies, mine), wide.n);
    for (int k = 0; k < 3; k++) {
        xd_parallel a = dummies;
        if (k == 2)
            a.reserved_text[0] = "red";
        else
            a.reserved[k]++;
        xd_plan_hashes(&a, other);
        for (int i = 0; i < wide.n; i++)
            assert_int_equal(mine[i] == other[i], i != wide.n - 3 + k);
    }
}

static void texts(void **state)
{
    xd_plan p;
    xd_err  e = { 0 };
    (void)state;
    assert_int_equal(xd_plan_make(&p, &dummies, 4, NULL, &e), XD_OK);
    assert_string_equal(p.text, "ring 2 x ulysses 2 (3 dummies, dummy, blue dummy)");
    assert_int_equal(p.changes, XD_SUMS_OF_TENSOR);
    xd_parallel a = dummies;
    a.ring_degree = 1; /* what counts only with a ring is not said */
    a.reserved_text[0] = "red";
    assert_int_equal(xd_plan_make(&p, &a, 4, NULL, &e), XD_OK);
    assert_string_equal(p.text, "ulysses 2 (3 dummies)");
}

/* What changes the image: a ring has the sums of one rank, tensor has others. */
static void changes(void **state)
{
    static const struct {
        xd_parallel a;
        int         want;
    } all[] = {
        { { .ulysses_degree = 4 }, XD_SAME_BITS },
        { { .ring_degree = 4 }, XD_SAME_BITS },
        { { .ulysses_degree = 2, .ring_degree = 2, .use_parallel_vae = 1 }, XD_SAME_BITS },
        { { .tensor_parallel_degree = 2, .ring_degree = 2 }, XD_SUMS_OF_TENSOR },
        { { .ring_degree = 4, .use_displaced_patches = 1 }, XD_STALE_STEPS },
    };
    xd_plan p;
    xd_err  e = { 0 };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        assert_int_equal(xd_plan_make(&p, &all[i].a, 4, NULL, &e), XD_OK);
        assert_int_equal(p.changes, all[i].want);
    }
}

static char said[4096];

static void on_log(void *cookie, int level, const char *line)
{
    (void)cookie;
    assert_int_equal(level, XD_LOG_WARN);
    snprintf(said + strlen(said), sizeof said - strlen(said), "%s\n", line);
}

static void warnings(void **state)
{
    xd_parallel one = dummies;
    (void)state;
    one.ring_degree = one.ulysses_degree = 1;
    one.warmup_steps = 1; /* what is meant without it, too */
    said[0] = 0;
    xd_log_enter(&(xd_logger){ on_log, NULL, XD_LOG_WARN });
    xd_plan_log_unused(&one, &one, NULL);
    has(said, "dummy_switch");
    has(said, "ring (ring_degree)\n");
    said[0] = 0;
    xd_plan_log_unused(&dummies, &dummies, NULL);
    assert_string_equal(said, "");
    one.num_pipeline_patch = 4, one.pipefusion_text = "every", one.warmup_steps = 2;
    one.use_parallel_vae = one.use_displaced_patches = 1, one.reserved[1] = 0;
    xd_plan_log_unused(&one, &one, NULL);
    has(said, "num_pipeline_patch");
    has(said, "pipefusion_text");
    has(said, "warmup_steps");
    has(said, "use_parallel_vae");
    has(said, "use_displaced_patches");
    xd_log_enter(NULL);
}

/* ---- the commands --------------------------------------------------------------------------- */

/* What `run` prints on standard output; malloc'ed. */
static char *printed(int (*run)(int argc, char **argv), int argc, char **argv)
{
    FILE *f = tmpfile();
    char *text = calloc(1, 65536);
    assert_true(f && text);
    fflush(stdout);
    int out = dup(1);
    dup2(fileno(f), 1);
    int code = run(argc, argv);
    fflush(stdout);
    dup2(out, 1);
    close(out);
    assert_int_equal(code, 0);
    rewind(f);
    size_t n = fread(text, 1, 65535, f);
    fclose(f);
    assert_true(n > 0);
    return text;
}

static int help_of(int argc, char **argv)
{
    const xd_command *c[] = { &xd_cmd_generate, &xd_cmd_plan, &xd_cmd_bench };
    (void)argv;
    c[argc]->help(stdout);
    return 0;
}

static void helps(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        char *text = printed(help_of, i, NULL);
        for (int k = 0; k < wide.n; k++) {
            char flag[96];
            snprintf(flag, sizeof flag, "--%s", rows[k].option.name);
            if (rows[k].option.help)
                has(text, flag);
            else
                lacks(text, flag);
        }
        free(text);
    }
}

static void best_line(void **state)
{
    char *argv[] = { "--model",
                     "models/demo-pixart",
                     "--cluster",
                     "8xH100",
                     "--plan",
                     "r2dum3",
                     "--dummy_switch",
                     "--dummy-text=blue",
                     "--attn_layer_num_for_pp",
                     "3 5",
                     "--pipefusion_parallel_degree",
                     "2",
                     "--world",
                     "4" };
    (void)state;
    char *text = printed(xd_cmd_plan.run, sizeof argv / sizeof *argv, argv);
    char *best = strstr(text, "best: --");
    assert_non_null(best);
    has(best, "--ring_degree 2");
    has(best, "--dummy_number 3 --dummy_switch --dummy_text blue");
    has(best, "--attn_layer_num_for_pp '3 5'");
    has(text, "dum3dsw");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),     cmocka_unit_test(between_ranks), cmocka_unit_test(texts),
        cmocka_unit_test(changes),   cmocka_unit_test(warnings),      cmocka_unit_test(helps),
        cmocka_unit_test(best_line),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
