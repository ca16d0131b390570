/* tasks_inside.h - declares the state of the queue of tasks, which tasks.c and tasks_shared.c have
 * in common. All functions are called under the lock of the tasks, unless a comment states
 * otherwise. */
#ifndef XD_SERVE_TASKS_INSIDE_H
#define XD_SERVE_TASKS_INSIDE_H

#include <pthread.h>

#include "serve/measures.h"
#include "serve/replica.h"
#include "serve/task.h"

struct xd_tasks {
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    xd_task        *first, **end;
    char           *dir;    /* directory for files of tasks; NULL: tasks are not stored */
    int             queue;  /* maximum number of queued tasks */
    int             closed; /* 1: xd_tasks_shut_down was called */
    int             wakeup; /* file descriptor of an eventfd that wakes the worker's thread */
    /* maximum age in seconds and maximum total bytes of the results of ended tasks */
    double          seconds;
    int64_t         bytes;
    xd_tasks_counts counts;
    xd_measures     measures;
    /* The following fields are used only if dir is not NULL (tasks_shared.c). */
    xd_replica     *replica;
    /* mutex that is held while the folder of tasks is read; it must be acquired before `lock` */
    pthread_mutex_t refreshing;
    pthread_t       thread;
    int             watching; /* 1: the thread that follows other servers runs */
    int             stopping; /* 1: the thread that follows other servers must end */
    /* 1: this server is the one that deletes expired tasks of all servers */
    int             leads;
    int             others; /* number of other running servers that use the folder */
};

/* Returns 1 if another server runs the task, or if the task was taken over by another server. */
int       xd_task_is_foreign(const xd_task *task);
/* Writes the path of the checkpoint folder of a task that was claimed `claims` times (replica.h).
 * Returns 0 if the task has no checkpoints. */
int       xd_task_checkpoint(const xd_task *task, int claims, char *path, size_t size);
void      xd_tasks_note_change(xd_tasks *j, xd_task *task);
void      xd_tasks_wake_worker_thread(const xd_tasks *j);
void      xd_tasks_append(xd_tasks *j, xd_task *task);
/* Writes the state of a task to the task's file. If the file cannot be written, for example because
 * the disk is full, only a warning is printed. */
xd_status xd_tasks_store(xd_tasks *j, xd_task *task, xd_err *e);
/* Removes a deleted task without references from the list, and frees it. */
void      xd_tasks_unlink(xd_tasks *j, xd_task *task);

/* ---- tasks_shared.c -------------------------------------------------------------------------- */

/* Reads all tasks in the folder, and starts a thread that renews the lease of this server
 * (replica.h) and follows the tasks of other servers. The caller must not hold the lock of the
 * tasks. */
xd_status xd_tasks_share(xd_tasks *j, xd_err *e);
/* Ends the thread that follows other servers, and removes the lease of this server. The caller must
 * not hold the lock of the tasks. */
void      xd_tasks_unshare(xd_tasks *j);
/* Claims the id of a new task whose request has an Idempotency-Key. XD_EINVAL: another server has a
 * task with this id. */
xd_status xd_tasks_claim_new(xd_tasks *j, xd_task *task, xd_err *e);
/* Returns 1 if another server has taken the task over, or has deleted it. From then on, this server
 * treats the task as foreign, that is as a task of another server. */
int       xd_tasks_lost(xd_tasks *j, xd_task *task);
/* Looks for a task that this server does not know yet, or whose state may be outdated. The caller
 * must not hold the lock of the tasks. */
void      xd_tasks_refresh_one(xd_tasks *j, const char *id);

#endif
