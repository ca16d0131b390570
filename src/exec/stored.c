/* stored.c - computes linear layers whose matrix stays as stored in its file, or is in memory as
 * groups of four-bit integers. Rows of the stored or quantized matrix are gathered and packed for
 * each GEMM. */
#include "exec/stored.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/four.h"
#include "base/log.h"
#include "base/minmax.h"
#include "base/par.h"
#include "exec/gather.h"
#include "exec/reader.h"

int xd_mat_stays(const xd_decl *d, const xd_weight *w, const xd_matrix *m)
{
    int sized = d->visit == XD_VISIT_COUNT && d->stays == XD_STAYS_ALL, turned;
    if (d->stays == XD_STAYS_NONE || (!d->src && !sized) || d->visit == XD_VISIT_RANDOM ||
        !d->dev->host_memory)
        return 0; /* without a weight source, only sizes can be counted */
    if (xd_gather_integers(d, w, m, &turned))
        return 1;
    for (int i = 0; i < m->n && d->stays == XD_STAYS_BLOCKS; i++) {
        char      full[512];
        xd_tensor t;
        xd_load_name(d, m->parts[i].name, ".weight", full);
        if (d->src->has(d->src->self, full, &t) && xd_dtype_block(t.type) > 1)
            return 1;
    }
    return d->stays == XD_STAYS_ALL;
}

/* Max size in bytes of a group of rows that are packed together. A packed group should stay in the
 * cache until the GEMM has used it. For matrices of integers, groups of rows are larger, because a
 * GEMM quantizes its inputs once for each group, and because integers are packed fast. */
enum { GROUP_BYTES = 8 << 20, GROUP_INTEGERS = 64 << 20 };

struct xd_stored {
    xd_decl      d; /* copy of the declarer with which the matrix was loaded */
    xd_err       err;
    xd_gathering g;
    xd_mat_part  parts[XD_MAXSEG];
    xd_mat_cols  cols;
    xd_banding   b;
    xd_fetched   f[XD_MAXSEG];
    int          n;       /* number of checkpoint tensors in `f` that are open */
    int64_t      scanned; /* number of rows that have been checked for NaN */
};

/* Returns the number of rows that are packed together, which is a number of complete bands. All
 * groups have about the same number of rows. */
static int64_t group_rows(const xd_weight *w, const xd_gathering *g)
{
    int64_t unit = g->band ? g->band : XD_QUANT_MIN;
    int64_t most = g->bytes ? GROUP_INTEGERS : GROUP_BYTES;
    most /= w->in * (int64_t)xd_dtype_size(w->type);
    int64_t least = unit * xd_par_threads();
    most = most < least ? least : most;
    int64_t groups = (w->out + most - 1) / most, rows = (w->out + groups - 1) / groups;
    rows = (rows + unit - 1) / unit * unit;
    return rows < w->out ? rows : w->out;
}

/* Returns how many bytes of the files must be read for this rank's rows. */
static size_t mapped_bytes(const xd_decl *d, const xd_matrix *m)
{
    size_t sum = 0;
    for (int i = 0; i < m->n; i++) {
        char      full[512];
        xd_tensor t;
        xd_load_name(d, m->parts[i].name, ".weight", full);
        if (d->src && d->src->has(d->src->self, full, &t))
            sum += xd_dtype_bytes(t.type, m->parts[i].rows * m->parts[i].in);
    }
    return sum;
}

/* Sets the number of rows in a group, which is packed together, and the size of the buffer for
 * copied rows. The buffer has space for one band of rows per thread or, if the device cannot pack
 * bands, for one group. */
static void plan_groups(xd_lin *l, xd_gathering *g)
{
    l->group = group_rows(&l->w, g);
    int64_t rows = g->band ? g->band * xd_par_threads() : l->group;
    l->copy = g->copies || !g->band ? (size_t)(rows * l->w.in) * xd_dtype_size(g->type) : 0;
    g->copy_bytes = l->copy;
}

static xd_gathering plan_stored(const xd_decl *d, xd_lin *l, const xd_matrix *m)
{
    xd_gathering g = xd_gather_plan(d, &l->w, m, 1);
    plan_groups(l, &g);
    return g;
}

void xd_mat_count_stored(xd_decl *d, xd_lin *l, const xd_matrix *m)
{
    xd_gathering g = plan_stored(d, l, m);
    xd_load_count(d, xd_gather_sum_bytes(d, &g) +
                         (xd_gather_needs_scales(&l->w, &g) ? (size_t)l->w.out * 4 : 0));
    if (d->stays != XD_STAYS_ALL)
        d->mapped += mapped_bytes(d, m);
    xd_gather_announce(d, m);
}

static void close_stored(void *object)
{
    xd_stored *s = object;
    xd_gather_close(&s->d, &s->b, s->f, s->n);
    for (int i = 0; i < s->g.n; i++)
        free((char *)(uintptr_t)s->parts[i].name);
    free(s->g.scale);
    free(s);
}

/* Computes or reads the scales of all rows, if the device cannot compute them from a group of rows.
 * Returns 0 if there is no memory. */
static int stored_scales(xd_stored *s, const xd_weight *w)
{
    if (!xd_gather_needs_scales(w, &s->g))
        return 1;
    if (!(s->g.scale = malloc((size_t)w->out * sizeof *s->g.scale)))
        return 0;
    for (int i = 0; i < s->g.n; i++) {
        xd_gather from = { NULL, s->g.type, &s->f[i], &s->parts[i], &s->cols, s->b.stored[i] };
        xd_gather_scales(w, &s->g, &from);
        if (s->g.as_is)
            s->b.stored[i] = 1.0f;
    }
    return 1;
}

static xd_stored *new_stored(const xd_decl *d, const xd_matrix *m)
{
    xd_stored *s = calloc(1, sizeof *s);
    int        fine = s != NULL;
    if (!s)
        return NULL;
    s->d = *d;
    s->d.err = &s->err;
    s->cols = m->cols;
    for (int i = 0; i < m->n; i++) {
        s->parts[i] = m->parts[i];
        fine &= (s->parts[i].name = strdup(m->parts[i].name)) != NULL;
    }
    s->g.n = m->n;
    if (!fine) {
        close_stored(s);
        return NULL;
    }
    return s;
}

void xd_mat_load_stored(xd_decl *d, xd_lin *l, const xd_matrix *m)
{
    xd_stored *s = new_stored(d, m);
    if (!s) {
        xd_fail(d->err, XD_ENOMEM, "no memory for weight %s%s", d->scope, m->parts[0].name);
        return;
    }
    xd_matrix own = *m;
    own.parts = s->parts;
    own.cols = s->cols;
    s->g = plan_stored(d, l, &own);
    s->g.c = &s->cols;
    s->b = (xd_banding){ .d = &s->d, .g = &s->g, .f = s->f, .keeps = d->stays != XD_STAYS_ALL };
    while (s->n < s->g.n && xd_gather_open(d, &s->b, s->f, s->n, 0))
        s->n++;
    int fine = s->n == s->g.n && stored_scales(s, &l->w);
    if (!fine)
        close_stored(s);
    else if ((fine = xd_store_owns(d->store, s, close_stored)))
        l->stored = s;
    if (!fine)
        xd_fail(d->err, XD_ENOMEM, "no memory for weight %s%s", d->scope, m->parts[0].name);
}

/* Packs a group of rows for a device that cannot pack bands: gathers all rows of the group
 * first. */
static xd_status pack_group(xd_stored *s, xd_weight *w, int64_t row, char *copy, void *tmp)
{
    xd_gather_piece p[XD_MAXSEG];
    int             n = xd_gather_pieces(&s->g, row, w->out, p);
    size_t          size = xd_dtype_size(s->g.type);
    int64_t         done = 0;
    for (int i = 0; i < n; done += p[i++].n) {
        xd_mat_part part = s->parts[p[i].k];
        part.row0 += p[i].row;
        xd_gather from = { copy + (size_t)(done * w->in) * size,
                           s->g.type,
                           &s->f[p[i].k],
                           &part,
                           &s->cols,
                           s->b.stored[p[i].k] };
        xd_par_for(p[i].n, xd_gather_copy, &from);
        xd_sum_add(&s->d, from.f, part.row0, p[i].n, (float *)(void *)from.to, 0);
        xd_gather_release(&s->b, &p[i]);
    }
    return s->d.dev->ops->pack(s->d.dev, w, xd_view2(copy, s->g.type, w->out, w->in), tmp);
}

xd_status xd_stored_pack(xd_stored *s, xd_weight *w, int64_t row, void *copy, void *tmp)
{
    xd_banding b = s->b;
    w->scale = s->g.scale ? s->g.scale + row : NULL;
    if (!s->g.band)
        return pack_group(s, w, row, copy, tmp);
    xd_gathering g = s->g;
    g.all = copy;
    b.w = w;
    b.g = &g;
    b.row0 = row;
    b.scans = row >= s->scanned;
    xd_par_dynamic((w->out + g.band - 1) / g.band, xd_gather_bands, &b);
    for (int i = 0; i < g.n; i++)
        if (b.bad[i])
            xd_load_nonfinite(&s->d, s->f[i].name);
    s->scanned = b.scans ? row + w->out : s->scanned;
    w->scale = NULL;
    return (xd_status)b.status;
}

size_t xd_stored_tmp(xd_dev *dev, const xd_weight *w)
{
    return dev->ops->pack_band(dev, w) ? 0 : dev->ops->pack_tmp(dev, w, XD_F32);
}

/* ---- groups of four-bit integers -------------------------------------------------- */

enum { ROTATE_MOST = 256 }; /* max number of columns that are rotated together */

/* Extends this rank's columns to complete quantization groups. Sets *inside to the spans of this
 * rank's columns, as indices among the extended columns. */
static xd_mat_cols whole_groups(const xd_mat_cols *c, int64_t rotate, xd_mat_cols *inside)
{
    const int64_t unit = xd_max(rotate, XD_FOUR_GROUP);
    xd_mat_cols   all = { .n = c->n };
    *inside = (xd_mat_cols){ .n = c->n, .total = c->total };
    for (int i = 0; i < c->n; i++) {
        const xd_span s = c->span[i];
        const int64_t first = s.start / unit * unit;
        const int64_t end = s.n ? (s.start + s.n + unit - 1) / unit * unit : first;
        all.span[i] = (xd_span){ first, end - first };
        inside->span[i] = (xd_span){ all.total + s.start - first, s.n };
        all.total += end - first;
    }
    return all;
}

int xd_mat_takes_four(const xd_decl *d, const xd_matrix *m)
{
    return d->blocks == XD_Q4_0 && (!d->dev || d->dev->host_memory) &&
           m->parts[0].in % XD_FOUR_GROUP == 0;
}

int64_t xd_four_rotation(int64_t in)
{
    int64_t group = ROTATE_MOST;
    while (in % group)
        group /= 4;
    return group > 1 ? group : 0;
}

/* Returns the group size in which rows are rotated before they are quantized. Returns 0 if rows are
 * not rotated. */
static int64_t held_rotation(const xd_decl *d, const xd_matrix *m)
{
    return d->dev->rotates ? xd_four_rotation(m->parts[0].in) : 0;
}

int64_t xd_mat_four_rotation(const xd_decl *d, const xd_matrix *m)
{
    const int64_t group = held_rotation(d, m);
    for (int k = 0; k < m->cols.n && group; k++)
        if (m->cols.span[k].start % group || m->cols.span[k].n % group) {
            if (d->visit == XD_VISIT_LOAD)
                xd_log(XD_LOG_DEBUG,
                       "weight %s%s is rotated back for each product: columns %lld "
                       "to %lld are no groups of %lld",
                       d->scope, m->parts[0].name, (long long)m->cols.span[k].start,
                       (long long)(m->cols.span[k].start + m->cols.span[k].n - 1),
                       (long long)group);
            return 0;
        }
    return group;
}

int xd_mat_is_four(const xd_decl *d, const xd_matrix *m, int64_t *rotate)
{
    *rotate = 0;
    for (int i = 0; i < m->n; i++) {
        char      full[512];
        xd_coding c;
        if (!d->src || !d->src->codes || d->visit == XD_VISIT_RANDOM || !d->dev->host_memory)
            return 0;
        xd_load_name(d, m->parts[i].name, ".weight", full);
        if (xd_sum_is(d, m->parts[i].name, ".weight") || !d->src->codes(d->src->self, full, &c) ||
            c.type != XD_Q4_0)
            return 0;
        *rotate = !i || c.rotate == *rotate ? c.rotate : 0;
    }
    for (int k = 0; k < m->cols.n && *rotate; k++)
        if (m->cols.span[k].start % *rotate || m->cols.span[k].n % *rotate)
            *rotate = 0;
    *rotate = d->dev->rotates ? *rotate : 0;
    return m->n > 0;
}

/* Plans how rows are gathered before they are quantized. Each thread gathers one band of rows at a
 * time, as f32, with the columns of complete quantization groups. */
static xd_gathering plan_fours(const xd_decl *d, const xd_lin *l, const xd_matrix *all)
{
    xd_gathering g = xd_gather_plan(d, &l->w, all, 1);
    g.band = XD_QUANT_MIN;
    g.rotated = 0;
    g.type = XD_F32;
    g.copies = 1;
    g.copy_bytes = (size_t)(g.band * xd_par_threads() * all->cols.total) * sizeof(float);
    return g;
}

/* Plans how the rows of the quantized matrix are packed for GEMMs. */
static xd_gathering plan_held(const xd_decl *d, xd_lin *l, const xd_matrix *held)
{
    xd_gathering g = { .parts = held->parts,
                       .c = &held->cols,
                       .n = held->n,
                       .blocks = 1,
                       .copies = 1,
                       .type = XD_F32,
                       .band = d->dev->ops->pack_band(d->dev, &l->w) };
    plan_groups(l, &g);
    return g;
}

static size_t four_bytes(const xd_lin *l, const xd_mat_cols *all)
{
    return xd_dtype_bytes(XD_Q4_0, l->w.out * all->total);
}

typedef struct fours { /* the rows to quantize, and where to write them */
    xd_banding   b;
    xd_gathering g;
    int64_t      out, rotate;
    char        *to;
} fours;

/* Quantizes bands of rows: one thread gathers, rotates and rounds the rows of a band. */
static void four_bands(void *ctx, int64_t begin, int64_t end, int thread)
{
    fours        *q = ctx;
    const size_t  each = q->g.copy_bytes / (size_t)xd_par_threads();
    const int64_t cols = q->g.c->total;
    char         *copy = q->g.all + (size_t)thread * each;
    float        *x = (float *)(void *)copy;
    for (int64_t i = begin; i < end; i++) {
        xd_gather_piece p[XD_MAXSEG];
        const int64_t   row = i * q->g.band, left = q->out - row;
        const int       n = xd_gather_pieces(&q->g, row, left < q->g.band ? left : q->g.band, p);
        int64_t         done = 0;
        for (int k = 0; k < n; done += p[k++].n)
            xd_gather_rows(&q->b, &p[k], copy + (size_t)(done * cols) * sizeof *x, thread);
        if (q->rotate)
            xd_four_rotate(x, done * cols, q->rotate);
        xd_four_quantize(q->to + xd_dtype_bytes(XD_Q4_0, row * cols), x, done * cols);
        for (int k = 0; k < n; k++)
            xd_gather_release(&q->b, &p[k]);
    }
}

/* Quantizes this rank's rows and writes the quantized matrix to `to`. */
static void load_fours(xd_decl *d, const xd_lin *l, const xd_matrix *all, char *to)
{
    const float gain = 0.9f / sqrtf((float)all->parts[0].in);
    xd_fetched  f[XD_MAXSEG];
    fours       q = {
        .g = plan_fours(d, l, all), .out = l->w.out, .rotate = held_rotation(d, all), .to = to
    };
    int n = 0;
    q.b = (xd_banding){ .d = d, .g = &q.g, .f = f, .scans = d->visit == XD_VISIT_LOAD };
    while (n < q.g.n && xd_gather_open(d, &q.b, f, n, gain))
        n++;
    if (n == q.g.n && (q.g.all = xd_gather_buffer(d, &q.g)))
        xd_par_dynamic((l->w.out + q.g.band - 1) / q.g.band, four_bands, &q);
    xd_gather_close(d, &q.b, f, n);
}

static void read_held(const xd_coding *c, int64_t row, int64_t column, int64_t n, float *to)
{
    const xd_stored *s = c->self;
    xd_convert_at(to, XD_F32, c->data, XD_Q4_0, row * s->parts[0].in + column, n);
}

/* Makes the source from which GEMMs read rows of the quantized matrix. Rows are not checked for NaN
 * again, because they were checked before quantization. */
static xd_stored *stored_fours(const xd_decl *d, xd_lin *l, const xd_matrix *m,
                               const xd_mat_cols *inside, xd_tensor at)
{
    const char       *name = m->parts[0].name;
    const xd_mat_part part = { name, at.d[0], at.d[1], at.d[0], 0 };
    xd_matrix         held = { .parts = &part, .n = 1, .cols = *inside };
    xd_stored        *s = new_stored(d, &held);
    if (!s)
        return NULL;
    held.parts = s->parts;
    s->g = plan_held(d, l, &held);
    s->g.c = &s->cols;
    s->f[0].t = at;
    if (!l->rotate && held_rotation(d, m))
        s->f[0].codes = (xd_coding){ .read = read_held,
                                     .rotate = held_rotation(d, m),
                                     .self = s,
                                     .data = at.p,
                                     .rows = l->w.out,
                                     .type = XD_Q4_0 };
    s->b = (xd_banding){ .d = &s->d, .g = &s->g, .f = s->f, .keeps = 1, .stored = { 1 } };
    s->scanned = l->w.out;
    return s;
}

void xd_mat_count_four(xd_decl *d, xd_lin *l, const xd_matrix *m)
{
    xd_mat_cols inside;
    xd_matrix   all = *m;
    all.cols = whole_groups(&m->cols, held_rotation(d, m), &inside);
    const xd_gathering g = plan_fours(d, l, &all);
    const xd_mat_part  part = { m->parts[0].name, l->w.out, all.cols.total, l->w.out, 0 };
    plan_held(d, l, &(xd_matrix){ .parts = &part, .n = 1, .cols = inside });
    xd_load_count(d, four_bytes(l, &all.cols));
    xd_load_count_work(d, 1, g.copy_bytes);
    xd_load_count_work(d, 2, xd_gather_sum_bytes(d, &g));
    xd_gather_announce(d, m);
}

void xd_mat_load_four(xd_decl *d, xd_lin *l, const xd_matrix *m)
{
    xd_mat_cols inside;
    xd_matrix   all = *m;
    int         mine;
    all.cols = whole_groups(&m->cols, held_rotation(d, m), &inside);
    char *to = xd_load_allocate(d, four_bytes(l, &all.cols), m->parts[0].name, &mine);
    if (!to)
        return;
    xd_stored *s = stored_fours(d, l, m, &inside, xd_view2(to, XD_Q4_0, l->w.out, all.cols.total));
    if (s && xd_store_owns(d->store, s, close_stored))
        l->stored = s;
    else
        xd_fail(d->err, XD_ENOMEM, "no memory for weight %s%s", d->scope, m->parts[0].name);
    if (l->stored && mine)
        load_fours(d, l, &all, to);
}
