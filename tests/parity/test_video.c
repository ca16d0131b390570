/* test_video.c - plans at a video's real size against one rank.
 *
 *     test_video MODEL WIDTHxHEIGHT FRAMES[:FULL] [steps=N] [pixels] [near] [image=FILE] PLAN...
 *
 * Random weights of a narrow model; the tokens lie as in the published one, with 226 of text. A
 * plan is letters with numbers: t(ensor), u(lysses), r(ing), p(ipefusion), c(fg: 1 is both
 * passes on each rank, without it there is no guidance), m (patches), w (exact steps; without it
 * all are), and without numbers v (rows of the autoencoder), e (text with every patch) and x
 * (displaced patches).
 *
 * A plan of exact steps must give the latents of one rank, within 1e-5 of their largest value,
 * and their bits where it adds up in the same order; a stale one those of one rank with as many
 * patches, or of a ring alone. With `pixels` the video as well: the same bytes, or one of 255
 * apart at most. Run under mpirun with the most ranks that a plan uses; with XDIT_PARITY=full
 * the frames are FULL. near: kernels do not give the same bits for other shapes. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/par.h"
#include "engine/engine.h"
#include "pipeline/result.h"

enum { TEXT = 226, MOST = 16 };

/* Latents of stale steps differ from exact ones: by 0.02 to 0.11 here, by 0.6 and more when
 * patches take the noise of a step or the image beside the latents from the rows of others. */
static const double limit = 1e-5, nearest = 1e-4, farthest = 0.2;

typedef struct video {
    float   *lat;
    uint8_t *rgb;
    int64_t  nlat, nrgb;
} video;

typedef struct plan {
    xd_parallel p;
    int         passes, warm; /* warm: all steps are exact */
} plan;

static const char *model, *begin;
static int         rank, ranks, width, height, frames, steps = 2, pixels, near, failures, compared;

static struct {
    plan  by;
    video v;
} done[MOST]; /* references, generated when first asked for */
static int ndone;

static void fail(const char *what, const char *why)
{
    failures++;
    printf("not ok: %s: %s\n", what, why);
    fflush(stdout);
}

static plan parse(const char *text)
{
    plan q = { .p = { .num_pipeline_patch = 1, .patches_without_stages = 1 },
               .passes = 1,
               .warm = 1 };
    for (const char *at = text; *at;) {
        char *end;
        char  c = *at++;
        int   n = (int)strtol(at, &end, 10);
        at = end;
        switch (c) {
        case 't': q.p.tensor_parallel_degree = n; break;
        case 'u': q.p.ulysses_degree = n; break;
        case 'r': q.p.ring_degree = n; break;
        case 'p': q.p.pipefusion_parallel_degree = n; break;
        case 'c':
            q.p.use_cfg_parallel = n == 2;
            q.passes = 2;
            break;
        case 'm': q.p.num_pipeline_patch = n; break;
        case 'w':
            q.p.warmup_steps = n;
            q.warm = 0;
            break;
        case 'v': q.p.use_parallel_vae = 1; break;
        case 'e': q.p.pipefusion_text = "every"; break;
        case 'x': q.p.use_displaced_patches = 1; break;
        default: printf("Bail out! %s is no plan: what is %c?\n", text, c); exit(2);
        }
    }
    if (q.warm)
        q.p.warmup_steps = steps;
    return q;
}

static void *copied(const void *from, int64_t bytes)
{
    void *p = malloc((size_t)bytes + 1);
    if (!p)
        exit(1);
    return memcpy(p, from, (size_t)bytes);
}

/* On rank 0 `out` is the video afterwards. 0: failed. */
static int generate(const plan *q, const char *what, video *out)
{
    static const char *const prompts[] = { "a small cyan square at the top on a brown background" };
    xd_open_args             a = {
        .size = sizeof a, .model = model, .dtype = "f32", .threads = 1, .parallel = q->p
    };
    xd_request r;
    xd_engine *g = NULL;
    xd_result *res = NULL;
    xd_err     e = { 0 };
    xd_request_init(&r);
    r.prompts = prompts, r.nprompts = 1, r.negative_prompt = "red ring";
    r.width = width, r.height = height, r.num_frames = frames;
    r.seed = 5;
    r.num_inference_steps = steps;
    r.texts.max_sequence_length = TEXT;
    r.guidance_scale = q->passes > 1 ? 6 : 1;
    r.output.latents_only = !pixels;
    r.images.image = begin;
    int ok = xd_open_with(&g, &a, 0, &e) == XD_OK && xd_generate(g, &r, &res, &e) == XD_OK;
    if (!ok && rank == 0)
        fail(what, e.msg);
    if (ok && rank == 0 && xd_ranks(g) != xd_parallel_ranks(&q->p))
        fail(what, "another number of ranks took part");
    if (ok && rank == 0) {
        const xd_image *im = xd_result_image(res, 0);
        const float    *lat = xd_result_lat(res, 0, &out->nlat);
        out->lat = copied(lat, out->nlat * (int64_t)sizeof *lat);
        out->nrgb = im ? im->frames * im->height * im->width * 3 : 0;
        out->rgb = im ? copied(im->data, out->nrgb) : NULL;
    }
    xd_result_free(&res);
    xd_close(&g);
    return ok;
}

static void free_video(video *v)
{
    free(v->lat);
    free(v->rgb);
    *v = (video){ 0 };
}

/* The most that a number of a pixel differs by; videos of other sizes: more than any. */
static int levels(const video *a, const video *b)
{
    int most = a->nrgb == b->nrgb ? 0 : 256;
    for (int64_t i = 0; i < a->nrgb && most < 256; i++) {
        int d = abs(a->rgb[i] - b->rgb[i]);
        most = d > most ? d : most;
    }
    return most;
}

static double gap(const video *a, const video *b)
{
    double top = 0, most = 0;
    for (int64_t i = 0; i < a->nlat; i++) {
        double d = fabs((double)a->lat[i] - (double)b->lat[i]);
        most = d > most || !(d >= 0) ? d : most;
        top = fmax(top, fabs((double)a->lat[i]));
    }
    return most / top;
}

/* The plan of few ranks that must give the same latents. */
static plan reference_of(const plan *q)
{
    plan r = { .passes = q->passes, .warm = q->warm };
    r.p.patches_without_stages = 1;
    r.p.num_pipeline_patch = q->warm ? 1 : q->p.num_pipeline_patch;
    r.p.warmup_steps = q->p.warmup_steps;
    if (!q->warm && q->p.num_pipeline_patch > 1)
        r.p.pipefusion_text = q->p.pipefusion_text;
    if (!q->warm && q->p.use_displaced_patches) {
        r.p.use_displaced_patches = 1;
        r.p.ring_degree = q->p.ring_degree;
    }
    return r;
}

static int is_same(const plan *a, const plan *b)
{
    return a->passes == b->passes && a->warm == b->warm && a->p.warmup_steps == b->p.warmup_steps &&
           a->p.num_pipeline_patch == b->p.num_pipeline_patch &&
           a->p.ring_degree == b->p.ring_degree && !a->p.pipefusion_text == !b->p.pipefusion_text;
}

/* Collective. A stale one must not be what exact steps give. */
static const video *reference(const plan *q, const char *what)
{
    plan r = reference_of(q), all = { .p = { .num_pipeline_patch = 1, .warmup_steps = steps },
                                      .passes = q->passes,
                                      .warm = 1 };
    for (int i = 0; i < ndone; i++)
        if (is_same(&done[i].by, &r))
            return &done[i].v;
    const video *exact = r.warm ? NULL : reference(&all, what);
    if (ndone == MOST)
        exit(1);
    video *v = &done[ndone].v;
    done[ndone++].by = r;
    double begin_s = xd_now_s();
    if (!generate(&r, what, v) && rank == 0)
        exit(1);
    if (rank == 0)
        printf("# reference of %s: %lld numbers, %.1f s\n", what, (long long)v->nlat,
               xd_now_s() - begin_s);
    double far = rank == 0 && exact ? gap(exact, v) : 0;
    if (far > 0)
        printf("# stale steps: %.2g of the largest value from exact ones\n", far);
    if (rank == 0 && exact && !(far > nearest && far < farthest))
        fail(what,
             "the reference with stale steps is that of exact ones, or something else altogether");
    return v;
}

static void check(const char *text)
{
    plan         q = parse(text);
    const video *want = reference(&q, text);
    video        got = { 0 };
    char         why[200];
    int          n = xd_parallel_ranks(&q.p);
    int bits = !near && q.p.tensor_parallel_degree <= 1 && !(q.warm && q.p.use_displaced_patches);
    double begin_s = xd_now_s();
    if (n > ranks) {
        snprintf(why, sizeof why, "needs %d ranks, there are %d", n, ranks);
        if (rank == 0)
            fail(text, why);
        return;
    }
    if (generate(&q, text, &got) && rank == 0) {
        double d = got.nlat == want->nlat ? gap(want, &got) : INFINITY;
        int    apart = levels(want, &got);
        snprintf(why, sizeof why,
                 "latents %.2g of the largest value from the reference, pixels %d of 255", d,
                 apart);
        if (!pixels)
            *strrchr(why, ',') = 0;
        if (!(d <= limit) || (bits && d > 0) || apart > !bits || (pixels && !got.nrgb))
            fail(text, why);
        else
            printf("ok: %s on %d ranks: %s, %.1f s\n", text, n, why, xd_now_s() - begin_s);
        fflush(stdout);
    }
    compared++;
    free_video(&got);
}

/* An option that is none is a plan. */
static int is_option(const char *a)
{
    if (strncmp(a, "steps=", 6) == 0)
        steps = atoi(a + 6);
    else if (strncmp(a, "image=", 6) == 0)
        begin = a + 6;
    else if (strcmp(a, "pixels") == 0)
        pixels = 1;
    else if (strcmp(a, "near") == 0)
        near = 1;
    else
        return 0;
    return 1;
}

int main(int argc, char **argv)
{
    const char *how = getenv("XDIT_PARITY"), *full = argc > 3 ? strchr(argv[3], ':') : NULL;
    xd_err      e = { 0 };
    xd_comm    *world = NULL;
    if (argc < 5 || sscanf(argv[2], "%dx%d", &width, &height) != 2) {
        fprintf(stderr, "usage: %s MODEL WIDTHxHEIGHT FRAMES[:FULL] [OPTION...] PLAN...\n",
                argv[0]);
        return 2;
    }
    model = argv[1];
    frames = atoi(full && how && strcmp(how, "full") == 0 ? full + 1 : argv[3]);
    xd_par_set(1);
    if (xd_comm_world(&world, xd_comm_launched() ? "mpi" : "self", &e) != XD_OK) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    rank = world->rank;
    ranks = world->size;
    for (int i = 4; i < argc; i++)
        is_option(argv[i]);
    for (int i = 4; i < argc; i++)
        if (!is_option(argv[i]))
            check(argv[i]);
    for (int i = 0; i < ndone; i++)
        free_video(&done[i].v);
    if (rank == 0)
        printf("%d x %d, %d frames, %d of text: %d plans, %d failures\n", width, height, frames,
               TEXT, compared, failures);
    xd_comm_close(&world);
    return failures || !compared;
}
