/* declare.c - checks that a checkpoint has all tensors that a model declares, in their shapes */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/weight.h"

enum { SHOWN = 10 }; /* max number of tensors that an error lists */

void xd_decl_free(xd_decl *d)
{
    free(d->list);
    d->list = NULL;
    d->nlist = d->caplist = 0;
}

/* Returns the length of the first of several names separated by "|". *next is the following name,
 * or NULL. */
static size_t first_of(const char *names, const char **next)
{
    const char *bar = strchr(names, '|');
    *next = bar ? bar + 1 : NULL;
    return bar ? (size_t)(bar - names) : strlen(names);
}

static int drop_ones(int n, const int64_t *d, int64_t out[XD_MAXDIM])
{
    int k = 0;
    for (int i = 0; i < n; i++)
        if (d[i] != 1)
            out[k++] = d[i];
    return k;
}

/* Returns 1 if a declared and a found shape are equal. Trailing extents of 1 are ignored, so that a
 * 1x1 convolution equals a matrix. Two changes that ggml files make to shapes are ignored, too:
 * leading extents of 1 are dropped, and of five extents the two outermost are merged. */
static int same_shape(int nd, const int64_t *declared, int found_nd, const int64_t *found)
{
    int64_t a[XD_MAXDIM + 1], b[XD_MAXDIM + 1], *from = a;
    int     na = drop_ones(nd, declared, a), nb = drop_ones(found_nd, found, b);
    int     trailing = found_nd;
    while (trailing > 0 && found[trailing - 1] == 1)
        trailing--;
    if (trailing > nd)
        return 0;
    if (nd == XD_MAXDIM && found_nd == XD_MAXDIM - 1 && na == nb + 1) {
        a[1] *= a[0];
        from++;
        na--;
    }
    return na == nb && memcmp(from, b, (size_t)na * sizeof *b) == 0;
}

static int is_float(xd_dtype t)
{
    return t == XD_F32 || t == XD_F16 || t == XD_BF16 || t == XD_F64 || t == XD_F8E4M3 ||
           t == XD_F8E5M2 || xd_dtype_block(t) > 1;
}

static int is_decoded(const xd_source *src, const char *name, xd_dtype t)
{
    xd_coding c;
    return xd_is_coded(t) && src->codes && src->codes(src->self, name, &c);
}

/* Describes the error if a declared tensor is missing from the checkpoint or has another shape
 * there. Writes "" if the tensor is right. */
static void describe_fault(const xd_declared *t, const xd_source *src, char *out, size_t size)
{
    char        want[96], got[96], name[512];
    xd_tensor   found;
    const char *next;
    out[0] = 0;
    for (const char *p = t->name; p; p = next) {
        size_t n = first_of(p, &next);
        snprintf(name, sizeof name, "%.*s", (int)n, p);
        if (!src->has(src->self, name, &found))
            continue;
        xd_shape_text(t->nd, t->d, want, sizeof want);
        xd_shape_text(found.nd, found.d, got, sizeof got);
        if (!same_shape(t->nd, t->d, found.nd, found.d))
            snprintf(out, size, "%s is %s, expected %s", name, got, want);
        else if (!is_float(found.type) && !is_decoded(src, name, found.type))
            snprintf(out, size, "%s has type %s, expected f32, f16, bf16 or fp8", name,
                     xd_dtype_name(found.type));
        return;
    }
    size_t n = first_of(t->name, &next);
    xd_shape_text(t->nd, t->d, want, sizeof want);
    snprintf(out, size, "%.*s (%s) is missing", (int)n, t->name, want);
}

xd_status xd_declared_check(const xd_declared *list, int n, const xd_source *src, const char *what,
                            xd_err *e)
{
    char   all[3200], one[1024];
    size_t at = 0;
    int    bad = 0;
    all[0] = 0;
    for (int i = 0; i < n; i++) {
        describe_fault(&list[i], src, one, sizeof one);
        if (!one[0])
            continue;
        if (bad++ < SHOWN && at < sizeof all) {
            int k = snprintf(all + at, sizeof all - at, "%s%s", at ? "; " : "", one);
            at += k > 0 ? (size_t)k : 0;
        }
    }
    if (!bad)
        return XD_OK;
    return xd_fail(e, XD_EFORMAT, "%s: %d of %d tensors do not fit the config: %s%s", what, bad, n,
                   all, bad > SHOWN ? "; ..." : "");
}
