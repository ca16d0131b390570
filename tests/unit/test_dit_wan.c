/* test_dit_wan.c - Wan's transformer against diffusers, on one rank and with heads cut over ranks.
 *
 * tools/golden/cases/wan.py computed tests/golden/wan-forms, vace.py and skyreels.py further
 * forms, with the random weights that this program makes of a tensor's name. Tolerances as in
 * models.h. */
#include "models.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const forms[] = { "wan-forms/plain",       "wan-forms/bare",
                                     "wan-forms/image",       "vace-forms/plain",
                                     "vace-forms/scaled",     "skyreels-forms/rated",
                                     "skyreels-forms/forced", "skyreels-forms/image",
                                     "animate-forms/plain",   "animate-forms/bare" };

static void published_listings(void **state)
{
    static const char *const dirs[] = {
        "Wan-AI/Wan2.1-T2V-1.3B-Diffusers/transformer",
        "Wan-AI/Wan2.1-T2V-14B-Diffusers/transformer",
        "Wan-AI/Wan2.2-T2V-A14B-Diffusers/transformer",
        "Wan-AI/Wan2.2-T2V-A14B-Diffusers/transformer_2",
        "Wan-AI/Wan2.2-TI2V-5B-Diffusers/transformer",
        "Wan-AI/Wan2.1-I2V-14B-480P-Diffusers/transformer",
        "Wan-AI/Wan2.2-I2V-A14B-Diffusers/transformer",
        "Wan-AI/Wan2.2-I2V-A14B-Diffusers/transformer_2",
        "Wan-AI/Wan2.1-VACE-1.3B-diffusers/transformer",
        "Wan-AI/Wan2.1-VACE-14B-diffusers/transformer",
        "Wan-AI/Wan2.2-Animate-14B-Diffusers/transformer",
    };
    (void)state;
    published(dirs, sizeof dirs / sizeof dirs[0]);
}

static void refusals(void **state)
{
    const char *wan = "WanTransformer3DModel", *vace = "WanVACETransformer3DModel";
    const char *animate = "WanAnimateTransformer3DModel";
    const char *sky = "SkyReelsV2Transformer3DModel";
    (void)state;
    refuses(wan, "{\"qk_norm\":\"rms_norm\"}", XD_EUNSUPPORTED, "'rms_norm'");
    refuses(wan, "{\"patch_size\":[2,2]}", XD_EFORMAT, "patch_size has 2");
    refuses(wan, "{\"patch_size\":[1,0,2]}", XD_EFORMAT, "patch_size has 0");
    refuses(wan, "{\"attention_head_dim\":9}", XD_EFORMAT, "attention_head_dim 9");
    refuses(wan, "{\"num_attention_heads\":0}", XD_EFORMAT, "num_attention_heads");
    refuses(wan, "{\"image_dim\":1280}", XD_EFORMAT, "added_kv_proj_dim 0");
    refuses(wan, "{\"image_dim\":1280,\"added_kv_proj_dim\":64}", XD_EFORMAT, "width 5120");
    refuses(wan, "{\"image_dim\":5000,\"added_kv_proj_dim\":5120}", XD_EFORMAT, "image_dim 5000");
    refuses(wan, "{\"pos_embed_seq_len\":-1}", XD_EFORMAT, "pos_embed_seq_len");
    refuses(wan, "{\"in_channels\":15,\"out_channels\":16}", XD_EFORMAT, "in_channels");
    refuses(wan, "{\"ffn_dim\":0}", XD_EFORMAT, "ffn_dim");
    refuses(vace, "{\"num_layers\":30}", XD_EFORMAT, "vace_layers has 30 as number 7");
    refuses(vace, "{\"vace_layers\":[1,2]}", XD_EFORMAT, "vace_layers has 1 as number 1");
    refuses(vace, "{\"vace_layers\":[0,2,2]}", XD_EFORMAT, "vace_layers has 2 as number 3");
    refuses(vace, "{\"vace_in_channels\":0}", XD_EFORMAT, "vace_in_channels");
    refuses(vace, "{\"in_channels\":36,\"out_channels\":16}", XD_EFORMAT, "in_channels 36");
    refuses(vace, "{\"image_dim\":1280,\"added_kv_proj_dim\":5120}", XD_EUNSUPPORTED,
            "image_dim 1280");
    refuses(animate, "{\"image_dim\":1280,\"added_kv_proj_dim\":5120,\"num_layers\":33}",
            XD_EFORMAT, "num_layers 33");
    refuses(animate, "{\"in_channels\":33}", XD_EFORMAT, "in_channels 33");
    refuses(animate, "{\"patch_size\":[2,2,2]}", XD_EUNSUPPORTED, "patch_size has 2");
    refuses(animate, "{\"motion_encoder_size\":500}", XD_EFORMAT, "motion_encoder_size 500");
    refuses(animate, "{\"motion_encoder_size\":8,\"motion_encoder_channel_sizes\":{\"8\":3}}",
            XD_EFORMAT, "the side 4");
    refuses(animate, "{\"face_encoder_num_heads\":0}", XD_EFORMAT, "face_encoder_num_heads");
    refuses(animate, "{\"inject_face_latents_blocks\":0}", XD_EFORMAT,
            "inject_face_latents_blocks");
    refuses(sky, "{\"num_frame_per_block\":5}", XD_EUNSUPPORTED, "num_frame_per_block 5");
    refuses(sky, "{\"image_dim\":1280}", XD_EFORMAT, "added_kv_proj_dim 0");
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

/* ---- norms of rows that ranks share ------------------------------------------------------- */

enum { ROWS = 5, WIDE = 12, MINE = 8 };

static float of(int row, int i)
{
    return (float)((row + 1) * ((i * 7 + row) % 11 - 5)) * 0.3f;
}

/* The other rank's sums of squares: features MINE to WIDE of both tensors. */
static void add_others(xd_exec *x, const xd_hooks *m, xd_over over, xd_tensor io)
{
    float v[2 * ROWS];
    (void)m;
    assert_int_equal(over, XD_OVER_FEATURES);
    assert_int_equal(io.d[0], ROWS);
    assert_int_equal(io.d[1], 2);
    xd_get(x, v, io);
    for (int r = 0; r < ROWS; r++)
        for (int i = MINE; i < WIDE; i++)
            for (int k = 0; k < 2; k++)
                v[2 * r + k] += of(r + k, i) * of(r + k, i);
    xd_put(x, io, v);
}

/* A norm over MINE features and the factors make the norm over WIDE features. */
static void factors_of_a_share(void **state)
{
    static const float eps = 0.03f;
    const xd_hooks     hooks = { .sum = add_others, .next = &xd_hooks_local };
    bench              b;
    xd_exec            x;
    float              rows[ROWS * 2 * MINE], f[2 * ROWS], ones[MINE], y[ROWS * MINE];
    (void)state;
    open_bench(&b, XD_F32, 0);
    xd_exec_init(&x, b.dev, &b.tmp, b.type);
    x.hooks = &hooks;
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < 2 * MINE; i++)
            rows[r * 2 * MINE + i] = of(r + i / MINE, i % MINE);
    for (int i = 0; i < MINE; i++)
        ones[i] = 1;
    xd_tensor all = xd_new_f32(&x, ROWS, 2 * MINE), gain = xd_new_f32(&x, 1, MINE);
    xd_put(&x, all, rows);
    xd_put(&x, gain, ones);
    xd_tensor in[2] = { xd_cols(all, 0, MINE), xd_cols(all, MINE, MINE) };
    xd_get(&x, f, xd_rms_factors(&x, in, 2, WIDE, eps));
    for (int k = 0; k < 2; k++) {
        xd_get(&x, y, xd_rms_norm(&x, in[k], xd_reshape(gain, 1, (int64_t[]){ MINE }), eps));
        for (int r = 0; r < ROWS; r++) {
            double sum = 0;
            for (int i = 0; i < WIDE; i++)
                sum += (double)of(r + k, i) * (double)of(r + k, i);
            for (int i = 0; i < MINE; i++)
                assert_float_equal(y[r * MINE + i] * f[2 * r + k],
                                   (float)((double)of(r + k, i) / sqrt(sum / WIDE + (double)eps)),
                                   1e-5);
        }
    }
    ok(x.err.code, &x.err);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_listings), cmocka_unit_test(refusals),
        cmocka_unit_test(golden_f32),         cmocka_unit_test(golden_bf16),
        cmocka_unit_test(factors_of_a_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
