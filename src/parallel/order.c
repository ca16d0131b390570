/* order.c - lists the keys and values of all members of a parallel axis, or of some segments, in
 * token order */
#include "parallel/rows.h"

/* Returns the index, among the token rows of sequence shard `sp`, of the first row that belongs to
 * patch p of the stream xd_stream_order[st]. */
static int64_t row_of(const xd_exec *x, int st, int p, int sp)
{
    int64_t row = 0;
    for (int s = 0; s <= st; s++)
        for (int q = 0; q < (s == st ? p : x->lay->npatch); q++)
            if (x->patch == XD_ALL || x->patch == q)
                row += xd_own(x->lay, xd_stream_order[s], q, sp).n;
    return row;
}

int xd_in_order(const xd_exec *x, const xd_topo *t, xd_axis axis, const xd_tensor *k,
                const xd_tensor *v, xd_kv *seg)
{
    int n = 0, at[XD_NAXES] = { [XD_ULYSSES] = t->at[XD_ULYSSES], [XD_RING] = t->at[XD_RING] };
    for (int st = 0; st < XD_NSTREAMS; st++)
        for (int p = 0; p < x->lay->npatch; p++)
            for (int i = 0; i < t->deg.n[axis] && (x->patch == XD_ALL || x->patch == p); i++) {
                at[axis] = i;
                int     sp = xd_topo_sp(t, at[XD_ULYSSES], at[XD_RING]);
                int64_t m = xd_own(x->lay, xd_stream_order[st], p, sp).n;
                int64_t row = row_of(x, st, p, sp);
                if (m)
                    seg[n++] = (xd_kv){ xd_piece_of(k[i], row, m), xd_piece_of(v[i], row, m) };
            }
    return n;
}

int xd_pick_keys(xd_exec *x, const xd_attn_args *a, int64_t first, int64_t n, xd_kv *seg, int room)
{
    int segs = 0;
    for (int i = 0; i < a->nkv && n > 0; first -= a->kv[i++].k.d[1]) {
        const int64_t all = a->kv[i].k.d[1], some = all - first < n ? all - first : n;
        if (some <= 0)
            continue;
        if (!xd_check(x, segs < room, "attention: keys in more than %d segments", room))
            break;
        seg[segs++] =
            (xd_kv){ xd_piece_of(a->kv[i].k, first, some), xd_piece_of(a->kv[i].v, first, some) };
        first += some;
        n -= some;
    }
    return segs;
}
