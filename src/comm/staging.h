/* staging.h - manages buffers and copies data between device and host, for the messages of the
 * staging communicator.
 *
 * A call on a staging communicator (staged.h) keeps its buffers until the device no longer uses
 * them. With lanes (copy streams, backend/lanes.h), data to send is copied on the lane "out", after
 * the work that was queued when the call began. Received data is copied on the lane "in", and later
 * computation waits for this data. The host thread waits neither for copies to the host nor for
 * copies to the device. Without lanes, data is copied by blocking downloads and uploads.
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
    /* Maximum number of completed calls whose buffers are kept because the device may still use
     * them. */
    XD_STAGE_ENDING = 16,
    /* Unit of the sizes of mailboxes (shared device memory) in bytes, which is the granularity of
     * CUDA IPC memory. */
    XD_STAGE_BOX = 2 << 20,
};

typedef struct xd_stage_buffer {
    struct xd_stage_buffer *next;
    size_t                  cap;
    char                   *p;
} xd_stage_buffer;

typedef struct xd_stage_copy { /* a copy between host memory `p` and a device tensor */
    xd_tensor t;
    char     *p;
} xd_stage_copy;

typedef struct xd_stage_copies {
    xd_stage_copy *at;
    int            n, cap;
} xd_stage_copies;

typedef struct xd_stage_call {
    struct xd_stage_call *next;
    struct xd_staged     *by;   /* the group of ranks that began the call */
    xd_req                real; /* request of the wrapped communicator, if `started` is 1 */
    /* direct: 1 if data is sent directly between devices (direct.h). */
    int                   started, direct;
    /* The fields `kind`, `peer`, `op` and `rows` are arguments of the communication call. */
    int                   kind, peer;
    xd_red                op;
    int64_t              *rows;       /* [size]: for a gather, the number of rows of each rank */
    xd_tensor            *view;       /* [2 size]: the call's tensors in host memory */
    xd_stage_buffer *pinned, *packed; /* the call's buffers in host memory and in device memory */
    xd_stage_copies  down, up;        /* down: copies to the host; up: copies to the device */
    /* [2 size]: notes of a call that sends directly between devices; a note consists of a mailbox
     * number and a byte count. */
    struct xd_note  *note;
    /* Events on the device; the diagram at the top of staging.h shows when `before`, `out` and `in`
     * are recorded. */
    xd_mark         *before, *out, *in, *last;
} xd_stage_call;

/* Staging state shared by a world communicator and the groups split from it. */
typedef struct xd_staging {
    xd_dev              *dev;
    /* functions for copy streams; NULL: the device has no copy streams */
    const xd_dev_lanes  *lanes;
    xd_err              *err;
    /* Totals of all messages; device_bytes counts the device memory of the staging buffers. */
    xd_traffic          *traffic;
    /* users: number of groups that use this state; size: number of ranks in the world */
    int                  users, size;
    /* Lists of unused host buffers (pinned) and unused device buffers (packed). */
    xd_stage_buffer     *pinned, *packed;
    xd_stage_call       *idle; /* list of unused call structs */
    /* List of begun calls whose data to send has not been copied to the host yet. */
    xd_stage_call       *waiting, **last_waiting;
    /* List of complete calls whose memory the device still uses. */
    xd_stage_call       *ending, **last_ending;
    int                  nending;
    /* Device memory that processes share (direct.h). If mailboxes and links are NULL, all messages
     * are staged through host memory. */
    struct xd_mailboxes *mailboxes;
    /* links of a communication library such as NCCL (linked.h), or NULL */
    struct xd_links     *links;
    int                  direct; /* 1: some rank of the world has mailboxes or links */
    /* chosen: 1 after the ranks have agreed whether to use direct transport; rank: this rank's
     * number in the world */
    int                  chosen, rank;
} xd_staging;

/* Opens the staging state (buffers, copy streams) of world communicator c. Returns NULL if out of
 * memory. */
xd_staging    *xd_staging_open(xd_dev *dev, const xd_comm *c);
void           xd_staging_close(xd_staging *w);
/* Begins a communication call, which has no tensors at first. Returns NULL if out of memory. */
xd_stage_call *xd_stage_begin(xd_staging *w);

/* Whether a communication call reads a tensor of the caller, or writes received data to it. */
enum { XD_STAGE_READS = 1, XD_STAGE_FILLS = 2 };

/* Allocates memory for a call, in pinned host memory or on the device. Returns NULL if out of
 * memory. */
char *xd_stage_alloc(xd_staging *w, xd_stage_call *k, int on_device, size_t bytes);
/* Adds a copy between tensor t and host memory p to the list l. Returns 0 if out of memory. */
int   xd_stage_copies_add(xd_stage_copies *l, xd_tensor t, char *p);
/* Returns 1 if the tensor is in device memory. */
int   xd_stage_on_device(const xd_staging *w, xd_tensor t);
/* Makes the tensor t accessible to the host: *host is a copy of t in host memory, or t itself if t
 * is already in host memory. The argument `how` is XD_STAGE_READS, XD_STAGE_FILLS or both. Returns
 * 0 if out of memory. */
int   xd_stage_view(xd_staging *w, xd_stage_call *k, xd_tensor t, int how, xd_tensor *host);
/* Queues on the compute stream a copy between two device tensors. */
void  xd_stage_copy_on_device(xd_staging *w, xd_tensor to, xd_tensor from);
/* Queues the copies to host memory of all data that the call will send. Call xd_stage_download
 * once, after all calls of xd_stage_view. */
void  xd_stage_download(xd_staging *w, xd_stage_call *k);
/* Returns 1 if the copies queued by xd_stage_download are complete. */
int   xd_stage_downloaded(const xd_staging *w, const xd_stage_call *k);
/* Queues the copies of received data to the device; the call's memory is freed when these copies
 * are complete. Returns 0 if out of memory. */
int   xd_stage_end(xd_staging *w, xd_stage_call *k);
/* Makes later computation wait for the work that is queued on the copy stream XD_LANE_IN for this
 * call. */
void  xd_stage_follow(xd_staging *w, xd_stage_call *k);
/* Frees the call's memory as soon as all work that is now queued on the device is complete. */
void  xd_stage_finish(xd_staging *w, xd_stage_call *k);
/* Waits until the device no longer uses the memory of any completed call. */
void  xd_stage_settle(xd_staging *w);
/* Ends a communication call and discards the received data. */
void  xd_stage_drop(xd_staging *w, xd_stage_call *k);

#endif
