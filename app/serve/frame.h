/* frame.h - messages between the server and its worker, over a local stream socket
 *
 * A frame is a kind and a list of texts; numbers are sent as texts. The server sends XD_FRAME_RUN,
 * _CANCEL, _QUIT, _SPLIT and _JOIN, the worker the others. Every rank on the server's host has its
 * own connection; frames about all ranks use that of rank 0. */
#ifndef XD_SERVE_FRAME_H
#define XD_SERVE_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef enum xd_frame_kind {
    XD_FRAME_RUN = 1,           /* the arguments of a task (task_flags.h)                       */
    XD_FRAME_CANCEL,            /* id of a task; ignored if it does not run                    */
    XD_FRAME_QUIT,              /* exit after the running task                                 */
    XD_FRAME_READY,             /* number of ranks, version, rank: ready for the first task    */
    XD_FRAME_STAGE,             /* id, stage: "open", "text", "denoise", "decode"               */
    XD_FRAME_STEP,              /* id, step, steps, image, images                               */
    XD_FRAME_PREVIEW,           /* id, step, file                                               */
    XD_FRAME_IMAGE,             /* id, file, seed, parameters as JSON, parameters of A1111, width,
                                   height, frames, frames per second, number of tokens of the
                                   prompt, of reference images, of the image */
    XD_FRAME_DONE,              /* id, then pairs: name of a part, its seconds                  */
    XD_FRAME_FAILED,            /* id, xd_status as a number, message                          */
    XD_FRAME_MEMORY,            /* resident bytes of rank 0, number of open models             */
    XD_FRAME_SPLIT,             /* to rank 0, with the arguments of a task: split the ranks, for
                                   tasks of its model; reply of each rank: "1", or "0" and the
                                   reason why it cannot */
    XD_FRAME_JOIN,              /* to each rank, after its last task: join the ranks again       */
    XD_FRAME_ALIVE              /* from each rank, every second: its CPU seconds so far         */
} xd_frame_kind;

enum { XD_FRAME_MAX = 16 << 20 };       /* maximum size of a frame in bytes                    */

typedef struct xd_frame {
    xd_frame_kind kind;
    int    n;
    char **v;                   /* [n], then a NULL; texts inside `data`                        */
    char  *data;
    size_t bytes;
} xd_frame;

/* Sends a frame with the texts v[0..n). XD_EIO: the connection is closed, or the send time-out of
 * the socket has passed. XD_EINVAL: the frame exceeds XD_FRAME_MAX. One thread at a time. */
xd_status xd_frame_send(int fd, xd_frame_kind kind, const char *const *v, int n, xd_err *e);
/* Waits for a frame, which xd_frame_free frees. XD_EIO: the connection is closed. */
xd_status xd_frame_receive(int fd, xd_frame *f, xd_err *e);
/* Splits `bytes` bytes into texts that end with a NUL each. *f then owns `data`, also after a
 * failure. */
xd_status xd_frame_split(xd_frame *f, char *data, size_t bytes, xd_err *e);
void      xd_frame_free(xd_frame *f);

#endif
