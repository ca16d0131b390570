/* test_dit_minimaxh3.c - MiniMax-H3's transformer against diffusers.
 *
 * tools/golden/cases/minimaxh3.py computed tests/golden/minimaxh3-forms with the random weights
 * that this program makes of a tensor's name. Tolerances as in models.h. */
#include "models.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const forms[] = { "small", "five" };

static void published_listings(void **state)
{
    static const char *const dirs[] = { "MiniMaxAI/MiniMax-H3/transformer",
                                        "MiniMaxAI/MiniMax-H3/transformer_ref" };
    (void)state;
    published(dirs, 2);
}

static void refusals(void **state)
{
    const char *h3 = "MiniMaxH3Transformer3DModel";
    (void)state;
    refuses(h3, "{\"patch_size\":[1,2]}", XD_EFORMAT, "patch_size has 2 numbers");
    refuses(h3, "{\"patch_size\":[1,2,0]}", XD_EFORMAT, "patch_size has 0");
    refuses(h3, "{\"patch_size\":[2,2,2]}", XD_EUNSUPPORTED, "patch_size[0] 2");
    refuses(h3, "{\"audio_in_channels\":97}", XD_EUNSUPPORTED, "audio_in_channels 97");
    refuses(h3, "{\"rope_freq_dim\":22}", XD_EFORMAT, "rope_freq_dim 22");
    refuses(h3, "{\"freq_dim\":255}", XD_EFORMAT, "freq_dim 255");
    refuses(h3, "{\"rope_theta\":1}", XD_EFORMAT, "rope_theta 1");
    refuses(h3, "{\"num_refiner_layers\":9}", XD_EFORMAT, "num_refiner_layers");
    refuses(h3, "{\"num_layers\":-1}", XD_EFORMAT, "num_layers");
}

/* Compares the predictions of all tokens. */
static void run_form(const char *name, xd_dtype want, double tol)
{
    part        p;
    bench       b;
    xd_exec     x;
    xd_dit_info info;
    xd_tensor   shape;
    xd_st      *st = open_form("minimaxh3-forms", name, want, &p, &b, &info, &x);
    float      *grid = reference(st, "grid", NULL), *t = reference(st, "time", NULL);
    float *out = reference(st, "out", &shape), *got = malloc((size_t)xd_count(shape) * sizeof *got);
    xd_cond   c = { .tok = given(&x, st, "text") };
    xd_input  in = { .lat = given(&x, st, "latents"),
                     .audio = given(&x, st, "audio"),
                     .cond = &c,
                     .t = 1000 * (1 - (double)t[0]),
                     .audio_t = 1000 * (1 - (double)t[1]),
                     .guidance = (double)NAN };
    xd_layout lay = {
        .len = { [XD_TXT] = c.tok.d[0], [XD_IMG] = in.lat.d[0], [XD_AUDIO] = in.audio.d[0] },
        .npatch = 1,
        .nsp = 1,
        .grid = { (int64_t)grid[0], (int64_t)grid[1], (int64_t)grid[2] }
    };
    void    *kept = calloc(1, info.kept_size);
    xd_state s = { .h = xd_new_f32(&x, shape.d[0] + c.tok.d[0], info.dim),
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
    for (int64_t i = 0; i < xd_count(shape); i++)
        got[i] = -got[i]; /* diffusers' network predicts the direction to clean latents */
    ok(x.err.code, &x.err);
    near(name, got, out, xd_count(shape), tol);
    free(grid), free(t), free(out), free(got), free(s.local), free(kept);
    xd_st_close(&st);
    close_part(&p);
    close_bench(&b);
}

static void run_all(xd_dtype want, double tol)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        run_form(forms[i], want, tol);
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
