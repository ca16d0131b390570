/* lanes.h - declares the lanes of a device, which are queues of work: messages on one lane are
 * transferred while kernels run on another lane.
 *
 * Work queued on a lane runs in order, and different lanes run concurrently. To order the work of
 * two lanes, the caller sets a mark (an event) on one lane, after the work that must run first, and
 * makes the other lane wait for the mark. Only the thread that opened the device uses lanes. If a
 * device has a single queue, its field xd_dev.lanes is NULL. */
#ifndef XD_BACKEND_LANES_H
#define XD_BACKEND_LANES_H

#include "backend/backend.h"

typedef enum xd_dev_lane {
    XD_LANE_COMPUTE, /* lane (queue) of kernels, uploads and downloads */
    XD_LANE_OUT,     /* lane (queue) of the outgoing data of messages */
    XD_LANE_IN,      /* lane (queue) of the incoming data of messages */
    XD_NLANES,
} xd_dev_lane;

typedef struct xd_mark xd_mark;
typedef struct xd_handle { char bytes[64]; } xd_handle;

/* A link is a group of ranks that exchange messages between their devices. Each link (group of
 * ranks) has its own queue for messages. */
typedef struct xd_link xd_link;
typedef struct xd_link_id { char bytes[128]; } xd_link_id;

/* Functions that send messages from device to device by a library such as NCCL. Links require that
 * each rank has its own device. Messages between `begin` and `end` form one group, which completes
 * when all messages have been sent and received. All ranks must queue the messages of a link in the
 * same order. */
typedef struct xd_dev_links {
    const char *name;
    /* Creates the id of a link on one of the link's ranks, before the link is opened. If `id` is
     * NULL, the function only checks that the library for messages is available. */
    xd_status   (*id)(xd_dev *d, xd_link_id *id, xd_err *e);
    /* Opens a link. All `size` ranks of the link call `open` together. Returns NULL if the link
     * cannot be opened. */
    xd_link    *(*open)(xd_dev *d, const xd_link_id *id, int rank, int size, xd_err *e);
    void        (*begin)(xd_link *k, xd_mark *behind);
    void        (*send)(xd_link *k, const void *p, size_t bytes, int to);
    void        (*recv)(xd_link *k, void *p, size_t bytes, int from);
    /* ends a group of messages; the mark `done` is reached when all messages of the group have
     * completed */
    void        (*end)(xd_link *k, xd_mark *done);
    xd_status   (*check)(xd_link *k, xd_err *e); /* returns XD_ECOMM if a message has failed */
    /* closes a link; if `abort` is 1, cancels the link's messages that have not completed */
    void        (*close)(xd_link *k, int abort);
} xd_dev_links;

struct xd_dev_lanes {
    /* Creates a mark (an event of a lane), which counts as reached until it is set. Returns NULL if
     * out of memory. */
    xd_mark  *(*mark_get)(xd_dev *d);
    void      (*mark_put)(xd_dev *d, xd_mark *m);
    /* Sets mark m (an event), which is reached when all work that is queued on the lane so far has
     * ended. */
    xd_status (*set)(xd_dev *d, xd_mark *m, xd_dev_lane lane);
    /* Makes later work of the lane wait until mark m (an event) is reached. If mark m is set again
     * later, an earlier wait for it does not change. */
    xd_status (*follow)(xd_dev *d, xd_dev_lane lane, xd_mark *m);
    /* Returns 1 if mark m (an event) is reached or the device has failed. `reached` does not
     * wait. */
    int       (*reached)(xd_dev *d, xd_mark *m);
    /* Allocates pinned host memory, which the device accesses directly. Returns NULL if out of
     * memory. */
    void     *(*pinned_get)(xd_dev *d, size_t bytes);
    void      (*pinned_put)(xd_dev *d, void *p);
    /* Queue a copy on a lane. `down` copies from device memory to pinned host memory, `up` copies
     * from pinned host memory to device memory, and `copy` copies within device memory. */
    xd_status (*down)(xd_dev *d, xd_dev_lane lane, void *to, const void *from, size_t bytes);
    xd_status (*up)(xd_dev *d, xd_dev_lane lane, void *to, const void *from, size_t bytes);
    xd_status (*copy)(xd_dev *d, xd_dev_lane lane, void *to, const void *from, size_t bytes);
    /* Functions that share this device's memory and marks (events) with other processes of the
     * host. `lend` allocates memory, and `mark_lend` creates a mark. `lend` and `mark_lend` write a
     * handle of CUDA IPC to *h. Another process passes the handle to `borrow` or `mark_borrow`,
     * which return the shared memory or the shared mark. Memory that a process has borrowed may
     * only be the source of `copy`, and a borrowed mark may only be passed to `follow`. `lend`,
     * `mark_lend`, `borrow` and `mark_borrow` return NULL if the device or the system does not
     * support CUDA IPC. */
    void     *(*lend)(xd_dev *d, size_t bytes, xd_handle *h);
    xd_mark  *(*mark_lend)(xd_dev *d, xd_handle *h);
    void     *(*borrow)(xd_dev *d, const xd_handle *h);
    xd_mark  *(*mark_borrow)(xd_dev *d, const xd_handle *h);
    void      (*lend_end)(xd_dev *d, void *p);
    void      (*borrow_end)(xd_dev *d, void *p);
    /* functions that send messages through a library such as NCCL; NULL: no such library is used */
    const xd_dev_links *links;
};

#endif
