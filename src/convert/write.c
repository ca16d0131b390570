/* write.c - writes the tensors of a file, some rows at a time.
 *
 * Each thread converts its own band of rows: reads the rows as f32, adds LoRA terms, then rounds or
 * quantizes the sums. When all threads are done, the converted rows are written, and the pages of
 * the source files are released. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/minmax.h"
#include "base/par.h"
#include "convert/inside.h"
#include "exec/reader.h"

/* Max elements that a thread converts in a step; a single row may have more. */
enum { BAND = 1 << 20 };

typedef struct band_work { /* a step: rows of a tensor that all threads convert together */
    const xd_reader   *r;
    const xd_cvt_item *i;
    /* A step converts rows [row, end) of the tensor; each thread converts `band` of these rows. */
    int64_t            row, end, band;
    size_t             row_bytes; /* bytes of an output row */
    float             *wide;      /* [threads, band, cols]: rows as f32 */
    char              *out;       /* [threads, band]: converted rows */
    float             *scale;     /* scales of all rows of a quantized matrix */
    int                bad;       /* 1: NaN or infinite values were found in the matrix */
} band_work;

static void make_band(void *ctx, int64_t begin, int64_t end, int thread)
{
    band_work    *w = ctx;
    const int64_t cols = w->r->cols;
    for (int64_t b = begin; b < end; b++) {
        const int64_t row = w->row + b * w->band, n = xd_min(w->band, w->end - row);
        float        *x = w->wide + thread * w->band * cols;
        char         *to = w->out + (size_t)(b * w->band) * w->row_bytes;
        xd_reader_rows(w->r, row, n, x, thread);
        if (xd_nonfinite(xd_view2(x, XD_F32, n, cols)))
            __atomic_store_n(&w->bad, 1, __ATOMIC_RELAXED);
        const int keeps = w->scale && xd_reader_keeps(w->r, w->i->t.type);
        for (int64_t k = 0; k < n && w->scale; k++)
            w->scale[row + k] =
                keeps ? xd_reader_codes(w->r, row + k, x + k * cols, to + k * cols)
                      : xd_quantize_row(w->i->t.type, x + k * cols, cols, to + k * cols);
        if (w->i->fours)
            xd_quantize_fours(x, n * cols, w->i->rotate, to);
        else if (!w->scale)
            xd_convert(to, w->i->t.type, x, XD_F32, n * cols);
    }
}

typedef struct sink {
    xd_cvt            *v;
    const xd_cvt_file *to;
    FILE              *f;
} sink;

static xd_status write_bytes(const sink *s, const void *p, size_t n, xd_err *e)
{
    if (fwrite(p, 1, n, s->f) != n)
        return xd_fail(e, XD_EIO, "cannot write %s: %s", s->to->path, strerror(errno));
    xd_cvt_progress(s->v, s->to->name, n);
    return XD_OK;
}

static xd_status seek_to(const sink *s, size_t at, xd_err *e)
{
    const size_t data = XD_ST_SIZE + s->to->header.len;
    return fseeko(s->f, (off_t)(data + at), SEEK_SET) == 0
               ? XD_OK
               : xd_fail(e, XD_EIO, "cannot write %s: %s", s->to->path, strerror(errno));
}

/* Writes the rows [row, row + n) of a source tensor unchanged, in the type that they have in the
 * file. */
static xd_status write_stored(const sink *s, const xd_reader *r, int64_t row, int64_t n, xd_err *e)
{
    const size_t from = xd_dtype_bytes(r->t.type, row * r->cols);
    return write_bytes(s, (const char *)r->t.p + from, xd_dtype_bytes(r->t.type, n * r->cols), e);
}

static xd_status write_rows(const sink *s, band_work *w, xd_err *e)
{
    const xd_reader *r = w->r;
    const int        threads = xd_par_threads(), as_is = !w->wide;
    xd_status        st = XD_OK;
    for (w->row = 0; w->row < r->rows && st == XD_OK; w->row = w->end) {
        w->end = xd_min(r->rows, w->row + threads * w->band);
        const int64_t n = w->end - w->row;
        if (!as_is)
            xd_par_dynamic(xd_ceil_div(n, w->band), make_band, w);
        st = as_is ? write_stored(s, r, w->row, n, e)
                   : write_bytes(s, w->out, (size_t)n * w->row_bytes, e);
        xd_reader_past(r, w->row, n);
    }
    return st;
}

static xd_status write_scales(const sink *s, const xd_cvt_item *of, const float *scale, xd_err *e)
{
    for (int k = 0; k < s->to->n; k++) {
        const xd_cvt_item *i = &s->to->item[k];
        if (!i->scales || i->unit != of->unit)
            continue;
        xd_status st = seek_to(s, i->at, e);
        return st == XD_OK ? write_bytes(s, scale, xd_bytes(i->t), e) : st;
    }
    return XD_OK;
}

static xd_status write_tensor(const sink *s, const xd_reader *r, const xd_cvt_item *i, xd_err *e)
{
    const int64_t cols = xd_max(r->cols, 1), threads = xd_par_threads();
    const int     as_is = !i->quantized && r->t.type == i->t.type && xd_reader_plain(r);
    band_work     w = { .r = r, .i = i, .band = xd_max(1, BAND / cols) };
    w.band = xd_max(1, xd_min(w.band, r->rows));
    w.row_bytes = r->rows ? xd_bytes(i->t) / (size_t)r->rows : 0;
    if (!as_is) {
        w.wide = malloc((size_t)(threads * w.band * cols) * sizeof *w.wide);
        w.out = malloc((size_t)(threads * w.band) * w.row_bytes + 1);
    }
    if (i->quantized)
        w.scale = malloc((size_t)r->rows * sizeof *w.scale);
    xd_status st = (!as_is && (!w.wide || !w.out)) || (i->quantized && !w.scale)
                       ? xd_fail(e, XD_ENOMEM, "no memory for %lld rows of %s",
                                 (long long)(threads * w.band), i->name)
                       : seek_to(s, i->at, e);
    if (st == XD_OK)
        st = write_rows(s, &w, e);
    if (st == XD_OK && i->quantized)
        st = write_scales(s, i, w.scale, e);
    if (w.bad)
        xd_log(XD_LOG_WARN, "weight %s holds NaN or infinite numbers", i->name);
    free(w.wide);
    free(w.out);
    free(w.scale);
    return st;
}

static xd_status write_item(const sink *s, const xd_cvt_part *c, const xd_cvt_item *i, xd_err *e)
{
    xd_reader r = { 0 };
    if (i->scales || !xd_count(i->t))
        return XD_OK;
    xd_status   st = xd_reader_open(&r, i->raw < 0 ? &c->p->w->src : &c->p->raw, i->name, e);
    const void *at;
    if (st == XD_OK && i->fours && xd_reader_fours(&r, i->rotate, &at)) {
        st = seek_to(s, i->at, e);
        if (st == XD_OK)
            st = write_bytes(s, at, xd_bytes(i->t), e);
    } else if (st == XD_OK) {
        st = write_tensor(s, &r, i, e);
    }
    xd_reader_close(&r);
    return st;
}

xd_status xd_cvt_write(xd_cvt *v, const xd_cvt_part *c, const xd_cvt_file *f, xd_err *e)
{
    unsigned char size[XD_ST_SIZE];
    xd_out        o;
    xd_status     s = xd_out_open(&o, f->path, e);
    if (s != XD_OK)
        return s;
    const sink to = { v, f, o.f };
    xd_st_size(f->header.len, size);
    s = write_bytes(&to, size, sizeof size, e);
    if (s == XD_OK)
        s = write_bytes(&to, f->header.p, f->header.len, e);
    for (int i = 0; i < f->n && s == XD_OK; i++)
        s = write_item(&to, c, &f->item[i], e);
    if (s == XD_OK)
        return xd_out_commit(&o, e);
    xd_out_abort(&o);
    return s;
}
