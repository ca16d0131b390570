/* staging.h - the memory of messages between a device and the host, and the order of their copies
 *
 * A call on a communicator that stages (staged.h) holds buffers until the device has done with
 * them. With lanes (backend/lanes.h) data to send leaves on a lane of its own, behind the work that
 * was queued when the call began; received data comes on another one, and computing follows it. The
 * host waits for neither here. Without lanes data is copied by downloads and uploads, which wait.
 *
 *   compute  ... pack --before-->  ...                   --> unpack ...
 *   out                       copies to host --out-->    |
 *   in                                           copies to device --in-->
 *
 * Memory returns to free lists: a loop allocates nothing after its first iterations. */
#ifndef XD_COMM_STAGING_H
#define XD_COMM_STAGING_H

#include "backend/lanes.h"
#include "comm/comm.h"

enum {
    XD_STAGE_ENDING = 16,       /* calls whose memory the device may still use                 */
    XD_STAGE_BOX = 2 << 20,     /* bytes of a mailbox are a multiple: the driver lends no less */
};

typedef struct xd_stage_buffer {
    struct xd_stage_buffer *next;
    size_t cap;
    char  *p;
} xd_stage_buffer;

typedef struct xd_stage_copy {  /* between host memory `p` and a tensor of the device          */
    xd_tensor t;
    char     *p;
} xd_stage_copy;

typedef struct xd_stage_copies { xd_stage_copy *at; int n, cap; } xd_stage_copies;

typedef struct xd_stage_call {
    struct xd_stage_call *next;
    struct xd_staged     *by;           /* the group that began it                             */
    xd_req           real;              /* of the communicator behind; once `started`          */
    int              started, direct;   /* direct: between devices (direct.h)                  */
    int              kind, peer;        /* these and below: arguments of the call              */
    xd_red           op;
    int64_t         *rows;              /* [size]                                              */
    xd_tensor       *view;              /* [2 size]: in host memory                            */
    xd_stage_buffer *pinned, *packed;   /* memory that it holds, of the host and of the device */
    xd_stage_copies  down, up;
    struct xd_note  *note;              /* [2 size]: of a call between devices (direct.h)      */
    xd_mark         *before, *out, *in, *last;
} xd_stage_call;

typedef struct xd_staging {     /* of a world and the groups that are split from it            */
    xd_dev             *dev;
    const xd_dev_lanes *lanes;          /* NULL: none                                          */
    xd_err             *err;
    xd_traffic         *traffic;        /* whose device_bytes count what is taken here         */
    int                 users, size;    /* groups; ranks of the world                          */
    xd_stage_buffer    *pinned, *packed;        /* free                                        */
    xd_stage_call      *idle;
    xd_stage_call      *waiting, **last_waiting;        /* begun, but not started              */
    xd_stage_call      *ending, **last_ending;  /* the device still uses their memory          */
    int                 nending;
    struct xd_mailboxes *mailboxes;     /* direct.h; both NULL: all messages are staged        */
    struct xd_links    *links;          /* linked.h                                            */
    int                 direct;         /* some rank of the world has one of the two           */
    int                 chosen, rank;   /* 1: the ranks have agreed on that; mine              */
} xd_staging;

/* For the messages of world c. NULL: no memory. */
xd_staging *xd_staging_open(xd_dev *dev, const xd_comm *c);
void        xd_staging_close(xd_staging *w);
/* A call without tensors. NULL: no memory. */
xd_stage_call *xd_stage_begin(xd_staging *w);

enum { XD_GOES = 1, XD_COMES = 2 };     /* a call reads the tensor; fills it                   */

/* Memory of a call, of the host or of the device. NULL: there is none. */
char       *xd_stage_hold(xd_staging *w, xd_stage_call *k, int on_device, size_t bytes);
int         xd_stage_copies_add(xd_stage_copies *l, xd_tensor t, char *p);      /* 0: no memory */
/* 1: a tensor in memory of the device. */
int         xd_stage_is_ours(const xd_staging *w, xd_tensor t);
/* *host: the view of t in host memory, or t itself if it is there. 0: no memory. */
int         xd_stage_view(xd_staging *w, xd_stage_call *k, xd_tensor t, int how, xd_tensor *host);
/* Copies between two views of the device, behind the work that is queued. */
void        xd_stage_copy_on_device(xd_staging *w, xd_tensor to, xd_tensor from);
/* Queues the copies of what goes. Call once, when all views are there. */
void        xd_stage_leave(xd_staging *w, xd_stage_call *k);
/* 1: what goes is in host memory. */
int         xd_stage_has_left(const xd_staging *w, const xd_stage_call *k);
/* Queues the copies of what has come, gives the memory back when these have ended. 0: no memory. */
int         xd_stage_end(xd_staging *w, xd_stage_call *k);
/* Computing follows what has been given to XD_LANE_IN for this call. */
void        xd_stage_follow(xd_staging *w, xd_stage_call *k);
/* The call gives its memory back when the work has ended that is queued now. */
void        xd_stage_finish(xd_staging *w, xd_stage_call *k);
/* Waits until the device has done with all calls that have ended. */
void        xd_stage_settle(xd_staging *w);
/* Ends a call whose data is not wanted. */
void        xd_stage_drop(xd_staging *w, xd_stage_call *k);

#endif
