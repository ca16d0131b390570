/* profile.h - a device that times another one, op by op
 *
 * It is a proxy in front of a real device. Every kernel runs on the real device and is timed; a
 * count device reports its flops and bytes. Models and the engine need no change. A device that
 * works on its own is not waited for: its own times are read by xd_profile_collect. */
#ifndef XD_OBSERVE_PROFILE_H
#define XD_OBSERVE_PROFILE_H

#include "observe/device_proxy.h"
#include "observe/stamps.h"

typedef struct xd_sample {      /* of one kind of op since the last reset                      */
    double  seconds, flops, bytes;
    int64_t calls;
} xd_sample;

typedef struct xd_profile {
    xd_device_proxy w;          /* w.dev is passed to models; w.real is borrowed               */
    xd_dev   *count;            /* borrowed                                                    */
    xd_sample op[XD_NOPS];
    xd_stamps stamps;           /* of a device that works on its own                           */
} xd_profile;

void xd_profile_open(xd_profile *p, xd_dev *real, xd_dev *count);
void xd_profile_close(xd_profile *p);
void xd_profile_reset(xd_profile *p);
/* Waits for the device and adds the seconds of ops that it has timed itself. */
void xd_profile_collect(xd_profile *p);
const char *xd_op_name(xd_op op);       /* "gemm", "attention"                                  */

#endif
