/* worker_process.c - the process that generates, and the thread that feeds it */
#define _GNU_SOURCE             /* accept4, pipe2 */
#include "serve/worker_process.h"

#include <errno.h>
#include <fcntl.h>
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

enum { LINE = 1024, FIRST_PAUSE_MS = 100, LONGEST_PAUSE_MS = 30000, END_S = 5 };

struct xd_worker_process {
    xd_tasks    *tasks;
    const char *program;
    int         nargs;
    char      **args;
    struct sockaddr_un at;
    int         listener, fd;   /* fd: -1: no worker is connected                              */
    pid_t       child;          /* 0: none                                                     */
    pthread_t   thread, echo;
    int         err;            /* what the worker writes on standard error                    */
    int         echoing;
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

/* Waits for the connection of the child, which comes from one of its ranks. */
static xd_status await_connection(xd_worker_process *w, xd_err *e)
{
    int           status = 0;
    struct pollfd p = { .fd = w->listener, .events = POLLIN };
    while (poll(&p, 1, 100) <= 0)
        if (is_stopping(w))
            return xd_fail(e, XD_ECANCELLED, "the server ends");
        else if (has_ended(w, &status))
            return xd_fail(e, XD_EIO, "the worker ended before it was ready");
    w->fd = accept4(w->listener, NULL, NULL, SOCK_CLOEXEC);
    xd_frame  f = { 0 };
    xd_status s = w->fd < 0 ? xd_fail(e, XD_EIO, "the worker cannot connect: %s", strerror(errno))
                            : xd_frame_receive(w->fd, &f, e);
    if (s == XD_OK && (f.kind != XD_FRAME_READY || f.n < 2))
        s = xd_fail(e, XD_EFORMAT, "the worker speaks another language: is it of another version?");
    if (s == XD_OK) {
        pthread_mutex_lock(&w->lock);
        w->state.ready = 1;
        w->state.ranks = atoi(f.v[0]);
        pthread_cond_broadcast(&w->changed);
        pthread_mutex_unlock(&w->lock);
    }
    xd_frame_free(&f);
    return s;
}

/* ---- a task ---------------------------------------------------------------------------------- */

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

static void note_done(xd_worker_process *w, xd_task *task, const xd_frame *f)
{
    static const char *const parts[] = { "text", "load", "denoise", "decode" };
    xd_text_buf              b = { 0 };
    xd_buf_add(&b, "{");
    pthread_mutex_lock(&w->lock);
    for (int i = 1; i + 1 < f->n; i += 2) {
        double s = atof(f->v[i + 1]);
        xd_buf_add(&b, "%s\"%s\":%.6f", i > 1 ? "," : "", f->v[i], s);
        for (int k = 0; k < 4; k++)
            if (strcmp(f->v[i], parts[k]) == 0)
                w->state.parts[k] += s;
        if (strcmp(f->v[i], "total") == 0)
            w->state.seconds += s;
    }
    pthread_mutex_unlock(&w->lock);
    xd_buf_add(&b, "}");
    xd_task_done(w->tasks, task, b.failed ? "{}" : b.p);
    xd_buf_free(&b);
}

/* 1: the task has ended with this frame. */
static int take_frame(xd_worker_process *w, xd_task *task, const xd_frame *f)
{
    if (f->kind == XD_FRAME_MEMORY && f->n >= 2) {
        pthread_mutex_lock(&w->lock);
        w->state.resident = atof(f->v[0]);
        w->state.models = atoi(f->v[1]);
        pthread_mutex_unlock(&w->lock);
    }
    if (!task || f->n < 1 || strcmp(f->v[0], task->id) != 0)
        return 0;
    if (f->kind == XD_FRAME_STAGE && f->n >= 2)
        xd_task_stage(w->tasks, task, f->v[1]);
    else if (f->kind == XD_FRAME_STEP && f->n >= 5)
        xd_task_step(w->tasks, task, atoi(f->v[1]), atoi(f->v[2]), atoi(f->v[3]), atoi(f->v[4]));
    else if (f->kind == XD_FRAME_PREVIEW && f->n >= 3)
        xd_task_preview(w->tasks, task, f->v[2]);
    else if (f->kind == XD_FRAME_IMAGE)
        note_image(w->tasks, task, f);
    else if (f->kind == XD_FRAME_DONE)
        return note_done(w, task, f), 1;
    else if (f->kind == XD_FRAME_FAILED && f->n >= 3)
        return xd_task_failed(w->tasks, task, (xd_status)atoi(f->v[1]), f->v[2]), 1;
    return 0;
}

static xd_status send_frame(xd_worker_process *w, xd_frame_kind kind, const char *const *v, int n,
                            xd_err *e)
{
    pthread_mutex_lock(&w->lock);
    xd_status s = w->fd < 0 ? xd_fail(e, XD_EIO, "there is no worker")
                            : xd_frame_send(w->fd, kind, v, n, e);
    pthread_mutex_unlock(&w->lock);
    return s;
}

/* XD_EIO: the worker has gone, and the task, which may be NULL, has not ended. */
static xd_status take_frames(xd_worker_process *w, xd_task *task, xd_err *e)
{
    int over = 0;
    while (!over) {
        xd_frame  f;
        xd_status s = xd_frame_receive(w->fd, &f, e);
        if (s != XD_OK)
            return s;
        over = take_frame(w, task, &f) || !task;
        xd_frame_free(&f);
    }
    return XD_OK;
}

static xd_status run_task(xd_worker_process *w, xd_task *task, xd_err *e)
{
    xd_status s = send_frame(w, XD_FRAME_RUN, (const char *const *)task->args, task->nargs, e);
    if (s == XD_EINVAL) {       /* too long to send: the worker is well                        */
        xd_task_failed(w->tasks, task, s, e->msg);
        return XD_OK;
    }
    if (s == XD_OK)             /* a cancel that came before the task was sent                   */
        xd_worker_cancel(w, task);
    return s == XD_OK ? take_frames(w, task, e) : s;
}

/* ---- when it dies ---------------------------------------------------------------------------- */

/* Ends what is left of the worker; `why` becomes how it ended. */
static void end_worker(xd_worker_process *w, char *why, size_t size)
{
    int    status = 0, gone = 0;
    double began = xd_now_s();
    pthread_mutex_lock(&w->lock);
    w->state.ready = 0;
    if (w->fd >= 0)
        close(w->fd);
    w->fd = -1;
    pthread_mutex_unlock(&w->lock);
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

static void fail_running(xd_worker_process *w, xd_task *task, const char *why)
{
    char text[LINE + 160];
    snprintf(text, sizeof text, "the worker that generated this has ended (%s); another one is "
             "started: send the request again", why);
    if (task && !xd_task_over(task))
        xd_task_failed(w->tasks, task, XD_EDEVICE, text);
}

/* Feeds one worker until it dies or the server stops. */
static void feed_worker(xd_worker_process *w)
{
    xd_err    e = { 0 };
    char      why[LINE] = "";
    xd_task   *task = NULL;
    xd_status s = XD_OK;
    while (s == XD_OK && !is_stopping(w)) {
        struct pollfd p = { .fd = w->fd, .events = POLLIN };
        task = xd_tasks_take(w->tasks, 0.25);
        if (task)
            s = run_task(w, task, &e);
        else if (poll(&p, 1, 0) > 0)    /* its memory, or its end                              */
            s = take_frames(w, NULL, &e);
        if (s == XD_OK && task) {
            xd_task_release(w->tasks, task);
            task = NULL;
        }
    }
    if (s == XD_OK)
        return;
    end_worker(w, why, sizeof why);
    if (!is_stopping(w))
        fprintf(stderr, "xdit: the worker has ended: %s\n", why);
    fail_running(w, task, why);
    xd_task_release(w->tasks, task);
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
        listen(w->listener, 4) != 0)
        return xd_fail(e, XD_EIO, "cannot listen at %s: %s", w->at.sun_path, strerror(errno));
    return XD_OK;
}

xd_status xd_worker_start(xd_worker_process **out, xd_tasks *tasks, const char *program,
                          const char *dir, int nargs, char **args, xd_err *e)
{
    xd_worker_process *w = *out = calloc(1, sizeof *w);
    if (!w)
        return xd_fail(e, XD_ENOMEM, "no memory for a worker");
    w->tasks = tasks;
    w->program = program;
    w->nargs = nargs;
    w->args = args;
    w->fd = w->listener = -1;
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

void xd_worker_cancel(xd_worker_process *w, const xd_task *task)
{
    xd_tasks_lock(w->tasks);
    int wanted = task->cancel && task->state == XD_TASK_RUNNING;
    xd_tasks_unlock(w->tasks);
    if (wanted)
        send_frame(w, XD_FRAME_CANCEL, (const char *[]){ task->id }, 1, NULL);
}

void xd_worker_look(xd_worker_process *w, xd_worker_state *state)
{
    pthread_mutex_lock(&w->lock);
    *state = w->state;
    pthread_mutex_unlock(&w->lock);
}

/* Gives the running task so long to end, and cancels it then. */
static void await_running(xd_worker_process *w, double seconds)
{
    double  until = xd_now_s() + seconds;
    xd_task *task = xd_tasks_running(w->tasks);
    if (!task)
        return;
    unsigned seen = xd_tasks_wait(w->tasks, task, 0, 0);
    while (!xd_task_over(task) && xd_now_s() < until)
        seen = xd_tasks_wait(w->tasks, task, seen, until - xd_now_s());
    xd_tasks_cancel(w->tasks, task);
    xd_worker_cancel(w, task);
    xd_task_release(w->tasks, task);
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
    send_frame(w, XD_FRAME_QUIT, NULL, 0, NULL);
    pthread_join(w->thread, NULL);
    if (w->child)
        end_worker(w, why, sizeof why);
    close(w->listener);
    unlink(w->at.sun_path);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
    *out = NULL;
}
