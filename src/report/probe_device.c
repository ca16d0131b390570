/* probe_device.c - measures the links of devices with their own memory: between host and device,
 * and between the devices of two ranks.
 *
 * Messages are queued one after the other, as in a model, and the host waits for the last
 * message. */
#include <stdlib.h>

#include "base/clock.h"
#include "ranks/world.h"
#include "report/probe.h"

enum {
    SMALL = 16 << 10,
    BIG = 64 << 20,
    BIG_SLOW = 1 << 20,
    MANY = 50,
    FEW = 8,
    ROUNDS = 5,
    WIDTH = 4096,
    WIDTH_SLOW = 64,
    MOST_PRODUCTS = 4096
};

/* arguments for sending buffer a to rank `to`, and receiving buffer b from rank `from` */
typedef struct lane {
    xd_prober *p;
    xd_comm   *c;
    int        to, from;
    char      *a, *b;
    int64_t    big;
} lane;

static xd_tensor floats_at(char *p, int64_t bytes)
{
    int64_t n = bytes / (int64_t)sizeof(float);
    return xd_view(p, XD_F32, 1, &n);
}

static void wait_for_device(const lane *l)
{
    l->p->dev->mem->sync(l->p->dev, NULL);
}

static void start_exchange(const lane *l, int64_t bytes, xd_req r[2])
{
    r[0] = l->c->ops->recv(l->c, floats_at(l->b, bytes), l->from);
    r[1] = l->c->ops->send(l->c, floats_at(l->a, bytes), l->to);
}

/* Exchanges messages with another rank in several rounds. Returns the seconds of the fastest round,
 * averaged over the ranks. */
static double exchange_s(const lane *l, int64_t bytes, int n)
{
    double best = 1e30;
    xd_req r[2];
    for (int i = 0; i <= ROUNDS; i++) { /* round 0 sets up the message channels */
        xd_probe_meet(l->p);
        double t = xd_now_s();
        for (int k = 0; k < n; k++) {
            start_exchange(l, bytes, r);
            l->c->ops->wait(l->c, r, 2);
        }
        wait_for_device(l);
        t = (xd_now_s() - t) / n;
        best = i && t < best ? t : best;
    }
    return xd_probe_mean(l->p, best > 1e-9 ? best : 1e-9);
}

/* ---- computing during a message ------------------------------------------------------------- */

typedef struct product {
    xd_gemm   gemm;
    xd_weight w;
    char     *block;
    void     *tmp;
    size_t    bytes;
} product;

/* Opens the matrix product whose speed is measured. All operands are zero, so the weights need not
 * be packed: packed zeros are zeros in every layout. */
static xd_status open_product(product *q, xd_dev *d, int64_t n)
{
    *q = (product){ .w = { .type = XD_BF16,
                           .out = n,
                           .in = n,
                           .kernel = { 1, 1, 1 },
                           .stride = { 1, 1, 1 },
                           .groups = 1 } };
    q->w.bytes = d->ops->pack_size(d, &q->w);
    q->gemm = (xd_gemm){ .out = xd_view2(NULL, XD_BF16, n, n),
                         .in = xd_view2(NULL, XD_BF16, n, n),
                         .w = &q->w };
    size_t side = (xd_bytes(q->gemm.in) + XD_ALIGN) / XD_ALIGN * XD_ALIGN,
           weights = (q->w.bytes + XD_ALIGN) / XD_ALIGN * XD_ALIGN;
    q->bytes = 2 * side + weights + d->ops->scratch(d, XD_OP_GEMM, &q->gemm) + XD_ALIGN;
    q->block = d->mem->get(d, q->bytes);
    if (!q->block)
        return XD_ENOMEM;
    q->gemm.out.p = q->block;
    q->gemm.in.p = q->block + side;
    q->w.p = q->block + 2 * side;
    q->tmp = q->block + 2 * side + weights;
    return d->mem->fill(d, NULL, q->block, 0, q->bytes);
}

static void compute(const lane *l, product *q, int n)
{
    xd_dev *d = l->p->dev;
    for (int i = 0; i < n; i++)
        d->ops->gemm(d, NULL, &q->gemm, q->tmp);
}

static double products_s(const lane *l, product *q, int n)
{
    double best = 1e30;
    for (int i = 0; i < ROUNDS; i++) {
        wait_for_device(l);
        double t = xd_now_s();
        compute(l, q, n);
        wait_for_device(l);
        t = xd_now_s() - t;
        best = t < best ? t : best;
    }
    return best;
}

/* Returns the fraction of the device's compute speed that remains while a large message is in
 * transit. */
static double overlap_share(const lane *l, product *q, double message)
{
    double best = 1e30;
    int    n = 1;
    xd_req r[2];
    while (n < MOST_PRODUCTS && products_s(l, q, n) < 3 * message)
        n *= 2;
    n = (int)xd_probe_mean(l->p, n);
    double alone = products_s(l, q, n);
    for (int i = 0; i < ROUNDS; i++) {
        xd_probe_meet(l->p);
        double t = xd_now_s();
        start_exchange(l, l->big, r);
        compute(l, q, n);
        l->c->ops->wait(l->c, r, 2);
        wait_for_device(l);
        t = xd_now_s() - t;
        best = t < best ? t : best;
    }
    double v = 1 - (best - alone) / message;
    return v < 0 ? 0 : v > 1 ? 1 : v;
}

/* ---- all ------------------------------------------------------------------------------------ */

static void probe_wire(const lane *l, product *q, xd_wire *w)
{
    double small = exchange_s(l, SMALL, MANY), big = exchange_s(l, l->big, FEW);
    double bytes = (double)l->big;
    w->bytes = big > small ? (bytes - SMALL) / (big - small) : bytes / big;
    w->latency_s = small - SMALL / w->bytes;
    w->latency_s = w->latency_s > 1e-7 ? w->latency_s : 1e-7;
    w->overlap = xd_probe_mean(l->p, overlap_share(l, q, bytes / w->bytes));
    w->shared = 0;
}

static double host_link(const xd_prober *p, int back)
{
    xd_probe_meet(p);
    return xd_probe_mean(p, p->dev->mem->link ? p->dev->mem->link(p->dev, back) : 0);
}

xd_status xd_probe_device_wires(xd_prober *p, xd_machine *m, xd_err *e)
{
    xd_comm *h = p->host, *all = p->all;
    xd_dev  *d = p->dev;
    int      n = m->ranks;
    int64_t  big = p->slow ? BIG_SLOW : BIG;
    product  q = { .block = NULL };
    m->upload = host_link(p, 0);
    m->download = host_link(p, 1);
    if (all->size == 1)
        return XD_OK;
    char     *a = d->mem->get(d, 2 * (size_t)big);
    xd_status s = a ? d->mem->fill(d, NULL, a, 0, 2 * (size_t)big) : XD_ENOMEM;
    if (s == XD_OK)
        s = open_product(&q, d, p->slow ? WIDTH_SLOW : WIDTH);
    if (s != XD_OK)
        xd_fail(e, s, "%s has no memory for the messages of xdit probe", d->name);
    s = xd_world_agree_in(all, all->rank, s, e);
    if (s == XD_OK) {
        lane near = { p,       h,  (h->rank + 1) % h->size, (h->rank + h->size - 1) % h->size, a,
                      a + big, big };
        lane far = {
            p,       all, (all->rank + n) % all->size, (all->rank + all->size - n) % all->size, a,
            a + big, big
        };
        if (n > 1)
            probe_wire(&near, &q, &m->inside);
        if (m->hosts > 1)
            probe_wire(&far, &q, &m->between);
        m->between.bytes *= m->hosts > 1 ? n : 1;
    }
    if (a)
        d->mem->put(d, a, 2 * (size_t)big);
    if (q.block)
        d->mem->put(d, q.block, q.bytes);
    return s;
}
