/* topo.h - which rank does what: coordinates on six axes and the groups along them */
#ifndef XD_PARALLEL_TOPO_H
#define XD_PARALLEL_TOPO_H

#include "comm/comm.h"

typedef enum xd_axis {          /* innermost - chattiest - first                               */
    XD_TENSOR, XD_ULYSSES, XD_RING, XD_PIPE, XD_CFG, XD_DATA, XD_NAXES
} xd_axis;

typedef struct xd_degrees { int n[XD_NAXES]; } xd_degrees;      /* product = ranks in use       */

typedef struct xd_topo {
    xd_degrees deg;
    int        at[XD_NAXES];    /* my coordinates: the digits of my rank in mixed radix         */
    xd_comm   *group[XD_NAXES]; /* my line along each axis; my rank in it is at[]               */
    xd_comm   *tokens;          /* ulysses x ring: all that hold tokens of my pass; my rank in it
                                   is at[ULYSSES] + at[RING] * deg[ULYSSES]                     */
    xd_comm   *replica;         /* everybody who works on my image                              */
    xd_comm   *world;           /* the ranks in use                                             */
} xd_topo;

int xd_degrees_product(xd_degrees d);
/* Collective over `world`, whose size is the product. Closed with xd_topo_close also after a
 * failure; `world` is borrowed. */
xd_status xd_topo_open(xd_topo *t, xd_comm *world, xd_degrees deg, xd_err *e);
void      xd_topo_close(xd_topo *t);
/* Index of my share of the tokens (x->sp), and of another member of my groups. */
int xd_topo_sp(const xd_topo *t, int ulysses, int ring);

#endif
