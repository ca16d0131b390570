/* prefix.c - adds the keys and values of a prefix, which every rank has, to those of the tokens.
 *
 * The tokens attend to the prefix, but the prefix does not attend to them, so that its keys and
 * values are computed once per request (xd_attn_after). Ulysses before this method has chosen the
 * heads of this rank. Ring attention adds the prefix itself, because it attends to a few heads at a
 * time. */
#include <stdlib.h>

#include "parallel/rows.h"

extern const xd_method xd_method_prefix;

typedef struct prefix {
    xd_hooks hooks;
    xd_kv   *seg;  /* the prefix, then the keys and values of the tokens */
    int      room; /* max number of segments in `seg` */
} prefix;

static void prefix_attn(xd_exec *x, const xd_hooks *m, xd_attn_args *a)
{
    const prefix *s = m->priv;
    xd_attn_args  b = *a;
    if (a->prefix &&
        xd_check(x, a->nkv < s->room, "attention after a prefix: %d segments of keys", a->nkv)) {
        s->seg[0] = *a->prefix;
        for (int i = 0; i < a->nkv; i++)
            s->seg[1 + i] = a->kv[i];
        b.kv = s->seg;
        b.nkv = 1 + a->nkv;
        b.prefix = NULL;
    }
    xd_next_attn(x, m, &b);
}

static void close_prefix(xd_hooks *m)
{
    prefix *s = m->priv;
    free(s->seg);
    free(s);
}

static xd_status open_prefix(const xd_method_args *a, const xd_hooks *next, xd_hooks **out,
                             xd_err *e)
{
    *out = NULL;
    if (a->what != XD_FOR_DIT || !a->prefix)
        return XD_OK;
    const int *n = a->topo->deg.n;
    prefix    *s = calloc(1, sizeof *s);
    int        room = 1 + a->lay->npatch * XD_NSTREAMS * n[XD_ULYSSES] * n[XD_RING];
    if (!s || !(s->seg = calloc((size_t)room, sizeof *s->seg))) {
        free(s);
        return xd_fail(e, XD_ENOMEM, "no memory for the keys of a prefix");
    }
    s->hooks = (xd_hooks){ .attn = prefix_attn, .next = next, .priv = s };
    s->room = room;
    *out = &s->hooks;
    return XD_OK;
}

const xd_method xd_method_prefix = { "prefix", open_prefix, close_prefix };
