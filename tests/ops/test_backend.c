/* test_backend.c - kernels that move elements, threads, devices and counting */
#include "operands.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/par.h"

/* ---- moving ------------------------------------------------------------------------------- */

void test_resize(void **unused)
{
    (void)unused;
    for (int c = 0; c < 30; c++) {
        int64_t   d[4] = { 1 + upto(2), upto(9), 1 + upto(9), 1 + upto(20) }, o[4], e = 0;
        xd_resize a;
        xd_dtype  type = f32_or_half();
        for (int i = 0; i < 4; i++) {
            if (i < 3)
                a.factor[i] = 1 + (int)upto(3);
            o[i] = i < 3 ? d[i] * a.factor[i] : d[i];
        }
        fresh();
        a.in = operand(type, 4, d, upto(2) * 3);
        a.out = operand(type, 4, o, upto(2) * 3);
        double *want = numbers(xd_count(a.out));
        for (int64_t t = 0; t < o[0]; t++)
            for (int64_t h = 0; h < o[1]; h++)
                for (int64_t w = 0; w < o[2]; w++)
                    for (int64_t k = 0; k < o[3]; k++)
                        want[e++] = at(&a.in, ((t / a.factor[0] * d[1] + h / a.factor[1]) * d[2] +
                                               w / a.factor[2]) *
                                                      d[3] +
                                                  k);
        remember();
        RUN(resize, XD_OP_RESIZE, &a);
        check("resize", &a.out, want);
        free(want);
    }
}

void test_lookup(void **unused)
{
    static const xd_dtype types[] = { XD_F32, XD_BF16, XD_F16 };
    (void)unused;
    for (int c = 0; c < 40; c++) {
        int64_t   n = c ? upto(20) : 0, V = 1 + upto(50), C = 1 + upto(c % 4 ? 60 : 2500);
        xd_lookup a;
        int32_t  *ids = malloc((size_t)(n + 1) * sizeof *ids);
        double   *want = numbers(n * C);
        fresh();
        a.table = operand_at(types[upto(3)], 2, (int64_t[]){ V, C }, 0, upto(4));
        a.out = matrix(f32_or_half(), n, C, upto(2) * 3);
        a.ids = xd_view(ids, XD_I32, 1, &n);
        for (int64_t i = 0; i < n * C; i++) {
            if (i % C == 0)
                ids[i / C] = (int32_t)upto(V);
            want[i] = at(&a.table, ids[i / C] * C + i % C);
        }
        remember();
        RUN(lookup, XD_OP_LOOKUP, &a);
        check("lookup", &a.out, want);
        for (int k = 0; k < 2 && n > 0; k++) {
            ids[upto(n)] = k ? -1 : (int32_t)V;
            assert_int_equal(dev->ops->lookup(dev, NULL, &a, NULL), XD_EINVAL);
        }
        free(ids);
        free(want);
    }
}

void test_copy(void **unused)
{
    static const xd_dtype from[] = { XD_F32, XD_BF16, XD_F16, XD_F64, XD_F8E4M3 };
    (void)unused;
    for (int c = 0; c < 180; c++) {
        int64_t d[XD_MAXDIM], o[XD_MAXDIM];
        int     nd = 1 + (int)upto(XD_MAXDIM), order[XD_MAXDIM], permute = (int)upto(2);
        for (int i = 0; i < nd; i++) {
            d[i] = upto(40) ? 1 + upto(nd > 3 ? 6 : c % 4 ? 40 : 300) : 0;
            order[i] = i;
        }
        for (int i = nd - 1; i > 0 && permute; i--) {
            int j = (int)upto(i + 1), k = order[i];
            order[i] = order[j];
            order[j] = k;
        }
        for (int i = 0; i < nd; i++)
            o[i] = d[order[i]];
        fresh();
        xd_copy a = { .in = xd_permute(operand(from[upto(5)], nd, d, upto(2) * 3), order),
                      .out = operand(from[upto(3)], nd, o, upto(2) * 5) };
        if (upto(5) == 0)
            a.in.s[upto(nd)] = 0; /* one element, many times */
        double *want = numbers(xd_count(a.out));
        for (int64_t i = 0; i < xd_count(a.out); i++)
            want[i] = at(&a.in, i);
        remember();
        RUN(copy, XD_OP_COPY, &a);
        check("copy", &a.out, want);
        free(want);
    }
}

/* Conversions bit by bit: every half and every bf16 value, and floats around all their edges. */
void test_conversions(void **unused)
{
    enum { ALL = 65536 };
    static const xd_dtype small[2] = { XD_F16, XD_BF16 };
    (void)unused;
    for (int k = 0; k < 2; k++) {
        fresh();
        xd_tensor h = matrix(small[k], 1, ALL, 0), f = matrix(XD_F32, 1, ALL, 0);
        uint16_t *ph = h.p;
        float    *pf = f.p, want;
        for (int i = 0; i < ALL; i++)
            ph[i] = (uint16_t)i;
        RUN(copy, XD_OP_COPY, (&(xd_copy){ f, h }));
        for (int i = 0; i < ALL; i++) {
            want = k ? xd_bf16_f32((uint16_t)i) : xd_f16_f32((uint16_t)i);
            if (isnan(want) ? !isnan(pf[i]) : memcmp(&want, &pf[i], sizeof want) != 0)
                fail_msg("%s %04x becomes %g, not %g", k ? "bf16" : "f16", i, (double)pf[i],
                         (double)want);
        }
        for (int round = 0; round < 20; round++) {
            for (int i = 0; i < ALL; i++) { /* one of the small numbers and some ulps */
                uint32_t u;
                want = k ? xd_bf16_f32((uint16_t)i) : xd_f16_f32((uint16_t)i);
                memcpy(&u, &want, sizeof u);
                u += round < 3   ? (uint32_t)round - 1
                     : k         ? 0x7fffu + (uint32_t)upto(3)
                     : round < 6 ? 0xfffu + (uint32_t)upto(3)
                                 : (uint32_t)any();
                memcpy(&pf[i], &u, sizeof u);
            }
            RUN(copy, XD_OP_COPY, (&(xd_copy){ h, f }));
            for (int i = 0; i < ALL; i++) {
                uint16_t w = k ? xd_f32_bf16(pf[i]) : xd_f32_f16(pf[i]);
                if (isnan(pf[i]) ? !isnan(at(&h, i)) : w != ph[i])
                    fail_msg("%a becomes %s %04x, not %04x", (double)pf[i], k ? "bf16" : "f16",
                             ph[i], w);
            }
        }
    }
}

/* ---- threads ------------------------------------------------------------------------------ */

static void all_row_ops(xd_tensor in, xd_tensor *out, xd_tensor sums)
{
    int64_t    C = in.d[1], n = in.d[0];
    xd_norm    norm = { .in = in, .out = out[0], .eps = 1e-6f };
    xd_glu     glu = { .out = out[1], .a = in, .act = XD_GELU_ERF };
    xd_moments mom = { .in = xd_reshape(in, 3, (int64_t[]){ n / 4, 4, C }),
                       .out = sums,
                       .groups = 8 };
    RUN(norm, XD_OP_NORM, &norm);
    RUN(glu, XD_OP_GLU, &glu);
    RUN(moments, XD_OP_MOMENTS, &mom);
}

/* The row kernels give the same bits with any number of threads. */
void test_threads(void **unused)
{
    xd_tensor a[2], b[2], sa, sb, in;
    int       cores = xd_par_threads();
    (void)unused;
    fresh();
    in = matrix(XD_F32, 64, 1000, 0);
    for (int i = 0; i < 2; i++) {
        a[i] = matrix(XD_F32, 64, 1000, 0);
        b[i] = matrix(XD_F32, 64, 1000, 0);
    }
    sa = operand(XD_F64, 3, (int64_t[]){ 16, 8, 2 }, 0);
    sb = operand(XD_F64, 3, (int64_t[]){ 16, 8, 2 }, 0);
    xd_par_set(1);
    all_row_ops(in, a, sa);
    for (int t = 2; t <= 5; t++) {
        xd_par_set(t);
        all_row_ops(in, b, sb);
        for (int i = 0; i < 2; i++)
            assert_memory_equal(a[i].p, b[i].p, xd_bytes(a[i]));
        assert_memory_equal(sa.p, sb.p, xd_bytes(sa));
    }
    xd_par_set(cores);
}

/* ---- devices ------------------------------------------------------------------------------ */

void test_memory(void **unused)
{
    static const size_t sizes[] = { 1, 64, 4097, (size_t)5 << 20 };
    size_t              available, total, before;
    struct rlimit       lim, old;
    (void)unused;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *p = dev->mem->get(dev, sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        memset(p, 1, sizes[i]);
        dev->mem->put(dev, p, sizes[i]);
    }
    dev->mem->memory(dev, &before, &total);
    assert_true(before > 0 && before <= total);
    assert_null(dev->mem->get(dev, SIZE_MAX - 5));
    if (strcmp(dev->ops->name, "cuda") == 0)
        return; /* a GPU's memory is not the process's */
    assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
    lim = old;
    lim.rlim_cur = (rlim_t)1 << 40; /* far more than is mapped, unless a sanitizer maps more */
    struct rlimit now = old;
    if (old.rlim_cur == RLIM_INFINITY && setrlimit(RLIMIT_AS, &lim) == 0 &&
        getrlimit(RLIMIT_AS, &now) == 0 && now.rlim_cur != lim.rlim_cur)
        printf("# skipped: this system keeps no limit of the address space (qemu)\n");
    else if (now.rlim_cur == lim.rlim_cur) {
        dev->mem->memory(dev, &available, &total);
        assert_true(available <= (size_t)1 << 40);
        lim.rlim_cur = (rlim_t)1 << 20;
        assert_int_equal(setrlimit(RLIMIT_AS, &lim), 0);
        dev->mem->memory(dev, &available, &total);
        setrlimit(RLIMIT_AS, &old);
        assert_int_equal(available, 0); /* more than 1 MiB is mapped already */
    }
}

void test_names(void **unused)
{
    xd_err  e = { 0 };
    xd_dev *d = NULL;
    (void)unused;
    assert_int_equal(xd_dev_open(&d, "gpu", &e), XD_EINVAL);
    assert_null(d);
    assert_non_null(strstr(e.msg, "gpu"));
    if (strcmp(dev->ops->name, "cuda") == 0)
        return; /* a GPU has no instruction sets of the host */
    const char *isa = getenv("XDIT_ISA");
    char        keep[32] = "";
    snprintf(keep, sizeof keep, "%s", isa ? isa : "");
    setenv("XDIT_ISA", "mmx", 1);
    memset(&e, 0, sizeof e);
    assert_int_equal(xd_dev_open(&d, "cpu", &e), XD_EINVAL);
    assert_non_null(strstr(e.msg, "mmx"));
    assert_non_null(strstr(e.msg, "has c"));
    setenv("XDIT_ISA", keep, 1);
    assert_true(xd_dev_best(dev) == XD_F32 || strcmp(dev->ops->name, "avx512bf16") == 0 ||
                strcmp(dev->ops->name, "amx") == 0);
    assert_int_equal(xd_dev_compute(dev, XD_F32), XD_F32);
}

void test_count(void **unused)
{
    xd_dev   *c;
    xd_err    e = { 0 };
    xd_counts n;
    (void)unused;
    assert_int_equal(xd_dev_open_count(&c, dev, &e), XD_OK);
    assert_int_equal(c->counts, 1);
    assert_int_equal(xd_dev_compute(c, XD_BF16), xd_dev_compute(dev, XD_BF16));
    char *p = c->mem->get(c, 100), *q = c->mem->get(c, (size_t)1 << 40);
    assert_true(p && q >= p + 100 && (uintptr_t)p % 64 == 0 && (uintptr_t)q % 64 == 0);
    xd_weight w = { .type = XD_F32, .out = 30, .in = 20, .groups = 1 }, r = w;
    assert_int_equal(c->ops->pack_size(c, &w), dev->ops->pack_size(dev, &r));
    w.p = q;
    /* Plans for other machines count bf16 here, too, where nothing multiplies it. */
    xd_weight half = { .type = XD_BF16, .out = 64, .in = 128, .groups = 1 };
    assert_in_range(c->ops->pack_size(c, &half), 64 * 128 * 2, 64 * 128 * 3);
    xd_gemm g = { .w = &w, .in = xd_view2(p, XD_F32, 10, 20), .out = xd_view2(q, XD_F32, 10, 30) };
    assert_int_equal(c->ops->scratch(c, XD_OP_GEMM, &g), dev->ops->scratch(dev, XD_OP_GEMM, &g));
    assert_int_equal(c->ops->gemm(c, NULL, &g, NULL), XD_OK);
    xd_kv kv[2] = { { xd_view(p, XD_F32, 4, (int64_t[]){ 2, 5, 3, 8 }),
                      xd_view(p, XD_F32, 4, (int64_t[]){ 2, 5, 3, 8 }) } };
    kv[1] = kv[0];
    xd_attn_args t = { .kv = kv, .nkv = 2, .q = xd_view(p, XD_F32, 4, (int64_t[]){ 2, 7, 3, 8 }) };
    t.out = t.q;
    assert_int_equal(c->ops->attn(c, NULL, &t, NULL), XD_OK);
    xd_weight k = { .type = XD_F32,
                    .out = 6,
                    .in = 4,
                    .nk = 2,
                    .kernel = { 1, 3, 3 },
                    .stride = { 1, 1, 1 },
                    .groups = 1 };
    xd_conv   v = { .w = &k,
                    .in = xd_view(p, XD_F32, 4, (int64_t[]){ 1, 9, 9, 4 }),
                    .out = xd_view(p, XD_F32, 4, (int64_t[]){ 1, 7, 7, 6 }) };
    assert_int_equal(c->ops->conv(c, NULL, &v, NULL), XD_OK);
    xd_copy y = { xd_view2(p, XD_BF16, 10, 10), xd_view2(q, XD_F32, 10, 10) };
    assert_int_equal(c->ops->copy(c, NULL, &y, NULL), XD_OK);
    xd_dev_counts(c, &n, 1);
    assert_true(n.gemm_flops == 2.0 * 10 * 20 * 30);
    assert_true(n.attn_flops == 4.0 * 2 * 3 * 7 * 10 * 8);
    assert_true(n.conv_flops == 2.0 * 49 * 6 * 4 * 9);
    assert_true(n.flops == n.gemm_flops + n.attn_flops + n.conv_flops);
    assert_int_equal(n.calls, 4);
    assert_true(n.bytes > 0);
    xd_dev_counts(c, &n, 0);
    assert_true(n.flops == 0 && n.calls == 0);
    xd_dev_close(&c);
    assert_null(c);
}

#ifdef __SANITIZE_ADDRESS__ /* the simulated GPU is slow then */
#define LEAST_PEAK 1e-4
#else
#define LEAST_PEAK 0.1
#endif

void test_peak(void **unused)
{
    (void)unused;
    if (getenv("XDIT_SIM_NO_PRODUCTS"))
        return; /* a GPU's peak is that of the library */
    double p = xd_dev_peak(dev, XD_F32, 1, 0.03);
    assert_true(p > LEAST_PEAK && p < 1e6);
    assert_true(xd_dev_peak(dev, XD_BF16, 1, 0.03) > LEAST_PEAK);
}

/* Every test gets its own, known random numbers. */
