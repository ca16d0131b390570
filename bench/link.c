/* link.c - what the links between ranks can do: latency, bandwidth, and overlap with work.
 *
 *     mpirun -n N bench/link [--json] [bytes of the largest message]
 *
 * Pairs: rank 0 with each other rank in turn, one way (half a round trip) and both ways at once,
 * and beside each the same by MPI_Send and MPI_Recv, or MPI_Sendrecv, in the same run: MPI's
 * seconds over ours. Groups: all ranks together; bytes are what each rank gives to each other
 * one (gather, exchange) or has (allreduce); in place: an exchange of what ranks of one host
 * window_open each other. Overlap: a message both ways during work of the same length, with
 * pokes at 50 microseconds as kernels do, and without; 100% when it costs nothing. */
#include "base/clock.h"
#include "base/par.h"
#include "comm/comm.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAXRANKS = 1024 };

typedef struct bench {
    xd_comm *c;
    char    *a, *b; /* as long as all ranks' largest messages together */
    int64_t  bytes;
    MPI_Comm mpi; /* for what is done without our communicator */
    int      json, rows;
} bench;

static xd_tensor view(void *p, int64_t bytes)
{
    return xd_view(p, XD_U8, 1, &bytes);
}

static void end(const bench *x, xd_req *r, int n)
{
    if (x->c->ops->wait(x->c, r, n) == XD_OK)
        return;
    fprintf(stderr, "rank %d: %s\n", x->c->rank, x->c->err->msg);
    x->c->ops->abort(x->c, 1);
}

static void to_and_fro(const bench *x, int peer)
{
    xd_comm *c = x->c;
    int      first = c->rank < peer;
    for (int i = 0; i < 2; i++) {
        xd_req r = i == !first ? c->ops->send(c, view(x->a, x->bytes), peer)
                               : c->ops->recv(c, view(x->b, x->bytes), peer);
        end(x, &r, 1);
    }
}

static void both_ways(const bench *x, int peer)
{
    xd_comm *c = x->c;
    xd_req   r[2] = { c->ops->recv(c, view(x->b, x->bytes), peer),
                      c->ops->send(c, view(x->a, x->bytes), peer) };
    end(x, r, 2);
}

/* The same without us. An error ends the program, as MPI does unless it is told otherwise. */
static void plain_to_and_fro(const bench *x, int peer)
{
    int first = x->c->rank < peer, n = (int)x->bytes;
    for (int i = 0; i < 2; i++)
        if (i == !first)
            MPI_Send(x->a, n, MPI_BYTE, peer, 1, x->mpi);
        else
            MPI_Recv(x->b, n, MPI_BYTE, peer, 1, x->mpi, MPI_STATUS_IGNORE);
}

static void plain_both_ways(const bench *x, int peer)
{
    MPI_Sendrecv(x->a, (int)x->bytes, MPI_BYTE, peer, 2, x->b, (int)x->bytes, MPI_BYTE, peer, 2,
                 x->mpi, MPI_STATUS_IGNORE);
}

static void reduce(const bench *x, int unused)
{
    (void)unused;
    int64_t n = x->bytes / 4;
    xd_req  r = x->c->ops->allreduce(x->c, xd_view(x->a, XD_F32, 1, &n), XD_MAX);
    end(x, &r, 1);
}

static void gather(const bench *x, int unused)
{
    static int64_t rows[MAXRANKS];
    (void)unused;
    for (int i = 0; i < x->c->size; i++)
        rows[i] = 1;
    xd_req r = x->c->ops->gather(x->c, xd_view2(x->b, XD_U8, x->c->size, x->bytes), rows,
                                 xd_view2(x->a, XD_U8, 1, x->bytes));
    end(x, &r, 1);
}

static void exchange(const bench *x, int unused)
{
    static xd_tensor give[MAXRANKS], get[MAXRANKS];
    (void)unused;
    for (int i = 0; i < x->c->size; i++) {
        give[i] = view(x->a + i * x->bytes, x->bytes);
        get[i] = view(x->b + i * x->bytes, x->bytes);
    }
    xd_req r = x->c->ops->exchange(x->c, give, get);
    end(x, &r, 1);
}

/* Seconds of one call: the fastest of five rounds. How many calls make a round follows from the
 * size alone, so that all who take part do the same. */
static double seconds(const bench *x, void (*call)(const bench *x, int peer), int peer)
{
    int    n = x->bytes < 65536 ? 200 : x->bytes < (1 << 22) ? 20 : 3;
    double best = 1e30;
    call(x, peer);
    for (int round = 0; round < 5; round++) {
        double t = xd_now_s();
        for (int i = 0; i < n; i++)
            call(x, peer);
        t = (xd_now_s() - t) / n;
        best = t < best ? t : best;
    }
    return best;
}

static void work(double s, int poke)
{
    double t = xd_now_s();
    while (xd_now_s() - t < s)
        if (poke)
            xd_par_poke();
}

/* How much of a message both ways hides behind work of the same length, in percent. */
static double overlap(const bench *x, int peer, int poke)
{
    xd_comm *c = x->c;
    double   alone = seconds(x, both_ways, peer), best = 1e30;
    xd_req   same = c->rank ? c->ops->recv(c, view(&alone, sizeof alone), peer)
                            : c->ops->send(c, view(&alone, sizeof alone), peer);
    end(x, &same, 1); /* both work for the same time */
    for (int i = 0; i < 5; i++) {
        double t = xd_now_s();
        xd_req r[2] = { c->ops->recv(c, view(x->b, x->bytes), peer),
                        c->ops->send(c, view(x->a, x->bytes), peer) };
        work(alone, poke);
        end(x, r, 2);
        t = xd_now_s() - t;
        best = t < best ? t : best;
    }
    return 100 * (2 * alone - best) / alone;
}

typedef struct pair { /* seconds of a message between two ranks */
    double one, two, mpi_one, mpi_two;
    double lap, none; /* overlap in percent, with and without pokes */
} pair;

static void say_pair(bench *x, int peer, const pair *p)
{
    double b = (double)x->bytes;
    if (x->json)
        printf("%s{\"ranks\": [0, %d], \"bytes\": %lld, \"one_way_s\": %.4g, \"gbytes_s\": %.4g, "
               "\"both_gbytes_s\": %.4g, \"mpi_one_way_s\": %.4g, \"mpi_both_gbytes_s\": %.4g, "
               "\"overlap\": %.3g, \"overlap_without_pokes\": %.3g}",
               x->rows++ ? ",\n" : "", peer, (long long)x->bytes, p->one, b / p->one * 1e-9,
               2 * b / p->two * 1e-9, p->mpi_one, 2 * b / p->mpi_two * 1e-9, p->lap / 100,
               p->none / 100);
    else
        printf("%12lld %12.2f %9.3f %9.2f x %12.3f %9.2f x %9.0f%% %9.0f%%\n", (long long)x->bytes,
               p->one * 1e6, b / p->one * 1e-9, p->mpi_one / p->one, 2 * b / p->two * 1e-9,
               p->mpi_two / p->two, p->lap, p->none);
}

static void pairs(bench *x, int64_t top)
{
    xd_comm *c = x->c;
    for (int peer = 1; peer < c->size; peer++) {
        int in = c->rank == 0 || c->rank == peer, with = c->rank ? 0 : peer;
        if (c->rank == 0 && !x->json)
            printf("ranks 0 and %d\n%12s %12s %9s %11s %12s %11s %10s %10s\n", peer, "bytes",
                   "one way us", "GB/s", "of MPI", "both GB/s", "of MPI", "overlap", "no pokes");
        for (x->bytes = 8; in && x->bytes <= top; x->bytes *= 8) {
            pair p = { .one = seconds(x, to_and_fro, with) / 2 };
            p.mpi_one = seconds(x, plain_to_and_fro, with) / 2;
            p.two = seconds(x, both_ways, with);
            p.mpi_two = seconds(x, plain_both_ways, with);
            p.lap = overlap(x, with, 1);
            p.none = overlap(x, with, 0);
            if (c->rank == 0)
                say_pair(x, peer, &p);
        }
        c->ops->barrier(c);
    }
}

/* Seconds of an exchange of what ranks window_open; 0: they cannot. It is touched as other
 * memory is. */
static double in_place(bench *x, xd_comm *host)
{
    size_t bytes = (size_t)x->bytes * (size_t)x->c->size;
    char  *own = x->a,
         *window = host && host->size == x->c->size ? host->ops->window_open(host, bytes) : NULL;
    if (!window)
        return 0;
    x->a = memset(window, 0, bytes);
    double s = seconds(x, exchange, 0);
    x->a = own;
    host->ops->window_close(host, window);
    return s;
}

static void groups(bench *x, int64_t top)
{
    xd_comm *c = x->c, *host = NULL;
    xd_err   why;
    x->rows = 0;
    c->ops->split_host(c, &host, &why);
    if (c->rank == 0 && !x->json)
        printf("all %d ranks, us\n%12s %12s %12s %12s %12s\n", c->size, "bytes", "gather",
               "exchange", "in place", "allreduce");
    for (x->bytes = 8; x->bytes <= top; x->bytes *= 8) {
        double g = seconds(x, gather, 0), e = seconds(x, exchange, 0), r = seconds(x, reduce, 0);
        double near = in_place(x, host);
        if (c->rank == 0 && x->json)
            printf("%s{\"bytes\": %lld, \"gather_s\": %.4g, \"exchange_s\": %.4g, "
                   "\"exchange_in_place_s\": %.4g, \"allreduce_s\": %.4g}",
                   x->rows++ ? ",\n" : "", (long long)x->bytes, g, e, near, r);
        else if (c->rank == 0)
            printf("%12lld %12.2f %12.2f %12.2f %12.2f\n", (long long)x->bytes, g * 1e6, e * 1e6,
                   near * 1e6, r * 1e6);
    }
    xd_comm_close(&host);
}

static int usage(int asked)
{
    fputs("Usage: mpirun -n N link [--json] [BYTES]\n"
          "  latency and bandwidth between ranks, and what messages cost beside work\n"
          "  --json   print JSON\n"
          "  BYTES    of the largest message (16777216)\n",
          asked ? stdout : stderr);
    return asked ? 0 : 2;
}

int main(int argc, char **argv)
{
    bench   x = { 0 };
    xd_err  e = { 0 };
    int64_t top = (int64_t)1 << 24;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--json") == 0)
            x.json = 1;
        else if ((top = atoll(argv[i])) < 1)
            return usage(strcmp(argv[i], "--help") == 0);
    xd_par_set(1);
    if (xd_comm_world(&x.c, "mpi", &e) != XD_OK) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    top = top < 8 ? 8 : top > 1 << 30 ? 1 << 30 : top;
    size_t bytes = (size_t)top * (size_t)x.c->size;
    x.a = calloc(1, bytes);
    x.b = calloc(1, bytes);
    if (!x.a || !x.b || x.c->size < 2 || x.c->size > MAXRANKS ||
        MPI_Comm_dup(MPI_COMM_WORLD, &x.mpi) != MPI_SUCCESS) {
        fprintf(stderr, "needs 2 to %d ranks and %zu bytes on each\n", MAXRANKS, 2 * bytes);
        return 1;
    }
    int first = x.c->rank == 0 && x.json;
    if (first)
        printf("{\"ranks\": %d, \"pairs\": [\n", x.c->size);
    pairs(&x, top);
    if (first)
        printf("\n], \"groups\": [\n");
    groups(&x, top);
    if (first)
        puts("\n]}");
    MPI_Comm_free(&x.mpi);
    free(x.a);
    free(x.b);
    xd_comm_close(&x.c);
    return 0;
}
