/* worker_feed.c - chooses the worker's next task, and whether its ranks work together */
#include "serve/worker_feed.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

/* LONGEST: tasks that single ranks run differ by this factor at most, so that the ranks end at
 * about the same time. */
enum { DEEP = 4, LONGEST = 4 };

/* ---- tasks that the worker has --------------------------------------------------------------- */

xd_worker_run *xd_worker_feed_find(xd_worker_feed *feed, const char *id)
{
    for (int i = 0; i < feed->nruns; i++)
        if (strcmp(feed->runs[i].task->id, id) == 0)
            return &feed->runs[i];
    return NULL;
}

void xd_worker_feed_remove(xd_worker_feed *feed, xd_worker_run *r)
{
    xd_task_release(feed->tasks, r->task);
    memmove(r, r + 1, (size_t)(&feed->runs[--feed->nruns] - r) * sizeof *r);
}

void xd_worker_feed_apart(xd_worker_feed *feed, int rank, const xd_frame *f)
{
    feed->able[rank] = f->v[0][0] == '1';
    if (++feed->answers < feed->ranks)
        return;
    feed->mode = XD_WORKER_APART;
    for (int i = 0; i < feed->ranks; i++)
        if (feed->able[i])
            return;
    if (feed->nnot_apart < XD_WORKER_MODELS)
        strcpy(feed->not_apart[feed->nnot_apart++], feed->apart_model);
}

/* ---- what the worker is told ----------------------------------------------------------------- */

/* A connection that has ended is noticed where it is read. XD_EINVAL: the frame is too long. */
static xd_status send_frame(xd_worker_feed *feed, int rank, xd_frame_kind kind,
                            const char *const *v, int n, xd_err *e)
{
    return xd_frame_send(feed->fd[rank < 0 ? 0 : rank], kind, v, n, e);
}

/* Sends a task, which is held, to a rank or to all. */
static void start_task(xd_worker_feed *feed, xd_task *task, int rank)
{
    xd_err    e = { 0 };
    xd_status s = send_frame(feed, rank, XD_FRAME_RUN, (const char *const *)task->args, task->nargs,
                             &e);
    if (s == XD_EINVAL) {
        xd_task_failed(feed->tasks, task, s, e.msg);
        xd_task_release(feed->tasks, task);
        return;
    }
    feed->runs[feed->nruns++] = (xd_worker_run){ .task = task, .rank = rank };
}

void xd_worker_feed_cancel(xd_worker_feed *feed)
{
    for (int i = 0; i < feed->nruns; i++) {
        xd_worker_run *r = &feed->runs[i];
        xd_tasks_lock(feed->tasks);
        double late = r->task->deadline_s;
        int    wanted = r->task->cancel || (late > 0 && late < xd_now_s());
        xd_tasks_unlock(feed->tasks);
        if (wanted && !r->cancelled)
            send_frame(feed, r->rank, XD_FRAME_CANCEL, (const char *[]){ r->task->id }, 1, NULL);
        r->cancelled |= wanted;
    }
}

/* ---- what runs next -------------------------------------------------------------------------- */

typedef struct choice {
    xd_worker_feed *feed;
    double          now, shortest;      /* shortest: seconds alone of those for single ranks    */
    char            model[XD_WORKER_NAME];      /* only tasks of it, for single ranks; "": any   */
    const xd_task  *running;    /* only tasks that may pass this one; NULL: any                 */
    const xd_task  *best;
    double          score;
    int             n;
} choice;

static int fits_choice(const choice *c, const xd_task *t)
{
    if (c->running && !xd_schedule_passes(&c->feed->schedule, t, c->running, c->now))
        return 0;
    return !c->model[0] ||
           (strcmp(t->model, c->model) == 0 && t->alone_s > 0 && t->expected_s > 0 &&
            !xd_task_has(t, "--lora=") && t->alone_s <= LONGEST * c->shortest);
}

static double score_of(void *cookie, const xd_task *t)
{
    const choice *c = cookie;
    return fits_choice(c, t) ? xd_schedule_score(&c->feed->schedule, t, c->now) : NAN;
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

static int may_part(const xd_worker_feed *feed, const char *model)
{
    for (int i = 0; i < feed->nnot_apart; i++)
        if (strcmp(feed->not_apart[i], model) == 0)
            return 0;
    return feed->ranks > 1 && feed->connected == feed->ranks;
}

/* Under the lock of the tasks: the best task, and how many there are that single ranks could run
 * with it at the same time; 0: that does not pay, or the best one is none of them. `busy`: ranks
 * that do so already. */
static int count_apart(choice *c, int busy)
{
    xd_worker_feed *feed = c->feed;
    c->score = c->shortest = INFINITY;
    xd_tasks_each(feed->tasks, see_best, c);
    if (!c->best || !may_part(feed, c->best->model))
        return 0;
    snprintf(c->model, sizeof c->model, "%s", c->best->model);
    xd_tasks_each(feed->tasks, see_shortest, c);
    /* a long one would keep its rank from working with the others */
    if (feed->mode == XD_WORKER_APART)
        c->shortest = fmin(c->shortest, feed->apart_shortest);
    if (!fits_choice(c, c->best))
        return 0;
    xd_tasks_each(feed->tasks, count_fitting, c);
    return xd_schedule_apart(c->n + busy, feed->ranks, c->best->expected_s, c->best->alone_s) ? c->n
                                                                                           : 0;
}

/* The task of all ranks that was sent last: one that comes goes before its rest; NULL: none. */
static const xd_task *top_task(const xd_worker_feed *feed)
{
    const xd_task *top = NULL;
    for (int i = 0; i < feed->nruns; i++)
        top = feed->runs[i].rank < 0 ? feed->runs[i].task : top;
    return top;
}

static int all_begun(const xd_worker_feed *feed)
{
    for (int i = 0; i < feed->nruns; i++)
        if (!feed->runs[i].begun)
            return 0;
    return 1;
}

/* From now on single ranks run tasks of the best one's model. */
static void ask_apart(xd_worker_feed *feed, const xd_task *best, double shortest)
{
    feed->apart_shortest = shortest;
    feed->answers = 0;
    snprintf(feed->apart_model, sizeof feed->apart_model, "%s", best->model);
    feed->mode = XD_WORKER_ASKED;
    send_frame(feed, 0, XD_FRAME_APART, (const char *const *)best->args, best->nargs, NULL);
}

static void schedule_together(xd_worker_feed *feed)
{
    choice c = { .feed = feed, .now = xd_now_s(), .running = top_task(feed) };
    if (!all_begun(feed) || feed->nruns >= DEEP)
        return;
    xd_tasks_lock(feed->tasks);
    int apart = count_apart(&c, 0);
    if (apart)
        ask_apart(feed, c.best, c.shortest);
    xd_tasks_unlock(feed->tasks);
    if (apart)
        return;
    c.model[0] = 0;
    xd_task *task = xd_tasks_take(feed->tasks, score_of, &c);
    if (task)
        start_task(feed, task, -1);
}

static int is_busy(const xd_worker_feed *feed, int rank)
{
    for (int i = 0; i < feed->nruns; i++)
        if (feed->runs[i].rank == rank)
            return 1;
    return 0;
}

/* Gives idle ranks tasks; they work together again when none is left that pays. */
static void schedule_apart(xd_worker_feed *feed)
{
    int busy = 0, more = 1;
    for (int i = 0; i < feed->ranks; i++)
        busy += is_busy(feed, i);
    for (int i = 0; i < feed->ranks && more; i++) {
        choice c = { .feed = feed, .now = xd_now_s(), .running = top_task(feed) };
        if (!feed->able[i] || is_busy(feed, i))
            continue;
        xd_tasks_lock(feed->tasks);
        more = count_apart(&c, busy) && strcmp(c.model, feed->apart_model) == 0;
        xd_tasks_unlock(feed->tasks);
        xd_task *task = more ? xd_tasks_take(feed->tasks, score_of, &c) : NULL;
        if (task)
            start_task(feed, task, i);
        busy += task != NULL;
    }
    if (busy)
        return;
    for (int i = 0; i < feed->ranks; i++)
        send_frame(feed, i, XD_FRAME_TOGETHER, NULL, 0, NULL);
    feed->mode = XD_WORKER_TOGETHER;
    schedule_together(feed);
}

void xd_worker_feed_next(xd_worker_feed *feed)
{
    if (feed->mode == XD_WORKER_TOGETHER)
        schedule_together(feed);
    else if (feed->mode == XD_WORKER_APART)
        schedule_apart(feed);
}
