/* test_parity.c - every plan against one rank, on as many ranks as this was started with.
 *
 *     test_parity MODEL DTYPE [near] [text=N] [cfg] [thin=K] [video] [image=FILE] [last=FILE]
 *     [mask=FILE] [control=FILE] [film=FILE] [influence=S] [at=N,N] [shares=S,S]
 *     [side=DIR] [between=S,S] [redux=FILE] [upsampler=DIR] [strength=S]
 *     [noise] [kept=TYPE] [size=WxH] [frames=N] [rescale=S] [perturbed=N] [length=F] [cut=T]
 *     [ratio=R] [scheduler=NAME] [steps=N] [attention=HOW] [window=T,H,W] [cache=SPEC]
 *     [references=N] [fast=WAYS] [comms=TYPE] [drive=DIR] [segment=N]
 *
 * Random weights of a tiny model; every factorization of the ranks over the six axes, with
 * patches, displaced patches and VAE rows where they apply. One launch per rank count; plans are
 * looped inside. Run under mpirun; prints one line a failure and counts.
 *
 * PixArt (5 heads, 7 blocks, 11 x 13 tokens) is generated to the image, and every plan is exact
 * in all steps. Of models whose text flows (5 x 7 tokens, N text tokens of the last encoder) the
 * latents are compared, of plans with exact steps and of plans with stale ones: those against
 * one rank with as many patches, text with the first or with every patch, or against as many
 * displaced members.
 *
 * size: pixels of the image. frames: num_frames. rescale: guidance_rescale, of which stale steps
 * know some sums of the step before: they stay within 0.2 of the largest value. length, cut,
 * ratio: cfg_normalization, cfg_truncation, cfg_trunc_ratio. perturbed:
 * spatio_temporal_guidance_blocks.
 *
 * video: of the model's frames, and compared to the pixels; image, last: what an image-to-video
 * model begins and ends with. Its autoencoder's rows are cut in every other plan.
 *
 * at, shares: frame_index and condition_strength of `image` and `film`.
 *
 * film, influence: control_video, conditioning_scale. side: two control networks, the model's and
 * this one, which read the same control image. between: control_guidance_start and _end. skipped:
 * skip_guidance_layers, in every step.
 *
 * drive: the folder of pose_video, "pose", and of face_video, "face". segment:
 * segment_frame_length.
 *
 * redux: an image that a prior, in the model's folder, varies beside the prompt.
 *
 * upsampler, strength: a latent upsampler, and denoise_strength of the second pass; of the latents
 * that it enlarges, the statistics are changed.
 *
 * cache: a step cache. All plans leave out the same blocks; stages, which correct by their own, add
 * in another order.
 *
 * kept: weights_dtype. Plans that are exact are so with int8 and fp8, too. Plans that add in
 * another order move single int8 inputs by one: 3e-2 then. Tensor ranks scale the inputs that they
 * have: 5e-2, of which a HunyuanDiT takes 0.04 and a video between two images 0.025.
 *
 * attention: of the request. Integers of queries and keys belong to rows, and the mean of keys is
 * of all tokens in their order: plans give the bits of one rank where they do so without. Plans
 * that add in another order move single integers by one: 1e-3 then.
 *
 * window: attention_window; references: reference_interval; fast: fast_attn. Plans that they are
 * not for are left out, and patches, whose warm-up steps compute the reference images.
 *
 * comms: of the plan, in the program test_coded, whose ranks count as those of several hosts. Plans
 * that send codes are within 0.05 (fp8: 0.15) of the largest value, and not equal.
 *
 * near: kernels do not give the same bits for other shapes (below AVX-512). cfg: two passes of a
 * model that has one. thin: one plan of K, which others in other launches. With XDIT_PARITY=full
 * all plans with 1, 77 and 511 text tokens. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/par.h"
#include "engine/engine.h"
#include "families/recipe.h"
#include "pipeline/result.h"

enum { IMAGES = 2, PREVIEWS = 2 };

static const char *model_dir, *dtype, *kept;
static const char *scheduler;      /* NULL: the model's */
static const char *attention;      /* NULL: as usual */
static const char *cache;          /* a step cache; NULL: none */
static const char *window;         /* NULL: none */
static const char *fast;           /* fast_attn; NULL: none */
static const char *comms;          /* of plans; NULL: exact */
static int         references = 1; /* reference_interval */
static const char *begin;          /* the image that a video begins with; NULL: none */
static const char *last;           /* the image that it ends with; NULL: none */
static int         noise;          /* with a mask: the model starts from noise alone */
static const char *mask;           /* what is inpainted of it; NULL: there is no mask */
static const char *control;        /* what the transformer reads beside the noise; NULL: nothing */
/* spatio_temporal_guidance_blocks; NULL: the default */
static const char *perturbed;
static const char *skipped;                /* blocks that a third guidance pass skips; NULL: none */
static const char *places, *shares;        /* frame_index, condition_strength; NULL: default */
static const char *film, *influence;       /* a control video and its factors; NULL: none */
static char        pose[1100], face[1100]; /* pose_video, face_video; "": none */
static int         segment;                /* segment_frame_length */
static const char *redux;                  /* what a prior varies; NULL: nothing */
static const char *side;                   /* the second control network; NULL: none */
static const char *upsampler;              /* the latent upsampler; NULL: none */
static double      strength = -1;          /* denoise_strength */
static const char *kind;                   /* control_mode; NULL: none */
static char        between[2][32];         /* control_guidance_start and _end; "": none */
static int         rank, ranks, plans, failures, bitwise, near, text, cfg, full, f32, video;
static int         sounds; /* 1: the model makes sound */
static int         apart;  /* 1: sound has guidance of its own */
static int         linear; /* 1: attention of the model is linear */
static int         stored; /* 1: the model reuses keys and values of reference images */
static int         whole;  /* 1: plans split passes and images only */
static double      rescaled, length = -1, cut = 1, ratio = 1;
static int         thin = 1, steps = 5, size[2], frames;

typedef struct pixels {
    float   *lat;
    int64_t  nlat;
    uint8_t *rgb;
    int64_t  nrgb;
    float   *sound; /* latents of audio; NULL: none, or made by another replica */
    int64_t  nsound;
    int      cached[2];         /* block ranges that a cache has left out, and all */
    uint8_t *preview[PREVIEWS]; /* of the images that rank 0's replica makes */
    int64_t  npreview;
    int      previews;
} pixels;

static void free_image(pixels *p)
{
    free(p->lat);
    free(p->rgb);
    free(p->sound);
    for (int i = 0; i < p->previews; i++)
        free(p->preview[i]);
    *p = (pixels){ 0 };
}

static void fail(const char *what, const char *why)
{
    failures++;
    printf("not ok: %d ranks, %s: %s\n", ranks, what, why);
    fflush(stdout);
}

static void copy_result(pixels *p, const xd_result *r, int i)
{
    const xd_image *im = xd_result_image(r, i);
    const float    *lat = xd_result_lat(r, i, &p->nlat);
    const float    *sound = xd_result_audio_lat(r, i, &p->nsound);
    const char     *told = strstr(xd_result_json(r, i), "\"cache_reused\"");
    if (told)
        sscanf(told, "\"cache_reused\": %d, \"cache_ranges\": %d", &p->cached[0], &p->cached[1]);
    p->lat = malloc((size_t)p->nlat * sizeof *p->lat + 1);
    memcpy(p->lat, lat, (size_t)p->nlat * sizeof *p->lat);
    p->sound = sound ? malloc((size_t)p->nsound * sizeof *p->sound) : NULL;
    if (p->sound)
        memcpy(p->sound, sound, (size_t)p->nsound * sizeof *p->sound);
    if (im) {
        p->nrgb = im->frames * im->width * im->height * im->channels;
        p->rgb = malloc((size_t)p->nrgb + 1);
        memcpy(p->rgb, im->data, (size_t)p->nrgb);
    }
}

/* cookie: pixels of all images. */
static void copy_preview(void *cookie, const xd_image *im, const xd_progress *at)
{
    pixels *p = (pixels *)cookie + at->image - 1;
    if (p->previews == PREVIEWS) {
        fail("previews", "more than were asked for");
        return;
    }
    p->npreview = im->width * im->height * 3;
    p->preview[p->previews] = malloc((size_t)p->npreview + 1);
    memcpy(p->preview[p->previews++], im->data, (size_t)p->npreview);
}

static void request(xd_request *r, int images)
{
    xd_request_init(r);
    r->negative_prompt = "red ring";
    r->width = 52, r->height = 44;
    r->num_frames = frames;
    r->output.no_resolution_binning = 1;
    r->num_images_per_prompt = images;
    r->seed = 5;
    r->guidance.guidance_rescale = rescaled;
    if (apart)
        r->audio.audio_guidance_rescale = rescaled;
    r->audio.spatio_temporal_guidance_blocks = perturbed;
    r->guidance.skip_guidance_layers = skipped;
    r->guidance.skip_layer_guidance_start = skipped ? 0 : r->guidance.skip_layer_guidance_start;
    r->guidance.skip_layer_guidance_stop = skipped ? 1 : r->guidance.skip_layer_guidance_stop;
    r->guidance.cfg_normalization = length;
    r->guidance.cfg_truncation = cut;
    r->guidance.cfg_trunc_ratio = ratio;
    r->schedule.scheduler = scheduler;
    r->savings.attention = attention;
    r->savings.cache = cache;
    r->savings.attention_window = window;
    r->savings.fast_attn = fast;
    r->savings.reference_interval = references;
    if (text) {
        r->width = 56, r->height = 40;
        r->texts.max_sequence_length = text;
        r->output.latents_only = !video;
        r->images.image = begin;
        r->images.last_image = last;
        r->images.mask_image = mask;
        r->images.control_video = places ? NULL : film;
        r->images.frame_index = places;
        r->images.condition_strength = shares;
        r->images.strength = mask && !noise ? 1 : 0; /* all steps, so that stale ones tell */
        r->guidance_scale = cfg ? 5 : 1;
    }
    r->driving.pose_video = pose[0] ? pose : NULL;
    r->driving.face_video = face[0] ? face : NULL;
    r->driving.segment_frame_length = segment;
    r->redux.image = redux;
    r->images.control_image = control;
    r->images.more_control_images = &control;
    r->images.nmore_control_images = side != NULL;
    r->images.conditioning_scale = influence;
    r->images.control_mode = kind;
    r->images.control_guidance_start = between[0][0] ? between[0] : NULL;
    r->images.control_guidance_end = between[1][0] ? between[1] : NULL;
    if (size[0])
        r->width = size[0], r->height = size[1];
    r->num_inference_steps = steps;
    if (!upsampler)
        return;
    r->upsampling.denoise_strength = strength;
    r->upsampling.num_inference_steps = strength > 0 ? 4 : 0;
    r->upsampling.adain_factor = 0.5;
    r->upsampling.tone_map_compression_ratio = 0.3;
}

/* Generates; on rank 0 the images are in out. 0: failed. */
static int generate(const xd_parallel *par, const char *what, int images, pixels *out)
{
    static const char *const prompts[] = { "a small cyan square at the top on a brown background" };
    char                     own[1024];
    const xd_component_file  sides[] = { { upsampler ? "latent_upsampler"
                                           : redux   ? "redux"
                                                     : "controlnet",
                                           upsampler ? upsampler
                                           : redux   ? model_dir
                                                     : own },
                                         { "controlnet", side } };
    xd_open_args             a = { .size = sizeof a,
                                   .model = model_dir,
                                   .files = sides,
                                   .nfiles = side ? 2 : upsampler || redux,
                                   .dtype = dtype,
                                   .weights_dtype = kept,
                                   .threads = 1,
                                   .parallel = *par };
    xd_request               r;
    xd_engine               *g = NULL;
    xd_result               *res = NULL;
    xd_err                   e = { 0 };
    a.parallel.comms = comms;
    snprintf(own, sizeof own, "%s/controlnet", model_dir);
    int ok = xd_open_with(&g, &a, 0, &e) == XD_OK;
    sounds = ok && xd_makes_sound(g);
    apart = sounds && g->ctx.model.recipe->audio_guidance > 0;
    request(&r, images);
    r.prompts = prompts;
    r.nprompts = 1;
    r.previews.count = PREVIEWS;
    r.callbacks.on_preview = rank == 0 ? copy_preview : NULL;
    r.callbacks.cookie = out;
    linear = ok && g->ctx.model.dit_info.linear;
    stored = ok && g->ctx.model.recipe->keeps_references;
    whole = ok && g->ctx.model.dit_info.whole;
    if (ok && text && cfg && g->ctx.model.recipe->distilled)
        r.guidance.true_cfg_scale = 3;
    if (ok && begin && (g->ctx.model.recipe->max_area || g->ctx.model.recipe->reference_area))
        r.output.max_area = r.width * r.height;
    if (ok && g->ctx.model.recipe->layers) /* which have the size of the image */
        r.width = r.height = 0;
    r.images.no_auto_resize = ok && begin && g->ctx.model.recipe->auto_resizes;
    if (ok && begin && g->ctx.model.recipe->references > 1) /* twice the same */
        r.images.more_images = places ? &film : &begin, r.images.nmore_images = 1;
    if (!ok || xd_generate(g, &r, &res, &e) != XD_OK) {
        if (rank == 0)
            fail(what, e.msg);
        ok = 0;
    } else if (rank == 0) {
        ok = xd_result_count(res) == images;
        for (int i = 0; ok && i < images; i++)
            copy_result(&out[i], res, i);
    }
    xd_result_free(&res);
    xd_close(&g);
    return ok;
}

static double gap(const float *a, const float *b, int64_t n)
{
    double top = 0, most = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        most = d > most || !(d >= 0) ? d : most;
        top = fmax(top, fabs((double)a[i]));
    }
    return most / top;
}

/* Compares the latents of audio, which rank 0 lacks of images that other replicas make. */
static void check_sound(const char *what, const pixels *want, const pixels *got, int elsewhere,
                        int exact, double limit)
{
    char   why[96];
    size_t bytes = (size_t)want->nsound * sizeof(float);
    if (!sounds || (elsewhere && !got->sound))
        return;
    if (!want->sound || got->nsound != want->nsound) {
        fail(what, "the latents of audio are missing");
        return;
    }
    double g = gap(want->sound, got->sound, want->nsound);
    snprintf(why, sizeof why, "latents of audio differ by %.2g of the largest value", g);
    if (!(g <= limit) || (exact && memcmp(want->sound, got->sound, bytes) != 0))
        fail(what, why);
}

/* The most that a pixel of the previews differs by; 256: their number does. Rank 0 has none of
 * images that other replicas make. */
static int preview_gap(const pixels *a, const pixels *b, int replicas, int image)
{
    int most = 0;
    if (replicas > 1 && image % replicas)
        return b->previews ? 256 : 0;
    if (!b->previews || a->previews != b->previews || a->npreview != b->npreview)
        return 256;
    for (int k = 0; k < a->previews; k++)
        for (int64_t i = 0; i < a->npreview; i++) {
            int d = abs((int)a->preview[k][i] - (int)b->preview[k][i]);
            most = d > most ? d : most;
        }
    return most;
}

/* 1: ranks send each other codes, which differ from the values. */
static int is_coded(const xd_parallel *p)
{
    const int split = p->ulysses_degree > 1 || (p->ring_degree > 1 && !p->use_displaced_patches);
    return comms && ((split && !linear) || p->pipefusion_parallel_degree > 1);
}

/* exact: the bits of `want`; else within `limit` of the largest value. One image tells, but for
 * replicas and what is generated after another one. */
static void check(const xd_parallel *par, const char *what, const pixels *want, int exact,
                  double limit)
{
    pixels got[IMAGES] = { { 0 } };
    char   why[128];
    int    n = text && par->data_parallel_degree <= 1 ? 1 : IMAGES;
    plans++;
    if (generate(par, what, n, got) && rank == 0)
        for (int i = 0; i < n; i++) {
            double g = gap(want[i].lat, got[i].lat, want[i].nlat);
            int same = memcmp(want[i].lat, got[i].lat, (size_t)want[i].nlat * sizeof(float)) == 0;
            int image = !want[i].rgb || memcmp(want[i].rgb, got[i].rgb, (size_t)want[i].nrgb) == 0;
            snprintf(why, sizeof why, "image %d: latents differ by %.2g of the largest value%s", i,
                     g, image ? "" : ", so does the image");
            if (!(g <= limit) || (exact && (!same || !image)))
                fail(what, why);
            check_sound(what, &want[i], &got[i],
                        par->data_parallel_degree > 1 && i % par->data_parallel_degree, exact,
                        limit);
            if (is_coded(par) && same)
                fail(what, "its messages are not coded");
            snprintf(why, sizeof why, "image %d: %d of %d block ranges are left out, not %d of %d",
                     i, got[i].cached[0], got[i].cached[1], want[i].cached[0], want[i].cached[1]);
            if (memcmp(want[i].cached, got[i].cached, sizeof got[i].cached) != 0)
                fail(what, why);
            int p = preview_gap(&want[i], &got[i], par->data_parallel_degree, i);
            snprintf(why, sizeof why, "image %d: a preview differs by %d", i, p);
            if (p > (exact ? 0 : 2 + (int)(1000 * limit)))
                fail(what, why);
            bitwise += exact;
        }
    for (int i = 0; i < IMAGES; i++)
        free_image(&got[i]);
}

static void name_of(const xd_parallel *p, char *out, size_t n)
{
    snprintf(
        out, n, "tensor %d ulysses %d ring %d pipe %d cfg %d data %d patches %d warm-up %d%s%s%s%s",
        p->tensor_parallel_degree, p->ulysses_degree, p->ring_degree, p->pipefusion_parallel_degree,
        p->use_cfg_parallel + 1, p->data_parallel_degree, p->num_pipeline_patch, p->warmup_steps,
        p->pipefusion_text ? " text " : "", p->pipefusion_text ? p->pipefusion_text : "",
        p->use_displaced_patches ? " displaced" : "", p->use_parallel_vae ? " vae rows" : "");
}

/* Is it this launch's turn? Different launches leave out different plans. */
static int is_taken(void)
{
    static int seen;
    return whole || (seen++ + ranks + text) % thin == 0; /* a whole network has few plans */
}

static double limit(const xd_parallel *p)
{
    if (is_coded(p)) /* codes of fp8 have 3 bits of mantissa */
        return strcmp(comms, "fp8") == 0 ? 0.15 : 5e-2;
    if (kept && strcmp(kept, "int8") == 0)
        return p->tensor_parallel_degree > 1 ? 5e-2 : 3e-2;
    return !f32 ? 3e-2 : attention ? 1e-3 : 1e-5;
}

/* Sums of linear attention are added over ranks and patches, so that only plans without parts of
 * the tokens keep the order of one rank. */
static int in_order(const xd_parallel *p)
{
    return !linear || (p->ulysses_degree <= 1 && p->ring_degree <= 1 &&
                       p->num_pipeline_patch <= 1 && !p->use_parallel_vae);
}

/* exact: the plan adds up in the order of `want`, where kernels keep bits. */
static void one_plan(const xd_parallel *p, const pixels *want, int exact)
{
    char what[200];
    name_of(p, what, sizeof what);
    if ((window || fast) && (p->pipefusion_parallel_degree > 1 || p->use_displaced_patches))
        return;
    if (fast && strstr(fast, "cfg") && p->use_cfg_parallel)
        return;
    if (references != 1 && (p->num_pipeline_patch > 1 || p->use_displaced_patches))
        return;
    if (is_taken())
        check(p, what, want, f32 && !near && exact && !is_coded(p) && in_order(p), limit(p));
}

/* A cache that leaves out nothing, or decides nothing, tells nothing. */
static void check_cached(const pixels *p, const char *what)
{
    if (!cache || rank)
        return;
    printf("# %s: %d of %d block ranges are left out\n", what, p->cached[0], p->cached[1]);
    if (!p->cached[0] || p->cached[0] == p->cached[1])
        fail(what, "all of its decisions are alike");
}

/* ---- references --------------------------------------------------------------------------- */

/* Images of plans with stale steps, generated when they are first asked for. They must not be
 * those of exact steps. */
typedef struct stale {
    xd_parallel   p;
    pixels        want[IMAGES];
    struct stale *next;
} stale;

static stale *stales;

static const pixels *reference(xd_parallel p, const pixels *exact)
{
    char what[200], why[64];
    for (stale *s = stales; s; s = s->next)
        if (s->p.num_pipeline_patch == p.num_pipeline_patch && s->p.ring_degree == p.ring_degree &&
            s->p.pipefusion_text == p.pipefusion_text)
            return s->want;
    stale *s = calloc(1, sizeof *s);
    if (!s)
        exit(1);
    name_of(&p, what, sizeof what);
    s->p = p;
    s->next = stales;
    stales = s;
    if (!generate(&p, what, IMAGES, s->want) && rank == 0)
        exit(1);
    double far = rank == 0 ? gap(exact->lat, s->want->lat, exact->nlat) : 1;
    snprintf(why, sizeof why, "%.2g from exact steps", far);
    double least = scheduler ? 1e-4 : 1e-3; /* new noise in every step brings them nearer */
    if (rank == 0 && (!(far > least) || (rescaled > 0 && !(far < 0.2))))
        fail(what, why);
    if (rank == 0)
        printf("# %s: %s\n", what, why);
    check_cached(s->want, what);
    return s->want;
}

static void free_references(void)
{
    for (stale *s = stales, *next; s; s = next) {
        next = s->next;
        for (int i = 0; i < IMAGES; i++)
            free_image(&s->want[i]);
        free(s);
    }
    stales = NULL;
}

/* ---- plans -------------------------------------------------------------------------------- */

/* Steps with stale keys and values: those of as many patches on one rank, of as many members of a
 * ring alone. */
static void stale_plans(xd_parallel p, const pixels *want, int exact)
{
    static const char *const ways[] = { "first", "every" };
    p.warmup_steps = 1;
    if (window || fast || references != 1)
        return;
    for (int m = 3; m <= 4 && p.pipefusion_parallel_degree > 1; m++)
        for (int w = 0; w < 2; w++) {
            xd_parallel one = { .num_pipeline_patch = m,
                                .warmup_steps = 1,
                                .patches_without_stages = 1 };
            p.num_pipeline_patch = m;
            p.pipefusion_text = one.pipefusion_text = ways[w];
            one_plan(&p, reference(one, want), exact);
        }
    if (p.ring_degree > 1 && !stored) {
        xd_parallel ring = { .ring_degree = p.ring_degree,
                             .use_displaced_patches = 1,
                             .num_pipeline_patch = 1,
                             .warmup_steps = 1 };
        p.num_pipeline_patch = 1;
        p.pipefusion_text = NULL;
        p.use_displaced_patches = 1;
        one_plan(&p, reference(ring, want), exact);
    }
}

/* Of the network, with which warm-up steps count. */
static int evaluations(void)
{
    return scheduler && strstr(scheduler, "heun") ? 2 * steps - 1 : steps;
}

/* All plans of a factorization: those that are warm must all give one rank's image. */
static void factorization(xd_parallel p, const pixels *want)
{
    static const int patches[] = { 1, 3, 4 };
    int exact = p.tensor_parallel_degree == 1 && !(cache && p.pipefusion_parallel_degree > 1);
    static int turn;
    p.warmup_steps = evaluations();
    p.num_pipeline_patch = 1;
    for (int v = 0; v < (text ? 1 : 2); v++) {
        p.use_parallel_vae = video ? turn++ % 2 : v;
        for (int i = 0; i < (p.pipefusion_parallel_degree > 1 ? 3 : 1); i++) {
            p.num_pipeline_patch = patches[i];
            one_plan(&p, want, exact);
        }
    }
    if (text)
        stale_plans(p, want, exact);
    p.num_pipeline_patch = 1;
    if (p.ring_degree > 1 && !stored) {
        p.use_displaced_patches = 1;
        one_plan(&p, want, 0); /* keys and values come member by member */
    }
}

/* Stale steps: the same bits for every number of stages at equal patches. */
static void stages(const pixels *exact)
{
    for (int m = 3; m <= 4 && !text && !window && !whole; m++) {
        xd_parallel p = { .num_pipeline_patch = m, .warmup_steps = 1, .patches_without_stages = 1 };
        const pixels *want = reference(p, exact);
        char          what[200];
        p.pipefusion_parallel_degree = ranks;
        name_of(&p, what, sizeof what);
        check(&p, what, want, !near && f32 && !cache && !is_coded(&p),
              is_coded(&p)    ? limit(&p)
              : near || cache ? 1e-5
              : f32           ? 0
                              : 3e-2);
    }
}

/* Every factorization of the ranks; the number of them. */
static int all_plans(const pixels *want)
{
    int count = 0, passes = text && !cfg ? 1 : 2;
    for (int t = 1; t <= ranks; t++)
        for (int u = 1; u <= ranks; u++)
            for (int r = 1; r <= ranks; r++)
                for (int pp = 1; pp <= ranks; pp++)
                    for (int c = 1; c <= passes; c++) {
                        int d = ranks / (t * u * r * pp * c);
                        if (d < 1 || t * u * r * pp * c * d != ranks ||
                            (whole && t * u * r * pp > 1))
                            continue;
                        count++;
                        factorization((xd_parallel){ .tensor_parallel_degree = t,
                                                     .ulysses_degree = u,
                                                     .ring_degree = r,
                                                     .pipefusion_parallel_degree = pp,
                                                     .use_cfg_parallel = c - 1,
                                                     .data_parallel_degree = d },
                                      want);
                    }
    return count;
}

/* The videos that drive a character, and an image that a prior varies. */
static void input_argument(const char *arg)
{
    if (strncmp(arg, "redux=", 6) == 0)
        redux = arg + 6;
    if (strncmp(arg, "drive=", 6) == 0) {
        snprintf(pose, sizeof pose, "%s/pose", arg + 6);
        snprintf(face, sizeof face, "%s/face", arg + 6);
    }
    if (strncmp(arg, "segment=", 8) == 0)
        segment = atoi(arg + 8);
}

static void arguments(int argc, char **argv)
{
    const char *how = getenv("XDIT_PARITY");
    model_dir = argv[1];
    dtype = argc > 2 ? argv[2] : "f32";
    f32 = strcmp(dtype, "f32") == 0;
    full = how && strcmp(how, "full") == 0;
    for (int i = 3; i < argc; i++) {
        near |= strcmp(argv[i], "near") == 0;
        cfg |= strcmp(argv[i], "cfg") == 0;
        video |= strcmp(argv[i], "video") == 0;
        noise |= strcmp(argv[i], "noise") == 0;
        if (strncmp(argv[i], "image=", 6) == 0)
            begin = argv[i] + 6;
        if (strncmp(argv[i], "last=", 5) == 0)
            last = argv[i] + 5;
        if (strncmp(argv[i], "mask=", 5) == 0)
            mask = argv[i] + 5;
        if (strncmp(argv[i], "film=", 5) == 0)
            film = argv[i] + 5;
        input_argument(argv[i]);
        if (strncmp(argv[i], "at=", 3) == 0)
            places = argv[i] + 3;
        if (strncmp(argv[i], "shares=", 7) == 0)
            shares = argv[i] + 7;
        if (strncmp(argv[i], "influence=", 10) == 0)
            influence = argv[i] + 10;
        if (strncmp(argv[i], "side=", 5) == 0)
            side = argv[i] + 5;
        if (strncmp(argv[i], "upsampler=", 10) == 0)
            upsampler = argv[i] + 10;
        if (strncmp(argv[i], "strength=", 9) == 0)
            strength = atof(argv[i] + 9);
        if (strncmp(argv[i], "kind=", 5) == 0)
            kind = argv[i] + 5;
        if (sscanf(argv[i], "between=%31[^,],%31s", between[0], between[1]) == 2)
            continue;
        if (strncmp(argv[i], "control=", 8) == 0)
            control = argv[i] + 8;
        if (sscanf(argv[i], "size=%dx%d", &size[0], &size[1]) == 2)
            continue;
        if (strncmp(argv[i], "frames=", 7) == 0)
            frames = atoi(argv[i] + 7);
        if (strncmp(argv[i], "rescale=", 8) == 0)
            rescaled = atof(argv[i] + 8);
        if (strncmp(argv[i], "perturbed=", 10) == 0)
            perturbed = argv[i] + 10;
        if (strncmp(argv[i], "skipped=", 8) == 0)
            skipped = argv[i] + 8;
        if (strncmp(argv[i], "cache=", 6) == 0)
            cache = argv[i] + 6;
        if (strncmp(argv[i], "scheduler=", 10) == 0)
            scheduler = argv[i] + 10;
        if (strncmp(argv[i], "steps=", 6) == 0)
            steps = atoi(argv[i] + 6);
        if (strncmp(argv[i], "length=", 7) == 0)
            length = atof(argv[i] + 7);
        if (strncmp(argv[i], "cut=", 4) == 0)
            cut = atof(argv[i] + 4);
        if (strncmp(argv[i], "ratio=", 6) == 0)
            ratio = atof(argv[i] + 6);
        if (strncmp(argv[i], "window=", 7) == 0)
            window = argv[i] + 7;
        if (strncmp(argv[i], "fast=", 5) == 0)
            fast = argv[i] + 5;
        if (strncmp(argv[i], "comms=", 6) == 0)
            comms = argv[i] + 6;
        if (strncmp(argv[i], "references=", 11) == 0)
            references = atoi(argv[i] + 11);
        if (strncmp(argv[i], "attention=", 10) == 0)
            attention = argv[i] + 10;
        if (strncmp(argv[i], "kept=", 5) == 0)
            kept = argv[i] + 5;
        if (strncmp(argv[i], "text=", 5) == 0)
            text = atoi(argv[i] + 5), steps = 3;
        if (strncmp(argv[i], "thin=", 5) == 0 && !full && atoi(argv[i] + 5) > 1)
            thin = atoi(argv[i] + 5);
    }
}

/* Everything with so many text tokens, where text flows. */
static int all_of(xd_comm *world)
{
    pixels      want[IMAGES] = { { 0 } };
    xd_parallel one = { 0 };
    if (!generate(&one, "one rank", IMAGES, want) && rank == 0)
        world->ops->abort(world, 1);
    check_cached(want, "one rank");
    int count = all_plans(want);
    stages(want);
    for (int i = 0; i < IMAGES; i++)
        free_image(&want[i]);
    free_references();
    return count;
}

int main(int argc, char **argv)
{
    static const int lengths[] = { 1, 77, 511 };
    xd_err           e = { 0 };
    xd_comm         *world = NULL;
    int              count = 0;
    if (argc < 2)
        return 2;
    arguments(argc, argv);
    xd_par_set(1);
    if (xd_comm_world(&world, xd_comm_launched() ? "mpi" : "self", &e) != XD_OK) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    rank = world->rank;
    ranks = world->size;
    for (int i = 0; i < (full && text ? 3 : 1); i++) {
        text = full && text ? lengths[i] : text;
        count = all_of(world);
    }
    if (rank == 0)
        printf(
            "%d ranks: %d factorizations, %d plans, %d images compared bit for bit, %d failures\n",
            ranks, count, plans, bitwise, failures);
    xd_comm_close(&world);
    return failures || !plans ? 1 : 0;
}
