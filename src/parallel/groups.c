/* groups.c - implements attention in groups of image tokens (xd_attn_grouped): the tokens of a
 * frame, or the tokens of all frames at one place.
 *
 * In the list of parallel methods, this method comes last. Its hook gets all keys of this rank's
 * heads, in the same token order as in a run on one rank, and the queries of this rank's spans of
 * tokens. Each span is computed with at most three kernel calls, in which the batch is the groups:
 * the queries and keys of a group are views with strides, so nothing is transposed. A query's keys
 * depend only on the query's position, so results equal those of one rank. */
#include <stdlib.h>

#include "base/minmax.h"
#include "exec/op.h"
#include "parallel/rows.h"

extern const xd_method xd_method_groups;

typedef struct groups {
    xd_hooks       hooks;
    const xd_topo *topo;
} groups;

/* One attention call whose batch is groups: their queries, outputs, keys and values. */
typedef struct call {
    int     reserve; /* 1: allocates the kernel's memory and computes nothing */
    xd_qo   qo;      /* [1,rows,H,D]: all rows of the span */
    xd_kv   kv;      /* [1,N,H,D]: all tokens of the video */
    int64_t place;   /* tokens of a frame */
} call;

/* Returns a view [batch,n,H,D] of rows of a tensor [1,N,H,D], which begins at row `first`. `across`
 * and `along` are the distances, in rows, between groups and between the rows of a group. */
static xd_tensor group_view(xd_tensor t, int64_t first, int64_t batch, int64_t n, int64_t across,
                            int64_t along)
{
    t.p = (char *)t.p + first * t.s[1] * (int64_t)xd_dtype_size(t.type);
    t.s[0] = across * t.s[1], t.s[1] *= along;
    t.d[0] = batch, t.d[1] = n;
    return t;
}

static void attend(xd_exec *x, const xd_hooks *m, const xd_attn_args *a, const call *c, xd_qo qo,
                   xd_kv kv)
{
    size_t       mark = xd_arena_mark(x->tmp);
    xd_attn_args b = *a;
    b.q = qo.q, b.out = qo.out;
    b.part = NULL, b.nparts = 0;
    b.kv = &kv, b.nkv = 1;
    if (c->reserve)
        xd_new_as(x, XD_I8, 1,
                  (int64_t[]){ (int64_t)x->dev->ops->scratch(x->dev, XD_OP_ATTN, &b) });
    else
        xd_next_attn(x, m, &b);
    xd_arena_rewind(x->tmp, mark);
}

/* Computes attention within frames for the tokens of `own`: the rest of a frame, complete frames,
 * and the beginning of a frame. */
static void attend_frames(xd_exec *x, const xd_hooks *m, const xd_attn_args *a, const call *c,
                          xd_span own)
{
    int64_t P = c->place, row = 0;
    while (row < own.n) {
        int64_t at = own.start + row, left = own.n - row, in = at % P;
        int64_t frames = !in && left >= P ? left / P : 1;
        int64_t n = !in && left >= P ? P : xd_min(P - in, left), key = at - in;
        attend(x, m, a, c,
               (xd_qo){ group_view(c->qo.q, row, frames, n, P, 1),
                        group_view(c->qo.out, row, frames, n, P, 1) },
               (xd_kv){ group_view(c->kv.k, key, frames, P, P, 1),
                        group_view(c->kv.v, key, frames, P, P, 1) });
        row += frames * n;
    }
}

/* Computes attention over all frames for the tokens of `own`. The frames of which `own` has a place
 * change at the place where `own` begins, and at the one where it ends. */
static void attend_places(xd_exec *x, const xd_hooks *m, const xd_attn_args *a, const call *c,
                          xd_span own)
{
    int64_t P = c->place, T = c->kv.k.d[1] / P, end = own.start + own.n;
    int64_t from = own.start % P, to = end % P;
    int64_t cut[4] = { 0, xd_min(from, to), xd_max(from, to), P };
    for (int i = 0; i < 3; i++) {
        int64_t p = cut[i], places = cut[i + 1] - p;
        int64_t first = own.start / P + (p < from), n = end / P + (p < to) - first;
        int64_t row = first * P + p - own.start;
        if (places > 0 && n > 0)
            attend(x, m, a, c,
                   (xd_qo){ group_view(c->qo.q, row, places, n, 1, P),
                            group_view(c->qo.out, row, places, n, 1, P) },
                   (xd_kv){ group_view(c->kv.k, p, places, T, 1, P),
                            group_view(c->kv.v, p, places, T, 1, P) });
    }
}

/* Returns all segments of keys, or of values, as one tensor [1,N,H,D]; several are copied. */
static xd_tensor join(xd_exec *x, const xd_attn_args *a, int64_t n, int values)
{
    xd_tensor like = values ? a->kv[0].v : a->kv[0].k;
    if (a->nkv == 1)
        return like;
    xd_tensor all = xd_new_as(x, like.type, 4, (int64_t[]){ 1, n, like.d[2], like.d[3] });
    int64_t   row = 0;
    for (int i = 0; i < a->nkv; i++) {
        xd_tensor part = values ? a->kv[i].v : a->kv[i].k;
        xd_copy_to(x, xd_piece_of(all, row, part.d[1]), part);
        row += part.d[1];
    }
    return all;
}

static void run(xd_exec *x, const xd_hooks *m, const xd_attn_args *a, int reserve)
{
    const groups  *s = m->priv;
    const xd_group group = x->group;
    int64_t        N = x->lay->len[XD_IMG], keys = 0;
    for (int i = 0; i < a->nkv; i++)
        keys += a->kv[i].k.d[1];
    if (!xd_check(x, keys == N && N && a->q.d[0] == 1 && !a->lse.p && !a->bias.p,
                  "attention in groups has %lld keys of %lld tokens", (long long)keys,
                  (long long)N))
        return;
    size_t mark = xd_arena_mark(x->tmp);
    call   c = { .reserve = reserve,
                 .kv = { join(x, a, N, 0), join(x, a, N, 1) },
                 .place = x->lay->grid[1] * x->lay->grid[2] };
    x->group = XD_GROUP_NONE;
    for (int u = 0; u < (a->nparts ? a->nparts : 1); u++) {
        int     sp = xd_topo_sp(s->topo, u, s->topo->at[XD_RING]);
        xd_qo   part = a->nparts ? a->part[u] : (xd_qo){ a->q, a->out };
        int64_t row = 0;
        for (int p = 0; p < x->lay->npatch; p++) {
            if (x->patch != XD_ALL && x->patch != p)
                continue;
            xd_span own = xd_own(x->lay, XD_IMG, p, sp);
            c.qo = (xd_qo){ xd_piece_of(part.q, row, own.n), xd_piece_of(part.out, row, own.n) };
            (group == XD_GROUP_FRAME ? attend_frames : attend_places)(x, m, a, &c, own);
            row += own.n;
        }
        xd_check(x, row == part.q.d[1], "attention in groups has %lld queries, not %lld",
                 (long long)part.q.d[1], (long long)row);
    }
    x->group = group;
    xd_arena_rewind(x->tmp, mark);
}

static void groups_attn(xd_exec *x, const xd_hooks *m, xd_attn_args *a)
{
    if (x->group == XD_GROUP_NONE)
        xd_next_attn(x, m, a);
    else
        run(x, m, a, 0);
}

void xd_groups_reserve(xd_exec *x, const xd_hooks *m, const xd_attn_args *a)
{
    while (m && m->attn != groups_attn)
        m = m->next;
    if (xd_check(x, m != NULL, "attention in groups is not open for this model"))
        run(x, m, a, 1);
}

static void close_groups(xd_hooks *m)
{
    free(m->priv);
}

static xd_status open_groups(const xd_method_args *a, const xd_hooks *next, xd_hooks **out,
                             xd_err *e)
{
    *out = NULL;
    if (a->what != XD_FOR_DIT || !a->grouped)
        return XD_OK;
    groups *s = calloc(1, sizeof *s);
    if (!s)
        return xd_fail(e, XD_ENOMEM, "no memory for attention in groups");
    s->hooks = (xd_hooks){ .attn = groups_attn, .next = next, .priv = s };
    s->topo = a->topo;
    *out = &s->hooks;
    return XD_OK;
}

const xd_method xd_method_groups = { "groups", open_groups, close_groups };
