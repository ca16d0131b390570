/* linked.c - sends the messages of communication calls through NCCL links */
#include "comm/linked.h"

#include <stdlib.h>

#include "base/log.h"
#include "comm/kinds.h"

struct xd_links {
    xd_staging         *w;
    const xd_dev_links *ops;
    xd_link           **link; /* links: [0] for collective calls, [1 + r] for messages of rank r */
    int                 rank, n, lost;
};

typedef struct part {
    char  *p;
    size_t bytes;
    int    peer;
} part; /* one message of a call */

/* Returns contiguous device memory for a tensor that is sent or received, or NULL if out of
 * memory. */
static char *place_of(xd_staging *w, xd_stage_call *k, xd_tensor t, int comes)
{
    size_t bytes = xd_comm_bytes(t);
    if (xd_stage_on_device(w, t) && xd_contiguous(t))
        return t.p;
    char *p = xd_stage_alloc(w, k, 1, bytes);
    if (!p || (comes && !xd_stage_copies_add(&k->up, t, p)))
        return NULL;
    if (!comes)
        xd_direct_pack(w, p, t);
    return p;
}

/* Lists the messages that a call receives (`comes` is 1) or sends (`comes` is 0). Returns the
 * number of messages, or -1 if out of memory. */
static int list_parts(const xd_direct *g, xd_stage_call *k, int size, int comes, part *out)
{
    int n = 0;
    for (int r = 0; r < size; r++) {
        xd_tensor t = k->view[comes * size + r];
        if (r == g->me || !xd_comm_bytes(t))
            continue;
        out[n] = (part){ place_of(g->links->w, k, t, comes), xd_comm_bytes(t), g->rank[r] };
        if (!out[n++].p)
            return -1;
    }
    return n;
}

int xd_links_begin(const xd_direct *g, xd_stage_call *k, int size, int peer, xd_traffic *traffic)
{
    xd_links           *l = g->links;
    const xd_dev_lanes *lanes = l->w->lanes;
    part                out[64], in[64];
    int                 nout = list_parts(g, k, size, 0, out), nin = list_parts(g, k, size, 1, in);
    if (nout < 0 || nin < 0)
        return 0;
    lanes->set(l->w->dev, k->before, XD_LANE_COMPUTE);
    k->peer = peer < 0 ? 0 : 1 + (nin ? g->rank[peer] : l->rank);
    xd_link *link = l->link[k->peer];
    if (!link || nout + nin == 0) {
        k->peer = link ? k->peer : -1;
        lanes->set(l->w->dev, k->in, XD_LANE_COMPUTE);
        return 1;
    }
    l->ops->begin(link, k->before);
    for (int i = 0; i < nout; i++) {
        l->ops->send(link, out[i].p, out[i].bytes, out[i].peer);
        traffic->bytes += (int64_t)out[i].bytes;
        traffic->messages++;
    }
    for (int i = 0; i < nin; i++)
        l->ops->recv(link, in[i].p, in[i].bytes, in[i].peer);
    l->ops->end(link, k->in);
    return 1;
}

xd_status xd_links_end(const xd_direct *g, xd_stage_call *k)
{
    xd_links   *l = g->links;
    xd_staging *w = l->w;
    if (k->peer < 0 || !l->link[k->peer])
        return xd_fail(w->err, XD_ECOMM, "a link between devices was aborted after a failure");
    xd_status st = l->ops->check(l->link[k->peer], w->err);
    xd_status now = w->lanes->follow(w->dev, XD_LANE_COMPUTE, k->in);
    st = st == XD_OK ? now : st;
    now = xd_direct_unpack(w, k);
    return st == XD_OK ? now : st;
}

/* ---- opening ------------------------------------------------------------------------------ */

/* Returns 1 if every rank has its own device. */
static int each_has_its_own(xd_staging *w, xd_comm *c)
{
    int64_t mine = (int64_t)xd_dev_identity(w->dev), all[64], ones[64];
    for (int r = 0; r < c->size; r++)
        ones[r] = 1;
    xd_req q = c->ops->gather(c, xd_view(all, XD_I64, 1, (int64_t[]){ c->size }), ones,
                              xd_view(&mine, XD_I64, 1, (int64_t[]){ 1 }));
    int    ok = c->ops->wait(c, &q, 1) == XD_OK;
    for (int r = 0; r < c->size; r++)
        for (int i = 0; i < r; i++)
            ok = ok && all[i] != all[r];
    return ok;
}

/* Opens one NCCL link between all ranks. Returns 0 if opening the link failed on any rank. */
static int open_link(xd_links *l, xd_comm *c, int i, xd_err *e)
{
    xd_link_id id = { { 0 } };
    int        made = c->rank || l->ops->id(l->w->dev, &id, e) == XD_OK;
    if (!xd_comm_all_can(c, made))
        return 0;
    xd_req q = c->ops->bcast(c, xd_view(&id, XD_U8, 1, (int64_t[]){ (int64_t)sizeof id }), 0);
    if (c->ops->wait(c, &q, 1) != XD_OK)
        return 0;
    l->link[i] = l->ops->open(l->w->dev, &id, c->rank, c->size, e);
    return xd_comm_all_can(c, l->link[i] != NULL);
}

xd_links *xd_links_open(xd_staging *w, xd_comm *world, const char **why)
{
    const xd_dev_links *ops = w->lanes ? w->lanes->links : NULL;
    xd_err              e = { 0 };
    int                 ok = ops && world->size <= 64;
    xd_links           *l = ok ? calloc(1, sizeof *l) : NULL;
    *why = "a rank has no NCCL";
    ok = l && ops->id(w->dev, NULL, &e) == XD_OK;
    if (xd_comm_all_can(world, ok)) {
        *why = "ranks share a device";
        ok = each_has_its_own(w, world);
        *l = (xd_links){ .w = w, .ops = ops, .rank = world->rank, .n = world->size + 1 };
        l->link = calloc((size_t)l->n, sizeof(xd_link *));
        ok = xd_comm_all_can(world, ok) && xd_comm_all_can(world, l->link != NULL);
        for (int i = 0; i < l->n && ok; i++) {
            *why = "opening a link failed";
            ok = open_link(l, world, i, &e);
        }
        if (ok)
            return l;
    }
    if (e.code != XD_OK)
        xd_log(XD_LOG_DEBUG, "rank %d: %s", world->rank, e.msg);
    if (l) {
        l->lost = 1;
        xd_links_close(l);
    }
    return NULL;
}

static void close_links(xd_links *l, int abort)
{
    for (int i = 0; l->link && i < l->n; i++)
        if (l->link[i]) {
            l->ops->close(l->link[i], abort);
            l->link[i] = NULL;
        }
}

void xd_links_give_up(xd_links *l, const xd_stage_call *k)
{
    if (k->peer < 0 || !l->link[k->peer])
        return;
    xd_stage_settle(l->w);
    l->ops->close(l->link[k->peer], 1);
    l->link[k->peer] = NULL;
    l->lost = 1;
}

void xd_links_close(xd_links *l)
{
    close_links(l, l->lost || l->w->err->code != XD_OK);
    free(l->link), free(l);
}
