/* weight.c - lists, counts, loads or fills with random values each declared weight, depending on
 * the kind of visit.
 *
 * A linear layer may be fused from several matrices of the checkpoint and split by tensor
 * parallelism. Fusing and splitting are one operation: rows and columns of the checkpoint matrices
 * are gathered into one local matrix, which the device then packs (matrix.c). A local matrix that
 * is one complete matrix of the checkpoint is packed directly from the file. */
#include "exec/weight_norm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/minmax.h"
#include "base/par.h"
#include "base/rng.h"
#include "exec/matrix.h"

enum { SCAN_TABLE = 64 << 20 }; /* embedding tables of more bytes are not checked for NaN */

/* the address of weights that are only counted and never dereferenced */
static void *const nowhere = (void *)64;

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

typedef struct name_list { /* a list of names separated by "|" */
    char  *text;
    size_t size, len;
} name_list;

/* Appends a name with a prefix to the list. Does nothing if the prefix equals d->lead, because
 * add_name has already appended that name. */
static void append_name(const xd_decl *d, name_list *l, const char *prefix, const char *scope,
                        const char *name)
{
    if (l->len >= l->size || (d->lead && prefix != d->lead && strcmp(prefix, d->lead) == 0))
        return;
    int k = snprintf(l->text + l->len, l->size - l->len, "%s%s%s%s", l->len ? "|" : "", prefix,
                     scope, name);
    l->len += k > 0 ? (size_t)k : 0;
}

/* Appends a name without a prefix and, if files may have d->prefix before it, with this prefix. */
static void add_beside(const xd_decl *d, name_list *l, const char *scope, const char *name)
{
    append_name(&(xd_decl){ 0 }, l, "", scope, name);
    if (d->beside && strncmp(scope, d->beside, strlen(d->beside)) == 0)
        append_name(&(xd_decl){ 0 }, l, d->prefix, scope, name);
}

/* Appends all names that a tensor may have in files to the list: with the prefix d->prefix, without
 * a prefix, and with each of the prefixes d->prefixes. The length of `name` is n bytes. */
static void add_name(const xd_decl *d, name_list *l, const char *name, int n, const char *suffix)
{
    char        last[512];
    size_t      len = d->prefix ? strlen(d->prefix) : 0;
    const char *rest = d->scope + len;
    snprintf(last, sizeof last, "%.*s%s", n, name, suffix);
    if (!len || strncmp(d->scope, d->prefix, len) != 0) {
        add_beside(d, l, d->scope, last);
        const char *part = d->omits ? strstr(d->scope, d->omits) : NULL;
        char        less[sizeof d->scope];
        if (part) {
            snprintf(less, sizeof less, "%.*s%s", (int)(part - d->scope), d->scope,
                     part + strlen(d->omits));
            add_beside(d, l, less, last);
        }
        return;
    }
    if (d->beside && *d->beside && strncmp(d->scope, d->beside, strlen(d->beside)) == 0) {
        append_name(&(xd_decl){ 0 }, l, "", d->scope, last);
        append_name(&(xd_decl){ 0 }, l, "", rest, last);
        return;
    }
    if (d->lead)
        append_name(d, l, d->lead, rest, last);
    append_name(d, l, d->prefix, rest, last);
    append_name(d, l, "", rest, last);
    for (int i = 0; d->prefixes && d->prefixes[i]; i++)
        append_name(d, l, d->prefixes[i], rest, last);
}

/* Writes the full names of a tensor: "a|b" and the suffix ".weight" become
 * "scope.a.weight|scope.b.weight". */
static void full_names(const xd_decl *d, const char *names, const char *suffix, char *out,
                       size_t size)
{
    name_list l = { out, size, 0 };
    out[0] = 0;
    for (const char *p = names; p && l.len < size;) {
        const char *bar = strchr(p, '|');
        int         n = bar ? (int)(bar - p) : (int)strlen(p);
        add_name(d, &l, p, n, suffix);
        p = bar ? bar + 1 : NULL;
    }
    if (l.len >= size)
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

/* Writes the first of a tensor's full names that the source has; if the source has none of these
 * names, writes the first name. */
void xd_load_name(const xd_decl *d, const char *names, const char *suffix, char out[512])
{
    char all[512];
    full_names(d, names, suffix, all, sizeof all);
    if (!d->src || !xd_source_name(d->src, all, out, 512))
        snprintf(out, 512, "%.*s", (int)strcspn(all, "|"), all);
}

static void list_tensor(xd_decl *d, const char *names, const char *suffix, xd_dtype type, int nd,
                        const int64_t *shape)
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
    t->type = type;
    t->nd = nd;
    for (int i = 0; i < nd; i++) /* a scalar tensor, which has no extents */
        t->d[i] = shape[i];
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

/* Hashes the first declared name of a tensor, with the declared scope. Random weights depend only
 * on this hash, not on the alternative names that files may use or on the name that is first in
 * lists. */
static uint64_t hash_name(const xd_decl *d, const xd_fetch *what)
{
    char name[512];
    snprintf(name, sizeof name, "%s%.*s%s", d->scope, (int)strcspn(what->names, "|"), what->names,
             what->suffix);
    return xd_hash_text(name);
}

int xd_load_find(xd_decl *d, const xd_fetch *what, xd_fetched *f)
{
    f->hold = f->sum = NULL;
    f->codes = (xd_coding){ 0 };
    f->t = xd_view(NULL, XD_F32, what->nd, what->shape);
    if (d->err->code != XD_OK)
        return 0;
    xd_load_name(d, what->names, what->suffix, f->name);
    f->made = (xd_made){ hash_name(d, what), what->gain, what->mean };
    if (d->visit != XD_VISIT_LOAD)
        return 1;
    if (d->src->get(d->src->self, f->name, &f->t, d->err) != XD_OK)
        return 0;
    /* sets only the shape, which was checked before the weights are loaded */
    f->t = xd_view(f->t.p, f->t.type, what->nd, what->shape);
    return xd_load_coding(d, f, what->rotated);
}

int xd_load_fetch(xd_decl *d, const xd_fetch *what, xd_fetched *f)
{
    if (!xd_load_find(d, what, f))
        return 0;
    if (d->visit == XD_VISIT_LOAD) {
        int fine = xd_sum_whole(d, f) && (what->coded || xd_load_decode(d, f));
        if (!fine)
            xd_load_release(d, f);
        return fine;
    }
    if (!(f->t.p = f->hold = malloc(xd_bytes(f->t) + 1))) {
        xd_fail(d->err, XD_ENOMEM, "no memory for random weights of %s", f->name);
        return 0;
    }
    xd_par_for(xd_count(f->t), make_range, f);
    return 1;
}

void xd_load_release(xd_decl *d, xd_fetched *f)
{
    xd_sum_close(d, f);
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

typedef struct copying {
    xd_tensor to, from;
    int64_t   first;
    float     scale;
    float     (*of)(float);
} copying;

/* Converts n elements from element `at` on, multiplies them by the scale and applies `of`, which is
 * NULL unless the result is F32. */
static void copy_elements(const copying *c, void *to, int64_t at, int64_t n)
{
    xd_load_elements(to, c->to.type, c->from, c->first + at, n, c->scale);
    for (int64_t i = 0; i < n && c->of; i++)
        ((float *)to)[i] = c->of(((float *)to)[i]);
}

static void copy_range(void *ctx, int64_t begin, int64_t end, int thread)
{
    const copying *c = ctx;
    (void)thread;
    copy_elements(c, (char *)c->to.p + xd_dtype_bytes(c->to.type, begin), begin, end - begin);
}

/* Converts and scales elements of the file tensor `from`, from element `first` on, applies `of`
 * unless it is NULL, and copies the elements to device memory. */
static void copy_to_device(xd_decl *d, xd_tensor to, xd_tensor from, int64_t first,
                           float (*of)(float), const char *name)
{
    enum { CHUNK = 1 << 16 };
    size_t  ts = xd_dtype_size(to.type);
    int64_t n = xd_count(to);
    copying c = { to, from, first, xd_load_scale(d, name, from.type), of };
    if (d->dev->host_memory) {
        if (n < CHUNK)
            copy_range(&c, 0, n, 0);
        else
            xd_par_for(n, copy_range, &c);
        return;
    }
    void *buf = malloc((size_t)xd_min(n, CHUNK) * ts + 1);
    if (!buf)
        xd_fail(d->err, XD_ENOMEM, "no memory for weight %s", name);
    for (int64_t i = 0, m; i < n && buf && d->err->code == XD_OK; i += m) {
        m = xd_min(n - i, CHUNK);
        copy_elements(&c, buf, i, m);
        if (d->dev->mem->upload(d->dev, NULL, (char *)to.p + (size_t)i * ts, buf, (size_t)m * ts) !=
            XD_OK)
            xd_fail(d->err, XD_EDEVICE, "weight %s cannot be copied to %s", name, d->dev->name);
    }
    free(buf);
}

void xd_load_nonfinite(xd_decl *d, const char *name)
{
    if (d->nnonfinite++)
        return;
    xd_log(XD_LOG_WARN, "weight %s holds NaN or infinite numbers", name);
    snprintf(d->nonfinite, sizeof d->nonfinite, "%s", name);
}

void xd_load_warn(xd_decl *d, const char *name, xd_tensor t)
{
    if (d->visit == XD_VISIT_LOAD && xd_nonfinite(t))
        xd_load_nonfinite(d, name);
}

void xd_load_count(xd_decl *d, size_t bytes)
{
    d->packed += bytes;
    d->block_bytes += xd_store_block_bytes(bytes);
}

void xd_load_count_work(xd_decl *d, int slot, size_t bytes)
{
    d->work[slot] = bytes > d->work[slot] ? bytes : d->work[slot];
}

void xd_load_will(xd_decl *d, const char *names, const char *suffix, int64_t first, int64_t n)
{
    char full[512];
    if (!d->announces || !n || !d->src || !d->src->will)
        return;
    xd_load_name(d, names, suffix, full);
    d->src->will(d->src->self, full, first, n);
}

void *xd_load_allocate(xd_decl *d, size_t bytes, const char *name, int *mine)
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

/* Returns 1 for vectors whose values are near 1, such as gains and deviations. */
static int is_gain(const char *name, int nd)
{
    static const struct {
        const char *end;
        int         nd; /* 0: any number of dimensions */
    } all[] = { { "weight", 1 }, { "var", 1 }, { "std", 1 }, { "gamma", 0 } };
    size_t len = strlen(name);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        size_t n = strlen(all[i].end);
        if (len >= n && strcmp(name + len - n, all[i].end) == 0 && (!all[i].nd || all[i].nd == nd))
            return 1;
    }
    return 0;
}

/* Declares a vector whose loaded elements are of(stored element); `of` NULL: the stored ones. */
static void declare_vector(xd_decl *d, xd_tensor *v, const char *name, int nd, const int64_t *shape,
                           float (*of)(float))
{
    xd_fetched f;
    if (d->visit == XD_VISIT_LIST) {
        list_tensor(d, name, "", XD_F32, nd, shape);
        return;
    }
    *v = xd_view(nowhere, XD_F32, nd, shape);
    if (d->visit == XD_VISIT_COUNT) {
        xd_load_count(d, xd_bytes(*v));
        xd_load_will(d, name, "", 0, xd_count(*v));
        return;
    }
    int mine;
    if (!(v->p = xd_load_allocate(d, xd_bytes(*v), name, &mine)) || !mine ||
        !xd_load_fetch(d,
                       &(xd_fetch){ .names = name,
                                    .suffix = "",
                                    .nd = nd,
                                    .shape = shape,
                                    .gain = 0.1f,
                                    .mean = is_gain(name, nd) ? 1.0f : 0.0f },
                       &f))
        return;
    xd_load_warn(d, f.name, f.t);
    copy_to_device(d, *v, f.t, 0, of, f.name);
    xd_load_release(d, &f);
}

void xd_w_vec(xd_decl *d, xd_tensor *v, const char *name, int nd, const int64_t *shape)
{
    declare_vector(d, v, name, nd, shape, NULL);
}

static float plus_one(float v)
{
    return v + 1;
}

void xd_w_gain(xd_decl *d, xd_tensor *v, const char *name, int64_t n)
{
    declare_vector(d, v, name, 1, &n, plus_one);
}

void xd_w_vec_of(xd_decl *d, xd_tensor *v, const char *name, int64_t n, float (*of)(float))
{
    declare_vector(d, v, name, 1, &n, of);
}

void xd_w_unread(xd_decl *d, const char *name, int nd, const int64_t *shape)
{
    int n = d->nlist;
    if (d->visit != XD_VISIT_LIST || !d->whole)
        return;
    list_tensor(d, name, "", d->type, nd, shape);
    if (d->nlist > n)
        d->list[n].unread = 1;
}

void xd_w_unread_layer(xd_decl *d, const char *name, int nd, const int64_t *shape)
{
    xd_w_enter(d, "%s", name);
    xd_w_unread(d, "weight", nd, shape);
    xd_w_unread(d, "bias", 1, shape);
    xd_w_leave(d);
}

void xd_w_affine(xd_decl *d, const char *name, xd_tensor *gain, xd_tensor *bias, int64_t n)
{
    xd_w_enter(d, "%s", name);
    xd_w_vec(d, gain, "weight", 1, &n);
    xd_w_vec(d, bias, "bias", 1, &n);
    xd_w_leave(d);
}

/* Returns 1 if a table can be read in place in its mapped file. Tables whose element type no lookup
 * supports are converted instead. */
static int is_used_in_place(const xd_decl *d, const char *name)
{
    char      full[512];
    xd_tensor t = { 0 };
    if (!d->src || !d->src->in_place || xd_sum_is(d, name, ""))
        return 0;
    xd_load_name(d, name, "", full);
    if (!d->src->has(d->src->self, full, &t))
        return 0;
    return t.type == XD_F32 || t.type == XD_BF16 || t.type == XD_F16 || xd_dtype_block(t.type) > 1;
}

void xd_w_table(xd_decl *d, xd_tensor *v, const char *name, int64_t rows, int64_t cols)
{
    xd_w_table_as(d, v, name, 2, (int64_t[]){ rows, cols });
}

void xd_w_table_as(xd_decl *d, xd_tensor *v, const char *name, int nd, const int64_t *stored)
{
    int64_t    shape[2] = { 1, stored[nd - 1] };
    xd_fetched f;
    int        mine = 1, whole = d->visit == XD_VISIT_LIST || !is_used_in_place(d, name);
    for (int i = 0; i < nd - 1; i++)
        shape[0] *= stored[i];
    if (d->visit == XD_VISIT_LIST) {
        list_tensor(d, name, "", d->type, nd, stored);
        return;
    }
    *v = xd_view(nowhere, d->type, 2, shape);
    if (d->visit == XD_VISIT_COUNT) {
        v->p = v;    /* an address of its own, by which caches tell tables apart (exec/tables.h) */
        if (whole) { /* otherwise lookups read the rows in the mapped file */
            xd_load_count(d, xd_bytes(*v));
            xd_load_count_work(d, 2, xd_sum_bytes(d, name, "", xd_count(*v), 1));
            xd_load_will(d, name, "", 0, xd_count(*v));
        }
        return;
    }
    if (whole && (!(v->p = xd_load_allocate(d, xd_bytes(*v), name, &mine)) || !mine))
        return;
    if (!xd_load_fetch(
            d, &(xd_fetch){ .names = name, .suffix = "", .nd = 2, .shape = shape, .gain = 1.0f },
            &f))
        return;
    if (xd_bytes(f.t) <= SCAN_TABLE)
        xd_load_warn(d, f.name, f.t);
    if (!whole) {
        *v = f.t; /* each lookup reads rows from the mapped file */
        return;
    }
    copy_to_device(d, *v, f.t, 0, NULL, f.name);
    xd_load_release(d, &f);
}

/* ---- matrices ----------------------------------------------------------------------------- */

/* Returns this rank's shard of `n` features; shards begin at multiples of `unit` features (0 means
 * 1). */
static xd_span my_share(const xd_decl *d, int cut, int64_t n, int64_t unit)
{
    if (!cut || d->tp <= 1)
        return (xd_span){ 0, n };
    unit = unit ? unit : 1;
    xd_span u = xd_cut((xd_span){ 0, (n + unit - 1) / unit }, d->tp_at, d->tp);
    int64_t a = u.start * unit, b = (u.start + u.n) * unit;
    return (xd_span){ a, (b < n ? b : n) - a };
}

/* Loads the biases of this rank's rows. If tensor parallelism splits a layer by inputs, every rank
 * has all biases, and adds them once, after the partial products have been summed over the
 * ranks. */
static void load_bias(xd_decl *d, xd_tensor *b, const xd_mat_part *parts, int n, int64_t out,
                      xd_dtype type)
{
    *b = xd_view(nowhere, type, 1, &out);
    if (d->visit == XD_VISIT_COUNT) {
        xd_load_count(d, xd_bytes(*b));
        for (int i = 0; i < n; i++)
            xd_load_will(d, parts[i].name, ".bias", parts[i].row0, parts[i].rows);
        return;
    }
    int   mine;
    char *at = b->p = xd_load_allocate(d, xd_bytes(*b), parts[0].name, &mine);
    for (int i = 0; i < n && at && mine; i++) {
        const xd_mat_part *p = &parts[i];
        xd_fetched         f;
        if (!xd_load_fetch(
                d,
                &(xd_fetch){
                    .names = p->name, .suffix = ".bias", .nd = 1, .shape = &p->out, .gain = 0.1f },
                &f))
            return;
        xd_load_warn(d, f.name, f.t);
        copy_to_device(d, xd_view(at, type, 1, &p->rows), f.t, p->row0, NULL, f.name);
        at += xd_dtype_bytes(type, p->rows);
        xd_load_release(d, &f);
    }
}

/* Lists the tensors of a linear layer, whose matrices will have the element type `type`. */
static void list_matrix(xd_decl *d, const xd_matrix *m, xd_dtype type, int bias)
{
    for (int i = 0; i < m->n; i++) {
        const xd_mat_part *p = &m->parts[i];
        int64_t            flat[2] = { p->out, p->in };
        if (xd_mat_repeats(m->parts, i))
            continue;
        list_tensor(d, p->name, ".weight", type, m->shape ? m->nd : 2, m->shape ? m->shape : flat);
        if (bias)
            list_tensor(d, p->name, ".bias", XD_F32, 1, &p->out);
    }
}

/* Lists, counts or loads the matrix and the bias of a linear layer of any kind. */
static void visit_matrix(xd_decl *d, xd_lin *w, xd_lin_kind kind, const xd_matrix *m)
{
    if (d->visit == XD_VISIT_LIST) {
        xd_weight as = { .out = 0 };
        const int fours = xd_mat_type(d, &kind, m, &as);
        list_matrix(d, m, fours ? XD_Q4_0 : as.type, kind.bias);
        return;
    }
    xd_matrix flat = *m; /* the matrix m without its checkpoint shape: [out, in] */
    int64_t   out = 0;
    flat.shape = NULL;
    for (int i = 0; i < m->n; i++)
        out += m->parts[i].rows;
    w->split = kind.split;
    w->w = (xd_weight){
        .out = out, .in = m->cols.total, .kernel = { 1, 1, 1 }, .stride = { 1, 1, 1 }, .groups = 1
    };
    const int fours = xd_mat_type(d, &kind, m, &w->w);
    const int none = !out || !m->cols.total;
    int       stays = w->w.type == d->type && (fours || d->stays >= XD_STAYS_BLOCKS) &&
                      xd_mat_is_four(d, m, &flat.rotate);
    if (stays)
        w->rotate = flat.rotate;
    else
        flat.rotate = fours ? 0 : xd_mat_rotation(d, w, m);
    stays = stays || (!fours && xd_mat_stays(d, &w->w, &flat));
    if (fours && !stays && !none) {
        w->w.p = nowhere;
        w->rotate = xd_mat_four_rotation(d, m);
        if (d->visit == XD_VISIT_COUNT)
            xd_mat_count_four(d, w, &flat);
        else
            xd_mat_load_four(d, w, &flat);
    } else if (stays && !none) {
        w->w.p = nowhere;
        if (d->visit == XD_VISIT_COUNT)
            xd_mat_count_stored(d, w, &flat);
        else
            xd_mat_load_stored(d, w, &flat);
    } else if (d->visit == XD_VISIT_COUNT) {
        w->w.p = nowhere;
        w->w.bytes = d->dev->ops->pack_size(d->dev, &w->w);
        if (!none)
            xd_mat_count(d, &w->w, &flat);
    } else if (!none) {
        xd_mat_load(d, &w->w, &flat);
    }
    if (kind.bias)
        load_bias(d, &w->b, m->parts, m->n, out, d->dev->narrow_bias ? d->type : XD_F32);
}

/* Sets the ranges of rows of a linear layer's weight that this rank has. If the output has several
 * parts, each part has its own range. Returns the number of row ranges in p. */
static int rows_of_linear(const xd_decl *d, xd_lin *w, const char *name, const xd_linear_spec *s,
                          int64_t in, xd_mat_part *p)
{
    int            n = s->nouts ? s->nouts : 1;
    const int64_t *outs = s->nouts ? s->outs : &s->out;
    int64_t        out = 0, at = 0;
    for (int i = 0; i < n; i++)
        out += outs[i];
    for (int i = 0; i < n; at += outs[i++]) {
        xd_span rows = my_share(d, s->split == XD_COL, outs[i], s->unit);
        p[i] = (xd_mat_part){ name, out, in, rows.n, at + rows.start };
        w->seg[i] = rows.n;
    }
    w->nseg = n;
    if (n == 1 || (s->split == XD_COL && d->tp > 1))
        return n;
    p[0].rows = out;
    return 1;
}

void xd_w_linear(xd_decl *d, xd_lin *w, const char *name, const xd_linear_spec *s)
{
    int            n = s->nparts ? s->nparts : 1;
    const int64_t *widths = s->nparts ? s->parts : &s->in;
    xd_matrix      m = { .cols = { .n = n } };
    xd_mat_part    p[XD_MAXSEG];
    int64_t        in = 0;
    if (n > XD_MAXSEG || s->nouts > XD_MAXSEG) {
        xd_fail(d->err, XD_EUNSUPPORTED, "weight %s%s has too many parts", d->scope, name);
        return;
    }
    memset(w, 0, sizeof *w);
    for (int k = 0; k < n; k++) {
        xd_span share = my_share(d, s->split == XD_ROW, widths[k], s->unit);
        m.cols.span[k] = (xd_span){ in + share.start, share.n };
        m.cols.total += share.n;
        in += widths[k];
    }
    m.parts = p;
    m.n = rows_of_linear(d, w, name, s, in, p);
    int64_t shape[4] = { p[0].out, in, 1, 1 };
    if (s->ones && m.n == 1)
        m.nd = 2 + s->ones, m.shape = shape;
    visit_matrix(d, w, (xd_lin_kind){ s->split, s->bias, s->few }, &m);
}

void xd_w_fused(xd_decl *d, xd_lin *w, const xd_fused_spec *s)
{
    xd_mat_part p[XD_MAXSEG];
    xd_span     cols = my_share(d, s->split == XD_ROW, s->in, s->unit);
    if (s->n > XD_MAXSEG) {
        xd_fail(d->err, XD_EUNSUPPORTED, "weight %s%s has too many parts", d->scope, s->names[0]);
        return;
    }
    memset(w, 0, sizeof *w);
    w->nseg = s->n;
    for (int i = 0; i < s->n; i++) {
        int64_t unit = s->units ? s->units[i] : s->unit;
        xd_span rows = my_share(d, s->split == XD_COL, s->out[i], unit);
        p[i] = (xd_mat_part){ s->names[i], s->out[i], s->in, rows.n, rows.start };
        w->seg[i] = rows.n;
    }
    visit_matrix(d, w, (xd_lin_kind){ s->split, s->bias, 0 },
                 &(xd_matrix){ .parts = p, .n = s->n, .cols = { 1, { cols }, cols.n } });
}

void xd_w_linear_as(xd_decl *d, xd_lin *w, const char *name, int nd, const int64_t *shape, int bias)
{
    int64_t in = 1;
    for (int i = 1; i < nd; i++)
        in *= shape[i];
    xd_mat_part p = { name, shape[0], in, shape[0], 0 };
    memset(w, 0, sizeof *w);
    w->nseg = 1;
    w->seg[0] = shape[0];
    visit_matrix(
        d, w, (xd_lin_kind){ XD_REPLICATED, bias, 0 },
        &(xd_matrix){
            .parts = &p, .n = 1, .cols = { 1, { { 0, in } }, in }, .nd = nd, .shape = shape });
}

/* ---- convolutions --------------------------------------------------------------------------- */

typedef struct ends { /* arguments for copying each convolution kernel's last frame */
    xd_tensor from;   /* [n,kt,kh,kw]: the convolution kernels in the file */
    float     scale;  /* scale of 8-bit elements */
    float    *to;     /* [n,kh,kw]: destination: the kernels' last frames */
    /* all: elements of a complete kernel; last: elements of one frame of a kernel */
    int64_t   all, last;
} ends;

static void end_range(void *ctx, int64_t begin, int64_t end, int thread)
{
    const ends *f = ctx;
    (void)thread;
    for (int64_t n = begin; n < end; n++)
        xd_load_elements(f->to + n * f->last, XD_F32, f->from, (n + 1) * f->all - f->last, f->last,
                         f->scale);
}

static size_t last_bytes(const xd_conv_spec *s)
{
    return (size_t)(s->out * s->in * s->kernel[1] * s->kernel[2]) * sizeof(float);
}

/* Loads the last frame of each kernel of the convolution weight [out,in,kt,kh,kw]. */
static void load_last(xd_decl *d, xd_weight *w, const char *name, const xd_conv_spec *s)
{
    int64_t    shape[5] = { s->out, s->in, s->kernel[0], s->kernel[1], s->kernel[2] };
    int64_t    last = shape[3] * shape[4], all = shape[2] * last, n = s->out * s->in;
    xd_fetched f;
    int        mine;
    w->bytes = d->dev->ops->pack_size(d->dev, w);
    if (!(w->p = xd_load_allocate(d, w->bytes, name, &mine)) || !mine ||
        !xd_load_fetch(d,
                       &(xd_fetch){ .names = name,
                                    .suffix = ".weight",
                                    .nd = 5,
                                    .shape = shape,
                                    .gain = 0.9f / sqrtf((float)(s->in * all)) },
                       &f))
        return;
    xd_load_warn(d, f.name, f.t);
    ends e = { f.t, xd_load_scale(d, f.name, f.t.type),
               xd_store_scratch(d->store, 1, last_bytes(s)), all, last };
    if (e.to) {
        xd_par_for(n, end_range, &e);
        xd_mat_pack(
            d, w, xd_view(e.to, XD_F32, 4, (int64_t[]){ s->out, s->in, shape[3], shape[4] }), name);
    } else {
        xd_fail(d->err, XD_ENOMEM, "no memory to gather weight %s", f.name);
    }
    xd_load_release(d, &f);
}

static void visit_last(xd_decl *d, xd_weight *w, const char *name, const xd_conv_spec *s)
{
    if (d->visit != XD_VISIT_COUNT) {
        load_last(d, w, name, s);
        return;
    }
    int64_t n = s->out * s->in * s->kernel[0] * s->kernel[1] * s->kernel[2];
    w->p = nowhere;
    xd_load_count(d, w->bytes = d->dev->ops->pack_size(d->dev, w));
    xd_load_count_work(d, 0, d->dev->ops->pack_tmp(d->dev, w, XD_F32));
    xd_load_count_work(d, 1, last_bytes(s));
    xd_load_will(d, name, ".weight", 0, n);
}

/* Returns the xd_weight of a convolution kernel, for which no memory is allocated yet. A
 * convolution along one axis is one of images with a single row. */
static xd_weight kernel_of(const xd_decl *d, const xd_conv_spec *s)
{
    int       nk = s->last || s->nk < 2 ? 2 : s->nk;
    xd_weight w = { .type = d->type,
                    .out = s->out,
                    .in = s->in,
                    .nk = nk,
                    .kernel = { 1, 1, 1 },
                    .stride = { 1, 1, 1 },
                    .groups = s->groups > 1 ? s->groups : 1 };
    for (int i = 3 - nk; i < 3; i++) {
        w.kernel[i] = s->kernel[i];
        w.stride[i] = s->stride[i] ? s->stride[i] : 1;
    }
    return w;
}

/* Sets the ranges of rows of a convolution's kernel that this rank has. Returns their number. */
static int rows_of_conv(const xd_decl *d, const char *name, const xd_conv_spec *s, xd_mat_part *p)
{
    int64_t in = s->in, at = 0;
    for (int i = 3 - s->nk; i < 3; i++)
        in *= s->kernel[i];
    p[0] = (xd_mat_part){ name, s->out, in, s->out, 0 };
    if (!s->nouts || d->tp <= 1)
        return 1;
    for (int i = 0; i < s->nouts; at += s->outs[i++]) {
        xd_span rows = my_share(d, 1, s->outs[i], 1);
        p[i] = (xd_mat_part){ name, s->out, in, rows.n, at + rows.start };
    }
    return s->nouts;
}

void xd_w_conv(xd_decl *d, xd_cnv *w, const char *name, const xd_conv_spec *s)
{
    int64_t     shape[5] = { s->out, s->in }, rows = 0;
    xd_mat_part p[XD_MAXSEG];
    const int   n = rows_of_conv(d, name, s, p);
    for (int i = 3 - s->nk; i < 3; i++)
        shape[2 + i - (3 - s->nk)] = s->kernel[i];
    for (int i = 0; i < n; i++)
        rows += p[i].rows;
    xd_matrix m = { .parts = p,
                    .n = n,
                    .cols = { 1, { { 0, p[0].in } }, p[0].in },
                    .nd = 2 + s->nk,
                    .shape = shape };
    if (d->visit == XD_VISIT_LIST) {
        list_matrix(d, &m, d->type, s->bias);
        return;
    }
    *w = (xd_cnv){ .w = kernel_of(d, s) };
    w->w.out = rows;
    if (s->nouts)
        w->w.groups = (int)rows;
    if (!rows) {
        w->w.p = nowhere;
    } else if (s->last) {
        visit_last(d, &w->w, name, s);
    } else if (d->visit == XD_VISIT_COUNT) {
        w->w.p = nowhere;
        xd_mat_count(d, &w->w, &m);
    } else {
        xd_mat_load(d, &w->w, &m);
    }
    if (s->bias)
        load_bias(d, &w->b, p, n, rows, XD_F32);
}

/* ---- convolutions of upsampled maps ------------------------------------------------------- */

typedef struct fold { /* arguments for making one of the four 2 x 2 kernels */
    xd_tensor from;   /* [n,3,3]: the convolution kernels in the file */
    float     scale;  /* scale of 8-bit elements */
    float    *to;     /* [n,2,2]: for each kernel in the file, one 2 x 2 kernel */
    int       i, j;
} fold;

/* Along one axis, a 3 x 3 kernel on the upsampled map reads two neighbouring pixels of the original
 * map. Returns which of the two, 0 or 1, a tap of the kernel reads. `place` is the output pixel's
 * offset, 0 or 1, within the upsampled pixel. */
static int cell_of(int tap, int place)
{
    return tap > place;
}

static void fold_range(void *ctx, int64_t begin, int64_t end, int thread)
{
    const fold *f = ctx;
    (void)thread;
    for (int64_t n = begin; n < end; n++) {
        float k[9], *to = f->to + 4 * n;
        xd_load_elements(k, XD_F32, f->from, 9 * n, 9, f->scale);
        memset(to, 0, 4 * sizeof *to);
        for (int y = 0; y < 3; y++)
            for (int x = 0; x < 3; x++)
                to[2 * cell_of(y, f->i) + cell_of(x, f->j)] += k[3 * y + x];
    }
}

/* Makes the four 2 x 2 kernels from one 3 x 3 kernel, read once from the file. Each element of a 2
 * x 2 kernel is a sum of elements of the 3 x 3 kernel, computed in f32 and rounded once. */
static void load_enlarged(xd_decl *d, xd_cnv w[4], const char *name, int64_t n,
                          const int64_t *shape)
{
    xd_fetched f;
    int        mine[4], any = 0;
    for (int q = 0; q < 4; q++) {
        w[q].w.bytes = d->dev->ops->pack_size(d->dev, &w[q].w);
        if (!(w[q].w.p = xd_load_allocate(d, w[q].w.bytes, name, &mine[q])))
            return;
        any |= mine[q];
    }
    if (!any || !xd_load_fetch(d,
                               &(xd_fetch){ .names = name,
                                            .suffix = ".weight",
                                            .nd = 4,
                                            .shape = shape,
                                            .gain = 0.9f / sqrtf(9 * (float)shape[1]) },
                               &f))
        return;
    xd_load_warn(d, f.name, f.t);
    const float scale = xd_load_scale(d, f.name, f.t.type);
    float      *k = xd_store_scratch(d->store, 1, (size_t)(4 * n) * sizeof *k);
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
    xd_load_release(d, &f);
}

void xd_w_conv_enlarged(xd_decl *d, xd_cnv w[4], const char *name, int64_t out, int64_t in)
{
    int64_t     shape[4] = { out, in, 3, 3 };
    xd_mat_part p = { name, out, in, out, 0 };
    if (d->visit == XD_VISIT_LIST) {
        list_tensor(d, name, ".weight", d->type, 4, shape);
        list_tensor(d, name, ".bias", XD_F32, 1, &out);
        return;
    }
    for (int q = 0; q < 4; q++) {
        w[q] = (xd_cnv){ 0 };
        w[q].w = (xd_weight){ .type = d->type,
                              .out = out,
                              .in = in,
                              .nk = 2,
                              .kernel = { 1, 2, 2 },
                              .stride = { 1, 1, 1 },
                              .groups = 1 };
        if (d->visit == XD_VISIT_COUNT) {
            w[q].w.p = nowhere;
            xd_load_count(d, w[q].w.bytes = d->dev->ops->pack_size(d->dev, &w[q].w));
            xd_load_count_work(d, 0, d->dev->ops->pack_tmp(d->dev, &w[q].w, XD_F32));
            xd_load_count_work(d, 1, (size_t)(out * in) * 4 * sizeof(float));
        }
    }
    if (d->visit == XD_VISIT_COUNT)
        xd_load_will(d, name, ".weight", 0, out * in * 9);
    else
        load_enlarged(d, w, name, out * in, shape);
    load_bias(d, &w[0].b, &p, 1, out, XD_F32);
    for (int q = 1; q < 4; q++)
        w[q].b = w[0].b;
}

/* ---- convolutions over rows ---------------------------------------------------------------- */

typedef struct row_kernel { /* a kernel in the checkpoint */
    const char    *name;
    const int64_t *shape; /* [3]; the first extent is that of the rows of weight norm */
    float          gain;  /* gain of random elements */
    int            normed;
} row_kernel;

static int64_t elements_of(const row_kernel *k)
{
    return k->shape[0] * k->shape[1] * k->shape[2];
}

static void list_kernel(xd_decl *d, const row_kernel *k)
{
    list_tensor(d, k->name, k->normed ? ".weight_v" : ".weight", d->type, 3, k->shape);
    if (k->normed)
        list_tensor(d, k->name, ".weight_g", d->type, 3, (int64_t[]){ k->shape[0], 1, 1 });
}

/* Counts the memory of a weight, and that for reading it with `more` other floats. */
static void count_kernel(xd_decl *d, xd_weight *w, const row_kernel *k, int64_t more)
{
    const int64_t n = elements_of(k);
    w->p = nowhere;
    xd_load_count(d, w->bytes = d->dev->ops->pack_size(d->dev, w));
    xd_load_count_work(d, 0, d->dev->ops->pack_tmp(d->dev, w, XD_F32));
    xd_load_count_work(d, 1, (size_t)(n + k->shape[0] + more) * sizeof(float));
    xd_load_will(d, k->name, k->normed ? ".weight_v" : ".weight", 0, n);
    if (k->normed)
        xd_load_will(d, k->name, ".weight_g", 0, k->shape[0]);
}

/* Reads a tensor of three extents as F32. Returns 0 on failure. */
static int fetch_floats(xd_decl *d, const xd_fetch *what, float *to)
{
    xd_fetched f;
    if (!xd_load_fetch(d, what, &f))
        return 0;
    xd_load_warn(d, f.name, f.t);
    xd_load_elements(to, XD_F32, f.t, 0, xd_count(f.t), xd_load_scale(d, f.name, f.t.type));
    xd_load_release(d, &f);
    return 1;
}

/* Reads the elements of a kernel. Returns them in scratch memory, with `more` other floats behind
 * them, or NULL. */
static float *fetch_kernel(xd_decl *d, const row_kernel *k, int64_t more)
{
    const int64_t n = elements_of(k), rows = k->shape[0], m = n / rows;
    float        *v = xd_store_scratch(d->store, 1, (size_t)(n + more + rows) * sizeof *v);
    if (!v) {
        xd_fail(d->err, XD_ENOMEM, "no memory to gather weight %s", k->name);
        return NULL;
    }
    float   *g = v + n + more;
    xd_fetch what = { .names = k->name,
                      .suffix = k->normed ? ".weight_v" : ".weight",
                      .nd = 3,
                      .shape = k->shape,
                      .gain = k->gain };
    if (!fetch_floats(d, &what, v))
        return NULL;
    what.suffix = ".weight_g", what.shape = (int64_t[]){ rows, 1, 1 }, what.gain = 0.9f;
    if (k->normed && !fetch_floats(d, &what, g))
        return NULL;
    for (int64_t i = 0; i < rows && k->normed; i++) {
        double sum = 0;
        for (int64_t j = 0; j < m; j++)
            sum += (double)v[i * m + j] * (double)v[i * m + j];
        for (int64_t j = 0; j < m; j++)
            v[i * m + j] *= g[i] / (float)sqrt(sum);
    }
    return v;
}

void xd_w_conv_normed(xd_decl *d, xd_cnv *w, const char *name, const int64_t shape[3], int bias)
{
    const int64_t      out = shape[0], in = shape[1];
    const int          width = (int)shape[2];
    const row_kernel   k = { name, shape, 0.9f / sqrtf((float)(in * width)), 1 };
    const xd_conv_spec s = { .out = out, .in = in, .nk = 1, .kernel = { 1, 1, width } };
    xd_mat_part        p = { name, out, in, out, 0 };
    int                mine;
    if (d->visit == XD_VISIT_LIST) {
        list_kernel(d, &k);
        if (bias)
            list_tensor(d, name, ".bias", XD_F32, 1, &out);
        return;
    }
    *w = (xd_cnv){ .w = kernel_of(d, &s) };
    if (d->visit == XD_VISIT_COUNT) {
        count_kernel(d, &w->w, &k, 0);
    } else {
        w->w.bytes = d->dev->ops->pack_size(d->dev, &w->w);
        w->w.p = xd_load_allocate(d, w->w.bytes, name, &mine);
        float *v = w->w.p && mine ? fetch_kernel(d, &k, 0) : NULL;
        if (v)
            xd_mat_pack(d, &w->w, xd_view(v, XD_F32, 4, (int64_t[]){ out, in, 1, width }), name);
    }
    if (bias)
        load_bias(d, &w->b, &p, 1, out, XD_F32);
}

/* ---- transposed convolutions over rows ----------------------------------------------------- */

static void load_spread(xd_decl *d, xd_lin *w, const row_kernel *kernel)
{
    const int64_t in = kernel->shape[0], out = kernel->shape[1], k = kernel->shape[2];
    const int64_t n = in * out * k;
    int           mine;
    w->w.bytes = d->dev->ops->pack_size(d->dev, &w->w);
    w->w.p = xd_load_allocate(d, w->w.bytes, kernel->name, &mine);
    float *v = w->w.p && mine ? fetch_kernel(d, kernel, n) : NULL, *to;
    if (!v)
        return;
    to = v + n;
    for (int64_t i = 0; i < n; i++) /* element [c,o,j] to [j,o,c] */
        to[(i % k * out + i / k % out) * in + i / k / out] = v[i];
    xd_mat_pack(d, &w->w, xd_view(to, XD_F32, 2, (int64_t[]){ k * out, in }), kernel->name);
}

static void declare_spread(xd_decl *d, xd_lin *w, xd_tensor *bias, const row_kernel *kernel)
{
    const int64_t in = kernel->shape[0], out = kernel->shape[1], k = kernel->shape[2];
    xd_mat_part   p = { kernel->name, out, in, out, 0 };
    if (d->visit == XD_VISIT_LIST) {
        list_kernel(d, kernel);
        list_tensor(d, kernel->name, ".bias", XD_F32, 1, &out);
        return;
    }
    *w = (xd_lin){ .w = { .type = d->type,
                          .out = k * out,
                          .in = in,
                          .kernel = { 1, 1, 1 },
                          .stride = { 1, 1, 1 },
                          .groups = 1 },
                   .nseg = 1,
                   .seg = { k * out } };
    if (d->visit == XD_VISIT_COUNT)
        count_kernel(d, &w->w, kernel, in * out * k);
    else
        load_spread(d, w, kernel);
    load_bias(d, bias, &p, 1, out, XD_F32);
}

void xd_w_spread(xd_decl *d, xd_lin *w, xd_tensor *bias, const char *name, const int64_t shape[3])
{
    declare_spread(d, w, bias,
                   &(row_kernel){ name, shape, 0.9f / sqrtf((float)(shape[1] * shape[2])), 0 });
}

void xd_w_spread_normed(xd_decl *d, xd_lin *w, xd_tensor *bias, const char *name,
                        const int64_t shape[3])
{
    declare_spread(d, w, bias,
                   &(row_kernel){ name, shape, 0.9f / sqrtf((float)(shape[1] * shape[2])), 1 });
}
