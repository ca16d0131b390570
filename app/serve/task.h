/* task.h - the tasks of a server: the queue, their progress and results, and waiting for them
 *
 * Every function takes the lock of the tasks itself, unless its comment says "under the lock": then
 * the caller holds xd_tasks_lock. Tasks are reference-counted: a function that returns a task gives
 * the caller a reference, which xd_task_release returns. Fields of a task are read under the lock,
 * except the constant ones. */
#ifndef XD_SERVE_TASK_H
#define XD_SERVE_TASK_H

#include <stdint.h>

#include "base/err.h"
#include "base/json.h"

typedef enum xd_task_state {
    XD_TASK_QUEUED, XD_TASK_RUNNING, XD_TASK_DONE, XD_TASK_FAILED, XD_TASK_CANCELLED
} xd_task_state;

typedef struct xd_task_image {  /* a finished image or video                                   */
    char   *file;               /* its path                                                    */
    char   *seed, *json, *parameters;   /* as xd_result_json and xd_result_parameters            */
    int64_t width, height, frames;
    double  fps;                /* 0: a single image                                           */
    int64_t text_tokens, reference_tokens, image_tokens;        /* xd_result_tokens; not stored */
    int     previews;           /* previews of the task when it was finished; not stored       */
} xd_task_image;

typedef struct xd_task {
    /* Constant once the task is added. */
    char    id[40];
    int     video;              /* its results are videos                                      */
    int     nargs;
    char  **args;               /* [nargs], see task_flags.h; the first one is the id           */
    const char *model;          /* name of the model in requests                               */
    char   *prompt, *size;      /* as in the request; size NULL: none                          */
    char   *owner;              /* hash of the API key of the request; "": the server has no keys */
    char    seconds_asked[16];  /* length of a video, as in the request                        */
    char    remixed[40];        /* id of the video that this one is a remix of; "": none       */
    double  created;            /* date, in seconds of the Unix clock, which may be set        */
    double  arrived_s;          /* the same by the monotonic clock xd_now_s                     */
    int     priority;           /* 1 high, 0 normal, -1 low                                    */
    double  deadline_s;         /* by xd_now_s: the task is cancelled then; 0: none            */
    /* Under the lock. */
    xd_task_state state;
    unsigned changes;           /* number of changes so far                                    */
    char    stage[16];          /* of a running one: "open", "text", "denoise", "decode"         */
    int     step, steps, image, images;
    double  started, ended;     /* dates; 0: not yet                                           */
    double  began_s, ended_s;   /* the same by xd_now_s                                        */
    /* Predicted seconds, on all ranks and on one; 0: not predicted yet; negative: unknown. */
    double  expected_s, alone_s;
    double  text_part, decode_part;     /* fractions of text encoding and decoding; 0: unknown   */
    int     previews;           /* number of previews so far                                   */
    char   *preview;            /* file of the last one; NULL: none                            */
    xd_task_image *done;        /* [ndone]                                                     */
    int     ndone;
    xd_status code;             /* of a failure                                                */
    char   *error;              /* its message                                                 */
    int     cancel;             /* the client has cancelled it                                 */
    char   *seconds;            /* {"text":0.1,...} of a finished one                           */
    /* Private to tasks.c. */
    char   *model_name;         /* owned copy of `model`, of a task read from a file           */
    int     refs;               /* number of references                                        */
    int     deleted;            /* it is freed with the last reference                         */
    int     awaited;            /* a client waits for its end                                  */
    int     attempts;           /* number of times that it was sent to a worker                */
    struct xd_task *next;       /* the task added after this one                               */
} xd_task;

/* Suffixes of files next to the file of a video: its first frame, and a sheet of its frames. */
#define XD_TASK_THUMBNAIL ".thumbnail.webp"
#define XD_TASK_SHEET ".sheet.webp"

typedef struct xd_task_time {   /* duration of a task, predicted or measured                   */
    double together, alone;     /* seconds on all ranks, on one rank; 0, negative: unknown      */
    double text, decode;        /* fractions of text encoding and decoding                     */
} xd_task_time;

typedef struct xd_tasks xd_tasks;

double xd_unix_s(void);         /* seconds of the Unix clock: for dates in replies and files    */

typedef struct xd_tasks_counts { int64_t queued, running, done, failed, cancelled, refused; }
    xd_tasks_counts;

/* dir: stores all tasks in files there (task_store.h), and first loads the stored ones: those that
 * did not end are queued again. NULL: none. queue: maximum number of queued tasks. Ended tasks are
 * kept for `seconds`, with at most `bytes` of files. */
xd_status xd_tasks_open(xd_tasks **j, const char *dir, int queue, double seconds, int64_t bytes,
                        xd_err *e);
void      xd_tasks_close(xd_tasks **j);
/* Stops accepting and running tasks. Queued tasks fail; stored ones for which no client waits are
 * queued again by the next server. */
void      xd_tasks_shut_down(xd_tasks *j);
void      xd_tasks_lock(xd_tasks *j);
void      xd_tasks_unlock(xd_tasks *j);
xd_tasks_counts xd_tasks_count(xd_tasks *j);
/* Creates the histograms of a model before its first request. */
void      xd_tasks_add_model(xd_tasks *j, const char *model, int video);
void      xd_tasks_measures(xd_tasks *j, xd_text_buf *b);      /* appends the histograms       */

/* Returns the file name of a task's preview i (from 0). */
void      xd_task_preview_file(const xd_task *task, int i, char *path, size_t size);
/* Generates a task id that begins with `kind`: "image_5f0c..." */
void      xd_task_name(char id[40], const char *kind);
xd_task  *xd_task_new(void);    /* zeros; NULL: out of memory                                  */
xd_status xd_task_arg(xd_task *task, const char *name, const char *value, xd_err *e);
/* Nonzero if an argument begins with this text, such as "--lora=". */
int       xd_task_has(const xd_task *task, const char *beginning);
void      xd_task_images_free(xd_task *task);   /* removes all results                         */
void      xd_task_free(xd_task *task);          /* frees a task that was not added             */
/* Queues a task, takes ownership, and gives the caller a reference. XD_ENOMEM: the queue is full,
 * XD_ECANCELLED: the server shuts down; then the caller still owns it. */
xd_status xd_tasks_add(xd_tasks *j, xd_task *task, xd_err *e);
xd_task  *xd_tasks_find(xd_tasks *j, const char *id);   /* a reference; NULL: no such task     */
void      xd_task_release(xd_tasks *j, xd_task *task);
/* Marks that a client waits for the task. */
void      xd_task_mark_awaited(xd_tasks *j, xd_task *task);
/* Waits until task->changes differs from `since`, at most `seconds`. Returns task->changes. */
unsigned  xd_tasks_wait(xd_tasks *j, const xd_task *task, unsigned since, double seconds);
/* Nonzero if the task is done, failed or cancelled; under the lock. */
int       xd_task_has_ended(const xd_task *task);
/* Number of tasks before this one, including running ones, and the predicted seconds until it has
 * ended (negative: unknown); under the lock. */
int       xd_task_position(xd_tasks *j, const xd_task *task);
double    xd_task_seconds_left(xd_tasks *j, const xd_task *task);
/* Predicted seconds until the full queue has space, at least 1. */
double    xd_tasks_retry_after_s(xd_tasks *j);
/* Cancels a queued task at once, a running one soon. Returns 0 if it has already ended. */
int       xd_tasks_cancel(xd_tasks *j, xd_task *task);
/* Deletes an ended task and its files. Returns 0 if it has not ended. */
int       xd_tasks_delete(xd_tasks *j, xd_task *task);
/* Removes all files of a task except its file of task_store.h, including files that a worker has
 * written and not reported. */
void      xd_task_remove_files(const xd_task *task);
/* Calls `visit` for every task, oldest first; under the lock. */
void      xd_tasks_each(xd_tasks *j, void (*visit)(void *cookie, const xd_task *task),
                        void *cookie);
/* Deletes ended tasks that exceed the limits of xd_tasks_open, oldest first. */
void      xd_tasks_delete_expired(xd_tasks *j);

/* ---- running tasks --------------------------------------------------------------------------- */

/* A file descriptor that becomes readable when a task was queued, cancelled or predicted, until
 * xd_tasks_clear_wakeup. */
int      xd_tasks_wakeup_fd(xd_tasks *j);
void     xd_tasks_clear_wakeup(xd_tasks *j);
/* Marks the queued task with the lowest score as running and returns it. NULL: none, or the server
 * shuts down. `score` is called under the lock; NaN: exclude this task. */
xd_task *xd_tasks_start_best(xd_tasks *j, double (*score)(void *cookie, const xd_task *task),
                             void *cookie);
/* Queues a running task again that no worker has started, and releases it. */
void     xd_task_requeue(xd_tasks *j, xd_task *task);
/* Cancels queued tasks whose deadline has passed. */
void     xd_tasks_cancel_overdue(xd_tasks *j);
/* Blocks until a task has no prediction yet, and returns it. NULL: the server shuts down. */
xd_task *xd_tasks_next_unpredicted(xd_tasks *j);
void     xd_task_set_prediction(xd_tasks *j, xd_task *task, const xd_task_time *t);
/* Returns the most recently started running task, of this owner (NULL: of any). NULL: none. */
xd_task *xd_tasks_running(xd_tasks *j, const char *owner);
void     xd_task_stage(xd_tasks *j, xd_task *task, const char *stage);
void     xd_task_step(xd_tasks *j, xd_task *task, int step, int steps, int image, int images);
void     xd_task_preview(xd_tasks *j, xd_task *task, const char *file);
void     xd_task_image_done(xd_tasks *j, xd_task *task, const xd_task_image *image);
/* Mark a task as done, with `seconds` as JSON, or as failed (XD_ECANCELLED: cancelled). */
void     xd_task_done(xd_tasks *j, xd_task *task, const char *seconds);
void     xd_task_failed(xd_tasks *j, xd_task *task, xd_status code, const char *error);

#endif
