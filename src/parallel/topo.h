/* topo.h - computes the coordinates of ranks on the six axes of parallelism, and makes the groups
 * of ranks along each axis. */
#ifndef XD_PARALLEL_TOPO_H
#define XD_PARALLEL_TOPO_H

#include "comm/comm.h"

typedef enum xd_axis { /* axes of parallelism, beginning with the axis whose ranks exchange the most
                        * messages */
                       XD_TENSOR,
                       XD_ULYSSES,
                       XD_RING,
                       XD_PIPE,
                       XD_CFG,
                       XD_DATA,
                       XD_NAXES
} xd_axis;

/* Number of ranks along each axis; the plan uses as many ranks as the product of these numbers. */
typedef struct xd_degrees { int n[XD_NAXES]; } xd_degrees;

typedef struct xd_topo {
    xd_degrees deg;
    int        at[XD_NAXES]; /* [axis] coordinates of this rank */
    /* [axis]: for each axis, the group of the ranks that differ from this rank only in their
     * coordinate on this axis. This rank's number in the group group[axis] is its coordinate
     * at[axis]. */
    xd_comm   *group[XD_NAXES];
    /* Group of the ranks along the Ulysses and ring axes. The ranks along the Ulysses and ring axes
     * share the tokens of this rank's guidance pass. In the group `tokens`, the number of a rank is
     * at[ULYSSES] + at[RING] * deg[ULYSSES], where `at` are its coordinates and `deg` the
     * degrees. */
    xd_comm   *tokens;
    xd_comm   *replica; /* group of the ranks that compute one image together */
    xd_comm   *world;   /* group of all ranks that the plan uses */
    /* Type, I8 or F8E4M3, to which activations are compressed in messages between hosts; XD_F32:
     * activations are not compressed. */
    xd_dtype   codes;
    int        between[XD_NAXES]; /* [axis] 1: the ranks of group[axis] are on several hosts */
} xd_topo;

int       xd_degrees_product(xd_degrees d);
/* Creates the groups of ranks of `world` (borrowed), whose size is the product of the degrees. All
 * ranks of `world` must call xd_topo_open. Call xd_topo_close also after a failure. */
xd_status xd_topo_open(xd_topo *t, xd_comm *world, xd_degrees deg, xd_err *e);
void      xd_topo_close(xd_topo *t);
/* Finds out which groups of ranks are on several hosts (t->between), and sets t->codes to `codes`.
 * All ranks of the world must call xd_topo_find_hosts. */
xd_status xd_topo_find_hosts(xd_topo *t, xd_dtype codes, xd_err *e);
/* For predictions, in which no other rank exists: sets t->between as if each host had
 * `ranks_per_host` consecutive ranks, and sets t->codes to `codes`. */
void      xd_topo_assume_hosts(xd_topo *t, xd_dtype codes, int ranks_per_host);
/* Returns the type to which activations are compressed in messages along the axis, or XD_F32 if
 * they are not compressed. */
xd_dtype  xd_topo_codes(const xd_topo *t, xd_axis axis);
/* Returns the number of the sequence rank with these Ulysses and ring coordinates. For this rank's
 * own coordinates, the result equals xd_exec.sp. */
int       xd_topo_sp(const xd_topo *t, int ulysses, int ring);

#endif
