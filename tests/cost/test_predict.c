/* test_predict.c - what is predicted of a plan against what ranks do: bytes sent and memory,
 * exactly.
 *
 *     test_predict MODEL... [int8 MODEL...] [WxH MODEL...]
 *
 * On as many ranks as this was started with: every factorization over the six axes of random
 * weights, with patches, displaced patches, VAE rows, shared text encoders, warm-ups and several
 * images where they apply, and of models with a folder latent_upsampler two passes. The bytes of a
 * request are those that MPI was given (xd_result_sent), the memory that of xd_memory_plan on each
 * rank. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/par.h"
#include "engine/engine.h"
#include "families/recipe.h"
#include "pipeline/image_roles.h"
#include "pipeline/job.h"
#include "pipeline/loop.h"
#include "predict/predict.h"

static const char *model_dir, *kept; /* kept: weights_dtype */
static xd_comm    *world;
static int         rank, ranks, plans, once, failures, size[2] = { 56, 40 };

/* Latent upsampler of the current model; `component` NULL: none. */
static xd_component_file upsampler;

static int whole; /* of the current model: only passes and images are split over ranks */

static void fail(const char *plan, const char *why)
{
    failures++;
    printf("not ok: %d ranks, %s, %s: %s\n", ranks, model_dir, plan, why);
    fflush(stdout);
}

static void request(xd_request *r, int variant)
{
    static const char *const prompts[] = { "a small cyan square", "a ring",
                                           "two white stars on black" };
    xd_request_init(r);
    r->prompts = prompts;
    r->nprompts = variant % 2 ? 3 : 1;
    r->negative_prompt = variant % 3 == 1 ? "red" : NULL;
    r->width = size[0], r->height = size[1];
    r->output.no_resolution_binning = 1;
    r->output.latents_only = variant % 5 == 3;
    r->output.enable_tiling = variant % 4 == 2;
    r->savings.attention = variant % 3 == 2 ? "int8" : NULL;
    r->num_inference_steps = 1 + variant % 4;
    r->texts.max_sequence_length = 20;
}

/* A grey image of the request's size. */
static const xd_image *grey_image(const xd_request *r)
{
    static uint8_t  grey[1 << 16];
    static xd_image image;
    xd_image_init(&image);
    memset(grey, 128, sizeof grey);
    image.data = grey, image.channels = 1;
    image.width = r->width, image.height = r->height;
    return &image;
}

/* A grey video of the request's size, of 9 frames. */
static const xd_image *grey_film(const xd_request *r)
{
    static uint8_t  grey[9 * 96 * 64];
    static xd_image film;
    xd_image_init(&film);
    film.data = grey, film.channels = 1, film.frames = 9;
    film.width = r->width, film.height = r->height;
    return &film;
}

/* Some videos of models that need no image have given frames: the first one, or two. */
static void give_frames(const xd_role_row *role, xd_request *r)
{
    static const xd_image *more[1];
    r->num_frames = 9;
    r->images.image_pixels = plans % 3 ? grey_image(r) : NULL;
    if (!role->conditions || plans % 3 != 2)
        return;
    more[0] = r->images.image_pixels;
    r->images.nmore_images = 1, r->images.more_pixels = more;
    r->images.frame_index = "0,8", r->images.condition_strength = "1,0.7";
}

/* Returns 1 if the model reads reference images: no text encoder lacks its vision tower. */
static int reads_references(const xd_model *m)
{
    for (int k = 0; k < m->recipe->ntext; k++)
        if (m->has_text[k] && m->recipe->text[k].processor && !m->text[k].text->tower)
            return 0;
    return m->recipe->references > 0;
}

/* A video that begins with an image is asked for with that of its golden request. Images to edit
 * and to control and some to inpaint have the request's size, which predictions assume. */
static void give_images(const xd_engine *g, xd_request *r)
{
    static char        path[2][1024];
    const xd_role_row *role = xd_role_of_model(&g->ctx.model, 0);
    int                inpaints = xd_recipe_inpaints(g->ctx.model.recipe) && plans % 5 == 2;
    int                controls = role->reads_control;
    if (reads_references(&g->ctx.model) || inpaints || controls) {
        r->images.control_pixels = controls ? grey_image(r) : NULL;
        r->images.image_pixels = inpaints || !controls ? grey_image(r) : NULL;
        r->images.mask_pixels = inpaints ? grey_image(r) : NULL;
        r->images.strength = inpaints ? 1 : 0;
    }
    if (role->reads_control_video)
        r->num_frames = 5;
    if (role->drives) { /* two segments */
        r->driving.pose_frames = r->driving.face_frames = grey_film(r);
        r->num_frames = 0, r->driving.segment_frame_length = 5;
    }
    if ((role->holds && !g->ctx.model.recipe->needs_image) || role->conditions)
        give_frames(role, r);
    for (int i = 0; i < 2; i++)
        snprintf(path[i], sizeof path[i], "%s/%s.png", model_dir, i ? "last" : "image");
    int video = g->ctx.model.recipe->fps > 0 && g->ctx.model.recipe->needs_image;
    if (video)
        r->images.image = path[0], r->num_frames = role->drives ? 9 : 5;
    if (video && xd_model_images(&g->ctx.model, 1) > 1)
        r->images.last_image = path[1];
}

/* Some videos whose latents are enlarged have a second pass. */
static void enlarge(xd_request *r)
{
    if (!upsampler.component)
        return;
    r->upsampling.adain_factor = plans % 2;
    if (plans % 4 < 3)
        r->upsampling.denoise_strength = 0.7, r->upsampling.num_inference_steps = 2 + plans % 2;
}

/* Adds a step to requests whose only step the scheduler or the strength of an image refuses. */
static void add_step(const xd_engine *g, xd_request *r)
{
    double      terminal = 0;
    const char *class = xd_json_text(xd_json_get(g->ctx.model.sched, "_class_name"));
    int         counts_last = class && strcmp(class, "MiniMaxH3Scheduler") == 0;
    xd_json_number(xd_json_get(g->ctx.model.sched, "shift_terminal"), &terminal);
    if (r->num_inference_steps == 1 && (terminal > 0 || r->images.mask_pixels || counts_last))
        r->num_inference_steps = 2;
}

/* Makes some steps have other numbers of passes than the rest. */
static void vary_passes(const xd_engine *g, xd_request *r)
{
    const xd_recipe *p = g->ctx.model.recipe;
    if (p->skips_layers && !xd_role_of_model(&g->ctx.model, 0)->reads_control && plans % 3)
        r->guidance.skip_guidance_layers = "0", r->guidance.skip_layer_guidance_stop = 0.6;
    if (!p->distilled && p->guidance == 1)
        r->guidance_scale = 4, r->negative_prompt = "red";
    if (p->guides_from_prompt)
        r->guidance_scale = 4, r->guidance.cfg_truncation = 0.5;
    if (xd_model_dits(&g->ctx.model) > 1 && plans % 3)
        r->guidance.guidance_scale_2 = 1;
}

/* Memory of this rank as the engine plans it. */
static xd_status plan_memory(xd_engine *g, const xd_request *r, xd_need *n, xd_err *e)
{
    xd_job     j = { 0 };
    xd_prompts w = { 0 };
    xd_loop    l = { .j = &j, .w = &w };
    xd_status  s = xd_job_open(&j, &g->ctx, r, e);
    j.rank0_images = xd_job_images(r);
    s = xd_loop_accept(&l, &(xd_memory_limits){ 0 }, s, e);
    *n = l.need;
    xd_prompts_close(&w, &g->ctx);
    xd_job_close(&j);
    return s;
}

/* The needs of all ranks; only rank 0's are looked at. */
static void gather(xd_need *mine, xd_need *all)
{
    int64_t rows[64];
    for (int i = 0; i < ranks; i++)
        rows[i] = 1;
    xd_req q = world->ops->gather(world, xd_view2(all, XD_U8, ranks, (int64_t)sizeof *all), rows,
                                  xd_view2(mine, XD_U8, 1, (int64_t)sizeof *mine));
    world->ops->wait(world, &q, 1);
}

static void compare(const char *name, const xd_prediction *f, const xd_need *need, int64_t sent)
{
    char why[512];
    if ((int64_t)f->sent != sent) {
        snprintf(why, sizeof why, "%.0f bytes are predicted and %lld were sent", f->sent,
                 (long long)sent);
        fail(name, why);
    }
    for (int r = 0; r < ranks; r++) {
        const xd_need *a = &f->rank[r].need, *b = &need[r];
        if (memcmp(a, b, sizeof *a) == 0)
            continue;
        snprintf(why, sizeof why,
                 "rank %d: text %zu + %zu, transformer %zu + %zu, vae %zu + %zu, images %zu, peak "
                 "%zu are predicted; planned are %zu + %zu, %zu + %zu, %zu + %zu, %zu, %zu",
                 r, a->text, a->text_tmp, a->dit, a->dit_tmp, a->vae, a->vae_tmp, a->images,
                 a->peak, b->text, b->text_tmp, b->dit, b->dit_tmp, b->vae, b->vae_tmp, b->images,
                 b->peak);
        fail(name, why);
    }
}

static void predict(const xd_parallel *p, const xd_request *r, const char *name,
                    const xd_need *need, int64_t sent)
{
    xd_open_args  a = { .size = sizeof a,
                        .model = model_dir,
                        .dtype = "f32",
                        .weights_dtype = kept,
                        .files = &upsampler,
                        .nfiles = upsampler.component != NULL,
                        .threads = 1,
                        .once = once };
    xd_engine    *g = NULL;
    xd_machine    m;
    xd_prediction f = { 0 };
    xd_err        e = { 0 };
    xd_status     s = xd_machine_read(&m, "8xH100", &e);
    if (s == XD_OK)
        s = xd_open_with(&g, &a, XD_FOR_BENCH | XD_ALONE, &e);
    if (s == XD_OK)
        s = xd_predict(&f, &g->ctx, r, p, ranks, &m, &e);
    if (s == XD_OK)
        compare(name, &f, need, sent);
    else
        fail(name, e.msg);
    xd_prediction_free(&f);
    xd_close(&g);
}

/* Ranks with all blocks and whole matrices hold one copy of the second transformer together. */
static void check_shared(const xd_engine *g, const char *name)
{
    const xd_weights *w = g->ctx.model.dit2.w;
    const int        *n = g->ctx.plan.deg.n;
    if (w && w->store && !w->shared && ranks > 1 && n[XD_TENSOR] * n[XD_PIPE] == 1)
        fail(name, "the second transformer is not shared");
}

/* 1: every rank computes the whole network, and all texts have one length. */
static int is_whole(void)
{
    xd_open_args a = { .size = sizeof a,
                       .model = model_dir,
                       .dtype = "f32",
                       .threads = 1,
                       .parallel = { .data_parallel_degree = ranks } };
    xd_engine   *g = NULL;
    xd_err       e = { 0 };
    int          is = xd_open_with(&g, &a, 0, &e) == XD_OK && g->ctx.model.dit_info.whole;
    xd_close(&g);
    return is;
}

static void check(const xd_parallel *p)
{
    xd_open_args a = { .size = sizeof a,
                       .model = model_dir,
                       .dtype = "f32",
                       .weights_dtype = kept,
                       .files = &upsampler,
                       .nfiles = upsampler.component != NULL,
                       .threads = 1,
                       .parallel = *p,
                       .once = once = plans / 2 % 2 };
    xd_request   r;
    xd_engine   *g = NULL;
    xd_result   *res = NULL;
    xd_need      mine = { 0 }, need[64];
    xd_err       e = { 0 };
    char         name[160] = "?";
    request(&r, plans);
    xd_status s = xd_open_with(&g, &a, 0, &e);
    if (s == XD_OK && g->ctx.model.dit_info.text_rows) /* 16 pixels a token, and text of one */
                                                       /* length */
        r.width = 112, r.height = 80, r.texts.max_sequence_length = 0;
    if (s == XD_OK && g->ctx.model.dit_info.whole)
        r.texts.max_sequence_length = 0;
    if (s == XD_OK) {
        if (p->use_cfg_parallel)
            r.negative_prompt = "red",
            r.guidance.true_cfg_scale = g->ctx.model.recipe->distilled ? 3 : 0;
        give_images(g, &r);
        enlarge(&r);
        add_step(g, &r);
        vary_passes(g, &r);
        snprintf(name, sizeof name, "%.127s, variant %d", g->ctx.plan.text, plans);
        s = plan_memory(g, &r, &mine, &e);
    }
    if (s == XD_OK)
        s = xd_generate(g, &r, &res, &e);
    if (s == XD_OK)
        check_shared(g, name);
    plans++;
    gather(&mine, need);
    int64_t sent = res && rank == 0 ? xd_result_sent(res) : 0;
    xd_result_free(&res);
    xd_close(&g);
    if (s != XD_OK && rank == 0)
        fail(name, e.msg);
    else if (rank == 0)
        predict(p, &r, name, need, sent);
}

/* All ways of the remaining ranks over the axes from `axis` on. */
static void factor(xd_parallel p, int axis, int left)
{
    int *const at[] = {
        &p.tensor_parallel_degree,     &p.ulysses_degree,   &p.ring_degree,
        &p.pipefusion_parallel_degree, &p.use_cfg_parallel, &p.data_parallel_degree
    };
    if (axis == XD_NAXES) {
        const int parts = p.tensor_parallel_degree * p.ulysses_degree * p.ring_degree *
                          p.pipefusion_parallel_degree;
        if (left != 1 || (whole && parts > 1))
            return;
        p.use_parallel_vae = plans % 3 == 1;
        p.warmup_steps = plans % 2 + 1;
        p.text_tensor_parallel_degree = plans % 4 == 3 ? ranks : 0;
        check(&p);
        if (p.pipefusion_parallel_degree > 1 || p.ring_degree > 1) {
            p.use_parallel_vae = !p.use_parallel_vae;
            p.num_pipeline_patch =
                p.pipefusion_parallel_degree > 1 ? p.pipefusion_parallel_degree + 1 : 0;
            p.use_displaced_patches = p.pipefusion_parallel_degree == 1;
            check(&p);
        }
        return;
    }
    for (int v = 1; v <= left; v++) {
        if (left % v || (axis == XD_CFG && v > 2))
            continue;
        *at[axis] = axis == XD_CFG ? v == 2 : v;
        factor(p, axis + 1, left / v);
    }
}

int main(int argc, char **argv)
{
    xd_err e = { 0 };
    xd_par_set(1);
    if (xd_comm_world(&world, xd_comm_launched() ? "mpi" : "self", &e) != XD_OK) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    rank = world->rank, ranks = world->size;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "int8") == 0) { /* from here on */
            kept = argv[i];
            continue;
        }
        if (sscanf(argv[i], "%dx%d", &size[0], &size[1]) == 2)
            continue;
        char path[1024];
        model_dir = argv[i];
        snprintf(path, sizeof path, "%s/latent_upsampler", model_dir);
        upsampler = (xd_component_file){ xd_file_is_dir(path) ? "latent_upsampler" : NULL, path };
        whole = is_whole();
        factor((xd_parallel){ 0 }, 0, ranks);
    }
    if (rank == 0)
        printf("# %d ranks: %d plans, %d failures\n", ranks, plans, failures);
    xd_comm_close(&world);
    return failures > 0;
}
