/* codes.c - reads checkpoint tensors that are stored as quantized codes, and decodes them */
#include "exec/matrix.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/four.h"
#include "base/log.h"
#include "base/minmax.h"
#include "base/par.h"

enum { CHUNK = 1024 }; /* number of elements that are decoded at a time */

int xd_is_coded(xd_dtype t)
{
    return t == XD_I8 || t == XD_U8;
}

int64_t xd_coding_row(const xd_coding *c, int64_t row)
{
    return c->first + (c->turn ? (row + c->turn) % c->rows : row);
}

/* Reads elements of a rotated row: decodes the complete rotation groups that contain the elements,
 * and undoes the rotation of each group. */
static void read_turned(const xd_coding *c, int64_t row, int64_t column, int64_t n, float *to)
{
    float x[XD_ROTATE_MAX];
    for (int64_t i = column, m; i < column + n; i += m) {
        const int64_t at = i % c->rotate;
        m = xd_min(c->rotate - at, column + n - i);
        c->read(c, row, i - at, c->rotate, x);
        xd_four_rotate(x, c->rotate, c->rotate);
        memcpy(to + (i - column), x + at, (size_t)m * sizeof *to);
    }
}

static void read_codes(const xd_coding *c, int64_t row, int64_t column, int64_t n, float *to)
{
    if (c->rotate)
        read_turned(c, row, column, n, to);
    else
        c->read(c, row, column, n, to);
}

void xd_load_decoded(void *to, xd_dtype tt, const xd_coding *c, int64_t row, int64_t column,
                     int64_t n)
{
    char *out = to;
    float x[CHUNK];
    if (tt == XD_F32) {
        read_codes(c, row, column, n, to);
        return;
    }
    for (int64_t i = 0, m; i < n; i += m) {
        m = xd_min(n - i, CHUNK - (column + i) % CHUNK);
        read_codes(c, row, column + i, m, x);
        xd_convert(out + xd_dtype_bytes(tt, i), tt, x, XD_F32, m);
    }
}

float xd_load_decoded_most(const xd_coding *c, int64_t row, int64_t n)
{
    float most = 0, x[CHUNK];
    for (int64_t i = 0, m; i < n; i += m) {
        m = xd_min(n - i, CHUNK);
        read_codes(c, row, i, m, x);
        float v = xd_load_most(xd_view(x, XD_F32, 1, &m), 0, m, 1);
        if (isnan(v))
            return NAN;
        most = v > most ? v : most;
    }
    return most;
}

int xd_load_coding(xd_decl *d, xd_fetched *f, int rotated)
{
    if (!xd_is_coded(f->t.type))
        return 1;
    if (!d->src->codes || !d->src->codes(d->src->self, f->name, &f->codes)) {
        xd_fail(d->err, XD_EUNSUPPORTED, "weight %s is stored in codes that are not read", f->name);
        return 0;
    }
    f->codes.data = f->t.p;
    f->codes.rotate = rotated ? 0 : f->codes.rotate;
    return 1;
}

static void decode_range(void *ctx, int64_t begin, int64_t end, int thread)
{
    const xd_fetched *f = ctx;
    const int64_t     columns = xd_count(f->t) / f->t.d[0];
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        xd_load_decoded((float *)f->hold + r * columns, XD_F32, &f->codes, r, 0, columns);
}

int xd_load_decode(xd_decl *d, xd_fetched *f)
{
    if (!f->codes.read || !xd_count(f->t))
        return 1;
    if (!(f->hold = malloc((size_t)xd_count(f->t) * sizeof(float)))) {
        xd_fail(d->err, XD_ENOMEM, "no memory to decode weight %s", f->name);
        return 0;
    }
    xd_par_for(f->t.d[0], decode_range, f);
    f->t = xd_view(f->hold, XD_F32, f->t.nd, f->t.d);
    f->codes.read = NULL;
    return 1;
}

/* ---- rotated rows ------------------------------------------------------------------------- */

/* Returns 1 if some of the n matrices are stored as rotated integers. Sets *group to the common
 * group size of these matrices, or to 0 if their group sizes differ or LoRA terms are added to one
 * of the matrices. */
static int are_rotated(const xd_decl *d, const xd_mat_part *parts, int n, int64_t *group)
{
    int any = 0;
    *group = 0;
    for (int i = 0; i < n && d->src && d->src->codes; i++) {
        char      full[512];
        xd_coding c;
        xd_load_name(d, parts[i].name, ".weight", full);
        int64_t mine = d->src->codes(d->src->self, full, &c) && c.type == XD_I8 ? c.rotate : 0;
        mine = xd_sum_is(d, parts[i].name, ".weight") ? 0 : mine;
        *group = !i || mine == *group ? mine : 0;
        any |= mine > 0;
    }
    return any;
}

/* Decides whether a layer whose matrix is stored as rotated integers rotates its inputs. If the
 * inputs are not rotated, the rotation of the matrix is undone, and the matrix gets the compute
 * type, because quantizing its rows a second time would lose precision. */
int64_t xd_mat_rotation(xd_decl *d, xd_lin *w, const xd_matrix *m)
{
    int64_t group;
    if (w->w.type != XD_I8 || !are_rotated(d, m->parts, m->n, &group))
        return 0;
    for (int k = 0; k < m->cols.n && group; k++)
        if (m->cols.span[k].start % group || m->cols.span[k].n % group)
            group = 0;
    w->rotate = d->dev->rotates ? group : 0;
    if (w->rotate)
        return w->rotate;
    w->w.type = d->type;
    w->w.floats = 0;
    if (d->visit == XD_VISIT_LOAD && !d->nturned++)
        xd_log(XD_LOG_INFO, "weight %s%s, and others like it, is rotated back and kept as %s: %s",
               d->scope, m->parts[0].name, xd_dtype_name(d->type),
               d->dev->rotates ? "its parts or its cut are no groups of the rotation"
                               : "this device does not rotate inputs");
    return 0;
}
