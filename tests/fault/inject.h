/* inject.h - faults at the n-th call of a seam, for tests only.
 *
 * inject.c stands in front of functions that the linker hands it (--wrap): the product has no trace
 * of it. A seam counts its calls; at call n, from 1, of the chosen one the fault happens. */
#ifndef XD_TESTS_INJECT_H
#define XD_TESTS_INJECT_H

#include <stdint.h>

typedef enum fault_seam {
    FAULT_HOST,   /* malloc, calloc, realloc outside of messages: NULL */
    FAULT_MSGMEM, /* the same inside a call of a communicator */
    FAULT_DEVICE, /* memory of the device: NULL */
    FAULT_OP,     /* a kernel: XD_EDEVICE */
    FAULT_READ,   /* a tensor of a weight file: XD_EIO */
    FAULT_SEND,
    FAULT_RECV, /* posting a message: an MPI error */
    FAULT_TEST, /* completing one: an MPI error */
    FAULT_SYNC, /* fsync of an output file: EIO */
    FAULT_LINK, /* linkat of an output file: EPERM */
    FAULT_SEAMS
} fault_seam;

typedef enum fault_kind {
    FAULT_FAIL,  /* that call fails */
    FAULT_FAILS, /* it and all that follow */
    FAULT_KILL,
    FAULT_SEGV,
    FAULT_EXIT,  /* this process ends */
    FAULT_CANCEL /* calls fault_cancel, and the call goes on */
} fault_kind;

void        fault_set(fault_seam seam, int64_t n, fault_kind kind); /* counts start at 0 */
void        fault_clear(void);
int64_t     fault_count(fault_seam seam); /* calls since fault_set or fault_clear */
int         fault_hit(void);              /* has it happened? */
extern void (*fault_cancel)(void);
const char *fault_name(fault_seam seam);

#endif
