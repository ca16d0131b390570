/* test_lora_ranks.c - LoRA files under plans of several ranks, against diffusers' fused weights.
 *
 *     mpirun -n R test_lora_ranks DIR
 *
 * DIR is tests/golden: its cases flux-lora, flux-control-lora, sd35-lora, flux-dora, flux2-lora,
 * zimage-lora and wan-lora.
 * Tensor and text tensor parallelism cut what the files hold, Ulysses shares packed weights
 * between ranks, PipeFusion (all steps warm) gives every rank some blocks. f32 latents within
 * 2e-4 of the largest value of diffusers'.
 * Ranks with other files or scales are refused on all of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden.h"
#include "base/par.h"
#include "engine/engine.h"
#include "pipeline/result.h"

enum { LORAS = 2 };
static const double MOST = 2e-4;

static int rank, ranks, plans, failures;

typedef struct wanted { /* one case */
    const char *name;
    xd_json    *js;
    ref         last; /* latents of the last step */
    int         steps;
    char        model[1024], path[LORAS][1024], control[1024];
    xd_lora     lora[LORAS];
} wanted;

static void fail(const wanted *w, const char *what, const char *why)
{
    failures++;
    printf("not ok: %d ranks, %s, %s: %s\n", ranks, w->name, what, why);
    fflush(stdout);
}

static void open_case(wanted *w, const char *dir, const char *name)
{
    char   path[1024];
    xd_err e = { 0 };
    xd_st *st;
    *w = (wanted){ .name = name };
    snprintf(path, sizeof path, "%s/%s/golden.json", dir, name);
    w->js = js_open(path);
    w->steps = (int)js_num(w->js, "num_inference_steps");
    snprintf(w->model, sizeof w->model, "%s/%s/%s", dir, name, js_text(w->js, "model"));
    for (int i = 0; i < LORAS; i++) {
        const xd_json *l = xd_json_at(js_list(w->js, "loras"), i);
        snprintf(w->path[i], sizeof w->path[i], "%s/%s/%s", dir, name, js_text(l, "path"));
        w->lora[i] = (xd_lora){ w->path[i], js_num(l, "scale") };
    }
    snprintf(w->control, sizeof w->control, "%s/%s/control.png", dir, name);
    snprintf(path, sizeof path, "%s/%s/golden.safetensors", dir, name);
    must(xd_st_open(&st, path, "golden", &e), &e, path);
    w->last = ref_get(st, "latents.0.%d", w->steps - 1);
    xd_st_close(&st);
}

static xd_status generate(const wanted *w, const xd_parallel *p, const xd_lora *lora, xd_engine **g,
                          xd_result **out, xd_err *e)
{
    const char  *prompt = xd_json_text(xd_json_at(js_list(w->js, "prompts"), 0));
    xd_open_args a = { .size = sizeof a,
                       .model = w->model,
                       .dtype = "f32",
                       .device = "cpu",
                       .threads = 1,
                       .parallel = *p,
                       .loras = lora,
                       .nloras = LORAS };
    xd_request   q;
    xd_request_init(&q);
    q.num_frames = (int)js_maybe(w->js, "num_frames");
    q.prompts = &prompt;
    q.nprompts = 1;
    q.width = (int64_t)js_num(w->js, "width");
    q.height = (int64_t)js_num(w->js, "height");
    q.num_inference_steps = w->steps;
    q.guidance_scale = js_num(w->js, "guidance_scale");
    q.texts.max_sequence_length = (int)js_num(w->js, "max_sequence_length");
    q.images.control_image = js_maybe(w->js, "control") > 0 ? w->control : NULL;
    q.seed = (int64_t)js_num(w->js, "seed");
    q.noise.rng = "torch";
    q.output.no_resolution_binning = 1;
    q.output.latents_only = 1;
    xd_status s = xd_open(g, &a, e);
    return s == XD_OK ? xd_generate(*g, &q, out, e) : s;
}

static void check(const wanted *w, const char *what, xd_parallel p)
{
    char       why[128];
    int64_t    n = 0;
    xd_err     e = { 0 };
    xd_engine *g = NULL;
    xd_result *res = NULL;
    xd_status  s = generate(w, &p, w->lora, &g, &res, &e);
    plans++;
    if (s != XD_OK) {
        fail(w, what, e.msg);
    } else if (rank == 0) {
        const float *lat = xd_result_lat(res, 0, &n);
        double       d = n == w->last.n ? ref_apart(lat, w->last.nd, w->last.d, &w->last) : 1;
        snprintf(why, sizeof why, "%.2g of the largest value from diffusers'", d);
        if (!(d <= MOST))
            fail(w, what, why);
        else
            printf("ok: %d ranks, %s, %s: %s\n", ranks, w->name, what, why);
    }
    xd_result_free(&res);
    xd_close(&g);
}

/* The last rank has another scale. */
static void check_unlike(const wanted *w)
{
    xd_lora     l[LORAS] = { w->lora[0], w->lora[1] };
    xd_parallel p = { .tensor_parallel_degree = ranks };
    xd_err      e = { 0 };
    xd_engine  *g = NULL;
    xd_result  *res = NULL;
    l[1].scale += rank == ranks - 1;
    plans++;
    xd_status s = generate(w, &p, l, &g, &res, &e);
    if (s != XD_EINVAL || !strstr(e.msg, "LoRA"))
        fail(w, "ranks with other scales", s == XD_OK ? "they are not refused" : e.msg);
    xd_result_free(&res);
    xd_close(&g);
}

static void check_case(const char *dir, const char *name)
{
    wanted w;
    open_case(&w, dir, name);
    check(&w, "tensor", (xd_parallel){ .tensor_parallel_degree = ranks });
    check(&w, "ulysses", (xd_parallel){ .ulysses_degree = ranks });
    check(&w, "pipefusion",
          (xd_parallel){ .pipefusion_parallel_degree = ranks, .warmup_steps = w.steps });
    check(&w, "text tensor",
          (xd_parallel){ .ulysses_degree = ranks, .text_tensor_parallel_degree = ranks });
    if (ranks > 1)
        check_unlike(&w);
    ref_free(&w.last);
    xd_json_free(&w.js);
}

int main(int argc, char **argv)
{
    xd_err   e = { 0 };
    xd_comm *world = NULL;
    if (argc != 2) {
        fprintf(stderr, "usage: %s DIR\n", argv[0]);
        return 2;
    }
    xd_par_set(1);
    must(xd_comm_world(&world, xd_comm_launched() ? "mpi" : "self", &e), &e, "the ranks");
    rank = world->rank;
    ranks = world->size;
    check_case(argv[1], "flux-lora");
    check_case(argv[1], "flux-control-lora");
    check_case(argv[1], "sd35-lora");
    check_case(argv[1], "flux-dora");
    check_case(argv[1], "flux2-lora");
    check_case(argv[1], "zimage-lora");
    check_case(argv[1], "lumina2-lora");
    check_case(argv[1], "krea2-lora");
    check_case(argv[1], "qwen21-lora");
    check_case(argv[1], "ltx-lora");
    check_case(argv[1], "mochi-lora");
    check_case(argv[1], "hunyuanvideo-lora");
    check_case(argv[1], "wan-lora");
    if (rank == 0)
        printf("%d ranks: %d plans, %d failures\n", ranks, plans, failures);
    xd_comm_close(&world);
    return failures > 0;
}
