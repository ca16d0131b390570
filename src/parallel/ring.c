/* ring.c - implements ring attention (Liu et al. 2023, arXiv:2310.01889): queries stay on their
 * rank, and keys and values are sent around the ring of ranks.
 *
 * Attention adds terms in the same order as on one rank, regardless of the messages: each rank
 * attends to the keys and values of all members of the ring at once, in global token order.
 * Attention heads are independent, so keys and values are sent for groups of heads: while attention
 * of one group is computed, the keys and values of the next group are in transit. Ring members may
 * have different numbers of token rows, including none.
 *
 * If all members are on one host and have shared-memory windows, no tensor bytes are sent: each
 * member gets views of the keys and values in the other members' windows, and attends to these
 * views without a copy. Between hosts, keys and values may be sent as codes of 8 bits
 * (xd_topo.codes); a rank attends to its own keys and values as they are. */
#include <stdlib.h>

#include "exec/op.h"
#include "exec/run.h"
#include "parallel/rows.h"

extern const xd_method xd_method_ring;

/* The max number of groups of attention heads, and the min bytes of the message for one group. */
enum { MOST_GROUPS = 4, LEAST_BYTES = 65536 };

typedef struct ring {
    xd_hooks       hooks;
    const xd_topo *topo;
    xd_dev        *dev;
    int64_t        heads;  /* max number of key heads per group of heads */
    int64_t        each;   /* number of query heads per key head */
    void          *buf[2]; /* each: K and V of all ring members, for a group of heads */
    size_t         bytes;
    xd_tensor     *give, *get; /* [R]: views to send and to receive */
    xd_tensor     *k, *v;      /* [R]: keys and values of each ring member */
    int64_t       *row; /* [R]: for each ring member, the next row to add to the list of segments */
    /* [1 + npatch * streams * R]: the list of key and value segments in token order. */
    xd_kv         *seg;
    xd_qo         *part; /* [U]: the queries of each Ulysses rank, with their outputs */
} ring;

/* Returns the number of token rows of ring member r. With PipeFusion, the number includes the rows
 * of all patches, because stale.c has added the stored rows of the other patches. */
static int64_t rows_of(const xd_exec *x, const ring *s, int r)
{
    return xd_member_rows(x->lay, s->topo, x->lay->npatch > 1 ? XD_ALL : x->patch, r);
}

/* Returns a view of the heads [first, first + n) of a tensor [1,N,H,D]. */
static xd_tensor heads_view(xd_tensor t, int64_t first, int64_t n)
{
    if (t.p)
        t.p = (char *)t.p + first * t.s[2] * (int64_t)xd_dtype_size(t.type);
    t.d[2] = n;
    return t;
}

/* Copies the keys and values of this rank's segments to consecutive rows of k and v, for the heads
 * from `first` on. If the type of k and v is one of codes, the copies are coded. */
static void copy_own(xd_exec *x, const xd_attn_args *a, int64_t first, xd_tensor k, xd_tensor v)
{
    int64_t at = 0, heads = k.d[2];
    void (*copy)(xd_exec *x, xd_tensor out, xd_tensor in) = xd_is_quantized(k.type) ? xd_encode_to
                                                                                    : xd_copy_to;
    for (int i = 0; i < a->nkv; at += a->kv[i++].k.d[1]) {
        int64_t m = a->kv[i].k.d[1];
        copy(x, xd_piece_of(k, at, m), heads_view(a->kv[i].k, first, heads));
        copy(x, xd_piece_of(v, at, m), heads_view(a->kv[i].v, first, heads));
    }
}

/* ---- the token order of one rank ---------------------------------------------------------- */

/* Appends segments with each ring member's next rows of a stream in a patch, after n existing
 * segments. */
static int append_rows(const xd_exec *x, const ring *s, xd_stream_id stream, int patch, int n)
{
    const xd_topo *t = s->topo;
    for (int r = 0; r < t->deg.n[XD_RING]; r++) {
        int64_t m = 0;
        for (int u = 0; u < t->deg.n[XD_ULYSSES]; u++)
            m += xd_own(x->lay, stream, patch, xd_topo_sp(t, u, r)).n;
        if (m)
            s->seg[n++] =
                (xd_kv){ xd_piece_of(s->k[r], s->row[r], m), xd_piece_of(s->v[r], s->row[r], m) };
        s->row[r] += m;
    }
    return n;
}

/* Returns the arguments of attention over the keys and values of all ring members (s->k and s->v),
 * text first, then patches. A prefix comes before them, with its heads from `first` on. */
static xd_attn_args attn_over_all(const xd_exec *x, const ring *s, const xd_attn_args *a,
                                  int64_t first)
{
    xd_attn_args b = *a;
    int          n = 0;
    for (int r = 0; r < s->topo->deg.n[XD_RING]; r++)
        s->row[r] = 0;
    b.kv = s->seg;
    b.prefix = NULL;
    if (a->prefix) {
        const int64_t heads = s->k[0].d[2];
        s->seg[n++] = (xd_kv){ heads_view(a->prefix->k, first, heads),
                               heads_view(a->prefix->v, first, heads) };
    }
    b.nkv = n;
    for (int i = 0; i < XD_NSTREAMS; i++)
        for (int p = 0; p < x->lay->npatch; p++)
            b.nkv = append_rows(x, s, xd_stream_order[i], p, b.nkv);
    return b;
}

/* ---- shared-memory windows ---------------------------------------------------------------- */

/* Returns a view of n rows of the message buffer b. The view replaces the data of a failed ring
 * member, which is not in a shared-memory window. */
static xd_tensor buffer_view(const ring *s, int b, xd_tensor queries, int64_t n)
{
    return xd_view(s->buf[b], queries.type, 4,
                   (int64_t[]){ 1, n, queries.d[2] / s->each, queries.d[3] });
}

/* Sends a view of K or V to the next ring member and returns the view that the previous member
 * sends. If the previous member's data is not in a shared-memory window, the data is received in
 * the tensor `to`. */
static xd_tensor pass_view(xd_exec *x, const ring *s, xd_tensor mine, xd_tensor to)
{
    xd_comm *c = s->topo->group[XD_RING];
    int      next = (c->rank + 1) % c->size, before = (c->rank - 1 + c->size) % c->size;
    for (int r = 0; r < c->size; r++)
        s->give[r] = s->get[r] = (xd_tensor){ .type = mine.type };
    s->give[next] = mine;
    s->get[before] = to;
    xd_req q = c->ops->exchange_views(c, s->give, s->get);
    if (c->ops->wait(c, &q, 1) != XD_OK)
        xd_exec_fail(x, XD_ECOMM, "ring attention: a message to a neighbour failed");
    return s->get[before];
}

/* Makes sure that this rank's keys and values are in its shared-memory window. Copies keys and
 * values that are not in the window to the arena. */
static void place_own(xd_exec *x, const ring *s, const xd_attn_args *a)
{
    xd_comm *c = s->topo->group[XD_RING];
    int64_t  n = rows_of(x, s, c->rank);
    xd_kv    own = a->kv[0];
    if (a->nkv != 1 || !c->ops->in_window(c, own.k.p) || !c->ops->in_window(c, own.v.p)) {
        int64_t d[4] = { 1, n, a->q.d[2] / s->each, a->q.d[3] };
        own = (xd_kv){ xd_new_as(x, a->q.type, 4, d), xd_new_as(x, a->q.type, 4, d) };
        copy_own(x, a, 0, own.k, own.v);
    }
    if (!xd_ok(x)) /* a failed rank's tensors have no valid addresses */
        own = (xd_kv){ buffer_view(s, 1, a->q, n), buffer_view(s, 1, a->q, n) };
    s->k[c->rank] = own.k;
    s->v[c->rank] = own.v;
}

static void attn_shared(xd_exec *x, const xd_hooks *m, xd_attn_args *a)
{
    const ring *s = m->priv;
    xd_comm    *c = s->topo->group[XD_RING];
    int         R = c->size;
    size_t      mark = xd_arena_mark(x->tmp);
    place_own(x, s, a);
    for (int hop = 0; hop < R - 1; hop++) {
        int     now = (c->rank - hop + R) % R, from = (now - 1 + R) % R;
        int64_t n = rows_of(x, s, from);
        s->k[from] = pass_view(x, s, s->k[now], buffer_view(s, hop & 1, a->q, n));
        s->v[from] = pass_view(x, s, s->v[now], buffer_view(s, hop & 1, a->q, n));
    }
    xd_attn_args b = attn_over_all(x, s, a, 0);
    xd_next_attn(x, m, &b);
    c->ops->barrier(c); /* waits until no other rank reads this rank's K and V */
    xd_arena_rewind(x->tmp, mark);
}

/* Adds the arena memory that attn_shared would need to the memory count. When memory is counted, it
 * is not yet known whether the ranks will have shared-memory windows. */
static void count_window(xd_exec *x, const xd_hooks *m, const xd_attn_args *a)
{
    const ring *s = m->priv;
    size_t      mark = xd_arena_mark(x->tmp);
    for (int r = 0; r < s->topo->deg.n[XD_RING]; r++)
        s->k[r] = s->v[r] = buffer_view(s, 0, a->q, rows_of(x, s, r));
    int64_t d[4] = { 1, rows_of(x, s, s->topo->at[XD_RING]), a->q.d[2] / s->each, a->q.d[3] };
    xd_new_as(x, a->q.type, 4, d), xd_new_as(x, a->q.type, 4, d);
    xd_attn_args b = attn_over_all(x, s, a, 0);
    if (x->group == XD_GROUP_NONE)
        xd_new_as(x, XD_I8, 1,
                  (int64_t[]){ (int64_t)x->dev->ops->scratch(x->dev, XD_OP_ATTN, &b) });
    else
        xd_groups_reserve(x, m, &b);
    xd_arena_rewind(x->tmp, mark);
}

/* ---- messages ----------------------------------------------------------------------------- */

/* Divides the buffer b among the ring members, for n heads: s->k and s->v become views of each
 * member's keys and values, and s->give[r] becomes the contiguous bytes of the keys and values of
 * member r. */
static void view_buffer(const xd_exec *x, const ring *s, int b, xd_tensor like, int64_t n)
{
    const xd_dtype codes = xd_topo_codes(s->topo, XD_RING);
    const int      coded = codes != XD_F32;
    const xd_dtype type = coded ? codes : like.type;
    char          *p = s->buf[b];
    for (int r = 0; r < s->topo->deg.n[XD_RING]; r++) {
        int64_t d[4] = { 1, rows_of(x, s, r), n, like.d[3] + (coded ? XD_CODE_SCALE : 0) };
        s->k[r] = xd_view(p, type, 4, d);
        s->v[r] = xd_view(p + xd_bytes(s->k[r]), type, 4, d);
        s->give[r] = xd_view(p, type, 1, (int64_t[]){ 2 * xd_count(s->k[r]) });
        p += xd_bytes(s->give[r]);
    }
}

/* Replaces the views s->k and s->v of codes by views of values in the arena, for the heads from
 * `first` on. */
static void decode_views(xd_exec *x, const ring *s, const xd_attn_args *a, int64_t first)
{
    for (int r = 0; r < s->topo->deg.n[XD_RING]; r++) {
        int64_t   d[4] = { 1, s->k[r].d[1], s->k[r].d[2], a->q.d[3] };
        xd_tensor k = xd_new_as(x, a->q.type, 4, d), v = xd_new_as(x, a->q.type, 4, d);
        if (r == s->topo->at[XD_RING]) {
            copy_own(x, a, first, k, v);
        } else {
            xd_decode_to(x, k, s->k[r]);
            xd_decode_to(x, v, s->v[r]);
        }
        s->k[r] = k, s->v[r] = v;
    }
}

/* Starts the exchange of keys and values for the group of heads that starts at key head
 * `first`. */
static xd_req send_heads(xd_exec *x, const ring *s, const xd_attn_args *a, int b, int64_t first)
{
    xd_comm *c = s->topo->group[XD_RING];
    int64_t  left = a->q.d[2] / s->each - first;
    view_buffer(x, s, b, a->q, left < s->heads ? left : s->heads);
    copy_own(x, a, first, s->k[c->rank], s->v[c->rank]);
    return c->ops->circulate(c, s->give);
}

/* Returns the arguments of attention for the group of heads from key head `first` on, over the keys
 * and values in buffer b. */
static xd_attn_args attn_of_heads(xd_exec *x, const ring *s, const xd_attn_args *a, int b,
                                  int64_t first)
{
    int64_t left = a->q.d[2] / s->each - first, n = left < s->heads ? left : s->heads;
    view_buffer(x, s, b, a->q, n);
    if (xd_topo_codes(s->topo, XD_RING) != XD_F32)
        decode_views(x, s, a, first);
    xd_attn_args p = attn_over_all(x, s, a, first);
    first *= s->each, n *= s->each;
    p.q = heads_view(a->q, first, n);
    p.out = heads_view(a->out, first, n);
    p.part = s->part;
    for (int i = 0; i < a->nparts; i++)
        s->part[i] =
            (xd_qo){ heads_view(a->part[i].q, first, n), heads_view(a->part[i].out, first, n) };
    return p;
}

static void attn_by_messages(xd_exec *x, const xd_hooks *m, xd_attn_args *a)
{
    const ring *s = m->priv;
    xd_comm    *c = s->topo->group[XD_RING];
    int64_t     heads = a->q.d[2] / s->each;
    xd_req      coming = heads ? send_heads(x, s, a, 0, 0) : (xd_req){ 0 };
    for (int64_t first = 0, b = 0; first < heads; first += s->heads, b = !b) {
        if (c->ops->wait(c, &coming, 1) != XD_OK)
            xd_exec_fail(x, XD_ECOMM, "ring attention: a message to a neighbour failed");
        coming = (xd_req){ 0 };
        if (first + s->heads < heads)
            coming = send_heads(x, s, a, !b, first + s->heads);
        size_t       mark = xd_arena_mark(x->tmp);
        xd_attn_args p = attn_of_heads(x, s, a, (int)b, first);
        xd_next_attn(x, m, &p);
        xd_arena_rewind(x->tmp, mark);
    }
}

static void ring_attn(xd_exec *x, const xd_hooks *m, xd_attn_args *a)
{
    const ring *s = m->priv;
    xd_comm    *c = s->topo->group[XD_RING];
    xd_check(x, !a->lse.p && !a->bias.p && a->q.d[0] == 1, "ring: not a transformer's attention");
    const int coded = xd_topo_codes(s->topo, XD_RING) != XD_F32;
    if (xd_counting(x) && !coded)
        count_window(x, m, a);
    (!coded && c->ops->in_window(c, x->tmp->base) ? attn_shared : attn_by_messages)(x, m, a);
}

/* ---- opening ------------------------------------------------------------------------------ */

static void close_ring(xd_hooks *m)
{
    ring *s = m->priv;
    /* The buffers are freed in reverse order, because the memory counter treats allocations as a
     * stack. */
    for (int i = 1; i >= 0; i--)
        if (s->buf[i])
            s->dev->mem->put(s->dev, s->buf[i], s->bytes);
    free(s->give), free(s->get), free(s->k), free(s->v), free(s->row);
    free(s->seg), free(s->part), free(s);
}

/* Sets the number of heads per group, and the buffer size. A buffer has space for one group of
 * heads of all ring members, and for all heads of the largest member. */
static void set_sizes(ring *s, const xd_method_args *a)
{
    int     R = a->topo->deg.n[XD_RING], groups = 1;
    int64_t all = 0, most = 0, heads = xd_my_heads(a), size = (int64_t)xd_dtype_size(a->act);
    for (int r = 0; r < R; r++) {
        int64_t n = xd_member_rows(a->lay, a->topo, XD_ALL, r);
        all += n;
        most = n > most ? n : most;
    }
    int64_t message = 2 * (all / R) * heads * a->head_dim * size;
    while (groups < MOST_GROUPS && groups < heads && message / (groups + 1) >= LEAST_BYTES)
        groups++;
    s->heads = heads ? (heads + groups - 1) / groups : 1;
    int64_t rows = 2 * all * s->heads, whole = most * heads;
    s->bytes = (size_t)((rows > whole ? rows : whole) * a->head_dim * size) + 64;
    s->hooks.bytes = 2 * s->bytes;
}

static int alloc_arrays(ring *s, int R, int U, int npatch)
{
    const size_t n = (size_t)R;
    s->give = calloc(n, sizeof *s->give), s->get = calloc(n, sizeof *s->get);
    s->k = calloc(n, sizeof *s->k), s->v = calloc(n, sizeof *s->v);
    s->row = calloc(n, sizeof *s->row);
    s->seg = calloc(1 + (size_t)(npatch * XD_NSTREAMS) * n, sizeof *s->seg);
    s->part = calloc((size_t)U, sizeof *s->part);
    return s->give && s->get && s->k && s->v && s->row && s->seg && s->part;
}

static xd_status open_ring(const xd_method_args *a, const xd_hooks *next, xd_hooks **out, xd_err *e)
{
    const int R = a->topo->deg.n[XD_RING];
    *out = NULL;
    if (a->what != XD_FOR_DIT || a->linear || R == 1 || a->displaced)
        return XD_OK;
    ring *s = calloc(1, sizeof *s);
    if (!s)
        return xd_fail(e, XD_ENOMEM, "no memory for ring attention");
    s->hooks = (xd_hooks){ .attn = ring_attn, .next = next, .priv = s };
    s->topo = a->topo;
    s->dev = a->dev;
    s->each = a->group;
    set_sizes(s, a);
    int ok = alloc_arrays(s, R, a->topo->deg.n[XD_ULYSSES], a->lay->npatch);
    s->buf[0] = s->dev->mem->get(s->dev, s->bytes);
    s->buf[1] = s->dev->mem->get(s->dev, s->bytes);
    *out = &s->hooks;
    if (!ok || !s->buf[0] || !s->buf[1]) {
        xd_fail(e, XD_ENOMEM, "no memory for ring attention: two buffers of %zu bytes", s->bytes);
        close_ring(*out);
        *out = NULL;
        return XD_ENOMEM;
    }
    return XD_OK;
}

const xd_method xd_method_ring = { "ring", open_ring, close_ring };
