/* weight.c - the visits: what is done with a declared weight.
 *
 * A linear layer may be fused from several matrices of the checkpoint and cut by tensor
 * parallelism. Both are one operation: rows and columns of the parts are gathered into one local
 * matrix, which the device then packs (matrix.c). A matrix with one uncut part is packed directly
 * from the file. */
#include "exec/matrix.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/par.h"
#include "base/rng.h"

enum { SCAN_TABLE = 64 << 20 };         /* bytes; larger tables are not searched for NaN       */

static void *const nowhere = (void *)64;        /* address of counted weights, never followed   */

/* ---- names -------------------------------------------------------------------------------- */

void xd_w_enter(xd_decl *d, const char *fmt, ...)
{
    const int most = (int)(sizeof d->outer / sizeof d->outer[0]);
    size_t    at = strlen(d->scope);
    va_list   ap;
    if (d->depth < most)
        d->outer[d->depth] = at;
    d->depth++;
    va_start(ap, fmt);
    int n = vsnprintf(d->scope + at, sizeof d->scope - at, fmt, ap);
    va_end(ap);
    if (n < 0 || at + (size_t)n + 2 > sizeof d->scope || d->depth > most) {
        xd_fail(d->err, XD_EFORMAT, "the name of a weight below %s is too long", d->scope);
        d->scope[at] = 0;
        return;
    }
    strcat(d->scope, ".");
}

void xd_w_leave(xd_decl *d)
{
    const int most = (int)(sizeof d->outer / sizeof d->outer[0]);
    if (d->depth > 0 && --d->depth < most)
        d->scope[d->outer[d->depth]] = 0;
}

/* Appends a full name, and its form without the prefix that files may lack. */
static size_t add_name(const xd_decl *d, char *out, size_t size, size_t at, const char *name,
                       int n, const char *suffix)
{
    size_t len = d->prefix ? strlen(d->prefix) : 0;
    int    bare = len && strncmp(d->scope, d->prefix, len) == 0;
    for (int i = 0; i <= bare && at < size; i++) {
        int k = snprintf(out + at, size - at, "%s%s%.*s%s", at ? "|" : "",
                         d->scope + (i ? len : 0), n, name, suffix);
        at += k > 0 ? (size_t)k : 0;
    }
    return at;
}

/* "a|b" + ".weight" -> "scope.a.weight|scope.b.weight" */
static void full_names(const xd_decl *d, const char *names, const char *suffix, char *out,
                       size_t size)
{
    size_t at = 0;
    out[0] = 0;
    for (const char *p = names; p && at < size;) {
        const char *bar = strchr(p, '|');
        int         n = bar ? (int)(bar - p) : (int)strlen(p);
        at = add_name(d, out, size, at, p, n, suffix);
        p = bar ? bar + 1 : NULL;
    }
    if (at >= size)
        xd_fail(d->err, XD_EFORMAT, "the name of weight %s%s is too long", d->scope, names);
}

int xd_source_name(const xd_source *src, const char *names, char *out, size_t size)
{
    for (const char *p = names; p; p = (p = strchr(p, '|')) ? p + 1 : NULL) {
        xd_tensor t;
        snprintf(out, size, "%.*s", (int)strcspn(p, "|"), p);
        if (src->has(src->self, out, &t))
            return 1;
    }
    return 0;
}

/* The first full name that the source has; if it has none, the first of all. */
void xd_load_name(const xd_decl *d, const char *names, const char *suffix, char out[512])
{
    char all[512];
    full_names(d, names, suffix, all, sizeof all);
    if (!d->src || !xd_source_name(d->src, all, out, 512))
        snprintf(out, 512, "%.*s", (int)strcspn(all, "|"), all);
}

static void list(xd_decl *d, const char *names, const char *suffix, int nd, const int64_t *shape)
{
    if (d->nlist == d->caplist) {
        int          cap = d->caplist ? 2 * d->caplist : 256;
        xd_declared *l = realloc(d->list, (size_t)cap * sizeof *l);
        if (!l) {
            xd_fail(d->err, XD_ENOMEM, "no memory for the list of weights");
            return;
        }
        d->list = l;
        d->caplist = cap;
    }
    xd_declared *t = &d->list[d->nlist++];
    memset(t, 0, sizeof *t);
    full_names(d, names, suffix, t->name, sizeof t->name);
    t->nd = nd;
    memcpy(t->d, shape, (size_t)nd * sizeof *shape);
}

/* ---- getting elements --------------------------------------------------------------------- */

static void make_range(void *ctx, int64_t begin, int64_t end, int thread)
{
    const xd_fetched *f = ctx;
    (void)thread;
    xd_load_make(&f->made, begin, end - begin, (float *)f->t.p + begin);
}

void xd_load_make(const xd_made *m, int64_t first, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = m->mean + m->gain * xd_random_weight(m->hash, (uint64_t)(first + i));
}

int xd_load_find(xd_decl *d, const char *names, const char *suffix, int nd, const int64_t *shape,
                 float gain, float mean, xd_fetched *f)
{
    f->hold = NULL;
    f->t = xd_view(NULL, XD_F32, nd, shape);
    if (d->err->code != XD_OK)
        return 0;
    xd_load_name(d, names, suffix, f->name);
    f->made = (xd_made){ xd_hash_text(f->name), gain, mean };
    if (d->visit != XD_VISIT_LOAD)
        return 1;
    if (d->src->get(d->src->self, f->name, &f->t, d->err) != XD_OK)
        return 0;
    f->t = xd_view(f->t.p, f->t.type, nd, shape);       /* shapes are checked before the load  */
    return 1;
}

int xd_load_fetch(xd_decl *d, const char *names, const char *suffix, int nd, const int64_t *shape,
                  float gain, float mean, xd_fetched *f)
{
    if (!xd_load_find(d, names, suffix, nd, shape, gain, mean, f))
        return 0;
    if (d->visit == XD_VISIT_LOAD)
        return 1;
    if (!(f->t.p = f->hold = malloc(xd_bytes(f->t) + 1))) {
        xd_fail(d->err, XD_ENOMEM, "no memory for random weights of %s", f->name);
        return 0;
    }
    xd_par_for(xd_count(f->t), make_range, f);
    return 1;
}

void xd_load_let_go(xd_decl *d, xd_fetched *f)
{
    free(f->hold);
    if (d->visit == XD_VISIT_LOAD && d->src->done)
        d->src->done(d->src->self, f->name);
}

float xd_load_scale(xd_decl *d, const char *name, xd_dtype stored)
{
    float s = 1;
    int   eight = stored == XD_F8E4M3 || stored == XD_F8E5M2;
    if (d->visit == XD_VISIT_LOAD && eight && d->src->scale)
        d->src->scale(d->src->self, name, &s, d->err);
    return s;
}

void xd_load_convert(void *to, xd_dtype tt, const void *from, xd_dtype ft, int64_t n, float scale)
{
    enum { SOME = 512 };
    float   x[SOME];
    size_t  ts = xd_dtype_size(tt), fs = xd_dtype_size(ft);
    int64_t m;
    if (scale == 1.0f) {
        xd_convert(to, tt, from, ft, n);
        return;
    }
    for (int64_t i = 0; i < n; i += m) {
        m = n - i < SOME ? n - i : SOME;
        xd_convert(x, XD_F32, (const char *)from + (size_t)i * fs, ft, m);
        for (int64_t k = 0; k < m; k++)
            x[k] *= scale;
        xd_convert((char *)to + (size_t)i * ts, tt, x, XD_F32, m);
    }
}

/* Converts, scales and copies n elements of a file to device memory. */
static void take_some(xd_decl *d, void *to, xd_dtype tt, const void *from, xd_dtype ft, int64_t n,
                      const char *name)
{
    enum { SOME = 1 << 16 };
    size_t ts = xd_dtype_size(tt), fs = xd_dtype_size(ft);
    float  scale = xd_load_scale(d, name, ft);
    if (d->dev->host_memory) {
        xd_load_convert(to, tt, from, ft, n, scale);
        return;
    }
    void *buf = malloc((size_t)(n < SOME ? n : SOME) * ts + 1);
    if (!buf)
        xd_fail(d->err, XD_ENOMEM, "no memory for weight %s", name);
    for (int64_t i = 0, m; i < n && buf && d->err->code == XD_OK; i += m) {
        m = n - i < SOME ? n - i : SOME;
        xd_load_convert(buf, tt, (const char *)from + (size_t)i * fs, ft, m, scale);
        if (d->dev->mem->upload(d->dev, NULL, (char *)to + (size_t)i * ts, buf,
                                (size_t)m * ts) != XD_OK)
            xd_fail(d->err, XD_EDEVICE, "weight %s cannot be copied to %s", name, d->dev->name);
    }
    free(buf);
}

/* take_some for a whole tensor. */
static void take_numbers(xd_decl *d, xd_tensor to, xd_tensor t, const char *name)
{
    take_some(d, to.p, to.type, t.p, t.type, xd_count(t), name);
}

void xd_load_nonfinite(xd_decl *d, const char *name)
{
    if (d->nodd++)
        return;
    xd_log(XD_LOG_WARN, "weight %s holds NaN or infinite numbers", name);
    snprintf(d->odd, sizeof d->odd, "%s", name);
}

void xd_load_warn(xd_decl *d, const char *name, xd_tensor t)
{
    if (d->visit == XD_VISIT_LOAD && xd_nonfinite(t))
        xd_load_nonfinite(d, name);
}

void xd_load_count(xd_decl *d, size_t bytes)
{
    d->packed += bytes;
    d->room += xd_store_block_bytes(bytes);
}

void xd_load_works(xd_decl *d, int slot, size_t bytes)
{
    d->work[slot] = bytes > d->work[slot] ? bytes : d->work[slot];
}

void xd_load_will(xd_decl *d, const char *names, const char *suffix, int64_t first, int64_t n)
{
    char full[512];
    if (!d->tells || !n || !d->src || !d->src->will)
        return;
    xd_load_name(d, names, suffix, full);
    d->src->will(d->src->self, full, first, n);
}

void *xd_load_take(xd_decl *d, size_t bytes, const char *name, int *mine)
{
    void *p = d->err->code == XD_OK ? xd_store_get(d->store, bytes, mine) : NULL;
    if (p)
        xd_load_count(d, bytes);
    else
        xd_fail(d->err, XD_ENOMEM, "no memory for the %zu bytes of weight %s%s", bytes, d->scope,
                name);
    return p;
}

/* ---- vectors and tables ------------------------------------------------------------------- */

void xd_w_vec(xd_decl *d, xd_tensor *v, const char *name, int nd, const int64_t *shape)
{
    xd_fetched f;
    if (d->visit == XD_VISIT_LIST) {
        list(d, name, "", nd, shape);
        return;
    }
    *v = xd_view(nowhere, XD_F32, nd, shape);
    if (d->visit == XD_VISIT_COUNT) {
        xd_load_count(d, xd_bytes(*v));
        xd_load_will(d, name, "", 0, xd_count(*v));
        return;
    }
    size_t len = strlen(name);
    int    gain = nd == 1 && len >= 6 && strcmp(name + len - 6, "weight") == 0, mine;
    if (!(v->p = xd_load_take(d, xd_bytes(*v), name, &mine)) || !mine ||
        !xd_load_fetch(d, name, "", nd, shape, 0.1f, gain ? 1.0f : 0.0f, &f))
        return;
    xd_load_warn(d, f.name, f.t);
    take_numbers(d, *v, f.t, f.name);
    xd_load_let_go(d, &f);
}

void xd_w_affine(xd_decl *d, const char *name, xd_tensor *gain, xd_tensor *bias, int64_t n)
{
    xd_w_enter(d, "%s", name);
    xd_w_vec(d, gain, "weight", 1, &n);
    xd_w_vec(d, bias, "bias", 1, &n);
    xd_w_leave(d);
}

/* Is a table used in place? Types that no lookup kernel reads are converted instead. */
static int stays(const xd_decl *d, const char *name)
{
    char      full[512];
    xd_tensor t = { 0 };
    if (!d->src || !d->src->in_place)
        return 0;
    xd_load_name(d, name, "", full);
    return d->src->has(d->src->self, full, &t) &&
           (t.type == XD_F32 || t.type == XD_BF16 || t.type == XD_F16);
}

void xd_w_table(xd_decl *d, xd_tensor *v, const char *name, int64_t rows, int64_t cols)
{
    xd_w_table_as(d, v, name, 2, (int64_t[]){ rows, cols });
}

void xd_w_table_as(xd_decl *d, xd_tensor *v, const char *name, int nd, const int64_t *stored)
{
    int64_t    shape[2] = { 1, stored[nd - 1] };
    xd_fetched f;
    int        mine = 1, whole = d->visit == XD_VISIT_LIST || !stays(d, name);
    for (int i = 0; i < nd - 1; i++)
        shape[0] *= stored[i];
    if (d->visit == XD_VISIT_LIST) {
        list(d, name, "", nd, stored);
        return;
    }
    *v = xd_view(nowhere, d->type, 2, shape);
    if (d->visit == XD_VISIT_COUNT) {
        if (whole) {            /* otherwise single rows are read when they are looked up       */
            xd_load_count(d, xd_bytes(*v));
            xd_load_will(d, name, "", 0, xd_count(*v));
        }
        return;
    }
    if (whole && (!(v->p = xd_load_take(d, xd_bytes(*v), name, &mine)) || !mine))
        return;
    if (!xd_load_fetch(d, name, "", 2, shape, 1.0f, 0.0f, &f))
        return;
    if (xd_bytes(f.t) <= SCAN_TABLE)
        xd_load_warn(d, f.name, f.t);
    if (!whole) {
        *v = f.t;               /* rows are read from the mapping when they are looked up      */
        return;
    }
    take_numbers(d, *v, f.t, f.name);
    xd_load_let_go(d, &f);
}

/* ---- matrices ----------------------------------------------------------------------------- */

/* My share of a dimension of `n` features, cut at multiples of `unit`: a span of features. */
static xd_span share(const xd_decl *d, int cut, int64_t n, int64_t unit)
{
    if (!cut || d->tp <= 1)
        return (xd_span){ 0, n };
    xd_span u = xd_cut((xd_span){ 0, (n + unit - 1) / unit }, d->tp_at, d->tp);
    int64_t a = u.start * unit, b = (u.start + u.n) * unit;
    return (xd_span){ a, (b < n ? b : n) - a };
}

/* The biases of my rows. A layer cut by inputs has all of them (added once, after the sum). */
static void load_bias(xd_decl *d, xd_tensor *b, const xd_mat_part *parts, int n, int64_t out)
{
    *b = xd_view(nowhere, XD_F32, 1, &out);
    if (d->visit == XD_VISIT_COUNT) {
        xd_load_count(d, xd_bytes(*b));
        for (int i = 0; i < n; i++)
            xd_load_will(d, parts[i].name, ".bias", parts[i].row0, parts[i].rows);
        return;
    }
    int    mine;
    float *at = b->p = xd_load_take(d, xd_bytes(*b), parts[0].name, &mine);
    for (int i = 0; i < n && at && mine; i++) {
        xd_fetched f;
        if (!xd_load_fetch(d, parts[i].name, ".bias", 1, &parts[i].out, 0.1f, 0, &f))
            return;
        xd_load_warn(d, f.name, f.t);
        take_some(d, at, XD_F32, (char *)f.t.p + (size_t)parts[i].row0 * xd_dtype_size(f.t.type),
                  f.t.type, parts[i].rows, f.name);
        at += parts[i].rows;
        xd_load_let_go(d, &f);
    }
}

/* Quantizes the matrices that tensor parallelism cuts: they matter for memory and time. The type
 * must not depend on how they are cut. */
static xd_dtype matrix_type(const xd_decl *d, xd_split split, const xd_mat_part *parts, int n)
{
    int64_t out = 0, in = parts[0].in;
    for (int i = 0; i < n; i++)
        out += parts[i].out;
    if (!xd_is_quantized(d->blocks) || split == XD_REPLICATED || out < XD_QUANT_LEAST ||
        in < XD_QUANT_LEAST || (d->blocks == XD_I8 && in > XD_INT8_DEEPEST))
        return d->type;
    return d->blocks;
}

/* Every linear layer ends here. shape: of the tensor in the checkpoint if there is one part. */
static void matrix(xd_decl *d, xd_lin *w, xd_split split, xd_mat_part *parts, int n,
                   const xd_mat_cols *c, int nd, const int64_t *shape, int bias)
{
    if (d->visit == XD_VISIT_LIST) {
        for (int i = 0; i < n; i++) {
            int64_t flat[2] = { parts[i].out, parts[i].in };
            list(d, parts[i].name, ".weight", n == 1 ? nd : 2, n == 1 ? shape : flat);
            if (bias)
                list(d, parts[i].name, ".bias", 1, &parts[i].out);
        }
        return;
    }
    int64_t out = 0;
    for (int i = 0; i < n; i++)
        out += parts[i].rows;
    w->split = split;
    w->w = (xd_weight){ .type = matrix_type(d, split, parts, n), .out = out, .in = c->total,
                        .kernel = { 1, 1, 1 }, .stride = { 1, 1, 1 }, .groups = 1 };
    if (d->visit == XD_VISIT_COUNT) {
        w->w.p = nowhere;
        w->w.bytes = d->dev->ops->pack_size(d->dev, &w->w);
        if (out && c->total)
            xd_mat_count(d, &w->w, parts, n, c);
    } else if (out && c->total) {
        int64_t flat[2] = { parts[0].out, parts[0].in };
        xd_mat_load(d, &w->w, parts, n, c, 2, flat);
    }
    if (bias)
        load_bias(d, &w->b, parts, n, out);
}

void xd_w_linear(xd_decl *d, xd_lin *w, const char *name, xd_split split, int64_t unit,
                 int nin, const int64_t *in, int nout, const int64_t *out, int bias)
{
    xd_mat_cols c = { .n = nin };
    int64_t I = 0, O = 0, shape[2];
    if (nin > XD_MAXSEG || nout > XD_MAXSEG || (split == XD_COL && d->tp > 1 && nout > 1)) {
        xd_fail(d->err, XD_EUNSUPPORTED, "weight %s%s has too many parts", d->scope, name);
        return;
    }
    memset(w, 0, sizeof *w);
    for (int k = 0; k < nin; k++) {
        c.span[k] = share(d, split == XD_ROW, in[k], unit);
        c.total += c.span[k].n;
        c.span[k].start += I;
        I += in[k];
    }
    for (int k = 0; k < nout; k++)
        O += out[k];
    xd_span rows = share(d, split == XD_COL, O, unit);
    xd_mat_part p = { name, O, I, rows.n, rows.start };
    w->nseg = nout;
    for (int k = 0; k < nout; k++)
        w->seg[k] = nout == 1 ? rows.n : out[k];
    shape[0] = O, shape[1] = I;
    matrix(d, w, split, &p, 1, &c, 2, shape, bias);
}

void xd_w_fused(xd_decl *d, xd_lin *w, xd_split split, int64_t unit, int64_t in, int n,
                const char *const *names, const int64_t *out, int bias)
{
    xd_mat_part p[XD_MAXSEG];
    xd_mat_cols c = { .n = 1, .span = { share(d, split == XD_ROW, in, unit) } };
    if (n > XD_MAXSEG) {
        xd_fail(d->err, XD_EUNSUPPORTED, "weight %s%s has too many parts", d->scope, names[0]);
        return;
    }
    memset(w, 0, sizeof *w);
    c.total = c.span[0].n;
    w->nseg = n;
    for (int i = 0; i < n; i++) {
        xd_span rows = share(d, split == XD_COL, out[i], unit);
        p[i] = (xd_mat_part){ names[i], out[i], in, rows.n, rows.start };
        w->seg[i] = rows.n;
    }
    int64_t shape[2] = { out[0], in };
    matrix(d, w, split, p, n, &c, 2, shape, bias);
}

void xd_w_linear_as(xd_decl *d, xd_lin *w, const char *name, xd_split split, int64_t unit,
                    int nd, const int64_t *shape, int bias)
{
    int64_t in = 1;
    for (int i = 1; i < nd; i++)
        in *= shape[i];
    xd_mat_cols c = { .n = 1, .span = { share(d, split == XD_ROW, in, unit) } };
    xd_span rows = share(d, split == XD_COL, shape[0], unit);
    xd_mat_part p = { name, shape[0], in, rows.n, rows.start };
    memset(w, 0, sizeof *w);
    c.total = c.span[0].n;
    w->nseg = 1;
    w->seg[0] = rows.n;
    matrix(d, w, split, &p, 1, &c, nd, shape, bias);
}

void xd_w_conv(xd_decl *d, xd_cnv *w, const char *name, int64_t out, int64_t in, int nk,
               const int kernel[3], const int stride[3], int groups, int bias)
{
    int64_t shape[5] = { out, in / groups };
    xd_mat_part p = { name, out, in / groups, out, 0 };
    for (int i = 0; i < nk; i++) {
        shape[2 + i] = kernel[3 - nk + i];
        p.in *= kernel[3 - nk + i];
    }
    xd_mat_cols c = { .n = 1, .span = { { 0, p.in } }, .total = p.in };
    if (d->visit == XD_VISIT_LIST) {
        list(d, name, ".weight", 2 + nk, shape);
        if (bias)
            list(d, name, ".bias", 1, &out);
        return;
    }
    memset(w, 0, sizeof *w);
    w->w = (xd_weight){ .type = d->type, .out = out, .in = in / groups, .nk = nk,
                        .groups = groups };
    for (int i = 0; i < 3; i++)
        w->w.kernel[i] = i >= 3 - nk ? kernel[i] : 1, w->w.stride[i] = i >= 3 - nk ? stride[i] : 1;
    if (d->visit == XD_VISIT_COUNT) {
        w->w.p = nowhere;
        xd_mat_count(d, &w->w, &p, 1, &c);
    } else {
        xd_mat_load(d, &w->w, &p, 1, &c, 2 + nk, shape);
    }
    if (bias)
        load_bias(d, &w->b, &p, 1, out);
}

/* ---- convolutions of enlarged maps -------------------------------------------------------- */

typedef struct fold {           /* makes one of the four kernels                               */
    xd_tensor from;             /* [n,3,3]                                                     */
    float     scale;            /* of 8-bit elements                                           */
    float    *to;               /* [n,2,2]                                                     */
    int       i, j;
} fold;

/* Which of the two cells a tap reads, for the pixel at offset `place` (0 or 1) of its cell. */
static int cell_of(int tap, int place)
{
    return tap > place;
}

static void fold_range(void *ctx, int64_t begin, int64_t end, int thread)
{
    const fold *f = ctx;
    size_t      size = xd_dtype_size(f->from.type);
    (void)thread;
    for (int64_t n = begin; n < end; n++) {
        float k[9], *to = f->to + 4 * n;
        xd_load_convert(k, XD_F32, (const char *)f->from.p + (size_t)(9 * n) * size, f->from.type,
                        9, f->scale);
        memset(to, 0, 4 * sizeof *to);
        for (int y = 0; y < 3; y++)
            for (int x = 0; x < 3; x++)
                to[2 * cell_of(y, f->i) + cell_of(x, f->j)] += k[3 * y + x];
    }
}

/* Makes the four kernels from one read of the file; sums are made in f32 and rounded once. */
static void load_enlarged(xd_decl *d, xd_cnv w[4], const char *name, int64_t n,
                          const int64_t *shape)
{
    xd_fetched f;
    int        mine[4], any = 0;
    for (int q = 0; q < 4; q++) {
        w[q].w.bytes = d->dev->ops->pack_size(d->dev, &w[q].w);
        if (!(w[q].w.p = xd_load_take(d, w[q].w.bytes, name, &mine[q])))
            return;
        any |= mine[q];
    }
    if (!any ||
        !xd_load_fetch(d, name, ".weight", 4, shape, 0.9f / sqrtf(9 * (float)shape[1]), 0, &f))
        return;
    xd_load_warn(d, f.name, f.t);
    const float scale = xd_load_scale(d, f.name, f.t.type);
    float *k = xd_store_scratch(d->store, 1, (size_t)(4 * n) * sizeof *k);
    if (!k)
        xd_fail(d->err, XD_ENOMEM, "no memory to gather weight %s", f.name);
    for (int q = 0; q < 4 && k; q++) {
        fold one = { f.t, scale, k, q / 2, q % 2 };
        if (!mine[q])
            continue;
        xd_par_for(n, fold_range, &one);
        xd_mat_pack(d, &w[q].w, xd_view(k, XD_F32, 4, (int64_t[]){ shape[0], shape[1], 2, 2 }),
                    name);
    }
    xd_load_let_go(d, &f);
}

void xd_w_conv_enlarged(xd_decl *d, xd_cnv w[4], const char *name, int64_t out, int64_t in)
{
    int64_t shape[4] = { out, in, 3, 3 };
    xd_mat_part p = { name, out, in, out, 0 };
    if (d->visit == XD_VISIT_LIST) {
        list(d, name, ".weight", 4, shape);
        list(d, name, ".bias", 1, &out);
        return;
    }
    for (int q = 0; q < 4; q++) {
        w[q] = (xd_cnv){ 0 };
        w[q].w = (xd_weight){ .type = d->type, .out = out, .in = in, .nk = 2, .kernel = { 1, 2, 2 },
                              .stride = { 1, 1, 1 }, .groups = 1 };
        if (d->visit == XD_VISIT_COUNT) {
            w[q].w.p = nowhere;
            xd_load_count(d, w[q].w.bytes = d->dev->ops->pack_size(d->dev, &w[q].w));
            xd_load_works(d, 0, d->dev->ops->pack_tmp(d->dev, &w[q].w, XD_F32));
            xd_load_works(d, 1, (size_t)(out * in) * 4 * sizeof(float));
        }
    }
    if (d->visit == XD_VISIT_COUNT)
        xd_load_will(d, name, ".weight", 0, out * in * 9);
    else
        load_enlarged(d, w, name, out * in, shape);
    load_bias(d, &w[0].b, &p, 1, out);
    for (int q = 1; q < 4; q++)
        w[q].b = w[0].b;
}
