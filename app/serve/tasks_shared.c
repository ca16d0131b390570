/* tasks_shared.c - follows the tasks of other servers that use the same folder, and takes over the
 * tasks of dead servers; see replica.h.
 *
 * A server's list of tasks contains the tasks of all servers that use the folder. The task of
 * another server, a foreign task, is a copy of the task's file, which is read again when the file
 * changes. A server never runs or stores a foreign task. */
#include "serve/tasks_inside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "serve/folder.h"
#include "serve/task_store.h"

typedef struct folder_list { /* the tasks in the folder, sorted by id */
    char   (*id)[40];
    size_t n, room;
    char   (*cancel)[40]; /* tasks for which a file ID.cancel exists */
    size_t ncancel, cancel_room;
} folder_list;

/* ---- tasks that change their server ---------------------------------------------------------- */

int xd_tasks_lost(xd_tasks *j, xd_task *task)
{
    int64_t stamp[2];
    if (!j->dir || xd_task_is_foreign(task))
        return xd_task_is_foreign(task);
    if (xd_replica_is_claimed(j->replica, task->id, task->claims))
        xd_replica_owner(j->replica, task->id, task->replica, &task->claims);
    else if (task->stored && !task->deleted && !xd_task_store_stamp(j->dir, task->id, stamp))
        strcpy(task->replica, "-"); /* another server has deleted the task */
    if (xd_task_is_foreign(task))
        /* the worker thread cancels the task if the task is running */
        xd_tasks_wake_worker_thread(j);
    return xd_task_is_foreign(task);
}

xd_status xd_tasks_claim_new(xd_tasks *j, xd_task *task, xd_err *e)
{
    char owner[XD_REPLICA_NAME] = "";
    int  claims = 0;
    xd_replica_owner(j->replica, task->id, owner, &claims);
    if ((claims && !xd_replica_is_dead(j->replica, owner)) ||
        (!xd_replica_claim(j->replica, task->id, claims) &&
         xd_replica_is_claimed(j->replica, task->id, claims)))
        return xd_fail(e, XD_EINVAL, "this request exists");
    task->claims = claims + 1;
    xd_status s = xd_tasks_store(j, task, e);
    if (s != XD_OK)
        xd_replica_remove_claims(j->replica, task->id, task->claims);
    return s == XD_OK ? s : XD_EIO;
}

static int is_checkpoint(const char *name)
{
    static const char tail[] = ".safetensors";
    size_t            n = strlen(name), k = sizeof tail - 1;
    return n > k && strcmp(name + n - k, tail) == 0;
}

/* Moves the checkpoint files of a task to another folder, because the task's earlier server, if it
 * was only suspended and not dead, may still write to the old folder. If the files cannot be moved,
 * the task starts again from the first step. */
static void move_checkpoint(xd_task *task)
{
    static const char flag[] = "--checkpoint=";
    char              from[4200], to[4200], old[4600], new[4600];
    int               i = 0;
    struct dirent    *f;
    for (int k = 0; k < task->nargs; k++)
        if (strncmp(task->args[k], flag, sizeof flag - 1) == 0)
            i = k;
    size_t size = sizeof flag + sizeof to;
    DIR   *d = NULL;
    char  *arg = i && xd_task_checkpoint(task, task->claims, to, sizeof to) ? malloc(size) : NULL;
    if (!arg)
        return;
    for (int k = task->claims - 1; k >= 0 && !d; k--)
        if (xd_task_checkpoint(task, k, from, sizeof from))
            d = opendir(from);
    if (d)
        mkdir(to, 0700);
    while (d && (f = readdir(d))) {
        snprintf(old, sizeof old, "%s/%.255s", from, f->d_name);
        snprintf(new, sizeof new, "%s/%.255s", to, f->d_name);
        if (is_checkpoint(f->d_name) && rename(old, new) != 0)
            break;
    }
    if (d) {
        closedir(d);
        rmdir(from); /* rmdir fails if the earlier server of the task still writes a file */
    }
    snprintf(arg, size, "%s%s", flag, to);
    free(task->args[i]);
    task->args[i] = arg;
}

/* Puts a task of a dead server into the queue of this server. Files of the task that are
 * incomplete, or that this server will generate again, are removed. */
static void take_over(xd_tasks *j, xd_task *task)
{
    for (int i = 0; i < task->ndone; i++)
        unlink(task->done[i].file);
    xd_task_images_free(task);
    move_checkpoint(task);
    task->replica[0] = 0;
    task->state = XD_TASK_QUEUED;
    task->stage[0] = 0;
    task->started = 0;
    task->step = task->steps = task->image = task->images = task->previews = 0;
    task->expected_s = task->alone_s = 0;
    xd_tasks_note_change(j, task);
    xd_tasks_store(j, task, NULL);
    xd_tasks_wake_worker_thread(j);
}

/* Determines which server runs a task of the folder that has not ended. If the server of the task
 * is dead, this server claims the task. */
static void find_server(xd_tasks *j, xd_task *task)
{
    xd_replica_owner(j->replica, task->id, task->replica, &task->claims);
    if (!*task->replica)
        /* a version of the server without shared folders has stored the task */
        strcpy(task->replica, "-");
    if (j->closed || !xd_replica_is_dead(j->replica, task->replica) ||
        strcmp(task->replica, xd_replica_name(j->replica)) == 0 ||
        !xd_replica_claim(j->replica, task->id, task->claims))
        return;
    task->claims++;
    take_over(j, task);
}

/* ---- reading the folder ---------------------------------------------------------------------- */

/* Moves the state of a task that was read from its file to the task in the list. */
static void update(xd_tasks *j, xd_task *task, xd_task *read)
{
#define SWAP(type, field)                                                                          \
    do {                                                                                           \
        type kept_ = task->field;                                                                  \
        task->field = read->field;                                                                 \
        read->field = kept_;                                                                       \
    } while (0)
    SWAP(xd_task_image *, done);
    SWAP(int, ndone);
    SWAP(char *, error);
    SWAP(char *, seconds);
#undef SWAP
    memcpy(task->stage, read->stage, sizeof task->stage);
    memcpy(task->replica, read->replica, sizeof task->replica);
    memcpy(task->stamp, read->stamp, sizeof task->stamp);
    task->state = read->state, task->code = read->code;
    task->step = read->step, task->steps = read->steps;
    task->image = read->image, task->images = read->images;
    task->previews = read->previews, task->claims = read->claims;
    task->started = read->started, task->ended = read->ended;
    task->began_s = read->began_s, task->ended_s = read->ended_s;
    xd_tasks_note_change(j, task);
}

/* If the file of a task of another server has changed and the task has not ended, reads the file
 * again. */
static void follow(xd_tasks *j, xd_task *task)
{
    int64_t  stamp[2];
    xd_task *read;
    if (!xd_task_is_foreign(task) || task->deleted || xd_task_has_ended(task))
        return;
    if (!xd_task_store_stamp(j->dir, task->id, stamp)) { /* another server has deleted the task */
        task->state = XD_TASK_CANCELLED;
        task->code = XD_ECANCELLED;
        task->deleted = 1;
        xd_tasks_note_change(j, task);
        xd_tasks_unlink(j, task);
        return;
    }
    if (memcmp(stamp, task->stamp, sizeof stamp) != 0 &&
        (read = xd_task_store_read(j->dir, task->id, NULL, NULL))) {
        update(j, task, read);
        xd_task_free(read);
    }
    if (!xd_task_has_ended(task))
        find_server(j, task);
}

/* Adds a task that was read from the folder to the list. */
static void add_read(xd_tasks *j, xd_task *read)
{
    xd_tasks_append(j, read);
    if (!xd_task_has_ended(read))
        find_server(j, read);
    else if (!*read->replica)
        strcpy(read->replica, "-");
}

static xd_task *listed(const xd_tasks *j, const char *id)
{
    xd_task *task = j->first;
    while (task && strcmp(task->id, id) != 0)
        task = task->next;
    return task;
}

void xd_tasks_refresh_one(xd_tasks *j, const char *id)
{
    int64_t stamp[2];
    pthread_mutex_lock(&j->refreshing);
    xd_tasks_lock(j);
    xd_task *task = listed(j, id), *read;
    int      known = task != NULL;
    if (known && xd_task_has_ended(task) && task->stored && !task->deleted &&
        !xd_task_store_stamp(j->dir, id, stamp)) {
        task->deleted = 1;
        xd_tasks_unlink(j, task);
    } else if (known) {
        follow(j, task);
    }
    xd_tasks_unlock(j);
    if (!known && (read = xd_task_store_read(j->dir, id, NULL, NULL))) {
        xd_tasks_lock(j);
        if (listed(j, id))
            xd_task_free(read);
        else
            add_read(j, read);
        xd_tasks_unlock(j);
    }
    pthread_mutex_unlock(&j->refreshing);
}

/* ---- reading all tasks ----------------------------------------------------------------------- */

static int by_id(const void *a, const void *b)
{
    return strcmp(a, b);
}

static int by_date(const void *a, const void *b)
{
    const xd_task *x = *(xd_task *const *)a, *y = *(xd_task *const *)b;
    return (x->created > y->created) - (x->created < y->created);
}

static void add_id(char (**v)[40], size_t *n, size_t *room, const char *id)
{
    if (*n == *room) {
        char (*more)[40] = realloc(*v, (2 * *room + 64) * sizeof **v);
        if (!more)
            return;
        *v = more, *room = 2 * *room + 64;
    }
    snprintf((*v)[(*n)++], sizeof **v, "%s", id);
}

/* Removes an incomplete file that nobody has changed for an hour. */
static void remove_old(int dir, const char *name)
{
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && time(NULL) - st.st_mtime > 3600)
        unlinkat(dir, name, 0);
}

static int list_folder(xd_tasks *j, folder_list *l, xd_err *e)
{
    DIR           *d = opendir(j->dir);
    struct dirent *f;
    char           id[40];
    int            others = 0, before = 0;
    size_t         tail = sizeof XD_REPLICA_CANCEL - 1, n;
    *l = (folder_list){ .n = 0 };
    if (!d) {
        xd_fail(e, XD_EIO, "cannot read %s: %s", j->dir, strerror(errno));
        return 0;
    }
    while ((f = readdir(d))) {
        if (xd_replica_visit(j->replica, f->d_name, &others, &before))
            continue;
        if (xd_task_store_is_task(f->d_name, id))
            add_id(&l->id, &l->n, &l->room, id);
        else if ((n = strlen(f->d_name)) > tail && n - tail < sizeof id &&
                 strcmp(f->d_name + n - tail, XD_REPLICA_CANCEL) == 0) {
            snprintf(id, sizeof id, "%.*s", (int)(n - tail), f->d_name);
            add_id(&l->cancel, &l->ncancel, &l->cancel_room, id);
        } else if (j->leads && xd_folder_is_partial(f->d_name)) {
            remove_old(dirfd(d), f->d_name);
        }
    }
    closedir(d);
    if (l->n)
        qsort(l->id, l->n, sizeof *l->id, by_id);
    j->others = others;
    j->leads = !before;
    return 1;
}

static void print_warning(void *cookie, const char *line)
{
    (void)cookie;
    fprintf(stderr, "xdit: warning: %s\n", line);
}

/* Reads the tasks in the folder that are not in the list yet, oldest first. If `warns` is 1, prints
 * a warning for each file that is not a valid task. */
static void read_new(xd_tasks *j, const folder_list *l, int warns)
{
    char     *known = calloc(l->n + 1, 1);
    xd_task **read = calloc(l->n + 1, sizeof(xd_task *));
    size_t    n = 0;
    xd_tasks_lock(j);
    for (const xd_task *task = j->first; task && known; task = task->next) {
        char (*at)[40] = l->n ? bsearch(task->id, l->id, l->n, sizeof *l->id, by_id) : NULL;
        if (at)
            known[at - l->id] = 1;
    }
    xd_tasks_unlock(j);
    for (size_t i = 0; i < l->n && known && read; i++)
        if (!known[i] &&
            (read[n] = xd_task_store_read(j->dir, l->id[i], warns ? print_warning : NULL, NULL)))
            n++;
    if (n)
        qsort(read, n, sizeof(xd_task *), by_date);
    xd_tasks_lock(j);
    for (size_t i = 0; i < n; i++)
        if (listed(j, read[i]->id))
            xd_task_free(read[i]);
        else
            add_read(j, read[i]);
    xd_tasks_unlock(j);
    free(known);
    free(read);
}

/* Removes those ended tasks from the list whose files another server has deleted. */
static void drop_deleted(xd_tasks *j, const folder_list *l)
{
    for (xd_task *task = j->first, *next; task; task = next) {
        int64_t stamp[2];
        next = task->next;
        if (!task->stored || task->deleted || !xd_task_has_ended(task) ||
            (l->n && bsearch(task->id, l->id, l->n, sizeof *l->id, by_id)) ||
            xd_task_store_stamp(j->dir, task->id, stamp))
            continue;
        task->deleted = 1;
        xd_tasks_unlink(j, task);
    }
}

/* Writes the progress of tasks that this server runs to their files, for the other servers. */
static void publish(xd_tasks *j)
{
    for (xd_task *task = j->first; task && j->others; task = task->next)
        if (task->state == XD_TASK_RUNNING && task->changes != task->saved &&
            !xd_tasks_lost(j, task))
            xd_tasks_store(j, task, NULL);
}

static int is_wanted(const folder_list *l, const xd_task *task)
{
    for (size_t i = 0; i < l->ncancel; i++)
        if (strcmp(l->cancel[i], task->id) == 0)
            return !xd_task_is_foreign(task) && !xd_task_has_ended(task) && !task->cancel;
    return 0;
}

static void cancel_wanted(xd_tasks *j, const folder_list *l)
{
    for (size_t i = 0; i < l->ncancel; i++) {
        xd_tasks_lock(j);
        xd_task *task = listed(j, l->cancel[i]);
        int      wanted = task && is_wanted(l, task);
        if (wanted)
            task->refs++;
        xd_tasks_unlock(j);
        if (wanted) {
            xd_tasks_cancel(j, task);
            xd_task_release(j, task);
        }
    }
}

static xd_status refresh(xd_tasks *j, int warns, xd_err *e)
{
    folder_list l;
    pthread_mutex_lock(&j->refreshing);
    int ok = list_folder(j, &l, e);
    if (ok) {
        read_new(j, &l, warns);
        xd_tasks_lock(j);
        for (xd_task *task = j->first, *next; task; task = next) {
            next = task->next;
            follow(j, task);
        }
        drop_deleted(j, &l);
        xd_tasks_unlock(j);
        cancel_wanted(j, &l);
    }
    pthread_mutex_unlock(&j->refreshing);
    free(l.id);
    free(l.cancel);
    return ok ? XD_OK : XD_EIO;
}

void xd_tasks_refresh(xd_tasks *j)
{
    if (j->dir)
        refresh(j, 0, NULL);
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Renews the lease of this server (replica.h). If the lease was lost, the server gets a new name,
 * and stores its tasks again with this name, except tasks that other servers have taken over. */
static void renew(xd_tasks *j)
{
    xd_tasks_lock(j);
    int lost = xd_replica_renew(j->replica);
    for (xd_task *task = j->first; task && lost; task = task->next)
        if (!xd_task_has_ended(task) && !xd_tasks_lost(j, task))
            xd_tasks_store(j, task, NULL);
    xd_tasks_unlock(j);
}

static void *watch(void *cookie)
{
    xd_tasks *j = cookie;
    for (int stopping = 0; !stopping;) {
        renew(j);
        refresh(j, 0, NULL);
        xd_tasks_lock(j);
        publish(j);
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec++;
        int late = 0;
        while (!j->stopping && !late)
            late = pthread_cond_timedwait(&j->changed, &j->lock, &until);
        stopping = j->stopping;
        xd_tasks_unlock(j);
    }
    return NULL;
}

xd_status xd_tasks_share(xd_tasks *j, xd_err *e)
{
    pthread_mutex_init(&j->refreshing, NULL);
    xd_status s = xd_replica_open(&j->replica, j->dir, e);
    if (s == XD_OK)
        s = refresh(j, 1, e);
    /* without other running servers, incomplete files belong to killed servers */
    if (s == XD_OK && !j->others)
        xd_folder_files(j->dir, xd_folder_is_partial, 1);
    if (s == XD_OK && pthread_create(&j->thread, NULL, watch, j) != 0)
        s = xd_fail(e, XD_ENOMEM, "cannot start a thread for the folder of results");
    j->watching = s == XD_OK;
    return s;
}

void xd_tasks_unshare(xd_tasks *j)
{
    if (j->watching) {
        xd_tasks_lock(j);
        j->stopping = 1;
        pthread_cond_broadcast(&j->changed);
        xd_tasks_unlock(j);
        pthread_join(j->thread, NULL);
        j->watching = 0;
    }
    xd_replica_close(&j->replica);
}
