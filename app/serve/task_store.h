/* task_store.h - tasks in files, so that a server that starts again knows those of the last one.
 *
 * A task is the file ID.task beside its results: JSON, written whole or not at all when it comes,
 * and when it ends. */
#ifndef XD_SERVE_TASK_STORE_H
#define XD_SERVE_TASK_STORE_H

#include "serve/task.h"

/* Writes the task as it is; under the lock of the tasks. */
xd_status xd_task_store_save(const char *dir, const xd_task *task, xd_err *e);
void      xd_task_store_remove(const char *dir, const xd_task *task);
/* Calls `take` for every task in `dir`, in the order in which they came; it owns the task then. One
 * that was queued or ran is queued. A file that is none of these is left alone, and told to
 * `warn`. */
xd_status xd_task_store_load(const char *dir, void (*take)(void *cookie, xd_task *task),
                             void (*warn)(void *cookie, const char *line), void *cookie,
                             xd_err *e);

#endif
