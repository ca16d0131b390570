/* worker_process.c - the process that generates, its connections, and the thread that feeds it
 *
 * The thread waits for frames of the worker and for the bell of the tasks, notes what they say, and
 * has the worker fed after each (worker_feed.h). */
#define _GNU_SOURCE             /* accept4, pipe2, syscall */
#include "serve/worker_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/descendants.h"
#include "serve/worker_watch.h"

enum { LINE = 1024, FIRST_PAUSE_MS = 100, LONGEST_PAUSE_MS = 30000, END_S = 5, LOOK_MS = 250,
       FRAME_S = 10 };          /* in which a frame is taken, or has come whole                */
enum { MOST_FILES = 65536 };    /* closed one by one where close_range is missing               */
enum { TRIES = 2 };             /* how often a task is sent to a worker                         */
enum { PARTS = 4 };             /* of the seconds of a task: xd_worker_state                    */

struct xd_worker_process {
    xd_worker_args a;
    xd_tasks     *tasks;
    struct sockaddr_un at;
    int         listener;
    pid_t       child;          /* 0: none                                                     */
    pthread_t   thread, echo;
    int         err;            /* what the worker writes on standard error                    */
    int         echoing;
    atomic_int  muted;          /* nothing more is awaited there                               */
    xd_worker_feed  feed;       /* of the thread, as what follows                              */
    int         guest[XD_WORKER_RANKS], guests; /* connections of ranks that are not named yet  */
    xd_worker_watch watch;
    /* Under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    xd_worker_state state;
    char        last[LINE];     /* its last line on standard error                             */
    int         stop, gave_up, kill;    /* kill: the worker has had its time                   */
    xd_err      failure;        /* why the first worker did not start                          */
};

/* ---- its standard error ---------------------------------------------------------------------- */

static void pass_line(xd_worker_process *w, const char *line, size_t n)
{
    const char *text = strncmp(line, "xdit: ", 6) == 0 ? line + 6 : line;
    fwrite(line, 1, n, stderr);
    pthread_mutex_lock(&w->lock);
    snprintf(w->last, sizeof w->last, "%.*s", (int)strcspn(text, "\n"), text);
    pthread_mutex_unlock(&w->lock);
}

/* Passes lines on, and keeps the last one. A process that cannot be killed may keep the other end
 * open: who is muted ends when there is nothing to read. */
static void *echo_lines(void *arg)
{
    xd_worker_process *w = arg;
    char               line[LINE];
    size_t             n = 0;
    ssize_t            got = 1;
    struct pollfd      p = { .fd = w->err, .events = POLLIN };
    while (got > 0) {
        int came = poll(&p, 1, LOOK_MS);
        if (came <= 0 && atomic_load(&w->muted))
            break;
        if (came <= 0)
            continue;
        got = read(w->err, line + n, sizeof line - 1 - n);
        n += got > 0 ? (size_t)got : 0;
        line[n] = 0;
        for (char *end; (end = strchr(line, '\n')) || n == sizeof line - 1;) {
            size_t k = end ? (size_t)(end - line) + 1 : n;
            pass_line(w, line, k);
            memmove(line, line + k, n - k + 1);
            n -= k;
        }
    }
    if (n)
        pass_line(w, line, n);
    close(w->err);
    return NULL;
}

/* ---- starting -------------------------------------------------------------------------------- */

/* Older libcs lack the function, older kernels the call. */
static void close_from(unsigned first)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, first, ~0u, 0) == 0)
        return;
#endif
    struct rlimit most;
    rlim_t        end = getrlimit(RLIMIT_NOFILE, &most) == 0 ? most.rlim_cur : MOST_FILES;
    for (rlim_t fd = first; fd < (end < MOST_FILES ? end : MOST_FILES); fd++)
        close((int)fd);
}

static void exec_worker(const xd_worker_process *w, char **v, int err)
{
    sigset_t none;
    int      null = open("/dev/null", O_RDWR);
    setpgid(0, 0);              /* Ctrl-C reaches the server alone                             */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    dup2(null, 0);
    dup2(null, 1);
    dup2(err, 2);
    close_from(3);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execv(w->a.program, v);
    _exit(127);
}

static xd_status spawn(xd_worker_process *w, xd_err *e)
{
    int    err[2];
    char **v = calloc((size_t)w->a.nargs + 5, sizeof *v);
    if (!v || pipe2(err, O_CLOEXEC) != 0) {
        free(v);
        return xd_fail(e, XD_EIO, "cannot start a worker: %s", strerror(errno));
    }
    v[0] = (char *)w->a.program;
    v[1] = "worker";
    v[2] = "--connect";
    v[3] = w->at.sun_path;
    memcpy(v + 4, w->a.args, (size_t)w->a.nargs * sizeof *v);
    pthread_mutex_lock(&w->lock);
    w->last[0] = 0;
    pthread_mutex_unlock(&w->lock);
    atomic_store(&w->muted, 0);
    xd_worker_watch_begin(&w->watch, w->a.patience);
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

static int is_set(xd_worker_process *w, const int *flag)
{
    pthread_mutex_lock(&w->lock);
    int set = *flag;
    pthread_mutex_unlock(&w->lock);
    return set;
}

static int is_stopping(xd_worker_process *w)
{
    return is_set(w, &w->stop);
}

/* Takes a connection. Its rank says who it is in time of its own: it may be stopped before. */
static xd_status admit_guest(xd_worker_process *w, xd_err *e)
{
    int            fd = accept4(w->listener, NULL, NULL, SOCK_CLOEXEC);
    struct timeval most = { .tv_sec = FRAME_S };
    if (fd < 0)
        return xd_fail(e, XD_EIO, "the worker cannot connect: %s", strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
    w->guest[w->guests++] = fd;
    return XD_OK;
}

static xd_status name_guest(xd_worker_process *w, int i, xd_err *e)
{
    int       fd = w->guest[i];
    xd_frame  f = { 0 };
    w->guest[i] = w->guest[--w->guests];
    xd_status s = xd_frame_receive(fd, &f, e);
    int       rank = s == XD_OK && f.kind == XD_FRAME_READY && f.n >= 3 ? atoi(f.v[2]) : -1;
    if (s == XD_OK && rank < 0)
        s = xd_fail(e, XD_EFORMAT, "the worker speaks another language: is it of another version?");
    if (s == XD_OK && rank < XD_WORKER_RANKS && w->feed.fd[rank] < 0) {
        w->feed.fd[rank] = fd;
        w->feed.ranks = atoi(f.v[0]);
        w->feed.connected++;
    } else {
        close(fd);
    }
    xd_frame_free(&f);
    return s;
}

/* What is awaited of ranks that are not named: their connections, then their names. Returns how
 * many. */
static int await_guests(const xd_worker_process *w, struct pollfd *p)
{
    p[0] = (struct pollfd){ .fd = w->guests < XD_WORKER_RANKS ? w->listener : -1,
                            .events = POLLIN };
    for (int i = 0; i < w->guests; i++)
        p[1 + i] = (struct pollfd){ .fd = w->guest[i], .events = POLLIN };
    return 1 + w->guests;
}

static xd_status take_guests(xd_worker_process *w, const struct pollfd *p, int n, xd_err *e)
{
    xd_status s = XD_OK;
    for (int i = n - 1; i > 0 && s == XD_OK; i--)       /* the last one takes a place           */
        s = p[i].revents ? name_guest(w, i - 1, e) : XD_OK;
    return s == XD_OK && p[0].revents ? admit_guest(w, e) : s;
}

/* Waits for the connection of rank 0. Others may come before it, and behind it. */
static xd_status await_connection(xd_worker_process *w, xd_err *e)
{
    int           status = 0;
    struct pollfd p[1 + XD_WORKER_RANKS];
    xd_status     s = XD_OK;
    double        most = w->a.patience + w->a.start_s, until = xd_now_s() + most;
    while (s == XD_OK && w->feed.fd[0] < 0) {
        int n = await_guests(w, p);
        if (poll(p, (nfds_t)n, 100) > 0)
            s = take_guests(w, p, n, e);
        else if (is_stopping(w))
            return xd_fail(e, XD_ECANCELLED, "the server ends");
        else if (has_ended(w, &status))
            return xd_fail(e, XD_EIO, "the worker ended before it was ready");
        else if (w->a.start_s >= 0 && xd_now_s() > until)
            return xd_fail(e, XD_EIO, "the worker was not ready within %.0f s", most);
    }
    if (s != XD_OK)
        return s;
    xd_predictor_ranks(w->a.predictor, w->feed.ranks);
    pthread_mutex_lock(&w->lock);
    w->state.ready = 1;
    w->state.ranks = w->feed.ranks;
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

/* part: seconds of text, load, denoise, decode. */
static void note_seconds(xd_worker_process *w, const xd_worker_run *r, double seconds,
                         const double part[PARTS])
{
    int          share = r->rank < 0 ? 1 : w->feed.ranks;
    xd_task_time t = { seconds, seconds, part[0] / seconds, part[3] / seconds };
    if (!(seconds > 0))
        return;
    xd_predictor_learn(w->a.predictor, r->task, r->rank >= 0, &t);
    xd_schedule_taken(&w->feed.schedule, r->task->owner ? r->task->owner : "", seconds / share,
                      xd_now_s());
    double usual = w->feed.schedule.usual;
    w->feed.schedule.usual = usual > 0 ? usual + 0.2 * (seconds - usual) : seconds;
}

static void note_done(xd_worker_process *w, const xd_worker_run *r, const xd_frame *f)
{
    static const char *const parts[PARTS] = { "text", "load", "denoise", "decode" };
    double                   part[PARTS] = { 0 }, total = 0;
    xd_text_buf              b = { 0 };
    xd_buf_add(&b, "{");
    for (int i = 1; i + 1 < f->n; i += 2) {
        double s = atof(f->v[i + 1]);
        xd_buf_add(&b, "%s\"%s\":%.6f", i > 1 ? "," : "", f->v[i], s);
        for (int k = 0; k < PARTS; k++)
            part[k] = strcmp(f->v[i], parts[k]) == 0 ? s : part[k];
        total = strcmp(f->v[i], "total") == 0 ? s : total;
    }
    xd_buf_add(&b, "}");
    pthread_mutex_lock(&w->lock);
    for (int k = 0; k < PARTS; k++)
        w->state.parts[k] += part[k];
    w->state.seconds += total;
    pthread_mutex_unlock(&w->lock);
    note_seconds(w, r, total, part);
    xd_task_done(w->tasks, r->task, b.failed ? "{}" : b.p);
    xd_buf_free(&b);
}

static void note_memory(xd_worker_process *w, const xd_frame *f)
{
    pthread_mutex_lock(&w->lock);
    w->state.resident = atof(f->v[0]);
    w->state.models = atoi(f->v[1]);
    pthread_mutex_unlock(&w->lock);
}

static void take_frame(xd_worker_process *w, int rank, const xd_frame *f)
{
    xd_worker_run *r = f->n > 0 ? xd_worker_feed_find(&w->feed, f->v[0]) : NULL;
    xd_worker_watch_heard(&w->watch, rank, f);
    if (f->kind == XD_FRAME_MEMORY && f->n >= 2 && rank == 0)
        note_memory(w, f);
    if (f->kind == XD_FRAME_APART && f->n >= 1)
        xd_worker_feed_apart(&w->feed, rank, f);
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
        note_done(w, r, f), xd_worker_feed_remove(&w->feed, r);
    else if (f->kind == XD_FRAME_FAILED && f->n >= 3)
        xd_task_failed(w->tasks, task, (xd_status)atoi(f->v[1]), f->v[2]),
            xd_worker_feed_remove(&w->feed, r);
}

/* ---- when it dies ---------------------------------------------------------------------------- */

static void close_connections(xd_worker_process *w)
{
    for (int i = 0; i < XD_WORKER_RANKS; i++) {
        if (w->feed.fd[i] >= 0)
            close(w->feed.fd[i]);
        w->feed.fd[i] = -1;
    }
    while (w->guests)
        close(w->guest[--w->guests]);
    w->feed.connected = 0;
    w->feed.mode = XD_WORKER_TOGETHER;
}

/* The launcher, and the ranks, which have process groups of their own. */
static void kill_worker(xd_worker_process *w)
{
    if (!w->child)
        return;
    xd_descendants_signal(w->child, SIGKILL);
    kill(-w->child, SIGKILL);
}

/* Waits some seconds for the child to end. */
static int await_child(xd_worker_process *w, int *status)
{
    double until = xd_now_s() + END_S;
    int    gone;
    while (!(gone = has_ended(w, status)) && xd_now_s() < until)
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    return gone;
}

static void tell_end(xd_worker_process *w, int status, char *why, size_t size)
{
    pthread_mutex_lock(&w->lock);
    if (WIFSIGNALED(status))
        snprintf(why, size, "it was killed by signal %d", WTERMSIG(status));
    else if (WEXITSTATUS(status) > 128)
        snprintf(why, size, "it was ended by signal %d", WEXITSTATUS(status) - 128);
    else
        snprintf(why, size, "%s", w->last[0] ? w->last : "it ended without a word");
    pthread_mutex_unlock(&w->lock);
}

/* Ends what is left of the worker; `why` becomes how it ended unless that is known. One that even
 * a kill does not end, as its disk does not answer, is left behind. */
static void end_worker(xd_worker_process *w, char *why, size_t size)
{
    int status = 0, known = why[0] != 0;
    pthread_mutex_lock(&w->lock);
    w->state.ready = 0;
    pthread_mutex_unlock(&w->lock);
    if (known)
        kill_worker(w);
    close_connections(w);
    if (!await_child(w, &status)) {
        kill_worker(w);
        if (!await_child(w, &status))
            fprintf(stderr, "xdit: warning: process %ld cannot be killed: it waits for a device\n",
                    (long)w->child);
        w->child = 0;
    }
    atomic_store(&w->muted, 1);
    if (w->echoing)
        pthread_join(w->echo, NULL);
    w->echoing = 0;
    if (!known)
        tell_end(w, status, why, size);
}

/* What had begun fails; what had not is sent to the next worker. */
static void fail_runs(xd_worker_process *w, const char *why)
{
    char text[LINE + 160];
    snprintf(text, sizeof text, "the worker that generated this has ended (%s); another one is "
             "started: send the request again", why);
    while (w->feed.nruns) {
        xd_worker_run *r = &w->feed.runs[w->feed.nruns - 1];
        xd_tasks_lock(w->tasks);
        int again = !r->begun && !r->cancelled && r->task->tries < TRIES && !is_stopping(w);
        xd_tasks_unlock(w->tasks);
        if (again) {
            xd_task_requeue(w->tasks, r->task);
            w->feed.nruns--;
        } else {
            xd_task_failed(w->tasks, r->task, r->cancelled ? XD_ECANCELLED : XD_EDEVICE,
                           r->cancelled ? "cancelled" : text);
            xd_task_remove_files(r->task);
            xd_worker_feed_remove(&w->feed, r);
        }
    }
}

/* Waits until a rank speaks, a rank connects, or the bell rings, and takes what there is. */
static xd_status take_events(xd_worker_process *w, xd_err *e)
{
    struct pollfd p[2 * XD_WORKER_RANKS + 2];
    int           rank[XD_WORKER_RANKS], guests = await_guests(w, p), n = guests + 1;
    xd_status     s = XD_OK;
    p[guests] = (struct pollfd){ .fd = xd_tasks_bell(w->tasks), .events = POLLIN };
    for (int i = 0; i < w->feed.ranks && i < XD_WORKER_RANKS; i++)
        if (w->feed.fd[i] >= 0)
            rank[n - guests - 1] = i,
            p[n++] = (struct pollfd){ .fd = w->feed.fd[i], .events = POLLIN };
    if (poll(p, (nfds_t)n, LOOK_MS) <= 0)
        return XD_OK;
    take_guests(w, p, guests, NULL);    /* what fails is somebody else's                       */
    if (p[guests].revents)
        xd_tasks_heard(w->tasks);
    for (int i = guests + 1; i < n && s == XD_OK; i++) {
        xd_frame f;
        if (!p[i].revents)
            continue;
        s = xd_frame_receive(p[i].fd, &f, e);
        if (s == XD_OK)
            take_frame(w, rank[i - guests - 1], &f);
        xd_frame_free(&f);
    }
    return s;
}

/* Is the worker to be killed, as it hangs? `why` is how it behaves. */
static int has_hung(xd_worker_process *w, char *why, size_t size)
{
    int hangs = xd_worker_watch_look(&w->watch, &w->feed, why, size);
    pthread_mutex_lock(&w->lock);
    w->state.silent = xd_worker_watch_silence(&w->watch, &w->feed);
    if (!hangs && w->kill && w->feed.nruns) {
        snprintf(why, size, "its time to end was over, and it was killed");
        hangs = 1;
    }
    pthread_mutex_unlock(&w->lock);
    return hangs;
}

/* Feeds one worker until it dies or the server stops. */
static void feed_worker(xd_worker_process *w)
{
    xd_err    e = { 0 };
    char      why[LINE] = "";
    xd_status s = XD_OK;
    while (s == XD_OK && (!is_stopping(w) || w->feed.nruns)) {
        xd_tasks_late(w->tasks);
        xd_worker_feed_cancel(&w->feed);
        if (!is_stopping(w))
            xd_worker_feed_next(&w->feed);
        s = take_events(w, &e);
        if (s == XD_OK && has_hung(w, why, sizeof why))
            s = XD_EDEVICE;
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
        listen(w->listener, XD_WORKER_RANKS) != 0)
        return xd_fail(e, XD_EIO, "cannot listen at %s: %s", w->at.sun_path, strerror(errno));
    return XD_OK;
}

xd_status xd_worker_start(xd_worker_process **out, const xd_worker_args *a, xd_err *e)
{
    pthread_condattr_t attr;
    xd_worker_process *w = *out = calloc(1, sizeof *w);
    if (!w)
        return xd_fail(e, XD_ENOMEM, "no memory for a worker");
    w->a = *a;
    w->tasks = w->feed.tasks = a->tasks;
    w->listener = -1;
    for (int i = 0; i < XD_WORKER_RANKS; i++)
        w->feed.fd[i] = -1;
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->changed, &attr);
    pthread_condattr_destroy(&attr);
    xd_status s = listen_here(w, a->dir, e);
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

/* Waits for a change, and not for longer than it takes to look around; under the lock. */
static void await_change(xd_worker_process *w)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&w->changed, &w->lock, &until);
}

xd_status xd_worker_await(xd_worker_process *w, const volatile sig_atomic_t *stop, xd_err *e)
{
    pthread_mutex_lock(&w->lock);
    while (!w->state.ready && !w->gave_up && !*stop)
        await_change(w);
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

/* Waits so long for the task to end, or while *hurry is 1. */
static void await_task(xd_worker_process *w, xd_task *task, double until,
                       const volatile sig_atomic_t *hurry)
{
    unsigned seen = 0;
    while (!xd_task_over(task) && xd_now_s() < until && *hurry <= 1 && !is_set(w, &w->gave_up))
        seen = xd_tasks_wait(w->tasks, task, seen, 1e-3 * LOOK_MS);
}

static void set_flag(xd_worker_process *w, int *flag)
{
    pthread_mutex_lock(&w->lock);
    *flag = 1;
    pthread_mutex_unlock(&w->lock);
}

/* Gives running tasks so long to end, and cancels them then; a worker that does not heed that is
 * killed. */
static void await_running(xd_worker_process *w, double seconds, const volatile sig_atomic_t *hurry)
{
    static const sig_atomic_t calm;
    double   until = xd_now_s() + seconds, last = 0;
    xd_task *task;
    while ((task = xd_tasks_running(w->tasks, NULL)) && !is_set(w, &w->gave_up)) {
        await_task(w, task, until, hurry);
        xd_tasks_cancel(w->tasks, task);
        last = last > 0 ? last : xd_now_s() + END_S;
        await_task(w, task, last, &calm);
        if (!xd_task_over(task))
            set_flag(w, &w->kill);
        await_task(w, task, xd_now_s() + 4 * END_S, &calm);
        xd_task_release(w->tasks, task);
    }
    xd_task_release(w->tasks, task);
}

void xd_worker_stop(xd_worker_process **out, double seconds, const volatile sig_atomic_t *hurry)
{
    xd_worker_process *w = *out;
    char               why[LINE] = "";
    if (!w)
        return;
    set_flag(w, &w->stop);
    await_running(w, seconds, hurry);
    pthread_join(w->thread, NULL);
    for (int i = 0; i < XD_WORKER_RANKS; i++)
        if (w->feed.fd[i] >= 0)
            xd_frame_send(w->feed.fd[i], XD_FRAME_QUIT, NULL, 0, NULL);
    if (w->child)
        end_worker(w, why, sizeof why);
    close(w->listener);
    unlink(w->at.sun_path);
    xd_schedule_free(&w->feed.schedule);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
    *out = NULL;
}
