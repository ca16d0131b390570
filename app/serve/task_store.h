/* task_store.h - stores tasks in files, so that a restarted server knows them.
 *
 * A task is stored as the JSON file ID.task in the directory of the task's results. The file of a
 * task is written atomically when the task is queued and when the task ends. */
#ifndef XD_SERVE_TASK_STORE_H
#define XD_SERVE_TASK_STORE_H

#include "serve/task.h"

/* Writes the current state of a task to its file; the caller holds the lock of the tasks. */
xd_status xd_task_store_save(const char *dir, const xd_task *task, xd_err *e);
void      xd_task_store_remove(const char *dir, const xd_task *task);
/* Loads the tasks in `dir` and calls `add` for each task in the order of creation; `add` takes
 * ownership of the task. A loaded task that had not ended is in the state queued. An invalid task
 * file is skipped, and `warn` is called with a sentence about the file. */
xd_status xd_task_store_load(const char *dir, void (*add)(void *cookie, xd_task *task),
                             void (*warn)(void *cookie, const char *line), void *cookie, xd_err *e);

#endif
