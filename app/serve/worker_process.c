/* worker_process.c - the process that generates, and the thread that feeds it
 *
 * The thread waits for frames of the worker and for the bell of the tasks, and after each decides
 * what runs next. All ranks work on one task, and one that comes meanwhile may go before its rest:
 * the worker takes it between two steps. Where more tasks wait than one, and it is faster, each
 * rank runs tasks of a model by itself. */
#define _GNU_SOURCE             /* accept4, pipe2 */
#include "serve/worker_process.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "serve/frame.h"
#include "serve/schedule.h"

enum { LINE = 1024, FIRST_PAUSE_MS = 100, LONGEST_PAUSE_MS = 30000, END_S = 5, LOOK_MS = 250 };
enum { RANKS = 1024, RUNS = RANKS + 8, DEEP = 4, TRIES = 2, NOT_APART = 16, NAME = 128 };

typedef struct run {            /* a task that the worker has                                  */
    xd_task *task;
    int      rank;              /* that runs it by itself; -1: all ranks                       */
    int      begun, cancelled;  /* the worker has said so; it was told so                      */
} run;

/* How the ranks work: together; each by itself, once all have said that they can. */
typedef enum mode { TOGETHER, ASKED, APART } mode;

struct xd_worker_process {
    xd_tasks     *tasks;
    xd_predictor *predictor;
    const char *program;
    int         nargs;
    char      **args;
    struct sockaddr_un at;
    int         listener;
    pid_t       child;          /* 0: none                                                     */
    pthread_t   thread, echo;
    int         err;            /* what the worker writes on standard error                    */
    int         echoing;
    /* Of the thread. */
    int         fd[RANKS];      /* connections of the ranks; -1: none                          */
    int         ranks, connected;       /* 0: not known yet                                    */
    run         runs[RUNS];     /* those of all ranks in the order in which they were sent     */
    int         nruns;
    mode        mode;
    int         answers;        /* of XD_FRAME_APART                                           */
    char        able[RANKS];    /* the rank can work by itself                                 */
    char        apart_model[NAME];      /* of all tasks that ranks run by themselves now        */
    double      apart_shortest; /* seconds alone of the shortest of them, as they began          */
    char        not_apart[NOT_APART][NAME];     /* models whose ranks cannot                   */
    int         nnot_apart;
    xd_schedule schedule;
    /* Under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    xd_worker_state state;
    char        last[LINE];     /* its last line on standard error                             */
    int         stop, gave_up;
    xd_err      failure;        /* why the first worker did not start                          */
};

/* ---- its standard error ---------------------------------------------------------------------- */

/* Passes lines on, and keeps the last one. */
static void *echo_lines(void *arg)
{
    xd_worker_process *w = arg;
    char               line[LINE];
    FILE              *in = fdopen(w->err, "r");
    while (in && fgets(line, sizeof line, in)) {
        const char *text = strncmp(line, "xdit: ", 6) == 0 ? line + 6 : line;
        fputs(line, stderr);
        pthread_mutex_lock(&w->lock);
        snprintf(w->last, sizeof w->last, "%.*s", (int)strcspn(text, "\n"), text);
        pthread_mutex_unlock(&w->lock);
    }
    if (in)
        fclose(in);
    return NULL;
}

/* ---- starting -------------------------------------------------------------------------------- */

static void exec_worker(const xd_worker_process *w, char **v, int err)
{
    sigset_t none;
    int      null = open("/dev/null", O_RDWR);
    setpgid(0, 0);              /* Ctrl-C reaches the server alone                             */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    dup2(null, 0);
    dup2(null, 1);
    dup2(err, 2);
    if (close_range(3, ~0u, 0) != 0)
        for (int fd = 3; fd < 256; fd++)
            close(fd);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execv(w->program, v);
    _exit(127);
}

static xd_status spawn(xd_worker_process *w, xd_err *e)
{
    int    err[2];
    char **v = calloc((size_t)w->nargs + 5, sizeof *v);
    if (!v || pipe2(err, O_CLOEXEC) != 0) {
        free(v);
        return xd_fail(e, XD_EIO, "cannot start a worker: %s", strerror(errno));
    }
    v[0] = (char *)w->program;
    v[1] = "worker";
    v[2] = "--connect";
    v[3] = w->at.sun_path;
    memcpy(v + 4, w->args, (size_t)w->nargs * sizeof *v);
    w->child = fork();
    if (w->child == 0)
        exec_worker(w, v, err[1]);
    free(v);
    close(err[1]);
    w->err = err[0];
    if (w->child < 0) {
        close(err[0]);
        w->child = 0;
        return xd_fail(e, XD_EIO, "cannot start a worker: %s", strerror(errno));
    }
    w->echoing = pthread_create(&w->echo, NULL, echo_lines, w) == 0;
    return XD_OK;
}

/* Reaps the child where it has ended: 1, and *status is how. */
static int has_ended(xd_worker_process *w, int *status)
{
    if (!w->child || waitpid(w->child, status, WNOHANG) != w->child)
        return !w->child;
    w->child = 0;
    return 1;
}

static int is_stopping(xd_worker_process *w)
{
    pthread_mutex_lock(&w->lock);
    int stop = w->stop;
    pthread_mutex_unlock(&w->lock);
    return stop;
}

/* Takes a connection of a rank, which says who it is. */
static xd_status take_connection(xd_worker_process *w, xd_err *e)
{
    int       fd = accept4(w->listener, NULL, NULL, SOCK_CLOEXEC);
    xd_frame  f = { 0 };
    xd_status s = fd < 0 ? xd_fail(e, XD_EIO, "the worker cannot connect: %s", strerror(errno))
                         : xd_frame_receive(fd, &f, e);
    int       rank = s == XD_OK && f.kind == XD_FRAME_READY && f.n >= 3 ? atoi(f.v[2]) : -1;
    if (s == XD_OK && rank < 0)
        s = xd_fail(e, XD_EFORMAT, "the worker speaks another language: is it of another version?");
    if (s == XD_OK && rank < RANKS && w->fd[rank] < 0) {
        w->fd[rank] = fd;
        w->ranks = atoi(f.v[0]);
        w->connected++;
    } else if (fd >= 0) {
        close(fd);
    }
    xd_frame_free(&f);
    return s;
}

/* Waits for the connection of rank 0. Others may come before it, and behind it. */
static xd_status await_connection(xd_worker_process *w, xd_err *e)
{
    int           status = 0;
    struct pollfd p = { .fd = w->listener, .events = POLLIN };
    xd_status     s = XD_OK;
    while (s == XD_OK && w->fd[0] < 0) {
        if (poll(&p, 1, 100) > 0)
            s = take_connection(w, e);
        else if (is_stopping(w))
            return xd_fail(e, XD_ECANCELLED, "the server ends");
        else if (has_ended(w, &status))
            return xd_fail(e, XD_EIO, "the worker ended before it was ready");
    }
    if (s != XD_OK)
        return s;
    xd_predictor_ranks(w->predictor, w->ranks);
    pthread_mutex_lock(&w->lock);
    w->state.ready = 1;
    w->state.ranks = w->ranks;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return s;
}

/* ---- what the worker says -------------------------------------------------------------------- */

static void note_image(xd_tasks *tasks, xd_task *task, const xd_frame *f)
{
    if (f->n < 12)
        return;
    xd_task_image im = { .file = f->v[1], .seed = f->v[2], .json = f->v[3], .parameters = f->v[4],
                        .width = atoll(f->v[5]), .height = atoll(f->v[6]),
                        .frames = atoll(f->v[7]), .fps = atof(f->v[8]),
                        .text_tokens = atoll(f->v[9]), .reference_tokens = atoll(f->v[10]),
                        .image_tokens = atoll(f->v[11]) };
    xd_task_image_done(tasks, task, &im);
}

static void note_seconds(xd_worker_process *w, const run *r, double seconds)
{
    int share = r->rank < 0 ? 1 : w->ranks;
    xd_predictor_learn(w->predictor, r->task, r->rank >= 0, seconds);
    xd_schedule_taken(&w->schedule, r->task->owner ? r->task->owner : "", seconds / share,
                      xd_unix_s());
    double usual = w->schedule.usual;
    w->schedule.usual = usual > 0 ? usual + 0.2 * (seconds - usual) : seconds;
}

static void note_done(xd_worker_process *w, const run *r, const xd_frame *f)
{
    static const char *const parts[] = { "text", "load", "denoise", "decode" };
    xd_text_buf              b = { 0 };
    xd_buf_add(&b, "{");
    for (int i = 1; i + 1 < f->n; i += 2) {
        double s = atof(f->v[i + 1]);
        xd_buf_add(&b, "%s\"%s\":%.6f", i > 1 ? "," : "", f->v[i], s);
        pthread_mutex_lock(&w->lock);
        for (int k = 0; k < 4; k++)
            if (strcmp(f->v[i], parts[k]) == 0)
                w->state.parts[k] += s;
        if (strcmp(f->v[i], "total") == 0)
            w->state.seconds += s;
        pthread_mutex_unlock(&w->lock);
        if (strcmp(f->v[i], "total") == 0)
            note_seconds(w, r, s);
    }
    xd_buf_add(&b, "}");
    xd_task_done(w->tasks, r->task, b.failed ? "{}" : b.p);
    xd_buf_free(&b);
}

static run *find_run(xd_worker_process *w, const char *id)
{
    for (int i = 0; i < w->nruns; i++)
        if (strcmp(w->runs[i].task->id, id) == 0)
            return &w->runs[i];
    return NULL;
}

static void remove_run(xd_worker_process *w, run *r)
{
    xd_task_release(w->tasks, r->task);
    memmove(r, r + 1, (size_t)(&w->runs[--w->nruns] - r) * sizeof *r);
}

static void note_memory(xd_worker_process *w, const xd_frame *f)
{
    pthread_mutex_lock(&w->lock);
    w->state.resident = atof(f->v[0]);
    w->state.models = atoi(f->v[1]);
    pthread_mutex_unlock(&w->lock);
}

/* A rank answers whether it can work by itself. */
static void note_apart(xd_worker_process *w, int rank, const xd_frame *f)
{
    w->able[rank] = f->v[0][0] == '1';
    if (++w->answers < w->ranks)
        return;
    w->mode = APART;
    for (int i = 0; i < w->ranks; i++)
        if (w->able[i])
            return;
    if (w->nnot_apart < NOT_APART)
        strcpy(w->not_apart[w->nnot_apart++], w->apart_model);
}

static void take_frame(xd_worker_process *w, int rank, const xd_frame *f)
{
    run *r = f->n > 0 ? find_run(w, f->v[0]) : NULL;
    if (f->kind == XD_FRAME_MEMORY && f->n >= 2 && rank == 0)
        note_memory(w, f);
    if (f->kind == XD_FRAME_APART && f->n >= 1)
        note_apart(w, rank, f);
    if (!r)
        return;
    xd_task *task = r->task;
    r->begun = 1;
    if (f->kind == XD_FRAME_STAGE && f->n >= 2)
        xd_task_stage(w->tasks, task, f->v[1]);
    else if (f->kind == XD_FRAME_STEP && f->n >= 5)
        xd_task_step(w->tasks, task, atoi(f->v[1]), atoi(f->v[2]), atoi(f->v[3]), atoi(f->v[4]));
    else if (f->kind == XD_FRAME_PREVIEW && f->n >= 3)
        xd_task_preview(w->tasks, task, f->v[2]);
    else if (f->kind == XD_FRAME_IMAGE)
        note_image(w->tasks, task, f);
    else if (f->kind == XD_FRAME_DONE)
        note_done(w, r, f), remove_run(w, r);
    else if (f->kind == XD_FRAME_FAILED && f->n >= 3)
        xd_task_failed(w->tasks, task, (xd_status)atoi(f->v[1]), f->v[2]), remove_run(w, r);
}

/* ---- what the worker is told ----------------------------------------------------------------- */

/* A connection that has ended is noticed where it is read. XD_EINVAL: the frame is too long. */
static xd_status send_frame(xd_worker_process *w, int rank, xd_frame_kind kind,
                            const char *const *v, int n, xd_err *e)
{
    return xd_frame_send(w->fd[rank < 0 ? 0 : rank], kind, v, n, e);
}

/* Sends a task, which is held, to a rank or to all. */
static void start_task(xd_worker_process *w, xd_task *task, int rank)
{
    xd_err    e = { 0 };
    xd_status s = send_frame(w, rank, XD_FRAME_RUN, (const char *const *)task->args, task->nargs,
                             &e);
    if (s == XD_EINVAL) {
        xd_task_failed(w->tasks, task, s, e.msg);
        xd_task_release(w->tasks, task);
        return;
    }
    w->runs[w->nruns++] = (run){ .task = task, .rank = rank };
}

static void send_cancels(xd_worker_process *w)
{
    for (int i = 0; i < w->nruns; i++) {
        run *r = &w->runs[i];
        xd_tasks_lock(w->tasks);
        double late = r->task->deadline;
        int    wanted = r->task->cancel || (late > 0 && late < xd_unix_s());
        xd_tasks_unlock(w->tasks);
        if (wanted && !r->cancelled)
            send_frame(w, r->rank, XD_FRAME_CANCEL, (const char *[]){ r->task->id }, 1, NULL);
        r->cancelled |= wanted;
    }
}

/* ---- what runs next -------------------------------------------------------------------------- */

typedef struct choice {
    xd_worker_process *w;
    double             now, shortest;   /* shortest: seconds alone of those for single ranks    */
    char               model[NAME];     /* only tasks of it, for single ranks; "": any           */
    const xd_task     *running; /* only tasks that may pass this one; NULL: any                 */
    const xd_task     *best;
    double             score;
    int                n;
} choice;

/* Tasks that single ranks run do not differ much: the ranks end at about the same time. */
enum { LONGEST = 4 };

static int fits_choice(const choice *c, const xd_task *t)
{
    if (c->running && !xd_schedule_passes(&c->w->schedule, t, c->running, c->now))
        return 0;
    return !c->model[0] ||
           (strcmp(t->model, c->model) == 0 && t->alone_s > 0 && t->expected_s > 0 &&
            !xd_task_has(t, "--lora=") && t->alone_s <= LONGEST * c->shortest);
}

static double score_of(void *cookie, const xd_task *t)
{
    const choice *c = cookie;
    return fits_choice(c, t) ? xd_schedule_score(&c->w->schedule, t, c->now) : NAN;
}

static void see_best(void *cookie, const xd_task *t)
{
    choice *c = cookie;
    double  s = t->state == XD_TASK_QUEUED ? score_of(c, t) : NAN;
    if (s < c->score)
        c->best = t, c->score = s;
}

static void see_shortest(void *cookie, const xd_task *t)
{
    choice *c = cookie;
    if (t->state == XD_TASK_QUEUED && strcmp(t->model, c->model) == 0 && t->alone_s > 0)
        c->shortest = fmin(c->shortest, t->alone_s);
}

static void count_fitting(void *cookie, const xd_task *t)
{
    choice *c = cookie;
    c->n += t->state == XD_TASK_QUEUED && fits_choice(c, t);
}

static int may_part(const xd_worker_process *w, const char *model)
{
    for (int i = 0; i < w->nnot_apart; i++)
        if (strcmp(w->not_apart[i], model) == 0)
            return 0;
    return w->ranks > 1 && w->connected == w->ranks;
}

/* Under the lock of the tasks: the best task, and how many there are that single ranks could run
 * with it at the same time; 0: that does not pay, or the best one is none of them. `busy`: ranks
 * that do so already. */
static int count_apart(choice *c, int busy)
{
    xd_worker_process *w = c->w;
    c->score = c->shortest = INFINITY;
    xd_tasks_each(w->tasks, see_best, c);
    if (!c->best || !may_part(w, c->best->model))
        return 0;
    snprintf(c->model, sizeof c->model, "%s", c->best->model);
    xd_tasks_each(w->tasks, see_shortest, c);
    if (w->mode == APART)       /* a long one would keep its rank from working with the others */
        c->shortest = fmin(c->shortest, w->apart_shortest);
    if (!fits_choice(c, c->best))
        return 0;
    xd_tasks_each(w->tasks, count_fitting, c);
    return xd_schedule_apart(c->n + busy, w->ranks, c->best->expected_s, c->best->alone_s) ? c->n
                                                                                           : 0;
}

/* The task of all ranks that was sent last: one that comes goes before its rest; NULL: none. */
static const xd_task *top_task(const xd_worker_process *w)
{
    const xd_task *top = NULL;
    for (int i = 0; i < w->nruns; i++)
        top = w->runs[i].rank < 0 ? w->runs[i].task : top;
    return top;
}

static int all_begun(const xd_worker_process *w)
{
    for (int i = 0; i < w->nruns; i++)
        if (!w->runs[i].begun)
            return 0;
    return 1;
}

/* From now on single ranks run tasks of the best one's model. */
static void ask_apart(xd_worker_process *w, const xd_task *best, double shortest)
{
    w->apart_shortest = shortest;
    w->answers = 0;
    snprintf(w->apart_model, sizeof w->apart_model, "%s", best->model);
    w->mode = ASKED;
    send_frame(w, 0, XD_FRAME_APART, (const char *const *)best->args, best->nargs, NULL);
}

static void schedule_together(xd_worker_process *w)
{
    choice c = { .w = w, .now = xd_unix_s(), .running = top_task(w) };
    if (!all_begun(w) || w->nruns >= DEEP)
        return;
    xd_tasks_lock(w->tasks);
    int apart = count_apart(&c, 0);
    if (apart)
        ask_apart(w, c.best, c.shortest);
    xd_tasks_unlock(w->tasks);
    if (apart)
        return;
    c.model[0] = 0;
    xd_task *task = xd_tasks_take(w->tasks, score_of, &c);
    if (task)
        start_task(w, task, -1);
}

static int is_busy(const xd_worker_process *w, int rank)
{
    for (int i = 0; i < w->nruns; i++)
        if (w->runs[i].rank == rank)
            return 1;
    return 0;
}

/* Gives idle ranks tasks; they work together again when none is left that pays. */
static void schedule_apart(xd_worker_process *w)
{
    int busy = 0, more = 1;
    for (int i = 0; i < w->ranks; i++)
        busy += is_busy(w, i);
    for (int i = 0; i < w->ranks && more; i++) {
        choice c = { .w = w, .now = xd_unix_s(), .running = top_task(w) };
        if (!w->able[i] || is_busy(w, i))
            continue;
        xd_tasks_lock(w->tasks);
        more = count_apart(&c, busy) && strcmp(c.model, w->apart_model) == 0;
        xd_tasks_unlock(w->tasks);
        xd_task *task = more ? xd_tasks_take(w->tasks, score_of, &c) : NULL;
        if (task)
            start_task(w, task, i);
        busy += task != NULL;
    }
    if (busy)
        return;
    for (int i = 0; i < w->ranks; i++)
        send_frame(w, i, XD_FRAME_TOGETHER, NULL, 0, NULL);
    w->mode = TOGETHER;
    schedule_together(w);
}

static void schedule(xd_worker_process *w)
{
    xd_tasks_late(w->tasks);
    send_cancels(w);
    if (is_stopping(w))
        return;
    if (w->mode == TOGETHER)
        schedule_together(w);
    else if (w->mode == APART)
        schedule_apart(w);
}

/* ---- when it dies ---------------------------------------------------------------------------- */

static void close_connections(xd_worker_process *w)
{
    for (int i = 0; i < RANKS; i++) {
        if (w->fd[i] >= 0)
            close(w->fd[i]);
        w->fd[i] = -1;
    }
    w->connected = 0;
    w->mode = TOGETHER;
}

/* Ends what is left of the worker; `why` becomes how it ended. */
static void end_worker(xd_worker_process *w, char *why, size_t size)
{
    int    status = 0, gone = 0;
    double began = xd_now_s();
    pthread_mutex_lock(&w->lock);
    w->state.ready = 0;
    pthread_mutex_unlock(&w->lock);
    close_connections(w);
    if (!w->child)
        gone = 1;
    while (!gone && xd_now_s() - began < END_S) {
        gone = has_ended(w, &status);
        if (!gone)
            nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    }
    if (!gone) {
        kill(-w->child, SIGKILL);
        waitpid(w->child, &status, 0);
        w->child = 0;
    }
    if (w->echoing)
        pthread_join(w->echo, NULL);
    w->echoing = 0;
    pthread_mutex_lock(&w->lock);
    if (WIFSIGNALED(status))
        snprintf(why, size, "it was killed by signal %d", WTERMSIG(status));
    else
        snprintf(why, size, "%s", w->last[0] ? w->last : "it ended without a word");
    pthread_mutex_unlock(&w->lock);
}

/* What had begun fails; what had not is sent to the next worker. */
static void fail_runs(xd_worker_process *w, const char *why)
{
    char text[LINE + 160];
    snprintf(text, sizeof text, "the worker that generated this has ended (%s); another one is "
             "started: send the request again", why);
    while (w->nruns) {
        run *r = &w->runs[w->nruns - 1];
        xd_tasks_lock(w->tasks);
        int again = !r->begun && !r->task->cancel && r->task->tries < TRIES && !is_stopping(w);
        xd_tasks_unlock(w->tasks);
        if (again) {
            xd_task_requeue(w->tasks, r->task);
            w->nruns--;
        } else {
            xd_task_failed(w->tasks, r->task, XD_EDEVICE, text);
            xd_task_remove_files(r->task);
            remove_run(w, r);
        }
    }
}

/* Waits until a rank speaks, a rank connects, or the bell rings, and takes what there is. */
static xd_status take_events(xd_worker_process *w, xd_err *e)
{
    struct pollfd p[RANKS + 2];
    int           rank[RANKS + 2], n = 2;
    xd_status     s = XD_OK;
    p[0] = (struct pollfd){ .fd = w->listener, .events = POLLIN };
    p[1] = (struct pollfd){ .fd = xd_tasks_bell(w->tasks), .events = POLLIN };
    for (int i = 0; i < w->ranks && i < RANKS; i++)
        if (w->fd[i] >= 0)
            p[n] = (struct pollfd){ .fd = w->fd[i], .events = POLLIN }, rank[n++] = i;
    if (poll(p, (nfds_t)n, LOOK_MS) <= 0)
        return XD_OK;
    if (p[0].revents && take_connection(w, NULL) != XD_OK)
        return XD_OK;           /* somebody else's                                             */
    if (p[1].revents)
        xd_tasks_heard(w->tasks);
    for (int i = 2; i < n && s == XD_OK; i++) {
        xd_frame f;
        if (!p[i].revents)
            continue;
        s = xd_frame_receive(p[i].fd, &f, e);
        if (s == XD_OK)
            take_frame(w, rank[i], &f);
        xd_frame_free(&f);
    }
    return s;
}

/* Feeds one worker until it dies or the server stops. */
static void feed_worker(xd_worker_process *w)
{
    xd_err    e = { 0 };
    char      why[LINE] = "";
    xd_status s = XD_OK;
    while (s == XD_OK && (!is_stopping(w) || w->nruns)) {
        schedule(w);
        s = take_events(w, &e);
    }
    if (s == XD_OK)
        return;
    end_worker(w, why, sizeof why);
    if (!is_stopping(w))
        fprintf(stderr, "xdit: the worker has ended: %s\n", why);
    fail_runs(w, why);
}

static void pause_ms(xd_worker_process *w, int ms)
{
    for (; ms > 0 && !is_stopping(w); ms -= 50)
        nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
}

/* The first worker must start: nobody would know what is wrong with its flags. */
static void *run_thread(void *arg)
{
    xd_worker_process *w = arg;
    int                pause = 0, started = 0;
    while (!is_stopping(w)) {
        char      why[LINE] = "";
        xd_err    e = { 0 };
        xd_status s = spawn(w, &e);
        s = s == XD_OK ? await_connection(w, &e) : s;
        if (s == XD_OK) {
            started = 1;
            pause = 0;
            feed_worker(w);
        } else {
            end_worker(w, why, sizeof why);
        }
        if (is_stopping(w))
            break;
        pthread_mutex_lock(&w->lock);
        w->state.restarts++;
        if (!started) {
            w->failure = e;
            w->gave_up = w->stop = 1;
            pthread_cond_broadcast(&w->changed);
        }
        pthread_mutex_unlock(&w->lock);
        pause = s == XD_OK ? 0 : !pause ? FIRST_PAUSE_MS : pause * 2;
        pause_ms(w, pause < LONGEST_PAUSE_MS ? pause : LONGEST_PAUSE_MS);
    }
    return NULL;
}

/* ---- the interface --------------------------------------------------------------------------- */

static xd_status listen_here(xd_worker_process *w, const char *dir, xd_err *e)
{
    w->at.sun_family = AF_UNIX;
    int n = snprintf(w->at.sun_path, sizeof w->at.sun_path, "%s/worker", dir);
    if (n < 0 || (size_t)n >= sizeof w->at.sun_path)
        return xd_fail(e, XD_EINVAL, "the directory %s has too long a name for a socket in it: "
                       "set TMPDIR to a shorter one", dir);
    unlink(w->at.sun_path);
    w->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (w->listener < 0 || bind(w->listener, (struct sockaddr *)&w->at, sizeof w->at) != 0 ||
        listen(w->listener, RANKS) != 0)
        return xd_fail(e, XD_EIO, "cannot listen at %s: %s", w->at.sun_path, strerror(errno));
    return XD_OK;
}

xd_status xd_worker_start(xd_worker_process **out, xd_tasks *tasks, xd_predictor *predictor,
                          const char *program, const char *dir, int nargs, char **args, xd_err *e)
{
    xd_worker_process *w = *out = calloc(1, sizeof *w);
    if (!w)
        return xd_fail(e, XD_ENOMEM, "no memory for a worker");
    w->tasks = tasks;
    w->predictor = predictor;
    w->program = program;
    w->nargs = nargs;
    w->args = args;
    w->listener = -1;
    for (int i = 0; i < RANKS; i++)
        w->fd[i] = -1;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    xd_status s = listen_here(w, dir, e);
    if (s == XD_OK && pthread_create(&w->thread, NULL, run_thread, w) != 0)
        s = xd_fail(e, XD_ENOMEM, "cannot start a thread");
    if (s == XD_OK)
        return s;
    if (w->listener >= 0)
        close(w->listener);
    free(w);
    *out = NULL;
    return s;
}

xd_status xd_worker_await(xd_worker_process *w, xd_err *e)
{
    pthread_mutex_lock(&w->lock);
    while (!w->state.ready && !w->gave_up)
        pthread_cond_wait(&w->changed, &w->lock);
    xd_status s = w->gave_up ? xd_fail(e, w->failure.code, "%s", w->failure.msg) : XD_OK;
    pthread_mutex_unlock(&w->lock);
    return s;
}

void xd_worker_look(xd_worker_process *w, xd_worker_state *state)
{
    pthread_mutex_lock(&w->lock);
    *state = w->state;
    pthread_mutex_unlock(&w->lock);
}

/* Is there no thread that feeds a worker any more? */
static int has_given_up(xd_worker_process *w)
{
    pthread_mutex_lock(&w->lock);
    int gave_up = w->gave_up;
    pthread_mutex_unlock(&w->lock);
    return gave_up;
}

/* Gives running tasks so long to end, and cancels them then. */
static void await_running(xd_worker_process *w, double seconds)
{
    double   until = xd_now_s() + seconds;
    xd_task *task;
    while ((task = xd_tasks_running(w->tasks, NULL))) {
        unsigned seen = xd_tasks_wait(w->tasks, task, 0, 0);
        while (!xd_task_over(task) && xd_now_s() < until)
            seen = xd_tasks_wait(w->tasks, task, seen, until - xd_now_s());
        xd_tasks_cancel(w->tasks, task);
        while (!xd_task_over(task) && !has_given_up(w))
            seen = xd_tasks_wait(w->tasks, task, seen, 1);
        xd_task_release(w->tasks, task);
        if (has_given_up(w))
            return;
    }
}

void xd_worker_stop(xd_worker_process **out, double seconds)
{
    xd_worker_process *w = *out;
    char               why[LINE];
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = 1;
    pthread_mutex_unlock(&w->lock);
    await_running(w, seconds);
    pthread_join(w->thread, NULL);
    for (int i = 0; i < RANKS; i++)
        if (w->fd[i] >= 0)
            send_frame(w, i, XD_FRAME_QUIT, NULL, 0, NULL);
    if (w->child)
        end_worker(w, why, sizeof why);
    close(w->listener);
    unlink(w->at.sun_path);
    xd_schedule_free(&w->schedule);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
    *out = NULL;
}
