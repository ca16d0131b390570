/* task_store.h - stores tasks in files, so that a restarted server knows the tasks of its
 * predecessor.
 *
 * A task is stored as the JSON file ID.task in the directory of the task's results. The file of a
 * task is written atomically when the task is queued and when the task ends. */
#ifndef XD_SERVE_TASK_STORE_H
#define XD_SERVE_TASK_STORE_H

#include "serve/task.h"

/* Writes the current state of a task to its file; the caller holds the lock of the tasks.
 * `replica` is the name of this server in the file. */
xd_status xd_task_store_save(const char *dir, const xd_task *task, const char *replica, xd_err *e);
void      xd_task_store_remove(const char *dir, const xd_task *task);
/* Reads a task from its file. Returns NULL if the file is missing or invalid. If the file is
 * invalid and `warn` is not NULL, `warn` is called with a sentence about the file. */
xd_task  *xd_task_store_read(const char *dir, const char *id,
                             void (*warn)(void *cookie, const char *line), void *cookie);
/* Writes the modification time of a task's file, in seconds and nanoseconds, to `stamp`. Returns 0
 * if the file is missing. */
int       xd_task_store_stamp(const char *dir, const char *id, int64_t stamp[2]);
/* Returns 1 if the name is that of a task's file, and writes the task's id to `id`. */
int       xd_task_store_is_task(const char *name, char id[40]);

#endif
