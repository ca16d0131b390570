/* test_audio.c - the decoder of spectrograms, the vocoders and the decoder of samples against
 * diffusers.
 *
 * tools/golden/cases/ltx2.py and minimaxh3.py computed tests/golden/ltx2-audio and
 * tests/golden/minimaxh3-audio with the random weights that this program makes of a tensor's name.
 * Tolerances as in models.h. */
#include "models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static void published_listings(void **state)
{
    static const char *const dirs[] = { "Lightricks/LTX-2/vocoder",
                                        "Lightricks/LTX-2.5-Diffusers/vocoder" };
    (void)state;
    published(dirs, 2);
}

/* The tensors of the decoder of MiniMaxAI/MiniMax-H3, whose config has the default values. The
 * other tensors of the file are never read. */
static void published_numbers(void **state)
{
    const xd_net_def *waveform = find(&(part){ 0 }, "AutoencoderKLMiniMaxH3Audio");
    (void)state;
    declares("AutoencoderKLMiniMaxH3Audio", "{}", 660, 64936305);
    assert_true(xd_net_unread(waveform, "encoder.block.0.weight_v"));
    assert_true(xd_net_unread(waveform, "decoder.activation_post.upsample.filter"));
    assert_false(xd_net_unread(waveform, "decoder.conv_pre.weight_v"));
}

static void refusals(void **state)
{
    const char *vae = "AutoencoderKLLTX2Audio", *vocoder = "LTX2Vocoder";
    const char *waveform = "AutoencoderKLMiniMaxH3Audio", *wide = "LTX2VocoderWithBWE";
    (void)state;
    refuses(vae, "{\"norm_type\":\"group\"}", XD_EUNSUPPORTED, "'group'");
    refuses(vae, "{\"causality_axis\":\"width\"}", XD_EUNSUPPORTED, "'width'");
    refuses(vae, "{\"ch_mult\":[1,2]}", XD_EUNSUPPORTED, "2 levels");
    refuses(vae, "{\"mel_bins\":60}", XD_EFORMAT, "mel_bins 60");
    refuses(vocoder, "{\"act_fn\":\"gelu\"}", XD_EUNSUPPORTED, "'gelu'");
    refuses(vocoder, "{\"antialias\":true}", XD_EUNSUPPORTED, "antialias 1");
    refuses(vocoder, "{\"final_act_fn\":\"relu\"}", XD_EUNSUPPORTED, "'relu'");
    refuses(vocoder, "{\"act_fn\":\"snake\",\"antialias_kernel_size\":6}", XD_EUNSUPPORTED,
            "antialias_kernel_size 6");
    refuses(vocoder, "{\"output_sampling_rate\":0}", XD_EFORMAT, "output_sampling_rate 0");
    refuses(vocoder, "{\"upsample_factors\":[2,2]}", XD_EFORMAT, "2 upsample_factors");
    refuses(vocoder, "{\"upsample_kernel_sizes\":[4,15,8,4,4]}", XD_EFORMAT, "less than");
    refuses(vocoder, "{\"resnet_kernel_sizes\":[3,4,5]}", XD_EUNSUPPORTED, "4 is not an odd");
    refuses(vocoder, "{\"resnet_dilations\":[[0]]}", XD_EFORMAT, "resnet_dilations");
    refuses(vocoder, "{\"hidden_channels\":16}", XD_EFORMAT, "halved 5 times");
    refuses(waveform, "{\"latents_mean\":[0,1],\"latents_std\":[1,1]}", XD_EFORMAT,
            "latents_mean has 2");
    refuses(waveform, "{\"latent_channels\":1,\"latents_mean\":[0]}", XD_EFORMAT, "latents_std 0");
    refuses(waveform, "{\"decoder_rates\":[2,2]}", XD_EFORMAT, "2 decoder_rates");
    refuses(waveform, "{\"decoder_dim\":64}", XD_EFORMAT, "halved 7 times");
    refuses(waveform, "{\"sampling_rate\":0}", XD_EFORMAT, "sampling_rate 0");
    refuses(wide, "{\"bwe_act_fn\":\"gelu\"}", XD_EUNSUPPORTED, "'gelu'");
    refuses(wide, "{\"bwe_resnet_dilations\":[[0]]}", XD_EFORMAT, "bwe_resnet_dilations");
    refuses(wide, "{\"output_sampling_rate\":44100}", XD_EUNSUPPORTED, "44100");
    refuses(wide, "{\"window_length\":500}", XD_EUNSUPPORTED, "window_length 500");
    refuses(wide, "{\"num_mel_channels\":60}", XD_EFORMAT, "num_mel_channels 60");
    refuses(wide, "{\"hop_length\":160}", XD_EFORMAT, "hop_length 160");
}

static void run_form(const char *name, xd_dtype want, double tol)
{
    part          p;
    bench         b;
    xd_exec       x;
    xd_decl       d;
    xd_audio_info info;
    xd_err        e = { 0 };
    xd_tensor     shape;
    xd_st        *st = NULL;
    char          path[256];
    snprintf(path, sizeof path, "tests/golden/%s", name);
    open_config(&p, path);
    snprintf(path, sizeof path, "tests/golden/%s/golden.safetensors", name);
    ok(xd_st_open(&st, path, "audio", &e), &e);
    open_bench(&b, want, 0);
    visit(&p, b.dev, b.type, XD_VISIT_RANDOM, &d);
    xd_exec_init(&x, b.dev, &b.tmp, b.type);
    xd_tensor in = given(&x, st, "in");
    float    *want_rows = reference(st, "out", &shape);
    float    *got = malloc((size_t)xd_count(shape) * sizeof *got);
    p.audio->info(p.net.cfg, &info);
    assert_int_equal(info.in, in.d[1]);
    assert_int_equal(info.out, shape.d[1]);
    assert_int_equal(p.audio->rows(p.net.cfg, in.d[0]), shape.d[0]);
    xd_tensor out = xd_new_f32(&x, shape.d[0], shape.d[1]);
    p.audio->run(&x, &p.net, in, out);
    ok(x.err.code, &x.err);
    xd_get(&x, got, out);
    near(name, got, want_rows, xd_count(shape), tol);
    free(want_rows), free(got);
    xd_st_close(&st);
    close_part(&p);
    close_bench(&b);
}

static void golden_f32(void **state)
{
    (void)state;
    run_form("ltx2-audio/spectrogram", XD_F32, 1e-4);
    run_form("ltx2-audio/vocoder", XD_F32, 1e-4);
    run_form("ltx2-audio/snake", XD_F32, 1e-4);
    run_form("ltx2-audio/unfiltered", XD_F32, 1e-4);
    run_form("ltx2-audio/wide", XD_F32, 1e-4);
    run_form("minimaxh3-audio/small", XD_F32, 1e-4);
    run_form("minimaxh3-audio/one", XD_F32, 1e-4);
}

static void golden_bf16(void **state)
{
    (void)state;
    run_form("ltx2-audio/spectrogram", XD_BF16, 3e-2);
    run_form("ltx2-audio/vocoder", XD_BF16, 3e-2);
    run_form("ltx2-audio/snake", XD_BF16, 3e-2);
    run_form("ltx2-audio/unfiltered", XD_BF16, 3e-2);
    run_form("ltx2-audio/wide", XD_BF16, 3e-2);
    run_form("minimaxh3-audio/small", XD_BF16, 3e-2);
    run_form("minimaxh3-audio/one", XD_BF16, 3e-2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_listings), cmocka_unit_test(published_numbers),
        cmocka_unit_test(refusals),           cmocka_unit_test(golden_f32),
        cmocka_unit_test(golden_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
