/* frame.h - declares the messages that the server and its worker send to each other over a local
 * stream socket.
 *
 * Each message is a frame: a kind and a list of texts. Numbers are sent as texts. The server sends
 * XD_FRAME_RUN, _CANCEL, _QUIT, _SPLIT and _JOIN; the worker sends the other kinds. Every rank on
 * the server's host has its own connection to the server. Frames that concern all ranks use the
 * connection of rank 0. */
#ifndef XD_SERVE_FRAME_H
#define XD_SERVE_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef enum xd_frame_kind {
    XD_FRAME_RUN = 1,           /* the arguments of a task (task_flags.h)                       */
    XD_FRAME_CANCEL,            /* id of the task to cancel; ignored if that task is not running */
    XD_FRAME_QUIT,              /* the worker exits after the running task                     */
    XD_FRAME_READY,             /* the worker is ready for its first task; texts: number of
                                   ranks, version, rank of the sender */
    XD_FRAME_STAGE,             /* a stage begins: task id, "open", "text", "denoise" or "decode" */
    XD_FRAME_STEP,              /* a step has ended: task id, step, steps, image, images        */
    XD_FRAME_PREVIEW,           /* there is a preview: task id, step, file of the preview       */
    XD_FRAME_IMAGE,             /* an image is finished: task id, file, seed, parameters as JSON,
                                   parameters in A1111's text format, width, height, frames,
                                   frames per second, number of tokens of the prompt, of the
                                   reference images, of the image */
    XD_FRAME_DONE,              /* a task is done: task id, then pairs of a stage's name and its
                                   seconds */
    XD_FRAME_FAILED,            /* a task has failed: task id, xd_status as a number, error
                                   message */
    XD_FRAME_MEMORY,            /* state of the worker: resident bytes of rank 0, number of open
                                   models */
    XD_FRAME_SPLIT,             /* to rank 0, with the arguments of a task: split the ranks, so that
                                   each runs tasks of that task's model alone. Each rank replies
                                   "1", or "0" and the reason why the rank cannot run alone */
    XD_FRAME_JOIN,              /* to each split rank, after its last task: all ranks run tasks
                                   together again */
    XD_FRAME_ALIVE              /* from each rank, every second: the rank's CPU seconds so far  */
} xd_frame_kind;

enum { XD_FRAME_MAX = 16 << 20 };       /* maximum size of a frame in bytes                    */

typedef struct xd_frame {
    xd_frame_kind kind;
    int    n;
    char **v;                   /* [n] texts, then a NULL; they point into `data`               */
    char  *data;
    size_t bytes;
} xd_frame;

/* Sends a frame with the texts v[0..n). XD_EIO: the connection is closed, or the send time-out of
 * the socket has passed. XD_EINVAL: the frame exceeds XD_FRAME_MAX. Only one thread at a time may
 * send on a socket. */
xd_status xd_frame_send(int fd, xd_frame_kind kind, const char *const *v, int n, xd_err *e);
/* Waits for a frame; the caller frees it with xd_frame_free. XD_EIO: the connection is closed. */
xd_status xd_frame_receive(int fd, xd_frame *f, xd_err *e);
/* Splits the `bytes` bytes of `data` into texts that end with a NUL each. Afterwards *f owns
 * `data`, also after a failure. */
xd_status xd_frame_split(xd_frame *f, char *data, size_t bytes, xd_err *e);
void      xd_frame_free(xd_frame *f);

#endif
