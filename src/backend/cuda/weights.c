/* weights.c - packs weights: the rows of a linear layer are padded with zeros, and the filters of a
 * convolution are stored with channels last
 *
 * The rows of a weight are converted on the host, a few rows at a time, into a staging buffer of
 * pinned memory, which is then copied to the GPU. In device memory, the scales of a quantized
 * weight follow its rows. */
#include "backend/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

#include "base/minmax.h"

/* number of rows that a thread packs at a time */
enum { BAND = 64 };

/* Returns the number of elements between rows of a packed weight. For a linear layer this is a
 * multiple of 8, or of 16 if the elements have 8 bits, so that rows begin at multiples of 16
 * bytes. */
int64_t xd_cuda_weight_stride(const xd_weight *w)
{
    return w->nk ? w->in * xd_weight_taps(w)
                 : xd_round_up(w->in, xd_is_quantized(w->type) ? 16 : 8);
}

static size_t row_bytes(const xd_weight *w)
{
    return (size_t)xd_cuda_weight_stride(w) * xd_dtype_size(w->type);
}

static size_t scales_at(const xd_weight *w)
{
    return (size_t)xd_round_up(w->out * (int64_t)row_bytes(w), 16);
}

const float *xd_cuda_weight_scales(const xd_weight *w)
{
    return xd_is_quantized(w->type) ? (const float *)(const void *)((char *)w->p + scales_at(w))
                                    : NULL;
}

size_t xd_cuda_pack_size(xd_dev *d, xd_weight *w)
{
    (void)d;
    w->layout = 1;
    w->bytes = scales_at(w) + (xd_is_quantized(w->type) ? (size_t)w->out * sizeof(float) : 0);
    w->bytes += w->bytes == 0;
    return w->bytes;
}

size_t xd_cuda_pack_tmp(xd_dev *d, const xd_weight *w, xd_dtype src)
{
    (void)d, (void)w, (void)src;
    return 0;
}

int64_t xd_cuda_pack_band(xd_dev *d, const xd_weight *w)
{
    (void)d;
    return w->nk ? 0 : BAND;
}

/* ---- rows --------------------------------------------------------------------------------- */

/* Returns the largest magnitude of a row's elements, or NaN if an element is NaN or infinite. */
static float magnitude(const float *x, int64_t n)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++) {
        float v = x[i] < 0 ? -x[i] : x[i];
        if (!(v - v == 0))
            return v - v;
        most = v > most ? v : most;
    }
    return most;
}

/* Returns v rounded to the nearest integer, ties to even, and clamped to +-127. */
static int8_t integer_of(float v)
{
    const float shift = 12582912.0f; /* 1.5 * 2^23 */
    v = v > 127 ? 127 : v < -127 ? -127 : v;
    volatile float moved = v + shift;
    return (int8_t)(moved - shift);
}

/* Quantizes row `o` of the weight to the memory at `to`. The `in` elements of the row have the type
 * src and are read from `from`. Returns the scale of the row. */
static float quantize_row(void *to, const xd_weight *w, const char *from, xd_dtype src, int64_t o,
                          float *x)
{
    if (src == XD_F8E4M3 && w->type == XD_F8E4M3) {
        memcpy(to, from, (size_t)w->in);
        return w->scale ? w->scale[o] : 1;
    }
    xd_convert(x, XD_F32, from, src, w->in);
    float scale = w->scale ? w->scale[o] : xd_quant_scale(w->type, magnitude(x, w->in));
    if (!(scale > 0))
        return scale;
    for (int64_t i = 0; i < w->in; i++) {
        float v = x[i] / scale;
        if (w->type == XD_I8)
            ((int8_t *)to)[i] = integer_of(v);
        else
            ((uint8_t *)to)[i] = xd_f32_f8e4m3(v);
    }
    return scale;
}

/* Transposes one filter of a convolution from [in][taps] to [taps][in]. */
static void turn_filter(char *to, const xd_weight *w, const char *from, xd_dtype src)
{
    int64_t T = xd_weight_taps(w);
    size_t  e = xd_dtype_size(w->type), es = xd_dtype_size(src);
    for (int64_t i = 0; i < w->in; i++)
        for (int64_t t = 0; t < T; t++)
            xd_convert(to + (size_t)(t * w->in + i) * e, w->type, from + (size_t)(i * T + t) * es,
                       src, 1);
}

/* The host memory of one call that packs a weight: the elements and the scales of n rows. The
 * buffer for the packed rows is the staging buffer `rows`. */
typedef struct buffers {
    xd_cuda_pinned *rows;
    float          *x, *scale;
    int64_t         n;
} buffers;

static int open_buffers(buffers *b, const xd_weight *w, int64_t rows)
{
    b->n = xd_max(1, xd_min(rows, XD_CUDA_STAGE / xd_max((int64_t)row_bytes(w), 1)));
    b->x = malloc((size_t)xd_max(w->in, 1) * sizeof *b->x);
    b->scale = malloc((size_t)b->n * sizeof *b->scale);
    return b->x && b->scale;
}

static void close_buffers(buffers *b)
{
    free(b->x);
    free(b->scale);
}

/* Converts n rows from type src, and packs them into b->rows. The packed rows become the rows of
 * the weight from row `o` on. */
static void fill_rows(buffers *b, const xd_weight *w, const char *from, xd_dtype src, int64_t o,
                      int64_t n)
{
    size_t bytes = row_bytes(w);
    size_t each = (size_t)(w->in * xd_weight_taps(w)) * xd_dtype_size(src);
    memset(b->rows->p, 0, (size_t)n * bytes);
    for (int64_t i = 0; i < n; i++) {
        char       *to = b->rows->p + (size_t)i * bytes;
        const char *row = from + (size_t)i * each;
        if (xd_is_quantized(w->type))
            b->scale[i] = quantize_row(to, w, row, src, o + i, b->x);
        else if (w->nk)
            turn_filter(to, w, row, src);
        else
            xd_convert(to, w->type, row, src, w->in);
    }
}

static int can_pack(const xd_weight *w)
{
    if (row_bytes(w) > XD_CUDA_STAGE)
        return 0;
    return xd_is_quantized(w->type) ? !w->nk && (w->type != XD_I8 || w->in <= XD_INT8_MAX_INPUTS)
                                    : xd_types_has(XD_CUDA_TYPES, w->type);
}

xd_status xd_cuda_pack_rows(xd_dev *d, xd_weight *w, xd_tensor src, int64_t row0)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    int64_t      rows = src.d[0];
    size_t       each = (size_t)(w->in * xd_weight_taps(w)) * xd_dtype_size(src.type);
    size_t       bytes = row_bytes(w);
    buffers      b = { 0 };
    if (!can_pack(w))
        return XD_EUNSUPPORTED;
    xd_status s = open_buffers(&b, w, rows) ? XD_OK : XD_ENOMEM;
    for (int64_t i = 0; i < rows && s == XD_OK; i += b.n) {
        int64_t n = xd_min(b.n, rows - i), o = row0 + i;
        s = xd_cuda_stage_open(c, &b.rows);
        if (s != XD_OK)
            break;
        fill_rows(&b, w, (const char *)src.p + (size_t)i * each, src.type, o, n);
        s = xd_cuda_stage_send(c, b.rows, (char *)w->p + (size_t)o * bytes, (size_t)n * bytes);
        xd_cuda_stage_close(c, b.rows);
        if (s == XD_OK && xd_is_quantized(w->type))
            s = xd_cuda_upload(c, (char *)w->p + scales_at(w) + (size_t)o * sizeof(float), b.scale,
                               (size_t)n * sizeof(float));
    }
    close_buffers(&b);
    return s;
}

xd_status xd_cuda_pack(xd_dev *d, xd_weight *w, xd_tensor src, void *tmp)
{
    (void)tmp;
    return w->out && w->in ? xd_cuda_pack_rows(d, w, src, 0) : XD_OK;
}
