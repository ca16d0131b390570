/* test_stale.c - PipeFusion and DistriFusion against diffusers with stale keys and values.
 *
 *     test_stale DIR
 *
 * DIR is tests/golden: alpha (PixArt), flux, flux2-klein and zimage are the models and the
 * requests, the files of stale the latents that tools/golden/cases/stale.py computes with
 * diffusers. Run under mpirun on 1 to 3 ranks: on one
 * rank patches on a single stage, on more of them as many stages and ring members as ranks, on two
 * also Ulysses and cfg beneath patches. f32, within 2e-4 of the largest value; the exact latents
 * must be farther away than that, so that a method that is not stale fails. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden.h"
#include "base/par.h"
#include "engine/engine.h"
#include "pipeline/result.h"

static const double MOST = 2e-4, STALE = 1e-3;

static const char    *dir, *name_of_model;
static const xd_json *req;
static xd_st         *st, *exact;
static int            rank, ranks, plans, failures, flows; /* flows: the model's text does */

static void fail(const char *what, const char *why)
{
    failures++;
    printf("not ok: %d ranks, %s: %s\n", ranks, what, why);
    fflush(stdout);
}

static xd_status generate(const xd_parallel *par, xd_engine **g, xd_result **out, xd_err *e)
{
    char         model[1024];
    const char  *prompt = xd_json_text(xd_json_at(js_list(req, "prompts"), 0));
    xd_open_args a = { .size = sizeof a,
                       .model = model,
                       .dtype = "f32",
                       .device = "cpu",
                       .threads = 1,
                       .parallel = *par };
    xd_request   q;
    snprintf(model, sizeof model, "%s/%s", dir, name_of_model);
    xd_request_init(&q);
    q.prompts = &prompt;
    q.nprompts = 1;
    q.negative_prompt = js_text(req, "negative_prompt");
    q.width = (int64_t)js_num(req, "width");
    q.height = (int64_t)js_num(req, "height");
    q.num_inference_steps = (int)js_num(req, "num_inference_steps");
    q.guidance_scale = js_num(req, "guidance_scale");
    q.seed = (int64_t)js_num(req, "seed");
    q.texts.max_sequence_length = flows ? (int)js_num(req, "max_sequence_length") : 0;
    q.noise.rng = "torch";
    q.output.no_resolution_binning = 1;
    q.output.latents_only = 1;
    xd_status s = xd_open(g, &a, e);
    return s == XD_OK ? xd_generate(*g, &q, out, e) : s;
}

/* Rank 0: the latents against the reference of this name, and the reference against exact ones. */
static void compare(const xd_result *res, const char *name, const char *what)
{
    char         why[128];
    int64_t      n = 0;
    const float *lat = xd_result_lat(res, 0, &n);
    ref          want = ref_get(st, "%s", name);
    int          steps = (int)js_num(req, "num_inference_steps");
    ref          plain = ref_get(exact, "latents.0.%d", steps - 1);
    if (!want.v || !plain.v || n != want.n || plain.n != want.n) {
        fail(what, "there is no such reference, or it has another size");
    } else {
        double got = ref_apart(lat, want.nd, want.d, &want);
        double stale = ref_apart(plain.v, want.nd, want.d, &want);
        snprintf(why, sizeof why,
                 "%.2g of the largest value from the reference, which is %.2g "
                 "from exact latents",
                 got, stale);
        if (!(got <= MOST) || !(stale >= STALE))
            fail(what, why);
        else
            printf("ok: %d ranks, %s: %s\n", ranks, what, why);
    }
    ref_free(&want);
    ref_free(&plain);
}

static void check(const xd_parallel *p, const char *name)
{
    char       what[128];
    xd_err     e = { 0 };
    xd_engine *g = NULL;
    xd_result *res = NULL;
    snprintf(what, sizeof what, "%s %s, pipefusion %d ulysses %d ring %d cfg %d", name_of_model,
             name, p->pipefusion_parallel_degree, p->ulysses_degree, p->ring_degree,
             p->use_cfg_parallel + 1);
    plans++;
    xd_status s = generate(p, &g, &res, &e);
    if (rank == 0 && s != XD_OK)
        fail(what, e.msg);
    else if (rank == 0)
        compare(res, name, what);
    xd_result_free(&res);
    xd_close(&g);
}

/* The patches of a reference on all ranks as stages, and on two as something else, too. */
static void check_patches(xd_parallel p, const char *name)
{
    p.pipefusion_parallel_degree = ranks;
    check(&p, name);
    if (ranks != 2)
        return;
    p.pipefusion_parallel_degree = 1;
    p.ulysses_degree = 2;
    check(&p, name);
    p.ulysses_degree = 1;
    if (flows)
        p.ring_degree = 2;
    else
        p.use_cfg_parallel = 1;
    check(&p, name);
}

static void check_all(int warmup)
{
    char name[64];
    for (int m = 3; m <= 4; m++)
        for (int every = 0; every <= flows; every++) {
            xd_parallel p = { .num_pipeline_patch = m,
                              .warmup_steps = warmup,
                              .patches_without_stages = 1,
                              .pipefusion_text = every ? "every" : "first" };
            snprintf(name, sizeof name, "%s.%d.%d", every ? "every" : "pipefusion", m, warmup);
            check_patches(p, name);
        }
    if (ranks > 1) {
        xd_parallel p = { .ring_degree = ranks,
                          .use_displaced_patches = 1,
                          .num_pipeline_patch = 1,
                          .warmup_steps = warmup };
        snprintf(name, sizeof name, "displaced.%d.%d", ranks, warmup);
        check(&p, name);
    }
}

/* All references of a model. */
static void one_model(const char *model, const char *file)
{
    char   path[1024];
    xd_err e = { 0 };
    name_of_model = model;
    flows = strcmp(model, "alpha") != 0;
    snprintf(path, sizeof path, "%s/%s/golden.json", dir, model);
    xd_json *j = js_open(path);
    req = j;
    snprintf(path, sizeof path, "%s/stale/%s", dir, file);
    must(xd_st_open(&st, path, "golden", &e), &e, path);
    snprintf(path, sizeof path, "%s/%s/golden.safetensors", dir, model);
    must(xd_st_open(&exact, path, "golden", &e), &e, path);
    for (int w = 1; w <= 2; w++)
        check_all(w);
    xd_st_close(&st);
    xd_st_close(&exact);
    xd_json_free(&j);
}

int main(int argc, char **argv)
{
    xd_err   e = { 0 };
    xd_comm *world = NULL;
    if (argc != 2) {
        fprintf(stderr, "usage: %s DIR\n", argv[0]);
        return 2;
    }
    dir = argv[1];
    xd_par_set(1);
    must(xd_comm_world(&world, xd_comm_launched() ? "mpi" : "self", &e), &e, "the ranks");
    rank = world->rank;
    ranks = world->size;
    one_model("alpha", "golden.safetensors");
    one_model("flux", "flux.safetensors");
    one_model("flux2-klein", "flux2.safetensors");
    one_model("zimage", "zimage.safetensors");
    if (rank == 0)
        printf("%d ranks: %d plans, %d failures\n", ranks, plans, failures);
    xd_comm_close(&world);
    return failures || !plans;
}
