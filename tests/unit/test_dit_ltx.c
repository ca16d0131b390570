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

static const char *const forms[] = { "plain", "held", "bare" };

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

static void run_form(const char *name, xd_dtype want, double tol)
{
    part        p;
    bench       b;
    xd_exec     x;
    xd_dit_info info;
    xd_tensor   shape;
    xd_st      *st = open_form("ltx-forms", name, want, &p, &b, &info, &x);
    float      *grid = reference(st, "grid", NULL), *t = reference(st, "time", NULL);
    float      *step = reference(st, "step", NULL), *held = reference(st, "held", NULL);
    float *out = reference(st, "out", &shape), *got = malloc((size_t)xd_count(shape) * sizeof *got);
    xd_layout lay = { .len = { shape.d[0], 0, 0 },
                      .npatch = 1,
                      .nsp = 1,
                      .grid = { (int64_t)grid[0], (int64_t)grid[1], (int64_t)grid[2] } };
    xd_cond   c = { .tok = given(&x, st, "text") };
    xd_input  in = { .lat = given(&x, st, "latents"),
                     .cond = &c,
                     .t = (double)t[0],
                     .held = (int64_t)held[0],
                     .step = { (double)step[0], (double)step[1], (double)step[2] },
                     .guidance = (double)NAN };
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
    free(grid), free(t), free(step), free(held), free(out), free(got), free(s.local), free(kept);
    xd_st_close(&st);
    close_part(&p);
    close_bench(&b);
}

static void golden_f32(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        run_form(forms[i], XD_F32, 2e-4);
}

static void golden_bf16(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        run_form(forms[i], XD_BF16, 3e-2);
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
