/* probe.h - what the two halves of xdit probe share: kernels of a rank, and links between ranks */
#ifndef XD_REPORT_PROBE_H
#define XD_REPORT_PROBE_H

#include "comm/comm.h"
#include "predict/machine.h"

typedef struct xd_prober {
    xd_dev  *dev;
    xd_comm *all, *host;        /* every rank; those of my host                                 */
    int      quiet;             /* the others rest: nobody is waited for                        */
} xd_prober;

/* Rates of a rank while all work, the same on all ranks: a mean. Collective. */
xd_status xd_probe_rates(xd_prober *p, xd_dtype type, xd_rates *r, xd_err *e);
/* How much faster rank 0 is while the others sleep; the same on all ranks. Collective. */
xd_status xd_probe_alone(xd_prober *p, xd_dtype type, double *times, xd_err *e);
/* Links: of my host, and between hosts where there are several. Collective. */
xd_status xd_probe_wires(xd_prober *p, xd_machine *m, xd_err *e);

/* Mean over all ranks. Collective. */
double    xd_probe_mean(const xd_prober *p, double v);
void      xd_probe_meet(const xd_prober *p);

#endif
