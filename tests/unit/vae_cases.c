/* vae_cases.c - see vae_cases.h */
#include "vae_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"

/* What cases of decoders that read more than latents were computed with. */
static const xd_decoding decoding = { .time = 0.05, .seed = 7 };

/* From and to memory of the host. */
static void call(xd_exec *x, const part *p, int encode, int tiled, xd_tensor from, xd_tensor to)
{
    size_t      mark = xd_arena_mark(x->tmp);
    xd_tensor   in = xd_new_as(x, XD_F32, 4, from.d), out = xd_new_as(x, XD_F32, 4, to.d);
    xd_vae_info info;
    p->vae->info(p->net.cfg, &info);
    x->decoding = &decoding;
    xd_put(x, in, from.p);
    if (tiled)
        (encode ? xd_vae_encode_tiled : xd_vae_decode_tiled)(x, p->vae, &info, &p->net, in, out,
                                                             NULL);
    else
        (encode ? p->vae->encode : p->vae->decode)(x, &p->net, in, out);
    xd_get(x, to.p, out);
    xd_arena_rewind(x->tmp, mark);
}

static size_t counted(const bench *b, const part *p, int encode, int tiled, xd_tensor in,
                      xd_tensor out)
{
    xd_dev  *count;
    xd_arena a;
    xd_exec  x;
    xd_err   e = { 0 };
    ok(xd_dev_open_count(&count, b->real, &e), &e);
    xd_arena_init(&a, (void *)(uintptr_t)XD_ALIGN, SIZE_MAX / 4);
    xd_exec_init(&x, count, &a, b->type);
    call(&x, p, encode, tiled, in, out);
    ok(x.err.code, &x.err);
    xd_dev_close(&count);
    return xd_arena_peak(&a);
}

/* The run that a tensor of the golden file is the result of. */
static void compare(const char *name, bench *b, const part *p, xd_st *st, int64_t i, double tol)
{
    const char *what = xd_st_name(st, i);
    int         encode = strncmp(what, "encode.", 7) == 0, tiled = strncmp(name, "tiles", 5) == 0;
    int64_t     T = atoi(what + 7);
    xd_vae_info v;
    xd_tensor   shape;
    xd_exec     x;
    float      *want = reference(st, what, &shape);
    p->vae->info(p->net.cfg, &v);
    int64_t   f = v.cell[1], h = encode ? shape.d[1] * f : shape.d[1] / f;
    int64_t   w = encode ? shape.d[2] * f : shape.d[2] / f,
              d[4] = { T, h, w, encode ? 3 : v.channels };
    xd_tensor in = xd_view(NULL, XD_F32, 4, d), out = xd_view(NULL, XD_F32, 4, shape.d);
    float    *number = in.p = malloc(xd_bytes(in)), *got = out.p = malloc(xd_bytes(out));
    assert_int_equal(shape.d[0], encode ? xd_vae_latents(&v, T) : xd_vae_frames(&v, T));
    for (int64_t k = 0; k < xd_count(in); k++)
        number[k] = xd_random_weight(xd_hash_text(what), (uint64_t)k) * (encode ? 0.5f : 1.0f);
    size_t size = counted(b, p, encode, tiled, in, out);
    assert_true(size <= b->tmp.cap);
    xd_exec_init(&x, b->dev, &b->tmp, b->type);
    b->tmp.peak = 0;
    call(&x, p, encode, tiled, in, out);
    ok(x.err.code, &x.err);
    assert_int_equal(xd_arena_mark(&b->tmp), 0);
    assert_int_equal(xd_arena_peak(&b->tmp), size);
    near(what, got, want, xd_count(out), tol);
    free(want), free(number), free(got);
}

void vae_cases(const char *folder, const char *const *cases, size_t n, xd_dtype want, double tol)
{
    for (size_t c = 0; c < n; c++) {
        char    path[256];
        part    p;
        bench   b;
        xd_decl d;
        xd_err  e = { 0 };
        xd_st  *st = NULL;
        snprintf(path, sizeof path, "tests/golden/%s/%s", folder, cases[c]);
        open_config(&p, path);
        snprintf(path, sizeof path, "tests/golden/%s/%s/golden.safetensors", folder, cases[c]);
        ok(xd_st_open(&st, path, "model", &e), &e);
        open_bench(&b, want, 0);
        visit(&p, b.dev, b.type, XD_VISIT_RANDOM, &d);
        assert_true(xd_st_count(st) >= 2);
        for (int64_t i = 0; i < xd_st_count(st); i++)
            compare(cases[c], &b, &p, st, i, tol);
        xd_st_close(&st);
        close_part(&p);
        close_bench(&b);
    }
}

static void open_defaults(part *p, const char *class_name, xd_vae_info *v)
{
    xd_err e = { 0 };
    *p = (part){ .config = NULL };
    ok(xd_net_open(&p->net, find(p, class_name), NULL, "defaults", &e), &e);
    p->vae->info(p->net.cfg, v);
}

void vae_infos(const char *class_name, const vae_numbers *want)
{
    part        p;
    xd_vae_info v;
    open_defaults(&p, class_name, &v);
    assert_int_equal(v.channels, want->channels);
    for (int i = 0; i < 3; i++)
        assert_int_equal(v.cell[i], want->cell[i]);
    assert_true(v.scaling == want->scaling && v.shift == 0 && v.invert == 0);
    assert_int_equal(v.alone, want->alone);
    assert_true(v.tile[0] == want->tile && v.tile[1] == want->tile);
    assert_int_equal(xd_vae_tiles(&v, want->size[0], want->size[1]), want->tiles);
    for (int i = 0; i < 6 && want->decoded[i][0]; i++)
        assert_int_equal(xd_vae_frames(&v, want->decoded[i][0]), want->decoded[i][1]);
    for (int i = 0; i < 6 && want->encoded[i][0]; i++)
        assert_int_equal(xd_vae_latents(&v, want->encoded[i][0]), want->encoded[i][1]);
    close_part(&p);
}

vae_memory vae_memory_of(const char *class_name, int64_t T, int64_t h, int64_t w)
{
    const double GiB = 1 << 30;
    part         p;
    bench        b;
    xd_decl      d;
    xd_exec      x;
    xd_vae_info  v;
    void        *at = (void *)(uintptr_t)XD_ALIGN;
    open_defaults(&p, class_name, &v);
    xd_tensor lat = xd_view(at, XD_F32, 4, (int64_t[]){ T, h, w, v.channels });
    xd_tensor rgb = xd_view(at, XD_F32, 4,
                            (int64_t[]){ xd_vae_frames(&v, T), v.cell[1] * h, v.cell[2] * w, 3 });
    open_bench(&b, XD_BF16, 1);
    visit(&p, b.dev, XD_BF16, XD_VISIT_COUNT, &d);
    xd_exec_init(&x, b.dev, &b.tmp, XD_BF16);
    p.vae->decode(&x, &p.net, lat, rgb);
    ok(x.err.code, &x.err);
    vae_memory m = { (double)xd_arena_peak(&b.tmp) / GiB, (double)d.packed / GiB,
                     (double)xd_bytes(rgb) / GiB };
    print_message("# decoding takes %.2f GiB beside weights (%.2f) and result (%.2f)\n", m.maps,
                  m.weights, m.result);
    close_part(&p);
    close_bench(&b);
    return m;
}
