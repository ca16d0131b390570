/* test_vae_hunyuanvideo.c - the autoencoder of HunyuanVideo against diffusers.
 *
 * tools/golden/cases/hunyuanvideo_vae.py computed tests/golden/hunyuanvideo-vae with the random
 * weights and inputs that this program makes of a name. Tolerances are shares of the largest value:
 * f32 1e-5, bf16 3e-2. Every run is counted first, and must then use exactly the memory that was
 * counted. */
#include "models.h"
#include "vae_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const name = "AutoencoderKLHunyuanVideo";
static const char *const cases[] = { "four", "eight", "last", "tiles" };

static void published_listings(void **state)
{
    static const char *const dirs[] = { "hunyuanvideo-community/HunyuanVideo/vae",
                                        "hunyuanvideo-community/HunyuanVideo-I2V/vae" };
    (void)state;
    published(dirs, sizeof dirs / sizeof dirs[0]);
}

static void refusals(void **state)
{
    (void)state;
    refuses(name, "{\"act_fn\":\"gelu\"}", XD_EUNSUPPORTED, "gelu");
    refuses(name, "{\"norm_num_groups\":48}", XD_EFORMAT, "norm_num_groups");
    refuses(name, "{\"temporal_compression_ratio\":8}", XD_EUNSUPPORTED, "is 8");
    refuses(name, "{\"spatial_compression_ratio\":12}", XD_EUNSUPPORTED, "is 12");
    refuses(name, "{\"spatial_compression_ratio\":32}", XD_EUNSUPPORTED, "up to 16");
    refuses(name, "{\"block_out_channels\":[32,64]}", XD_EUNSUPPORTED, "from 3 to 8");
    refuses(name, "{\"block_out_channels\":[32,64,64]}", XD_EFORMAT, "down_block_types");
    refuses(name, "{\"out_channels\":1}", XD_EUNSUPPORTED, "out_channels 1");
    refuses(name, "{\"up_block_types\":[\"A\",\"B\",\"C\",\"D\"]}", XD_EUNSUPPORTED,
            "up_block_types");
    refuses(name, "{\"block_out_channels\":[32,32,32,2048]}", XD_EUNSUPPORTED, "2048 channels");
    refuses(name, "{\"layers_per_block\":99}", XD_EUNSUPPORTED, "99");
    refuses(name, "{\"scaling_factor\":0}", XD_EFORMAT, "scaling_factor");
}

/* The published numbers, and how many frames they make of each other. */
static void infos(void **state)
{
    static const int64_t decoded[][2] = { { 1, 1 }, { 2, 5 }, { 4, 13 }, { 33, 129 } };
    static const int64_t encoded[][2] = { { 1, 1 }, { 4, 1 }, { 5, 2 }, { 18, 5 }, { 129, 33 } };
    part                 p = { .config = NULL };
    xd_vae_info          v;
    xd_err               e = { 0 };
    (void)state;
    ok(xd_net_open(&p.net, find(&p, name), NULL, "defaults", &e), &e);
    p.vae->info(p.net.cfg, &v);
    assert_int_equal(v.channels, 16);
    assert_true(v.cell[0] == 4 && v.cell[1] == 8 && v.cell[2] == 8);
    assert_true(v.scaling == 0.476986 && v.shift == 0 && v.invert == 0 && v.alone == 1);
    assert_true(v.tile[0] == 32 && v.tile[1] == 32 && xd_vae_tiles(&v, 90, 160) == 28);
    for (size_t i = 0; i < sizeof decoded / sizeof *decoded; i++)
        assert_int_equal(xd_vae_frames(&v, decoded[i][0]), decoded[i][1]);
    for (size_t i = 0; i < sizeof encoded / sizeof *encoded; i++)
        assert_int_equal(xd_vae_latents(&v, encoded[i][0]), encoded[i][1]);
    close_part(&p);
}

/* Counts the memory of decoding t latent frames of 64 x 96 cells in bf16, without weights and
 * result, in GiB. */
static double memory_of(int64_t t)
{
    part    p = { .config = NULL };
    bench   b;
    xd_decl d;
    xd_exec x;
    xd_err  e = { 0 };
    void   *at = (void *)(uintptr_t)XD_ALIGN;
    ok(xd_net_open(&p.net, find(&p, name), NULL, "defaults", &e), &e);
    open_bench(&b, XD_BF16, 1);
    visit(&p, b.dev, XD_BF16, XD_VISIT_COUNT, &d);
    xd_exec_init(&x, b.dev, &b.tmp, XD_BF16);
    p.vae->decode(&x, &p.net, xd_view(at, XD_F32, 4, (int64_t[]){ t, 64, 96, 16 }),
                  xd_view(at, XD_F32, 4, (int64_t[]){ 4 * t - 3, 512, 768, 3 }));
    ok(x.err.code, &x.err);
    double maps = (double)xd_arena_peak(&b.tmp) / (1 << 30);
    print_message("# decoding %lld latent frames takes %.2f GiB\n", (long long)t, maps);
    close_part(&p);
    close_bench(&b);
    return maps;
}

/* The memory is that of one tile over time: a map of 256 channels, one of 128 and the padded frames
 * of a convolution. */
static void memory_is_bounded(void **state)
{
    const double map = 17.0 * 512 * 768 * 128 * 2 / (1 << 30);
    double       few = memory_of(8), many = memory_of(33);
    (void)state;
    assert_true(many == few && many > 3 * map && many < 3 * map + 1.2);
}

static void golden_f32(void **state)
{
    (void)state;
    vae_cases("hunyuanvideo-vae", cases, sizeof cases / sizeof *cases, XD_F32, 1e-5);
}

static void golden_bf16(void **state)
{
    (void)state;
    vae_cases("hunyuanvideo-vae", cases, sizeof cases / sizeof *cases, XD_BF16, 3e-2);
}

/* An argument chooses tests by their names. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_listings),
        cmocka_unit_test(refusals),
        cmocka_unit_test(infos),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(golden_f32),
        cmocka_unit_test(golden_bf16),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
