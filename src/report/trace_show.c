/* trace_show.c - runs `xdit trace`: prints how long each rank of a run computed and waited, and
 * draws a timeline */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/record.h"
#include "report/columns.h"
#include "report/timeline.h"
#include "xdit/tools.h"

enum { MOST_RANKS = 65536 };

typedef struct rank_state { /* state of a rank while the file's events are read in order */
    /* begin and end of the shown step in seconds; to is 0 if the rank has no such step */
    double from, to;
    double before;    /* end of the previous step in seconds; 0: there is no previous step */
    double piece_end; /* end of the current work item in seconds */
    /* patch: PipeFusion patch that the rank is computing. on_device: 1 if the trace has times that
     * were measured on the rank's device. */
    int    patch, on_device;
} rank_state;

/* An event with a duration. received: 1 if the event is a message to this rank. */
typedef struct slice {
    const char *cat;
    int         rank, step, patch, received;
    double      from, to; /* begin and end of the event in seconds */
} slice;

typedef struct shown {
    const xd_trace_args *a;
    const xd_json       *root;
    /* [n] events in the order of the file; the texts of the events belong to `root` */
    slice               *slice;
    int                  n, ranks, step, steps;
    rank_state          *rank; /* [ranks]: states of the ranks */
    /* all: timeline of the complete request; one: timeline of the shown step */
    xd_timeline          all, one;
} shown;

static double number_of(const xd_json *j, const char *key)
{
    double v = 0;
    return xd_json_number(xd_json_get(j, key), &v) ? v : 0;
}

static int int_of(const xd_json *j, const char *key, int other)
{
    double v;
    return xd_json_number(xd_json_get(j, key), &v) && fabs(v) < 1e9 ? (int)v : other;
}

/* Reads an event with a duration from a JSON value. Returns 0 if the value is not such an event. */
static int read_slice(const xd_json *j, slice *s)
{
    const char    *ph = xd_json_text(xd_json_get(j, "ph"));
    const xd_json *args = xd_json_get(j, "args");
    *s = (slice){ xd_json_text(xd_json_get(j, "cat")),
                  int_of(j, "pid", -1),
                  int_of(args, "step", 0),
                  int_of(args, "patch", -1),
                  xd_json_get(args, "received") != NULL,
                  number_of(j, "ts") * 1e-6,
                  0 };
    s->to = s->from + number_of(j, "dur") * 1e-6;
    return ph && strcmp(ph, "X") == 0 && s->cat && s->rank >= 0 && s->rank < MOST_RANKS;
}

static int is_cat(const slice *s, const char *cat)
{
    return strcmp(s->cat, cat) == 0;
}

/* ---- reading ------------------------------------------------------------------------------ */

static xd_status open_trace(shown *t, xd_json **doc, xd_err *e)
{
    xd_status st = xd_json_read(doc, t->a->trace, e);
    if (st != XD_OK)
        return st;
    t->root = *doc;
    const xd_json *events = xd_json_get(t->root, "traceEvents");
    t->slice = malloc(((size_t)xd_json_size(events) + 1) * sizeof *t->slice);
    if (!t->slice)
        return xd_fail(e, XD_ENOMEM, "no memory for the events of %s", t->a->trace);
    for (const xd_json *j = xd_json_first(events); j; j = xd_json_next(j)) {
        slice *s = &t->slice[t->n];
        if (!read_slice(j, s))
            continue;
        t->n++;
        t->ranks = s->rank >= t->ranks ? s->rank + 1 : t->ranks;
        t->steps = is_cat(s, "step") && s->step > t->steps ? s->step : t->steps;
        t->all.to = fmax(t->all.to, s->to);
    }
    if (!t->ranks || !t->steps)
        return xd_fail(e, XD_EFORMAT,
                       "%s has no steps: it is not a trace that "
                       "\"xdit generate --trace FILE\" wrote",
                       t->a->trace);
    t->step = t->a->step ? t->a->step : t->steps;
    if (t->step > t->steps)
        return xd_fail(e, XD_EINVAL, "%s has no step %d: it has %d", t->a->trace, t->step,
                       t->steps);
    t->rank = calloc((size_t)t->ranks, sizeof *t->rank);
    return t->rank ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory for %d ranks", t->ranks);
}

/* Finds the step that is shown; if the trace has several images, the step of the last image. Steps
 * overlap on the ranks of a pipeline. A step is therefore shown from the time at which the last
 * rank ended the previous step to the time at which the last rank ended this step. */
static void find_step(shown *t)
{
    for (int i = 0; i < t->n; i++) {
        const slice *s = &t->slice[i];
        rank_state  *r = &t->rank[s->rank];
        r->on_device |= is_cat(s, "device");
        if (is_cat(s, "step") && s->step == t->step - 1)
            r->before = s->to;
        if (is_cat(s, "step") && s->step == t->step)
            r->from = s->from, r->to = s->to;
    }
    t->one.from = INFINITY;
    double before = 0;
    for (int r = 0; r < t->ranks; r++)
        if (t->rank[r].to > 0) {
            t->one.from = fmin(t->one.from, t->rank[r].from);
            t->one.to = fmax(t->one.to, t->rank[r].to);
            before = fmax(before, t->rank[r].before);
        }
    t->one.from = before > 0 && before < t->one.to ? before : t->one.from;
}

/* Returns the kind of span that is drawn for an event. Returns XD_SPAN_KINDS if the event is not
 * drawn. */
static xd_span_kind kind_of(const slice *s, const rank_state *r)
{
    return is_cat(s, "wait")                           ? XD_SPAN_WAIT
           : is_cat(s, "flight") && !s->received       ? XD_SPAN_MESSAGE
           : is_cat(s, r->on_device ? "device" : "op") ? XD_SPAN_COMPUTE
                                                       : XD_SPAN_KINDS;
}

static void add_slices(shown *t)
{
    for (int i = 0; i < t->n; i++) {
        const slice *s = &t->slice[i];
        rank_state  *r = &t->rank[s->rank];
        xd_span_kind kind = kind_of(s, r);
        if (is_cat(s, "piece"))
            r->patch = s->patch, r->piece_end = s->to;
        if (kind == XD_SPAN_KINDS)
            continue;
        int patch = s->from < r->piece_end ? r->patch : -1;
        xd_timeline_add(&t->all, s->rank, kind, patch, s->from, s->to);
        xd_timeline_add(&t->one, s->rank, kind, patch, s->from, s->to);
    }
}

/* ---- output ------------------------------------------------------------------------------- */

static void put_line(const shown *t, const char *line)
{
    if (t->a->line)
        t->a->line(t->a->cookie, line);
}

static void share_text(const xd_timeline *t, int rank, xd_span_kind kind, char *out, size_t size)
{
    double all = t->to - t->from;
    double part = t->sum[rank * XD_SPAN_KINDS + (int)kind];
    snprintf(out, size, "%.0f %%", all > 0 ? 100 * part / all : 0);
}

static const char *plan_of(const shown *t)
{
    const char *plan = xd_json_text(xd_json_get(xd_json_get(t->root, "otherData"), "plan"));
    return plan ? plan : "an unknown plan";
}

static void write_table(const shown *t)
{
    static const xd_column shape[] = {
        { "rank", 0, 4, 0, 0, 0 },         { "computes", 2, -9, 0, 0, 0 },
        { "waits", 2, -9, 0, 0, 0 },       { "step computes", 2, -14, 0, 0, 0 },
        { "step waits", 2, -11, 0, 0, 0 },
    };
    enum { N = sizeof shape / sizeof *shape };
    char        line[256], cell[N][16];
    const char *cells[N];
    snprintf(line, sizeof line, "%d rank%s, %s: %.4g s, step %d of %d: %.4g s", t->ranks,
             t->ranks == 1 ? "" : "s", plan_of(t), t->all.to, t->step, t->steps,
             t->one.to - t->one.from);
    put_line(t, line);
    xd_columns_line(shape, N, NULL, line, sizeof line);
    put_line(t, line);
    for (int r = 0; r < t->ranks; r++) {
        snprintf(cell[0], sizeof cell[0], "%d", r);
        share_text(&t->all, r, XD_SPAN_COMPUTE, cell[1], sizeof cell[1]);
        share_text(&t->all, r, XD_SPAN_WAIT, cell[2], sizeof cell[2]);
        share_text(&t->one, r, XD_SPAN_COMPUTE, cell[3], sizeof cell[3]);
        share_text(&t->one, r, XD_SPAN_WAIT, cell[4], sizeof cell[4]);
        for (int i = 0; i < N; i++)
            cells[i] = cell[i];
        xd_columns_line(shape, N, cells, line, sizeof line);
        put_line(t, line);
    }
}

static xd_status draw(const shown *t, xd_err *e)
{
    xd_drawing d;
    char       title[256];
    snprintf(title, sizeof title, "%d rank%s, %s: as measured", t->ranks, t->ranks == 1 ? "" : "s",
             plan_of(t));
    xd_drawing_open(&d, title, 0);
    snprintf(title, sizeof title, "the request: %.4g s", t->all.to);
    xd_drawing_add(&d, &t->all, title);
    snprintf(title, sizeof title, "step %d of %d: %.4g s", t->step, t->steps,
             t->one.to - t->one.from);
    xd_drawing_add(&d, &t->one, title);
    xd_status s = xd_drawing_write(&d, t->a->svg, e);
    xd_drawing_close(&d);
    return s;
}

void xd_trace_args_init_size(xd_trace_args *a, size_t size)
{
    xd_record_init(a, size);
}

xd_status xd_trace_show(const xd_trace_args *args, xd_err *e)
{
    xd_trace_args a;
    xd_json      *doc = NULL;
    shown         t = { .a = &a };
    xd_trace_args_init(&a);
    xd_status s = xd_record_read(&a, sizeof a, args, "xd_trace_args", e);
    if (s == XD_OK && !a.trace)
        s = xd_fail(e, XD_EINVAL, "no trace is given");
    if (s == XD_OK)
        s = open_trace(&t, &doc, e);
    if (s == XD_OK) {
        find_step(&t);
        t.all.ranks = t.one.ranks = t.ranks;
        s = xd_timeline_open(&t.all, e);
    }
    if (s == XD_OK)
        s = xd_timeline_open(&t.one, e);
    if (s == XD_OK) {
        add_slices(&t);
        s = a.svg ? draw(&t, e) : XD_OK;
    }
    if (s == XD_OK)
        write_table(&t);
    xd_timeline_close(&t.all);
    xd_timeline_close(&t.one);
    free(t.rank);
    free(t.slice);
    xd_json_free(&doc);
    return s;
}
