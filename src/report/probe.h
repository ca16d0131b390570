/* probe.h - declares the functions of `xdit probe`, which measure the kernels of a rank and the
 * links between ranks. */
#ifndef XD_REPORT_PROBE_H
#define XD_REPORT_PROBE_H

#include "comm/comm.h"
#include "predict/machine.h"

typedef struct xd_prober {
    xd_dev  *dev;
    xd_comm *all, *host; /* communicators of all ranks, and of the ranks of this host */
    int      quiet;      /* 1: the other ranks sleep, so that no messages can be sent to them */
    int      apart;      /* 1: the device is asynchronous and has its own memory */
    int      slow;       /* 1: the GPU is simulated, so small sizes are measured */
} xd_prober;

/* Measures the kernel rates of each rank while all ranks work. The measured rates are means over
 * the ranks, equal on all ranks. The call is collective. */
xd_status xd_probe_rates(xd_prober *p, xd_dtype type, xd_rates *r, xd_err *e);
/* Measures by which factor rank 0 computes faster while the other ranks sleep, and returns this
 * factor on all ranks. The call is collective. */
xd_status xd_probe_alone(xd_prober *p, xd_dtype type, double *times, xd_err *e);
/* Measures the links between ranks: within this host and, if there are several hosts, between
 * hosts. The call is collective. */
xd_status xd_probe_wires(xd_prober *p, xd_machine *m, xd_err *e);
/* Measures the links between the devices of different ranks. Messages between devices are copied
 * through host memory (comm/staged.h). xd_probe_device_wires also measures copies from host memory
 * to device memory and back. The call is collective. */
xd_status xd_probe_device_wires(xd_prober *p, xd_machine *m, xd_err *e);

/* Measures the rate in bytes/s of reading a file that is not in the page cache, with the functions
 * that read weights. For the measurement, writes a file of `bytes` bytes to directory `dir` and
 * removes the file. Returns 0 if the rate cannot be measured, with the reason in `why`. Call
 * xd_probe_read on one rank only. */
double xd_probe_read(const char *dir, size_t bytes, char *why, size_t size);

/* Returns the mean of v over all ranks. The call is collective. */
double xd_probe_mean(const xd_prober *p, double v);
void   xd_probe_meet(const xd_prober *p);

#endif
