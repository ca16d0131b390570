/* machine.h - how fast ranks compute and speak: measured by `xdit probe`, read from a file, or known
 *
 * One rank is one device: a GPU, or the threads that a CPU rank has. Rates are those of a rank while
 * all ranks of its host work. */
#ifndef XD_PREDICT_MACHINE_H
#define XD_PREDICT_MACHINE_H

#include <stdio.h>

#include "backend/backend.h"
#include "base/json.h"

typedef struct xd_rates {       /* of one rank in one compute type                             */
    double gemm;                /* flop/s of large GEMMs                             */
    double gemm_rows;           /* rows at which a product reaches half of that                */
    double attn[2];             /* flop/s of attention with heads of 64 and 128                */
    double attn_keys;           /* keys at which it reaches half of that                       */
    double conv;                /* flop/s of convolutions                                      */
    double bytes;               /* bytes/s of everything else                                  */
    double call_s;              /* seconds that any call of a kernel takes besides             */
    double norm, gnorm, act;    /* bytes/s of norms (heads' too), of group norms, of activations; 0: as `bytes` */
    double weights;             /* bytes/s of weights that no cache holds; 0: as `bytes`          */
    double attn_rows;           /* queries at which attention reaches half of its rate         */
    double int8, fp8;           /* how much faster large products with such weights are; 0: guessed  */
} xd_rates;

typedef struct xd_wire {        /* between two ranks                                           */
    double latency_s, bytes;    /* of a message; bytes/s of one direction                      */
    double overlap;             /* of computing beside a message: the share that is not lost, 0..1 */
    double shared;              /* bytes/s that all ranks of a host together reach; 0: no less  */
} xd_wire;

typedef struct xd_machine {
    char     name[XD_FIELD_TEXT];
    int      hosts, ranks;      /* ranks of a host                                             */
    int      threads;           /* of a rank on a CPU; 0: a device of its own                   */
    double   memory;            /* bytes of a host (CPU) or of a rank's device                  */
    int      shares;            /* ranks of a host hold one copy of equal weights               */
    double   alone;             /* how much faster a rank is while the others of its host rest    */
    xd_rates f32, bf16;
    xd_wire  inside, between;   /* ranks of one host, ranks of two                             */
    int      sheet;             /* only data sheets were asked, nothing is fitted or measured   */
    double   cache;             /* bytes of weights that stay near a rank's cores from call to call */
} xd_machine;

/* Reads a file as xd_machine_write makes it, or knows a name: "8xH100", "2x8xL40", "H200". */
xd_status xd_machine_read(xd_machine *m, const char *name, xd_err *e);
/* The machine this process runs on, with so many ranks: as `xdit probe` has measured it (the file of
 * xd_machine_home), or from a short measurement of its peak and what share of it kernels and messages of
 * ours usually reach; m->name says which. dev is not one that counts. */
xd_status xd_machine_here(xd_machine *m, xd_dev *dev, int ranks, int threads, xd_err *e);
/* Where the measured machine of so many ranks on this host is: below $XDG_CACHE_HOME, or ~/.cache. 0: there is
 * no such place, or it is too long a name. */
int       xd_machine_home(int ranks, int threads, char *path, size_t size);
/* Ranks with more threads than this host has cores take turns: slower, but alone. */
void      xd_machine_oversubscribe(xd_machine *m);
/* Of this machine's last-level cache, bytes for each of so many ranks. */
double    xd_machine_cache(int ranks);
xd_status xd_machine_check(const xd_machine *m, const char *what, xd_err *e);
/* As JSON; appended to the text. */
void      xd_machine_write(const xd_machine *m, xd_text_buf *out);
/* Names of the devices that are known, one after the other; NULL at the end. */
const char *xd_machine_device(int i);
/* A cluster of them: DEVICE, NxDEVICE, or HxNxDEVICE on H hosts; 0: there is no such device. */
int       xd_machine_known(xd_machine *m, const char *name);

const xd_rates *xd_machine_rates(const xd_machine *m, xd_dtype compute);

/* ---- a device that computes nothing and knows how long it would take --------------------------- */

typedef struct xd_cost_device xd_cost_device;
/* In front of a count device (borrowed): counts there, and adds seconds of this machine (borrowed).
 * type: what the model computes in. */
xd_status xd_cost_device_open(xd_cost_device **r, xd_dev *count, const xd_machine *m, xd_dtype type,
                           xd_err *e);
void      xd_cost_device_close(xd_cost_device **r);
xd_dev   *xd_cost_device_dev(xd_cost_device *r);
/* The calls from now on take turns with so many bytes of weights. */
void      xd_cost_device_weights(xd_cost_device *r, double bytes);
/* Seconds since the last call; `alone`: while the other ranks rest. */
double    xd_cost_device_lap_s(xd_cost_device *r, int alone);

#endif
