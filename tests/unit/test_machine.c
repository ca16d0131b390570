/* test_machine.c - machines: presets, files, refusals; and what a call takes on one */
#define _XOPEN_SOURCE 700        /* mkstemp, P_tmpdir */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "predict/machine.h"

static char path[512];

static void put_file(const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static int setup(void **state)
{
    const char *tmp = getenv("TMPDIR");
    (void)state;
    snprintf(path, sizeof path, "%s/xdit-machine-XXXXXX", tmp && *tmp ? tmp : P_tmpdir);
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int teardown(void **state)
{
    (void)state;
    return unlink(path);
}

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * fabs(want)))
        fail_msg("%.12g is not %.12g", got, want);
}

static void same_rates(const xd_rates *a, const xd_rates *b)
{
    const double *p = (const double *)a, *q = (const double *)b;
    for (size_t i = 0; i < sizeof *a / sizeof *p; i++)
        near(p[i], q[i]);
}

/* Names of clusters: so many hosts, so many ranks of each, whose devices are known. */
static void clusters(void **state)
{
    static const struct {
        const char *name, *full;
        int         hosts, ranks, sheet;
        double      memory;
    } good[] = {
        { "8xH100", "8xH100", 1, 8, 0, 80e9 },           { "H200", "1xH200", 1, 1, 1, 141e9 },
        { "4xb200", "4xB200", 1, 4, 1, 180e9 },          { "2x8xL40", "2x8xL40", 2, 8, 0, 48e9 },
        { "2x2x4090", "2x2x4090", 2, 2, 0, 24e9 },       { "5090", "1x5090", 1, 1, 1, 32e9 },
        { "1x16xMI300X", "16xMI300X", 1, 16, 1, 192e9 }, { "8xMI355X", "8xMI355X", 1, 8, 1, 288e9 },
        { "3xh100-pcie", "3xH100-PCIe", 1, 3, 0, 80e9 }, { "2xL40S", "2xL40S", 1, 2, 1, 48e9 },
        { "2xRTX4090", "2x4090", 1, 2, 0, 24e9 },        { "rtx-5090", "1x5090", 1, 1, 1, 32e9 },
    };
    static const char *const bad[] = { "",        "x",        "8x",       "0xH100", "8xB",
                                       "-1xH100", "2x2x2xL4", "65537xL4", "8 xL4" };
    xd_machine               m, one;
    xd_err                   e = { 0 };
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(xd_machine_read(&m, good[i].name, &e), XD_OK);
        assert_string_equal(m.name, good[i].full);
        assert_int_equal(m.hosts, good[i].hosts);
        assert_int_equal(m.ranks, good[i].ranks);
        assert_int_equal(m.sheet, good[i].sheet);
        near(m.memory, good[i].memory);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        e = (xd_err){ 0 };
        assert_int_equal(xd_machine_read(&m, bad[i], &e), XD_EINVAL);
        for (int k = 0; xd_machine_device(k); k++)
            assert_non_null(strstr(e.msg, xd_machine_device(k)));
    }
    assert_int_equal(xd_machine_known(&m, "16xL40") && xd_machine_known(&one, "8xL40"), 1);
    near(m.inside.shared, 2 * one.inside.shared); /* two devices share a way up */
    near(one.inside.shared, 4 * one.inside.bytes);
}

/* Every device can be, and is the same after it was written and read. */
static void presets(void **state)
{
    xd_machine m, back;
    xd_err     e = { 0 };
    (void)state;
    for (int i = 0; xd_machine_device(i); i++) {
        char        two[XD_FIELD_TEXT];
        xd_text_buf b = { 0 };
        snprintf(two, sizeof two, "2x3x%s", xd_machine_device(i));
        assert_int_equal(xd_machine_read(&m, two, &e), XD_OK);
        assert_int_equal(xd_machine_check(&m, m.name, &e), XD_OK);
        assert_string_equal(m.name, two);
        strcpy(m.device, "cuda");
        m.upload = 2e10, m.download = 3e10;
        m.cache = 5e6, m.read = 1.5e8, m.bf16.weights = 3, m.threads = 3, m.shares = i % 2,
        m.alone = 1.25;
        xd_machine_write(&m, &b);
        put_file(b.p);
        xd_buf_free(&b);
        if (xd_machine_read(&back, path, &e) != XD_OK)
            fail_msg("%s", e.msg);
        assert_string_equal(back.name, m.name);
        assert_int_equal(back.hosts, m.hosts);
        assert_int_equal(back.ranks, m.ranks);
        assert_int_equal(back.threads, 3);
        assert_int_equal(back.shares, i % 2);
        near(back.memory, m.memory);
        near(back.alone, 1.25);
        near(back.cache, 5e6);
        near(back.read, 1.5e8);
        near(back.upload, 2e10);
        near(back.download, 3e10);
        assert_string_equal(back.device, "cuda");
        same_rates(&back.f32, &m.f32);
        same_rates(&back.bf16, &m.bf16);
        near(back.inside.bytes, m.inside.bytes);
        near(back.between.latency_s, m.between.latency_s);
        near(back.between.overlap, m.between.overlap);
    }
}

/* Names of products, as drivers tell them. */
static void products(void **state)
{
    static const struct {
        const char *product, *device;
    } known[] = {
        { "NVIDIA H100 80GB HBM3", "H100" },
        { "NVIDIA H100 PCIe", "H100-PCIe" },
        { "NVIDIA A100-SXM4-80GB", "A100" },
        { "NVIDIA L40S", "L40S" },
        { "NVIDIA L40", "L40" },
        { "NVIDIA GeForce RTX 4090", "4090" },
        { "NVIDIA GeForce RTX 5090", "5090" },
        { "NVIDIA A10", "A10" },
        { "NVIDIA A10G", NULL },
        { "simulated GPU", NULL },
        { "", NULL },
    };
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *device = xd_machine_like(known[i].product);
        if (!device || !known[i].device)
            assert_ptr_equal(device, known[i].device);
        else
            assert_string_equal(device, known[i].device);
    }
}

/* A rank's only GPU has one place, whether it is named by number or not. */
static void homes_of_devices(void **state)
{
    char one[512], two[512];
    (void)state;
    assert_int_equal(setenv("XDG_CACHE_HOME", "/c", 1), 0);
    assert_true(xd_machine_device_home(1, "cuda", one, sizeof one));
    assert_true(xd_machine_device_home(1, "cuda:0", two, sizeof two));
    assert_string_equal(one, two);
    assert_non_null(strstr(one, "-1xcuda.json"));
    assert_true(xd_machine_device_home(2, "cuda:0", two, sizeof two));
    assert_non_null(strstr(two, "-2xcuda:0.json"));
    assert_false(xd_machine_device_home(2, "cuda", two, 10));
    unsetenv("XDG_CACHE_HOME");
}

#define RATES "{\"gemm_flops\": 1e12, \"gemm_half_rows\": 8, \"attention_flops_64\": 5e11, " \
              "\"attention_flops_128\": 6e11, \"attention_half_keys\": 16, " \
              "\"convolution_flops\": 4e11, " \
              "\"memory_bandwidth\": 1e10, \"call_seconds\": 1e-6}"
#define WIRE  "{\"latency_seconds\": 1e-5, \"bandwidth\": 1e9, \"overlap\": 0.5}"
#define HEAD  "{\"hosts\": 2, \"ranks_per_host\": 4, \"threads_per_rank\": 1, \"memory\": 1e10, "

/* One type and one link stand for both. */
static void halves(void **state)
{
    xd_machine m;
    xd_err     e = { 0 };
    (void)state;
    put_file(HEAD "\"bf16\": " RATES ", \"between\": " WIRE "}");
    if (xd_machine_read(&m, path, &e) != XD_OK)
        fail_msg("%s", e.msg);
    same_rates(&m.f32, &m.bf16);
    near(m.inside.bytes, 1e9);
    near(m.read, 0); /* a file from before it was measured: unknown */
    assert_ptr_equal(xd_machine_rates(&m, XD_BF16), &m.bf16);
    assert_ptr_equal(xd_machine_rates(&m, XD_F32), &m.f32);
}

static void refused(const char *text, const char *why)
{
    xd_machine m;
    xd_err     e = { 0 };
    put_file(text);
    assert_int_not_equal(xd_machine_read(&m, path, &e), XD_OK);
    if (!strstr(e.msg, why) || strchr(e.msg, '\n'))
        fail_msg("the refusal of %s is \"%s\", without \"%s\"", text, e.msg, why);
}

static void refusals(void **state)
{
    xd_machine m;
    xd_err     e = { 0 };
    (void)state;
    assert_int_equal(xd_machine_read(&m, "9xH1000", &e), XD_EINVAL);
    assert_non_null(strstr(e.msg, "9xH1000"));
    assert_int_not_equal(xd_machine_read(&m, "./none.json", &e), XD_OK);
    refused("[1]", "object");
    refused("{", path);
    refused(HEAD "\"bf16\": " RATES "}", "inside or between");
    refused(HEAD "\"inside\": " WIRE "}", "f32 or bf16");
    refused(HEAD "\"bf16\": 3, \"inside\": " WIRE "}", "bf16 must be");
    refused("{\"hosts\": 0, \"ranks_per_host\": 4, \"memory\": 1e9, \"f32\": " RATES
            ", \"inside\": " WIRE "}",
            "hosts is 0 and ranks 4");
    refused("{\"hosts\": 1, \"ranks_per_host\": 4, \"memory\": 0, \"f32\": " RATES
            ", \"inside\": " WIRE "}",
            "memory is 0; it must be above 0");
    refused(HEAD "\"f32\": " RATES
                 ", \"inside\": {\"latency_seconds\": 1e-5, \"bandwidth\": 1e9, \"overlap\": 2}}",
            "overlap 2");
    refused(HEAD "\"f32\": " RATES
                 ", \"inside\": {\"latency_seconds\": 1e-5, \"bandwidth\": -1, \"overlap\": 0}}",
            "inside.bandwidth is -1");
    refused(HEAD "\"read_bytes_per_second\": -1, \"f32\": " RATES ", \"inside\": " WIRE "}",
            "read_bytes_per_second is -1");
}

/* ---- cost device ---------------------------------------------------------------------------- */

static xd_machine plain(void)
{
    xd_rates r = { .gemm = 1000,
                   .gemm_rows = 10,
                   .attn = { 100, 300 },
                   .attn_keys = 0,
                   .conv = 500,
                   .bytes = 1e18,
                   .call_s = 0 };
    return (xd_machine){ .hosts = 1, .ranks = 1, .memory = 1, .alone = 2, .f32 = r, .bf16 = r };
}

typedef struct bench {
    xd_machine      m;
    xd_dev         *count;
    xd_cost_device *r;
    xd_dev         *d;
} bench;

static void open_bench(bench *k, xd_machine m)
{
    xd_err e = { 0 };
    k->m = m;
    assert_int_equal(xd_dev_open_count(&k->count, NULL, &e), XD_OK);
    assert_int_equal(xd_cost_device_open(&k->r, k->count, &k->m, XD_F32, &e), XD_OK);
    k->d = xd_cost_device_dev(k->r);
    assert_true(k->d->counts);
}

static void close_bench(bench *k)
{
    xd_cost_device_close(&k->r);
    xd_dev_close(&k->count);
}

static void test_gemm(bench *k, int64_t rows, int64_t out, int64_t in)
{
    float     any;
    xd_weight w = { .type = XD_F32,
                    .out = out,
                    .in = in,
                    .kernel = { 1, 1, 1 },
                    .stride = { 1, 1, 1 },
                    .groups = 1 };
    w.bytes = (size_t)(out * in) * 4;
    xd_gemm a = { .out = xd_view2(&any, XD_F32, rows, out),
                  .in = xd_view2(&any, XD_F32, rows, in),
                  .w = &w };
    assert_int_equal(k->d->ops->gemm(k->d, NULL, &a, NULL), XD_OK);
}

static void attention(bench *k, int64_t queries, int64_t keys, int64_t D)
{
    float        any;
    xd_kv        kv = { xd_view(&any, XD_F32, 4, (int64_t[]){ 1, keys, 1, D }),
                        xd_view(&any, XD_F32, 4, (int64_t[]){ 1, keys, 1, D }) };
    xd_tensor    q = xd_view(&any, XD_F32, 4, (int64_t[]){ 1, queries, 1, D });
    xd_attn_args a = { .out = q, .q = q, .kv = &kv, .nkv = 1, .scale = 1 };
    assert_int_equal(k->d->ops->attn(k->d, NULL, &a, NULL), XD_OK);
}

static void gemms(void **state)
{
    bench k;
    (void)state;
    open_bench(&k, plain());
    test_gemm(&k, 10, 4, 5); /* 400 flops at half of 1000 a second */
    near(xd_cost_device_lap_s(k.r, 0), 0.8);
    near(xd_cost_device_lap_s(k.r, 0) + 1, 1);
    test_gemm(&k, 90, 4, 5);                     /* 3600 at 90 % */
    near(xd_cost_device_lap_s(k.r, 1), 4.0 / 2); /* the others rest */
    attention(&k, 3, 7, 64);                     /* 4 x 3 x 7 x 64 */
    near(xd_cost_device_lap_s(k.r, 0), 5376.0 / 100);
    attention(&k, 3, 7, 128);
    near(xd_cost_device_lap_s(k.r, 0), 10752.0 / 300);
    attention(&k, 3, 7, 96);
    near(xd_cost_device_lap_s(k.r, 0), 8064.0 / 200);
    xd_counts c;
    xd_dev_counts(k.count, &c, 0);
    near(c.flops, 400 + 3600 + 5376 + 10752 + 8064);
    close_bench(&k);
}

/* What is not bound by flops is bound by bytes, and every call costs something. */
static void memory_bound(void **state)
{
    bench      k;
    xd_machine m = plain();
    float      any;
    (void)state;
    m.f32.bytes = 10, m.f32.call_s = 3, m.f32.gemm = 1e18;
    open_bench(&k, m);
    test_gemm(&k, 10, 4, 5); /* (40 + 50 + 20) x 4 bytes */
    near(xd_cost_device_lap_s(k.r, 0), 44 + 3);
    xd_copy c = { xd_view2(&any, XD_F32, 5, 2), xd_view2(&any, XD_F32, 5, 2) };
    assert_int_equal(k.d->ops->copy(k.d, NULL, &c, NULL), XD_OK);
    near(xd_cost_device_lap_s(k.r, 0), 8 + 3);
    close_bench(&k);
}

/* On a machine that has a rate for weights: cold ones are read, activations and residuals take
 * their time. */
static void products_of_cpus(void **state)
{
    bench      k;
    xd_machine m = plain();
    float      any;
    (void)state;
    m.f32.gemm_rows = 0, m.f32.bytes = 80, m.f32.weights = 8, m.f32.act = 16, m.cache = 1000;
    open_bench(&k, m);
    test_gemm(&k, 10, 4, 5); /* 400 flops, 80 bytes of weights that stay */
    near(xd_cost_device_lap_s(k.r, 0), 0.4 + 1);
    xd_cost_device_weights(k.r, 1001);
    test_gemm(&k, 10, 4, 5);
    near(xd_cost_device_lap_s(k.r, 0), 0.4 + 10);
    xd_weight w = { .type = XD_F32,
                    .out = 4,
                    .in = 5,
                    .bytes = 80,
                    .kernel = { 1, 1, 1 },
                    .stride = { 1, 1, 1 },
                    .groups = 1 };
    xd_gemm   a = { .out = xd_view2(&any, XD_F32, 10, 4),
                    .in = xd_view2(&any, XD_F32, 10, 5),
                    .w = &w };
    a.residual = a.out, a.act = XD_SILU;
    assert_int_equal(k.d->ops->gemm(k.d, NULL, &a, NULL), XD_OK);
    near(xd_cost_device_lap_s(k.r, 0), 0.4 + 10 + 2 * 160.0 / 16 + 2 * 160.0 / 80);
    close_bench(&k);
}

static void convolve(bench *k, int frames, int64_t rows, const xd_tensor *residual)
{
    static float any;
    xd_weight    w = { .type = XD_F32,
                       .out = 2,
                       .in = 5,
                       .nk = frames > 1 ? 3 : 2,
                       .bytes = 80,
                       .kernel = { frames, 1, 1 },
                       .stride = { 1, 1, 1 },
                       .groups = 1 };
    xd_conv      a = { .out = xd_view(&any, XD_F32, 4, (int64_t[]){ 1, rows, 10, 2 }),
                       .in = xd_view(&any, XD_F32, 4, (int64_t[]){ frames, rows, 10, 5 }),
                       .w = &w,
                       .stride = { 1, 1, 1 } };
    if (residual)
        a.residual = *residual;
    assert_int_equal(k->d->ops->conv(k->d, NULL, &a, NULL), XD_OK);
}

/* Convolutions of several frames have a rate of their own, and few rows take longer. A residual
 * elsewhere is copied, and read again by the convolution. */
static void convolutions_of_cpus(void **state)
{
    bench           k;
    xd_machine      m = plain();
    float           any;
    const xd_tensor residual = xd_view(&any, XD_F32, 4, (int64_t[]){ 1, 3, 10, 2 });
    (void)state;
    m.f32.conv = 1000, m.f32.bytes = 80, m.f32.weights = 8, m.cache = 1000;
    open_bench(&k, m);
    convolve(&k, 1, 3, NULL); /* 2 x 30 x 2 x 5 = 600 flops, 80 bytes of weights that stay */
    near(xd_cost_device_lap_s(k.r, 0), 0.6 + 1);
    convolve(&k, 3, 3, NULL); /* 1800 */
    near(xd_cost_device_lap_s(k.r, 0), 1.8 + 1);
    k.m.f32.conv_3d = 500, k.m.f32.conv_rows = 1;
    convolve(&k, 1, 3, NULL);
    near(xd_cost_device_lap_s(k.r, 0), 0.8 + 1);
    convolve(&k, 3, 1, NULL); /* 600 at half of 500 a second */
    near(xd_cost_device_lap_s(k.r, 0), 2.4 + 1);
    xd_cost_device_weights(k.r, 1001);
    convolve(&k, 1, 3, &residual); /* 240 bytes, three times */
    near(xd_cost_device_lap_s(k.r, 0), 0.8 + 10 + 3 * 240.0 / 80);
    close_bench(&k);
}

/* Norms, group norms and activations have rates of their own where they are given. */
static void classes(void **state)
{
    bench      k;
    xd_machine m = plain();
    float      any;
    (void)state;
    m.f32.bytes = 10, m.f32.norm = 20, m.f32.act = 40;
    open_bench(&k, m);
    xd_norm n = { .out = xd_view2(&any, XD_F32, 5, 2), .in = xd_view2(&any, XD_F32, 5, 2) };
    assert_int_equal(k.d->ops->norm(k.d, NULL, &n, NULL), XD_OK);
    near(xd_cost_device_lap_s(k.r, 0), 80.0 / 20);
    xd_glu g = { .out = n.out, .a = n.in, .act = XD_SILU };
    assert_int_equal(k.d->ops->glu(k.d, NULL, &g, NULL), XD_OK);
    near(xd_cost_device_lap_s(k.r, 0), 80.0 / 40);
    k.m.f32.act = 0;
    assert_int_equal(k.d->ops->glu(k.d, NULL, &g, NULL), XD_OK);
    near(xd_cost_device_lap_s(k.r, 0), 80.0 / 10);
    close_bench(&k);
}

/* Small heads: from 64 and 128 features follows what a pair takes besides its flops. */
static void small_heads(void **state)
{
    bench      k;
    xd_machine m = plain();
    (void)state;
    m.f32.attn[0] = 150, m.f32.attn[1] = 200; /* full speed 300, 64 features more a pair */
    m.f32.attn_rows = 3;
    open_bench(&k, m);
    attention(&k, 3, 7, 32);
    near(xd_cost_device_lap_s(k.r, 0), 4.0 * 3 * 7 * 32 / (300.0 * 32 / 96) * 2);
    close_bench(&k);
}

/* A quick guess of this machine can be. */
static void here(void **state)
{
    xd_machine m;
    xd_dev    *d = NULL;
    xd_err     e = { 0 };
    (void)state;
    setenv("XDG_CACHE_HOME", path, 1); /* a file: there is nothing below it */
    assert_int_equal(xd_dev_open(&d, "cpu", &e), XD_OK);
    if (xd_machine_here(&m, d, 2, 1, &e) != XD_OK)
        fail_msg("%s", e.msg);
    assert_int_equal(m.ranks, 2);
    assert_int_equal(m.threads, 1);
    assert_true(m.memory > 1e6 && m.f32.gemm > 1e8 && m.shares);
    assert_non_null(strstr(m.name, "estimated"));
    xd_dev_close(&d);
}

/* A disk is as fast as a probe with another number of ranks found it, the newest one. */
static void the_disk_is_known(void **state)
{
    static const char machine[] =
        "{ \"hosts\": 1, \"ranks_per_host\": 3, \"threads_per_rank\": 1, \"memory\": 8e9,"
        "  \"read_bytes_per_second\": %g, \"f32\": { \"gemm_flops\": 5e10,"
        "  \"attention_flops_64\": 4e10, \"attention_flops_128\": 4e10,"
        "  \"convolution_flops\": 4e10, \"memory_bandwidth\": 7e9 },"
        "  \"inside\": { \"latency_seconds\": 3e-6, \"bandwidth\": 4e9 } }";
    static const struct timespec when[][2] = { { { 2000, 0 }, { 2000, 0 } },
                                               { { 1000, 0 }, { 1000, 0 } } };
    char                         dir[600], sub[640], one[1024];
    xd_machine                   m;
    xd_dev                      *d = NULL;
    xd_err                       e = { 0 };
    (void)state;
    snprintf(dir, sizeof dir, "%s.d-XXXXXX", path);
    assert_non_null(mkdtemp(dir));
    setenv("XDG_CACHE_HOME", dir, 1);
    snprintf(sub, sizeof sub, "%s/xdit", dir);
    assert_int_equal(mkdir(sub, 0700), 0);
    assert_int_equal(xd_dev_open(&d, "cpu", &e), XD_OK);
    assert_int_equal(xd_machine_here(&m, d, 2, 1, &e), XD_OK);
    near(m.read, 0);
    for (int i = 0; i < 2; i++) {
        assert_true(xd_machine_home(3 + i, 1, one, sizeof one));
        FILE *f = fopen(one, "w");
        assert_non_null(f);
        fprintf(f, machine, i ? 2e8 : 1e8);
        assert_int_equal(fclose(f), 0);
        assert_int_equal(utimensat(AT_FDCWD, one, when[i], 0), 0);
    }
    assert_int_equal(xd_machine_here(&m, d, 2, 1, &e), XD_OK);
    assert_non_null(strstr(m.name, "estimated"));
    near(m.read, 1e8);
    for (int i = 0; i < 2; i++)
        assert_true(xd_machine_home(3 + i, 1, one, sizeof one) && unlink(one) == 0);
    assert_int_equal(rmdir(sub) || rmdir(dir), 0);
    xd_dev_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets),
        cmocka_unit_test(clusters),
        cmocka_unit_test(halves),
        cmocka_unit_test(refusals),
        cmocka_unit_test(gemms),
        cmocka_unit_test(memory_bound),
        cmocka_unit_test(products_of_cpus),
        cmocka_unit_test(convolutions_of_cpus),
        cmocka_unit_test(classes),
        cmocka_unit_test(small_heads),
        cmocka_unit_test(here),
        cmocka_unit_test(the_disk_is_known),
        cmocka_unit_test(products),
        cmocka_unit_test(homes_of_devices),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
