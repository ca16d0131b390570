/* late.h - additions to the hidden state that the next norm of it does
 *
 * A block adds to its hidden state and then norms it: h += gate y, norm(h). Where the device has
 * xd_dev.norm_adds, xd_linear_add writes y and leaves the addition to that norm, which then reads
 * and writes h once. Until then h is behind. Every other op that might touch its rows settles first
 * (xd_late_before, which xd_run calls), and xd_late_close settles all: between xd_late_open and
 * xd_late_close only ops may touch h. */
#ifndef XD_EXEC_LATE_H
#define XD_EXEC_LATE_H

#include "exec/exec.h"

enum { XD_LATE_MOST = 8 };      /* additions to rows of their own                              */

typedef struct xd_late {
    xd_tensor h;                /* F32                                                         */
    xd_tensor y, gates;         /* rows as those of h, and a gate for each addition            */
    xd_addmul of[XD_LATE_MOST];
    int       n;
} xd_late;

/* Takes memory from the arena; it serves until xd_late_close. */
void xd_late_open(xd_exec *x, xd_late *l, xd_tensor h);
void xd_late_close(xd_exec *x);
/* Where the product that is to be added to `acc` goes; absent: it cannot wait. */
xd_tensor xd_late_room(xd_exec *x, xd_tensor acc);
/* acc += gate * y, y being that room. gate stays until the end of the block. */
void xd_late_add(xd_exec *x, xd_tensor acc, xd_tensor gate, xd_tensor y);
/* Sets add and gate of a norm of rows to which something is to be added. */
void xd_late_take(xd_exec *x, xd_norm *a);
/* Settles what `op` may see. */
void xd_late_before(xd_exec *x, xd_op op, const void *args);
/* The arena is about to be rewound to `mark`: keeps what lies behind it. */
void xd_late_keep(xd_exec *x, size_t mark);

#endif
