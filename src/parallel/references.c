/* references.c - stores the keys and values of reference images for later denoising steps.
 *
 * The tokens of reference images form a patch of their own, the last one of the layout (if
 * xd_layout.refs_apart is set). A step with all patches stores the reference tokens' keys and
 * values. A step without the reference tokens attends to the stored keys and values. The hooks of
 * this method run between those of Ulysses and those of ring attention. After Ulysses, a rank has
 * all tokens of its ring member but only some heads. Ring attention expects the rows of all patches
 * in every step. With PipeFusion, this file is not used, because stale.c already stores the keys
 * and values of reference images. */
#include <stdlib.h>

#include "parallel/kept.h"

extern const xd_method xd_method_references;

typedef struct references {
    xd_hooks hooks;
    xd_kept  kept;
    xd_kv   *seg;
    int      room; /* max number of segments in `seg` */
} references;

/* Stores rows [first, first + n) of the reference images' keys and values. */
static void store_keys(xd_exec *x, const references *s, const xd_attn_args *a, int64_t first,
                       int64_t n)
{
    xd_kv to = xd_kept_now(x, &s->kept, a->q.d[3]);
    int   segs = xd_pick_keys(x, a, first, n, s->seg, s->room);
    for (int64_t i = 0, at = 0; i < segs; at += s->seg[i++].k.d[1]) {
        const xd_kv from = s->seg[i];
        xd_copy_to(x, xd_piece_of(to.k, at, from.k.d[1]), from.k);
        xd_copy_to(x, xd_piece_of(to.v, at, from.v.d[1]), from.v);
    }
}

static void references_attn(xd_exec *x, const xd_hooks *m, xd_attn_args *a)
{
    const references *s = m->priv;
    const xd_topo    *t = s->kept.topo;
    const int64_t     before = xd_member_tokens(x->lay, t, XD_TXT, x->lay->npatch) +
                               xd_member_tokens(x->lay, t, XD_PAD, x->lay->npatch),
                      image = xd_member_tokens(x->lay, t, XD_IMG, x->lay->npatch);
    if (x->patch == XD_ALL) {
        store_keys(x, s, a, before, s->kept.rows);
        xd_next_attn(x, m, a);
        return;
    }
    xd_attn_args b = *a;
    b.nkv = xd_pick_keys(x, a, 0, before, s->seg, s->room);
    if (s->kept.rows && xd_check(x, b.nkv < s->room, "references: too many segments of keys"))
        s->seg[b.nkv++] = xd_kept_now(x, &s->kept, a->q.d[3]);
    b.nkv += xd_pick_keys(x, a, before, image, s->seg + b.nkv, s->room - b.nkv);
    b.kv = s->seg;
    xd_next_attn(x, m, &b);
}

static void close_references(xd_hooks *m)
{
    references *s = m->priv;
    xd_kept_close(&s->kept);
    free(s->seg);
    free(s);
}

static xd_status open_references(const xd_method_args *a, const xd_hooks *next, xd_hooks **out,
                                 xd_err *e)
{
    const xd_layout *l = a->lay;
    *out = NULL;
    if (a->what != XD_FOR_DIT || !l->refs_apart || l->npatch != 2)
        return XD_OK;
    references *s = calloc(1, sizeof *s);
    int         room = 2 + 2 * l->npatch * XD_NSTREAMS * a->topo->deg.n[XD_ULYSSES];
    if (!s || !(s->seg = calloc((size_t)room, sizeof *s->seg))) {
        free(s);
        return xd_fail(e, XD_ENOMEM, "no memory for reference images");
    }
    s->hooks = (xd_hooks){ .attn = references_attn, .next = next, .priv = s };
    s->room = room;
    xd_status st = xd_kept_open(&s->kept, a, xd_member_tokens(l, a->topo, XD_REF, l->npatch),
                                "reference images", e);
    s->hooks.bytes = s->kept.bytes;
    *out = &s->hooks;
    if (st != XD_OK) {
        close_references(*out);
        *out = NULL;
    }
    return st;
}

const xd_method xd_method_references = { "references", open_references, close_references };
