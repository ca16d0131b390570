/* worker_process.c - the worker process, its connections, and the thread that sends tasks to the
 * worker.
 *
 * The sending thread waits for frames of the worker and for changes of the queue of tasks
 * (xd_tasks_wakeup_fd), records progress and results, and dispatches the next task
 * (worker_dispatch.h). */
#define _GNU_SOURCE /* accept4, pipe2, syscall */
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
#include "launch/descendants.h"
#include "serve/worker_watch.h"

enum {
    LINE = 1024,
    MIN_PAUSE_MS = 100,
    MAX_PAUSE_MS = 30000,
    END_S = 5,
    POLL_MS = 250,
    FRAME_S = 10
}; /* time limit in seconds for sending or receiving a frame */
enum {
    MAX_FILES = 65536
}; /* maximum number of file descriptors to close one by one, if
                                   close_range is missing */
enum { TRIES = 2 }; /* maximum number of attempts to run a task */
enum { PARTS = 4 }; /* number of stages in xd_worker_state.parts */

struct xd_worker_process {
    xd_worker_args     a;
    xd_tasks          *tasks;
    struct sockaddr_un at;
    int                listener;
    pid_t              child; /* process id of the launcher or worker; 0: no worker is running */
    pthread_t          thread, echo;
    int                err; /* read end of the worker's standard error */
    int                echoing;
    /* 1: the worker has ended, and the thread that reads the pipe `err` ends when the pipe is
     * empty */
    atomic_int         draining;
    /* this field and the following ones up to `watch` are used only by the thread that sends
     * tasks */
    xd_dispatch        dispatch;
    int                pending[XD_WORKER_RANKS]; /* [npending] connections whose ranks are not known
                                                   yet */
    int                npending;
    xd_worker_watch    watch;
    /* Mutex that protects the fields below. */
    pthread_mutex_t    lock;
    pthread_cond_t     changed;
    xd_worker_state    state;
    char               last[LINE]; /* the worker's last line on standard error */
    /* stop: 1 if the thread that sends tasks must end; gave_up: 1 if the first worker failed to
     * start; kill: 1 if the time that running tasks have to finish is over */
    int                stop, gave_up, kill;
    xd_err             failure; /* reason why the first worker failed to start */
};

/* ---- reading the standard error of the worker ------------------------------------------------ */

static void pass_line(xd_worker_process *w, const char *line, size_t n)
{
    const char *text = strncmp(line, "xdit: ", 6) == 0 ? line + 6 : line;
    fwrite(line, 1, n, stderr);
    pthread_mutex_lock(&w->lock);
    snprintf(w->last, sizeof w->last, "%.*s", (int)strcspn(text, "\n"), text);
    pthread_mutex_unlock(&w->lock);
}

/* Runs in a thread: forwards the lines that the worker prints to standard error, and keeps the last
 * line. A process that cannot be killed may keep the write end of the pipe open. The reading thread
 * therefore also ends when `draining` is set (the worker has ended) and the pipe is empty. */
static void *echo_lines(void *arg)
{
    xd_worker_process *w = arg;
    char               line[LINE];
    size_t             n = 0;
    ssize_t            got = 1;
    struct pollfd      p = { .fd = w->err, .events = POLLIN };
    while (got > 0) {
        int arrived = poll(&p, 1, POLL_MS);
        if (arrived <= 0 && atomic_load(&w->draining))
            break;
        if (arrived <= 0)
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

/* Closes all file descriptors from `first` on. Older C libraries lack the function close_range, and
 * older kernels lack the system call. */
static void close_from(unsigned first)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, first, ~0u, 0) == 0)
        return;
#endif
    struct rlimit most;
    rlim_t        end = getrlimit(RLIMIT_NOFILE, &most) == 0 ? most.rlim_cur : MAX_FILES;
    for (rlim_t fd = first; fd < (end < MAX_FILES ? end : MAX_FILES); fd++)
        close((int)fd);
}

static void exec_worker(const xd_worker_process *w, char **v, int err)
{
    sigset_t none;
    int      null = open("/dev/null", O_RDWR);
    setpgid(0, 0); /* the worker has its own process group, so that Ctrl-C signals only
                                   the server */
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
        return xd_fail(e, XD_EIO, "cannot start the worker process: %s", strerror(errno));
    }
    v[0] = (char *)w->a.program;
    v[1] = "worker";
    v[2] = "--connect";
    v[3] = w->at.sun_path;
    memcpy(v + 4, w->a.args, (size_t)w->a.nargs * sizeof *v);
    pthread_mutex_lock(&w->lock);
    w->last[0] = 0;
    pthread_mutex_unlock(&w->lock);
    atomic_store(&w->draining, 0);
    xd_worker_watch_begin(&w->watch, w->a.timeout_s);
    w->child = fork();
    if (w->child == 0)
        exec_worker(w, v, err[1]);
    free(v);
    close(err[1]);
    w->err = err[0];
    if (w->child < 0) {
        close(err[0]);
        w->child = 0;
        return xd_fail(e, XD_EIO, "cannot start the worker process: %s", strerror(errno));
    }
    w->echoing = pthread_create(&w->echo, NULL, echo_lines, w) == 0;
    return XD_OK;
}

/* Returns 1 if the child process has ended, and sets *status to its exit status. */
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

/* Accepts a connection from a rank of the worker. The connection remains pending until the rank
 * sends XD_FRAME_READY. */
static xd_status accept_rank(xd_worker_process *w, xd_err *e)
{
    int            fd = accept4(w->listener, NULL, NULL, SOCK_CLOEXEC);
    struct timeval most = { .tv_sec = FRAME_S };
    if (fd < 0)
        return xd_fail(e, XD_EIO, "cannot accept the worker's connection: %s", strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
    w->pending[w->npending++] = fd;
    return XD_OK;
}

static xd_status identify_rank(xd_worker_process *w, int i, xd_err *e)
{
    int      fd = w->pending[i];
    xd_frame f = { 0 };
    w->pending[i] = w->pending[--w->npending];
    xd_status s = xd_frame_receive(fd, &f, e);
    int       rank = s == XD_OK && f.kind == XD_FRAME_READY && f.n >= 3 ? atoi(f.v[2]) : -1;
    if (s == XD_OK && rank < 0)
        s = xd_fail(e, XD_EFORMAT,
                    "the worker sent an unknown message: install xdit and "
                    "xdit-server of the same version");
    if (s == XD_OK && rank < XD_WORKER_RANKS && w->dispatch.fd[rank] < 0) {
        w->dispatch.fd[rank] = fd;
        w->dispatch.ranks = atoi(f.v[0]);
        w->dispatch.connected++;
    } else {
        close(fd);
    }
    xd_frame_free(&f);
    return s;
}

/* Lists the descriptors to poll for new ranks: the listener, then the pending connections. Returns
 * the number of listed descriptors. */
static int list_pending(const xd_worker_process *w, struct pollfd *p)
{
    p[0] =
        (struct pollfd){ .fd = w->npending < XD_WORKER_RANKS ? w->listener : -1, .events = POLLIN };
    for (int i = 0; i < w->npending; i++)
        p[1 + i] = (struct pollfd){ .fd = w->pending[i], .events = POLLIN };
    return 1 + w->npending;
}

static xd_status accept_ranks(xd_worker_process *w, const struct pollfd *p, int n, xd_err *e)
{
    xd_status s = XD_OK;
    for (int i = n - 1; i > 0 && s == XD_OK; i--) /* the loop begins with the last connection,
                                                     because identify_rank moves the last pending
                                                     connection to the free index */
        s = p[i].revents ? identify_rank(w, i - 1, e) : XD_OK;
    return s == XD_OK && p[0].revents ? accept_rank(w, e) : s;
}

/* Waits for the connection of rank 0. Ranks other than 0 may connect before or after rank 0. */
static xd_status await_connection(xd_worker_process *w, xd_err *e)
{
    int           status = 0;
    struct pollfd p[1 + XD_WORKER_RANKS];
    xd_status     s = XD_OK;
    double        most = w->a.timeout_s + w->a.start_s, until = xd_now_s() + most;
    while (s == XD_OK && w->dispatch.fd[0] < 0) {
        int n = list_pending(w, p);
        if (poll(p, (nfds_t)n, 100) > 0)
            s = accept_ranks(w, p, n, e);
        else if (is_stopping(w))
            return xd_fail(e, XD_ECANCELLED, "the server is shutting down");
        else if (has_ended(w, &status))
            return xd_fail(e, XD_EIO, "the worker exited before it was ready");
        else if (w->a.start_s >= 0 && xd_now_s() > until)
            return xd_fail(e, XD_EIO,
                           "the worker was not ready within %.0f s: raise "
                           "--worker_timeout or --start_timeout",
                           most);
    }
    if (s != XD_OK)
        return s;
    xd_predictor_ranks(w->a.predictor, w->dispatch.ranks);
    pthread_mutex_lock(&w->lock);
    w->state.ready = 1;
    w->state.ranks = w->dispatch.ranks;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return s;
}

/* ---- handling of frames from the worker ------------------------------------------------------ */

static void note_image(xd_tasks *tasks, xd_task *task, const xd_frame *f)
{
    if (f->n < 13)
        return;
    xd_task_image im = { .file = f->v[1],
                         .seed = f->v[2],
                         .json = f->v[3],
                         .parameters = f->v[4],
                         .width = atoll(f->v[5]),
                         .height = atoll(f->v[6]),
                         .frames = atoll(f->v[7]),
                         .fps = atof(f->v[8]),
                         .rate = atoi(f->v[9]),
                         .text_tokens = atoll(f->v[10]),
                         .reference_tokens = atoll(f->v[11]),
                         .image_tokens = atoll(f->v[12]) };
    xd_task_image_done(tasks, task, &im);
}

/* Records the duration of a task. part: seconds of the stages text, load, denoise, decode. */
static void note_seconds(xd_worker_process *w, const xd_worker_run *r, double seconds,
                         const double part[PARTS])
{
    int          share = r->rank < 0 ? 1 : w->dispatch.ranks;
    xd_task_time t = { seconds, seconds, part[0] / seconds, part[3] / seconds };
    if (!(seconds > 0))
        return;
    xd_predictor_learn(w->a.predictor, r->task, r->rank >= 0, &t);
    xd_schedule_charge(&w->dispatch.schedule, r->task->owner ? r->task->owner : "", seconds / share,
                       xd_now_s());
    double old = w->dispatch.schedule.default_s;
    w->dispatch.schedule.default_s = old > 0 ? old + 0.2 * (seconds - old) : seconds;
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

static void handle_frame(xd_worker_process *w, int rank, const xd_frame *f)
{
    xd_worker_run *r = f->n > 0 ? xd_dispatch_find(&w->dispatch, f->v[0]) : NULL;
    xd_worker_watch_received(&w->watch, rank, f);
    if (f->kind == XD_FRAME_MEMORY && f->n >= 2 && rank == 0)
        note_memory(w, f);
    if (f->kind == XD_FRAME_SPLIT && f->n >= 1)
        xd_dispatch_split_reply(&w->dispatch, rank, f);
    if (!r)
        return;
    xd_task *task = r->task;
    r->started = 1;
    if (f->kind == XD_FRAME_STAGE && f->n >= 2)
        xd_task_stage(w->tasks, task, f->v[1]);
    else if (f->kind == XD_FRAME_STEP && f->n >= 5)
        xd_task_step(w->tasks, task, atoi(f->v[1]), atoi(f->v[2]), atoi(f->v[3]), atoi(f->v[4]));
    else if (f->kind == XD_FRAME_PREVIEW && f->n >= 3)
        xd_task_preview(w->tasks, task, f->v[2]);
    else if (f->kind == XD_FRAME_IMAGE)
        note_image(w->tasks, task, f);
    else if (f->kind == XD_FRAME_DONE)
        note_done(w, r, f), xd_dispatch_remove(&w->dispatch, r);
    else if (f->kind == XD_FRAME_FAILED && f->n >= 3)
        xd_task_failed(w->tasks, task, (xd_status)atoi(f->v[1]), f->v[2]),
            xd_dispatch_remove(&w->dispatch, r);
}

/* ---- handling of the end of a worker --------------------------------------------------------- */

static void close_connections(xd_worker_process *w)
{
    for (int i = 0; i < XD_WORKER_RANKS; i++) {
        if (w->dispatch.fd[i] >= 0)
            close(w->dispatch.fd[i]);
        w->dispatch.fd[i] = -1;
    }
    while (w->npending)
        close(w->pending[--w->npending]);
    w->dispatch.connected = 0;
    w->dispatch.mode = XD_WORKER_JOINED;
}

/* Kills the launcher and the ranks, which have their own process groups. */
static void kill_worker(xd_worker_process *w)
{
    if (!w->child)
        return;
    xd_descendants_signal(w->child, SIGKILL);
    kill(-w->child, SIGKILL);
}

/* Waits up to END_S seconds for the child process to end. Returns 1 if the child has ended. */
static int await_child(xd_worker_process *w, int *status)
{
    double until = xd_now_s() + END_S;
    int    gone;
    while (!(gone = has_ended(w, status)) && xd_now_s() < until)
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    return gone;
}

static void describe_exit(xd_worker_process *w, int status, char *why, size_t size)
{
    pthread_mutex_lock(&w->lock);
    if (WIFSIGNALED(status))
        snprintf(why, size, "it was killed by signal %d", WTERMSIG(status));
    else if (WEXITSTATUS(status) > 128)
        snprintf(why, size, "it was stopped by signal %d", WEXITSTATUS(status) - 128);
    else
        snprintf(why, size, "%s", w->last[0] ? w->last : "it exited without a message");
    pthread_mutex_unlock(&w->lock);
}

/* Ends the worker process and closes its connections. If `why` contains the reason to kill the
 * worker, the worker is killed. If `why` is empty, the worker has exited, and the reason of the
 * exit is written to `why`. A process that cannot be killed, because it waits for a disk that does
 * not respond, is abandoned. */
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
            fprintf(stderr,
                    "xdit: warning: process %ld cannot be killed: it waits for a device "
                    "or disk\n",
                    (long)w->child);
        w->child = 0;
    }
    atomic_store(&w->draining, 1);
    if (w->echoing)
        pthread_join(w->echo, NULL);
    w->echoing = 0;
    if (!known)
        describe_exit(w, status, why, size);
}

/* Handles the tasks of a worker that has ended: started tasks fail, and the other tasks are queued
 * again for the next worker. */
static void fail_runs(xd_worker_process *w, const char *why)
{
    char text[LINE + 160];
    snprintf(text, sizeof text,
             "the worker process failed while it generated this (%s); a new one "
             "is starting: send the request again",
             why);
    while (w->dispatch.nruns) {
        xd_worker_run *r = &w->dispatch.runs[w->dispatch.nruns - 1];
        xd_tasks_lock(w->tasks);
        int again = !r->started && !r->cancelled && r->task->attempts < TRIES && !is_stopping(w);
        xd_tasks_unlock(w->tasks);
        if (again) {
            xd_task_requeue(w->tasks, r->task);
            w->dispatch.nruns--;
        } else {
            xd_task_failed(w->tasks, r->task, r->cancelled ? XD_ECANCELLED : XD_EDEVICE,
                           r->cancelled ? "cancelled" : text);
            xd_task_remove_files(r->task);
            xd_dispatch_remove(&w->dispatch, r);
        }
    }
}

/* Waits for frames from the worker, for new connections of ranks and for changes of the queue of
 * tasks, and handles these events. */
static xd_status handle_events(xd_worker_process *w, xd_err *e)
{
    struct pollfd p[2 * XD_WORKER_RANKS + 2];
    int           rank[XD_WORKER_RANKS], npending = list_pending(w, p), n = npending + 1;
    xd_status     s = XD_OK;
    p[npending] = (struct pollfd){ .fd = xd_tasks_wakeup_fd(w->tasks), .events = POLLIN };
    for (int i = 0; i < w->dispatch.ranks && i < XD_WORKER_RANKS; i++)
        if (w->dispatch.fd[i] >= 0)
            rank[n - npending - 1] = i, p[n++] = (struct pollfd){ .fd = w->dispatch.fd[i],
                                                                  .events = POLLIN };
    if (poll(p, (nfds_t)n, POLL_MS) <= 0)
        return XD_OK;
    /* errors of accept are ignored, because they concern only the new connection */
    accept_ranks(w, p, npending, NULL);
    if (p[npending].revents)
        xd_tasks_clear_wakeup(w->tasks);
    for (int i = npending + 1; i < n && s == XD_OK; i++) {
        xd_frame f;
        if (!p[i].revents)
            continue;
        s = xd_frame_receive(p[i].fd, &f, e);
        if (s == XD_OK)
            handle_frame(w, rank[i - npending - 1], &f);
        xd_frame_free(&f);
    }
    return s;
}

/* Returns 1 if the worker hangs and must be killed, with the reason in `why`. */
static int has_hung(xd_worker_process *w, char *why, size_t size)
{
    int hangs = xd_worker_watch_check(&w->watch, &w->dispatch, why, size);
    pthread_mutex_lock(&w->lock);
    w->state.silent = xd_worker_watch_silence(&w->watch, &w->dispatch);
    if (!hangs && w->kill && w->dispatch.nruns) {
        snprintf(why, size, "it did not stop in time and was killed");
        hangs = 1;
    }
    pthread_mutex_unlock(&w->lock);
    return hangs;
}

/* Sends tasks to one worker until the worker dies or the server stops. */
static void serve_worker(xd_worker_process *w)
{
    xd_err    e = { 0 };
    char      why[LINE] = "";
    xd_status s = XD_OK;
    while (s == XD_OK && (!is_stopping(w) || w->dispatch.nruns)) {
        xd_tasks_cancel_overdue(w->tasks);
        xd_dispatch_cancel(&w->dispatch);
        if (!is_stopping(w))
            xd_dispatch_next(&w->dispatch);
        s = handle_events(w, &e);
        if (s == XD_OK && has_hung(w, why, sizeof why))
            s = XD_EDEVICE;
    }
    if (s == XD_OK)
        return;
    end_worker(w, why, sizeof why);
    if (!is_stopping(w))
        fprintf(stderr, "xdit: the worker has failed and is restarted: %s\n", why);
    fail_runs(w, why);
}

static void pause_ms(xd_worker_process *w, int ms)
{
    for (; ms > 0 && !is_stopping(w); ms -= 50)
        nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
}

/* Thread that starts workers and sends them tasks. If the first worker does not start, the server
 * exits, because an option of the command line is probably wrong. */
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
            serve_worker(w);
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
        pause = s == XD_OK ? 0 : !pause ? MIN_PAUSE_MS : pause * 2;
        pause_ms(w, pause < MAX_PAUSE_MS ? pause : MAX_PAUSE_MS);
    }
    return NULL;
}

/* ---- public functions of this file ----------------------------------------------------------- */

static xd_status open_listener(xd_worker_process *w, const char *dir, xd_err *e)
{
    w->at.sun_family = AF_UNIX;
    int n = snprintf(w->at.sun_path, sizeof w->at.sun_path, "%s/worker", dir);
    if (n < 0 || (size_t)n >= sizeof w->at.sun_path)
        return xd_fail(e, XD_EINVAL,
                       "the path of the directory %s is too long for a socket: set "
                       "TMPDIR to a shorter one",
                       dir);
    unlink(w->at.sun_path);
    w->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (w->listener < 0 || bind(w->listener, (struct sockaddr *)&w->at, sizeof w->at) != 0 ||
        listen(w->listener, XD_WORKER_RANKS) != 0)
        return xd_fail(e, XD_EIO, "cannot listen on the socket %s: %s", w->at.sun_path,
                       strerror(errno));
    return XD_OK;
}

xd_status xd_worker_start(xd_worker_process **out, const xd_worker_args *a, xd_err *e)
{
    pthread_condattr_t attr;
    xd_worker_process *w = *out = calloc(1, sizeof *w);
    if (!w)
        return xd_fail(e, XD_ENOMEM, "no memory for a worker");
    w->a = *a;
    w->tasks = w->dispatch.tasks = a->tasks;
    w->listener = -1;
    for (int i = 0; i < XD_WORKER_RANKS; i++)
        w->dispatch.fd[i] = -1;
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->changed, &attr);
    pthread_condattr_destroy(&attr);
    xd_status s = open_listener(w, a->dir, e);
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

/* Waits until the worker's state changes, for at most POLL_MS milliseconds. The caller holds the
 * lock of the worker's state. */
static void await_change(xd_worker_process *w)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += POLL_MS * 1000000L;
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

void xd_worker_get_state(xd_worker_process *w, xd_worker_state *state)
{
    pthread_mutex_lock(&w->lock);
    *state = w->state;
    pthread_mutex_unlock(&w->lock);
}

/* Waits until a task has ended, the time `until` is reached, or *hurry is above 1. */
static void await_task(xd_worker_process *w, xd_task *task, double until,
                       const volatile sig_atomic_t *hurry)
{
    unsigned seen = 0;
    while (!xd_task_has_ended(task) && xd_now_s() < until && *hurry <= 1 && !is_set(w, &w->gave_up))
        seen = xd_tasks_wait(w->tasks, task, seen, 1e-3 * POLL_MS);
}

static void set_flag(xd_worker_process *w, int *flag)
{
    pthread_mutex_lock(&w->lock);
    *flag = 1;
    pthread_mutex_unlock(&w->lock);
}

/* Waits for running tasks for up to `seconds` seconds, then cancels the tasks. A worker that does
 * not react is killed. */
static void await_running(xd_worker_process *w, double seconds, const volatile sig_atomic_t *hurry)
{
    static const sig_atomic_t calm;
    double                    until = xd_now_s() + seconds, last = 0;
    xd_task                  *task;
    while ((task = xd_tasks_running(w->tasks, NULL)) && !is_set(w, &w->gave_up)) {
        await_task(w, task, until, hurry);
        xd_tasks_cancel(w->tasks, task);
        last = last > 0 ? last : xd_now_s() + END_S;
        await_task(w, task, last, &calm);
        if (!xd_task_has_ended(task))
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
        if (w->dispatch.fd[i] >= 0)
            xd_frame_send(w->dispatch.fd[i], XD_FRAME_QUIT, NULL, 0, NULL);
    if (w->child)
        end_worker(w, why, sizeof why);
    close(w->listener);
    unlink(w->at.sun_path);
    xd_schedule_free(&w->dispatch.schedule);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
    *out = NULL;
}
