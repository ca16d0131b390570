/* test_zero_copy.c - what ranks of a host show, offer and add up in memory that they
 * window_open, and what goes round a ring: the numbers and the counted bytes are those of
 * messages, on every rank that in_window or on some.
 *
 *   mpirun -n N test_zero_copy */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"

enum { MAXRANKS = 16, WINDOWS = 8 << 20, WIDE = 5, PART = 3 };

static int failures, me;

#define CHECK(x)                                                              \
    do {                                                                      \
        if (!(x)) {                                                           \
            failures++;                                                       \
            printf("rank %d: %s:%d: %s\n", me, __FILE__, __LINE__, #x);       \
        }                                                                     \
    } while (0)

static xd_status end(xd_comm *c, xd_req r)
{
    return c->ops->wait(c, &r, 1);
}

static float number(int from, int to, int64_t i)
{
    return (float)((i * 7919 + from * 104729 + to * 523) % 20011 - 10000) / 3 *
           ((i + from) % 3 ? 1 : 1e6f);
}

/* Rows that rank i has for rank j: uneven, some none. */
static int64_t rows_of(int i, int j, int scale)
{
    return (int64_t)((i * 3 + j * 2) % 4) * scale;
}

static void write(xd_tensor t, int from, int to)
{
    for (int64_t i = 0; i < t.d[0]; i++)
        for (int64_t k = 0; k < t.d[1]; k++)
            ((float *)t.p)[i * t.s[0] + k] = number(from, to, i * PART + k);
}

static int holds(xd_tensor t, int from, int to)
{
    int ok = t.d[1] == PART;
    for (int64_t i = 0; i < t.d[0]; i++)
        for (int64_t k = 0; k < PART; k++)
            ok &= ((float *)t.p)[i * t.s[0] + k] == number(from, to, i * PART + k);
    return ok;
}

/* Views [n,PART] of rows of WIDE numbers in `mem`: for rank r as many as it gets of me, or gives
 * me. Zeros. */
static void cut(const xd_comm *c, float *mem, int scale, int gets, xd_tensor *t)
{
    for (int r = 0; r < c->size; r++) {
        int64_t n = gets ? rows_of(r, c->rank, scale) : rows_of(c->rank, r, scale);
        memset(mem, 0, (size_t)(n * WIDE) * sizeof *mem);
        t[r] = xd_cols(xd_view2(mem, XD_F32, n, WIDE), 1, PART);
        mem += n * WIDE;
    }
}

static int in_window(const xd_comm *c, int some, int r)
{
    return r == c->rank || !some || r % 2 == 0;
}

/* `some`: ranks with odd numbers give from memory of their own. */
static void test_show(xd_comm *c, float *mem, float *room, int some)
{
    for (int scale = 1; scale <= 400; scale *= 20) {
        xd_tensor give[MAXRANKS], get[MAXRANKS], was[MAXRANKS];
        int64_t   before = c->traffic->bytes, want = 0;
        cut(c, mem, scale, 0, give);
        cut(c, room, scale, 1, get);
        for (int r = 0; r < c->size; r++) {
            write(give[r], c->rank, r);
            want += r == c->rank ? 0 : give[r].d[0] * PART * 4;
        }
        memcpy(was, get, sizeof was);
        CHECK(end(c, c->ops->exchange_views(c, give, get)) == XD_OK);
        for (int r = 0; r < c->size; r++) {
            CHECK(holds(get[r], r, c->rank));
            CHECK(!was[r].d[0] || (get[r].p != was[r].p) == in_window(c, some, r));
        }
        CHECK(c->traffic->bytes - before == want);
        c->ops->barrier(c);
    }
}

/* Places in my memory, which the others fill where they can. */
static void test_offer(xd_comm *c, float *mem, float *room, int some)
{
    for (int scale = 1; scale <= 400; scale *= 20) {
        xd_tensor give[MAXRANKS], get[MAXRANKS], was[MAXRANKS];
        int64_t   before = c->traffic->bytes, want = 0;
        cut(c, mem, scale, 0, give);
        cut(c, room, scale, 1, get);
        memcpy(was, get, sizeof was);
        CHECK(end(c, c->ops->exchange_places(c, give, get)) == XD_OK);
        CHECK(c->traffic->bytes == before);
        for (int r = 0; r < c->size; r++) {
            CHECK(!was[r].d[0] || (get[r].p != was[r].p) == in_window(c, some, r));
            write(get[r], c->rank, r);
            want += r == c->rank ? 0 : get[r].d[0] * PART * 4;
        }
        CHECK(end(c, c->ops->exchange(c, get, give)) == XD_OK);
        for (int r = 0; r < c->size; r++)
            CHECK(holds(give[r], r, c->rank));
        CHECK(c->traffic->bytes - before == want);
        c->ops->barrier(c);
    }
}

static void test_sum(xd_comm *c, float *mem, float *plain)
{
    static const int64_t n[] = { 0, 1, 2049, 40009, 300001 };
    for (int i = 0; i < 5; i++)
        for (int op = XD_SUM; op <= XD_MIN; op++) {
            int64_t before = c->traffic->bytes;
            for (int64_t k = 0; k < n[i]; k++)
                mem[k] = plain[k] = number(c->rank, 0, k);
            CHECK(end(c, c->ops->allreduce(c, xd_view(plain, XD_F32, 1, &n[i]), (xd_red)op)) ==
                  XD_OK);
            int64_t middle = c->traffic->bytes;
            CHECK(end(c, c->ops->allreduce(c, xd_view(mem, XD_F32, 1, &n[i]), (xd_red)op)) ==
                  XD_OK);
            CHECK(c->traffic->bytes - middle == middle - before);
            CHECK(memcmp(mem, plain, (size_t)n[i] * sizeof *mem) == 0);
        }
}

/* Parts of uneven length, one of them empty, round the ring; the next rank's own is not sent to
 * it. */
static void test_circulate(xd_comm *c, float *mem)
{
    for (int64_t scale = 1; scale <= 4000; scale *= 20) {
        xd_tensor part[MAXRANKS];
        float    *at = mem;
        int64_t   before = c->traffic->bytes, want = 0;
        for (int r = 0; r < c->size; r++) {
            int64_t n = (r * 3 + 1) % 4 * scale;
            part[r] = xd_view(at, XD_F32, 1, &n);
            for (int64_t i = 0; i < n; i++)
                at[i] = r == c->rank ? number(r, 0, i) : 0;
            want += r == (c->rank + 1) % c->size ? 0 : 4 * n;
            at += n;
        }
        CHECK(end(c, c->ops->circulate(c, part)) == XD_OK);
        for (int r = 0; r < c->size; r++)
            for (int64_t i = 0; i < part[r].d[0]; i++)
                CHECK(((float *)part[r].p)[i] == number(r, 0, i));
        CHECK(c->traffic->bytes - before == want);
    }
}

static void test_windows(xd_comm *c, xd_comm *h, float *own, float *room)
{
    for (int some = 0; some < 2; some++) {
        float *p = h->ops->window_open(h, WINDOWS), *mem = some && c->rank % 2 ? own : p;
        if (!p) {
            if (c->rank == 0)
                printf("# skipped: this system has no memory between ranks\n");
            return;
        }
        CHECK(c->ops->in_window(c, p + 5) && !c->ops->in_window(c, own));
        test_show(c, mem, room, some);
        test_offer(c, mem, room, some);
        test_sum(c, mem, room);
        h->ops->window_close(h, p);
        CHECK(!c->ops->in_window(c, p));
    }
}

int main(void)
{
    xd_comm *c = NULL, *h = NULL, *back = NULL;
    xd_err   e = { 0 };
    float   *own = malloc(WINDOWS), *room = malloc(WINDOWS);
    if (!own || !room || xd_comm_world(&c, "mpi", &e) != XD_OK || c->size > MAXRANKS) {
        printf("%s\n", e.msg);
        return 1;
    }
    me = c->rank;
    CHECK(c->ops->split_host(c, &h, &e) == XD_OK);
    CHECK(c->ops->split(c, 0, c->size - c->rank, c->size, &back, &e) == XD_OK);
    if (h && back) {
        test_circulate(c, own);
        test_circulate(back, own);
        test_windows(c, h, own, room);
        test_windows(back, h, own, room);
    }
    xd_comm_close(&back);
    xd_comm_close(&h);
    xd_comm_close(&c);
    free(own);
    free(room);
    return failures != 0;
}
