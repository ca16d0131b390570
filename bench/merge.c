/* merge.c - how long adding a LoRA takes beside reading the weights and beside a GEMM
 *
 *   merge [--rank 64] [--type bf16] [--weights int8] [--rounds 7] [OUTxIN ...]
 *
 * measures for each matrix, in turns and on all threads:
 *
 *   read    its bytes in bf16 from the page cache into memory
 *   load    packing it for the device as loading does; --weights: int8, fp8, bf16 or f32
 *   merge   the same with the product of a pair of this rank added, of type f32 or bf16, less load
 *   gemm    the device's GEMM of the pair as one layer, [OUT, rank] by [IN, rank]
 *
 * and prints medians in seconds for each 1e9 parameters, and merge as a share of read and of the
 * time that its multiplications take at the peak of the machine in the type of the pair. Files are
 * made in $TMPDIR. */
#define _XOPEN_SOURCE 700
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/product.h"
#include "base/clock.h"
#include "base/par.h"
#include "base/rng.h"
#include "exec/weight.h"
#include "model/component.h"
#include "model/lora.h"

enum { MOST = 101, PARTS = 4, READ = 1 << 20 };
enum { BY_READ, BY_LOAD, BY_MERGE, BY_GEMM };

typedef struct bench {
    int64_t   out, in, rank;
    xd_dtype  type, weights;
    int       rounds;
    char      base[512], lora[512];
    xd_dev   *dev;
    xd_st    *files, *pair;
    xd_component part;          /* of one tensor, with the source that is loaded from          */
    xd_lora_src *merged;
} bench;

static void stop(const char *what, const xd_err *e)
{
    fprintf(stderr, "merge: %s%s%s\n", what, e ? ": " : "", e ? e->msg : "");
    exit(1);
}

static void must(xd_status s, const xd_err *e, const char *what)
{
    if (s != XD_OK)
        stop(what, e);
}

/* ---- files -------------------------------------------------------------------------------- */

static xd_tensor random_matrix(int64_t rows, int64_t cols, xd_dtype type, float gain)
{
    char *p = malloc((size_t)(rows * cols) * xd_dtype_size(type));
    if (!p)
        stop("no memory", NULL);
    for (int64_t i = 0; i < rows * cols; i++) {
        float x = gain * xd_random_weight(7, (uint64_t)i);
        xd_convert(p + (size_t)i * xd_dtype_size(type), type, &x, XD_F32, 1);
    }
    return xd_view2(p, type, rows, cols);
}

static void write_files(bench *b)
{
    const char *dir = getenv("TMPDIR");
    xd_err      e = { 0 };
    xd_st_item  w = { "w.weight", random_matrix(b->out, b->in, XD_BF16, 0.02f) };
    xd_st_item  pair[2] = { { "up", random_matrix(b->out, b->rank, b->type, 0.02f) },
                            { "down", random_matrix(b->rank, b->in, b->type, 0.02f) } };
    dir = dir && *dir ? dir : "/tmp";
    snprintf(b->base, sizeof b->base, "%.400s/xdit-merge-%d.safetensors", dir, (int)getpid());
    snprintf(b->lora, sizeof b->lora, "%.400s/xdit-merge-%d-pair.safetensors", dir, (int)getpid());
    must(xd_st_write(b->base, &w, 1, 1, NULL, &e), &e, b->base);
    must(xd_st_write(b->lora, pair, 2, 1, NULL, &e), &e, b->lora);
    must(xd_st_open(&b->files, b->base, "w", &e), &e, b->base);
    must(xd_st_open(&b->pair, b->lora, "pair", &e), &e, b->lora);
    free(w.t.p), free(pair[0].t.p), free(pair[1].t.p);
}

static int src_has(void *self, const char *name, xd_tensor *shape)
{
    const bench *b = self;
    int64_t      i = xd_st_find(b->files, name);
    if (i >= 0)
        *shape = xd_st_shape(b->files, i);
    return i >= 0;
}

static xd_status src_get(void *self, const char *name, xd_tensor *t, xd_err *e)
{
    const bench *b = self;
    return xd_st_get(b->files, xd_st_find(b->files, name), t, e);
}

static void src_done(void *self, const char *name)
{
    const bench *b = self;
    xd_st_done(b->files, xd_st_find(b->files, name));
}

static void open_sources(bench *b, xd_declared *one, xd_lora_term *term)
{
    xd_err e = { 0 };
    *one = (xd_declared){ .name = "w.weight", .nd = 2, .d = { b->out, b->in } };
    *term = (xd_lora_term){ .file = b->pair, .up = xd_st_find(b->pair, "up"),
                            .down = xd_st_find(b->pair, "down"), .rows = b->out, .cols = b->in,
                            .rank = b->rank, .gain = 0.7 };
    b->part = (xd_component){ .dir = b->base, .list = one, .nlist = 1,
                              .src = { .has = src_has, .get = src_get, .done = src_done,
                                       .self = b } };
    must(xd_lora_src_open(&b->merged, &b->part, term, 1, &e), &e, "the pair");
}

/* ---- what is measured ----------------------------------------------------------------------- */

static void read_range(void *ctx, int64_t begin, int64_t end, int thread)
{
    const bench *b = ctx;
    char        *to = malloc(READ);
    int          fd = open(b->base, O_RDONLY);
    (void)thread;
    for (int64_t i = begin; i < end && to && fd >= 0; i++)
        if (pread(fd, to, READ, (off_t)i * READ) < 0)
            stop("reading", NULL);
    close(fd);
    free(to);
}

static double read_s(bench *b)
{
    double from = xd_now_s();
    xd_par_for((b->out * b->in * 2 + READ - 1) / READ, read_range, b);
    return xd_now_s() - from;
}

static double load_s(bench *b, int merge)
{
    xd_source src = b->part.src;
    xd_err    e = { 0 };
    xd_decl   d = { .visit = XD_VISIT_LOAD, .dev = b->dev, .type = b->weights, .src = &src,
                    .blocks = b->weights, .tp = 1, .err = &e };
    xd_lin    w;
    if (xd_is_quantized(b->weights))
        d.type = XD_BF16;
    if (!merge)
        src.sums = NULL;
    must(xd_store_open(&d.store, b->dev, &e), &e, "weights");
    double from = xd_now_s();
    xd_w_linear(&d, &w, "w", &(xd_linear_spec){ .in = b->in, .out = b->out, .split = XD_COL });
    double to = xd_now_s();
    must(e.code, &e, "loading");
    xd_store_close(&d.store);
    return to - from;
}

static double gemm_s(bench *b)
{
    static char *up, *w, *tmp, *out;
    xd_weight    of = { .type = b->type, .out = b->in, .in = b->rank, .kernel = { 1, 1, 1 },
                        .stride = { 1, 1, 1 }, .groups = 1 };
    xd_tensor    down = random_matrix(b->in, b->rank, b->type, 1);
    xd_tensor    x = random_matrix(b->out, b->rank, b->type, 1);
    const xd_ops *o = b->dev->ops;
    size_t       bytes = o->pack_size(b->dev, &of);
    up = b->dev->mem->get(b->dev, xd_bytes(x));
    memcpy(up, x.p, xd_bytes(x));
    of.p = w = b->dev->mem->get(b->dev, bytes);
    tmp = malloc(o->pack_tmp(b->dev, &of, b->type) + 1);
    out = b->dev->mem->get(b->dev, (size_t)(b->out * b->in) * sizeof(float));
    must(o->pack(b->dev, &of, down, tmp), NULL, "packing");
    xd_gemm a = { .in = xd_view2(up, b->type, b->out, b->rank),
                  .out = xd_view2(out, XD_F32, b->out, b->in), .w = &of };
    size_t  scratch = o->scratch(b->dev, XD_OP_GEMM, &a);
    char   *s = b->dev->mem->get(b->dev, scratch + 64);
    double  best = 0;
    for (int i = 0; i < 3; i++) {
        double from = xd_now_s();
        must(o->gemm(b->dev, NULL, &a, s), NULL, "the GEMM");
        best = i == 0 || xd_now_s() - from < best ? xd_now_s() - from : best;
    }
    b->dev->mem->put(b->dev, up, xd_bytes(x));
    b->dev->mem->put(b->dev, w, bytes);
    b->dev->mem->put(b->dev, out, (size_t)(b->out * b->in) * sizeof(float));
    b->dev->mem->put(b->dev, s, scratch + 64);
    free(tmp), free(down.p), free(x.p);
    return best;
}

/* ---- a matrix ------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_size);
    return v[n / 2];
}

static void run(bench *b)
{
    static double s[PARTS][MOST];
    xd_declared  one;
    xd_lora_term term;
    double       m[PARTS];
    write_files(b);
    open_sources(b, &one, &term);
    for (int i = -1; i < b->rounds; i++) {
        double at[PARTS] = { read_s(b), load_s(b, 0), load_s(b, 1), gemm_s(b) };
        at[BY_MERGE] -= at[BY_LOAD];
        for (int k = 0; k < PARTS && i >= 0; k++)
            s[k][i] = at[k];
    }
    double million = 1e9 / (double)(b->out * b->in);
    double flops = 2 * (double)b->out * (double)b->in * (double)b->rank;
    double peak = flops / (xd_dev_peak(b->dev, xd_product_type(b->type, b->type), 0, 0.2) * 1e9);
    for (int k = 0; k < PARTS; k++)
        m[k] = median(s[k], b->rounds);
    printf("%6lld x %-6lld %8.3f %8.3f %8.3f %8.3f %8.3f %10.2f %10.2f\n", (long long)b->out,
           (long long)b->in, m[BY_READ] * million, m[BY_LOAD] * million, m[BY_MERGE] * million,
           m[BY_GEMM] * million, peak * million, m[BY_MERGE] / m[BY_READ], m[BY_MERGE] / peak);
    xd_lora_src_close(&b->merged);
    xd_st_close(&b->files);
    xd_st_close(&b->pair);
    unlink(b->base);
    unlink(b->lora);
}

static xd_dtype type_of(const char *name)
{
    if (strcmp(name, "fp8") == 0)
        return XD_F8E4M3;
    for (int t = 0; t < XD_NDTYPES; t++)
        if (strcmp(name, xd_dtype_name((xd_dtype)t)) == 0)
            return (xd_dtype)t;
    return strcmp(name, "int8") == 0 ? XD_I8 : XD_NDTYPES;
}

int main(int argc, char **argv)
{
    static const char *const usual[] = { "3072x3072", "12288x3072", "3072x12288" };
    bench  b = { .rank = 64, .type = XD_BF16, .weights = XD_I8, .rounds = 7 };
    xd_err e = { 0 };
    int    i = 1;
    for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
        const char *v = argv[i + 1];
        if (strcmp(argv[i], "--rank") == 0)
            b.rank = atoi(v);
        else if (strcmp(argv[i], "--type") == 0)
            b.type = type_of(v);
        else if (strcmp(argv[i], "--weights") == 0)
            b.weights = type_of(v);
        else if (strcmp(argv[i], "--rounds") == 0)
            b.rounds = atoi(v);
        else
            break;
    }
    if ((i < argc && argv[i][0] == '-') || b.rank < 1 || b.rounds < 1 || b.rounds > MOST ||
        (b.type != XD_F32 && b.type != XD_BF16) || b.weights == XD_NDTYPES)
        stop("usage: merge [--rank N] [--type f32|bf16] [--weights int8|fp8|bf16|f32] [--rounds N] "
             "[OUTxIN ...]", NULL);
    must(xd_dev_open(&b.dev, "cpu", &e), &e, "the device");
    printf("seconds for 1e9 parameters, rank %lld, pair in %s\n%6s   %-6s %8s %8s %8s %8s %8s %10s "
           "%10s\n", (long long)b.rank, xd_dtype_name(b.type), "out", "in", "read", "load", "merge",
           "gemm", "peak", "merge/read", "merge/peak");
    int n = argc > i ? argc - i : 3;
    for (int k = 0; k < n; k++) {
        const char *shape = argc > i ? argv[i + k] : usual[k];
        long long   out, in;
        if (sscanf(shape, "%lldx%lld", &out, &in) != 2 || out < 1 || in < 1)
            stop("a shape is OUTxIN", NULL);
        b.out = out, b.in = in;
        run(&b);
    }
    xd_dev_close(&b.dev);
    return 0;
}
