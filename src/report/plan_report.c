/* plan_report.c - xdit plan: a table of plans, or one of them in detail */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/par.h"
#include "base/record.h"
#include "base/word_list.h"
#include "engine/engine.h"
#include "pipeline/dtypes.h"
#include "pipeline/memory_plan.h"
#include "plan/plan_table.h"
#include "predict/fit.h"
#include "report/bench.h"
#include "report/columns.h"

enum { LEAST_COLD = 1000000 };  /* bytes that are worth a word                                */

typedef struct adviser {
    const xd_advise_args *a;
    xd_engine            *g;
    xd_machine            m;
    xd_request            r;
    xd_search             s;
    int                   ranks;
    double                space; /* bytes that a process of this machine may map; 0: no limit  */
} adviser;

XD_PRINTF(2, 3) static void write_line(const adviser *v, const char *fmt, ...)
{
    char    line[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (v->a->line)
        v->a->line(v->a->cookie, line);
}

/* ---- the table ---------------------------------------------------------------------------- */

/* "bf16", or "bf16 with int8 weights". */
static const char *weights_text(const xd_engine *g, char *out, size_t size)
{
    const char *dtype = xd_dtype_name(g->ctx.type),
                *kept = xd_types_name(&g->ctx.model.dit, g->ctx.type);
    snprintf(out, size, "%s%s%s%s", dtype, kept == dtype ? "" : " with ", kept == dtype ? "" : kept,
             kept == dtype ? "" : " weights");
    return out;
}

static void write_head(const adviser *v)
{
    const xd_prediction *f = &v->s.c[0].f;
    char               types[64];
    write_line(v, "%s on %d of %d rank%s of %s%s, %s, %d steps", v->g->ctx.model.dir, v->ranks,
               v->m.hosts * v->m.ranks, v->m.hosts * v->m.ranks == 1 ? "" : "s", v->m.name,
               v->m.sheet ? " (by data sheet, not fitted)" : "",
               weights_text(v->g, types, sizeof types), f->steps);
}

enum { AT_NUMBER, AT_NAME, AT_STEP, AT_TEXT, AT_DECODE, AT_REQUEST, AT_MEMORY, AT_SENT, COLUMNS };

static void shape_table(const adviser *v, xd_column c[COLUMNS])
{
    static const xd_column all[COLUMNS] = {
        [AT_NUMBER] = { "#", 0, 3, 0, 0, 0 },
        [AT_NAME] = { "plan", 2, -22, 0, 0, 0 },
        [AT_STEP] = { "step, s", 1, 9, 5, 0, 0 },
        [AT_TEXT] = { "text, s", 1, 9, 3, 0, 0 },
        [AT_DECODE] = { "decode, s", 1, 9, 2, 0, 0 },
        [AT_REQUEST] = { "request, s", 1, 9, 0, 0, 0 },
        [AT_MEMORY] = { "memory", 1, 9, 4, 0, 0 },
        [AT_SENT] = { "sent", 1, 9, 1, 0, 0 },
    };
    int longest = (int)strlen(all[AT_NAME].title);
    for (int i = 0; i < v->s.good; i++) {
        int len = (int)strlen(v->s.c[i].name) + 1;
        longest = len > longest ? len : longest;
    }
    memcpy(c, all, sizeof all);
    xd_columns_fit(c, COLUMNS, v->a->columns, AT_NAME, longest);
}

/* What the disk adds to every plan of this machine. */
static void write_reading(const adviser *v)
{
    const double *cold = v->g->ctx.cold,
                 bytes = cold[XD_KIND_TEXT] + cold[XD_KIND_DIT] + cold[XD_KIND_VAE];
    xd_size       text = xd_size_text(bytes);
    if (bytes < LEAST_COLD)
        return;
    if (v->m.read > 0)
        write_line(v,
                   "%s of weights are not in memory: the first request has %.3g s for reading them",
                   text.s, xd_predicted_reading(&v->s.c[0].f));
    else
        write_line(
            v,
            "without reading %s of weights that are not in memory (xdit probe measures the speed)",
            text.s);
}

static void write_row(const adviser *v, const xd_column *shape, int i)
{
    const xd_candidate *c = &v->s.c[i];
    if (c->why.code) {
        write_line(v, "  -  %-22s %s", c->name, c->why.msg);
        return;
    }
    char        line[512], number[16], name[128], num[4][16];
    xd_size     memory = xd_size_text(c->f.peak), sent = xd_size_text((double)c->f.sent);
    const char *cells[COLUMNS] = { number, name, num[0], num[1], num[2], num[3], memory.s, sent.s };
    snprintf(number, sizeof number, "%d", i + 1);
    snprintf(name, sizeof name, "%-21s%s", c->name, c->f.stale ? "~" : "");
    if (shape[AT_NAME].width != -22)
        snprintf(name, sizeof name, "%s%s", c->name, c->f.stale ? "~" : "");
    snprintf(num[0], sizeof num[0], "%.4g", c->f.step_s);
    snprintf(num[1], sizeof num[1], "%.3g", c->f.text_s);
    snprintf(num[2], sizeof num[2], "%.3g",
             c->f.decode_s + xd_predicted_reading_to_decode(&c->f));
    snprintf(num[3], sizeof num[3], "%.4g", c->f.request_s);
    xd_columns_line(shape, COLUMNS, cells, line, sizeof line);
    write_line(v, "%s", line);
}

static void write_table(const adviser *v)
{
    xd_column shape[COLUMNS];
    char      line[512];
    int       stale = 0;
    write_head(v);
    shape_table(v, shape);
    xd_columns_line(shape, COLUMNS, NULL, line, sizeof line);
    write_line(v, "%s", line);
    for (int i = 0; i < v->s.n && (i < v->s.good || v->a->all); i++) {
        write_row(v, shape, i);
        stale |= v->s.c[i].f.stale && !v->s.c[i].why.code;
    }
    if (stale)
        write_line(v,
                   "~ uses keys and values of the step before: the image is close to that of one "
                   "rank, not the same");
    if (v->s.good < v->s.n && !v->a->all)
        write_line(v, "%d plan%s cannot be (--all tells why)", v->s.n - v->s.good,
                   v->s.n - v->s.good == 1 ? "" : "s");
    if (v->s.good)
        write_reading(v);
    if (v->s.good)
        write_line(v, "best: %s", v->s.c[0].flags[0] ? v->s.c[0].flags : "one rank");
}

/* ---- one plan ----------------------------------------------------------------------------- */

enum { STRIP = 64 };

typedef struct strips {         /* one line of characters for each rank                        */
    double from, to;
    int    ranks, wide;
    char  *line;                /* [ranks][wide + 1]                                           */
} strips;

static void draw_piece(void *ctx, int rank, char what, double from, double to)
{
    strips *s = ctx;
    double  unit = (s->to - s->from) / s->wide;
    for (int i = 0; i < s->wide && rank < s->ranks && unit > 0; i++) {
        double at = s->from + (i + 0.5) * unit;
        if (at >= from && at < to)
            s->line[rank * (s->wide + 1) + i] = what == 'c' ? '#' : '.';
    }
}

static void write_ranks(const adviser *v, const xd_prediction *f, const strips *s)
{
    xd_column c[] = {
        { "rank", 0, 4, 0, 0, 0 },         { "text", 2, -9, 2, 0, 0 },  { "transformer", 1, -12, 4, 0, 0 },
        { "vae", 1, -9, 1, 0, 0 },         { "activations", 1, -12, 3, 0, 0 },
        { "peak", 1, -9, 0, 0, 0 },        { "busy", 1, -5, 0, 0, 0 },  { "waits", 2, -5, 6, 0, 0 },
        { "sent a step", 2, -11, 5, 0, 0 },
    };
    enum { N = sizeof c / sizeof *c, PEAK = 5 };
    char line[256];
    xd_columns_fit(c, N, v->a->columns, PEAK, -c[PEAK].width);
    xd_columns_line(c, N, NULL, line, sizeof line);
    write_line(v, "%s", line);
    for (int r = 0; r < f->ranks; r++) {
        const xd_prediction_rank *k = &f->rank[r];
        const xd_need          *n = &k->need;
        double whole = k->busy_s + k->wait_s;
        size_t most = (n->dit_tmp > n->vae_tmp ? n->dit_tmp : n->vae_tmp) + n->links;
        most = most > n->text_tmp ? most : n->text_tmp;
        char    number[16], busy[16], waits[16];
        xd_size size[] = { xd_size_text((double)n->text), xd_size_text((double)n->dit),
                           xd_size_text((double)n->vae),  xd_size_text((double)most),
                           xd_size_text((double)n->peak), xd_size_text((double)k->sent) };
        const char *cells[N] = { number, size[0].s, size[1].s, size[2].s, size[3].s, size[4].s,
                                 busy, waits, size[5].s };
        snprintf(number, sizeof number, "%d", r);
        snprintf(busy, sizeof busy, "%3.0f %%", whole > 0 ? 100 * k->busy_s / whole : 0);
        snprintf(waits, sizeof waits, "%3.0f %%", whole > 0 ? 100 * k->wait_s / whole : 0);
        xd_columns_line(c, N, cells, line, sizeof line);
        write_line(v, "%s", line);
    }
    write_line(v, "one step (# computes, . waits for messages):");
    for (int r = 0; r < f->ranks && s->line; r++)
        write_line(v, "%4d  %s", r, s->line + r * (s->wide + 1));
}

static xd_status explain_plan(adviser *v, int i, xd_err *e)
{
    const xd_candidate *c = &v->s.c[i];
    xd_prediction         f;
    int                 room = v->a->columns > 0 ? v->a->columns - 6 : STRIP;
    strips              s = { .ranks = c->f.ranks, .wide = room < STRIP ? room : STRIP };
    double              whole = c->f.request_s;
    if (s.wide < 1)
        s.wide = 1;
    s.line = malloc((size_t)s.ranks * (size_t)(s.wide + 1));
    if (!s.line)
        return xd_fail(e, XD_ENOMEM, "no memory to explain a plan");
    memset(s.line, ' ', (size_t)s.ranks * (size_t)(s.wide + 1));
    for (int r = 0; r < s.ranks; r++)
        s.line[r * (s.wide + 1) + s.wide] = 0;
    s.from = c->f.from_s;
    s.to = c->f.to_s;
    xd_status st =
        xd_predict_events(&f, &v->g->ctx, &v->r, &c->ask, v->ranks, &v->m, draw_piece, &s, e);
    if (st == XD_OK) {
        write_line(v, "%d: %s%s", i + 1, f.plan.text,
                   v->m.sheet ? " by data sheet, not fitted" : "");
        write_line(v, "flags: %s", c->flags[0] ? c->flags : "none");
        write_line(v,
                   "text %.3g s (%.0f %%), %d exact step%s of %.4g s and %d of %.4g s (%.0f %%), "
                   "decoding %.3g s (%.0f %%): %.4g s",
                   f.text_s, 100 * f.text_s / whole, f.exact, f.exact == 1 ? "" : "s", f.exact_s,
                   f.steps - f.exact, f.step_s,
                   100 * (f.exact * f.exact_s + (f.steps - f.exact) * f.step_s) / whole, f.decode_s,
                   100 * f.decode_s / whole, whole);
        if (xd_predicted_reading(&f) > 0)
            write_line(
                v,
                "of it reading weights that are not in memory: text %.3g s, transformer %.3g s, "
                "VAE %.3g s",
                f.read_s[XD_KIND_TEXT], f.read_s[XD_KIND_DIT], f.read_s[XD_KIND_VAE]);
        write_ranks(v, &f, &s);
    }
    xd_prediction_free(&f);
    free(s.line);
    return st;
}

/* ---- JSON --------------------------------------------------------------------------------- */

static void json_ranks(xd_text_buf *b, const xd_prediction *f)
{
    xd_buf_add(b, ", \"rank\": [");
    for (int r = 0; r < f->ranks; r++) {
        const xd_prediction_rank *k = &f->rank[r];
        xd_buf_add(b, "%s{\"text\": %zu, \"text_tmp\": %zu, \"transformer\": %zu, "
                   "\"transformer_tmp\": %zu, \"vae\": %zu, \"vae_tmp\": %zu, \"peak\": %zu, "
                   "\"busy_s\": %.6g, \"wait_s\": %.6g, \"sent_a_step\": %.0f}",
                   r ? ", " : "", k->need.text, k->need.text_tmp, k->need.dit,
                   k->need.dit_tmp + k->need.links, k->need.vae, k->need.vae_tmp, k->need.peak,
                   k->busy_s, k->wait_s, k->sent);
    }
    xd_buf_add(b, "]");
}

static void json_reading(xd_text_buf *b, const xd_prediction *f)
{
    xd_buf_add(b, ", \"read_text_s\": %.6g, \"read_transformer_s\": %.6g, \"read_vae_s\": %.6g",
               f->read_s[XD_KIND_TEXT], f->read_s[XD_KIND_DIT], f->read_s[XD_KIND_VAE]);
}

static void json_plan(xd_text_buf *b, const xd_candidate *c)
{
    const xd_prediction *f = &c->f;
    xd_buf_add(b, "{\"plan\": \"%s\", \"flags\": ", c->name);
    xd_buf_json_string(b, c->flags);
    if (c->why.code) {
        xd_buf_add(b, ", \"refused\": ");
        xd_buf_json_string(b, c->why.msg);
    }
    if (f->rank && f->steps) {
        xd_buf_add(b, ", \"exact\": %s, \"ranks\": %d, \"step_s\": %.6g, \"exact_step_s\": %.6g, "
                   "\"text_s\": %.6g, \"decode_s\": %.6g, \"request_s\": %.6g, \"steps\": %d, "
                   "\"exact_steps\": %d, \"peak\": %.0f, \"sent\": %.0f",
                   f->stale ? "false" : "true", f->ranks, f->step_s, f->exact_s, f->text_s,
                   f->decode_s, f->request_s, f->steps, f->exact, f->peak, f->sent);
        json_reading(b, f);
        json_ranks(b, f);
    }
    xd_buf_add(b, "}");
}

static xd_status write_json(const adviser *v, xd_err *e)
{
    xd_text_buf   b = { 0 };
    const double *cold = v->g->ctx.cold;
    xd_buf_add(&b, "{\"model\": ");
    xd_buf_json_string(&b, v->g->ctx.model.dir);
    xd_buf_add(&b, ", \"cluster\": ");
    xd_buf_json_string(&b, v->m.name);
    xd_buf_add(&b, ", \"fitted\": %s", v->m.sheet ? "false" : "true");
    xd_buf_add(&b, ", \"cold_bytes\": %.0f",
               cold[XD_KIND_TEXT] + cold[XD_KIND_DIT] + cold[XD_KIND_VAE]);
    xd_buf_add(&b, ", \"ranks\": %d, \"dtype\": \"%s\", \"weights_dtype\": \"%s\", \"plans\": [",
               v->ranks, xd_dtype_name(v->g->ctx.type),
               xd_types_name(&v->g->ctx.model.dit, v->g->ctx.type));
    for (int i = 0; i < v->s.n && (i < v->s.good || v->a->all); i++) {
        xd_buf_add(&b, "%s\n", i ? "," : "");
        json_plan(&b, &v->s.c[i]);
    }
    xd_buf_add(&b, "]}");
    xd_status s = b.failed ? xd_fail(e, XD_ENOMEM, "no memory for a table of %d plans", v->s.n)
                           : XD_OK;
    if (s == XD_OK && v->a->line)
        v->a->line(v->a->cookie, b.p);
    xd_buf_free(&b);
    return s;
}

/* Warns of given options that have no effect on any possible plan. */
static void write_unused(const adviser *v)
{
    const xd_plan_table *t = xd_plan_table_now();
    char                 digits[16];
    for (int i = 0; i < t->n; i++) {
        const xd_plan_row *r = &t->rows[i];
        const char        *given = xd_plan_value(r, &v->a->parallel, digits);
        int                counts = !*given || strcmp(given, r->plain) == 0;
        for (int k = 0; k < v->s.good && !counts; k++)
            counts = xd_plan_counts(r, &v->s.c[k].ask, &v->g->ctx.model.dit_info);
        if (!counts)
            xd_log(XD_LOG_WARN, "%s makes no difference to any of these plans", r->option.name);
    }
}

/* ---- all ---------------------------------------------------------------------------------- */

/* Sets the currently free memory, which an earlier probe of the machine does not know. */
static void set_room(adviser *v)
{
    size_t have, space;
    xd_host_memory(&have, &space);
    v->m.memory = have ? (double)have : 1;
    v->space = space ? (double)space : 1;
}

/* What the disk of this machine has to deliver. A model without weights is planned all the same. */
static void set_cold(adviser *v)
{
    xd_model         m = { 0 };
    xd_context      *ctx = &v->g->ctx;
    const xd_logger *log = xd_log_enter(NULL);
    if (xd_model_open(&m, v->a->model, NULL) == XD_OK &&
        xd_model_files(&m, NULL) == XD_OK)
        xd_model_cold_bytes(&m, ctx->count, ctx->type, ctx->cold);
    xd_model_close(&m);
    xd_log_enter(log);
}

/* Plans, or why there is none and what would fit. */
static xd_status search_plans(adviser *v, xd_err *e)
{
    char   near[1024] = "";
    xd_fit t = { .ctx = &v->g->ctx, .r = &v->r, .m = &v->m, .fixed = &v->a->parallel,
                 .ranks = v->ranks,
                 .stale = !v->a->exact, .chosen = 1, .space = v->space };
    xd_status s = xd_fit_search(&t, &v->s, v->ranks, e);
    if (s == XD_ENOMEM && !v->s.good)
        xd_fit_advice_of(&t, &v->s, near, sizeof near);
    if (e && near[0])
        snprintf(e->msg + strlen(e->msg), sizeof e->msg - strlen(e->msg), "%s", near);
    return s;
}

/* A cluster other than this machine computes in bf16 unless f32 is requested. */
static xd_status open_all(adviser *v, xd_err *e)
{
    static const char *const prompt[] = { "" };
    const xd_advise_args      *a = v->a;
    xd_open_args o = { .size = sizeof o,
                       .model = a->model, .dtype = a->dtype, .weights_dtype = a->weights_dtype,
                       .text_weights_dtype = a->text_weights_dtype, .once = 1, .log = a->log,
                       .cookie = a->cookie,
                       .log_level = a->log_level };
    xd_status    s = a->cluster ? xd_machine_read(&v->m, a->cluster, e) : XD_OK;
    if (s == XD_OK)
        s = xd_open_with(&v->g, &o, XD_FOR_BENCH | XD_ALONE, e);
    if (s != XD_OK)
        return s;
    int threads = xd_par_threads();
    if (!a->cluster) {
        v->ranks = a->ranks ? a->ranks : threads;
        s = xd_machine_here(&v->m, v->g->ctx.dev, v->ranks,
                            threads > v->ranks ? threads / v->ranks : 1, e);
        set_room(v);
        set_cold(v);
    } else if (!a->dtype || strcmp(xd_word_dtype(a->dtype), "f32") != 0) {
        v->g->ctx.type = XD_BF16;
    }
    if (!v->ranks)
        v->ranks = a->ranks ? a->ranks : v->m.hosts * v->m.ranks;
    if (s == XD_OK && v->ranks > v->m.hosts * v->m.ranks)
        s = xd_fail(e, XD_EINVAL, "%d ranks are asked for and %s has %d", v->ranks, v->m.name,
                    v->m.hosts * v->m.ranks);
    if (a->request)
        v->r = *a->request;
    else
        xd_request_init(&v->r);
    v->r.prompts = v->r.nprompts ? v->r.prompts : prompt;
    v->r.nprompts = v->r.nprompts ? v->r.nprompts : 1;
    if (v->r.true_cfg_scale > 1 && !v->r.negative_prompt)
        /* Only the presence of a negative prompt matters, not its text. */
        v->r.negative_prompt = "";
    v->r.image = NULL, v->r.image_pixels = NULL;
    if (s == XD_OK && v->r.prompts[0][0])       /* once for all predictions                    */
        xd_model_tokenizers(&v->g->ctx.model, NULL);
    return s;
}

static xd_status run_advise(const xd_advise_args *a, xd_err *e)
{
    adviser   v = { .a = a };
    xd_status s = open_all(&v, e);
    if (s == XD_OK) {
        s = search_plans(&v, e);
        if (s != XD_OK && v.s.n && a->all && !a->json)
            write_table(&v);
    }
    if (s == XD_OK)
        write_unused(&v);
    if (s == XD_OK && a->explain > v.s.good)
        s = xd_fail(e, XD_EINVAL, "there is no plan %d: there are %d", a->explain, v.s.good);
    if (s == XD_OK && a->json)
        s = write_json(&v, e);
    else if (s == XD_OK && a->explain)
        s = explain_plan(&v, a->explain - 1, e);
    else if (s == XD_OK)
        write_table(&v);
    xd_search_free(&v.s);
    xd_close(&v.g);
    return s;
}

void xd_advise_args_init_size(xd_advise_args *a, size_t size)
{
    xd_record_init(a, size);
}

xd_status xd_advise(const xd_advise_args *args, xd_err *e)
{
    xd_advise_args a;
    xd_request     request;
    xd_advise_args_init(&a);
    xd_status s = xd_record_take(&a, sizeof a, args, "xd_advise_args", e);
    if (s == XD_OK && a.request) {
        s = xd_request_take(&request, a.request, e);
        a.request = &request;
    }
    if (s != XD_OK)
        return s;
    const xd_logger  log = { a.log, a.cookie, a.log_level };
    const xd_logger *before = xd_log_enter(&log);
    s = run_advise(&a, e);
    xd_log_enter(before);
    return s;
}
