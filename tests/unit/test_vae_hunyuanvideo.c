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
    (void)state;
    vae_infos(name, &(vae_numbers){
                        .channels = 16,
                        .cell = { 4, 8, 8 },
                        .scaling = 0.476986,
                        .alone = 1,
                        .tile = 32,
                        .size = { 90, 160 },
                        .tiles = 28,
                        .decoded = { { 1, 1 }, { 2, 5 }, { 4, 13 }, { 33, 129 } },
                        .encoded = { { 1, 1 }, { 4, 1 }, { 5, 2 }, { 18, 5 }, { 129, 33 } } });
}

/* The memory is that of one tile over time: a map of 256 channels, one of 128 and the padded frames
 * of a convolution. */
static void memory_is_bounded(void **state)
{
    const double map = 17.0 * 512 * 768 * 128 * 2 / (1 << 30);
    double few = vae_memory_of(name, 8, 64, 96).maps, many = vae_memory_of(name, 33, 64, 96).maps;
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
