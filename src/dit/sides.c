/* sides.c - orders the blocks of a transformer and its side networks, and checks their sizes */
#include "dit/sides.h"

#include <stdio.h>

xd_status xd_sides_add(xd_sides *s, int net, int at, xd_err *e)
{
    if (s->nblocks == XD_SIDES_BLOCKS)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "the transformer and its control networks have more than %d blocks",
                       XD_SIDES_BLOCKS);
    s->net[s->nblocks] = net;
    s->at[s->nblocks++] = at;
    return XD_OK;
}

xd_status xd_sides_order(xd_sides *s, int nlayers, int n,
                         int (*before)(const void *cfg, int i, int layer), const void *cfg,
                         xd_err *e)
{
    int       done[XD_MAXSIDES] = { 0 };
    xd_status st = XD_OK;
    s->nblocks = 0;
    for (int layer = 0; st == XD_OK && layer < nlayers; layer++) {
        for (int i = 0; i < n; i++)
            for (int most = before(cfg, i, layer); st == XD_OK && done[i] < most; done[i]++)
                st = xd_sides_add(s, i, done[i], e);
        if (st == XD_OK)
            st = xd_sides_add(s, -1, layer, e);
    }
    return st;
}

xd_status xd_sides_check(const xd_side_number *v, size_t n, int i, xd_err *e)
{
    for (size_t k = 0; k < n; k++)
        if (v[k].have != v[k].want)
            return xd_fail(e, XD_EFORMAT,
                           "controlnet %d does not fit the transformer: its %s is %.10g, not %.10g",
                           i, v[k].key, v[k].have, v[k].want);
    return XD_OK;
}

xd_status xd_sides_check_layers(int have, int most, int i, xd_err *e)
{
    if (have >= 1 && have <= most)
        return XD_OK;
    return xd_fail(e, XD_EFORMAT,
                   "controlnet %d does not fit the transformer: its num_layers is %d, not 1 to %d",
                   i, have, most);
}

void xd_sides_residual(xd_decl *d, const char *name, int at, int64_t dim, xd_lin *w)
{
    char all[48];
    snprintf(all, sizeof all, "%s.%d", name, at);
    xd_w_linear(d, w, all, &(xd_linear_spec){ .in = dim, .out = dim, .bias = 1 });
}

int xd_sides_count(const xd_source *file, const char *prefix, const char *suffix)
{
    char      name[96];
    xd_tensor t;
    int       n = 0;
    do
        snprintf(name, sizeof name, "%s%d%s", prefix, n, suffix);
    while (n < XD_FIELD_LIST && file->has(file->self, name, &t) && ++n);
    return n;
}
