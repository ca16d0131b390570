/* test_cpus.c - cpus as the system lists them, on made-up machines; and what ranks get of them */
#define _XOPEN_SOURCE 700        /* nftw, mkdtemp, P_tmpdir */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cpus.h"

static char root[512];

static int set_up(void **state)
{
    const char *tmp = getenv("TMPDIR");
    (void)state;
    snprintf(root, sizeof root, "%s/xdit-cpus-XXXXXX", tmp && *tmp ? tmp : P_tmpdir);
    return mkdtemp(root) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static int tear_down(void **state)
{
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* A file below root with its directories. */
static void put(const char *text, const char *fmt, ...)
{
    char    path[1024];
    int     n = snprintf(path, sizeof path, "%s/", root);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(path + n, sizeof path - (size_t)n, fmt, ap);
    va_end(ap);
    FILE *f = fopen(path, "w");
    for (char *p = path + n; !f && (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(path, 0700);
        *p = '/';
    }
    f = f ? f : fopen(path, "w");
    assert_non_null(f);
    assert_true(fprintf(f, "%s\n", text) > 0);
    assert_int_equal(fclose(f), 0);
}

static void put_cpu(int cpu, int socket, int core, const char *siblings, const char *l3)
{
    char text[16];
    snprintf(text, sizeof text, "%d", socket);
    put(text, "cpu/cpu%d/topology/physical_package_id", cpu);
    snprintf(text, sizeof text, "%d", core);
    put(text, "cpu/cpu%d/topology/core_id", cpu);
    if (siblings)
        put(siblings, "cpu/cpu%d/topology/thread_siblings_list", cpu);
    if (l3)
        put(l3, "cpu/cpu%d/cache/index3/shared_cpu_list", cpu);
}

static xd_cpuset set_of(const char *list)
{
    xd_cpuset s;
    assert_true(xd_cpuset_read(&s, list));
    return s;
}

static void is_set(const xd_cpuset *s, const char *list)
{
    char text[256];
    assert_string_equal(xd_cpuset_text(s, text, sizeof text), list);
}

static xd_cpus machine(const char *mask)
{
    xd_cpuset s = set_of(mask);
    xd_cpus   c;
    assert_true(xd_cpus_read(&c, root, &s));
    return c;
}

static void counts(const xd_cpus *c, int n, int cores, int l3s, int nodes, int sockets)
{
    assert_int_equal(c->n, n);
    assert_int_equal(c->cores, cores);
    assert_int_equal(c->l3s, l3s);
    assert_int_equal(c->nodes, nodes);
    assert_int_equal(c->sockets, sockets);
}

static void share_is(const xd_cpus *c, int r, int n, const char *list)
{
    xd_cpuset s;
    int       got = xd_cpus_share(c, r, n, &s);
    is_set(&s, list);
    assert_int_equal(got, xd_cpuset_count(&s));
}

static void spread_is(const xd_cpus *c, int threads, const char *list)
{
    xd_cpuset s;
    int       got = xd_cpus_spread(c, threads, &s);
    assert_int_equal(got, *list ? threads : 0);
    if (got)
        is_set(&s, list);
}

/* Every cpu is in the share of one rank, siblings in the same, shares differ by a core at most;
 * nobody gets any when there are too many ranks. */
static void shares_are_whole(const xd_cpus *c)
{
    for (int n = 1; n <= c->cores; n++) {
        xd_cpuset s, all = { { 0 } };
        int       sum = 0;
        for (int r = 0; r < n; r++) {
            int cores = 0, got = xd_cpus_share(c, r, n, &s);
            sum += got;
            for (int i = 0; i < c->n; i++) {
                int in = xd_cpuset_has(&s, c->v[i].id);
                if (in)
                    xd_cpuset_add(&all, c->v[i].id);
                cores += in && (i == 0 || c->v[i - 1].core != c->v[i].core);
                if (i && c->v[i - 1].core == c->v[i].core)
                    assert_int_equal(in, xd_cpuset_has(&s, c->v[i - 1].id));
            }
            assert_int_equal(cores, c->cores / n + (r < c->cores % n));
        }
        assert_int_equal(sum, c->n);
        assert_int_equal(xd_cpuset_count(&all), c->n);
    }
    share_is(c, 0, c->cores + 1, "");
}

static void lists(void **state)
{
    static const char *const wrong[] = { "x", "1,", "-1", "3-1", "1-", "1;2", "1 2", "0-3:2" };
    xd_cpuset                s;
    char                     text[16];
    (void)state;
    s = set_of("0-3,8,10-11\n");
    assert_int_equal(xd_cpuset_count(&s), 7);
    assert_true(xd_cpuset_has(&s, 8) && !xd_cpuset_has(&s, 9) && !xd_cpuset_has(&s, -1));
    is_set(&s, "0-3,8,10-11");
    s = set_of("63-64,4095,5000");
    is_set(&s, "63-64,4095");
    s = set_of("\n");
    is_set(&s, "");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(xd_cpuset_read(&s, wrong[i]));
    s = set_of("1,3,5,7,9,11,13");
    assert_string_equal(xd_cpuset_text(&s, text, sizeof text), "1,3,5,7,9,11...");
}

/* Two sockets of eight cores with two threads each, cpu i and i + 16; a cache for four cores. */
static void put_two_sockets(void)
{
    static const char *const caches[] = { "0-3,16-19", "4-7,20-23", "8-11,24-27", "12-15,28-31" };
    put("0-31", "cpu/online");
    put("0-7,16-23", "node/node0/cpulist");
    put("8-15,24-31", "node/node1/cpulist");
    put("", "node/node2/cpulist"); /* memory without cpus */
    put("0-2", "node/online");
    for (int i = 0; i < 32; i++) {
        char both[16];
        snprintf(both, sizeof both, "%d,%d", i % 16, i % 16 + 16);
        put_cpu(i, i % 16 / 8, i % 8, both, caches[i % 16 / 4]);
    }
}

static void two_sockets(void **state)
{
    xd_cpuset nodes, some;
    (void)state;
    put_two_sockets();
    xd_cpus c = machine("0-31");
    counts(&c, 32, 16, 4, 2, 2);
    assert_int_equal(c.v[0].id, 0);
    assert_int_equal(c.v[1].id, 16);
    assert_int_equal(c.v[1].smt, 1);
    assert_int_equal(c.v[16].node, 1);
    share_is(&c, 0, 1, "0-31");
    share_is(&c, 0, 2, "0-7,16-23");
    share_is(&c, 1, 2, "8-15,24-31");
    share_is(&c, 2, 4, "8-11,24-27");
    share_is(&c, 0, 3, "0-5,16-21"); /* six cores, five and five */
    share_is(&c, 1, 3, "6-10,22-26");
    share_is(&c, 2, 3, "11-15,27-31");
    shares_are_whole(&c);
    spread_is(&c, 8, "0-7");
    spread_is(&c, 9, "0-8");
    spread_is(&c, 17, "");
    xd_cpus_free(&c);
    c = machine("6-15"); /* the first node has two of these cores */
    spread_is(&c, 3, "8-10");
    counts(&c, 10, 10, 3, 2, 2);
    xd_cpus_free(&c);
    some = set_of("0,20");
    assert_int_equal(xd_cpuset_nodes(&some, root, &nodes), 1);
    some = set_of("7-8");
    assert_int_equal(xd_cpuset_nodes(&some, root, &nodes), 2);
    is_set(&nodes, "0-1");
}

/* Numbers that go round the sockets: shares stay on one. */
static void round_robin(void **state)
{
    (void)state;
    put("0-7", "cpu/online");
    put("0,2,4,6", "node/node0/cpulist");
    put("1,3,5,7", "node/node1/cpulist");
    for (int i = 0; i < 8; i++)
        put_cpu(i, i % 2, i / 2, NULL, NULL);
    xd_cpus c = machine("0-7");
    counts(&c, 8, 8, 0, 2, 2);
    share_is(&c, 0, 2, "0,2,4,6");
    share_is(&c, 1, 2, "1,3,5,7");
    shares_are_whole(&c);
    xd_cpus_free(&c);
}

/* Siblings by their core's number alone. */
static void without_lists(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++)
        put_cpu(i, i / 4, i % 2, NULL, NULL);
    xd_cpus c = machine("0-7");
    counts(&c, 8, 4, 0, 1, 2);
    share_is(&c, 0, 4, "0,2");
    share_is(&c, 3, 4, "5,7");
    xd_cpus_free(&c);
}

static void ten_cores(void **state)
{
    (void)state;
    put("0-9", "cpu/online");
    put("0-9", "node/node0/cpulist");
    for (int i = 0; i < 10; i++) {
        char own[8];
        snprintf(own, sizeof own, "%d", i);
        put_cpu(i, 0, i, own, "0-9");
    }
    xd_cpus c = machine("0-9");
    counts(&c, 10, 10, 1, 1, 1);
    share_is(&c, 0, 3, "0-3");
    share_is(&c, 1, 3, "4-6");
    share_is(&c, 2, 3, "7-9");
    shares_are_whole(&c);
    xd_cpus_free(&c);
}

static void offline(void **state)
{
    (void)state;
    put_two_sockets();
    put("0-3,8-9,16,18-19,24", "cpu/online"); /* 17 and 25 are off, others have lost both */
    xd_cpus c = machine("0-31");
    counts(&c, 10, 6, 2, 2, 2);
    share_is(&c, 0, 2, "0-2,16,18");
    share_is(&c, 1, 2, "3,8-9,19,24");
    shares_are_whole(&c);
    xd_cpus_free(&c);
    c = machine("30-31"); /* none of them is online: who is right is not known */
    counts(&c, 2, 2, 1, 1, 1);
    xd_cpus_free(&c);
}

/* A cpuset that has one sibling of every core, and one that has both of some. */
static void odd_cpus(void **state)
{
    (void)state;
    put("0-7", "cpu/online");
    for (int i = 0; i < 8; i++) {
        char both[16];
        snprintf(both, sizeof both, "%d-%d", i / 2 * 2, i / 2 * 2 + 1);
        put_cpu(i, 0, i / 2, both, i < 4 ? "0-3" : "4-7");
    }
    xd_cpus c = machine("1,3,5,7");
    counts(&c, 4, 4, 2, 1, 1);
    assert_int_equal(c.v[0].smt, 0);
    share_is(&c, 0, 2, "1,3");
    share_is(&c, 1, 3, "5");
    spread_is(&c, 3, "1,3,5");
    shares_are_whole(&c);
    xd_cpus_free(&c);
    c = machine("1,4-5");
    counts(&c, 3, 2, 2, 1, 1);
    share_is(&c, 0, 2, "1");
    share_is(&c, 1, 2, "4-5");
    shares_are_whole(&c);
    xd_cpus_free(&c);
}

static void one_core(void **state)
{
    (void)state;
    put("0", "cpu/online");
    put_cpu(0, 0, 0, "0", NULL);
    xd_cpus c = machine("0");
    counts(&c, 1, 1, 0, 1, 1);
    share_is(&c, 0, 1, "0");
    share_is(&c, 0, 2, "");
    share_is(&c, 1, 2, "");
    spread_is(&c, 1, "0");
    spread_is(&c, 2, "");
    xd_cpus_free(&c);
}

/* Nothing is known but the mask; and files that are no lists. */
static void no_system(void **state)
{
    xd_cpuset nodes, some = set_of("0-3"), none = { { 0 } };
    xd_cpus   c;
    (void)state;
    c = machine("2-5");
    counts(&c, 4, 4, 0, 1, 1);
    share_is(&c, 0, 2, "2-3");
    share_is(&c, 1, 2, "4-5");
    xd_cpus_free(&c);
    assert_int_equal(xd_cpuset_nodes(&some, root, &nodes), 0);
    assert_false(xd_cpus_read(&c, root, &none));
    put("all", "cpu/online");
    put("some", "node/node0/cpulist");
    put("7", "node/nodes/cpulist");
    put_cpu(2, -1, -1, "none", "3-1");
    put("x", "cpu/cpu3/topology/physical_package_id");
    put_cpu(4, 99999, 0, "5", ""); /* lists without the cpu itself */
    c = machine("2-5");
    counts(&c, 4, 4, 0, 1, 1);
    xd_cpus_free(&c);
}

/* This machine: a set is taken and given back; memory that is to be interleaved is memory. */
static void here(void **state)
{
    xd_cpuset mine, one = { { 0 } }, now, nodes = set_of("0-1");
    xd_cpus   c;
    (void)state;
    assert_true(xd_cpuset_mine(&mine));
    assert_true(xd_cpus_read(&c, NULL, &mine));
    assert_in_range(c.cores, 1, c.n);
    shares_are_whole(&c);
    xd_cpuset_add(&one, c.v[c.n - 1].id);
    xd_cpus_free(&c);
    assert_true(xd_cpuset_bind(&one));
    assert_true(xd_cpuset_mine(&now));
    assert_memory_equal(&now, &one, sizeof one);
    assert_true(xd_cpuset_bind(&mine));
    one = (xd_cpuset){ { 0 } };
    assert_false(xd_cpuset_bind(&one));
    char *p = malloc(1 << 20);
    assert_non_null(p);
    xd_interleave(p + 100, 1 << 19, &nodes);
    memset(p, 7, 1 << 20);
    assert_int_equal(p[(1 << 20) - 1], 7);
    free(p);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists), CASE(two_sockets),      CASE(round_robin), CASE(without_lists),
        CASE(ten_cores),         CASE(offline),          CASE(odd_cpus),    CASE(one_core),
        CASE(no_system),         cmocka_unit_test(here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
