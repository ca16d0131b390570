/* comm.h - groups of ranks and the messages between them; MPI is used behind this interface only.
 *
 * Calls on a group are collective, except send and recv. A call begins an operation and wait ends
 * it; its buffers must not change in between. Both take their place in the order of the device's
 * work: nobody has to wait for the device before a call, or after it. Messages from one rank of a
 * group to another arrive in the order in which they were sent (one FIFO for each pair and
 * direction, no tags). After a failure a call still takes part in its messages, and wait returns
 * the error. If messages cannot be sent at all (MPI fails, out of memory), the ranks are out of
 * step for good: every later call on this world fails at once. */
#ifndef XD_COMM_COMM_H
#define XD_COMM_COMM_H

#include "base/cpus.h"
#include "base/err.h"
#include "base/facts.h"
#include "tensor/tensor.h"

typedef struct xd_comm xd_comm;
typedef enum xd_red { XD_SUM, XD_MAX, XD_MIN } xd_red;
typedef struct xd_req { void *p; int64_t tag; } xd_req;         /* {0}: already ended          */

typedef struct xd_comm_ops {
    const char *name;                           /* "self", "mpi", "count"                      */
    /* Ranks of equal color form a group, ordered by key. `size`: how many ranks have my color. The
     * caller knows it from the plan (the count communicator relies on it; others check it). */
    xd_status (*split)(xd_comm *c, int color, int key, int size, xd_comm **out, xd_err *e);
    /* The group of the ranks of c on my host, in order of their rank. */
    xd_status (*split_host)(xd_comm *c, xd_comm **out, xd_err *e);
    void      (*close)(xd_comm *c);
    /* io: f32, f64, i32 or i64, contiguous. All ranks get the same bits. */
    xd_req (*allreduce)(xd_comm *c, xd_tensor io, xd_red op);
    xd_req (*bcast)    (xd_comm *c, xd_tensor io, int root);    /* contiguous                  */
    /* All-gather of uneven row counts: rank r gives rows[r] rows of `in` (equal length, any row
     * stride); `out`, contiguous, receives all rows in rank order. */
    xd_req (*gather)   (xd_comm *c, xd_tensor out, const int64_t *rows, xd_tensor in);
    /* All-gather around a ring: part[r] is the part of rank r, contiguous. Each rank sends to the
     * next one only: its own part first, then each part it receives except the next rank's own. */
    xd_req (*circulate)(xd_comm *c, const xd_tensor *part);
    /* All-to-all: rank r receives give[r] and fills get[r]. Views have any strides, but stride 1 in
     * the last dimension; zero elements are legal. My own pair is copied. */
    xd_req (*exchange) (xd_comm *c, const xd_tensor *give, const xd_tensor *get);
    /* Zero-copy exchange: if rank r gives memory of its window, get[r] becomes a view of it, and
     * rank r must not write there until my next message. Otherwise get[r] is filled as in
     * `exchange`. The array `get` must stay valid until the operation ends. */
    xd_req (*exchange_views)     (xd_comm *c, const xd_tensor *give, xd_tensor *get);
    /* Remote destinations for results that I compute for others: if rank r gives memory of its
     * window, get[r] becomes a view of it, otherwise it does not change. Sends no tensor bytes. A
     * later `exchange` of results that are already in such a destination copies nothing. */
    xd_req (*exchange_places)    (xd_comm *c, const xd_tensor *give, xd_tensor *get);
    xd_req (*send)     (xd_comm *c, xd_tensor t, int to);       /* contiguous                  */
    xd_req (*recv)     (xd_comm *c, xd_tensor t, int from);     /* contiguous                  */
    xd_status (*wait)  (xd_comm *c, xd_req *r, int n);          /* {0} ends at once            */
    int    (*test)     (xd_comm *c, xd_req *r);                 /* 1: has ended                */
    /* Gives up receives that no rank will answer (after a failure). */
    void   (*drop)     (xd_comm *c, xd_req *r, int n);
    void   (*poke)     (xd_comm *c);            /* lets messages progress                      */
    void   (*barrier)  (xd_comm *c);
    /* Memory of the host that all ranks of a group on one host (split_host) share; collective. Its
     * pages are allocated at once where the system can report a shortage instead of killing the
     * process. *first is 1 on the rank that should fill it. Freed when `c` is closed. NULL on all
     * ranks: not available. */
    void  *(*share)    (xd_comm *c, size_t bytes, int *first);
    /* Shared-memory window: `bytes` for each rank of a group on one host, readable by all of them;
     * collective. `exchange` copies data in a window directly from there; exchange_views gives
     * views of it. The memory is near the calling rank, in huge pages where possible. NULL on all
     * ranks: not available, or a rank asked for 0 bytes. */
    void  *(*window_open)(xd_comm *c, size_t bytes);
    /* 1: p is in a window that I opened, and all ranks of c are on my host; exchange_views of it
     * then moves no bytes. */
    int    (*in_window)(xd_comm *c, const void *p);
    /* Call when all operations that use the window have ended. */
    void   (*window_close)(xd_comm *c, void *p);
    /* Logs c->err and ends all ranks of the world. Does not return. */
    void   (*abort)    (xd_comm *c, int code);
} xd_comm_ops;

/* How messages of device memory go: the host can reach it; by links (linked.h); by memory that
 * ranks lend each other (direct.h); through host memory (staged.h). */
typedef enum xd_device_way { XD_WAY_HOST, XD_WAY_LINKS, XD_WAY_LENT, XD_WAY_STAGED } xd_device_way;

typedef struct xd_traffic {     /* of this rank, over all groups of one world                  */
    int64_t bytes, messages;    /* sent to other ranks                                         */
    int64_t device_bytes;       /* of device memory that messages have taken                   */
    xd_device_way way;
} xd_traffic;

struct xd_comm {
    const xd_comm_ops *ops;
    int         rank, size;
    xd_traffic *traffic;        /* never NULL                                                  */
    xd_err     *err;            /* the first failure of this world; never NULL                 */
    void       *priv;
};

/* "self": one rank. "mpi": joins MPI, initialising it if necessary. Closing the last world
 * finalises MPI if we initialised it; MPI cannot start again in a process. Close groups before
 * their world. Only the thread that opened it may use it; while it is open, xd_par_poke lets its
 * messages progress. */
xd_status xd_comm_world(xd_comm **c, const char *kind, xd_err *e);
/* A world of the ranks of a communicator that the program lends: *mpi_comm is an MPI_Comm. All its
 * messages go over duplicates. MPI must be initialised, and stays so. A communicator of one rank
 * gives "self". Collective over its ranks. */
xd_status xd_comm_lent(xd_comm **c, const void *mpi_comm, xd_err *e);
/* Count communicator: stands for rank `rank` of `size`, sends nothing and counts what it would
 * send. It follows no address. It cannot ask the other ranks for their keys in a split, so `key`
 * must be my rank in the new group: the keys of a color are 0..size-1. */
xd_status xd_comm_count(xd_comm **c, int rank, int size, xd_err *e);
/* Receives the events of a count communicator. */
typedef enum xd_message { XD_MESSAGE_SEND, XD_MESSAGE_RECV, XD_MESSAGE_COLLECTIVE } xd_message;
typedef struct xd_recorder {
    void  *cookie;
    /* A group: `id` 0 is the world, then groups in the order of the splits. It has `size` ranks of
     * this color; this rank is number `rank` of them. */
    void (*group)(void *cookie, int id, int color, int rank, int size);
    /* An operation begins: a message of `bytes` to or from rank `peer` of the group, or a
     * collective call, in which this rank sends bytes[r] to rank r. `number` counts from 1; `end`
     * has the same. */
    void (*begin)(void *cookie, int64_t number, int group, xd_message what, int peer,
                  const int64_t *bytes);
    void (*end)(void *cookie, int64_t number);          /* this rank waits for it               */
} xd_recorder;
/* A count communicator that reports to `rec` (borrowed). It does not report splits by host. */
xd_status xd_comm_record(xd_comm **c, int rank, int size, const xd_recorder *rec, xd_err *e);
void      xd_comm_close(xd_comm **c);
/* Was this process started by mpirun, srun or another MPI launcher with more than one rank? */
int       xd_comm_launched(void);
/* Number of processes that a launcher started, this one included, from the environment. 1: there is
 * no launcher; 0: PMIx, which does not tell. */
int       xd_comm_launch_size(void);
/* This process's number under a launcher (also if it is the only one); -1: no launcher. */
int       xd_comm_launch_rank(void);
/* The number of this process among those that a launcher has started on this host, and how many
 * they are, from the environment. Returns 0 if it is not known. */
int       xd_comm_launch_local(int *rank, int *ranks);
/* Cores for this rank while a world is open: the host's usable cores, shared fairly among its
 * ranks; at least 1. *ranks and *cores become those of the host. With several worlds they are those
 * of the one that was opened last. */
int       xd_comm_share(int *ranks, int *cores);
/* While a world is open: my number among the ranks of my host, their number, and the cpus that they
 * may use together. Returns 1 if each of them may use all these cpus; 0 if a launcher gave them
 * cpus of their own, or if it is not known. */
int       xd_comm_host(int *rank, int *ranks, xd_cpuset *cpus);
/* Reports the MPI library and its version, or "MPI: not built in". */
void      xd_comm_about(xd_fact *fact, void *cookie);

#endif
