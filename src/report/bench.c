/* bench.c - measures the speed of a model's parts on this machine, compared with the machine's peak
 * FLOP rates.
 *
 * Weights may be random, so that only configs are needed. Each part runs once to warm up, then at
 * least three times and for at least half a second, or exactly `repeats` times if that is given.
 * The results are the median and the range of a part's times. Two peak rates of the machine are
 * printed with the results. The first peak is the rate of a loop that executes the instruction for
 * the dtype on registers only; the loop is timed before and after each run. The peak of a run is
 * the higher of these two rates, and the peak of a part is the median over its runs. The second
 * peak, the GEMM peak, is the rate of the fastest of a few GEMMs of large square matrices, which
 * the same library computes before and after the part. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "report/bench.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/file.h"
#include "base/minmax.h"
#include "base/par.h"
#include "base/record.h"
#include "base/word_list.h"
#include "engine/engine.h"
#include "exec/op.h"
#include "model/component.h"
#include "observe/profile.h"
#include "pipeline/arenas.h"
#include "pipeline/context.h"
#include "pipeline/denoise_inside.h"
#include "pipeline/encoder_images.h"
#include "pipeline/job.h"
#include "pipeline/prompt_images.h"
#include "pipeline/text_encode.h"
#include "pipeline/vae_codec.h"
#include "plan/plan_table.h"

enum { MAXRUNS = 64, SIDE = 2048 };

typedef struct probe { /* a GEMM of square matrices, SIDE x SIDE */
    xd_weight w;
    xd_tensor in, out;
    void     *tmp;
    size_t    ntmp;
} probe;

typedef struct bench {
    const xd_bench_args *a;
    xd_engine           *g;
    xd_job               job;
    xd_profile           prof;
    xd_dev              *meter;   /* count device, which counts flops and bytes for `prof` */
    double               peak;    /* current peak rate in registers, GFLOP/s */
    double               gemm;    /* rate of the fastest large GEMM, GFLOP/s; 0: not measured */
    double               lo, hi;  /* seconds of a part's fastest and slowest run */
    double               kernels; /* seconds that the median run spends in kernels */
    int                  runs;
    probe                probe;
    int                  parts; /* number of parts printed so far */
    size_t               whole; /* bytes of a part's weights if blocks do not share storage */
    size_t predicted;           /* predicted maximum memory of the weights and arenas in bytes */
} bench;

void xd_bench_print(const xd_bench_args *a, const char *fmt, ...)
{
    char    text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (a->line)
        a->line(a->cookie, text);
}

int xd_bench_wants(const xd_bench_args *a, const char *part)
{
    return !a->parts || xd_list_has(a->parts, part);
}

xd_status xd_bench_check_parts(const xd_bench_args *a, const char *known, xd_err *e)
{
    const char *p = a->parts;
    int         n = 0;
    if (!p)
        return XD_OK;
    for (p += strspn(p, " ,"); *p; p += strcspn(p, " ,"), p += strspn(p, " ,"), n++)
        if (!xd_list_has_n(known, p, strcspn(p, " ,")))
            return xd_fail(e, XD_EINVAL, "--parts has '%.*s'; it must be a list of names from: %s",
                           (int)strcspn(p, " ,"), p, known);
    return n ? XD_OK
             : xd_fail(e, XD_EINVAL, "--parts is empty; it must be a list of names in: %s", known);
}

static double peak_now(const bench *b)
{
    return xd_dev_peak(b->g->ctx.dev, b->g->ctx.type, xd_par_threads(), 0.01);
}

/* ---- the GEMM peak ------------------------------------------------------------------------ */

static xd_gemm gemm_of(const probe *p)
{
    return (xd_gemm){ .out = p->out, .in = p->in, .w = &p->w };
}

static void close_probe(bench *b)
{
    probe  *p = &b->probe;
    xd_dev *d = b->g ? b->g->ctx.dev : NULL;
    if (p->w.p)
        d->mem->put(d, p->w.p, p->w.bytes);
    if (p->in.p)
        d->mem->put(d, p->in.p, xd_bytes(p->in));
    if (p->out.p)
        d->mem->put(d, p->out.p, xd_bytes(p->out));
    if (p->tmp)
        d->mem->put(d, p->tmp, p->ntmp);
    memset(p, 0, sizeof *p);
}

static xd_status open_probe(bench *b, xd_err *e)
{
    probe    *p = &b->probe;
    xd_dev   *d = b->g->ctx.dev;
    xd_tensor from = xd_view2(NULL, XD_F32, SIDE, SIDE);
    p->in = xd_view2(d->mem->get(d, (size_t)SIDE * SIDE * 4), b->g->ctx.type, SIDE, SIDE);
    p->out = xd_view2(d->mem->get(d, (size_t)SIDE * SIDE * 4), XD_F32, SIDE, SIDE);
    p->w = (xd_weight){ .type = b->g->ctx.type,
                        .out = SIDE,
                        .in = SIDE,
                        .kernel = { 1, 1, 1 },
                        .stride = { 1, 1, 1 },
                        .groups = 1 };
    p->w.bytes = d->ops->pack_size(d, &p->w);
    p->w.p = d->mem->get(d, p->w.bytes);
    xd_gemm a = gemm_of(p);
    p->ntmp = d->ops->scratch(d, XD_OP_GEMM, &a);
    size_t need = d->ops->pack_tmp(d, &p->w, XD_F32);
    p->ntmp = (need > p->ntmp ? need : p->ntmp) + 64;
    p->tmp = d->mem->get(d, p->ntmp);
    if (!p->in.p || !p->out.p || !p->w.p || !p->tmp)
        return xd_fail(e, XD_ENOMEM, "no memory for a GEMM of %d x %d matrices", SIDE, SIDE);
    d->mem->fill(d, NULL, p->in.p, 0, xd_bytes(p->in));
    d->mem->fill(d, NULL, p->out.p, 0, xd_bytes(p->out));
    /* a zero matrix in host memory, from which the device packs the weight */
    if (!(from.p = calloc((size_t)SIDE * SIDE, 4)))
        return xd_fail(e, XD_ENOMEM, "no memory for a matrix of %d x %d", SIDE, SIDE);
    xd_status s = d->ops->pack(d, &p->w, from, p->tmp);
    free(from.p);
    return s;
}

/* Returns the GFLOP/s of the best of four GEMMs. */
static double gemm_now(bench *b)
{
    xd_gemm a = gemm_of(&b->probe);
    double  best = 0;
    /* A GPU's first peak rate is already measured with GEMMs, so it is also the GEMM peak. */
    if (!b->g->ctx.dev->host_memory)
        return peak_now(b);
    for (int i = 0; i < 4 && b->probe.tmp; i++) {
        double t0 = xd_now_s();
        if (b->g->ctx.dev->ops->gemm(b->g->ctx.dev, NULL, &a, b->probe.tmp) != XD_OK)
            return 0;
        b->g->ctx.dev->mem->sync(b->g->ctx.dev, NULL);
        double rate = 2e-9 * SIDE * SIDE * SIDE / (xd_now_s() - t0);
        best = rate > best ? rate : best;
    }
    return best;
}

/* ---- measuring ---------------------------------------------------------------------------- */

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

double xd_bench_median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}

static double flops_of(const bench *b)
{
    double flops = 0;
    for (int i = 0; i < XD_NOPS; i++)
        flops += b->prof.op[i].flops;
    return flops;
}

/* Returns 1 if the part must be run again. If the program has set the callback `turn`, the callback
 * decides. The array t has the seconds of the n runs so far. */
static int keeps_running(const bench *b, int n, const double *t, const double *peak, double spent)
{
    int           want = b->a->repeats;
    xd_bench_turn last = { .n = n };
    if (n) {
        last.seconds = t[n - 1];
        last.gflop = flops_of(b) / 1e9;
        last.peak_gflops = peak[n - 1];
    }
    if (n == MAXRUNS)
        return 0;
    if (b->a->turn)
        return b->a->turn(b->a->cookie, &last);
    return want ? n < want : n < 3 || spent < 0.5;
}

/* Copies the profile of the run that took s seconds to b->prof. op[0..n) has the profiles of all
 * runs. */
static void take_sample(bench *b, const double *took, xd_sample (*op)[XD_NOPS], int n, double s)
{
    int i = 0;
    while (i < n - 1 && took[i] != s)
        i++;
    memcpy(b->prof.op, op[i], sizeof b->prof.op);
    b->kernels = 0;
    for (int k = 0; k < XD_NOPS; k++)
        b->kernels += b->prof.op[k].seconds;
}

static void report_stage(const bench *b, const char *what, double bytes)
{
    if (b->a->on_stage)
        b->a->on_stage(b->a->cookie, what, bytes);
}

/* Returns the median seconds of the function fn over several runs. The profile is that of the
 * median run. */
static double measure_median(bench *b, void (*fn)(void *ctx), void *ctx)
{
    double    t[MAXRUNS], took[MAXRUNS], peak[MAXRUNS], begin, spent = 0;
    xd_sample op[MAXRUNS][XD_NOPS];
    int       n = 0;
    fn(ctx);
    b->gemm = gemm_now(b);
    for (; keeps_running(b, n, t, peak, spent); n++) {
        xd_profile_reset(&b->prof);
        peak[n] = peak_now(b);
        begin = xd_now_s();
        fn(ctx);
        xd_profile_collect(&b->prof);
        spent += t[n] = xd_now_s() - begin;
        peak[n] = xd_max_double(peak[n], peak_now(b));
        took[n] = t[n];
        memcpy(op[n], b->prof.op, sizeof op[n]);
    }
    b->gemm = xd_max_double(b->gemm, gemm_now(b));
    b->runs = n;
    if (n == 0)
        return 0;
    b->peak = xd_bench_median(peak, n);
    double median = xd_bench_median(t, n);
    take_sample(b, took, op, n, median);
    b->lo = t[0];
    b->hi = t[n - 1];
    return median;
}

static void report_json(bench *b, const char *name, const char *what, double s, double flops)
{
    xd_text_buf t = { 0 };
    xd_buf_add(&t,
               "%s{\"part\": \"%s\", \"what\": \"%s\", \"seconds\": %.6g, \"seconds_range\": "
               "[%.6g, %.6g], \"runs\": %d, \"gflop\": %.6g, "
               "\"gflops\": %.5g, \"peak_gflops\": %.5g, \"share_of_peak\": %.4g, "
               "\"gemm_peak_gflops\": %.5g, \"share_of_gemm_peak\": %.4g, \"other_seconds\": "
               "%.6g, \"ops\": [",
               b->parts++ ? ", " : "", name, what, s, b->lo, b->hi, b->runs, flops / 1e9,
               flops / s / 1e9, b->peak, flops / s / 1e9 / b->peak, b->gemm,
               b->gemm > 0 ? flops / s / 1e9 / b->gemm : 0, s - b->kernels);
    int first = 1;
    for (int i = 0; i < XD_NOPS; i++) {
        const xd_sample *o = &b->prof.op[i];
        if (!o->calls)
            continue;
        xd_buf_add(&t,
                   "%s{\"op\": \"%s\", \"calls\": %lld, \"seconds\": %.6g, \"gflop\": %.6g, "
                   "\"share_of_peak\": %.4g, \"gbytes\": %.5g}",
                   first ? "" : ", ", xd_op_name((xd_op)i), (long long)o->calls, o->seconds,
                   o->flops / 1e9, o->flops / o->seconds / 1e9 / b->peak, o->bytes / 1e9);
        first = 0;
    }
    xd_buf_add(&t, "]}");
    if (b->a->line && !t.failed)
        b->a->line(b->a->cookie, t.p);
    xd_buf_free(&t);
}

static void report_row(bench *b, const char *name, const char *what, double s)
{
    double flops = flops_of(b);
    char   gemm[64] = "";
    if (b->runs == 0)
        return;
    if (b->gemm > 0)
        snprintf(gemm, sizeof gemm, ", %.1f %% of GEMM peak %.1f", 100 * flops / s / 1e9 / b->gemm,
                 b->gemm);
    if (b->a->json) {
        report_json(b, name, what, s, flops);
        return;
    }
    xd_bench_print(b->a,
                   "%-12s %-34s %9.2f ms [%.2f .. %.2f, %d runs] %9.2f GFLOP %8.1f GFLOP/s "
                   "%5.1f %% of peak %.1f%s",
                   name, what, s * 1e3, b->lo * 1e3, b->hi * 1e3, b->runs, flops / 1e9,
                   flops / s / 1e9, 100 * flops / s / 1e9 / b->peak, b->peak, gemm);
    for (int i = 0; i < XD_NOPS; i++) {
        const xd_sample *o = &b->prof.op[i];
        if (o->calls && o->flops > 0)
            xd_bench_print(b->a,
                           "    %-12s %6lld calls %10.2f ms %5.1f %% of the time %8.1f "
                           "GFLOP/s %5.1f %% of peak",
                           xd_op_name((xd_op)i), (long long)o->calls, o->seconds * 1e3,
                           100 * o->seconds / s, o->flops / o->seconds / 1e9,
                           100 * o->flops / o->seconds / 1e9 / b->peak);
        else if (o->calls)
            xd_bench_print(b->a, "    %-12s %6lld calls %10.2f ms %5.1f %% of the time %8.2f GB/s",
                           xd_op_name((xd_op)i), (long long)o->calls, o->seconds * 1e3,
                           100 * o->seconds / s, o->bytes / o->seconds / 1e9);
    }
    xd_bench_print(b->a, "    %-12s              %10.2f ms %5.1f %% of the time", "other",
                   (s - b->kernels) * 1e3, 100 * (s - b->kernels) / s);
}

void xd_bench_fill(float *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        v[i] = 0.1f * (float)(i % 17 - 8);
}

static xd_status some_text(xd_tensor *t, const xd_context *ctx, int64_t n, int64_t width, xd_err *e)
{
    *t = xd_view2(NULL, XD_F32, n, width);
    if (!(t->p = ctx->dev->mem->get(ctx->dev, xd_bytes(*t))))
        return xd_fail(e, XD_ENOMEM, "no memory for %lld text tokens", (long long)n);
    float *host = malloc(xd_bytes(*t));
    if (!host)
        return xd_fail(e, XD_ENOMEM, "no memory for %lld text tokens", (long long)n);
    xd_bench_fill(host, xd_count(*t));
    xd_status s = ctx->dev->mem->upload(ctx->dev, NULL, t->p, host, xd_bytes(*t));
    free(host);
    return s == XD_OK ? s : xd_fail(e, s, "copying text tokens to the device failed");
}

xd_status xd_bench_text(xd_cond *c, const xd_job *j, xd_cond_image images[XD_MAXREFS], xd_err *e)
{
    const xd_dit_info *d = &j->ctx->model.dit_info;
    *c = (xd_cond){ .tok = { 0 } };
    xd_prompts_real_tokens(j, c->real);
    c->nimages = xd_prompt_images_rows(j, NULL, 0, xd_prompts_most_rows(j), images);
    c->images = images;
    xd_status s = some_text(&c->tok, j->ctx, xd_prompts_most_rows(j), d->text_dim, e);
    if (s == XD_OK && d->pooled_dim)
        s = some_text(&c->pooled, j->ctx, 1, d->pooled_dim, e);
    return s;
}

void xd_bench_text_free(xd_cond *c, xd_engine *g)
{
    xd_tensor t[2] = { c->tok, c->pooled };
    for (int i = 0; i < 2; i++)
        if (t[i].p)
            g->ctx.dev->mem->put(g->ctx.dev, t[i].p, xd_bytes(t[i]));
    *c = (xd_cond){ .tok = { 0 } };
}

/* ---- parts -------------------------------------------------------------------------------- */

/* If the device has its own memory, checks that a component fits into this memory. */
static xd_status room_on_device(const xd_dev *d, const xd_component *p, size_t more, xd_err *e)
{
    size_t have = 0, total = 0, kernels = xd_dev_kernel_bytes(d),
           need = p->count->packed + more + kernels;
    d->mem->memory((xd_dev *)(uintptr_t)d, &have, &total);
    if (need <= have)
        return XD_OK;
    return xd_fail(e, XD_ENOMEM,
                   "%s needs %s of memory of %s and %s are available: weights "
                   "%s, activations %s, kernels %s",
                   p->name, xd_size_text((double)need).s, d->name, xd_size_text((double)have).s,
                   xd_size_text((double)p->count->packed).s, xd_size_text((double)more).s,
                   xd_size_text((double)kernels).s);
}

xd_status xd_bench_room(const xd_dev *d, const xd_component *p, size_t beside, int ranks, xd_err *e)
{
    size_t machine, process, more = beside > p->count->work ? beside : p->count->work,
                             kernels = xd_dev_kernel_bytes(d);
    double own = (double)p->count->packed + (double)more, all = ranks * (own + (double)kernels);
    if (xd_dev_identity(d))
        return room_on_device(d, p, more, e);
    xd_host_memory(&machine, &process);
    int narrow = own > (double)process;
    if (!narrow && all <= (double)machine)
        return XD_OK;
    return xd_fail(e, XD_ENOMEM,
                   "%s needs %s of %s and %s are available: weights %s, activations "
                   "%s, kernels %s",
                   p->name, xd_size_text(narrow ? own : all).s,
                   narrow ? "address space (ulimit -v), without that of kernels," : "memory",
                   xd_size_text((double)(narrow ? process : machine)).s,
                   xd_size_text((double)p->count->packed).s, xd_size_text((double)more).s,
                   xd_size_text((double)kernels).s);
}

/* Counts the bytes of a component's weights. Blocks of random weights share storage if the weights
 * would not fit otherwise. */
static xd_status count_component(bench *b, xd_component *p, int *share, xd_err *e)
{
    size_t    have, total;
    xd_status s = xd_component_count(p, b->g->ctx.count, b->g->ctx.type, e);
    b->g->ctx.dev->mem->memory(b->g->ctx.dev, &have, &total);
    *share = b->a->share_layers || p->count->packed > have / 2;
    b->whole = p->count->packed;
    if (s == XD_OK && *share && !p->files)
        s = xd_component_count_kinds(p, b->g->ctx.count, b->g->ctx.type, e);
    return s;
}

/* Loads a component's weights, if both the weights and `beside` further bytes fit into memory. */
static xd_status load_component(bench *b, xd_component *p, int share, size_t beside, xd_err *e)
{
    xd_status s = xd_bench_room(b->g->ctx.dev, p, beside, 1, e);
    char      what[96];
    snprintf(what, sizeof what, "%s: %s %s of weights", p->name, p->files ? "loading" : "making",
             xd_size_text((double)p->count->packed).s);
    report_stage(b, what, (double)p->count->packed);
    if (s == XD_OK)
        s = xd_component_load(p, b->g->ctx.dev, b->g->ctx.type, share, e);
    if (s == XD_OK && share && !p->files && !b->a->json)
        xd_bench_print(b->a, "%s: all blocks use the memory of one, %.2f GB instead of %.2f",
                       p->name, (double)xd_store_bytes(p->w->store) / 1e9, (double)b->whole / 1e9);
    return s;
}

static void predict_step(bench *b, const xd_component *p, size_t tmp)
{
    size_t bytes = xd_store_bytes(p->w->store) + tmp;
    b->predicted = bytes > b->predicted ? bytes : b->predicted;
}

typedef struct text_run {
    xd_exec             x;
    const xd_component *p;
    int32_t            *ids;
    int64_t             n;
    xd_text_read        read;
    xd_text_image       images[XD_MAXREFS];
} text_run;

static void run_text(void *ctx)
{
    text_run *t = ctx;
    xd_cond   c = { 0 };
    xd_arena_rewind(t->x.tmp, 0);
    t->read.image_rows = xd_text_run_vision(t->p->text, &t->x, &t->p->w->net, &t->read);
    xd_text_encode(t->p->text, &t->x, &t->p->w->net, &t->read, &c);
}

/* Measures text encoder k of the model. */
static xd_status bench_text(bench *b, int k, xd_err *e)
{
    xd_component *p = &b->g->ctx.model.text[k];
    text_run      t = { .p = p, .n = xd_prompts_most_ids(&b->job, k) };
    xd_layout     lay = { .len = { t.n }, .grid = { 1, 1, t.n }, .npatch = 1, .nsp = 1 };
    xd_arena      a;
    size_t        bytes = 0;
    int           share;
    char          what[64];
    xd_status     s = count_component(b, p, &share, e);
    if (s == XD_OK)
        s = xd_prompts_count(&b->job, k, &t.n, 1, &bytes, e);
    if (s == XD_OK)
        s = load_component(b, p, share, bytes, e);
    if (s == XD_OK && xd_encoder_reads_pixels(&b->job, k))
        s = xd_encoder_images_open(&b->job, e);
    if (s == XD_OK && !(t.ids = calloc((size_t)t.n, sizeof *t.ids)))
        s = xd_fail(e, XD_ENOMEM, "no memory for %lld token ids", (long long)t.n);
    if (s == XD_OK)
        s = xd_device_arena_open(&a, b->g->ctx.dev, bytes, e);
    if (s == XD_OK) {
        xd_exec_init(&t.x, &b->prof.w.dev, &a, b->g->ctx.type);
        t.x.lay = &lay;
        t.read = xd_model_reads(&b->g->ctx.model, k);
        t.read.ids = t.ids;
        t.read.pixels = b->job.encoder_pixels;
        t.read.n = t.read.real = t.n;
        t.read.images = t.images;
        t.read.nimages = xd_prompt_images_among(&b->job, k, NULL, t.n, t.images);
        snprintf(what, sizeof what, "%s, %lld tokens, %d blocks", p->name, (long long)t.n,
                 p->w->net.last - p->w->net.first);
        report_stage(b, what, 0);
        report_row(b, "text", what, measure_median(b, run_text, &t));
        predict_step(b, p, bytes);
        s = xd_exec_status(&t.x, e);
        xd_device_arena_close(&a, b->g->ctx.dev);
    }
    free(t.ids);
    xd_component_drop(p);
    return s;
}

typedef struct step_run {
    xd_denoise    f;
    xd_state      s;
    const xd_dit *dit;
    int           layer;
} step_run;

static void run_pass(void *ctx)
{
    xd_denoise_pass(&((step_run *)ctx)->f, 0, 0);
}

static void run_block(void *ctx)
{
    step_run *r = ctx;
    size_t    mark = xd_arena_mark(r->f.x.tmp);
    xd_dit_block(&r->f.x, r->dit, r->f.net, r->layer, &r->s);
    xd_arena_rewind(r->f.x.tmp, mark);
}

/* Prints the time of the first transformer block of each kind, one line each. */
static void bench_blocks(bench *b, step_run *r)
{
    const xd_dit *dit = b->g->ctx.model.dit.dit;
    const xd_net *n = r->f.net;
    xd_exec      *x = &r->f.x;
    size_t        mark = xd_arena_mark(x->tmp);
    xd_input      in = { .lat = xd_denoise_part(&r->f, r->f.lat, XD_ALL),
                         .fps = b->job.fps,
                         .cond = &r->f.cond[0],
                         .t = b->job.samp.time[0],
                         .audio_t = xd_job_audio_sampling(&b->job)->time[0],
                         .next = b->job.next_time,
                         .guidance = b->job.distilled,
                         .extra = r->f.extra,
                         .ref = r->f.ref,
                         .size = { (double)b->job.size[0], (double)b->job.size[1] } };
    if (b->g->ctx.model.dit_info.txt_flows)
        in.txt = r->f.cond[0].tok;
    if (b->job.audio_numbers)
        in.audio = xd_denoise_audio(&r->f, r->f.lat, XD_ALL);
    memset(r->f.local, 0, b->g->ctx.model.dit_info.local_size);
    r->s = (xd_state){
        .h = r->f.h[0], .local = r->f.local, .kept = r->f.kept[0], .skips = r->f.skip[0]
    };
    r->dit = dit;
    if (dit->read)
        dit->read(x, n, &in, r->s.kept);
    dit->cond(x, n, &in, &r->s);
    dit->embed(x, n, &in, &r->s);
    for (int i = 0; i < n->nlayers; i++) {
        int seen = 0, same = 0;
        for (int k = 0; k < n->nlayers; k++) {
            int equal = n->def->block(n->cfg, k) == n->def->block(n->cfg, i);
            seen |= equal && k < i;
            same += equal;
        }
        if (seen)
            continue;
        char what[96];
        snprintf(what, sizeof what, n->def->block(n->cfg, i)->name, xd_net_number(n, i));
        snprintf(what + strlen(what), sizeof what - strlen(what), " (one of %d)", same);
        r->layer = i;
        report_stage(b, what, 0);
        report_row(b, "block", what, measure_median(b, run_block, r));
    }
    xd_arena_rewind(x->tmp, mark);
}

static xd_status bench_step(bench *b, xd_err *e)
{
    xd_engine    *g = b->g;
    xd_component *p = &g->ctx.model.dit;
    int64_t       n = xd_prompts_most_rows(&b->job), len[XD_MAXPASS] = { n, n };
    step_run      r;
    xd_arena      a;
    size_t        bytes = 0, links = 0;
    int           share;
    char          what[112];
    xd_cond_image images[XD_MAXREFS];
    xd_cond       cond[XD_MAXPASS] = { { .tok = { 0 } } };
    xd_status     s = count_component(b, p, &share, e);
    if (s == XD_OK)
        s = xd_denoise_count(&b->job, len, &bytes, &links, e);
    if (s == XD_OK)
        s = load_component(b, p, share, bytes, e);
    if (s == XD_OK)
        s = xd_bench_text(&cond[0], &b->job, images, e);
    cond[1] = cond[0];
    if (s == XD_OK) /* the arena has an eighth more than a step needs, for timing single blocks */
        s = xd_device_arena_open(&a, g->ctx.dev, bytes + bytes / 8, e);
    if (s == XD_OK) {
        xd_denoise_open(&r.f, &b->job, &b->prof.w.dev, &g->ctx.topo, &a, &p->w->net, cond, 0);
        xd_denoise_noise(&r.f, 0, 0);
        char refs[40] = "";
        if (b->job.nrefs)
            snprintf(refs, sizeof refs, ", %lld of an image", (long long)b->job.nref_tokens);
        snprintf(what, sizeof what, "%lld tokens, %lld of text%s, 1 pass", (long long)b->job.tokens,
                 (long long)n, refs);
        report_stage(b, what, 0);
        if (xd_bench_wants(b->a, "step"))
            report_row(b, "step", what, measure_median(b, run_pass, &r));
        if (!b->a->turn || (b->a->parts && xd_bench_wants(b->a, "block")))
            bench_blocks(b, &r);
        predict_step(b, p, bytes);
        s = xd_exec_status(&r.f.x, e);
        xd_denoise_close(&r.f);
        xd_device_arena_close(&a, g->ctx.dev);
    }
    xd_bench_text_free(&cond[0], g);
    xd_component_drop(p);
    return s;
}

typedef struct vae_run {
    xd_exec       x;
    const xd_job *j;
    const xd_net *net;
    float        *lat, *rgb;
} vae_run;

static void run_vae(void *ctx)
{
    vae_run *r = ctx;
    xd_vae_decode(&r->x, r->j, r->net, r->lat, r->rgb);
}

static xd_status bench_vae(bench *b, xd_err *e)
{
    xd_component *p = &b->g->ctx.model.vae;
    int64_t       nlat = b->job.numbers, npix = b->job.frames * b->job.size[0] * b->job.size[1] * 3;
    vae_run       r = { .j = &b->job, .net = &p->w->net };
    xd_arena      a;
    size_t        bytes = 0, pixels = (size_t)(nlat + npix) * sizeof(float);
    int           share;
    char          what[64];
    xd_status     s = count_component(b, p, &share, e);
    if (s == XD_OK)
        s = xd_vae_decode_count(&b->job, &bytes, e);
    if (s == XD_OK)
        s = load_component(b, p, share, bytes + pixels, e);
    r.lat = malloc((size_t)nlat * sizeof *r.lat + 1);
    r.rgb = malloc((size_t)npix * sizeof *r.rgb + 1);
    if (s == XD_OK && (!r.lat || !r.rgb))
        s = xd_fail(e, XD_ENOMEM, "no memory for an image");
    if (s == XD_OK)
        s = xd_device_arena_open(&a, b->g->ctx.dev, bytes, e);
    if (s == XD_OK) {
        xd_bench_fill(r.lat, nlat);
        xd_exec_init(&r.x, &b->prof.w.dev, &a, b->g->ctx.type);
        xd_bench_decode_name(what, sizeof what, &b->job);
        report_stage(b, what, 0);
        report_row(b, "vae", what, measure_median(b, run_vae, &r));
        predict_step(b, p, bytes + pixels);
        s = xd_exec_status(&r.x, e);
        xd_device_arena_close(&a, b->g->ctx.dev);
    }
    free(r.lat);
    free(r.rgb);
    xd_component_drop(p);
    return s;
}

void xd_bench_decode_name(char *what, size_t size, const xd_job *j)
{
    int n = snprintf(what, size, "decode ");
    if (j->fps > 0)
        n += snprintf(what + n, size - (size_t)n, "%lld x ", (long long)j->frames);
    snprintf(what + n, size - (size_t)n, "%lld x %lld", (long long)j->size[1],
             (long long)j->size[0]);
}

/* ---- all ---------------------------------------------------------------------------------- */

void xd_bench_request(xd_request *r, const xd_bench_args *a, const xd_engine *g)
{
    static const char *const prompt[] = { "" };
    const char              *file = xd_json_text(xd_json_get(g->ctx.model.sched, "_class_name"));
    xd_request_init(r);
    r->prompts = prompt;
    r->nprompts = 1;
    r->width = a->width;
    r->height = a->height;
    r->num_frames = a->num_frames;
    r->texts.max_sequence_length = a->max_sequence_length;
    r->output.no_resolution_binning = 1;
    r->savings.gemm = a->gemm;
    r->savings.attention = a->attention;
    r->schedule.scheduler = file && xd_sampler_find(file) ? NULL : "dpm++";
}

static xd_status open_bench(bench *b, xd_request *r, xd_err *e)
{
    const xd_bench_args *a = b->a;
    xd_open_args         o = { .size = sizeof o,
                               .model = a->config,
                               .dtype = a->dtype,
                               .device = a->device,
                               .weights_dtype = a->weights_dtype,
                               .text_weights_dtype = a->text_weights_dtype,
                               .threads = a->threads,
                               .bind = a->bind,
                               .log = a->log,
                               .cookie = a->cookie,
                               .log_level = a->log_level,
                               .layers = a->layers };
    xd_status            s =
        xd_open_with(&b->g, &o, XD_FOR_BENCH | (a->random_weights ? 0 : XD_WITH_FILES), e);
    if (s != XD_OK)
        return s;
    xd_bench_request(r, a, b->g);
    s = xd_job_open(&b->job, &b->g->ctx, r, e);
    b->job.boundary = -1; /* if the model has two transformers, only the first is measured */
    if (s == XD_OK)
        s = xd_dev_open_count(&b->meter, NULL, e);
    if (s == XD_OK)
        xd_profile_open(&b->prof, b->g->ctx.dev, b->meter);
    return s == XD_OK && !a->turn && b->g->ctx.dev->host_memory ? open_probe(b, e) : s;
}

static void report_machine(bench *b)
{
    xd_dev *d = b->g->ctx.dev;
    double  peak = peak_now(b), copies = d->mem->bandwidth ? d->mem->bandwidth(d) : 0;
    char    memory[48] = "";
    if (copies > 0)
        snprintf(memory, sizeof memory, ", copies in memory %.0f GB/s", 1e-9 * copies);
    if (b->a->json)
        xd_bench_print(b->a,
                       "{\"version\": \"%s\", \"device\": \"%s\", \"threads\": %d, "
                       "\"dtype\": \"%s\", \"peak_gflops\": %.5g, \"memory_gbytes_per_s\": %.5g, "
                       "\"width\": %lld, \"height\": %lld, \"frames\": %lld, \"parts\": [",
                       xd_version(), d->name, xd_par_threads(), xd_dtype_name(b->g->ctx.type), peak,
                       1e-9 * copies, (long long)b->job.size[1], (long long)b->job.size[0],
                       (long long)b->job.frames);
    else
        xd_bench_print(b->a, "%s, %d threads, %s, peak of %s %.1f GFLOP/s%s", d->name,
                       xd_par_threads(), xd_dtype_name(b->g->ctx.type),
                       d->host_memory ? "a register loop" : "large GEMMs", peak, memory);
}

static void report_memory(const bench *b)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    if (b->a->json)
        xd_bench_print(b->a, "], \"predicted_bytes\": %zu, \"max_rss_bytes\": %lld}", b->predicted,
                       (long long)u.ru_maxrss * 1024);
    else
        xd_bench_print(b->a,
                       "memory: %.3f GB predicted (weights + arena of the largest part), "
                       "%.3f GB peak of the process",
                       (double)b->predicted / 1e9, (double)u.ru_maxrss * 1024 / 1e9);
}

static xd_status run_bench(const xd_bench_args *a, xd_err *e)
{
    if (xd_parallel_ranks(&a->parallel) > 1 || xd_plan_patches(&a->parallel) > 1 ||
        xd_comm_launched())
        return xd_bench_plan(a, e);
    bench      b = { .a = a };
    xd_request r;
    xd_status  s = xd_bench_check_parts(a, "text step block vae", e);
    if (s == XD_OK)
        s = open_bench(&b, &r, e);
    if (s == XD_OK) {
        xd_plan_log_unused(&a->parallel, &a->parallel, &b.g->ctx.model.dit_info);
        report_machine(&b);
    }
    for (int k = 0; s == XD_OK && k < b.g->ctx.model.recipe->ntext && xd_bench_wants(a, "text");
         k++)
        if (b.g->ctx.model.has_text[k])
            s = bench_text(&b, k, e);
    if (s == XD_OK && (xd_bench_wants(a, "step") || xd_bench_wants(a, "block")))
        s = bench_step(&b, e);
    if (s == XD_OK && xd_bench_wants(a, "vae"))
        s = bench_vae(&b, e);
    if (s == XD_OK)
        report_memory(&b);
    xd_profile_close(&b.prof);
    xd_dev_close(&b.meter);
    close_probe(&b);
    if (b.g)
        xd_job_close(&b.job);
    xd_close(&b.g);
    return s;
}

void xd_bench_args_init_size(xd_bench_args *a, size_t size)
{
    xd_record_init(a, size);
}

xd_status xd_bench(const xd_bench_args *args, xd_err *e)
{
    xd_bench_args a;
    xd_bench_args_init(&a);
    xd_status s = xd_record_read(&a, sizeof a, args, "xd_bench_args", e);
    if (s != XD_OK)
        return s;
    const xd_logger  log = { a.log, a.cookie, a.log_level };
    const xd_logger *before = xd_log_enter(&log);
    s = run_bench(&a, e);
    xd_log_enter(before);
    return s;
}
