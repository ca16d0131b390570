/* test_device.c - plans of ranks on a device with memory of its own, against one rank
 *
 *     test_device MODEL DEVICE WxH STEPS [text=N] [fast=WAYS] PLAN...
 *
 * Random weights of a tiny model in f32. A plan is letters with a number behind each: t tensor,
 * u Ulysses, r ring, p pipe stages, c passes, d replicas, m patches, w warm-up steps; without w all
 * steps are exact. v behind them cuts the rows of the autoencoder, x displaces patches, s streams
 * all blocks from the host's memory (--offload stream). Plans that
 * take fewer ranks than were started are legal. Run under mpirun; rank 0 speaks TAP.
 *
 * Exact plans give the bits of one rank, PipeFusion those of one rank with as many patches. Tensor
 * ranks add in another order, and so do stale displaced patches, which are compared with the same
 * plan on the CPU: latents within 1e-5 of the largest value then, pixels within 1. One rank is
 * within 1e-4 of the CPU. text: the model's text flows (and latents are compared, not pixels).
 * fast: fast_attn, which the image must show. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/par.h"
#include "engine/engine.h"
#include "pipeline/result.h"

enum { IMAGES = 2 };

static const char *model, *device;
static const char *fast; /* fast_attn; NULL: none */
static int         rank, width, height, steps, text, checks, failures;

typedef struct pixels {
    float   *lat;
    int64_t  nlat;
    uint8_t *rgb;
    int64_t  nrgb;
} pixels;

static void free_images(pixels *p)
{
    for (int i = 0; i < IMAGES; i++) {
        free(p[i].lat);
        free(p[i].rgb);
        p[i] = (pixels){ 0 };
    }
}

static void report(int ok, const char *plan, const char *what)
{
    if (rank)
        return;
    failures += !ok;
    printf("%sok %d - %s: %s\n", ok ? "" : "not ", ++checks, plan, what);
    fflush(stdout);
}

static xd_parallel parse(const char *plan)
{
    xd_parallel p = { .num_pipeline_patch = 1, .warmup_steps = steps };
    for (const char *at = plan; *at;) {
        char *end;
        char  c = *at++;
        int   n = (int)strtol(at, &end, 10);
        at = end;
        switch (c) {
        case 't': p.tensor_parallel_degree = n; break;
        case 'u': p.ulysses_degree = n; break;
        case 'r': p.ring_degree = n; break;
        case 'p': p.pipefusion_parallel_degree = n; break;
        case 'c': p.use_cfg_parallel = n == 2; break;
        case 'd': p.data_parallel_degree = n; break;
        case 'm': p.num_pipeline_patch = n; break;
        case 'w': p.warmup_steps = n; break;
        case 'v': p.use_parallel_vae = 1; break;
        case 'x': p.use_displaced_patches = 1; break;
        case 's': break; /* generate() reads it */
        default: printf("Bail out! %s is no plan: what is %c?\n", plan, c); exit(2);
        }
    }
    return p;
}

static void *copied(const void *from, int64_t bytes)
{
    void *p = malloc((size_t)bytes + 1);
    if (!p)
        exit(1);
    return memcpy(p, from, (size_t)bytes);
}

static void fill_request(xd_request *r, int images)
{
    static const char *const prompts[] = { "a small cyan square at the top on a brown background" };
    xd_request_init(r);
    r->prompts = prompts, r->nprompts = 1, r->negative_prompt = "red ring";
    r->width = width, r->height = height, r->output.no_resolution_binning = 1;
    r->num_images_per_prompt = images;
    r->num_inference_steps = steps;
    r->seed = 5;
    r->guidance_scale = 5;
    r->output.latents_only = text > 0;
    r->savings.fast_attn = fast;
    if (text)
        r->texts.max_sequence_length = text;
}

/* On rank 0 the images are in out. 0: failed. */
static int generate(const char *plan, const xd_parallel *p, const char *on, int images, pixels *out)
{
    xd_open_args a = { .size = sizeof a,
                       .model = model,
                       .dtype = "f32",
                       .threads = 1,
                       .device = on,
                       .parallel = *p,
                       .offload = strchr(plan, 's') ? "stream" : NULL };
    xd_request   r;
    xd_engine   *g = NULL;
    xd_result   *res = NULL;
    xd_err       e = { 0 };
    fill_request(&r, images);
    int ok = xd_open_with(&g, &a, 0, &e) == XD_OK;
    if (ok && text && g->ctx.model.recipe->distilled)
        r.guidance.true_cfg_scale = 3;
    ok = ok && xd_generate(g, &r, &res, &e) == XD_OK;
    if (!ok)
        report(0, plan, e.msg);
    for (int i = 0; ok && rank == 0 && i < images; i++) {
        const xd_image *im = xd_result_image(res, i);
        const float    *lat = xd_result_lat(res, i, &out[i].nlat);
        out[i].lat = copied(lat, out[i].nlat * (int64_t)sizeof *lat);
        out[i].nrgb = im ? im->frames * im->width * im->height * 3 : 0;
        out[i].rgb = im ? copied(im->data, out[i].nrgb) : NULL;
    }
    xd_result_free(&res);
    xd_close(&g);
    return ok;
}

/* The largest difference of latents, of the largest value. */
static double gap(const pixels *a, const pixels *b)
{
    double top = 0, most = a->nlat == b->nlat ? 0 : INFINITY;
    for (int64_t i = 0; i < a->nlat && most < INFINITY; i++) {
        double d = fabs((double)a->lat[i] - (double)b->lat[i]);
        most = d > most || !(d >= 0) ? d : most;
        top = fmax(top, fabs((double)a->lat[i]));
    }
    return most / top;
}

/* The most that a pixel differs by. */
static int levels(const pixels *a, const pixels *b)
{
    int most = a->nrgb == b->nrgb ? 0 : 256;
    for (int64_t i = 0; i < a->nrgb && most < 256; i++) {
        int d = abs(a->rgb[i] - b->rgb[i]);
        most = d > most ? d : most;
    }
    return most;
}

/* limit 0: the same bits. */
static void compare(const char *plan, const pixels *want, const pixels *got, double limit)
{
    char   what[100];
    double g = gap(want, got);
    int    l = levels(want, got);
    snprintf(what, sizeof what, "latents differ by %.2g (limit %.2g), pixels by %d of %lld", g,
             limit, l, (long long)want->nrgb);
    report(g <= limit && l <= (limit > 0), plan, what);
}

/* The image of one rank with the patches of p, or the one that is given. */
static void run_plan(const char *plan, const pixels *one)
{
    xd_parallel p = parse(plan), few = { .num_pipeline_patch = p.num_pipeline_patch,
                                         .warmup_steps = p.warmup_steps,
                                         .patches_without_stages = 1 };
    pixels      got[IMAGES] = { { 0 } }, want[IMAGES] = { { 0 } };
    int         stale = p.warmup_steps < steps, images = p.data_parallel_degree > 1 ? 2 : 1;
    int         ok = generate(plan, &p, device, images, got);
    if (ok && stale)
        ok = p.use_displaced_patches ? generate(plan, &p, "cpu", 1, want)
                                     : generate(plan, &few, device, 1, want);
    for (int i = 0; ok && rank == 0 && i < images; i++) {
        int near = p.tensor_parallel_degree > 1 || p.use_displaced_patches;
        compare(plan, stale ? &want[i] : &one[i], &got[i], near ? 1e-5 : 0);
        if (stale)
            report(gap(&got[i], &one[i]) > 1e-4, plan, "stale steps are stale");
    }
    free_images(got);
    free_images(want);
}

/* Shared attentions must be seen. */
static void compare_with_none(const xd_parallel *alone, const pixels *one)
{
    pixels      whole[IMAGES] = { { 0 } };
    const char *ways = fast;
    fast = NULL;
    if (generate("all attentions", alone, device, 1, whole) && rank == 0)
        report(gap(whole, one) > 1e-3, ways, "another image");
    fast = ways;
    free_images(whole);
}

int main(int argc, char **argv)
{
    xd_parallel alone = { .num_pipeline_patch = 1 };
    pixels      one[IMAGES] = { { 0 } }, cpu[IMAGES] = { { 0 } };
    xd_err      e = { 0 };
    xd_comm    *world = NULL;
    int         at = 5;
    if (argc < 6 || sscanf(argv[3], "%dx%d", &width, &height) != 2)
        return 2;
    model = argv[1], device = argv[2], steps = atoi(argv[4]);
    if (sscanf(argv[at], "text=%d", &text) == 1)
        at++;
    if (strncmp(argv[at], "fast=", 5) == 0)
        fast = argv[at++] + 5;
    xd_par_set(1);
    if (xd_comm_world(&world, xd_comm_launched() ? "mpi" : "self", &e) != XD_OK) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    rank = world->rank;
    if (generate("one rank", &alone, device, IMAGES, one) &&
        generate("one rank on the CPU", &alone, "cpu", 1, cpu) && rank == 0)
        compare("one rank against the CPU", cpu, one, 1e-4);
    if (fast)
        compare_with_none(&alone, one);
    for (; at < argc; at++)
        run_plan(argv[at], one);
    free_images(one);
    free_images(cpu);
    if (rank == 0)
        printf("1..%d\n", checks);
    xd_comm_close(&world);
    return failures != 0;
}
