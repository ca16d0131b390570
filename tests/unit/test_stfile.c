/* test_stfile.c - checkpoints larger than the address space: what is mapped, what is read, when */
#define _DEFAULT_SOURCE /* P_tmpdir, mincore */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/readahead.h"
#include "base/json.h"
#include "base/log.h"
#include "checkpoint.h"
#include "published.h"
#include "scratch.h"

static int nmap;

static void hear(void *cookie, int level, const char *line)
{
    (void)cookie;
    nmap += level == XD_LOG_WARN && strstr(line, "cannot map");
}

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define ASAN 1
#endif

#ifdef ASAN
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* Field i of statm in bytes: 0 address space, 2 resident pages of files. */
static size_t statm(int i)
{
    unsigned long long v[3] = { 0 };
    FILE              *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%llu %llu %llu", &v[0], &v[1], &v[2]), 3);
    fclose(f);
    return (size_t)v[i] * (size_t)sysconf(_SC_PAGESIZE);
}

static void done_gives_pages_back(void **state)
{
    (void)state;
    enum { MB = 1 << 20, N = 32 * MB };
    char      header[200];
    xd_tensor t;
    xd_err    e = { 0 };
    size_t    sum = 0;
    snprintf(header, sizeof header,
             "{" T("a", "U8", "%d", "0,%d") "," T("b", "U8", "5", "%d,%d") "}", N, N, N, N + 5);
    put_st("big.safetensors", header, N + 5);
    xd_st *s = opened("big.safetensors");
    size_t before = statm(2), space = statm(0);
    assert_int_equal(xd_st_get(s, 0, &t, &e), XD_OK);
    for (int i = 0; i < N; i++)
        sum += ((unsigned char *)t.p)[i];
    size_t during = statm(2);
    assert_int_equal(sum, (size_t)N / 256 * (255 * 128));
    assert_true(during > before + N - MB);
    xd_st_done(s, 0);
    assert_true(statm(2) < before + MB);
    assert_true(statm(0) < space + MB);
    assert_int_equal(xd_st_get(s, 1, &t, &e), XD_OK); /* a tensor alone costs its own pages */
    assert_memory_equal(t.p, "\0\1\2\3\4", 5);
    assert_int_equal(xd_st_get(s, 0, &t, &e), XD_OK);
    assert_true(statm(0) > space + N - MB);
    xd_st_release(s);
    assert_true(statm(0) < space + MB);
    xd_st_close(&s);
    scratch_clean();
}

static void past_gives_pages_back(void **state)
{
    (void)state;
    enum { MB = 1 << 20, N = 8 * MB };
    char      header[100];
    xd_tensor t;
    xd_err    e = { 0 };
    size_t    sum = 0, again = 0;
    snprintf(header, sizeof header, "{" T("a", "U8", "%d", "0,%d") "}", N, N);
    put_st("past.safetensors", header, N);
    xd_st *s = opened("past.safetensors");
    assert_int_equal(xd_st_get(s, 0, &t, &e), XD_OK);
    const unsigned char *p = t.p;
    size_t               before = statm(2);
    for (int i = 0; i < N; i++)
        sum += p[i];
    assert_true(statm(2) > before + N - MB);
    xd_st_past(s, 0, p + 1, N - 2);
    xd_st_past(s, 0, p + N / 2, 100); /* less than a page: nothing */
    assert_true(statm(2) < before + MB);
    for (int i = 0; i < N; i++)
        again += p[i];
    assert_int_equal(again, sum);
    xd_st_close(&s);
    scratch_clean();
}

/* Waits until so many bytes have been asked for, then looks whether it stays so. */
static void asked_for(xd_readahead *a, size_t n)
{
    for (int i = 0; i < 5000 && xd_readahead_requested(a) < n; i++)
        usleep(1000);
    usleep(20000);
    assert_int_equal(xd_readahead_requested(a), n);
}

static size_t cached(int fd, size_t bytes)
{
    static unsigned char v[8192];
    size_t               page = (size_t)sysconf(_SC_PAGESIZE), n = 0;
    void                *p = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(p != MAP_FAILED && bytes / page <= sizeof v);
    assert_int_equal(mincore(p, bytes, v), 0);
    for (size_t i = 0; i < bytes / page; i++)
        n += v[i] & 1;
    munmap(p, bytes);
    return n * page;
}

/* Two ranges of a file that is not in memory: no more than may be, then as much as has been
 * used. */
static void files_are_read_ahead(void **state)
{
    (void)state;
    enum { MB = 1 << 20, N = 24 * MB, MOST = 8 * MB };
    xd_canceller stop = { 0 };
    char        *data = calloc(1, N);
    scratch_put("ahead", data, N);
    free(data);
    int fd = open(in_scratch("ahead"), O_RDONLY);
    assert_true(fd >= 0);
    fsync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    xd_readahead *a = xd_readahead_open(MOST, NULL);
    assert_non_null(a);
    xd_readahead_add(a, fd, 100, 5 * MB);
    xd_readahead_add(a, fd, 100 + 5 * MB, MB); /* behind the first */
    xd_readahead_add(a, fd, 10 * MB, 14 * MB);
    assert_int_equal(xd_readahead_bytes(a), 20 * MB);
    xd_readahead_start(a);
    asked_for(a, MOST);
    xd_readahead_used(a, 6 * MB);
    xd_readahead_used(a, 3 * MB); /* it is behind that already */
    asked_for(a, 14 * MB);
    xd_readahead_used(a, 20 * MB);
    asked_for(a, 20 * MB);
    for (int i = 0; i < 5000 && cached(fd, N) < 19 * MB; i++)
        usleep(1000);
    assert_true(cached(fd, N) >= 19 * MB);
    xd_readahead_close(&a);
    assert_null(a);

    xd_cancel_set(&stop, NULL);
    a = xd_readahead_open(MOST, &stop); /* cancelled */
    xd_readahead_add(a, fd, 0, N);
    xd_readahead_start(a);
    asked_for(a, 0);
    xd_readahead_close(&a);
    a = xd_readahead_open(MOST, NULL); /* closed while it waits */
    xd_readahead_add(a, fd, 0, N);
    xd_readahead_start(a);
    asked_for(a, MOST);
    xd_readahead_close(&a);
    xd_readahead_close(&a);
    close(fd);
    scratch_clean();
}

static void shrunk_files_are_refused(void **state)
{
    (void)state;
    xd_tensor t;
    xd_err    e = { 0 };
    put_st("shrunk.safetensors", "{" T("a", "U8", "9000", "0,9000") "}", 9000);
    xd_st *s = opened("shrunk.safetensors");
    assert_int_equal(xd_st_get(s, 0, &t, &e), XD_OK);
    xd_st_done(s, 0);
    assert_int_equal(truncate(in_scratch("shrunk.safetensors"), 5000), 0);
    assert_int_equal(xd_st_get(s, 0, &t, &e), XD_EIO);
    assert_non_null(strstr(e.msg, "has shrunk from "));
    assert_non_null(strstr(e.msg, " to 5000 bytes"));
    xd_st_close(&s);
    scratch_clean();
}

/* In a child that may not map anything more: tensors are read into memory that malloc has already,
 * twice the same one, and that is said once. */
static int use_read(void)
{
    enum { HAVE = 1 << 20 };
    xd_tensor t, u;
    xd_err    e = { 0 };
    mallopt(M_MMAP_THRESHOLD, 2 * HAVE);
    mallopt(M_TRIM_THRESHOLD, 2 * HAVE);
    free(malloc(HAVE));
    xd_log_enter(&(xd_logger){ hear, NULL, XD_LOG_WARN });
    nmap = 0;
    xd_st        *s = opened("read.safetensors");
    struct rlimit r = { statm(0), statm(0) };
    if (setrlimit(RLIMIT_AS, &r) != 0)
        return 1;
    for (int i = 0; i < 2; i++) {
        if (xd_st_get(s, 0, &t, &e) != XD_OK || xd_st_get(s, 0, &u, &e) != XD_OK || t.p != u.p)
            return 2;
        if (nmap != 1)
            return 3;
        xd_st_done(s, 0);
        for (int k = 0; k < 9000; k++)
            if (((unsigned char *)t.p)[k] != k % 256)
                return 4;
        xd_st_done(s, 0);
    }
    xd_st_close(&s);
    return 0;
}

/* A million values that there is no memory for are no mistake of the text. */
static int starve_json(void)
{
    enum { N = 1000000 };
    char         *text = malloc(2 * N + 2);
    xd_err        e = { 0 };
    xd_json      *j;
    struct rlimit r = { statm(0) + 8 * N, statm(0) + 8 * N };
    for (int i = 0; text && i < N; i++)
        memcpy(text + 2 * i, i ? ",7" : "[7", 2);
    memcpy(text + 2 * N, "]", 2);
    if (setrlimit(RLIMIT_AS, &r) != 0)
        return 1;
    return xd_json_parse(&j, text, 2 * N + 1, "list", &e) != XD_ENOMEM ||
                   !strstr(e.msg, "list: no memory for")
               ? 2
               : 0;
}

static void lack_of_memory_is_no_mistake(void **state)
{
    (void)state;
    int status = -1;
    if (SANITIZED) {
        print_message("# skipped: the sanitizer's malloc always maps\n");
        return;
    }
    pid_t pid = fork();
    if (pid == 0)
        _exit(starve_json());
    waitpid(pid, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void what_cannot_be_mapped_is_read(void **state)
{
    (void)state;
    int status = -1;
    if (SANITIZED) {
        print_message("# skipped: the sanitizer's malloc always maps\n");
        return;
    }
    put_st("read.safetensors", "{" T("a", "U8", "9000", "0,9000") "}", 9000);
    pid_t pid = fork();
    if (pid == 0)
        _exit(use_read());
    waitpid(pid, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    scratch_clean();
}

/* A sparse file of tensors of `numbers[i]` F32 each, numbered i in their first and last element,
 * padded to `size` bytes when that is not 0. Returns its size, 0 when it cannot be made. */
static size_t put_sparse(const char *name, int n, const int64_t *numbers, size_t size)
{
    xd_text_buf b = { 0 };
    size_t      at = 0;
    xd_buf_add(&b, "{");
    for (int i = 0; i < n; i++) {
        size_t bytes = (size_t)numbers[i] * 4;
        xd_buf_add(&b, "%s" T("t%05d", "F32", "%lld", "%zu,%zu"), i ? "," : "", i,
                   (long long)numbers[i], at, at + bytes);
        at += bytes;
    }
    xd_buf_add(&b, "}");
    put_st(name, b.p, 0);
    int    fd = open(in_scratch(name), O_WRONLY);
    size_t pos = 8 + b.len, end = size ? size : pos + at;
    xd_buf_free(&b);
    if (fd < 0 || ftruncate(fd, (off_t)end) != 0) {
        close(fd);
        return 0;
    }
    for (int i = 0; i < n; pos += (size_t)numbers[i++] * 4) {
        float v = (float)i;
        if (pwrite(fd, &v, 4, (off_t)pos) != 4 ||
            pwrite(fd, &v, 4, (off_t)(pos + (size_t)numbers[i] * 4 - 4)) != 4)
            end = 0;
    }
    close(fd);
    return end;
}

enum { GB = 1 << 30 };

#ifdef ASAN
/* malloc without memory gives NULL under the sanitizer too. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char                                        *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}
#endif

/* Takes tensor i, which is filled as put_sparse does it; 0, or the number of what went wrong. */
static int use_tensor(xd_st *s, int i, int64_t number)
{
    xd_tensor t, u;
    xd_err    e = { 0 };
    xd_status st = xd_st_get(s, i, &t, &e);
    if ((size_t)number * 4 > GB / 2)
        return st == XD_ENOMEM && strstr(e.msg, "no memory for the ") ? 0 : 5;
    if (st != XD_OK || xd_st_get(s, i, &u, &e) != XD_OK || u.p != t.p)
        return 6;
    xd_st_done(s, i);
    float first, last; /* the tensor may lie at an odd address */
    memcpy(&first, t.p, sizeof first);
    memcpy(&last, (const char *)t.p + (number - 1) * 4, sizeof last);
    if (first != (float)i || last != (float)i)
        return 7;
    xd_st_done(s, i);
    return 0;
}

/* In a child: takes tensors of a file that is far larger than the 512 MB more of address space that
 * are allowed: large ones until `most` bytes are read, small ones all. */
static int use_large(const char *name, int n, const int64_t *numbers, size_t most)
{
    size_t        limit = statm(0) + GB / 2, sum = 0;
    xd_st        *s;
    xd_err        e = { 0 };
    struct rlimit r = { limit, limit };
    xd_log_enter(&(xd_logger){ hear, NULL, XD_LOG_WARN });
    if (setrlimit(RLIMIT_AS, &r) != 0)
        return 1;
    nmap = 0;
    for (int again = 0; again < 2; again++) {
        if (xd_st_open(&s, in_scratch(name), "model", &e) != XD_OK)
            return 2;
        if (!xd_st_mapped(s) || xd_st_count(s) != n || nmap)
            return 3;
        for (int i = 0; i < n; i++) {
            int large = numbers[i] > 1000000;
            sum += (size_t)numbers[i] * 4;
            int bad = large && sum > most ? 0 : use_tensor(s, i, numbers[i]);
            if (bad)
                return bad;
        }
        if (!xd_st_hash(s))
            return 4;
        xd_st_close(&s);
    }
    return 0;
}

static int child(const char *name, int n, const int64_t *numbers, size_t most)
{
    int   status = -1;
    pid_t pid = fork();
    if (pid == 0)
        _exit(use_large(name, n, numbers, most));
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/* The size of the real complaint "Unable to mmap 9989150328 bytes": a shard of a T5 encoder. */
static void files_may_exceed_the_address_space(void **state)
{
    (void)state;
    static const int64_t numbers[] = { 5, 50000000, 1, 50000000, 300000001, 50000000, 7 };
    enum { N = sizeof numbers / sizeof *numbers };
    if (put_sparse("shard.safetensors", N, numbers, 9989150328) != 9989150328) {
        print_message("# skipped: no sparse file of 9989150328 bytes can be made here\n");
        scratch_clean();
        return; /* cmocka's skip() is "not ok" in TAP */
    }
    assert_int_equal(child("shard.safetensors", N, numbers, (size_t)2 * GB), 0);
    scratch_clean();
}

/* Fills numbers[] from the "name 12x34" lines of a tensors.txt up to `limit` bytes of F32. */
static int read_list(FILE *f, int64_t *numbers, int max, size_t limit)
{
    char   name[400], shape[100];
    int    n = 0;
    size_t sum = 0;
    while (n < max && fscanf(f, "%399s %99s", name, shape) == 2) {
        int64_t count = 1;
        for (char *p = shape; p; p = strchr(p, 'x') ? strchr(p, 'x') + 1 : NULL)
            count *= atoll(p);
        if (sum + (size_t)count * 4 > limit)
            break;
        sum += (size_t)count * 4;
        numbers[n++] = count;
    }
    return n;
}

static void a_real_shard_is_read(void **state)
{
    (void)state;
    static const char name[] = "PixArt-alpha/PixArt-XL-2-1024-MS/text_encoder/tensors.txt";
    static int64_t    numbers[1000];
    const char       *path = published_path(name);
    if (!path)
        return;
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    int n = read_list(f, numbers, 1000, 9989150328);
    fclose(f);
    assert_true(n > 100);
    size_t size = put_sparse("real.safetensors", n, numbers, 0);
    if (!size) {
        print_message("# skipped: no sparse file of 10 GB can be made here\n");
        scratch_clean();
        return;
    }
    assert_true(size > (size_t)9 * GB);
    assert_int_equal(child("real.safetensors", n, numbers, (size_t)GB / 4), 0);
    scratch_clean();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(done_gives_pages_back),
        cmocka_unit_test(past_gives_pages_back),
        cmocka_unit_test(files_are_read_ahead),
        cmocka_unit_test(shrunk_files_are_refused),
        cmocka_unit_test(lack_of_memory_is_no_mistake),
        cmocka_unit_test(what_cannot_be_mapped_is_read),
        cmocka_unit_test(files_may_exceed_the_address_space),
        cmocka_unit_test(a_real_shard_is_read),
    };
    return cmocka_run_group_tests_name("stfile", tests, scratch_set_up, scratch_tear_down);
}
