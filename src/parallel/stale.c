/* stale.c - PipeFusion's stale keys and values (Fang et al. 2024, arXiv:2405.14430): those of the
 * patches that are not being computed, from their last computation: in this step for earlier
 * patches, in the previous step for later ones.
 *
 * Its hooks lie behind those of Ulysses (they see my ring member's tokens and my heads) and in
 * front of the ring's. For each pass, block and attention it stores all rows in global token order.
 * An exact step fills all of them. */
#include <stdlib.h>

#include "exec/op.h"
#include "parallel/rows.h"

extern const xd_method xd_method_stale;

typedef struct stale {
    xd_hooks         hooks;
    const xd_topo *topo;
    xd_dev        *dev;
    char          *mem;
    size_t         bytes;
    int64_t        rows, heads, head_dim;
    xd_dtype       type;
    int            first, nlayers, sites, npass;
} stale;

/* Number of rows of one patch, of all Ulysses ranks of my ring member. */
static int64_t rows_of(const xd_layout *l, const xd_topo *t, int patch)
{
    return xd_member_rows(l, t, patch, t->at[XD_RING]);
}

/* Number of rows of a stream in the first `patches` patches, of all Ulysses ranks of my ring
 * member. */
static int64_t stream_rows(const xd_layout *l, const xd_topo *t, xd_stream_id s, int patches)
{
    int64_t n = 0;
    for (int u = 0; u < t->deg.n[XD_ULYSSES]; u++)
        for (int p = 0; p < patches; p++)
            n += xd_own(l, s, p, xd_topo_sp(t, u, t->at[XD_RING])).n;
    return n;
}

/* Stored K (which 0) or V (1) of the current attention: [1, rows, H, D]. Text rows come first, then
 * padding, then those of reference images, then those of the image, each patch by patch. */
static xd_tensor stored_view(const xd_exec *x, const stale *s, int which)
{
    int64_t d[4] = { 1, s->rows, s->heads, s->head_dim };
    int64_t i = (xd_my_pass(x, s->topo) * s->nlayers + (x->layer - s->first)) * s->sites + x->site;
    size_t  one = (size_t)(d[1] * d[2] * d[3]) * xd_dtype_size(s->type);
    return xd_view(s->mem + (size_t)(2 * i + which) * one, s->type, 4, d);
}

/* Where fresh row `row` of this patch is stored; *n is reduced to the rows adjacent there. */
static int64_t stored_row(const xd_exec *x, const stale *s, int64_t row, int64_t *n)
{
    static const xd_stream_id order[XD_NSTREAMS] = { XD_TXT, XD_PAD, XD_REF, XD_IMG };
    int64_t at = 0;
    if (x->patch == XD_ALL)     /* all rows, from the first                                     */
        return row;
    for (int i = 0; i < XD_NSTREAMS; i++) {
        int64_t before = stream_rows(x->lay, s->topo, order[i], x->patch);
        int64_t mine = stream_rows(x->lay, s->topo, order[i], x->patch + 1) - before;
        if (row < mine) {
            *n = *n < mine - row ? *n : mine - row;
            return at + before + row;
        }
        row -= mine;
        at += stream_rows(x->lay, s->topo, order[i], x->lay->npatch);
    }
    return at + row;
}

static void stale_attn(xd_exec *x, const xd_hooks *m, xd_attn_args *a)
{
    const stale  *s = m->priv;
    int64_t       total = rows_of(x->lay, s->topo, XD_ALL), row = 0;
    xd_kv         all = { stored_view(x, s, 0), stored_view(x, s, 1) };
    if (!xd_check(x, total <= s->rows, "stale: %lld rows of %lld", (long long)total,
                  (long long)s->rows))
        total = s->rows;
    for (int i = 0; i < a->nkv; i++)
        for (int64_t done = 0, n; done < a->kv[i].k.d[1]; done += n, row += n) {
            n = a->kv[i].k.d[1] - done;
            int64_t at = stored_row(x, s, row, &n);
            if (!xd_check(x, at + n <= total, "stale: rows %lld to %lld of %lld", (long long)at,
                          (long long)(at + n), (long long)total))
                n = a->kv[i].k.d[1] - done;
            xd_copy_to(x, xd_piece_of(all.k, at, n), xd_piece_of(a->kv[i].k, done, n));
            xd_copy_to(x, xd_piece_of(all.v, at, n), xd_piece_of(a->kv[i].v, done, n));
        }
    all.k.d[1] = all.v.d[1] = total;
    xd_attn_args b = *a;
    b.kv = &all;
    b.nkv = 1;
    xd_next_attn(x, m, &b);
}

static void close_stale(xd_hooks *m)
{
    stale *s = m->priv;
    if (s->mem)
        s->dev->mem->put(s->dev, s->mem, s->bytes);
    free(s);
}

static xd_status open_stale(const xd_method_args *a, const xd_hooks *next, xd_hooks **out,
                            xd_err *e)
{
    *out = NULL;
    if (a->what != XD_FOR_DIT || a->lay->npatch == 1)
        return XD_OK;
    stale *s = calloc(1, sizeof *s);
    if (!s)
        return xd_fail(e, XD_ENOMEM, "PipeFusion: no memory");
    s->hooks = (xd_hooks){ .name = "stale", .attn = stale_attn, .next = next, .priv = s };
    s->topo = a->topo;
    s->dev = a->dev;
    s->type = a->act;
    s->first = a->first;
    s->nlayers = a->last - a->first;
    s->sites = a->sites;
    s->npass = xd_my_passes(a);
    s->heads = xd_my_heads(a);
    s->head_dim = a->head_dim;
    s->rows = rows_of(a->lay, a->topo, XD_ALL);
    s->bytes = (size_t)(2 * s->rows * s->heads * s->head_dim) * xd_dtype_size(s->type) *
               (size_t)(s->npass * s->nlayers * s->sites) + 64;
    s->hooks.bytes = s->bytes;
    if (!(s->mem = s->dev->mem->get(s->dev, s->bytes))) {
        xd_fail(e, XD_ENOMEM, "no memory for the %s of PipeFusion's keys and values",
                xd_size_text((double)s->bytes).s);
        free(s);
        return XD_ENOMEM;
    }
    *out = &s->hooks;
    return XD_OK;
}

const xd_method xd_method_stale = { "stale", open_stale, close_stale };
