/* test_upscaler.c - upscalers against PyTorch (tools/golden/cases/upscaler.py).
 *
 * Values of pixels differ from PyTorch's by at most 1e-5, and by 3e-2 in bf16. Tiles of any size,
 * also with bands of few rows, have the bytes of the complete image. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/op.h"
#include "io/image.h"
#include "pipeline/arenas.h"
#include "pipeline/enlarger.h"

static const char *const networks[] = { "x4",     "x2",     "x1",         "trunk",
                                        "old-x2", "old-x1", "compact-x4", "compact-x2" };
enum { NETWORKS = sizeof networks / sizeof *networks };

typedef struct setting {
    xd_dev  *dev, *count;
    xd_st   *golden;
    uint8_t *rgb;
    int64_t  w, h;
} setting;

static void ok(xd_status s, const xd_err *e)
{
    if (s != XD_OK)
        fail_msg("%s", e->msg);
}

static int set_up(void **state)
{
    setting *t = calloc(1, sizeof *t);
    xd_err   e = { 0 };
    ok(xd_dev_open(&t->dev, "cpu", &e), &e);
    ok(xd_dev_open_count(&t->count, t->dev, &e), &e);
    ok(xd_st_open(&t->golden, "tests/golden/upscaler/golden.safetensors", "", &e), &e);
    ok(xd_image_read("tests/golden/upscaler/image.png", &t->rgb, &t->w, &t->h, &e), &e);
    *state = t;
    return 0;
}

static int tear_down(void **state)
{
    setting *t = *state;
    xd_st_close(&t->golden);
    xd_dev_close(&t->count);
    xd_dev_close(&t->dev);
    free(t->rgb);
    free(t);
    return 0;
}

static void open_network(const setting *t, xd_enlarger *u, const char *name, xd_dtype type)
{
    char   file[128];
    xd_err e = { 0 };
    snprintf(file, sizeof file, "tests/golden/upscaler/%s.safetensors", name);
    ok(xd_enlarger_open(u, file, &e), &e);
    ok(xd_enlarger_load(u, t->dev, t->count, type, &e), &e);
}

static const float *reference(const setting *t, const char *name, xd_tensor *shape)
{
    int64_t i = xd_st_find(t->golden, name);
    xd_err  e = { 0 };
    assert_true(i >= 0);
    ok(xd_st_get(t->golden, i, shape, &e), &e);
    return shape->p;
}

/* Enlarges the image to malloc'ed bytes. */
static uint8_t *enlarge(const setting *t, xd_enlarger *u, int64_t tile)
{
    int64_t  n = t->w * t->h * u->info.scale * u->info.scale * 3;
    uint8_t *out = malloc((size_t)n);
    xd_err   e = { 0 };
    memset(out, 7, (size_t)n);
    ok(xd_enlarger_run(
           u, &(xd_enlarging){ .rgb = t->rgb, .w = t->w, .h = t->h, .tile = tile, .out = out }, &e),
       &e);
    return out;
}

/* Writes the image as floats, padded to complete cells by mirrored pixels. */
static float *pad(const setting *t, int64_t H, int64_t W)
{
    float *in = malloc((size_t)(H * W) * 3 * sizeof *in);
    for (int64_t y = 0; y < H; y++)
        for (int64_t x = 0; x < W; x++)
            for (int c = 0; c < 3; c++) {
                int64_t v = y < t->h ? y : 2 * (t->h - 1) - y,
                        u = x < t->w ? x : 2 * (t->w - 1) - x;
                in[(y * W + x) * 3 + c] = (float)t->rgb[(v * t->w + u) * 3 + c] / 255;
            }
    return in;
}

/* Compares the floats of a network with the reference; band: bytes of a band, or 0. */
static void compare(const setting *t, const char *name, xd_dtype type, size_t band, double most)
{
    xd_enlarger u;
    xd_tensor   shape;
    xd_exec     x;
    xd_arena    a;
    xd_err      e = { 0 };
    open_network(t, &u, name, type);
    const float *want = reference(t, name, &shape);
    int64_t      c = u.info.cell, f = u.info.scale, H = (t->h + c - 1) / c * c,
                 W = (t->w + c - 1) / c * c;
    assert_int_equal(shape.d[0], t->h * f);
    assert_int_equal(shape.d[1], t->w * f);
    float *pixels = pad(t, H, W), *got = malloc((size_t)(H * W * f * f) * 3 * sizeof *got);
    ok(xd_device_arena_open(&a, t->dev, 64 << 20, &e), &e);
    xd_exec_init(&x, t->dev, &a, type);
    x.band = band;
    xd_tensor in = xd_new_as(&x, XD_F32, 4, (int64_t[]){ 1, H, W, 3 });
    xd_tensor out = xd_new_as(&x, XD_F32, 4, (int64_t[]){ 1, H * f, W * f, 3 });
    xd_put(&x, in, pixels);
    u.part.upscaler->run(&x, &u.part.w->net, in, out);
    xd_get(&x, got, out);
    ok(x.err.code, &x.err);
    double worst = 0;
    for (int64_t y = 0; y < shape.d[0]; y++)
        for (int64_t i = 0; i < shape.d[1] * 3; i++)
            worst = fmax(
                worst, fabs((double)got[y * W * f * 3 + i] - (double)want[y * shape.d[1] * 3 + i]));
    if (!(worst <= most))
        fail_msg("%s: %g off", name, worst);
    xd_device_arena_close(&a, t->dev);
    free(pixels), free(got);
    xd_enlarger_close(&u);
}

static void values_are_those_of_pytorch(void **state)
{
    for (int i = 0; i < NETWORKS; i++) {
        compare(*state, networks[i], XD_F32, 0, 1e-5);
        compare(*state, networks[i], XD_F32, 1, 1e-5); /* bands of one row */
    }
}

static void bf16_is_near(void **state)
{
    const setting *t = *state;
    if (xd_dev_compute(t->dev, XD_BF16) != XD_BF16) {
        printf("# SKIP: this machine computes no bf16\n");
        return; /* cmocka's skip() is "not ok" in TAP */
    }
    compare(t, "x4", XD_BF16, 0, 3e-2);
    compare(t, "compact-x4", XD_BF16, 0, 3e-2);
}

/* Returns a larger image of the same pixels in another order, so that tiles do not reach all of
 * it. */
static setting enlarged(const setting *t)
{
    setting big = *t;
    big.w = 70, big.h = 51;
    big.rgb = malloc((size_t)(big.w * big.h) * 3);
    for (int64_t i = 0; i < big.w * big.h * 3; i++)
        big.rgb[i] = t->rgb[(i * 7 + i / 97 * 5) % (t->w * t->h * 3)];
    return big;
}

static void tiles_have_the_same_bytes(void **state)
{
    const setting big = enlarged(*state), *t = &big;
    for (int i = 0; i < NETWORKS; i++) {
        xd_enlarger u;
        open_network(t, &u, networks[i], XD_F32);
        size_t   n = (size_t)(t->w * t->h * u.info.scale * u.info.scale * 3);
        uint8_t *want = enlarge(t, &u, 0);
        for (int64_t tile = 26; tile < 64; tile += 19) {
            uint8_t *got = enlarge(t, &u, tile);
            assert_memory_equal(got, want, n);
            free(got);
        }
        free(want);
        xd_enlarger_close(&u);
    }
    free(big.rgb);
}

/* The bytes are the rounded values, and pixels differ. */
static void bytes_are_rounded(void **state)
{
    const setting *t = *state;
    xd_enlarger    u;
    xd_tensor      shape;
    int            middle = 0;
    open_network(t, &u, "x4", XD_F32);
    const float *want = reference(t, "x4", &shape);
    uint8_t     *got = enlarge(t, &u, 0);
    for (int64_t i = 0; i < shape.d[0] * shape.d[1] * 3; i++) {
        assert_true(fabs(fmin(fmax(want[i], 0), 1) * 255 - got[i]) < 0.51);
        middle += got[i] > 0 && got[i] < 255;
    }
    assert_true(middle > 1000);
    free(got);
    xd_enlarger_close(&u);
}

static void other_files_are_refused(void **state)
{
    static const char *const bad[][2] = { { "none.safetensors", "none.safetensors" },
                                          { "net.pth", "save_file" },
                                          { "net.onnx", "ONNX" },
                                          { "tests/golden/annotate.safetensors", "RRDBNet" } };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        xd_enlarger u;
        xd_err      e = { 0 };
        assert_int_not_equal(xd_enlarger_open(&u, bad[i][0], &e), XD_OK);
        if (!strstr(e.msg, bad[i][1]) || !strstr(e.msg, bad[i][0]))
            fail_msg("%s", e.msg);
        xd_enlarger_close(&u);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(values_are_those_of_pytorch),
                                        cmocka_unit_test(bf16_is_near),
                                        cmocka_unit_test(tiles_have_the_same_bytes),
                                        cmocka_unit_test(bytes_are_rounded),
                                        cmocka_unit_test(other_files_are_refused) };
    return cmocka_run_group_tests_name("upscaler", tests, set_up, tear_down);
}
