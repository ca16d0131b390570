/* frame.h - declares the messages that the server and its worker send to each other over a local
 * stream socket.
 *
 * Each message between server and worker is a frame: a kind and a list of texts. Numbers in a frame
 * are sent as decimal texts. The server sends XD_FRAME_RUN, XD_FRAME_CANCEL, XD_FRAME_QUIT,
 * XD_FRAME_SPLIT and XD_FRAME_JOIN; the worker sends all other kinds. Every rank on the server's
 * host has its own connection to the server. Frames that concern all ranks use the connection of
 * rank 0. */
#ifndef XD_SERVE_FRAME_H
#define XD_SERVE_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef enum xd_frame_kind {
    /* the worker must run a task; texts of the frame: the arguments of the task (task_flags.h) */
    XD_FRAME_RUN = 1,
    /* id of the task to cancel; the frame is ignored if that task is not running */
    XD_FRAME_CANCEL,
    XD_FRAME_QUIT, /* frame after which the worker exits at the end of the running task */
    /* The worker has started and is ready for its first task. Texts of the frame XD_FRAME_READY:
     * number of ranks, version, rank of the sender. */
    XD_FRAME_READY,
    /* A stage of a task begins. Texts of the frame XD_FRAME_STAGE: task id, and "open", "text",
     * "denoise" or "decode". */
    XD_FRAME_STAGE,
    /* A denoising step of a task has ended. Texts of the frame XD_FRAME_STEP: task id, number of
     * the step, number of steps, number of the image, number of images. */
    XD_FRAME_STEP,
    /* The worker has written a preview. Texts of the frame XD_FRAME_PREVIEW: task id, denoising
     * step, name of the preview's file. */
    XD_FRAME_PREVIEW,
    /* An image of a task is finished. Texts of the frame XD_FRAME_IMAGE: task id, file, seed,
     * parameters as JSON, parameters in A1111's text format, width, height, frames, frames per
     * second, samples of sound per second, and the numbers of tokens of the prompt, of the
     * reference images and of the image. */
    XD_FRAME_IMAGE,
    /* The worker has finished a task. Texts of the frame XD_FRAME_DONE: task id, then, for each
     * stage, its name and its seconds. */
    XD_FRAME_DONE,
    /* The worker has failed to run a task. Texts of the frame XD_FRAME_FAILED: task id, xd_status
     * as a number, error message. */
    XD_FRAME_FAILED,
    /* The worker reports its memory and its open models. Texts of the frame XD_FRAME_MEMORY:
     * resident bytes of rank 0, number of open models. */
    XD_FRAME_MEMORY,
    /* XD_FRAME_SPLIT is sent to rank 0 with the arguments of a task: the ranks are split, so that
     * each rank alone runs tasks that use the same model as this task. Each rank replies to
     * XD_FRAME_SPLIT with a frame of the same kind: the text "1" if it can run tasks alone, or the
     * text "0" and the reason why it cannot. */
    XD_FRAME_SPLIT,
    /* XD_FRAME_JOIN is sent to each rank after the last task that it ran alone: from now on, all
     * ranks run each task together again. */
    XD_FRAME_JOIN,
    /* XD_FRAME_ALIVE is sent by each rank every second, with the CPU seconds that the rank has used
     * so far. */
    XD_FRAME_ALIVE
} xd_frame_kind;

enum { XD_FRAME_MAX = 16 << 20 }; /* maximum size of a frame in bytes */

typedef struct xd_frame {
    xd_frame_kind kind;
    int           n;
    char        **v; /* [n] pointers to texts in `data`, followed by a NULL */
    char         *data;
    size_t        bytes;
} xd_frame;

/* Sends a frame with the texts v[0..n). XD_EIO: the connection is closed, or the socket's time
 * limit for sending was exceeded. XD_EINVAL: the frame exceeds XD_FRAME_MAX. Only one thread at a
 * time may send frames on a socket. */
xd_status xd_frame_send(int fd, xd_frame_kind kind, const char *const *v, int n, xd_err *e);
/* Waits for a frame on a socket; the caller frees the frame with xd_frame_free. XD_EIO: the
 * connection is closed. */
xd_status xd_frame_receive(int fd, xd_frame *f, xd_err *e);
/* Splits `data`, the `bytes` received bytes of a frame, into texts, each of which ends with a NUL.
 * After the call *f owns `data`, also if the call failed. */
xd_status xd_frame_split(xd_frame *f, char *data, size_t bytes, xd_err *e);
void      xd_frame_free(xd_frame *f);

#endif
