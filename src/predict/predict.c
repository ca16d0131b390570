/* predict.c - predicts a request by running it as every rank of a plan on the count device, which
 * computes nothing */
#include "predict/predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/minmax.h"
#include "exec/op.h"
#include "model/component.h"
#include "families/recipe.h"
#include "pipeline/arenas.h"
#include "pipeline/audio_decode.h"
#include "pipeline/context.h"
#include "pipeline/denoise.h"
#include "pipeline/job.h"
#include "pipeline/memory_plan.h"
#include "pipeline/offload.h"
#include "pipeline/options.h"
#include "pipeline/stages.h"
#include "pipeline/prompt_images.h"
#include "pipeline/text_encode.h"
#include "pipeline/upsampling.h"
#include "pipeline/vae_codec.h"
#include "plan/plan.h"
#include "plan/plan_table.h"
#include "predict/predict_memory.h"
#include "predict/predict_messages.h"
#include "predict/predict_texts.h"
#include "ranks/world.h"

enum { STEPS = 5, VARIED = 24 }; /* max simulated steps; VARIED if fast_attn is used */

typedef struct predictor {
    const xd_context   *base;
    xd_context         *ctx; /* context `own`, which represents a rank of the plan */
    xd_context          own;
    const xd_machine   *m;
    const xd_request   *r;
    xd_request          quiet;  /* the request without its callbacks */
    xd_request          played; /* copy of r with references only in the first step */
    xd_prediction      *f;
    xd_job              job;
    xd_prompts          words; /* the request's texts */
    int                 known; /* 0: `words` has texts of maximum length */
    xd_cost_device     *rk;
    xd_simulation      *simulation;
    double              last_text_s; /* seconds of the last text encoder */
    xd_offload_parts   *parts;       /* [ranks]: sizes of blocks, malloc'ed */
    xd_part_bytes      *bytes;       /* [ranks]: bytes sent by parts, malloc'ed */
    xd_lane            *lane;
    int                 cut[XD_MAXSTAGE + 1];
    int                 warm;        /* number of exact steps of each transformer */
    int                 single;      /* 1: of two passes, the second has no steps */
    int                 alone;       /* 1: only one rank computes, the others are idle */
    int                 usual, most; /* number of passes: in most steps; max in a step */
    int                 text;        /* the text (xd_predicted_text) whose steps are simulated */
    int                *text_of;     /* [prompts]: text of each prompt, malloc'ed */
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
    int         n = s->f->ranks, tp = s->f->plan.deg.n[XD_TENSOR], T = s->f->plan.text_tp;
    int         here, first = host_of(s, me, &here);
    leave_rank(s);
    record_lap(s);
    xd_status st = xd_comm_record(&ctx->count_world, me, n,
                                  xd_simulation_record(s->simulation, me, record_lap, s), e);
    if (st == XD_OK)
        ctx->count_world->traffic->way = message_way(s);
    if (st == XD_OK)
        st = xd_topo_open(&ctx->count_topo, ctx->count_world, s->f->plan.deg, e);
    xd_topo_assume_hosts(&ctx->count_topo, s->f->plan.codes, s->m->ranks);
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

static xd_predicted_text *text_now(const predictor *s)
{
    return &s->f->text[s->text];
}

/* Makes views of embeddings, without memory, for all passes of the current text. */
static void make_conds(const predictor *s, const xd_arena *a, xd_cond cond[XD_MAXPASS])
{
    const xd_dit_info *d = &s->ctx->model.dit_info;
    int                prompt = text_now(s)->prompt;
    for (int i = 0; i < 1 + xd_job_has_negative(&s->job); i++) {
        int     negative = i == XD_PASS_NEGATIVE;
        int64_t rows = s->known ? xd_prompts_rows(&s->words, &s->job, prompt, negative)
                                : xd_prompts_most_rows(&s->job);
        cond[i].tok = xd_view2(a->base, XD_F32, rows, d->text_dim);
        if (d->pooled_dim)
            cond[i].pooled = xd_view2(a->base, XD_F32, 1, d->pooled_dim);
        if (s->known)
            xd_prompts_real_tokens_of(&s->words, &s->job,
                                      negative ? xd_prompts_negative(&s->words, prompt) : prompt,
                                      cond[i].real);
        else
            xd_prompts_real_tokens(&s->job, cond[i].real);
    }
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
    const xd_dit *dit = s->ctx->model.dit.dit;
    const int     sent = s->f->plan.deg.n[XD_PIPE] > 1 && dit->prefix;
    return (s->f->plan.deg.n[XD_TENSOR] > 1 || sent) && dit->read ? first - step_bytes(s, f, 0) : 0;
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
    const xd_predicted_steps *of = &text_now(s)->of[passes];
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
        k->sent = c->fast_attn && i       ? (k->sent * (i - 1) + last) / i
                  : i == 0 || i < all - 1 ? last
                                          : k->sent;
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
        if (s->job.audio_numbers)
            xd_denoise_audio_latents(f, NULL);
        sum += (double)(sent_bytes(s) - before);
    }
    s->bytes[me].denoise[s->text] += sum;
}

static void raise_host(xd_need *n, const xd_component *p)
{
    n->host_work = n->host_work > p->count->host_work ? n->host_work : p->count->host_work;
}

/* Counts the weights of a component, and predicts the next ops as those of this component, whose
 * weights may be in a cache. */
static xd_status begin_component(const predictor *s, xd_component *p, xd_err *e)
{
    xd_status st = xd_component_count(p, s->ctx->count, s->ctx->type, e);
    xd_cost_device_weights(s->rk, (double)p->count->packed);
    return st;
}

/* Returns the number of encoded texts: prompts, then negative prompts. */
static int text_count(const predictor *s)
{
    return s->r->nprompts + (s->job.npass > 1 ? xd_job_negatives(s->r) : 0);
}

/* Returns the bytes of the embeddings like xd_prompts_bytes. Unknown texts all have the maximum
 * length. */
static size_t embedding_bytes(const predictor *s)
{
    const xd_dit_info *d = &s->ctx->model.dit_info;
    if (s->known || !xd_dev_identity(s->ctx->count))
        return xd_prompts_bytes(&s->words, &s->job);
    int64_t numbers = xd_prompts_most_rows(&s->job) * d->text_dim + d->pooled_dim;
    return (size_t)text_count(s) * (size_t)numbers * sizeof(float);
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
    xd_context   *ctx = s->ctx;
    xd_component *p = xd_model_dit(&ctx->model, xd_job_dit(&s->job, 0));
    xd_denoise    f;
    xd_arena      a;
    xd_cond       cond[XD_MAXPASS] = { { .tok = { 0 } } };
    xd_status     st = begin_component(s, p, e);
    if (st == XD_OK)
        st = xd_device_arena_open(&a, ctx->count, 0, e);
    if (st != XD_OK)
        return st;
    make_conds(s, &a, cond);
    xd_denoise_open(&f, &s->job, ctx->count, &ctx->count_topo, &a, &p->count->shadow, cond, 0);
    denoise_steps(s, &f, me, passes);
    xd_need *need = &s->f->rank[me].need;
    need->dit_tmp = xd_max_size(need->dit_tmp, xd_arena_peak(&a));
    need->method_bytes = xd_max_size(need->method_bytes, f.stack.bytes);
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

/* Returns 1 if the current steps represent the request: those of the longest text with the usual
 * number of passes. */
static int is_usual(const predictor *s, int passes)
{
    return passes == s->usual && s->text == s->f->texts - 1;
}

/* Reads the times of the simulated steps. For the usual steps, also reads each rank's times in the
 * last of these steps, which is then repeated. */
static void read_steps(predictor *s, int passes)
{
    xd_prediction      *f = s->f;
    xd_predicted_steps *of = &text_now(s)->of[passes];
    int                 n = steps_played(s);
    of->exact_s = mark_time(s, 1);
    f->from_s = mark_time(s, n - 1);
    f->to_s = mark_time(s, n);
    int from = f->fast_attn ? 1 : n > 3 ? n - 2 : n - 1;
    of->step_s = n > 1 ? (mark_time(s, n) - mark_time(s, from)) / (n - from) : of->exact_s;
    if (!f->stale && !f->keeps_refs && !f->fast_attn)
        of->exact_s = of->step_s;
    for (int r = 0; r < f->ranks && is_usual(s, passes); r++) {
        teller t = { s, r, mark_time(s, n - 1), mark_time(s, n), &f->rank[r] };
        xd_simulation_events(s->simulation, r, report_piece, &t);
    }
}

static xd_status play_steps(predictor *s, int passes, xd_err *e)
{
    xd_prediction *f = s->f;
    double         end;
    xd_status      st = reset_simulation(s, e);
    for (int r = 0; r < f->ranks && st == XD_OK; r++) {
        st = stand_for_rank(s, r, e);
        if (st == XD_OK)
            st = denoise_rank(s, r, passes, e);
        if (st == XD_OK && passes == s->most && s->text == f->texts - 1)
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

/* Predicts denoising. The last steps that are simulated are the usual ones. */
static xd_status predict_denoise(predictor *s, xd_err *e)
{
    xd_prediction            *f = s->f;
    const xd_predicted_steps *of = f->text[0].of;
    xd_status                 st = XD_OK;
    s->usual = xd_job_usual_passes(&s->job);
    for (int p = 1; p <= XD_MAXPASS; p++)
        s->most = of[p].exact + of[p].others ? p : s->most;
    for (s->text = 0; s->text < f->texts && st == XD_OK; s->text++) {
        for (int p = 1; p <= XD_MAXPASS && st == XD_OK; p++)
            if (p != s->usual && of[p].exact + of[p].others)
                st = play_steps(s, p, e);
        if (st == XD_OK)
            st = play_steps(s, s->usual, e);
    }
    xd_predict_cache(f, &s->job);
    f->saved = xd_request_saved(&s->job);
    return st;
}

/* ---- text and image ----------------------------------------------------------------------- */

static xd_status count_texts(predictor *s, int k, size_t *bytes, xd_err *e)
{
    int      texts = s->ctx->model.recipe->text[k].tokenizer ? text_count(s) : 1;
    int64_t *ids = malloc((size_t)texts * sizeof *ids);
    if (!ids)
        return xd_fail(e, XD_ENOMEM, "no memory for %d prompts", texts);
    for (int i = 0; i < texts; i++)
        ids[i] = xd_prompts_computed(&s->words, &s->job, i, k);
    xd_status st = xd_prompts_count(&s->job, k, ids, texts, bytes, e);
    free(ids);
    return st;
}

static xd_status text_rank(predictor *s, int me, xd_err *e)
{
    xd_context *ctx = s->ctx;
    xd_need    *n = &s->f->rank[me].need;
    for (int k = 0; k < ctx->model.recipe->ntext; k++) {
        size_t most;
        if (!ctx->model.has_text[k] || (!ctx->keep && !xd_prompts_need(&s->job, k)))
            continue;
        xd_simulation_mark(s->simulation, k); /* time of the encoders before k */
        int64_t before = sent_bytes(s);
        if (begin_component(s, &ctx->model.text[k], e) != XD_OK ||
            xd_prompts_start(&s->job, k, ctx->count_text, XD_OK, e) != XD_OK ||
            count_texts(s, k, &most, e) != XD_OK)
            return e->code;
        s->bytes[me].text[k] = (double)(sent_bytes(s) - before);
        size_t packed = ctx->model.text[k].count->packed;
        n->text = ctx->keep ? n->text + packed : n->text > packed ? n->text : packed;
        n->text_tmp = n->text_tmp > most ? n->text_tmp : most;
        most = ctx->model.text[k].count->work;
        n->text_work = n->text_work > most ? n->text_work : most;
        raise_host(n, &ctx->model.text[k]);
        if (!s->parts[me].text[k].block)
            s->parts[me].text[k] = xd_predict_block_sizes(&ctx->model.text[k]);
    }
    xd_simulation_mark(s->simulation, XD_MAXTEXT); /* marks the computing time so far */
    return XD_OK;
}

static double last_encoder_s(const predictor *s)
{
    int k = s->ctx->model.recipe->ntext - 1;
    while (k > 0 && !xd_prompts_need(&s->job, k))
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
        int reads = xd_vae_encodes(&s->job);
        if (reads)
            st = begin_component(s, &s->ctx->model.vae, e);
        if (st == XD_OK)
            st = xd_vae_encode_count(&s->job, &tmp, e);
        add_messages(s, r);
        if (reads) {
            n->vae = s->ctx->model.vae.count->packed;
            n->vae_work = s->ctx->model.vae.count->work;
            raise_host(n, &s->ctx->model.vae);
        }
        n->vae_tmp = tmp > n->vae_tmp ? tmp : n->vae_tmp;
        xd_simulation_mark(s->simulation, 0);
    }
    if (st == XD_OK)
        st = run_simulation(s, &s->f->encode_s, e);
    s->alone = 0;
    return st;
}

/* Predicts the networks of audio, which run behind the VAE on the first rank of each replica. */
static xd_status decode_audio(predictor *s, xd_need *n, xd_err *e)
{
    size_t    weights = 0, tmp = 0;
    xd_status st = XD_OK;
    double    bytes = 0;
    for (int i = 0; st == XD_OK && i < XD_MAXAUDIO && s->ctx->model.audio[i].audio; i++) {
        st = begin_component(s, &s->ctx->model.audio[i], e);
        bytes += (double)s->ctx->model.audio[i].count->packed;
    }
    xd_cost_device_weights(s->rk, bytes);
    if (st == XD_OK)
        st = xd_audio_count(&s->job, &weights, &tmp, e);
    n->audio = weights + tmp;
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
        if (st != XD_OK || !xd_vae_on_this_rank(&s->job) ||
            (s->r->output.latents_only && s->job.segments < 2))
            continue;
        int64_t before = sent_bytes(s);
        st = begin_component(s, &s->ctx->model.vae, e);
        if (st == XD_OK)
            st = xd_vae_decode_count(&s->job, &tmp, e);
        add_messages(s, r);
        n->vae_tmp = tmp > n->vae_tmp ? tmp : n->vae_tmp;
        n->vae = s->ctx->model.vae.count->packed;
        n->vae_work = s->ctx->model.vae.count->work;
        raise_host(n, &s->ctx->model.vae);
        if (st == XD_OK)
            st = decode_audio(s, n, e);
        s->bytes[r].decode = (double)(sent_bytes(s) - before);
        xd_simulation_mark(s->simulation, 0);
    }
    if (st == XD_OK)
        st = run_simulation(s, &s->f->decode_s, e);
    s->alone = 0;
    return st;
}

/* Predicts the latent upsampler, which runs on the first rank of each replica. */
static xd_status predict_upsampler(predictor *s, xd_err *e)
{
    if (!s->ctx->model.upsampler.upsampler) /* latents are interpolated in no time */
        return XD_OK;
    xd_status     st = reset_simulation(s, e);
    xd_component *vae = &s->ctx->model.vae;
    double        one_s = 0;
    s->alone = s->f->plan.deg.n[XD_DATA] == 1;
    for (int r = 0; r < s->f->ranks && st == XD_OK; r++) {
        xd_need *n = &s->f->rank[r].need;
        size_t   weights = 0, tmp = 0;
        st = stand_for_rank(s, r, e);
        if (st != XD_OK || s->ctx->topo.replica->rank)
            continue;
        st = begin_component(s, &s->ctx->model.upsampler, e);
        if (st == XD_OK)
            st = xd_upsampling_count(&s->job, &weights, &tmp, e);
        n->vae = vae->count->packed + weights;
        n->vae_work = vae->count->work;
        n->vae_tmp = xd_max_size(n->vae_tmp, tmp);
        raise_host(n, vae);
        xd_simulation_mark(s->simulation, 0);
    }
    if (st == XD_OK)
        st = run_simulation(s, &one_s, e);
    s->f->first_s += s->f->rounds * one_s;
    s->alone = 0;
    return st;
}

/* Adds the first pass `first` to the prediction of the second. If the second pass has no steps, the
 * steps are those of the first. */
static void add_first_pass(predictor *s, const xd_prediction *first)
{
    xd_prediction *f = s->f;
    for (int r = 0; r < f->ranks; r++) {
        xd_need       *n = &f->rank[r].need;
        const xd_need *o = &first->rank[r].need;
        n->dit_tmp = xd_max_size(s->single ? 0 : n->dit_tmp, o->dit_tmp);
        n->method_bytes = xd_max_size(s->single ? 0 : n->method_bytes, o->method_bytes);
        n->vae_tmp = xd_max_size(n->vae_tmp, o->vae_tmp);
        n->messages = xd_max_size(n->messages, o->messages);
        memcpy(s->bytes[r].first, first->rank[r].denoised, sizeof s->bytes[r].first);
    }
    f->encode_s += first->encode_s;
    if (!s->single)
        return;
    s->job.samp.steps = 0;
    f->exact_s = first->exact_s, f->step_s = first->step_s;
    f->exact = first->exact, f->steps = first->steps;
}

/* Predicts the first pass of a request with two passes, like a request of a model without latent
 * upsampler. */
static xd_status predict_first_pass(predictor *s, const xd_parallel *a, int ranks, xd_err *e)
{
    xd_context    plain = *s->base;
    xd_prediction first;
    plain.model.upsampler = (xd_component){ .name = NULL };
    xd_status st = xd_predict(&first, &plain, s->job.small->r, a, ranks, s->m, e);
    if (st == XD_OK)
        add_first_pass(s, &first);
    double steps_s = st == XD_OK ? xd_predict_steps(&first) : 0;
    xd_prediction_free(&first);
    if (st == XD_OK)
        st = predict_upsampler(s, e);
    s->f->first_s += s->single ? 0 : steps_s;
    s->f->passes_s = s->f->first_s + (s->single ? steps_s : xd_predict_steps(s->f));
    return st;
}

/* Returns 1 if the simulated steps have counted the memory of `most` rows in every pass. */
static int counts_longest(const predictor *s, int64_t most)
{
    xd_arena none = { 0 };
    xd_cond  cond[XD_MAXPASS] = { { .tok = { 0 } } };
    int64_t  real[XD_MAXTEXT] = { 0 };
    int      counts = s->f->texts == 1 && !xd_job_changes(&s->job);
    make_conds(s, &none, cond);
    xd_prompts_real_tokens(&s->job, real);
    for (int i = 0; i < 1 + xd_job_has_negative(&s->job); i++)
        counts &= cond[i].tok.d[0] == most && memcmp(cond[i].real, real, sizeof real) == 0;
    return counts;
}

/* Counts memory of denoising for the longest text in every pass, as the engine allocates it. */
static xd_status predict_longest_text(predictor *s, xd_err *e)
{
    int64_t   most = s->known ? xd_prompts_longest(&s->words, &s->job)
                              : xd_prompts_most_rows(&s->job);
    xd_status st = reset_simulation(s, e);
    s->text = 0;
    if (counts_longest(s, most))
        return st;
    for (int r = 0; r < s->f->ranks && st == XD_OK; r++) {
        xd_need *n = &s->f->rank[r].need;
        size_t   tmp, method;
        st = stand_for_rank(s, r, e);
        if (st == XD_OK)
            st = xd_denoise_count(&s->job, (int64_t[XD_MAXPASS]){ most, most }, &tmp, &method, e);
        if (st != XD_OK)
            return st;
        n->dit_tmp = xd_max_size(n->dit_tmp, tmp);
        n->method_bytes = xd_max_size(n->method_bytes, method);
    }
    return st;
}

/* Counts the bytes that all ranks send for the request. */
static xd_status count_messages(predictor *s, xd_err *e)
{
    xd_status st = reset_simulation(s, e);
    for (int r = 0; r < s->f->ranks && s->f->ranks > 1 && st == XD_OK; r++) {
        double *sent = &s->f->rank[r].sent_all;
        st = stand_for_rank(s, r, e);
        if (st == XD_OK)
            st = xd_predict_messages(&s->job, &s->words, &s->f->rank[r].need, &s->parts[r],
                                     &s->bytes[r], sent, e);
        s->f->sent += *sent;
    }
    return st;
}

/* ---- all parts ---------------------------------------------------------------------------- */

/* Returns the max number of token ids of text i for encoder k. An absent negative prompt is
 * empty. */
static int64_t most_ids(const predictor *s, int i, int k)
{
    const xd_text_use *u = &s->ctx->model.recipe->text[k];
    int                n = s->r->nprompts;
    const char        *none = i < n ? NULL : xd_job_text(s->r, XD_TEXT_NEGATIVE, i - n);
    if ((u->pad == XD_PAD_NONE || u->pad == XD_PAD_ONE) && u->tokenizer && i >= n &&
        !(none && *none))
        return !u->quoted + (u->pad == XD_PAD_ONE) + u->drop + u->cut + u->tail +
               xd_prompt_images_more_ids(&s->job, k);
    return xd_prompts_most_ids(&s->job, k);
}

/* Makes texts of the maximum length in place of unknown texts. */
static xd_status guess_texts(predictor *s, xd_err *e)
{
    const xd_recipe *p = s->ctx->model.recipe;
    xd_prompts      *w = &s->words;
    int              n = s->r->nprompts + xd_job_negatives(s->r);
    *w = (xd_prompts){ .ntext = p->ntext, .prompts = s->r->nprompts };
    if (!(w->text = calloc((size_t)n, sizeof *w->text)))
        return xd_fail(e, XD_ENOMEM, "no memory for %d prompts", n);
    w->n = n;
    for (int i = 0; i < n; i++) {
        xd_prompt *t = &w->text[i];
        for (int k = 0; k < p->ntext; k++) {
            t->ids[k].n = t->ids[k].real = most_ids(s, i, k);
            if (p->text[k].rows == XD_ROWS_BELOW)
                t->rows += xd_prompts_kept(&s->job, k, t->ids[k].n, i >= s->r->nprompts);
        }
        t->rows = xd_job_text_rows(&s->job, t->rows);
    }
    return XD_OK;
}

static xd_status open_predictor(predictor *s, const xd_parallel *a, int ranks, xd_err *e)
{
    xd_context    *ctx = s->ctx;
    xd_prediction *f = s->f;
    xd_status      st = xd_plan_make(&f->plan, a, ranks, &ctx->model.dit_info, e);
    if (st != XD_OK)
        return st;
    f->ranks = xd_degrees_product(f->plan.deg);
    f->stale = (f->plan.changes & XD_STALE_STEPS) != 0;
    f->coded = (f->plan.changes & XD_CODED_MESSAGES) && f->ranks > s->m->ranks;
    f->rank = calloc((size_t)f->ranks, sizeof *f->rank);
    s->lane = calloc((size_t)f->ranks, sizeof *s->lane);
    s->parts = calloc((size_t)f->ranks, sizeof *s->parts);
    s->bytes = calloc((size_t)f->ranks, sizeof *s->bytes);
    if (!f->rank || !s->lane || !s->parts || !s->bytes)
        return xd_fail(e, XD_ENOMEM, "no memory to predict %d ranks", f->ranks);
    ctx->plan = f->plan;
    ctx->plan.warmup = 1;
    st = xd_job_open(&s->job, ctx, s->r, e);
    if (st != XD_OK)
        return st;
    s->job.rank0_images = xd_job_images(s->r);
    s->known = s->r->prompts[0][0] && xd_prompts_tokenize(&s->words, &s->job, NULL) == XD_OK;
    if (!s->known) {
        xd_prompts_close(&s->words, ctx);
        st = guess_texts(s, e);
    }
    if (st != XD_OK)
        return st;
    s->single = s->job.small && !s->job.samp.steps;
    if (s->single) /* a step is counted, so that its memory and times are those of a request */
        s->job.samp.steps = 1;
    f->steps = s->job.samp.steps;
    f->rounds = (s->job.images + f->plan.deg.n[XD_DATA] - 1) / f->plan.deg.n[XD_DATA];
    if (!(s->text_of = calloc((size_t)s->r->nprompts, sizeof *s->text_of)))
        return xd_fail(e, XD_ENOMEM, "no memory for %d prompts", s->r->nprompts);
    xd_predict_texts(f, &s->words, &s->job, s->known, s->text_of);
    for (int r = 0; r < f->ranks; r++)
        s->bytes[r].text_of = s->text_of;
    s->warm = xd_predict_exact(f, &s->job, &s->played);
    if (f->plan.deg.n[XD_CFG] > 1 && s->job.npass == 1)
        return xd_fail(e, XD_EINVAL,
                       "cfg 2 leaves half of the ranks idle: without guidance (%s above 1) "
                       "each step has one pass",
                       xd_job_guide(&s->job));
    st = xd_stages_cut(&s->job, s->cut, e);
    return st == XD_OK ? xd_cost_device_open(&s->rk, s->base->count, s->m, ctx->type, e) : st;
}

xd_status xd_predict_events(xd_prediction *f, const xd_context *base, const xd_request *r,
                            const xd_parallel *a, int ranks, const xd_machine *m,
                            xd_predicted_event *on_event, void *cookie, xd_err *e)
{
    predictor s = { .base = base, .m = m, .f = f, .on_event = on_event, .cookie = cookie };
    memset(f, 0, sizeof *f);
    s.quiet = *r;
    s.quiet.callbacks = (xd_request_callbacks){ 0 };
    s.r = &s.quiet;
    xd_status st = xd_context_fork(s.ctx = &s.own, base, e);
    if (st == XD_OK)
        st = open_predictor(&s, a, ranks, e);
    if (st == XD_OK) {
        s.own.count = xd_cost_device_dev(s.rk);
        st = predict_denoise(&s, e);
    }
    if (st == XD_OK)
        st = predict_text(&s, e);
    if (st == XD_OK && xd_job_encodes(&s.job))
        st = predict_encode(&s, e);
    if (st == XD_OK)
        st = predict_decode(&s, e);
    if (st == XD_OK)
        st = predict_longest_text(&s, e);
    for (int i = 0; st == XD_OK && i < f->ranks; i++)
        memcpy(f->rank[i].denoised, s.bytes[i].denoise, sizeof f->rank[i].denoised);
    if (st == XD_OK && s.job.small)
        st = predict_first_pass(&s, a, ranks, e);
    if (st == XD_OK) {
        xd_predict_memory(f, &s.job, s.parts, m);
        st = count_messages(&s, e);
    }
    if (st == XD_OK) {
        f->request_s = f->text_s + f->encode_s + f->rounds * f->decode_s;
        f->request_s += f->passes_s > 0 ? f->passes_s : xd_predict_steps(f);
        xd_predict_reading(f, &s.job, m, s.last_text_s);
    }
    leave_rank(&s);
    xd_prompts_close(&s.words, &s.own);
    xd_job_close(&s.job);
    xd_context_fork_close(&s.own, base);
    xd_simulation_close(&s.simulation);
    xd_cost_device_close(&s.rk);
    free(s.lane);
    free(s.bytes);
    free(s.text_of);
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
