/* tasks.c - the queue of a server's tasks, and their results; see task.h.
 *
 * All tasks share one lock and one condition variable, which is signalled at every change. All
 * tasks are in one list in the order of arrival; the list is short enough for linear searches. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dirent.h>
#include <math.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "serve/folder.h"
#include "serve/schedule.h"
#include "serve/task_flags.h"
#include "serve/task_store.h"
#include "serve/tasks_inside.h"

double xd_unix_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct timespec in_seconds(double s)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    double at = (double)t.tv_nsec + s * 1e9;
    t.tv_sec += (time_t)(at / 1e9);
    t.tv_nsec = (long)(at - 1e9 * (double)(time_t)(at / 1e9));
    return t;
}

void xd_tasks_note_change(xd_tasks *j, xd_task *task)
{
    task->changes++;
    pthread_cond_broadcast(&j->changed);
}

void xd_tasks_wake_worker_thread(const xd_tasks *j)
{
    uint64_t one = 1;
    if (write(j->wakeup, &one, sizeof one) < 0)
        return; /* the write failed because the eventfd is readable already */
}

int xd_tasks_wakeup_fd(xd_tasks *j)
{
    return j->wakeup;
}

void xd_tasks_clear_wakeup(xd_tasks *j)
{
    uint64_t n;
    if (read(j->wakeup, &n, sizeof n) < 0)
        return;
}

/* ---- functions for a single task ------------------------------------------------------------- */

void xd_task_name(char id[40], const char *kind)
{
    unsigned char b[12] = { 0 };
    if (getrandom(b, sizeof b, 0) != (ssize_t)sizeof b)
        memcpy(b, &(struct timespec){ time(NULL), 0 }, sizeof b);
    int n = snprintf(id, 40, "%.12s_", kind);
    for (size_t i = 0; i < sizeof b; i++)
        n += snprintf(id + n, 40 - (size_t)n, "%02x", b[i]);
}

xd_task *xd_task_new(void)
{
    return calloc(1, sizeof(xd_task));
}

xd_status xd_task_arg(xd_task *task, const char *name, const char *value, xd_err *e)
{
    size_t n = strlen(name) + strlen(value) + 4;
    char  *text = malloc(n), **args = realloc(task->args, ((size_t)task->nargs + 1) * sizeof *args);
    if (args)
        task->args = args;
    if (!text || !args) {
        free(text);
        return xd_fail(e, XD_ENOMEM, "no memory for the arguments of a task");
    }
    snprintf(text, n, "--%s=%s", name, value);
    args[task->nargs++] = text;
    return XD_OK;
}

int xd_task_has(const xd_task *task, const char *beginning)
{
    for (int i = 0; i < task->nargs; i++)
        if (strncmp(task->args[i], beginning, strlen(beginning)) == 0)
            return 1;
    return 0;
}

static void free_image(xd_task_image *i)
{
    free(i->file), free(i->seed), free(i->json), free(i->parameters);
}

void xd_task_images_free(xd_task *task)
{
    for (int i = 0; i < task->ndone; i++)
        free_image(&task->done[i]);
    free(task->done);
    task->done = NULL;
    task->ndone = 0;
}

void xd_task_free(xd_task *task)
{
    if (!task)
        return;
    for (int i = 0; i < task->nargs; i++)
        free(task->args[i]);
    xd_task_images_free(task);
    free(task->args), free(task->model_name), free(task->prompt), free(task->size);
    free(task->owner);
    free(task->preview), free(task->error), free(task->seconds);
    free(task);
}

int xd_task_has_ended(const xd_task *task)
{
    return task->state >= XD_TASK_DONE;
}

/* ---- list of tasks --------------------------------------------------------------------------- */

void xd_tasks_append(xd_tasks *j, xd_task *task)
{
    *j->end = task;
    j->end = &task->next;
}

int xd_task_is_foreign(const xd_task *task)
{
    return task->replica[0] != 0;
}

xd_status xd_tasks_store(xd_tasks *j, xd_task *task, xd_err *e)
{
    xd_err    own = { 0 };
    xd_status s = XD_OK;
    if (j->dir)
        s = xd_task_store_save(j->dir, task, xd_replica_name(j->replica), e ? e : &own);
    if (s != XD_OK && !e)
        fprintf(stderr, "xdit: warning: %s\n", own.msg);
    task->stored |= s == XD_OK && j->dir;
    task->saved = task->changes;
    return s;
}

xd_status xd_tasks_open(xd_tasks **out, const char *dir, int queue, double seconds, int64_t bytes,
                        xd_err *e)
{
    pthread_condattr_t attr;
    xd_tasks          *j = *out = calloc(1, sizeof *j);
    if (!j)
        return xd_fail(e, XD_ENOMEM, "no memory for a queue");
    j->queue = queue;
    j->seconds = seconds;
    j->bytes = bytes;
    j->end = &j->first;
    j->wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&j->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&j->changed, &attr);
    pthread_condattr_destroy(&attr);
    xd_status s = XD_OK;
    if (dir && !(j->dir = strdup(dir)))
        s = xd_fail(e, XD_ENOMEM, "no memory for a queue");
    if (s == XD_OK && dir)
        s = xd_tasks_share(j, e);
    if (s != XD_OK)
        xd_tasks_close(out);
    return s;
}

void xd_tasks_close(xd_tasks **out)
{
    xd_tasks *j = *out;
    if (!j)
        return;
    xd_tasks_unshare(j);
    while (j->first) {
        xd_task *task = j->first;
        j->first = task->next;
        xd_task_free(task);
    }
    pthread_cond_destroy(&j->changed);
    pthread_mutex_destroy(&j->lock);
    close(j->wakeup);
    free(j->dir);
    xd_measures_free(&j->measures);
    free(j);
    *out = NULL;
}

void xd_tasks_lock(xd_tasks *j)
{
    pthread_mutex_lock(&j->lock);
}

void xd_tasks_unlock(xd_tasks *j)
{
    pthread_mutex_unlock(&j->lock);
}

static int count_queued(const xd_tasks *j)
{
    int n = 0;
    for (const xd_task *task = j->first; task; task = task->next)
        n += task->state == XD_TASK_QUEUED && !xd_task_is_foreign(task);
    return n;
}

xd_tasks_counts xd_tasks_count(xd_tasks *j)
{
    xd_tasks_lock(j);
    xd_tasks_counts c = j->counts;
    c.queued = count_queued(j);
    c.running = 0;
    for (const xd_task *task = j->first; task; task = task->next)
        c.running += task->state == XD_TASK_RUNNING && !xd_task_is_foreign(task);
    xd_tasks_unlock(j);
    return c;
}

/* Returns the task with this id, or NULL. */
static xd_task *task_of(const xd_tasks *j, const char *id)
{
    xd_task *task = j->first;
    while (task && (task->deleted || strcmp(task->id, id) != 0))
        task = task->next;
    return task;
}

/* Checks whether a new task can be queued. A task with a fingerprint (request_key.h) is stored
 * before it is queued, so that no other server runs the same task. */
static xd_status accept_task(xd_tasks *j, xd_task *task, xd_err *e)
{
    int waiting = count_queued(j);
    if (j->closed)
        return xd_fail(e, XD_ECANCELLED, "the server is shutting down");
    if (*task->fingerprint && task_of(j, task->id))
        return xd_fail(e, XD_EINVAL, "this request exists");
    if (waiting >= j->queue)
        return xd_fail(e, XD_ENOMEM,
                       "%d requests wait, which is the limit of the queue "
                       "(--queue): send this one again later",
                       waiting);
    return *task->fingerprint && j->dir ? xd_tasks_claim_new(j, task, e) : XD_OK;
}

xd_status xd_tasks_add(xd_tasks *j, xd_task *task, xd_err *e)
{
    xd_tasks_lock(j);
    task->created = xd_unix_s();
    task->arrived_s = xd_now_s();
    xd_status s = accept_task(j, task, e);
    if (s == XD_ENOMEM || s == XD_ECANCELLED)
        j->counts.refused++;
    if (s == XD_OK) {
        task->refs = 1;
        xd_tasks_append(j, task);
        if (!task->stored)
            xd_tasks_store(j, task, NULL);
        xd_tasks_note_change(j, task);
        xd_tasks_wake_worker_thread(j);
    }
    xd_tasks_unlock(j);
    return s;
}

xd_task *xd_tasks_find(xd_tasks *j, const char *id)
{
    if (j->dir)
        xd_tasks_refresh_one(j, id);
    xd_tasks_lock(j);
    xd_task *task = task_of(j, id);
    if (task)
        task->refs++;
    xd_tasks_unlock(j);
    return task;
}

void xd_tasks_unlink(xd_tasks *j, xd_task *task)
{
    xd_task **at = &j->first;
    if (task->refs || !task->deleted)
        return;
    while (*at != task)
        at = &(*at)->next;
    *at = task->next;
    if (j->end == &task->next)
        j->end = at;
    xd_task_free(task);
}

void xd_task_release(xd_tasks *j, xd_task *task)
{
    if (!task)
        return;
    xd_tasks_lock(j);
    task->refs--;
    xd_tasks_unlink(j, task);
    xd_tasks_unlock(j);
}

void xd_task_mark_awaited(xd_tasks *j, xd_task *task)
{
    xd_tasks_lock(j);
    task->awaited = 1;
    xd_tasks_unlock(j);
}

unsigned xd_tasks_wait(xd_tasks *j, const xd_task *task, unsigned since, double seconds)
{
    struct timespec until = in_seconds(seconds);
    int             late = 0;
    xd_tasks_lock(j);
    while (task->changes == since && !late)
        late = pthread_cond_timedwait(&j->changed, &j->lock, &until);
    unsigned now = task->changes;
    xd_tasks_unlock(j);
    return now;
}

/* Returns the number of tasks that run before this task, and sets *seconds to the predicted time
 * until this task has ended. The prediction ignores the rule about owners (schedule.h), because
 * only the worker's schedule knows the time that owners have used. */
static int count_before(const xd_tasks *j, const xd_task *task, double *seconds)
{
    const xd_schedule s = { .default_s = 0 };
    double            now = xd_now_s(), mine = xd_schedule_score(&s, task, now);
    int               n = 0;
    *seconds = xd_schedule_remaining(&s, task);
    for (const xd_task *k = j->first; k; k = k->next) {
        int runs = k->state == XD_TASK_RUNNING && task->state == XD_TASK_QUEUED;
        if (k == task || xd_task_has_ended(k) || xd_task_is_foreign(k) ||
            (!runs && xd_schedule_score(&s, k, now) > mine))
            continue;
        n++;
        *seconds += xd_schedule_remaining(&s, k);
    }
    return n;
}

int xd_task_position(xd_tasks *j, const xd_task *task)
{
    double seconds;
    return count_before(j, task, &seconds);
}

double xd_task_seconds_left(xd_tasks *j, const xd_task *task)
{
    double seconds;
    if (xd_task_has_ended(task))
        return 0;
    count_before(j, task, &seconds);
    return task->expected_s > 0 ? seconds : -1;
}

double xd_tasks_seconds(xd_tasks *j)
{
    const xd_schedule s = { .default_s = 0 };
    double            sum = 0;
    xd_tasks_lock(j);
    for (const xd_task *k = j->first; k; k = k->next)
        if (!xd_task_has_ended(k) && !xd_task_is_foreign(k))
            sum += xd_schedule_remaining(&s, k);
    xd_tasks_unlock(j);
    return sum;
}

double xd_tasks_retry_after_s(xd_tasks *j)
{
    const xd_schedule s = { .default_s = 0 };
    double            least = INFINITY;
    xd_tasks_lock(j);
    for (const xd_task *k = j->first; k; k = k->next)
        if (!xd_task_has_ended(k) && !xd_task_is_foreign(k) && k->expected_s > 0)
            least = fmin(least, xd_schedule_remaining(&s, k));
    xd_tasks_unlock(j);
    return least < 1 ? 1 : isfinite(least) ? ceil(least) : 5;
}

/* Returns the value of the task's argument that begins with `flag`; "" if there is none. */
static const char *arg_of(const xd_task *task, const char *flag)
{
    for (int i = 0; i < task->nargs; i++)
        if (strncmp(task->args[i], flag, strlen(flag)) == 0)
            return task->args[i] + strlen(flag);
    return "";
}

int xd_task_checkpoint(const xd_task *task, int claims, char *path, size_t size)
{
    const char *output = arg_of(task, "--output="), *slash = strrchr(output, '/');
    char        number[16] = "";
    if (claims)
        snprintf(number, sizeof number, "%d", claims);
    int n = snprintf(path, size, "%.*s/%s.saved%s", slash ? (int)(slash - output) : 0, output,
                     task->id, number);
    return *arg_of(task, "--checkpoint=") && slash && n > 0 && (size_t)n < size;
}

/* Removes the files with the input images of a request. */
static void remove_inputs(const xd_task *task)
{
    for (int i = 0; i < task->nargs; i++) {
        const char *path = xd_task_image_path(task->args[i]);
        if (path)
            unlink(path);
    }
}

/* Removes the checkpoint folder of an interrupted task, and the checkpoint folders that earlier
 * servers of the task have used. */
static void remove_checkpoint(const xd_task *task)
{
    char path[4200];
    for (int i = 0; i <= task->claims && xd_task_checkpoint(task, i, path, sizeof path); i++) {
        xd_folder_files(path, NULL, 1);
        rmdir(path);
    }
}

static void record_metrics(xd_tasks *j, const xd_task *task)
{
    const char  *denoise = task->seconds ? strstr(task->seconds, "\"denoise\":") : NULL;
    double       s = denoise ? atof(strchr(denoise, ':') + 1) : 0;
    xd_measured *d = xd_measures_of(&j->measures, task->model ? task->model : "", task->video);
    if (d && task->started > 0)
        xd_measure_add(d, XD_MEASURE_WAIT, fmax(task->started - task->created, 0));
    if (d && task->state == XD_TASK_DONE)
        xd_measure_add(d, XD_MEASURE_DURATION, fmax(task->ended - task->created, 0));
    if (d && task->state == XD_TASK_DONE && s > 0 && task->steps > 0)
        xd_measure_add(d, XD_MEASURE_SPEED, (double)task->steps * task->ndone / s);
}

void xd_tasks_add_model(xd_tasks *j, const char *model, int video)
{
    xd_tasks_lock(j);
    xd_measures_of(&j->measures, model, video);
    xd_tasks_unlock(j);
}

void xd_tasks_measures(xd_tasks *j, xd_text_buf *b)
{
    xd_tasks_lock(j);
    xd_measures_print(b, &j->measures);
    xd_tasks_unlock(j);
}

static void end_task(xd_tasks *j, xd_task *task, xd_task_state state)
{
    /* A client whose request has an Idempotency-Key may repeat the request at another server. */
    int again = j->closed && j->dir && state != XD_TASK_DONE &&
                (!task->awaited || *task->fingerprint);
    if (xd_tasks_lost(j, task)) /* another server generates the results */
        return;
    if (!again) /* if the next server runs the task again, the files of the task are kept */
        remove_inputs(task), remove_checkpoint(task);
    task->state = state;
    task->ended = xd_unix_s();
    task->ended_s = xd_now_s();
    task->stage[0] = 0;
    if (state == XD_TASK_DONE)
        j->counts.done++;
    else if (state == XD_TASK_CANCELLED)
        j->counts.cancelled++;
    else
        j->counts.failed++;
    record_metrics(j, task);
    if (!again)
        xd_tasks_store(j, task, NULL);
    xd_tasks_note_change(j, task);
}

static void set_text(char **to, const char *text)
{
    free(*to);
    *to = strdup(text);
}

int xd_tasks_cancel(xd_tasks *j, xd_task *task)
{
    xd_tasks_lock(j);
    int mine = !xd_task_has_ended(task);
    if (mine)
        task->cancel = 1;
    if (mine && xd_task_is_foreign(task)) {
        xd_replica_ask_cancel(j->replica, task->id);
        xd_tasks_unlock(j);
        return 1;
    }
    xd_tasks_wake_worker_thread(j);
    if (task->state == XD_TASK_QUEUED) {
        task->code = XD_ECANCELLED;
        set_text(&task->error, "cancelled");
        end_task(j, task, XD_TASK_CANCELLED);
    } else if (mine) {
        xd_tasks_note_change(j, task);
    }
    xd_tasks_unlock(j);
    return mine;
}

void xd_tasks_shut_down(xd_tasks *j)
{
    xd_tasks_lock(j);
    j->closed = 1;
    for (xd_task *task = j->first; task; task = task->next) {
        if (xd_task_has_ended(task) ||
            (task->state == XD_TASK_RUNNING && !xd_task_is_foreign(task)))
            continue;
        task->code = XD_ENOMEM;
        set_text(&task->error, "the server is shutting down: send the request again when it "
                               "is back");
        /* the error is reported only to clients of this server, because another server now runs
         * the task */
        if (xd_task_is_foreign(task)) {
            task->state = XD_TASK_FAILED;
            xd_tasks_note_change(j, task);
        } else {
            end_task(j, task, XD_TASK_FAILED);
        }
    }
    pthread_cond_broadcast(&j->changed);
    xd_tasks_wake_worker_thread(j);
    xd_tasks_unlock(j);
}

/* ---- storage of tasks in files --------------------------------------------------------------- */

static int64_t bytes_of(const char *file)
{
    struct stat st;
    return file && stat(file, &st) == 0 ? (int64_t)st.st_size : 0;
}

static int64_t sound_bytes(const xd_task_image *im)
{
    char path[4200];
    snprintf(path, sizeof path, "%s" XD_TASK_SOUND, im->file);
    return im->rate ? bytes_of(path) : 0;
}

static int64_t task_bytes(const xd_task *task)
{
    int64_t n = bytes_of(task->preview) * task->previews;
    /* frees the arguments of an ended task, also if the task has failed */
    for (int i = 0; i < task->nargs; i++)
        n += (int64_t)strlen(task->args[i]);
    for (int i = 0; i < task->ndone; i++)
        n += bytes_of(task->done[i].file) + sound_bytes(&task->done[i]);
    return n;
}

static void remove_image(const xd_task_image *im)
{
    static const char *const suffixes[] = { "", XD_TASK_THUMBNAIL, XD_TASK_SHEET, XD_TASK_SOUND };
    char                     path[4200];
    for (int i = 0; i < (im->rate ? 4 : im->fps > 0 ? 3 : 1); i++)
        if ((size_t)snprintf(path, sizeof path, "%s%s", im->file, suffixes[i]) < sizeof path)
            unlink(path);
}

void xd_task_preview_file(const xd_task *task, int i, char *path, size_t size)
{
    xd_task_preview_name(arg_of(task, "--output="), task->video, i, path, size);
}

/* Removes all previews of a task, including previews that an earlier server has written and not
 * counted. */
static void remove_previews(const xd_task *task)
{
    char path[4200];
    int  i = 0;
    do
        xd_task_preview_file(task, i++, path, sizeof path);
    while (unlink(path) == 0);
}

static void delete_task(xd_tasks *j, xd_task *task)
{
    for (int i = 0; i < task->ndone; i++)
        remove_image(&task->done[i]);
    remove_previews(task);
    remove_checkpoint(task);
    if (j->dir) {
        xd_task_store_remove(j->dir, task);
        xd_replica_remove_claims(j->replica, task->id, task->claims);
    }
    task->deleted = 1;
    xd_tasks_unlink(j, task);
}

int xd_tasks_delete(xd_tasks *j, xd_task *task)
{
    xd_tasks_lock(j);
    int over = xd_task_has_ended(task);
    if (over && !task->deleted)
        delete_task(j, task);
    xd_tasks_unlock(j);
    return over;
}

void xd_task_remove_files(const xd_task *task)
{
    char dir[4096], path[4400];
    snprintf(dir, sizeof dir, "%s", arg_of(task, "--output="));
    char *slash = strrchr(dir, '/');
    if (!slash || xd_task_is_foreign(task))
        return;
    *slash = 0;
    DIR           *d = opendir(dir);
    struct dirent *f;
    while (d && (f = readdir(d)))
        if (strncmp(f->d_name, task->id, strlen(task->id)) == 0 && !strstr(f->d_name, ".task") &&
            !strstr(f->d_name, XD_REPLICA_CLAIM) &&
            (size_t)snprintf(path, sizeof path, "%s/%s", dir, f->d_name) < sizeof path)
            unlink(path);
    if (d)
        closedir(d);
}

void xd_tasks_each(xd_tasks *j, void (*visit)(void *cookie, const xd_task *task), void *cookie)
{
    for (const xd_task *task = j->first; task; task = task->next)
        if (!task->deleted)
            visit(cookie, task);
}

/* Deletes the oldest ended tasks first, since the list of tasks begins with the oldest task. */
void xd_tasks_delete_expired(xd_tasks *j)
{
    double  now = xd_now_s();
    int64_t bytes = 0;
    xd_tasks_lock(j);
    if (j->dir && !j->leads) {
        xd_tasks_unlock(j);
        return;
    }
    for (const xd_task *task = j->first; task; task = task->next)
        bytes += xd_task_has_ended(task) && !task->deleted ? task_bytes(task) : 0;
    for (xd_task *task = j->first, *next; task; task = next) {
        next = task->next;
        if (!xd_task_has_ended(task) || task->deleted || task->refs)
            continue;
        if (now - task->ended_s < j->seconds && bytes <= j->bytes)
            continue;
        bytes -= task_bytes(task);
        delete_task(j, task);
    }
    xd_tasks_unlock(j);
}

/* ---- functions that start and finish tasks --------------------------------------------------- */

xd_task *xd_tasks_start_best(xd_tasks *j, double (*score)(void *cookie, const xd_task *task),
                             void *cookie)
{
    xd_task *best = NULL;
    double   least = INFINITY;
    xd_tasks_lock(j);
    for (xd_task *task = j->first; task && !j->closed; task = task->next) {
        double s = task->state == XD_TASK_QUEUED && !xd_task_is_foreign(task) ? score(cookie, task)
                                                                              : NAN;
        if (s < least)
            best = task, least = s;
    }
    if (best) {
        best->state = XD_TASK_RUNNING;
        best->started = xd_unix_s();
        best->began_s = xd_now_s();
        best->attempts++;
        best->refs++;
        xd_tasks_note_change(j, best);
    }
    xd_tasks_unlock(j);
    return best;
}

void xd_task_requeue(xd_tasks *j, xd_task *task)
{
    xd_tasks_lock(j);
    if (!xd_task_is_foreign(task)) {
        task->state = XD_TASK_QUEUED;
        task->started = 0;
        xd_tasks_note_change(j, task);
        xd_tasks_wake_worker_thread(j);
    }
    xd_tasks_unlock(j);
    xd_task_release(j, task);
}

static int is_overdue(const xd_task *task)
{
    return task->deadline_s > 0 && task->deadline_s < xd_now_s();
}

void xd_tasks_cancel_overdue(xd_tasks *j)
{
    xd_tasks_lock(j);
    for (xd_task *task = j->first; task; task = task->next)
        if (task->state == XD_TASK_QUEUED && !xd_task_is_foreign(task) && is_overdue(task)) {
            task->code = XD_ECANCELLED;
            set_text(&task->error, "the deadline passed while the request was queued");
            end_task(j, task, XD_TASK_CANCELLED);
        }
    xd_tasks_unlock(j);
}

xd_task *xd_tasks_next_unpredicted(xd_tasks *j)
{
    xd_task *task = NULL;
    xd_tasks_lock(j);
    while (!j->closed) {
        for (task = j->first; task; task = task->next)
            if (!xd_task_has_ended(task) && !xd_task_is_foreign(task) && task->expected_s == 0)
                break;
        if (task)
            break;
        pthread_cond_wait(&j->changed, &j->lock);
    }
    if (j->closed)
        task = NULL;
    if (task)
        task->refs++;
    xd_tasks_unlock(j);
    return task;
}

void xd_task_set_prediction(xd_tasks *j, xd_task *task, const xd_task_time *t)
{
    xd_tasks_lock(j);
    task->expected_s = t->together > 0 ? t->together : -1;
    task->alone_s = t->alone > 0 ? t->alone : -1;
    task->text_part = t->text;
    task->decode_part = t->decode;
    xd_tasks_note_change(j, task);
    xd_tasks_wake_worker_thread(j);
    xd_tasks_unlock(j);
}

xd_task *xd_tasks_running(xd_tasks *j, const char *owner)
{
    xd_task *task = NULL;
    xd_tasks_lock(j);
    for (xd_task *k = j->first; k; k = k->next)
        if (k->state == XD_TASK_RUNNING && !xd_task_is_foreign(k) &&
            (!task || k->started > task->started) && (!owner || strcmp(k->owner, owner) == 0))
            task = k;
    if (task)
        task->refs++;
    xd_tasks_unlock(j);
    return task;
}

void xd_task_stage(xd_tasks *j, xd_task *task, const char *stage)
{
    xd_tasks_lock(j);
    if (!xd_task_is_foreign(task)) {
        snprintf(task->stage, sizeof task->stage, "%s", stage);
        xd_tasks_note_change(j, task);
    }
    xd_tasks_unlock(j);
}

void xd_task_step(xd_tasks *j, xd_task *task, int step, int steps, int image, int images)
{
    xd_tasks_lock(j);
    if (!xd_task_is_foreign(task)) {
        task->step = step;
        task->steps = steps;
        task->image = image;
        task->images = images;
        xd_tasks_note_change(j, task);
    }
    xd_tasks_unlock(j);
}

void xd_task_preview(xd_tasks *j, xd_task *task, const char *file)
{
    xd_tasks_lock(j);
    if (!xd_task_is_foreign(task)) {
        set_text(&task->preview, file);
        task->previews++;
        xd_tasks_note_change(j, task);
    }
    xd_tasks_unlock(j);
}

void xd_task_image_done(xd_tasks *j, xd_task *task, const xd_task_image *image)
{
    xd_tasks_lock(j);
    xd_task_image *done = xd_task_is_foreign(task)
                              ? NULL
                              : realloc(task->done, ((size_t)task->ndone + 1) * sizeof *done);
    if (done) {
        task->done = done;
        done[task->ndone] = *image;
        done[task->ndone].file = strdup(image->file);
        done[task->ndone].seed = strdup(image->seed);
        done[task->ndone].json = strdup(image->json);
        done[task->ndone].parameters = strdup(image->parameters);
        done[task->ndone].previews = task->previews;
        task->ndone++;
        xd_tasks_note_change(j, task);
    }
    xd_tasks_unlock(j);
}

void xd_task_done(xd_tasks *j, xd_task *task, const char *seconds)
{
    xd_tasks_lock(j);
    if (!xd_tasks_lost(j, task))
        set_text(&task->seconds, seconds);
    end_task(j, task, XD_TASK_DONE);
    xd_tasks_unlock(j);
}

void xd_task_failed(xd_tasks *j, xd_task *task, xd_status code, const char *error)
{
    if (code != XD_EINVAL && code != XD_EUNSUPPORTED && code != XD_ECANCELLED)
        /* the log contains the complete message, from which replies omit paths */
        fprintf(stderr, "xdit: error: %s: %s\n", task->id, error);
    xd_tasks_lock(j);
    if (!xd_tasks_lost(j, task)) {
        task->code = code;
        set_text(&task->error, code == XD_ECANCELLED && !task->cancel && is_overdue(task)
                                   ? "the deadline passed before the result was complete"
                                   : error);
    }
    end_task(j, task, code == XD_ECANCELLED ? XD_TASK_CANCELLED : XD_TASK_FAILED);
    xd_tasks_unlock(j);
}
