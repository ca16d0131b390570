/* skip.c - runs the blocks of a transformer, and passes block outputs over long skips.
 *
 * Block outputs that later blocks read form a stack, which is stored next to the hidden state, in
 * the compute type. The stack grows over the first half of the blocks and shrinks over the second
 * half. Between pipeline stages, the stack is sent together with the hidden state. */
#include "dit/dit.h"
#include "exec/op.h"

static int skip_of(const xd_dit *d, const void *cfg, int layer)
{
    return d->skip_from ? d->skip_from(cfg, layer) : -1;
}

int xd_dit_skips(const xd_dit *d, const void *cfg, int layer)
{
    int n = 0, all = d->skip_from ? d->net.nlayers(cfg) : 0;
    for (int i = layer; i < all; i++) {
        int from = skip_of(d, cfg, i);
        n += from >= 0 && from < layer;
    }
    return n;
}

int xd_dit_most_skips(const xd_dit *d, const xd_net *n)
{
    int most = 0;
    for (int i = n->first; i <= n->last; i++) {
        int k = xd_dit_skips(d, n->cfg, i);
        most = k > most ? k : most;
    }
    return most;
}

void xd_dit_block(xd_exec *x, const xd_dit *d, const xd_net *n, int layer, xd_state *s)
{
    int64_t rows = s->h.d[0];
    int     before = xd_dit_skips(d, n->cfg, layer), after = xd_dit_skips(d, n->cfg, layer + 1);
    int     takes = skip_of(d, n->cfg, layer) >= 0;
    s->skip = takes ? xd_rows(s->skips, (before - 1) * rows, rows) : (xd_tensor){ 0 };
    xd_net_block(x, n, layer, s);
    if (after > before - takes) /* of several states of a token, only the first one is a skip */
        xd_copy_to(x, xd_rows(s->skips, (after - 1) * rows, rows),
                   xd_dit_state(s, s->skips.d[1], 0));
}
