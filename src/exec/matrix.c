/* matrix.c - makes a device matrix from one or several matrices of the checkpoint.
 *
 * A local matrix is fused from parts and cut by tensor parallelism. Both are one operation here:
 * rows and columns of the parts are gathered one after the other. If the device can pack bands of
 * rows separately, each thread takes a band, searches it for NaN and packs it: directly from the
 * file if the band lies there unchanged, otherwise through a copy of the band. Other matrices are
 * packed as a whole; those that are fused or cut are packed through a copy of the whole matrix. */
#include "exec/matrix.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/par.h"

int xd_mat_repeats(const xd_mat_part *parts, int i)
{
    return i > 0 && strcmp(parts[i].name, parts[i - 1].name) == 0;
}

/* ---- gathering rows ----------------------------------------------------------------------- */

typedef struct gather {         /* copies rows of a part to adjacent rows at `to`              */
    char                *to;
    xd_dtype             type;
    const xd_fetched    *f;
    const xd_mat_part   *p;
    const xd_mat_cols   *c;
    float                scale;
} gather;

static const char *row_at(const gather *g, int64_t r)
{
    return (const char *)g->f->t.p +
           (size_t)((g->p->row0 + r) * g->p->in) * xd_dtype_size(g->f->t.type);
}

/* Makes random elements [first, first + n) of a part. */
static void make_elements(const gather *g, char *to, int64_t first, int64_t n)
{
    enum { CHUNK = 512 };
    float   x[CHUNK];
    int64_t m;
    for (int64_t i = 0; i < n; i += m) {
        m = n - i < CHUNK ? n - i : CHUNK;
        xd_load_make(&g->f->made, first + i, m, x);
        xd_convert(to + (size_t)i * xd_dtype_size(g->type), g->type, x, XD_F32, m);
    }
}

static void copy_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const gather *g = ctx;
    size_t        es = xd_dtype_size(g->f->t.type), ts = xd_dtype_size(g->type);
    char         *to = g->to + (size_t)(begin * g->c->total) * ts;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        for (int k = 0; k < g->c->n; k++) {
            const xd_span s = g->c->span[k];
            if (g->f->t.p)
                xd_load_convert(to, g->type, row_at(g, r) + (size_t)s.start * es, g->f->t.type, s.n,
                                g->scale);
            else
                make_elements(g, to, (g->p->row0 + r) * g->p->in + s.start, s.n);
            to += (size_t)s.n * ts;
        }
}

/* The type in which all parts are stored; F32 if they differ, for sums and random elements. */
static xd_dtype stored_type(const xd_decl *d, const xd_mat_part *parts, int n)
{
    xd_dtype type = XD_F32;
    for (int i = 0; i < n && d->src; i++) {
        char      full[512];
        xd_tensor t;
        if (xd_sum_is(d, parts[i].name, ".weight"))
            return XD_F32;
        xd_load_name(d, parts[i].name, ".weight", full);
        if (!d->src->has(d->src->self, full, &t) || t.type == XD_F64 || (i && t.type != type))
            return XD_F32;
        type = t.type;
    }
    return type;
}

/* ---- how a matrix is gathered ------------------------------------------------------------- */

/* A matrix that is being gathered from its parts. */
typedef struct gathering {
    const xd_mat_part *parts;
    const xd_mat_cols *c;
    int      n;
    int      whole;             /* 1: one part, uncut                                          */
    int      as_is;             /* 1: e4m3 is used as stored in the file                       */
    int64_t  band;              /* rows of a band that is packed alone; 0: no bands            */
    int      copies;            /* 1: (some) rows are copied before they are packed            */
    int      sums;              /* 1: a part is a sum                                          */
    xd_dtype type;              /* of the copy                                                 */
    size_t   copy_bytes;        /* bytes of the copy: of all rows, or of a band per thread     */
    char    *all, *at;          /* the copy; next free row                                     */
    float   *scale;             /* of rows with cut inputs, or of e4m3 as stored; or NULL       */
} gathering;

/* Does w have rows whose scales the device cannot compute? They are packed as a whole. */
static int needs_scales(const xd_weight *w, const gathering *g)
{
    return g->as_is || (xd_is_quantized(w->type) && g->c->total != g->parts[0].in);
}

/* Does each band have rows of one part only, as they lie in the file? The last may be smaller. */
static int bands_are_in_place(const gathering *g)
{
    int64_t row = 0;
    for (int i = 0; i < g->n; row += g->parts[i++].rows)
        if (row % g->band)
            return 0;
    return g->c->total == g->parts[0].in;
}

/* Decides how a matrix is gathered. Scaled 8-bit elements are gathered in the compute type, or in
 * f32 if they are to be quantized. F32 elements are also rounded when they are gathered, which
 * needs less memory; not so bands to which terms are added. */
static gathering plan_gathering(const xd_decl *d, const xd_weight *w, const xd_matrix *m)
{
    const xd_mat_part *parts = m->parts;
    const xd_mat_cols *c = &m->cols;
    int                n = m->n;
    gathering          g = { .parts = parts, .c = c, .n = n };
    g.whole = n == 1 && parts[0].rows == parts[0].out && c->total == parts[0].in;
    g.type = stored_type(d, parts, n);
    g.as_is = w->type == XD_F8E4M3 && g.type == XD_F8E4M3;
    g.band = needs_scales(w, &g) ? 0 : d->dev->ops->pack_band(d->dev, w);
    int eight = xd_dtype_size(g.type) == 1 && !g.as_is, made = d->visit == XD_VISIT_RANDOM;
    for (int i = 0; i < n; i++)
        g.sums |= xd_sum_is(d, parts[i].name, ".weight");
    g.copies = eight || (g.band ? g.sums || made || !bands_are_in_place(&g) : !g.whole);
    if (eight ||
        (g.type == XD_F32 && g.copies && !xd_is_quantized(w->type) && !(g.sums && g.band)))
        g.type = xd_is_quantized(w->type) ? XD_F32 : d->type;
    int64_t rows = g.band ? g.band * xd_par_threads() : w->out;
    g.copy_bytes = g.copies ? (size_t)(rows * c->total) * xd_dtype_size(g.type) : 0;
    return g;
}

static void *get_copy_buffer(xd_decl *d, const gathering *g)
{
    void *p = xd_store_scratch(d->store, 1, g->copy_bytes);
    if (!p)
        xd_fail(d->err, XD_ENOMEM, "no memory to gather weight %s%s", d->scope, g->parts[0].name);
    return p;
}

/* Bytes that the sums of all parts take, which may be open at the same time. */
static size_t sum_bytes(const xd_decl *d, const gathering *g)
{
    size_t sum = 0;
    for (int i = 0; i < g->n && g->sums; i++)
        if (!xd_mat_repeats(g->parts, i))
            sum += xd_sum_bytes(d, g->parts[i].name, ".weight",
                                g->parts[i].out * g->parts[i].in, !g->band);
    return sum;
}

void xd_mat_count(xd_decl *d, xd_weight *w, const xd_matrix *m)
{
    const xd_mat_part *parts = m->parts;
    const int          n = m->n;
    xd_load_count(d, w->bytes = d->dev->ops->pack_size(d->dev, w));
    gathering g = plan_gathering(d, w, m);
    xd_load_count_work(d, 0, g.band ? 0 : d->dev->ops->pack_tmp(d->dev, w, g.type));
    xd_load_count_work(d, 1, g.copy_bytes);
    xd_load_count_work(d, 2, sum_bytes(d, &g));
    for (int i = 0; i < n; i++)
        xd_load_will(d, parts[i].name, ".weight", parts[i].row0 * parts[i].in,
                     parts[i].rows * parts[i].in);
}

/* ---- band by band ------------------------------------------------------------------------- */

typedef struct banding {
    xd_decl         *d;
    const xd_weight *w;
    const gathering *g;
    const xd_fetched *f;
    float            stored[XD_MAXSEG];
    int              bad[XD_MAXSEG], status;
} banding;

/* The rows of a band that come from part k. */
typedef struct piece { int k; int64_t row, n; } piece;

static int pieces_of(const gathering *g, int64_t row, int64_t n, piece to[XD_MAXSEG])
{
    int count = 0;
    for (int k = 0; k < g->n; row -= g->parts[k++].rows) {
        int64_t from = row > 0 ? row : 0, end = row + n;
        end = end < g->parts[k].rows ? end : g->parts[k].rows;
        if (from < end)
            to[count++] = (piece){ k, from, end - from };
    }
    return count;
}

/* A view of rows of a part: in the file, or copied to `to`, with their terms. */
static xd_tensor band_rows(banding *b, const piece *p, char *to, int thread)
{
    const gathering *g = b->g;
    xd_mat_part      part = g->parts[p->k];
    part.row0 += p->row;
    gather           from = { to, g->type, &b->f[p->k], &part, g->c, b->stored[p->k] };
    xd_tensor        t = xd_view2(to, g->type, p->n, g->c->total);
    if (g->copies) {
        copy_rows(&from, 0, p->n, 0);
        xd_sum_add(b->d, from.f, part.row0, p->n, (float *)(void *)to, thread);
    } else {
        t = xd_view2((void *)(uintptr_t)row_at(&from, 0), from.f->t.type, p->n, g->c->total);
    }
    if (b->d->visit == XD_VISIT_LOAD && xd_nonfinite(t))
        __atomic_store_n(&b->bad[p->k], 1, __ATOMIC_RELAXED);
    return t;
}

/* Tells the source that the pages of these rows are no longer needed. */
static void release_pages(const banding *b, const piece *p)
{
    const xd_source *s = b->d->src;
    const gather     g = { .f = &b->f[p->k], .p = &b->g->parts[p->k] };
    if (b->d->visit == XD_VISIT_LOAD && s->past)
        s->past(s->self, g.f->name, row_at(&g, p->row),
                (size_t)(p->n * g.p->in) * xd_dtype_size(g.f->t.type));
}

static void one_band(banding *b, int64_t at, char *place, int thread)
{
    const gathering *g = b->g;
    xd_weight        w = *b->w;
    piece            p[XD_MAXSEG];
    xd_tensor        t = { 0 };
    int64_t          row = at * g->band, done = 0;
    int n = pieces_of(g, row, w.out - row < g->band ? w.out - row : g->band, p);
    for (int i = 0; i < n; done += p[i++].n)
        t = band_rows(b, &p[i], place + (size_t)(done * w.in) * xd_dtype_size(g->type), thread);
    if (g->copies)
        t = xd_view2(place, g->type, done, w.in);
    xd_status s = b->d->dev->ops->pack_rows(b->d->dev, &w, t, row);
    if (s != XD_OK)
        __atomic_store_n(&b->status, (int)s, __ATOMIC_RELAXED);
    for (int i = 0; i < n; i++)
        release_pages(b, &p[i]);
}

static void band_range(void *ctx, int64_t begin, int64_t end, int thread)
{
    banding *b = ctx;
    size_t   each = b->g->copy_bytes / (size_t)xd_par_threads();
    for (int64_t i = begin; i < end; i++)
        one_band(b, i, b->g->copies ? b->g->all + (size_t)thread * each : NULL, thread);
}

/* Finds the tensor of part i. */
static int open_part(banding *b, xd_fetched *f, int i, float gain)
{
    const xd_mat_part *p = &b->g->parts[i];
    int64_t            shape[2] = { p->out, p->in };
    if (xd_mat_repeats(b->g->parts, i)) {
        f[i] = f[i - 1];
        b->stored[i] = b->stored[i - 1];
        return 1;
    }
    if (!xd_load_find(b->d, &(xd_fetch){ .names = p->name, .suffix = ".weight", .nd = 2,
                                         .shape = shape, .gain = gain }, &f[i]))
        return 0;
    b->stored[i] = xd_load_scale(b->d, f[i].name, f[i].t.type);
    if (xd_sum_open(b->d, &f[i], b->g->c->span, b->g->c->n))
        return 1;
    xd_load_release(b->d, &f[i]);
    return 0;
}

/* The parts are used. */
static void close_parts(banding *b, xd_fetched *f, int n)
{
    for (int i = 0, bad; i < n; i++) {
        for (bad = b->bad[i]; i + 1 < n && xd_mat_repeats(b->g->parts, i + 1);)
            bad |= b->bad[++i];
        if (bad)
            xd_load_nonfinite(b->d, f[i].name);
        xd_load_release(b->d, &f[i]);
    }
}

/* All parts are open at the same time, since a band may have rows of several. */
static void load_bands(xd_decl *d, const xd_weight *w, gathering *g, float gain)
{
    xd_fetched f[XD_MAXSEG];
    banding    b = { .d = d, .w = w, .g = g, .f = f };
    int        n = 0;
    while (n < g->n && open_part(&b, f, n, gain))
        n++;
    if (n == g->n && (!g->copies || (g->all = get_copy_buffer(d, g))))
        xd_par_dynamic((w->out + g->band - 1) / g->band, band_range, &b);
    if (b.status)
        xd_fail(d->err, (xd_status)b.status, "packing weight %s%s failed: %s", d->scope,
                g->parts[0].name, xd_status_name((xd_status)b.status));
    close_parts(&b, f, n);
}

/* ---- as a whole --------------------------------------------------------------------------- */

/* The largest magnitude of n elements; NaN if one of them is not finite. */
static float max_magnitude(const char *p, xd_dtype type, int64_t n, float scale)
{
    enum { CHUNK = 256 };
    float   most = 0, x[CHUNK];
    int64_t m;
    for (int64_t i = 0; i < n; i += m) {
        m = n - i < CHUNK ? n - i : CHUNK;
        xd_convert(x, XD_F32, p + (size_t)i * xd_dtype_size(type), type, m);
        for (int64_t k = 0; k < m; k++) {
            float v = fabsf(x[k] * scale);
            if (!isfinite(v))
                return NAN;
            most = v > most ? v : most;
        }
    }
    return most;
}

typedef struct rows_of { const gather *g; xd_dtype type; float *scale; } rows_of;

static void scale_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const rows_of *r = ctx;
    (void)thread;
    for (int64_t o = begin; o < end; o++)
        r->scale[o] = xd_quant_scale(
            r->type, max_magnitude(row_at(r->g, o), r->g->f->t.type, r->g->p->in, r->g->scale));
}

/* Sets the scales that the device cannot compute: those of rows whose inputs are cut, over the
 * whole row, so that all ranks quantize it equally; and those stored in the file. */
static void set_scales(const xd_weight *w, const gathering *g, const gather *from)
{
    float *to = g->scale;
    for (const xd_mat_part *q = g->parts; q < from->p; q++)
        to += q->rows;
    rows_of r = { from, w->type, to };
    for (int64_t o = 0; o < from->p->rows && g->as_is; o++)
        to[o] = from->scale;
    if (!g->as_is)
        xd_par_for(from->p->rows, scale_rows, &r);
}

void xd_mat_pack(xd_decl *d, xd_weight *w, xd_tensor src, const char *name)
{
    const xd_ops *o = d->dev->ops;
    size_t        need = o->pack_tmp(d->dev, w, src.type);
    void         *tmp = NULL;
    if (need && !(tmp = xd_store_scratch(d->store, 0, need))) {
        xd_fail(d->err, XD_ENOMEM, "no memory to pack weight %s%s", d->scope, name);
        return;
    }
    xd_status s = o->pack(d->dev, w, src, tmp);
    if (s != XD_OK)
        xd_fail(d->err, s, "packing weight %s%s failed: %s", d->scope, name, xd_status_name(s));
}

static void add_part(xd_decl *d, xd_weight *w, gathering *g, const xd_mat_part *p,
                     const xd_fetched *f)
{
    gather from = { NULL, g->type, f, p, g->c, xd_load_scale(d, f->name, f->t.type) };
    if (g->scale)
        set_scales(w, g, &from);
    if (g->whole && (from.scale == 1.0f || g->as_is)) {
        xd_mat_pack(d, w, f->t, p->name);
        return;
    }
    if (!g->at && !(g->all = g->at = get_copy_buffer(d, g)))
        return;
    from.to = g->at;
    from.scale = g->as_is ? 1.0f : from.scale;
    xd_par_for(p->rows, copy_rows, &from);
    g->at += (size_t)(p->rows * g->c->total) * xd_dtype_size(g->type);
}

static void load_whole(xd_decl *d, xd_weight *w, gathering *g, const xd_matrix *m, float gain)
{
    const xd_mat_part *p = g->parts;
    int                stored = g->whole && m->shape;   /* in the shape of the checkpoint      */
    if (needs_scales(w, g) &&
        !(w->scale = g->scale = malloc((size_t)w->out * sizeof *g->scale + 1)))
        xd_fail(d->err, XD_ENOMEM, "no memory for the scales of weight %s%s", d->scope, p->name);
    for (int i = 0; i < g->n && d->err->code == XD_OK; i++) {
        xd_fetched f;
        int64_t    flat[2] = { p[i].out, p[i].in };
        if (!xd_load_fetch(d, &(xd_fetch){ .names = p[i].name, .suffix = ".weight",
                                           .nd = stored ? m->nd : 2,
                                           .shape = stored ? m->shape : flat, .gain = gain }, &f))
            break;
        xd_load_warn(d, f.name, f.t);
        add_part(d, w, g, &p[i], &f);
        xd_load_release(d, &f);
    }
    if (g->all && d->err->code == XD_OK)
        xd_mat_pack(d, w, stored ? xd_view(g->all, g->type, m->nd, m->shape)
                                 : xd_view2(g->all, g->type, w->out, w->in), p->name);
    free(g->scale);
    w->scale = NULL;
}

void xd_mat_load(xd_decl *d, xd_weight *w, const xd_matrix *m)
{
    float gain = 0.9f / sqrtf((float)m->parts[0].in);
    int   mine;
    w->bytes = d->dev->ops->pack_size(d->dev, w);
    if (!(w->p = xd_load_allocate(d, w->bytes, m->parts[0].name, &mine)) || !mine)
        return;
    gathering g = plan_gathering(d, w, m);
    if (g.band)
        load_bands(d, w, &g, gain);
    else
        load_whole(d, w, &g, m, gain);
}
