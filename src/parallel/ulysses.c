/* ulysses.c - implements sequence parallelism that exchanges tokens for heads (Jacobs et al. 2023,
 * arXiv:2309.14509).
 *
 *   own tokens [n_u, H, D]  --all-to-all-->  all ranks' tokens, own heads [sum n_u, H_u, D]
 *   the attention of the next hooks
 *   back              <--all-to-all--
 *
 * Ranks may have different numbers of tokens and heads. Every rank computes the other ranks' sizes
 * from the layout, so sizes are never sent. If the ranks are on one host and have shared-memory
 * windows, no tensor bytes are sent: attention reads queries, keys and values in the other ranks'
 * windows, and writes its outputs to these windows. In this case, messages only signal that data is
 * ready. Keys and values are passed on as views in global token order, so that sums equal those of
 * one rank.
 *
 * Between hosts, queries, keys, values and outputs may be sent as codes of 8 bits (xd_topo.codes).
 * A rank's own part stays as it is. */
#include <stdlib.h>

#include "exec/op.h"
#include "parallel/rows.h"

extern const xd_method xd_method_ulysses;

enum { Q, K, V, OUT, NSETS };

typedef struct views { xd_tensor *give, *get; } views; /* [U]: views for each Ulysses rank */

typedef struct ulysses {
    xd_hooks       hooks;
    const xd_topo *topo;
    /* Number of heads of each rank if heads are split unevenly (xd_layout.heads); NULL: even
     * split. */
    const int64_t *heads;
    int64_t        group; /* number of query heads per key head; the queries stay with their key */
    xd_dev        *dev;
    /* [npatch * streams * U]: the list of key and value segments in token order. */
    xd_kv         *seg;
    xd_qo         *part; /* [U]: the queries of each Ulysses rank, with their outputs */
    views          set[NSETS];
    /* If messages are coded: attention outputs of the other ranks' tokens, [1,n,H_u,D]. */
    xd_tensor      others;
    /* Buffer that is sent and received in place of tensors after this rank has failed. */
    void          *failed_buf;
    size_t         failed_bytes;
} ulysses;

/* Returns the number of rows of rank u in the tensors of a set. The queries and the keys of an
 * attention between two streams have the layouts of different streams. */
static int64_t rows_of(const xd_exec *x, const ulysses *s, int set, int u)
{
    const xd_layout *l = (set == Q || set == OUT) && x->asking ? x->asking : x->lay;
    return xd_own_rows(l, x->patch, xd_topo_sp(s->topo, u, s->topo->at[XD_RING]));
}

/* Returns the heads of rank u in a tensor with H heads. `set` tells whether these are heads of
 * queries or of keys. */
static xd_span heads_of(const ulysses *s, int set, int64_t H, int u)
{
    const int64_t unit = set == K || set == V ? 1 : s->group;
    const xd_span keys =
        xd_cut_at((xd_span){ 0, H / unit }, u, s->topo->deg.n[XD_ULYSSES], s->heads);
    return (xd_span){ keys.start * unit, keys.n * unit };
}

/* Returns a view of rows [row, row + n) and heads [head, head + h) of a tensor [1,N,H,D]. */
static xd_tensor slice_heads(xd_tensor t, int64_t row, int64_t n, int64_t head, int64_t h)
{
    t.p = (char *)t.p + head * t.s[2] * (int64_t)xd_dtype_size(t.type);
    t.d[2] = h;
    return xd_piece_of(t, row, n);
}

/* Returns this rank's heads of the keys and values of a prefix, which may be NULL. */
static xd_kv own_heads(const ulysses *s, const xd_kv *prefix)
{
    if (!prefix)
        return (xd_kv){ 0 };
    const int64_t m = prefix->k.d[1];
    const xd_span h = heads_of(s, K, prefix->k.d[2], s->topo->at[XD_ULYSSES]);
    return (xd_kv){ slice_heads(prefix->k, 0, m, h.start, h.n),
                    slice_heads(prefix->v, 0, m, h.start, h.n) };
}

/* Replaces the views of a failed rank, which have no valid addresses, by views of a buffer. */
static void use_failed_buffer(const xd_exec *x, const ulysses *s, const views *w)
{
    for (int u = 0; u < s->topo->deg.n[XD_ULYSSES] && !xd_ok(x); u++) {
        w->give[u] = xd_view(s->failed_buf, w->give[u].type, w->give[u].nd, w->give[u].d);
        w->get[u] = xd_view(s->failed_buf, w->get[u].type, w->get[u].nd, w->get[u].d);
    }
}

static void end_exchange(xd_exec *x, ulysses *s, xd_req *r, int n)
{
    xd_comm *c = s->topo->group[XD_ULYSSES];
    if (c->ops->wait(c, r, n) != XD_OK)
        xd_exec_fail(x, XD_ECOMM, "ulysses: an all-to-all failed");
}

/* Returns new memory [1,n,h,D] of the type for this rank's heads of the tokens of all other ranks.
 * H: heads of a tensor of the set `set`; D: its last dimension. */
static xd_tensor new_others(xd_exec *x, const ulysses *s, int set, xd_dtype type, int64_t H,
                            int64_t D)
{
    int64_t total = 0;
    for (int u = 0; u < s->topo->deg.n[XD_ULYSSES]; u++)
        total += u == s->topo->at[XD_ULYSSES] ? 0 : rows_of(x, s, set, u);
    return xd_new_as(x, type, 4,
                     (int64_t[]){ 1, total, heads_of(s, set, H, s->topo->at[XD_ULYSSES]).n, D });
}

/* Sets the views of an exchange of `own` [1,n,H,D], which has this rank's tokens, and `others`,
 * which new_others has allocated: give[u] becomes the heads of rank u for this rank's tokens, and
 * get[u] this rank's heads for the tokens of rank u. */
static void set_views(const xd_exec *x, const ulysses *s, int set, xd_tensor own, xd_tensor others)
{
    const views *w = &s->set[set];
    const int    me = s->topo->at[XD_ULYSSES];
    int64_t      H = own.d[2], at = 0;
    xd_span      mine = heads_of(s, set, H, me);
    for (int u = 0; u < s->topo->deg.n[XD_ULYSSES]; u++) {
        xd_span theirs = heads_of(s, set, H, u);
        int64_t n = rows_of(x, s, set, u);
        w->give[u] = slice_heads(own, 0, own.d[1], theirs.start, theirs.n);
        w->get[u] = u == me ? w->give[u] : slice_heads(others, at, n, 0, mine.n);
        at += u == me ? 0 : n;
    }
    use_failed_buffer(x, s, w);
}

/* ---- exchange of values ------------------------------------------------------------------- */

/* Starts the exchange of t [1,n,H,D]. This rank sends to rank u the heads of rank u for this rank's
 * tokens, and receives from rank u this rank's heads for the tokens of rank u. After the exchange,
 * the view s->set[set].get[u] is the tensor [1,n_u,H_u,D] that rank u sent. The tensor is in the
 * window of rank u, or in memory of the arena. For the set of attention outputs, `get` instead has
 * the tensors to which attention writes its outputs. */
static xd_req tokens_for_heads(xd_exec *x, ulysses *s, int set, xd_tensor t)
{
    const views *w = &s->set[set];
    xd_comm     *c = s->topo->group[XD_ULYSSES];
    set_views(x, s, set, t, new_others(x, s, set, t.type, t.d[2], t.d[3]));
    return (set == OUT ? c->ops->exchange_places : c->ops->exchange_views)(c, w->give, w->get);
}

/* Exchanges the tensors of all sets, and waits for the end of the exchanges. */
static void send_values(xd_exec *x, ulysses *s, const xd_tensor t[NSETS])
{
    xd_req r[NSETS];
    for (int i = 0; i < NSETS; i++)
        r[i] = tokens_for_heads(x, s, i, t[i]);
    end_exchange(x, s, r, NSETS);
}

/* Returns 1 if a rank has keys, but no queries. In an attention between two streams, the tokens of
 * one stream may be fewer than the ranks. */
static int has_keys_alone(const xd_exec *x, const ulysses *s)
{
    int alone = 0;
    for (int u = 0; u < s->topo->deg.n[XD_ULYSSES]; u++)
        alone |= rows_of(x, s, K, u) > 0 && rows_of(x, s, Q, u) == 0;
    return alone;
}

/* Returns the attention outputs to the ranks that have the tokens. Outputs for this rank's tokens
 * come from the other ranks: a rank of the same host has already written them to this rank's
 * memory, and any other rank sends them now. When this exchange has ended, every other rank that
 * has heads has finished its attention, so no rank reads this rank's queries, keys and values any
 * more. A rank without queries receives no outputs: all ranks wait for each other instead. */
static void heads_for_tokens(xd_exec *x, ulysses *s)
{
    xd_comm *c = s->topo->group[XD_ULYSSES];
    use_failed_buffer(x, s, &s->set[OUT]);
    xd_req r = c->ops->exchange(c, s->set[OUT].get, s->set[OUT].give);
    end_exchange(x, s, &r, 1);
    if (has_keys_alone(x, s))
        c->ops->barrier(c);
}

/* ---- exchange of codes -------------------------------------------------------------------- */

/* Does the same as send_values, with codes for the queries, keys and values of other ranks. */
static void send_coded(xd_exec *x, ulysses *s, const xd_tensor t[NSETS])
{
    const xd_dtype codes = s->topo->codes;
    xd_comm       *c = s->topo->group[XD_ULYSSES];
    xd_tensor      values[NSETS], received[OUT];
    xd_req         r[OUT];
    for (int i = 0; i < NSETS; i++)
        values[i] = new_others(x, s, i, t[i].type, t[i].d[2], t[i].d[3]);
    size_t mark = xd_arena_mark(x->tmp);
    for (int i = 0; i < OUT; i++) {
        received[i] = new_others(x, s, i, codes, t[i].d[2], t[i].d[3] + XD_CODE_SCALE);
        set_views(x, s, i, xd_encode(x, t[i], codes), received[i]);
        r[i] = c->ops->exchange(c, s->set[i].give, s->set[i].get);
    }
    end_exchange(x, s, r, OUT);
    for (int i = 0; i < OUT; i++)
        xd_decode_to(x, values[i], received[i]);
    xd_arena_rewind(x->tmp, mark);
    for (int i = 0; i < NSETS; i++)
        set_views(x, s, i, t[i], values[i]);
    s->others = values[OUT];
}

/* Does the same as heads_for_tokens, with codes for the outputs for other ranks. */
static void return_coded(xd_exec *x, ulysses *s, xd_tensor out)
{
    const xd_dtype codes = s->topo->codes;
    xd_comm       *c = s->topo->group[XD_ULYSSES];
    size_t         mark = xd_arena_mark(x->tmp);
    xd_tensor      own =
        xd_new_as(x, codes, 4, (int64_t[]){ 1, out.d[1], out.d[2], out.d[3] + XD_CODE_SCALE });
    set_views(x, s, OUT, own, xd_encode(x, s->others, codes));
    xd_req r = c->ops->exchange(c, s->set[OUT].get, s->set[OUT].give);
    end_exchange(x, s, &r, 1);
    for (int u = 0; u < c->size; u++) {
        xd_span h = heads_of(s, OUT, out.d[2], u);
        if (u != c->rank)
            xd_decode_to(x, slice_heads(out, 0, out.d[1], h.start, h.n),
                         slice_heads(own, 0, out.d[1], h.start, h.n));
    }
    xd_arena_rewind(x->tmp, mark);
}

/* ---- attention ---------------------------------------------------------------------------- */

static void ulysses_attn(xd_exec *x, const xd_hooks *m, xd_attn_args *a)
{
    ulysses *s = m->priv;
    size_t   mark = xd_arena_mark(x->tmp);
    int64_t  d[4] = { 1, 0, heads_of(s, Q, a->q.d[2], s->topo->at[XD_ULYSSES]).n, a->q.d[3] };
    xd_check(x,
             a->nkv == 1 && !a->nparts && !a->lse.p && !a->bias.p && a->q.d[0] == 1 &&
                 a->q.d[2] == a->kv[0].k.d[2] * s->group,
             "ulysses: not the first method, or other groups of heads");
    const xd_tensor t[NSETS] = { a->q, a->kv[0].k, a->kv[0].v, a->out };
    const int       coded = xd_topo_codes(s->topo, XD_ULYSSES) != XD_F32;
    (coded ? send_coded : send_values)(x, s, t);
    xd_attn_args b = *a;
    b.nparts = s->topo->deg.n[XD_ULYSSES];
    for (int u = 0; u < b.nparts; u++) {
        s->part[u] = (xd_qo){ s->set[Q].get[u], s->set[OUT].get[u] };
        d[1] += s->part[u].q.d[1];
    }
    b.part = s->part;
    b.q = xd_view(NULL, a->q.type, 4, d);
    b.out = xd_view(NULL, a->out.type, 4, d);
    b.kv = s->seg;
    b.nkv = xd_in_order(x, s->topo, XD_ULYSSES, s->set[K].get, s->set[V].get, s->seg);
    xd_kv prefix = own_heads(s, a->prefix);
    b.prefix = a->prefix ? &prefix : NULL;
    xd_next_attn(x, m, &b);
    if (coded)
        return_coded(x, s, a->out);
    else
        heads_for_tokens(x, s);
    xd_arena_rewind(x->tmp, mark);
}

static void close_ulysses(xd_hooks *m)
{
    ulysses *s = m->priv;
    if (s->failed_buf)
        s->dev->mem->put(s->dev, s->failed_buf, s->failed_bytes);
    for (int i = 0; i < NSETS; i++)
        free(s->set[i].give), free(s->set[i].get);
    free(s->seg), free(s->part), free(s);
}

static xd_status open_ulysses(const xd_method_args *a, const xd_hooks *next, xd_hooks **out,
                              xd_err *e)
{
    int U = a->topo->deg.n[XD_ULYSSES];
    *out = NULL;
    if (U == 1 || a->what != XD_FOR_DIT || a->linear)
        return XD_OK;
    ulysses *s = calloc(1, sizeof *s);
    if (!s)
        return xd_fail(e, XD_ENOMEM, "no memory for Ulysses attention");
    s->hooks = (xd_hooks){ .attn = ulysses_attn, .next = next, .priv = s };
    s->topo = a->topo;
    s->heads = a->lay->heads;
    s->group = a->group;
    s->dev = a->dev;
    s->seg = calloc((size_t)(a->lay->npatch * XD_NSTREAMS * U), sizeof *s->seg);
    s->part = calloc((size_t)U, sizeof *s->part);
    int     ok = s->seg && s->part;
    int64_t rows = 0;
    for (int i = 0; i < NSETS; i++) {
        s->set[i].give = calloc((size_t)U, sizeof *s->set[i].give);
        s->set[i].get = calloc((size_t)U, sizeof *s->set[i].get);
        ok &= s->set[i].give && s->set[i].get;
    }
    for (int u = 0; u < U; u++)
        rows += xd_own_rows(a->lay, XD_ALL, xd_topo_sp(a->topo, u, a->topo->at[XD_RING]));
    s->failed_bytes =
        (size_t)(rows * a->heads * a->group * a->head_dim) * xd_dtype_size(a->act) + 64;
    s->hooks.bytes = s->failed_bytes;
    s->failed_buf = s->dev->mem->get(s->dev, s->failed_bytes);
    *out = &s->hooks;
    if (!ok || !s->failed_buf) {
        xd_fail(e, XD_ENOMEM, "no memory for %zu bytes for Ulysses attention", s->failed_bytes);
        close_ulysses(*out);
        *out = NULL;
        return XD_ENOMEM;
    }
    return XD_OK;
}

const xd_method xd_method_ulysses = { "ulysses", open_ulysses, close_ulysses };
