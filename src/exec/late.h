/* late.h - delays additions to the hidden state, so that the next norm performs them in the same
 * kernel.
 *
 * A block of a transformer adds to its hidden state h and then normalizes it: h += gate y, norm(h).
 * If xd_dev.norm_adds is set, xd_linear_add only writes y, and the next norm performs the addition,
 * so that h is read and written only once. Until the next norm, h lacks the delayed addition.
 * Before any operation other than a norm that may access the affected rows of h, xd_run calls
 * xd_late_before, which performs the pending additions. xd_late_close performs the additions that
 * are still pending. Because additions are delayed, only operations of op.h may access h between
 * xd_late_open and xd_late_close. */
#ifndef XD_EXEC_LATE_H
#define XD_EXEC_LATE_H

#include "exec/exec.h"

/* XD_LATE_MOST: maximum number of pending additions, no two of which change the same row. */
enum { XD_LATE_MOST = 8 };

typedef struct xd_late {
    xd_tensor h; /* the hidden state, F32 */
    /* y: memory for the values that will be added to h, with as many rows as h. gates: memory for
     * the gate of each pending addition. */
    xd_tensor y, gates;
    xd_addmul of[XD_LATE_MOST];
    int       n;
} xd_late;

/* xd_late_open begins to delay additions to h, with scratch memory from the arena until
 * xd_late_close. */
void      xd_late_open(xd_exec *x, xd_late *l, xd_tensor h);
void      xd_late_close(xd_exec *x);
/* Returns the tensor to which a GEMM writes its result if the addition of the result to `acc` can
 * be delayed. If the addition cannot be delayed, returns an absent tensor, and the GEMM must add
 * the result to `acc` at once. */
xd_tensor xd_late_room(xd_exec *x, xd_tensor acc);
/* Records the delayed addition acc += gate * y, where xd_late_room has returned y. `gate` must stay
 * valid until the transformer block ends. */
void      xd_late_add(xd_exec *x, xd_tensor acc, xd_tensor gate, xd_tensor y);
/* If an addition to the input rows of norm `a` is pending, makes the norm perform it, by setting
 * a->add and a->gate. */
void      xd_late_take(xd_exec *x, xd_norm *a);
/* Performs the pending additions to those rows of the hidden state h that `op` may access. */
void      xd_late_before(xd_exec *x, xd_op op, const void *args);
/* Moves the gates of pending additions out of the arena memory that was allocated after `mark`.
 * Call xd_late_keep before the arena is rewound to `mark`, because this frees the memory after
 * `mark`. */
void      xd_late_keep(xd_exec *x, size_t mark);

#endif
