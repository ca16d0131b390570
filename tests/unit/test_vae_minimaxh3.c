/* test_vae_minimaxh3.c - the decoder of MiniMax-H3's autoencoder against diffusers.
 *
 * tools/golden/cases/minimaxh3_vae.py computed tests/golden/minimaxh3-vae with the random weights
 * and inputs that this program makes of a name. Tolerances are shares of the largest value: f32
 * 1e-5, bf16 3e-2. Every run is counted first, and must then use exactly the memory that was
 * counted. */
#include "published.h"
#include "vae_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const h3 = "AutoencoderKLMiniMaxH3";
static const char *const cases[] = { "four", "two", "tiles", "tiles-rows" };

/* The tensors of the decoder of MiniMaxAI/MiniMax-H3, whose config has the default values apart
 * from the mean and the deviation of latents. The other tensors of the file are never read. */
static void published_numbers(void **state)
{
    const xd_net_def *vae = find(&(part){ 0 }, h3);
    (void)state;
    declares(h3, "{}", 585, 2423531096);
    assert_true(xd_net_unread(vae, "encoder.conv_in.weight"));
    assert_true(xd_net_unread(vae, "quant_conv.bias"));
    assert_false(xd_net_unread(vae, "post_quant_conv.bias"));
}

static void refusals(void **state)
{
    (void)state;
    refuses(h3, "{\"out_channels\":4}", XD_EUNSUPPORTED, "out_channels 4");
    refuses(h3, "{\"latent_channels\":1,\"latents_mean\":[0,1]}", XD_EFORMAT, "latents_mean has 2");
    refuses(h3, "{\"latent_channels\":1,\"latents_mean\":[0],\"latents_std\":[0]}", XD_EFORMAT,
            "channel 0");
    refuses(h3, "{\"token_drop\":0}", XD_EUNSUPPORTED, "token_drop 0");
    refuses(h3, "{\"token_drop\":4,\"clip_length\":13}", XD_EUNSUPPORTED, "clip_length 13");
    refuses(h3, "{\"decoder_num_layers\":129}", XD_EUNSUPPORTED, "decoder_num_layers is 129");
    refuses(h3, "{\"decoder_rope_dim_ratio\":0.7}", XD_EFORMAT, "decoder_rope_dim_ratio 0.7");
    refuses(h3, "{\"spatial_downsample_factors\":[16,8]}", XD_EUNSUPPORTED,
            "spatial_downsample_factors");
    refuses(h3, "{\"temporal_downsample_factors\":[0]}", XD_EUNSUPPORTED,
            "temporal_downsample_factors");
}

/* The published numbers: the frames are 17 k + 5, the latent frames 5 k + 2. */
static void infos(void **state)
{
    (void)state;
    vae_infos(h3, &(vae_numbers){ .channels = 24,
                                  .cell = { 4, 16, 16 },
                                  .scaling = 1,
                                  .tile = 16,
                                  .size = { 48, 84 },
                                  .tiles = 28,
                                  .decoded = { { 1, 22 }, { 7, 22 }, { 12, 39 }, { 37, 124 } },
                                  .encoded = { { 1, 7 }, { 22, 7 }, { 23, 12 }, { 124, 37 } } });
}

/* 124 frames of 768 x 1344 in bf16. The memory of a video does not grow with its frames. */
static void memory_is_bounded(void **state)
{
    (void)state;
    double whole = vae_memory_of(h3, 37, 16, 16).maps, few = vae_memory_of(h3, 7, 16, 16).maps;
    assert_true(whole < 0.25 && whole - few < 0.01);
}

static void wrong_frames_are_refused(void **state)
{
    part      p;
    bench     b;
    xd_exec   x;
    xd_tensor lat, rgb, none = { 0 };
    xd_err    e = { 0 };
    (void)state;
    p = (part){ .config = NULL };
    ok(xd_net_open(&p.net, find(&p, h3), NULL, "defaults", &e), &e);
    open_bench(&b, XD_F32, 0);
    xd_exec_init(&x, b.dev, &b.tmp, XD_F32);
    lat = xd_new_as(&x, XD_F32, 4, (int64_t[]){ 8, 1, 1, 24 });
    rgb = xd_new_as(&x, XD_F32, 4, (int64_t[]){ 22, 16, 16, 3 });
    p.vae->decode(&x, &p.net, lat, rgb);
    assert_non_null(strstr(x.err.msg, "8 latent frames are not a multiple of 5 and 2 more"));
    xd_exec_init(&x, b.dev, &b.tmp, XD_F32);
    p.vae->encode(&x, &p.net, none, none);
    assert_int_equal(x.err.code, XD_EUNSUPPORTED);
    assert_non_null(strstr(x.err.msg, "only the decoder"));
    b.tmp.used = 0;
    close_part(&p);
    close_bench(&b);
}

static void golden_f32(void **state)
{
    (void)state;
    vae_cases("minimaxh3-vae", cases, sizeof cases / sizeof *cases, XD_F32, 1e-5);
}

static void golden_bf16(void **state)
{
    (void)state;
    vae_cases("minimaxh3-vae", cases, sizeof cases / sizeof *cases, XD_BF16, 3e-2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_numbers),
        cmocka_unit_test(refusals),
        cmocka_unit_test(infos),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(wrong_frames_are_refused),
        cmocka_unit_test(golden_f32),
        cmocka_unit_test(golden_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
