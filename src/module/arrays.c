/* arrays.c - makes tensors from the program's arrays, and reads named arrays as the weights of a
 * component */
#include <stdlib.h>
#include <string.h>

#include "module/inside.h"

/* ---- one array ----------------------------------------------------------------------------- */

static int read_type(const char *name, xd_dtype *type)
{
    static const xd_dtype types[] = { XD_F32, XD_BF16, XD_F16 };
    for (size_t i = 0; name && i < sizeof types / sizeof *types; i++)
        if (strcmp(name, xd_dtype_name(types[i])) == 0) {
            *type = types[i];
            return 1;
        }
    return 0;
}

xd_status xd_array_tensor(const xd_array *a, const char *what, xd_tensor *t, xd_err *e)
{
    const int64_t max = INT64_C(1) << 48;
    xd_dtype      type;
    int64_t       n = 1;
    if (!read_type(a->dtype, &type))
        return xd_fail(e, XD_EINVAL, "%s has the dtype %s; it can be one of: f32 bf16 f16", what,
                       a->dtype ? a->dtype : "(none)");
    if (a->nd < 0 || a->nd > XD_ARRAY_DIMS)
        return xd_fail(e, XD_EINVAL, "%s has %lld dimensions; the maximum is %d", what,
                       (long long)a->nd, XD_ARRAY_DIMS);
    for (int64_t i = 0; i < a->nd; i++) {
        if (a->d[i] < 0 || (a->d[i] && n > max / a->d[i]))
            return xd_fail(e, XD_EINVAL, "%s has a dimension of %lld", what, (long long)a->d[i]);
        n *= a->d[i];
    }
    if (n && !a->data)
        return xd_fail(e, XD_EINVAL, "%s has no data", what);
    *t = xd_view((void *)(uintptr_t)a->data, type, (int)a->nd, a->d);
    return XD_OK;
}

void xd_array_read(float *to, xd_tensor from, int64_t first, int64_t n)
{
    xd_convert(to, XD_F32, (const char *)from.p + xd_dtype_bytes(from.type, first), from.type, n);
}

/* ---- named arrays -------------------------------------------------------------------------- */

typedef struct entry {
    char     *name;
    xd_tensor t;
} entry;

struct xd_named {
    entry  *v; /* [n]: the program's arrays, sorted by name */
    int64_t n;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const entry *)a)->name, ((const entry *)b)->name);
}

xd_status xd_named_open(xd_named **out, const xd_array *v, int64_t n, const char *what, xd_err *e)
{
    xd_status s = XD_OK;
    xd_named *w = *out = calloc(1, sizeof *w);
    if (n < 0 || (n && !v))
        return xd_fail(e, XD_EINVAL, "%s has %lld weights, but the list is NULL", what,
                       (long long)n);
    if (!w || !(w->v = calloc((size_t)n + 1, sizeof *w->v)))
        return xd_fail(e, XD_ENOMEM, "no memory for a list of %lld weights", (long long)n);
    for (; w->n < n && s == XD_OK; w->n++) {
        const xd_array *a = &v[w->n];
        if (!a->name)
            s = xd_fail(e, XD_EINVAL, "weight %lld of %s has no name", (long long)w->n, what);
        else if (!(w->v[w->n].name = strdup(a->name)))
            s = xd_fail(e, XD_ENOMEM, "no memory for the name of weight %s", a->name);
        else
            s = xd_array_tensor(a, a->name, &w->v[w->n].t, e);
    }
    if (s != XD_OK)
        return s;
    qsort(w->v, (size_t)n, sizeof *w->v, by_name);
    for (int64_t i = 1; i < n; i++)
        if (by_name(&w->v[i - 1], &w->v[i]) == 0)
            return xd_fail(e, XD_EINVAL, "%s has two weights with the name %s", what, w->v[i].name);
    return XD_OK;
}

void xd_named_close(xd_named **out)
{
    xd_named *w = *out;
    for (int64_t i = 0; w && w->v && i < w->n; i++)
        free(w->v[i].name);
    if (w)
        free(w->v);
    free(w);
    *out = NULL;
}

static const entry *find_entry(const xd_named *w, const char *name)
{
    entry want = { .name = (char *)(uintptr_t)name };
    return bsearch(&want, w->v, (size_t)w->n, sizeof *w->v, by_name);
}

static int src_has(void *self, const char *name, xd_tensor *shape)
{
    const entry *f = find_entry(self, name);
    if (f) {
        *shape = f->t;
        shape->p = NULL;
    }
    return f != NULL;
}

static xd_status src_get(void *self, const char *name, xd_tensor *t, xd_err *e)
{
    const entry *f = find_entry(self, name);
    if (!f)
        return xd_fail(e, XD_EFORMAT, "weight %s is missing", name);
    *t = f->t;
    return XD_OK;
}

xd_source xd_named_source(xd_named *w, int in_place)
{
    return (xd_source){ .has = src_has, .get = src_get, .in_place = in_place, .self = w };
}
