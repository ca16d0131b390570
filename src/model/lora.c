/* lora.c - converts the tensors of LoRA files to terms that are added to the model's tensors.
 *
 * The code groups the file's keys by module, and finds the model's tensors for each module. Keys
 * that fit no tensor are refused before any weight is loaded. */
#include "model/lora.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/rng.h"
#include "model/model.h"

enum { SHOWN = 10 }; /* max number of keys listed in a message */

#define CURE "--lora_partial ignores tensors that do not fit"

typedef struct key { /* name of a tensor in a LoRA file */
    const char  *name;
    size_t       len; /* length of the module's name in `name` */
    xd_lora_slot slot;
    int64_t      at; /* index of the key's tensor in the file */
} key;

/* a list of keys: their number, and the names of the first of them */
typedef struct some_keys {
    int  n;
    char first[2048];
} some_keys;

typedef struct reader { /* state of a LoRA file while it is read */
    xd_loras           *l;
    int                 i;
    const char         *path;
    xd_st              *file;
    const xd_lora_keys *names;
    xd_lora_notes      *notes; /* peft's settings of the file */
    /* 1: the file names modules of the transformer as diffusers does */
    int                 has_plain;
    /* [tensors] 1: the LoRA file has a separate module for this tensor of the model */
    unsigned char      *alone[XD_LORA_COMPONENTS];
    /* used: number of keys that are used; left: number of keys for text encoders that the model
     * does not have */
    int                 used, left;
    /* idle: keys that are not used because they duplicate others; strange: keys that fit no tensor
     * of the model */
    some_keys           idle, strange;
    int                 partial; /* 1: keys that fit no tensor are ignored */
    int                 misfit;  /* 1: a tensor's shape differs from the model's */
    xd_err             *e;
} reader;

typedef struct module {
    char    name[XD_LORA_NAME];
    int64_t slot[XD_LORA_SLOTS]; /* the module's tensors (indices in the file); -1: none */
} module;

/* ---- alphas of a file --------------------------------------------------------------------- */

/* Reads alpha, which is a tensor with one element. */
static xd_status read_alpha(const reader *r, int64_t i, double *alpha)
{
    xd_tensor t;
    float     v = NAN;
    int64_t   whole = 0;
    int32_t   half = 0;
    xd_status s = xd_st_get(r->file, i, &t, r->e);
    if (s != XD_OK)
        return s;
    if (xd_count(t) == 1 && t.type == XD_I64) {
        memcpy(&whole, t.p, sizeof whole);
        v = (float)whole;
    } else if (xd_count(t) == 1 && t.type == XD_I32) {
        memcpy(&half, t.p, sizeof half);
        v = (float)half;
    } else if (xd_count(t) == 1 && t.type <= XD_F64) {
        xd_convert(&v, XD_F32, t.p, t.type, 1);
    }
    xd_st_done(r->file, i);
    *alpha = v;
    return isfinite(v) ? XD_OK
                       : xd_fail(r->e, XD_EFORMAT, "LoRA %s: %s is not a finite number", r->path,
                                 xd_st_name(r->file, i));
}

/* ---- checks ------------------------------------------------------------------------------- */

static const xd_declared *declared_tensor(const reader *r, const xd_lora_target *a, int k)
{
    return &r->names->part[a->part]->list[a->item[k]];
}

/* Checks a tensor that is used. The tensor must have a known type, the shape [rows, cols, 1...],
 * and only finite elements. If `rows` is 0, any nonzero number of rows is accepted. */
static xd_status check_tensor(reader *r, int64_t i, int64_t rows, int64_t cols,
                              const xd_lora_target *a)
{
    const char *of = declared_tensor(r, a, 0)->name;
    xd_tensor   t = xd_st_shape(r->file, i);
    const char *name = xd_st_name(r->file, i);
    char        shape[96], want[32] = "RANK";
    int64_t     n = xd_count(t);
    if (t.type > XD_F64)
        return xd_fail(r->e, XD_EUNSUPPORTED, "LoRA %s: %s has type %s, expected f32, f16 or bf16",
                       r->path, name, xd_st_dtype(r->file, i));
    if (rows)
        snprintf(want, sizeof want, "%lld", (long long)rows);
    xd_shape_text(t.nd, t.d, shape, sizeof shape);
    if (!rows && n == 0)
        return xd_fail(r->e, XD_EFORMAT, "LoRA %s: %s is %s: its rank is 0", r->path, name, shape);
    r->misfit |= !t.nd || (rows && t.d[0] != rows) || n != t.d[0] * cols;
    if (r->misfit)
        return xd_fail(r->e, XD_EFORMAT,
                       "LoRA %s: %s is %s, expected %sx%lld for %.*s%s of "
                       "this model; " CURE,
                       r->path, name, shape, want, (long long)cols, (int)strcspn(of, "|"), of,
                       a->n > 1 ? " and those after it" : "");
    xd_status s = xd_st_get(r->file, i, &t, r->e);
    if (s != XD_OK)
        return s;
    int bad = xd_nonfinite(t);
    xd_st_done(r->file, i);
    return bad ? xd_fail(r->e, XD_EFORMAT, "LoRA %s: %s holds NaN or infinite numbers", r->path,
                         name)
               : XD_OK;
}

/* ---- terms -------------------------------------------------------------------------------- */

static xd_status push_term(reader *r, xd_lora_term t)
{
    xd_loras *l = r->l;
    if (l->nterms == l->cap) {
        int           cap = l->cap ? 2 * l->cap : 256;
        xd_lora_term *more = realloc(l->terms, (size_t)cap * sizeof *more);
        if (!more)
            return xd_fail(r->e, XD_ENOMEM, "no memory for the terms of LoRA %s", r->path);
        l->terms = more;
        l->cap = cap;
    }
    t.order = l->nterms;
    l->terms[l->nterms++] = t;
    return XD_OK;
}

/* Computes the total number of rows, and the number of columns, of the model's tensors that a LoRA
 * module changes. */
static void total_extents(const reader *r, const xd_lora_target *a, int64_t *rows, int64_t *cols)
{
    *rows = 0;
    for (int k = 0; k < a->n; k++)
        *rows += declared_tensor(r, a, k)->d[0];
    *cols = 1;
    for (int i = 1; i < declared_tensor(r, a, 0)->nd; i++)
        *cols *= declared_tensor(r, a, 0)->d[i];
}

/* Reads DoRA's magnitude, a tensor with the norms that the rows or the columns of the changed
 * weight shall have. */
static xd_status read_magnitude(reader *r, const module *m, const xd_lora_target *a, int64_t rows,
                                xd_lora_term *t)
{
    int64_t i = m->slot[XD_LORA_MAGNITUDE];
    if (i < 0 && (i = m->slot[XD_LORA_DORA_SCALE]) >= 0) {
        xd_tensor whole = xd_st_shape(r->file, i);
        t->columns = whole.nd > 1 && whole.d[0] == 1 && rows > 1;
    }
    if (i < 0)
        return XD_OK;
    if (m->slot[XD_LORA_UP_BIAS] >= 0)
        return xd_fail(r->e, XD_EUNSUPPORTED,
                       "LoRA %s: %s has a bias and a DoRA magnitude, which "
                       "is not supported (nor by peft)",
                       r->path, m->name);
    if (t->columns && a->n > 1)
        return xd_fail(r->e, XD_EUNSUPPORTED,
                       "LoRA %s: %s has DoRA norms of columns, but the "
                       "module is several matrices in this model: save it per matrix, or with "
                       "norms of rows",
                       r->path, m->name);
    t->magnitude = i;
    xd_tensor v = xd_st_shape(r->file, i);
    int64_t   n = xd_count(v), want = t->columns ? t->cols : rows;
    if ((r->misfit = !v.nd || n != want))
        return xd_fail(r->e, XD_EFORMAT, "LoRA %s: %s has %lld elements, expected %lld; " CURE,
                       r->path, xd_st_name(r->file, i), (long long)n, (long long)want);
    return check_tensor(r, i, v.d[0], n / v.d[0], a);
}

/* Adds a term to each of the model's tensors that a LoRA module changes. The rows of the LoRA
 * module are split over the model's tensors. The fields that are equal in all these terms are
 * copied from `t`; t.cols 0: the terms have all columns. `m` is the module if it has a DoRA
 * magnitude, else NULL. */
static xd_status push_all(reader *r, const module *m, const xd_lora_target *a, xd_lora_term t)
{
    int64_t rows, cols, at = 0;
    total_extents(r, a, &rows, &cols);
    t.cols = t.cols ? t.cols : cols;
    xd_status s = m ? read_magnitude(r, m, a, rows, &t) : XD_OK;
    for (int k = 0; k < a->n && s == XD_OK; k++) {
        int64_t n = declared_tensor(r, a, k)->d[0];
        t.part = a->part, t.item = a->item[k], t.file = r->file;
        t.row0 = at, t.rows = n;
        t.swap = a->halves && n == 2 * (t.width ? t.width : cols);
        if (t.gain != 0 || (t.magnitude >= 0 && r->l->scale[r->i] != 0))
            s = push_term(r, t);
        at += n;
    }
    return s;
}

/* Computes a module's scale, alpha / rank. Alpha is read from the module's alpha tensor or, if
 * there is none, from peft's settings of the file. The scale is 1 if neither the module nor the
 * settings have an alpha. */
static xd_status read_gain(const reader *r, const module *m, int64_t rank, int lycoris,
                           double *gain)
{
    int         part;
    double      alpha = NAN;
    const char *inner = xd_lora_inner(r->names, m->name, &part);
    *gain = 1;
    if (m->slot[XD_LORA_ALPHA] < 0)
        return xd_lora_notes_gain(r->notes, part, inner, (double)rank, lycoris, gain, r->e);
    /* if neither matrix of a LoKr is factorized, alpha does not scale their product */
    if (!rank)
        return XD_OK;
    xd_status s = read_alpha(r, m->slot[XD_LORA_ALPHA], &alpha);
    *gain = alpha / (double)rank;
    return s;
}

static int is_input(const reader *r, const xd_lora_target *a)
{
    return r->names->input && a->n == 1 && a->part == 0 &&
           strcmp(declared_tensor(r, a, 0)->name, r->names->input) == 0;
}

/* Sets *cols to the number of channels that a LoRA file has for the transformer's input layer.
 * Channels that the file does not have are not changed, as by diffusers. */
static xd_status input_columns(const reader *r, const module *m, int64_t *cols)
{
    xd_tensor t = xd_st_shape(r->file, m->slot[XD_LORA_DOWN]);
    int64_t   own = t.nd == 2 ? t.d[1] : *cols;
    if (own > *cols)
        return xd_fail(r->e, XD_EINVAL,
                       "LoRA %s: it has %lld channels for %s, which has %lld in this model: such a "
                       "control LoRA must be given when a text-to-image model is opened",
                       r->path, (long long)own, m->name, (long long)*cols);
    if (own < *cols && (m->slot[XD_LORA_MAGNITUDE] >= 0 || m->slot[XD_LORA_DORA_SCALE] >= 0))
        return xd_fail(r->e, XD_EUNSUPPORTED,
                       "LoRA %s: %s has a DoRA magnitude for %lld of %lld channels, which is not "
                       "supported",
                       r->path, m->name, (long long)own, (long long)*cols);
    *cols = own;
    return XD_OK;
}

/* Reads a module's pair of low-rank matrices, and sets *gain to the factor by which the pair's
 * product is multiplied. */
static xd_status read_pair(reader *r, const module *m, const xd_lora_target *a, double *gain)
{
    int64_t down = m->slot[XD_LORA_DOWN], up = m->slot[XD_LORA_UP], rows, cols;
    if (down < 0 || up < 0)
        return xd_fail(r->e, XD_EFORMAT, "LoRA %s: %s has only its %s matrix", r->path, m->name,
                       down < 0 ? "up (B)" : "down (A)");
    total_extents(r, a, &rows, &cols);
    if (is_input(r, a) && input_columns(r, m, &cols) != XD_OK)
        return r->e->code;
    xd_status s = check_tensor(r, down, 0, cols, a);
    int64_t   rank = xd_st_shape(r->file, down).d[0];
    if (s == XD_OK)
        s = check_tensor(r, up, rows, rank, a);
    if (s == XD_OK)
        s = read_gain(r, m, rank, 0, gain);
    if (s != XD_OK)
        return s;
    *gain *= r->l->scale[r->i];
    return push_all(
        r, m, a,
        (xd_lora_term){
            .up = up, .down = down, .cols = cols, .rank = rank, .gain = *gain, .magnitude = -1 });
}

/* Reads a tensor of full rank that is added to a weight or a bias, or replaces it. */
static xd_status read_whole(reader *r, const module *m, xd_lora_slot slot, const xd_lora_target *a,
                            double gain)
{
    xd_lora_term   t = { .up = m->slot[slot],
                         .down = -1,
                         .gain = gain,
                         .magnitude = -1,
                         .replaces = slot == XD_LORA_NEW || slot == XD_LORA_NEW_BIAS };
    xd_lora_target weight;
    int64_t        rows, cols;
    if (a->halves && xd_lora_target_of(r->names, m->name, 0, &weight))
        total_extents(r, &weight, &rows, &t.width);
    total_extents(r, a, &rows, &cols);
    xd_status s = check_tensor(r, t.up, rows, cols, a);
    return s == XD_OK ? push_all(r, slot == XD_LORA_DIFF ? m : NULL, a, t) : s;
}

/* ---- LoHa and LoKr ------------------------------------------------------------------------ */

/* A product of two factors (LoHa or LoKr). slot[k] lists the roles of the tensors of factor k: the
 * unfactorized matrix (-1 if this method has none), then the low-rank matrices a and b. */
typedef struct method {
    xd_lora_kind kind;
    int          slot[2][3];
} method;

static const method methods[] = {
    { XD_LORA_HADAMARD,
      { { -1, XD_LORA_HADA_1A, XD_LORA_HADA_1B }, { -1, XD_LORA_HADA_2A, XD_LORA_HADA_2B } } },
    { XD_LORA_KRONECKER,
      { { XD_LORA_KRON_1, XD_LORA_KRON_1A, XD_LORA_KRON_1B },
        { XD_LORA_KRON_2, XD_LORA_KRON_2A, XD_LORA_KRON_2B } } },
};

static int64_t tensor_at(const module *m, int slot)
{
    return slot < 0 ? -1 : m->slot[slot];
}

static int uses_method(const module *m, const method *w)
{
    for (int i = 0; i < 6; i++)
        if (tensor_at(m, w->slot[i / 3][i % 3]) >= 0)
            return 1;
    return 0;
}

/* Checks a tensor of a LoHa or LoKr factor, and returns the tensor's shape as that of a matrix. */
static xd_status check_factor(reader *r, int64_t i, const xd_lora_target *a, int64_t *rows,
                              int64_t *cols)
{
    xd_tensor t = xd_st_shape(r->file, i);
    *rows = t.nd ? t.d[0] : 0;
    if (!*rows || !xd_count(t))
        return xd_fail(r->e, XD_EFORMAT, "LoRA %s: %s is empty", r->path, xd_st_name(r->file, i));
    *cols = xd_count(t) / *rows;
    return check_tensor(r, i, *rows, *cols, a);
}

static xd_status read_one_factor(reader *r, const module *m, const int slot[3],
                                 const xd_lora_target *a, xd_lora_factor *f)
{
    int64_t whole = tensor_at(m, slot[0]), up = tensor_at(m, slot[1]), down = tensor_at(m, slot[2]);
    int64_t rank = 0;
    if (whole < 0 && (up < 0 || down < 0))
        return xd_fail(r->e, XD_EFORMAT, "LoRA %s: %s lacks a factor of its product", r->path,
                       m->name);
    *f = (xd_lora_factor){ .a = whole < 0 ? up : whole, .b = whole < 0 ? down : -1 };
    xd_status s = check_factor(r, f->a, a, &f->rows, f->b < 0 ? &f->cols : &f->rank);
    if (s == XD_OK && f->b >= 0)
        s = check_factor(r, f->b, a, &rank, &f->cols);
    if (s == XD_OK && rank != f->rank)
        s = xd_fail(r->e, XD_EFORMAT, "LoRA %s: %s has the rank %lld, but %s has %lld", r->path,
                    xd_st_name(r->file, f->a), (long long)f->rank, xd_st_name(r->file, f->b),
                    (long long)rank);
    return s;
}

/* Returns 1 if this is the shape of the product of a term's two factors. */
static int factors_fit(const xd_lora_term *t, int64_t rows, int64_t cols)
{
    const xd_lora_factor *f = t->w;
    if (t->kind == XD_LORA_HADAMARD)
        return f[0].rows == rows && f[1].rows == rows && f[0].cols == cols && f[1].cols == cols;
    return f[0].rows * f[1].rows == rows && f[0].cols * f[1].cols == cols;
}

/* Reads the two factors of a LoHa or LoKr module. */
static xd_status read_factors(reader *r, const module *m, const method *w, const xd_lora_target *a)
{
    xd_lora_term t = {
        .kind = w->kind, .up = -1, .down = -1, .gain = r->l->scale[r->i], .magnitude = -1
    };
    xd_status s = XD_OK;
    int64_t   rows, cols;
    double    ratio = 1;
    for (int k = 0; k < 2 && s == XD_OK; k++)
        s = read_one_factor(r, m, w->slot[k], a, &t.w[k]);
    total_extents(r, a, &rows, &cols);
    if (s == XD_OK && (r->misfit = !factors_fit(&t, rows, cols)))
        s = xd_fail(r->e, XD_EFORMAT,
                    "LoRA %s: the product of the factors of %s, %lldx%lld and "
                    "%lldx%lld, is not %lldx%lld as in this model; " CURE,
                    r->path, m->name, (long long)t.w[0].rows, (long long)t.w[0].cols,
                    (long long)t.w[1].rows, (long long)t.w[1].cols, (long long)rows,
                    (long long)cols);
    if (s == XD_OK)
        s = read_gain(r, m, t.w[1].rank ? t.w[1].rank : t.w[0].rank, 1, &ratio);
    t.gain *= ratio;
    return s == XD_OK ? push_all(r, m, a, t) : s;
}

/* ---- one file ----------------------------------------------------------------------------- */

static void note_key(some_keys *l, const char *name)
{
    size_t at = strlen(l->first);
    if (l->n++ < SHOWN)
        snprintf(l->first + at, sizeof l->first - at, "%s%s", at ? ", " : "", name);
}

/* Whether a tensor of the file is used. */
enum { UNKNOWN, USED, IDLE };

static void count_tensor(reader *r, const char *name, int became)
{
    if (became == USED)
        r->used++;
    else if (became == IDLE)
        note_key(&r->idle, name);
    else if (xd_lora_left_out(r->names, name))
        r->left++;
    else
        note_key(&r->strange, name);
}

/* In a file that has the transformer twice, under diffusers' names and under Kohya's names, returns
 * 1 if the key belongs to the second copy. */
static int is_double(const reader *r, const char *name)
{
    return r->has_plain &&
           (strncmp(name, "lora_unet_", 10) == 0 || strncmp(name, "lora_transformer_", 17) == 0);
}

/* Marks the model's tensors for which the LoRA file has a separate module. The keys must be sorted
 * by module. */
static xd_status mark_alone(reader *r, const key *k, int n)
{
    for (int i = 0; i < XD_LORA_COMPONENTS; i++)
        if (r->names->part[i] && !(r->alone[i] = calloc((size_t)r->names->part[i]->nlist + 1, 1)))
            return xd_fail(r->e, XD_ENOMEM, "no memory for the modules of LoRA %s", r->path);
    for (int i = 0; i < n; i++) {
        char           name[XD_LORA_NAME];
        xd_lora_target t;
        if (k[i].slot == XD_LORA_OTHER || k[i].len >= sizeof name)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)k[i].len, k[i].name);
        if (!is_double(r, name) && xd_lora_target_of(r->names, name, 0, &t) && t.n == 1)
            r->alone[t.part][t.item[0]] = 1;
    }
    return XD_OK;
}

/* Checks a fused module, which changes several of the model's tensors. Some files have queries,
 * keys and values twice: as one fused module and as three separate modules. If the file has all
 * three separate modules, sets *skip to 1, so that the fused module is not used. Refuses a file
 * that has the fused module and only some of the three modules. */
static xd_status check_fused(const reader *r, const module *m, int *skip)
{
    xd_lora_target t;
    int            have = 0, last = 0;
    *skip = 0;
    if (!xd_lora_target_of(r->names, m->name, 0, &t) || t.n == 1)
        return XD_OK;
    for (int k = 0; k < t.n; k++)
        if (r->alone[t.part][t.item[k]])
            have++, last = k;
    *skip = have == t.n;
    if (!have || *skip)
        return XD_OK;
    const char *of = declared_tensor(r, &t, last)->name;
    return xd_fail(r->e, XD_EFORMAT,
                   "LoRA %s: %s contains %.*s, which the file has separately, "
                   "too",
                   r->path, m->name, (int)strcspn(of, "|"), of);
}

static void leave_idle(int taken[XD_LORA_SLOTS])
{
    for (int i = 0; i < XD_LORA_SLOTS; i++)
        taken[i] = IDLE;
}

static void take_magnitude(int taken[XD_LORA_SLOTS])
{
    taken[XD_LORA_MAGNITUDE] = taken[XD_LORA_DORA_SCALE] = USED;
}

/* Reads a module's products of two factors (LoHa and LoKr). */
static xd_status read_products(reader *r, const module *m, int taken[XD_LORA_SLOTS])
{
    xd_lora_target target;
    xd_status      s = XD_OK;
    for (size_t i = 0; i < sizeof methods / sizeof *methods && s == XD_OK; i++) {
        if (!uses_method(m, &methods[i]) || !xd_lora_target_of(r->names, m->name, 0, &target))
            continue;
        s = read_factors(r, m, &methods[i], &target);
        for (int k = 0; k < 6; k++)
            if (methods[i].slot[k / 3][k % 3] >= 0)
                taken[methods[i].slot[k / 3][k % 3]] = USED;
        taken[XD_LORA_ALPHA] = USED;
        take_magnitude(taken);
    }
    return s;
}

static xd_status read_extra(reader *r, const module *m, xd_lora_slot slot, int bias, double gain,
                            int taken[XD_LORA_SLOTS])
{
    xd_lora_target target;
    if (m->slot[slot] < 0 || !xd_lora_target_of(r->names, m->name, bias, &target))
        return XD_OK;
    taken[slot] = USED;
    if (slot == XD_LORA_DIFF)
        take_magnitude(taken);
    return read_whole(r, m, slot, &target, gain);
}

/* Adds the terms of a module. For the tensor of each slot, sets taken[slot] to USED, or to IDLE if
 * the tensor duplicates others. */
static xd_status read_module(reader *r, const module *m, int taken[XD_LORA_SLOTS])
{
    /* Replacing tensors come first in the list, so that differences are added to the replaced
     * tensors. */
    static const struct {
        xd_lora_slot slot;
        int          bias;
    } whole[] = {
        { XD_LORA_NEW, 0 },     { XD_LORA_NEW_BIAS, 1 },  { XD_LORA_DIFF, 0 },
        { XD_LORA_UP_BIAS, 1 }, { XD_LORA_DIFF_BIAS, 1 },
    };
    xd_lora_target target;
    double         scale = r->l->scale[r->i], gain = scale;
    xd_status      s = XD_OK;
    int            pair = m->slot[XD_LORA_DOWN] >= 0 || m->slot[XD_LORA_UP] >= 0;
    int            skip = 0;
    if (!is_double(r, m->name))
        s = check_fused(r, m, &skip);
    else
        skip = 1;
    if (skip)
        leave_idle(taken);
    if (s != XD_OK || skip)
        return s;
    for (int i = 0; i < 2 && s == XD_OK; i++)
        s = read_extra(r, m, whole[i].slot, whole[i].bias, scale, taken);
    if (s == XD_OK && pair && xd_lora_target_of(r->names, m->name, 0, &target)) {
        s = read_pair(r, m, &target, &gain);
        taken[XD_LORA_DOWN] = taken[XD_LORA_UP] = taken[XD_LORA_ALPHA] = USED;
        take_magnitude(taken);
    }
    if (s == XD_OK)
        s = read_products(r, m, taken);
    for (int i = 2; i < 5 && s == XD_OK; i++)
        s = read_extra(r, m, whole[i].slot, whole[i].bias,
                       whole[i].slot == XD_LORA_UP_BIAS ? gain : scale, taken);
    return s;
}

/* Reads a module as read_module does. If `partial` is set, ignores a module whose shapes differ
 * from the model's. */
static xd_status read_fitting(reader *r, const module *m, int taken[XD_LORA_SLOTS])
{
    const int    terms = r->l->nterms;
    const xd_err before = *r->e;
    xd_status    s;
    r->misfit = 0;
    s = read_module(r, m, taken);
    if (s == XD_OK || !r->misfit || !r->partial)
        return s;
    *r->e = before;
    r->l->nterms = terms;
    memset(taken, 0, XD_LORA_SLOTS * sizeof *taken);
    return XD_OK;
}

static int by_module(const void *a, const void *b)
{
    const key *x = a, *y = b;
    size_t     n = x->len < y->len ? x->len : y->len;
    int        c = memcmp(x->name, y->name, n);
    if (c || x->len != y->len)
        return c ? c : x->len < y->len ? -1 : 1;
    return x->at < y->at ? -1 : 1;
}

/* Reads all keys of one module, k[0..n). */
static xd_status read_all_keys(reader *r, const key *k, int n)
{
    module m = { 0 };
    int    taken[XD_LORA_SLOTS] = { 0 };
    snprintf(m.name, sizeof m.name, "%.*s", (int)k->len, k->name);
    for (int i = 0; i < XD_LORA_SLOTS; i++)
        m.slot[i] = -1;
    for (int i = 0; i < n; i++) {
        if (k[i].slot == XD_LORA_OTHER)
            continue;
        if (m.slot[k[i].slot] >= 0)
            return xd_fail(r->e, XD_EFORMAT, "LoRA %s: %s and %s are the same matrix", r->path,
                           xd_st_name(r->file, m.slot[k[i].slot]), k[i].name);
        m.slot[k[i].slot] = k[i].at;
    }
    xd_status s = k->len < sizeof m.name ? read_fitting(r, &m, taken) : XD_OK;
    for (int i = 0; i < n && s == XD_OK; i++)
        count_tensor(r, k[i].name, k[i].slot == XD_LORA_OTHER ? UNKNOWN : taken[k[i].slot]);
    return s;
}

static xd_status read_keys(reader *r, key *k, int n)
{
    xd_status s = XD_OK;
    for (int i = 0; i < n; i++) {
        k[i].name = xd_st_name(r->file, i);
        k[i].at = i;
        k[i].slot = xd_lora_slot_of(k[i].name, &k[i].len);
        r->has_plain |= strncmp(k[i].name, "transformer.", 12) == 0;
        if (k[i].slot == XD_LORA_UNSUPPORTED)
            return xd_fail(r->e, XD_EUNSUPPORTED,
                           "LoRA %s: %s belongs to an unsupported method "
                           "(OFT, Tucker factors, ...); supported: LoRA, DoRA, LoHa and LoKr",
                           r->path, k[i].name);
        if ((k[i].slot == XD_LORA_NEW || k[i].slot == XD_LORA_NEW_BIAS) &&
            !xd_lora_notes_replace(r->notes) && !(r->names->input && xd_lora_is_gain(k[i].name)))
            k[i].slot = XD_LORA_OTHER, k[i].len = strlen(k[i].name);
    }
    qsort(k, (size_t)n, sizeof *k, by_module);
    s = mark_alone(r, k, n);
    for (int i = 0, j; i < n && s == XD_OK; i = j) {
        for (j = i + 1; j < n && k[j].len == k[i].len; j++)
            if (memcmp(k[j].name, k[i].name, k[i].len) != 0)
                break;
        s = read_all_keys(r, k + i, j - i);
    }
    return s;
}

/* Refuses a file if some tensors fit none of the model's tensors. Warns about unused tensors. */
static xd_status check_keys(const reader *r, int n)
{
    const some_keys *o = &r->strange, *i = &r->idle;
    if (!r->used)
        return xd_fail(r->e, XD_EFORMAT, "LoRA %s: none of its %d tensors fits this model%s%s",
                       r->path, n, o->n ? "; their names are " : "", o->first);
    if (o->n && !r->partial)
        return xd_fail(r->e, XD_EFORMAT,
                       "LoRA %s: %d of its %d tensors fit nothing in this model: "
                       "%s%s; " CURE,
                       r->path, o->n, n, o->first, o->n > SHOWN ? ", ..." : "");
    if (o->n)
        xd_log(XD_LOG_WARN,
               "LoRA %s: ignoring %d of %d tensors that do not fit this model: "
               "%s%s",
               r->path, o->n, n, o->first, o->n > SHOWN ? ", ..." : "");
    if (i->n)
        xd_log(XD_LOG_WARN, "LoRA %s: %d of its %d tensors are not used: %s%s", r->path, i->n, n,
               i->first, i->n > SHOWN ? ", ..." : "");
    if (r->left)
        xd_log(XD_LOG_WARN,
               "LoRA %s: ignoring %d of %d tensors for text encoders that are "
               "absent",
               r->path, r->left, n);
    return XD_OK;
}

static xd_status read_file(reader *r)
{
    int       n = (int)xd_st_count(r->file);
    key      *k = malloc((size_t)n * sizeof *k + 1);
    xd_status s = k ? xd_lora_notes_open(&r->notes, r->path, r->file, r->names, r->e)
                    : xd_fail(r->e, XD_ENOMEM, "no memory for LoRA %s", r->path);
    if (s == XD_OK)
        s = read_keys(r, k, n);
    free(k);
    if (s == XD_OK)
        r->l->noted[r->i] = xd_lora_notes_hash(r->notes, (uint64_t)r->strange.n);
    xd_lora_notes_close(&r->notes);
    for (int i = 0; i < XD_LORA_COMPONENTS; i++)
        free(r->alone[i]);
    return s == XD_OK ? check_keys(r, n) : s;
}

static xd_status open_file(xd_loras *l, int i, const xd_lora *asked, const xd_lora_keys *names,
                           int partial, xd_err *e)
{
    reader r = { .l = l, .i = i, .path = asked->path, .names = names, .partial = partial, .e = e };
    if (!asked->path || !*asked->path)
        return xd_fail(e, XD_EINVAL, "LoRA %d has no file", i + 1);
    if (!isfinite(asked->scale) || fabs(asked->scale) > 1e6)
        return xd_fail(e, XD_EINVAL, "LoRA %s has the scale %g; it must be from -1e6 to 1e6",
                       asked->path, asked->scale);
    if (!(l->path[i] = strdup(asked->path)))
        return xd_fail(e, XD_ENOMEM, "no memory for LoRA %s", asked->path);
    l->scale[i] = asked->scale;
    xd_status s = xd_st_open(&l->file[i], asked->path, xd_lora_stem(asked->path), e);
    r.file = l->file[i];
    for (int64_t t = 0; s == XD_OK && t < xd_st_count(r.file); t++)
        if (xd_dtype_block(xd_st_shape(r.file, t).type) > 1)
            s = xd_fail(e, XD_EUNSUPPORTED,
                        "LoRA %s: tensor %s has the type %s: a LoRA in f32, "
                        "f16 or bf16 is supported",
                        asked->path, xd_st_name(r.file, t), xd_st_dtype(r.file, t));
    return s == XD_OK ? read_file(&r) : s;
}

/* ---- all of them -------------------------------------------------------------------------- */

static int by_tensor(const void *a, const void *b)
{
    const xd_lora_term *x = a, *y = b;
    if (x->part != y->part)
        return x->part - y->part;
    return x->item != y->item ? x->item - y->item : x->order - y->order;
}

static xd_status put_sources(xd_loras *l, const xd_lora_keys *names, xd_err *e)
{
    xd_status s = XD_OK;
    if (l->nterms)
        qsort(l->terms, (size_t)l->nterms, sizeof *l->terms, by_tensor);
    for (int i = 0, j; i < l->nterms && s == XD_OK; i = j) {
        int part = l->terms[i].part;
        for (j = i; j < l->nterms && l->terms[j].part == part; j++)
            continue;
        s = xd_lora_src_open(&l->src[part], names->part[part], l->terms + i, j - i, e);
    }
    return s;
}

static xd_status open_all(xd_loras **out, const xd_lora *asked, int n, xd_model *m, int second,
                          xd_err *e)
{
    xd_lora_keys names = { .n = 0 };
    xd_loras    *l = *out = calloc(1, sizeof *l);
    if (l) {
        l->path = calloc((size_t)n, sizeof *l->path);
        l->scale = calloc((size_t)n, sizeof *l->scale);
        l->file = calloc((size_t)n, sizeof *l->file);
        l->noted = calloc((size_t)n, sizeof *l->noted);
    }
    if (!l || !l->path || !l->scale || !l->file || !l->noted)
        return xd_fail(e, XD_ENOMEM, "no memory for %d LoRA files", n);
    xd_status s = xd_lora_keys_open(&names, m, second, e);
    for (l->n = 0; l->n < n && s == XD_OK; l->n++)
        s = open_file(l, l->n, &asked[l->n], &names, m->lora_partial, e);
    if (s == XD_OK)
        s = put_sources(l, &names, e);
    xd_lora_keys_close(&names);
    return s;
}

/* Sets *channels to at least the number of channels that a LoRA file has for the input layer. */
static xd_status count_channels(const xd_lora_keys *names, const xd_lora *asked, int64_t *channels,
                                xd_err *e)
{
    xd_st    *file = NULL;
    reader    r = { .names = names };
    xd_status s = xd_st_open(&file, asked->path, xd_lora_stem(asked->path), e);
    for (int64_t i = 0; s == XD_OK && i < xd_st_count(file); i++) {
        char           name[XD_LORA_NAME];
        size_t         n;
        xd_lora_target t;
        xd_tensor      of = xd_st_shape(file, i);
        if (xd_lora_slot_of(xd_st_name(file, i), &n) != XD_LORA_DOWN || n >= sizeof name ||
            of.nd != 2)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)n, xd_st_name(file, i));
        if (xd_lora_target_of(names, name, 0, &t) && is_input(&r, &t) && of.d[1] > *channels)
            *channels = of.d[1];
    }
    xd_st_close(&file);
    return s;
}

xd_status xd_loras_channels(const xd_lora *asked, int n, xd_model *m, int64_t *channels, xd_err *e)
{
    xd_lora_keys names = { .n = 0 };
    xd_status    s = XD_OK;
    *channels = 0;
    if (n < 1 || !m->dit.dit->input)
        return XD_OK;
    s = xd_lora_keys_open(&names, m, 0, e);
    for (int i = 0; i < n && s == XD_OK; i++)
        if (asked[i].path && *asked[i].path)
            s = count_channels(&names, &asked[i], channels, e);
    xd_lora_keys_close(&names);
    return s;
}

xd_status xd_loras_open(xd_loras **out, const xd_lora *asked, int n, xd_model *m, xd_err *e)
{
    *out = NULL;
    if (n < 1)
        return XD_OK;
    if (m->only_low)
        return xd_fail(e, XD_EINVAL,
                       "LoRA %s (--lora) is for the high-noise transformer, but %s "
                       "has only the low-noise one: use --lora_2",
                       asked[0].path, m->dir);
    return open_all(out, asked, n, m, 0, e);
}

xd_status xd_loras_open_2(xd_loras **out, const xd_lora *asked, int n, xd_model *m, xd_err *e)
{
    *out = NULL;
    if (n < 1)
        return XD_OK;
    if (!m->only_low && !m->dit2.dit)
        return xd_fail(e, XD_EINVAL,
                       "LoRA %s (--lora_2) is for a second transformer, but %s has "
                       "only one: use --lora",
                       asked[0].path, m->dir);
    return open_all(out, asked, n, m, 1, e);
}

void xd_loras_close(xd_loras **l)
{
    if (!l || !*l)
        return;
    for (int k = 0; k < XD_LORA_COMPONENTS; k++)
        xd_lora_src_close(&(*l)->src[k]);
    for (int i = 0; i < (*l)->n; i++) {
        xd_st_close(&(*l)->file[i]);
        free((*l)->path[i]);
    }
    free((*l)->path);
    free((*l)->scale);
    free((*l)->file);
    free((*l)->noted);
    free((*l)->terms);
    free(*l);
    *l = NULL;
}
