/* stale.c - implements the stale keys and values of PipeFusion (Fang et al. 2024,
 * arXiv:2405.14430). While one patch is computed, every other patch contributes the keys and values
 * that were computed last: for an earlier patch in this step, for a later patch in the previous
 * step.
 *
 * The hooks of PipeFusion run after the hooks of Ulysses, with all tokens of the ring member and
 * this rank's heads, and before the hooks of ring attention. The keys and values of all rows are
 * stored for each pass, block and attention, in global token order. An exact step stores new keys
 * and values of all rows. */
#include <stdlib.h>

#include "parallel/kept.h"

extern const xd_method xd_method_stale;

typedef struct stale {
    xd_hooks hooks;
    /* K and V of all token rows of the ring member, patch by patch. Within a patch, the order is
     * that of xd_stream_order. */
    xd_kept  kept;
} stale;

/* Returns the index in the stored keys and values of row `row` of the current patch. Limits *n to
 * the number of following rows that are contiguous in the stored tensors. */
static int64_t stored_row(const xd_exec *x, const stale *s, int64_t row, int64_t *n)
{
    const xd_stream_id *order = xd_stream_order;
    int64_t             at = 0;
    /* If the step has all patches, the rows are stored in the order in which they are computed. */
    if (x->patch == XD_ALL)
        return row;
    for (int i = 0; i < XD_NSTREAMS; i++) {
        const xd_topo *t = s->kept.topo;
        int64_t        before = xd_member_tokens(x->lay, t, order[i], x->patch);
        int64_t        mine = xd_member_tokens(x->lay, t, order[i], x->patch + 1) - before;
        if (row < mine) {
            *n = *n < mine - row ? *n : mine - row;
            return at + before + row;
        }
        row -= mine;
        at += xd_member_tokens(x->lay, t, order[i], x->lay->npatch);
    }
    return at + row;
}

static void stale_attn(xd_exec *x, const xd_hooks *m, xd_attn_args *a)
{
    const stale   *s = m->priv;
    const xd_topo *t = s->kept.topo;
    int64_t        total = xd_member_rows(x->lay, t, XD_ALL, t->at[XD_RING]), row = 0;
    xd_kv          all = xd_kept_now(x, &s->kept, a->q.d[3]);
    if (!xd_check(x, total <= s->kept.rows, "PipeFusion: %lld rows in a buffer of %lld",
                  (long long)total, (long long)s->kept.rows))
        total = s->kept.rows;
    for (int i = 0; i < a->nkv; i++)
        for (int64_t done = 0, n; done < a->kv[i].k.d[1]; done += n, row += n) {
            n = a->kv[i].k.d[1] - done;
            int64_t at = stored_row(x, s, row, &n);
            if (!xd_check(x, at + n <= total, "PipeFusion: rows %lld to %lld in a buffer of %lld",
                          (long long)at, (long long)(at + n), (long long)total))
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
    xd_kept_close(&s->kept);
    free(s);
}

static xd_status open_stale(const xd_method_args *a, const xd_hooks *next, xd_hooks **out,
                            xd_err *e)
{
    *out = NULL;
    if (a->what != XD_FOR_DIT || a->linear || a->lay->npatch - a->lay->refs_apart == 1)
        return XD_OK;
    stale *s = calloc(1, sizeof *s);
    if (!s)
        return xd_fail(e, XD_ENOMEM, "no memory for PipeFusion");
    s->hooks = (xd_hooks){ .attn = stale_attn, .next = next, .priv = s };
    xd_status st = xd_kept_open(&s->kept, a,
                                xd_member_rows(a->lay, a->topo, XD_ALL, a->topo->at[XD_RING]),
                                "PipeFusion", e);
    s->hooks.bytes = s->kept.bytes;
    if (st == XD_OK)
        *out = &s->hooks;
    else
        free(s);
    return st;
}

const xd_method xd_method_stale = { "stale", open_stale, close_stale };
