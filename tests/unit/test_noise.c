/* test_noise.c - what MPICH's launcher says on standard output, told from what ranks say there.
 *
 * The bytes come in pieces of every length, as a pipe may bring them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "cli/noise.h"

#define LINE "==========================================================================\n"
#define BANNER "\n" LINE "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"          \
    "=   PID 3369 RUNNING AT vm\n=   EXIT CODE: 9\n" LINE                                     \
    "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n"

/* Gives `said` in pieces of `step` bytes; `passed` must come out. */
static void hears(xd_noise *z, const char *said, size_t step, const char *passed)
{
    char   out[2048], piece[2048 + sizeof z->held];
    size_t n = 0, len = strlen(said);
    *z = (xd_noise){ .fd = -1 };
    for (size_t at = 0; at < len; at += step) {
        size_t k = xd_noise_out(z, said + at, len - at < step ? len - at : step, piece);
        memcpy(out + n, piece, k);
        n += k;
    }
    n += xd_noise_out(z, NULL, 0, out + n);
    out[n] = 0;
    assert_string_equal(out, passed);
}

static void ranks_pass(void **state)
{
    static const char *const all[] = { "", "a.png\n", "a", "\n", "\n\n\n", "=\n", "\n==\n\n=x=\nb\n\n",
                                       ("a " LINE), "{\"a\": 1}\n\n{\"b\": 2}\n=" };
    xd_noise z;
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (size_t step = 1; step < 20; step++)
            hears(&z, all[i], step, all[i]);
}

static void the_launcher_is_kept(void **state)
{
    char     why[256];
    xd_noise z;
    (void)state;
    for (size_t step = 1; step < 600; step++) {
        hears(&z, "a.png\n" BANNER, step, "a.png\n");
        xd_noise_sum(&z, why, sizeof why);
        assert_string_equal(why, "the rank with process id 3369 was killed by signal 9");
        hears(&z, BANNER, step, "");
        hears(&z, LINE "words\n", step, "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_pass),
        cmocka_unit_test(the_launcher_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
