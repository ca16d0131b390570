/* mpi_op.h - defines the state of one call of the MPI communicator (an operation): the messages of
 * the call, in phases, and the call's staging buffers.
 *
 * Each process has one list of unused operations, one list of unused staging buffers and one list
 * of operations that must act between messages, because it has only one MPI library. Only the
 * thread that opened MPI may call the functions of mpi_op.h. Freed memory goes to free lists, so a
 * loop of calls allocates nothing after its first iteration. */
#ifndef XD_COMM_MPI_OP_H
#define XD_COMM_MPI_OP_H

#include <mpi.h>

#include "comm/comm.h"

typedef struct xd_shm_block xd_shm_block; /* shared memory of a group (shared.c) */

/* State that a world communicator shares with its groups; it is freed when the last of these
 * communicators is closed. */
typedef struct xd_mpi_world {
    xd_traffic           traffic;
    xd_err               err;
    int                  users, rank;
    struct xd_mpi_world *next; /* next entry in the list of open worlds */
    MPI_Group            host; /* MPI group of the ranks on this rank's host */
    /* communicator on which no messages are sent; polling it lets MPI make progress */
    MPI_Comm             control;
    /* 1: the world was made from the program's own communicator (xd_comm_from_mpi). */
    int                  lent;
    xd_cpuset            cpus;   /* cpus that the ranks of this host may use together */
    xd_shm_block        *window; /* list of the world's open shared-memory windows */
    int                  lost;   /* 1: some messages will never be sent, so waits fail at once */
} xd_mpi_world;

typedef struct xd_mpi_group {
    xd_comm       c;
    MPI_Comm      mpi;
    char         *host; /* [size]: 1 if rank r is on this rank's host */
    xd_mpi_world *world;
    xd_shm_block *blocks;
    /* Number of collective calls so far; the tags of messages are computed from this number. */
    int           seq;
} xd_mpi_group;

typedef struct xd_mpi_staging { /* a staging buffer of an MPI operation */
    struct xd_mpi_staging *next;
    size_t                 cap;
    char                  *p;
} xd_mpi_staging;

typedef struct xd_mpi_peer { /* peer rank and expected size of one MPI request of an operation */
    int64_t expect;          /* expected bytes of a receive; -1: a send */
    int     peer;
} xd_mpi_peer;

/* Received data at `from`, which is unpacked to the view `to` when all messages of the phase have
 * arrived. */
typedef struct xd_mpi_scatter {
    xd_tensor   to;
    const char *from;
} xd_mpi_scatter;

/* Kind of an exchange, which is one of the calls exchange, exchange_views and exchange_places of
 * xd_comm_ops. */
typedef enum xd_exchange_kind {
    XD_EXCHANGE_COPY,
    XD_EXCHANGE_VIEWS,
    XD_EXCHANGE_PLACES
} xd_exchange_kind;
typedef struct xd_zero_copy xd_zero_copy; /* a view exchanged within the host (zero_copy.c) */
typedef struct xd_mpi_op    xd_mpi_op;
struct xd_mpi_op {
    /* Neighbours in a linked list of operations. The list contains either unused operations, or
     * operations that must act between messages. */
    xd_mpi_op       *next, **at;
    xd_mpi_group    *g;
    int64_t          serial;
    xd_status        status;
    int              ended, tag;
    MPI_Request     *req;
    MPI_Status      *st;
    xd_mpi_peer     *part; /* [n]: for each request in `req`, its peer rank and expected size */
    xd_mpi_scatter  *move; /* [nmove]: received data, and views to which it is unpacked */
    int              n, cap, nmove, capmove, nviews;
    /* [nviews] views that are exchanged within the host, stored in a staging buffer. */
    xd_zero_copy    *views;
    xd_exchange_kind kind;
    /* Posts the messages of the operation's next phase; NULL: no phase follows. */
    void             (*then)(xd_mpi_op *j);
    xd_mpi_staging  *stages; /* staging buffers that the operation uses */
    /* this field and the following ones are arguments of the function `then` */
    xd_tensor        io;
    xd_red           op;
    int              root, hop;
    char            *stage;
};

/* Begins an operation. collective is 1 for a collective call, which has its own message tag, and 0
 * for a message between two ranks, which arrives in the order of sending. Returns NULL if out of
 * memory, which is recorded in the world's error. */
xd_mpi_op *xd_mpi_op_begin(xd_comm *c, int collective);
/* Post a message of `bytes` bytes to rank `to`, or the receive of a message from rank `from`. A
 * message of 0 bytes is not sent. */
void       xd_mpi_op_send(xd_mpi_op *j, const void *p, size_t bytes, int to);
void       xd_mpi_op_recv(xd_mpi_op *j, void *p, size_t bytes, int from);
/* Adds a message of `bytes` to the world's traffic counts. */
void       xd_mpi_op_count(xd_mpi_op *j, size_t bytes, int to);
/* Posts a message as xd_mpi_op_send does, without adding to the traffic counts. */
void       xd_mpi_op_send_uncounted(xd_mpi_op *j, const void *p, size_t bytes, int to);
/* Post the send or the receive of the elements of a tensor with any strides, through a staging
 * buffer if needed. */
void       xd_mpi_op_send_view(xd_mpi_op *j, xd_tensor t, int to);
void       xd_mpi_op_recv_view(xd_mpi_op *j, xd_tensor t, int from);
/* Returns a staging buffer, or NULL if the operation has failed. */
char      *xd_mpi_op_stage(xd_mpi_op *j, size_t bytes);
void       xd_mpi_op_fail(xd_mpi_op *j, xd_status code, const char *fmt, ...) XD_PRINTF(3, 4);
/* Starts an operation. Returns the request with which the caller waits for operation j. The caller
 * must have posted all messages of the operation's first phase. If j is NULL, the request reports a
 * failure. */
xd_req     xd_mpi_op_start(xd_mpi_op *j);

xd_status xd_mpi_wait(xd_comm *c, xd_req *r, int n);
int       xd_mpi_test(xd_comm *c, xd_req *r);
void      xd_mpi_drop(xd_comm *c, xd_req *r, int n);
/* Runs the next phase of every pending operation whose messages of the current phase have
 * arrived. */
void      xd_mpi_advance(void);
/* Pauses a rank that waits for messages between two polls. polls: the number of polls so far. */
void      xd_mpi_idle(int polls);
void      xd_mpi_free_lists(void); /* frees all unused operations and staging buffers */
/* Records and logs an MPI failure of a world. Returns XD_ECOMM. */
xd_status xd_mpi_fail(xd_mpi_world *w, int rank, const char *what, int code);

/* xd_shares_memory returns 1 if this rank exchanges views with rank `rank` through shared memory.
 * xd_all_share_memory returns 1 if all ranks of the group exchange views through shared memory. If
 * two ranks ask about each other, xd_shares_memory returns the same result on both. */
int  xd_shares_memory(const xd_comm *c, int rank);
int  xd_all_share_memory(const xd_comm *c);
/* Add a view that an exchange sends or receives to the exchange's operation. xd_zero_copy_finish
 * posts the last phase of the exchange; the operation calls it through xd_mpi_op.then. */
void xd_zero_copy_send(xd_mpi_op *j, xd_tensor t, int to);
/* The calls exchange_views and exchange_places change *t to a view of the other rank's tensor. */
void xd_zero_copy_recv(xd_mpi_op *j, xd_tensor *t, int from);
void xd_zero_copy_finish(xd_mpi_op *j);

/* Begin an all-reduce of j->io in which each rank sums one piece of the elements. xd_zero_copy_sum
 * uses shared memory between ranks of one host, and xd_sum_by_messages uses messages. */
void xd_zero_copy_sum(xd_mpi_op *j);
void xd_sum_by_messages(xd_mpi_op *j);

/* Implementations of window_open, in_window and window_close of xd_comm_ops. */
void    *xd_mpi_window_open(xd_comm *c, size_t bytes);
int      xd_mpi_in_window(xd_comm *c, const void *p);
void     xd_mpi_window_close(xd_comm *c, void *p);
/* Finds the address p in the shared-memory windows of this host. Returns the number of the window's
 * memory block, which is unique on the host and not 0, or returns 0 if p is in no window. Sets *at
 * to the offset of p in the memory block, and *mine to 1 if this memory belongs to this rank. */
uint64_t xd_window_find(const xd_mpi_world *w, const void *p, int64_t *at, int *mine);
/* Returns the address of offset `at` in memory block number `block` of a shared-memory window.
 * Returns NULL if no memory block has this number, or if the block ends less than `bytes` bytes
 * after this address. */
char    *xd_window_address(const xd_mpi_world *w, uint64_t block, int64_t at, int64_t bytes);
/* xd_mpi_share implements xd_comm_ops.share; xd_mpi_unshare releases all shared memory of a
 * group. */
void    *xd_mpi_share(xd_comm *c, size_t bytes, int *first);
void     xd_mpi_unshare(xd_mpi_group *g);

xd_req xd_mpi_allreduce(xd_comm *c, xd_tensor io, xd_red op);
xd_req xd_mpi_bcast(xd_comm *c, xd_tensor io, int root);
xd_req xd_mpi_gather(xd_comm *c, xd_tensor out, const int64_t *rows, xd_tensor in);
xd_req xd_mpi_circulate(xd_comm *c, const xd_tensor *part);
xd_req xd_mpi_exchange(xd_comm *c, const xd_tensor *give, const xd_tensor *get);
xd_req xd_mpi_exchange_views(xd_comm *c, const xd_tensor *give, xd_tensor *get);
xd_req xd_mpi_exchange_places(xd_comm *c, const xd_tensor *give, xd_tensor *get);
xd_req xd_mpi_send(xd_comm *c, xd_tensor t, int to);
xd_req xd_mpi_recv(xd_comm *c, xd_tensor t, int from);

#endif
