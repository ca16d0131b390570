/* gather.c - gathers the rows and columns of a local matrix from matrices of the checkpoint */
#include "exec/gather.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/par.h"

int xd_mat_repeats(const xd_mat_part *parts, int i)
{
    return i > 0 && strcmp(parts[i].name, parts[i - 1].name) == 0;
}

/* ---- gathering rows ----------------------------------------------------------------------- */

/* first_of returns the index in the checkpoint matrix of the first element of this rank's row r.
 * row_at returns the address of row r in the file. If the elements have a block type, row_at
 * returns the address of the row's first block. */
static int64_t first_of(const xd_gather *g, int64_t r)
{
    return (g->p->row0 + r) * g->p->in;
}

static const char *row_at(const xd_gather *g, int64_t r)
{
    const xd_coding *c = &g->f->codes;
    const int64_t    first = c->read ? xd_coding_row(c, g->p->row0 + r) * g->p->in : first_of(g, r);
    return (const char *)g->f->t.p + xd_dtype_bytes(g->f->t.type, first);
}

/* Makes random elements [first, first + n) of a checkpoint matrix. */
static void make_elements(const xd_gather *g, char *to, int64_t first, int64_t n)
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

void xd_gather_copy(void *ctx, int64_t begin, int64_t end, int thread)
{
    const xd_gather *g = ctx;
    size_t           ts = xd_dtype_size(g->type);
    char            *to = g->to + (size_t)(begin * g->c->total) * ts;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        for (int k = 0; k < g->c->n; k++) {
            const xd_span s = g->c->span[k];
            if (g->type == XD_I8)
                memcpy(to, row_at(g, r) + s.start, (size_t)s.n);
            else if (g->f->codes.read)
                xd_load_decoded(to, g->type, &g->f->codes, g->p->row0 + r, s.start, s.n);
            else if (g->f->t.p)
                xd_load_elements(to, g->type, g->f->t, first_of(g, r) + s.start, s.n, g->scale);
            else
                make_elements(g, to, first_of(g, r) + s.start, s.n);
            to += (size_t)s.n * ts;
        }
}

/* Returns the stored type of n checkpoint matrices if it is the same for all. Returns F32 if the
 * types differ, and also if a matrix is a sum with LoRA terms, is random, or is stored in a block
 * type or as codes. Sets *blocks to 1 if a matrix is stored in a block type or as codes. */
static xd_dtype stored_type(const xd_decl *d, const xd_mat_part *parts, int n, int *blocks)
{
    xd_dtype type = XD_F32;
    int      same = 1;
    *blocks = 0;
    for (int i = 0; i < n && d->src; i++) {
        char      full[512];
        xd_tensor t;
        xd_load_name(d, parts[i].name, ".weight", full);
        if (!d->src->has(d->src->self, full, &t))
            return XD_F32;
        *blocks |= xd_dtype_block(t.type) > 1 || xd_is_coded(t.type);
        same &= t.type != XD_F64 && (!i || t.type == type) &&
                !xd_sum_is(d, parts[i].name, ".weight");
        type = t.type;
    }
    return same && !*blocks ? type : XD_F32;
}

/* ---- how a matrix is gathered ------------------------------------------------------------- */

int xd_gather_needs_scales(const xd_weight *w, const xd_gathering *g)
{
    return g->as_is || g->known || (xd_is_quantized(w->type) && g->c->total != g->parts[0].in);
}

/* Returns 1 if each band of rows is contained in a single checkpoint matrix, and the rows of the
 * local matrix are complete rows of the file. Only the last band may be smaller. */
static int bands_are_in_place(const xd_gathering *g)
{
    int64_t row = 0;
    for (int i = 0; i < g->n; row += g->parts[i++].rows)
        if (row % g->band)
            return 0;
    return g->c->total == g->parts[0].in;
}

/* Returns 1 if the codes of a checkpoint matrix are used in the local matrix unchanged, with their
 * scales. */
static int keeps_integers(const xd_decl *d, const xd_weight *w, const xd_matrix *m)
{
    const xd_mat_part *parts = m->parts;
    int                keeps = 0;
    for (int i = 0; i < m->n && xd_is_quantized(w->type) && d->src && d->src->codes; i++) {
        char      full[512];
        xd_coding c;
        xd_load_name(d, parts[i].name, ".weight", full);
        if (xd_sum_is(d, parts[i].name, ".weight"))
            return 0;
        keeps |= d->src->codes(d->src->self, full, &c) && c.type == w->type &&
                 c.rotate == m->rotate;
    }
    return keeps;
}

int xd_gather_integers(const xd_decl *d, const xd_weight *w, const xd_matrix *m, int *turned)
{
    *turned = 0;
    if (w->type != XD_I8 || !d->src || !d->src->codes || !d->dev->host_memory)
        return 0;
    for (int i = 0; i < m->n; i++) {
        char      full[512];
        xd_tensor t;
        xd_coding c;
        xd_load_name(d, m->parts[i].name, ".weight", full);
        if (xd_sum_is(d, m->parts[i].name, ".weight") || !d->src->has(d->src->self, full, &t) ||
            t.type != XD_I8 || !d->src->codes(d->src->self, full, &c) || c.type != XD_I8 ||
            c.rotate != m->rotate)
            return 0;
        *turned |= c.turn != 0;
    }
    return 1;
}

xd_gathering xd_gather_plan(const xd_decl *d, const xd_weight *w, const xd_matrix *m, int stays)
{
    const xd_mat_part *parts = m->parts;
    const xd_mat_cols *c = &m->cols;
    int                n = m->n, turned;
    xd_gathering       g = { .parts = parts, .c = c, .n = n };
    g.whole = n == 1 && parts[0].rows == parts[0].out && c->total == parts[0].in;
    g.type = stored_type(d, parts, n, &g.blocks);
    g.as_is = w->type == XD_F8E4M3 && g.type == XD_F8E4M3;
    g.known = keeps_integers(d, w, m);
    if ((g.bytes = xd_gather_integers(d, w, m, &turned))) {
        g.type = XD_I8;
        g.blocks = turned;
    }
    g.rotated = m->rotate != 0;
    g.band = xd_gather_needs_scales(w, &g) && !stays ? 0 : d->dev->ops->pack_band(d->dev, w);
    int eight = xd_dtype_size(g.type) == 1 && !g.as_is && !g.bytes;
    int made = d->visit == XD_VISIT_RANDOM;
    for (int i = 0; i < n; i++)
        g.sums |= xd_sum_is(d, parts[i].name, ".weight");
    g.copies = eight || g.blocks || (g.band ? g.sums || made || !bands_are_in_place(&g) : !g.whole);
    if (eight || (g.type == XD_F32 && g.copies && !xd_is_quantized(w->type) &&
                  !(g.sums && (g.band || stays)) && !(g.blocks && g.band && stays)))
        g.type = xd_is_quantized(w->type) ? XD_F32 : d->type;
    int64_t rows = g.band ? g.band * xd_par_threads() : w->out;
    g.copy_bytes = g.copies ? (size_t)(rows * c->total) * xd_dtype_size(g.type) : 0;
    return g;
}

void *xd_gather_buffer(xd_decl *d, const xd_gathering *g)
{
    void *p = xd_store_scratch(d->store, 1, g->copy_bytes);
    if (!p)
        xd_fail(d->err, XD_ENOMEM, "no memory to gather weight %s%s", d->scope, g->parts[0].name);
    return p;
}

size_t xd_gather_sum_bytes(const xd_decl *d, const xd_gathering *g)
{
    size_t sum = 0;
    for (int i = 0; i < g->n && g->sums; i++)
        if (!xd_mat_repeats(g->parts, i))
            sum += xd_sum_bytes(d, g->parts[i].name, ".weight", g->parts[i].out * g->parts[i].in,
                                !g->band);
    return sum;
}

void xd_gather_announce(xd_decl *d, const xd_matrix *m)
{
    for (int i = 0; i < m->n; i++)
        xd_load_will(d, m->parts[i].name, ".weight", m->parts[i].row0 * m->parts[i].in,
                     m->parts[i].rows * m->parts[i].in);
}

/* ---- scales --------------------------------------------------------------------------------- */

typedef struct rows_of {
    const xd_gather *g;
    xd_dtype         type;
    float           *scale;
} rows_of;

static void scale_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const rows_of *r = ctx;
    (void)thread;
    const xd_coding *c = &r->g->f->codes;
    for (int64_t o = begin; o < end; o++) {
        const int64_t row = r->g->p->row0 + o;
        float most = c->read
                         ? xd_load_decoded_most(c, row, r->g->p->in)
                         : xd_load_most(r->g->f->t, first_of(r->g, o), r->g->p->in, r->g->scale);
        r->scale[o] = xd_quant_scale(r->type, most);
    }
}

void xd_gather_scales(const xd_weight *w, const xd_gathering *g, const xd_gather *from)
{
    float *to = g->scale;
    for (const xd_mat_part *q = g->parts; q < from->p; q++)
        to += q->rows;
    rows_of          r = { from, w->type, to };
    const xd_coding *c = g->known && from->f->codes.type == w->type && !from->f->codes.rotate
                             ? &from->f->codes
                             : NULL;
    for (int64_t o = 0; o < from->p->rows && c; o++)
        to[o] = c->scale(c, from->p->row0 + o);
    for (int64_t o = 0; o < from->p->rows && g->as_is; o++)
        to[o] = from->scale;
    if (!g->as_is && !c)
        xd_par_for(from->p->rows, scale_rows, &r);
}

/* ---- gathering band by band --------------------------------------------------------------- */

int xd_gather_pieces(const xd_gathering *g, int64_t row, int64_t n, xd_gather_piece to[XD_MAXSEG])
{
    int count = 0;
    for (int k = 0; k < g->n; row -= g->parts[k++].rows) {
        int64_t from = row > 0 ? row : 0, end = row + n;
        end = end < g->parts[k].rows ? end : g->parts[k].rows;
        if (from < end)
            to[count++] = (xd_gather_piece){ k, from, end - from };
    }
    return count;
}

xd_tensor xd_gather_rows(xd_banding *b, const xd_gather_piece *p, char *to, int thread)
{
    const xd_gathering *g = b->g;
    xd_mat_part         part = g->parts[p->k];
    part.row0 += p->row;
    xd_gather from = { to, g->type, &b->f[p->k], &part, g->c, b->stored[p->k] };
    xd_tensor t = xd_view2(to, g->type, p->n, g->c->total);
    if (g->copies) {
        xd_gather_copy(&from, 0, p->n, 0);
        xd_sum_add(b->d, from.f, part.row0, p->n, (float *)(void *)to, thread);
    } else {
        t = xd_view2((void *)(uintptr_t)row_at(&from, 0), from.f->t.type, p->n, g->c->total);
    }
    if (b->scans && !g->bytes && xd_nonfinite(t))
        __atomic_store_n(&b->bad[p->k], 1, __ATOMIC_RELAXED);
    return t;
}

void xd_gather_release(const xd_banding *b, const xd_gather_piece *p)
{
    const xd_source *s = b->d->src;
    if (b->f[p->k].codes.read && !b->g->bytes)
        return;
    const xd_gather g = { .f = &b->f[p->k], .p = &b->g->parts[p->k] };
    if (b->d->visit == XD_VISIT_LOAD && s->past && !b->keeps)
        s->past(s->self, g.f->name, row_at(&g, p->row),
                xd_dtype_bytes(g.f->t.type, p->n * g.p->in));
}

static void one_band(xd_banding *b, int64_t at, char *place, int thread)
{
    const xd_gathering *g = b->g;
    xd_weight           w = *b->w;
    xd_gather_piece     p[XD_MAXSEG];
    xd_tensor           t = { 0 };
    int64_t             row = at * g->band, done = 0;
    int n = xd_gather_pieces(g, b->row0 + row, w.out - row < g->band ? w.out - row : g->band, p);
    for (int i = 0; i < n; done += p[i++].n) {
        size_t at_byte = (size_t)(done * w.in) * xd_dtype_size(g->type);
        t = xd_gather_rows(b, &p[i], place ? place + at_byte : NULL, thread);
    }
    if (g->copies)
        t = xd_view2(place, g->type, done, w.in);
    xd_status s = b->d->dev->ops->pack_rows(b->d->dev, &w, t, row);
    if (s != XD_OK)
        __atomic_store_n(&b->status, (int)s, __ATOMIC_RELAXED);
    for (int i = 0; i < n; i++)
        xd_gather_release(b, &p[i]);
}

void xd_gather_bands(void *ctx, int64_t begin, int64_t end, int thread)
{
    xd_banding *b = ctx;
    size_t      each = b->g->copy_bytes / (size_t)xd_par_threads();
    for (int64_t i = begin; i < end; i++)
        one_band(b, i, b->g->copies ? b->g->all + (size_t)thread * each : NULL, thread);
}

int xd_gather_open(xd_decl *d, xd_banding *b, xd_fetched *f, int i, float gain)
{
    const xd_mat_part *p = &b->g->parts[i];
    int64_t            shape[2] = { p->out, p->in };
    if (xd_mat_repeats(b->g->parts, i)) {
        f[i] = f[i - 1];
        b->stored[i] = b->stored[i - 1];
        return 1;
    }
    if (!xd_load_find(d,
                      &(xd_fetch){ .names = p->name,
                                   .suffix = ".weight",
                                   .nd = 2,
                                   .shape = shape,
                                   .gain = gain,
                                   .rotated = b->g->rotated },
                      &f[i]))
        return 0;
    b->stored[i] = xd_load_scale(d, f[i].name, f[i].t.type);
    if (xd_sum_open(d, &f[i], b->g->c->span, b->g->c->n))
        return 1;
    xd_load_release(d, &f[i]);
    return 0;
}

void xd_gather_close(xd_decl *d, xd_banding *b, xd_fetched *f, int n)
{
    for (int i = 0, bad; i < n; i++) {
        for (bad = b->bad[i]; i + 1 < n && xd_mat_repeats(b->g->parts, i + 1);)
            bad |= b->bad[++i];
        if (bad)
            xd_load_nonfinite(d, f[i].name);
        xd_load_release(d, &f[i]);
    }
}
