/* task_store.h - stores tasks in files, so that a restarted server knows them
 *
 * A task is the JSON file ID.task next to its results. It is written atomically when the task is
 * queued and when it ends. */
#ifndef XD_SERVE_TASK_STORE_H
#define XD_SERVE_TASK_STORE_H

#include "serve/task.h"

/* Writes the current state of a task; under the lock of the tasks. */
xd_status xd_task_store_save(const char *dir, const xd_task *task, xd_err *e);
void      xd_task_store_remove(const char *dir, const xd_task *task);
/* Calls `add` for every task in `dir`, in the order of creation; it takes ownership. Tasks that did
 * not end are in state queued. An invalid file is skipped, and `warn` gets a sentence about it. */
xd_status xd_task_store_load(const char *dir, void (*add)(void *cookie, xd_task *task),
                             void (*warn)(void *cookie, const char *line), void *cookie,
                             xd_err *e);

#endif
