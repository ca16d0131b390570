/* probe.h - shared by the two halves of xdit probe: kernels of a rank, and links between ranks */
#ifndef XD_REPORT_PROBE_H
#define XD_REPORT_PROBE_H

#include "comm/comm.h"
#include "predict/machine.h"

typedef struct xd_prober {
    xd_dev  *dev;
    xd_comm *all, *host;        /* all ranks; those of this host                               */
    int      quiet;             /* the other ranks sleep: no synchronization                   */
    int      apart;             /* the device has a memory of its own, and works by itself     */
    int      slow;              /* it is no hardware: small sizes do                           */
} xd_prober;

/* Rates of a rank while all ranks work: a mean, equal on all ranks. Collective. */
xd_status xd_probe_rates(xd_prober *p, xd_dtype type, xd_rates *r, xd_err *e);
/* Speed-up of rank 0 while the others sleep; equal on all ranks. Collective. */
xd_status xd_probe_alone(xd_prober *p, xd_dtype type, double *times, xd_err *e);
/* Links: within this host, and between hosts if there are several. Collective. */
xd_status xd_probe_wires(xd_prober *p, xd_machine *m, xd_err *e);
/* The same between the devices of ranks, whose communicators are staged (comm/staged.h); and from
 * the host's memory to a device's and back. Collective. */
xd_status xd_probe_device_wires(xd_prober *p, xd_machine *m, xd_err *e);

/* Bytes/s of a file of `bytes` in that directory that the page cache lacks, read as weights are;
 * 0: it could not be measured, and `why` says what hindered. Leaves nothing there. One rank
 * calls. */
double    xd_probe_read(const char *dir, size_t bytes, char *why, size_t size);

/* Mean over all ranks. Collective. */
double    xd_probe_mean(const xd_prober *p, double v);
void      xd_probe_meet(const xd_prober *p);

#endif
