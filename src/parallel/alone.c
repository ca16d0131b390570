/* alone.c - limits the attention of reference images to their own tokens.
 *
 * If xd_layout.refs_alone is set, the tokens of reference images attend only to one another, and
 * all other tokens attend to all tokens. The keys and values of reference images then depend
 * neither on the image nor on the step, so steps that reuse them are exact (references.c, stale.c).
 * The hook comes after those of Ulysses and ring attention, and gets all keys of this rank's heads
 * in token order. It makes two calls without a mask: one with the queries of reference images, and
 * one with the other queries. */
#include <stdlib.h>

#include "parallel/rows.h"

extern const xd_method xd_method_alone;

typedef struct alone {
    xd_hooks       hooks;
    const xd_topo *topo;
    xd_kv         *seg;
    xd_qo         *part;
    int            segs, parts; /* number of elements allocated for `seg` and `part` */
} alone;

/* Appends the queries [row, row + n) of one rank to those of the call b. */
static void add_rows(xd_exec *x, const alone *s, xd_attn_args *b, xd_qo of, int64_t row, int64_t n)
{
    if (n <= 0 || !xd_check(x, b->nparts < s->parts,
                            "reference images: more than %d pieces of queries", s->parts))
        return;
    s->part[b->nparts++] = (xd_qo){ xd_piece_of(of.q, row, n), xd_piece_of(of.out, row, n) };
    b->q.d[1] += n;
    b->out.d[1] += n;
}

/* Appends the queries that Ulysses rank u has: those of reference images, or all others. */
static void add_queries(xd_exec *x, const alone *s, const xd_attn_args *a, int u, int refs,
                        xd_attn_args *b)
{
    const xd_qo      of = a->nparts ? a->part[u] : (xd_qo){ a->q, a->out };
    const xd_layout *l = x->lay;
    const int        sp = xd_topo_sp(s->topo, u, s->topo->at[XD_RING]);
    int64_t          n[2] = { 0, 0 }; /* rows of reference images, and of the image */
    for (int p = 0; p < l->npatch; p++)
        n[0] += xd_own(l, XD_REF, p, sp).n, n[1] += xd_own(l, XD_IMG, p, sp).n;
    const int64_t before = xd_own_rows(l, XD_ALL, sp) - n[0] - n[1];
    if (refs) {
        add_rows(x, s, b, of, before, n[0]);
        return;
    }
    add_rows(x, s, b, of, 0, before);
    add_rows(x, s, b, of, before + n[0], n[1]);
}

static void attend(xd_exec *x, const xd_hooks *m, const xd_attn_args *a, int refs)
{
    const alone     *s = m->priv;
    const xd_layout *l = x->lay;
    xd_attn_args     b = *a;
    b.part = s->part;
    b.nparts = 0;
    b.q.d[1] = b.out.d[1] = 0;
    for (int u = 0; u < (a->nparts ? a->nparts : 1); u++)
        add_queries(x, s, a, u, refs, &b);
    if (refs) {
        b.nkv = xd_pick_keys(x, a, l->len[XD_LEAD] + l->len[XD_TXT] + l->len[XD_PAD],
                             l->len[XD_REF], s->seg, s->segs);
        b.kv = s->seg;
    }
    if (b.nparts)
        xd_next_attn(x, m, &b);
}

static void alone_attn(xd_exec *x, const xd_hooks *m, xd_attn_args *a)
{
    if (!x->lay->len[XD_REF] || x->patch != XD_ALL) {
        xd_next_attn(x, m, a);
        return;
    }
    if (!xd_check(x, a->q.d[0] == 1 && !a->lse.p && !a->bias.p && !a->causal,
                  "reference images: this attention is not over all tokens"))
        return;
    attend(x, m, a, 0);
    attend(x, m, a, 1);
}

static void close_alone(xd_hooks *m)
{
    alone *s = m->priv;
    free(s->seg), free(s->part), free(s);
}

static xd_status open_alone(const xd_method_args *a, const xd_hooks *next, xd_hooks **out,
                            xd_err *e)
{
    const int *n = a->topo->deg.n;
    *out = NULL;
    if (a->what != XD_FOR_DIT || !a->lay->refs_alone || !a->lay->len[XD_REF])
        return XD_OK;
    alone *s = calloc(1, sizeof *s);
    if (!s)
        return xd_fail(e, XD_ENOMEM, "no memory for reference images");
    s->hooks = (xd_hooks){ .attn = alone_attn, .next = next, .priv = s };
    s->topo = a->topo;
    s->segs = 1 + a->lay->npatch * n[XD_ULYSSES] * n[XD_RING];
    s->parts = 2 * n[XD_ULYSSES];
    s->seg = calloc((size_t)s->segs, sizeof *s->seg);
    s->part = calloc((size_t)s->parts, sizeof *s->part);
    *out = &s->hooks;
    if (s->seg && s->part)
        return XD_OK;
    close_alone(*out);
    *out = NULL;
    return xd_fail(e, XD_ENOMEM, "no memory for reference images");
}

const xd_method xd_method_alone = { "alone", open_alone, close_alone };
