/* test_cli_progress.c - how fast weights are read, in the line of a stage */
#define _POSIX_C_SOURCE 200809L /* nanosleep */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "cli/progress.h"

static double rate; /* bytes/s of a disk of our own */

static double disk(void)
{
    return 1e9 + rate * xd_now_s();
}

static double no_disk(void)
{
    return -1;
}

static void wait_ms(int ms)
{
    nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000L }, NULL);
}

/* What is written while a stage takes so long, with looks every 100 ms. malloc'ed. */
static char *written(const char *stage, int columns, double (*bytes)(void), int ms)
{
    xd_bar b;
    FILE  *f = tmpfile();
    char  *text = calloc(1, 1 << 16);
    assert_true(f && text);
    xd_bar_init(&b, f, columns, 0);
    b.read_bytes = bytes;
    b.between_s = 0.1;
    xd_bar_stage(&b, stage);
    wait_ms(ms);
    xd_bar_stage(&b, "denoise");
    assert_null(b.reads);
    xd_bar_end(&b);
    rewind(f);
    assert_true(fread(text, 1, (1 << 16) - 1, f) > 0);
    fclose(f);
    return text;
}

/* MB/s of the first place that says it; a busy machine may look late. */
static void says(char *text, const char *before)
{
    char  *at = strstr(text, before);
    double got = at ? strtod(at + strlen(before), NULL) : 0;
    if (!at || got < 75 || got > 300)
        fail_msg("\"%s\" has no \"%s\" 150 MB/s, within a factor of 2", text, before);
    assert_non_null(strstr(at, " MB/s"));
    free(text);
}

static void a_terminal_is_told(void **state)
{
    (void)state;
    rate = 150e6;
    says(written("text", 80, disk, 500), "\r\033[Ktext encoding ... reading ");
    says(written("load", 80, disk, 500), "\r\033[Kload weights ... reading ");
    says(written("decode", 80, disk, 500), "\r\033[Kdecode ... reading ");
}

static void plain_lines_are_few(void **state)
{
    int n = 0;
    (void)state;
    rate = 150e6;
    char *text = written("load", 0, disk, 900);
    assert_true(strncmp(text, "load weights\nload weights  reading ", 35) == 0);
    for (const char *at = text; (at = strstr(at, "reading")); at++)
        n++;
    assert_in_range(n, 1, 2); /* 9 looks at most */
    says(text, "load weights  reading ");
}

/* Nothing that is read, or a system that does not tell, or a stage that computes: the stage
 * alone. */
static void silence(void **state)
{
    (void)state;
    rate = 1e4;
    char *slow = written("load", 0, disk, 300), *unknown = written("load", 0, no_disk, 300);
    rate = 150e6;
    char *computes = written("step", 0, disk, 300);
    assert_string_equal(slow, "load weights\n");
    assert_string_equal(unknown, "load weights\n");
    assert_string_equal(computes, "step\n");
    free(slow), free(unknown), free(computes);
}

/* The system's own count is asked without a fault. */
static void the_system_is_asked(void **state)
{
    xd_bar b;
    FILE  *f = tmpfile();
    (void)state;
    assert_non_null(f);
    xd_bar_init(&b, f, 0, 0);
    double bytes = b.read_bytes();
    assert_true(bytes == -1 || bytes >= 0);
    xd_bar_end(&b);
    xd_bar_end(&b);
    fclose(f);
}

/* Bytes: a bar with their share on a terminal; without one a line where it has taken long. */
static void bytes_are_counted(void **state)
{
    (void)state;
    for (int columns = 0; columns < 100; columns += 90) {
        xd_bar b;
        FILE  *f = tmpfile();
        char   text[4096] = "";
        assert_non_null(f);
        xd_bar_init(&b, f, columns, 0);
        xd_bar_bytes(&b, "a", 0, 4e9);
        wait_ms(250);
        xd_bar_bytes(&b, "a", 1e9, 4e9);
        const double rate_s = (xd_now_s() - b.since_s) * 3;
        b.printed_s -= columns ? 0 : 11;
        xd_bar_bytes(&b, "a", 4e9, 4e9);
        xd_bar_end(&b);
        rewind(f);
        assert_true(fread(text, 1, sizeof text - 1, f) > 0);
        fclose(f);
        const char *half = strstr(text, "1 GB of 4 GB"), *eta = strstr(text, "ETA 0:0");
        assert_true(columns ? half && eta : !half);
        assert_non_null(strstr(text, columns ? "convert [######" : "convert a  4 GB of 4 GB"));
        if (columns)
            assert_in_range(atoi(eta + 7), (int)rate_s, (int)rate_s + 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_terminal_is_told),
        cmocka_unit_test(plain_lines_are_few),
        cmocka_unit_test(silence),
        cmocka_unit_test(the_system_is_asked),
        cmocka_unit_test(bytes_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
