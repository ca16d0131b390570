/* test_comm.c - every call of a communicator, on as many ranks as mpirun starts.
 *
 * Values are a function of rank and index, so each rank knows what it must receive. Results are
 * compared bit by bit. `test_comm long` sends one message of more than 2 GiB instead. */
#include "base/clock.h"
#include "base/par.h"
#include "comm/comm.h"
#include "parallel/topo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAXRANKS = 16 };

static int failures, checks, me;

static void check(int ok, int line, const char *what)
{
    checks++;
    if (ok)
        return;
    if (failures++ < 20)
        printf("rank %d: line %d: %s\n", me, line, what);
}
#define CHECK(cond) check((cond) != 0, __LINE__, #cond)

/* ---- counting what the rooms under test allocate (the linker wraps their calls) ---------- */

static int64_t allocations;
void          *__real_malloc(size_t n);
void          *__real_calloc(size_t n, size_t m);
void          *__real_realloc(void *p, size_t n);
void          *__wrap_malloc(size_t n);
void          *__wrap_calloc(size_t n, size_t m);
void          *__wrap_realloc(void *p, size_t n);

void *__wrap_malloc(size_t n)
{
    allocations++;
    return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t m)
{
    allocations++;
    return __real_calloc(n, m);
}

void *__wrap_realloc(void *p, size_t n)
{
    allocations++;
    return __real_realloc(p, n);
}

/* ---- helpers ---------------------------------------------------------------------------- */

static void *get(int64_t bytes)
{
    void *p = malloc((size_t)bytes + 64);
    if (!p) {
        printf("rank %d: no memory for %lld bytes\n", me, (long long)bytes);
        exit(1);
    }
    memset(p, 0xa5, (size_t)bytes + 64);
    return p;
}

static int guarded(const void *p, int64_t bytes)
{
    const unsigned char *c = (const unsigned char *)p + bytes;
    for (int i = 0; i < 64; i++)
        if (c[i] != 0xa5)
            return 0;
    return 1;
}

static unsigned char byte(int from, int64_t i)
{
    uint64_t h = (uint64_t)i * 0x9e3779b97f4a7c15u + (uint64_t)from * 0xbf58476d1ce4e5b9u + 7;
    return (unsigned char)(h >> 37);
}

static void fill(void *p, int from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        ((unsigned char *)p)[i] = byte(from, i);
}

static int holds(const void *p, int from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (((const unsigned char *)p)[i] != byte(from, i))
            return 0;
    return 1;
}

static xd_tensor bytes_of(void *p, int64_t n)
{
    return xd_view(p, XD_U8, 1, &n);
}

static xd_status end(xd_comm *c, xd_req r)
{
    return c->ops->wait(c, &r, 1);
}

/* ---- reductions -------------------------------------------------------------------------- */

/* Magnitudes far apart: the sum depends on the order of the ranks in nearly every element. */
static double number(int r, int64_t i, xd_dtype t)
{
    double v = (double)((i * 7919 + r * 104729) % 20011 - 10000);
    if (t == XD_F32 || t == XD_F64)
        v = v / 3 * ((i + r) % 3 ? 1 : 1e6);
    return v;
}

static void put(void *p, int64_t i, xd_dtype t, double v)
{
    if (t == XD_F32)
        ((float *)p)[i] = (float)v;
    else if (t == XD_F64)
        ((double *)p)[i] = v;
    else if (t == XD_I32)
        ((int32_t *)p)[i] = (int32_t)v;
    else
        ((int64_t *)p)[i] = (int64_t)v;
}

static double pick(xd_red op, double a, double b)
{
    return op == XD_MAX ? (a > b ? a : b) : (a < b ? a : b);
}

/* In rank order, rounded to the type after each step. */
static void expect(void *p, int64_t i, xd_dtype t, xd_red op, int size)
{
    double a = number(0, i, t);
    float  f = (float)a;
    for (int r = 1; r < size; r++) {
        double b = number(r, i, t);
        f = op == XD_SUM ? f + (float)b : (float)pick(op, f, (float)b);
        a = op == XD_SUM ? a + b : pick(op, a, b);
    }
    put(p, i, t, t == XD_F32 ? f : a);
}

static void reduce_once(xd_comm *c, xd_dtype t, xd_red op, int64_t n)
{
    int64_t bytes = n * (int64_t)xd_dtype_size(t);
    void   *io = get(bytes), *want = get(bytes);
    for (int64_t i = 0; i < n; i++) {
        put(io, i, t, number(c->rank, i, t));
        expect(want, i, t, op, c->size);
    }
    CHECK(end(c, c->ops->allreduce(c, xd_view(io, t, 1, &n), op)) == XD_OK);
    CHECK(!memcmp(io, want, (size_t)bytes));
    CHECK(guarded(io, bytes));
    free(io);
    free(want);
}

static void test_allreduce(xd_comm *c)
{
    static const int64_t  n[] = { 0, 1, 4, 5, 1023, 1024, 1025, 2048, 2049, 40009 };
    static const xd_dtype t[] = { XD_F32, XD_F64, XD_I32, XD_I64 };
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 10; j++)
            for (int op = XD_SUM; op <= XD_MIN; op++)
                reduce_once(c, t[i], (xd_red)op, n[j]);
}

/* ---- collective calls -------------------------------------------------------------------- */

static void test_bcast(xd_comm *c)
{
    static const int64_t n[] = { 0, 1, 7, 4097, 300007 };
    for (int root = 0; root < c->size; root++)
        for (int i = 0; i < 5; i++) {
            char *p = get(n[i]);
            if (c->rank == root)
                fill(p, root + i, n[i]);
            CHECK(end(c, c->ops->bcast(c, bytes_of(p, n[i]), root)) == XD_OK);
            CHECK(holds(p, root + i, n[i]) && guarded(p, n[i]));
            free(p);
        }
}

/* Rows of `wide` bytes out of rows of `wide` + 5: rank r gives rows[r] of them. */
static void gather_once(xd_comm *c, const int64_t *rows, int64_t wide)
{
    int64_t all = 0, mine = rows[c->rank], at = 0;
    for (int r = 0; r < c->size; r++)
        all += rows[r];
    unsigned char *in = get(mine * (wide + 5)), *out = get(all * wide);
    for (int64_t i = 0; i < mine; i++)
        for (int64_t k = 0; k < wide; k++)
            in[i * (wide + 5) + k] = byte(c->rank, i * wide + k);
    xd_tensor t = xd_cols(xd_view2(in, XD_U8, mine, wide + 5), 0, wide);
    CHECK(end(c, c->ops->gather(c, xd_view2(out, XD_U8, all, wide), rows, t)) == XD_OK);
    for (int r = 0; r < c->size; at += rows[r++] * wide)
        CHECK(holds(out + at, r, rows[r] * wide));
    CHECK(guarded(out, all * wide));
    free(in);
    free(out);
}

static void test_gather(xd_comm *c)
{
    int64_t rows[MAXRANKS];
    for (int turn = 0; turn < 4; turn++) {
        for (int r = 0; r < c->size; r++)
            rows[r] = turn == 0 ? 3 : turn == 1 ? (r * 2 + 1) % 4 : turn == 2 ? 0 : r * 501;
        gather_once(c, rows, 1);
        gather_once(c, rows, 37);
    }
}

/* How many rows rank i gives to rank j: uneven, some none. */
static int64_t share_of(int i, int j, int scale)
{
    return (int64_t)((i * 3 + j * 2) % 4) * scale;
}

/* Each rank has a canvas [rows, heads, 8] of u16, gives the others some rows of some heads, and
 * lays what it gets into heads of another canvas: strides on both sides. */
enum { HEADS = 6, HD = 8 };

static uint16_t word(int from, int to, int64_t row, int h, int k)
{
    return (uint16_t)(from * 9973 + to * 523 + row * 71 + h * 11 + k);
}

static xd_tensor cut(uint16_t *canvas, int64_t row, int64_t n, int h, int heads)
{
    int64_t   d[3] = { row + n, HEADS, HD };
    xd_tensor t = xd_view(canvas, XD_BF16, 3, d); /* any type of two bytes */
    t.p = canvas + (row * HEADS + h) * HD;
    t.d[0] = n;
    t.d[1] = heads;
    return t;
}

static void write_cut(xd_tensor t, int from, int to)
{
    for (int64_t i = 0; i < t.d[0]; i++)
        for (int h = 0; h < t.d[1]; h++)
            for (int k = 0; k < HD; k++)
                ((uint16_t *)t.p)[i * t.s[0] + h * t.s[1] + k] = word(from, to, i, h, k);
}

static int cut_holds(xd_tensor t, int from, int to)
{
    for (int64_t i = 0; i < t.d[0]; i++)
        for (int h = 0; h < t.d[1]; h++)
            for (int k = 0; k < HD; k++)
                if (((uint16_t *)t.p)[i * t.s[0] + h * t.s[1] + k] != word(from, to, i, h, k))
                    return 0;
    return 1;
}

/* Everything outside the cut heads must still be as it was. */
static int rest_untouched(const uint16_t *canvas, int64_t rows, int h, int heads)
{
    for (int64_t i = 0; i < rows; i++)
        for (int j = 0; j < HEADS; j++)
            for (int k = 0; k < HD; k++)
                if ((j < h || j >= h + heads) && canvas[(i * HEADS + j) * HD + k] != 0xa5a5)
                    return 0;
    return 1;
}

static char *window; /* [8 MiB] that test_exchange gives from; NULL: of its own */

static void test_exchange(xd_comm *c)
{
    for (int scale = 1; scale <= 400; scale *= 20) {
        xd_tensor give[MAXRANKS], take[MAXRANKS];
        int64_t   out_rows = 0, in_rows = 0, out = 0, in = 0;
        for (int r = 0; r < c->size; r++) {
            out_rows += share_of(c->rank, r, scale);
            in_rows += share_of(r, c->rank, scale);
        }
        const int64_t size = out_rows * HEADS * HD * 2;
        const int     in_window = window && size <= 8 << 20;
        uint16_t *a = in_window ? (void *)window : get(size), *b = get(in_rows * HEADS * HD * 2);
        for (int r = 0; r < c->size; r++) {
            int64_t n = share_of(c->rank, r, scale), m = share_of(r, c->rank, scale);
            give[r] = cut(a, out, n, 2, 3);
            take[r] = cut(b, in, m, 1, 3);
            if (!n && r % 2)
                give[r] = (xd_tensor){ 0 }; /* absent is as good as empty */
            else
                write_cut(give[r], c->rank, r);
            out += n;
            in += m;
        }
        CHECK(end(c, c->ops->exchange(c, give, take)) == XD_OK);
        for (int r = 0; r < c->size; r++)
            CHECK(cut_holds(take[r], r, c->rank));
        CHECK(rest_untouched(b, in_rows, 1, 3) && guarded(b, in_rows * HEADS * HD * 2));
        if (!in_window)
            free(a);
        free(b);
    }
}

/* ---- messages between pairs --------------------------------------------------------------- */

enum { LETTERS = 12 };

static int64_t letter_size(int i)
{
    static const int64_t n[LETTERS] = { 1, 70000, 3, 0, 4096, 200001, 8, 8, 65536, 2, 131072, 5 };
    return n[i];
}

/* Everybody sends everybody LETTERS messages of many sizes; receives are posted first on even ranks
 * and last on odd ones; waits go backwards. Bits tell a message that overtook another. */
static void test_fifo(xd_comm *c)
{
    xd_req rs[MAXRANKS][LETTERS], rr[MAXRANKS][LETTERS];
    char  *s[MAXRANKS][LETTERS], *t[MAXRANKS][LETTERS];
    for (int phase = 0; phase < 2; phase++)
        for (int r = 0; r < c->size; r++)
            for (int i = 0; i < LETTERS; i++) {
                int64_t n = letter_size(i);
                if (phase == c->rank % 2) {
                    t[r][i] = get(n);
                    rr[r][i] = c->ops->recv(c, bytes_of(t[r][i], n), r);
                } else {
                    s[r][i] = get(n);
                    fill(s[r][i], c->rank * 100 + i, n);
                    rs[r][i] = c->ops->send(c, bytes_of(s[r][i], n), r);
                }
            }
    for (int r = c->size - 1; r >= 0; r--) {
        CHECK(c->ops->wait(c, rr[r], LETTERS) == XD_OK);
        CHECK(c->ops->wait(c, rs[r], LETTERS) == XD_OK);
        for (int i = 0; i < LETTERS; i++) {
            CHECK(holds(t[r][i], r * 100 + i, letter_size(i)) && guarded(t[r][i], letter_size(i)));
            free(s[r][i]);
            free(t[r][i]);
        }
    }
}

/* Several calls of every kind under way at once, ended in another order on every rank. */
static void test_many(xd_comm *c)
{
    enum { KINDS = 5, TURNS = 6, N = 5003 };
    xd_req  r[KINDS * TURNS];
    float  *io[TURNS];
    char   *b[TURNS], *ring[TURNS], *from[TURNS];
    char   *all[TURNS];
    int64_t rows[MAXRANKS], n = N;
    int     right = (c->rank + 1) % c->size, left = (c->rank + c->size - 1) % c->size;
    for (int i = 0; i < c->size; i++)
        rows[i] = i + 1;
    for (int t = 0; t < TURNS; t++) {
        io[t] = get(N * 4), b[t] = get(N), ring[t] = get(N), from[t] = get(N);
        all[t] = get(100 * c->size * (c->size + 1) / 2);
        for (int i = 0; i < N; i++)
            io[t][i] = (float)(c->rank + t + i);
        if (c->rank == t % c->size)
            fill(b[t], 50 + t, N);
        fill(ring[t], c->rank * 10 + t, N);
        r[t * KINDS] = c->ops->allreduce(c, xd_view(io[t], XD_F32, 1, &n), XD_SUM);
        r[t * KINDS + 1] = c->ops->recv(c, bytes_of(from[t], N), left);
        r[t * KINDS + 2] = c->ops->bcast(c, bytes_of(b[t], N), t % c->size);
        r[t * KINDS + 3] = c->ops->send(c, bytes_of(ring[t], N), right);
        xd_tensor out = xd_view2(all[t], XD_U8, c->size * (c->size + 1) / 2, 100);
        r[t * KINDS + 4] = c->ops->gather(c, out, rows, xd_view2(ring[t], XD_U8, c->rank + 1, 100));
    }
    for (int i = 0; i < KINDS * TURNS; i++) {
        int k = (i * 7 + c->rank * 11) % (KINDS * TURNS);
        CHECK(c->ops->wait(c, &r[k], 1) == XD_OK && !r[k].p);
    }
    for (int t = 0; t < TURNS; t++) {
        int64_t at = 0;
        for (int i = 0; i < N; i += 100)
            CHECK(io[t][i] == (float)(c->size * (c->size - 1) / 2 + c->size * (t + i)));
        CHECK(holds(b[t], 50 + t, N) && holds(from[t], left * 10 + t, N));
        for (int q = 0; q < c->size; at += rows[q++] * 100)
            CHECK(holds(all[t] + at, q * 10 + t, rows[q] * 100));
        free(io[t]), free(b[t]), free(ring[t]), free(from[t]), free(all[t]);
    }
}

static void test_test(xd_comm *c)
{
    xd_req none = { 0 };
    float  io[3] = { 1, 2, 3 };
    CHECK(c->ops->test(c, &none) == 1);
    CHECK(c->ops->wait(c, &none, 1) == XD_OK);
    int64_t n = 3;
    xd_req  r = c->ops->allreduce(c, xd_view(io, XD_F32, 1, &n), XD_SUM), copy = r;
    double  t0 = xd_now_s();
    while (!c->ops->test(c, &r) && xd_now_s() - t0 < 60)
        ;
    CHECK(!r.p && c->ops->test(c, &r) == 1);
    CHECK(c->ops->test(c, &copy) == 1); /* a copy of what has ended has ended too */
    CHECK(c->ops->wait(c, &r, 1) == XD_OK);
    CHECK(io[2] == 3.0f * (float)c->size);
}

/* The last rank only pokes until the others, who wait, have their sum of two phases. */
static void test_poke(xd_comm *c)
{
    xd_comm *h = NULL;
    xd_err   e = { 0 };
    int      first, last = c->rank == c->size - 1;
    CHECK(c->ops->split_host(c, &h, &e) == XD_OK);
    if (!h || h->size != c->size || c->size < 3 || strcmp(c->ops->name, "mpi") != 0) {
        xd_comm_close(&h);
        return;
    }
    volatile int *ended = h->ops->share(h, 4096, &first);
    int64_t       n = 100000;
    float        *io = get(n * 4);
    for (int64_t i = 0; i < n; i++)
        io[i] = 1;
    if (first)
        memset((void *)(uintptr_t)ended, 0, 4096);
    c->ops->barrier(c);
    xd_req r = c->ops->allreduce(c, xd_view(io, XD_F32, 1, &n), XD_SUM);
    double t0 = xd_now_s();
    for (int i = 0; last && i < c->size - 1; i++)
        while (!ended[i] && xd_now_s() - t0 < 30)
            xd_par_poke();
    for (int i = 0; last && i < c->size - 1; i++)
        CHECK(ended[i]);
    CHECK(end(c, r) == XD_OK && io[n - 1] == (float)c->size);
    ended[c->rank] = 1;
    c->ops->barrier(c);
    free(io);
    xd_comm_close(&h);
}

/* ---- groups ------------------------------------------------------------------------------- */

static void test_split(xd_comm *c)
{
    xd_err   e = { 0 };
    xd_comm *g = NULL;
    int      color = c->rank % 2, size = (c->size + 1 - color) / 2;
    /* keys backwards */
    CHECK(c->ops->split(c, color, size - 1 - c->rank / 2, size, &g, &e) == XD_OK);
    if (g) {
        CHECK(g->size == size && g->rank == size - 1 - c->rank / 2);
        test_gather(g);
        test_exchange(g);
        CHECK(g->traffic == c->traffic || c->size == 1);
    }
    xd_comm_close(&g);
    CHECK(c->ops->split(c, 0, c->rank, c->size + 1, &g, &e) == XD_ECOMM && !g && e.msg[0]);
}

static int64_t sum_of(xd_comm *g, int64_t v)
{
    int64_t one = 1;
    CHECK(end(g, g->ops->allreduce(g, xd_view(&v, XD_I64, 1, &one), XD_SUM)) == XD_OK);
    return v;
}

static void topo_once(xd_comm *c, xd_degrees d)
{
    xd_topo t;
    xd_err  e = { 0 };
    CHECK(xd_topo_open(&t, c, d, &e) == XD_OK);
    if (e.code) {
        printf("rank %d: %s\n", me, e.msg);
        xd_topo_close(&t);
        return;
    }
    for (int a = 0, unit = 1; a < XD_NAXES; unit *= d.n[a++]) {
        int64_t base = c->rank - t.at[a] * unit, want = 0;
        for (int k = 0; k < d.n[a]; k++)
            want += (base + k * unit) * (base + k * unit) + 1;
        CHECK(t.group[a]->size == d.n[a] && t.group[a]->rank == t.at[a]);
        CHECK(sum_of(t.group[a], (int64_t)c->rank * c->rank + 1) == want);
    }
    CHECK(t.tokens->size == d.n[XD_ULYSSES] * d.n[XD_RING]);
    CHECK(t.tokens->rank == xd_topo_sp(&t, t.at[XD_ULYSSES], t.at[XD_RING]));
    CHECK(sum_of(t.tokens, 1) == t.tokens->size);
    CHECK(t.replica->size * d.n[XD_DATA] == c->size);
    CHECK(sum_of(t.replica, 1) == t.replica->size);
    xd_topo_close(&t);
}

/* Every factorization of the size over the axes. Returns how many. */
static int topo_all(xd_comm *c, xd_degrees d, int axis, int left)
{
    int n = 0;
    if (axis == XD_NAXES) {
        if (left == 1)
            topo_once(c, d);
        return left == 1;
    }
    for (int k = 1; k <= left; k++)
        if (left % k == 0) {
            d.n[axis] = k;
            n += topo_all(c, d, axis + 1, left / k);
        }
    return n;
}

static void test_share(xd_comm *c)
{
    xd_comm *h = NULL;
    xd_err   e = { 0 };
    int      first = -1;
    CHECK(c->ops->split_host(c, &h, &e) == XD_OK);
    if (!h)
        return;
    for (int turn = 0; turn < 2; turn++) {
        int64_t n = turn ? 3000001 : 1000;
        char   *p = h->ops->share(h, (size_t)n, &first);
        CHECK(p != NULL && first == (h->rank == 0));
        if (p && first)
            fill(p, 90 + turn, n);
        h->ops->barrier(h);
        CHECK(p && holds(p, 90 + turn, n));
        CHECK(!turn || c->size == 1 || (uintptr_t)p % (2 << 20) == 0); /* room for huge pages */
    }
    (void)h->ops->share(h, 0, &first);
    xd_comm_close(&h);
}

/* What is exchanged from window memory, on every rank or on some, arrives as it does otherwise
 * and counts the same, in groups whose ranks stand in another order as well. */
static void test_window(xd_comm *c)
{
    xd_comm *h = NULL, *back = NULL;
    xd_err   e = { 0 };
    if (c->size == 1)
        return;
    CHECK(c->ops->split_host(c, &h, &e) == XD_OK);
    CHECK(c->ops->split(c, 0, c->size - c->rank, c->size, &back, &e) == XD_OK);
    if (!h || !back)
        return;
    CHECK(h->ops->window_open(h, h->rank ? 5000 : 0) == NULL);
    int64_t before = c->traffic->bytes, count = c->traffic->messages;
    test_exchange(c);
    int64_t bytes = c->traffic->bytes - before, messages = c->traffic->messages - count;
    for (int some = 0; some < 2; some++) {
        char *p = h->ops->window_open(h, ((size_t)8 << 20) + 1000 * (size_t)h->rank);
        if (!p && !some && c->rank == 0)
            printf("# skipped: this system gives memory between ranks no huge pages\n");
        window = some && c->rank % 2 ? NULL : p;
        before = c->traffic->bytes, count = c->traffic->messages;
        test_exchange(c);
        CHECK(c->traffic->bytes - before == bytes && c->traffic->messages - count == messages);
        test_exchange(back);
        window = NULL;
        if (p)
            h->ops->window_close(h, p);
        test_exchange(c);
    }
    xd_comm_close(&back);
    xd_comm_close(&h);
}

/* ---- traffic ------------------------------------------------------------------------------ */

static void some_calls(xd_comm *c, void *buf, int64_t scale)
{
    xd_tensor give[MAXRANKS], take[MAXRANKS];
    int64_t   rows[MAXRANKS], all = 0, n = 10 * scale, m = 5003;
    char     *p = buf;
    int       right = (c->rank + 1) % c->size, left = (c->rank + c->size - 1) % c->size;
    for (int r = 0; r < c->size; r++) {
        all += rows[r] = (r * 2 + 1) % 4 * scale;
        give[r] = xd_view2(p, XD_BF16, share_of(c->rank, r, 3), 7);
        take[r] = xd_view2(p + 100000 + 1000 * r, XD_BF16, share_of(r, c->rank, 3), 7);
    }
    xd_req q[8] = {
        c->ops->allreduce(c, xd_view(p + 200000, XD_F32, 1, &n), XD_SUM),
        c->ops->allreduce(c, xd_view(p + 300000, XD_F64, 1, &m), XD_MAX),
        c->ops->bcast(c, bytes_of(p + 400000, n), c->size - 1),
        c->ops->gather(c, xd_view2(p + 500000, XD_F32, all, 6), rows,
                       xd_view2(p + 600000, XD_F32, rows[c->rank], 6)),
        c->ops->exchange(c, give, take),
        c->ops->recv(c, bytes_of(p + 700000, n), left),
        c->ops->send(c, bytes_of(p + 800000, n), right),
        c->ops->send(c, bytes_of(p, 0), right),
    };
    CHECK(c->ops->wait(c, q, 8) == XD_OK);
}

/* The counts of some_calls by hand: what this rank sends to others. */
static xd_traffic by_hand(const xd_comm *c, int64_t scale)
{
    xd_traffic t = { 0 };
    int64_t    n = 10 * scale, m = 5003, others = c->size - 1;
    int        v = (c->rank + 1) % c->size, kids = 0;
    t.bytes = n * 4 * others; /* everything to everyone */
    t.messages = others;
    if (c->size > 1) { /* pieces out, sums out */
        int64_t mine = m * (c->rank + 1) / c->size - m * c->rank / c->size;
        t.bytes += (m - mine) * 8 + mine * 8 * others;
        t.messages += 2 * others;
    }
    for (int k = 1; k < c->size; k *= 2) /* children in the tree of v */
        if ((v == 0 || k < (v & -v)) && v + k < c->size)
            kids++;
    t.bytes += kids * n;
    t.messages += kids;
    int64_t rows = (c->rank * 2 + 1) % 4 * scale;
    t.bytes += rows * 24 * others;
    t.messages += rows ? others : 0;
    for (int r = 0; r < c->size; r++)
        if (r != c->rank && share_of(c->rank, r, 3)) {
            t.bytes += share_of(c->rank, r, 3) * 14;
            t.messages++;
        }
    t.bytes += others ? n : 0;
    t.messages += others ? 1 : 0;
    return t;
}

static void test_traffic(xd_comm *c)
{
    char      *buf = get(1000000);
    xd_comm   *n = NULL, *g = NULL;
    xd_err     e = { 0 };
    xd_traffic was = *c->traffic;
    memset(buf, 0, 1000000);
    some_calls(c, buf, 20);
    xd_traffic want = by_hand(c, 20);
    CHECK(c->traffic->bytes - was.bytes == want.bytes);
    CHECK(c->traffic->messages - was.messages == want.messages);
    CHECK(xd_comm_count(&n, c->rank, c->size, &e) == XD_OK);
    if (n) {
        some_calls(n, (char *)16, 20); /* an address it may not follow */
        CHECK(n->traffic->bytes == want.bytes && n->traffic->messages == want.messages);
        CHECK(n->ops->split(n, 3, c->rank, c->size, &g, &e) == XD_OK);
    }
    if (g) {
        some_calls(g, (char *)16, 20);
        CHECK(g->rank == c->rank && g->size == c->size && n->traffic->bytes == 2 * want.bytes);
    }
    xd_comm_close(&g);
    xd_comm_close(&n);
    free(buf);
}

/* After its first turns a loop allocates nothing, whatever is under way at once. */
static void test_steady(xd_comm *c)
{
    char   *buf = get(1000000);
    int64_t before = 0;
    memset(buf, 0, 1000000);
    for (int turn = 0; turn < 20; turn++) {
        if (turn == 10)
            before = allocations;
        some_calls(c, buf, 20);
    }
    CHECK(allocations == before && before > 0);
    free(buf);
}

/* ---- failures ----------------------------------------------------------------------------- */

static void test_refusals(xd_comm *c)
{
    xd_comm *x = NULL;
    xd_err   e = { 0 };
    uint16_t half[4] = { 0 };
    int64_t  n = 4;
    CHECK(xd_comm_world(&x, "pigeon", &e) == XD_EUNSUPPORTED && !x);
    CHECK(xd_comm_count(&x, 3, 3, NULL) == XD_EINVAL && !x);
    if (c->size == 1)
        return;
    CHECK(c->err->code == XD_OK);
    CHECK(end(c, c->ops->allreduce(c, xd_view(half, XD_BF16, 1, &n), XD_SUM)) == XD_EUNSUPPORTED);
    CHECK(c->err->code == XD_EUNSUPPORTED && strstr(c->err->msg, "bf16"));
    CHECK(c->err->rank == c->rank);
}

/* Messages of a length that the receiver was not told: longer, then shorter. */
static void test_lengths(xd_comm *c)
{
    char a[64] = { 0 };
    if (c->size == 1 || strcmp(c->ops->name, "mpi") != 0)
        return;
    for (int turn = 0; turn < 2; turn++) {
        if (c->rank == 0)
            CHECK(end(c, c->ops->send(c, bytes_of(a, turn ? 16 : 32), 1)) == XD_OK);
        if (c->rank == 1)
            CHECK(end(c, c->ops->recv(c, bytes_of(a, turn ? 32 : 16), 0)) == XD_ECOMM);
    }
    c->ops->barrier(c);
}

/* ---- more than 2 GiB ---------------------------------------------------------------------- */

static int64_t memory_free(void)
{
    char      line[128];
    long long kb = 0;
    FILE     *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof line, f) && sscanf(line, "MemAvailable: %lld", &kb) != 1)
        ;
    if (f)
        fclose(f);
    return kb * 1024;
}

static int test_long(xd_comm *c)
{
    int64_t n = ((int64_t)22 << 30) / 10 / 8 + 3, room = memory_free(), one = 1;
    CHECK(c->size >= 2);
    CHECK(end(c, c->ops->allreduce(c, xd_view(&room, XD_I64, 1, &one), XD_MIN)) == XD_OK);
    if (failures)
        return 1;
    if (room < (int64_t)8 << 30) {
        if (c->rank == 0)
            printf("SKIP: a message of 2.2 GiB needs 8 GiB of free memory, there are %.1f\n",
                   (double)room / (1 << 30));
        return 77;
    }
    if (c->rank < 2) {
        int64_t *p = malloc((size_t)n * 8);
        for (int64_t i = 0; p && c->rank == 0 && i < n; i++)
            p[i] = i * 3 + 1;
        CHECK(p != NULL);
        if (!p)
            c->ops->abort(c, 1);
        xd_tensor t = xd_view(p, XD_I64, 1, &n);
        xd_req    r = c->rank ? c->ops->recv(c, t, 0) : c->ops->send(c, t, 1);
        CHECK(end(c, r) == XD_OK);
        int64_t bad = 0;
        for (int64_t i = 0; i < n; i++)
            bad += p[i] != i * 3 + 1;
        CHECK(bad == 0);
        CHECK(c->traffic->bytes >= (c->rank ? 0 : n * 8));
        free(p);
    }
    return 0;
}

/* ------------------------------------------------------------------------------------------- */

static void test_all(xd_comm *c)
{
    xd_degrees d = { { 0 } };
    test_allreduce(c);
    test_bcast(c);
    test_gather(c);
    test_exchange(c);
    test_fifo(c);
    test_many(c);
    test_test(c);
    test_poke(c);
    test_split(c);
    test_share(c);
    test_window(c);
    test_traffic(c);
    test_steady(c);
    int n = topo_all(c, d, 0, c->size);
    if (c->rank == 0)
        printf("%s: %d topologies of %d ranks\n", c->ops->name, n, c->size);
    test_refusals(c);
    test_lengths(c);
}

static int run(const char *kind, int big)
{
    xd_comm *c = NULL;
    xd_err   e = { 0 };
    int      skip = 0;
    if (xd_comm_world(&c, kind, &e) != XD_OK) {
        printf("%s\n", e.msg);
        failures++;
        return 0;
    }
    me = c->rank;
    CHECK(c->size <= MAXRANKS);
    if (big)
        skip = test_long(c);
    else if (c->size <= MAXRANKS)
        test_all(c);
    if (!strcmp(kind, "mpi") && c->size > 1)
        CHECK(xd_comm_launched());
    xd_comm_close(&c);
    return skip;
}

int main(int argc, char **argv)
{
    int big = argc > 1 && !strcmp(argv[1], "long");
    xd_par_set(1);
    if (!big)
        run("self", 0);
    int skip = run("mpi", big);
    printf("rank %d: %d checks, %d failed\n", me, checks, failures);
    return failures ? 1 : skip;
}
