/* plan_report.c - prints the result of xdit plan: a table of plans, or one plan in detail */
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/record.h"
#include "pipeline/options.h"
#include "plan/plan_table.h"
#include "report/columns.h"
#include "report/plans.h"

/* the report mentions weights to read from disk only if they have this many bytes */
enum { LEAST_COLD = 1000000 };

XD_PRINTF(2, 3) static void write_line(const xd_plans *p, const char *fmt, ...)
{
    char    line[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (p->a.line)
        p->a.line(p->a.cookie, line);
}

/* ---- the table ---------------------------------------------------------------------------- */

static void write_head(const xd_plans *p)
{
    const xd_plans_info *i = &p->info;
    int                  other = strcmp(i->dtype, i->weights_dtype) != 0;
    write_line(p, "%s on %d of %d rank%s of %s%s, %s%s%s%s, %d steps", i->model, i->ranks,
               i->cluster_ranks, i->cluster_ranks == 1 ? "" : "s", i->cluster,
               i->fitted ? "" : " (by data sheet, not fitted)", i->dtype, other ? " with " : "",
               other ? i->weights_dtype : "", other ? " weights" : "", p->plan[0].steps);
}

enum { AT_NUMBER, AT_NAME, AT_STEP, AT_TEXT, AT_DECODE, AT_REQUEST, AT_MEMORY, AT_SENT, COLUMNS };

static void shape_table(const xd_plans *p, xd_column c[COLUMNS])
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
    for (int i = 0; i < p->info.possible; i++) {
        int len = (int)strlen(p->plan[i].name) + 1;
        longest = len > longest ? len : longest;
    }
    memcpy(c, all, sizeof all);
    xd_columns_fit(c, COLUMNS, p->a.columns, AT_NAME, longest);
}

static double reading_s(const xd_plan_info *t)
{
    return t->read_text_s + t->read_transformer_s + t->read_vae_s;
}

/* Prints the time that the disk of this machine adds to every plan. */
static void write_reading(const xd_plans *p)
{
    xd_size text = xd_size_text(p->info.cold_bytes);
    if (p->info.cold_bytes < LEAST_COLD)
        return;
    if (p->info.read_bytes_s > 0)
        write_line(p,
                   "%s of weights are not in memory: reading them adds %.3g s to the first request",
                   text.s, reading_s(&p->plan[0]));
    else
        write_line(p,
                   "times exclude reading %s of weights from disk (xdit probe measures its speed)",
                   text.s);
}

/* If a device cannot hold all weights, prints how many bytes of weights the plan streams from host
 * memory, and how much host memory the streamed weights need. */
static void write_streaming(const xd_plans *p, int i)
{
    const xd_prediction *f = &p->s.c[i].f;
    double               host = 0;
    for (int r = 0; r < f->ranks && f->rank; r++)
        host = fmax(host, (double)f->rank[r].need.host);
    if (f->streamed > 0)
        write_line(p,
                   "offload: plan %d streams %s per step from %s, at least %.3g s "
                   "at %s/s",
                   i + 1, xd_size_text(f->streamed).s, p->m.shares ? "the files" : "host memory",
                   f->streamed / f->upload, xd_size_text(f->upload).s);
    if (host > 0)
        write_line(p, "plan %d needs %s of host memory per rank", i + 1, xd_size_text(host).s);
}

static void write_row(const xd_plans *p, const xd_column *shape, int i)
{
    const xd_plan_info *t = &p->plan[i];
    if (t->refused) {
        write_line(p, "  -  %-22s %s", t->name, t->refused);
        return;
    }
    char        line[512], number[16], name[128], num[4][16];
    xd_size     memory = xd_size_text(t->peak), sent = xd_size_text(t->sent);
    const char *cells[COLUMNS] = { number, name, num[0], num[1], num[2], num[3], memory.s, sent.s };
    snprintf(number, sizeof number, "%d", i + 1);
    snprintf(name, sizeof name, "%-21s%s", t->name, t->same_image ? "" : "~");
    if (shape[AT_NAME].width != -22)
        snprintf(name, sizeof name, "%s%s", t->name, t->same_image ? "" : "~");
    snprintf(num[0], sizeof num[0], "%.4g", t->step_s);
    snprintf(num[1], sizeof num[1], "%.3g", t->text_s);
    snprintf(num[2], sizeof num[2], "%.3g", t->vae_s);
    snprintf(num[3], sizeof num[3], "%.4g", t->request_s);
    xd_columns_line(shape, COLUMNS, cells, line, sizeof line);
    write_line(p, "%s", line);
}

/* For a line about an option that saves time: appends what the predicted times assume about the
 * option. */
static void add_assumption(const xd_plans *p, const xd_prediction *f, size_t option, xd_text_buf *b)
{
    if (option == offsetof(xd_request, savings.cache) && f->left_out > 0)
        xd_buf_add(b, "; times assume that %.0f %% of the block ranges are skipped",
                   100 * f->left_out);
    else if (option == offsetof(xd_request, savings.gemm) && !(p->m.bf16.fp8_gemm > 0))
        xd_buf_add(b, "; times are without it");
    else if (option == offsetof(xd_request, savings.fast_attn))
        xd_buf_add(b, "; the first steps stand for all");
}

/* Writes a line for each option of the request that changes the image. */
static void write_savings(const xd_plans *p, const xd_prediction *f)
{
    int                   n;
    const xd_request_row *row = xd_request_rows(&n);
    for (int i = 0, bit = 0; i < n; i++) {
        xd_text_buf b = { 0 };
        if (!row[i].about.saves || !(f->saved >> bit++ & 1))
            continue;
        xd_buf_add(&b, "~ with --%s ", row[i].option.name);
        xd_request_value(&row[i], &p->r, &b);
        xd_buf_add(&b, ": the image differs from that without it");
        add_assumption(p, f, row[i].option.offset, &b);
        write_line(p, "%s", b.p ? b.p : "");
        xd_buf_free(&b);
    }
}

static void write_table(const xd_plans *p)
{
    int       stale = 0, good = p->info.possible, refused = p->info.count - good;
    xd_column shape[COLUMNS];
    char      line[512];
    write_head(p);
    shape_table(p, shape);
    xd_columns_line(shape, COLUMNS, NULL, line, sizeof line);
    write_line(p, "%s", line);
    for (int i = 0; i < p->info.count && (i < good || p->a.all); i++) {
        write_row(p, shape, i);
        stale |= p->s.c[i].f.stale && !p->plan[i].refused;
    }
    if (good)
        write_savings(p, &p->s.c[0].f);
    if (stale)
        write_line(p, "~ uses the previous step's keys and values: the image is close to that of "
                      "one rank, but not equal");
    if (good && p->s.c[0].f.coded)
        write_line(p, "~ messages between hosts are rounded to 8 bits (--comms): the image differs "
                      "from that of one rank");
    if (refused && !p->a.all)
        write_line(p, "%d plan%s not possible (--all prints the reasons)", refused,
                   refused == 1 ? " is" : "s are");
    if (good)
        write_reading(p);
    if (good)
        write_streaming(p, 0);
    if (good)
        write_line(p, "best: %s", p->plan[0].flags[0] ? p->plan[0].flags : "one rank");
}

/* ---- one plan ----------------------------------------------------------------------------- */

enum { STRIP = 64 };

typedef struct strips { /* a text drawing of a step, with one line of characters per rank */
    double from, to;
    int    ranks, wide;
    char  *line; /* [ranks][wide + 1]: the lines of the drawing, each terminated by a 0 byte */
} strips;

static void draw_piece(void *ctx, int rank, char what, double from, double to)
{
    strips *s = ctx;
    double  unit = (s->to - s->from) / s->wide;
    for (int i = 0; i < s->wide && rank < s->ranks && unit > 0 && what != 'm'; i++) {
        double at = s->from + (i + 0.5) * unit;
        if (at >= from && at < to)
            s->line[rank * (s->wide + 1) + i] = what == 'c' ? '#' : '.';
    }
}

static void write_ranks(const xd_plans *p, int i, const strips *s)
{
    xd_column c[] = {
        { "rank", 0, 4, 0, 0, 0 },          { "text", 2, -9, 2, 0, 0 },
        { "transformer", 1, -12, 4, 0, 0 }, { "vae", 1, -9, 1, 0, 0 },
        { "activations", 1, -12, 3, 0, 0 }, { "peak", 1, -9, 0, 0, 0 },
        { "busy", 1, -5, 0, 0, 0 },         { "waits", 2, -5, 6, 0, 0 },
        { "sent/step", 2, -11, 5, 0, 0 },
    };
    enum { N = sizeof c / sizeof *c, PEAK = 5 };
    char line[256];
    xd_columns_fit(c, N, p->a.columns, PEAK, -c[PEAK].width);
    xd_columns_line(c, N, NULL, line, sizeof line);
    write_line(p, "%s", line);
    for (int r = 0; r < s->ranks; r++) {
        const xd_plan_rank *k = &p->rank[i][r];
        double      whole = k->busy_s + k->wait_s, vae = (double)(k->vae_tmp + k->method_bytes);
        double      most = fmax(fmax((double)k->transformer_tmp, vae), (double)k->text_tmp);
        char        number[16], busy[16], waits[16];
        xd_size     size[] = { xd_size_text((double)k->text), xd_size_text((double)k->transformer),
                               xd_size_text((double)k->vae),  xd_size_text(most),
                               xd_size_text((double)k->peak), xd_size_text(k->sent) };
        const char *cells[N] = { number,    size[0].s, size[1].s, size[2].s, size[3].s,
                                 size[4].s, busy,      waits,     size[5].s };
        snprintf(number, sizeof number, "%d", r);
        snprintf(busy, sizeof busy, "%3.0f %%", whole > 0 ? 100 * k->busy_s / whole : 0);
        snprintf(waits, sizeof waits, "%3.0f %%", whole > 0 ? 100 * k->wait_s / whole : 0);
        xd_columns_line(c, N, cells, line, sizeof line);
        write_line(p, "%s", line);
    }
    write_line(p, "one step (#: computing, .: waiting for messages):");
    for (int r = 0; r < s->ranks; r++)
        write_line(p, "%4d  %s", r, s->line + r * (s->wide + 1));
}

static void write_plan(const xd_plans *p, int i)
{
    const xd_plan_info *t = &p->plan[i];
    double              whole = t->request_s;
    int                 late = t->steps - t->exact_steps;
    write_line(p, "%d: %s%s", i + 1, t->text, p->info.fitted ? "" : " by data sheet, not fitted");
    write_line(p, "flags: %s", t->flags[0] ? t->flags : "none");
    write_line(p,
               "text %.3g s (%.0f %%), %d exact step%s of %.4g s and %d of %.4g s (%.0f %%), "
               "decoding %.3g s (%.0f %%): %.4g s",
               t->text_s, 100 * t->text_s / whole, t->exact_steps, t->exact_steps == 1 ? "" : "s",
               t->exact_step_s, late, t->step_s,
               100 * (t->exact_steps * t->exact_step_s + late * t->step_s) / whole, t->decode_s,
               100 * t->decode_s / whole, whole);
    write_streaming(p, i);
    if (reading_s(t) > 0)
        write_line(p,
                   "of this, reading weights from disk: text %.3g s, transformer %.3g s, "
                   "VAE %.3g s",
                   t->read_text_s, t->read_transformer_s, t->read_vae_s);
}

/* Predicts plan i once more, to record the events of the plan's last step for draw_piece. */
static xd_status explain_plan(const xd_plans *p, int i, xd_err *e)
{
    const xd_candidate *c = &p->s.c[i];
    xd_prediction       f;
    int                 room = p->a.columns > 0 ? p->a.columns - 6 : STRIP;
    strips              s = { .ranks = c->f.ranks,
                              .from = c->f.from_s,
                              .to = c->f.to_s,
                              .wide = room < 1       ? 1
                                      : room < STRIP ? room
                                                     : STRIP };
    s.line = malloc((size_t)s.ranks * (size_t)(s.wide + 1));
    if (!s.line)
        return xd_fail(e, XD_ENOMEM, "no memory to explain a plan");
    memset(s.line, ' ', (size_t)s.ranks * (size_t)(s.wide + 1));
    for (int r = 0; r < s.ranks; r++)
        s.line[r * (s.wide + 1) + s.wide] = 0;
    xd_status st = xd_predict_events(&f, &p->g->ctx, &p->r, &c->parallel, p->info.ranks, &p->m,
                                     draw_piece, &s, e);
    if (st == XD_OK) {
        write_plan(p, i);
        write_ranks(p, i, &s);
    }
    xd_prediction_free(&f);
    free(s.line);
    return st;
}

/* ---- JSON --------------------------------------------------------------------------------- */

static void json_ranks(xd_text_buf *b, const xd_plan_info *t, const xd_plan_rank *rank)
{
    xd_buf_add(b, ", \"rank\": [");
    for (int r = 0; r < t->ranks; r++) {
        const xd_plan_rank *k = &rank[r];
        xd_buf_add(b,
                   "%s{\"text\": %lld, \"text_tmp\": %lld, \"transformer\": %lld, "
                   "\"transformer_tmp\": %lld, \"vae\": %lld, \"vae_tmp\": %lld, "
                   "\"peak\": %lld, \"busy_s\": %.6g, \"wait_s\": %.6g, \"sent_a_step\": "
                   "%.0f}",
                   r ? ", " : "", (long long)k->text, (long long)k->text_tmp,
                   (long long)k->transformer, (long long)k->transformer_tmp, (long long)k->vae,
                   (long long)k->vae_tmp, (long long)k->peak, k->busy_s, k->wait_s, k->sent);
    }
    xd_buf_add(b, "]");
}

static void json_plan(xd_text_buf *b, const xd_plan_info *t, const xd_plan_rank *rank)
{
    xd_buf_add(b, "{\"plan\": \"%s\", \"flags\": ", t->name);
    xd_buf_json_string(b, t->flags);
    if (t->refused) {
        xd_buf_add(b, ", \"refused\": ");
        xd_buf_json_string(b, t->refused);
    }
    if (t->predicted) {
        xd_buf_add(b,
                   ", \"exact\": %s, \"ranks\": %d, \"step_s\": %.6g, \"exact_step_s\": %.6g, "
                   "\"text_s\": %.6g, \"decode_s\": %.6g, \"request_s\": %.6g, \"steps\": %d, "
                   "\"exact_steps\": %d, \"peak\": %.0f, \"sent\": %.0f",
                   t->same_image ? "true" : "false", t->ranks, t->step_s, t->exact_step_s,
                   t->text_s, t->decode_s, t->request_s, t->steps, t->exact_steps, t->peak,
                   t->sent);
        xd_buf_add(b,
                   ", \"read_text_s\": %.6g, \"read_transformer_s\": %.6g, "
                   "\"read_vae_s\": %.6g",
                   t->read_text_s, t->read_transformer_s, t->read_vae_s);
        json_ranks(b, t, rank);
    }
    xd_buf_add(b, "}");
}

static xd_status write_json(const xd_plans *p, xd_err *e)
{
    const xd_plans_info *i = &p->info;
    xd_text_buf          b = { 0 };
    xd_buf_add(&b, "{\"model\": ");
    xd_buf_json_string(&b, i->model);
    xd_buf_add(&b, ", \"cluster\": ");
    xd_buf_json_string(&b, i->cluster);
    xd_buf_add(&b, ", \"fitted\": %s", i->fitted ? "true" : "false");
    xd_buf_add(&b, ", \"cold_bytes\": %.0f", i->cold_bytes);
    xd_buf_add(&b, ", \"ranks\": %d, \"dtype\": \"%s\", \"weights_dtype\": \"%s\", \"plans\": [",
               i->ranks, i->dtype, i->weights_dtype);
    for (int k = 0; k < i->count && (k < i->possible || p->a.all); k++) {
        xd_buf_add(&b, "%s\n", k ? "," : "");
        json_plan(&b, &p->plan[k], p->rank[k]);
    }
    xd_buf_add(&b, "]}");
    xd_status s = b.failed ? xd_fail(e, XD_ENOMEM, "no memory for a table of %d plans", i->count)
                           : XD_OK;
    if (s == XD_OK && p->a.line)
        p->a.line(p->a.cookie, b.p);
    xd_buf_free(&b);
    return s;
}

/* Warns about options that the user has given but that have no effect on any possible plan. */
static void write_unused(const xd_plans *p)
{
    const xd_plan_table *t = xd_plan_table_now();
    char                 digits[16];
    for (int i = 0; i < t->n; i++) {
        const xd_plan_row *r = &t->rows[i];
        const char        *given = xd_plan_value(r, &p->a.parallel, digits);
        int                counts = !*given || strcmp(given, r->default_text) == 0;
        for (int k = 0; k < p->info.possible && !counts; k++)
            counts = xd_plan_counts(r, &p->plan[k].parallel, &p->g->ctx.model.dit_info);
        if (!counts)
            xd_log(XD_LOG_WARN, "%s has no effect on any of these plans", r->option.name);
    }
}

/* ---- all ---------------------------------------------------------------------------------- */

void xd_advise_args_init_size(xd_advise_args *a, size_t size)
{
    xd_record_init(a, size);
}

static xd_status write_report(const xd_plans *p, xd_status s, xd_err *e)
{
    const xd_advise_args *a = &p->a;
    if (s != XD_OK && p->info.count && a->all && !a->json)
        write_table(p);
    if (s != XD_OK)
        return s;
    write_unused(p);
    if (a->explain > p->info.possible)
        return xd_fail(e, XD_EINVAL, "there is no plan %d: the table has %d", a->explain,
                       p->info.possible);
    if (a->svg && (s = xd_plans_draw(p, a->svg, e)) != XD_OK)
        return s;
    if (a->json)
        return write_json(p, e);
    if (a->explain)
        return explain_plan(p, a->explain - 1, e);
    write_table(p);
    return XD_OK;
}

xd_status xd_advise(const xd_advise_args *args, xd_err *e)
{
    xd_plans *p = NULL;
    xd_status s = xd_plans_make(&p, args, e);
    if (!p)
        return s;
    const xd_logger  log = { p->a.log, p->a.cookie, p->a.log_level };
    const xd_logger *before = xd_log_enter(&log);
    s = write_report(p, s, e);
    xd_log_enter(before);
    xd_plans_free(&p);
    return s;
}
