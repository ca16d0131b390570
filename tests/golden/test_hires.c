/* test_hires.c - the second pass of hires_scale.
 *
 *     test_hires DIR
 *
 * DIR is tests/golden with the models flux (flow) and alpha (diffusion). The enlarged latents are
 * those of a request of the first pass alone, interpolated, within 1e-6 of the largest value. The
 * image is that of a request of the larger size whose latents are replaced, before the first step
 * of the second pass, by the enlarged latents with noise, within 1e-5. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xdit/tools.h"

enum { STEPS = 6, FIRST = 3, SEED = 5 };

typedef struct kept { /* what a request has computed */
    float  *upsampled, *noise, *image, *start, *last;
    int64_t nup, nimage, d[3]; /* d: channels, rows and columns of the latents */
    int     steps, replace;    /* replace: latents are replaced after step FIRST - 1 */
    double  level;             /* of the first step of the second pass */
} kept;

static int failures;

static void check(int good, const char *model, const char *what, double value)
{
    failures += !good;
    printf("%s: %s: %s (%g)\n", good ? "ok" : "not ok", model, what, value);
}

static float *copy_of(const float *v, int64_t n)
{
    float *to = malloc((size_t)n * sizeof *to);
    memcpy(to, v, (size_t)n * sizeof *to);
    return to;
}

static void on_tensor(void *cookie, const char *name, int step, int nd, const int64_t *d,
                      const float *data)
{
    kept   *k = cookie;
    int64_t n = 1;
    (void)step;
    for (int i = 0; i < nd; i++)
        n *= d[i];
    if (strcmp(name, "upsampled") == 0) {
        k->upsampled = copy_of(data, n), k->nup = n;
        memcpy(k->d, d + (nd > 3), 3 * sizeof *d);
    } else if (strcmp(name, "upsampled_noise") == 0) {
        k->noise = copy_of(data, n);
    } else if (strcmp(name, "latents") == 0) {
        free(k->last);
        k->last = copy_of(data, n);
        memcpy(k->d, d + (nd > 3), 3 * sizeof *d);
    } else if (strcmp(name, "image") == 0) {
        k->image = copy_of(data, n), k->nimage = n;
    }
}

static void on_step(void *cookie, const xd_progress *p)
{
    kept *k = cookie;
    if (p->step == STEPS + 1)
        k->level = p->timestep;
    k->steps = p->step;
}

/* Replaces the latents before step FIRST. */
static int on_latents(void *cookie, const xd_progress *p, int nd, const int64_t *d, float *data)
{
    kept *k = cookie;
    (void)nd, (void)d;
    if (!k->replace || p->step != FIRST)
        return 0;
    memcpy(data, k->start, (size_t)k->nup * sizeof *data);
    return 1;
}

static int generate(const char *model, xd_request *r, kept *k)
{
    const char  *prompt = "a red ring";
    xd_open_args a;
    xd_engine   *g = NULL;
    xd_result   *res = NULL;
    xd_err       e = { 0 };
    xd_open_args_init(&a);
    a.model = model, a.dtype = "f32", a.threads = 1;
    r->prompts = &prompt, r->nprompts = 1;
    r->num_inference_steps = STEPS;
    r->guidance_scale = 1;
    r->seed = SEED;
    r->output.no_resolution_binning = 1;
    r->callbacks = (xd_request_callbacks){
        .cookie = k, .on_tensor = on_tensor, .on_step = on_step, .on_latents = on_latents
    };
    xd_status s = xd_open(&g, &a, &e);
    if (s == XD_OK)
        s = xd_generate(g, r, &res, &e);
    check(s == XD_OK, model, s == XD_OK ? "generates" : e.msg, 0);
    xd_result_free(&res);
    xd_close(&g);
    return s == XD_OK;
}

/* Returns the share of the element after *low at position i of an interpolated axis. */
static double between(int64_t i, int64_t to, int64_t from, int nearest, int64_t *low)
{
    double at = ((double)i + 0.5) * (double)from / (double)to - 0.5;
    at = nearest ? floor((double)i * (double)from / (double)to) : at < 0 ? 0 : at;
    *low = (int64_t)at;
    return at - (double)*low;
}

/* Compares the enlarged latents with those of the first pass. */
static double apart(const kept *small, const kept *large, int nearest)
{
    int64_t h = small->d[1], w = small->d[2], H = large->d[1], W = large->d[2];
    double  most = 0, worst = 0;
    for (int64_t i = 0; i < large->nup; i++) {
        int64_t      y, x, c = i / (H * W);
        double       fy = between(i / W % H, H, h, nearest, &y);
        double       fx = between(i % W, W, w, nearest, &x);
        const float *p = small->last + c * h * w;
        int64_t      y1 = y + 1 < h ? y + 1 : y, x1 = x + 1 < w ? x + 1 : x;
        double       v = (1 - fy) * ((1 - fx) * p[y * w + x] + fx * p[y * w + x1]) +
                         fy * ((1 - fx) * p[y1 * w + x] + fx * p[y1 * w + x1]);
        most = fmax(most, fabs(v));
        worst = fmax(worst, fabs(v - large->upsampled[i]));
    }
    return worst / most;
}

static void free_kept(kept *k)
{
    free(k->upsampled), free(k->noise), free(k->image), free(k->start), free(k->last);
    *k = (kept){ 0 };
}

static void check_interpolation(const char *model, const char *how, double scale)
{
    kept       small = { 0 }, large = { 0 };
    xd_request r;
    xd_request_init(&r);
    r.width = 64, r.height = 48;
    r.hires.scale = scale, r.hires.strength = 0.5, r.hires.upscaler = how;
    int good = generate(model, &r, &large);
    xd_request_init(&r);
    r.width = 64, r.height = 48;
    good = good && generate(model, &r, &small) && large.upsampled;
    check(large.steps == STEPS + STEPS - FIRST, model, "steps of both passes", large.steps);
    if (good) {
        double v = apart(&small, &large, how && strcmp(how, "nearest") == 0);
        check(v < 1e-6, model, how ? how : "bilinear", v);
    }
    free_kept(&small), free_kept(&large);
}

/* With a flow model, whose step i + 1 begins with (1 - t) image + t noise. */
static void check_second_pass(const char *model)
{
    kept       two = { 0 }, one = { 0 };
    xd_request r;
    xd_request_init(&r);
    r.width = 64, r.height = 48;
    r.hires.scale = 2, r.hires.strength = 0.5;
    int good = generate(model, &r, &two) && two.upsampled && two.noise;
    if (good) {
        double t = two.level / 1000;
        one.replace = 1, one.nup = two.nup;
        one.start = malloc((size_t)two.nup * sizeof *one.start);
        for (int64_t i = 0; i < two.nup; i++)
            one.start[i] = (float)((1 - t) * two.upsampled[i] + t * two.noise[i]);
        check(t > 0.2 && t < 0.95, model, "level of the second pass", t);
    }
    xd_request_init(&r);
    r.width = 128, r.height = 96;
    good = good && generate(model, &r, &one) && one.nimage == two.nimage;
    double worst = good ? 0 : 1;
    for (int64_t i = 0; i < one.nimage && good; i++)
        worst = fmax(worst, fabs((double)one.image[i] - two.image[i]));
    check(worst < 1e-4, model, "the image of image-to-image", worst);
    free_kept(&two), free_kept(&one);
}

int main(int argc, char **argv)
{
    char flux[1024], alpha[1024];
    if (argc != 2)
        return 2;
    snprintf(flux, sizeof flux, "%s/flux", argv[1]);
    snprintf(alpha, sizeof alpha, "%s/alpha", argv[1]);
    check_interpolation(flux, NULL, 2);
    check_interpolation(flux, "nearest", 2);
    check_interpolation(flux, NULL, 1.5);
    check_interpolation(alpha, NULL, 2);
    check_second_pass(flux);
    return failures != 0;
}
