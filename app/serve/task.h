/* task.h - declares the tasks of a server and the queue of these tasks. A task is the server's
 * record of a request to generate images or a video, with its progress and results; clients can
 * wait until a task ends.
 *
 * Every function acquires the lock of the tasks (xd_tasks_lock), unless the comment of the function
 * states that the caller holds the lock. Tasks are reference-counted. A function that returns a
 * task adds a reference, which the caller drops with xd_task_release. Fields of a task are read
 * while the lock of the tasks is held, except the constant fields. */
#ifndef XD_SERVE_TASK_H
#define XD_SERVE_TASK_H

#include <stdint.h>

#include "base/err.h"
#include "base/json.h"

typedef enum xd_task_state {
    XD_TASK_QUEUED,
    XD_TASK_RUNNING,
    XD_TASK_DONE,
    XD_TASK_FAILED,
    XD_TASK_CANCELLED
} xd_task_state;

typedef struct xd_task_image { /* a finished image or video */
    char   *file;              /* path of the file with the image or video */
    /* Seed of the image, and the texts of xd_result_json and xd_result_parameters. */
    char   *seed, *json, *parameters;
    int64_t width, height, frames;
    double  fps;  /* frames per second of a video; 0: a single image */
    int     rate; /* samples per second of a video's sound; 0: no sound */
    /* Numbers of tokens as xd_result_tokens returns them. These numbers of tokens are not stored in
     * the task's file. */
    int64_t text_tokens, reference_tokens, image_tokens;
    /* Number of previews that the task had when this image was finished; not stored in the task's
     * file. */
    int     previews;
} xd_task_image;

typedef struct xd_task {
    /* The following fields of a task do not change after the task was added to the queue. */
    char        id[40];
    int         video; /* 1: the task's results are videos */
    int         nargs;
    char      **args;  /* [nargs] arguments for the worker, see task_flags.h; the first one
                                   is the task's id */
    const char *model; /* name of the model in requests */
    /* Prompt and image size as texts of the request; `size` is NULL if the request has no size. */
    char       *prompt, *size;
    char       *owner; /* hash of the API key of the request; "": the server has no keys */
    char        seconds_asked[16]; /* length of a video in seconds, as a text of the request */
    /* Id of the original video if this task is a remix of a video; "": no remix. */
    char        remixed[40];
    /* Date at which the request arrived, in seconds of the Unix clock, which jumps when somebody
     * sets it. */
    double      created;
    /* time at which the request arrived, in seconds of the monotonic clock xd_now_s */
    double      arrived_s;
    int         priority; /* priority in the queue: 1 high, 0 normal, -1 low */
    double deadline_s;    /* time on the clock xd_now_s at which the task is cancelled; 0: never */
    /* The following fields are read and written while the lock of the tasks is held. */
    xd_task_state  state;
    unsigned       changes;   /* number of changes of this task so far */
    char           stage[16]; /* stage of a running task: "open", "text", "denoise", "decode" */
    int            step, steps, image, images;
    /* dates at which the task started and ended; 0: the task has not started or ended */
    double         started, ended;
    double         began_s, ended_s; /* times of start and end of the task, on the clock xd_now_s */
    /* Predicted seconds of the task, on all ranks and on one rank; 0: not predicted yet; negative:
     * unknown. */
    double         expected_s, alone_s;
    /* Predicted fractions of the task's time that text encoding and decoding take; 0: unknown. */
    double         text_part, decode_part;
    int            previews; /* number of previews of the task so far */
    char          *preview;  /* file of the latest preview; NULL: the task has no preview */
    xd_task_image *done;     /* [ndone] finished images or videos */
    int            ndone;
    xd_status      code;   /* xd_status of a failed task */
    char          *error;  /* error message of a failed task */
    int            cancel; /* 1: the client has cancelled the task */
    char    *seconds;      /* seconds of each stage of a finished task, as JSON: {"text":0.1,...} */
    /* Name of the server that runs or ran this task; "": this server. With --results, several
     * servers share the folder of the tasks (replica.h). HTTP interfaces do not change `replica`
     * and `claims`. */
    char     replica[64];
    int      claims; /* number of times that a server took the task over from another server */
    /* Hash of the contents of a request with an Idempotency-Key; "": the request has no such
     * key. */
    char     fingerprint[65];
    /* Only tasks.c and tasks_shared.c use the following fields of a task. */
    int      stored;   /* 1: the file of the task (task_store.h) exists */
    unsigned saved;    /* value of `changes` at the time when the task's file was last written */
    int64_t  stamp[2]; /* modification time of the file when it was read, in s and ns */
    /* owned copy of the model's name, to which `model` points if the task was read from a file */
    char    *model_name;
    int      refs;        /* number of references */
    int      deleted;     /* 1: the task is freed when its last reference is released */
    int      awaited;     /* 1: a client waits for the end of the task */
    int      attempts;    /* number of times that the task was sent to a worker */
    struct xd_task *next; /* the task that was added after this task */
} xd_task;

/* Suffixes of the names of files that are stored next to each video: the video's first frame, a
 * contact sheet of several frames, and the sound of a video that has sound. */
#define XD_TASK_THUMBNAIL ".thumbnail.webp"
#define XD_TASK_SHEET ".sheet.webp"
#define XD_TASK_SOUND ".sound.wav"

typedef struct xd_task_time { /* predicted or measured duration of a task */
    /* Seconds of a task on all ranks, and on one rank; 0 or negative: unknown. */
    double together, alone;
    double text, decode; /* fractions of the time that text encoding and decoding take */
} xd_task_time;

typedef struct xd_tasks xd_tasks;

double xd_unix_s(void); /* returns seconds of the Unix clock, for dates in replies and
                                   files */

typedef struct xd_tasks_counts {
    int64_t queued, running, done, failed, cancelled, refused;
} xd_tasks_counts;

/* Creates the queue. `dir` is the directory in which each task is stored as a file (task_store.h);
 * if it is NULL, tasks are not stored. Tasks that are already stored in the directory are loaded.
 * Loaded tasks that have not ended are queued again, unless they belong to another running server
 * (replica.h). `queue` is the maximum number of queued tasks. Ended tasks and their files are kept
 * for `seconds` seconds, as long as the files have at most `bytes` bytes in total. */
xd_status xd_tasks_open(xd_tasks **j, const char *dir, int queue, double seconds, int64_t bytes,
                        xd_err *e);
void      xd_tasks_close(xd_tasks **j);
/* Ends the queue: no further tasks are accepted or started. Queued tasks fail, unless they are
 * stored and no client is waiting for them. Stored tasks for which no client waits are queued again
 * by the next server. */
void      xd_tasks_shut_down(xd_tasks *j);
void      xd_tasks_lock(xd_tasks *j);
void      xd_tasks_unlock(xd_tasks *j);
xd_tasks_counts xd_tasks_count(xd_tasks *j);
/* Creates the histograms of a model, so that /metrics has them before the model's first request. */
void            xd_tasks_add_model(xd_tasks *j, const char *model, int video);
void            xd_tasks_measures(xd_tasks *j, xd_text_buf *b); /* appends the histograms for
                                                                  /metrics */

/* Returns the file name of a task's preview i (from 0). */
void      xd_task_preview_file(const xd_task *task, int i, char *path, size_t size);
/* Generates a task id that begins with `kind`: "image_5f0c..." */
void      xd_task_name(char id[40], const char *kind);
/* returns a new task whose fields are zero; NULL: memory is exhausted */
xd_task  *xd_task_new(void);
xd_status xd_task_arg(xd_task *task, const char *name, const char *value, xd_err *e);
/* Returns nonzero if one of the task's arguments begins with the text `beginning`, for example
 * "--lora=". */
int       xd_task_has(const xd_task *task, const char *beginning);
void      xd_task_images_free(xd_task *task); /* frees all results of the task */
void      xd_task_free(xd_task *task);        /* frees a task that was not added to the queue */
/* Queues a task, takes ownership of it, and adds a reference for the caller. If xd_tasks_add fails,
 * the caller still owns the task. XD_ENOMEM: the queue is full; XD_ECANCELLED: the server shuts
 * down. A task with a fingerprint fails with XD_EIO if it cannot be stored, and with XD_EINVAL if a
 * task of the same id exists, on this server or on another one that uses the same folder. */
xd_status xd_tasks_add(xd_tasks *j, xd_task *task, xd_err *e);
/* Returns the task with this id, with a reference; NULL: the task does not exist. xd_tasks_find
 * also finds tasks of other servers that use the same folder, in their present state. */
xd_task  *xd_tasks_find(xd_tasks *j, const char *id);
/* Reads the new and changed tasks of other servers that use the same folder. */
void      xd_tasks_refresh(xd_tasks *j);
void      xd_task_release(xd_tasks *j, xd_task *task);
/* Notes that a client waits for the end of the task. */
void      xd_task_mark_awaited(xd_tasks *j, xd_task *task);
/* Waits until the counter task->changes differs from `since`, for at most `seconds` seconds.
 * Returns task->changes. */
unsigned  xd_tasks_wait(xd_tasks *j, const xd_task *task, unsigned since, double seconds);
/* Returns nonzero if the task is done, failed or cancelled; the caller holds the lock of the
 * tasks. */
int       xd_task_has_ended(const xd_task *task);
/* xd_task_position returns the number of tasks before this task, including running tasks, that end
 * before it. xd_task_seconds_left returns the predicted seconds until this task has ended
 * (negative: unknown). The caller holds the lock of the tasks. */
int       xd_task_position(xd_tasks *j, const xd_task *task);
double    xd_task_seconds_left(xd_tasks *j, const xd_task *task);
/* Returns the predicted remaining seconds of all queued and running tasks of this server together.
 * Tasks without a prediction do not count. */
double    xd_tasks_seconds(xd_tasks *j);
/* Returns the predicted number of seconds, at least 1, until a full queue can accept another
 * task. */
double    xd_tasks_retry_after_s(xd_tasks *j);
/* Cancels a task. A queued task ends at once, a running task soon afterwards. Returns 0 if the task
 * has already ended. */
int       xd_tasks_cancel(xd_tasks *j, xd_task *task);
/* Deletes an ended task and its files. Returns 0 if the task has not ended. */
int       xd_tasks_delete(xd_tasks *j, xd_task *task);
/* Removes all result files of a task, including files that a worker has written but not yet
 * reported to the server. The file in which the task itself is stored (task_store.h) is kept. */
void      xd_task_remove_files(const xd_task *task);
/* Calls `visit` for every task, oldest first; the caller holds the lock of the tasks. */
void xd_tasks_each(xd_tasks *j, void (*visit)(void *cookie, const xd_task *task), void *cookie);
/* Deletes the oldest ended tasks, until the limits on age and bytes that xd_tasks_open sets are
 * kept. */
void xd_tasks_delete_expired(xd_tasks *j);

/* ---- functions that start and finish tasks --------------------------------------------------- */

/* Returns a file descriptor for poll, which becomes readable when a task was queued, cancelled or
 * predicted, and stays readable until xd_tasks_clear_wakeup is called. */
int      xd_tasks_wakeup_fd(xd_tasks *j);
void     xd_tasks_clear_wakeup(xd_tasks *j);
/* Marks the queued task with the lowest score as running, and returns this task. Returns NULL if no
 * task can run, or if the server shuts down. The callback `score` is called while the lock of the
 * tasks is held. A task whose score is NaN is not started. */
xd_task *xd_tasks_start_best(xd_tasks *j, double (*score)(void *cookie, const xd_task *task),
                             void *cookie);
/* Puts a running task back into the queue and releases the task. The task must be marked as
 * running, but no worker may have started the task. */
void     xd_task_requeue(xd_tasks *j, xd_task *task);
/* Cancels queued tasks whose deadline has passed. */
void     xd_tasks_cancel_overdue(xd_tasks *j);
/* Waits for a task without a prediction, and returns the task. Returns NULL if the server shuts
 * down. */
xd_task *xd_tasks_next_unpredicted(xd_tasks *j);
void     xd_task_set_prediction(xd_tasks *j, xd_task *task, const xd_task_time *t);
/* Of the running tasks of the owner `owner` (NULL: of all owners), returns the task that was
 * started last. Returns NULL if no task is running. */
xd_task *xd_tasks_running(xd_tasks *j, const char *owner);
void     xd_task_stage(xd_tasks *j, xd_task *task, const char *stage);
void     xd_task_step(xd_tasks *j, xd_task *task, int step, int steps, int image, int images);
void     xd_task_preview(xd_tasks *j, xd_task *task, const char *file);
void     xd_task_image_done(xd_tasks *j, xd_task *task, const xd_task_image *image);
/* xd_task_done marks a task as done, with the seconds of its stages as JSON. xd_task_failed marks a
 * task as failed, or as cancelled if the status is XD_ECANCELLED. */
void     xd_task_done(xd_tasks *j, xd_task *task, const char *seconds);
void     xd_task_failed(xd_tasks *j, xd_task *task, xd_status code, const char *error);

#endif
