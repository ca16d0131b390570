/* comm.h - groups of ranks and the messages between them.
 *
 * The only view of MPI and NCCL. One kind exists so far: "self", one rank, every message
 * trivial. Calls that involve a group are collective over it. */
#ifndef XD_COMM_COMM_H
#define XD_COMM_COMM_H

#include "base/err.h"
#include "tensor/tensor.h"

typedef struct xd_comm xd_comm;
typedef enum xd_red { XD_SUM, XD_MAX, XD_MIN } xd_red;
typedef struct xd_req { void *p; int64_t tag; } xd_req;

typedef struct xd_comm_ops {
    const char *name;                           /* "self", "mpi", "nccl", "count"             */
    xd_status (*split)(xd_comm *c, int color, int key, xd_comm **out, xd_err *e);
    void      (*close)(xd_comm *c);
    xd_req (*allreduce)(xd_comm *c, xd_tensor io, xd_red op);
    xd_req (*bcast)    (xd_comm *c, xd_tensor io, int root);
    /* All-gather of rows, uneven: rows[r] rows of rank r, in rank order. */
    xd_req (*gather)   (xd_comm *c, xd_tensor out, const int64_t *rows, xd_tensor in);
    /* All-to-all: to[r] goes to rank r, from[r] is filled by it; views of any strides. */
    xd_req (*exchange) (xd_comm *c, const xd_tensor *from, const xd_tensor *to);
    xd_req (*send)     (xd_comm *c, xd_tensor t, int to);       /* one FIFO per pair           */
    xd_req (*recv)     (xd_comm *c, xd_tensor t, int from);
    xd_status (*wait)  (xd_comm *c, xd_req *r, int n);
    void   (*poke)     (xd_comm *c);            /* lets messages progress                      */
} xd_comm_ops;

struct xd_comm { const xd_comm_ops *ops; int rank, size; void *priv; };

xd_status xd_comm_world(xd_comm **c, const char *kind, xd_err *e);
void      xd_comm_close(xd_comm **c);

#endif
