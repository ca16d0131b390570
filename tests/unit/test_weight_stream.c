/* test_weight_stream.c - which blocks are streamed, and that each finds its own weights */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "exec/weight_stream.h"

enum { MOST = 24, UNIT = 1024, FIRST = 3 };

static size_t  sizes[MOST];
static int     fetches, loaded;
static int64_t pinned;

static xd_block_sizes blocks_of(int n, size_t rest)
{
    xd_block_sizes w = { rest, FIRST, n, sizes };
    for (int i = 0; i < n; i++)
        w.all += sizes[i];
    return w;
}

/* ---- the plan ----------------------------------------------------------------------------- */

static void what_fits_is_not_streamed(void **state)
{
    xd_stream_plan p;
    (void)state;
    for (int i = 0; i < 8; i++)
        sizes[i] = 10 * UNIT;
    xd_block_sizes w = blocks_of(8, 5 * UNIT);
    assert_int_equal(xd_stream_plan_make(&p, &w, 85 * UNIT, 0), 1);
    assert_int_equal(p.streamed, 0);
    assert_int_equal(xd_stream_plan_bytes(&p, &w), 85 * UNIT);
    assert_int_equal(xd_stream_plan_make(&p, &w, 85 * UNIT - 1, 0), 1);
    assert_int_equal(p.streamed, 4); /* three of them in slots: one block of memory is saved */
    assert_int_equal(p.slots, 3);
    assert_int_equal(xd_stream_plan_bytes(&p, &w), 75 * UNIT);
    assert_int_equal(p.host, 40 * UNIT);
}

static void fewer_slots_before_a_refusal(void **state)
{
    xd_stream_plan p;
    (void)state;
    for (int i = 0; i < 8; i++)
        sizes[i] = 10 * UNIT;
    xd_block_sizes   w = blocks_of(8, 5 * UNIT);
    static const int slots[] = { 1, 1, 2, 3 };
    for (int k = 0; k < 4; k++) {
        int fits = xd_stream_plan_make(&p, &w, (5 + 10 * k) * UNIT, 0);
        assert_int_equal(fits, k > 0);
        assert_int_equal(p.slots, slots[k]);
        assert_int_equal(p.streamed, 8);
    }
}

static void all_blocks_if_wanted(void **state)
{
    xd_stream_plan p;
    (void)state;
    for (int i = 0; i < 2; i++)
        sizes[i] = UNIT;
    xd_block_sizes w = blocks_of(2, UNIT);
    assert_int_equal(xd_stream_plan_make(&p, &w, 1e18, 1), 1);
    assert_int_equal(p.streamed, 2);
    assert_int_equal(p.slots, 2);
    w = blocks_of(0, UNIT); /* a stage without blocks */
    xd_stream_plan_make(&p, &w, 1e18, 1);
    assert_int_equal(p.streamed, 0);
    assert_int_equal(xd_stream_plan_bytes(&p, &w), UNIT);
}

/* Every limit, blocks of several sizes: never above it where it fits, spread over the network. */
static void plans_keep_the_limit(void **state)
{
    xd_stream_plan p;
    (void)state;
    for (int n = 1; n <= MOST; n++) {
        for (int i = 0; i < n; i++)
            sizes[i] = (size_t)(1 + (i * 7 + n) % 5) * UNIT;
        xd_block_sizes w = blocks_of(n, 3 * UNIT);
        for (size_t have = 0; have <= w.all; have += UNIT) {
            int    fits = xd_stream_plan_make(&p, &w, (double)have, 0), count = 0;
            size_t host = 0;
            for (int i = 0; i < n; i++)
                if (xd_stream_plan_has(&p, n, i))
                    count++, host += sizes[i];
            assert_true(!fits || xd_stream_plan_bytes(&p, &w) <= have);
            assert_int_equal(count, p.streamed);
            assert_int_equal(host, p.host);
            assert_int_equal(p.streamed ? p.resident + host : w.all, w.all);
        }
    }
}

/* ---- the stream, on a device that copies at once --------------------------------------------- */

static void *get(xd_dev *d, size_t bytes)
{
    (void)d;
    return aligned_alloc(XD_ALIGN, (bytes + XD_ALIGN - 1) / XD_ALIGN * XD_ALIGN);
}

static void put(xd_dev *d, void *p, size_t bytes)
{
    (void)d, (void)bytes;
    free(p);
}

static void await_all(xd_dev *d, xd_stream *s)
{
    (void)d, (void)s;
}

static xd_status download(xd_dev *d, xd_stream *s, void *to, const void *from, size_t bytes)
{
    (void)d, (void)s;
    memcpy(to, from, bytes);
    return XD_OK;
}

static void *pin(xd_dev *d, size_t bytes)
{
    (void)d;
    pinned++;
    return malloc(bytes);
}

static void unpin(xd_dev *d, void *p)
{
    (void)d;
    pinned--;
    free(p);
}

static xd_status fetch(xd_dev *d, int place, void *to, const void *from, size_t bytes)
{
    (void)d;
    assert_in_range(place, 0, XD_FETCH_PLACES - 1);
    fetches++;
    memcpy(to, from, bytes);
    return XD_OK;
}

static xd_status fetched(xd_dev *d, int place)
{
    (void)d, (void)place;
    return XD_OK;
}

static const xd_dev_ops mem = { .get = get,
                                .put = put,
                                .sync = await_all,
                                .download = download,
                                .pin = pin,
                                .unpin = unpin,
                                .fetch = fetch,
                                .fetched = fetched };

/* Loads n blocks, whose bytes are their numbers; at[i]: where block i lies. */
static void load(xd_weight_stream *s, xd_store *store, int first, int n, unsigned char **at)
{
    xd_err  e = { 0 };
    xd_decl d = { .err = &e };
    int     mine;
    for (int i = 0; i < n; i++) {
        xd_weight_stream_enter(s, &d, first + i);
        assert_non_null(at[i] = xd_store_get(store, sizes[i], &mine));
        memset(at[i], mine ? i + 1 : 0, sizes[i]);
        loaded += mine;
        xd_weight_stream_leave(s, &d, first + i);
        assert_int_equal(e.code, XD_OK);
    }
}

static void is_there(unsigned char *const *at, int i)
{
    assert_int_equal(at[i][0], i + 1);
    assert_int_equal(at[i][sizes[i] - 1], i + 1);
}

static void every_block_finds_its_weights(void **state)
{
    xd_dev dev = { .mem = &mem, .name = "test" };
    (void)state;
    for (int n = 1; n <= 9; n++)
        for (size_t have = 0; have <= (size_t)(6 * n + 1) * UNIT; have += UNIT) {
            for (int i = 0; i < n; i++)
                sizes[i] = (size_t)(1 + (5 * i + n) % 6) * UNIT;
            xd_block_sizes    w = blocks_of(n, 0);
            xd_stream_plan    p;
            xd_store         *store;
            xd_weight_stream *s = NULL;
            xd_exec           x = { .dev = &dev };
            xd_err            e = { 0 };
            unsigned char    *at[MOST];
            xd_stream_plan_make(&p, &w, (double)have, 0);
            if (!p.streamed)
                continue;
            assert_int_equal(xd_store_open(&store, &dev, &e), XD_OK);
            assert_int_equal(xd_weight_stream_open(
                                 &s, &p, &w, &(xd_stream_memory){ &dev, store, NULL, 0, 1 }, &e),
                             XD_OK);
            load(s, store, FIRST, n, at);
            assert_int_equal(xd_store_bytes(store), xd_stream_plan_bytes(&p, &w));
            /* Three runs, the second of which ends early. */
            for (int run = 0; run < 3; run++)
                for (int i = 0; i < (run == 1 ? n / 2 : n); i++) {
                    xd_weight_stream_begin(s, &x, FIRST + i);
                    is_there(at, i);
                }
            fetches = 0; /* in a steady state each streamed block is copied once a run */
            for (int i = 0; i < 2 * n; i++)
                xd_weight_stream_begin(s, &x, FIRST + i % n), is_there(at, i % n);
            assert_int_equal(fetches, 2 * p.streamed);
            xd_weight_stream_close(&s);
            xd_store_close(&store);
        }
    assert_int_equal(pinned, 0);
}

/* Three processes, each of which loads a third of the streamed blocks. */
static void processes_share_a_copy(void **state)
{
    enum { N = 8, PARTS = 3 };
    xd_dev dev = { .mem = &mem, .name = "test" };
    (void)state;
    for (int i = 0; i < N; i++)
        sizes[i] = (size_t)(1 + i % 3) * UNIT;
    for (size_t have = 0; have < 2 * N * UNIT; have += UNIT) {
        xd_block_sizes    w = blocks_of(N, 0);
        xd_stream_plan    p;
        xd_store         *store[PARTS];
        xd_weight_stream *s[PARTS] = { NULL };
        xd_exec           x = { .dev = &dev };
        xd_err            e = { 0 };
        unsigned char    *at[PARTS][N];
        xd_stream_plan_make(&p, &w, (double)have, 0);
        char *copy = malloc(p.host + 1);
        assert_non_null(copy);
        loaded = 0;
        for (int k = 0; k < PARTS && p.streamed; k++) {
            assert_int_equal(xd_store_open(&store[k], &dev, &e), XD_OK);
            assert_int_equal(
                xd_weight_stream_open(&s[k], &p, &w,
                                      &(xd_stream_memory){ &dev, store[k], copy, k, PARTS }, &e),
                XD_OK);
            load(s[k], store[k], FIRST, N, at[k]);
        }
        if (p.streamed)
            assert_int_equal(loaded, p.streamed + PARTS * (N - p.streamed));
        for (int i = 0; i < 2 * N * PARTS && p.streamed; i++) {
            xd_weight_stream_begin(s[i / 2 / N], &x, FIRST + i % N);
            is_there(at[i / 2 / N], i % N);
        }
        for (int k = 0; k < PARTS && p.streamed; k++) {
            xd_weight_stream_close(&s[k]);
            xd_store_close(&store[k]);
        }
        free(copy);
    }
    assert_int_equal(pinned, 0); /* the stream has not pinned anything */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_fits_is_not_streamed),
        cmocka_unit_test(fewer_slots_before_a_refusal),
        cmocka_unit_test(all_blocks_if_wanted),
        cmocka_unit_test(plans_keep_the_limit),
        cmocka_unit_test(every_block_finds_its_weights),
        cmocka_unit_test(processes_share_a_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
