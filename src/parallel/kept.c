/* kept.c - stores the keys and values of attention layers from one denoising step to the next */
#include "parallel/kept.h"

xd_status xd_kept_open(xd_kept *k, const xd_method_args *a, int64_t rows, const char *whose,
                       xd_err *e)
{
    *k = (xd_kept){ .topo = a->topo,
                    .dev = a->dev,
                    .rows = rows,
                    .heads = xd_my_heads(a),
                    .head_dim = a->head_dim,
                    .type = a->act,
                    .first = a->first,
                    .nlayers = a->last - a->first,
                    .sites = a->sites };
    k->bytes = (size_t)(2 * rows * k->heads * k->head_dim) * xd_dtype_size(k->type) *
                   (size_t)(xd_my_passes(a) * k->nlayers * k->sites) +
               64;
    k->mem = k->dev->mem->get(k->dev, k->bytes);
    return k->mem ? XD_OK
                  : xd_fail(e, XD_ENOMEM, "no memory for the %s of %s's keys and values",
                            xd_size_text((double)k->bytes).s, whose);
}

void xd_kept_close(xd_kept *k)
{
    if (k->mem)
        k->dev->mem->put(k->dev, k->mem, k->bytes);
    k->mem = NULL;
}

xd_kv xd_kept_now(const xd_exec *x, const xd_kept *k, int64_t D)
{
    int64_t d[4] = { 1, k->rows, k->heads, D };
    int64_t i = (xd_my_pass(x, k->topo) * k->nlayers + (x->layer - k->first)) * k->sites + x->site;
    size_t  one = (size_t)(d[1] * d[2] * k->head_dim) * xd_dtype_size(k->type);
    char   *p = k->mem + (size_t)(2 * i) * one;
    return (xd_kv){ xd_view(p, k->type, 4, d), xd_view(p + one, k->type, 4, d) };
}

int64_t xd_member_tokens(const xd_layout *l, const xd_topo *t, xd_stream_id s, int patches)
{
    int64_t n = 0;
    for (int u = 0; u < t->deg.n[XD_ULYSSES]; u++)
        for (int p = 0; p < patches; p++)
            n += xd_own(l, s, p, xd_topo_sp(t, u, t->at[XD_RING])).n;
    return n;
}
