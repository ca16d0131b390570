/* edges.c - computes causal convolutions that read copies of the outermost pixels, and attentions
 * over the current and earlier frames (edges.h) */
#include "vae/edges.h"

#include "base/minmax.h"
#include "vae/maps.h"

enum { ALL_ROWS = 1 << 24 /* more than the rows of any map */ };

static const xd_tensor none;

/* Returns a view of h rows, beginning with row y, and w columns, beginning with column x, of all
 * frames [T,H,W,C]. */
static xd_tensor box_view(xd_tensor t, int64_t y, int64_t h, int64_t x, int64_t w)
{
    if (t.p)
        t.p = (char *)t.p + (y * t.s[1] + x * t.s[2]) * (int64_t)xd_dtype_size(t.type);
    t.d[1] = h, t.d[2] = w;
    return t;
}

/* Copies or converts rows of one frame to rows [y, ...) of `to`. Returns the row after them. */
static int64_t read_rows(xd_exec *x, const xd_edges *f, xd_tensor to, int64_t y, xd_tensor from)
{
    int64_t   n = from.d[1];
    xd_tensor out = box_view(to, y, n, 0, to.d[2]);
    if (n && f->read)
        f->read(x, f->reader, out, from);
    else if (n)
        xd_copy_to(x, out, from);
    return y + n;
}

/* Writes frame t of the convolution's input to `to` [1,H+2,W+2,C], which has one more row and
 * column at each edge. */
static void read_frame(xd_exec *x, const xd_edges *f, const xd_halo *halo, xd_tensor to, int64_t t)
{
    size_t    mark = xd_arena_mark(x->tmp);
    int64_t   s = f->time ? (t + 1) / 2 : t, H = to.d[1] - 2, W = to.d[2] - 2, y = 0;
    xd_tensor in = xd_rows(f->in, s, 1);
    int64_t   a = halo->above.d[1], b = halo->below.d[1];
    xd_tensor flat = xd_map_as(x, to.type, 1, a + in.d[1] + b, in.d[2], in.d[3]);
    if (a)
        y = read_rows(x, f, flat, y, xd_rows(halo->above, s, 1));
    y = read_rows(x, f, flat, y, in);
    if (b)
        read_rows(x, f, flat, y, xd_rows(halo->below, s, 1));
    if (f->wide) { /* of two equal rows of a neighbour, only the nearer one is needed */
        flat = xd_enlarge(x, flat, 1, 2, 2);
        flat = box_view(flat, a, a + H + b, 0, W);
    }
    xd_copy_to(x, box_view(to, !a, a + H + b, 1, W), flat);
    if (!a)
        xd_copy_to(x, box_view(to, 0, 1, 1, W), box_view(to, 1, 1, 1, W));
    if (!b)
        xd_copy_to(x, box_view(to, H + 1, 1, 1, W), box_view(to, H, 1, 1, W));
    xd_copy_to(x, box_view(to, 0, H + 2, 0, 1), box_view(to, 0, H + 2, 1, 1));
    xd_copy_to(x, box_view(to, 0, H + 2, W + 1, 1), box_view(to, 0, H + 2, W, 1));
    xd_arena_rewind(x->tmp, mark);
}

/* The frames that a convolution reads together: a buffer of padded frames. */
typedef struct window {
    xd_exec        *x;
    const xd_edges *f;
    xd_halo         halo;
    xd_tensor       buf; /* [XD_PAST + n,H+2,W+2,C] */
    int64_t         n, had, end, H;
    int             time, wide;
} window;

static window open_window(xd_exec *x, const xd_edges *f, const xd_cnv *w, int64_t T, int64_t most)
{
    int64_t H = f->in.d[1] << f->wide, W = f->in.d[2] << f->wide, C = f->in.d[3];
    window  v = { .x = x, .f = f, .end = -XD_PAST, .H = H };
    v.time = f->stride_time ? f->stride_time : 1, v.wide = f->stride_wide ? f->stride_wide : 1;
    xd_tensor shape = xd_view(NULL, w->w.type, 4, (int64_t[]){ T, H, W, C });
    v.n = v.time > 1 ? 1 : xd_min(xd_map_frames(x, shape), most);
    /* with a stride of 2, the convolution does not read the row below an even number of rows */
    v.halo = xd_halo_of(x, f->in, 1, v.wide == 1);
    v.buf = xd_map_as(x, w->w.type, XD_PAST + v.n, H + 2, W + 2, C);
    return v;
}

/* Returns the padded frames from which frames [t, t + k) of the result are computed. */
static xd_tensor slide(window *v, int64_t t, int64_t k)
{
    int64_t first = v->time * t - XD_PAST, kept = v->end - first;
    for (int64_t i = 0; t && i < kept; i++)
        xd_copy_to(v->x, xd_rows(v->buf, i, 1), xd_rows(v->buf, v->had - kept + i, 1));
    v->had = XD_PAST + v->time * (k - 1) + 1;
    for (v->end = t ? v->end : first; v->end < first + v->had; v->end++)
        read_frame(v->x, v->f, &v->halo, xd_rows(v->buf, v->end - first, 1), xd_max(v->end, 0));
    return xd_rows(v->buf, 0, v->had);
}

void xd_edges_conv(xd_exec *x, xd_tensor out, const xd_edges *f, const xd_cnv *w, xd_tensor plus)
{
    size_t  mark = xd_arena_mark(x->tmp);
    int64_t T = out.d[0];
    window  v = open_window(x, f, w, T, T);
    for (int64_t t = 0; v.H && t < T; t += v.n) {
        int64_t k = xd_min(v.n, T - t);
        xd_conv_rows_into(x, xd_rows(out, t, k), slide(&v, t, k), w,
                          &(xd_conv_options){ .stride = v.wide,
                                              .residual = plus.p ? xd_rows(plus, t, k) : none });
    }
    xd_arena_rewind(x->tmp, mark);
}

void xd_edges_conv_to(xd_exec *x, const xd_edges_sink *to, const xd_edges *f, const xd_cnv *w)
{
    size_t    mark = xd_arena_mark(x->tmp);
    int64_t   T = f->in.d[0];
    window    v = open_window(x, f, w, T, 1);
    xd_tensor frame = xd_map(x, 1, v.H, f->in.d[2], w->w.out);
    for (int64_t t = 0; v.H && t < T; t++) {
        to->before(x, to->sink, t, frame);
        xd_conv_rows_into(x, frame, slide(&v, t, 1), w,
                          &(xd_conv_options){ .stride = 1, .residual = frame });
        to->after(x, to->sink, t, frame);
    }
    xd_arena_rewind(x->tmp, mark);
}

void xd_mirror_conv(xd_exec *x, xd_tensor out, xd_tensor in, const xd_cnv *w, xd_tensor plus)
{
    size_t    mark = xd_arena_mark(x->tmp);
    int64_t   T = in.d[0], H = in.d[1], W = in.d[2];
    xd_halo   halo = xd_halo_of(x, in, 1, 1);
    int64_t   a = halo.above.d[1], b = halo.below.d[1];
    xd_tensor all = xd_map_as(x, in.type, T, H + 2, W + 2, in.d[3]);
    int fits = xd_check(x, W > 1 && (H != 1 || a || b),
                        "the autoencoder mirrors the edges of an image, and needs at least two "
                        "rows and two columns of latents in an image or tile; use another size "
                        "of images, or of tiles");
    if (!H || !fits) {
        xd_arena_rewind(x->tmp, mark);
        return;
    }
    xd_copy_to(x, box_view(all, 1, H, 1, W), in);
    if (a)
        xd_copy_to(x, box_view(all, 0, 1, 1, W), halo.above);
    if (b)
        xd_copy_to(x, box_view(all, H + 1, 1, 1, W), halo.below);
    if (!a)
        xd_copy_to(x, box_view(all, 0, 1, 1, W), box_view(all, 2, 1, 1, W));
    if (!b)
        xd_copy_to(x, box_view(all, H + 1, 1, 1, W), box_view(all, H - 1, 1, 1, W));
    xd_copy_to(x, box_view(all, 0, H + 2, 0, 1), box_view(all, 0, H + 2, 2, 1));
    xd_copy_to(x, box_view(all, 0, H + 2, W + 1, 1), box_view(all, 0, H + 2, W - 1, 1));
    xd_conv_rows_into(x, out, all, w, &(xd_conv_options){ .stride = 1, .residual = plus });
    xd_arena_rewind(x->tmp, mark);
}

/* ---- attention ----------------------------------------------------------------------------- */

/* Returns the keys and values [T,H,W,2C] of all ranks' rows. A rank without rows gets none. */
static xd_tensor gather_keys(xd_exec *x, xd_tensor kv)
{
    xd_halo halo = xd_halo_of(x, kv, ALL_ROWS, ALL_ROWS);
    int64_t a = halo.above.d[1], b = halo.below.d[1], n = kv.d[1];
    if (!a && !b)
        return kv;
    xd_tensor all = xd_map(x, kv.d[0], a + n + b, kv.d[2], kv.d[3]);
    if (a)
        xd_copy_to(x, box_view(all, 0, a, 0, kv.d[2]), halo.above);
    xd_copy_to(x, box_view(all, a, n, 0, kv.d[2]), kv);
    if (b)
        xd_copy_to(x, box_view(all, a + n, b, 0, kv.d[2]), halo.below);
    return all;
}

void xd_edges_attend(xd_exec *x, xd_tensor h, xd_tensor q, xd_tensor kv, const xd_lin *proj)
{
    xd_tensor flat = xd_map_rows(h);
    int64_t   T = h.d[0], C = h.d[3], n = h.d[1] * h.d[2];
    kv = gather_keys(x, kv);
    for (int64_t t = 0; n && t < T; t++) {
        size_t    mark = xd_arena_mark(x->tmp);
        xd_tensor keys = xd_map_rows(xd_rows(kv, 0, t + 1));
        xd_tensor o = xd_attn_over(x, xd_heads(xd_rows(q, t * n, n), C),
                                   xd_heads(xd_cols(keys, 0, C), C),
                                   xd_heads(xd_cols(keys, C, C), C), none, 0);
        xd_linear_add(x, xd_rows(flat, t * n, n), none, xd_flat(o), proj);
        xd_arena_rewind(x->tmp, mark);
    }
}
