/* test_dit_mochi.c - Mochi's transformer against diffusers.
 *
 * tools/golden/cases/mochi.py computed tests/golden/mochi-forms with the random weights that this
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

static const char *const forms[] = { "mochi-forms/plain", "mochi-forms/wide" };

static void published_listings(void **state)
{
    static const char *const dirs[] = { "genmo/mochi-1-preview/transformer" };
    (void)state;
    published(dirs, 1);
}

static void refusals(void **state)
{
    const char *mochi = "MochiTransformer3DModel";
    (void)state;
    refuses(mochi, "{\"qk_norm\":\"layer_norm\"}", XD_EUNSUPPORTED, "'layer_norm'");
    refuses(mochi, "{\"activation_fn\":\"gelu\"}", XD_EUNSUPPORTED, "'gelu'");
    refuses(mochi, "{\"out_channels\":24}", XD_EUNSUPPORTED, "out_channels 24");
    refuses(mochi, "{\"attention_head_dim\":65}", XD_EFORMAT, "attention_head_dim 65");
    refuses(mochi, "{\"num_attention_heads\":0,\"pooled_projection_dim\":0}", XD_EFORMAT,
            "num_attention_heads");
    refuses(mochi, "{\"num_layers\":0}", XD_EFORMAT, "num_layers");
    refuses(mochi, "{\"patch_size\":0}", XD_EFORMAT, "patch_size");
    refuses(mochi, "{\"text_embed_dim\":4095}", XD_EFORMAT, "text_embed_dim 4095");
    refuses(mochi, "{\"text_embed_dim\":16384}", XD_EFORMAT, "text_embed_dim is 16384");
    refuses(mochi, "{\"time_embed_dim\":1}", XD_EFORMAT, "time_embed_dim");
    refuses(mochi, "{\"pooled_projection_dim\":3073}", XD_EFORMAT, "pooled_projection_dim is 3073");
}

/* The rows of the hidden state are as wide as the video: the text's other columns are 0. */
static void check_zeros(xd_exec *x, xd_tensor h, int64_t ntxt)
{
    float *v = malloc(xd_bytes(h));
    xd_get(x, v, h);
    int64_t zeros = 0;
    for (int64_t i = 0; i < ntxt; i++)
        zeros += v[(i + 1) * h.d[1] - 1] == 0;
    assert_true(zeros == 0 || zeros == ntxt);
    free(v);
}

static void golden_f32(void **state)
{
    (void)state;
    run_forms(forms, sizeof forms / sizeof *forms, XD_F32, check_zeros);
}

static void golden_bf16(void **state)
{
    (void)state;
    run_forms(forms, sizeof forms / sizeof *forms, XD_BF16, check_zeros);
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
