/* task.h - the tasks of a server: a queue, what became of them, and who waits for that.
 *
 * Every function takes the lock of the tasks by itself. A task that was found or added is held, and
 * stays where it is until xd_task_release; its fields are read between xd_tasks_lock and
 * xd_tasks_unlock, except the constant ones. */
#ifndef XD_SERVE_TASK_H
#define XD_SERVE_TASK_H

#include <stdint.h>

#include "base/err.h"
#include "base/json.h"

typedef enum xd_task_state {
    XD_TASK_QUEUED, XD_TASK_RUNNING, XD_TASK_DONE, XD_TASK_FAILED, XD_TASK_CANCELLED
} xd_task_state;

typedef struct xd_task_image {   /* an image, or a video, that is finished                      */
    char   *file;               /* its path                                                    */
    char   *seed, *json, *parameters;   /* as xd_result_json and xd_result_parameters            */
    int64_t width, height, frames;
    double  fps;                /* 0: a single image                                           */
    int64_t text_tokens, reference_tokens, image_tokens;        /* as xd_result_tokens; not kept */
    int     previews;           /* of the task when it was finished; not kept                  */
} xd_task_image;

typedef struct xd_task {
    /* Constant once it is added. */
    char    id[40];
    int     video;              /* its results are videos                                      */
    int     nargs;
    char  **args;               /* [nargs], of task_flags.h; the first is the id                */
    const char *model;          /* what clients call the model                                 */
    char   *prompt, *size;      /* as the client gave them; size NULL: not given               */
    char   *owner;              /* of the API key that asked for it; "": no keys are asked for   */
    char    seconds_asked[16];  /* length of a video, as the client gave it                    */
    char    remixed[40];        /* id of the video that this one is like; "": none             */
    double  created;            /* date: seconds of the Unix clock, which may be set           */
    double  came_s;             /* the same on the clock of xd_now_s                           */
    int     priority;           /* 1 high, 0, -1 low                                           */
    double  deadline_s;         /* when it is of no use any more, on that clock; 0: never      */
    /* Under the lock. */
    xd_task_state state;
    unsigned changes;           /* counts what happened to it                                  */
    char    stage[16];          /* of a running one: "open", "text", "denoise", "decode"         */
    int     step, steps, image, images;
    double  started, ended;     /* dates; 0: not yet                                           */
    double  began_s, ended_s;   /* the same on the clock of xd_now_s                           */
    /* Seconds that it is expected to take, of all ranks together and of one alone; 0: not known
     * yet; negative: unknown. */
    double  expected_s, alone_s;
    double  text_part, decode_part;     /* what text and decoding take of them, of 1; 0: unknown  */
    int     previews;           /* that were written so far                                    */
    char   *preview;            /* file of the last one; NULL: none                            */
    xd_task_image *done;         /* [ndone]                                                     */
    int     ndone;
    xd_status code;             /* of a failure, and its sentence                              */
    char   *error;
    int     cancel;             /* somebody has asked for it                                    */
    char   *seconds;            /* {"text":0.1,...} of a finished one                           */
    /* Of tasks.c. */
    char   *model_name;         /* of one that was kept                                        */
    int     held, dropped, waited;      /* waited: a client waits for its end                   */
    int     tries;              /* how often it was sent to a worker                           */
    struct xd_task *next;        /* added after this one                                        */
} xd_task;

/* A video has its first frame beside it, in a file of this name behind the video's. */
#define XD_TASK_THUMBNAIL ".thumbnail.webp"
#define XD_TASK_SHEET ".sheet.webp"     /* so have frames of it                               */

typedef struct xd_task_time {   /* how long a task takes                                       */
    double together, alone;     /* seconds of all ranks, of one by itself; 0, negative: unknown */
    double text, decode;        /* parts of it, of 1                                            */
} xd_task_time;

typedef struct xd_tasks xd_tasks;

double xd_unix_s(void);         /* seconds of the Unix clock: for dates in answers and files    */

typedef struct xd_tasks_counts { int64_t queued, running, done, failed, cancelled, refused; }
    xd_tasks_counts;

/* `dir`: keeps all tasks in files there (task_store.h), and begins with those that are kept: what
 * did not end waits again. NULL: none. At most `queue` tasks wait; of what has ended at most
 * `bytes` of files are kept, for at most `seconds`. */
xd_status xd_tasks_open(xd_tasks **j, const char *dir, int queue, double seconds, int64_t bytes,
                        xd_err *e);
void      xd_tasks_close(xd_tasks **j);
/* No task is added or taken any more, and those that wait fail; kept ones that no client waits for
 * wait again when the next server begins. */
void      xd_tasks_end(xd_tasks *j);
void      xd_tasks_lock(xd_tasks *j);
void      xd_tasks_unlock(xd_tasks *j);
xd_tasks_counts xd_tasks_count(xd_tasks *j);
/* Requests of this model may come: its histograms are there from the start. */
void      xd_tasks_expect(xd_tasks *j, const char *model, int video);
void      xd_tasks_measures(xd_tasks *j, xd_text_buf *b);      /* appends the histograms       */

/* The file of a task's preview i, from 0, which is there until the task is forgotten. */
void      xd_task_preview_file(const xd_task *task, int i, char *path, size_t size);
/* A new id for a task, with `kind` before it: "image_5f0c..." */
void      xd_task_name(char id[40], const char *kind);
xd_task   *xd_task_new(void);     /* zeros; NULL: no memory                                      */
xd_status xd_task_arg(xd_task *task, const char *name, const char *value, xd_err *e);
/* Has it an argument that begins so? "--lora=" */
int       xd_task_has(const xd_task *task, const char *beginning);
void      xd_task_images_free(xd_task *task);   /* forgets what is done                        */
void      xd_task_free(xd_task *task);     /* of one that was not added                           */
/* Puts a task behind the queue, which owns it then, and holds it for the caller. XD_ENOMEM: the
 * queue is full, XD_ECANCELLED: the server ends; the caller owns it still. */
xd_status xd_tasks_add(xd_tasks *j, xd_task *task, xd_err *e);
xd_task   *xd_tasks_find(xd_tasks *j, const char *id);        /* held; NULL: there is none */
void      xd_task_release(xd_tasks *j, xd_task *task);
void      xd_task_expect(xd_tasks *j, xd_task *task);   /* a client waits for its end           */
/* Waits until the task has changed `since` this number, or for `seconds`. The number now. */
unsigned  xd_tasks_wait(xd_tasks *j, const xd_task *task, unsigned since, double seconds);
int       xd_task_over(const xd_task *task);        /* it has ended, however; under the lock */
/* Tasks that go before this one, those that run included, and the seconds until it is expected to
 * have ended (negative: unknown); under the lock. */
int       xd_task_position(xd_tasks *j, const xd_task *task);
double    xd_task_seconds_left(xd_tasks *j, const xd_task *task);
/* Seconds until a place in the queue is free, at least 1; not under the lock. */
double    xd_tasks_seconds_full(xd_tasks *j);
/* A queued task is cancelled at once, a running one soon. 1: it was one of them. */
int       xd_tasks_cancel(xd_tasks *j, xd_task *task);
/* Forgets a task that has ended, and removes its files. 0: it has not ended. */
int       xd_tasks_drop(xd_tasks *j, xd_task *task);
/* Removes all files of a task but its own file of task_store.h: also those that a worker has
 * written and not told of. */
void      xd_task_remove_files(const xd_task *task);
/* Calls `visit` for every task, oldest first; under the lock. */
void      xd_tasks_each(xd_tasks *j, void (*visit)(void *cookie, const xd_task *task),
                        void *cookie);
void      xd_tasks_expire(xd_tasks *j);      /* forgets what is kept for too long, or is too much */

/* ---- who runs them -------------------------------------------------------------------------- */

/* A file descriptor that can be read when a task has come, is wanted no more, or is expected to
 * take so long; xd_tasks_heard makes it wait for the next one. */
int      xd_tasks_bell(xd_tasks *j);
void     xd_tasks_heard(xd_tasks *j);
/* Makes the queued task with the lowest score a running one, and holds it. NULL: there is none, or
 * the tasks were closed. `score` is called under the lock; NaN: not this one. */
xd_task *xd_tasks_take(xd_tasks *j, double (*score)(void *cookie, const xd_task *task),
                       void *cookie);
/* A running task that no worker has begun waits again, and is released. */
void     xd_task_requeue(xd_tasks *j, xd_task *task);
/* Ends queued tasks whose deadline has passed; of one that runs a failure or a cancel says so. */
void     xd_tasks_late(xd_tasks *j);
/* The next task that nobody has said how long it takes, held; waits for one. NULL: the tasks were
 * closed. */
xd_task *xd_tasks_unexpected(xd_tasks *j);
void     xd_task_expected(xd_tasks *j, xd_task *task, const xd_task_time *t);
/* The one that began last, of this owner unless that is NULL; held. NULL: none. */
xd_task *xd_tasks_running(xd_tasks *j, const char *owner);
void    xd_task_stage(xd_tasks *j, xd_task *task, const char *stage);
void    xd_task_step(xd_tasks *j, xd_task *task, int step, int steps, int image, int images);
void    xd_task_preview(xd_tasks *j, xd_task *task, const char *file);
void    xd_task_image_done(xd_tasks *j, xd_task *task, const xd_task_image *image);
/* It has ended: well, with `seconds` as JSON, or with a failure. */
void    xd_task_done(xd_tasks *j, xd_task *task, const char *seconds);
void    xd_task_failed(xd_tasks *j, xd_task *task, xd_status code, const char *error);

#endif
