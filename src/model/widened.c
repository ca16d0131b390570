/* widened.c - returns a tensor with columns of zeros after its own columns
 *
 * The tensor is small: it is the layer of a transformer that reads the latents. So it is decoded
 * and copied once, when the source is opened. */
#include "model/widened.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/reader.h"

struct xd_widened {
    xd_source from;
    char      name[512];
    xd_tensor t; /* the wider tensor; t.p is malloc'ed */
};

static int is_wide(const xd_widened *w, const char *name)
{
    return strcmp(w->name, name) == 0;
}

static int src_has(void *self, const char *name, xd_tensor *shape)
{
    const xd_widened *w = self;
    if (!is_wide(w, name))
        return w->from.has(w->from.self, name, shape);
    *shape = w->t;
    shape->p = NULL;
    return 1;
}

static xd_status src_get(void *self, const char *name, xd_tensor *t, xd_err *e)
{
    const xd_widened *w = self;
    if (!is_wide(w, name))
        return w->from.get(w->from.self, name, t, e);
    *t = w->t;
    return XD_OK;
}

static void src_done(void *self, const char *name)
{
    const xd_widened *w = self;
    if (!is_wide(w, name) && w->from.done)
        w->from.done(w->from.self, name);
}

static xd_status src_scale(void *self, const char *name, float *scale, xd_err *e)
{
    const xd_widened *w = self;
    *scale = 1;
    return is_wide(w, name) || !w->from.scale ? XD_OK : w->from.scale(w->from.self, name, scale, e);
}

static void src_past(void *self, const char *name, const void *at, size_t bytes)
{
    const xd_widened *w = self;
    if (!is_wide(w, name) && w->from.past)
        w->from.past(w->from.self, name, at, bytes);
}

static void src_will(void *self, const char *name, int64_t first, int64_t n)
{
    const xd_widened *w = self;
    if (!is_wide(w, name) && w->from.will)
        w->from.will(w->from.self, name, first, n);
}

static int src_codes(void *self, const char *name, xd_coding *c)
{
    const xd_widened *w = self;
    return !is_wide(w, name) && w->from.codes && w->from.codes(w->from.self, name, c);
}

/* Copies the rows, in f32 unless they are stored as bf16 or f16 numbers. */
static xd_status copy_rows(xd_widened *w, const xd_reader *r, int64_t cols, xd_err *e)
{
    const int      half = r->t.type == XD_BF16 || r->t.type == XD_F16;
    const xd_dtype type = xd_reader_plain(r) && half ? r->t.type : XD_F32;
    const size_t   each = xd_dtype_size(type);
    char          *to = calloc((size_t)(r->rows * cols) + 1, each);
    float         *row = malloc((size_t)r->cols * sizeof *row + 1);
    if (!to || !row) {
        free(to);
        free(row);
        return xd_fail(e, XD_ENOMEM, "no memory for tensor %s", w->name);
    }
    w->t = xd_view2(to, type, r->rows, cols);
    for (int64_t i = 0; i < r->rows; i++) {
        xd_reader_rows(r, i, 1, row, 0);
        xd_convert(to + (size_t)(i * cols) * each, type, row, XD_F32, r->cols);
    }
    free(row);
    return XD_OK;
}

xd_status xd_widened_open(xd_widened **out, const xd_source *from, const char *name, int64_t cols,
                          xd_err *e)
{
    xd_widened *w = *out = calloc(1, sizeof *w);
    xd_reader   r;
    if (!w)
        return xd_fail(e, XD_ENOMEM, "no memory for tensor %s", name);
    w->from = *from;
    snprintf(w->name, sizeof w->name, "%s", name);
    xd_status s = xd_reader_open(&r, from, name, e);
    if (s == XD_OK && (r.t.nd != 2 || r.cols > cols))
        s = xd_fail(e, XD_EFORMAT, "tensor %s has %lld columns, more than %lld", name,
                    (long long)r.cols, (long long)cols);
    if (s == XD_OK)
        s = copy_rows(w, &r, cols, e);
    xd_reader_close(&r);
    return s;
}

xd_source xd_widened_source(const xd_widened *w)
{
    xd_source s = w->from;
    s.has = src_has, s.get = src_get, s.done = src_done, s.scale = src_scale;
    s.past = src_past, s.will = src_will, s.codes = src_codes;
    s.self = (void *)(uintptr_t)w;
    return s;
}

void xd_widened_close(xd_widened **w)
{
    if (*w)
        free((*w)->t.p);
    free(*w);
    *w = NULL;
}
