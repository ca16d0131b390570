/* ring.c - ring attention (Liu et al. 2023, arXiv:2310.01889): keys and values travel round the
 * ring, partial results are joined by their log-sum-exp in f32.
 *
 * While one hop is computed the next one's keys and values are already on their way: a receive
 * is posted before the kernel starts. Members may hold different numbers of rows, also none. */
#include <stdlib.h>

#include "exec/op.h"
#include "exec/run.h"
#include "parallel/rows.h"

extern const xd_link xd_link_ring;

typedef struct ring {
    xd_mix         mix;
    const xd_topo *topo;
    xd_dev        *dev;
    void          *buf[2];      /* K and V of one member, rows after rows                      */
    size_t         bytes;
} ring;

/* K (which 0) and V (1) of `n` rows in a buffer. */
static xd_tensor in_buf(const ring *s, int b, int which, xd_tensor like, int64_t n)
{
    int64_t   d[4] = { 1, n, like.d[2], like.d[3] };
    xd_tensor t = xd_view(s->buf[b], like.type, 4, d);
    t.p = (char *)t.p + (size_t)which * xd_bytes(t);
    return t;
}

/* One buffer as a message: K and V in a row. */
static xd_tensor message(const ring *s, int b, xd_tensor like, int64_t n)
{
    return xd_view(s->buf[b], like.type, 1, (int64_t[]){ 2 * n * like.d[2] * like.d[3] });
}

static void take_mine(xd_exec *x, const ring *s, const xd_attn_args *a, int64_t n)
{
    int64_t at = 0;
    for (int i = 0; i < a->nkv; at += a->kv[i++].k.d[1]) {
        int64_t m = a->kv[i].k.d[1];
        xd_copy_to(x, xd_piece_of(in_buf(s, 0, 0, a->q, n), at, m), a->kv[i].k);
        xd_copy_to(x, xd_piece_of(in_buf(s, 0, 1, a->q, n), at, m), a->kv[i].v);
    }
    x->dev->mem->sync(x->dev, x->st);
}

static void attn(xd_exec *x, const xd_mix *m, xd_attn_args *a)
{
    const ring   *s = m->priv;
    xd_comm      *c = s->topo->group[XD_RING];
    int           R = c->size, me = c->rank;
    /* below the memory of PipeFusion a member's keys and values are those of all patches */
    int           patch = x->lay->npatch > 1 ? XD_ALL : x->patch;
    size_t        mark = xd_arena_mark(x->tmp);
    xd_tensor     q = a->q, o = xd_new_as(x, XD_F32, 4, q.d), po = xd_new_as(x, XD_F32, 4, q.d);
    xd_tensor     lse = xd_new_as(x, XD_F32, 3, q.d), plse = xd_new_as(x, XD_F32, 3, q.d);
    take_mine(x, s, a, xd_member_rows(x->lay, s->topo, patch, me));
    for (int hop = 0; hop < R; hop++) {
        int     b = hop & 1;
        int64_t n = xd_member_rows(x->lay, s->topo, patch, (me - hop + R) % R);
        int64_t coming = xd_member_rows(x->lay, s->topo, patch, (me - hop - 1 + R) % R);
        xd_req  r[2] = { { 0 }, { 0 } };
        if (hop < R - 1) {
            r[0] = c->ops->recv(c, message(s, !b, q, coming), (me - 1 + R) % R);
            r[1] = c->ops->send(c, message(s, b, q, n), (me + 1) % R);
        }
        xd_kv        kv = { in_buf(s, b, 0, q, n), in_buf(s, b, 1, q, n) };
        xd_attn_args p = *a;
        p.kv = &kv;
        p.nkv = 1;
        p.out = hop ? po : o;
        p.lse = hop ? plse : lse;
        xd_next_attn(x, m, &p);
        if (hop)
            xd_run(x, XD_OP_MERGE, "merge", &(xd_merge){ o, lse, po, plse });
        if (c->ops->wait(c, r, 2) != XD_OK)
            xd_exec_fail(x, XD_ECOMM, "ring: a message to a neighbour failed");
    }
    xd_copy_to(x, a->out, o);
    if (a->lse.p)
        xd_copy_to(x, a->lse, lse);
    xd_arena_rewind(x->tmp, mark);
}

static void close(xd_mix *m)
{
    ring *s = m->priv;
    for (int i = 1; i >= 0; i--)        /* last one first: counting memory is a stack           */
        if (s->buf[i])
            s->dev->mem->put(s->dev, s->buf[i], s->bytes);
    free(s);
}

static xd_status open(const xd_link_args *a, const xd_mix *next, xd_mix **out, xd_err *e)
{
    *out = NULL;
    if (a->what != XD_FOR_DIT || a->topo->deg.n[XD_RING] == 1 || a->displaced)
        return XD_OK;
    ring *s = calloc(1, sizeof *s);
    if (!s)
        return xd_fail(e, XD_ENOMEM, "ring: no memory");
    s->mix = (xd_mix){ .name = "ring", .attn = attn, .next = next, .priv = s };
    s->topo = a->topo;
    s->dev = a->dev;
    int64_t rows = 0, heads = xd_my_heads(a);
    for (int r = 0; r < a->topo->deg.n[XD_RING]; r++) {
        int64_t n = xd_member_rows(a->lay, a->topo, XD_ALL, r);
        rows = n > rows ? n : rows;
    }
    s->bytes = (size_t)(2 * rows * heads * a->head_dim) * xd_dtype_size(a->act) + 64;
    s->mix.bytes = 2 * s->bytes;
    s->buf[0] = s->dev->mem->get(s->dev, s->bytes);
    s->buf[1] = s->dev->mem->get(s->dev, s->bytes);
    *out = &s->mix;
    if (!s->buf[0] || !s->buf[1]) {
        xd_fail(e, XD_ENOMEM, "ring: no memory for twice %zu bytes", s->bytes);
        close(*out);
        *out = NULL;
        return XD_ENOMEM;
    }
    return XD_OK;
}

const xd_link xd_link_ring = { "ring", open, close };
