/* machine.h - rates of kernels and links: measured by `xdit probe`, read from a file, or known
 *
 * One rank is one device: a GPU, or the threads of a CPU rank. Rates are those of a rank while all
 * ranks of its host work. */
#ifndef XD_PREDICT_MACHINE_H
#define XD_PREDICT_MACHINE_H

#include <stdio.h>

#include "backend/backend.h"
#include "base/json.h"

typedef struct xd_rates {       /* of one rank in one compute type                             */
    double gemm;                /* flop/s of large GEMMs                                       */
    double gemm_rows;           /* rows at which a GEMM reaches half of that                   */
    double attn[2];             /* flop/s of attention with heads of 64 and 128                */
    double attn_keys;           /* keys at which attention reaches half of that                */
    double conv;                /* flop/s of convolutions                                      */
    double bytes;               /* bytes/s of all other kernels                                */
    double call_s;              /* additional seconds of any kernel call                       */
    /* bytes/s of norms (also per-head), of group norms, of activations; 0: as `bytes`. */
    double norm, gnorm, act;
    double weights;             /* bytes/s of weights that are not in a cache; 0: as `bytes`   */
    double attn_rows;           /* queries at which attention reaches half of its rate         */
    double int8, fp8;           /* speed-up of large GEMMs with such weights; 0: estimated     */
    double fp8_gemm;            /* the same of inputs and weights in e4m3; 0: as fp8           */
} xd_rates;

typedef struct xd_wire {        /* between two ranks                                           */
    double latency_s, bytes;    /* of a message; bytes/s in one direction                      */
    double overlap;             /* share of compute speed that is kept during a message, 0..1  */
    double shared;              /* bytes/s of all ranks of a host together; 0: no limit        */
} xd_wire;

typedef struct xd_machine {
    char     name[XD_FIELD_TEXT];
    int      hosts, ranks;      /* ranks of a host                                             */
    int      threads;           /* of a rank on a CPU; 0: it has a device of its own           */
    double   memory;            /* bytes of a host (CPU) or of a rank's device                 */
    int      shares;            /* ranks of a host share one copy of equal weights             */
    double   alone;            /* how much faster a rank is while the others of its host are idle */
    xd_rates f32, bf16;
    xd_wire  inside, between;   /* ranks of one host, ranks of two                             */
    int      sheet;             /* only data sheets were asked, nothing is fitted or measured   */
    double   read;              /* bytes/s of files that no page cache holds; 0: unknown         */
    /* bytes/s from the host's memory to a device's and back; 0: unknown                         */
    double   upload, download;
    char     device[XD_FIELD_TEXT];     /* "cuda": the kind of the ranks' devices; "": any kind  */
    double   cache;  /* bytes of weights that stay near a rank's cores from call to call */
} xd_machine;

/* Reads a file that xd_machine_write wrote, or recognizes a name: "8xH100", "2x8xL40", "H200". */
xd_status xd_machine_read(xd_machine *m, const char *name, xd_err *e);
/* The machine this process runs on, with this many ranks: as measured by `xdit probe` (the file of
 * xd_machine_home), or from a short measurement of its peak and the share of the peak that kernels
 * and messages usually reach; m->name says which. The disk is as fast as it was measured, with any
 * number of ranks. dev must not be a count device. */
xd_status xd_machine_here(xd_machine *m, xd_dev *dev, int ranks, int threads, xd_err *e);
/* The same of ranks that compute on devices with memories of their own, all given the name `device`
 * ("cuda", "cuda:0"; NULL: dev's kind); dev is this rank's. Where nothing was probed, a device that
 * is known by its name has the rates of the preset, and another one is measured for a moment. */
xd_status xd_machine_of_devices(xd_machine *m, xd_dev *dev, const char *device, int ranks,
                                xd_err *e);
/* Path of the measured machine for this many ranks on this host: below $XDG_CACHE_HOME, or
 * ~/.cache. Returns 0 if there is no such directory or the path is too long. */
int       xd_machine_home(int ranks, int threads, char *path, size_t size);
/* The same of ranks on devices that were all given this name. */
int       xd_machine_device_home(int ranks, const char *device, char *path, size_t size);
/* Adjusts the rates if ranks have more threads than this host has cores: ranks alternate, so each
 * is slower, but alone. */
void      xd_machine_oversubscribe(xd_machine *m);
/* Bytes of this machine's last-level cache for each of so many ranks. */
double    xd_machine_cache(int ranks);
xd_status xd_machine_check(const xd_machine *m, const char *what, xd_err *e);
/* Appends the machine as JSON. */
void      xd_machine_write(const xd_machine *m, xd_text_buf *out);
/* Name of the i-th known device; NULL at the end. */
const char *xd_machine_device(int i);
/* The known device whose name is in a product's, as H100 in "NVIDIA H100 80GB HBM3"; or NULL. */
const char *xd_machine_like(const char *product);
/* Bytes that a request may take of a device with `have` bytes free: less what libraries take. */
double    xd_machine_device_room(const xd_dev *dev, double have);
/* A cluster of known devices: DEVICE, NxDEVICE, or HxNxDEVICE on H hosts; 0: no such device. */
int       xd_machine_known(xd_machine *m, const char *name);

const xd_rates *xd_machine_rates(const xd_machine *m, xd_dtype compute);

/* ---- a device that computes nothing and knows how long it would take ---------------------- */

typedef struct xd_cost_device xd_cost_device;
/* Opens a device in front of a count device (borrowed). It counts there and adds up seconds on
 * this machine (borrowed). type: the model's compute type. */
xd_status xd_cost_device_open(xd_cost_device **r, xd_dev *count, const xd_machine *m, xd_dtype type,
                              xd_err *e);
void      xd_cost_device_close(xd_cost_device **r);
xd_dev   *xd_cost_device_dev(xd_cost_device *r);
/* From now on the calls alternate over this many bytes of weights. */
void      xd_cost_device_weights(xd_cost_device *r, double bytes);
/* Seconds since the last call; `alone`: while the other ranks are idle. */
double    xd_cost_device_lap_s(xd_cost_device *r, int alone);

#endif
