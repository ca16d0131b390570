/* comm.h - defines communicators, which are groups of ranks that exchange messages. Only
 * implementations of this interface call MPI.
 *
 * Communication calls are collective: all ranks of a communicator make them, in the same order.
 * Only `send` and `recv` concern two ranks. A call on a communicator begins an operation, and
 * `wait` completes it. The buffers of an operation must not change between the call that begins it
 * and `wait`. Operations of a communicator are ordered with the work that is queued on the device,
 * so the caller need not synchronize the device. Messages from one rank of a group to another
 * arrive in the order in which they were sent (one FIFO for each pair and direction, no tags).
 * After a failure, a rank still takes part in all messages, and `wait` returns the error. If
 * messages cannot be sent at all (MPI fails, out of memory), ranks can no longer be synchronized:
 * every later call on this world fails at once. */
#ifndef XD_COMM_COMM_H
#define XD_COMM_COMM_H

#include "base/cpus.h"
#include "base/err.h"
#include "tensor/tensor.h"

typedef struct xd_comm xd_comm;
typedef enum xd_red { XD_SUM, XD_MAX, XD_MIN } xd_red;
/* A communication that has begun (an operation). The value {0} stands for an operation that is
 * complete. */
typedef struct xd_req {
    void   *p;
    int64_t tag;
} xd_req;

typedef struct xd_comm_ops {
    const char *name; /* kind of communicator: "self", "mpi", "count" */
    /* Splits a group: ranks with equal `color` form a new group, in which the ranks are ordered by
     * `key`. size: the number of ranks with this color, which the caller knows from the plan. The
     * communicator that only counts messages relies on `size`; other communicators check it. */
    xd_status   (*split)(xd_comm *c, int color, int key, int size, xd_comm **out, xd_err *e);
    /* Makes a group of those ranks of c that run on this rank's host, in the order of c. */
    xd_status   (*split_host)(xd_comm *c, xd_comm **out, xd_err *e);
    void        (*close)(xd_comm *c);
    /* Combines the tensors `io` of all ranks elementwise by the operation `op`, and stores the
     * result in `io` of all ranks (all-reduce). `io` is contiguous and of type f32, f64, i32 or
     * i64. All ranks get bit-identical results. */
    xd_req      (*allreduce)(xd_comm *c, xd_tensor io, xd_red op);
    /* Copies the contiguous tensor `io` of rank `root` to `io` on all ranks. */
    xd_req      (*bcast)(xd_comm *c, xd_tensor io, int root);
    /* Gathers on every rank the rows of all ranks (all-gather), where ranks may have different
     * numbers of rows. The tensor `in` of rank r has rows[r] rows, with any row stride; all rows
     * have the same length. The contiguous tensor `out` receives all rows in rank order. */
    xd_req      (*gather)(xd_comm *c, xd_tensor out, const int64_t *rows, xd_tensor in);
    /* Gathers on every rank the tensors of all ranks (all-gather), which are sent around a ring:
     * part[r] is the contiguous tensor of rank r. Each rank sends only to the next rank: first its
     * own tensor, then each tensor that it receives. In the ring, a tensor is not sent back to the
     * rank that owns it. */
    xd_req      (*circulate)(xd_comm *c, const xd_tensor *part);
    /* Exchanges tensors between all ranks (all-to-all): sends give[r] to rank r, and receives
     * get[r] from rank r. The tensors may have zero elements and any strides, except that the
     * stride of the last dimension must be 1. A tensor that a rank sends to itself is copied. */
    xd_req      (*exchange)(xd_comm *c, const xd_tensor *give, const xd_tensor *get);
    /* Exchanges tensors without copies where possible (zero-copy). If the tensor that rank r sends
     * is in rank r's shared-memory window, get[r] becomes a view of this tensor, and rank r must
     * not write to it until it has received the next message from this rank. If the tensor is not
     * in a window, its elements are copied to get[r] as in `exchange`. The array `get` must stay
     * valid until the operation completes. */
    xd_req      (*exchange_views)(xd_comm *c, const xd_tensor *give, xd_tensor *get);
    /* Exchanges views of destination tensors, so that a rank can write results directly into
     * another rank's memory. If the destination tensor that rank r passes for this rank (in its own
     * `give`) is in the window of rank r, get[r] becomes a view of that tensor; otherwise get[r]
     * does not change. exchange_places sends no elements of tensors. A later call of `exchange`
     * copies nothing for results that are already in their destination. */
    xd_req      (*exchange_places)(xd_comm *c, const xd_tensor *give, xd_tensor *get);
    /* operation that sends a contiguous tensor */
    xd_req      (*send)(xd_comm *c, xd_tensor t, int to);
    /* operation that receives a contiguous tensor */
    xd_req      (*recv)(xd_comm *c, xd_tensor t, int from);
    /* Waits until n operations are complete. An operation whose xd_req is {0} is already
     * complete. */
    xd_status   (*wait)(xd_comm *c, xd_req *r, int n);
    /* Returns 1 if the operation is complete. */
    int         (*test)(xd_comm *c, xd_req *r);
    /* Cancels n receives for which no message will be sent because a rank has failed. */
    void        (*drop)(xd_comm *c, xd_req *r, int n);
    void        (*poke)(xd_comm *c); /* lets pending messages make progress */
    void        (*barrier)(xd_comm *c);
    /* Allocates host memory that all ranks of a group on one host (split_host) share. All ranks of
     * the group must call `share`. If possible, the pages are allocated at once, so that `share`
     * reports a shortage of memory. If pages were allocated at their first use, a shortage would
     * kill the process. Sets *first to 1 on the one rank that should write the contents of the
     * shared memory, and to 0 on the other ranks. The shared memory is freed when `c` is closed.
     * Returns NULL on all ranks if shared memory is not available. */
    void       *(*share)(xd_comm *c, size_t bytes, int *first);
    /* Opens a shared-memory window for a group of ranks on one host. The window has `bytes` bytes
     * of memory for each rank, which all ranks of the group can read. All ranks of the group must
     * call window_open. `exchange` copies data directly from the window of the sender, and
     * exchange_views returns views of such data. The memory of each rank in the window is on the
     * rank's own NUMA node, in huge pages if possible. Returns NULL on all ranks if shared memory
     * is not available or a rank passed 0 bytes. */
    void       *(*window_open)(xd_comm *c, size_t bytes);
    /* Returns 1 if p is in a shared-memory window that this rank opened and all ranks of c are on
     * this rank's host. exchange_views copies no bytes from addresses in such a window. */
    int         (*in_window)(xd_comm *c, const void *p);
    /* Closes a shared-memory window. The caller must first complete all operations that use the
     * window. */
    void        (*window_close)(xd_comm *c, void *p);
    /* Logs c->err and aborts all ranks of the world. `abort` does not return. */
    void        (*abort)(xd_comm *c, int code);
} xd_comm_ops;

/* How messages transport tensors in device memory. HOST: the host addresses the device memory
 * directly; LINKS: through NCCL (linked.h); MAILBOXES: through device memory shared between
 * processes (direct.h); STAGED: by copies through host memory (staged.h). */
typedef enum xd_device_way {
    XD_WAY_HOST,
    XD_WAY_LINKS,
    XD_WAY_MAILBOXES,
    XD_WAY_STAGED
} xd_device_way;

/* Totals of the messages that this rank has sent in the communicator of all ranks (the world) and
 * in all groups split from it. */
typedef struct xd_traffic {
    int64_t       bytes, messages; /* bytes and messages sent to other ranks */
    int64_t       device_bytes;    /* bytes of device memory that are allocated for messages */
    xd_device_way way;
} xd_traffic;

struct xd_comm {
    const xd_comm_ops *ops;
    int                rank, size;
    xd_traffic        *traffic; /* traffic counts of the world; never NULL */
    xd_err            *err;     /* record of the first failure of the world; never NULL */
    void              *priv;
};

/* Opens a world, which is the communicator of all ranks. If `kind` is "self", the world consists of
 * this process only. If `kind` is "mpi", it consists of all ranks of MPI, which is initialised if
 * necessary. Closing the last world finalises MPI if xdit initialised it; MPI cannot be initialised
 * twice in a process. All groups of a world must be closed before the world. Only the thread that
 * opened a world may use it; while the world is open, xd_par_poke lets its messages make
 * progress. */
xd_status xd_comm_world(xd_comm **c, const char *kind, xd_err *e);
/* Opens a world whose ranks are those of the program's own communicator. `mpi_comm` points to the
 * program's MPI_Comm. All messages use duplicates of the program's communicator. MPI must be
 * initialised before xd_comm_from_mpi, and is not finalised when the world is closed. If the
 * communicator has one rank, the world is of kind "self". All ranks of the program's communicator
 * must call xd_comm_from_mpi. */
xd_status xd_comm_from_mpi(xd_comm **c, const void *mpi_comm, xd_err *e);
/* Opens a count communicator, which acts as rank `rank` of `size` ranks, sends nothing, counts the
 * bytes that this rank would send, and never dereferences tensors. A count communicator does not
 * know the keys that the other ranks would pass to `split`, so the caller must pass this rank's
 * number in the new group, from 0 to size - 1, as the `key` of `split`. */
xd_status xd_comm_count(xd_comm **c, int rank, int size, xd_err *e);
/* Functions that a count communicator calls for each group and each message. */
typedef enum xd_message { XD_MESSAGE_SEND, XD_MESSAGE_RECV, XD_MESSAGE_COLLECTIVE } xd_message;
typedef struct xd_recorder {
    void *cookie;
    /* Called after a group of ranks was made. id: the group's number, which is 0 for the world and
     * then counts the splits. size: number of ranks in the group; rank: this rank's number in the
     * group. */
    void  (*group)(void *cookie, int id, int color, int rank, int size);
    /* Called when an operation begins: a message of `bytes` to or from rank `peer` of the group, or
     * a collective call in which this rank sends bytes[r] to rank r. number: the operation's
     * number, counted from 1, which is also passed to the matching call of `end`. */
    void  (*begin)(void *cookie, int64_t number, int group, xd_message what, int peer,
                   const int64_t *bytes);
    /* Called when this rank waits for operation `number` of the group. */
    void  (*end)(void *cookie, int64_t number);
} xd_recorder;
/* Opens a count communicator that reports to `rec` (borrowed). Groups that split_host makes are not
 * reported. */
xd_status xd_comm_record(xd_comm **c, int rank, int size, const xd_recorder *rec, xd_err *e);
void      xd_comm_close(xd_comm **c);
/* Returns 1 if mpirun, srun or another MPI launcher started this process with more than one
 * rank. */
int       xd_comm_launched(void);
/* Returns the number of processes that an MPI launcher started, including this one, as given in the
 * environment. Returns 1 if no MPI launcher started the process. Returns 0 if the number of
 * processes is unknown, as with launchers that use PMIx, which does not put it into the
 * environment. */
int       xd_comm_launch_size(void);
/* Returns this process's rank under an MPI launcher (also if it is the only process); returns -1 if
 * there is no launcher. */
int       xd_comm_launch_rank(void);
/* Reads from the environment how many processes a launcher started on this host, and this process's
 * number among them. Returns 0 if the number of processes or this process's number is unknown. */
int       xd_comm_launch_local(int *rank, int *ranks);
/* While a world is open, returns the number of cores for this rank: the host's usable cores are
 * divided evenly among the host's ranks. xd_comm_share returns at least 1. Sets *ranks and *cores
 * to the host's totals. If several worlds are open, xd_comm_share returns the values of the world
 * that was opened last. */
int       xd_comm_share(int *ranks, int *cores);
/* While a world is open: sets *rank to this rank's number among the ranks of its host, *ranks to
 * the number of ranks of the host, and *cpus to the union of the cpus that the host's ranks may
 * use. Returns 1 if every rank of the host may use all of *cpus. Returns 0 if a launcher assigned
 * different cpus to the ranks, or if this is unknown. */
int       xd_comm_host(int *rank, int *ranks, xd_cpuset *cpus);
/* Reports the name and version of the MPI library, or "MPI: not built in". */
void      xd_comm_about(xd_fact *fact, void *cookie);

#endif
