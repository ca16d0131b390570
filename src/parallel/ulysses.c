/* ulysses.c - sequence parallelism by trading tokens for heads (Jacobs et al. 2023,
 * arXiv:2309.14509).
 *
 *   mine [n_u, H, D]  --all-to-all-->  everybody's tokens, my heads [sum n_u, H_u, D]
 *   next link's attention
 *   back              <--all-to-all--
 *
 * Tokens and heads need not be even: every rank computes from the ruler what every other has, so
 * sizes are never sent. Keys and values go on as views in global token order, so that the sums
 * are those of one rank; those of my own tokens stay where they are. */
#include <stdlib.h>

#include "exec/op.h"
#include "parallel/rows.h"

extern const xd_link xd_link_ulysses;

typedef struct ulysses {
    xd_mix         mix;
    const xd_topo *topo;
    const int64_t *heads;       /* of the layout                                               */
    xd_dev        *dev;
    xd_kv         *seg;         /* [npatch * streams * U]                                      */
    xd_tensor     *give, *get;  /* [U]                                                         */
    void          *park;        /* what a failed rank sends and receives                       */
    size_t         park_bytes;
} ulysses;

static int64_t rows_of(const xd_exec *x, const ulysses *s, int u)
{
    return xd_own_rows(x->lay, x->patch, xd_topo_sp(s->topo, u, s->topo->at[XD_RING]));
}

static xd_span heads_of(const ulysses *s, int64_t H, int u)
{
    return xd_cut_at((xd_span){ 0, H }, u, s->topo->deg.n[XD_ULYSSES], s->heads);
}

/* [B=1,n,H,D] -> rows and heads of it, as [n',H',D]. */
static xd_tensor slice(xd_tensor t, int64_t row, int64_t n, int64_t head, int64_t h)
{
    xd_tensor r = t;
    r.nd = 3;
    for (int i = 0; i < 3; i++)
        r.d[i] = t.d[i + 1], r.s[i] = t.s[i + 1];
    r.d[3] = 1, r.s[3] = 0;
    r.p = (char *)t.p + (row * r.s[0] + head * r.s[1]) * (int64_t)xd_dtype_size(t.type);
    r.d[0] = n, r.d[1] = h;
    return r;
}

static xd_tensor parked(const ulysses *s, xd_tensor t)
{
    return xd_view(s->park, t.type, t.nd, t.d);
}

static xd_req begin(xd_exec *x, ulysses *s)
{
    xd_comm *c = s->topo->group[XD_ULYSSES];
    for (int u = 0; u < c->size && !xd_ok(x); u++) {
        s->give[u] = parked(s, s->give[u]);
        s->get[u] = parked(s, s->get[u]);
    }
    return c->ops->exchange(c, s->give, s->get);
}

static void end(xd_exec *x, ulysses *s, xd_req *r, int n)
{
    xd_comm *c = s->topo->group[XD_ULYSSES];
    if (c->ops->wait(c, r, n) != XD_OK)
        xd_exec_fail(x, XD_ECOMM, "ulysses: an all-to-all failed");
}

/* Rows that member u gives me; of mine none when they stay. */
static int64_t sent_rows(const xd_exec *x, const ulysses *s, int u, int mine_too)
{
    return u == s->topo->at[XD_ULYSSES] && !mine_too ? 0 : rows_of(x, s, u);
}

/* Rows of my heads of t, on their way: [1, n, h, D], member by member: everybody's, or, when mine are read where
 * they lie, those of the others. */
static xd_tensor tokens_for_heads(xd_exec *x, ulysses *s, xd_tensor t, int mine_too, xd_req *r)
{
    int       U = s->topo->deg.n[XD_ULYSSES], me = s->topo->at[XD_ULYSSES];
    int64_t   H = t.d[2], at = 0, total = 0;
    xd_span   mine = heads_of(s, H, me);
    for (int u = 0; u < U; u++)
        total += sent_rows(x, s, u, mine_too);
    xd_tensor out = xd_new_as(x, t.type, 4, (int64_t[]){ 1, total, mine.n, t.d[3] });
    for (int u = 0; u < U; u++) {
        xd_span theirs = heads_of(s, H, u);
        int64_t n = sent_rows(x, s, u, mine_too);
        s->give[u] = slice(t, 0, u == me ? n : t.d[1], theirs.start, theirs.n);
        s->get[u] = slice(out, at, n, 0, mine.n);
        at += n;
    }
    *r = begin(x, s);
    return out;
}

static void heads_for_tokens(xd_exec *x, ulysses *s, xd_tensor all, xd_tensor out)
{
    int     U = s->topo->deg.n[XD_ULYSSES];
    int64_t H = out.d[2], at = 0;
    for (int u = 0; u < U; u++) {
        xd_span theirs = heads_of(s, H, u);
        s->give[u] = slice(all, at, rows_of(x, s, u), 0, all.d[2]);
        s->get[u] = slice(out, 0, out.d[1], theirs.start, theirs.n);
        at += rows_of(x, s, u);
    }
    xd_req r = begin(x, s);
    end(x, s, &r, 1);
}

/* Rows [at, at + n) of member u, of my heads: of mine in `own`, of another's in `got`, from row `base` on. */
static xd_tensor member(const ulysses *s, xd_tensor got, xd_tensor own, int u, int64_t base, int64_t at, int64_t n)
{
    if (u != s->topo->at[XD_ULYSSES])
        return xd_piece_of(got, base + at, n);
    xd_span mine = heads_of(s, own.d[2], u);
    own.p = (char *)own.p + mine.start * own.s[2] * (int64_t)xd_dtype_size(own.type);
    own.d[2] = mine.n;
    return xd_piece_of(own, at, n);
}

/* Views of K and V, which lie member by member, mine in `own`, in global token order: patch, stream, member. */
static int in_order(const xd_exec *x, ulysses *s, xd_kv got, xd_kv own)
{
    int U = s->topo->deg.n[XD_ULYSSES], n = 0;
    for (int p = 0; p < x->lay->npatch; p++)
        for (int st = 0; st < XD_NSTREAMS && (x->patch == XD_ALL || x->patch == p); st++) {
            static const xd_stream_id order[XD_NSTREAMS] = { XD_TXT, XD_REF, XD_IMG };
            for (int64_t u = 0, base = 0; u < U; base += sent_rows(x, s, (int)u++, 0)) {
                int     sp = xd_topo_sp(s->topo, (int)u, s->topo->at[XD_RING]);
                int64_t at = 0;
                for (int q = 0; q < p && x->patch == XD_ALL; q++)
                    at += xd_own_rows(x->lay, q, sp);
                for (int t = 0; t < st; t++)
                    at += xd_own(x->lay, order[t], p, sp).n;
                int64_t m = xd_own(x->lay, order[st], p, sp).n;
                if (m)
                    s->seg[n++] = (xd_kv){ member(s, got.k, own.k, (int)u, base, at, m),
                                           member(s, got.v, own.v, (int)u, base, at, m) };
            }
        }
    return n;
}

static void attn(xd_exec *x, const xd_mix *m, xd_attn_args *a)
{
    ulysses *s = m->priv;
    size_t   mark = xd_arena_mark(x->tmp);
    xd_check(x, a->nkv == 1 && !a->lse.p && !a->bias.p && a->q.d[0] == 1 &&
             a->q.d[2] == a->kv[0].k.d[2], "ulysses: not the head of the chain, or grouped heads");
    xd_req    r[3];
    xd_kv     own = a->kv[0], got;
    xd_tensor q = tokens_for_heads(x, s, a->q, 1, &r[0]);
    got.k = tokens_for_heads(x, s, own.k, 0, &r[1]);
    got.v = tokens_for_heads(x, s, own.v, 0, &r[2]);
    end(x, s, r, 3);
    xd_attn_args b = *a;
    b.q = q;
    b.out = xd_new_as(x, a->out.type, 4, q.d);
    b.kv = s->seg;
    b.nkv = in_order(x, s, got, own);
    xd_next_attn(x, m, &b);
    heads_for_tokens(x, s, b.out, a->out);
    xd_arena_rewind(x->tmp, mark);
}

static void close(xd_mix *m)
{
    ulysses *s = m->priv;
    if (s->park)
        s->dev->mem->put(s->dev, s->park, s->park_bytes);
    free(s->seg), free(s->give), free(s->get), free(s);
}

static xd_status open(const xd_link_args *a, const xd_mix *next, xd_mix **out, xd_err *e)
{
    int U = a->topo->deg.n[XD_ULYSSES];
    *out = NULL;
    if (U == 1 || a->what != XD_FOR_DIT)
        return XD_OK;
    ulysses *s = calloc(1, sizeof *s);
    if (!s)
        return xd_fail(e, XD_ENOMEM, "ulysses: no memory");
    s->mix = (xd_mix){ .name = "ulysses", .attn = attn, .next = next, .priv = s };
    s->topo = a->topo;
    s->heads = a->lay->heads;
    s->dev = a->dev;
    s->seg = calloc((size_t)(a->lay->npatch * XD_NSTREAMS * U), sizeof *s->seg);
    s->give = calloc((size_t)U, sizeof *s->give);
    s->get = calloc((size_t)U, sizeof *s->get);
    int64_t rows = 0;
    for (int u = 0; u < U; u++)
        rows += xd_own_rows(a->lay, XD_ALL, xd_topo_sp(a->topo, u, a->topo->at[XD_RING]));
    s->park_bytes = (size_t)(rows * a->heads * a->head_dim) * xd_dtype_size(a->act) + 64;
    s->mix.bytes = s->park_bytes;
    s->park = s->dev->mem->get(s->dev, s->park_bytes);
    *out = &s->mix;
    if (!s->seg || !s->give || !s->get || !s->park) {
        xd_fail(e, XD_ENOMEM, "ulysses: no memory for %zu bytes", s->park_bytes);
        close(*out);
        *out = NULL;
        return XD_ENOMEM;
    }
    return XD_OK;
}

const xd_link xd_link_ulysses = { "ulysses", open, close };
