/* late.h - additions to the hidden state that are fused into the next norm
 *
 * A block adds to its hidden state and then norms it: h += gate y, norm(h). If the device has
 * xd_dev.norm_adds, xd_linear_add only writes y, and the next norm does the addition, reading and
 * writing h once. Until then h is outdated. Any other op that may access its rows first performs
 * the pending additions (xd_late_before, called by xd_run), and xd_late_close performs all of them:
 * between xd_late_open and xd_late_close only ops may access h. */
#ifndef XD_EXEC_LATE_H
#define XD_EXEC_LATE_H

#include "exec/exec.h"

enum { XD_LATE_MOST = 8 };      /* max pending additions, to disjoint rows                     */

typedef struct xd_late {
    xd_tensor h;                /* F32                                                         */
    xd_tensor y, gates;         /* rows like those of h; one gate per addition                 */
    xd_addmul of[XD_LATE_MOST];
    int       n;
} xd_late;

/* Allocates from the arena, valid until xd_late_close. */
void xd_late_open(xd_exec *x, xd_late *l, xd_tensor h);
void xd_late_close(xd_exec *x);
/* Returns where to write a GEMM result that is to be added to `acc`; absent: add it at once. */
xd_tensor xd_late_room(xd_exec *x, xd_tensor acc);
/* Records acc += gate * y, with y from xd_late_room. gate must be valid until the end of the
 * block. */
void xd_late_add(xd_exec *x, xd_tensor acc, xd_tensor gate, xd_tensor y);
/* Sets add and gate of a norm whose rows have a pending addition. */
void xd_late_take(xd_exec *x, xd_norm *a);
/* Performs the pending additions to rows that `op` may access. */
void xd_late_before(xd_exec *x, xd_op op, const void *args);
/* Call before the arena is rewound to `mark`: keeps pending data beyond it. */
void xd_late_keep(xd_exec *x, size_t mark);

#endif
