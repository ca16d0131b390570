/* linear.c - adds the sums of linear attention (Katharopoulos et al. 2020, arXiv:2006.16236) over
 * ranks and PipeFusion patches.
 *
 * The ranks of the Ulysses and ring axes each sum their own keys and values; one all-reduce of
 * [heads, D, D+1] floats replaces the exchange of keys and values. The ranks of a parallel VAE do
 * the same with their bands of rows. With PipeFusion, the sums of every patch are stored. While one
 * patch is computed, every other patch contributes the sums that were computed last: for an earlier
 * patch in this step, for a later patch in the previous step. The sums are small and always
 * current, also with DistriFusion. */
#include <stdlib.h>

#include "exec/op.h"
#include "parallel/rows.h"

extern const xd_method xd_method_linear;

typedef struct linear {
    xd_hooks       hooks;
    const xd_topo *topo;
    xd_comm       *c; /* the ranks that share the tokens, or the rows of a VAE */
    xd_dev        *dev;
    int            npatch, first, nlayers, sites;
    int64_t        heads, head_dim;
    /* with PipeFusion, [passes, layers, sites, npatch, heads, D, D+1] F32: sums of each patch */
    float         *mem;
    size_t         bytes;
} linear;

static void add_over_ranks(xd_exec *x, const linear *s, xd_tensor io)
{
    if (s->c->size == 1)
        return;
    if (!xd_ok(x))
        io.p = xd_failed_buffer(x, io.p, xd_bytes(io), s->c);
    xd_req r = s->c->ops->allreduce(s->c, io, XD_SUM);
    if (s->c->ops->wait(s->c, &r, 1) != XD_OK)
        xd_exec_fail(x, XD_ECOMM, "linear attention: a sum over ranks failed");
}

static void sum_rows(xd_exec *x, const xd_hooks *m, const xd_linattn *a)
{
    const xd_hooks *next = m->next;
    while (!next->linear)
        next = next->next;
    next->linear(x, next, a);
}

/* Returns the stored sums [npatch, heads, D x (D+1)] of the current pass and attention layer. */
static xd_tensor kept_now(const xd_exec *x, const linear *s)
{
    int64_t d[3] = { s->npatch, s->heads, s->head_dim * (s->head_dim + 1) };
    int64_t i = (xd_my_pass(x, s->topo) * s->nlayers + (x->layer - s->first)) * s->sites + x->site;
    return xd_view(s->mem + i * d[0] * d[1] * d[2], XD_F32, 3, d);
}

static void linear_sums(xd_exec *x, const xd_hooks *m, const xd_linattn *a)
{
    const linear *s = m->priv;
    if (!s->mem) {
        sum_rows(x, m, a);
        add_over_ranks(x, s, a->sums);
        return;
    }
    const int     whole = x->patch == XD_ALL, first = whole ? 0 : x->patch;
    const int64_t n = whole ? s->npatch : 1, size = a->sums.d[1] * a->sums.d[2];
    size_t        mark = xd_arena_mark(x->tmp);
    xd_tensor     kept = kept_now(x, s);
    xd_tensor     parts = xd_new_as(x, XD_F32, 3, (int64_t[]){ n, a->sums.d[0], size });
    int64_t       row = 0;
    for (int i = 0; i < n; i++) {
        const int64_t rows = xd_own(x->lay, XD_IMG, first + i, x->sp).n;
        if (!xd_check(x, row + rows <= a->k.d[0] && a->sums.d[0] == s->heads,
                      "linear attention has %lld keys", (long long)a->k.d[0]))
            break;
        sum_rows(x, m,
                 &(xd_linattn){ .k = xd_rows(a->k, row, rows),
                                .v = xd_rows(a->v, row, rows),
                                .cos = a->cos.p ? xd_rows(a->cos, row, rows) : a->cos,
                                .sin = a->sin.p ? xd_rows(a->sin, row, rows) : a->sin,
                                .sums = xd_reshape(xd_rows(parts, i, 1), 3, a->sums.d) });
        row += rows;
    }
    add_over_ranks(x, s, parts);
    xd_copy_to(x, xd_rows(kept, first, n), parts);
    xd_tensor all = xd_view2(a->sums.p, XD_F32, s->heads, size);
    xd_copy_to(x, all, xd_view2(kept.p, XD_F32, s->heads, size));
    for (int p = 1; p < s->npatch; p++)
        xd_add(x, all, xd_view2(xd_rows(kept, p, 1).p, XD_F32, s->heads, size));
    xd_arena_rewind(x->tmp, mark);
}

static void close_linear(xd_hooks *m)
{
    linear *s = m->priv;
    if (s->mem)
        s->dev->mem->put(s->dev, s->mem, s->bytes);
    free(s);
}

static xd_status open_linear(const xd_method_args *a, const xd_hooks *next, xd_hooks **out,
                             xd_err *e)
{
    const int dit = a->what == XD_FOR_DIT && a->linear;
    xd_comm  *c = dit ? a->topo->tokens : a->what == XD_FOR_VAE ? a->rows : NULL;
    *out = NULL;
    if (!c || (c->size == 1 && !(dit && a->lay->npatch > 1)))
        return XD_OK;
    linear *s = calloc(1, sizeof *s);
    if (!s)
        return xd_fail(e, XD_ENOMEM, "no memory for linear attention");
    s->hooks = (xd_hooks){ .linear = linear_sums, .next = next, .priv = s };
    s->topo = a->topo, s->c = c, s->dev = a->dev, s->npatch = dit ? a->lay->npatch : 1;
    s->first = a->first, s->nlayers = a->last - a->first, s->sites = a->sites;
    s->heads = a->heads * a->group, s->head_dim = a->head_dim;
    *out = &s->hooks;
    if (s->npatch == 1)
        return XD_OK;
    s->bytes = (size_t)(s->npatch * s->heads * s->head_dim * (s->head_dim + 1)) * sizeof(float) *
                   (size_t)(xd_my_passes(a) * s->nlayers * s->sites) +
               64;
    s->mem = s->dev->mem->get(s->dev, s->bytes);
    s->hooks.bytes = s->bytes;
    if (s->mem)
        return XD_OK;
    *out = NULL;
    free(s);
    return xd_fail(e, XD_ENOMEM, "no memory for PipeFusion's sums of linear attention");
}

const xd_method xd_method_linear = { "linear", open_linear, close_linear };
