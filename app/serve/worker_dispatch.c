/* worker_dispatch.c - chooses the worker's next task, and decides whether the worker's ranks are
 * split */
#include "serve/worker_dispatch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

/* MAX_NESTED: maximum number of tasks that all ranks have at a time: the running task and the tasks
 * that were interrupted for it. MAX_RATIO: maximum ratio of the longest to the shortest task of
 * split ranks, so that all ranks finish at about the same time. */
enum { MAX_NESTED = 4, MAX_RATIO = 4 };

/* ---- list of the tasks that the worker has --------------------------------------------------- */

xd_worker_run *xd_dispatch_find(xd_dispatch *d, const char *id)
{
    for (int i = 0; i < d->nruns; i++)
        if (strcmp(d->runs[i].task->id, id) == 0)
            return &d->runs[i];
    return NULL;
}

void xd_dispatch_remove(xd_dispatch *d, xd_worker_run *r)
{
    xd_task_release(d->tasks, r->task);
    memmove(r, r + 1, (size_t)(&d->runs[--d->nruns] - r) * sizeof *r);
}

void xd_dispatch_split_reply(xd_dispatch *d, int rank, const xd_frame *f)
{
    d->can_split[rank] = f->v[0][0] == '1';
    if (++d->split_replies < d->ranks)
        return;
    d->mode = XD_WORKER_SPLIT;
    for (int i = 0; i < d->ranks; i++)
        if (d->can_split[i])
            return;
    if (d->nunsplittable < XD_WORKER_MODELS)
        strcpy(d->unsplittable[d->nunsplittable++], d->split_model);
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Sends a frame to a rank. A closed connection is not an error of this function, because
 * handle_events of worker_process.c detects closed connections. XD_EINVAL: the frame with the
 * task's arguments is too long. */
static xd_status send_frame(xd_dispatch *d, int rank, xd_frame_kind kind, const char *const *v,
                            int n, xd_err *e)
{
    return xd_frame_send(d->fd[rank < 0 ? 0 : rank], kind, v, n, e);
}

/* Sends a task to one rank, or to all ranks (rank -1). The run takes over the caller's reference to
 * the task. */
static void start_task(xd_dispatch *d, xd_task *task, int rank)
{
    xd_err    e = { 0 };
    xd_status s =
        send_frame(d, rank, XD_FRAME_RUN, (const char *const *)task->args, task->nargs, &e);
    if (s == XD_EINVAL) {
        xd_task_failed(d->tasks, task, s, e.msg);
        xd_task_release(d->tasks, task);
        return;
    }
    d->runs[d->nruns++] = (xd_worker_run){ .task = task, .rank = rank };
}

void xd_dispatch_cancel(xd_dispatch *d)
{
    for (int i = 0; i < d->nruns; i++) {
        xd_worker_run *r = &d->runs[i];
        xd_tasks_lock(d->tasks);
        double late = r->task->deadline_s;
        int    wanted = r->task->cancel || *r->task->replica || (late > 0 && late < xd_now_s());
        xd_tasks_unlock(d->tasks);
        if (wanted && !r->cancelled)
            send_frame(d, r->rank, XD_FRAME_CANCEL, (const char *[]){ r->task->id }, 1, NULL);
        r->cancelled |= wanted;
    }
}

/* ---- choice of the next task ----------------------------------------------------------------- */

typedef struct choice {
    xd_dispatch   *dispatch;
    /* present time; predicted seconds, on one rank, of the shortest task of split ranks */
    double         now, shortest;
    char           model[XD_WORKER_NAME]; /* model whose tasks split ranks run; "": any model */
    const xd_task *running; /* only tasks that preempt this task are chosen; NULL: any task */
    const xd_task *best;
    double         score; /* score of the best task so far */
    int            n;     /* number of tasks that split ranks could run */
} choice;

static int fits_choice(const choice *c, const xd_task *t)
{
    if (c->running && !xd_schedule_preempts(&c->dispatch->schedule, t, c->running, c->now))
        return 0;
    return !c->model[0] ||
           (strcmp(t->model, c->model) == 0 && t->alone_s > 0 && t->expected_s > 0 &&
            !xd_task_has(t, "--lora=") && t->alone_s <= MAX_RATIO * c->shortest);
}

static double score_of(void *cookie, const xd_task *t)
{
    const choice *c = cookie;
    return fits_choice(c, t) ? xd_schedule_score(&c->dispatch->schedule, t, c->now) : NAN;
}

static void consider_best(void *cookie, const xd_task *t)
{
    choice *c = cookie;
    double  s = t->state == XD_TASK_QUEUED ? score_of(c, t) : NAN;
    if (s < c->score)
        c->best = t, c->score = s;
}

static void find_shortest(void *cookie, const xd_task *t)
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

static int can_split_model(const xd_dispatch *d, const char *model)
{
    for (int i = 0; i < d->nunsplittable; i++)
        if (strcmp(d->unsplittable[i], model) == 0)
            return 0;
    return d->ranks > 1 && d->connected == d->ranks;
}

/* Finds the best queued task, and returns the number of queued tasks that split ranks could run at
 * the same time. Returns 0 if splitting the ranks is not faster, or if the best task cannot run on
 * one rank. busy: number of split ranks that run a task. The caller of this function holds the lock
 * of the tasks. */
static int count_split(choice *c, int busy)
{
    xd_dispatch *d = c->dispatch;
    c->score = c->shortest = INFINITY;
    xd_tasks_each(d->tasks, consider_best, c);
    if (!c->best || !can_split_model(d, c->best->model))
        return 0;
    snprintf(c->model, sizeof c->model, "%s", c->best->model);
    xd_tasks_each(d->tasks, find_shortest, c);
    /* tasks much longer than the others are excluded, because they would delay the moment when all
     * ranks can run a task together again */
    if (d->mode == XD_WORKER_SPLIT)
        c->shortest = fmin(c->shortest, d->split_shortest_s);
    if (!fits_choice(c, c->best))
        return 0;
    xd_tasks_each(d->tasks, count_fitting, c);
    return xd_schedule_should_split(c->n + busy, d->ranks, c->best->expected_s, c->best->alone_s)
               ? c->n
               : 0;
}

/* Returns the running task of all ranks, which a new task would interrupt; NULL: no task is
 * running. */
static const xd_task *top_task(const xd_dispatch *d)
{
    const xd_task *top = NULL;
    for (int i = 0; i < d->nruns; i++)
        top = d->runs[i].rank < 0 ? d->runs[i].task : top;
    return top;
}

static int all_begun(const xd_dispatch *d)
{
    for (int i = 0; i < d->nruns; i++)
        if (!d->runs[i].started)
            return 0;
    return 1;
}

/* Requests that the ranks split, in order to run tasks of the best task's model. */
static void request_split(xd_dispatch *d, const xd_task *best, double shortest)
{
    d->split_shortest_s = shortest;
    d->split_replies = 0;
    snprintf(d->split_model, sizeof d->split_model, "%s", best->model);
    d->mode = XD_WORKER_SPLITTING;
    send_frame(d, 0, XD_FRAME_SPLIT, (const char *const *)best->args, best->nargs, NULL);
}

static void dispatch_joined(xd_dispatch *d)
{
    choice c = { .dispatch = d, .now = xd_now_s(), .running = top_task(d) };
    if (!all_begun(d) || d->nruns >= MAX_NESTED)
        return;
    xd_tasks_lock(d->tasks);
    int split = count_split(&c, 0);
    if (split)
        request_split(d, c.best, c.shortest);
    xd_tasks_unlock(d->tasks);
    if (split)
        return;
    c.model[0] = 0;
    xd_task *task = xd_tasks_start_best(d->tasks, score_of, &c);
    if (task)
        start_task(d, task, -1);
}

static int is_busy(const xd_dispatch *d, int rank)
{
    for (int i = 0; i < d->nruns; i++)
        if (d->runs[i].rank == rank)
            return 1;
    return 0;
}

/* Sends tasks to idle split ranks. Ends the split of the ranks when all ranks are idle and no
 * queued task runs faster on split ranks. */
static void dispatch_split(xd_dispatch *d)
{
    int busy = 0, more = 1;
    for (int i = 0; i < d->ranks; i++)
        busy += is_busy(d, i);
    for (int i = 0; i < d->ranks && more; i++) {
        choice c = { .dispatch = d, .now = xd_now_s(), .running = top_task(d) };
        if (!d->can_split[i] || is_busy(d, i))
            continue;
        xd_tasks_lock(d->tasks);
        more = count_split(&c, busy) && strcmp(c.model, d->split_model) == 0;
        xd_tasks_unlock(d->tasks);
        xd_task *task = more ? xd_tasks_start_best(d->tasks, score_of, &c) : NULL;
        if (task)
            start_task(d, task, i);
        busy += task != NULL;
    }
    if (busy)
        return;
    for (int i = 0; i < d->ranks; i++)
        send_frame(d, i, XD_FRAME_JOIN, NULL, 0, NULL);
    d->mode = XD_WORKER_JOINED;
    dispatch_joined(d);
}

void xd_dispatch_next(xd_dispatch *d)
{
    if (d->mode == XD_WORKER_JOINED)
        dispatch_joined(d);
    else if (d->mode == XD_WORKER_SPLIT)
        dispatch_split(d);
}
