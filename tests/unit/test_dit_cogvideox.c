/* test_dit_cogvideox.c - transformers of video against diffusers: CogVideoX in its four forms.
 *
 * tools/golden/cases/cog.py computed tests/golden/cog with the random weights that this program
 * makes of a tensor's name. Tolerances as in models.h. */
#include "models.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static const char *const forms[] = { "2b", "5b", "5b-i2v", "1.5-i2v" };

static void published_listings(void **state)
{
    static const char *const dirs[] = {
        "THUDM/CogVideoX-2b/transformer",        "THUDM/CogVideoX-5b/transformer",
        "THUDM/CogVideoX-5b-I2V/transformer",    "THUDM/CogVideoX1.5-5B/transformer",
        "THUDM/CogVideoX1.5-5B-I2V/transformer",
    };
    (void)state;
    published(dirs, sizeof dirs / sizeof dirs[0]);
}

static void refusals(void **state)
{
    const char *cog = "CogVideoXTransformer3DModel";
    (void)state;
    refuses(cog, "{\"activation_fn\":\"geglu\"}", XD_EUNSUPPORTED, "geglu");
    refuses(cog, "{\"use_learned_positional_embeddings\":true}", XD_EUNSUPPORTED, "learned");
    refuses(cog, "{\"use_rotary_positional_embeddings\":true,\"attention_head_dim\":40}",
            XD_EFORMAT, "40");
    refuses(cog, "{\"num_attention_heads\":1,\"attention_head_dim\":40}", XD_EFORMAT, "40");
    refuses(cog, "{\"in_channels\":8}", XD_EFORMAT, "in_channels");
    refuses(cog, "{\"ofs_embed_dim\":64}", XD_EFORMAT, "64");
    refuses(cog, "{\"spatial_interpolation_scale\":0}", XD_EFORMAT, "0");
    refuses(cog, "{\"temporal_compression_ratio\":0}", XD_EFORMAT, "temporal_compression_ratio");
}

static void run_form(const char *name, xd_dtype want, double tol)
{
    part        p;
    bench       b;
    xd_exec     x;
    xd_dit_info info;
    xd_st      *st = open_form("cog", name, want, &p, &b, &info, &x);

    xd_tensor shape;
    float    *grid = reference(st, "grid", NULL), *t = reference(st, "time", NULL);
    float *out = reference(st, "out", &shape), *got = malloc((size_t)xd_count(shape) * sizeof *got);
    xd_tensor text = given(&x, st, "text");
    xd_layout lay = { .len = { shape.d[0], text.d[0], 0 },
                      .npatch = 1,
                      .nsp = 1,
                      .grid = { (int64_t)grid[0], (int64_t)grid[1], (int64_t)grid[2] } };
    xd_cond   c = { .tok = text };
    xd_input  in = { .lat = given(&x, st, "latents"),
                     .extra = given(&x, st, "extra"),
                     .cond = &c,
                     .txt = text,
                     .t = (double)t[0],
                     .guidance = (double)NAN };
    xd_state  s = { .h = xd_new_f32(&x, shape.d[0] + text.d[0], info.dim),
                    .local = calloc(1, info.local_size) };
    x.lay = &lay;
    assert_int_equal(info.extra_ch > 0, in.extra.p != NULL);
    p.dit->cond(&x, &p.net, &in, &s);
    p.dit->embed(&x, &p.net, &in, &s);
    for (int i = 0; i < p.net.nlayers; i++)
        xd_net_block(&x, &p.net, i, &s);
    xd_get(&x, got, p.dit->head(&x, &p.net, &s));
    ok(x.err.code, &x.err);
    near(name, got, out, xd_count(shape), tol);
    free(grid), free(t), free(out), free(got), free(s.local);
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
