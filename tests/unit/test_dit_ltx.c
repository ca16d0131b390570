/* test_dit_ltx.c - LTX-Video's transformer against diffusers.
 *
 * tools/golden/cases/ltx.py computed tests/golden/ltx-forms with the random weights that this
 * program makes of a tensor's name. Tolerances as in models.h. */
#include "models.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const forms[] = { "ltx-forms/plain", "ltx-forms/held", "ltx-forms/bare" };

static void published_listings(void **state)
{
    static const char *const dirs[] = { "Lightricks/LTX-Video/transformer" };
    (void)state;
    published(dirs, 1);
}

static void refusals(void **state)
{
    const char *ltx = "LTXVideoTransformer3DModel";
    (void)state;
    refuses(ltx, "{\"qk_norm\":\"layer_norm\"}", XD_EUNSUPPORTED, "'layer_norm'");
    refuses(ltx, "{\"activation_fn\":\"gelu\"}", XD_EUNSUPPORTED, "'gelu'");
    refuses(ltx, "{\"out_channels\":24}", XD_EUNSUPPORTED, "out_channels 24");
    refuses(ltx, "{\"patch_size\":2}", XD_EUNSUPPORTED, "patch_size 2");
    refuses(ltx, "{\"patch_size_t\":2}", XD_EUNSUPPORTED, "patch_size_t 2");
    refuses(ltx, "{\"norm_elementwise_affine\":true}", XD_EUNSUPPORTED,
            "norm_elementwise_affine 1");
    refuses(ltx, "{\"attention_head_dim\":63,\"cross_attention_dim\":2016}", XD_EFORMAT,
            "attention_head_dim 63");
    refuses(ltx, "{\"cross_attention_dim\":4096}", XD_EFORMAT, "cross_attention_dim 4096");
    refuses(ltx, "{\"num_attention_heads\":0}", XD_EFORMAT, "num_attention_heads");
    refuses(ltx, "{\"num_layers\":-1}", XD_EFORMAT, "num_layers");
    refuses(ltx, "{\"caption_channels\":0}", XD_EFORMAT, "caption_channels");
    refuses(ltx, "{\"in_channels\":0}", XD_EFORMAT, "in_channels");
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
