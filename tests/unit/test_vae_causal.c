/* test_vae_causal.c - causal autoencoders against diffusers.
 *
 * tools/golden/cases/causal_vae.py computed tests/golden/causal-vae with the random weights and
 * inputs that this program makes of a name. Tolerances are shares of the largest value: f32 1e-5,
 * bf16 3e-2. */
#include "models.h"
#include "published.h"
#include "vae_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const video = "AutoencoderKLWan", *const image = "AutoencoderKLQwenImage";
static const char *const cases[] = { "small", "like", "decoder", "residual", "image" };
static const char *const tiled[] = { "tiles-video", "tiles-residual", "tiles-image" };

static void published_listings(void **state)
{
    static const char *const dirs[] = {
        "Wan-AI/Wan2.1-T2V-1.3B-Diffusers/vae",
        "Wan-AI/Wan2.1-T2V-14B-Diffusers/vae",
        "Wan-AI/Wan2.1-I2V-14B-480P-Diffusers/vae",
        "Wan-AI/Wan2.2-T2V-A14B-Diffusers/vae",
        "Wan-AI/Wan2.2-I2V-A14B-Diffusers/vae",
        "Wan-AI/Wan2.2-TI2V-5B-Diffusers/vae",
        "Qwen/Qwen-Image/vae",
        "Qwen/Qwen-Image-2.1/vae",
    };
    (void)state;
    published(dirs, sizeof dirs / sizeof dirs[0]);
}

static void refusals(void **state)
{
    (void)state;
    refuses(video, "{\"attn_scales\":[0.5]}", XD_EUNSUPPORTED, "attn_scales");
    refuses(video, "{\"temperal_downsample\":[true]}", XD_EFORMAT, "1 entries for 4 levels");
    refuses(video, "{\"temperal_downsample\":[true,true,true]}", XD_EUNSUPPORTED, "3 times");
    refuses(video, "{\"temperal_downsample\":[1,1,0]}", XD_EFORMAT, "true and false");
    refuses(video, "{\"z_dim\":8}", XD_EFORMAT, "z_dim is 8");
    refuses(video, "{\"z_dim\":100}", XD_EUNSUPPORTED, "100");
    refuses(video, "{\"z_dim\":1,\"latents_mean\":[0],\"latents_std\":[0]}", XD_EFORMAT,
            "of channel 0");
    refuses(video, "{\"base_dim\":512}", XD_EUNSUPPORTED, "2048 channels");
    refuses(video, "{\"decoder_base_dim\":15,\"dim_mult\":[2,1,1,2]}", XD_EUNSUPPORTED, "halved");
    refuses(video, "{\"base_dim\":24,\"is_residual\":true,\"dim_mult\":[2,3,4,4]}", XD_EUNSUPPORTED,
            "72 channels");
    refuses(video, "{\"patch_size\":3}", XD_EUNSUPPORTED, "patch_size");
    refuses(video, "{\"patch_size\":2}", XD_EFORMAT, "multiples");
    refuses(video, "{\"out_channels\":1}", XD_EUNSUPPORTED, "out_channels 1");
    refuses(video, "{\"num_res_blocks\":99}", XD_EUNSUPPORTED, "99");
    refuses(image, "{\"input_channels\":5}", XD_EUNSUPPORTED, "in_channels is 5");
}

static void info_of(const char *class_name, xd_vae_info *v)
{
    part   p = { .config = NULL };
    xd_err e = { 0 };
    ok(xd_net_open(&p.net, find(&p, class_name), NULL, "defaults", &e), &e);
    p.vae->info(p.net.cfg, v);
    close_part(&p);
}

/* The published numbers, and how many frames they make of each other. */
static void infos(void **state)
{
    static const int64_t decoded[][2] = { { 1, 1 }, { 2, 5 }, { 3, 9 }, { 4, 13 }, { 21, 81 } };
    static const int64_t encoded[][2] = { { 1, 1 }, { 4, 1 },  { 5, 2 },  { 8, 2 },
                                          { 9, 3 }, { 12, 3 }, { 81, 21 } };
    xd_vae_info          v;
    (void)state;
    info_of(video, &v);
    assert_int_equal(v.channels, 16);
    assert_true(v.cell[0] == 4 && v.cell[1] == 8 && v.cell[2] == 8);
    assert_true(v.scaling == 1 && v.shift == 0 && v.invert == 0 && v.alone == 1);
    assert_true(v.tile[0] == 32 && v.tile[1] == 32 && xd_vae_tiles(&v, 60, 104) == 15);
    for (size_t i = 0; i < sizeof decoded / sizeof *decoded; i++)
        assert_int_equal(xd_vae_frames(&v, decoded[i][0]), decoded[i][1]);
    for (size_t i = 0; i < sizeof encoded / sizeof *encoded; i++)
        assert_int_equal(xd_vae_latents(&v, encoded[i][0]), encoded[i][1]);
    info_of(image, &v);
    assert_true(v.cell[0] == 1 && v.cell[1] == 8 && v.channels == 16);
    assert_true(xd_vae_frames(&v, 3) == 3 && xd_vae_latents(&v, 3) == 3);
}

/* What decoding takes beside weights and result, and the weights, in GiB. */
static void count_part(part *p, xd_dtype type, const int64_t *lat_, double *maps, double *weights)
{
    bench       b;
    xd_decl     d;
    xd_exec     x;
    xd_vae_info v;
    void       *at = (void *)(uintptr_t)XD_ALIGN;
    p->vae->info(p->net.cfg, &v);
    xd_tensor lat = xd_view(at, XD_F32, 4, lat_);
    xd_tensor rgb = xd_view(
        at, XD_F32, 4,
        (int64_t[]){ xd_vae_frames(&v, lat_[0]), v.cell[1] * lat_[1], v.cell[1] * lat_[2], 3 });
    open_bench(&b, type, 1);
    visit(p, b.dev, type, XD_VISIT_COUNT, &d);
    xd_exec_init(&x, b.dev, &b.tmp, type);
    p->vae->decode(&x, &p->net, lat, rgb);
    ok(x.err.code, &x.err);
    *maps = (double)xd_arena_peak(&b.tmp) / (1 << 30);
    *weights = (double)d.packed / (1 << 30);
    print_message("# decoding takes %.2f GiB beside weights (%.2f) and result (%.2f)\n", *maps,
                  *weights, (double)xd_bytes(rgb) / (1 << 30));
    close_part(p);
    close_bench(&b);
}

static void count_decode(const char *class_name, xd_dtype type, const int64_t *lat, double *maps,
                         double *weights)
{
    part   p = { .config = NULL };
    xd_err e = { 0 };
    ok(xd_net_open(&p.net, find(&p, class_name), NULL, "defaults", &e), &e);
    count_part(&p, type, lat, maps, weights);
}

/* 81 frames of 480 x 832, in bf16 and in f32, and an image of 1328 x 1328. The memory of a video
 * does not grow with its frames. */
static void memory_is_bounded(void **state)
{
    const int64_t whole[] = { 21, 60, 104, 16 }, few[] = { 3, 60, 104, 16 },
                  band[] = { 21, 15, 104, 16 }, one[] = { 1, 166, 166, 16 };
    double        maps, weights, fewer;
    (void)state;
    count_decode(video, XD_F32, whole, &maps, &weights);
    assert_true(maps > 4 && maps < 6 && weights < 0.6);
    count_decode(video, XD_BF16, whole, &maps, &weights);
    assert_true(maps > 2 && maps < 3 && weights < 0.3);
    count_decode(video, XD_BF16, few, &fewer, &weights);
    assert_true(maps - fewer < 0.01);
    /* the rows of one of four ranks, and the result of all of them */
    count_decode(video, XD_F32, band, &maps, &weights);
    assert_true(maps + weights + 0.37 < 2.3);
    count_decode(image, XD_BF16, one, &maps, &weights);
    assert_true(maps < 1 && weights < 0.1);
}

/* 121 frames of 704 x 1280 of the autoencoder with patches, in bf16. */
static void memory_of_patches(void **state)
{
    const char *dir = published_path("Wan-AI/Wan2.2-TI2V-5B-Diffusers/vae");
    part        p;
    double      maps, weights;
    (void)state;
    if (!dir)
        return;
    open_config(&p, dir);
    count_part(&p, XD_BF16, (int64_t[]){ 31, 44, 80, 48 }, &maps, &weights);
    assert_true(maps < 8 && weights < 1.5);
}

static void golden_f32(void **state)
{
    (void)state;
    vae_cases("causal-vae", cases, sizeof cases / sizeof *cases, XD_F32, 1e-5);
}

static void golden_bf16(void **state)
{
    (void)state;
    vae_cases("causal-vae", cases, sizeof cases / sizeof *cases, XD_BF16, 3e-2);
}

static void tiles_f32(void **state)
{
    (void)state;
    vae_cases("causal-vae", tiled, sizeof tiled / sizeof *tiled, XD_F32, 1e-5);
}

static void tiles_bf16(void **state)
{
    (void)state;
    vae_cases("causal-vae", tiled, sizeof tiled / sizeof *tiled, XD_BF16, 3e-2);
}

/* An argument chooses tests by their names. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_listings),
        cmocka_unit_test(refusals),
        cmocka_unit_test(infos),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(memory_of_patches),
        cmocka_unit_test(golden_f32),
        cmocka_unit_test(golden_bf16),
        cmocka_unit_test(tiles_f32),
        cmocka_unit_test(tiles_bf16),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
