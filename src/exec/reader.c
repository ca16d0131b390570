/* reader.c - reads tensors of a source as f32 rows, and quantizes rows on the host */
#include "exec/reader.h"

#include <stdio.h>
#include <string.h>

#include "backend/four.h"
#include "exec/matrix.h"

xd_status xd_reader_open(xd_reader *r, const xd_source *src, const char *name, xd_err *e)
{
    const xd_source_sums *sums = src->sums;
    *r = (xd_reader){ .src = src, .scale = 1 };
    xd_status s = src->get(src->self, name, &r->t, e);
    if (s != XD_OK)
        return s;
    snprintf(r->name, sizeof r->name, "%s", name);
    r->rows = r->t.nd ? r->t.d[0] : 1;
    r->cols = r->rows ? xd_count(r->t) / r->rows : 0;
    if (src->codes && xd_is_coded(r->t.type) && src->codes(src->self, name, &r->codes))
        r->codes.data = r->t.p;
    if (src->scale)
        s = src->scale(src->self, name, &r->scale, e);
    if (s == XD_OK && sums && sums->has(src->sums_self, name))
        s = sums->open(src->sums_self, name, &(xd_span){ 0, r->cols }, 1, &r->sum, e);
    return s;
}

void xd_reader_close(xd_reader *r)
{
    if (r->sum)
        r->src->sums->close(r->sum);
    if (r->name[0] && r->src->done)
        r->src->done(r->src->self, r->name);
    *r = (xd_reader){ 0 };
}

int xd_reader_plain(const xd_reader *r)
{
    return !r->sum && !r->codes.read && r->scale == 1.0f;
}

void xd_reader_rows(const xd_reader *r, int64_t row, int64_t n, float *to, int thread)
{
    for (int64_t k = 0; k < n && r->codes.read; k++)
        xd_load_decoded(to + k * r->cols, XD_F32, &r->codes, row + k, 0, r->cols);
    if (!r->codes.read)
        xd_load_elements(to, XD_F32, r->t, row * r->cols, n * r->cols, r->scale);
    if (r->sum)
        r->src->sums->add(r->sum, row, n, to, thread);
}

void xd_reader_past(const xd_reader *r, int64_t row, int64_t n)
{
    const size_t from = xd_dtype_bytes(r->t.type, row * r->cols);
    /* The file may store the rows of quantized codes in another order, so their pages are not
     * released here. */
    if (r->src->past && !r->codes.read)
        r->src->past(r->src->self, r->name, (const char *)r->t.p + from,
                     xd_dtype_bytes(r->t.type, (row + n) * r->cols) - from);
}

/* Rounds a number of magnitude below 2^22 to the nearest integer, halves to even. After 1.5 * 2^23
 * is added, an f32 has no bits for a fraction, so the addition itself rounds. */
static float nearest(float v)
{
    const float big = 12582912.0f;
    return (v + big) - big;
}

int xd_reader_keeps(const xd_reader *r, xd_dtype type)
{
    if (r->sum || r->codes.rotate)
        return 0;
    return r->codes.read ? r->codes.type == type : type == XD_F8E4M3 && r->t.type == type;
}

/* Converts a row x that was read with its scale back to the stored elements: x / scale, rounded. */
float xd_reader_codes(const xd_reader *r, int64_t row, const float *x, void *to)
{
    const int   eight = r->codes.read && r->codes.type == XD_I8;
    const float s = r->codes.read ? r->codes.scale(&r->codes, row) : r->scale;
    int8_t     *q = to;
    uint8_t    *f = to;
    for (int64_t i = 0; i < r->cols && eight; i++)
        q[i] = (int8_t)(s > 0 ? nearest(x[i] / s) : 0);
    for (int64_t i = 0; i < r->cols && !eight; i++)
        f[i] = s != 0 ? xd_f32_f8e4m3(x[i] / s) : 0;
    return s;
}

int xd_reader_fours(const xd_reader *r, int64_t rotate, const void **at)
{
    *at = (const char *)r->codes.data + xd_dtype_bytes(XD_Q4_0, r->codes.first * r->cols);
    return r->codes.read && r->codes.type == XD_Q4_0 && r->codes.rotate == rotate && !r->sum &&
           !r->codes.turn;
}

float xd_quantize_row(xd_dtype type, const float *x, int64_t n, void *to)
{
    const xd_tensor row = xd_view((void *)(uintptr_t)x, XD_F32, 1, &n);
    const float     s = xd_quant_scale(type, xd_load_most(row, 0, n, 1));
    int8_t         *q = to;
    uint8_t        *f = to;
    memset(to, 0, (size_t)n);
    if (!(s > 0))
        return s;
    for (int64_t i = 0; i < n && type == XD_I8; i++) {
        float v = nearest(x[i] / s); /* exceeds 127 only if s was rounded down */
        q[i] = (int8_t)(v > 127 ? 127 : v < -127 ? -127 : v);
    }
    for (int64_t i = 0; i < n && type == XD_F8E4M3; i++)
        f[i] = xd_f32_f8e4m3(x[i] / s);
    return s;
}

void xd_quantize_fours(float *x, int64_t n, int64_t rotate, void *to)
{
    if (rotate)
        xd_four_rotate(x, n, rotate);
    xd_four_quantize(to, x, n);
}
