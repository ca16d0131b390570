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
#include <string.h>

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

/* Returns what decoding takes in bf16 beside weights and result, in GiB. */
static double memory_of(const char *config, int64_t T, int64_t h)
{
    part        p = { .config = NULL };
    bench       b;
    xd_decl     d;
    xd_exec     x;
    xd_vae_info v;
    xd_err      e = { 0 };
    void       *at = (void *)(uintptr_t)XD_ALIGN;
    if (config)
        ok(xd_json_parse(&p.config, config, strlen(config), "config", &e), &e);
    ok(xd_net_open(&p.net, find(&p, ltx), p.config, "config", &e), &e);
    p.vae->info(p.net.cfg, &v);
    xd_tensor lat = xd_view(at, XD_F32, 4, (int64_t[]){ T, h, 22, 128 });
    xd_tensor rgb = xd_view(at, XD_F32, 4, (int64_t[]){ xd_vae_frames(&v, T), 32 * h, 704, 3 });
    open_bench(&b, XD_BF16, 1);
    visit(&p, b.dev, XD_BF16, XD_VISIT_COUNT, &d);
    xd_exec_init(&x, b.dev, &b.tmp, XD_BF16);
    p.vae->decode(&x, &p.net, lat, rgb);
    ok(x.err.code, &x.err);
    double maps = (double)xd_arena_peak(&b.tmp) / (1 << 30);
    print_message("# decoding takes %.2f GiB beside weights (%.2f) and result (%.2f)\n", maps,
                  (double)d.packed / (1 << 30), (double)xd_bytes(rgb) / (1 << 30));
    close_part(&p);
    close_bench(&b);
    return maps;
}

/* 161 frames of 512 x 704 in bf16. The memory of a video does not grow with its frames, but for the
 * latents in f32. */
static void memory_is_bounded(void **state)
{
    static const char *const configs[] = { NULL, "{\"decoder_causal\":true}" };
    (void)state;
    for (int i = 0; i < 2; i++) {
        double whole = memory_of(configs[i], 81, 16), few = memory_of(configs[i], 41, 16);
        assert_true(whole > 0.2 && whole < 0.6 && whole - few < 0.02);
        /* the rows of one of four ranks */
        assert_true(memory_of(configs[i], 21, 4) < whole / 3);
    }
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
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(golden_f32),
        cmocka_unit_test(golden_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
