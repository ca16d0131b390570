/* profile.h - defines a proxy device that measures the time, flops and bytes of each kind of op.
 *
 * Every kernel runs on the real device and is timed, and a count device computes the kernel's flops
 * and bytes. Models and the engine are profiled without any change of their code. Ops of an
 * asynchronous device (a GPU) are timed by events on the device, which xd_profile_collect reads. */
#ifndef XD_OBSERVE_PROFILE_H
#define XD_OBSERVE_PROFILE_H

#include "observe/device_proxy.h"
#include "observe/stamps.h"

typedef struct xd_sample { /* totals of one kind of operation since the last reset */
    double  seconds, flops, bytes;
    int64_t calls;
} xd_sample;

typedef struct xd_profile {
    /* The proxy device: w.dev is passed to models; w.real is borrowed. */
    xd_device_proxy w;
    xd_dev         *count; /* count device, which counts flops and bytes; borrowed */
    xd_sample       op[XD_NOPS];
    xd_stamps       stamps; /* timestamps of ops, if the real device is asynchronous */
} xd_profile;

void        xd_profile_open(xd_profile *p, xd_dev *real, xd_dev *count);
void        xd_profile_close(xd_profile *p);
void        xd_profile_reset(xd_profile *p);
/* If the real device is asynchronous, waits for the device and adds the seconds of its ops to
 * p->op. */
void        xd_profile_collect(xd_profile *p);
const char *xd_op_name(xd_op op); /* returns an op's name, such as "gemm", "attention" */

#endif
