/* halo.c - runs the VAE's convolutions, group norms and attention in parallel on bands of image
 * rows, one band per rank.
 *
 * The rows of the latents are split over the ranks: the number of latent rows is lay->len[XD_IMG],
 * and the number of ranks is nsp. At each resolution, a rank's band is its range of latent rows,
 * multiplied by the ratio of the current tensor's width to the latents' width. Bands of different
 * ranks may have different heights, and may be empty. A convolution fetches the input rows beyond
 * its band (halo rows) from the ranks that have them. Group norms add the partial sums of all rows
 * in row order, and attention reads all keys in order, so results equal those of one rank. */
#include <stdlib.h>
#include <string.h>

#include "exec/op.h"
#include "parallel/rows.h"

extern const xd_method xd_method_halo;

typedef struct halo {
    xd_hooks   hooks;
    xd_comm   *c;
    int64_t    scale; /* rows of the current feature map per latent row */
    xd_tensor *give, *get;
    int64_t   *rows;
} halo;

/* Returns the band of image rows of rank r at a scale. */
static xd_span band_of(const xd_exec *x, int r, int64_t scale)
{
    xd_span s = xd_own(x->lay, XD_IMG, 0, r);
    return (xd_span){ s.start * scale, s.n * scale };
}

static xd_span intersect(xd_span a, xd_span b)
{
    int64_t lo = a.start > b.start ? a.start : b.start;
    int64_t ea = a.start + a.n, eb = b.start + b.n, hi = ea < eb ? ea : eb;
    return (xd_span){ lo, hi > lo ? hi - lo : 0 };
}

/* Returns the input rows, inside the image, that a convolution needs to compute the output rows
 * `out`. */
static xd_span input_rows(xd_span out, const xd_conv *a, int64_t height)
{
    if (!out.n)
        return (xd_span){ out.start * a->stride[1], 0 };
    int64_t lo = out.start * a->stride[1] - a->lo[1];
    int64_t hi = (out.start + out.n - 1) * a->stride[1] - a->lo[1] + a->w->kernel[1];
    lo = lo < 0 ? 0 : lo;
    hi = hi > height ? height : hi;
    return (xd_span){ lo, hi - lo };
}

/* Returns a view of the image rows [s.start, s.start + s.n). The tensor t [T,H,W,C] has frames
 * whose row 0 is the image row `first`. */
static xd_tensor rows_view(xd_tensor t, int64_t first, xd_span s)
{
    if (t.p)
        t.p = (char *)t.p + (s.start - first) * t.s[1] * (int64_t)xd_dtype_size(t.type);
    t.d[1] = s.n;
    return t;
}

/* The output rows at one edge of a band, which need input rows of a neighbouring rank. The tensor
 * `in` has all input rows that the edge needs, both this rank's rows and received rows. */
typedef struct edge {
    xd_span   out, need;
    xd_tensor in;
    xd_tensor plus; /* residual that is added to the edge rows */
} edge;

typedef struct band_conv { /* convolution of this rank's band of rows */
    const xd_conv *a;
    int64_t        scale, out_scale, height;
    xd_span        mine, out; /* mine: input rows of the band; out: output rows of the band */
    xd_span        inner;     /* output rows that need only this rank's input rows */
    /* 1: the kernel spans several frames, and the edge rows are computed twice (see run_inner). */
    int            over;
    edge           e[2]; /* edges above and below the inner rows */
} band_conv;

static int is_inner(const band_conv *k, int64_t row)
{
    xd_span n = input_rows((xd_span){ row, 1 }, k->a, k->height);
    return n.start >= k->mine.start && n.start + n.n <= k->mine.start + k->mine.n;
}

/* Divides the output rows of a band into inner rows and two edges. Without inner rows, all rows
 * belong to the first edge. */
static void find_edges(xd_exec *x, band_conv *k)
{
    int64_t lo = k->out.start, end = lo + k->out.n, hi = end;
    while (lo < end && !is_inner(k, lo))
        lo++;
    while (hi > lo && !is_inner(k, hi - 1))
        hi--;
    k->inner = (xd_span){ lo, hi - lo };
    k->e[0].out = (xd_span){ k->out.start, lo - k->out.start };
    k->e[1].out = (xd_span){ hi, end - hi };
    for (int i = 0; i < 2; i++) {
        edge     *e = &k->e[i];
        xd_tensor in = k->a->in;
        e->need = input_rows(e->out, k->a, k->height);
        e->in = xd_new_as(x, in.type, 4, (int64_t[]){ in.d[0], e->need.n, in.d[2], in.d[3] });
        e->plus = rows_view(k->a->residual, k->out.start, e->out);
    }
}

/* Sets the views for the exchange of halo rows: `give` has the rows that other ranks need, and
 * `get` has the memory that receives the rows needed by this rank's edges. Another rank's band is
 * either above or below this rank's band, so the other rank has rows for only one of this rank's
 * two edges. If no rows are exchanged with a rank, the rank's views are empty. */
static void set_views(xd_exec *x, halo *h, const band_conv *k, xd_tensor in,
                      const xd_tensor edges[2])
{
    for (int r = 0; r < h->c->size; r++) {
        int     other = r != h->c->rank;
        xd_span has = band_of(x, r, k->scale);
        xd_span theirs = input_rows(band_of(x, r, k->out_scale), k->a, k->height);
        xd_span give = intersect(k->mine, theirs), get = intersect(k->e[0].need, has);
        int     at = !get.n;
        get = at ? intersect(k->e[1].need, has) : get;
        give.n = other ? give.n : 0;
        get.n = other ? get.n : 0;
        h->give[r] = rows_view(in, k->mine.start, give.n ? give : (xd_span){ k->mine.start, 0 });
        xd_span none = { k->e[at].need.start, 0 };
        h->get[r] = rows_view(edges[at], none.start, get.n ? get : none);
    }
}

/* Starts the exchange of halo rows. A failed rank still takes part in the exchange, with invalid
 * data, so that the other ranks do not wait forever. */
static xd_req begin_exchange(xd_exec *x, halo *h, const band_conv *k)
{
    xd_tensor in = k->a->in, e[2] = { k->e[0].in, k->e[1].in };
    if (!xd_ok(x)) {
        in.p = xd_failed_buffer(x, in.p, xd_bytes(in), h->c);
        for (int i = 0; i < 2; i++)
            e[i].p = xd_failed_buffer(x, e[i].p, xd_bytes(e[i]), h->c);
    }
    set_views(x, h, k, in, e);
    return h->c->ops->exchange(h->c, h->give, h->get);
}

/* Computes the convolution's output rows `out` from `in`, which has all input rows that these
 * output rows need. Only rows outside of the image are padding. */
static void run_rows(xd_exec *x, const xd_hooks *next, const band_conv *k, xd_span out,
                     xd_tensor in, xd_tensor plus)
{
    const xd_conv *a = k->a;
    xd_conv        b = *a;
    int64_t        lo = out.start * a->stride[1] - a->lo[1];
    int64_t        hi = (out.start + out.n - 1) * a->stride[1] - a->lo[1] + a->w->kernel[1];
    if (!out.n)
        return;
    b.in = in;
    b.out = rows_view(a->out, k->out.start, out);
    b.residual = plus;
    b.lo[1] = lo < 0 ? (int)-lo : 0;
    b.hi[1] = hi > k->height ? (int)(hi - k->height) : 0;
    next->conv(x, next, &b);
}

/* Computes the convolution's inner rows, which need only this rank's input rows. If the kernel
 * spans several frames, a view of only the inner rows is not contiguous, and the convolution would
 * have to copy it. In this case the complete band is convolved instead, with padding in place of
 * the halo rows. This gives correct inner rows and wrong edge rows. The edge rows are computed
 * again later, so the residuals of the edge rows are saved before this convolution, which may
 * overwrite them. */
static void run_inner(xd_exec *x, const xd_hooks *next, band_conv *k)
{
    xd_conv a = *k->a;
    xd_span inner = input_rows(k->inner, k->a, k->height);
    if (!k->over) {
        run_rows(x, next, k, k->inner, rows_view(a.in, k->mine.start, inner),
                 rows_view(a.residual, k->out.start, k->inner));
        return;
    }
    for (int i = 0; i < 2 && a.residual.p; i++) {
        xd_tensor part = k->e[i].plus;
        k->e[i].plus = xd_new_as(x, part.type, 4, part.d);
        if (part.d[1])
            xd_copy_to(x, k->e[i].plus, part);
    }
    if (k->inner.n)
        next->conv(x, next, &a);
}

/* Computes a convolution of this rank's band. While the halo rows are in transit, the inner rows
 * are computed. Then the few edge rows are computed, from a copy of the input rows that the edges
 * need. */
static void halo_conv(xd_exec *x, const xd_hooks *m, xd_conv *a)
{
    halo           *h = m->priv;
    const xd_hooks *next = m->next;
    band_conv       k = { .a = a,
                          .scale = a->in.d[2] / x->lay->grid[2],
                          .out_scale = a->out.d[2] / x->lay->grid[2],
                          .over = a->w->kernel[0] > 1 };
    while (!next->conv)
        next = next->next;
    h->scale = k.out_scale;
    if (a->w->kernel[1] == 1 && a->stride[1] == 1) {
        next->conv(x, next, a);
        return;
    }
    size_t mark = xd_arena_mark(x->tmp);
    k.height = x->lay->len[XD_IMG] * k.scale;
    k.mine = band_of(x, h->c->rank, k.scale);
    k.out = band_of(x, h->c->rank, k.out_scale);
    xd_check(
        x, a->in.d[1] == k.mine.n && a->out.d[1] == k.out.n && (!k.over || k.scale == k.out_scale),
        "parallel VAE: a band has %lld rows, expected %lld", (long long)a->in.d[1],
        (long long)k.mine.n);
    find_edges(x, &k);
    for (int i = 0; i < 2; i++) {
        xd_span keep = intersect(k.mine, k.e[i].need);
        if (keep.n)
            xd_copy_to(x, rows_view(k.e[i].in, k.e[i].need.start, keep),
                       rows_view(a->in, k.mine.start, keep));
    }
    xd_req q = begin_exchange(x, h, &k);
    run_inner(x, next, &k);
    if (h->c->ops->wait(h->c, &q, 1) != XD_OK)
        xd_exec_fail(x, XD_ECOMM, "parallel VAE: receiving a neighbour's rows failed");
    for (int i = 0; i < 2; i++)
        run_rows(x, next, &k, k.e[i].out, k.e[i].in, k.e[i].plus);
    xd_arena_rewind(x->tmp, mark);
}

/* Returns the image rows next to a band: at most `lo` rows above and at most `hi` rows below. */
static void rows_beside(xd_span band, int lo, int hi, int64_t height, xd_span out[2])
{
    int64_t end = band.start + band.n;
    int64_t a = band.n && lo < band.start ? band.start - lo : band.n ? 0 : band.start;
    int64_t b = band.n && hi < height - end ? end + hi : band.n ? height : end;
    out[0] = (xd_span){ a, band.start - a };
    out[1] = (xd_span){ end, b - end };
}

/* Sets the views of halo rows to send and to receive. Another rank's band is either above or below
 * this rank's band, so two ranks exchange rows for only one side of each band. */
static void set_halo_views(xd_exec *x, halo *h, int64_t height, const int reach[2], xd_tensor in,
                           const xd_tensor side[2])
{
    xd_span mine = band_of(x, h->c->rank, h->scale), need[2], theirs[2];
    rows_beside(mine, reach[0], reach[1], height, need);
    for (int r = 0; r < h->c->size; r++) {
        int     other = r != h->c->rank, below = r > h->c->rank;
        xd_span has = band_of(x, r, h->scale), none = { mine.start, 0 };
        rows_beside(has, reach[0], reach[1], height, theirs);
        xd_span give = intersect(mine, theirs[!below]), get = intersect(need[below], has);
        h->give[r] = rows_view(in, mine.start, other && give.n ? give : none);
        none.start = need[below].start;
        h->get[r] = rows_view(side[below], none.start, other && get.n ? get : none);
    }
}

static void halo_rows(xd_exec *x, const xd_hooks *m, xd_halo_args *a)
{
    halo     *h = m->priv;
    const int reach[2] = { a->lo, a->hi };
    xd_span   need[2];
    xd_tensor in = a->in, *to[2] = { &a->above, &a->below }, side[2];
    h->scale = in.d[2] / x->lay->grid[2];
    int64_t height = x->lay->len[XD_IMG] * h->scale;
    xd_span mine = band_of(x, h->c->rank, h->scale);
    xd_check(x, in.d[1] == mine.n, "parallel VAE: a band has %lld rows, expected %lld",
             (long long)in.d[1], (long long)mine.n);
    rows_beside(mine, a->lo, a->hi, height, need);
    for (int i = 0; i < 2; i++) {
        int64_t d[4] = { in.d[0], need[i].n, in.d[2], in.d[3] };
        side[i] = *to[i] = xd_new_as(x, in.type, 4, d);
        if (!xd_ok(x))
            side[i].p = xd_failed_buffer(x, side[i].p, xd_bytes(side[i]), h->c);
    }
    in.d[1] = mine.n;
    if (!xd_ok(x))
        in.p = xd_failed_buffer(x, in.p, xd_bytes(in), h->c);
    set_halo_views(x, h, height, reach, in, side);
    xd_req q = h->c->ops->exchange(h->c, h->give, h->get);
    if (h->c->ops->wait(h->c, &q, 1) != XD_OK)
        xd_exec_fail(x, XD_ECOMM, "parallel VAE: receiving a neighbour's rows failed");
}

static void halo_rowsum(xd_exec *x, const xd_hooks *m, int64_t wide, xd_tensor partial,
                        xd_tensor sums, int64_t *rows)
{
    halo *h = m->priv;
    h->scale = wide / x->lay->grid[2];
    size_t    mark = xd_arena_mark(x->tmp);
    int64_t   total = x->lay->len[XD_IMG] * h->scale, n = partial.d[1] * partial.d[2];
    xd_tensor all = xd_new_as(x, XD_F64, 3, (int64_t[]){ total, partial.d[1], partial.d[2] });
    xd_tensor in = xd_view2(partial.p, XD_F64, partial.d[0], n);
    if (!xd_ok(x)) {
        in.d[0] = band_of(x, h->c->rank, h->scale).n;
        all.p = xd_failed_buffer(x, all.p, xd_bytes(all), h->c);
        in.p = xd_failed_buffer(x, in.p, xd_bytes(in), h->c);
    }
    for (int r = 0; r < h->c->size; r++)
        h->rows[r] = band_of(x, r, h->scale).n;
    xd_req q = h->c->ops->gather(h->c, xd_view2(all.p, XD_F64, total, n), h->rows, in);
    if (h->c->ops->wait(h->c, &q, 1) != XD_OK)
        xd_exec_fail(x, XD_ECOMM, "parallel VAE: gathering the sums of all bands failed");
    const xd_hooks *next = m->next;
    while (!next->rowsum)
        next = next->next;
    next->rowsum(x, next, wide, all, sums, rows);
    *rows = total;
    xd_arena_rewind(x->tmp, mark);
}

/* Computes attention of this rank's queries over the keys and values of all bands, in the order of
 * the bands. */
static void halo_attn(xd_exec *x, const xd_hooks *m, xd_attn_args *a)
{
    halo     *h = m->priv;
    size_t    mark = xd_arena_mark(x->tmp);
    int64_t   H = a->q.d[2], D = a->q.d[3], wide = x->lay->grid[2] * h->scale, total = 0;
    xd_tensor in[2] = { a->kv[0].k, a->kv[0].v }, all[2];
    for (int r = 0; r < h->c->size; r++)
        total += h->rows[r] = band_of(x, r, h->scale).n * wide;
    for (int i = 0; i < 2; i++) {
        int64_t   n = h->rows[h->c->rank];
        xd_tensor mine = xd_new_as(x, in[i].type, 4, (int64_t[]){ 1, n, H, D });
        all[i] = xd_new_as(x, in[i].type, 4, (int64_t[]){ 1, total, H, D });
        xd_copy_to(x, mine, in[i]);
        if (!xd_ok(x)) {
            all[i].p = xd_failed_buffer(x, all[i].p, xd_bytes(all[i]), h->c);
            mine.p = xd_failed_buffer(x, mine.p, xd_bytes(mine), h->c);
        }
        xd_req q = h->c->ops->gather(h->c, xd_view2(all[i].p, in[i].type, total, H * D), h->rows,
                                     xd_view2(mine.p, in[i].type, n, H * D));
        if (h->c->ops->wait(h->c, &q, 1) != XD_OK)
            xd_exec_fail(x, XD_ECOMM, "parallel VAE: gathering the keys of all bands failed");
    }
    xd_kv        kv = { all[0], all[1] };
    xd_attn_args b = *a;
    b.kv = &kv;
    xd_next_attn(x, m, &b);
    xd_arena_rewind(x->tmp, mark);
}

static void close_halo(xd_hooks *m)
{
    halo *h = m->priv;
    free(h->give), free(h->get), free(h->rows), free(h);
}

static xd_status open_halo(const xd_method_args *a, const xd_hooks *next, xd_hooks **out, xd_err *e)
{
    *out = NULL;
    if (a->what != XD_FOR_VAE || !a->rows || a->rows->size == 1)
        return XD_OK;
    halo *h = calloc(1, sizeof *h);
    if (!h)
        return xd_fail(e, XD_ENOMEM, "no memory for the parallel VAE");
    h->hooks = (xd_hooks){ .attn = halo_attn,
                           .conv = halo_conv,
                           .halo = halo_rows,
                           .rowsum = halo_rowsum,
                           .next = next,
                           .priv = h };
    h->c = a->rows;
    h->scale = 1;
    h->give = calloc((size_t)h->c->size, sizeof *h->give);
    h->get = calloc((size_t)h->c->size, sizeof *h->get);
    h->rows = calloc((size_t)h->c->size, sizeof *h->rows);
    *out = &h->hooks;
    if (!h->give || !h->get || !h->rows) {
        close_halo(*out);
        *out = NULL;
        return xd_fail(e, XD_ENOMEM, "no memory for the parallel VAE");
    }
    return XD_OK;
}

const xd_method xd_method_halo = { "halo", open_halo, close_halo };
