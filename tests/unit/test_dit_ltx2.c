/* test_dit_ltx2.c - LTX-2's transformer against diffusers.
 *
 * tools/golden/cases/ltx2.py computed tests/golden/ltx2-forms with the random weights that this
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

static const char *const forms[] = { "split", "held", "pairs", "gated" };

static void published_listings(void **state)
{
    static const char *const dirs[] = { "Lightricks/LTX-2/transformer",
                                        "diffusers/LTX-2.3-Diffusers/transformer" };
    (void)state;
    published(dirs, sizeof dirs / sizeof *dirs);
}

static void refusals(void **state)
{
    const char *ltx = "LTX2VideoTransformer3DModel";
    (void)state;
    refuses(ltx, "{\"qk_norm\":\"layer_norm\"}", XD_EUNSUPPORTED, "'layer_norm'");
    refuses(ltx, "{\"activation_fn\":\"gelu\"}", XD_EUNSUPPORTED, "'gelu'");
    refuses(ltx, "{\"rope_type\":\"thirds\"}", XD_EUNSUPPORTED, "'thirds'");
    refuses(ltx, "{\"out_channels\":24}", XD_EUNSUPPORTED, "out_channels 24");
    refuses(ltx, "{\"audio_patch_size\":2}", XD_EUNSUPPORTED, "audio_patch_size 2");
    refuses(ltx, "{\"patch_size_t\":2}", XD_EUNSUPPORTED, "patch_size_t 2");
    refuses(ltx, "{\"audio_cross_attn_mod\":true}", XD_EUNSUPPORTED, "audio_cross_attn_mod 1");
    refuses(ltx, "{\"use_prompt_adaln_single\":false}", XD_EUNSUPPORTED,
            "use_prompt_adaln_single 0");
    refuses(ltx, "{\"use_prompt_embeddings\":false}", XD_EUNSUPPORTED, "use_prompt_embeddings 0");
    refuses(ltx, "{\"rope_double_precision\":false}", XD_EUNSUPPORTED, "rope_double_precision 0");
    refuses(ltx, "{\"norm_elementwise_affine\":true}", XD_EUNSUPPORTED,
            "norm_elementwise_affine 1");
    refuses(ltx, "{\"audio_in_channels\":64,\"audio_out_channels\":64}", XD_EUNSUPPORTED,
            "audio_in_channels 64");
    refuses(ltx, "{\"audio_num_attention_heads\":16,\"audio_attention_head_dim\":128}",
            XD_EUNSUPPORTED, "audio_num_attention_heads 16");
    refuses(ltx, "{\"audio_attention_head_dim\":256,\"audio_cross_attention_dim\":8192}",
            XD_EUNSUPPORTED, "audio_attention_head_dim 256");
    refuses(ltx, "{\"attention_head_dim\":129,\"cross_attention_dim\":4128}", XD_EFORMAT,
            "attention_head_dim 129");
    refuses(ltx, "{\"audio_cross_attention_dim\":4096}", XD_EFORMAT,
            "audio_cross_attention_dim 4096");
    refuses(ltx, "{\"vae_scale_factors\":[8,32]}", XD_EFORMAT, "vae_scale_factors has 2");
    refuses(ltx, "{\"num_layers\":-1}", XD_EFORMAT, "num_layers");
    refuses(ltx, "{\"audio_hop_length\":0}", XD_EFORMAT, "audio_hop_length");
}

/* Compares the predictions of all tokens, `key` of the form's file: with all attention ("out"),
 * without that between video and audio ("isolated"), or with values in place of that within both in
 * block 1 ("perturbed"). Returns 1 if the model has such a block. */
static int run_form(const char *name, const char *key, xd_dtype want, double tol)
{
    static const uint8_t second[] = { 0, 1, 0 };

    part        p;
    bench       b;
    xd_exec     x;
    xd_dit_info info;
    xd_tensor   shape;
    xd_st      *st = open_form("ltx2-forms", name, want, &p, &b, &info, &x);
    float      *grid = reference(st, "grid", NULL), *t = reference(st, "time", NULL);
    float      *fps = reference(st, "fps", NULL), *held = reference(st, "held", NULL);
    float   *out = reference(st, key, &shape), *got = malloc((size_t)xd_count(shape) * sizeof *got);
    xd_cond  c = { .tok = given(&x, st, "text") };
    xd_input in = { .lat = given(&x, st, "latents"),
                    .audio = given(&x, st, "audio"),
                    .isolated = strcmp(key, "isolated") == 0,
                    .perturbs = strcmp(key, "perturbed") ? NULL : second,
                    .cond = &c,
                    .t = (double)t[0],
                    .held = (int64_t)held[0],
                    .fps = (double)fps[0],
                    .guidance = (double)NAN };
    xd_layout lay = { .len = { [XD_IMG] = in.lat.d[0], [XD_AUDIO] = in.audio.d[0] },
                      .npatch = 1,
                      .nsp = 1,
                      .grid = { (int64_t)grid[0], (int64_t)grid[1], (int64_t)grid[2] } };
    void     *kept = calloc(1, info.kept_size);
    xd_state  s = { .h = xd_new_f32(&x, shape.d[0], info.dim),
                    .kept = kept,
                    .local = calloc(1, info.local_size) };
    x.lay = &lay;
    p.dit->keep(&x, &p.net, &c, kept);
    p.dit->read(&x, &p.net, &in, kept);
    p.dit->cond(&x, &p.net, &in, &s);
    p.dit->embed(&x, &p.net, &in, &s);
    for (int i = 0; i < p.net.nlayers; i++) {
        x.layer = i;
        xd_dit_block(&x, p.dit, &p.net, i, &s);
    }
    xd_get(&x, got, p.dit->head(&x, &p.net, &s));
    ok(x.err.code, &x.err);
    near(name, got, out, xd_count(shape), tol);
    free(grid), free(t), free(fps), free(held), free(out), free(got), free(s.local), free(kept);
    xd_st_close(&st);
    close_part(&p);
    close_bench(&b);
    return info.perturbs;
}

static void run_all(xd_dtype want, double tol)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        run_form(forms[i], "out", want, tol);
        if (run_form(forms[i], "isolated", want, tol))
            run_form(forms[i], "perturbed", want, tol);
    }
}

static void golden_f32(void **state)
{
    (void)state;
    run_all(XD_F32, 2e-4);
}

static void golden_bf16(void **state)
{
    (void)state;
    run_all(XD_BF16, 3e-2);
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
