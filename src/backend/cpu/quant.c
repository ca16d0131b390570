/* quant.c - computes GEMMs with quantized weights on any processor
 *
 * A packed weight starts with the F32 scales sw[out], one for each output, padded to a multiple of
 * 64 bytes. In an I8 weight, the scales are followed by rows of integers, padded to a multiple of
 * 64 bytes. In an e4m3 weight, the scales are followed by panels of 16 outputs, as in plain.c. A
 * GEMM with an I8 weight first writes its input to scratch, quantized to integers or (if the
 * weight's `floats` is 1) converted to f32. A GEMM with an e4m3 weight expands the weights of a
 * panel to f32, for DEEP inputs at a time. */
#include "backend/cpu/cpu.h"

#include <math.h>
#include <string.h>

#include "base/minmax.h"
#include "base/par.h"

enum {
    PANEL = 16,
    ROWS = XD_PLAIN_ROWS,
    COLS = XD_PLAIN_COLS, /* rows and columns of the output in a work item */
    DEEP = 256,           /* number of inputs whose e4m3 weights are expanded at a time */
    CHUNK = 1024,         /* number of elements of a row that are converted at a time */
};

static int64_t row_bytes(const xd_weight *w)
{
    return xd_round_up(w->in, 64);
}

static size_t scale_bytes(const xd_weight *w)
{
    return (size_t)xd_round_up(w->out * (int64_t)sizeof(float), 64);
}

/* ---- packing ------------------------------------------------------------------------------ */

size_t xd_quant_pack_size(xd_weight *w)
{
    int64_t numbers = w->type == XD_I8 ? w->out * row_bytes(w) : xd_round_up(w->out, PANEL) * w->in;
    w->layout = 1;
    w->bytes = scale_bytes(w) + (size_t)numbers;
    return w->bytes;
}

typedef struct pack_ctx {
    const xd_kernels *k;
    const xd_weight  *w;
    xd_tensor         src; /* rows of the unpacked weight, from row row0 on */
    int64_t           row0;
} pack_ctx;

static const char *source_at(const pack_ctx *c, int64_t o, int64_t i)
{
    return (const char *)c->src.p +
           ((o - c->row0) * c->w->in + i) * (int64_t)xd_dtype_size(c->src.type);
}

static int64_t chunk_of(int64_t n)
{
    return n < CHUNK ? n : CHUNK;
}

static float scale_of(const pack_ctx *c, int64_t o)
{
    const xd_weight *w = c->w;
    float            most = 0, x[CHUNK];
    if (w->scale)
        return w->scale[o];
    if (w->type == XD_F8E4M3 && c->src.type == XD_F8E4M3)
        return 1.0f;
    for (int64_t i = 0; i < w->in; i += CHUNK) {
        int64_t n = chunk_of(w->in - i);
        xd_convert(x, XD_F32, source_at(c, o, i), c->src.type, n);
        float m = c->k->most(x, XD_F32, n);
        most = m > most || isnan(m) ? m : most;
        if (isnan(most))
            break;
    }
    return xd_quant_scale(w->type, most);
}

static void quantize_int(const pack_ctx *c, int64_t o, float s)
{
    const xd_weight *w = c->w;
    int8_t          *to = (int8_t *)w->p + scale_bytes(w) + (size_t)(o * row_bytes(w));
    float            x[CHUNK];
    const int8_t    *from = (const int8_t *)source_at(c, o, 0);
    memset(to, 0, (size_t)row_bytes(w));
    for (int64_t i = 0; i < w->in && s > 0 && c->src.type == XD_I8; i++)
        to[i] = from[i] < -127 ? -127 : from[i];
    for (int64_t i = 0; i < w->in && s > 0 && c->src.type != XD_I8; i += CHUNK) {
        int64_t n = chunk_of(w->in - i);
        xd_convert(x, XD_F32, source_at(c, o, i), c->src.type, n);
        for (int64_t j = 0; j < n; j++)
            x[j] /= s;
        c->k->integers(to + i, x, XD_F32, 1.0f, n);
    }
}

static void quantize_e4m3(const pack_ctx *c, int64_t o, float s)
{
    const xd_weight *w = c->w;
    uint8_t         *to = (uint8_t *)w->p + scale_bytes(w) + o / PANEL * PANEL * w->in + o % PANEL;
    float            x[CHUNK];
    for (int64_t i = 0; i < w->in; i += CHUNK) {
        int64_t     n = chunk_of(w->in - i);
        const char *from = source_at(c, o, i);
        if (c->src.type == XD_F8E4M3) {
            for (int64_t j = 0; j < n; j++)
                to[(i + j) * PANEL] = (uint8_t)from[j];
            continue;
        }
        xd_convert(x, XD_F32, from, c->src.type, n);
        for (int64_t j = 0; j < n; j++)
            to[(i + j) * PANEL] = s > 0 ? xd_f32_f8e4m3(x[j] / s) : 0;
    }
}

static void pack_range(void *ctx, int64_t begin, int64_t end, int thread)
{
    const pack_ctx *c = ctx;
    (void)thread;
    for (int64_t o = c->row0 + begin; o < c->row0 + end; o++) {
        float s = scale_of(c, o);
        ((float *)c->w->p)[o] = s;
        if (c->w->type == XD_I8)
            quantize_int(c, o, s);
        else
            quantize_e4m3(c, o, s);
    }
}

xd_status xd_quant_pack_rows(const xd_kernels *k, const xd_weight *w, xd_tensor src, int64_t row0)
{
    pack_ctx c = { k, w, src, row0 };
    size_t   used = (size_t)w->out * sizeof(float);
    int      last = row0 + src.d[0] == w->out;
    if (w->nk || (w->type == XD_I8 && w->in > XD_INT8_MAX_INPUTS))
        return XD_EUNSUPPORTED;
    if (last)
        memset((char *)w->p + used, 0, scale_bytes(w) - used);
    if (last && w->type == XD_F8E4M3 && w->out % PANEL)
        for (int64_t i = 0; i < w->in; i++)
            memset((char *)w->p + scale_bytes(w) + (w->out / PANEL * w->in + i) * PANEL +
                       w->out % PANEL,
                   0, (size_t)(PANEL - w->out % PANEL));
    xd_par_for(src.d[0], pack_range, &c);
    return XD_OK;
}

/* ---- GEMM --------------------------------------------------------------------------------- */

typedef struct gemm_ctx {
    const xd_kernels *k;
    const xd_gemm    *a;
    float            *sx; /* scales of the input's rows; `q` has the rows as integers */
    int8_t           *q;
    float            *x; /* the input's rows as floats, for weights whose field `floats` is 1 */
} gemm_ctx;

static void input_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const gemm_ctx  *c = ctx;
    const xd_weight *w = c->a->w;
    int64_t          ld = row_bytes(w);
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const void *x = xd_at(c->a->in, r, 0);
        float       most = c->k->most(x, c->a->in.type, w->in), s = xd_quant_scale(XD_I8, most);
        c->sx[r] = s;
        memset(c->q + r * ld, 0, (size_t)ld);
        if (s > 0)
            c->k->integers(c->q + r * ld, x, c->a->in.type, 127.0f / most, w->in);
    }
}

static void int_item(const void *ctx, float *acc, int64_t r0, int64_t n, int64_t c0, int64_t m)
{
    const gemm_ctx  *c = ctx;
    const xd_weight *w = c->a->w;
    const float     *sw = (const float *)w->p + c0;
    int64_t          ld = row_bytes(w);
    const int8_t    *q = (const int8_t *)w->p + scale_bytes(w) + (size_t)(c0 * ld);
    int32_t          sum[COLS];
    for (int64_t i = 0; i < n; i++) {
        c->k->int_dot(sum, c->q + (r0 + i) * ld, q, ld, m, ld);
        for (int64_t j = 0; j < m; j++)
            acc[i * COLS + j] = (float)sum[j] * (c->sx[r0 + i] * sw[j]);
    }
}

static void float_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const gemm_ctx *c = ctx;
    int64_t         in = c->a->w->in, ld = row_bytes(c->a->w);
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        c->k->widen(c->x + r * ld, xd_at(c->a->in, r, 0), c->a->in.type, in);
        memset(c->x + r * ld + in, 0, (size_t)(ld - in) * sizeof *c->x);
    }
}

static void float_item(const void *ctx, float *acc, int64_t r0, int64_t n, int64_t c0, int64_t m)
{
    const gemm_ctx  *c = ctx;
    const xd_weight *w = c->a->w;
    const float     *sw = (const float *)w->p + c0;
    int64_t          ld = row_bytes(w);
    const int8_t    *q = (const int8_t *)w->p + scale_bytes(w) + (size_t)(c0 * ld);
    for (int64_t i = 0; i < n; i++) {
        c->k->float_dot(acc + i * COLS, c->x + (r0 + i) * ld, q, ld, m, ld);
        for (int64_t j = 0; j < m; j++)
            acc[i * COLS + j] *= sw[j];
    }
}

static void e4m3_item(const void *ctx, float *acc, int64_t r0, int64_t n, int64_t c0, int64_t m)
{
    const gemm_ctx  *c = ctx;
    const xd_gemm   *a = c->a;
    const xd_weight *w = a->w;
    const uint8_t   *q = (const uint8_t *)w->p + scale_bytes(w) + (size_t)(c0 * w->in);
    float            x[ROWS * DEEP], b[DEEP * PANEL];
    memset(acc, 0, (size_t)(ROWS * COLS) * sizeof *acc);
    for (int64_t k = 0; k < w->in; k += DEEP) {
        int64_t d = w->in - k < DEEP ? w->in - k : DEEP;
        for (int64_t i = 0; i < n; i++)
            c->k->widen(x + i * DEEP, xd_at(a->in, r0 + i, k), a->in.type, d);
        for (int64_t j = 0; j < m; j += PANEL) {
            c->k->widen(b, q + j * w->in + k * PANEL, XD_F8E4M3, d * PANEL);
            c->k->tile(acc + j, COLS, x, DEEP, b, n, d);
        }
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++)
            acc[i * COLS + j] *= ((const float *)w->p)[c0 + j];
}

static size_t integer_bytes(const xd_gemm *a)
{
    return (size_t)(a->in.d[0] * row_bytes(a->w));
}

size_t xd_quant_gemm_scratch(const xd_gemm *a)
{
    if (a->w->type != XD_I8)
        return 0;
    return a->w->floats ? integer_bytes(a) * sizeof(float)
                        : integer_bytes(a) + (size_t)a->in.d[0] * sizeof(float);
}

xd_status xd_quant_gemm(const xd_kernels *k, const xd_gemm *a, void *tmp)
{
    gemm_ctx c = { .k = k, .a = a };
    int      integers = a->w->type == XD_I8 && !a->w->floats;
    if (a->w->nk)
        return XD_EUNSUPPORTED;
    if (integers) {
        c.q = tmp;
        c.sx = (float *)(void *)((char *)tmp + integer_bytes(a));
    } else {
        c.x = tmp;
    }
    if (a->w->type == XD_I8 && a->in.d[0] > 0)
        xd_par_for(a->in.d[0], integers ? input_rows : float_rows, &c);
    xd_plain_tiles(k, a, integers ? int_item : a->w->floats ? float_item : e4m3_item, &c);
    return XD_OK;
}
