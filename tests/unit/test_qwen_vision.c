/* test_qwen_vision.c - the vision towers of Qwen2.5-VL and Qwen3-VL, and language models that read
 * their images.
 *
 * tools/golden/cases/lm.py wrote the model and what transformers makes of two images. */
#include "models.h"
#include "published.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "text/text.h"

static const char       *folder; /* of the model and its golden file */
static const char *const folders[] = { "tests/golden/lm/qwen25vl-images",
                                       "tests/golden/lm/qwen3vl-images" };

/* Opens a text encoder's config with its vision tower. */
static void open_seeing(part *p, const char *dir)
{
    xd_err e = { 0 };
    open_config(p, dir);
    assert_non_null(p->text->with_vision);
    xd_net_close(&p->net);
    p->text = p->text->with_vision;
    ok(xd_net_open(&p->net, &p->text->net, p->config, dir, &e), &e);
}

typedef struct run {
    part          p;
    bench         b;
    xd_st        *g;
    xd_exec       x;
    xd_text_read  r;
    xd_text_image image[2];
} run;

/* Colours of an image, malloc'ed. */
static uint8_t *colours(run *t, int k)
{
    char      name[16];
    xd_tensor shape;
    snprintf(name, sizeof name, "image.%d", k);
    float   *v = reference(t->g, name, &shape);
    uint8_t *rgb = malloc((size_t)xd_count(shape));
    assert_non_null(rgb);
    for (int64_t i = 0; i < xd_count(shape); i++)
        rgb[i] = (uint8_t)v[i];
    free(v);
    t->image[k] = (xd_text_image){ .rgb = rgb,
                                   .height = shape.d[0],
                                   .width = shape.d[1],
                                   .n = shape.d[0] * shape.d[1] / 16,
                                   .mean = { 0.5f, 0.25f, 0.75f },
                                   .std = { 0.25f, 0.5f, 0.4f } };
    return rgb;
}

static void open_run(run *t, xd_dtype want, xd_dtype blocks, int counts)
{
    static const int layers[] = { -4, -3, -2, -1 };
    char             path[128];
    xd_decl          d;
    xd_err           e = { 0 };
    xd_tensor        shape;
    memset(t, 0, sizeof *t);
    open_seeing(&t->p, folder);
    open_files(&t->p, folder);
    t->p.blocks = blocks;
    snprintf(path, sizeof path, "%s/golden.safetensors", folder);
    ok(xd_st_open(&t->g, path, "model", &e), &e);
    open_bench(&t->b, want, counts);
    visit(&t->p, t->b.dev, t->b.type, counts ? XD_VISIT_COUNT : XD_VISIT_LOAD, &d);
    xd_exec_init(&t->x, t->b.dev, &t->b.tmp, t->b.type);
    int32_t *at = (int32_t *)(void *)reference(t->g, "at", NULL);
    void    *ids = reference(t->g, "0.ids", &shape);
    t->r = (xd_text_read){ .ids = ids,
                           .n = shape.d[0],
                           .real = shape.d[0],
                           .nlayers = 4,
                           .layers = layers,
                           .nimages = 2,
                           .images = t->image };
    for (int k = 0; k < 2; k++) {
        colours(t, k);
        t->image[k].at = at[k];
    }
    free(at);
}

static void close_run(run *t)
{
    for (int k = 0; k < 2; k++)
        free((void *)(uintptr_t)t->image[k].rgb);
    free((void *)(uintptr_t)t->r.ids);
    xd_st_close(&t->g);
    close_part(&t->p);
    close_bench(&t->b);
}

static void see_and_read(run *t, xd_cond *c)
{
    t->r.image_rows = xd_text_run_vision(t->p.text, &t->x, &t->p.net, &t->r);
    t->p.text->hidden(&t->x, &t->p.net, &t->r, c);
}

/* State 0 has the tower's rows in the places of the images, the others follow from it. */
static void compare(xd_dtype want, xd_dtype blocks, double tol)
{
    run     t;
    xd_cond c;
    char    name[32];
    open_run(&t, want, blocks, 0);
    see_and_read(&t, &c);
    ok(t.x.err.code, &t.x.err);
    for (int k = 0; k < 4; k++) {
        xd_tensor shape;
        snprintf(name, sizeof name, "0.hidden.%d", k);
        float *ref = reference(t.g, name, &shape), *v = malloc(xd_bytes(shape) * 2);
        assert_non_null(v);
        xd_get(&t.x, v, xd_cols(c.tok, k * shape.d[1], shape.d[1]));
        near(name, v, ref, t.r.n * shape.d[1], tol);
        free(ref), free(v);
    }
    close_run(&t);
}

static void golden_rows(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        folder = folders[i];
        compare(XD_F32, XD_F32, 2e-4);
        compare(XD_BF16, XD_F32, 3e-2);
        compare(XD_BF16, XD_I8, 0.1);
        compare(XD_BF16, XD_F8E4M3, 0.2);
    }
}

/* What Qwen3-VL's tower makes of the images: embeddings, then the features of two blocks. */
static void golden_tower(void **state)
{
    run       t;
    xd_tensor shape;
    (void)state;
    folder = folders[1];
    open_run(&t, XD_F32, XD_F32, 0);
    xd_tensor rows = xd_text_run_vision(t.p.text, &t.x, &t.p.net, &t.r);
    ok(t.x.err.code, &t.x.err);
    float *want = reference(t.g, "rows", &shape), *v = malloc(xd_bytes(shape));
    assert_non_null(v);
    assert_int_equal(rows.d[0], shape.d[0]);
    assert_int_equal(rows.d[1], shape.d[1]);
    assert_int_equal(rows.d[1], 3 * 40);
    xd_get(&t.x, v, rows);
    near("rows", v, want, xd_count(shape), 2e-4);
    free(want), free(v);
    close_run(&t);
}

/* A counting run follows no address and needs exactly the room of a real one. */
static void compare_counts(void)
{
    size_t peak[2];
    for (int counts = 0; counts < 2; counts++) {
        run     t;
        xd_cond c;
        open_run(&t, XD_F32, XD_F32, counts);
        if (counts)
            for (int k = 0; k < 2; k++) {
                free((void *)(uintptr_t)t.image[k].rgb);
                t.image[k].rgb = NULL;
            }
        see_and_read(&t, &c);
        ok(t.x.err.code, &t.x.err);
        peak[counts] = xd_arena_peak(&t.b.tmp);
        close_run(&t);
    }
    assert_int_equal(peak[0], peak[1]);
}

static void counts_as_it_runs(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        folder = folders[i];
        compare_counts();
    }
}

/* Without images it is the language model alone. */
static void compare_alone(void)
{
    run     t;
    xd_cond c[2];
    part    blind;
    xd_decl d;
    float  *v[2];
    open_run(&t, XD_F32, XD_F32, 0);
    open_config(&blind, folder);
    open_files(&blind, folder);
    visit(&blind, t.b.dev, t.b.type, XD_VISIT_LOAD, &d);
    t.r.nimages = 0;
    t.p.text->hidden(&t.x, &t.p.net, &t.r, &c[0]);
    blind.text->hidden(&t.x, &blind.net, &t.r, &c[1]);
    ok(t.x.err.code, &t.x.err);
    for (int i = 0; i < 2; i++) {
        v[i] = malloc(xd_bytes(c[i].tok));
        assert_non_null(v[i]);
        xd_get(&t.x, v[i], c[i].tok);
    }
    assert_memory_equal(v[0], v[1], xd_bytes(c[0].tok));
    free(v[0]), free(v[1]);
    close_part(&blind);
    close_run(&t);
}

static void text_alone(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        folder = folders[i];
        compare_alone();
    }
}

static void wrong_images(void **state)
{
    static const struct {
        int64_t height, at, n;
    } bad[] = { { 14, 2, 15 }, { 12, 2, 14 }, { 12, 99, 15 } };
    (void)state;
    for (size_t i = 0; i < 2 * sizeof bad / sizeof bad[0]; i++) {
        run     t;
        xd_cond c;
        folder = folders[i % 2];
        open_run(&t, XD_F32, XD_F32, 0);
        t.image[0].height = bad[i / 2].height;
        t.image[0].at = bad[i / 2].at, t.image[0].n = bad[i / 2].n;
        see_and_read(&t, &c);
        assert_int_equal(t.x.err.code, XD_EINVAL);
        assert_non_null(strstr(t.x.err.msg, "image 1 of"));
        close_run(&t);
    }
}

static const char *class_name = "Qwen2_5_VLForConditionalGeneration";

static void refuses_tower(const char *vision, xd_status code, const char *word)
{
    static const char whole[] = "{\"hidden_size\":64,\"num_attention_heads\":4,"
                                "\"num_key_value_heads\":4,\"rope_scaling\":{\"mrope_section\":"
                                "[2,3,3]},\"vision_config\":{\"hidden_size\":32,\"num_heads\":2,"
                                "\"out_hidden_size\":64%s%s}%s}";
    part              p;
    char              text[1024];
    xd_json          *j = NULL;
    xd_err            e = { 0 };
    int               out = *vision == '}';
    memset(&p, 0, sizeof p);
    snprintf(text, sizeof text, whole, *vision && !out ? "," : "", out ? "" : vision,
             out ? vision + 1 : "");
    ok(xd_json_parse(&j, text, strlen(text), "test", &e), &e);
    find(&p, class_name);
    xd_status s = xd_net_open(&p.net, &p.text->with_vision->net, j, "test", &e);
    if (s != code || (word && !strstr(e.msg, word)))
        fail_msg("%s: status %d, '%s'", text, (int)s, e.msg);
    xd_net_close(&p.net);
    xd_json_free(&j);
}

static void refusals(void **state)
{
    (void)state;
    refuses_tower("", XD_OK, NULL);
    refuses_tower("\"depth\":0", XD_EFORMAT, "depth 0");
    refuses_tower("\"in_channels\":1", XD_EUNSUPPORTED, "in_channels is 1");
    refuses_tower("\"out_hidden_size\":48", XD_EFORMAT, "out_hidden_size 48");
    refuses_tower("\"num_heads\":3", XD_EFORMAT, "num_attention_heads 3");
    refuses_tower("\"hidden_size\":36", XD_EUNSUPPORTED, "head size 18");
    refuses_tower("\"window_size\":8", XD_EFORMAT, "window_size 8");
    refuses_tower("\"patch_size\":0", XD_EFORMAT, "patch_size 0");
    refuses_tower("\"hidden_act\":\"mish\"", XD_EUNSUPPORTED, "mish");
    refuses_tower("},\"image_token_id\":-1", XD_EFORMAT, "image_token_id -1");
    refuses_tower("},\"rope_parameters\":{\"mrope_section\":[2,2]}", XD_EFORMAT, "mrope_section");
}

static void refusals_3(void **state)
{
    (void)state;
    class_name = "Qwen3VLForConditionalGeneration";
    /* the heads of this class have 128 features by default */
    refuses_tower("},\"head_dim\":16", XD_OK, NULL);
    refuses_tower("\"depth\":0},\"head_dim\":16,\"x\":{", XD_EFORMAT, "depth 0");
    refuses_tower("\"num_position_embeddings\":48},\"head_dim\":16,\"x\":{", XD_EFORMAT,
                  "num_position_embeddings 48");
    refuses_tower("\"deepstack_visual_indexes\":[3,27]},\"head_dim\":16,\"x\":{", XD_EFORMAT, "27");
    refuses_tower("\"deepstack_visual_indexes\":[1,2,3,4,5,6,7,8,9]},\"head_dim\":16,\"x\":{",
                  XD_EUNSUPPORTED, "has 9 blocks");
    refuses_tower("},\"head_dim\":16,\"rope_parameters\":{\"mrope_interleaved\":false}",
                  XD_EUNSUPPORTED, "mrope_interleaved");
    refuses_tower("},\"head_dim\":16,\"rope_parameters\":{\"mrope_section\":[2,2]}", XD_EFORMAT,
                  "mrope_section");
}

/* The tower of the model in `model` has as many tensors, by names that begin with `scope`. */
static void check_tower(const char *model, const char *scope, int tensors)
{
    const char *dir = published_path(model);
    part        p;
    xd_decl     d;
    int         tower = 0;
    if (!dir)
        return; /* cmocka's skip() is "not ok" in TAP */
    open_seeing(&p, dir);
    visit(&p, NULL, XD_F32, XD_VISIT_LIST, &d);
    for (int i = 0; i < d.nlist; i++)
        tower += strncmp(d.list[i].name, scope, strlen(scope)) == 0;
    assert_int_equal(tower, tensors);
    assert_non_null(strstr(d.list[2].name, scope));
    xd_decl_free(&d);
    close_part(&p);
}

static void published_tower(void **state)
{
    (void)state;
    check_tower("Qwen/Qwen-Image/text_encoder", "visual.", 390);
    check_tower("Qwen/Qwen-Image-2.1/text_encoder", "model.visual.", 351);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_rows),       cmocka_unit_test(golden_tower),
        cmocka_unit_test(counts_as_it_runs), cmocka_unit_test(text_alone),
        cmocka_unit_test(wrong_images),      cmocka_unit_test(refusals),
        cmocka_unit_test(refusals_3),        cmocka_unit_test(published_tower),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
