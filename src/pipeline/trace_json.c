/* trace_json.c - writes the events that the ranks have recorded to a file in the format of Chrome
 * traces.
 *
 * Every rank formats its own events as text. One rank after the other sends its text to rank 0 in
 * pieces of limited size, so no rank needs memory for the events of another rank. The times in the
 * trace are those of rank 0's clock, and the first event of all ranks has time 0. Ranks of one
 * machine share a clock. For ranks of other machines, the offset of the clock is measured by the
 * fastest of several round trips of a message. An arrow connects the sending of a message with its
 * receipt. Messages arrive in the order of sending, so sender and receiver number the messages
 * alike, and these numbers need not be sent. */
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pipeline/trace_json.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "observe/profile.h"
#include "observe/trace.h"
#include "pipeline/context.h"
#include "pipeline/job.h"

/* MOST is the max length of one event's text in bytes. */
enum { PIECE = 1 << 16, LANES = 256, ASKS = 16, MOST = 4096 };

typedef struct rank_info { /* describes a rank to the other ranks */
    int64_t first;         /* time of the rank's first event in ns */
    int64_t lost;
    char    host[64], boot[96]; /* name of the host; identity of the host's clock (read_boot) */
} rank_info;

typedef struct sink { /* state of a rank that writes its events as text */
    xd_comm *c;       /* communicator for sending to rank 0; NULL on rank 0 */
    xd_out   out;     /* output file on rank 0 */
    size_t   n;
    /* failed is 1 after a failed message; written is 1 after the first event */
    int      failed, written;
    int64_t  zero; /* this rank's clock at time 0 of the trace, in ns */
    int      rank, ranks;
    char     text[PIECE];
} sink;

/* ---- writing text ------------------------------------------------------------------------- */

static int has_ended(xd_comm *c, xd_req r)
{
    return c->ops->wait(c, &r, 1) == XD_OK;
}

static xd_tensor bytes_at(void *p, int64_t n)
{
    return xd_view(p, XD_U8, 1, &n);
}

static void flush_buffer(sink *s)
{
    int64_t n = (int64_t)s->n;
    if (!s->c && s->out.f)
        fwrite(s->text, 1, s->n, s->out.f);
    else if (s->c && !s->failed && n)
        s->failed = !has_ended(s->c, s->c->ops->send(s->c, bytes_at(&n, sizeof n), 0)) ||
                    !has_ended(s->c, s->c->ops->send(s->c, bytes_at(s->text, n), 0));
    s->n = 0;
}

static void add_text(sink *s, const char *text, size_t n)
{
    for (size_t part; n; text += part, n -= part) {
        if (s->n == sizeof s->text)
            flush_buffer(s);
        part = n < sizeof s->text - s->n ? n : sizeof s->text - s->n;
        memcpy(s->text + s->n, text, part);
        s->n += part;
    }
}

static void write_format(sink *s, const char *fmt, ...) XD_PRINTF(2, 3);
static void write_format(sink *s, const char *fmt, ...)
{
    char    line[1024];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (n > 0 && n < (int)sizeof line) /* always true: `line` has space for every event */
        add_text(s, line, (size_t)n);
}

static void write_escaped(sink *s, const char *text)
{
    xd_text_buf b = { 0 };
    xd_buf_json_string(&b, text ? text : "");
    if (b.failed)
        write_format(s, "\"\"");
    else
        add_text(s, b.p, strlen(b.p));
    xd_buf_free(&b);
}

/* Writes a time in microseconds with three decimals; negative times become 0. */
static void write_time(sink *s, const char *key, int64_t ns)
{
    ns = ns > 0 ? ns : 0;
    write_format(s, ",\"%s\":%" PRId64 ".%03d", key, ns / 1000, (int)(ns % 1000));
}

/* Begins the text of an event. Before the text, writes a comma, except for the first event of the
 * file. The buffer is sent only between two events. If the rest of a rank's text is lost, the
 * received text therefore has only complete events. */
static void write_event(sink *s, const char *ph, int tid)
{
    if (s->n > PIECE - MOST)
        flush_buffer(s);
    write_format(s, "%s{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d", s->written || s->rank ? ",\n" : "",
                 ph, s->rank, tid);
    s->written = 1;
}

/* ---- names of messages and events --------------------------------------------------------- */

static const char *group_name(int group)
{
    static const char *const names[XD_NGROUPS] = {
        "tensor", "ulysses",  "ring",    "pipefusion", "cfg",
        "data",   "sequence", "replica", "vae",        "ranks",
    };
    return group >= 0 && group < XD_NGROUPS ? names[group] : "ranks";
}

/* Writes the name of a message, such as "ulysses exchange". For messages between pipeline stages,
 * the name also contains "hidden" or "latents": hidden states go to the next stage, and latents
 * return to the first stage. */
static void message_name(const xd_event *e, int rank, char *name, size_t size)
{
    static const char *const calls[XD_NCALLS] = {
        "all-reduce", "broadcast", "gather", "exchange", "send", "receive", "barrier",
    };
    int         call = e->a % 16, forward = call == XD_CALL_SEND ? e->b > rank : e->b < rank;
    const char *what = e->a / 16 != XD_PIPE || e->b < 0 ? "" : forward ? " hidden" : " latents";
    snprintf(name, size, "%s %s%s", group_name(e->a / 16), call < XD_NCALLS ? calls[call] : "?",
             what);
}

static void patch_name(int patch, char *name, size_t size)
{
    if (patch == XD_ALL)
        snprintf(name, size, "all tokens");
    else
        snprintf(name, size, "patch %d", patch);
}

static void event_name(const xd_event *e, int rank, char *name, size_t size)
{
    char what[64];
    patch_name(e->b, what, sizeof what);
    switch ((xd_event_kind)e->kind) {
    case XD_EV_PHASE: snprintf(name, size, "%s", xd_trace_phase_name(e->a)); return;
    case XD_EV_STEP: snprintf(name, size, "step %d", e->a + 1); return;
    case XD_EV_PIECE: snprintf(name, size, "%s%s", what, e->c ? ", negative" : ""); return;
    case XD_EV_BLOCK: snprintf(name, size, "block %d", e->a); return;
    case XD_EV_SAMPLER: snprintf(name, size, "sampler, %s", what); return;
    case XD_EV_OP:
    case XD_EV_DEVICE: snprintf(name, size, "%s", xd_op_name((xd_op)e->a)); return;
    case XD_EV_WAIT:
        message_name(e, rank, what, sizeof what);
        snprintf(name, size, "wait %s", what);
        return;
    default: message_name(e, rank, name, size);
    }
}

/* ---- writing events ----------------------------------------------------------------------- */

static void write_args(sink *s, const xd_event *e)
{
    int send = e->a % 16 == XD_CALL_SEND, recv = e->a % 16 == XD_CALL_RECV;
    switch ((xd_event_kind)e->kind) {
    case XD_EV_STEP: write_format(s, ",\"args\":{\"step\":%d}", e->a + 1); return;
    case XD_EV_PIECE:
        write_format(s, ",\"args\":{\"step\":%d,\"patch\":%d,\"pass\":%d}", e->a + 1, e->b, e->c);
        return;
    case XD_EV_SAMPLER:
        write_format(s, ",\"args\":{\"step\":%d,\"patch\":%d}", e->a + 1, e->b);
        return;
    case XD_EV_CALL:
    case XD_EV_FLIGHT:
        write_format(s, ",\"args\":{\"%s\":%" PRId64, recv ? "received" : "sent", e->bytes);
        if (e->b >= 0)
            write_format(s, ",\"%s\":%d,\"number\":%d", send ? "to" : "from", e->b, e->c);
        write_format(s, "}");
        return;
    default: return;
    }
}

static void write_slice(sink *s, const xd_event *e, int tid)
{
    static const char *const cats[] = {
        "phase", "step", "piece", "block", "sampler", "op", "message", "wait", "flight", "device",
    };
    char name[96];
    event_name(e, s->rank, name, sizeof name);
    write_event(s, "X", tid);
    write_time(s, "ts", e->t0 - s->zero);
    write_time(s, "dur", e->t1 - e->t0);
    write_format(s, ",\"cat\":\"%s\",\"name\":\"%s\"", cats[e->kind], name);
    write_args(s, e);
    write_format(s, "}");
}

/* Writes one end of the arrow that is drawn for a message. The arrow's id combines the two ranks,
 * their group and the message's number. */
static void write_arrow(sink *s, const xd_event *e, int begin)
{
    int64_t from = begin ? s->rank : e->b, to = begin ? e->b : s->rank, W = s->ranks;
    int64_t pair = ((int64_t)(e->a / 16) * W + from) * W + to;
    write_event(s, begin ? "s" : "f", 0);
    write_time(s, "ts", begin ? e->t0 - s->zero : e->t1 - s->zero - 1);
    write_format(s, ",\"cat\":\"arrow\",\"name\":\"%s\",\"id\":%" PRId64 "%s}",
                 group_name(e->a / 16), e->c * W * W * XD_NGROUPS + pair,
                 begin ? "" : ",\"bp\":\"e\"");
}

static void write_thread(sink *s, int tid, const char *name)
{
    write_event(s, "M", tid);
    write_format(s, ",\"name\":\"thread_name\",\"args\":{\"name\":\"%s\"}}", name);
    write_event(s, "M", tid);
    write_format(s, ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%d}}", tid);
}

/* Returns the key by which events are sorted before they are written: 0 for events of the rank's
 * thread, 1 for messages in transit, 2 for events of the device. */
static int lane_of(const xd_event *e)
{
    return e->kind == XD_EV_DEVICE ? 2 : e->kind == XD_EV_FLIGHT;
}

static int by_begin(const void *p, const void *q)
{
    const xd_event *a = p, *b = q;
    int             ga = lane_of(a), gb = lane_of(b);
    if (ga != gb)
        return ga - gb;
    if (a->t0 != b->t0)
        return a->t0 < b->t0 ? -1 : 1;
    return a->t1 == b->t1 ? 0 : a->t1 > b->t1 ? -1 : 1;
}

/* Writes a message in transit. Messages in transit overlap, but the events in one lane (a thread of
 * the trace) must not overlap. So each message in transit is written to the first lane that is free
 * at its begin. */
static void write_flight(sink *s, const xd_event *e, int64_t *until, int *lanes)
{
    char name[32];
    int  i = 0;
    while (i < *lanes && until[i] > e->t0)
        i++;
    if (i == LANES)
        return; /* all lanes are in use: only the call that sends the message is shown */
    if (i == *lanes) {
        snprintf(name, sizeof name, i ? "messages %d" : "messages", i + 1);
        write_thread(s, ++*lanes, name);
    }
    until[i] = e->t1;
    write_slice(s, e, i + 1);
}

static void write_all(sink *s, xd_trace *t)
{
    int64_t until[LANES];
    int     lanes = 0, device = 0;
    qsort(t->ev, (size_t)t->n, sizeof *t->ev, by_begin);
    write_thread(s, 0, "compute");
    for (int64_t i = 0; i < t->n; i++) {
        const xd_event *e = &t->ev[i];
        int             call = e->a % 16;
        if (e->kind == XD_EV_DEVICE && !device++)
            write_thread(s, LANES + 1, "device");
        if (e->kind == XD_EV_FLIGHT)
            write_flight(s, e, until, &lanes);
        else if (e->kind == XD_EV_DEVICE)
            write_slice(s, e, LANES + 1);
        else
            write_slice(s, e, 0);
        if (e->kind == XD_EV_CALL && call == XD_CALL_SEND)
            write_arrow(s, e, 1);
        if (e->kind == XD_EV_FLIGHT && call == XD_CALL_RECV)
            write_arrow(s, e, 0);
    }
}

/* Writes the name of a rank, such as "rank 3, HOST, cfg 1, stage 1": the rank's number, its host,
 * and its coordinates along the plan's axes. */
static void write_process(sink *s, const xd_context *ctx, const char *host)
{
    static const char *const axis[XD_NAXES] = {
        "tensor", "ulysses", "ring", "stage", "cfg", "replica",
    };
    xd_text_buf b = { 0 };
    xd_buf_add(&b, "rank %d, %s", s->rank, host);
    for (int a = XD_NAXES - 1; a >= 0; a--)
        if (ctx->topo.deg.n[a] > 1)
            xd_buf_add(&b, ", %s %d", axis[a], ctx->topo.at[a]);
    write_event(s, "M", 0);
    write_format(s, ",\"name\":\"process_name\",\"args\":{\"name\":");
    write_escaped(s, b.failed ? "rank" : b.p);
    write_format(s, "}}");
    write_event(s, "M", 0);
    write_format(s, ",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%d}}", s->rank);
    xd_buf_free(&b);
}

/* ---- writing the file --------------------------------------------------------------------- */

static void write_head(sink *s, const xd_job *j, const rank_info *infos, int64_t sent, xd_status st,
                       const xd_err *e)
{
    const xd_context *ctx = j->ctx;
    int64_t           lost = 0;
    for (int r = 0; r < s->ranks; r++)
        lost += infos[r].lost;
    write_format(
        s, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"version\":\"xdit %s\",\"plan\":\"%s\"",
        xd_version(), ctx->plan.text);
    write_format(s, ",\"model\":");
    write_escaped(s, ctx->model.dir);
    write_format(s, ",\"pipeline\":\"%s\",\"dtype\":\"%s\",\"device\":\"%s\",\"ranks\":%d",
                 ctx->model.recipe->name, xd_dtype_name(ctx->type), ctx->dev->name, s->ranks);
    write_format(s, ",\"width\":%" PRId64 ",\"height\":%" PRId64 ",\"steps\":%d,\"patches\":%d",
                 j->size[1], j->size[0], j->samp.steps, ctx->plan.npatch);
    if (j->fps > 0)
        write_format(s, ",\"frames\":%" PRId64, j->frames);
    write_format(s, ",\"images\":%d,\"sent\":%" PRId64 ",\"events_lost\":%" PRId64 ",\"outcome\":",
                 j->images, sent, lost);
    write_escaped(s, st == XD_OK ? "done" : e->msg[0] ? e->msg : xd_status_name(st));
    write_format(s, "},\n\"traceEvents\":[\n");
}

static void write_tail(sink *s, const xd_context *ctx)
{
    int used = s->ranks;
    for (s->rank = used; s->rank < ctx->world.all->size; s->rank++) {
        write_event(s, "M", 0);
        write_format(s, ",\"name\":\"process_name\",\"args\":{\"name\":\"rank %d, idle\"}}",
                     s->rank);
    }
    write_format(s, "\n]}\n");
    flush_buffer(s);
}

/* On rank 0, receives the text of another rank's events. Returns 0 if a message fails; the rest of
 * the rank's text is then missing. */
static int receive_text(sink *s, xd_comm *c, int from)
{
    for (;;) {
        int64_t n = 0;
        if (!has_ended(c, c->ops->recv(c, bytes_at(&n, sizeof n), from)) || n < 0 || n > PIECE)
            return 0;
        if (!n)
            return 1;
        if (!has_ended(c, c->ops->recv(c, bytes_at(s->text, n), from)))
            return 0;
        s->n = (size_t)n;
        flush_buffer(s);
    }
}

/* ---- comparing the clocks of ranks -------------------------------------------------------- */

/* Writes an identity of this host's clock to `boot`. It consists of the machine's boot id and the
 * time namespace, because processes for which both are equal have the same clock. If the system
 * provides no boot id, the identity is the host's name. */
static void read_boot(char *boot, size_t size, const char *host)
{
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    snprintf(boot, size, "%s", host);
    if (f && fgets(boot, 40, f)) {
        size_t  n = strcspn(boot, "\n");
        ssize_t more = readlink("/proc/self/ns/time", boot + n, size - n - 1);
        boot[n + (size_t)(more > 0 ? more : 0)] = 0;
    }
    if (f)
        fclose(f);
}

/* Measures the offset of the clock of rank `who` from that of rank 0, on both ranks. Rank 0 sends a
 * request, and rank `who` answers with its time. */
static int64_t ask_clock(xd_comm *c, int who)
{
    int64_t best = INT64_MAX, ahead = 0;
    int     peer = c->rank == 0 ? who : 0;
    for (int i = 0; i < ASKS; i++) {
        int64_t t0 = xd_now_ns(), theirs = 0;
        if (c->rank) {
            has_ended(c, c->ops->recv(c, bytes_at(&theirs, sizeof theirs), peer));
            theirs = xd_now_ns();
            has_ended(c, c->ops->send(c, bytes_at(&theirs, sizeof theirs), peer));
            continue;
        }
        int     ok = has_ended(c, c->ops->send(c, bytes_at(&t0, sizeof t0), peer)) &&
                     has_ended(c, c->ops->recv(c, bytes_at(&theirs, sizeof theirs), peer));
        int64_t trip = xd_now_ns() - t0;
        if (ok && trip < best) {
            best = trip;
            ahead = theirs - (t0 + trip / 2);
        }
    }
    has_ended(c, c->rank ? c->ops->recv(c, bytes_at(&ahead, sizeof ahead), 0)
                         : c->ops->send(c, bytes_at(&ahead, sizeof ahead), who));
    return ahead;
}

/* Returns when the first event of all ranks happened, in ns of this rank's clock. This is time 0 of
 * the trace. */
static int64_t find_zero(xd_comm *c, rank_info *infos)
{
    int64_t mine = 0, first, one = 1;
    for (int r = 1; r < c->size; r++) {
        if (strcmp(infos[r].boot, infos[0].boot) == 0 || (c->rank && c->rank != r))
            continue;
        int64_t ahead = ask_clock(c, r);
        if (c->rank == r)
            mine = ahead;
    }
    first = infos[c->rank].first - mine;
    if (!has_ended(c, c->ops->allreduce(c, xd_view(&first, XD_I64, 1, &one), XD_MIN)))
        return infos[c->rank].first;
    return first + mine;
}

/* ---- collecting the events of all ranks ----------------------------------------------------- */

static rank_info my_rank_info(const xd_trace *t)
{
    rank_info mine = { .first = INT64_MAX, .lost = t->lost };
    for (int64_t i = 0; i < t->n; i++)
        mine.first = t->ev[i].t0 < mine.first ? t->ev[i].t0 : mine.first;
    gethostname(mine.host, sizeof mine.host - 1);
    read_boot(mine.boot, sizeof mine.boot, mine.host);
    return mine;
}

/* On every rank, gathers the descriptions of all ranks. `ok` is 1 if this rank has memory for the
 * descriptions. Returns 0 if a rank has no memory or a message fails. */
static int exchange_ranks(xd_comm *c, rank_info *infos, int64_t *rows, int ok)
{
    int32_t all = ok;
    int64_t one = 1;
    if (!has_ended(c, c->ops->allreduce(c, xd_view(&all, XD_I32, 1, &one), XD_MIN)) || !all)
        return 0;
    rank_info mine = infos[c->rank];
    for (int i = 0; i < c->size; i++)
        rows[i] = 1;
    return has_ended(c, c->ops->gather(c, xd_view2(infos, XD_U8, c->size, sizeof *infos), rows,
                                       xd_view2(&mine, XD_U8, 1, sizeof mine)));
}

static xd_status write_file(sink *s, xd_job *j, const rank_info *infos, int64_t sent, xd_status st,
                            int alone, xd_err *e)
{
    xd_context *ctx = j->ctx;
    xd_err      why = { .rank = -1 };
    int         whole = 1;
    if (s->rank) {
        int64_t end = 0;
        s->c = ctx->world.used;
        write_process(s, ctx, infos[s->rank].host);
        write_all(s, ctx->trace);
        flush_buffer(s);
        if (!s->failed && has_ended(s->c, s->c->ops->send(s->c, bytes_at(&end, sizeof end), 0)))
            return st;
        return xd_fail(e, XD_ECOMM, "gathering the trace failed");
    }
    xd_status w = xd_out_open(&s->out, ctx->trace->path, &why);
    write_head(s, j, infos, sent, st, e);
    write_process(s, ctx, infos[0].host);
    write_all(s, ctx->trace);
    flush_buffer(s);
    for (int r = 1; r < s->ranks && !alone && whole; r++)
        whole = receive_text(s, ctx->world.used, r);
    write_tail(s, ctx);
    if (w == XD_OK)
        w = xd_out_commit(&s->out, &why);
    if (!whole)
        return xd_fail(e, XD_ECOMM, "gathering the trace failed");
    if (w != XD_OK && st != XD_OK)
        xd_log(XD_LOG_WARN, "%s", why.msg);
    return st != XD_OK || w == XD_OK ? st : xd_fail(e, w, "%s", why.msg);
}

xd_status xd_trace_write(xd_job *j, int64_t sent, xd_status st, xd_err *e)
{
    xd_context *ctx = j->ctx;
    xd_trace   *t = ctx->trace;
    xd_comm    *c = ctx->world.used;
    int         alone = st == XD_ECOMM || c->size == 1;
    if (!t || (st == XD_ECOMM && c->rank))
        return st;
    xd_trace_phase(t, NULL);
    t->on = 0;
    t->nfly = 0;
    sink      *s = calloc(1, sizeof *s);
    rank_info *infos = calloc((size_t)c->size, sizeof *infos);
    int64_t   *rows = calloc((size_t)c->size, sizeof *rows);
    int        ok = s && infos && rows;
    if (ok)
        infos[c->rank] = my_rank_info(t);
    if (!alone)
        ok = exchange_ranks(c, infos, rows, ok);
    if (ok) {
        s->rank = c->rank;
        s->ranks = c->size;
        s->zero = alone ? infos[0].first : find_zero(c, infos);
        st = write_file(s, j, infos, sent, st, alone, e);
    } else {
        xd_log(XD_LOG_WARN, "the trace was not written: no memory, or a message between ranks "
                            "failed");
    }
    free(s), free(infos), free(rows);
    t->n = t->lost = 0;
    return st;
}
