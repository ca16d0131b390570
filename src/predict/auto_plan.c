/* auto_plan.c - chooses a plan: rank 0 predicts all plans and sends the choice to the other ranks.
 *
 * Fitting into memory has priority over speed. Among plans nearly as fast as the fastest, the
 * choice is the one whose order of sums is closest to that of one rank. So a seed generates the
 * same pixels, whichever of the nearly equal plans is measured faster. */
#include "predict/auto_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/par.h"
#include "pipeline/context.h"
#include "pipeline/image_roles.h"
#include "pipeline/image_shape.h"
#include "pipeline/job.h"
#include "pipeline/memory_budget.h"
#include "plan/plan.h"
#include "plan/plan_table.h"
#include "predict/fit.h"

#define LARGE_PARAMETERS 1e8
enum { LEAST_COLD = 1000000 }; /* weights below this many uncached bytes are not mentioned */
/* Thresholds for the warning about a long request: a multiple of the tokens of the model's own
 * size, and a time in seconds, or a number of tokens if the time is unknown. */
enum { FAR_LARGER = 4, LONG_S = 60, MANY_TOKENS = 1 << 14 };

static const xd_predicted_times no_times = { -1, -1, -1, -1, -1, -1, 0 };

typedef struct chooser {
    xd_context         *ctx;
    const xd_open_args *a;
    xd_request          r;
    xd_machine          m;
    xd_parallel         fixed;
    int                 ranks, stale;
    int                 two;   /* 1: each step has two passes */
    double              times; /* the request's tokens relative to the model's own size */
    double              start_s;
    double              space; /* bytes of address space; 0: another machine */
} chooser;

/* The message with the chosen plan from rank 0 to the other ranks. */
typedef struct verdict {
    /* hashes of the plan options with which rank 0 was started */
    uint64_t           hashes[XD_PLAN_ROWS];
    /* numbers of the chosen plan's options; text options are equal on two ranks if their hashes are
     * equal */
    int32_t            numbers[XD_PLAN_ROWS];
    xd_predicted_times predicted;
    int32_t            chosen;
} verdict;

/* ---- the machine and the request ---------------------------------------------------------- */

static xd_status find_machine(chooser *c, int hosts, xd_err *e)
{
    int       all = c->ctx->world.all->size;
    size_t    have, space;
    xd_status s;
    if (c->a->cluster) {
        s = xd_machine_read(&c->m, c->a->cluster, e);
        c->m.memory = xd_budget_least(c->ctx, c->m.memory);
        if (s == XD_OK && all > c->m.hosts * c->m.ranks)
            s = xd_fail(e, XD_EINVAL, "there are %d ranks, but the cluster %s has %d", all,
                        c->m.name, c->m.hosts * c->m.ranks);
        return s;
    }
    if (xd_dev_identity(c->ctx->dev)) {
        s = xd_machine_of_devices(&c->m, c->ctx->dev, c->a->device, (all + hosts - 1) / hosts, e);
        c->m.hosts = hosts;
        c->m.memory = xd_budget_least(c->ctx, c->m.memory);
        return s;
    }
    s = xd_machine_here(&c->m, c->ctx->dev, (all + hosts - 1) / hosts, xd_par_threads(), e);
    c->m.hosts = hosts;
    xd_host_memory(&have, &space);
    c->m.memory = xd_budget_left(c->ctx, (double)have, xd_budget_elsewhere(c->ctx));
    c->space = (double)space;
    return s;
}

/* Copies the request for the predictions. Initial image and mask are not read; the image only
 * reduces the number of steps. */
static void copy_request(chooser *c)
{
    static const char *const prompt[] = { "" };
    xd_request_init(&c->r);
    if (c->a->plan_for)
        c->r = *c->a->plan_for;
    const xd_role_row *role = xd_role_of_request(&c->ctx->model, &c->r);
    if (xd_job_has_image(&c->r) && role->starts && !role->tokens) {
        double share = c->r.images.strength > 0 ? c->r.images.strength : 0.6;
        int    usual = xd_model_usual(&c->ctx->model, 1, xd_job_has_mask(&c->r)).steps;
        int    steps = c->r.num_inference_steps ? c->r.num_inference_steps : usual;
        c->r.num_inference_steps = steps * share < 1 ? 1 : (int)(steps * share);
    }
    xd_image_shape_take(c->ctx, &c->r);
    xd_role_count_given(c->ctx, &c->r);
    if (xd_role_drop_images(role, &c->r))
        c->r.images.strength = 0; /* strength with an image applies only with a mask */
    if (!c->r.nprompts)
        c->r.prompts = prompt, c->r.nprompts = 1;
}

/* Returns the tokens of the request divided by the tokens of an image or video of the model's own
 * size. */
static double times_own_size(const xd_job *j)
{
    const xd_dit_info *d = &j->ctx->model.dit_info;
    double             own = 1;
    for (int i = 0; i < 3; i++)
        own *= (double)d->sample[i] / (double)d->patch[i];
    return own > 0 ? (double)j->tokens / own : 1;
}

/* Refuses an invalid request with the error of the request, not with that of a plan. */
static xd_status check_request(chooser *c, xd_err *e)
{
    xd_context own;
    xd_job     j = { 0 };
    xd_status  s = xd_context_fork(&own, c->ctx, e);
    if (s == XD_OK)
        s = xd_job_open(&j, &own, &c->r, e);
    c->two = j.npass > 1;
    c->times = s == XD_OK ? times_own_size(&j) : 1;
    xd_job_close(&j);
    xd_context_fork_close(&own, c->ctx);
    return s;
}

/* ---- refusing ----------------------------------------------------------------------------- */

static xd_fit fit_of(const chooser *c)
{
    return (xd_fit){ .ctx = c->ctx,
                     .r = &c->r,
                     .m = &c->m,
                     .fixed = &c->fixed,
                     .ranks = c->ranks,
                     .stale = c->stale,
                     .chosen = 1,
                     .space = c->space };
}

/* Returns the error that no plan fits into memory. The error lists the options that would fit,
 * which are found by counting. */
static xd_status fail_no_plan(const chooser *c, const xd_search *s, xd_err *e)
{
    const xd_candidate *l = xd_fit_least(s);
    xd_fit              t = fit_of(c);
    char                advice[1024];
    if (!l)
        return e->code;
    int     narrow = l->f.peak <= c->m.memory; /* 1: the limit is address space, 0: memory */
    xd_size need = xd_size_text(narrow ? xd_fit_fullest(&l->f) : l->f.peak);
    xd_size have = xd_size_text(narrow ? c->space : c->m.memory);
    xd_fit_advice_of(&t, s, advice, sizeof advice);
    e->msg[0] = 0, e->code = XD_OK;
    return xd_fail(e, XD_ENOMEM,
                   "none of %d plans for %d ranks fits into the %s of %s; the smallest, %s, needs "
                   "%s%s",
                   s->n, c->ranks, have.s,
                   narrow ? "address space of a rank (ulimit -v)" : "available memory",
                   l->f.plan.text, need.s, advice);
}

/* ---- choosing ----------------------------------------------------------------------------- */

/* Returns how far the plan's image is from the image of one rank (xd_plan_changes). */
static int change_order(const xd_candidate *c)
{
    return c->f.plan.changes;
}

/* Returns the predicted seconds without the time of disk reads, which is the same for every
 * plan. */
static double computing_s(const xd_candidate *c)
{
    return c->f.request_s - xd_predicted_reading(&c->f);
}

static const xd_candidate *best_candidate(const xd_search *s)
{
    const xd_candidate *b = &s->c[0];
    double              fastest = computing_s(b);
    for (int i = 1; i < s->good; i++)
        if (computing_s(&s->c[i]) <= 1.05 * fastest && change_order(&s->c[i]) < change_order(b))
            b = &s->c[i];
    return b;
}

static double cold_bytes(const chooser *c)
{
    const double *cold = c->ctx->cold;
    return cold[XD_KIND_TEXT] + cold[XD_KIND_DIT] + cold[XD_KIND_VAE];
}

/* Writes the part of the predicted time for reading from the disk, such as ", 63.3 s of it reading
 * 9.5 GB of weights". */
static void reading_text(const chooser *c, const xd_prediction *f, char *out, size_t size)
{
    double  bytes = cold_bytes(c);
    xd_size text = xd_size_text(bytes);
    *out = 0;
    if (bytes >= LEAST_COLD && c->m.read > 0)
        snprintf(out, size, ", %.3g s of it reading %s of weights", xd_predicted_reading(f),
                 text.s);
    else if (bytes >= LEAST_COLD)
        snprintf(out, size, " without reading %s of weights", text.s);
}

static xd_predicted_times times_of(const chooser *c, const xd_prediction *f)
{
    double rounds = f->rounds, load_s = xd_predicted_reading_to_load(f);
    return (
        xd_predicted_times){ .text_s = f->text_s,
                             .load_s = load_s > 0 ? load_s : -1,
                             .denoise_s = f->first_s + rounds * (f->exact * f->exact_s +
                                                                 (f->steps - f->exact) * f->step_s),
                             .decode_s = rounds * f->decode_s + xd_predicted_reading_to_decode(f),
                             .total_s = f->request_s,
                             .read_s = c->m.read > 0 ? xd_predicted_reading(f) : -1 };
}

static void log_choice(const chooser *c, const xd_search *s, const xd_candidate *b, verdict *v)
{
    const xd_prediction *f = &b->f;
    char                 of[32], reading[96];
    v->predicted = times_of(c, f);
    if (s->good == 1)
        snprintf(of, sizeof of, "the only one");
    else
        snprintf(of, sizeof of, "the fastest of %d", s->good);
    reading_text(c, f, reading, sizeof reading);
    v->predicted.logged = 1;
    xd_log(XD_LOG_INFO, "plan: %s, %s for %d ranks; predicted %.3g s%s%s", f->plan.text, of,
           c->ranks, f->request_s, c->m.sheet ? " (by data sheet, not fitted)" : "", reading);
    for (int i = 0; i < s->n; i++)
        if (s->c[i].why.code)
            xd_log(XD_LOG_DEBUG, "plan %s is not possible: %s", s->c[i].name, s->c[i].why.msg);
        else
            xd_log(XD_LOG_DEBUG, "plan %s: %.4g s, %.3g MB", s->c[i].name, s->c[i].f.request_s,
                   s->c[i].f.peak / 1e6);
    xd_log(XD_LOG_DEBUG, "chosen in %.1f ms", 1e3 * (xd_now_s() - c->start_s));
}

static int largest_divisor(int n, int most)
{
    int d = n < most ? n : most;
    while (d > 1 && n % d)
        d--;
    return d > 1 ? d : 1;
}

/* Chooses the plan by a rule, for more ranks than a search covers. If steps have two passes, the
 * ranks are split into two halves by cfg. Each half is split by Ulysses, up to the number of heads,
 * and the ranks that remain form a ring. A network that cannot be split is only split by cfg; the
 * ranks that remain compute other images. */
static void by_rule(const chooser *c, verdict *v)
{
    const xd_parallel *f = &c->fixed;
    xd_parallel        a = *f;
    xd_plan            p;
    const xd_dit_info *d = &c->ctx->model.dit_info;
    int                left = c->ranks / xd_parallel_ranks(f), ring = !f->ring_degree;
    if (c->two && !a.use_cfg_parallel && left % 2 == 0)
        a.use_cfg_parallel = 1, left /= 2;
    if (d->whole && !f->data_parallel_degree)
        a.data_parallel_degree = left, left = 1;
    if (!f->ulysses_degree)
        a.ulysses_degree = ring ? largest_divisor(left, xd_dit_key_heads(d)) : left;
    if (ring)
        a.ring_degree = f->ulysses_degree ? left : left / a.ulysses_degree;
    a.use_parallel_vae = 1;
    xd_plan_pack(&a, v->numbers);
    v->chosen = 1;
    v->predicted = no_times;
    if (xd_plan_make(&p, &a, c->ranks, d, NULL) == XD_OK)
        xd_log(XD_LOG_INFO, "plan: %s, by rule, as %d ranks have too many plans to predict", p.text,
               c->ranks);
}

static xd_status choose_plan(chooser *c, int hosts, verdict *v, xd_err *e)
{
    xd_search s = { 0 };
    c->start_s = xd_now_s();
    /* Without this logger every plan would log the same messages about the request. */
    const xd_logger *log = xd_log_enter(NULL);
    copy_request(c);
    xd_status st = check_request(c, e);
    int       by_search = c->ranks <= XD_SEARCH_MOST;
    if (st == XD_OK && by_search)
        st = find_machine(c, hosts, e);
    if (st == XD_OK && by_search) {
        xd_fit t = fit_of(c);
        st = xd_fit_search(&t, &s, c->ranks, e);
        st = st == XD_OK ? st : fail_no_plan(c, &s, e);
    }
    xd_log_enter(log);
    if (st == XD_OK && !by_search)
        by_rule(c, v);
    else if (st == XD_OK) {
        const xd_candidate *b = best_candidate(&s);
        log_choice(c, &s, b, v);
        xd_plan_pack(&b->parallel, v->numbers);
        v->chosen = 1;
    }
    xd_search_free(&s);
    return st;
}

/* Returns 1 if the transformer is so large that the 50 ms of a prediction are negligible. */
static int is_large(const xd_context *ctx)
{
    const xd_dit_info *d = &ctx->model.dit_info;
    return 12.0 * (double)d->nlayers * (double)d->dim * (double)d->dim > LARGE_PARAMETERS;
}

/* Returns 1 if the request has far more tokens than an image of the model's own size. */
static int is_far_larger(chooser *c)
{
    const xd_logger *log = xd_log_enter(NULL);
    chooser          here = *c;
    xd_err           why = { 0 };
    if (c->a->plan_for) {
        copy_request(&here);
        check_request(&here, &why);
    }
    xd_log_enter(log);
    return here.times > FAR_LARGER;
}

/* Predicts a request whose parallel degrees are given, if the model is large, if the request is far
 * larger than the model's own size, or if the weights come from a disk of known speed. Reading the
 * weights is most of the time of many first requests. If prediction is impossible, *predicted is
 * unchanged. */
static void predict_reading(chooser *c, int hosts, int larger, xd_predicted_times *predicted)
{
    xd_prediction    f = { .rank = NULL };
    xd_err           why = { 0 };
    char             reading[96] = "";
    const xd_logger *log = xd_log_enter(NULL);
    chooser          here = *c;
    xd_open_args     a = *c->a;
    a.cluster = NULL; /* session.c warns that the option `cluster` has no effect here */
    here.a = &a;
    copy_request(&here);
    if (find_machine(&here, hosts, &why) == XD_OK && (larger || here.m.read > 0) &&
        xd_predict(&f, c->ctx, &here.r, &c->fixed, c->ranks, &here.m, &why) == XD_OK) {
        *predicted = times_of(&here, &f);
        reading_text(&here, &f, reading, sizeof reading);
    }
    xd_log_enter(log);
    predicted->logged = *reading != 0;
    if (*reading)
        xd_log(XD_LOG_INFO, "predicted %.3g s%s", f.request_s, reading);
    xd_prediction_free(&f);
}

static xd_status check_plan(const char *plan, int *stale, xd_err *e)
{
    *stale = plan && strcmp(plan, "auto-stale") == 0;
    if (!plan || *stale || strcmp(plan, "auto") == 0)
        return XD_OK;
    return xd_fail(e, XD_EINVAL,
                   "plan is \"%s\"; it can be auto or auto-stale, and degrees are given by "
                   "themselves",
                   plan);
}

/* Opens the tokenizers once for all predictions. Without tokenizers, texts are counted with maximum
 * length. */
static void open_tokenizers(xd_context *ctx, const xd_open_args *a)
{
    if (a->plan_for && a->plan_for->nprompts && a->plan_for->prompts[0][0])
        xd_model_tokenizers(&ctx->model, NULL);
}

xd_status xd_auto_plan(xd_context *ctx, const xd_open_args *a, int hosts, xd_status s,
                       xd_parallel *take, xd_predicted_times *predicted, xd_err *e)
{
    const xd_parallel *p = &a->parallel;
    int                given = xd_parallel_ranks(p), size = ctx->world.all->size;
    int64_t            bytes = sizeof(verdict);
    verdict            v;
    *take = *p;
    *predicted = no_times;
    memset(&v, 0, sizeof v);
    chooser c = { .ctx = ctx, .a = a, .fixed = *p, .ranks = size / given * given };
    if (s == XD_OK)
        s = check_plan(a->plan, &c.stale, e);
    if (s == XD_OK && size == 1 && a->cluster)
        /* with one rank there is no choice: only checks the name of the cluster */
        s = xd_machine_read(&c.m, a->cluster, e);
    if (s == XD_OK && ctx->world.all->rank == 0 && a->plan)
        xd_model_cold_bytes(&ctx->model, ctx->count, ctx->type, ctx->cold);
    int chooses = size > 1 && a->plan && c.ranks > given;
    if (s == XD_OK && ctx->world.all->rank == 0 && !chooses) {
        int larger = is_far_larger(&c) || (a->plan && a->plan_for && is_large(ctx));
        if (larger || (a->plan && cold_bytes(&c) >= LEAST_COLD)) {
            open_tokenizers(ctx, a);
            predict_reading(&c, hosts, larger, predicted);
            xd_dev_forget(ctx->count);
        }
    }
    if (size == 1)
        return s;
    uint64_t mine[XD_PLAN_ROWS] = { 0 };
    xd_plan_hashes(p, mine);
    memcpy(v.hashes, mine, sizeof mine);
    if (p->pipefusion_parallel_degree > 1 && !c.stale && !p->num_pipeline_patch)
        c.fixed.num_pipeline_patch = p->pipefusion_parallel_degree;
    if (s == XD_OK && ctx->world.all->rank == 0 && chooses) {
        open_tokenizers(ctx, a);
        s = choose_plan(&c, hosts, &v, e);
        xd_dev_forget(ctx->count);
    }
    xd_req q = ctx->world.all->ops->bcast(ctx->world.all, xd_view(&v, XD_U8, 1, &bytes), 0);
    if (ctx->world.all->ops->wait(ctx->world.all, &q, 1) != XD_OK)
        return s != XD_OK ? s : xd_fail(e, XD_ECOMM, "the chosen plan could not be broadcast");
    if (s != XD_OK || !v.chosen || memcmp(mine, v.hashes, sizeof mine) != 0)
        return s;
    xd_plan_unpack(v.numbers, take);
    *predicted = v.predicted;
    return XD_OK;
}

/* Writes a duration as text: "50 s", "23 min", "4.5 hours". */
static const char *duration(double s, char *text, size_t size)
{
    if (s < 120)
        snprintf(text, size, "%.0f s", s);
    else if (s < 7200)
        snprintf(text, size, "%.0f min", s / 60);
    else
        snprintf(text, size, "%.1f hours", s / 3600);
    return text;
}

void xd_warn_far_larger(const xd_job *j, double seconds)
{
    const xd_dit_info *d = &j->ctx->model.dit_info;
    const int         *cell = j->ctx->model.vae_info.cell;
    double             times = times_own_size(j);
    char               time[32], frames[64] = "";
    int                long_one = seconds < 0 ? j->tokens > MANY_TOKENS : seconds >= LONG_S;
    if (j->ctx->world.all->rank || times <= FAR_LARGER || !long_one)
        return;
    if (j->fps > 0)
        snprintf(frames, sizeof frames, " and %lld frames",
                 (long long)xd_vae_frames(&j->ctx->model.vae_info, d->sample[0]));
    xd_log(XD_LOG_WARN,
           "%lld x %lld pixels%s have %.3g times the tokens of the model's own size, "
           "%lld x %lld%s%s%s",
           (long long)j->size[1], (long long)j->size[0], j->fps > 0 ? " of this video" : "", times,
           (long long)(d->sample[2] * cell[2]), (long long)(d->sample[1] * cell[1]), frames,
           seconds < 0 ? "" : "; predicted time: ",
           seconds < 0 ? "" : duration(seconds, time, sizeof time));
}
