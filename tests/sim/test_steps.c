/* test_steps.c - what the steps of a request ask of the driver, on the simulated GPU
 *
 *     test_steps FULL [graphs] [MODEL ...]
 *
 * FULL is tests/golden with its weights; with "graphs" graphs alone are tested, of all models.
 * Models that are named are the only ones. A trace is written to the current directory.
 *
 * From the second step on, a step of one rank neither waits for the GPU nor takes memory, and
 * copies no more to it than what the time changes. A step whose passes were recorded gives the
 * latents of one whose ops are launched, to the bit. Each op of a trace has its time on the GPU. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/counts.h"
#include "xdit/xdit.h"

enum { STEPS = 6 };

static const struct model {
    const char *dir, *scheduler;
    int         width, height, frames, text;
    double      guidance;
    long        waits, uploads; /* of a step */
    int         passes;
    int         once;         /* 1: graphs are tested in the run of graphs alone */
    int64_t     area;         /* pixels, where the image's ratio gives the size */
    const char *image, *mask; /* to edit, or to inpaint, below tests/golden */
    const char *control;      /* what the network reads, there */
    double      strength;     /* of an image that is not read by the network */
} models[] = {
    /* Two passes: the time, the size and the ratio. */
    { "micro", NULL, 72, 40, 0, 0, 3.5, 0, 6, .passes = 2 },
    /* Nothing where modulations are computed for all steps in the first one; else the time. */
    { "flux", NULL, 32, 64, 0, 10, 3.5, 0, 0, .passes = 1 },
    { "sd3", NULL, 40, 40, 0, 8, 4, 0, 0, .passes = 2 },
    { "cog5b", "cogvideox-ddim", 40, 56, 1, 10, 1, 0, 0, .passes = 1 },
    { "cog2b", "cogvideox-ddim", 40, 56, 1, 10, 1, 0, 0, .passes = 1 },
    /* The noise of its sampler. */
    { "hunyuan12", NULL, 48, 80, 0, 0, 1, 0, 1, .passes = 1 },
    { "zimage", NULL, 40, 56, 0, 0, 3.5, 0, 2, .passes = 2, .once = 1 },
    { "lumina2", NULL, 40, 56, 0, 0, 1, 0, 1, .passes = 1, .once = 1 },
    { "qwen", NULL, 40, 56, 0, 0, 1, 0, 0, .passes = 1, .once = 1 },
    { "mochi", NULL, 32, 48, 7, 0, 1, 0, 0, .passes = 1, .once = 1 },
    { "wan", NULL, 32, 48, 5, 21, 5, 0, 2, .passes = 2, .once = 1 },
    /* The factors of its control blocks, too. */
    { "vace", NULL, 32, 48, 5, 21, 5, 0, 4, .passes = 2, .once = 1 },
    /* Images to edit. */
    { "kontext", NULL, 48, 64, 0, 9, 2.5, 0, 0, .passes = 1, .once = 1, .area = 3072,
      .image = "kontext/image.png" },
    { "flux2", NULL, 48, 40, 0, 41, 2.5, 0, 2, .passes = 1, .once = 1,
      .image = "flux2-images/image.png" },
    { "flux2-base", NULL, 40, 56, 0, 41, 4, 0, 2, .passes = 2, .once = 1 },
    /* Images to inpaint: the network reads the mask, or the loop keeps what the mask keeps. */
    { "flux-fill", NULL, 40, 56, 0, 9, 30, 0, 0, .passes = 1, .once = 1,
      .image = "flux-fill/image.png", .mask = "flux-fill/mask.png" },
    { "flux-control", NULL, 40, 56, 0, 9, 10, 0, 0, .passes = 1, .once = 1,
      .control = "flux-control/control.png" },
    { "zimage", NULL, 40, 48, 0, 0, 0, 0, 1, .passes = 1, .once = 1,
      .image = "zimage-mask/image.png", .mask = "zimage-mask/mask.png", .strength = 1 },
};
enum { NMODELS = sizeof models / sizeof *models };

static int checks, failed;

static void tap(int ok, const char *what, const char *of)
{
    failed += !ok;
    printf("%sok %d - %s: %s\n", ok ? "" : "not ", ++checks, of, what);
    fflush(stdout);
}

/* ---- a request ---------------------------------------------------------------------------- */

typedef int drain_fn(void);

typedef struct run {
    sim_counts_fn *now;
    drain_fn      *drain; /* called after the first step, or NULL */
    sim_counts     at[STEPS];
    int            steps, listens;
    uint64_t       latents[STEPS]; /* a sum of their bits after each step, where asked for */
} run;

static void step_ended(void *cookie, const xd_progress *p)
{
    run *r = cookie;
    (void)p;
    if (r->drain && r->steps == 0)
        r->drain();
    if (r->steps < STEPS)
        r->now(&r->at[r->steps++]);
}

static void listen(void *cookie, const char *name, int step, int nd, const int64_t *d,
                   const float *v)
{
    run     *r = cookie;
    uint64_t sum = 14695981039346656037u, n = sizeof *v;
    if (strcmp(name, "latents") != 0 || step >= STEPS)
        return;
    for (int i = 0; i < nd; i++)
        n *= (uint64_t)d[i];
    for (uint64_t i = 0; i < n; i++)
        sum = (sum ^ ((const unsigned char *)v)[i]) * 1099511628211u;
    r->latents[step] = sum;
}

static xd_status generate(const struct model *m, const char *full, const char *trace, run *r,
                          xd_err *e)
{
    static const char *const prompt = "a red circle";
    char                     dir[2048], image[2048], mask[2048], control[2048];
    xd_engine               *g = NULL;
    xd_result               *out = NULL;
    xd_open_args             a;
    xd_request               q;
    snprintf(dir, sizeof dir, "%s/%s", full, m->dir);
    xd_open_args_init(&a);
    xd_request_init(&q);
    a.model = dir, a.device = "cuda", a.dtype = "bf16", a.threads = 1, a.trace = trace;
    q.prompts = &prompt, q.nprompts = 1;
    q.width = m->width, q.height = m->height, q.num_frames = m->frames;
    q.texts.max_sequence_length = m->text;
    q.num_inference_steps = STEPS, q.guidance_scale = m->guidance,
    q.schedule.scheduler = m->scheduler;
    snprintf(image, sizeof image, "%s/%s", full, m->image ? m->image : "");
    snprintf(mask, sizeof mask, "%s/%s", full, m->mask ? m->mask : "");
    snprintf(control, sizeof control, "%s/%s", full, m->control ? m->control : "");
    q.images.control_image = m->control ? control : NULL;
    q.images.image = m->image ? image : NULL, q.output.max_area = m->area;
    q.images.no_auto_resize = m->area && !strncmp(m->dir, "kontext", 7);
    q.images.mask_image = m->mask ? mask : NULL, q.images.strength = m->strength;
    q.output.no_resolution_binning = 1, q.output.latents_only = 1;
    q.callbacks.cookie = r, q.callbacks.on_step = step_ended,
    q.callbacks.on_tensor = r->listens ? listen : NULL;
    xd_status s = xd_open(&g, &a, e);
    if (s == XD_OK)
        s = xd_generate(g, &q, &out, e);
    xd_result_free(&out);
    xd_close(&g);
    return s;
}

/* ---- checks ------------------------------------------------------------------------------- */

static void check_counts(const struct model *m, const run *r)
{
    sim_counts most = { 0 };
    for (int i = 1; i < r->steps; i++) {
        const sim_counts *a = &r->at[i - 1], *b = &r->at[i];
        most.waits += b->waits - a->waits;
        most.memory += b->memory - a->memory;
        if (b->uploads - a->uploads > most.uploads)
            most.uploads = b->uploads - a->uploads;
    }
    printf("# %s: %ld waits, %ld calls about memory, %ld copies up a step\n", m->dir, most.waits,
           most.memory, most.uploads);
    tap(r->at[0].queues >= 32, "streams have queues of their own", m->dir);
    tap(most.waits == m->waits, "no step waits for the GPU", m->dir);
    tap(most.memory == 0, "no step takes memory", m->dir);
    tap(most.uploads == m->uploads, "a step copies up what the time changes", m->dir);
}

/* Every op has a slice of the GPU, which takes some time and begins behind the one before it. */
static void check_trace(const char *full)
{
    const char *path = "steps-trace.json";
    char        line[4096];
    double      ts, dur, end = 0;
    long        ops = 0, slices = 0, bad = 0;
    run         r = { .steps = STEPS };
    xd_err      e = { 0 };
    xd_status   s = generate(&models[0], full, path, &r, &e);
    FILE       *f = s == XD_OK ? fopen(path, "r") : NULL;
    while (f && fgets(line, sizeof line, f)) {
        const char *at = strstr(line, "\"ts\":");
        ops += strstr(line, "\"cat\":\"op\"") != NULL;
        if (!strstr(line, "\"cat\":\"device\""))
            continue;
        slices++;
        if (!at || sscanf(at, "\"ts\":%lf,\"dur\":%lf", &ts, &dur) != 2 || dur <= 0 || ts < end)
            bad++;
        else
            end = ts + dur - 1e-3;
    }
    printf("# %ld ops, %ld slices of the GPU, %ld wrong\n", ops, slices, bad);
    tap(f && ops > 100 && slices == ops && !bad, "each op has its time on the GPU", "trace");
    if (f)
        fclose(f);
    remove(path);
}

/* Passes are recorded in the third step, and launched as graphs from then on. */
static void check_graphs(const struct model *m, const char *full, sim_counts_fn *now)
{
    run    r[2] = { { .now = now, .listens = 1 }, { .now = now, .listens = 1 } };
    xd_err e = { 0 };
    int    ok = 1;
    for (int i = 0; i < 2; i++) {
        setenv("XDIT_GRAPHS", i ? "1" : "0", 1);
        ok = ok && generate(m, full, NULL, &r[i], &e) == XD_OK && r[i].steps == STEPS;
    }
    unsetenv("XDIT_GRAPHS");
    tap(ok && r[0].latents[STEPS - 1] != 0 &&
            memcmp(r[0].latents, r[1].latents, sizeof r[0].latents) == 0,
        "graphs give the same latents in every step", m->dir);
    long plain = r[0].at[STEPS - 1].launches - r[0].at[STEPS - 2].launches,
         graphs = r[1].at[STEPS - 1].graphs - r[1].at[0].graphs,
         left = r[1].at[STEPS - 1].launches - r[1].at[STEPS - 2].launches;
    printf("# %s: %ld launches a step, %ld and graphs\n", m->dir, plain, left);
    tap(graphs == m->passes * (STEPS - 2) && r[0].at[STEPS - 1].graphs == r[0].at[0].graphs,
        "a pass is a graph from the third step on", m->dir);
    tap(2 * left < plain, "a replayed step has few launches", m->dir);
}

/* The GPU has done what loading and the first step gave to it: slots for uploads are free again. */
static void check_model(const struct model *m, const char *full, sim_counts_fn *now,
                        drain_fn *drain)
{
    run       r = { .now = now, .drain = drain };
    xd_err    e = { 0 };
    xd_status s = generate(m, full, NULL, &r, &e);
    tap(s == XD_OK && r.steps == STEPS, s == XD_OK ? "runs" : e.msg, m->dir);
    check_counts(m, &r);
    tap(r.at[STEPS - 1].graphs > r.at[0].graphs, "small passes are recorded", m->dir);
}

/* A function of the simulated driver, stored in *fn, of `size` bytes. */
static void find(const char *name, void *fn, size_t size)
{
    char        path[4096];
    const char *dir = getenv("XDIT_CUDA_DIR");
    snprintf(path, sizeof path, "%s/libcuda.so.1", dir ? dir : ".");
    void *lib = dlopen(path, RTLD_NOW), *symbol = lib ? dlsym(lib, name) : NULL;
    memcpy(fn, &symbol, size);
}

static int is_wanted(const char *dir, int n, char **names)
{
    int wanted = n == 0;
    for (int i = 0; i < n; i++)
        wanted |= strcmp(names[i], dir) == 0;
    return wanted;
}

int main(int argc, char **argv)
{
    sim_counts_fn *now;
    drain_fn      *drain;
    int            graphs = argc > 2 && strcmp(argv[2], "graphs") == 0;
    find("simgpu_counts", &now, sizeof now);
    find("cuCtxSynchronize", &drain, sizeof drain);
    if (argc < 2 || !now || !drain) {
        printf("Bail out! no simulated GPU, or wrong arguments\n");
        return 1;
    }
    for (int i = 0; i < NMODELS; i++) {
        if (!is_wanted(models[i].dir, argc - 2 - graphs, argv + 2 + graphs))
            continue;
        if (!graphs)
            check_model(&models[i], argv[1], now, drain);
        if (graphs || !models[i].once)
            check_graphs(&models[i], argv[1], now);
    }
    if (!graphs)
        check_trace(argv[1]);
    printf("1..%d\n", checks);
    return failed != 0;
}
