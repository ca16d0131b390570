/* lanes.h - queues of a device beside the one in which it computes
 *
 * Work given to a lane runs in order. Lanes run beside each other: a mark is set behind what a lane
 * has been given, and another lane follows it. Only the thread that opened the device uses lanes.
 * xd_dev.lanes is NULL for a device that has only the order of its kernels. */
#ifndef XD_BACKEND_LANES_H
#define XD_BACKEND_LANES_H

#include "backend/backend.h"

typedef enum xd_dev_lane {
    XD_LANE_COMPUTE,            /* the order of the kernels, uploads and downloads             */
    XD_LANE_OUT,                /* data of messages that leaves the device                     */
    XD_LANE_IN,                 /* data of messages that comes                                 */
    XD_NLANES,
} xd_dev_lane;

typedef struct xd_mark xd_mark;
typedef struct xd_handle { char bytes[64]; } xd_handle;

typedef struct xd_link    xd_link;      /* a group of ranks, and a lane of its own             */
typedef struct xd_link_id { char bytes[128]; } xd_link_id;

/* Messages of a library that knows several devices. Each rank has a device of its own. What is
 * between begin and end goes as one: it ends when all of it has been sent and received. Ranks give
 * a link its messages in the same order. */
typedef struct xd_dev_links {
    const char *name;
    /* Of a link to be opened; one rank makes it. NULL for id: whether the library is there. */
    xd_status (*id)(xd_dev *d, xd_link_id *id, xd_err *e);
    /* Collective over `size` ranks. NULL: it failed. */
    xd_link  *(*open)(xd_dev *d, const xd_link_id *id, int rank, int size, xd_err *e);
    void      (*begin)(xd_link *k, xd_mark *behind);
    void      (*send)(xd_link *k, const void *p, size_t bytes, int to);
    void      (*recv)(xd_link *k, void *p, size_t bytes, int from);
    void      (*end)(xd_link *k, xd_mark *done);        /* sets `done` behind these messages   */
    xd_status (*check)(xd_link *k, xd_err *e);          /* XD_ECOMM: a message has failed      */
    void      (*close)(xd_link *k, int abort);  /* abort: messages that nobody answers end     */
} xd_dev_links;

struct xd_dev_lanes {
    /* A mark that is reached. NULL: out of memory. */
    xd_mark  *(*mark_get)(xd_dev *d);
    void      (*mark_put)(xd_dev *d, xd_mark *m);
    /* m is reached when all work has ended that the lane has been given so far. */
    xd_status (*set)(xd_dev *d, xd_mark *m, xd_dev_lane lane);
    /* What the lane is given from now on runs after m is reached, as m is set now. */
    xd_status (*follow)(xd_dev *d, xd_dev_lane lane, xd_mark *m);
    /* 1: m is reached, or the device has failed. Does not wait. */
    int       (*reached)(xd_dev *d, xd_mark *m);
    /* Host memory that the device reads and writes by itself. NULL: out of memory. */
    void     *(*pinned_get)(xd_dev *d, size_t bytes);
    void      (*pinned_put)(xd_dev *d, void *p);
    /* Copies, in the order of the lane, to and from pinned host memory, and within the device. */
    xd_status (*down)(xd_dev *d, xd_dev_lane lane, void *to, const void *from, size_t bytes);
    xd_status (*up)  (xd_dev *d, xd_dev_lane lane, void *to, const void *from, size_t bytes);
    xd_status (*copy)(xd_dev *d, xd_dev_lane lane, void *to, const void *from, size_t bytes);
    /* Memory and marks of this device that other processes of the host use by their handles.
     * Borrowed memory is read by `copy` alone, a borrowed mark is followed alone. All return NULL
     * where the device or the system does not allow it. */
    void     *(*lend)(xd_dev *d, size_t bytes, xd_handle *h);
    xd_mark  *(*mark_lend)(xd_dev *d, xd_handle *h);
    void     *(*borrow)(xd_dev *d, const xd_handle *h);
    xd_mark  *(*mark_borrow)(xd_dev *d, const xd_handle *h);
    void      (*lend_end)(xd_dev *d, void *p);
    void      (*borrow_end)(xd_dev *d, void *p);
    const xd_dev_links *links;          /* NULL: there is no such library                      */
};

#endif
