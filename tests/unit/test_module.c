/* test_module.c - transformers and autoencoders with weights from the program's memory, against
 * the passes that tools/golden computed with diffusers.
 *
 * Weights and inputs come from tests/golden; the tolerance is 2e-4 of the largest value in f32. */
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
#include "models.h"
#include "xdit/module.h"

static const double tolerance = 2e-4;
enum { PASSES = 20 };

typedef struct model { /* a component of a golden model, in memory */
    xd_st         *files, *golden;
    char          *config;
    xd_array      *v;
    int64_t        n;
    xd_module_args a;
} model;

static xd_array array_of(const char *name, xd_tensor t)
{
    xd_array a = { .name = name, .dtype = xd_dtype_name(t.type), .data = t.p, .nd = t.nd };
    memcpy(a.d, t.d, (size_t)t.nd * sizeof *a.d);
    return a;
}

static model open_model(const char *folder, const char *name, const char *golden_name)
{
    char   path[512];
    size_t len;
    xd_err e = { 0 };
    model  m = { 0 };
    snprintf(path, sizeof path, "%s/%s/config.json", folder, name);
    ok(xd_file_read(path, 1 << 20, &m.config, &len, &e), &e);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    ok(xd_st_open(&m.files, path, "diffusion_pytorch_model", &e), &e);
    snprintf(path, sizeof path, "tests/golden/%s/golden.safetensors", golden_name);
    ok(xd_st_open(&m.golden, path, "model", &e), &e);
    m.n = xd_st_count(m.files);
    m.v = calloc((size_t)m.n, sizeof *m.v);
    for (int64_t i = 0; i < m.n; i++) {
        xd_tensor t;
        ok(xd_st_get(m.files, i, &t, &e), &e);
        m.v[m.n - 1 - i] = array_of(xd_st_name(m.files, i), t); /* in any order */
    }
    xd_module_args_init(&m.a);
    m.a.config = m.config;
    m.a.weights = m.v;
    m.a.nweights = m.n;
    m.a.dtype = "f32";
    return m;
}

static void close_model(model *m)
{
    free(m->v);
    free(m->config);
    xd_st_close(&m->files);
    xd_st_close(&m->golden);
}

static xd_module *open_module(const model *m)
{
    xd_err     e = { 0 };
    xd_module *out = NULL;
    ok(xd_module_open(&out, &m->a, &e), &e);
    return out;
}

/* ---- a transformer ------------------------------------------------------------------------- */

typedef struct inputs {
    xd_pass   p;
    float    *latents, *text, *t, *size;
    xd_tensor shape;
} inputs;

static inputs read_inputs(const model *m, const char *text)
{
    inputs    in = { 0 };
    xd_tensor shape;
    in.latents = reference(m->golden, "dit.in", &in.shape);
    in.text = reference(m->golden, text, &shape);
    in.t = reference(m->golden, "timesteps", NULL);
    in.size = reference(m->golden, "dit.size", NULL);
    xd_pass_init(&in.p);
    in.p.latents = array_of(NULL, xd_view(in.latents, XD_F32, in.shape.nd, in.shape.d));
    in.p.text = array_of(NULL, xd_view(in.text, XD_F32, shape.nd, shape.d));
    in.p.timestep = (double)in.t[0];
    in.p.height = (double)in.size[0], in.p.width = (double)in.size[1];
    return in;
}

static void free_inputs(inputs *in)
{
    free(in->latents), free(in->text), free(in->t), free(in->size);
}

static float *predict(xd_module *m, const inputs *in)
{
    xd_err  e = { 0 };
    int64_t d[XD_ARRAY_DIMS];
    float  *out = malloc((size_t)xd_count(in->shape) * sizeof *out);
    ok(xd_module_predicted(m, (int)in->p.latents.nd, in->p.latents.d, d, &e), &e);
    assert_memory_equal(d, in->shape.d, (size_t)in->shape.nd * sizeof *d);
    ok(xd_module_pass(m, &in->p, out, &e), &e);
    return out;
}

/* Texts in turn, so that what is kept of one is not used for the other; more passes than a count
 * device has addresses for arenas. */
static void golden_passes(void **state)
{
    static const char *const text[] = { "prompt_embeds", "negative_prompt_embeds" },
                             *const want[] = { "dit.cond", "dit.uncond" };
    (void)state;
    for (int i = 0; i < NGOLDEN; i++) {
        model      m = open_model(golden[i].model, "transformer", golden[i].name);
        xd_module *mod = open_module(&m);
        float     *first[2] = { 0 };
        for (int k = 0; k < PASSES; k++) {
            inputs in = read_inputs(&m, text[k % 2]);
            float *ref = reference(m.golden, want[k % 2], NULL), *got = predict(mod, &in);
            near(want[k % 2], got, ref, xd_count(in.shape), tolerance);
            if (k < 2) {
                first[k] = got;
            } else {
                assert_memory_equal(got, first[k % 2], (size_t)xd_count(in.shape) * sizeof *got);
                free(got);
            }
            free(ref);
            free_inputs(&in);
        }
        free(first[0]), free(first[1]);
        xd_module_close(&mod);
        assert_null(mod);
        close_model(&m);
    }
}

/* Matrices in the program's memory and copies of them give the same bits; of the copies the
 * program's memory is not read again. Tokens are the cells of a patch. */
static void places_of_weights(void **state)
{
    (void)state;
    model   m = open_model(golden[ALPHA].model, "transformer", "alpha");
    inputs  in = read_inputs(&m, "prompt_embeds");
    float  *out[2];
    int64_t bytes[2];
    for (int i = 0; i < 2; i++) {
        m.a.in_place = !i;
        xd_module *mod = open_module(&m);
        bytes[i] = xd_module_bytes(mod);
        for (int64_t k = 0; k < m.n && i; k++)
            xd_st_done(m.files, k);
        out[i] = predict(mod, &in);
        xd_module_close(&mod);
    }
    assert_memory_equal(out[0], out[1], (size_t)xd_count(in.shape) * sizeof *out[0]);
    assert_true(bytes[1] > 3 * bytes[0]);
    free(out[0]), free(out[1]);
    free_inputs(&in);
    close_model(&m);
}

static void tokens_are_cells(void **state)
{
    (void)state;
    model      m = open_model(golden[ALPHA].model, "transformer", "alpha");
    inputs     in = read_inputs(&m, "prompt_embeds"), same = read_inputs(&m, "prompt_embeds");
    xd_module *mod = open_module(&m);
    int64_t    C = in.shape.d[0], H = in.shape.d[1] / 2, W = in.shape.d[2] / 2;
    float     *cells = predict(mod, &in);
    for (int64_t n = 0; n < H * W; n++)
        for (int64_t f = 0; f < 4 * C; f++)
            same.latents[n * 4 * C + f] =
                in.latents[(f / 4 * 2 * H + n / W * 2 + f / 2 % 2) * 2 * W + n % W * 2 + f % 2];
    same.shape = xd_view(same.latents, XD_F32, 2, (int64_t[]){ H * W, 4 * C });
    same.p.latents = array_of(NULL, same.shape);
    same.p.grid[0] = 1, same.p.grid[1] = H, same.p.grid[2] = W;
    float *tokens = predict(mod, &same);
    for (int64_t n = 0; n < H * W; n++)
        for (int64_t f = 0; f < 4 * C; f++)
            assert_true(tokens[n * 4 * C + f] ==
                        cells[(f / 4 * 2 * H + n / W * 2 + f / 2 % 2) * 2 * W + n % W * 2 + f % 2]);
    free(cells), free(tokens);
    free_inputs(&in), free_inputs(&same);
    xd_module_close(&mod);
    close_model(&m);
}

/* ---- an autoencoder ------------------------------------------------------------------------ */

static float *pixels_of(const model *m, xd_tensor *t)
{
    int64_t i = xd_st_find(m->golden, "vae.encode.in");
    xd_err  e = { 0 };
    ok(xd_st_get(m->golden, i, t, &e), &e);
    float         *v = malloc((size_t)xd_count(*t) * sizeof *v);
    const uint8_t *u = t->p;
    for (int64_t k = 0; k < xd_count(*t); k++)
        v[k] = (float)u[k] / 127.5f - 1;
    return v;
}

static void autoencoder(void **state)
{
    (void)state;
    model      m = open_model(golden[ALPHA].model, "vae", "alpha");
    xd_module *mod = open_module(&m);
    xd_err     e = { 0 };
    xd_tensor  lat, rgb, mom;
    float     *in = reference(m.golden, "vae.decode.in", &lat),
          *want = reference(m.golden, "vae.decode.out", &rgb);
    int64_t d[4] = { 1, lat.d[0], lat.d[1], lat.d[2] }, out[4];
    ok(xd_module_decoded(mod, d, out, &e), &e);
    assert_int_equal(out[0] * out[1] * out[2] * out[3], xd_count(rgb));
    float   *got = malloc((size_t)xd_count(rgb) * sizeof *got);
    xd_array a = array_of(NULL, xd_view(in, XD_F32, 3, lat.d));
    ok(xd_module_decode(mod, &a, 0, got, &e), &e);
    near("vae.decode.out", got, want, xd_count(rgb), tolerance);
    free(in), free(got), free(want);

    in = pixels_of(&m, &rgb);
    want = reference(m.golden, "vae.encode.out", &mom); /* [2C,h,w] */
    a = array_of(NULL, xd_view(in, XD_F32, 3, rgb.d));
    got = malloc((size_t)xd_count(mom) * sizeof *got);
    float *turned = malloc((size_t)xd_count(mom) * sizeof *got);
    ok(xd_module_encode(mod, &a, 0, got, &e), &e);
    for (int64_t c = 0, n = mom.d[1] * mom.d[2]; c < mom.d[0]; c++)
        for (int64_t i = 0; i < n; i++)
            turned[c * n + i] = got[i * mom.d[0] + c];
    near("vae.encode.out", turned, want, xd_count(mom), tolerance);
    free(in), free(got), free(want), free(turned);
    xd_module_close(&mod);
    close_model(&m);
}

/* ---- what is refused ----------------------------------------------------------------------- */

static void opens_not(const model *m, xd_status code, const char *words)
{
    xd_err     e = { 0 };
    xd_module *out = NULL;
    xd_status  s = xd_module_open(&out, &m->a, &e);
    if (s != code || !strstr(e.msg, words))
        fail_msg("expected '%s', got %d: %s", words, (int)s, e.msg);
    assert_null(out);
}

static void broken_weights(void **state)
{
    (void)state;
    model    m = open_model(golden[ALPHA].model, "transformer", "alpha");
    xd_array was = m.v[3];
    m.a.nweights--;
    opens_not(&m, XD_EFORMAT, "is missing");
    m.a.nweights++;
    m.v[3].d[0]++;
    opens_not(&m, XD_EFORMAT, "expected");
    m.v[3] = was;
    m.v[3].dtype = "i64";
    opens_not(&m, XD_EINVAL, "i64");
    m.v[3] = was;
    m.v[3].name = m.v[4].name;
    opens_not(&m, XD_EINVAL, "two weights");
    m.v[3].name = NULL;
    opens_not(&m, XD_EINVAL, "no name");
    m.v[3] = was;
    m.v[3].data = NULL;
    opens_not(&m, XD_EINVAL, "no data");
    m.v[3] = was;
    m.v[3].nd = 9;
    opens_not(&m, XD_EINVAL, "9 dimensions");
    m.v[3] = was;
    close_model(&m);
}

static void broken_arguments(void **state)
{
    (void)state;
    model m = open_model(golden[ALPHA].model, "transformer", "alpha");
    m.a.config = "{\"_class_name\":\"UNetMotionModel\"}";
    opens_not(&m, XD_EUNSUPPORTED, "UNetMotionModel");
    m.a.config = "{";
    opens_not(&m, XD_EFORMAT, "transformer");
    m.a.config = "[1]";
    opens_not(&m, XD_EUNSUPPORTED, "(none)");
    m.a.config = NULL;
    opens_not(&m, XD_EINVAL, "config");
    m.a.config = m.config;
    m.a.dtype = "f64";
    opens_not(&m, XD_EINVAL, "f64");
    m.a.dtype = "f32";
    m.a.weights_dtype = "int7";
    opens_not(&m, XD_EINVAL, "int7");
    m.a.weights_dtype = NULL;
    m.a.threads = -2;
    opens_not(&m, XD_EINVAL, "threads is -2");
    m.a.size = 0;
    opens_not(&m, XD_EINVAL, "xd_module_args");
    close_model(&m);
}

static void fails(xd_module *m, const xd_pass *p, const char *words)
{
    float     out[1];
    xd_err    e = { 0 };
    xd_status s = xd_module_pass(m, p, out, &e);
    if (s != XD_EINVAL || !strstr(e.msg, words))
        fail_msg("expected '%s', got %d: %s", words, (int)s, e.msg);
}

#define BAD(words, change) \
    do { xd_pass q = in.p; q.change; fails(mod, &q, words); } while (0)

static void broken_inputs(void **state)
{
    (void)state;
    model      m = open_model(golden[ALPHA].model, "transformer", "alpha");
    xd_module *mod = open_module(&m);
    inputs     in = read_inputs(&m, "prompt_embeds");
    BAD("shape 3x6x10", latents.d[0] = 3);
    BAD("multiples of 1, 2 and 2", latents.d[1] = 5);
    BAD("latents have", latents.nd = 1);
    BAD("no data", latents.data = NULL);
    BAD("f64", latents.dtype = "f64");
    BAD("text is missing", text = (xd_array){ 0 });
    BAD("shape 22x23", text.d[1] = 23);
    BAD("text_real is 23", text_real[0] = 23);
    BAD("pooled is given", pooled = in.p.text);
    BAD("image is given", image = in.p.text);
    BAD("reference is given", reference = in.p.text);
    BAD("1 reference images", nreferences = 1);
    BAD("residuals are given", nresiduals = 1);
    BAD("timestep is nan", timestep = (double)NAN);
    BAD("guidance is 3", guidance = 3);
    BAD("height and width are -1", height = -1);
    BAD("original", original[0] = -1);
    BAD("original", crop[1] = (double)NAN);
    BAD("tokens have the timestep 0", held = 2);
    BAD("xd_pass", size = 3);
    xd_pass q = in.p;
    q.latents.nd = 2;
    fails(mod, &q, "grid of tokens is 0 x 0 x 0");
    q.grid[0] = 1, q.grid[1] = 3, q.grid[2] = 5;
    fails(mod, &q, "grid of 1 x 3 x 5");

    xd_err  e = { 0 };
    int64_t d[4] = { 1, 4, 6, 10 }, out[4];
    assert_int_equal(xd_module_decoded(mod, d, out, &e), XD_EINVAL);
    assert_non_null(strstr(e.msg, "no autoencoder"));
    free_inputs(&in);
    xd_module_close(&mod);
    close_model(&m);
}

static void broken_images(void **state)
{
    (void)state;
    model      m = open_model(golden[ALPHA].model, "vae", "alpha");
    xd_module *mod = open_module(&m);
    xd_err     e[3] = { { 0 } };
    xd_pass    p;
    int64_t    lat[4] = { 1, 5, 6, 10 }, rgb[4] = { 1, 31, 32, 3 }, out[4];
    xd_pass_init(&p);
    assert_int_equal(xd_module_decoded(mod, lat, out, &e[0]), XD_EINVAL);
    assert_non_null(strstr(e[0].msg, "frames of 4 channels"));
    assert_int_equal(xd_module_encoded(mod, rgb, out, &e[1]), XD_EINVAL);
    assert_non_null(strstr(e[1].msg, "multiples of 8"));
    assert_int_equal(xd_module_pass(mod, &p, NULL, &e[2]), XD_EINVAL);
    assert_non_null(strstr(e[2].msg, "not a transformer"));
    xd_module_close(&mod);
    close_model(&m);
}

static void classes(void **state)
{
    int found = 0;
    (void)state;
    for (int i = 0; xd_module_class("transformer", i); i++)
        found += strcmp(xd_module_class("transformer", i), "FluxTransformer2DModel") == 0;
    for (int i = 0; xd_module_class("vae", i); i++)
        found += strcmp(xd_module_class("vae", i), "AutoencoderKL") == 0;
    assert_int_equal(found, 2);
    assert_null(xd_module_class("unet", 0));
    assert_null(xd_module_class(NULL, 0));
    xd_module_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_passes),    cmocka_unit_test(places_of_weights),
        cmocka_unit_test(tokens_are_cells), cmocka_unit_test(autoencoder),
        cmocka_unit_test(broken_weights),   cmocka_unit_test(broken_arguments),
        cmocka_unit_test(broken_inputs),    cmocka_unit_test(broken_images),
        cmocka_unit_test(classes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
