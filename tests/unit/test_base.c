/* test_base.c - errors, arenas, files, threads and shapes.
 *
 * Conversions of 16-bit floats are compared with arithmetic in double: equal bits, no tolerance. */
#define _GNU_SOURCE /* P_tmpdir, O_TMPFILE */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/pages.h"
#include "base/par.h"
#include "base/word_list.h"
#include "scratch.h"
#include "tensor/tensor.h"

/* ---- err, log ------------------------------------------------------------------------------ */

static void first_failure_wins(void **state)
{
    (void)state;
    xd_err e = { 0 };
    assert_int_equal(xd_fail(&e, XD_EFORMAT, "%d of %s", 3, "these"), XD_EFORMAT);
    assert_int_equal(xd_fail(&e, XD_EIO, "later"), XD_EIO);
    assert_int_equal(e.code, XD_EFORMAT);
    assert_int_equal(e.rank, -1);
    assert_string_equal(e.msg, "3 of these");
    assert_int_equal(xd_fail(NULL, XD_ENOMEM, "nobody listens"), XD_ENOMEM);
    xd_err_clear(&e);
    assert_int_equal(e.code, XD_OK);
    assert_string_equal(e.msg, "");
}

static void long_messages_are_cut(void **state)
{
    (void)state;
    xd_err e = { 0 };
    xd_fail(&e, XD_EINVAL, "%9000d", 1);
    assert_int_equal(strlen(e.msg), sizeof e.msg - 1);
}

static void failures_name_their_file(void **state)
{
    (void)state;
    static const struct {
        xd_status   code;
        const char *said, *path, *want;
    } v[] = {
        { XD_EFORMAT, "the token is empty", "m/tokenizer", "m/tokenizer: the token is empty" },
        { XD_EIO, "m/tokenizer/x is gone", "m/tokenizer", "m/tokenizer/x is gone" },
        { XD_EUNSUPPORTED, "m?/x is odd", "m\x1b/x", "m?/x is odd" },
        { XD_EUNSUPPORTED, "x is odd", "m\x1b/x", "m?/x: x is odd" },
        { XD_EINVAL, "steps is 0", "m", "steps is 0" },
        { XD_ECANCELLED, "cancelled", "m", "cancelled" },
        { XD_EIO, "gone", NULL, "gone" },
    };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        xd_err e = { 0 };
        xd_fail(&e, v[i].code, "%s", v[i].said);
        assert_int_equal(xd_fail_at(&e, v[i].code, v[i].path), v[i].code);
        assert_string_equal(e.msg, v[i].want);
    }
    assert_int_equal(xd_fail_at(NULL, XD_EIO, "m"), XD_EIO);
    xd_err e = { 0 };
    xd_fail(&e, XD_EIO, "%9000d", 1);
    xd_fail_at(&e, XD_EIO, "path");
    assert_int_equal(strncmp(e.msg, "path:  ", 7), 0);
    assert_in_range(strlen(e.msg), 1000, sizeof e.msg - 1);
}

/* What a terminal obeys: C0, DEL, and C1, which UTF-8 writes as two bytes; other bytes than UTF-8,
 * too. */
static void terminals_get_text(void **state)
{
    (void)state;
    static const struct {
        const char *given, *keep, *want;
    } v[] = {
        { "a\x1b[31m\n\r\t\x7f", "", "a?[31m????" },
        { "a\n\tb\r", "\n\t", "a\n\tb?" },
        { "\xc2\x9b"
          "31m\xc2\x80|\xc2\xa0",
          "", "?31m?|\xc2\xa0" },
        { "\xc3\xa9 \xe5\x9c\x86 \xf0\x9f\x98\x80", "", "\xc3\xa9 \xe5\x9c\x86 \xf0\x9f\x98\x80" },
        { "\x9b|\xff|\xc3|\xed\xa0\x80|\xe5\x9c", "", "?|?|?|???|??" },
    };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        char text[64];
        snprintf(text, sizeof text, "%s", v[i].given);
        xd_clean(text, v[i].keep);
        assert_string_equal(text, v[i].want);
    }
}

static void every_status_has_a_name(void **state)
{
    (void)state;
    for (int i = XD_OK; i <= XD_ECANCELLED; i++)
        for (int j = i + 1; j <= XD_ECANCELLED; j++)
            assert_string_not_equal(xd_status_name((xd_status)i), xd_status_name((xd_status)j));
    assert_string_equal(xd_status_name((xd_status)99), "unknown status");
}

static void hear(void *cookie, int level, const char *line)
{
    snprintf(cookie, 64, "%d %s", level, line);
}

static void log_levels(void **state)
{
    (void)state;
    char line[64] = "";
    xd_log(XD_LOG_ERROR, "no sink");
    xd_log_enter(&(xd_logger){ hear, line, XD_LOG_WARN });
    xd_log(XD_LOG_INFO, "not heard");
    assert_string_equal(line, "");
    xd_log(XD_LOG_WARN, "%d pages", 7);
    assert_string_equal(line, "1 7 pages");
    assert_true(xd_log_on(XD_LOG_WARN) && !xd_log_on(XD_LOG_INFO));
    xd_log_enter(NULL);
    assert_false(xd_log_on(XD_LOG_ERROR));
}

/* ---- arena --------------------------------------------------------------------------------- */

static void arena_rewinds(void **state)
{
    (void)state;
    _Alignas(64) static char block[1024];
    xd_arena                 a;
    xd_arena_init(&a, block, sizeof block);
    assert_ptr_equal(xd_arena_get(&a, 1), block);
    size_t mark = xd_arena_mark(&a);
    assert_ptr_equal(xd_arena_get(&a, 65), block + 64);
    assert_ptr_equal(xd_arena_get(&a, 64), block + 192);
    assert_int_equal(xd_arena_peak(&a), 256);
    xd_arena_rewind(&a, mark);
    assert_ptr_equal(xd_arena_get(&a, 64), block + 64);
    assert_int_equal(xd_arena_peak(&a), 256);
    assert_null(xd_arena_get(&a, 897));
    assert_null(xd_arena_get(&a, SIZE_MAX - 10));
    assert_ptr_equal(xd_arena_get(&a, 896), block + 128);
    assert_null(xd_arena_get(&a, 1));
}

/* Kept pieces come from the end, outlive marks, and count beside the most that was in use. */
static void arena_keeps(void **state)
{
    (void)state;
    _Alignas(64) static char block[1024];
    xd_arena                 a;
    xd_arena_init(&a, block, 1000);
    size_t mark = xd_arena_mark(&a);
    assert_ptr_equal(xd_arena_get(&a, 100), block);
    assert_ptr_equal(xd_arena_keep(&a, 65), block + 832);
    assert_ptr_equal(xd_arena_keep(&a, 64), block + 768);
    xd_arena_rewind(&a, mark);
    assert_int_equal(xd_arena_peak(&a), 100 + 1000 - 768);
    assert_null(xd_arena_get(&a, 769));
    assert_null(xd_arena_keep(&a, 769));
    assert_null(xd_arena_keep(&a, SIZE_MAX - 10));
    assert_ptr_equal(xd_arena_get(&a, 768), block);
    assert_null(xd_arena_keep(&a, 1));
    xd_arena_rewind(&a, mark);
    xd_arena_free_kept(&a);
    assert_ptr_equal(xd_arena_get(&a, 1000), block);
}

/* ---- pages --------------------------------------------------------------------------------- */

/* Bytes of the mapping at p that lie in huge pages; -1: the system does not say. */
static int64_t huge_bytes(const void *p)
{
    unsigned long long from, to, kib;
    int64_t            n = -1;
    int                here = 0;
    char               line[512];
    FILE              *f = fopen("/proc/self/smaps", "r");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%llx-%llx ", &from, &to) == 2)
            here = from == (unsigned long long)(uintptr_t)p;
        if (here && sscanf(line, "ShmemPmdMapped: %llu", &kib) == 1)
            n = (int64_t)kib * 1024;
    }
    if (f)
        fclose(f);
    return n;
}

static void files_get_huge_pages(void **state)
{
    const size_t huge = XD_HUGE_PAGE, bytes = 3 * huge + 5000;
    (void)state;
    int   fd = memfd_create("pages", 0);
    char *p = fd < 0 ? NULL : xd_pages_map(bytes, fd), *q = fd < 0 ? NULL : xd_pages_map(bytes, fd);
    assert_non_null(p);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    assert_true((uintptr_t)p % huge == 0 && (uintptr_t)q % huge == 0);
    int took = xd_pages_allocate(p, 0, huge, 3), rest = xd_pages_allocate(p, huge, bytes, 3);
    assert_true(took > 0 && rest > 0);
    for (size_t i = 0; i < bytes; i += 1000)
        p[i] = (char)(i / 1000 % 101 + 1);
    for (size_t i = 0; i < bytes; i += 1000)
        assert_int_equal(q[i], i / 1000 % 101 + 1);
    assert_int_equal(p[1], 0);
    if (took < 2 || rest < 2)
        print_message("# skipped: this system gives files in memory no huge pages\n");
    else
        assert_true(huge_bytes(p) == 3 * (int64_t)huge && huge_bytes(q) == 3 * (int64_t)huge);
    xd_pages_unmap(p, bytes);
    xd_pages_unmap(q, bytes);
    assert_int_equal(close(fd), 0);
}

/* ---- file ---------------------------------------------------------------------------------- */

static void reads_whole_files(void **state)
{
    (void)state;
    char  *data;
    size_t len;
    xd_err e = { 0 };
    scratch_put("five", "a\0b\nc", 5);
    assert_int_equal(xd_file_read(in_scratch("five"), 5, &data, &len, &e), XD_OK);
    assert_int_equal(len, 5);
    assert_memory_equal(data, "a\0b\nc", 6);
    free(data);
    assert_int_equal(xd_file_read(in_scratch("five"), 4, &data, &len, &e), XD_EFORMAT);
    assert_non_null(strstr(e.msg, "5 bytes"));
    assert_null(data);
    xd_err_clear(&e);
    assert_int_equal(xd_file_read(in_scratch("none"), 4, &data, &len, &e), XD_EIO);
    assert_non_null(strstr(e.msg, "none"));
    xd_err_clear(&e);
    assert_int_equal(xd_file_read(scratch, 4, &data, &len, &e), XD_EIO);
    assert_int_equal(xd_file_read(in_scratch("none"), 4, &data, &len, NULL), XD_EIO);
    scratch_clean();
}

static void files_and_directories(void **state)
{
    (void)state;
    scratch_put("five", "12345", 5);
    assert_true(xd_file_exists(in_scratch("five")) && !xd_file_is_dir(in_scratch("five")));
    assert_true(xd_file_exists(scratch) && xd_file_is_dir(scratch));
    assert_false(xd_file_exists(in_scratch("none")) || xd_file_is_dir(in_scratch("none")));
    char *p = xd_path_join("a", "b"), *q = xd_path_join("a/", "b"), *r = xd_path_join("", "b");
    assert_string_equal(p, "a/b");
    assert_string_equal(q, "a/b");
    assert_string_equal(r, "b");
    free(p), free(q), free(r);
    scratch_clean();
}

/* The index of a modular pipeline counts where there is no other one. */
static void indices_of_models(void **state)
{
    static const char *const files[] = { "other.json", "modular_model_index.json",
                                         "model_index.json" };
    static const char *const found[] = { "model_index.json", "modular_model_index.json",
                                         "model_index.json" };
    (void)state;
    for (int i = 0; i < 3; i++) {
        scratch_put(files[i], "{}", 2);
        char *p = xd_model_index_path(scratch);
        assert_non_null(p);
        assert_string_equal(strrchr(p, '/') + 1, found[i]);
        assert_int_equal(xd_is_model_index(files[i]), i > 0);
        free(p);
    }
    scratch_clean();
}

/* Bytes are cold until they are read, window by window, and none lie beyond the end of the file. */
static void cold_bytes_are_counted(void **state)
{
    (void)state;
    enum { MB = 1 << 20, N = 4 * MB, HOLE = 130 * MB };
    char *data = calloc(1, N);
    assert_non_null(data);
    scratch_put("cold", data, N);
    int fd = open(in_scratch("cold"), O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(xd_file_cold_bytes(fd, 0, N), 0); /* just written */
    assert_int_equal(fsync(fd), 0);
    xd_file_drop_cached(fd);
    if (xd_file_cold_bytes(fd, 0, N) == 0) {
        print_message("# SKIP: the file system of %s keeps its files in memory\n", scratch);
    } else {
        assert_int_equal(xd_file_cold_bytes(fd, 0, 2 * (size_t)N), N);
        assert_int_equal(xd_file_cold_bytes(fd, N - 10, 100), 10);
        assert_int_equal(xd_file_cold_bytes(fd, 100, MB), MB);
        assert_int_equal(pread(fd, data, MB, 0), MB);
        assert_int_equal(xd_file_cold_bytes(fd, 0, MB), 0);
        assert_int_equal(xd_file_cold_bytes(fd, N / 2 + MB, MB), MB);
    }
    assert_int_equal(xd_file_cold_bytes(fd, N, 100), 0);
    assert_int_equal(ftruncate(fd, HOLE), 0); /* several windows */
    assert_int_equal(xd_file_cold_bytes(fd, N, HOLE), HOLE - N);
    close(fd);
    assert_int_equal(xd_file_cold_bytes(-1, 0, N), 0);
    free(data);
    scratch_clean();
}

static void output_appears_whole(void **state)
{
    (void)state;
    xd_out      o;
    xd_err      e = { 0 };
    struct stat st;
    mode_t      mask = umask(027);
    scratch_put("out", "old", 3);
    assert_int_equal(xd_out_open(&o, in_scratch("out"), &e), XD_OK);
    fputs("longer than before", o.f);
    fflush(o.f);
    assert_int_equal(stat(in_scratch("out"), &st), 0);
    assert_int_equal(st.st_size, 3);
    assert_int_equal(xd_out_commit(&o, &e), XD_OK);
    assert_int_equal(stat(in_scratch("out"), &st), 0);
    assert_int_equal(st.st_size, 18);
    assert_int_equal(st.st_mode & 0777, 0640);
    umask(mask);
    assert_int_equal(xd_out_open(&o, in_scratch("other"), &e), XD_OK);
    fputs("never", o.f);
    xd_out_abort(&o);
    xd_out_abort(&o);
    assert_int_equal(scratch_clean(), 1);
}

/* Devices are pipes' group; a test that replaces one would be known to everybody on the machine. */
static void a_pipe_is_written_and_stays(void **state)
{
    (void)state;
    xd_out      o;
    xd_err      e = { 0 };
    struct stat st;
    char        buf[8] = "";
    assert_int_equal(mkfifo(in_scratch("pipe"), 0600), 0);
    int fd = open(in_scratch("pipe"), O_RDWR | O_NONBLOCK);
    assert_true(fd >= 0);
    assert_int_equal(xd_file_writable(in_scratch("pipe"), &e), XD_OK);
    assert_int_equal(xd_out_open(&o, in_scratch("pipe"), &e), XD_OK);
    fputs("words", o.f);
    assert_int_equal(xd_out_commit(&o, &e), XD_OK);
    assert_int_equal(read(fd, buf, sizeof buf), 5);
    assert_string_equal(buf, "words");
    close(fd);
    assert_int_equal(lstat(in_scratch("pipe"), &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    assert_int_equal(scratch_clean(), 1);
}

static void a_link_stays_and_leads_to_the_file(void **state)
{
    (void)state;
    xd_out      o;
    xd_err      e = { 0 };
    struct stat st;
    scratch_put("real", "old", 3);
    assert_int_equal(symlink("real", in_scratch("link")), 0);
    assert_int_equal(xd_out_open(&o, in_scratch("link"), &e), XD_OK);
    fputs("newer", o.f);
    assert_int_equal(xd_out_commit(&o, &e), XD_OK);
    assert_int_equal(lstat(in_scratch("link"), &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(stat(in_scratch("real"), &st), 0);
    assert_int_equal(st.st_size, 5);
    assert_int_equal(scratch_clean(), 2);
}

static void unwritable_is_found(void **state)
{
    (void)state;
    xd_err e = { 0 };
    assert_int_equal(xd_file_writable(in_scratch("new"), &e), XD_OK);
    assert_int_equal(xd_file_writable(in_scratch("no/such/new"), &e), XD_EIO);
    assert_non_null(strstr(e.msg, "no/such/new"));
    xd_err_clear(&e);
    assert_int_equal(xd_file_writable(scratch, &e), XD_EIO);
    assert_non_null(strstr(e.msg, "directory"));
    xd_err_clear(&e);
    assert_int_equal(xd_file_writable("", &e), XD_EIO);
    assert_non_null(strstr(e.msg, "empty"));
    assert_int_equal(scratch_clean(), 0);
}

/* Runs fn in a child, whose exit status is returned. */
static int in_child(int (*fn)(void))
{
    int   status = -1;
    pid_t pid = fork();
    if (pid == 0)
        _exit(fn());
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static int write_too_much(void)
{
    static char block[1 << 16];
    xd_out      o;
    xd_err      e = { 0 };
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 1 << 17, 1 << 17 });
    if (xd_out_open(&o, in_scratch("full"), &e) != XD_OK)
        return 1;
    for (int i = 0; i < 4; i++)
        fwrite(block, 1, sizeof block, o.f);
    return xd_out_commit(&o, &e) == XD_EIO && strstr(e.msg, "full") ? 0 : 2;
}

static int die_while_writing(void)
{
    xd_out a, b;
    xd_err e = { 0 };
    if (xd_out_open(&a, in_scratch("one"), &e) != XD_OK ||
        xd_out_open(&b, in_scratch("two"), &e) != XD_OK || xd_out_commit(&a, &e) != XD_OK)
        return 1;
    xd_out_sweep();
    return 0;
}

static int killed_while_writing(void)
{
    xd_out o;
    xd_err e = { 0 };
    if (xd_out_open(&o, in_scratch("killed"), &e) != XD_OK || fputs("half", o.f) < 0 || fflush(o.f))
        return 1;
    raise(SIGKILL);
    return 2;
}

static int has_nameless(void)
{
#ifdef O_TMPFILE
    int fd = open(scratch, O_TMPFILE | O_RDWR, 0600);
    return fd >= 0 && close(fd) == 0;
#else
    return 0;
#endif
}

static void killed_writer_leaves_nothing(void **state)
{
    (void)state;
    if (!has_nameless()) {
        print_message("# skipped: this file system has no files without a name\n");
        return;
    }
    scratch_put("killed", "old", 3);
    assert_int_equal(in_child(killed_while_writing), 128);
    assert_int_equal(scratch_clean(), 1);
}

static void failed_writes_leave_nothing(void **state)
{
    (void)state;
    assert_int_equal(in_child(write_too_much), 0);
    assert_int_equal(scratch_clean(), 0);
    assert_int_equal(in_child(die_while_writing), 0);
    assert_true(xd_file_exists(in_scratch("one")));
    assert_int_equal(scratch_clean(), 1);
}

/* ---- par, clock ------------------------------------------------------------------------------ */

typedef struct tally {
    atomic_int hits[1000];
    atomic_int pieces, bad;
    int        threads;
} tally;

static void count_range(void *ctx, int64_t begin, int64_t end, int thread)
{
    tally *t = ctx;
    t->pieces++;
    t->bad += begin >= end || thread < 0 || thread >= t->threads;
    for (int64_t i = begin; i < end; i++)
        t->hits[i]++;
}

static void ranges_cover_once(void **state)
{
    (void)state;
    static const int64_t sizes[] = { 0, 1, 2, 3, 5, 16, 997, 1000 };
    assert_true(xd_par_cores() >= 1);
    for (int n = 1; n <= 5; n++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            tally a = { .threads = n }, b = { .threads = n };
            assert_int_equal(xd_par_set(n), n);
            assert_int_equal(xd_par_threads(), n);
            xd_par_for(sizes[s], count_range, &a);
            xd_par_dynamic(sizes[s], count_range, &b);
            for (int64_t i = 0; i < 1000; i++) {
                assert_int_equal(a.hits[i], i < sizes[s]);
                assert_int_equal(b.hits[i], i < sizes[s]);
            }
            assert_int_equal(a.bad + b.bad, 0);
            assert_int_equal(a.pieces, sizes[s] < n ? sizes[s] : n);
            assert_int_equal(b.pieces, sizes[s]);
        }
    assert_int_equal(xd_par_set(0), xd_par_cores());
    xd_par_for(-3, count_range, NULL);
}

static void count_within(void *ctx, int64_t begin, int64_t end, int thread)
{
    tally *t = ctx;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        xd_par_for(10, count_range, t);
}

static void *count_beside(void *ctx)
{
    for (int i = 0; i < 1000; i++)
        xd_par_for(10, count_range, ctx);
    return NULL;
}

/* Calls within a piece, and those of two threads at the same time, lose and repeat nothing. */
static void calls_meet(void **state)
{
    (void)state;
    tally     a = { .threads = 3 }, b = { .threads = 3 };
    pthread_t other;
    xd_par_set(3);
    xd_par_for(50, count_within, &a);
    xd_par_dynamic(50, count_within, &a);
    for (int64_t i = 0; i < 1000; i++)
        assert_int_equal(a.hits[i], i < 10 ? 100 : 0);
    assert_int_equal(pthread_create(&other, NULL, count_beside, &b), 0);
    count_beside(&b);
    pthread_join(other, NULL);
    for (int64_t i = 0; i < 1000; i++)
        assert_int_equal(b.hits[i], i < 10 ? 2000 : 0);
    assert_int_equal(a.bad + b.bad, 0);
    xd_par_set(0);
}

static void count_call(void *arg)
{
    ++*(int *)arg;
}

static void nothing(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)ctx, (void)begin, (void)end, (void)thread;
}

/* The hook runs between pieces, but not more often than every 50 microseconds. */
static void hook_is_poked(void **state)
{
    (void)state;
    int calls = 0;
    xd_par_poke();
    xd_par_hook(count_call, &calls);
    xd_par_set(1); /* of several threads the others may take all pieces */
    xd_par_dynamic(100, nothing, NULL);
    assert_in_range(calls, 1, 100);
    xd_par_set(2);
    xd_par_dynamic(100, nothing, NULL);
    assert_in_range(calls, 1, 200);
    calls = 0;
    double t0 = xd_now_s(), t = t0;
    while (((t = xd_now_s()) - t0 < 5e-3 || calls < 2) && t - t0 < 30)
        xd_par_poke();
    assert_in_range(calls, 2, (int)((t - t0) / 50e-6) + 1);
    xd_par_hook(NULL, NULL);
    calls = 0;
    xd_par_poke();
    assert_int_equal(calls, 0);
    xd_par_set(0);
}

static void clock_runs(void **state)
{
    (void)state;
    double a = xd_now_s(), b = a;
    for (int i = 0; i < 100000000 && b <= a; i++)
        b = xd_now_s();
    assert_true(b > a && b - a < 60);
}

/* ---- tensor ---------------------------------------------------------------------------------- */

static void views_of_a_tensor(void **state)
{
    (void)state;
    float     x[24];
    xd_tensor t = xd_view(x, XD_F32, 3, (int64_t[]){ 2, 3, 4 });
    assert_int_equal(xd_count(t), 24);
    assert_int_equal(xd_bytes(t), 96);
    assert_true(xd_contiguous(t));
    xd_tensor p = xd_permute(t, (int[]){ 2, 0, 1 });
    assert_int_equal(p.d[0], 4);
    assert_int_equal(p.d[2], 3);
    assert_false(xd_contiguous(p));
    assert_ptr_equal(xd_at(p, 3, 1), x + 15);
    xd_tensor m = xd_reshape(t, 2, (int64_t[]){ 6, 4 }), r = xd_rows(m, 2, 3), c = xd_cols(r, 1, 2);
    assert_ptr_equal(xd_at(c, 1, 1), x + 3 * 4 + 2);
    assert_false(xd_contiguous(c));
    assert_int_equal(xd_count(c), 6);
    xd_tensor h = xd_heads(m, 2), f = xd_flat(h);
    assert_int_equal(h.nd, 3);
    assert_int_equal(h.d[1], 2);
    assert_ptr_equal(xd_at(h, 5, 1), x + 22);
    assert_memory_equal(&f, &m, sizeof f);
    assert_true(xd_contiguous(xd_view(x, XD_F32, 2, (int64_t[]){ 0, 4 })));
    assert_int_equal(xd_count(xd_view(x, XD_F32, 0, NULL)), 1);
}

static void shapes_as_text(void **state)
{
    (void)state;
    char buf[8];
    assert_string_equal(xd_shape_text(0, NULL, buf, sizeof buf), "scalar");
    assert_string_equal(xd_shape_text(1, (int64_t[]){ 7 }, buf, sizeof buf), "7");
    assert_string_equal(xd_shape_text(3, (int64_t[]){ 4, 3, 2 }, buf, sizeof buf), "4x3x2");
    assert_string_equal(xd_shape_text(2, (int64_t[]){ 12345, 678 }, buf, sizeof buf), "12345x6");
}

static void dtypes_have_sizes(void **state)
{
    (void)state;
    for (int i = 0; i < XD_NDTYPES; i++) {
        assert_non_null(xd_dtype_name((xd_dtype)i));
        if (xd_dtype_block((xd_dtype)i) == 1)
            assert_in_range(xd_dtype_size((xd_dtype)i), 1, 8);
    }
    assert_string_equal(xd_dtype_name(XD_BF16), "bf16");
    assert_int_equal(xd_dtype_size(XD_BF16), 2);
}

/* Nearest value with `digits` binary digits and exponents from `low` on, ties to even. */
static double rounded(double x, int digits, int low)
{
    int e;
    frexp(x, &e);
    double unit = ldexp(1, (e - 1 < low ? low : e - 1) - (digits - 1));
    return nearbyint(x / unit) * unit;
}

static float float_of(uint32_t b)
{
    float f;
    memcpy(&f, &b, sizeof f);
    return f;
}

static void check_float(float x)
{
    double h = rounded((double)x, 11, -14), b = rounded((double)x, 8, -126);
    double want_h = fabs(h) > 65504 ? copysign((double)INFINITY, h) : h;
    double want_b = fabs(b) > 3.3895313892515355e38 ? copysign((double)INFINITY, b) : b;
    float  got_h = xd_f16_f32(xd_f32_f16(x)), got_b = xd_bf16_f32(xd_f32_bf16(x));
    if ((double)got_h != want_h || (double)got_b != want_b || !signbit(got_h) != !signbit(x) ||
        !signbit(got_b) != !signbit(x))
        fail_msg("%a becomes f16 %a, not %a; bf16 %a, not %a", (double)x, (double)got_h, want_h,
                 (double)got_b, want_b);
}

static void halves_round_to_nearest_even(void **state)
{
    (void)state;
    uint32_t r = 1;
    for (int i = 0; i < 400000; i++) {
        r = r * 1664525u + 1013904223u;
        uint32_t e = 96 + (r >> 8) % 64; /* exponents around those of a half */
        uint32_t b = (r & 0x80000000u) | (i % 2 ? e << 23 : (r >> 3) % 0x7f80u << 16);
        uint32_t tail = i % 3 == 0 ? 0x1000u : i % 3 == 1 ? 0x8000u : (r * 2654435761u) >> 9;
        b |= (tail ^ (r << 13)) & 0x7fffffu;
        if ((b & 0x7f800000u) != 0x7f800000u)
            check_float(float_of(b));
    }
    for (uint32_t b = 0x33000000u - 2; b <= 0x33000000u + 2; b++) /* around 2^-25 */
        check_float(float_of(b));
    for (uint32_t b = 0x477ff000u - 2; b <= 0x477ff000u + 2; b++) /* around 65520 */
        check_float(float_of(b));
    check_float(0.0f), check_float(-0.0f), check_float(float_of(1)),
        check_float(float_of(0x7f7fffffu));
}

static void all_halves_survive(void **state)
{
    (void)state;
    for (uint32_t v = 0; v < 65536; v++) {
        float h = xd_f16_f32((uint16_t)v), b = xd_bf16_f32((uint16_t)v);
        if (isnan(h))
            assert_true(isnan(xd_f16_f32(xd_f32_f16(h))) && (v & 0x7fff) > 0x7c00);
        else
            assert_int_equal(xd_f32_f16(h), v);
        if (isnan(b))
            assert_true(isnan(xd_bf16_f32(xd_f32_bf16(b))) && (v & 0x7fff) > 0x7f80);
        else
            assert_int_equal(xd_f32_bf16(b), v);
    }
    assert_true(xd_f16_f32(0x0001) == 0x1p-24f && xd_f16_f32(0x7bff) == 65504.0f);
}

static void converts_between_types(void **state)
{
    (void)state;
    static const float x[] = { 0, 1, -2.5f, 65504, 0x1p-14f };
    char               raw[64];
    double             d[5];
    uint16_t           h[5];
    float              back[5];
    for (int i = 0; i < 5; i++)
        d[i] = (double)x[i];
    memcpy(raw + 1, d, sizeof d); /* not aligned */
    xd_convert(h, XD_F16, raw + 1, XD_F64, 5);
    xd_convert(back, XD_F32, h, XD_F16, 5);
    assert_memory_equal(back, x, sizeof x);
    xd_convert(h, XD_BF16, x, XD_F32, 5);
    memcpy(raw + 3, h, sizeof h);
    xd_convert(back, XD_F32, raw + 3, XD_BF16, 5);
    for (int i = 0; i < 5; i++)
        assert_true(fabsf(back[i] - x[i]) <= fabsf(x[i]) / 256);
    xd_convert(back, XD_F32, x, XD_F32, 5);
    assert_memory_equal(back, x, sizeof x);
}

/* Rows become bf16 values as single numbers do, whatever their bits. */
static void rows_become_bf16(void **state)
{
    enum { N = 4099 };
    static uint32_t b[N];
    static uint16_t got[N];
    (void)state;
    for (uint32_t i = 0; i < N; i++)
        b[i] = i < 16 ? 0x7f7ffffcu + i * 0x3fffu : i < 32 ? 0xff800000u + i - 24 : i * 0x9e3779b9u;
    xd_convert(got, XD_BF16, b, XD_F32, N);
    for (int i = 0; i < N; i++)
        assert_int_equal(got[i], xd_f32_bf16(float_of(b[i])));
}

static void words_of_lists(void **state)
{
    (void)state;
    const char list[] = " step block,vae  text ";
    assert_true(xd_list_has(list, "step") && xd_list_has(list, "block") &&
                xd_list_has(list, "vae"));
    assert_true(xd_list_has(list, "text") && xd_list_has_n(list, "vaes", 3));
    assert_false(xd_list_has(list, "") || xd_list_has(list, "ste") || xd_list_has(list, "steps"));
    assert_false(xd_list_has(list, "step block") || xd_list_has(list, " ") ||
                 xd_list_has("", "step"));
}

static void sizes_are_read(void **state)
{
    static const struct {
        const char *text;
        int64_t     bytes;
    } good[] = { { "12GB", 12000000000 }, { "11.5GiB", 12348030976 },
                 { "800 mb", 800000000 }, { "64kB", 64000 },
                 { "1kib", 1024 },        { "2TB", 2000000000000 },
                 { "4096", 4096 },        { "5B", 5 },
                 { "1e9", 1000000000 } };
    static const char *const bad[] = { "",     "GB",  "12G", "12x",  "-1GB", "0",
                                       "1GBx", "inf", "nan", "1e30", "0.1",  "12iGB" };
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        int64_t n = 0;
        assert_int_equal(xd_size_read(good[i].text, "memory", &n, NULL), XD_OK);
        assert_true(n == good[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        xd_err  e = { 0 };
        int64_t n = -1;
        assert_int_equal(xd_size_read(bad[i], "memory", &n, &e), XD_EINVAL);
        assert_true(n == -1 && strstr(e.msg, "memory is \"") == e.msg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_failure_wins),
        cmocka_unit_test(long_messages_are_cut),
        cmocka_unit_test(failures_name_their_file),
        cmocka_unit_test(terminals_get_text),
        cmocka_unit_test(every_status_has_a_name),
        cmocka_unit_test(log_levels),
        cmocka_unit_test(arena_rewinds),
        cmocka_unit_test(arena_keeps),
        cmocka_unit_test(files_get_huge_pages),
        cmocka_unit_test(reads_whole_files),
        cmocka_unit_test(files_and_directories),
        cmocka_unit_test(indices_of_models),
        cmocka_unit_test(cold_bytes_are_counted),
        cmocka_unit_test(output_appears_whole),
        cmocka_unit_test(a_pipe_is_written_and_stays),
        cmocka_unit_test(a_link_stays_and_leads_to_the_file),
        cmocka_unit_test(unwritable_is_found),
        cmocka_unit_test(failed_writes_leave_nothing),
        cmocka_unit_test(killed_writer_leaves_nothing),
        cmocka_unit_test(ranges_cover_once),
        cmocka_unit_test(calls_meet),
        cmocka_unit_test(hook_is_poked),
        cmocka_unit_test(clock_runs),
        cmocka_unit_test(views_of_a_tensor),
        cmocka_unit_test(shapes_as_text),
        cmocka_unit_test(dtypes_have_sizes),
        cmocka_unit_test(halves_round_to_nearest_even),
        cmocka_unit_test(all_halves_survive),
        cmocka_unit_test(words_of_lists),
        cmocka_unit_test(sizes_are_read),
        cmocka_unit_test(converts_between_types),
        cmocka_unit_test(rows_become_bf16),
    };
    return cmocka_run_group_tests_name("base", tests, scratch_set_up, scratch_tear_down);
}
