/* peak.c - measures the GPU's peak rates, to which the rates of kernels are compared. The peak
 * rates are the FLOP/s of cuBLASLt's matrix products and the bytes/s of copies within device
 * memory.
 *
 * Matrices hold random values: with zeros a GPU draws less power and runs faster than it ever does
 * in a model. Times are measured between two events of the GPU's stream. */
#include "backend/cuda/cuda.h"

#include <stdlib.h>

enum { WIDEST = 8192, PRODUCTS = 20, BLOCK = 1 << 18, COPIED = 256 << 20, COPIES = 8 };

/* Converts n values between -1 and 1 to elements of type t. For integer types the values are
 * multiplied by 127. */
static void convert_numbers(void *to, xd_dtype t, const float *x, int64_t n)
{
    if (t == XD_I8)
        for (int64_t i = 0; i < n; i++)
            ((int8_t *)to)[i] = (int8_t)(127 * x[i]);
    else if (t == XD_F8E4M3)
        for (int64_t i = 0; i < n; i++)
            ((uint8_t *)to)[i] = xd_f32_f8e4m3(x[i]);
    else
        xd_convert(to, t, x, XD_F32, n);
}

xd_status xd_cuda_fill_random(xd_cuda_dev *c, xd_dtype t, void *to, int64_t n)
{
    const int64_t block = n < BLOCK ? n : BLOCK;
    const size_t  size = xd_dtype_size(t);
    float        *x = malloc((size_t)block * sizeof *x);
    char         *y = malloc((size_t)block * size);
    uint32_t      state = 2463534242u;
    xd_status     s = x && y ? XD_OK : XD_ENOMEM;
    for (int64_t i = 0; i < block && s == XD_OK; i++) {
        state ^= state << 13, state ^= state >> 17, state ^= state << 5;
        x[i] = (float)(int32_t)state / 2147483648.0f;
    }
    if (s == XD_OK)
        convert_numbers(y, t, x, block);
    for (int64_t i = 0; i < n && s == XD_OK; i += block)
        s = xd_cuda_upload(c, (char *)to + (size_t)i * size, y,
                           (size_t)(n - i < block ? n - i : block) * size);
    free(x);
    free(y);
    return s;
}

int xd_cuda_open_timing(xd_cuda_dev *c, xd_cuda_timing *t)
{
    return c->cu->cuEventCreate(&t->begin, XD_CU_EVENT_DEFAULT) == XD_CU_SUCCESS &&
           c->cu->cuEventCreate(&t->end, XD_CU_EVENT_DEFAULT) == XD_CU_SUCCESS;
}

void xd_cuda_close_timing(xd_cuda_dev *c, xd_cuda_timing *t)
{
    if (t->begin)
        c->cu->cuEventDestroy_v2(t->begin);
    if (t->end)
        c->cu->cuEventDestroy_v2(t->end);
}

double xd_cuda_timed(xd_cuda_dev *c, const xd_cuda_timing *t)
{
    float ms = 0;
    return c->cu->cuEventSynchronize(t->end) == XD_CU_SUCCESS &&
                   c->cu->cuEventElapsedTime(&ms, t->begin, t->end) == XD_CU_SUCCESS
               ? 1e-3 * (double)ms
               : 0;
}

/* Returns the seconds of one matrix product, as the mean of `times` products. */
static double time_products(xd_cuda_dev *c, const xd_cuda_timing *t, const xd_cuda_product *q,
                            int times)
{
    c->cu->cuEventRecord(t->begin, c->stream);
    for (int i = 0; i < times; i++)
        if (!xd_cuda_multiply(c, q))
            return 0;
    c->cu->cuEventRecord(t->end, c->stream);
    return xd_cuda_timed(c, t) / times;
}

/* Returns the GFLOP/s of products of two square matrices of width n, and writes the seconds of one
 * product to *took. The first product only warms up the GPU. The following products are timed.
 * Their number is as many as fit into `seconds` seconds, but at most 20, and always 20 at the
 * largest width. */
static double rate_of(xd_cuda_dev *c, const xd_cuda_timing *t, xd_dtype type, char *p, int64_t n,
                      double seconds, double *took)
{
    const size_t    sums = (size_t)(n * n) * sizeof(float);
    const size_t    bytes = (size_t)(n * n) * xd_dtype_size(type);
    xd_cuda_product q = { .out = xd_view2(p, XD_F32, n, n),
                          .in = xd_view2(p + sums, type, n, n),
                          .w = p + sums + bytes,
                          .s_w = n };
    *took = 0;
    if (xd_cuda_fill_random(c, type, p + sums, 2 * n * n) != XD_OK ||
        !(time_products(c, t, &q, 1) > 0) || !((*took = time_products(c, t, &q, 1)) > 0))
        return 0;
    int times = n == WIDEST || PRODUCTS * *took < seconds ? PRODUCTS : (int)(seconds / *took) + 1;
    double each = time_products(c, t, &q, times);
    return each > 0 ? 2e-9 * (double)n * (double)n * (double)n / each : 0;
}

/* Measures products of square matrices of growing width, until one product takes `seconds` seconds.
 * Returns the highest GFLOP/s. */
static double measure_peak(xd_cuda_dev *c, const xd_cuda_timing *t, xd_dtype type, double seconds)
{
    xd_dev *d = &c->dev;
    double  best = 0, rate = 1, took = 0;
    for (int64_t n = 64; n <= WIDEST && took < seconds && rate > 0; n *= 2) {
        const size_t bytes = (size_t)(n * n) * (sizeof(float) + 2 * xd_dtype_size(type));
        char        *p = d->mem->get(d, bytes);
        rate = p ? rate_of(c, t, type, p, n, seconds, &took) : 0;
        d->mem->sync(d, NULL);
        if (p)
            d->mem->put(d, p, bytes);
        best = rate > best ? rate : best;
    }
    return best;
}

/* Returns the peak GFLOP/s of matrix products of a type. The rate is measured only once, because
 * filling the largest matrices takes some tenths of a second. */
double xd_cuda_peak(xd_dev *d, xd_dtype type, int threads, double seconds)
{
    xd_cuda_dev   *c = xd_cuda_of(d);
    double        *known = &c->peak[type == XD_F32 ? 0 : type == XD_BF16 ? 1 : 2];
    xd_cuda_timing t = { 0 };
    (void)threads;
    c->cu->cuCtxSetCurrent(c->context);
    if (!(*known > 0) && xd_cuda_open_timing(c, &t))
        *known = measure_peak(c, &t, type, seconds);
    xd_cuda_close_timing(c, &t);
    return *known;
}

/* Measures the bytes per second of copies within device memory. Each byte counts twice, because it
 * is read and written. */
double xd_cuda_bandwidth(xd_dev *d)
{
    xd_cuda_dev   *c = xd_cuda_of(d);
    char          *p = d->mem->get(d, COPIED);
    xd_cuda_timing t = { 0 };
    double         best = 0;
    size_t         half = COPIED / 2;
    CUdeviceptr    at = (CUdeviceptr)(uintptr_t)p;
    c->cu->cuCtxSetCurrent(c->context);
    CUresult r = p && xd_cuda_open_timing(c, &t) ? c->cu->cuMemsetD8Async(at, 1, COPIED, c->stream)
                                                 : -1;
    for (int i = 0; i < 2 && r == XD_CU_SUCCESS; i++) { /* the first round only warms up */
        r = c->cu->cuEventRecord(t.begin, c->stream);
        for (int k = 0; k < COPIES && r == XD_CU_SUCCESS; k++)
            r = c->cu->cuMemcpyDtoDAsync_v2(at + half, at, half, c->stream);
        if (r == XD_CU_SUCCESS)
            r = c->cu->cuEventRecord(t.end, c->stream);
        double s = r == XD_CU_SUCCESS ? xd_cuda_timed(c, &t) : 0;
        best = s > 0 ? (double)COPIED * COPIES / s : 0;
    }
    d->mem->sync(d, NULL);
    xd_cuda_close_timing(c, &t);
    if (p)
        d->mem->put(d, p, COPIED);
    return best;
}
