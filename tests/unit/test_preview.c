/* test_preview.c - previews: which steps have one, the colours of latents, known and learned, and
 * those of the demo's model.
 *
 * Tolerances: colours of known factors 1 of 255 against sums by hand; learned ones 2 of 255 where
 * pixels are a linear map of the latents; limits of the demo's previews are in its test. */
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

#include "base/rng.h"
#include "pipeline/preview.h"
#include "published.h"
#include "vae/rgb.h"

/* ---- steps ---------------------------------------------------------------------------------- */

static void steps_of_previews(void **state)
{
    static const struct {
        int         steps, previews, every;
        const char *at;
    } cases[] = {
        { 20, 0, 0, "" },      { 20, 1, 0, "10 " }, { 20, 2, 0, "7 13 " }, { 20, 3, 0, "5 10 15 " },
        { 4, 3, 0, "1 2 3 " }, { 2, 3, 0, "1 " },   { 1, 3, 0, "" },       { 5, 2, 0, "2 3 " },
        { 8, 0, 3, "3 6 " },   { 6, 0, 3, "3 6 " }, { 3, 0, 1, "1 2 3 " }, { 6, 1, 4, "3 4 " },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        xd_request r = { .previews = { cases[i].previews, cases[i].every } };
        xd_job     j = { .r = &r, .samp = { .steps = cases[i].steps } };
        char       at[80] = "";
        for (int step = 0; step < cases[i].steps; step++)
            if (xd_preview_due(&j, step))
                snprintf(at + strlen(at), sizeof at - strlen(at), "%d ", step + 1);
        assert_string_equal(at, cases[i].at);
        assert_int_equal(xd_preview_asked(&j), r.previews.count || r.previews.every);
    }
}

/* ---- colours -------------------------------------------------------------------------------- */

/* A job that has no more than what a preview needs, and what came of it. */
typedef struct rig {
    xd_context       ctx;
    xd_engine_caches caches;
    xd_request       r;
    xd_job           j;
    int64_t          width, height;
    uint8_t         *rgb;
    int              calls, step;
} rig;

static void keep_preview(void *cookie, const xd_image *im, const xd_progress *p)
{
    rig   *r = cookie;
    size_t n = (size_t)(im->width * im->height * 3);
    assert_true(im->frames == 1 && im->channels == 3 && im->stride == im->width * 3);
    free(r->rgb);
    r->rgb = malloc(n);
    assert_non_null(r->rgb);
    memcpy(r->rgb, im->data, n);
    r->width = im->width, r->height = im->height;
    r->step = p->step;
    r->calls++;
}

/* Latents of t x C x h x w with cells of `factor` pixels. */
static rig *open_rig(int64_t t, int64_t C, int64_t h, int64_t w, int64_t factor)
{
    rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->r.callbacks.on_preview = keep_preview;
    r->r.callbacks.cookie = r;
    r->ctx.caches = &r->caches;
    r->ctx.model.vae_info = (xd_vae_info){ .channels = C, .pack = 1 };
    r->j = (xd_job){ .ctx = &r->ctx,
                     .r = &r->r,
                     .lat = { t, C, h, w },
                     .size = { h * factor, w * factor },
                     .channels = 3,
                     .asked = { h * factor, w * factor } };
    return r;
}

static void close_rig(rig *r)
{
    xd_colours_close(&r->caches.colours);
    free(r->rgb);
    free(r);
}

static void report(rig *r, const float *lat)
{
    int before = r->calls;
    xd_preview_report(&r->j, lat, &(xd_progress){ .step = 3, .steps = 9 });
    assert_int_equal(r->calls, before + 1);
    assert_int_equal(r->step, 3);
}

static int level_of(double v)
{
    v = v * 0.5 + 0.5;
    return (int)lrint(255 * (v < 0 ? 0 : v > 1 ? 1 : v));
}

static void pixel_is(const rig *r, int64_t y, int64_t x, const double want[3], int within)
{
    const uint8_t *p = r->rgb + (y * r->width + x) * 3;
    for (int c = 0; c < 3; c++)
        if (abs((int)p[c] - level_of(want[c])) > within)
            fail_msg("pixel %d %d, channel %d: %d, not %d", (int)y, (int)x, c, p[c],
                     level_of(want[c]));
}

/* Cells of the factors that are published, and one that is none of them. */
static void known_colours(void **state)
{
    static const struct {
        int64_t channels, width;
        double  scaling;
        float   first;
    } cases[] = {
        { 4, 128, 0.18215, 0.3512f },     { 4, 128, 0.13025, 0.3651f },
        { 16, 128, 1.5305, -0.0922f },    { 16, 128, 0.3611, -0.0346f },
        { 32, 128, 1, 0.0058f },          { 16, 96, 1, -0.1299f },
        { 48, 160, 1, 0.0119f },          { 16, 128, 0.7, 0.1195f },
        { 16, 128, 1.15258426, 0.1195f }, { 12, 128, 1, -0.0069f },
    };
    static float lat[2 * 4 * 2 * 3];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const float (*rgb)[3] = xd_vae_rgb(cases[i].channels, cases[i].width, cases[i].scaling);
        assert_non_null(rgb);
        assert_true(rgb[0][0] == cases[i].first);
    }
    assert_null(xd_vae_rgb(4, 32, 0.13025));
    assert_null(xd_vae_rgb(4, 128, 0.5));
    rig *r = open_rig(2, 4, 2, 3, 8);
    r->ctx.model.vae_info.rgb = xd_vae_rgb(4, 128, 0.13025);
    r->j.spare = 1; /* the first frame of the video is the second one */
    for (int c = 0; c < 4; c++)
        for (int i = 0; i < 6; i++)
            lat[(4 + c) * 6 + i] = c == 0 ? 0.5f : c == 3 ? -1 : 0;
    report(r, lat);
    assert_true(r->width == 24 && r->height == 16);
    static const double sum[3] = { 0.5 * 0.3651 + 0.3165 + 0.1084, 0.5 * 0.4232 + 0.2492 - 0.0175,
                                   0.5 * 0.4341 + 0.2188 - 0.0011 };
    for (int y = 0; y < 16; y++)
        for (int x = 0; x < 24; x++)
            pixel_is(r, y, x, sum, 1);
    close_rig(r);
}

static const xd_vae *vae_of(const char *cls)
{
    for (int i = 0; cls && xd_vaes[i]; i++)
        for (int k = 0; k < 6 && xd_vaes[i]->net.classes[k]; k++)
            if (strcmp(xd_vaes[i]->net.classes[k], cls) == 0)
                return xd_vaes[i];
    return NULL;
}

/* Every published autoencoder that is built is known by its config, but those whose colours nobody
 * has published, of 32, 64 or 128 channels: previews learn them. */
static void published_autoencoders(void **state)
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
        xd_json    *config;
        xd_net      net;
        xd_vae_info info;
        xd_err      e = { 0 };
        assert_int_equal(xd_json_read(&config, found.gl_pathv[i], &e), XD_OK);
        const xd_vae *v = vae_of(xd_json_text(xd_json_get(config, "_class_name")));
        if (v) {
            assert_int_equal(xd_net_open(&net, &v->net, config, found.gl_pathv[i], &e), XD_OK);
            v->info(net.cfg, &info);
            int learns = strcmp(v->net.classes[0], "AutoencoderDC") == 0 ||
                         strcmp(v->net.classes[0], "AutoencoderKLQwenImage21") == 0 ||
                         strcmp(v->net.classes[0], "AutoencoderKLLTXVideo") == 0 ||
                         strcmp(v->net.classes[0], "AutoencoderKLLTX2Video") == 0 ||
                         strcmp(v->net.classes[0], "AutoencoderKLMiniMaxH3") == 0 ||
                         strcmp(v->net.classes[0], "AutoencoderKLHunyuanVideo15") == 0;
            if ((!info.rgb && !learns) || info.channels % (info.pack * info.pack))
                fail_msg("%s: its colours are not known", found.gl_pathv[i]);
            xd_net_close(&net);
            seen++;
        }
        xd_json_free(&config);
    }
    globfree(&found);
    print_message("# %d autoencoders\n", seen);
    assert_true(seen > 0);
}

/* Channel 4 c + 2 y + x of a cell is channel c of the inner cell in row y and column x. */
static void packed_cells(void **state)
{
    enum { C = 128, H = 2, W = 2 };
    static float lat[C * H * W];
    const float  (*rgb)[3] = xd_vae_rgb(32, 128, 1);
    (void)state;
    rig *r = open_rig(1, C, H, W, 2); /* as many pixels as inner cells */
    r->ctx.model.vae_info.rgb = rgb;
    r->ctx.model.vae_info.pack = 2;
    lat[(4 * 3 + 2 * 1 + 0) * H * W + 0 * W + 1] = 2; /* channel 3, cell (0, 1), below left */
    report(r, lat);
    assert_true(r->width == 4 && r->height == 4);
    for (int y = 0; y < 4; y++)
        for (int x = 0; x < 4; x++) {
            double want[3];
            for (int k = 0; k < 3; k++)
                want[k] = (double)rgb[32][k] + (y == 1 && x == 2 ? 2 * (double)rgb[3][k] : 0);
            pixel_is(r, y, x, want, 1);
        }
    close_rig(r);
}

static void sizes(void **state)
{
    static const struct {
        int64_t asked[2], is[2];
    } cases[] = {
        { { 1024, 768 }, { 512, 384 } }, { { 720, 1280 }, { 288, 512 } },
        { { 512, 512 }, { 512, 512 } },  { { 52, 44 }, { 52, 44 } },
        { { 4096, 4 }, { 512, 1 } },
    };
    static float lat[4 * 8 * 6];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig *r = open_rig(1, 4, 8, 6, 8);
        memcpy(r->j.asked, cases[i].asked, sizeof r->j.asked);
        report(r, lat);
        assert_true(r->height == cases[i].is[0] && r->width == cases[i].is[1]);
        close_rig(r);
    }
}

/* Without known colours a preview is grey, until images were decoded. */
static void learned_colours(void **state)
{
    enum { C = 6, H = 20, W = 24, F = 4 };
    static float        lat[C * H * W], rgb[H * F * W * F * 3];
    static const double to[C + 1][3] = {
        { 0.1, -0.2, 0.05 }, { 0.02, 0.1, 0.1 }, { -0.1, 0.1, 0.2 }, { 0, 0.05, -0.1 },
        { 0.2, 0.1, 0 },     { 0.03, 0, 0.02 },  { 0.1, -0.1, 0.2 },
    };
    (void)state;
    rig *r = open_rig(1, C, H, W, F);
    xd_noise_torch(lat, C * H * W, 3, 0);
    for (int i = 0; i < H * F * W * F; i++)
        for (int k = 0; k < 3; k++) {
            int    cell = i / (W * F) / F * W + i % (W * F) / F;
            double v = to[C][k];
            for (int c = 0; c < C; c++)
                v += (double)lat[c * H * W + cell] * to[c][k];
            rgb[3 * i + k] = (float)v;
        }
    report(r, lat);
    for (int64_t i = 0; i < r->width * r->height; i++)
        assert_true(r->rgb[3 * i] == r->rgb[3 * i + 1] && r->rgb[3 * i] == r->rgb[3 * i + 2]);
    assert_true(r->rgb[0] != r->rgb[3 * 7 * r->width]);
    r->ctx.once = 1; /* an engine of one request learns nothing */
    xd_preview_learn(&r->j, lat, rgb);
    assert_null(r->caches.colours);
    r->ctx.once = 0;
    xd_preview_learn(&r->j, lat, rgb);
    rgb[5] = NAN; /* a cell that went wrong counts for nothing */
    xd_preview_learn(&r->j, lat, rgb);
    r->j.asked[0] = H, r->j.asked[1] = W; /* a pixel a cell */
    report(r, lat);
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++) {
            double want[3];
            for (int k = 0; k < 3; k++)
                want[k] = (double)rgb[((y * F + 1) * W * F + x * F) * 3 + k];
            pixel_is(r, y, x, want, 2);
        }
    close_rig(r);
}

/* ---- the demo ------------------------------------------------------------------------------- */

enum { STEPS = 12, SIDE = 128 };

typedef struct seen { /* previews of a request */
    uint8_t rgb[STEPS][SIDE * SIDE * 3];
    int     step[STEPS], n;
} seen;

static void note_preview(void *cookie, const xd_image *im, const xd_progress *p)
{
    seen *s = cookie;
    assert_true(s->n < STEPS && im->width == SIDE && im->height == SIDE && p->steps == STEPS);
    memcpy(s->rgb[s->n], im->data, sizeof s->rgb[0]);
    s->step[s->n++] = p->step;
}

static double distance(const uint8_t *a, const uint8_t *b)
{
    double sum = 0;
    for (int i = 0; i < SIDE * SIDE * 3; i++)
        sum += abs((int)a[i] - (int)b[i]);
    return sum / (SIDE * SIDE * 3);
}

static xd_result *generate(xd_engine *g, int previews, int every, seen *s)
{
    static const char *const prompt = "a large red circle on a blue background";
    xd_request               r;
    xd_result               *res = NULL;
    xd_err                   e = { 0 };
    xd_request_init(&r);
    r.prompts = &prompt, r.nprompts = 1;
    r.num_inference_steps = STEPS;
    r.previews.count = previews, r.previews.every = every;
    r.callbacks.on_preview = s ? note_preview : NULL;
    r.callbacks.cookie = s;
    if (xd_generate(g, &r, &res, &e) != XD_OK)
        fail_msg("%s", e.msg);
    return res;
}

/* The image is the same with previews. The first ones of this model, whose colours nobody knows,
 * are grey; later ones come nearer with the steps, and the last is the image without details. */
static void previews_of_the_demo(void **state)
{
    static seen  grey, colours;
    xd_open_args a;
    xd_engine   *g = NULL;
    xd_err       e = { 0 };
    (void)state;
    xd_open_args_init(&a);
    a.model = "models/demo-pixart";
    assert_int_equal(xd_open(&g, &a, &e), XD_OK);
    xd_result *plain = generate(g, 0, 0, NULL), *first, *second;
    xd_close(&g);
    assert_int_equal(xd_open(&g, &a, &e), XD_OK);
    first = generate(g, 2, 0, &grey);
    second = generate(g, 0, 1, &colours);
    const uint8_t *image = xd_result_image(plain, 0)->data;
    assert_memory_equal(image, xd_result_image(first, 0)->data, SIDE * SIDE * 3);
    assert_memory_equal(image, xd_result_image(second, 0)->data, SIDE * SIDE * 3);
    assert_true(grey.n == 2 && grey.step[0] == 4 && grey.step[1] == 8);
    for (int i = 0; i < SIDE * SIDE; i++)
        assert_true(grey.rgb[1][3 * i] == grey.rgb[1][3 * i + 1] &&
                    grey.rgb[1][3 * i] == grey.rgb[1][3 * i + 2]);
    assert_true(colours.n == STEPS && colours.step[0] == 1 && colours.step[STEPS - 1] == STEPS);
    double begin = distance(colours.rgb[0], image), middle = distance(colours.rgb[5], image),
           end = distance(colours.rgb[STEPS - 1], image);
    print_message("# mean distance of previews: %.1f, %.1f, %.1f of 255\n", begin, middle, end);
    assert_true(end < 16 && end <= middle && end < 0.75 * begin);
    xd_result_free(&plain);
    xd_result_free(&first);
    xd_result_free(&second);
    xd_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_of_previews),      cmocka_unit_test(known_colours),
        cmocka_unit_test(packed_cells),           cmocka_unit_test(sizes),
        cmocka_unit_test(published_autoencoders), cmocka_unit_test(learned_colours),
        cmocka_unit_test(previews_of_the_demo),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
