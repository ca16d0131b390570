/* test_vae_cogvideox.c - the autoencoder of CogVideoX against diffusers.
 *
 * tools/golden/cases/cog_vae.py computed tests/golden/cog-vae with the random weights and inputs
 * that this program makes of a name. Tolerances are shares of the largest value: f32 1e-5, bf16
 * 3e-2. Every run is counted first, and must then use exactly the memory that was counted. */
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

#include "base/rng.h"

static const char *const cases[] = { "four", "two", "eight", "one", "tiles" };

static void published_listings(void **state)
{
    static const char *const dirs[] = {
        "THUDM/CogVideoX-2b/vae",    "THUDM/CogVideoX-5b/vae",        "THUDM/CogVideoX-5b-I2V/vae",
        "THUDM/CogVideoX1.5-5B/vae", "THUDM/CogVideoX1.5-5B-I2V/vae",
    };
    (void)state;
    published(dirs, sizeof dirs / sizeof dirs[0]);
}

static void refusals(void **state)
{
    const char *cog = "AutoencoderKLCogVideoX";
    (void)state;
    refuses(cog, "{\"act_fn\":\"gelu\"}", XD_EUNSUPPORTED, "gelu");
    refuses(cog, "{\"norm_num_groups\":48}", XD_EFORMAT, "norm_num_groups");
    refuses(cog, "{\"temporal_compression_ratio\":3}", XD_EUNSUPPORTED, "is 3");
    refuses(cog, "{\"temporal_compression_ratio\":16}", XD_EUNSUPPORTED, "up to 8");
    refuses(cog, "{\"block_out_channels\":[32,64]}", XD_EFORMAT, "down_block_types");
    refuses(cog, "{\"out_channels\":1}", XD_EUNSUPPORTED, "out_channels 1");
    refuses(cog, "{\"up_block_types\":[\"A\",\"B\",\"C\",\"D\"]}", XD_EUNSUPPORTED,
            "up_block_types");
    refuses(cog, "{\"use_quant_conv\":true}", XD_EUNSUPPORTED, "16 channels");
    refuses(cog, "{\"latents_mean\":1}", XD_EUNSUPPORTED, "latents_mean");
    refuses(cog, "{\"layers_per_block\":99}", XD_EUNSUPPORTED, "99");
    refuses(cog, "{\"sample_width\":0}", XD_EUNSUPPORTED, "sample_width");
    refuses(cog, "{\"scaling_factor\":0}", XD_EFORMAT, "scaling_factor");
}

/* The published numbers, and how many frames they make of each other. */
static void infos(void **state)
{
    static const int64_t decoded[][2] = { { 1, 1 }, { 2, 8 }, { 3, 9 }, { 4, 16 }, { 13, 49 } };
    static const int64_t encoded[][2] = { { 1, 1 },  { 2, 1 },  { 3, 1 },  { 8, 2 },  { 9, 3 },
                                          { 10, 3 }, { 15, 4 }, { 16, 4 }, { 20, 5 }, { 49, 13 } };
    part                 p = { .config = NULL };
    xd_vae_info          v;
    xd_err               e = { 0 };
    (void)state;
    ok(xd_net_open(&p.net, find(&p, "AutoencoderKLCogVideoX"), NULL, "defaults", &e), &e);
    p.vae->info(p.net.cfg, &v);
    assert_int_equal(v.channels, 16);
    assert_true(v.cell[0] == 4 && v.cell[1] == 8 && v.cell[2] == 8);
    assert_true(v.scaling == 1.15258426 && v.shift == 0 && v.invert == 0);
    assert_true(v.tile[0] == 30 && v.tile[1] == 45 && xd_vae_tiles(&v, 60, 90) == 9);
    for (size_t i = 0; i < sizeof decoded / sizeof *decoded; i++)
        assert_int_equal(xd_vae_frames(&v, decoded[i][0]), decoded[i][1]);
    for (size_t i = 0; i < sizeof encoded / sizeof *encoded; i++)
        assert_int_equal(xd_vae_latents(&v, encoded[i][0]), encoded[i][1]);
    close_part(&p);
}

/* 49 frames of 480 x 720 with the published widths, in bf16: with weights and result below 6
 * GiB. */
static void memory_is_two_maps(void **state)
{
    vae_memory m = vae_memory_of("AutoencoderKLCogVideoX", 13, 60, 90);
    (void)state;
    assert_true(m.maps > 4.5 && m.maps < 5.2); /* weights are 0.4, the result 0.2 */
}

/* ---- against diffusers --------------------------------------------------------------------- */

static void golden_f32(void **state)
{
    (void)state;
    vae_cases("cog-vae", cases, sizeof cases / sizeof *cases, XD_F32, 1e-5);
}

static void golden_bf16(void **state)
{
    (void)state;
    vae_cases("cog-vae", cases, sizeof cases / sizeof *cases, XD_BF16, 3e-2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_listings),
        cmocka_unit_test(refusals),
        cmocka_unit_test(infos),
        cmocka_unit_test(memory_is_two_maps),
        cmocka_unit_test(golden_f32),
        cmocka_unit_test(golden_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
