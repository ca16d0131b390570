/* test_connectors.c - the connectors of a text with two streams against diffusers.
 *
 * tools/golden/cases/ltx2.py computed tests/golden/ltx2-connectors with the random weights that
 * this program makes of a tensor's name. Tolerances as in models.h. */
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
    static const char *const dirs[] = { "Lightricks/LTX-2/connectors",
                                        "diffusers/LTX-2.3-Diffusers/connectors" };
    (void)state;
    published(dirs, sizeof dirs / sizeof *dirs);
}

static void refusals(void **state)
{
    const char *name = "LTX2TextConnectors";
    (void)state;
    refuses(name, "{\"rope_type\":\"thirds\"}", XD_EUNSUPPORTED, "'thirds'");
    refuses(name, "{\"rope_double_precision\":false}", XD_EUNSUPPORTED, "rope_double_precision");
    refuses(name, "{\"audio_connector_num_attention_heads\":31}", XD_EFORMAT,
            "the width 3968 of the audio_connector is not caption_channels 3840");
    refuses(name, "{\"per_modality_projections\":true}", XD_EFORMAT, "hidden_dim 4096");
    refuses(name, "{\"video_connector_attention_head_dim\":127}", XD_EFORMAT, "127 features");
    refuses(name, "{\"video_connector_num_learnable_registers\":0}", XD_EFORMAT, "0 registers");
    refuses(name, "{\"text_proj_in_factor\":0}", XD_EFORMAT, "text_proj_in_factor 0");
}

static void run_form(const char *name, xd_dtype want, double tol)
{
    part      p;
    bench     b;
    xd_exec   x;
    xd_cond   c;
    xd_decl   d;
    xd_err    e = { 0 };
    xd_tensor shape, rows;
    xd_st    *st = NULL;
    char      path[256];
    snprintf(path, sizeof path, "tests/golden/ltx2-connectors/%s", name);
    open_config(&p, path);
    snprintf(path, sizeof path, "tests/golden/ltx2-connectors/%s/golden.safetensors", name);
    ok(xd_st_open(&st, path, "connectors", &e), &e);
    open_bench(&b, want, 0);
    visit(&p, b.dev, b.type, XD_VISIT_RANDOM, &d);
    xd_exec_init(&x, b.dev, &b.tmp, b.type);
    float       *states = reference(st, "states", &shape), *out = reference(st, "out", &rows);
    float       *got = malloc((size_t)xd_count(rows) * sizeof *got);
    xd_text_read r = { .states = states, .n = rows.d[0], .real = shape.d[0] };
    xd_layout    lay = { .len = { r.n }, .grid = { 1, 1, r.n }, .npatch = 1, .nsp = 1 };
    x.lay = &lay;
    xd_text_encode(p.text, &x, &p.net, &r, &c);
    ok(x.err.code, &x.err);
    assert_int_equal(c.tok.d[1], rows.d[1]);
    xd_get(&x, got, c.tok);
    near(name, got, out, xd_count(rows), tol);
    free(states), free(out), free(got);
    xd_st_close(&st);
    close_part(&p);
    close_bench(&b);
}

static void golden_f32(void **state)
{
    (void)state;
    run_form("joint", XD_F32, 2e-4);
    run_form("apart", XD_F32, 2e-4);
    run_form("gated", XD_F32, 2e-4);
}

static void golden_bf16(void **state)
{
    (void)state;
    run_form("joint", XD_BF16, 3e-2);
    run_form("apart", XD_BF16, 3e-2);
    run_form("gated", XD_BF16, 3e-2);
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
