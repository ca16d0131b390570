/* predict.c - predicts a request by running it as every rank of a plan on the count device, which
 * computes nothing */
#include "predict/predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/op.h"
#include "model/component.h"
#include "families/recipe.h"
#include "pipeline/arenas.h"
#include "pipeline/context.h"
#include "pipeline/denoise.h"
#include "pipeline/encoder_images.h"
#include "pipeline/image_roles.h"
#include "pipeline/job.h"
#include "pipeline/memory_plan.h"
#include "pipeline/offload.h"
#include "pipeline/options.h"
#include "pipeline/stages.h"
#include "pipeline/prompt_images.h"
#include "pipeline/text_encode.h"
#include "pipeline/vae_codec.h"
#include "pipeline/weight_groups.h"
#include "plan/plan.h"
#include "plan/plan_table.h"
#include "predict/predict_memory.h"
#include "ranks/world.h"

enum { STEPS = 5, VARIED = 24 };        /* max simulated steps; VARIED if fast_attn is used    */

typedef struct predictor {
    const xd_context   *base;
    xd_context         *ctx;    /* context `own`, which represents a rank of the plan          */
    xd_context          own;
    const xd_machine   *m;
    const xd_request   *r;
    xd_request          played; /* copy of r with references only in the first step           */
    xd_prediction      *f;
    xd_job              job;
    xd_prompts          words;  /* the request's texts; n = 0: unknown                         */
    xd_cost_device     *rk;
    xd_simulation      *simulation;
    double              last_text_s;    /* seconds of the last text encoder                    */
    xd_offload_parts   *parts;  /* [ranks]: sizes of blocks, malloc'ed                          */
    xd_lane            *lane;
    int                 cut[XD_MAXSTAGE + 1];
    int                 warm;   /* number of exact steps of each transformer                   */
    int                 alone;  /* 1: only one rank computes, the others are idle              */
    int                 usual, most;    /* number of passes: in most steps; max in a step      */
    xd_predicted_event *on_event;
    void               *cookie;
} predictor;

/* ---- representing a rank ------------------------------------------------------------------ */

static void leave_rank(predictor *s)
{
    xd_context *ctx = s->ctx;
    xd_comm_close(&ctx->count_text);
    xd_topo_close(&ctx->count_topo);
    xd_comm_close(&ctx->world.host);
    xd_comm_close(&ctx->count_world);
    memset(&ctx->topo, 0, sizeof ctx->topo);
    ctx->world.used = ctx->world.all;
}

/* Returns the first rank of rank r's host, and the number of ranks on that host. */
static int host_of(const predictor *s, int r, int *n)
{
    int first = r / s->m->ranks * s->m->ranks, left = s->f->ranks - first;
    *n = left < s->m->ranks ? left : s->m->ranks;
    return first;
}

static double record_lap(void *ctx)
{
    const predictor *s = ctx;
    return xd_cost_device_lap_s(s->rk, s->alone);
}

/* Returns the transport of messages in device memory. If the ranks of the plan are not present,
 * returns the transport that needs the most memory. */
static xd_device_way message_way(const predictor *s)
{
    if (!xd_dev_identity(s->base->count))
        return XD_WAY_HOST;
    if (s->base->world.all->size > 1)
        return s->base->world.all->traffic->way;
    return s->m->hosts > 1 ? XD_WAY_LINKS : XD_WAY_MAILBOXES;
}

/* Adds the message buffers of this part of the request to the memory of rank `me`. */
static void add_messages(predictor *s, int me)
{
    s->f->rank[me].need.messages += (size_t)s->ctx->count_world->traffic->device_bytes;
}

/* Makes the context represent rank `me` of the plan, and starts recording that rank's messages. */
static xd_status stand_for_rank(predictor *s, int me, xd_err *e)
{
    xd_context *ctx = s->ctx;
    int        n = s->f->ranks, tp = s->f->plan.deg.n[XD_TENSOR], T = s->f->plan.text_tp;
    int        here, first = host_of(s, me, &here);
    leave_rank(s);
    record_lap(s);
    xd_status st = xd_comm_record(&ctx->count_world, me, n,
                                  xd_simulation_record(s->simulation, me, record_lap, s), e);
    if (st == XD_OK)
        ctx->count_world->traffic->way = message_way(s);
    if (st == XD_OK)
        st = xd_topo_open(&ctx->count_topo, ctx->count_world, s->f->plan.deg, e);
    if (st == XD_OK)
        st = ctx->count_world->ops->split(ctx->count_world, first, me - first, here,
                                          &ctx->world.host, e);
    if (st == XD_OK && T > 1 && me < T)
        st = ctx->count_world->ops->split(ctx->count_world, 0, me, T, &ctx->count_text, e);
    if (st != XD_OK)
        return st;
    ctx->topo = ctx->count_topo;
    ctx->world.used = ctx->count_world;
    int at = ctx->topo.at[XD_PIPE], tp_at = ctx->topo.at[XD_TENSOR];
    for (int i = 0; i < xd_model_dits(&ctx->model); i++) {
        xd_component *p = xd_model_dit(&ctx->model, i);
        if (p->w->tp != tp || p->w->tp_at != tp_at || p->w->net.first != s->cut[at] ||
            p->w->net.last != s->cut[at + 1]) {
            p->w->tp = tp, p->w->tp_at = tp_at;
            xd_component_stage(p, s->cut[at], s->cut[at + 1]);
        }
    }
    for (int k = 0; k < ctx->model.recipe->ntext && T > 1; k++) {
        xd_component *p = xd_model_text(&ctx->model, k);
        if (!p)
            continue;
        p->w->tp = T;
        p->w->tp_at = me < T ? me : 0;
        xd_net_close(&p->count->shadow);
    }
    return XD_OK;
}

static xd_status run_simulation(predictor *s, double *end, xd_err *e)
{
    xd_status st = xd_simulation_run(s->simulation, s->lane, e);
    *end = 0;
    for (int r = 0; st == XD_OK && r < s->f->ranks; r++)
        *end = fmax(*end, s->lane[r].end_s);
    return st;
}

static xd_status reset_simulation(predictor *s, xd_err *e)
{
    xd_simulation_close(&s->simulation);
    return xd_simulation_open(&s->simulation, s->f->ranks, s->m, e);
}

/* ---- denoising ---------------------------------------------------------------------------- */

static int steps_played(const predictor *s)
{
    int want = s->f->fast_attn ? VARIED : s->f->stale || s->f->keeps_refs ? STEPS : 2;
    return s->job.samp.steps < want ? s->job.samp.steps : want;
}

/* Writes the number of embedding rows of each pass. */
static void text_rows(const predictor *s, int64_t rows[XD_MAXPASS])
{
    const xd_prompts *w = &s->words;
    for (int i = 0; i < XD_MAXPASS; i++)
        rows[i] = xd_prompts_most_rows(&s->job);
    for (int i = 0; i < w->n; i++)
        if (i == 0 || i == w->prompts || w->text[i].rows > rows[i >= w->prompts])
            rows[i >= w->prompts] = w->text[i].rows;
}

/* Returns the number of images that the replica of this rank generates. */
static int image_count(const predictor *s)
{
    int D = s->f->plan.deg.n[XD_DATA], at = s->ctx->topo.at[XD_DATA];
    return s->job.images > at ? (s->job.images - at + D - 1) / D : 0;
}

static int64_t sent_bytes(const predictor *s)
{
    return s->ctx->count_world->traffic->bytes;
}

static double step_bytes(const predictor *s, xd_denoise *f, int step)
{
    int64_t before = sent_bytes(s);
    xd_denoise_step(f, step);
    return (double)(sent_bytes(s) - before);
}

/* Returns the bytes of the first step that are for processing the text. Each transformer processes
 * the text once, so repeated steps do not have these bytes. */
static double reading_bytes(const predictor *s, xd_denoise *f, double first)
{
    f->piece_index = 0;
    return s->f->plan.deg.n[XD_TENSOR] > 1 && s->ctx->model.dit.dit->read
               ? first - step_bytes(s, f, 0) : 0;
}

/* Returns how many transformers begin with a step that has this many passes. */
static int readings(const predictor *s, int passes)
{
    int n = 0;
    for (int i = 0; i < s->f->steps; i = xd_job_dit_end(&s->job, i))
        n += xd_job_passes(&s->job, i) == passes;
    return n;
}

/* Records the first steps, with a mark (a recorded time) before each step and one after the last
 * step. The first step is exact for any warm-up. Then runs the request's last step to count its
 * bytes, because the last step sends no latents back. All steps have `passes` passes, and one
 * transformer represents both transformers of a model. */
static void denoise_steps(predictor *s, xd_denoise *f, int me, int passes)
{
    xd_prediction            *c = s->f;
    const xd_predicted_steps *of = &c->of[passes];
    xd_prediction_rank       *k = &c->rank[me];
    int     n = steps_played(s), all = c->steps, reads = readings(s, passes) - (n == 1);
    int     ends = xd_job_passes(&s->job, all - 1) == passes;
    int     ends_exact = all - xd_job_dit_begin(&s->job, all - 1) <= s->warm;
    int     exact = of->exact - (ends && ends_exact), others = of->others - (ends && !ends_exact);
    int     begins = 1 + xd_job_changes(&s->job);
    double  boundary = s->job.boundary, first = 0, last = 0, sum = 0;
    int64_t before = sent_bytes(s);
    s->job.boundary = -1;
    s->job.all_passes = passes;
    f->end = all;
    xd_denoise_ready(f);
    if (passes == s->usual)
        sum = (double)(sent_bytes(s) - before) * begins;
    record_lap(s);
    for (int i = 0; i < n && xd_ok(&f->x); i++) {
        xd_simulation_mark(s->simulation, i);
        last = step_bytes(s, f, i);
        first = i ? first : last;
        k->sent = c->fast_attn && i ? (k->sent * (i - 1) + last) / i
                                    : i == 0 || i < all - 1 ? last : k->sent;
    }
    xd_simulation_mark(s->simulation, n);
    if (ends_exact)
        s->ctx->plan.warmup = all;
    if (n > 1 && xd_ok(&f->x))
        last = step_bytes(s, f, all - 1);
    s->ctx->plan.warmup = 1;
    double read = reading_bytes(s, f, first);
    s->job.boundary = boundary;
    s->job.all_passes = 0;
    sum += exact * (first - read) + others * k->sent + ends * last + reads * read;
    before = sent_bytes(s);
    if (passes == s->usual) {
        xd_denoise_latents(f, NULL);
        sum += (double)(sent_bytes(s) - before);
    }
    k->sent_all += sum * image_count(s);
}

static void raise_host(xd_need *n, const xd_component *p)
{
    n->host_work = n->host_work > p->count->host_work ? n->host_work : p->count->host_work;
}

/* Returns the number of encoded texts: prompts, then negative prompts. */
static int text_count(const predictor *s)
{
    return s->r->nprompts + (s->job.npass > 1 ? xd_job_negatives(s->r) : 0);
}

/* Returns the bytes of the embeddings like xd_prompts_bytes, also if the texts are unknown. */
static size_t embedding_bytes(const predictor *s)
{
    const xd_dit_info *d = &s->ctx->model.dit_info;
    int64_t            rows[XD_MAXPASS];
    if (s->words.n || !xd_dev_identity(s->ctx->count))
        return xd_prompts_bytes(&s->words, &s->job);
    text_rows(s, rows);
    return (size_t)text_count(s) *
           (size_t)(rows[0] * d->text_dim + d->pooled_dim) * sizeof(float);
}

/* Counts the weights of all transformers on a count device that predicts no times. */
static xd_status count_dits(predictor *s, int me, xd_err *e)
{
    xd_context     *ctx = s->ctx;
    xd_block_sizes *sizes[2] = { &s->parts[me].dit, &s->parts[me].dit2 };
    for (int i = 0; i < xd_model_dits(&ctx->model); i++) {
        xd_component *p = xd_model_dit(&ctx->model, i);
        xd_status     st = xd_component_count(p, s->base->count, ctx->type, e);
        if (st != XD_OK)
            return st;
        if (!sizes[i]->block)
            *sizes[i] = xd_predict_block_sizes(p);
    }
    xd_need_dits(&s->f->rank[me].need, &s->job);
    return XD_OK;
}

static xd_status denoise_rank(predictor *s, int me, int passes, xd_err *e)
{
    xd_context         *ctx = s->ctx;
    xd_component           *p = xd_model_dit(&ctx->model, xd_job_dit(&s->job, 0));
    const xd_dit_info *d = &ctx->model.dit_info;
    xd_denoise            f;
    xd_arena           a;
    xd_cond            cond[XD_MAXPASS] = { { .tok = { 0 } } };
    int64_t            rows[XD_MAXPASS];
    xd_status          st = xd_component_count(p, ctx->count, ctx->type, e);
    if (st == XD_OK)
        st = xd_device_arena_open(&a, ctx->count, 0, e);
    if (st != XD_OK)
        return st;
    text_rows(s, rows);
    xd_cost_device_weights(s->rk, (double)p->count->packed);
    for (int i = 0; i < s->job.npass; i++) {
        cond[i].tok = xd_view2(a.base, XD_F32, rows[i], d->text_dim);
        xd_prompts_real_tokens(&s->job, cond[i].real);
        if (d->pooled_dim)
            cond[i].pooled = xd_view2(a.base, XD_F32, 1, d->pooled_dim);
    }
    xd_denoise_open(&f, &s->job, ctx->count, &ctx->count_topo, &a, &p->count->shadow, cond);
    denoise_steps(s, &f, me, passes);
    xd_need *need = &s->f->rank[me].need;
    size_t   peak = xd_arena_peak(&a);
    need->dit_tmp = peak > need->dit_tmp ? peak : need->dit_tmp;
    need->method_bytes = f.stack.bytes;
    st = count_dits(s, me, e);
    need->conds = embedding_bytes(s);
    st = xd_ok(&f.x) ? st : xd_exec_status(&f.x, e);
    xd_denoise_close(&f);
    xd_device_arena_close(&a, ctx->count);
    return st;
}

static double mark_time(const predictor *s, int mark)
{
    double t = 0;
    for (int r = 0; r < s->f->ranks; r++)
        t = fmax(t, xd_simulation_mark_s(s->simulation, r, mark));
    return t;
}

typedef struct teller {
    const predictor    *s;
    int                 rank;
    double              from, to;
    xd_prediction_rank *sum;
} teller;

static void report_piece(void *ctx, char what, double from, double to)
{
    const teller *t = ctx;
    double        a = fmax(from, t->from), b = fmin(to, t->to);
    if (t->s->on_event)
        t->s->on_event(t->s->cookie, t->rank, what, from, to);
    if (b > a && what == 'c')
        t->sum->busy_s += b - a;
    else if (b > a && what == 'w')
        t->sum->wait_s += b - a;
}

/* Reads the times of the simulated steps. For the usual number of passes, also reads each rank's
 * times in the last of these steps, which is then repeated. */
static void read_steps(predictor *s, int passes)
{
    xd_prediction      *f = s->f;
    xd_predicted_steps *of = &f->of[passes];
    int                 n = steps_played(s);
    of->exact_s = mark_time(s, 1);
    f->from_s = mark_time(s, n - 1);
    f->to_s = mark_time(s, n);
    int from = f->fast_attn ? 1 : n > 3 ? n - 2 : n - 1;
    of->step_s = n > 1 ? (mark_time(s, n) - mark_time(s, from)) / (n - from) : of->exact_s;
    if (!f->stale && !f->keeps_refs && !f->fast_attn)
        of->exact_s = of->step_s;
    for (int r = 0; r < f->ranks && passes == s->usual; r++) {
        teller t = { s, r, mark_time(s, n - 1), mark_time(s, n), &f->rank[r] };
        xd_simulation_events(s->simulation, r, report_piece, &t);
    }
}

static xd_status play_steps(predictor *s, int passes, xd_err *e)
{
    xd_prediction *f = s->f;
    double       end;
    xd_status    st = reset_simulation(s, e);
    for (int r = 0; r < f->ranks && st == XD_OK; r++) {
        st = stand_for_rank(s, r, e);
        if (st == XD_OK)
            st = denoise_rank(s, r, passes, e);
        if (st == XD_OK && passes == s->most)
            add_messages(s, r);
    }
    if (st == XD_OK)
        st = run_simulation(s, &end, e);
    if (st != XD_OK)
        return st;
    read_steps(s, passes);
    for (int r = 0; r < f->ranks; r++) {
        double all = s->lane[r].inside + s->lane[r].between;
        f->rank[r].between = all > 0 ? f->rank[r].sent * s->lane[r].between / all : 0;
    }
    return XD_OK;
}

/* Predicts denoising. The reported events are those of steps with the usual number of passes. */
static xd_status predict_denoise(predictor *s, xd_err *e)
{
    xd_prediction *f = s->f;
    xd_status      st = XD_OK;
    s->usual = xd_job_usual_passes(&s->job);
    for (int p = 1; p <= XD_MAXPASS; p++)
        s->most = f->of[p].exact + f->of[p].others ? p : s->most;
    for (int p = 1; p <= XD_MAXPASS && st == XD_OK; p++)
        if (p != s->usual && f->of[p].exact + f->of[p].others)
            st = play_steps(s, p, e);
    if (st == XD_OK)
        st = play_steps(s, s->usual, e);
    xd_predict_cache(f, &s->job);
    f->saved = xd_request_saved(&s->job);
    return st;
}

/* ---- text and image ----------------------------------------------------------------------- */

static int is_negative(const predictor *s, int i)
{
    return i >= s->r->nprompts;
}

/* Returns the number of token ids of text i for encoder k. */
static int64_t ids_of(const predictor *s, int i, int k)
{
    const xd_text_use *u = &s->ctx->model.recipe->text[k];
    const xd_prompts    *w = &s->words;
    const char        *none = is_negative(s, i) ? xd_job_text(s->r, XD_TEXT_NEGATIVE,
                                                              i - s->r->nprompts) : NULL;
    if (w->n)
        return xd_prompts_computed(w, &s->job, i, k);
    if ((u->pad == XD_PAD_NONE || u->pad == XD_PAD_ONE) && u->tokenizer && is_negative(s, i) &&
        !(none && *none))
        return 1 + (u->pad == XD_PAD_ONE) + u->drop + xd_prompt_images_more_ids(&s->job, k);
    return xd_prompts_most_ids(&s->job, k);
}

static xd_status count_texts(predictor *s, int k, size_t *bytes, xd_err *e)
{
    int      texts = s->ctx->model.recipe->text[k].tokenizer ? text_count(s) : 1;
    int64_t *ids = malloc((size_t)texts * sizeof *ids);
    if (!ids)
        return xd_fail(e, XD_ENOMEM, "no memory for %d prompts", texts);
    for (int i = 0; i < texts; i++)
        ids[i] = ids_of(s, i, k);
    xd_status st = xd_prompts_count(&s->job, k, ids, texts, bytes, e);
    free(ids);
    return st;
}

static xd_status text_rank(predictor *s, int me, xd_err *e)
{
    xd_context *ctx = s->ctx;
    xd_need   *n = &s->f->rank[me].need;
    for (int k = 0; k < ctx->model.recipe->ntext; k++) {
        size_t most;
        if (!ctx->model.has_text[k])
            continue;
        xd_simulation_mark(s->simulation, k);   /* time of the encoders before k               */
        xd_cost_device_weights(s->rk, (double)ctx->model.text[k].count->packed);
        if (ctx->count_text && (xd_world_agree_in(ctx->count_text, me, XD_OK, e) != XD_OK ||
            (!ctx->model.recipe->text[k].tokenizer &&
             xd_encoder_images_share(&s->job, ctx->count_text, e) != XD_OK)))
            return e->code;
        if (count_texts(s, k, &most, e) != XD_OK)
            return e->code;
        size_t packed = ctx->model.text[k].count->packed;
        n->text = ctx->keep ? n->text + packed : n->text > packed ? n->text : packed;
        n->text_tmp = n->text_tmp > most ? n->text_tmp : most;
        most = ctx->model.text[k].count->work;
        n->text_work = n->text_work > most ? n->text_work : most;
        raise_host(n, &ctx->model.text[k]);
        if (!s->parts[me].text[k].block)
            s->parts[me].text[k] = xd_predict_block_sizes(&ctx->model.text[k]);
    }
    s->f->rank[me].sent_all += (double)sent_bytes(s);
    xd_simulation_mark(s->simulation, XD_MAXTEXT); /* marks the computing time so far             */
    return XD_OK;
}

static double last_encoder_s(const predictor *s)
{
    int k = s->ctx->model.recipe->ntext - 1;
    while (k > 0 && !s->ctx->model.has_text[k])
        k--;
    return k < 0 ? 0 : s->f->text_s - mark_time(s, k);
}

static xd_status predict_text(predictor *s, xd_err *e)
{
    xd_status st = reset_simulation(s, e);
    s->alone = s->f->plan.text_tp == 1;
    for (int r = 0; r < s->f->plan.text_tp && st == XD_OK; r++) {
        st = stand_for_rank(s, r, e);
        if (st == XD_OK)
            st = text_rank(s, r, e);
        if (st == XD_OK)
            add_messages(s, r);
    }
    if (st == XD_OK)
        st = run_simulation(s, &s->f->text_s, e);
    if (st == XD_OK)
        s->last_text_s = last_encoder_s(s);
    s->alone = 0;
    return st;
}

static int vae_is_alone(const predictor *s)
{
    return !s->f->plan.vae_rows && s->f->plan.deg.n[XD_DATA] == 1;
}

/* Predicts the encoding of the request's images. The images are encoded once, by every replica or
 * by rank 0, but every replica allocates memory for encoding. Encoding may need more memory than
 * decoding. For image to video, encoding may take a large part of the request's time. */
static xd_status predict_encode(predictor *s, xd_err *e)
{
    xd_status st = reset_simulation(s, e);
    s->alone = vae_is_alone(s);
    for (int r = 0; r < s->f->ranks && st == XD_OK; r++) {
        xd_need *n = &s->f->rank[r].need;
        size_t   tmp = 0;
        st = stand_for_rank(s, r, e);
        if (st != XD_OK || !xd_vae_on_this_rank(&s->job))
            continue;
        int64_t before = sent_bytes(s);
        xd_cost_device_weights(s->rk, (double)s->ctx->model.vae.count->packed);
        st = xd_vae_encode_count(&s->job, &tmp, e);
        add_messages(s, r);
        n->vae = s->ctx->model.vae.count->packed;
        n->vae_work = s->ctx->model.vae.count->work;
        raise_host(n, &s->ctx->model.vae);
        n->vae_tmp = tmp > n->vae_tmp ? tmp : n->vae_tmp;
        s->f->rank[r].sent_all += (double)(sent_bytes(s) - before);
        xd_simulation_mark(s->simulation, 0);
    }
    if (st == XD_OK)
        st = run_simulation(s, &s->f->encode_s, e);
    s->alone = 0;
    return st;
}

static xd_status predict_decode(predictor *s, xd_err *e)
{
    xd_status st = reset_simulation(s, e);
    size_t    tmp = 0;
    s->alone = vae_is_alone(s);
    for (int r = 0; r < s->f->ranks && st == XD_OK; r++) {
        xd_need *n = &s->f->rank[r].need;
        st = stand_for_rank(s, r, e);
        if (st != XD_OK || !xd_vae_on_this_rank(&s->job) || s->r->output.latents_only)
            continue;
        int64_t before = sent_bytes(s);
        xd_cost_device_weights(s->rk, (double)s->ctx->model.vae.count->packed);
        st = xd_vae_decode_count(&s->job, &tmp, e);
        add_messages(s, r);
        n->vae_tmp = tmp > n->vae_tmp ? tmp : n->vae_tmp;
        n->vae = s->ctx->model.vae.count->packed;
        n->vae_work = s->ctx->model.vae.count->work;
        raise_host(n, &s->ctx->model.vae);
        s->f->rank[r].sent_all += (double)(sent_bytes(s) - before) * image_count(s);
        xd_simulation_mark(s->simulation, 0);
    }
    if (st == XD_OK)
        st = run_simulation(s, &s->f->decode_s, e);
    s->alone = 0;
    return st;
}

/* ---- other messages ----------------------------------------------------------------------- */

/* Counts the ranks on rank r's host with equal transformer weights, and with equal VAE weights. */
static void group_of(const predictor *s, int r, int group[XD_SHARED_PARTS])
{
    const int *d = s->f->plan.deg.n;
    int        here, first = host_of(s, r, &here),
               below = d[XD_TENSOR] * d[XD_ULYSSES] * d[XD_RING];
    int        replica = below * d[XD_PIPE] * d[XD_CFG];
    int        dit = 0, vae = 0;
    for (int o = first; o < first + here; o++) {
        dit += o % d[XD_TENSOR] == r % d[XD_TENSOR] &&
            o / below % d[XD_PIPE] == r / below % d[XD_PIPE];
        vae += s->f->plan.vae_rows || o % replica == 0;
    }
    if ((s->r->output.latents_only && !xd_job_has_image(s->r)) ||
        (!s->f->plan.vae_rows && r % replica))
        vae = 0;
    group[XD_SHARED_DIT] = xd_job_uses_dit(&s->job, 0) ? dit : 0;
    group[XD_SHARED_DIT2] = xd_job_uses_dit(&s->job, 1) ? dit : 0;
    group[XD_SHARED_VAE] = vae;
}

static void record_agreement(predictor *s, int times, xd_err *e)
{
    for (int i = 0; i < times; i++)
        xd_world_agree(&s->ctx->world, XD_OK, e);
}

/* Simulates messages before encoding: ranks accept the request, share weights, compare memory. */
static xd_status send_start(predictor *s, int me, xd_err *e)
{
    xd_comm  *h = s->ctx->world.host;
    double    v[XD_HOST_SUMS];
    int       group[XD_SHARED_PARTS], two = xd_need_both(&s->job);
    xd_status st = XD_OK;
    group_of(s, me, group);
    /* The ranks exchange a status after each step: accepted, counted, shared, compared host memory,
     * and compared a device's own memory. */
    record_agreement(s, (xd_dev_identity(s->ctx->count) ? 5 : 4) + two, e);
    if (xd_dev_identity(s->ctx->count))
        xd_world_all(&s->ctx->world, 1);        /* all ranks check whether loaded weights stay */
    st = h->size > 1 ? xd_weight_groups_count(s->ctx, group, e) : XD_OK;
    for (int i = 0; i <= two && h->size > 1; i++)
        xd_memory_sum(h, v);
    return st;
}

/* Simulates the broadcast of all embeddings from rank 0. */
static void send_text(predictor *s, xd_err *e)
{
    const xd_context   *ctx = s->ctx;
    const xd_dit_info *d = &ctx->model.dit_info;
    const xd_prompts    *w = &s->words;
    float              any;
    for (int k = 0; k < ctx->model.recipe->ntext; k++)
        if (ctx->model.has_text[k])
            record_agreement(s, s->f->plan.text_tp > 1 ? 2 : 1, e);
    for (int i = 0; i < text_count(s); i++) {
        int64_t rows = 0;
        for (int k = 0; k < ctx->model.recipe->ntext; k++)
            if (ctx->model.recipe->text[k].rows == XD_ROWS_BELOW)
                rows += ids_of(s, i, k) - ctx->model.recipe->text[k].drop;
        if (w->n)
            rows = w->text[i].rows;
        xd_world_broadcast(&ctx->world, &any, rows * d->text_dim * (int64_t)sizeof any, e);
        if (d->pooled_dim)
            xd_world_broadcast(&ctx->world, &any, d->pooled_dim * (int64_t)sizeof any, e);
    }
}

/* Simulates sending an encoded image: its latents, or its pixels to all ranks that encode it. */
static void send_encoded(predictor *s, xd_err *e)
{
    const xd_vae_info *v = &s->ctx->model.vae_info;
    int64_t cells = xd_vae_latents(v, s->job.role->reads_video ? s->job.frames : 1) *
                    s->job.cells[1] * s->job.cells[2];
    int64_t pixels = s->job.size[0] * s->job.size[1] * 3;
    float   any;
    record_agreement(s, 2, e);
    for (int i = 0; i < 1 + xd_job_has_last(s->r) && s->f->plan.vae_rows; i++)
        xd_world_broadcast(&s->ctx->world, &any, pixels * (int64_t)sizeof any, e);
    if (!s->f->plan.vae_rows)
        xd_world_broadcast(&s->ctx->world, &any, 2 * v->channels * cells * (int64_t)sizeof any, e);
}

/* Simulates messages of loading, and of images from other replicas to rank 0 after every round. */
static void send_images(predictor *s, int me, xd_err *e)
{
    const xd_topo *t = &s->ctx->topo;
    int            D = t->deg.n[XD_DATA], one = s->r->output.latents_only ? 0 : 1;
    int64_t        bytes = 4 * (s->job.numbers + one * xd_job_pixels(&s->job));
    /* The ranks exchange a status after loading (also of the VAE), on finite weights, on memory. */
    record_agreement(s, s->f->plan.vae_rows || D > 1 || xd_job_has_image(s->r) ? 4 : 3, e);
    if (xd_job_has_image(s->r) && !s->job.role->tokens)
        send_encoded(s, e);
    for (int i = 0; i < s->job.images; i += D) {
        record_agreement(s, 2 + one, e);
        record_agreement(s, i ? xd_job_changes_again(&s->job) : 3 * xd_job_changes(&s->job), e);
        for (int d = 1; d < D && i + d < s->job.images; d++) {
            record_agreement(s, 1, e);
            if (t->replica->rank == 0 && t->at[XD_DATA] == d)
                s->f->rank[me].sent_all += (double)bytes;
        }
    }
}

/* Counts memory of denoising for the longest text in every pass, as the engine allocates it. */
static xd_status longest_text_bytes(predictor *s, xd_need *n, xd_err *e)
{
    int64_t rows[XD_MAXPASS];
    text_rows(s, rows);
    if ((s->job.npass == 1 || rows[0] == rows[1]) && !xd_job_changes(&s->job))
        return XD_OK;
    rows[0] = rows[1] = rows[0] > rows[1] ? rows[0] : rows[1];
    return xd_denoise_count(&s->job, rows, &n->dit_tmp, &n->method_bytes, e);
}

static xd_status predict_request(predictor *s, xd_err *e)
{
    xd_status st = reset_simulation(s, e);
    for (int r = 0; r < s->f->ranks && st == XD_OK; r++) {
        st = stand_for_rank(s, r, e);
        if (st == XD_OK && s->f->ranks > 1)
            st = send_start(s, r, e);
        if (st == XD_OK && s->f->ranks > 1) {
            send_text(s, e);
            send_images(s, r, e);
            s->f->rank[r].sent_all += (double)sent_bytes(s);
        }
        if (st == XD_OK)
            st = longest_text_bytes(s, &s->f->rank[r].need, e);
    }
    for (int r = 0; r < s->f->ranks; r++)
        s->f->sent += s->f->rank[r].sent_all;
    return st;
}

static xd_status open_predictor(predictor *s, const xd_parallel *a, int ranks, xd_err *e)
{
    xd_context   *ctx = s->ctx;
    xd_prediction *f = s->f;
    xd_status    st = xd_plan_make(&f->plan, a, ranks, &ctx->model.dit_info, e);
    if (st != XD_OK)
        return st;
    f->ranks = xd_degrees_product(f->plan.deg);
    f->stale = (f->plan.changes & XD_STALE_STEPS) != 0;
    f->rank = calloc((size_t)f->ranks, sizeof *f->rank);
    s->lane = calloc((size_t)f->ranks, sizeof *s->lane);
    s->parts = calloc((size_t)f->ranks, sizeof *s->parts);
    if (!f->rank || !s->lane || !s->parts)
        return xd_fail(e, XD_ENOMEM, "no memory to predict %d ranks", f->ranks);
    ctx->plan = f->plan;
    ctx->plan.warmup = 1;
    st = xd_job_open(&s->job, ctx, s->r, e);
    if (st != XD_OK)
        return st;
    if (s->r->nprompts && s->r->prompts[0][0] &&
        xd_prompts_tokenize(&s->words, &s->job, NULL) != XD_OK)
        xd_prompts_close(&s->words, ctx);
    f->steps = s->job.samp.steps;
    f->rounds = (s->job.images + f->plan.deg.n[XD_DATA] - 1) / f->plan.deg.n[XD_DATA];
    s->warm = xd_predict_exact(f, &s->job, &s->played);
    if (f->plan.deg.n[XD_CFG] > 1 && s->job.npass == 1)
        return xd_fail(e, XD_EINVAL,
                       "cfg 2 leaves half of the ranks idle: without guidance (%s above 1) "
                       "each step has one pass", xd_job_guide(&s->job));
    st = xd_stages_cut(&s->job, s->cut, e);
    return st == XD_OK ? xd_cost_device_open(&s->rk, s->base->count, s->m, ctx->type, e) : st;
}

xd_status xd_predict_events(xd_prediction *f, const xd_context *base, const xd_request *r,
                            const xd_parallel *a, int ranks, const xd_machine *m,
                            xd_predicted_event *on_event, void *cookie, xd_err *e)
{
    predictor s = { .base = base, .m = m, .r = r, .f = f, .on_event = on_event, .cookie = cookie };
    memset(f, 0, sizeof *f);
    xd_status st = xd_context_fork(s.ctx = &s.own, base, e);
    if (st == XD_OK)
        st = open_predictor(&s, a, ranks, e);
    if (st == XD_OK) {
        s.own.count = xd_cost_device_dev(s.rk);
        st = predict_denoise(&s, e);
    }
    if (st == XD_OK)
        st = predict_text(&s, e);
    if (st == XD_OK && xd_job_has_image(s.r))
        st = predict_encode(&s, e);
    if (st == XD_OK)
        st = predict_decode(&s, e);
    if (st == XD_OK)
        st = predict_request(&s, e);
    if (st == XD_OK) {
        xd_predict_memory(f, &s.job, s.parts, m);
        f->request_s = f->text_s + f->encode_s + f->rounds * (xd_predict_steps(f) + f->decode_s);
        xd_predict_reading(f, &s.job, m, s.last_text_s);
    }
    leave_rank(&s);
    xd_prompts_close(&s.words, &s.own);
    xd_job_close(&s.job);
    xd_context_fork_close(&s.own, base);
    xd_simulation_close(&s.simulation);
    xd_cost_device_close(&s.rk);
    free(s.lane);
    xd_predict_free_parts(s.parts, s.f->ranks);
    return st;
}

xd_status xd_predict(xd_prediction *f, const xd_context *base, const xd_request *r,
                     const xd_parallel *a, int ranks, const xd_machine *m, xd_err *e)
{
    return xd_predict_events(f, base, r, a, ranks, m, NULL, NULL, e);
}

void xd_prediction_free(xd_prediction *f)
{
    free(f->rank);
    f->rank = NULL;
}
