/* matrix.c - makes a device matrix from one or several matrices of the checkpoint.
 *
 * If the device can pack bands of rows separately, each thread takes one band at a time, checks the
 * band for NaN and packs it. A band whose rows need no change is packed directly from the file, any
 * other band from a copy of its rows. A matrix that cannot be packed in bands is packed in one
 * piece; if the matrix is fused or split, the complete matrix is copied first. */
#include "exec/gather.h"

#include <math.h>
#include <stdlib.h>

#include "base/par.h"

static int is_stored_as(const xd_decl *d, const char *name, xd_dtype type)
{
    char      full[512];
    xd_tensor t;
    if (!d->src)
        return 0;
    xd_load_name(d, name, ".weight", full);
    return d->src->has(d->src->self, full, &t) && t.type == type;
}

int xd_mat_type(const xd_decl *d, const xd_lin_kind *kind, const xd_matrix *m, xd_weight *w)
{
    const xd_mat_part *parts = m->parts;
    const int          n = m->n;
    int64_t            out = 0, in = parts[0].in;
    int                keeps = d->blocks == XD_F8E4M3 && is_stored_as(d, parts[0].name, XD_F8E4M3);
    for (int i = 0; i < n; i++)
        out += xd_mat_repeats(parts, i) ? 0 : parts[i].out;
    w->type = d->type;
    if ((!xd_is_quantized(d->blocks) && d->blocks != XD_Q4_0) ||
        (kind->split == XD_REPLICATED && !kind->few) || out < XD_QUANT_MIN || in < XD_QUANT_MIN ||
        (d->blocks == XD_I8 && in > XD_INT8_MAX_INPUTS))
        return 0;
    w->floats = kind->few && !keeps;
    if (!w->floats && xd_mat_takes_four(d, m))
        return 1;
    w->type = w->floats || d->blocks == XD_Q4_0 ? XD_I8 : d->blocks;
    return 0;
}

void xd_mat_count(xd_decl *d, xd_weight *w, const xd_matrix *m)
{
    xd_load_count(d, w->bytes = d->dev->ops->pack_size(d->dev, w));
    xd_gathering g = xd_gather_plan(d, w, m, 0);
    xd_load_count_work(d, 0, g.band ? 0 : d->dev->ops->pack_tmp(d->dev, w, g.type));
    xd_load_count_work(d, 1, g.copy_bytes);
    xd_load_count_work(d, 2, xd_gather_sum_bytes(d, &g));
    xd_gather_announce(d, m);
}

/* Packs a matrix band by band. All checkpoint matrices that are fused are open at the same time,
 * because a band may have rows of several of these matrices. */
static void load_bands(xd_decl *d, const xd_weight *w, xd_gathering *g, float gain)
{
    xd_fetched f[XD_MAXSEG];
    xd_banding b = { .d = d, .w = w, .g = g, .f = f, .scans = d->visit == XD_VISIT_LOAD };
    int        n = 0;
    while (n < g->n && xd_gather_open(d, &b, f, n, gain))
        n++;
    if (n == g->n && (!g->copies || (g->all = xd_gather_buffer(d, g))))
        xd_par_dynamic((w->out + g->band - 1) / g->band, xd_gather_bands, &b);
    if (b.status)
        xd_fail(d->err, (xd_status)b.status, "packing weight %s%s failed: %s", d->scope,
                g->parts[0].name, xd_status_name((xd_status)b.status));
    xd_gather_close(d, &b, f, n);
}

/* ---- in one piece --------------------------------------------------------------------------- */

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

static void add_part(xd_decl *d, xd_weight *w, xd_gathering *g, const xd_mat_part *p,
                     const xd_fetched *f)
{
    xd_gather from = { NULL, g->type, f, p, g->c, xd_load_scale(d, f->name, f->t.type) };
    if (g->scale)
        xd_gather_scales(w, g, &from);
    if (g->whole && !g->blocks && (from.scale == 1.0f || g->as_is || g->bytes)) {
        xd_tensor t = f->t;
        if (g->bytes)
            t.p = (char *)t.p + xd_coding_row(&f->codes, 0) * p->in;
        xd_mat_pack(d, w, t, p->name);
        return;
    }
    if (!g->at && !(g->all = g->at = xd_gather_buffer(d, g)))
        return;
    from.to = g->at;
    from.scale = g->as_is ? 1.0f : from.scale;
    xd_par_for(p->rows, xd_gather_copy, &from);
    g->at += (size_t)(p->rows * g->c->total) * xd_dtype_size(g->type);
}

static void load_whole(xd_decl *d, xd_weight *w, xd_gathering *g, const xd_matrix *m, float gain)
{
    const xd_mat_part *p = g->parts;
    /* 1: the matrix is packed from a tensor of its checkpoint shape, not [out, in] */
    int                stored = g->whole && m->shape;
    if (xd_gather_needs_scales(w, g) &&
        !(w->scale = g->scale = malloc((size_t)w->out * sizeof *g->scale + 1)))
        xd_fail(d->err, XD_ENOMEM, "no memory for the scales of weight %s%s", d->scope, p->name);
    for (int i = 0; i < g->n && d->err->code == XD_OK; i++) {
        xd_fetched f;
        int64_t    flat[2] = { p[i].out, p[i].in };
        if (!xd_load_fetch(d,
                           &(xd_fetch){ .names = p[i].name,
                                        .suffix = ".weight",
                                        .nd = stored ? m->nd : 2,
                                        .coded = 1,
                                        .rotated = g->rotated,
                                        .shape = stored ? m->shape : flat,
                                        .gain = gain },
                           &f))
            break;
        xd_load_warn(d, f.name, f.t);
        add_part(d, w, g, &p[i], &f);
        xd_load_release(d, &f);
    }
    if (g->all && d->err->code == XD_OK) {
        xd_tensor t = xd_view2(g->all, g->type, w->out, w->in);
        if (m->shape) { /* a convolution, of which this rank may have only some of the outputs */
            t = xd_view(g->all, g->type, m->nd, m->shape);
            t.d[0] = w->out;
        }
        xd_mat_pack(d, w, t, p->name);
    }
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
    xd_gathering g = xd_gather_plan(d, w, m, 0);
    if (g.band)
        load_bands(d, w, &g, gain);
    else
        load_whole(d, w, &g, m, gain);
}
