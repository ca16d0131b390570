/* products.c - products of cuBLASLt as the CUDA device asks for them: which it takes, and how fast
 *
 *   products [--quick]
 *
 * A line for each shape of a model and each kind of operands and epilogue: milliseconds and
 * TFLOP/s, or "refused". Numbers are random. --quick: small matrices, once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda.h"

enum { ROUNDS = 7, CALLS = 4 };

typedef struct shape {
    int64_t     n, in, out;
    const char *of;
} shape;

static const shape large[] = {
    { 4608, 3072, 9216, "FLUX.1 qkv" },   { 4608, 3072, 12288, "FLUX.1 up" },
    { 4608, 12288, 3072, "FLUX.1 down" }, { 4608, 15360, 3072, "FLUX.1 out of a single block" },
    { 512, 3072, 12288, "FLUX.1 text" },  { 28, 3072, 18432, "FLUX.1 modulation of 28 steps" },
    { 4096, 1152, 4608, "PixArt up" },    { 17776, 3072, 12288, "CogVideoX up" },
    { 32760, 1536, 8960, "Wan 1.3B up" }, { 512, 4096, 10240, "T5-XXL up" },
    { 8192, 8192, 8192, "square" },
};
static const shape small[] = { { 48, 64, 96, "quick" }, { 5, 48, 16, "few rows" } };

typedef struct kind {
    const char *name;
    xd_dtype    in, out, bias; /* bias: XD_I32: none */
    int         gelu, scaled;
} kind;

static const kind kinds[] = {
    { "bf16 > f32", XD_BF16, XD_F32, XD_I32, 0, 0 },
    { "bf16 > bf16", XD_BF16, XD_BF16, XD_I32, 0, 0 },
    { "bf16 > bf16, bias f32", XD_BF16, XD_BF16, XD_F32, 0, 0 },
    { "bf16 > bf16, bias", XD_BF16, XD_BF16, XD_BF16, 0, 0 },
    { "bf16 > bf16, bias, GELU", XD_BF16, XD_BF16, XD_BF16, 1, 0 },
    { "f16 > f16, bias, GELU", XD_F16, XD_F16, XD_F16, 1, 0 },
    { "f32 > f32, bias", XD_F32, XD_F32, XD_F32, 0, 0 },
    { "e4m3 > f32", XD_F8E4M3, XD_F32, XD_I32, 0, 0 },
    { "e4m3 > f32, scales of rows", XD_F8E4M3, XD_F32, XD_I32, 0, 1 },
    { "e4m3 > bf16, scales of rows, bias", XD_F8E4M3, XD_BF16, XD_BF16, 0, 1 },
    { "e4m3 > bf16, scales of rows, bias, GELU", XD_F8E4M3, XD_BF16, XD_BF16, 1, 1 },
    { "int8 > int32", XD_I8, XD_I32, XD_I32, 0, 0 },
};

typedef struct run {
    xd_cuda_dev   *c;
    xd_cuda_timing timing;
} run;

static void *random_block(const run *r, xd_dtype t, int64_t n)
{
    void *p = r->c->dev.mem->get(&r->c->dev, (size_t)n * xd_dtype_size(t));
    if (!p || xd_cuda_fill_random(r->c, t, p, n) != XD_OK) {
        fprintf(stderr, "products: no memory for %lld elements\n", (long long)n);
        exit(1);
    }
    return p;
}

static int by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Median milliseconds of a product; 0: refused. */
static double time_product(const run *r, const xd_cuda_product *p)
{
    const xd_cuda_driver *cu = r->c->cu;
    float                 ms[ROUNDS];
    for (int i = -1; i < ROUNDS; i++) { /* the first one warms up */
        cu->cuEventRecord(r->timing.begin, r->c->stream);
        for (int k = 0; k < CALLS; k++)
            if (!xd_cuda_multiply(r->c, p))
                return 0;
        cu->cuEventRecord(r->timing.end, r->c->stream);
        const double s = xd_cuda_timed(r->c, &r->timing);
        if (!(s > 0)) {
            fprintf(stderr, "products: the GPU failed\n");
            exit(1);
        }
        if (i >= 0)
            ms[i] = (float)(1e3 * s);
    }
    qsort(ms, ROUNDS, sizeof *ms, by_size);
    return (double)ms[ROUNDS / 2] / CALLS;
}

static void show(const run *r, const kind *k, const shape *s)
{
    const int       biased = k->bias != XD_I32;
    xd_dev         *d = &r->c->dev;
    void           *in = random_block(r, k->in, s->n * s->in);
    void           *w = random_block(r, k->in, s->out * s->in);
    void           *bias = random_block(r, biased ? k->bias : XD_F32, s->out);
    float          *sx = random_block(r, XD_F32, s->n), *sw = random_block(r, XD_F32, s->out);
    const size_t    bytes = (size_t)(s->n * s->out) * xd_dtype_size(k->out);
    void           *out = d->mem->get(d, bytes);
    xd_cuda_product p = { .out = xd_view2(out, k->out, s->n, s->out),
                          .in = xd_view2(in, k->in, s->n, s->in),
                          .w = w,
                          .s_w = s->in,
                          .bias = biased ? bias : NULL,
                          .bias_type = k->bias,
                          .gelu = k->gelu,
                          .sx = k->scaled ? sx : NULL,
                          .sw = k->scaled ? sw : NULL };
    const double    ms = out ? time_product(r, &p) : 0;
    printf("%6lld x %5lld x %5lld  %-30s %-40s ", (long long)s->n, (long long)s->in,
           (long long)s->out, s->of, k->name);
    if (ms > 0)
        printf("%9.4f ms %7.1f TFLOP/s\n", ms,
               2e-9 * (double)s->n * (double)s->in * (double)s->out / ms);
    else
        puts("refused");
    fflush(stdout);
    d->mem->sync(d, NULL);
    void *const all[] = { in, w, bias, sx, sw, out };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i])
            d->mem->put(d, all[i], 0);
}

int main(int argc, char **argv)
{
    const int    quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    const shape *shapes = quick ? small : large;
    const size_t nshapes = quick ? sizeof small / sizeof *small : sizeof large / sizeof *large;
    xd_dev      *d = NULL;
    xd_err       e = { 0 };
    if (argc > 1 + quick || xd_dev_open(&d, "cuda", &e) != XD_OK) {
        fprintf(stderr, "products: %s\n", d || !e.msg[0] ? "the only option is --quick" : e.msg);
        return 2;
    }
    run r = { .c = xd_cuda_of(d) };
    if (!xd_cuda_open_timing(r.c, &r.timing))
        return 1;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t i = 0; i < nshapes; i++)
            show(&r, &kinds[k], &shapes[i]);
    xd_cuda_close_timing(r.c, &r.timing);
    xd_dev_close(&d);
    return 0;
}
