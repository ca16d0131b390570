/* displaced.c - implements DistriFusion's displaced patches (Li et al. 2024, arXiv:2402.19481). The
 * ranks of the ring axis each own some tokens; a rank attends to its own keys and values of the
 * current step and to the other ranks' keys and values of the previous step. The exchange of keys
 * and values overlaps all other computation.
 *
 * In exact steps (the warm-up), attention uses the current keys and values of all ranks, so each
 * rank waits for the exchange at once. DistriFusion is implemented only for comparison with other
 * methods, because it needs memory for the keys and values of all tokens, in every block and
 * guidance pass. */
#include <stdlib.h>

#include "exec/op.h"
#include "parallel/rows.h"

extern const xd_method xd_method_displaced;

typedef struct displaced {
    xd_hooks       hooks;
    const xd_topo *topo;
    xd_dev        *dev;
    xd_dtype       type;
    /* for each attention layer: K and V of all ranks, then this rank's K and V of the current
     * step. */
    char          *mem;
    /* bytes: size of `mem`; one: bytes of `mem` for one attention layer. */
    size_t         bytes, one;
    /* total: max number of token rows of all ranks together; mine: max number of token rows of this
     * rank */
    int64_t        total, mine, heads, head_dim;
    int64_t        width; /* elements per head in the current attention layer, at most head_dim */
    /* now: number of token rows of all ranks in the current attention layer; rows: [R]: number of
     * token rows of each ring member */
    int64_t        now, *rows;
    xd_kv         *seg;
    xd_req        *req; /* [attention layers][2]: pending exchanges of K and of V */
    int            first, nlayers, sites, count;
} displaced;

/* Returns a view of the rows that are stored for attention layer i. The views' offsets depend only
 * on the maximum number of rows. `which` is 0 for K of all ring members, 1 for V of all members, 2
 * for own K, 3 for own V. */
static xd_tensor stored_view(const displaced *s, int64_t i, int which)
{
    int64_t row = s->heads * s->head_dim, size = (int64_t)xd_dtype_size(s->type);
    int64_t at = which == 0 ? 0 : which == 1 ? s->total : 2 * s->total + (which - 2) * s->mine;
    int64_t d[4] = { 1, which < 2 ? s->now : s->rows[s->topo->at[XD_RING]], s->heads, s->width };
    return xd_view(s->mem + (size_t)i * s->one + (size_t)(at * row * size), s->type, 4, d);
}

static xd_tensor as_matrix(xd_tensor t)
{
    return xd_view2(t.p, t.type, t.d[1], t.d[2] * t.d[3]);
}

static void finish_exchange(xd_exec *x, displaced *s, int64_t i)
{
    xd_comm *c = s->topo->group[XD_RING];
    if (c->ops->wait(c, &s->req[2 * i], 2) != XD_OK && x)
        xd_exec_fail(x, XD_ECOMM, "displaced patches: an all-gather between ranks failed");
    s->req[2 * i] = s->req[2 * i + 1] = (xd_req){ 0 };
}

static void displaced_attn(xd_exec *x, const xd_hooks *m, xd_attn_args *a)
{
    displaced *s = m->priv;
    xd_comm   *c = s->topo->group[XD_RING];
    int64_t i = (xd_my_pass(x, s->topo) * s->nlayers + (x->layer - s->first)) * s->sites + x->site,
            at = 0;
    finish_exchange(x, s, i); /* waits for the exchange that was begun in the previous step */
    s->now = 0;
    s->width = a->q.d[3];
    for (int r = 0; r < c->size; r++)
        s->now += s->rows[r] = xd_member_rows(x->lay, s->topo, XD_ALL, r);
    if (!xd_check(x, s->now <= s->total, "displaced patches: %lld rows of %lld", (long long)s->now,
                  (long long)s->total))
        s->now = s->total;
    for (int k = 0; k < a->nkv; at += a->kv[k++].k.d[1]) {
        xd_copy_to(x, xd_piece_of(stored_view(s, i, 2), at, a->kv[k].k.d[1]), a->kv[k].k);
        xd_copy_to(x, xd_piece_of(stored_view(s, i, 3), at, a->kv[k].v.d[1]), a->kv[k].v);
    }
    for (int w = 0; w < 2 && x->exact; w++)
        s->req[2 * i + w] = c->ops->gather(c, as_matrix(stored_view(s, i, w)), s->rows,
                                           as_matrix(stored_view(s, i, 2 + w)));
    if (x->exact)
        finish_exchange(x, s, i);
    at = 0;
    for (int r = 0; r < c->size; at += s->rows[r++]) {
        int fresh = r == c->rank;
        s->seg[r].k = fresh ? stored_view(s, i, 2)
                            : xd_piece_of(stored_view(s, i, 0), at, s->rows[r]);
        s->seg[r].v = fresh ? stored_view(s, i, 3)
                            : xd_piece_of(stored_view(s, i, 1), at, s->rows[r]);
    }
    xd_attn_args b = *a;
    b.kv = s->seg;
    b.nkv = c->size;
    xd_next_attn(x, m, &b);
    /* This exchange overlaps computation, since its data is first used in the next step. */
    for (int w = 0; w < 2 && !x->exact; w++)
        s->req[2 * i + w] = c->ops->gather(c, as_matrix(stored_view(s, i, w)), s->rows,
                                           as_matrix(stored_view(s, i, 2 + w)));
}

static void close_displaced(xd_hooks *m)
{
    displaced *s = m->priv;
    for (int i = 0; i < s->count && s->req; i++)
        finish_exchange(NULL, s, i);
    if (s->mem)
        s->dev->mem->put(s->dev, s->mem, s->bytes);
    free(s->rows), free(s->seg), free(s->req), free(s);
}

static xd_status open_displaced(const xd_method_args *a, const xd_hooks *next, xd_hooks **out,
                                xd_err *e)
{
    int R = a->topo->deg.n[XD_RING];
    *out = NULL;
    if (a->what != XD_FOR_DIT || a->linear || R == 1 || !a->displaced)
        return XD_OK;
    displaced *s = calloc(1, sizeof *s);
    if (!s)
        return xd_fail(e, XD_ENOMEM, "no memory for displaced patches");
    s->hooks = (xd_hooks){ .attn = displaced_attn, .next = next, .priv = s };
    s->topo = a->topo, s->dev = a->dev, s->type = a->act;
    s->first = a->first, s->nlayers = a->last - a->first, s->sites = a->sites;
    s->count = xd_my_passes(a) * s->nlayers * s->sites;
    s->heads = xd_my_heads(a);
    s->head_dim = a->head_dim;
    s->rows = calloc((size_t)R, sizeof *s->rows);
    s->seg = calloc((size_t)R, sizeof *s->seg);
    s->req = calloc((size_t)(2 * s->count) + 1, sizeof *s->req);
    for (int r = 0; r < R; r++)
        s->total += xd_member_rows(a->lay, a->topo, XD_ALL, r);
    s->mine = xd_member_rows(a->lay, a->topo, XD_ALL, a->topo->at[XD_RING]);
    s->one = (size_t)(2 * (s->total + s->mine) * s->heads * s->head_dim) * xd_dtype_size(s->type);
    s->bytes = s->hooks.bytes = s->one * (size_t)s->count + 64;
    s->mem = s->dev->mem->get(s->dev, s->bytes);
    *out = &s->hooks;
    if (!s->rows || !s->seg || !s->req || !s->mem) {
        xd_fail(e, XD_ENOMEM, "no memory for the %s of displaced patches",
                xd_size_text((double)s->bytes).s);
        close_displaced(*out);
        *out = NULL;
        return XD_ENOMEM;
    }
    return XD_OK;
}

const xd_method xd_method_displaced = { "displaced", open_displaced, close_displaced };
