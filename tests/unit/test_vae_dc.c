/* test_vae_dc.c - the memory of AutoencoderDC. tests/unit/test_vae.c compares its results with
 * diffusers. */
#include "models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Returns what decoding h x w latent cells takes in bf16 beside weights and result, in MiB. */
static double memory_of(int64_t h, int64_t w)
{
    part        p = { .config = NULL };
    bench       b;
    xd_decl     d;
    xd_exec     x;
    xd_err      e = { 0 };
    xd_vae_info v;
    void       *at = (void *)(uintptr_t)XD_ALIGN;
    ok(xd_net_open(&p.net, find(&p, "AutoencoderDC"), NULL, "defaults", &e), &e);
    p.vae->info(p.net.cfg, &v);
    xd_tensor lat = xd_view(at, XD_F32, 4, (int64_t[]){ 1, h, w, v.channels });
    xd_tensor rgb = xd_view(at, XD_F32, 4, (int64_t[]){ 1, v.cell[1] * h, v.cell[2] * w, 3 });
    open_bench(&b, XD_BF16, 1);
    visit(&p, b.dev, XD_BF16, XD_VISIT_COUNT, &d);
    xd_exec_init(&x, b.dev, &b.tmp, XD_BF16);
    p.vae->decode(&x, &p.net, lat, rgb);
    ok(x.err.code, &x.err);
    double maps = (double)xd_arena_peak(&b.tmp) / (1 << 20);
    print_message("# decoding takes %.0f MiB beside weights (%.0f) and result (%.0f)\n", maps,
                  (double)d.packed / (1 << 20), (double)xd_bytes(rgb) / (1 << 20));
    close_part(&p);
    close_bench(&b);
    return maps;
}

/* Images of 1024 and 2048 pixels: one map of the finest level, whose 128 channels take 256 MiB per
 * million pixels, and bands of rows. */
static void memory_is_bounded(void **state)
{
    (void)state;
    double one = memory_of(32, 32), four = memory_of(64, 64);
    assert_true(one > 256 && one < 1.3 * 256);
    assert_true(four > 1024 && four < 1.1 * 1024);
    /* the rows of one of four ranks */
    assert_true(memory_of(16, 64) < 1.3 * 256);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(memory_is_bounded) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
