/* test_module.c - a pass of a transformer by itself is the pass inside the engine.
 *
 *     test_module DIR FULL
 *
 * DIR is tests/golden, FULL the same with the weights that fill makes. Models of rectified flow are
 * run for one step, from the level 1 to 0, without guidance: latents become noise - prediction. The
 * prediction of the same transformer by xd_module_pass, with the engine's embeddings and noise, is
 * within 1e-6 of the largest number of it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "golden.h"
#include "io/safetensors.h"
#include "xdit/module.h"

static const double tolerance = 1e-6;

static const struct {
    const char *name;
    double      guidance;
    int         guided;
    int         registers; /* rows at the end that the transformer adds itself */
    int         rises; /* 1: the level goes from 0 to 1, and latents become noise + prediction */
} cases[] = {
    { .name = "flux", .guidance = 3.5, .guided = 1 },
    { .name = "sd3", .guidance = 1 },
    { .name = "chroma", .guidance = 1 },
    { .name = "zimage" },
    { .name = "flux2-klein", .guidance = 1 },
    { .name = "qwen", .guidance = 1 },
    { .name = "auraflow", .guidance = 1, .registers = 8 },
    { .name = "lumina2", .guidance = 1 },
    { .name = "krea2" },
    { .name = "qwen21", .guidance = 1 },
    { .name = "mochi", .guidance = 1, .rises = 1 },
};

enum { TEXT, POOLED, NOISE, LATENTS, NSEEN };
static const char *const names[NSEEN] = { "prompt_embeds", "pooled_prompt_embeds", "noise",
                                          "latents" };

typedef struct seen { ref of[NSEEN]; } seen; /* the first tensor of each name */

static void keep_tensor(void *cookie, const char *name, int step, int nd, const int64_t *d,
                        const float *data)
{
    seen *s = cookie;
    (void)step;
    for (int k = 0; k < NSEEN; k++) {
        ref *r = &s->of[k];
        if (strcmp(name, names[k]) != 0 || r->v)
            continue;
        r->nd = nd;
        r->n = 1;
        for (int i = 0; i < nd; i++)
            r->n *= r->d[i] = d[i];
        r->v = malloc((size_t)r->n * sizeof *r->v + 1);
        memcpy(r->v, data, (size_t)r->n * sizeof *r->v);
    }
}

static void generate(const char *model, const xd_json *j, double guidance, seen *s)
{
    const char  *prompt = "a large red circle on a blue background";
    xd_open_args a;
    xd_request   r;
    xd_engine   *g = NULL;
    xd_result   *out = NULL;
    xd_err       e = { 0 };
    xd_open_args_init(&a);
    a.model = model;
    a.dtype = "f32";
    xd_request_init(&r);
    r.prompts = &prompt;
    r.nprompts = 1;
    r.num_inference_steps = 1;
    r.guidance_scale = guidance;
    r.width = (int64_t)js_num(j, "width");
    r.height = (int64_t)js_num(j, "height");
    r.schedule.shift_terminal = 0;
    r.output.no_resolution_binning = 1;
    r.output.latents_only = 1;
    r.seed = 5;
    r.callbacks.on_tensor = keep_tensor;
    r.callbacks.cookie = s;
    must(xd_open(&g, &a, &e), &e, model);
    must(xd_generate(g, &r, &out, &e), &e, model);
    xd_result_free(&out);
    xd_close(&g);
}

/* Rows before those of zeros at the end, which some models fill with rows of their own. */
static int64_t real_rows(const ref *r)
{
    int64_t n = r->n;
    while (n && r->v[n - 1] == 0)
        n--;
    return (n + r->d[1] - 1) / r->d[1];
}

static xd_array array_of(const ref *r)
{
    xd_array a = { .dtype = "f32", .data = r->v, .nd = r->nd };
    memcpy(a.d, r->d, sizeof a.d);
    return a;
}

/* Opens the transformer of a model with the weights of its files, which stay mapped. */
static xd_module *open_transformer(const char *model, xd_st **files)
{
    char           path[1100], *config;
    size_t         len;
    xd_err         e = { 0 };
    xd_module_args a;
    xd_module     *m = NULL;
    snprintf(path, sizeof path, "%s/transformer/config.json", model);
    must(xd_file_read(path, 1 << 20, &config, &len, &e), &e, path);
    snprintf(path, sizeof path, "%s/transformer", model);
    must(xd_st_open(files, path, "diffusion_pytorch_model", &e), &e, path);
    int64_t   n = xd_st_count(*files);
    xd_array *v = calloc((size_t)n, sizeof *v);
    for (int64_t i = 0; i < n; i++) {
        xd_tensor t;
        must(xd_st_get(*files, i, &t, &e), &e, path);
        v[i] = (xd_array){ xd_st_name(*files, i), xd_dtype_name(t.type), t.p, t.nd, { 0 } };
        memcpy(v[i].d, t.d, sizeof v[i].d);
    }
    xd_module_args_init(&a);
    a.config = config;
    a.weights = v;
    a.nweights = n;
    a.dtype = "f32";
    a.in_place = 1;
    must(xd_module_open(&m, &a, &e), &e, path);
    free(v);
    free(config);
    return m;
}

static void run_case(const char *dir, const char *full, int k)
{
    char    path[1024], model[1024];
    seen    s = { 0 };
    xd_st  *files = NULL;
    xd_pass p;
    xd_err  e = { 0 };
    snprintf(path, sizeof path, "%s/%s/golden.json", dir, cases[k].name);
    snprintf(model, sizeof model, "%s/%s", full, cases[k].name);
    xd_json *j = js_open(path);
    generate(model, j, cases[k].guidance, &s);
    xd_module *m = open_transformer(model, &files);
    xd_pass_init(&p);
    p.latents = array_of(&s.of[NOISE]);
    p.text = array_of(&s.of[TEXT]);
    p.text.d[0] -= cases[k].registers;
    p.text_real[0] = real_rows(&s.of[TEXT]);
    if (s.of[POOLED].v)
        p.pooled = array_of(&s.of[POOLED]);
    p.timestep = cases[k].rises ? 0 : 1000;
    p.guidance = cases[k].guided ? cases[k].guidance : (double)NAN;
    ref   *noise = &s.of[NOISE], *want = &s.of[LATENTS];
    float *out = calloc((size_t)noise->n, sizeof *out);
    must(xd_module_pass(m, &p, out, &e), &e, cases[k].name);
    for (int64_t i = 0; i < noise->n; i++) {
        out[i] = noise->v[i] + (cases[k].rises ? out[i] : -out[i]);
        want->most = fmaxf(want->most, fabsf(want->v[i]));
    }
    double apart = ref_apart(out, noise->nd, noise->d, want);
    tap(apart <= tolerance, "%s: latents of one step are %.2g apart", cases[k].name, apart);
    free(out);
    for (int i = 0; i < NSEEN; i++)
        ref_free(&s.of[i]);
    xd_module_close(&m);
    xd_st_close(&files);
    xd_json_free(&j);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: test_module DIR FULL\n");
        return 2;
    }
    if (tap_skip_isa())
        return 0;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        run_case(argv[1], argv[2], (int)k);
    return tap_end();
}
