/* test_dit_cogvideox.c - transformers of video against diffusers: CogVideoX in its four forms.
 *
 * tools/golden/cases/cog.py computed tests/golden/cog with the random weights that this program
 * makes of a tensor's name. Tolerances as in models.h. */
#include "models.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static const char *const forms[] = { "cog/2b", "cog/5b", "cog/5b-i2v", "cog/1.5-i2v" };

static void published_listings(void **state)
{
    static const char *const dirs[] = {
        "THUDM/CogVideoX-2b/transformer",        "THUDM/CogVideoX-5b/transformer",
        "THUDM/CogVideoX-5b-I2V/transformer",    "THUDM/CogVideoX1.5-5B/transformer",
        "THUDM/CogVideoX1.5-5B-I2V/transformer",
    };
    (void)state;
    published(dirs, sizeof dirs / sizeof dirs[0]);
}

static void refusals(void **state)
{
    const char *cog = "CogVideoXTransformer3DModel";
    (void)state;
    refuses(cog, "{\"activation_fn\":\"geglu\"}", XD_EUNSUPPORTED, "geglu");
    refuses(cog, "{\"use_learned_positional_embeddings\":true}", XD_EUNSUPPORTED, "learned");
    refuses(cog, "{\"use_rotary_positional_embeddings\":true,\"attention_head_dim\":40}",
            XD_EFORMAT, "40");
    refuses(cog, "{\"num_attention_heads\":1,\"attention_head_dim\":40}", XD_EFORMAT, "40");
    refuses(cog, "{\"in_channels\":8}", XD_EFORMAT, "in_channels");
    refuses(cog, "{\"ofs_embed_dim\":64}", XD_EFORMAT, "64");
    refuses(cog, "{\"spatial_interpolation_scale\":0}", XD_EFORMAT, "0");
    refuses(cog, "{\"temporal_compression_ratio\":0}", XD_EFORMAT, "temporal_compression_ratio");
}

static void golden_f32(void **state)
{
    (void)state;
    run_forms(forms, sizeof forms / sizeof *forms, XD_F32, NULL);
}

static void golden_bf16(void **state)
{
    (void)state;
    run_forms(forms, sizeof forms / sizeof *forms, XD_BF16, NULL);
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
