/* bands.c - computes convolutions a few rows at a time */
#include "vae/bands.h"

#include "base/minmax.h"
/* The number of rows in a band is a multiple of ROWS, so that many threads can share a band. A band
 * has about BAND bytes of input, which fit into the L2 caches of the threads that share the band,
 * or into the L3 cache. */
enum { ROWS = 16, BAND = 16 << 20 };

/* Returns a view of rows [y, y + n) of a map [1,H,W,C]. */
static xd_tensor rows_of(xd_tensor t, int64_t y, int64_t n)
{
    if (t.p && n) /* an empty map may have an invalid address */
        t.p = (char *)t.p + y * t.s[1] * (int64_t)xd_dtype_size(t.type);
    t.d[1] = n;
    return t;
}

/* Returns the number of rows per band for a convolution that reads `row` bytes of input per output
 * row. The number of rows does not depend on how the map is split over ranks. */
static int64_t band_rows(const xd_exec *x, int64_t row, int64_t H)
{
    int64_t most = x->band ? (int64_t)x->band : BAND, n = most / (row > 0 ? row : 1);
    if (!x->band)
        n = n / ROWS * ROWS > ROWS ? n / ROWS * ROWS : ROWS;
    n = n > 1 ? n : 1;
    return xd_min(n, H > 1 ? H : 1);
}

static int64_t row_bytes(xd_tensor t, xd_dtype type)
{
    return t.d[2] * t.d[3] * (int64_t)xd_dtype_size(type);
}

void xd_band_rms(xd_exec *x, xd_tensor to, xd_tensor from, xd_tensor gain, float eps)
{
    int64_t   C = to.d[3], d[2] = { to.d[0] * to.d[1] * to.d[2], C };
    xd_tensor out = xd_reshape(to, 2, d);
    xd_norm_into(x, &(xd_norm){ .out = out,
                                .in = xd_reshape(from, 2, d),
                                .rms = 1,
                                .eps = eps,
                                .gain = xd_reshape(gain, 1, &C) });
    xd_activate(x, out, XD_SILU);
}

/* Copies the rows `from`, which are in the input map or in the halo next to the map, to `to`. If
 * the feed (the convolution's input) has a norm, the copied rows are normalized. */
static void fetch_rows(xd_exec *x, const xd_feed *f, xd_tensor to, xd_tensor from)
{
    if (!to.d[1])
        return;
    if (f->sum)
        xd_group_apply_into(x, f->sum,
                            &(xd_gnorm){ .out = to,
                                         .in = from,
                                         .gain = f->gain,
                                         .bias = f->bias,
                                         .eps = f->eps,
                                         .silu = 1 });
    else if (f->rms)
        xd_band_rms(x, to, from, f->gain, f->eps);
    else
        xd_copy_to(x, to, from);
}

/* Returns rows [y, y + n) of the feed (the convolution's input). If the feed has a norm, the rows
 * are normalized. Rows before 0 are those of the halo above the map, rows after the last one those
 * of the halo below. */
static xd_tensor fetch_feed(xd_exec *x, const xd_feed *f, const xd_halo *halo, xd_dtype type,
                            int64_t y, int64_t n)
{
    int64_t H = f->in.d[1], a = halo->above.d[1], up = y < 0 ? xd_min(-y, n) : 0;
    int64_t down = y + n > H ? xd_min(y + n - H, n) : 0, mid = n - up - down;
    if (!f->sum && !f->rms && mid == n && f->in.type == type)
        return rows_of(f->in, y, n);
    xd_tensor b = xd_new_as(x, type, 4, (int64_t[]){ 1, n, f->in.d[2], f->in.d[3] });
    fetch_rows(x, f, rows_of(b, 0, up), rows_of(halo->above, a + y, up));
    fetch_rows(x, f, rows_of(b, up, mid), rows_of(f->in, y + up, mid));
    fetch_rows(x, f, rows_of(b, up + mid, down), rows_of(halo->below, y + up + mid - H, down));
    return b;
}

/* Computes out += norm(y), for rows `out` of a map and the convolution's result y. */
static void add_normed(xd_exec *x, const xd_banded *a, xd_tensor out, xd_tensor y)
{
    int64_t   d[2] = { y.d[1] * y.d[2], y.d[3] };
    xd_tensor rows = xd_reshape(y, 2, d);
    xd_norm_into(x, &(xd_norm){ .out = rows,
                                .in = rows,
                                .gain = a->out_gain,
                                .bias = a->out_bias,
                                .rms = 1,
                                .eps = a->out_eps });
    xd_add(x, xd_reshape(out, 2, d), rows);
}

/* Computes rows [o, o + n) of the output, and the group norm sums of these rows. */
static void one_band(xd_exec *x, const xd_banded *a, const xd_halo *halo, int64_t o, int64_t n)
{
    size_t  mark = xd_arena_mark(x->tmp);
    int     k = a->w->w.kernel[1];
    int64_t first = o * a->stride - a->lo[1], end = (o + n - 1) * a->stride - a->lo[1] + k;
    int64_t top = -halo->above.d[1], bottom = a->feed.in.d[1] + halo->below.d[1];
    int     lo[3] = { 0, first < top ? (int)(top - first) : 0, a->lo[2] };
    int     hi[3] = { 0, end > bottom ? (int)(end - bottom) : 0, a->hi[2] };
    first = first < top ? top : first;
    end = end > bottom ? bottom : end;
    xd_tensor out = rows_of(a->out, o, n), to = out, plus = rows_of(a->plus, o, n);
    xd_tensor in = fetch_feed(x, &a->feed, halo, a->w->w.type, first, end - first);
    if (a->over || a->out_gain.p)
        to = xd_new_as(x, out.type, 4, out.d);
    if (a->shortcut) {
        plus = xd_new_as(x, out.type, 4, out.d);
        xd_conv_rows_into(x, plus, rows_of(a->from, o, n), a->shortcut, &(xd_conv_options){ 0 });
    }
    xd_conv_rows_into(x, to, in, a->w,
                      &(xd_conv_options){ .stride = a->stride,
                                          .lo = lo,
                                          .hi = hi,
                                          .residual = a->out_gain.p ? (xd_tensor){ 0 } : plus });
    if (a->out_gain.p)
        add_normed(x, a, out, to);
    else if (a->over)
        xd_copy_to(x, out, to);
    if (a->partial.p)
        xd_group_rows(x, xd_rows(a->partial, o, n), to);
    xd_arena_rewind(x->tmp, mark);
}

void xd_band_conv(xd_exec *x, const xd_banded *a)
{
    size_t  mark = xd_arena_mark(x->tmp);
    int64_t H = a->out.d[1], n = band_rows(x, row_bytes(a->feed.in, a->w->w.type) * a->stride, H);
    xd_halo halo = xd_halo_of(x, a->feed.in, a->lo[1], a->hi[1]);
    for (int64_t i = 0, all = (H + n - 1) / n; i < all; i++) {
        int64_t o = (a->last_first ? all - 1 - i : i) * n;
        one_band(x, a, &halo, o, xd_min(n, H - o));
    }
    xd_arena_rewind(x->tmp, mark);
}

/* Computes four output pixels, (2y + i, 2x + j) with i and j 0 or 1, for each pixel of a band of
 * rows [y, y + n) that is upsampled and convolved. Each of the four output pixels is the result of
 * a 2 x 2 convolution around the input pixel (y, x). `in` begins one row above y unless y is the
 * image's first row, and ends one row below the band unless the band has the image's last row. */
static void conv_quarter(xd_exec *x, xd_tensor out, xd_tensor in, const xd_cnv *w, int i, int j,
                         int above, int below)
{
    size_t  mark = xd_arena_mark(x->tmp);
    int64_t n = out.d[1] / 2, W = out.d[2] / 2, C = out.d[3], skip = i && above, drop = !i && below;
    int     lo[3] = { 0, !i && !above, !j }, hi[3] = { 0, i && !below, j };
    xd_tensor to = xd_new_as(x, out.type, 4, (int64_t[]){ 1, n, W, C });
    xd_conv_rows_into(x, to, rows_of(in, skip, in.d[1] - skip - drop), w,
                      &(xd_conv_options){ .lo = lo, .hi = hi });
    out.p = (char *)out.p + (i * out.s[1] + j * out.s[2]) * (int64_t)xd_dtype_size(out.type);
    out.d[1] = n, out.d[2] = W;
    out.s[1] *= 2, out.s[2] *= 2;
    xd_copy_to(x, out, to);
    xd_arena_rewind(x->tmp, mark);
}

/* Upsamples and convolves from the last rows to the first, because `out` may begin at the address
 * of `in`. When rows are computed from last to first, an output band never overwrites input rows
 * that are still needed. Only the first output rows overlap the input rows from which they are
 * computed; copies of these input rows are made before. */
void xd_band_enlarge(xd_exec *x, xd_tensor out, xd_tensor in, const xd_cnv w[4], xd_tensor partial)
{
    size_t  mark = xd_arena_mark(x->tmp);
    int64_t H = in.d[1], n = band_rows(x, 2 * row_bytes(in, w->w.type), H);
    xd_halo halo = xd_halo_of(x, in, 1, 1);
    xd_feed f = { .in = in };
    for (int64_t y = (H + n - 1) / n * n - n; y >= 0; y -= n) {
        size_t    inner = xd_arena_mark(x->tmp);
        int64_t   k = xd_min(n, H - y);
        int       above = y > 0 || halo.above.d[1], below = y + k < H || halo.below.d[1];
        xd_tensor b =
            xd_new_as(x, w->w.type, 4, (int64_t[]){ 1, k + above + below, in.d[2], in.d[3] });
        xd_tensor part = rows_of(out, 2 * y, 2 * k);
        int64_t   mid = k + (above && y > 0) + (below && y + k < H), up = above && y == 0;
        fetch_rows(x, &f, rows_of(b, 0, up), halo.above);
        fetch_rows(x, &f, rows_of(b, up, mid), rows_of(in, y > 0 ? y - 1 : 0, mid));
        fetch_rows(x, &f, rows_of(b, up + mid, b.d[1] - up - mid), halo.below);
        for (int q = 0; q < 4; q++)
            conv_quarter(x, part, b, &w[q], q / 2, q % 2, above, below);
        if (partial.p)
            xd_group_rows(x, xd_rows(partial, 2 * y, 2 * k), part);
        xd_arena_rewind(x->tmp, inner);
    }
    xd_arena_rewind(x->tmp, mark);
}

void xd_band_enlarge_one(xd_exec *x, xd_tensor out, const xd_band *b, const xd_cnv w[4])
{
    for (int q = 0; q < 4; q++)
        conv_quarter(x, out, b->in, &w[q], q / 2, q % 2, b->above > 0, b->below > 0);
}

/* Copies rows to rows [y, ...) of `to`, and returns the row after them. */
static int64_t put_rows(xd_exec *x, xd_tensor to, int64_t y, xd_tensor from)
{
    if (from.d[1])
        xd_copy_to(x, rows_of(to, y, from.d[1]), from);
    return y + from.d[1];
}

/* Returns a band with copies of its rows. `kept` are the rows next to the band that may have been
 * overwritten: above the band or, if bands begin with the last one, below the band. */
static xd_band read_band(xd_exec *x, const xd_band_pass *a, const xd_halo *halo, xd_tensor kept,
                         int64_t first, int64_t n)
{
    int64_t   H = a->map.d[1], up = halo->above.d[1], down = halo->below.d[1], y = 0;
    int64_t   above = xd_min(a->reach, first + up), below = xd_min(a->reach, H - first - n + down);
    int64_t   from = xd_max(0, first - above), end = xd_min(H, first + n + below);
    xd_band   b = { .first = first, .n = n, .above = above, .below = below };
    xd_tensor t = a->map;
    b.in = xd_new_as(x, t.type, 4, (int64_t[]){ 1, above + n + below, t.d[2], t.d[3] });
    if (!a->last_first) {
        y = put_rows(x, b.in, y, rows_of(kept, 0, above));
        y = put_rows(x, b.in, y, rows_of(t, first, end - first));
        put_rows(x, b.in, y, rows_of(halo->below, 0, above + n + below - y));
        return b;
    }
    int64_t beyond = above - (first - from);
    y = put_rows(x, b.in, y, rows_of(halo->above, up - beyond, beyond));
    y = put_rows(x, b.in, y, rows_of(t, from, first + n - from));
    put_rows(x, b.in, y, rows_of(kept, 0, below));
    return b;
}

void xd_band_each(xd_exec *x, const xd_band_pass *a)
{
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor t = a->map;
    int64_t   H = t.d[1], n = band_rows(x, a->row, H), all = (H + n - 1) / n;
    xd_halo   halo = xd_halo_of(x, t, a->reach, a->reach);
    xd_tensor kept = xd_new_as(x, t.type, 4, (int64_t[]){ 1, a->reach, t.d[2], t.d[3] });
    put_rows(x, kept, 0, a->last_first ? halo.below : halo.above);
    for (int64_t i = 0; i < all; i++) {
        size_t  inner = xd_arena_mark(x->tmp);
        int64_t first = (a->last_first ? all - 1 - i : i) * n;
        xd_band b = read_band(x, a, &halo, kept, first, xd_min(n, H - first));
        int64_t k = xd_min(a->reach, b.n + (a->last_first ? b.below : b.above));
        put_rows(x, kept, 0, rows_of(b.in, a->last_first ? b.above : b.above + b.n - k, k));
        a->run(x, a->ctx, &b);
        xd_arena_rewind(x->tmp, inner);
    }
    xd_arena_rewind(x->tmp, mark);
}
