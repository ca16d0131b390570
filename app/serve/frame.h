/* frame.h - what the server and its worker say to each other, over a stream socket of one host.
 *
 * A frame is a kind and a list of texts. The server sends XD_FRAME_RUN, _CANCEL, _QUIT, _APART and
 * _TOGETHER, the worker the others. Every rank on the server's host has a connection of its own;
 * what concerns all ranks goes over rank 0's. Numbers are texts, as in a command line. */
#ifndef XD_SERVE_FRAME_H
#define XD_SERVE_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef enum xd_frame_kind {
    XD_FRAME_RUN = 1,           /* the arguments of a task (worker_flags.h)                      */
    XD_FRAME_CANCEL,            /* id: of the task that runs, else nothing happens               */
    XD_FRAME_QUIT,              /* end when the running task has ended                           */
    XD_FRAME_READY,             /* ranks, version, rank: it waits for its first task             */
    XD_FRAME_STAGE,             /* id, stage: "open", "text", "denoise", "decode"               */
    XD_FRAME_STEP,              /* id, step, steps, image, images                               */
    XD_FRAME_PREVIEW,           /* id, step, file                                               */
    XD_FRAME_IMAGE,             /* id, file, seed, parameters as JSON, parameters of A1111, width,
                                   height, frames, frames per second, tokens of the prompt, of
                                   images that are read, of the image */
    XD_FRAME_DONE,              /* id, then pairs: name of a part, its seconds                  */
    XD_FRAME_FAILED,            /* id, status as a number, sentence                             */
    XD_FRAME_MEMORY,            /* resident bytes of the worker's rank 0, open models           */
    XD_FRAME_APART,             /* to rank 0, the arguments of a task: each rank is about to run
                                   tasks by itself, of this model; back from each rank: "1" or "0",
                                   and a sentence why it cannot */
    XD_FRAME_TOGETHER,          /* to each rank, after its last task: all work together again    */
    XD_FRAME_ALIVE              /* from each rank, every second: processor seconds that it has
                                   taken so far */
} xd_frame_kind;

enum { XD_FRAME_MOST = 16 << 20 };      /* bytes of a frame                                    */

typedef struct xd_frame {
    xd_frame_kind kind;
    int    n;
    char **v;                   /* [n] and a NULL, texts inside `data`                          */
    char  *data;
    size_t bytes;
} xd_frame;

/* Sends a frame of the texts v[0..n). XD_EIO: the other side is gone, or takes nothing for as long
 * as the socket's time-outs allow. One thread at a time. */
xd_status xd_frame_send(int fd, xd_frame_kind kind, const char *const *v, int n, xd_err *e);
/* Waits for a frame, which xd_frame_free frees. XD_EIO: the other side is gone. */
xd_status xd_frame_receive(int fd, xd_frame *f, xd_err *e);
/* The texts of `bytes` bytes, of which each ends with a NUL; *f owns `data` then, also after a
 * failure. */
xd_status xd_frame_split(xd_frame *f, char *data, size_t bytes, xd_err *e);
void      xd_frame_free(xd_frame *f);

#endif
