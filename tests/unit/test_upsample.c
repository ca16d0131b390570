/* test_upsample.c - networks that enlarge latents against diffusers.
 *
 * tools/golden/cases/upsample.py computed tests/golden/upsample with the random weights and inputs
 * that this program makes of a name. Tolerances are shares of the largest value: f32 1e-5, bf16
 * 3e-2. Every run is counted first, and must then use exactly the memory that was counted. */
#include "models.h"
#include "published.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"

static const char *const cases[] = { "spatial", "flat", "temporal", "both", "rational" };

/* From and to memory of the host. */
static size_t call(const bench *b, const part *p, xd_dev *dev, xd_arena *a, xd_tensor from,
                   xd_tensor to)
{
    xd_exec x;
    xd_exec_init(&x, dev, a, b->type);
    a->peak = 0;
    xd_tensor in = xd_new_as(&x, XD_F32, 4, from.d), out = xd_new_as(&x, XD_F32, 4, to.d);
    xd_put(&x, in, from.p);
    p->upsampler->run(&x, &p->net, in, out);
    xd_get(&x, to.p, out);
    ok(x.err.code, &x.err);
    xd_arena_rewind(a, 0);
    return xd_arena_peak(a);
}

static size_t counted(const bench *b, const part *p, xd_tensor in, xd_tensor out)
{
    xd_dev  *count;
    xd_arena a;
    xd_err   e = { 0 };
    ok(xd_dev_open_count(&count, b->real, &e), &e);
    xd_arena_init(&a, (void *)(uintptr_t)XD_ALIGN, SIZE_MAX / 4);
    size_t bytes = call(b, p, count, &a, in, out);
    xd_dev_close(&count);
    return bytes;
}

/* Compares the statistics of the result `got` [T,h,w,C] of the input [S,m,C], which has frames of
 * m cells. */
static void compare_statistics(xd_st *st, const float *got, const xd_tensor *out, const float *in,
                               int64_t m, double tol)
{
    int64_t T = out->d[0], n = out->d[1] * out->d[2], C = out->d[3], d[3] = { T, C, n };
    float  *big = malloc((size_t)(T * n * C) * sizeof *big);
    float  *small = malloc((size_t)(T * m * C) * sizeof *small), *want;
    for (int64_t t = 0; t < T; t++)
        for (int64_t c = 0; c < C; c++) {
            for (int64_t i = 0; i < n; i++)
                big[(t * C + c) * n + i] = got[(t * n + i) * C + c];
            for (int64_t i = 0; i < m; i++)
                small[(t * C + c) * m + i] = in[(t * m + i) * C + c];
        }
    xd_upsample_adain(big, d, small, (int64_t[]){ T, C, m }, 0.6);
    near("adain", big, want = reference(st, "adain", NULL), T * n * C, tol);
    free(want);
    xd_upsample_tone_map(big, T * n * C, 0.7);
    near("tone", big, want = reference(st, "tone", NULL), T * n * C, tol);
    free(want), free(big), free(small);
}

static void compare(bench *b, const part *p, xd_st *st, int64_t i, double tol)
{
    const char       *what = xd_st_name(st, i);
    xd_tensor         shape;
    xd_upsampler_info v;
    if (strncmp(what, "run.", 4) != 0)
        return;
    float *want = reference(st, what, &shape);
    p->upsampler->info(p->net.cfg, &v);
    int64_t   T = atoi(what + 4);
    int64_t   d[4] = { T, shape.d[1] / v.by[1], shape.d[2] / v.by[2], v.channels };
    xd_tensor in = xd_view(NULL, XD_F32, 4, d), out = xd_view(NULL, XD_F32, 4, shape.d);
    float    *number = in.p = malloc(xd_bytes(in)), *got = out.p = malloc(xd_bytes(out));
    assert_int_equal(shape.d[0], xd_upsampler_frames(&v, T));
    for (int64_t k = 0; k < xd_count(in); k++)
        number[k] = xd_random_weight(xd_hash_text(what), (uint64_t)k);
    size_t bytes = counted(b, p, in, out);
    assert_true(bytes <= b->tmp.cap);
    assert_int_equal(call(b, p, b->dev, &b->tmp, in, out), bytes);
    near(what, got, want, xd_count(out), tol);
    if (xd_st_find(st, "adain") >= 0 && T > 1)
        compare_statistics(st, got, &out, number, d[1] * d[2], tol);
    free(want), free(number), free(got);
}

static void goldens(xd_dtype want, double tol)
{
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        char    path[256];
        part    p;
        bench   b;
        xd_decl d;
        xd_err  e = { 0 };
        xd_st  *st = NULL;
        snprintf(path, sizeof path, "tests/golden/upsample/%s", cases[c]);
        open_config(&p, path);
        snprintf(path, sizeof path, "tests/golden/upsample/%s/golden.safetensors", cases[c]);
        ok(xd_st_open(&st, path, "model", &e), &e);
        open_bench(&b, want, 0);
        visit(&p, b.dev, b.type, XD_VISIT_RANDOM, &d);
        for (int64_t i = 0; i < xd_st_count(st); i++)
            compare(&b, &p, st, i, tol);
        xd_st_close(&st);
        close_part(&p);
        close_bench(&b);
    }
}

static void golden_f32(void **state)
{
    (void)state;
    goldens(XD_F32, 1e-5);
}

static void golden_bf16(void **state)
{
    (void)state;
    goldens(XD_BF16, 3e-2);
}

static void published_listings(void **state)
{
    static const char *const dirs[] = { "Lightricks/LTX-2/latent_upsampler",
                                        "Lightricks/LTX-2.5-Diffusers/latent_upsampler" };
    (void)state;
    published(dirs, sizeof dirs / sizeof *dirs);
}

static void refusals(void **state)
{
    static const char *const one = "LTXLatentUpsamplerModel";
    (void)state;
    refuses(one, "{\"mid_channels\":48}", XD_EUNSUPPORTED, "mid_channels 48");
    refuses(one, "{\"spatial_upsample\":false}", XD_EFORMAT, "temporal_upsample");
    refuses(one, "{\"dims\":4}", XD_EUNSUPPORTED, "dims is 4");
    refuses("LTX2LatentUpsamplerModel", "{\"rational_spatial_scale\":1.5}", XD_EUNSUPPORTED,
            "rational_spatial_scale is 1.5");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_listings),
        cmocka_unit_test(refusals),
        cmocka_unit_test(golden_f32),
        cmocka_unit_test(golden_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
