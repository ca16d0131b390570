/* ops.c - speed of the CPU tables' slots on the shapes of PixArt-XL and its VAE.
 *
 *   ops [threads]       the set is that of XDIT_ISA
 *
 * GEMMs and convolutions are compared with the peak that is measured just before, in registers
 * alone (machines are shared, and their speed changes from one second to the next); row kernels
 * are given in GB/s of operands. Medians of at least 5 calls and 0.2 s. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/clock.h"
#include "base/par.h"

typedef xd_status call_fn(const void *args, void *tmp);

static xd_dev *dev;

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_s(xd_op op, call_fn *call, const void *args)
{
    enum { MOST = 2000 };
    static double t[MOST];
    size_t        bytes = dev->ops->scratch(dev, op, args);
    void         *tmp = bytes ? dev->mem->get(dev, bytes) : NULL;
    int           n = 0;
    double        start = xd_now_s();
    if (call(args, tmp)) {
        printf("  (not supported)\n");
        exit(1);
    }
    while (n < MOST && (n < 5 || xd_now_s() - start < 0.2)) {
        double t0 = xd_now_s();
        call(args, tmp);
        t[n++] = xd_now_s() - t0;
    }
    dev->mem->put(dev, tmp, bytes);
    qsort(t, (size_t)n, sizeof *t, by_size);
    return t[n / 2];
}

static xd_tensor filled(xd_dtype type, int nd, const int64_t *d)
{
    xd_tensor t = xd_view(NULL, type, nd, d);
    t.p = dev->mem->get(dev, xd_bytes(t));
    if (!t.p) {
        fprintf(stderr, "no memory for %zu bytes\n", xd_bytes(t));
        exit(1);
    }
    for (int64_t i = 0; i < xd_count(t); i++) {
        float f = (float)(i * 2654435761u % 2001) / 1000.0f - 1.0f;
        xd_convert((char *)t.p + i * (int64_t)xd_dtype_size(type), type, &f, XD_F32, 1);
    }
    return t;
}

static void drop(xd_tensor t)
{
    dev->mem->put(dev, t.p, xd_bytes(t));
}

static void pack(xd_weight *w, int nd, const int64_t *d)
{
    xd_tensor src = filled(XD_F32, nd, d);
    size_t    n = dev->ops->pack_tmp(dev, w, XD_F32);
    void     *tmp = n ? dev->mem->get(dev, n) : NULL;
    w->p = dev->mem->get(dev, dev->ops->pack_size(dev, w));
    if (!w->p || dev->ops->pack(dev, w, src, tmp)) {
        fprintf(stderr, "a weight cannot be packed\n");
        exit(1);
    }
    dev->mem->put(dev, tmp, n);
    drop(src);
}

static xd_status run_gemm(const void *a, void *tmp) { return dev->ops->gemm(dev, NULL, a, tmp); }
static xd_status run_conv(const void *a, void *tmp) { return dev->ops->conv(dev, NULL, a, tmp); }
static xd_status run_norm(const void *a, void *tmp) { return dev->ops->norm(dev, NULL, a, tmp); }
static xd_status run_glu(const void *a, void *tmp) { return dev->ops->glu(dev, NULL, a, tmp); }
static xd_status run_copy(const void *a, void *tmp) { return dev->ops->copy(dev, NULL, a, tmp); }
static xd_status run_mom(const void *a, void *tmp) { return dev->ops->moments(dev, NULL, a, tmp); }
static xd_status run_gn(const void *a, void *tmp) { return dev->ops->gnorm(dev, NULL, a, tmp); }
static xd_status run_add(const void *a, void *tmp) { return dev->ops->addmul(dev, NULL, a, tmp); }

/* how: 0 bias, 1 bias and gelu, 2 bias, gate and residual in f32 */
static void gemm(xd_dtype type, int64_t M, int64_t N, int64_t K, int how)
{
    static const char *const text[] = { "bias", "bias, gelu", "bias, gate, residual" };
    xd_weight w = { .type = type, .out = N, .in = K, .groups = 1 };
    xd_gemm   a = { .w = &w, .act = how == 1 ? XD_GELU_TANH : XD_NONE };
    pack(&w, 2, (int64_t[]){ N, K });
    a.in = filled(type, 2, (int64_t[]){ M, K });
    a.out = filled(how == 2 ? XD_F32 : type, 2, (int64_t[]){ M, N });
    a.bias = filled(XD_F32, 1, &N);
    if (how == 2) {
        a.gate = filled(XD_F32, 1, &N);
        a.residual = a.out;
    }
    double peak = xd_cpu_peak(dev, type, 0), s = median_s(XD_OP_GEMM, run_gemm, &a);
    double gf = 2e-9 * (double)M * (double)N * (double)K / s;
    printf("gemm %-4s %5lld x %5lld x %5lld  %-20s %8.2f ms %8.1f GFLOP/s %5.1f %%\n",
           xd_dtype_name(type), (long long)M, (long long)N, (long long)K, text[how], s * 1e3, gf,
           100 * gf / peak);
    drop(a.in);
    drop(a.out);
    drop(a.bias);
    drop(a.gate);
    dev->mem->put(dev, w.p, w.bytes);
}

static void conv(xd_dtype type, int64_t side, int64_t C, int64_t O, int k)
{
    xd_weight w = { .type = type, .out = O, .in = C, .nk = 2, .kernel = { 1, k, k },
                    .stride = { 1, 1, 1 }, .groups = 1 };
    xd_conv   a = { .w = &w, .stride = { 1, 1, 1 }, .lo = { 0, k / 2, k / 2 },
                    .hi = { 0, k / 2, k / 2 } };
    pack(&w, 4, (int64_t[]){ O, C, k, k });
    a.in = filled(type, 4, (int64_t[]){ 1, side, side, C });
    a.out = filled(type, 4, (int64_t[]){ 1, side, side, O });
    a.bias = filled(XD_F32, 1, &O);
    double peak = xd_cpu_peak(dev, type, 0), s = median_s(XD_OP_CONV, run_conv, &a);
    double gf = 2e-9 * (double)(side * side) * (double)(C * O * k * k) / s;
    printf("conv %-4s %4lld x %-4lld %3lld to %3lld, %dx%d %8.2f ms %8.1f GFLOP/s %5.1f %%\n",
           xd_dtype_name(type), (long long)side, (long long)side, (long long)C, (long long)O, k, k,
           s * 1e3, gf, 100 * gf / peak);
    drop(a.in);
    drop(a.out);
    drop(a.bias);
    dev->mem->put(dev, w.p, w.bytes);
}

static void row(const char *what, xd_op op, call_fn *call, const void *args, size_t bytes)
{
    double s = median_s(op, call, args);
    printf("%-44s %8.3f ms %8.1f GB/s\n", what, s * 1e3, 1e-9 * (double)bytes / s);
}

static void rows(xd_dtype type)
{
    int64_t    n = 4096, C = 1152, img[4] = { 1, 256, 256, 128 }, flat[2] = { 65536, 128 };
    xd_tensor  h = filled(XD_F32, 2, (int64_t[]){ n, C }), y = filled(type, 2, h.d);
    xd_tensor  one = filled(XD_F32, 2, (int64_t[]){ 1, C }), wide, v = filled(type, 4, img);
    xd_tensor  sums = filled(XD_F64, 3, (int64_t[]){ 256, 32, 2 }), nchw = filled(type, 4, img);
    wide = filled(type, 2, (int64_t[]){ n, 4 * C });
    for (int64_t i = 0; i < 256 * 64; i++)
        ((double *)sums.p)[i] = i % 2 ? 300.0 : 1.0;
    xd_norm    norm = { .out = y, .in = h, .scale = one, .shift = one, .eps = 1e-6f };
    xd_glu     gelu = { .out = wide, .a = wide, .act = XD_GELU_TANH };
    xd_addmul  add = { h, one, y };
    xd_copy    cp = { y, h }, turn = { nchw, xd_permute(v, (int[]){ 0, 3, 1, 2 }) };
    turn.out = xd_view(nchw.p, type, 4, (int64_t[]){ 1, 128, 256, 256 });
    xd_moments mom = { .out = sums, .in = xd_view(v.p, type, 3, (int64_t[]){ 256, 256, 128 }),
                       .groups = 32 };
    xd_gnorm   gn = { .out = xd_view(v.p, type, 2, flat), .in = xd_view(v.p, type, 2, flat),
                      .sums = xd_view(sums.p, XD_F64, 2, (int64_t[]){ 32, 2 }), .groups = 32,
                      .silu = 1, .count = 65536 * 4, .eps = 1e-6f };
    size_t     hb = xd_bytes(h), yb = xd_bytes(y), vb = xd_bytes(v);
    row("norm and modulation, 4096 x 1152", XD_OP_NORM, run_norm, &norm, hb + yb);
    row("gelu, 4096 x 4608", XD_OP_GLU, run_glu, &gelu, 2 * xd_bytes(wide));
    row("gated add, 4096 x 1152", XD_OP_ADDMUL, run_add, &add, 2 * hb + yb);
    row("copy from f32, 4096 x 1152", XD_OP_COPY, run_copy, &cp, hb + yb);
    row("copy [H,W,C] to [C,H,W], 256 x 256 x 128", XD_OP_COPY, run_copy, &turn, 2 * vb);
    row("moments, 256 x 256 x 128", XD_OP_MOMENTS, run_mom, &mom, vb);
    row("group norm and silu, 256 x 256 x 128", XD_OP_GNORM, run_gn, &gn, 2 * vb);
    drop(h);
    drop(y);
    drop(one);
    drop(v);
    drop(sums);
    drop(nchw);
    drop(wide);
}

int main(int argc, char **argv)
{
    static const int64_t sizes[][2] = { { 1152, 1152 }, { 3456, 1152 }, { 4608, 1152 },
                                        { 1152, 4608 } };
    static const int64_t tokens[] = { 256, 1024, 4096 };
    xd_err   e = { 0 };
    int      threads = xd_par_set(argc > 1 ? atoi(argv[1]) : 0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (xd_dev_open(&dev, "cpu", &e)) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    xd_dtype type = xd_dev_compute(dev, XD_BF16);
    printf("%s, %d threads; peak f32 %.1f, bf16 %.1f GFLOP/s; computes in %s\n", dev->name,
           threads, xd_cpu_peak(dev, XD_F32, 0), xd_cpu_peak(dev, XD_BF16, 0),
           xd_dtype_name(type));
    for (int t = 0; t < 3; t++)
        for (int s = 0; s < 4; s++)
            for (int how = 0; how < 3; how++)
                if (how == 0 || (how == 1) == (sizes[s][0] == 4608))
                    gemm(type, tokens[t], sizes[s][0], sizes[s][1], how);
    gemm(type, 1, 6912, 1152, 0);
    conv(type, 64, 512, 512, 3);
    conv(type, 128, 512, 512, 3);
    conv(type, 256, 256, 256, 3);
    conv(type, 256, 128, 128, 3);
    conv(type, 256, 128, 128, 1);
    conv(type, 256, 128, 3, 3);
    conv(type, 64, 4, 512, 3);
    rows(type);
    xd_dev_close(&dev);
    return 0;
}
