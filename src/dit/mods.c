/* mods.c - computes the modulation vectors (adaLN) of several steps together */
#include "dit/mods.h"

#include <stdlib.h>

#include "base/minmax.h"
#include "exec/op.h"

enum { MATRICES = 4 }; /* maximum number of modulation matrices per block */

void xd_mods_open(xd_mods *m, xd_exec *x, const xd_dit *d, const xd_net *n)
{
    int64_t width = 0;
    *m = (xd_mods){ 0 };
    for (int i = n->first; d->mod_width && i < n->last; i++)
        width += d->mod_width(n->cfg, i);
    if (!width || (n->stream && !x->dev->host_memory))
        return;
    m->room = (int64_t)MATRICES * (n->last - n->first);
    m->columns = calloc((size_t)m->room, sizeof *m->columns);
    if (!m->columns)
        xd_exec_fail(x, XD_ENOMEM, "no memory for a list of modulations");
    m->rows = d->active_rows ? d->active_rows : 1;
    m->in = xd_new(x, XD_MOD_STEPS * m->rows, d->active_width(n->cfg));
    m->all = xd_new_f32(x, XD_MOD_STEPS * m->rows, width);
    if (!x->dev->host_memory) {
        m->now_in = xd_new(x, m->rows, d->active_width(n->cfg));
        m->now = xd_new_f32(x, m->rows, width);
    }
}

void xd_mods_close(xd_mods *m)
{
    free(m->columns);
    *m = (xd_mods){ 0 };
}

/* Computes the columns of m->all that belong to weight matrix i, for all the steps whose inputs are
 * in m->in. */
static void compute_columns(xd_exec *x, xd_mods *m, int i)
{
    const xd_lin *w = m->columns[i].w;
    const int64_t n = m->n * m->rows;
    size_t        mark = xd_arena_mark(x->tmp);
    xd_copy_to(x, xd_cols(xd_rows(m->all, 0, n), m->columns[i].at, w->w.out),
               xd_linear_f32(x, xd_rows(m->in, 0, n), w));
    xd_arena_rewind(x->tmp, mark);
}

/* Copies the input rows and the modulations of the current step to m->now_in and m->now, which have
 * fixed addresses. */
static void hold_row(xd_exec *x, xd_mods *m)
{
    for (; m->computed < m->known; m->computed++)
        compute_columns(x, m, m->computed);
    xd_copy_to(x, m->now_in, xd_rows(m->in, m->row, m->rows));
    if (m->used)
        xd_copy_to(x, xd_cols(m->now, 0, m->used),
                   xd_cols(xd_rows(m->all, m->row, m->rows), 0, m->used));
}

void xd_mods_step(xd_mods *m, xd_exec *x, const xd_dit *d, const xd_net *n, const xd_input *in,
                  const void *kept, const double *const time[2], int step, int end)
{
    x->mods = NULL;
    if (!m->columns)
        return;
    if (!m->n || step < m->begin || step >= m->begin + m->n) {
        xd_input at = *in;
        m->begin = step;
        m->n = (int)xd_min(XD_MOD_STEPS, end - step);
        m->computed = 0;
        if (!m->now.p)
            m->used = m->known = 0;
        for (int i = 0; i < m->n; i++) {
            size_t mark = xd_arena_mark(x->tmp);
            at.t = time[0][step + i];
            at.audio_t = time[1][step + i];
            at.next = in->next ? in->next + i : NULL;
            xd_copy_to(x, xd_rows(m->in, i * m->rows, m->rows), d->active(x, n, &at, kept));
            xd_arena_rewind(x->tmp, mark);
        }
    }
    m->row = (step - m->begin) * m->rows;
    if (m->now.p)
        hold_row(x, m);
    x->mods = m;
}

/* Returns the input rows of the current step's modulations. */
static xd_tensor row_in(const xd_mods *m)
{
    return m->now_in.p ? m->now_in : xd_rows(m->in, m->row, m->rows);
}

xd_tensor xd_mods_input(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept,
                        xd_tensor (*active)(xd_exec *x, const xd_net *n, const xd_input *in,
                                            const void *kept))
{
    return x->mods ? row_in(x->mods) : active(x, n, in, kept);
}

/* Returns the first column of the weight matrix w in m->all, or -1 if the columns of w are not
 * computed yet. If w is new, its columns are computed at once or, on a device that needs fixed
 * addresses, before the next pass. */
static int64_t columns_of(xd_exec *x, xd_mods *m, const xd_lin *w)
{
    int i = 0;
    while (i < m->known && m->columns[i].w != w)
        i++;
    if (i == m->known) {
        if (m->known == m->room || m->used + w->w.out > m->all.d[1])
            return -1;
        m->columns[m->known++] = (struct xd_mod_columns){ w, m->used };
        m->used += w->w.out;
        if (!m->now.p)
            compute_columns(x, m, m->computed++);
    }
    return i < m->computed ? m->columns[i].at : -1;
}

void xd_mod_sets(xd_exec *x, xd_tensor active, const xd_lin *w, int k, xd_tensor *sets)
{
    xd_mods  *m = x->mods;
    int64_t   at = m && active.p == row_in(m).p ? columns_of(x, m, w) : -1;
    xd_tensor t = at < 0     ? xd_linear_f32(x, active, w)
                  : m->now.p ? xd_cols(m->now, at, w->w.out)
                             : xd_cols(xd_rows(m->all, m->row, m->rows), at, w->w.out);
    for (int64_t i = 0; i < active.d[0]; i++)
        sets[i] = xd_view(xd_rows(t, i, 1).p, XD_F32, 2, (int64_t[]){ k, w->w.out / k });
}

xd_tensor xd_mod_rows(xd_exec *x, xd_tensor active, const xd_lin *w, int k)
{
    xd_tensor set;
    xd_mod_sets(x, active, w, k, &set);
    return set;
}
