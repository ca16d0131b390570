/* test_vae_hunyuanvideo15.c - the autoencoder of HunyuanVideo-1.5 against diffusers.
 *
 * tools/golden/cases/hunyuanvideo15_vae.py computed tests/golden/hunyuanvideo15-vae with the random
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

static const char *const name = "AutoencoderKLHunyuanVideo15";
static const char *const cases[] = { "four", "sixteen", "still", "tiles" };

static void published_listings(void **state)
{
    static const char *const dirs[] = {
        "hunyuanvideo-community/HunyuanVideo-1.5-Diffusers-480p_t2v/vae",
        "hunyuanvideo-community/HunyuanVideo-1.5-Diffusers-720p_i2v/vae"
    };
    (void)state;
    published(dirs, sizeof dirs / sizeof dirs[0]);
}

static void refusals(void **state)
{
    (void)state;
    refuses(name, "{\"temporal_compression_ratio\":3}", XD_EUNSUPPORTED, "is 3");
    refuses(name, "{\"temporal_compression_ratio\":32}", XD_EUNSUPPORTED, "up to");
    refuses(name, "{\"spatial_compression_ratio\":8}", XD_EUNSUPPORTED, "only 16");
    refuses(name, "{\"block_out_channels\":[128]}", XD_EUNSUPPORTED, "from 2 to 8");
    refuses(name, "{\"block_out_channels\":[128,256,512,1024,0]}", XD_EUNSUPPORTED, "0 channels");
    refuses(name, "{\"block_out_channels\":[128,256,0,1024,1024]}", XD_EFORMAT, "has 0");
    refuses(name, "{\"block_out_channels\":[128,1024,512,1024,1024]}", XD_EUNSUPPORTED,
            "128 before 1024");
    refuses(name, "{\"block_out_channels\":[32,32,32,32,2048]}", XD_EUNSUPPORTED, "2048 channels");
    refuses(name, "{\"latent_channels\":48}", XD_EFORMAT, "latent_channels");
    refuses(name, "{\"upsample_match_channel\":false}", XD_EUNSUPPORTED, "upsample_match");
    refuses(name, "{\"downsample_match_channel\":false}", XD_EUNSUPPORTED, "downsample_match");
    refuses(name, "{\"out_channels\":1}", XD_EUNSUPPORTED, "out_channels 1");
    refuses(name, "{\"layers_per_block\":99}", XD_EUNSUPPORTED, "99");
    refuses(name, "{\"scaling_factor\":0}", XD_EFORMAT, "scaling_factor");
}

/* The published numbers, and how many frames they make of each other. */
static void infos(void **state)
{
    (void)state;
    vae_infos(name, &(vae_numbers){
                        .channels = 32,
                        .cell = { 4, 16, 16 },
                        .scaling = 1.03682,
                        .alone = 1,
                        .tile = 16,
                        .size = { 45, 80 },
                        .tiles = 28,
                        .decoded = { { 1, 1 }, { 2, 5 }, { 4, 13 }, { 33, 129 } },
                        .encoded = { { 1, 1 }, { 4, 1 }, { 5, 2 }, { 18, 5 }, { 129, 33 } } });
}

static void golden_f32(void **state)
{
    (void)state;
    vae_cases("hunyuanvideo15-vae", cases, sizeof cases / sizeof *cases, XD_F32, 1e-5);
}

static void golden_bf16(void **state)
{
    (void)state;
    vae_cases("hunyuanvideo15-vae", cases, sizeof cases / sizeof *cases, XD_BF16, 3e-2);
}

/* An argument chooses tests by their names. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_listings),
        cmocka_unit_test(refusals),
        cmocka_unit_test(infos),
        cmocka_unit_test(golden_f32),
        cmocka_unit_test(golden_bf16),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
