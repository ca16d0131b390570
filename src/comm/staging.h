/* staging.h - buffers, and copies between device and host, for the messages of the staging
 * communicator.
 *
 * A call on a staging communicator (staged.h) keeps its buffers until the device has finished with
 * them. With lanes (copy streams, backend/lanes.h), data to send is copied on the lane "out", after
 * the work that was queued when the call began; received data is copied on the lane "in", and later
 * computation waits for it. The host thread waits for neither copy. Without lanes, data is copied
 * by blocking downloads and uploads.
 *
 *   compute  ... pack --before-->  ...                   --> unpack ...
 *   out                       copies to host --out-->    |
 *   in                                           copies to device --in-->
 *
 * (before, out and in are the marks, i.e. events, of xd_stage_call.) Freed buffers go to free
 * lists, so a loop of calls allocates nothing after its first iterations. */
#ifndef XD_COMM_STAGING_H
#define XD_COMM_STAGING_H

#include "backend/lanes.h"
#include "comm/comm.h"

enum {
    XD_STAGE_ENDING = 16,       /* max completed calls whose memory the device may still use   */
    /* Granularity of mailbox sizes in bytes, equal to that of CUDA IPC memory. */
    XD_STAGE_BOX = 2 << 20,
};

typedef struct xd_stage_buffer {
    struct xd_stage_buffer *next;
    size_t cap;
    char  *p;
} xd_stage_buffer;

typedef struct xd_stage_copy {  /* a copy between host memory `p` and a device tensor          */
    xd_tensor t;
    char     *p;
} xd_stage_copy;

typedef struct xd_stage_copies { xd_stage_copy *at; int n, cap; } xd_stage_copies;

typedef struct xd_stage_call {
    struct xd_stage_call *next;
    struct xd_staged     *by;           /* the group of ranks that began the call              */
    xd_req           real;              /* request of the wrapped communicator, if `started`   */
    int              started, direct;   /* direct: 1: data goes between devices (direct.h)     */
    int              kind, peer;        /* these and below: arguments of the call              */
    xd_red           op;
    int64_t         *rows;              /* [size] rows of each rank (gather)                   */
    xd_tensor       *view;              /* [2 size]: the call's tensors in host memory         */
    xd_stage_buffer *pinned, *packed;   /* the call's buffers in host memory and in device memory */
    xd_stage_copies  down, up;          /* copies to the host; copies to the device            */
    struct xd_note  *note;              /* [2 size]: mailbox notes of a direct call            */
    xd_mark         *before, *out, *in, *last;  /* events, see the diagram in the file's head  */
} xd_stage_call;

typedef struct xd_staging {     /* shared by a world communicator and all groups split from it */
    xd_dev             *dev;
    const xd_dev_lanes *lanes;          /* copy streams; NULL: the device has none             */
    xd_err             *err;
    /* Message totals; device_bytes counts the device memory of the buffers here. */
    xd_traffic         *traffic;
    int                 users, size;    /* number of groups; ranks of the world                */
    xd_stage_buffer    *pinned, *packed;        /* free lists: host and device buffers         */
    xd_stage_call      *idle;                   /* free list of calls                          */
    /* Begun calls whose data is not yet downloaded. */
    xd_stage_call      *waiting, **last_waiting;
    /* Complete calls whose memory the device still uses. */
    xd_stage_call      *ending, **last_ending;
    int                 nending;
    /* See direct.h; mailboxes and links NULL: all messages are staged. */
    struct xd_mailboxes *mailboxes;
    struct xd_links    *links;          /* see linked.h; or NULL                               */
    int                 direct;         /* 1: some rank of the world has mailboxes or links    */
    /* chosen: 1: the ranks have agreed on `direct`; rank: this rank. */
    int                 chosen, rank;
} xd_staging;

/* Opens the staging of world c. NULL: out of memory. */
xd_staging *xd_staging_open(xd_dev *dev, const xd_comm *c);
void        xd_staging_close(xd_staging *w);
/* Begins a communication call, at first without tensors. NULL: out of memory. */
xd_stage_call *xd_stage_begin(xd_staging *w);

/* How a call uses a tensor of the caller: reads it, fills it. */
enum { XD_STAGE_READS = 1, XD_STAGE_FILLS = 2 };

/* Allocates memory for a call, in pinned host memory or on the device. NULL: out of memory. */
char       *xd_stage_alloc(xd_staging *w, xd_stage_call *k, int on_device, size_t bytes);
/* Adds a copy between t and p to the list. Returns 0 if out of memory. */
int         xd_stage_copies_add(xd_stage_copies *l, xd_tensor t, char *p);
/* Returns 1 if the tensor is in device memory. */
int         xd_stage_on_device(const xd_staging *w, xd_tensor t);
/* Sets *host to a copy of t in host memory, or to t itself if it is there already. how:
 * XD_STAGE_READS, XD_STAGE_FILLS or both. Returns 0 if out of memory. */
int         xd_stage_view(xd_staging *w, xd_stage_call *k, xd_tensor t, int how, xd_tensor *host);
/* Queues a copy between two device tensors on the compute stream. */
void        xd_stage_copy_on_device(xd_staging *w, xd_tensor to, xd_tensor from);
/* Queues the copies to host memory of the data to send. Call xd_stage_download once, after all
 * xd_stage_view. */
void        xd_stage_download(xd_staging *w, xd_stage_call *k);
/* Returns 1 if the copies queued by xd_stage_download are complete. */
int         xd_stage_downloaded(const xd_staging *w, const xd_stage_call *k);
/* Queues the copies of received data to the device; the call's memory is freed when they are
 * complete. Returns 0 if out of memory. */
int         xd_stage_end(xd_staging *w, xd_stage_call *k);
/* Makes later computation wait for the work that is queued on XD_LANE_IN for this call. */
void        xd_stage_follow(xd_staging *w, xd_stage_call *k);
/* Frees the call's memory once the work that is queued now is complete. */
void        xd_stage_finish(xd_staging *w, xd_stage_call *k);
/* Waits until the device no longer uses the memory of any completed call. */
void        xd_stage_settle(xd_staging *w);
/* Ends a call and discards its data. */
void        xd_stage_drop(xd_staging *w, xd_stage_call *k);

#endif
