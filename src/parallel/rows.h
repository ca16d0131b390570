/* rows.h - used only in src/parallel: declares functions that count the tokens of the ranks with
 * one ring coordinate, make views of tokens, and call the next hook. */
#ifndef XD_PARALLEL_ROWS_H
#define XD_PARALLEL_ROWS_H

#include "parallel/method.h"

/* Returns how many tokens of one patch (XD_ALL: of all patches) the Ulysses ranks with one ring
 * coordinate hold together. */
static inline int64_t xd_member_rows(const xd_layout *l, const xd_topo *t, int patch, int member)
{
    int64_t n = 0;
    for (int u = 0; u < t->deg.n[XD_ULYSSES]; u++)
        n += xd_own_rows(l, patch, xd_topo_sp(t, u, member));
    return n;
}

/* Returns a view of tokens [row, row + n) of a tensor [1,N,H,D]. */
static inline xd_tensor xd_piece_of(xd_tensor t, int64_t row, int64_t n)
{
    t.p = (char *)t.p + row * t.s[1] * (int64_t)xd_dtype_size(t.type);
    t.d[1] = n;
    return t;
}

/* Returns the number of key heads that this Ulysses rank computes, of all key heads of its
 * tensor-parallel rank. */
static inline int64_t xd_my_heads(const xd_method_args *a)
{
    return xd_cut_at((xd_span){ 0, a->heads }, a->topo->at[XD_ULYSSES], a->topo->deg.n[XD_ULYSSES],
                     a->lay->heads)
        .n;
}

/* Return the number of guidance passes per step that this rank computes with CFG parallelism, and
 * the index of the current guidance pass among them. */
static inline int xd_my_passes(const xd_method_args *a)
{
    return (a->npass - a->topo->at[XD_CFG] + a->topo->deg.n[XD_CFG] - 1) / a->topo->deg.n[XD_CFG];
}

static inline int64_t xd_my_pass(const xd_exec *x, const xd_topo *t)
{
    return x->pass / t->deg.n[XD_CFG];
}

/* Lists views of keys and values in global token order: by stream (text, reference, image), then by
 * patch, then by the rank's coordinate on `axis`. k[i] and v[i] are the tensors [1,n_i,H,D] with
 * all tokens of the rank with coordinate i, ordered by stream and then by patch. Returns the number
 * of views, at most the product of the numbers of patches, streams and ranks. */
int xd_in_order(const xd_exec *x, const xd_topo *t, xd_axis axis, const xd_tensor *k,
                const xd_tensor *v, xd_kv *seg);

/* Lists views of the keys and values [first, first + n) of an attention call, one view for each
 * segment of keys that overlaps this range. Returns the number of views; the context x fails if
 * this number exceeds `room`, the length of the list. */
int xd_pick_keys(xd_exec *x, const xd_attn_args *a, int64_t first, int64_t n, xd_kv *seg, int room);

/* Allocates in the arena, and releases again, the memory that attention within groups of tokens
 * (groups.c) needs for the call `a`, so that memory counts include it. m: a hook before that of
 * groups.c in the stack. */
void xd_groups_reserve(xd_exec *x, const xd_hooks *m, const xd_attn_args *a);

/* Calls the attention function of the hook that follows m in the stack. */
static inline void xd_next_attn(xd_exec *x, const xd_hooks *m, xd_attn_args *a)
{
    const xd_hooks *next = m->next;
    while (!next->attn)
        next = next->next;
    next->attn(x, next, a);
}

#endif
