/* test_vae_mochi.c - the decoder of Mochi's autoencoder against diffusers.
 *
 * tools/golden/cases/mochi_vae.py computed tests/golden/mochi-vae with the random weights and
 * inputs that this program makes of a name. Tolerances are shares of the largest value: f32 1e-5,
 * bf16 3e-2. Every run is counted first, and must then use exactly the memory that was counted. */
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

static const char *const mochi = "AutoencoderKLMochi";
static const char *const cases[] = { "six", "three", "one", "tiles" };

static void published_listings(void **state)
{
    static const char *const dirs[] = { "genmo/mochi-1-preview/vae" };
    (void)state;
    published(dirs, 1);
}

static void refusals(void **state)
{
    (void)state;
    refuses(mochi, "{\"act_fn\":\"gelu\"}", XD_EUNSUPPORTED, "gelu");
    refuses(mochi, "{\"out_channels\":4}", XD_EUNSUPPORTED, "out_channels 4");
    refuses(mochi, "{\"latent_channels\":16}", XD_EFORMAT, "latent_channels is 16");
    refuses(mochi, "{\"decoder_block_out_channels\":[128,256,512,700]}", XD_EFORMAT, "700");
    refuses(mochi, "{\"layers_per_block\":[3,3,4,6]}", XD_EFORMAT, "layers_per_block has 4");
    refuses(mochi, "{\"layers_per_block\":[3,3,4,6,0]}", XD_EUNSUPPORTED, "has 0");
    refuses(mochi, "{\"temporal_expansions\":[1,2]}", XD_EFORMAT, "temporal_expansions has 2");
    refuses(mochi, "{\"spatial_expansions\":[8,8,8]}", XD_EUNSUPPORTED, "spatial_expansions");
    refuses(mochi, "{\"encoder_block_out_channels\":[64]}", XD_EFORMAT, "has 1 entries");
    refuses(mochi, "{\"add_attention_block\":[true]}", XD_EFORMAT, "add_attention_block");
    refuses(mochi, "{\"scaling_factor\":0}", XD_EFORMAT, "scaling_factor 0");
    refuses(mochi, "{\"latent_channels\":1,\"latents_mean\":[0],\"latents_std\":[0]}", XD_EFORMAT,
            "channel 0");
}

/* The published numbers. */
static void infos(void **state)
{
    (void)state;
    vae_infos(mochi, &(vae_numbers){ .channels = 12,
                                     .cell = { 6, 8, 8 },
                                     .scaling = 1,
                                     .alone = 1,
                                     .tile = 32,
                                     .size = { 60, 106 },
                                     .tiles = 15,
                                     .decoded = { { 1, 1 }, { 2, 7 }, { 4, 19 }, { 28, 163 } },
                                     .encoded = { { 1, 1 }, { 7, 2 }, { 19, 4 }, { 163, 28 } } });
}

/* 163 frames of 480 x 848 in bf16. The memory of a video does not grow with its frames. */
static void memory_is_bounded(void **state)
{
    (void)state;
    double whole = vae_memory_of(mochi, 28, 60, 106).maps,
           few = vae_memory_of(mochi, 2, 60, 106).maps;
    assert_true(whole > 3 && whole < 5 && whole - few < 0.01);
    /* the rows of one of four ranks */
    assert_true(vae_memory_of(mochi, 28, 15, 106).maps < whole / 3);
}

static void encoder_is_refused(void **state)
{
    part      p;
    bench     b;
    xd_exec   x;
    xd_tensor none = { 0 };
    xd_err    e = { 0 };
    (void)state;
    p = (part){ .config = NULL };
    ok(xd_net_open(&p.net, find(&p, mochi), NULL, "defaults", &e), &e);
    open_bench(&b, XD_F32, 0);
    xd_exec_init(&x, b.dev, &b.tmp, XD_F32);
    p.vae->encode(&x, &p.net, none, none);
    assert_int_equal(x.err.code, XD_EUNSUPPORTED);
    assert_non_null(strstr(x.err.msg, "only the decoder"));
    close_part(&p);
    close_bench(&b);
}

static void golden_f32(void **state)
{
    (void)state;
    vae_cases("mochi-vae", cases, sizeof cases / sizeof *cases, XD_F32, 1e-5);
}

static void golden_bf16(void **state)
{
    (void)state;
    vae_cases("mochi-vae", cases, sizeof cases / sizeof *cases, XD_BF16, 3e-2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_listings),
        cmocka_unit_test(refusals),
        cmocka_unit_test(infos),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(encoder_is_refused),
        cmocka_unit_test(golden_f32),
        cmocka_unit_test(golden_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
