/* test_steps.c - what the steps of a request ask of the driver, on the simulated GPU
 *
 *     test_steps FULL
 *
 * FULL is tests/golden with its weights. A trace is written to the current directory.
 *
 * From the second step on, a step of one rank neither waits
 * for the GPU nor takes memory, and copies no more to it than what the time changes. */
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
    long        waits, uploads; /* of a step                                                   */
} models[] = {
    /* Two passes: the time, the size and the ratio. */
    { "micro", NULL, 72, 40, 0, 0, 3.5, 0, 6 },
    /* The time and the guidance. */
    { "flux", NULL, 32, 64, 0, 10, 3.5, 0, 2 },
    { "sd3", NULL, 40, 40, 0, 8, 4, 0, 2 },
    { "cog5b", "cogvideox-ddim", 40, 56, 1, 10, 1, 0, 1 },
    { "cog2b", "cogvideox-ddim", 40, 56, 1, 10, 1, 0, 1 },
    /* The noise of its sampler beside the time. */
    { "hunyuan12", NULL, 48, 80, 0, 0, 1, 0, 2 },
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

typedef struct run {
    sim_counts_fn *now;
    sim_counts     at[STEPS];
    int            steps;
} run;

static void step_ended(void *cookie, const xd_progress *p)
{
    run *r = cookie;
    (void)p;
    if (r->steps < STEPS)
        r->now(&r->at[r->steps++]);
}

static xd_status generate(const struct model *m, const char *full, const char *trace, run *r,
                          xd_err *e)
{
    static const char *const prompt = "a red circle";
    char                     dir[2048];
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
    q.max_sequence_length = m->text;
    q.num_inference_steps = STEPS, q.guidance_scale = m->guidance, q.scheduler = m->scheduler;
    q.no_resolution_binning = 1, q.latents_only = 1;
    q.cookie = r, q.on_step = step_ended;
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
    run         r = { .now = NULL, .steps = STEPS };
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

static sim_counts_fn *counter(void)
{
    char        path[4096];
    const char *dir = getenv("XDIT_CUDA_DIR");
    snprintf(path, sizeof path, "%s/libcuda.so.1", dir ? dir : ".");
    void          *lib = dlopen(path, RTLD_NOW), *symbol = lib ? dlsym(lib, "simgpu_counts") : NULL;
    sim_counts_fn *fn;
    memcpy(&fn, &symbol, sizeof fn);
    return fn;
}

int main(int argc, char **argv)
{
    sim_counts_fn *now = counter();
    if (argc != 2 || !now) {
        printf("Bail out! no simulated GPU, or not one argument\n");
        return 1;
    }
    for (int i = 0; i < NMODELS; i++) {
        run       r = { .now = now };
        xd_err    e = { 0 };
        xd_status s = generate(&models[i], argv[1], NULL, &r, &e);
        tap(s == XD_OK && r.steps == STEPS, s == XD_OK ? "runs" : e.msg, models[i].dir);
        check_counts(&models[i], &r);
    }
    check_trace(argv[1]);
    printf("1..%d\n", checks);
    return failed != 0;
}
