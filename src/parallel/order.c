/* order.c - keys and values of the members of an axis, in the token order of one rank */
#include "parallel/rows.h"

int xd_in_order(const xd_exec *x, const xd_topo *t, xd_axis axis, const xd_tensor *k,
                const xd_tensor *v, xd_kv *seg)
{
    static const xd_stream_id order[XD_NSTREAMS] = { XD_TXT, XD_PAD, XD_REF, XD_IMG };
    int n = 0, at[XD_NAXES] = { [XD_ULYSSES] = t->at[XD_ULYSSES], [XD_RING] = t->at[XD_RING] };
    for (int p = 0; p < x->lay->npatch; p++)
        for (int st = 0; st < XD_NSTREAMS && (x->patch == XD_ALL || x->patch == p); st++)
            for (int i = 0; i < t->deg.n[axis]; i++) {
                at[axis] = i;
                int     sp = xd_topo_sp(t, at[XD_ULYSSES], at[XD_RING]);
                int64_t row = 0, m = xd_own(x->lay, order[st], p, sp).n;
                for (int q = 0; q < p && x->patch == XD_ALL; q++)
                    row += xd_own_rows(x->lay, q, sp);
                for (int s = 0; s < st; s++)
                    row += xd_own(x->lay, order[s], p, sp).n;
                if (m)
                    seg[n++] = (xd_kv){ xd_piece_of(k[i], row, m), xd_piece_of(v[i], row, m) };
            }
    return n;
}
