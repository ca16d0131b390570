/* topo.h - ranks as coordinates on six axes, and the groups along them */
#ifndef XD_PARALLEL_TOPO_H
#define XD_PARALLEL_TOPO_H

#include "comm/comm.h"

typedef enum xd_axis {          /* innermost first: it has the most messages                   */
    XD_TENSOR, XD_ULYSSES, XD_RING, XD_PIPE, XD_CFG, XD_DATA, XD_NAXES
} xd_axis;

typedef struct xd_degrees { int n[XD_NAXES]; } xd_degrees;      /* product: ranks in use        */

typedef struct xd_topo {
    xd_degrees deg;
    int        at[XD_NAXES];    /* coordinates: own rank in mixed radix                         */
    xd_comm   *group[XD_NAXES]; /* ranks that differ on one axis only; own rank in it: at[]      */
    xd_comm   *tokens;          /* ulysses x ring: ranks with tokens of this pass; own rank is
                                   at[ULYSSES] + at[RING] * deg[ULYSSES]                     */
    xd_comm   *replica;         /* ranks that work on one image                                 */
    xd_comm   *world;           /* the ranks in use                                             */
} xd_topo;

int xd_degrees_product(xd_degrees d);
/* Creates the groups of `world` (borrowed), whose size is the product of the degrees. Collective.
 * Close with xd_topo_close, also after a failure. */
xd_status xd_topo_open(xd_topo *t, xd_comm *world, xd_degrees deg, xd_err *e);
void      xd_topo_close(xd_topo *t);
/* Returns the sequence rank at these coordinates; at this rank's own coordinates it is x->sp. */
int xd_topo_sp(const xd_topo *t, int ulysses, int ring);

#endif
