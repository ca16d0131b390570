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
    char           *dir;     /* directory for files of tasks; NULL: tasks are not stored */
    int             queue;   /* maximum number of queued tasks */
    int             closed;  /* 1: xd_tasks_shut_down was called */
    int             wakeup;  /* file descriptor of an eventfd that wakes the worker's thread */
    double          seconds; /* limits on age and size of the results of ended tasks */
    int64_t         bytes;
    xd_tasks_counts counts;
    xd_measures     measures;
    /* The following fields exist if dir is not NULL (tasks_shared.c). */
    xd_replica     *replica;
    pthread_mutex_t refreshing; /* held while the folder is read; acquired before `lock` */
    pthread_t       thread;
    int             watching; /* 1: the thread runs */
    int             stopping; /* 1: the thread must end */
    int             leads;    /* 1: this server deletes expired tasks of all servers */
    int             others;   /* number of other living servers that use the folder */
};

/* Returns 1 if another server runs the task, or if the task was taken over by another server. */
int  xd_task_is_foreign(const xd_task *task);
/* Writes the path of the checkpoint folder that a task has after `claims` claims. Returns 0 if the
 * task has no checkpoints. */
int  xd_task_checkpoint(const xd_task *task, int claims, char *path, size_t size);
void xd_tasks_note_change(xd_tasks *j, xd_task *task);
void xd_tasks_wake_worker_thread(const xd_tasks *j);
void xd_tasks_append(xd_tasks *j, xd_task *task);
/* Writes the state of a task to the task's file. If the file cannot be written, for example because
 * the disk is full, only a warning is printed. */
xd_status xd_tasks_store(xd_tasks *j, xd_task *task, xd_err *e);
/* Removes a deleted task without references from the list, and frees it. */
void xd_tasks_unlink(xd_tasks *j, xd_task *task);

/* ---- tasks_shared.c -------------------------------------------------------------------------- */

/* Reads all tasks in the folder, and starts a thread that renews the lease of this server and
 * follows the tasks of other servers. Called without the lock. */
xd_status xd_tasks_share(xd_tasks *j, xd_err *e);
/* Ends the thread and removes the lease. Called without the lock. */
void      xd_tasks_unshare(xd_tasks *j);
/* Claims the id of a new task with a fingerprint. XD_EINVAL: another server has this task. */
xd_status xd_tasks_claim_new(xd_tasks *j, xd_task *task, xd_err *e);
/* Returns 1 if another server has taken the task over, or has deleted it. The task is foreign from
 * then on. */
int       xd_tasks_lost(xd_tasks *j, xd_task *task);
/* Looks for a task that this server does not know yet, or whose state may be outdated. Called
 * without the lock. */
void      xd_tasks_refresh_one(xd_tasks *j, const char *id);

#endif
