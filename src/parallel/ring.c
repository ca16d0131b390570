/* ring.c - ring attention (Liu et al. 2023, arXiv:2310.01889): keys and values travel round the
 * ring, partial results are joined by their log-sum-exp in f32.
 *
 * While one hop is computed the next one's keys and values are already on their way: a receive
 * is posted before the kernel starts. Members may hold different numbers of rows, also none.
 *
 * Where all members are of one host and lend their memory nothing travels: each is told where the keys and values of all
 * lie and attends to them at once, in the order of one rank. */
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
    xd_tensor     *give, *get;  /* [R]: of a hop in lent memory                                */
    xd_tensor     *k, *v;       /* [R]: of all members                                         */
    xd_kv         *seg;         /* [npatch * streams * R]                                      */
    xd_qo         *part;        /* [U]: of queries in pieces, which U members hold             */
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

/* Keys and values of all segments, rows after rows. */
static void take_mine(xd_exec *x, const xd_attn_args *a, xd_tensor k, xd_tensor v)
{
    int64_t at = 0;
    for (int i = 0; i < a->nkv; at += a->kv[i++].k.d[1]) {
        int64_t m = a->kv[i].k.d[1];
        xd_copy_to(x, xd_piece_of(k, at, m), a->kv[i].k);
        xd_copy_to(x, xd_piece_of(v, at, m), a->kv[i].v);
    }
    x->dev->mem->sync(x->dev, x->st);
}

/* Rows of member r. Below the memory of PipeFusion a member's keys and values are those of all patches. */
static int64_t rows_of(const xd_exec *x, const ring *s, int r)
{
    return xd_member_rows(x->lay, s->topo, x->lay->npatch > 1 ? XD_ALL : x->patch, r);
}

/* ---- lent memory -------------------------------------------------------------------------- */

/* What I show of K or V, told to the next member as the one before told me; `room` is where what is not lent goes. */
static xd_tensor pass(xd_exec *x, const ring *s, xd_tensor mine, xd_tensor room)
{
    xd_comm *c = s->topo->group[XD_RING];
    int      next = (c->rank + 1) % c->size, before = (c->rank - 1 + c->size) % c->size;
    for (int r = 0; r < c->size; r++)
        s->give[r] = s->get[r] = (xd_tensor){ .type = mine.type };
    s->give[next] = mine;
    s->get[before] = room;
    xd_req q = c->ops->show(c, s->give, s->get);
    if (c->ops->wait(c, &q, 1) != XD_OK)
        xd_exec_fail(x, XD_ECOMM, "ring: a message to a neighbour failed");
    return s->get[before];
}

/* My keys and values, in memory that I lend: where they lie, or copied. */
static void lend_mine(xd_exec *x, const ring *s, const xd_attn_args *a)
{
    xd_comm *c = s->topo->group[XD_RING];
    int64_t  n = rows_of(x, s, c->rank);
    xd_kv    own = a->kv[0];
    if (a->nkv != 1 || !c->ops->lends(c, own.k.p) || !c->ops->lends(c, own.v.p)) {
        int64_t d[4] = { 1, n, own.k.d[2], own.k.d[3] };
        own = (xd_kv){ xd_new_as(x, a->q.type, 4, d), xd_new_as(x, a->q.type, 4, d) };
        take_mine(x, a, own.k, own.v);
    }
    if (!xd_ok(x))              /* a failed rank follows none of its own addresses              */
        own = (xd_kv){ in_buf(s, 0, 0, a->q, n), in_buf(s, 0, 1, a->q, n) };
    s->k[c->rank] = own.k;
    s->v[c->rank] = own.v;
}

/* The attention over the keys and values of all. */
static xd_attn_args over_all(const xd_exec *x, const ring *s, const xd_attn_args *a)
{
    int          R = s->topo->deg.n[XD_RING];
    xd_attn_args b = *a;
    b.kv = s->seg;
    b.nkv = R;
    if (s->topo->deg.n[XD_ULYSSES] == 1 && x->lay->npatch == 1)
        b.nkv = xd_in_order(x, s->topo, XD_RING, s->k, s->v, s->seg);
    else
        for (int r = 0; r < R; r++)
            s->seg[r] = (xd_kv){ s->k[r], s->v[r] };
    return b;
}

static void attn_lent(xd_exec *x, const xd_mix *m, xd_attn_args *a)
{
    const ring *s = m->priv;
    xd_comm    *c = s->topo->group[XD_RING];
    int         R = c->size;
    size_t      mark = xd_arena_mark(x->tmp);
    lend_mine(x, s, a);
    for (int hop = 0; hop < R - 1; hop++) {
        int     now = (c->rank - hop + R) % R, from = (now - 1 + R) % R;
        int64_t n = rows_of(x, s, from);
        s->k[from] = pass(x, s, s->k[now], in_buf(s, hop & 1, 0, a->q, n));
        s->v[from] = pass(x, s, s->v[now], in_buf(s, hop & 1, 1, a->q, n));
    }
    xd_attn_args b = over_all(x, s, a);
    xd_next_attn(x, m, &b);
    c->ops->barrier(c);         /* until nobody reads mine                                      */
    xd_arena_rewind(x->tmp, mark);
}

/* While counting: what that takes of the arena, which is not known to be lent yet. */
static void count_lent(xd_exec *x, const ring *s, const xd_attn_args *a)
{
    size_t mark = xd_arena_mark(x->tmp);
    for (int r = 0; r < s->topo->deg.n[XD_RING]; r++)
        s->k[r] = s->v[r] = in_buf(s, 0, 0, a->q, rows_of(x, s, r));
    int64_t d[4] = { 1, rows_of(x, s, s->topo->at[XD_RING]), a->q.d[2], a->q.d[3] };
    xd_new_as(x, a->q.type, 4, d), xd_new_as(x, a->q.type, 4, d);
    xd_attn_args b = over_all(x, s, a);
    xd_new_as(x, XD_I8, 1, (int64_t[]){ (int64_t)x->dev->ops->scratch(x->dev, XD_OP_ATTN, &b) });
    xd_arena_rewind(x->tmp, mark);
}

/* ---- messages ----------------------------------------------------------------------------- */

/* The queries of `a`, and outputs in o [1,n,H,D] for them. */
static xd_attn_args into(const ring *s, const xd_attn_args *a, xd_tensor o, xd_tensor lse)
{
    xd_attn_args p = *a;
    int64_t      at = 0;
    p.out = o;
    p.lse = lse;
    p.part = s->part;
    for (int i = 0; i < a->nparts; at += a->part[i++].q.d[1])
        s->part[i] = (xd_qo){ a->part[i].q, xd_piece_of(o, at, a->part[i].q.d[1]) };
    return p;
}

static void put_out(xd_exec *x, const xd_attn_args *a, xd_tensor o)
{
    int64_t at = 0;
    if (!a->nparts)
        xd_copy_to(x, a->out, o);
    for (int i = 0; i < a->nparts; at += a->part[i++].q.d[1])
        xd_copy_to(x, a->part[i].out, xd_piece_of(o, at, a->part[i].q.d[1]));
}

static void attn_sent(xd_exec *x, const xd_mix *m, xd_attn_args *a)
{
    const ring *s = m->priv;
    xd_comm    *c = s->topo->group[XD_RING];
    int         R = c->size, me = c->rank;
    size_t      mark = xd_arena_mark(x->tmp);
    xd_tensor   q = a->q, o = xd_new_as(x, XD_F32, 4, q.d), po = xd_new_as(x, XD_F32, 4, q.d);
    xd_tensor   lse = xd_new_as(x, XD_F32, 3, q.d), plse = xd_new_as(x, XD_F32, 3, q.d);
    take_mine(x, a, in_buf(s, 0, 0, q, rows_of(x, s, me)), in_buf(s, 0, 1, q, rows_of(x, s, me)));
    for (int hop = 0; hop < R; hop++) {
        int     b = hop & 1;
        int64_t n = rows_of(x, s, (me - hop + R) % R), coming = rows_of(x, s, (me - hop - 1 + R) % R);
        xd_req  r[2] = { { 0 }, { 0 } };
        if (hop < R - 1) {
            r[0] = c->ops->recv(c, message(s, !b, q, coming), (me - 1 + R) % R);
            r[1] = c->ops->send(c, message(s, b, q, n), (me + 1) % R);
        }
        xd_kv        kv = { in_buf(s, b, 0, q, n), in_buf(s, b, 1, q, n) };
        xd_attn_args p = into(s, a, hop ? po : o, hop ? plse : lse);
        p.kv = &kv;
        p.nkv = 1;
        xd_next_attn(x, m, &p);
        if (hop)
            xd_run(x, XD_OP_MERGE, "merge", &(xd_merge){ o, lse, po, plse });
        if (c->ops->wait(c, r, 2) != XD_OK)
            xd_exec_fail(x, XD_ECOMM, "ring: a message to a neighbour failed");
    }
    put_out(x, a, o);
    if (a->lse.p)
        xd_copy_to(x, a->lse, lse);
    xd_arena_rewind(x->tmp, mark);
}

static void attn(xd_exec *x, const xd_mix *m, xd_attn_args *a)
{
    const ring *s = m->priv;
    xd_comm    *c = s->topo->group[XD_RING];
    if (xd_counting(x))
        count_lent(x, s, a);
    (c->ops->lends(c, x->tmp->base) ? attn_lent : attn_sent)(x, m, a);
}

static void close(xd_mix *m)
{
    ring *s = m->priv;
    for (int i = 1; i >= 0; i--)        /* last one first: counting memory is a stack           */
        if (s->buf[i])
            s->dev->mem->put(s->dev, s->buf[i], s->bytes);
    free(s->give), free(s->get), free(s->k), free(s->v), free(s->seg), free(s->part), free(s);
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
    int     R = a->topo->deg.n[XD_RING];
    int64_t rows = 0, heads = xd_my_heads(a);
    s->give = calloc((size_t)R, sizeof *s->give), s->get = calloc((size_t)R, sizeof *s->get);
    s->k = calloc((size_t)R, sizeof *s->k), s->v = calloc((size_t)R, sizeof *s->v);
    s->seg = calloc((size_t)(a->lay->npatch * XD_NSTREAMS * R), sizeof *s->seg);
    s->part = calloc((size_t)a->topo->deg.n[XD_ULYSSES], sizeof *s->part);
    for (int r = 0; r < R; r++) {
        int64_t n = xd_member_rows(a->lay, a->topo, XD_ALL, r);
        rows = n > rows ? n : rows;
    }
    s->bytes = (size_t)(2 * rows * heads * a->head_dim) * xd_dtype_size(a->act) + 64;
    s->mix.bytes = 2 * s->bytes;
    s->buf[0] = s->dev->mem->get(s->dev, s->bytes);
    s->buf[1] = s->dev->mem->get(s->dev, s->bytes);
    *out = &s->mix;
    if (!s->give || !s->get || !s->k || !s->v || !s->seg || !s->part || !s->buf[0] || !s->buf[1]) {
        xd_fail(e, XD_ENOMEM, "ring: no memory for twice %zu bytes", s->bytes);
        close(*out);
        *out = NULL;
        return XD_ENOMEM;
    }
    return XD_OK;
}

const xd_link xd_link_ring = { "ring", open, close };
