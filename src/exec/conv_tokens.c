/* conv_tokens.c - computes convolutions of images whose pixels are the image tokens.
 *
 * The images of a convolution over a frame are the frames of the grid. The single image of a
 * convolution over time has a row for each frame, and a column for each place of a frame.
 *
 * A rank has a span of tokens in each patch, which need not be complete rows of an image. For the
 * part of a span in each image, those rows of the image that the convolution reads are gathered
 * from this rank's tokens and from the tokens of other ranks and patches near the span. Pixels that
 * no output of the span reads have any finite value. */
#include "exec/op.h"

#include "base/minmax.h"

typedef struct shape { /* the images of a convolution */
    xd_nearness how;
    int64_t     rows, columns; /* of an image */
} shape;

typedef struct strip { /* rows of an image around a part of a span of tokens */
    int64_t   top, n;  /* rows [top, top + n) of all images have tokens of the part */
    int64_t   from;    /* the first row in `in` */
    xd_tensor in;      /* [rows x columns, C] */
} strip;

/* A span of this rank's tokens, with the rows of its tokens, of the tokens before it, and of the
 * tokens after it. */
typedef struct rows_around {
    xd_span   own, before, after;
    xd_tensor in, near;
} rows_around;

/* Copies the tokens [at, at + rows.d[0]) that are in the strip to the strip. */
static void place(xd_exec *x, const shape *f, const strip *s, xd_tensor rows, int64_t at)
{
    const int64_t first = s->from * f->columns;
    const int64_t a = xd_max(at, first), b = xd_min(at + rows.d[0], first + s->in.d[0]);
    if (b > a)
        xd_copy_to(x, xd_rows(s->in, a - first, b - a), xd_rows(rows, a - at, b - a));
}

/* Gathers the strip around `part`, a part of a span that is in one image. */
static strip gather(xd_exec *x, const shape *f, xd_span part, const rows_around *r)
{
    const int64_t W = f->columns, image = part.start / W / f->rows * f->rows;
    const int64_t last = (part.start + part.n - 1) / W;
    strip         s = { .top = part.start / W };
    s.n = last - s.top + 1;
    s.from = xd_max(s.top - 1, image);
    s.in = xd_new(x, (xd_min(last + 1, image + f->rows - 1) - s.from + 1) * W, r->in.d[1]);
    xd_tensor any = r->in;
    any.d[0] = s.in.d[0], any.s[0] = 0; /* the first row, many times */
    xd_copy_to(x, s.in, any);
    place(x, f, &s, r->in, r->own.start);
    place(x, f, &s, xd_rows(r->near, 0, r->before.n), r->before.start);
    place(x, f, &s, xd_rows(r->near, r->before.n, r->after.n), r->after.start);
    return s;
}

static xd_tensor as_image(const shape *f, xd_tensor rows)
{
    return xd_reshape(rows, 4, (int64_t[]){ 1, rows.d[0] / f->columns, f->columns, rows.d[1] });
}

/* Computes the convolution for a part of a span that is in one image, and writes `out`. */
static void conv_part(xd_exec *x, const shape *f, xd_tensor out, xd_span part, const rows_around *r,
                      const xd_cnv *w)
{
    size_t        mark = xd_arena_mark(x->tmp);
    const int64_t W = f->columns;
    const strip   s = gather(x, f, part, r);
    const int     k = w->w.kernel[1] / 2, c = w->w.kernel[2] / 2;
    const int64_t below = s.from + s.in.d[0] / W - s.top - s.n; /* rows below the part */
    xd_tensor     y = xd_new(x, s.n * W, w->w.out);
    xd_conv_rows_into(x, as_image(f, y), as_image(f, s.in), w,
                      &(xd_conv_options){ .lo = (int[]){ 0, k - (int)(s.top - s.from), c },
                                          .hi = (int[]){ 0, k - (int)below, c } });
    xd_copy_to(x, out, xd_rows(y, part.start - s.top * W, part.n));
    xd_arena_rewind(x->tmp, mark);
}

/* Computes the convolution for a span of tokens, which may be in several images. */
static void conv_span(xd_exec *x, const shape *f, xd_tensor out, const rows_around *r,
                      const xd_cnv *w)
{
    const int64_t size = f->rows * f->columns, end = r->own.start + r->own.n;
    for (int64_t at = r->own.start; at < end;) {
        xd_span part = { at, xd_min((at / size + 1) * size, end) - at };
        conv_part(x, f, xd_rows(out, at - r->own.start, part.n), part, r, w);
        at += part.n;
    }
}

static xd_tensor convolve(xd_exec *x, const shape *f, xd_tensor in, const xd_cnv *w)
{
    const xd_layout *l = x->lay;
    const xd_hooks  *m = x->hooks;
    xd_tensor        out = xd_new(x, in.d[0], w->w.out);
    size_t           mark = xd_arena_mark(x->tmp);
    xd_near_args     a = { .in = in, .how = f->how };
    int64_t          row = 0, at = 0;
    while (!m->near)
        m = m->next;
    m->near(x, m, &a);
    xd_check(x, x->B == 1 && w->w.kernel[1] == 3 && in.d[0] == xd_n(x, XD_IMG),
             "a convolution over tokens has %lld rows of %lld tokens of an image",
             (long long)in.d[0], (long long)xd_n(x, XD_IMG));
    for (int p = 0; p < l->npatch && in.d[1]; p++) {
        if (x->patch != XD_ALL && x->patch != p)
            continue;
        rows_around r = { .own = xd_own(l, XD_IMG, p, x->sp) };
        r.before = xd_near_span(l, r.own, f->how, 0), r.after = xd_near_span(l, r.own, f->how, 1);
        const int64_t n = r.before.n + r.after.n;
        if (!xd_check(x, at + n <= a.near.d[0] && row + r.own.n <= in.d[0],
                      "a convolution over tokens has %lld rows of %lld near tokens",
                      (long long)a.near.d[0], (long long)(at + n)))
            break;
        r.in = xd_rows(in, row, r.own.n), r.near = xd_rows(a.near, at, n);
        conv_span(x, f, xd_rows(out, row, r.own.n), &r, w);
        row += r.own.n, at += n;
    }
    xd_arena_rewind(x->tmp, mark);
    return out;
}

xd_tensor xd_conv_tokens(xd_exec *x, xd_tensor in, const xd_cnv *w)
{
    const int64_t *grid = x->lay->grid;
    return convolve(x, &(shape){ XD_NEAR_IN_FRAME, grid[1], grid[2] }, in, w);
}

xd_tensor xd_conv_frames(xd_exec *x, xd_tensor in, const xd_cnv *w)
{
    const int64_t *grid = x->lay->grid;
    return convolve(x, &(shape){ XD_NEAR_IN_TIME, grid[0], grid[1] * grid[2] }, in, w);
}
