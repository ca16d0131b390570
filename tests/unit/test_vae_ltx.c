/* test_vae_ltx.c - the autoencoders of LTX-Video and LTX-2 against diffusers.
 *
 * tools/golden/cases/ltx_vae.py computed tests/golden/ltx-vae with the random weights and inputs
 * that this program makes of a name. Tolerances are shares of the largest value: f32 1e-5, bf16
 * 3e-2. Every run is counted first, and must then use exactly the memory that was counted. */
#include "published.h"
#include "vae_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const char *const ltx = "AutoencoderKLLTXVideo";
static const char *const second = "AutoencoderKLLTX2Video";
static const char *const cases[] = { "plain",  "causal", "timed", "noise", "moved",
                                     "second", "types",  "old",   "tiles" };

static void published_listings(void **state)
{
    static const char *const dirs[] = { "Lightricks/LTX-Video/vae", "Lightricks/LTX-2/vae",
                                        "diffusers/LTX-2.3-Diffusers/vae" };
    (void)state;
    published(dirs, sizeof dirs / sizeof *dirs);
}

static void refusals(void **state)
{
    (void)state;
    refuses(ltx, "{\"out_channels\":4}", XD_EUNSUPPORTED, "out_channels 4");
    refuses(ltx, "{\"patch_size_t\":2}", XD_EUNSUPPORTED, "patch_size_t 2");
    refuses(ltx, "{\"encoder_causal\":false}", XD_EUNSUPPORTED, "encoder_causal false");
    refuses(ltx, "{\"layers_per_block\":[4,3,3,3]}", XD_EFORMAT, "layers_per_block has 4");
    refuses(ltx, "{\"decoder_layers_per_block\":[4,3,3,3,0]}", XD_EFORMAT, "has 0");
    refuses(ltx, "{\"spatio_temporal_scaling\":[true,true]}", XD_EFORMAT, "has 2 entries");
    refuses(ltx, "{\"decoder_spatio_temporal_scaling\":[true,true,true,true]}", XD_EFORMAT,
            "16 in the decoder");
    refuses(ltx, "{\"spatial_compression_ratio\":16}", XD_EFORMAT, "spatial_compression_ratio");
    refuses(ltx, "{\"upsample_factor\":[2,2,2,2]}", XD_EUNSUPPORTED, "upsample_factor");
    refuses(ltx, "{\"timestep_conditioning\":true}", XD_EUNSUPPORTED, "level 2 of the decoder");
    refuses(ltx, "{\"down_block_types\":[\"Other\",\"Other\",\"Other\",\"Other\"]}",
            XD_EUNSUPPORTED, "Other");
    refuses(ltx, "{\"scaling_factor\":0}", XD_EFORMAT, "scaling_factor 0");
    refuses(second, "{\"encoder_spatial_padding_mode\":\"reflect\"}", XD_EUNSUPPORTED,
            "encoder_spatial_padding_mode reflect");
    refuses(second, "{\"decoder_spatial_padding_mode\":\"circular\"}", XD_EUNSUPPORTED,
            "decoder_spatial_padding_mode circular");
    refuses(second, "{\"upsample_type\":[\"spatial\",\"conv\",\"spatial\"]}", XD_EUNSUPPORTED,
            "upsample_type has conv");
    refuses(second, "{\"upsample_type\":[\"spatial\"]}", XD_EUNSUPPORTED, "1 upsample_type");
    refuses(second, "{\"upsample_type\":[\"spatial\",\"spatial\",\"spatial\"]}", XD_EFORMAT,
            "1 in the decoder");
    refuses(second, "{\"upsample_factor\":[2,2,1]}", XD_EUNSUPPORTED, "upsample_factor");
}

/* The published numbers. */
static void infos(void **state)
{
    (void)state;
    vae_infos(ltx, &(vae_numbers){ .channels = 128,
                                   .cell = { 8, 32, 32 },
                                   .scaling = 1,
                                   .alone = 1,
                                   .tile = 16,
                                   .size = { 16, 22 },
                                   .tiles = 4,
                                   .decoded = { { 1, 1 }, { 2, 9 }, { 16, 121 }, { 21, 161 } },
                                   .encoded = { { 1, 1 }, { 9, 2 }, { 121, 16 }, { 161, 21 } } });
}

static void golden_f32(void **state)
{
    (void)state;
    vae_cases("ltx-vae", cases, sizeof cases / sizeof *cases, XD_F32, 1e-5);
}

static void golden_bf16(void **state)
{
    (void)state;
    vae_cases("ltx-vae", cases, sizeof cases / sizeof *cases, XD_BF16, 3e-2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_listings),
        cmocka_unit_test(refusals),
        cmocka_unit_test(infos),
        cmocka_unit_test(golden_f32),
        cmocka_unit_test(golden_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
