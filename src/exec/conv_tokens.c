/* conv_tokens.c - computes a convolution of the image whose pixels are the image tokens.
 *
 * A rank has a span of tokens in each patch, which need not be complete rows of the image. For each
 * span, those rows of the image that the convolution reads are gathered from this rank's tokens and
 * from the tokens of other ranks and patches near the span. Pixels that no output of the span reads
 * have any finite value. */
#include "exec/op.h"

#include "base/minmax.h"

typedef struct strip { /* rows of the image around a span of tokens */
    xd_span   own;     /* the span */
    int64_t   top, n;  /* image rows [top, top + n) that have tokens of the span */
    int64_t   from;    /* first image row in `in` */
    xd_tensor in;      /* [rows of the image x columns, C] */
} strip;

/* Copies the tokens [at, at + rows.d[0]) that are in the strip to the strip. */
static void place(xd_exec *x, const strip *s, xd_tensor rows, int64_t at)
{
    const int64_t first = s->from * x->lay->grid[2];
    const int64_t a = xd_max(at, first), b = xd_min(at + rows.d[0], first + s->in.d[0]);
    if (b > a)
        xd_copy_to(x, xd_rows(s->in, a - first, b - a), xd_rows(rows, a - at, b - a));
}

/* Gathers the strip around a span of tokens. own: the rows of the span; near: the rows of the
 * tokens before the span, then those after it. */
static strip gather(xd_exec *x, xd_span span, xd_tensor own, xd_tensor near)
{
    const int64_t W = x->lay->grid[2], H = x->lay->grid[1], last = (span.start + span.n - 1) / W;
    const xd_span before = xd_near_span(x->lay, span, 0), after = xd_near_span(x->lay, span, 1);
    strip         s = { .own = span, .top = span.start / W };
    s.n = last - s.top + 1;
    s.from = xd_max(s.top - 1, 0);
    s.in = xd_new(x, (xd_min(last + 1, H - 1) - s.from + 1) * W, own.d[1]);
    xd_tensor any = own;
    any.d[0] = s.in.d[0], any.s[0] = 0; /* the first row, many times */
    xd_copy_to(x, s.in, any);
    place(x, &s, own, span.start);
    place(x, &s, xd_rows(near, 0, before.n), before.start);
    place(x, &s, xd_rows(near, before.n, after.n), after.start);
    return s;
}

static xd_tensor as_image(const xd_exec *x, xd_tensor rows)
{
    const int64_t W = x->lay->grid[2];
    return xd_reshape(rows, 4, (int64_t[]){ 1, rows.d[0] / W, W, rows.d[1] });
}

/* Computes the convolution for a span of tokens, whose rows are `own`, and writes `out`. */
static void conv_span(xd_exec *x, xd_tensor out, xd_span span, xd_tensor own, xd_tensor near,
                      const xd_cnv *w)
{
    size_t        mark = xd_arena_mark(x->tmp);
    const int64_t W = x->lay->grid[2];
    const strip   s = gather(x, span, own, near);
    const int     k = w->w.kernel[1] / 2, c = w->w.kernel[2] / 2;
    const int64_t below = s.from + s.in.d[0] / W - s.top - s.n; /* image rows below the span */
    xd_tensor     y = xd_new(x, s.n * W, w->w.out);
    xd_conv_rows_into(x, as_image(x, y), as_image(x, s.in), w,
                      &(xd_conv_options){ .lo = (int[]){ 0, k - (int)(s.top - s.from), c },
                                          .hi = (int[]){ 0, k - (int)below, c } });
    xd_copy_to(x, out, xd_rows(y, span.start - s.top * W, span.n));
    xd_arena_rewind(x->tmp, mark);
}

xd_tensor xd_conv_tokens(xd_exec *x, xd_tensor in, const xd_cnv *w)
{
    const xd_layout *l = x->lay;
    const xd_hooks  *m = x->hooks;
    xd_tensor        out = xd_new(x, in.d[0], w->w.out);
    size_t           mark = xd_arena_mark(x->tmp);
    xd_near_args     a = { .in = in };
    int64_t          row = 0, at = 0;
    while (!m->near)
        m = m->next;
    m->near(x, m, &a);
    xd_check(x, x->B == 1 && l->grid[0] == 1 && w->w.kernel[1] == 3 && in.d[0] == xd_n(x, XD_IMG),
             "a convolution over tokens has %lld rows of %lld tokens of an image",
             (long long)in.d[0], (long long)xd_n(x, XD_IMG));
    for (int p = 0; p < l->npatch && in.d[1]; p++) {
        if (x->patch != XD_ALL && x->patch != p)
            continue;
        const xd_span own = xd_own(l, XD_IMG, p, x->sp);
        const int64_t n = xd_near_span(l, own, 0).n + xd_near_span(l, own, 1).n;
        if (!xd_check(x, at + n <= a.near.d[0] && row + own.n <= in.d[0],
                      "a convolution over tokens has %lld rows of %lld near tokens",
                      (long long)a.near.d[0], (long long)(at + n)))
            break;
        if (own.n)
            conv_span(x, xd_rows(out, row, own.n), own, xd_rows(in, row, own.n),
                      xd_rows(a.near, at, n), w);
        row += own.n, at += n;
    }
    xd_arena_rewind(x->tmp, mark);
    return out;
}
