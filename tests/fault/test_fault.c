/* test_fault.c - every rank fails at every seam: the same error on all ranks, in time, and the next
 * request is as good as ever.
 *
 *     test_fault MODEL [CACHE]
 *
 * Run under mpirun. For each plan a run without faults counts how often each rank passes each seam;
 * then each rank is made to fail at some of those calls in turn. All ranks must return the same
 * code and sentence with that rank in it within 10 s (asserted by the clock, and by an alarm that
 * ends a run that hangs). An engine that failed generates the image of the first run, bit by bit.
 * XDIT_FAULT_ALL=1 takes more calls of each seam. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/par.h"
#include "engine/engine.h"
#include "inject.h"
#include "pipeline/result.h"

static const double LIMIT_S = 10;

static const char *model;
static const char *cache; /* a step cache; NULL: none */
static xd_comm    *world;
static int         me, ranks, cases, hits, failures, all;
static double      slowest;
static char        doing[256];
static xd_engine  *engine;

typedef struct plan {
    const char *name;
    int         ranks, images; /* -1: one, in tiles */
    xd_parallel p;
} plan;

static const plan plans[] = {
    { "ulysses 2, vae", 2, 1, { .ulysses_degree = 2, .use_parallel_vae = 1 } },
    { "tiles over 2", 2, -1, { .ulysses_degree = 2, .use_parallel_vae = 1 } },
    { "ring 2", 2, 1, { .ring_degree = 2 } },
    { "displaced 2",
      2,
      1,
      { .ring_degree = 2,
        .use_displaced_patches = 1,
        .warmup_steps = 1,
        .num_pipeline_patch = 1 } },
    { "tensor 2, text, vae",
      2,
      1,
      { .tensor_parallel_degree = 2, .text_tensor_parallel_degree = 2, .use_parallel_vae = 1 } },
    { "pipefusion 2",
      2,
      1,
      { .pipefusion_parallel_degree = 2, .num_pipeline_patch = 3, .warmup_steps = 1 } },
    { "cfg 2", 2, 1, { .use_cfg_parallel = 1 } },
    { "data 2", 2, 3, { .data_parallel_degree = 2 } },
    { "ulysses 3, vae", 3, 1, { .ulysses_degree = 3, .use_parallel_vae = 1 } },
    { "pipefusion 3", 3, 1, { .pipefusion_parallel_degree = 3, .num_pipeline_patch = 4 } },
    { "data 3", 3, 2, { .data_parallel_degree = 3 } },
    { "ulysses 2 x pipefusion 2, vae",
      4,
      1,
      { .ulysses_degree = 2,
        .pipefusion_parallel_degree = 2,
        .num_pipeline_patch = 2,
        .warmup_steps = 1,
        .use_parallel_vae = 1 } },
    { "cfg 2 x pipefusion 2",
      4,
      1,
      { .use_cfg_parallel = 1,
        .pipefusion_parallel_degree = 2,
        .num_pipeline_patch = 2,
        .warmup_steps = 1 } },
    { "ring 2 x data 2", 4, 2, { .ring_degree = 2, .data_parallel_degree = 2 } },
    { "tensor 2 x ring 2", 4, 1, { .tensor_parallel_degree = 2, .ring_degree = 2 } },
};

static void hangs(int sig)
{
    (void)sig;
    fprintf(stderr, "not ok: rank %d of %d hangs: %s\n", me, ranks, doing);
    _exit(1);
}

static void fail(const char *why)
{
    failures++;
    printf("not ok: %d ranks, %s: %s\n", ranks, doing, why);
    fflush(stdout);
}

/* What the library has to say besides what it returns: that it gives up. */
static void on_log(void *cookie, int level, const char *line)
{
    (void)cookie;
    if (level == XD_LOG_ERROR)
        fprintf(stderr, "not ok: rank %d of %d, %s: %s\n", me, ranks, doing, line);
}

static const char REASON[] = "ValueError: no such colour";

static void cancel(void)
{
    xd_cancel_because(engine, REASON);
}

/* ---- a run -------------------------------------------------------------------------------- */

typedef struct outcome {
    xd_err   err;
    uint64_t bits; /* rank 0: a hash of the latents */
} outcome;

/* What tensor parallelism cuts is in int8: scales of whole rows are memory, too. */
static xd_status open_engine(const plan *p, xd_err *e)
{
    const char  *kept = p->p.tensor_parallel_degree > 1 ? "int8" : NULL;
    xd_open_args a = { .size = sizeof a,
                       .model = model,
                       .dtype = "f32",
                       .weights_dtype = kept,
                       .text_weights_dtype = kept,
                       .threads = 1,
                       .parallel = p->p,
                       .log = on_log,
                       .log_level = XD_LOG_ERROR };
    e->rank = -1;
    return xd_open(&engine, &a, e);
}

static outcome generate(const plan *p)
{
    static const char *const prompts[] = { "a red circle" };
    outcome                  o = { .err = { .rank = -1 } };
    xd_result               *res = NULL;
    xd_request               r;
    xd_request_init(&r);
    r.prompts = prompts;
    r.nprompts = 1;
    r.width = p->images < 0 ? 192 : 80, r.height = 48;
    r.output.enable_tiling = p->images < 0;
    r.output.no_resolution_binning = 1;
    r.num_inference_steps = 3;
    r.savings.cache = cache;
    r.previews.count = 1; /* its latents are gathered between two steps */
    r.num_images_per_prompt = p->images < 0 ? 1 : p->images;
    xd_generate(engine, &r, &res, &o.err);
    for (int i = 0; res && i < xd_result_count(res); i++) {
        int64_t      n;
        const float *v = xd_result_lat(res, i, &n);
        for (int64_t k = 0; k < n; k++)
            o.bits = o.bits * 31 + (uint64_t)llrint((double)v[k] * 1e9);
    }
    xd_result_free(&res);
    return o;
}

/* What every rank has, on every rank. */
static void everybody(void *mine, size_t size, void *out)
{
    int64_t rows[64];
    for (int i = 0; i < ranks; i++)
        rows[i] = 1;
    xd_req r = world->ops->gather(world, xd_view2(out, XD_U8, ranks, (int64_t)size), rows,
                                  xd_view2(mine, XD_U8, 1, (int64_t)size));
    world->ops->wait(world, &r, 1);
}

/* ---- a case ------------------------------------------------------------------------------- */

typedef struct trial {
    int        victim;
    fault_seam seam;
    fault_kind kind;
    int64_t    n;
} trial;

static void judge(const trial *t, const outcome *o, double seconds, int hit, uint64_t bits)
{
    static outcome all_of[64];
    double         s[64];
    int            h[64];
    everybody(&seconds, sizeof seconds, s);
    everybody(&hit, sizeof hit, h);
    outcome mine = *o;
    everybody(&mine, sizeof mine, all_of);
    const xd_err *v = &all_of[t->victim].err;
    hits += h[t->victim];
    for (int i = 0; i < ranks && me == 0; i++) {
        slowest = s[i] > slowest ? s[i] : slowest;
        if (s[i] > LIMIT_S)
            fail("it took too long");
        if (all_of[i].err.code != v->code || strcmp(all_of[i].err.msg, v->msg) != 0)
            fail(all_of[i].err.code ? all_of[i].err.msg : "not all ranks failed");
        if (v->code && all_of[i].err.rank != t->victim)
            fail("another rank is named");
    }
    if (me == 0 && v->code && !v->msg[0])
        fail("there is no sentence");
    if (me == 0 && h[t->victim] && !v->code && t->seam != FAULT_HOST)
        fail("nobody has noticed");
    if (me == 0 && t->kind == FAULT_CANCEL && h[t->victim] && v->code != XD_ECANCELLED)
        fail("it was not cancelled");
    if (me == 0 && v->code == XD_ECANCELLED && strcmp(v->msg, REASON) != 0)
        fail("the reason is another one");
    if (me == 0 && !v->code && o->bits != bits)
        fail("the image is another one");
}

/* The engine fails, then generates as before. */
static void run_trial(const plan *p, const trial *t, uint64_t bits)
{
    static const char *const kinds[] = {
        "fails", "fails from then on", "", "", "", "is cancelled"
    };
    xd_err e = { 0 };
    snprintf(doing, sizeof doing, "%s: rank %d %s at %s %lld", p->name, t->victim, kinds[t->kind],
             fault_name(t->seam), (long long)t->n);
    alarm((unsigned)LIMIT_S * 2);
    if (open_engine(p, &e) != XD_OK)
        fail(e.msg);
    if (me == t->victim)
        fault_set(t->seam, t->n, t->kind);
    double  t0 = xd_now_s();
    outcome o = generate(p);
    double  took = xd_now_s() - t0;
    int     hit = me == t->victim && fault_hit();
    fault_clear();
    if (o.err.code == XD_ECOMM) {
        fprintf(stderr, "not ok: rank %d is out of step: %s: %s\n", me, doing, o.err.msg);
        _exit(1);
    }
    judge(t, &o, took, hit, bits);
    if (cases++ % 3 == 0) {
        o = generate(p);
        if (me == 0 && (o.err.code || o.bits != bits))
            fail(o.err.code ? o.err.msg : "the image after the failure is another one");
    }
    xd_close(&engine);
    alarm(0);
}

/* The middle call, or calls 1, n and some between. */
static void run_seam(const plan *p, int victim, fault_seam seam, fault_kind kind, int64_t n,
                     int most, uint64_t bits)
{
    most *= all ? 8 : 1;
    n = kind == FAULT_CANCEL ? n * 9 / 10 : n; /* behind the last op nobody looks */
    int64_t m = n < most ? n : most;
    for (int64_t i = 0; i < m; i++) {
        trial t = { victim, seam, kind, m == 1 ? (n + 1) / 2 : 1 + (n - 1) * i / (m - 1) };
        run_trial(p, &t, bits);
    }
}

static void run_plan(const plan *p)
{
    static const struct {
        fault_seam seam;
        fault_kind kind;
        int        most;
    } work[] = {
        { FAULT_HOST, FAULT_FAIL, 2 },   { FAULT_HOST, FAULT_FAILS, 1 },
        { FAULT_DEVICE, FAULT_FAIL, 2 }, { FAULT_READ, FAULT_FAIL, 1 },
        { FAULT_OP, FAULT_FAIL, 3 },     { FAULT_OP, FAULT_CANCEL, 1 },
    };
    int64_t mine[FAULT_SEAMS], count[64][FAULT_SEAMS];
    xd_err  e = { 0 };
    snprintf(doing, sizeof doing, "%s: no fault", p->name);
    alarm((unsigned)LIMIT_S * 3);
    if (open_engine(p, &e) != XD_OK)
        fail(e.msg);
    fault_clear();
    outcome o = generate(p);
    for (int s = 0; s < FAULT_SEAMS; s++)
        mine[s] = fault_count((fault_seam)s);
    if (me == 0 && o.err.code)
        fail(o.err.msg);
    xd_close(&engine);
    everybody(mine, sizeof mine, count);
    for (int v = 0; v < ranks; v++)
        for (size_t i = 0; i < sizeof work / sizeof *work; i++)
            run_seam(p, v, work[i].seam, work[i].kind, count[v][work[i].seam], work[i].most,
                     o.bits);
}

int main(int argc, char **argv)
{
    xd_err e = { 0 };
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: %s MODEL [CACHE]\n", argv[0]);
        return 2;
    }
    model = argv[1];
    cache = argc > 2 ? argv[2] : NULL;
    all = getenv("XDIT_FAULT_ALL") != NULL;
    signal(SIGALRM, hangs);
    fault_cancel = cancel;
    xd_par_set(1);
    if (xd_comm_world(&world, "mpi", &e) != XD_OK) {
        fprintf(stderr, "not ok: %s\n", e.msg);
        return 1;
    }
    me = world->rank;
    ranks = world->size;
    int n = 0;
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        if (plans[i].ranks == ranks && ++n)
            run_plan(&plans[i]);
    if (me == 0)
        printf("%d ranks: %d plans, %d faults, of which %d happened; slowest %.2f s; %d failures\n",
               ranks, n, cases, hits, slowest, failures);
    if (me == 0 && hits < cases * 3 / 4)
        failures++, printf("not ok: too few of the faults happened\n");
    xd_comm_close(&world);
    return failures || !n;
}
