/* test_vae_taehv.c - tiny autoencoders that diffusers does not have: TAEHV for videos, TAEF2 and
 * decoders of TAESD in a file of their own for images.
 *
 * tools/golden/cases/taehv.py and taesd.py computed tests/golden/taehv and taesd in PyTorch with
 * the random weights and inputs that this program makes of a name. Tolerances are shares of the
 * largest value: f32 1e-5, bf16 3e-2. Every run is counted first, and must then use exactly the
 * memory that was counted. */
#include "vae_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const taehv = "TAEHV";
static const char *const videos[] = { "four", "even", "eight", "six", "chunks", "images", "super" };
static const char *const tiny[] = { "norm", "own" };

static void refusals(void **state)
{
    (void)state;
    refuses(taehv, "{\"latent_channels\":0}", XD_EUNSUPPORTED, "latent_channels is 0");
    refuses(taehv, "{\"patch_size\":17}", XD_EUNSUPPORTED, "patch_size is 17");
    refuses(taehv, "{\"decoder_time_upscale\":[1,2]}", XD_EFORMAT, "has 3 entries, and needs 2");
    refuses(taehv, "{\"decoder_block_out_channels\":[8,8]}", XD_EFORMAT, "has 2 entries");
    refuses(taehv, "{\"decoder_time_upscale\":[1,2,9]}", XD_EUNSUPPORTED, "is 9");
    refuses(taehv, "{\"decoder_time_upscale\":[2,2,2]}", XD_EFORMAT, "of 4 frames");
    refuses(taehv, "{\"layers_per_block\":9}", XD_EUNSUPPORTED, "layers_per_block is 9");
    refuses(taehv, "{\"chunk\":[5,17]}", XD_EFORMAT, "last_chunk has 0 entries");
    refuses(taehv, "{\"chunk\":[5,17],\"last_chunk\":[2,6]}", XD_EFORMAT, "must be equal");
    refuses(taehv, "{\"chunk\":[5,15],\"last_chunk\":[2,3]}", XD_EUNSUPPORTED, "chunk is 5");
    refuses("AutoencoderTiny", "{\"latent_pack\":5}", XD_EUNSUPPORTED, "latent_pack is 5");
    refuses("AutoencoderTiny", "{\"tensor_names\":\"x\"}", XD_EUNSUPPORTED, "tensor_names is x");
}

/* The numbers of taew2_1, the default. */
static void infos(void **state)
{
    (void)state;
    vae_infos(taehv, &(vae_numbers){ .channels = 16,
                                     .cell = { 4, 8, 8 },
                                     .scaling = 1,
                                     .alone = 1,
                                     .tile = 64,
                                     .size = { 60, 104 },
                                     .tiles = 4,
                                     .decoded = { { 1, 1 }, { 2, 5 }, { 21, 81 } },
                                     .encoded = { { 1, 1 }, { 5, 2 }, { 81, 21 } } });
}

/* 81 frames of 480 x 832 in bf16. The memory of a video does not grow with its frames. */
static void memory_is_bounded(void **state)
{
    (void)state;
    double whole = vae_memory_of(taehv, 21, 60, 104).maps,
           few = vae_memory_of(taehv, 2, 60, 104).maps;
    assert_true(whole > 0.2 && whole < 0.6 && whole == few);
    /* the rows of one of four ranks */
    assert_true(vae_memory_of(taehv, 21, 15, 104).maps < whole / 3);
}

static void golden_f32(void **state)
{
    (void)state;
    vae_cases("taehv", videos, sizeof videos / sizeof *videos, XD_F32, 1e-5);
    vae_cases("taesd", tiny, sizeof tiny / sizeof *tiny, XD_F32, 1e-5);
}

static void golden_bf16(void **state)
{
    (void)state;
    vae_cases("taehv", videos, sizeof videos / sizeof *videos, XD_BF16, 3e-2);
    vae_cases("taesd", tiny, sizeof tiny / sizeof *tiny, XD_BF16, 3e-2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals),          cmocka_unit_test(infos),
        cmocka_unit_test(memory_is_bounded), cmocka_unit_test(golden_f32),
        cmocka_unit_test(golden_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
