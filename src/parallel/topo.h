/* topo.h - which rank does what: coordinates on six axes and the groups along them */
#ifndef XD_PARALLEL_TOPO_H
#define XD_PARALLEL_TOPO_H

#include "comm/comm.h"

typedef enum xd_axis {          /* innermost - chattiest - first                               */
    XD_TENSOR, XD_ULYSSES, XD_RING, XD_PIPE, XD_CFG, XD_DATA, XD_NAXES
} xd_axis;

typedef struct xd_degrees { int n[XD_NAXES]; } xd_degrees;      /* product = ranks             */

typedef struct xd_topo {
    xd_degrees deg;
    int        at[XD_NAXES];    /* my coordinates: the digits of my rank in mixed radix         */
    xd_comm   *group[XD_NAXES]; /* my line along each axis                                      */
    xd_comm   *world;           /* borrowed                                                     */
} xd_topo;

/* Collective. XD_EINVAL unless the product of the degrees is the size of the world. Closed with
 * xd_topo_close also after a failure. */
xd_status xd_topo_open(xd_topo *t, xd_comm *world, xd_degrees deg, xd_err *e);
void      xd_topo_close(xd_topo *t);

#endif
