/* probe.h - shared parts of xdit probe: kernels of a rank, and links between ranks */
#ifndef XD_REPORT_PROBE_H
#define XD_REPORT_PROBE_H

#include "comm/comm.h"
#include "predict/machine.h"

typedef struct xd_prober {
    xd_dev  *dev;
    xd_comm *all, *host;        /* all ranks; ranks of this host                               */
    int      quiet;             /* 1: the other ranks sleep, no synchronization                */
    int      apart;             /* 1: device with its own memory, asynchronous                 */
    int      slow;              /* 1: simulated hardware, use small sizes                      */
} xd_prober;

/* Measures the rates of a rank while all ranks work: a mean, equal on all ranks. Collective. */
xd_status xd_probe_rates(xd_prober *p, xd_dtype type, xd_rates *r, xd_err *e);
/* Measures the speed-up of rank 0 while the others sleep; equal on all ranks. Collective. */
xd_status xd_probe_alone(xd_prober *p, xd_dtype type, double *times, xd_err *e);
/* Measures links: within this host, and between hosts if there are several. Collective. */
xd_status xd_probe_wires(xd_prober *p, xd_machine *m, xd_err *e);
/* As xd_probe_wires between the devices of ranks, whose communicators are staged (comm/staged.h);
 * also measures copies from host memory to device memory and back. Collective. */
xd_status xd_probe_device_wires(xd_prober *p, xd_machine *m, xd_err *e);

/* Returns the bytes/s of reading a file of `bytes` in directory `dir` outside the page cache, as
 * weights are read; 0: not measurable, with the reason in `why`. Removes the file. Called by one
 * rank. */
double    xd_probe_read(const char *dir, size_t bytes, char *why, size_t size);

/* Returns the mean of v over all ranks. Collective. */
double    xd_probe_mean(const xd_prober *p, double v);
void      xd_probe_meet(const xd_prober *p);

#endif
