/* probe_links.c - measures the speed of messages between ranks, and how much messages slow down
 * computing */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/par.h"
#include "ranks/world.h"
#include "report/probe.h"

enum { SMALL = 16 << 10, MANY = 50, BIG = 1 << 20, FEW = 8, ROUNDS = 7, LINE = 64 };

static volatile unsigned touched;

typedef struct lane {
    xd_comm *c;
    int      to, from;
    char    *a, *b;
} lane;

static xd_tensor bytes_view(char *p, int64_t n)
{
    return xd_view(p, XD_U8, 1, &n);
}

static void wait_for(xd_comm *c, xd_req *r, int n)
{
    c->ops->wait(c, r, n);
}

/* Starts an exchange: every rank sends n bytes to one rank and receives n bytes from another. */
static void start_exchange(const lane *l, int64_t n, xd_req r[2])
{
    r[0] = l->c->ops->recv(l->c, bytes_view(l->b, n), l->from);
    r[1] = l->c->ops->send(l->c, bytes_view(l->a, n), l->to);
}

/* Returns the seconds of one exchange, the fastest of several rounds. An exchange fills the send
 * buffer, sends and receives messages, waits for them, and reads the received data. If `still` is
 * 1, no messages are sent or received. */
static double round_s(const xd_prober *p, const lane *l, int64_t n, int still)
{
    double best = 1e30;
    int    rounds = n < BIG ? MANY : FEW;
    xd_req r[2];
    for (int i = 0; i < ROUNDS; i++) {
        xd_probe_meet(p);
        double t = xd_now_s();
        for (int k = 0; k < rounds; k++) {
            memset(l->a, k, (size_t)n);
            if (!still) {
                start_exchange(l, n, r);
                wait_for(l->c, r, 2);
            }
            for (int64_t at = 0; at < n; at += LINE)
                touched += (unsigned char)l->b[at];
        }
        t = (xd_now_s() - t) / rounds;
        best = t < best ? t : best;
    }
    return best;
}

/* Returns the seconds for sending and receiving n bytes, as the mean over all ranks. The time for
 * filling and reading the buffers is measured separately and subtracted. */
static double message_s(const xd_prober *p, const lane *l, int64_t n)
{
    double t = round_s(p, l, n, 0) - round_s(p, l, n, 1);
    return xd_probe_mean(p, t > 1e-9 ? t : 1e-9);
}

static volatile float sink;

/* Computes in registers only. This work competes with messages for the core, but not for memory
 * bandwidth. */
static void compute_work(int rounds)
{
    float x = sink;
    for (int i = 0; i < rounds; i++) {
        for (int k = 0; k < 1000; k++)
            x = x * 0.999f + 0.5f;
        xd_par_poke();
    }
    sink = x;
}

static double work_s(int rounds)
{
    double best = 1e30;
    for (int i = 0; i < ROUNDS; i++) {
        double t = xd_now_s();
        compute_work(rounds);
        t = xd_now_s() - t;
        best = t < best ? t : best;
    }
    return best;
}

/* Returns the fraction of a core's compute speed that remains while a large message is in
 * transit. */
static double overlap_share(const xd_prober *p, const lane *l, double message)
{
    double best = 1e30, alone;
    int    rounds = 16;
    xd_req r[2];
    while (work_s(rounds) < 3 * message && rounds < 1 << 24)
        rounds *= 2;
    alone = work_s(rounds);
    for (int i = 0; i < ROUNDS; i++) {
        xd_probe_meet(p);
        double t = xd_now_s();
        start_exchange(l, BIG, r);
        compute_work(rounds);
        wait_for(l->c, r, 2);
        t = xd_now_s() - t;
        best = t < best ? t : best;
    }
    double v = 1 - (best - alone) / message;
    return v < 0 ? 0 : v > 1 ? 1 : v;
}

/* Measures latency and bandwidth of a link between ranks. The smaller message has 16 KiB, because
 * messages with data are larger than status messages. */
static void probe_wire(xd_prober *p, const lane *l, xd_wire *w)
{
    double small = message_s(p, l, SMALL), big = message_s(p, l, BIG);
    w->bytes = big > small ? (BIG - SMALL) / (big - small) : BIG / big;
    w->latency_s = small - SMALL / w->bytes;
    w->latency_s = w->latency_s > 1e-7 ? w->latency_s : 1e-7;
    w->overlap = xd_probe_mean(p, overlap_share(p, l, BIG / w->bytes));
}

xd_status xd_probe_wires(xd_prober *p, xd_machine *m, xd_err *e)
{
    xd_comm *h = p->host, *all = p->all;
    int      n = m->ranks;
    char    *a = calloc(2, BIG);
    if (xd_world_agree_in(all, all->rank, a ? XD_OK : XD_ENOMEM, e) != XD_OK) {
        free(a);
        return xd_fail(e, XD_ENOMEM, "no memory for messages");
    }
    lane near = { h, (h->rank + 1) % h->size, (h->rank + h->size - 1) % h->size, a, a + BIG };
    lane far = { all, (all->rank + n) % all->size, (all->rank + all->size - n) % all->size, a,
                 a + BIG };
    if (n > 1)
        probe_wire(p, &near, &m->inside);
    /* Each rank sends to the rank with the same index on the next host. All ranks of a host share
     * the host's network port, so the bandwidth of the host is n times that of a rank. */
    if (m->hosts > 1) {
        probe_wire(p, &far, &m->between);
        m->between.bytes *= n;
    }
    free(a);
    return XD_OK;
}
