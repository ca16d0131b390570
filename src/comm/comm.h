/* comm.h - groups of ranks and the messages between them: the only view of MPI and NCCL.
 *
 * Calls of a group are collective over it, except send and recv. Calls begin; wait ends: buffers
 * must stay as they are until then. Between a pair of ranks of a group messages arrive in the
 * order in which they were sent (one FIFO a pair and direction, no tags). After a failure a
 * call still takes part; wait tells. When messages cannot be sent at all (MPI fails, no memory) the
 * ranks are out of step for good: from then on every call of this world fails at once. */
#ifndef XD_COMM_COMM_H
#define XD_COMM_COMM_H

#include "base/cpus.h"
#include "base/err.h"
#include "tensor/tensor.h"

typedef struct xd_comm xd_comm;
typedef enum xd_red { XD_SUM, XD_MAX, XD_MIN } xd_red;
typedef struct xd_req { void *p; int64_t tag; } xd_req;         /* {0}: already ended          */

typedef struct xd_comm_ops {
    const char *name;                           /* "self", "mpi", "count"                      */
    /* Ranks of equal color form a group, ordered by key. `size` is how many ranks share my color:
     * the plan knows (the count communicator relies on it; others check it). */
    xd_status (*split)(xd_comm *c, int color, int key, int size, xd_comm **out, xd_err *e);
    /* The ranks of c that share my host's memory, in order of their rank. */
    xd_status (*split_host)(xd_comm *c, xd_comm **out, xd_err *e);
    void      (*close)(xd_comm *c);
    /* io f32, f64, i32 or i64, contiguous; every rank gets the same bits. */
    xd_req (*allreduce)(xd_comm *c, xd_tensor io, xd_red op);
    xd_req (*bcast)    (xd_comm *c, xd_tensor io, int root);    /* contiguous                  */
    /* All-gather of rows, uneven: rank r gives rows[r] rows of `in` (rows of equal length, any row
     * stride); `out` has all of them in rank order, contiguous. */
    xd_req (*gather)   (xd_comm *c, xd_tensor out, const int64_t *rows, xd_tensor in);
    /* All-gather round a ring: part[r] is that of rank r, contiguous. Each rank sends to the next one
     * only: its own part first, then each part that comes in but the next rank's own. */
    xd_req (*circulate)(xd_comm *c, const xd_tensor *part);
    /* All-to-all: give[r] goes to rank r, get[r] is filled by it: views of any strides whose last
     * dimension has stride 1; zero elements are legal. My own pair is copied. */
    xd_req (*exchange) (xd_comm *c, const xd_tensor *give, const xd_tensor *get);
    /* The same without a copy where memory is window: get[r] becomes a view of what rank r gives where that lies, which it
     * must not change before it has heard of me again. Else it is filled. `get` is kept until this has ended. */
    xd_req (*exchange_views)     (xd_comm *c, const xd_tensor *give, xd_tensor *get);
    /* Places for what others compute for me: where memory is window get[r] becomes the place in rank r that it gives me, else
     * it stays. No byte is sent. An exchange of what lies in such a place already copies nothing. */
    xd_req (*exchange_places)    (xd_comm *c, const xd_tensor *give, xd_tensor *get);
    xd_req (*send)     (xd_comm *c, xd_tensor t, int to);       /* contiguous                  */
    xd_req (*recv)     (xd_comm *c, xd_tensor t, int from);     /* contiguous                  */
    xd_status (*wait)  (xd_comm *c, xd_req *r, int n);          /* of {0} returns at once       */
    int    (*test)     (xd_comm *c, xd_req *r);                 /* 1: has ended                */
    /* Gives up receives that nobody will answer (after a failure). */
    void   (*drop)     (xd_comm *c, xd_req *r, int n);
    void   (*poke)     (xd_comm *c);            /* lets messages progress                      */
    void   (*barrier)  (xd_comm *c);
    /* Memory that all ranks of a group on one host (split_host) see; collective. It is there: pages
     * are taken at once where the system can do that without killing who finds none. `first` is 1
     * on the rank that should fill it. Freed when `c` is closed. NULL on all ranks: there is none. */
    void  *(*share)    (xd_comm *c, size_t bytes, int *first);
    /* The same of `bytes` for each rank, its own, of a group on one host; collective. What `exchange`
     * finds in there the others copy straight from where it lies, what `show` finds they read there.
     * Near who called, in huge pages as far as there are such. NULL on all ranks: there is none, or
     * one of them asked for 0 bytes. */
    void  *(*window_open)(xd_comm *c, size_t bytes);
    /* 1: p lies in memory that I window_open, and all ranks of c are of my host, so that nothing moves that is shown. */
    int    (*in_window)(xd_comm *c, const void *p);
    void   (*window_close)(xd_comm *c, void *p);      /* when all that it was exchanged for has ended */
    /* Ends all ranks of the world, does not return; says c->err in the log. */
    void   (*abort)    (xd_comm *c, int code);
} xd_comm_ops;

typedef struct xd_traffic {     /* of this rank, over all groups of one world                  */
    int64_t bytes, messages;    /* sent to other ranks                                         */
} xd_traffic;

struct xd_comm {
    const xd_comm_ops *ops;
    int         rank, size;
    xd_traffic *traffic;        /* never NULL                                                  */
    xd_err     *err;            /* the first failure of this world, in a sentence; never NULL  */
    void       *priv;
};

/* "self": one rank. "mpi": joins (and first initialises) MPI; closing the last such world ends MPI
 * when we initialised it, and MPI cannot start again in a process. Close groups before their world.
 * Used by the thread that opened it; while it is open, xd_par_poke lets its messages progress. */
xd_status xd_comm_world(xd_comm **c, const char *kind, xd_err *e);
/* A communicator that sends nothing and counts: rank `rank` of `size`. It follows no address. It
 * cannot ask the others where they stand in a split group, so there `key` must be my rank in the
 * group to come: keys of a color are 0..size-1. */
xd_status xd_comm_count(xd_comm **c, int rank, int size, xd_err *e);
/* Who listens to what a counting communicator would do. */
typedef enum xd_message { XD_SENDS, XD_RECEIVES, XD_MEETS } xd_message;
typedef struct xd_recorder {
    void  *cookie;
    /* Group `id` (0 is the world, then in the order of the calls of split) has `size` ranks of this
     * color, of which I am number `rank`. */
    void (*group)(void *cookie, int id, int color, int rank, int size);
    /* A message begins: `bytes` to or from rank `peer` of the group, or a call of the whole group, in
     * which this rank sends bytes[r] to rank r. Numbers are those of `end`, from 1. */
    void (*begin)(void *cookie, int64_t number, int group, xd_message what, int peer,
                  const int64_t *bytes);
    void (*end)(void *cookie, int64_t number);          /* this rank waits for it               */
} xd_recorder;
/* The same, telling `rec` (borrowed). Splits by host are not told. */
xd_status xd_comm_record(xd_comm **c, int rank, int size, const xd_recorder *rec, xd_err *e);
void      xd_comm_close(xd_comm **c);
/* Was this process started by mpirun, srun or another MPI launcher with more than one rank? */
int       xd_comm_launched(void);
/* Processes that a launcher started, this one among them, as the environment tells; 1: there is no
 * launcher; 0: PMIx, which does not tell. */
int       xd_comm_launch_size(void);
/* Did a launcher start this process, be it alone? Its number there; -1: nobody did. */
int       xd_comm_launch_rank(void);
/* Cores for this rank while a world is open: those it may use, shared fairly with the other ranks
 * of its host; at least 1. `ranks` and `cores` are the host's. */
int       xd_comm_share(int *ranks, int *cores);
/* While a world is open: my number among the ranks of my host, how many they are, and the cpus that all of them
 * together may use. 1: each of them may use all of these; 0: a launcher has given them cpus of their own,
 * or it is not known. */
int       xd_comm_host(int *rank, int *ranks, xd_cpuset *cpus);
/* The MPI library and its version; "MPI: not built in". */
void      xd_comm_about(xd_fact *fact, void *cookie);

#endif
