/* kinds.h - declares functions with which all communicators pack views, split an all-reduce into
 * pieces, compute broadcast trees, and reduce elements.
 *
 * The functions of kinds.h are also used by the communicator that only counts messages, so that it
 * counts the messages that real communicators send. */
#ifndef XD_COMM_KINDS_H
#define XD_COMM_KINDS_H

#include "comm/comm.h"

xd_status xd_comm_self(xd_comm **c, xd_err *e);
/* Opens an MPI world. lent: the program's own MPI_Comm, or NULL. */
xd_status xd_comm_mpi(xd_comm **c, const void *lent, xd_err *e);
void      xd_mpi_about(xd_fact *fact, void *cookie);
/* Implements xd_comm_share; returns 0 if no world is open. */
int       xd_mpi_cores(int *ranks, int *cores);
/* Implements xd_comm_host; returns -1 if no world is open. */
int       xd_mpi_host(int *rank, int *ranks, xd_cpuset *cpus);

/* Return the number of elements (xd_comm_elems) or bytes (xd_comm_bytes) of a view, or 0 if the
 * view is absent. */
int64_t xd_comm_elems(xd_tensor t);
size_t  xd_comm_bytes(xd_tensor t);
/* xd_comm_pack copies the elements of a view, which may have any strides, to contiguous memory;
 * xd_comm_unpack copies them back. The view and the contiguous memory may overlap only if they
 * begin at the same address or the view is contiguous. */
void    xd_comm_pack(void *to, xd_tensor from);
void    xd_comm_unpack(xd_tensor to, const void *from);
/* Copies between views of the same shape and type; returns 0 if shapes or types differ. */
int     xd_comm_copy(xd_tensor to, xd_tensor from);

/* Layout of an all-gather into `out`: xd_gather_row returns the number of bytes of a row, and
 * xd_gather_at returns the index in `out` of the first row of rank r. If r is the number of ranks,
 * xd_gather_at returns the total number of rows. */
size_t  xd_gather_row(xd_tensor out);
int64_t xd_gather_at(const int64_t *rows, int r);

/* In an all-reduce of a small tensor (xd_reduce_direct returns 1), every rank sends all elements to
 * every rank. For larger tensors, rank r reduces one piece of the n elements: those from
 * xd_reduce_piece(n, r, size) to xd_reduce_piece(n, r + 1, size). In the all-reduce of a small and
 * of a larger tensor, values are added in rank order. */
int     xd_reduce_direct(size_t bytes, int size);
int64_t xd_reduce_piece(int64_t n, int r, int size);
/* Reduces n elements: each element of `acc` becomes acc op from, for example their sum. Returns 0
 * for a type that has no reduction. */
int     xd_reduce(void *acc, const void *from, int64_t n, xd_dtype t, xd_red op);

/* Compute the binomial tree of a broadcast. In the tree of a broadcast, a rank is denoted by v, its
 * distance from the root rank (modulo the number of ranks). xd_tree_parent returns the parent of v,
 * or -1 for the root. xd_tree_children writes the children of v, ordered by decreasing size of
 * their subtrees, and returns the number of children, at most 31. */
int xd_tree_parent(int v);
int xd_tree_children(int v, int size, int *child);

#endif
