/* test_vae.c - the autoencoders against diffusers (tests/golden/NAME/vae, golden.safetensors).
 *
 * Tolerances are shares of the largest value of the reference: f32 2e-4, in tiles 5e-4, bf16
 * 3e-2. Every run is counted first, and must then use exactly the memory that was counted. */
#include <glob.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "exec/op.h"
#include "io/safetensors.h"
#include "published.h"
#include "vae/vae.h"

enum { DECODE, ENCODE };

typedef struct bench { /* a model on a device */
    xd_dev       *dev, *count;
    const xd_vae *vae;
    xd_net        net;
    xd_store     *store;
    xd_st        *st;
    xd_dtype      act;
    size_t        band; /* of xd_exec */
    xd_err        err;
} bench;

static void must(xd_status s, const xd_err *e)
{
    if (s != XD_OK)
        fail_msg("%s", e->msg);
}

static void *need(void *p)
{
    assert_non_null(p);
    return p;
}

/* ---- the weights of a file as a source ----------------------------------------------------- */

static int source_has(void *self, const char *name, xd_tensor *shape)
{
    int64_t i = xd_st_find(self, name);
    if (i >= 0)
        *shape = xd_st_shape(self, i);
    return i >= 0;
}

static xd_status source_get(void *self, const char *name, xd_tensor *t, xd_err *e)
{
    return xd_st_get(self, xd_st_find(self, name), t, e);
}

static void source_done(void *self, const char *name)
{
    xd_st_done(self, xd_st_find(self, name));
}

static const xd_vae *find_vae(const char *cls)
{
    for (int i = 0; xd_vaes[i]; i++)
        for (size_t k = 0; k < 6 && xd_vaes[i]->net.classes[k]; k++)
            if (strcmp(xd_vaes[i]->net.classes[k], cls) == 0)
                return xd_vaes[i];
    return NULL;
}

static void list_weights(xd_net *n, xd_decl *d, int whole, xd_err *e)
{
    *d = (xd_decl){ .visit = XD_VISIT_LIST, .whole = whole, .type = XD_F32, .tp = 1, .err = e };
    must(xd_net_visit(n, d), e);
}

static void open_device(bench *b, xd_dtype want)
{
    memset(b, 0, sizeof *b);
    must(xd_dev_open(&b->dev, "cpu", &b->err), &b->err);
    must(xd_dev_open_count(&b->count, b->dev, &b->err), &b->err);
    must(xd_store_open(&b->store, b->dev, &b->err), &b->err);
    b->vae = need((void *)(uintptr_t)find_vae("AutoencoderKL"));
    b->act = xd_dev_compute(b->dev, want);
}

static void open_golden(bench *b, const char *name, xd_dtype want)
{
    char      path[512];
    xd_json  *j;
    xd_decl   d;
    xd_source src = { .has = source_has, .get = source_get, .done = source_done };
    int       unread = 0;
    open_device(b, want);
    snprintf(path, sizeof path, "tests/golden/%s/vae/config.json", name);
    must(xd_json_read(&j, path, &b->err), &b->err);
    b->vae = need((void *)(uintptr_t)find_vae(xd_json_text(xd_json_get(j, "_class_name"))));
    must(xd_net_open(&b->net, &b->vae->net, j, path, &b->err), &b->err);
    xd_json_free(&j);
    snprintf(path, sizeof path, "tests/golden/%s/vae", name);
    must(xd_st_open(&b->st, path, "diffusion_pytorch_model", &b->err), &b->err);
    src.self = b->st;
    list_weights(&b->net, &d, 0, &b->err);
    for (int64_t i = 0; i < xd_st_count(b->st); i++)
        unread += xd_net_unread(&b->vae->net, xd_st_name(b->st, i));
    assert_int_equal(d.nlist + unread, xd_st_count(b->st));
    must(xd_declared_check(d.list, d.nlist, &src, path, &b->err), &b->err);
    xd_decl_free(&d);
    d = (xd_decl){ .visit = XD_VISIT_LOAD,
                   .dev = b->dev,
                   .type = b->act,
                   .src = &src,
                   .tp = 1,
                   .store = b->store,
                   .err = &b->err };
    must(xd_net_visit(&b->net, &d), &b->err);
}

static void close_bench(bench *b)
{
    xd_net_close(&b->net);
    xd_store_close(&b->store);
    xd_st_close(&b->st);
    xd_dev_close(&b->count);
    xd_dev_close(&b->dev);
}

/* ---- running ------------------------------------------------------------------------------- */

static void call(xd_exec *x, const bench *b, int what, int tiles, xd_tensor in, xd_tensor out)
{
    xd_vae_info info;
    b->vae->info(b->net.cfg, &info);
    if (tiles)
        (what == DECODE ? xd_vae_decode_tiled : xd_vae_encode_tiled)(x, b->vae, &info, &b->net, in,
                                                                     out, NULL);
    else
        (what == DECODE ? b->vae->decode : b->vae->encode)(x, &b->net, in, out);
}

/* What the run takes, by the count device. */
static size_t counted(const bench *b, int what, int tiles, xd_tensor in, xd_tensor out)
{
    xd_arena a;
    xd_exec  x;
    xd_arena_init(&a, (void *)(uintptr_t)XD_ALIGN, SIZE_MAX / 4);
    xd_exec_init(&x, b->count, &a, b->act);
    x.band = b->band;
    call(&x, b, what, tiles, in, out);
    must(x.err.code, &x.err);
    assert_int_equal(xd_arena_mark(&a), 0);
    return xd_arena_peak(&a);
}

static void run_counted(const bench *b, int what, int tiles, xd_tensor in, xd_tensor out)
{
    xd_arena a;
    xd_exec  x;
    size_t   size = counted(b, what, tiles, in, out);
    char    *p = need(b->dev->mem->get(b->dev, size + 1)); /* a run may take nothing */
    xd_arena_init(&a, p, size);
    xd_exec_init(&x, b->dev, &a, b->act);
    x.band = b->band;
    call(&x, b, what, tiles, in, out);
    must(x.err.code, &x.err);
    assert_int_equal(xd_arena_peak(&a), size);
    assert_int_equal(xd_arena_mark(&a), 0);
    b->dev->mem->put(b->dev, p, size + 1);
}

static xd_tensor image(int64_t T, int64_t H, int64_t W, int64_t C)
{
    xd_tensor t = xd_view(NULL, XD_F32, 4, (int64_t[]){ T, H, W, C });
    t.p = need(calloc((size_t)xd_count(t), sizeof(float)));
    return t;
}

/* A tensor of the golden file as [1,H,W,C]; latents and moments lie there as [C,H,W], images
 * perhaps as bytes. */
static int golden(xd_st *g, const char *tag, const char *name, int channels_first, xd_tensor *out)
{
    char      full[128];
    xd_tensor t;
    xd_err    e = { 0 };
    snprintf(full, sizeof full, "%s%s", tag, name);
    int64_t i = xd_st_find(g, full);
    if (i < 0)
        return 0;
    must(xd_st_get(g, i, &t, &e), &e);
    assert_int_equal(t.nd, 3);
    int64_t H = t.d[channels_first], W = t.d[channels_first + 1];
    int64_t C = t.d[channels_first ? 0 : 2];
    float  *raw = need(malloc((size_t)xd_count(t) * sizeof *raw)), *p;
    assert_true(t.type == XD_F32 || t.type == XD_U8);
    if (t.type == XD_F32)
        memcpy(raw, t.p, xd_bytes(t));
    for (int64_t k = 0; k < xd_count(t) && t.type == XD_U8; k++)
        raw[k] = ((const uint8_t *)t.p)[k] / 127.5f - 1;
    *out = image(1, H, W, C);
    p = out->p;
    for (int64_t k = 0; k < H * W * C; k++)
        p[k] = channels_first ? raw[k % C * H * W + k / C] : raw[k];
    free(raw);
    return 1;
}

static double largest_gap(xd_tensor a, xd_tensor b)
{
    const float *p = a.p, *q = b.p;
    double       gap = 0, most = 0;
    for (int64_t i = 0; i < xd_count(a); i++) {
        double d = fabs((double)p[i] - (double)q[i]);
        gap = d > gap || isnan(d) ? d : gap;
        most = fmax(most, fabs((double)q[i]));
    }
    return gap / most;
}

/* Returns 0 when the file has no such run. */
static int compare(const bench *b, xd_st *g, const char *name, int what, int tiles,
                   double tolerance)
{
    const char *tag = tiles ? "vae.tiled." : "vae.";
    const char *in_name = what == DECODE ? "decode.in" : "encode.in";
    const char *out_name = what == DECODE ? "decode.out" : "encode.out";
    xd_tensor   in, want, got;
    if (!golden(g, tag, out_name, what == ENCODE, &want))
        return 0;
    if (!golden(g, tag, in_name, what == DECODE, &in))
        assert_true(golden(g, "vae.", in_name, what == DECODE, &in));
    got = image(1, want.d[1], want.d[2], want.d[3]);
    run_counted(b, what, tiles, in, got);
    double gap = largest_gap(got, want);
    print_message("# %s %s%s: %.2g of the largest\n", name, tag, out_name, gap);
    if (!(gap <= tolerance))
        fail_msg("%s: %s%s is off by %g of the largest value, %g are allowed", name, tag, out_name,
                 gap, tolerance);
    free(in.p), free(want.p), free(got.p);
    return 1;
}

/* The model that a golden directory is about: its own, or the one its golden.json names. */
static void model_of(const char *name, char *model, size_t size)
{
    char     path[512];
    xd_json *j;
    xd_err   e = { 0 };
    snprintf(model, size, "%s", name);
    snprintf(path, sizeof path, "tests/golden/%s/golden.json", name);
    if (!xd_file_exists(path))
        return;
    must(xd_json_read(&j, path, &e), &e);
    const char *other = need((void *)(uintptr_t)xd_json_text(xd_json_get(j, "model")));
    if (strcmp(other, ".") != 0)
        snprintf(model, size, "%s/%s", name, other);
    xd_json_free(&j);
}

static void all_golden(xd_dtype type, double plain, double tiled)
{
    glob_t found;
    int    seen[2] = { 0, 0 };
    assert_int_equal(glob("tests/golden/*/golden.safetensors", 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char   name[128], model[256];
        bench  b;
        xd_st *g;
        xd_err e = { 0 };
        sscanf(found.gl_pathv[i], "tests/golden/%127[^/]", name);
        must(xd_st_open(&g, found.gl_pathv[i], "golden", &e), &e);
        if (xd_st_find(g, "vae.decode.in") >= 0) {
            model_of(name, model, sizeof model);
            open_golden(&b, model, type);
            for (int run = 0; run < 4; run++)
                seen[run / 2] += compare(&b, g, name, run % 2, run / 2, run / 2 ? tiled : plain);
            close_bench(&b);
        }
        xd_st_close(&g);
    }
    globfree(&found);
    assert_true(seen[0] >= 4 && seen[1] >= 4);
}

static void golden_f32(void **state)
{
    (void)state;
    all_golden(XD_F32, 2e-4, 5e-4);
}

static void golden_bf16(void **state)
{
    bench b;
    (void)state;
    open_device(&b, XD_BF16);
    xd_dtype type = b.act;
    close_bench(&b);
    if (type != XD_BF16) {
        print_message("# skipped: this device computes in %s\n", xd_dtype_name(type));
        return; /* cmocka's skip() is "not ok" in TAP */
    }
    all_golden(XD_BF16, 3e-2, 3e-2);
}

/* ---- what must hold whatever the numbers are ------------------------------------------------- */

static void fill(xd_tensor t, int seed)
{
    float *p = t.p;
    for (int64_t i = 0; i < xd_count(t); i++)
        p[i] = sinf((float)(i * (7 + seed) % 1000));
}

static void frames_are_separate(void **state)
{
    bench     b;
    xd_tensor z = image(2, 3, 4, 4), two = image(2, 12, 16, 3), one = image(1, 12, 16, 3);
    (void)state;
    open_golden(&b, "vae-plain", XD_F32);
    fill(z, 0);
    run_counted(&b, DECODE, 0, z, two);
    for (int t = 0; t < 2; t++) {
        run_counted(&b, DECODE, 0, xd_rows(z, t, 1), one);
        assert_memory_equal(one.p, xd_rows(two, t, 1).p, xd_bytes(one));
    }
    free(z.p), free(two.p), free(one.p);
    close_bench(&b);
}

static void one_tile_is_plain(void **state)
{
    bench       b;
    xd_vae_info v;
    (void)state;
    open_golden(&b, "vae-plain", XD_F32);
    b.vae->info(b.net.cfg, &v);
    assert_int_equal(v.tile[0], 8);
    assert_int_equal(v.cell[1], 4);
    xd_tensor z = image(1, v.tile[0], v.tile[0] - 1, 4), m = image(1, v.tile[0], v.tile[0] - 1, 8);
    xd_tensor p = image(1, 32, 28, 3), q = image(1, 32, 28, 3), m2 = m;
    m2.p = need(malloc(xd_bytes(m)));
    fill(z, 0);
    run_counted(&b, DECODE, 0, z, p);
    run_counted(&b, DECODE, 1, z, q);
    assert_memory_equal(p.p, q.p, xd_bytes(p));
    run_counted(&b, ENCODE, 0, p, m);
    run_counted(&b, ENCODE, 1, p, m2);
    assert_memory_equal(m.p, m2.p, xd_bytes(m));
    free(z.p), free(p.p), free(q.p), free(m.p), free(m2.p);
    close_bench(&b);
}

/* A failed context computes nothing, says why, and leaves the arena as it was. */
static void failures_stick(void **state)
{
    bench        b;
    xd_arena     a;
    xd_exec      x;
    xd_canceller stop = { 0 };
    xd_tensor    z = image(1, 3, 4, 4), p = image(1, 12, 16, 3), bad = image(1, 12, 15, 3);
    char        *mem;
    (void)state;
    open_golden(&b, "vae-plain", XD_F32);
    size_t size = counted(&b, DECODE, 0, z, p);
    mem = need(b.dev->mem->get(b.dev, size));
    xd_arena_init(&a, mem, size);
    xd_exec_init(&x, b.dev, &a, b.act);
    b.vae->decode(&x, &b.net, z, bad);
    assert_int_equal(x.err.code, XD_EINVAL);
    assert_non_null(strstr(x.err.msg, "15 x 12"));
    xd_exec_init(&x, b.dev, &a, b.act);
    xd_cancel_set(&stop, "enough");
    x.cancel = &stop;
    b.vae->decode(&x, &b.net, z, p);
    assert_int_equal(x.err.code, XD_ECANCELLED);
    assert_string_equal(x.err.msg, "enough");
    assert_int_equal(xd_arena_mark(&a), 0);
    xd_arena_init(&a, mem, size / 2); /* too little memory */
    xd_exec_init(&x, b.dev, &a, b.act);
    b.vae->decode(&x, &b.net, z, p);
    assert_int_equal(x.err.code, XD_ENOMEM);
    assert_int_equal(xd_arena_mark(&a), 0);
    b.dev->mem->put(b.dev, mem, size);
    free(z.p), free(p.p), free(bad.p);
    close_bench(&b);
}

/* An autoencoder that only enlarges: tiles of it must add up to the whole, whatever their size. */
typedef struct plain_cfg {
    int64_t tile;
    int     f, covers;
} plain_cfg;
enum { BOTH_SIDES = 9 }; /* tiles of `tile` rows have the rest as columns */

static void plain_info(const void *cfg, xd_vae_info *out)
{
    const plain_cfg *c = cfg;
    *out = (xd_vae_info){ .channels = 2,
                          .cell = { 1, c->f, c->f },
                          .scaling = 1,
                          .tile = { c->tile, BOTH_SIDES - c->tile },
                          .covers = c->covers,
                          .overlap = { 0.25, 0.2 } };
}

static void plain_decode(xd_exec *x, const xd_net *n, xd_tensor lat, xd_tensor rgb)
{
    const plain_cfg *c = n->cfg;
    size_t           mark = xd_arena_mark(x->tmp);
    assert_true(lat.d[1] <= c->tile && lat.d[2] <= BOTH_SIDES - c->tile);
    xd_copy_to(x, rgb, xd_enlarge(x, lat, 1, c->f, c->f));
    xd_arena_rewind(x->tmp, mark);
}

/* The upper left pixel of every cell. */
static void plain_encode(xd_exec *x, const xd_net *n, xd_tensor rgb, xd_tensor moments)
{
    const plain_cfg *c = n->cfg;
    xd_tensor        t = rgb;
    t.d[1] /= c->f, t.s[1] *= c->f;
    t.d[2] /= c->f, t.s[2] *= c->f;
    xd_copy_to(x, moments, t);
}

static void one_tiling(bench *b, const plain_cfg *c, int64_t H, int64_t W)
{
    xd_tensor z = image(2, H, W, 2), y = image(2, H, W, 2), p = image(2, H * c->f, W * c->f, 2);
    fill(z, 3);
    run_counted(b, DECODE, 1, z, p);
    run_counted(b, ENCODE, 1, p, y);
    for (int64_t i = 0; i < xd_count(p); i++) {
        int64_t k = i % 2, u = i / 2 % (W * c->f), t = i / 2 / (W * c->f); /* t: T and H */
        float   want = ((float *)z.p)[(t / c->f * W + u / c->f) * 2 + k], got = ((float *)p.p)[i];
        if (!(fabsf(want - got) < 1e-6f))
            fail_msg("tiles of %lld: pixel %lld of %lld x %lld cells is %g, not %g",
                     (long long)c->tile, (long long)i, (long long)W, (long long)H, (double)got,
                     (double)want);
    }
    assert_true(largest_gap(y, z) < 1e-6);
    free(z.p), free(y.p), free(p.p);
}

static void tiles_add_up(void **state)
{
    static const xd_vae  plain = { .info = plain_info,
                                   .decode = plain_decode,
                                   .encode = plain_encode };
    static const int64_t tiles[] = { 1, 2, 3, 4, 5, 7, 8 };
    bench                b;
    plain_cfg            c;
    (void)state;
    open_device(&b, XD_F32);
    b.vae = &plain;
    b.net.cfg = &c;
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++)
        for (int64_t side = 1; side <= 17; side += 2) {
            c = (plain_cfg){ tiles[i], (int)(i % 3 + 1), side % 4 == 3 };
            one_tiling(&b, &c, side, 9);
            one_tiling(&b, &c, 6, side);
        }
    b.net.cfg = NULL;
    close_bench(&b);
}

/* ---- configs --------------------------------------------------------------------------------- */

#define FOUR_DOWN "\"down_block_types\":[\"DownEncoderBlock2D\",\"DownEncoderBlock2D\"," \
    "\"DownEncoderBlock2D\",\"DownEncoderBlock2D\"]"
#define FOUR_UP "\"up_block_types\":[\"UpDecoderBlock2D\",\"UpDecoderBlock2D\"," \
    "\"UpDecoderBlock2D\",\"UpDecoderBlock2D\"]"

static xd_status open_text(xd_net *n, const char *text, xd_err *e)
{
    xd_json *j;
    must(xd_json_parse(&j, text, strlen(text), "config", e), e);
    xd_status s = xd_net_open(n, &find_vae("AutoencoderKL")->net, j, "config", e);
    xd_json_free(&j);
    return s;
}

#define PUBLISHED "{\"block_out_channels\":[128,256,512,512],\"layers_per_block\":2," \
                  "\"latent_channels\":16," \
    "\"use_quant_conv\":false,\"use_post_quant_conv\":false," FOUR_DOWN "," FOUR_UP "}"

/* A model of random weights; a COUNT visit leaves nothing behind them. */
static void open_random(bench *b, const char *text, xd_dtype want, xd_visit visit)
{
    xd_decl d;
    open_device(b, want);
    must(open_text(&b->net, text, &b->err), &b->err);
    d = (xd_decl){ .visit = visit,
                   .dev = visit == XD_VISIT_COUNT ? b->count : b->dev,
                   .type = b->act,
                   .store = b->store,
                   .tp = 1,
                   .err = &b->err };
    must(xd_net_visit(&b->net, &d), &b->err);
}

/* Two maps are alive where they are largest: to decode, one of pixels with 256 channels and one
 * with 128; to encode, two of 128. What bands of rows take beside them does not grow with the
 * image. */
static void memory_is_two_maps(void **state)
{
    bench b;
    (void)state;
    for (int64_t n = 64; n <= 256; n *= 4) {
        open_random(&b, PUBLISHED, n == 256 ? XD_BF16 : XD_F32, XD_VISIT_COUNT);
        xd_tensor z = xd_view((void *)64, XD_F32, 4, (int64_t[]){ 1, n, n, 16 });
        xd_tensor m = xd_view((void *)64, XD_F32, 4, (int64_t[]){ 1, n, n, 32 });
        xd_tensor p = xd_view((void *)64, XD_F32, 4, (int64_t[]){ 1, 8 * n, 8 * n, 3 });
        double    map = 64.0 * (double)(n * n * 128) * (double)xd_dtype_size(b.act);
        double    dec = (double)counted(&b, DECODE, 0, z, p),
                  enc = (double)counted(&b, ENCODE, 0, p, m);
        print_message("# %lld pixels: decoding takes %.2f maps, encoding %.2f\n",
                      (long long)(8 * n), dec / map, enc / map);
        assert_true(dec < 3 * map + 40e6);
        assert_true(enc < 2 * map + 40e6);
        close_bench(&b);
    }
}

/* Bands of a row and the whole map give the same image and moments, but for the order
 * in which the library adds products, which it chooses by shape: 1e-5 of the largest in f32. */
static void bands_are_the_whole(void **state)
{
    static const char text[] =
        "{\"block_out_channels\":[64,128],\"layers_per_block\":1,"
        "\"down_block_types\":[\"DownEncoderBlock2D\",\"DownEncoderBlock2D\"],"
        "\"up_block_types\":[\"AttnUpDecoderBlock2D\",\"UpDecoderBlock2D\"]}";
    static const size_t band[] = { 1, (size_t)1 << 40 };
    static const double limit[] = { 1e-5, 1e-2 };
    xd_tensor           z = image(1, 21, 18, 4), p[2], q[2];
    (void)state;
    fill(z, 1);
    for (int i = 0; i < 2; i++)
        p[i] = image(1, 42, 36, 3), q[i] = image(1, 21, 18, 8);
    for (int type = 0; type < 2; type++) {
        bench b;
        open_random(&b, text, type ? XD_BF16 : XD_F32, XD_VISIT_RANDOM);
        for (int k = 0; k < 2; k++) {
            b.band = band[k];
            run_counted(&b, DECODE, 0, z, p[k > 0]);
            run_counted(&b, ENCODE, 0, p[0], q[k > 0]);
            double dec = k ? largest_gap(p[1], p[0]) : 0, enc = k ? largest_gap(q[1], q[0]) : 0;
            print_message("# %s, bands of %zu bytes: %.2g, %.2g of the largest\n",
                          xd_dtype_name(b.act), band[k], dec, enc);
            assert_true(dec <= limit[b.act == XD_BF16] && enc <= limit[b.act == XD_BF16]);
        }
        close_bench(&b);
    }
    for (int i = 0; i < 2; i++)
        free(p[i].p), free(q[i].p);
    free(z.p);
}

static void bad_configs_are_refused(void **state)
{
    static const struct {
        const char *text, *word;
    } bad[] = {
        { "{\"act_fn\":\"mish\"}", "act_fn" },
        { "{\"latents_mean\":[0.1,0.2,0.3,0.4]}", "latents_mean" },
        { "{\"latents_std\":1.5}", "latents_std" },
        { "{\"block_out_channels\":[48]}", "norm_num_groups" },
        { "{\"block_out_channels\":[0]}", "block_out_channels" },
        { "{\"block_out_channels\":[64,64]}", "down_block_types" },
        { "{\"block_out_channels\":[1024]}", "1024" },
        { "{\"down_block_types\":[\"DownBlock2D\"]}", "DownBlock2D" },
        { "{\"up_block_types\":[\"DownEncoderBlock2D\"]}", "up_block_types" },
        { "{\"layers_per_block\":0}", "layers_per_block" },
        { "{\"layers_per_block\":1000}", "layers_per_block" },
        { "{\"norm_num_groups\":-4}", "norm_num_groups" },
        { "{\"latent_channels\":0}", "latent_channels" },
        { "{\"sample_size\":0}", "sample_size" },
        { "{\"scaling_factor\":0}", "scaling_factor" },
        { "{\"out_channels\":4}", "out_channels" },
        { "{\"in_channels\":1}", "in_channels is 1" },
        { "{\"block_out_channels\":\"64\"}", "block_out_channels" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        xd_net    n;
        xd_err    e = { 0 };
        xd_status s = open_text(&n, bad[i].text, &e);
        if (s == XD_OK || !strstr(e.msg, bad[i].word))
            fail_msg("%s: %d '%s'", bad[i].text, (int)s, e.msg);
        xd_net_close(&n);
    }
}

static void defaults_are_diffusers(void **state)
{
    xd_net      n;
    xd_err      e = { 0 };
    xd_vae_info v;
    (void)state;
    must(open_text(&n, "{\"shift_factor\":null,\"sample_size\":[32,32],\"latents_mean\":null}", &e),
         &e);
    xd_vaes[0]->info(n.cfg, &v);
    assert_int_equal(v.channels, 4);
    assert_int_equal(v.cell[0] * v.cell[1] * v.cell[2], 1);
    assert_true(v.tile[0] == 32 && v.tile[1] == 32);
    assert_true(v.scaling == 0.18215 && v.shift == 0 && v.overlap[0] == 0.25 &&
                v.overlap[1] == 0.25);
    xd_net_close(&n);
}

/* Pixels become cells, and the encoder's tiles grow with the patches. */
static void sizes_of_tiles(void **state)
{
    const xd_vae_info own = {
        .cell = { 1, 8, 16 }, .tile = { 32, 16 }, .overlap = { 0.25, 0.25 }, .patch = 2
    };
    const struct {
        int64_t     size[2], overlap[2];
        int64_t     tile[2], step[2];
        const char *word; /* of the error; NULL: none */
    } c[] = {
        { { 0, 0 }, { -1, -1 }, { 32, 16 }, { 0, 0 }, NULL },
        { { 64, 0 }, { -1, 0 }, { 8, 16 }, { 0, 16 }, NULL },
        { { 80, 160 }, { 72, 32 }, { 10, 10 }, { 1, 8 }, NULL },
        { { 0, 0 }, { 248, 240 }, { 32, 16 }, { 1, 1 }, NULL },
        { { 0, 24 }, { -1, -1 }, { 0, 0 }, { 0, 0 }, "vae_tile_size_width is 24 .* 16" },
        { { 0, 0 }, { 4, -1 }, { 0, 0 }, { 0, 0 }, "vae_tile_overlap_height is 4 " },
        { { 64, 64 }, { 64, 0 }, { 0, 0 }, { 0, 0 }, "vae_tile_overlap_height is 64 " },
        { { 0, 0 }, { 0, 256 }, { 0, 0 }, { 0, 0 }, "vae_tile_overlap_width is 256 " },
    };
    (void)state;
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        xd_vae_info v = own;
        xd_err      e = { 0 };
        xd_status   s = xd_vae_set_tiles(&v, c[i].size, c[i].overlap, &e);
        if (c[i].word) {
            assert_int_equal(s, XD_EINVAL);
            assert_true(strncmp(e.msg, c[i].word, strcspn(c[i].word, ".")) == 0);
            continue;
        }
        must(s, &e);
        xd_vae_info big = xd_vae_encoding(&v);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(v.tile[k], c[i].tile[k]);
            assert_int_equal(v.step[k], c[i].step[k]);
            assert_true(big.tile[k] == 2 * v.tile[k] && big.step[k] == 2 * v.step[k]);
        }
    }
}

/* ---- the real checkpoints ----------------------------------------------------------------- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The declared tensors, read or not, as the text of tensors.txt. */
static char *declared(const xd_json *config, const char *path)
{
    xd_net      n;
    xd_decl     d;
    xd_err      e = { 0 };
    size_t      at = 0;
    const char *cls = xd_json_text(xd_json_get(config, "_class_name"));
    must(xd_net_open(&n, &find_vae(cls)->net, config, path, &e), &e);
    list_weights(&n, &d, 1, &e);
    char **lines = need(calloc((size_t)d.nlist, sizeof *lines));
    char  *text = need(calloc((size_t)d.nlist + 1, 600));
    for (int i = 0; i < d.nlist; i++) {
        char shape[64];
        lines[i] = need(malloc(600));
        snprintf(lines[i], 600, "%.*s %s\n", (int)strcspn(d.list[i].name, "|"), d.list[i].name,
                 xd_shape_text(d.list[i].nd, d.list[i].d, shape, sizeof shape));
    }
    qsort(lines, (size_t)d.nlist, sizeof *lines, by_text);
    for (int i = 0; i < d.nlist; i++) {
        size_t k = strlen(lines[i]);
        memcpy(text + at, lines[i], k + 1);
        at += k;
        free(lines[i]);
    }
    free(lines);
    xd_decl_free(&d);
    xd_net_close(&n);
    return text;
}

static void names_of_published_models(void **state)
{
    glob_t found;
    int    seen = 0;
    char   every[1024];
    (void)state;
    snprintf(every, sizeof every, "%s/*/*/vae/config.json", published_folder());
    if (glob(every, 0, NULL, &found)) {
        published_absent("the autoencoders");
        return;
    }
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *path = found.gl_pathv[i];
        char        list[512], *want, *got;
        size_t      len;
        xd_json    *j;
        xd_err      e = { 0 };
        must(xd_json_read(&j, path, &e), &e);
        const char *cls = xd_json_text(xd_json_get(j, "_class_name"));
        if (cls && (strcmp(cls, "AutoencoderKL") == 0 || strcmp(cls, "AutoencoderKLFlux2") == 0)) {
            snprintf(list, sizeof list, "%.*s/tensors.txt", (int)(strrchr(path, '/') - path), path);
            must(xd_file_read(list, 1 << 20, &want, &len, &e), &e);
            got = declared(j, path);
            assert_string_equal(got, want);
            free(want), free(got);
            seen++;
        }
        xd_json_free(&j);
    }
    globfree(&found);
    if (!seen)
        published_absent("an autoencoder of images");
    print_message("# %d models\n", seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_configs_are_refused),
        cmocka_unit_test(defaults_are_diffusers),
        cmocka_unit_test(sizes_of_tiles),
        cmocka_unit_test(names_of_published_models),
        cmocka_unit_test(golden_f32),
        cmocka_unit_test(golden_bf16),
        cmocka_unit_test(frames_are_separate),
        cmocka_unit_test(one_tile_is_plain),
        cmocka_unit_test(tiles_add_up),
        cmocka_unit_test(failures_stick),
        cmocka_unit_test(memory_is_two_maps),
        cmocka_unit_test(bands_are_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
