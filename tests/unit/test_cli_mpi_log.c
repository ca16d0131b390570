/* test_cli_mpi_log.c - what MPICH's launcher says on standard output, told from what ranks say
 * there.
 *
 * The bytes come in pieces of every length, as a pipe may bring them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "launch/mpi_log.h"

#define LINE "==========================================================================\n"
#define BANNER "\n" LINE "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"          \
    "=   PID 3369 RUNNING AT vm\n=   EXIT CODE: 9\n" LINE                                     \
    "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n"

/* Gives `said` in pieces of `step` bytes; `passed` must come out. */
static void hears(xd_mpi_log *z, const char *said, size_t step, const char *passed)
{
    char   out[2048], piece[2048 + sizeof z->pending];
    size_t n = 0, len = strlen(said);
    *z = (xd_mpi_log){ .fd = -1 };
    for (size_t at = 0; at < len; at += step) {
        size_t k = xd_mpi_log_filter_stdout(z, said + at, len - at < step ? len - at : step, piece);
        memcpy(out + n, piece, k);
        n += k;
    }
    n += xd_mpi_log_filter_stdout(z, NULL, 0, out + n);
    out[n] = 0;
    assert_string_equal(out, passed);
}

static void ranks_pass(void **state)
{
    static const char *const all[] = { "",
                                       "a.png\n",
                                       "a",
                                       "\n",
                                       "\n\n\n",
                                       "=\n",
                                       "\n==\n\n=x=\nb\n\n",
                                       ("a " LINE),
                                       "{\"a\": 1}\n\n{\"b\": 2}\n=" };
    xd_mpi_log               z;
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (size_t step = 1; step < 20; step++)
            hears(&z, all[i], step, all[i]);
}

static void the_launcher_is_kept(void **state)
{
    char       why[256];
    xd_mpi_log z;
    (void)state;
    for (size_t step = 1; step < 600; step++) {
        hears(&z, "a.png\n" BANNER, step, "a.png\n");
        xd_mpi_log_cause(&z, why, sizeof why);
        assert_string_equal(why, "the rank with process id 3369 was killed by signal 9");
        hears(&z, BANNER, step, "");
        hears(&z, LINE "words\n", step, "");
    }
}

/* What counts as an error of a rank, in pieces of every length. */
static void errors_are_told_from_warnings(void **state)
{
    static const struct {
        const char *text;
        int         said;
    } all[] = { { "xdit: warning: 4 ranks share 2 cores\n", 0 },
                { "[vm][[41608,1],0][btl_tcp_proc.c:266:f] No pairing[vm][[41608,1],1][g] No "
                  "pairing\n\nxdit: warning: a\n",
                  0 },
                { "[vm][[5,1],0][f.c:2:g] xdit: rank 1: no memory\nUnable to find reachable "
                  "pairing between local and remote interfaces\n",
                  1 },
                { "Unable to find a thing\n", 0 },
                { "denoise 1/2\n", 0 },
                { "xdit: rank 1: no memory\n", 1 },
                { "xdit: warning: a\nxdit: w\n", 1 },
                { "xdit: warnings are none\n", 1 },
                { "", 0 } };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (size_t step = 1; step < 40; step++) {
            xd_mpi_log z = { .fd = -1 };
            for (size_t at = 0, n = strlen(all[i].text); at < n; at += step)
                xd_mpi_log_filter(&z, all[i].text + at, n - at < step ? n - at : step);
            xd_mpi_log_flush(&z);
            assert_int_equal(z.error_seen, all[i].said);
            assert_int_equal(z.output_seen, all[i].text[0] != 0);
        }
}

/* Bytes that pass to the person's standard error. */
static void marked_lines_are_kept(void **state)
{
    static const char said[] = "[vm:77] a\n[vm][[41608,1],0][f.c:2:f] b[vm][[41608,1],1][g] b\n\n"
                               "[0/2] c\n\n[vm][[5,1],0][g] [vm][[5,1],1][g] Unable to find "
                               "reachable pairing between local and remote interfaces\nUnable to "
                               "find reachable pairing between local and remote interfaces\n"
                               "[vm][[5,1],0][g] xdit: e\nUnable\nd\n";
    static const char passed[] = "[0/2] c\n\nxdit: e\nUnable\nd\n";
    (void)state;
    for (size_t step = 1; step < sizeof said; step++) {
        int  ends[2];
        char out[sizeof said];
        assert_int_equal(pipe(ends), 0);
        xd_mpi_log z = { .fd = ends[1] };
        for (size_t at = 0, n = strlen(said); at < n; at += step)
            xd_mpi_log_filter(&z, said + at, n - at < step ? n - at : step);
        xd_mpi_log_flush(&z);
        close(ends[1]);
        ssize_t n = read(ends[0], out, sizeof out - 1);
        close(ends[0]);
        assert_int_equal(n, (ssize_t)strlen(passed));
        assert_memory_equal(out, passed, strlen(passed));
    }
}

static void a_lost_host_is_named(void **state)
{
    static const char dashes[] = "------------------------------------------------------------\n";
    static const char box[] =
        "ORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[1,0],0] on node "
        "one\n"
        "  Remote daemon: [[1,0],1] on node 10.0.0.2\n\nThis is usually due to a failure.\n";
    char       why[256];
    xd_mpi_log z = { .fd = -1 };
    (void)state;
    xd_mpi_log_filter(&z, dashes, strlen(dashes));
    xd_mpi_log_filter(&z, box, strlen(box));
    xd_mpi_log_filter(&z, dashes, strlen(dashes));
    xd_mpi_log_cause(&z, why, sizeof why);
    assert_string_equal(why, "lost the connection to host 10.0.0.2: its ranks cannot be reached, "
                             "and the run ends");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_pass),
        cmocka_unit_test(the_launcher_is_kept),
        cmocka_unit_test(errors_are_told_from_warnings),
        cmocka_unit_test(marked_lines_are_kept),
        cmocka_unit_test(a_lost_host_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
