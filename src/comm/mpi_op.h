/* mpi_op.h - a job: the messages of one call under way, phase after phase, and its staging.
 *
 * MPI's state is one per process, so are the jobs, their staging and the list of those that have
 * something to do between messages. Everything here is used by the thread that opened MPI. Memory
 * goes back to free lists: a loop that repeats itself allocates nothing after its first turn. */
#ifndef XD_COMM_MPI_OP_H
#define XD_COMM_MPI_OP_H

#include <mpi.h>

#include "comm/comm.h"

typedef struct xd_shm_block xd_shm_block;       /* memory that a group shares (shared.c)               */

typedef struct xd_mpi_world {       /* shared by a world and its groups; freed by its last group   */
    xd_traffic traffic;
    xd_err     err;
    int        users, rank;
    xd_shm_block  *window;            /* memory that ranks of my host see                            */
    int        lost;            /* messages of mine will never be sent: nothing is waited for   */
} xd_mpi_world;

typedef struct xd_mpi_group {
    xd_comm   c;
    MPI_Comm  mpi;
    char     *host;             /* [size] 1: a rank of my host                                 */
    xd_mpi_world *world;
    xd_shm_block *blocks;
    int       seq;              /* collective calls so far: they make the tags                 */
} xd_mpi_group;

typedef struct xd_mpi_staging {       /* a buffer on loan to a job                                   */
    struct xd_mpi_staging *next;
    size_t           cap;
    char            *p;
} xd_mpi_staging;

typedef struct xd_mpi_peer {        /* beside each MPI request                                     */
    int64_t expect;             /* bytes of a receive; -1: a send                              */
    int     peer;
} xd_mpi_peer;

typedef struct xd_mpi_scatter {        /* staging to be laid out when a phase ends                    */
    xd_tensor   to;
    const char *from;
} xd_mpi_scatter;

typedef enum xd_exchange_kind { XD_EXCHANGE_COPY, XD_EXCHANGE_VIEWS, XD_EXCHANGE_PLACES } xd_exchange_kind;    /* exchange, show, offer */
typedef struct xd_zero_copy xd_zero_copy; /* what goes to or comes from a rank of my host (near.c)      */
typedef struct xd_mpi_op xd_mpi_op;
struct xd_mpi_op {
    xd_mpi_op      *next, **at;    /* free list, or list of jobs with something left to do        */
    xd_mpi_group    *g;
    int64_t      serial;
    xd_status    status;
    int          ended, tag;
    MPI_Request *req;
    MPI_Status  *st;
    xd_mpi_peer     *part;
    xd_mpi_scatter     *move;
    int          n, cap, nmove, capmove, nnear;
    xd_zero_copy     *near;          /* staged                                                      */
    xd_exchange_kind     trade;
    void       (*then)(xd_mpi_op *j);      /* posts the next phase; NULL: this is the last        */
    xd_mpi_staging    *stages;
    xd_tensor    io;            /* for `then`                                                  */
    xd_red       op;
    int          root, hop;
    char        *stage;
};

/* A job of a collective call (`collective`: with its own tag) or of the FIFO of a pair. NULL: no
 * memory, recorded. */
xd_mpi_op *xd_mpi_op_begin(xd_comm *c, int collective);
/* Bytes to or from a rank; none are not sent. */
void    xd_mpi_op_send(xd_mpi_op *j, const void *p, size_t bytes, int to);
void    xd_mpi_op_recv(xd_mpi_op *j, void *p, size_t bytes, int from);
void    xd_mpi_op_count(xd_mpi_op *j, size_t bytes, int to);  /* among what was sent               */
void    xd_mpi_op_tell(xd_mpi_op *j, const void *p, size_t bytes, int to);    /* sends, uncounted   */
/* Views of any strides, through staging where it must be. */
void    xd_mpi_op_give(xd_mpi_op *j, xd_tensor t, int to);
void    xd_mpi_op_take(xd_mpi_op *j, xd_tensor t, int from);
char   *xd_mpi_op_stage(xd_mpi_op *j, size_t bytes);          /* NULL: the job has failed            */
void    xd_mpi_op_fail(xd_mpi_op *j, xd_status code, const char *fmt, ...) XD_PRINTF(3, 4);
xd_req  xd_mpi_op_go(xd_mpi_op *j);   /* all of the first phase is posted; j may be NULL             */

xd_status xd_mpi_wait(xd_comm *c, xd_req *r, int n);
int       xd_mpi_test(xd_comm *c, xd_req *r);
void      xd_mpi_drop(xd_comm *c, xd_req *r, int n);
void      xd_mpi_advance(void); /* runs what jobs have to do between their messages            */
void      xd_mpi_idle(int turn);        /* between two looks, the turn-th of a wait            */
void      xd_mpi_forget(void);  /* frees the free lists                                        */
/* Records an MPI failure of a world and says it in the log. Returns XD_ECOMM. */
xd_status xd_mpi_fail(xd_mpi_world *w, int rank, const char *what, int code);

/* Are views handed to this rank, and taken from it, in place? Both find the same. */
int     xd_shares_memory(const xd_comm *c, int rank);
int     xd_all_share_memory(const xd_comm *c);
/* One message of an exchange, which is the job; the last phase is posted by `then`, put after all of these. */
void    xd_zero_copy_give(xd_mpi_op *j, xd_tensor t, int to);
void    xd_zero_copy_take(xd_mpi_op *j, xd_tensor *t, int from);        /* *t changes when it is shown or offered */
void    xd_zero_copy_finish(xd_mpi_op *j);

/* An all-reduce of j->io in pieces, which is the job: where all ranks are near, and by messages. */
void    xd_zero_copy_sum(xd_mpi_op *j);
void    xd_sum_by_messages(xd_mpi_op *j);

/* xd_comm_ops.window_open, in_window and window_close. */
void  *xd_mpi_window_open(xd_comm *c, size_t bytes);
int    xd_mpi_in_window(xd_comm *c, const void *p);
void   xd_mpi_window_close(xd_comm *c, void *p);
/* Where p lies in memory that a rank of my host in_window: the block's number among all of the host, not 0, the offset and
 * whether it is I who in_window it; 0: elsewhere. */
uint64_t xd_window_find(const xd_mpi_world *w, const void *p, int64_t *at, int *mine);
/* The same the other way; NULL: no such block, or it ends before. */
char  *xd_window_address(const xd_mpi_world *w, uint64_t block, int64_t at, int64_t bytes);
/* xd_comm_ops.share, and what frees all of it. */
void  *xd_mpi_share(xd_comm *c, size_t bytes, int *first);
void   xd_mpi_unshare(xd_mpi_group *g);
const xd_cpuset *xd_mpi_cpus(void);     /* that the ranks of this host together may use         */

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
