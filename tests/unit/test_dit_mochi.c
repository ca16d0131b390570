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

static const char *const forms[] = { "plain", "wide" };

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

static void run_form(const char *name, xd_dtype want, double tol)
{
    part        p;
    bench       b;
    xd_exec     x;
    xd_dit_info info;
    xd_tensor   shape;
    xd_st      *st = open_form("mochi-forms", name, want, &p, &b, &info, &x);
    float      *grid = reference(st, "grid", NULL), *t = reference(st, "time", NULL);
    float *out = reference(st, "out", &shape), *got = malloc((size_t)xd_count(shape) * sizeof *got);
    xd_cond   c = { .tok = given(&x, st, "text") };
    int64_t   ntxt = c.tok.d[0], N = shape.d[0];
    xd_layout lay = { .len = { N, ntxt, 0 },
                      .npatch = 1,
                      .nsp = 1,
                      .grid = { (int64_t)grid[0], (int64_t)grid[1], (int64_t)grid[2] } };
    xd_input  in = { .lat = given(&x, st, "latents"),
                     .cond = &c,
                     .txt = c.tok,
                     .t = (double)t[0],
                     .guidance = (double)NAN };
    void     *kept = calloc(1, info.kept_size);
    xd_state  s = { .h = xd_new_f32(&x, N + ntxt, info.dim),
                    .kept = kept,
                    .local = calloc(1, info.local_size) };
    x.lay = &lay;
    p.dit->keep(&x, &p.net, &c, kept);
    p.dit->read(&x, &p.net, &in, kept);
    p.dit->cond(&x, &p.net, &in, &s);
    p.dit->embed(&x, &p.net, &in, &s);
    for (int i = 0; i < p.net.nlayers; i++)
        xd_dit_block(&x, p.dit, &p.net, i, &s);
    check_zeros(&x, s.h, ntxt);
    xd_get(&x, got, p.dit->head(&x, &p.net, &s));
    ok(x.err.code, &x.err);
    near(name, got, out, xd_count(shape), tol);
    free(grid), free(t), free(out), free(got), free(s.local), free(kept);
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
