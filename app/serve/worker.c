/* worker.c - the command xdit worker, which runs the ranks of a server. The ranks open models, keep
 * models open, and run the tasks that the server sends.
 *
 * Usually all ranks run one task together. Rank 0 broadcasts every frame of the server, so that all
 * ranks take the same actions: open a model, generate, close the least recently used model. Between
 * two denoising steps of a task, the ranks may run another task, and then continue the first task.
 * After XD_FRAME_SPLIT the server sends different tasks to each rank over the rank's connection,
 * until XD_FRAME_JOIN. The worker exits when the server disconnects. */
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/open_flags.h"
#include "launch/launch.h"
#include "launch/roster.h"
#include "launch/stop.h"
#include "serve/worker_task.h"

typedef struct worker {
    const char      *connect;
    int              omit_folders, verbose;
    xd_open_flags    open;
    xd_rank_group   *group;
    int              rank;
    xd_connection    connection;
    xd_worker_models models;
    xd_task_run     *task; /* state of the running task */
    xd_err           err;
} worker;

static void on_log(void *cookie, int level, const char *line)
{
    static const char *const mark[] = { "error: ", "warning: ", "", "" };
    const worker            *w = cookie;
    if (w->rank > 0 && level > XD_LOG_ERROR)
        return;
    fprintf(stderr, "xdit: %s", level >= 0 && level < 4 ? mark[level] : "");
    for (; *line; line++) /* line ends and control characters are replaced, so that a text from a
                             client cannot imitate log lines */
        fputc((unsigned char)*line < 0x20 || *line == 0x7f ? '?' : *line, stderr);
    fputc('\n', stderr);
    if (level <= XD_LOG_ERROR)
        xd_roster_report(XD_ROSTER_ERROR);
}

static void on_open(void *cookie)
{
    worker *w = cookie;
    if (w->rank == 0 && w->task)
        xd_connection_send(&w->connection, XD_FRAME_STAGE,
                           (const char *[]){ w->task->running.id, "open" }, 2);
}

/* ---- receiving frames for all ranks ---------------------------------------------------------- */

/* Receives the server's next frame on rank 0 and broadcasts the frame to all ranks. Blocks until a
 * frame arrives if `wait` is set. f->kind becomes 0 if no frame has arrived, or if the server has
 * disconnected. All ranks must call next_frame. */
static xd_status next_frame(worker *w, int wait, xd_frame *f, int *cancelled, xd_err *e)
{
    xd_connection *c = &w->connection;
    int32_t        kind = 0;
    *f = (xd_frame){ 0 };
    *cancelled = 0;
    if (w->rank == 0)
        xd_connection_next_frame(c, wait, f, cancelled);
    if (xd_rank_group_size(w->group) == 1)
        return XD_OK;
    kind = (int32_t)f->kind;
    void     *p = &kind, *data = f->data;
    size_t    size = sizeof kind, bytes = f->bytes;
    xd_status s = xd_rank_group_share(w->group, &p, &size, e);
    if (s == XD_OK && w->rank > 0) {
        memcpy(&kind, p, sizeof kind);
        free(p);
    }
    if (s != XD_OK || !kind)
        return s;
    s = xd_rank_group_share(w->group, &data, &bytes, e);
    if (s == XD_OK && w->rank > 0)
        s = xd_frame_split(f, data, bytes, e);
    f->kind = (xd_frame_kind)kind;
    return s;
}

static xd_status on_turn(void *cookie, xd_err *e);

static xd_task_run task_run(worker *w, xd_opened *alone)
{
    return (xd_task_run){ .connection = &w->connection,
                          .models = &w->models,
                          .alone = alone,
                          .reports = w->rank == 0 || alone,
                          .omit_folders = w->omit_folders,
                          .on_turn = on_turn,
                          .cookie = w };
}

static xd_status run_task(worker *w, const xd_frame *f, int cancelled, xd_opened *alone, xd_err *e)
{
    xd_task_run t = task_run(w, alone), *below = w->task;
    w->task = &t;
    xd_status s = xd_task_run_frame(&t, f, cancelled, e);
    w->task = below;
    return s;
}

/* ---- tasks of split ranks -------------------------------------------------------------------- */

/* Opens an engine that runs on this rank alone, for the model of a task, and tells the server
 * whether the engine could be opened. */
static xd_opened *open_split(worker *w, const xd_frame *f)
{
    xd_task_flags flags;
    xd_opened    *o = NULL;
    xd_err        e = { .rank = -1 };
    xd_status     s = xd_task_flags_read(&flags, f->n, f->v, &e);
    if (s == XD_OK)
        s = xd_worker_models_get(&w->models, &flags, &o, &e);
    if (s == XD_OK)
        s = xd_worker_models_open_alone(&w->models, o, &flags, &e);
    if (s == XD_ECOMM)
        w->err = e;
    xd_task_flags_free(&flags);
    xd_connection_send(&w->connection, XD_FRAME_SPLIT,
                       (const char *[]){ s == XD_OK ? "1" : "0", s == XD_OK ? "" : e.msg }, 2);
    return s == XD_OK ? o : NULL;
}

/* Runs the tasks that the server sends to this rank only, until the frame XD_FRAME_JOIN arrives. A
 * rank that cannot run tasks without the other ranks only waits for XD_FRAME_JOIN. */
static xd_status run_split(worker *w, const xd_frame *split, xd_err *e)
{
    xd_opened *o = open_split(w, split);
    xd_frame   f;
    xd_status  s = w->err.code;
    int        cancelled, going = s == XD_OK;
    while (going) {
        xd_connection_next_frame(&w->connection, 1, &f, &cancelled);
        going = f.kind && f.kind != XD_FRAME_JOIN;
        if (f.kind == XD_FRAME_RUN && o)
            s = run_task(w, &f, cancelled, o, e);
        xd_frame_free(&f);
    }
    if (o)
        xd_worker_models_release(o);
    return s;
}

/* ---- tasks that all ranks run together ------------------------------------------------------- */

static xd_status serve_frame(worker *w, const xd_frame *f, int cancelled, xd_err *e)
{
    if (f->kind == XD_FRAME_RUN)
        return run_task(w, f, cancelled, NULL, e);
    return f->kind == XD_FRAME_SPLIT ? run_split(w, f, e) : XD_OK;
}

/* Called between two denoising steps of a task. Handles the frames that have arrived from the
 * server, which may start other tasks. */
static xd_status on_turn(void *cookie, xd_err *e)
{
    worker   *w = cookie;
    xd_frame  f;
    xd_status s;
    int       cancelled, more;
    do {
        s = next_frame(w, 0, &f, &cancelled, e);
        more = s == XD_OK && f.kind;
        if (more)
            s = serve_frame(w, &f, cancelled, e);
        xd_frame_free(&f);
    } while (s == XD_OK && more);
    return s;
}

static xd_status serve_tasks(worker *w)
{
    for (;;) {
        xd_frame  f;
        int       cancelled;
        xd_status s = next_frame(w, 1, &f, &cancelled, &w->err);
        int       more = s == XD_OK && f.kind;
        if (more)
            s = serve_frame(w, &f, cancelled, &w->err);
        xd_frame_free(&f);
        if (s != XD_OK || !more)
            return s;
    }
}

/* ---- running the worker ---------------------------------------------------------------------- */

/* Connects this rank to the server. Ranks on other hosts than the server's cannot connect, and work
 * without a connection. */
static xd_status connect_server(worker *w, xd_err *e)
{
    xd_status s = xd_connection_open(&w->connection, w->connect, w->rank ? NULL : e);
    char      rank[16], ranks[16];
    if (s != XD_OK)
        return w->rank ? XD_OK : s;
    snprintf(rank, sizeof rank, "%d", w->rank);
    snprintf(ranks, sizeof ranks, "%d", xd_rank_group_size(w->group));
    xd_connection_send(&w->connection, XD_FRAME_READY,
                       (const char *[]){ ranks, xd_version(), rank }, 3);
    xd_connection_start_heartbeat(&w->connection);
    return XD_OK;
}

static xd_status run_worker(worker *w)
{
    xd_status s = xd_rank_group_open(&w->group, &w->err);
    if (s != XD_OK)
        return s;
    w->rank = xd_rank_group_rank(w->group);
    w->models = (xd_worker_models){
        .open = &w->open, .on_log = on_log, .on_open = on_open, .cookie = w, .verbose = w->verbose
    };
    s = connect_server(w, &w->err);
    if (s == XD_OK)
        s = serve_tasks(w);
    if (s != XD_ECOMM) {
        xd_worker_models_close(&w->models);
        xd_rank_group_close(&w->group);
    }
    return s;
}

/* ---- command --------------------------------------------------------------------------------- */

static const xd_option rows[] = {
    { "connect", XD_OPT_TEXT, offsetof(worker, connect), 0, 0, NULL, "SOCKET",
      "socket of the server that sends tasks" },
    { "omit_folders", XD_OPT_FLAG, offsetof(worker, omit_folders), 0, 0, NULL, NULL,
      "leave folders out of model and LoRA names in the parameters of results" },
    { "verbose", XD_OPT_FLAG, offsetof(worker, verbose), 0, 0, NULL, NULL, "log debug messages" },
};

typedef struct worker_line {
    xd_opt_table tables[3];
    xd_opt_spec  spec;
} worker_line;

static void worker_init(worker *w, worker_line *l)
{
    int              nopen, nplan;
    const xd_option *open = xd_open_flags_rows(&nopen), *plan = xd_parallel_options(&nplan);
    *w = (worker){ .err = { .rank = -1 } };
    xd_connection_init(&w->connection);
    xd_open_flags_init(&w->open);
    l->tables[0] = (xd_opt_table){ rows, sizeof rows / sizeof *rows, w };
    l->tables[1] = (xd_opt_table){ open, nopen, &w->open };
    l->tables[2] = (xd_opt_table){ plan, nplan, &w->open.parallel };
    l->spec = (xd_opt_spec){ .tables = l->tables, .ntables = 3 };
}

static int run_command(int argc, char **argv)
{
    worker      w;
    worker_line l;
    int         code = XD_EXIT_OK, ranks = 1;
    worker_init(&w, &l);
    xd_status s = xd_opt_parse(&l.spec, argc, argv, NULL, &w.err);
    if (xd_launched(&w.rank))
        xd_stop_arm_rank(), xd_launch_deadline(w.open.start_timeout, w.rank);
    else
        xd_stop_arm();
    signal(SIGPIPE, SIG_IGN);
    if (s == XD_OK && !w.connect)
        s = xd_fail(&w.err, XD_EINVAL,
                    "--connect is missing: use xdit serve, which starts workers");
    if (s == XD_OK)
        s = xd_open_flags_read(&w.open, &w.err);
    if (s == XD_OK)
        s = xd_launch_ranks(&w.open.parallel, w.open.nproc, &ranks, &w.err);
    if (s == XD_OK && ranks > 1)
        s = xd_launch_run(&(xd_launch){ .ranks = ranks,
                                        .argc = argc,
                                        .argv = argv,
                                        .command = "worker",
                                        .start_timeout = w.open.start_timeout },
                          &code, &w.err);
    else if (s == XD_OK)
        s = run_worker(&w);
    xd_open_flags_free(&w.open);
    return xd_cli_end_rank(s, &w.err, w.rank, code);
}

static void print_help(FILE *f)
{
    worker      w;
    worker_line l;
    worker_init(&w, &l);
    fputs("Usage: xdit worker --connect SOCKET [options]\n\n"
          "The ranks of a server, started by xdit serve. Options are those options of\n"
          "xdit generate that control how a model is opened.\n",
          f);
    xd_opt_help_all(f, &l.spec);
}

const xd_command xd_cmd_worker = {
    .name = "worker",
    .summary = "the ranks of a server (started by serve)",
    .run = run_command,
    .help = print_help,
};
