/* test_clip_vision.c - the encoders of images of CLIP and SigLIP: what they declare, refuse and
 * compute, and what their image processors make of an image */
#define _XOPEN_SOURCE 700       /* P_tmpdir */
#include "models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/clip_processor.h"
#include "scratch.h"

static void published_listings(void **state)
{
    static const char *const dirs[] = {
        "Wan-AI/Wan2.1-I2V-14B-480P-Diffusers/image_encoder",
        "hunyuanvideo-community/HunyuanVideo-1.5-Diffusers-480p_i2v/image_encoder",
        "hunyuanvideo-community/HunyuanVideo-1.5-Diffusers-720p_i2v/image_encoder"
    };
    (void)state;
    published(dirs, 3);
}

static void refusals(void **state)
{
    const char *clip = "CLIPVisionModel", *siglip = "SiglipVisionModel";
    (void)state;
    refuses(clip, "{\"model_type\":\"siglip_vision_model\"}", XD_EUNSUPPORTED,
            "model_type 'siglip_vision_model'");
    refuses(clip, "{\"hidden_act\":\"mish\"}", XD_EUNSUPPORTED, "mish");
    refuses(clip, "{\"hidden_size\":0}", XD_EFORMAT, "hidden_size 0");
    refuses(clip, "{\"num_attention_heads\":5}", XD_EFORMAT, "num_attention_heads 5");
    refuses(clip, "{\"num_hidden_layers\":0}", XD_EFORMAT, "num_hidden_layers 0");
    refuses(clip, "{\"num_channels\":4}", XD_EUNSUPPORTED, "num_channels 4");
    refuses(clip, "{\"image_size\":16,\"patch_size\":32}", XD_EFORMAT, "patch_size 32");
    refuses(clip, "{\"patch_size\":0}", XD_EFORMAT, "patch_size 0");
    refuses(clip, "{\"image_size\":100000}", XD_EFORMAT, "image_size 100000");
    refuses(siglip, "{\"model_type\":\"siglip2_vision_model\"}", XD_EUNSUPPORTED,
            "model_type 'siglip2_vision_model'");
    refuses(siglip, "{\"num_attention_heads\":5}", XD_EFORMAT, "SigLIP vision: hidden_size 768");
    refuses(siglip, "{\"patch_size\":0}", XD_EFORMAT, "SigLIP vision: image_size 224");
}

/* ---- golden ------------------------------------------------------------------------------- */

static const char *const forms[] = { "plain", "proj", "siglip" };
enum { FORMS = 3 };

typedef struct tiny {
    part    p;
    bench   b;
    xd_exec x;
    xd_st  *g;
} tiny;

static void open_tiny(tiny *t, const char *name, xd_dtype want, int counts)
{
    char    path[256];
    xd_decl d;
    xd_err  e = { 0 };
    memset(t, 0, sizeof *t);
    snprintf(path, sizeof path, "tests/golden/clip-vision/%s", name);
    open_config(&t->p, path);
    open_files(&t->p, path);
    snprintf(path, sizeof path, "tests/golden/clip-vision/%s/golden.safetensors", name);
    ok(xd_st_open(&t->g, path, "golden", &e), &e);
    open_bench(&t->b, want, counts);
    visit(&t->p, t->b.dev, t->b.type, counts ? XD_VISIT_COUNT : XD_VISIT_LOAD, &d);
    xd_exec_init(&t->x, t->b.dev, &t->b.tmp, t->b.type);
}

static void close_tiny(tiny *t)
{
    xd_st_close(&t->g);
    close_part(&t->p);
    close_bench(&t->b);
}

/* Hidden states of two images; each image sees itself alone. */
static void run_form(const char *name, xd_dtype want, double tol)
{
    static const int layers[] = { 0, -2, -1 };
    tiny             t;
    xd_tensor        shape;
    xd_cond          c;
    xd_text_vision   v;
    open_tiny(&t, name, want, 0);
    t.p.text->vision(t.p.net.cfg, &v);
    float *pixels = reference(t.g, "pixels", &shape), *states;
    assert_int_equal(shape.d[0], 2);
    assert_int_equal(shape.d[2], v.side);
    xd_text_read r = {
        .pixels = pixels, .n = 2 * v.rows, .real = 2 * v.rows, .nlayers = 3, .layers = layers
    };
    xd_text_encode(t.p.text, &t.x, &t.p.net, &r, &c);
    ok(t.x.err.code, &t.x.err);
    states = reference(t.g, "states", &shape);
    assert_int_equal(c.tok.d[0], shape.d[0]);
    assert_int_equal(c.tok.d[1], shape.d[1]);
    float *got = malloc(xd_bytes(c.tok));
    xd_get(&t.x, got, c.tok);
    near(name, got, states, xd_count(c.tok), tol);
    r.n = v.rows;
    r.nlayers = 1, r.layers = &layers[2];
    xd_text_encode(t.p.text, &t.x, &t.p.net, &r, &c);
    xd_get(&t.x, got, c.tok);
    int64_t E = c.tok.d[1];
    for (int64_t i = 0; i < v.rows && want == XD_F32; i++)
        near("one of two", got + i * E, states + i * 3 * E + 2 * E, E, 10 * tol);
    free(got);
    free(states);
    free(pixels);
    close_tiny(&t);
}

static void golden_f32(void **state)
{
    (void)state;
    for (int i = 0; i < FORMS; i++)
        run_form(forms[i], XD_F32, 1e-5);
}

static void golden_bf16(void **state)
{
    (void)state;
    for (int i = 0; i < FORMS; i++)
        run_form(forms[i], XD_BF16, 3e-2);
}

/* All that is declared is in the files under one of its names. */
static void names(void **state)
{
    static const char *const with[] = { "class_embedding", "class_embedding", "patch_embedding" };
    static const int         unread[] = { 2, 3, 11 }; /* norm; projection; head */
    (void)state;
    for (int i = 0; i < FORMS; i++) {
        tiny    t;
        xd_decl d;
        xd_err  e = { 0 };
        open_tiny(&t, forms[i], XD_F32, 0);
        visit(&t.p, NULL, XD_F32, XD_VISIT_LIST, &d);
        ok(xd_declared_check(d.list, d.nlist, &t.p.src, forms[i], &e), &e);
        assert_non_null(strstr(d.list[0].name, with[i]));
        assert_int_equal(d.nlist + unread[i], xd_st_count(t.p.st));
        xd_decl_free(&d);
        close_tiny(&t);
    }
}

/* A counting run needs exactly the room of a real one; rows of a part of an image are refused. */
static void counts_as_it_runs(void **state)
{
    static const int last = -1;
    (void)state;
    for (int i = 0; i < FORMS; i++) {
        size_t peak[2];
        for (int counts = 0; counts < 2; counts++) {
            tiny           t;
            xd_cond        c;
            xd_text_vision v;
            open_tiny(&t, forms[i], XD_F32, counts);
            t.p.text->vision(t.p.net.cfg, &v);
            float       *pixels = calloc((size_t)(3 * v.side * v.side), 3 * sizeof *pixels);
            xd_text_read r = {
                .pixels = counts ? NULL : pixels, .n = 3 * v.rows, .nlayers = 1, .layers = &last
            };
            xd_text_encode(t.p.text, &t.x, &t.p.net, &r, &c);
            ok(t.x.err.code, &t.x.err);
            peak[counts] = xd_arena_peak(&t.b.tmp);
            r.n++;
            xd_text_encode(t.p.text, &t.x, &t.p.net, &r, &c);
            assert_int_equal(t.x.err.code, XD_EINVAL);
            assert_non_null(strstr(t.x.err.msg, "rows of images"));
            free(pixels);
            close_tiny(&t);
        }
        assert_int_equal(peak[0], peak[1]);
    }
}

/* ---- the image processor ------------------------------------------------------------------ */

/* Images of several sizes, to the bit but for the last division. */
static void processed_images(void **state)
{
    (void)state;
    for (int i = 0; i < FORMS; i++) {
        tiny              t;
        xd_text_vision    v;
        xd_clip_processor p;
        xd_err            e = { 0 };
        char              name[256];
        open_tiny(&t, forms[i], XD_F32, 0);
        t.p.text->vision(t.p.net.cfg, &v);
        snprintf(name, sizeof name, "tests/golden/clip-vision/%s", forms[i]);
        ok(xd_clip_processor_read(&p, name, v.side, &e), &e);
        for (int k = 0; k < 4; k++) {
            xd_tensor shape;
            snprintf(name, sizeof name, "%d.rgb", k);
            float   *as_float = reference(t.g, name, &shape);
            uint8_t *rgb = malloc((size_t)xd_count(shape));
            for (int64_t n = 0; n < xd_count(shape); n++)
                rgb[n] = (uint8_t)as_float[n];
            float *out = malloc((size_t)(3 * v.side * v.side) * sizeof *out);
            ok(xd_clip_processor_run(&p, rgb, shape.d[1], shape.d[0], out, &e), &e);
            snprintf(name, sizeof name, "%d.values", k);
            float *want = reference(t.g, name, &shape);
            assert_int_equal(xd_count(shape), 3 * v.side * v.side);
            near(name, out, want, xd_count(shape), 1e-6);
            free(want), free(out), free(rgb), free(as_float);
        }
        close_tiny(&t);
    }
}

static void refuse_processor(const char *text, xd_status code, const char *word)
{
    xd_clip_processor p;
    xd_err            e = { 0 };
    scratch_put("preprocessor_config.json", text, strlen(text));
    if (xd_clip_processor_read(&p, scratch, 224, &e) != code || !strstr(e.msg, word) ||
        !strstr(e.msg, "preprocessor_config.json"))
        fail_msg("%s: %d, %s", text, e.code, e.msg);
}

static void refused_processors(void **state)
{
    xd_clip_processor p;
    xd_err            e = { 0 };
    (void)state;
    assert_int_equal(xd_clip_processor_read(&p, scratch, 224, &e), XD_EIO);
    assert_non_null(strstr(e.msg, "preprocessor_config.json"));
    refuse_processor("{", XD_EFORMAT, "");
    refuse_processor("{\"image_processor_type\":\"ViTImageProcessor\"}", XD_EUNSUPPORTED,
                     "ViTImageProcessor");
    refuse_processor("{\"image_processor_type\":\"SiglipImageProcessor\",\"size\":256}", XD_EFORMAT,
                     "256 x 256");
    refuse_processor("{\"image_processor_type\":\"SiglipImageProcessor\","
                     "\"size\":{\"shortest_edge\":224}}",
                     XD_EFORMAT, "height and width");
    refuse_processor("{\"resample\":0}", XD_EUNSUPPORTED, "resample 0");
    refuse_processor("{\"size\":\"big\"}", XD_EFORMAT, "size must be");
    refuse_processor("{\"size\":{\"shortest_edge\":-3}}", XD_EFORMAT, "size must be");
    refuse_processor("{\"crop_size\":{\"height\":224}}", XD_EFORMAT, "crop_size must be");
    refuse_processor("{\"crop_size\":{\"height\":224,\"width\":220}}", XD_EFORMAT, "220 x 224");
    refuse_processor("{\"crop_size\":336}", XD_EFORMAT, "336 x 336");
    refuse_processor("{\"do_center_crop\":false}", XD_EUNSUPPORTED, "do_center_crop");
    refuse_processor("{\"image_mean\":[0.5]}", XD_EFORMAT, "image_mean has 1 numbers");
    refuse_processor("{\"image_std\":[0.5,0,0.5]}", XD_EFORMAT, "image_std holds 0");
    refuse_processor("{\"rescale_factor\":0}", XD_EFORMAT, "rescale_factor");
    const char *old = "{\"size\":224,\"crop_size\":224,\"feature_extractor_type\":"
                      "\"CLIPFeatureExtractor\"}";
    scratch_put("preprocessor_config.json", old, strlen(old));
    e = (xd_err){ 0 };
    ok(xd_clip_processor_read(&p, scratch, 224, &e), &e);
    uint8_t *line = calloc(4000, 3); /* 224 x 896000 pixels, of which the middle is read */
    assert_int_equal(xd_clip_processor_run(&p, line, 4000, 1, NULL, &e), XD_EINVAL);
    assert_non_null(strstr(e.msg, "4000 x 1 pixels is too extreme"));
    free(line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_listings),
        cmocka_unit_test(refusals),
        cmocka_unit_test(golden_f32),
        cmocka_unit_test(golden_bf16),
        cmocka_unit_test(names),
        cmocka_unit_test(counts_as_it_runs),
        cmocka_unit_test(processed_images),
        cmocka_unit_test(refused_processors),
    };
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
