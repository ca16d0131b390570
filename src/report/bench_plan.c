/* bench_plan.c - runs `xdit bench` with a plan: compares the plan with a single rank.
 *
 * One side of the comparison is an engine with one rank, the other side is an engine with the plan.
 * Every rank opens both engines and runs them alternately. The plan's engine uses the weights of
 * the one-rank engine where possible. The bytes of memory and messages are counted before anything
 * is computed. */
#include "report/bench_compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/log.h"
#include "base/par.h"
#include "engine/engine.h"
#include "exec/op.h"
#include "model/component.h"
#include "pipeline/arenas.h"
#include "pipeline/denoise.h"
#include "pipeline/job.h"
#include "pipeline/stages.h"
#include "pipeline/vae_codec.h"
#include "pipeline/weight_groups.h"
#include "plan/plan.h"
#include "ranks/world.h"
#include "report/quiet.h"

enum { PLENTY = 9, FEW = 3 };

static xd_comm *used_ranks(const xd_bench_pair *d)
{
    return d->all.g->ctx.world.used;
}

/* ---- number of rounds ---------------------------------------------------------------------- */

/* Sets the numbers of warm-up rounds and measured rounds. A large model, whose runs take seconds,
 * has no warm-up round and only a few measured rounds. */
static void plan_rounds(xd_bench_pair *d)
{
    int heavy = d->flops > 2e11;
    d->warm = !heavy;
    d->rounds = d->a->repeats ? d->a->repeats : heavy ? FEW : PLENTY;
    d->rounds = d->rounds > XD_MAXROUNDS ? XD_MAXROUNDS : d->rounds;
}

/* Sets the number of denoising steps of a run. A pipelined plan overlaps steps, and a plan with
 * stale data uses data from the previous step. A run of such a plan has several steps, and the
 * first step, which fills the pipeline, is not timed. */
static void plan_steps(xd_bench_pair *d)
{
    const xd_plan *p = &d->all.g->ctx.plan;
    int            P = p->deg.n[XD_PIPE], stale = p->npatch > 1 || p->displaced;
    d->exact = stale ? xd_plan_exact(p) : 0;
    d->lead = stale || P > 1;
    d->span = stale || P > 1 ? 2 : 1;
}

static void run_denoise(xd_bench_pair *d, xd_bench_side *s)
{
    (void)d;
    if (s->going)
        s->going = xd_denoise_step(&s->f, s->step++);
}

static void run_decode(xd_bench_pair *d, xd_bench_side *s)
{
    xd_vae_decode(&s->x, &s->job, &s->net, d->lat, s->rgb);
}

/* ---- setting up --------------------------------------------------------------------------- */

/* Opens the arena of one side, and writes to all pages of the arena, so that no timed round
 * includes page faults. */
static xd_status open_arena(xd_bench_side *s, xd_status st, xd_err *e)
{
    st = xd_request_arena_open(&s->g->ctx, &s->a, s->bytes, st, e);
    if (st == XD_OK)
        st = s->g->ctx.dev->mem->fill(s->g->ctx.dev, NULL, s->a.base, 0, s->a.cap);
    return st;
}

/* Opens the arenas of both sides of the comparison. This function is collective. */
static xd_status open_arenas(xd_bench_pair *d, xd_status s, xd_err *e)
{
    s = open_arena(&d->one, s, e);
    return xd_world_agree(&d->all.g->ctx.world, open_arena(&d->all, s, e), e);
}

/* Loads the weights of one side. Random blocks share storage if the arguments request it, or if the
 * blocks of all ranks would fill more than half of the memory. Weights that every rank needs
 * completely are stored once per host, as in a request. This function is collective. */
static xd_status load_side(const xd_bench_pair *d, const xd_bench_side *s, int vae, xd_err *e)
{
    size_t        have, total;
    xd_component *p = vae ? &s->g->ctx.model.vae : &s->g->ctx.model.dit;
    xd_status     st = xd_component_count(p, s->g->ctx.count, s->g->ctx.type, e);
    s->g->ctx.dev->mem->memory(s->g->ctx.dev, &have, &total);
    int share = d->a->share_layers ||
                p->count->packed > have / 2 / (size_t)d->all.g->ctx.world.host->size;
    if (st == XD_OK && share && !p->files)
        st = xd_component_count_kinds(p, s->g->ctx.count, s->g->ctx.type, e);
    if (st == XD_OK)
        st = xd_bench_room(s->g->ctx.dev, p, 0, d->all.g->ctx.world.host->size, e);
    st = xd_world_agree(&d->all.g->ctx.world, st, e);
    if (st == XD_OK && s == &d->one)
        st = xd_weight_groups_whole(&s->g->ctx, &d->all.g->ctx, vae, e);
    if (st == XD_OK)
        st = xd_world_agree(&d->all.g->ctx.world,
                            xd_component_load(p, s->g->ctx.dev, s->g->ctx.type, share, e), e);
    return st;
}

/* Loads the weights of both sides. The plan's engine uses the weights of the one-rank engine; a
 * pipeline stage uses some of its blocks. Only with tensor parallelism does the plan's engine load
 * matrices of its own. This function is collective. */
static xd_status load_sides(xd_bench_pair *d, int vae, xd_err *e)
{
    xd_component *whole = vae ? &d->one.g->ctx.model.vae : &d->one.g->ctx.model.dit;
    xd_component *mine = &d->all.g->ctx.model.dit;
    xd_status     s = load_side(d, &d->one, vae, e);
    d->one.net = d->all.net = whole->w->net;
    if (vae || s != XD_OK)
        return s;
    if (mine->w->tp > 1) {
        s = load_side(d, &d->all, 0, e);
        d->all.net = mine->w->net;
    }
    d->all.net.first = mine->w->net.first;
    d->all.net.last = mine->w->net.last;
    return s;
}

static xd_status open_job(xd_bench_pair *d, xd_bench_side *s, int steps, xd_err *e)
{
    xd_bench_request(&s->r, d->a, s->g);
    /* at least 2 steps, because some sampling schedules do not allow a single step */
    s->r.num_inference_steps = steps < 2 ? 2 : steps;
    s->r.guidance_scale = d->all.g->ctx.plan.deg.n[XD_CFG] > 1 ? 4.5 : 1;
    xd_job_close(&s->job);
    xd_status st = xd_job_open(&s->job, &s->g->ctx, &s->r, e);
    s->job.boundary = -1; /* if the model has two transformers, only the first is measured */
    return st;
}

/* Returns the FLOPs that the device of one side has counted since the last call. The side must have
 * a count device. */
static double counted_flops(const xd_bench_side *s)
{
    xd_counts c;
    xd_dev_counts(s->g->ctx.count, &c, 1);
    return c.flops;
}

/* ---- the step ----------------------------------------------------------------------------- */

/* Runs the timed steps of the plan on the count device, which computes nothing and counts the bytes
 * and FLOPs of the steps. */
static xd_status count_steps(xd_bench_pair *d, const xd_cond *cond, xd_err *e)
{
    xd_bench_side    *s = &d->all;
    const xd_traffic *sent = s->g->ctx.count_world->traffic;
    xd_arena          a;
    xd_denoise        f;
    int               at = d->exact + d->warm * (d->lead + d->span);
    xd_status         st = xd_device_arena_open(&a, s->g->ctx.count, 0, e);
    if (st != XD_OK)
        return st;
    xd_denoise_open(&f, &s->job, s->g->ctx.count, &s->g->ctx.count_topo, &a,
                    &s->g->ctx.model.dit.count->shadow, cond, 0);
    d->count[0] = d->count[1] = 0;
    for (int r = 0; r < d->rounds; r++)
        for (int i = 0; i < d->lead + d->span; i++, at++) {
            int64_t before = sent->bytes;
            xd_denoise_step(&f, at);
            if (i < d->lead)
                continue;
            if (r == 0 && i == d->lead)
                d->count[0] = sent->bytes - before;
            d->count[1] += sent->bytes - before;
        }
    st = xd_exec_status(&f.x, e);
    xd_denoise_close(&f);
    xd_device_arena_close(&a, s->g->ctx.count);
    return st;
}

/* Prepares the job of one side of the comparison for `steps` denoising steps, and counts the bytes
 * of the arena that the steps need. All ranks open the denoising loop together later. */
static xd_status prepare_flow(xd_bench_pair *d, xd_bench_side *s, int steps, xd_err *e)
{
    int64_t   len[XD_MAXPASS] = { d->text.tok.d[0], d->text.tok.d[0] };
    size_t    method_bytes;
    xd_status st = open_job(d, s, steps, e);
    s->step = 0;
    s->going = 1;
    if (st == XD_OK && s == &d->all)
        st = xd_stages_open(&s->job, e);
    if (st == XD_OK)
        st = xd_denoise_count(&s->job, len, &s->bytes, &method_bytes, e);
    return st;
}

/* Makes all preparations of the transformer comparison that can fail on a single rank. */
static xd_status prepare_step(xd_bench_pair *d, xd_cond *cond, xd_err *e)
{
    xd_engine *g = d->one.g;
    size_t     bytes, method_bytes;
    xd_status  s = open_job(d, &d->one, 1, e);
    if (s == XD_OK)
        s = xd_bench_text(&d->text, &d->one.job, d->images, e);
    if (s == XD_OK)
        s = xd_component_count(&g->ctx.model.dit, g->ctx.count, g->ctx.type, e);
    counted_flops(&d->one);
    int64_t n = d->text.tok.d[0], len[XD_MAXPASS] = { n, n };
    if (s == XD_OK)
        s = xd_denoise_count(&d->one.job, len, &bytes, &method_bytes, e);
    if (s != XD_OK)
        return s;
    d->flops = counted_flops(&d->one);
    cond[0] = cond[1] = d->text;
    plan_rounds(d);
    int rounds = d->warm + d->rounds;
    s = prepare_flow(d, &d->one, 2 * rounds, e);
    if (s == XD_OK)
        s = prepare_flow(d, &d->all, d->exact + rounds * (d->lead + d->span), e);
    return s == XD_OK ? count_steps(d, cond, e) : s;
}

static void open_flow(xd_bench_side *s, const xd_cond *cond)
{
    xd_denoise_open(&s->f, &s->job, s->g->ctx.dev, &s->g->ctx.topo, &s->a, &s->net, cond, 0);
    xd_denoise_noise(&s->f, 0, 0);
}

static xd_status close_flow(xd_bench_side *s, xd_status st, xd_err *e)
{
    xd_denoise_finish(&s->f);
    if (st == XD_OK)
        st = xd_exec_status(&s->f.x, e);
    xd_denoise_close(&s->f);
    return st;
}

static void close_arena(xd_bench_side *s)
{
    xd_request_arena_close(&s->g->ctx, &s->a);
}

static xd_status bench_step(xd_bench_pair *d, xd_err *e)
{
    xd_engine *g = d->one.g;
    char       what[80];
    xd_cond    cond[XD_MAXPASS] = { { .tok = { 0 } } };
    plan_steps(d);
    xd_status s =
        open_arenas(d, xd_world_agree(&d->all.g->ctx.world, prepare_step(d, cond, e), e), e);
    if (s == XD_OK)
        s = load_sides(d, 0, e);
    if (s == XD_OK) {
        d->work = run_denoise;
        d->unit = "a step";
        open_flow(&d->one, cond);
        open_flow(&d->all, cond);
        s = xd_bench_pair_run(d, e);
        s = close_flow(&d->all, s, e);
        s = xd_world_agree(&d->all.g->ctx.world, close_flow(&d->one, s, e), e);
        int passes = d->all.job.npass;
        snprintf(what, sizeof what, "%lld tokens, %lld of text, %d pass%s",
                 (long long)d->all.job.tokens, (long long)d->text.tok.d[0], passes,
                 passes == 1 ? "" : "es");
    }
    if (s == XD_OK)
        s = xd_bench_pair_report(d, "step", what, e);
    close_arena(&d->one);
    close_arena(&d->all);
    xd_bench_text_free(&d->text, g);
    xd_component_drop(&d->all.g->ctx.model.dit);
    xd_component_drop(&g->ctx.model.dit);
    return s;
}

/* ---- the VAE ------------------------------------------------------------------------------ */

/* Sets the job, the counted bytes and the memory of one side of the VAE comparison. */
static xd_status prepare_light(xd_bench_pair *d, xd_bench_side *s, xd_err *e)
{
    xd_status st = open_job(d, s, 1, e);
    int64_t   npix = s->job.frames * s->job.size[0] * s->job.size[1] * 3;
    if (st == XD_OK)
        st = xd_component_count(&s->g->ctx.model.vae, s->g->ctx.count, s->g->ctx.type, e);
    counted_flops(s);
    if (st == XD_OK)
        st = xd_vae_decode_count(&s->job, &s->bytes, e);
    if (st == XD_OK && !(s->rgb = malloc((size_t)npix * sizeof *s->rgb + 1)))
        st = xd_fail(e, XD_ENOMEM, "no memory for an image");
    s->going = 1;
    return st;
}

static xd_status prepare_vae(xd_bench_pair *d, xd_err *e)
{
    const xd_traffic *sent = d->all.g->ctx.count_world->traffic;
    xd_status         s = prepare_light(d, &d->one, e);
    int64_t           before = sent->bytes, n = d->one.job.numbers;
    d->flops = counted_flops(&d->one);
    plan_rounds(d);
    if (s == XD_OK)
        s = prepare_light(d, &d->all, e);
    d->count[0] = sent->bytes - before;
    d->count[1] = d->rounds * d->count[0];
    if (s == XD_OK && !(d->lat = malloc((size_t)n * sizeof *d->lat + 1)))
        s = xd_fail(e, XD_ENOMEM, "no memory for latents");
    if (s != XD_OK)
        return s;
    xd_bench_fill(d->lat, n);
    return s;
}

static xd_status bench_vae(xd_bench_pair *d, xd_err *e)
{
    char what[64];
    d->exact = d->lead = 0;
    d->span = 1;
    xd_status s = open_arenas(d, xd_world_agree(&d->all.g->ctx.world, prepare_vae(d, e), e), e);
    if (s == XD_OK)
        s = load_sides(d, 1, e);
    if (s == XD_OK) {
        for (int i = 0; i < 2; i++) {
            xd_bench_side *one = i ? &d->all : &d->one;
            xd_exec_init(&one->x, one->g->ctx.dev, &one->a, one->g->ctx.type);
        }
        d->work = run_decode;
        d->unit = "an image";
        s = xd_bench_pair_run(d, e);
        for (int i = 0; i < 2; i++) {
            const xd_exec *x = i ? &d->all.x : &d->one.x;
            if (s == XD_OK && x->err.code)
                s = xd_fail(e, x->err.code, "%s", x->err.msg);
        }
        s = xd_world_agree(&d->all.g->ctx.world, s, e);
        xd_bench_decode_name(what, sizeof what, &d->all.job);
    }
    if (s == XD_OK)
        s = xd_bench_pair_report(d, "vae", what, e);
    close_arena(&d->one);
    close_arena(&d->all);
    free(d->one.rgb);
    free(d->all.rgb);
    free(d->lat);
    xd_component_drop(&d->one.g->ctx.model.vae);
    return s;
}

/* ---- all ---------------------------------------------------------------------------------- */

static void write_plan(const xd_bench_pair *d)
{
    const xd_engine *g = d->all.g;
    const char      *type = xd_dtype_name(g->ctx.type), *plan = g->ctx.plan.text;
    int              n = used_ranks(d)->size, t = xd_par_threads();
    if (d->a->json)
        xd_bench_print(d->a,
                       "{\"version\": \"%s\", \"device\": \"%s\", \"threads\": %d, "
                       "\"ranks\": %d, \"plan\": \"%s\", \"dtype\": \"%s\", \"parts\": [",
                       xd_version(), g->ctx.dev->name, t, n, plan, type);
    else
        xd_bench_print(d->a, "%s, %d rank%s of %d thread%s, %s: %s", g->ctx.dev->name, n,
                       n == 1 ? "" : "s", t, t == 1 ? "" : "s", type, plan);
}

static void write_memory(const xd_bench_pair *d)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    if (d->a->json)
        xd_bench_print(d->a, "], \"max_rss_bytes\": %lld}", (long long)u.ru_maxrss * 1024);
    else
        xd_bench_print(d->a, "memory: %.3f GB peak of rank 0", (double)u.ru_maxrss * 1024 / 1e9);
}

static xd_status bench_parts(xd_bench_pair *d, xd_err *e)
{
    const xd_bench_args *a = d->a;
    xd_open_args         o = { .size = sizeof o,
                               .model = a->config,
                               .dtype = a->dtype,
                               .device = a->device,
                               .weights_dtype = a->weights_dtype,
                               .text_weights_dtype = a->text_weights_dtype,
                               .threads = a->threads,
                               .layers = a->layers };
    int                  vae = d->all.g->ctx.plan.vae_rows, first = used_ranks(d)->rank == 0;
    int                  how = XD_FOR_BENCH | XD_ALONE | (a->random_weights ? 0 : XD_WITH_FILES);
    xd_status            s = xd_open_with(&d->one.g, &o, how, e);
    if (s == XD_OK) /* an impossible image size must be refused before anything is printed */
        s = open_job(d, &d->all, 1, e);
    s = xd_world_agree(&d->all.g->ctx.world, s, e);
    if (s == XD_OK && first)
        write_plan(d);
    if (s == XD_OK && xd_bench_wants(a, "step"))
        s = bench_step(d, e);
    if (s == XD_OK && vae && xd_bench_wants(a, "vae"))
        s = bench_vae(d, e);
    if (s == XD_OK && first)
        write_memory(d);
    return s;
}

static xd_status check_parts(const xd_bench_args *a, xd_err *e)
{
    xd_status s = xd_bench_check_parts(a, "step vae", e);
    if (s == XD_OK && a->parts && xd_bench_wants(a, "vae") && !a->parallel.use_parallel_vae)
        s = xd_fail(e, XD_EINVAL,
                    "this plan decodes on one rank: --use_parallel_vae splits the "
                    "image into rows");
    return s;
}

xd_status xd_bench_plan(const xd_bench_args *a, xd_err *e)
{
    xd_bench_pair d = { .a = a };
    xd_err        mine = { .rank = -1 };
    xd_open_args  o = { .size = sizeof o,
                        .model = a->config,
                        .dtype = a->dtype,
                        .device = a->device,
                        .weights_dtype = a->weights_dtype,
                        .text_weights_dtype = a->text_weights_dtype,
                        .threads = a->threads,
                        .bind = a->bind,
                        .parallel = a->parallel,
                        .log = a->log,
                        .cookie = a->cookie,
                        .log_level = a->log_level,
                        .layers = a->layers };
    xd_status     s = check_parts(a, &mine);
    if (s == XD_OK)
        s = xd_open_with(&d.all.g, &o, XD_FOR_BENCH | (a->random_weights ? 0 : XD_WITH_FILES),
                         &mine);
    if (s == XD_OK && !d.all.g->ctx.world.idle)
        s = bench_parts(&d, &mine);
    if (d.all.g && s != XD_ECOMM && used_ranks(&d)->size < d.all.g->ctx.world.all->size)
        /* ranks that the plan does not use sleep until the others finish */
        xd_quiet(d.all.g->ctx.world.all);
    for (int i = 0; i < 2 && s != XD_ECOMM; i++) {
        xd_bench_side *side = i ? &d.all : &d.one;
        if (side->g)
            xd_job_close(&side->job);
        xd_close(&side->g);
    }
    if (s != XD_OK && e) {
        xd_fail(e, s, "%s", mine.msg);
        e->rank = mine.rank;
    }
    return s;
}
