/* machine.h - rates of kernels and links: measured by `xdit probe`, read from a file, or built in
 *
 * One rank is one device: a GPU, or the threads of a CPU rank. Rates are those of a rank while all
 * ranks of its host compute. */
#ifndef XD_PREDICT_MACHINE_H
#define XD_PREDICT_MACHINE_H

#include <stdio.h>

#include "backend/backend.h"
#include "base/json.h"

typedef struct xd_rates {       /* of one rank in one compute type                             */
    double gemm;                /* flop/s of large GEMMs                                       */
    double gemm_rows;           /* rows at which a GEMM reaches half of `gemm`                 */
    double attn[2];             /* flop/s of attention with head widths 64 and 128             */
    double attn_keys;           /* keys at which attention reaches half of `attn`              */
    double conv;                /* flop/s of convolutions                                      */
    double bytes;               /* bytes/s of all other kernels                                */
    double call_s;              /* overhead of a kernel call in seconds                        */
    /* bytes/s of norms (also per head), of group norms, of activations; 0: as `bytes`. */
    double norm, gnorm, act;
    double weights;             /* bytes/s of weights outside a cache; 0: as `bytes`           */
    double attn_rows;           /* queries at which attention reaches half of `attn`           */
    double int8, fp8;           /* speed-up of large GEMMs with these weights; 0: estimated    */
    double fp8_gemm;            /* speed-up with inputs and weights in e4m3; 0: as fp8         */
} xd_rates;

typedef struct xd_wire {        /* link between two ranks                                      */
    double latency_s, bytes;    /* of a message; bytes/s in one direction                      */
    double overlap;             /* fraction of compute speed during a message, 0..1            */
    double shared;              /* bytes/s summed over the ranks of a host; 0: no limit        */
} xd_wire;

typedef struct xd_machine {
    char     name[XD_FIELD_TEXT];
    int      hosts, ranks;      /* hosts; ranks per host                                       */
    int      threads;           /* threads of a CPU rank; 0: one device per rank               */
    double   memory;            /* bytes per host (CPU) or per device                          */
    int      shares;            /* ranks of a host share one copy of equal weights             */
    double   alone;            /* speed-up of a rank while the other ranks of its host idle       */
    xd_rates f32, bf16;
    xd_wire  inside, between;   /* links inside a host; between hosts                          */
    int      sheet;             /* values of data sheets only, nothing measured                 */
    double   read;              /* bytes/s of files outside the page cache; 0: unknown           */
    /* bytes/s from host memory to device memory, and back; 0: unknown                           */
    double   upload, download;
    char     device[XD_FIELD_TEXT];     /* kind of the devices, e.g. "cuda"; "": any kind        */
    double   cache;  /* bytes of weights that a rank's caches keep between calls         */
} xd_machine;

/* Reads a file written by xd_machine_write, or resolves a name: "8xH100", "2x8xL40", "H200". */
xd_status xd_machine_read(xd_machine *m, const char *name, xd_err *e);
/* The machine of this process with this many ranks: the measurement of `xdit probe` (the file of
 * xd_machine_home), else a short measurement of its peak times the usual efficiency of kernels and
 * messages; m->name tells which. The disk speed is the measured one for any number of ranks. dev
 * must not be a count device. */
xd_status xd_machine_here(xd_machine *m, xd_dev *dev, int ranks, int threads, xd_err *e);
/* As xd_machine_here for ranks on devices with their own memory, all named `device` ("cuda",
 * "cuda:0"; NULL: dev's kind); dev is this rank's. Without a probe, a known device gets the rates
 * of its preset, and an unknown one is measured briefly. */
xd_status xd_machine_of_devices(xd_machine *m, xd_dev *dev, const char *device, int ranks,
                                xd_err *e);
/* Path of the measured machine for this many ranks on this host, below $XDG_CACHE_HOME or ~/.cache.
 * Returns 0 if there is no such directory or the path is too long. */
int       xd_machine_home(int ranks, int threads, char *path, size_t size);
/* As xd_machine_home for ranks on devices of this name. */
int       xd_machine_device_home(int ranks, const char *device, char *path, size_t size);
/* Adjusts the rates if ranks have more threads than this host has cores: ranks then share cores,
 * and each is slower except alone. */
void      xd_machine_oversubscribe(xd_machine *m);
/* Returns the bytes of this machine's last-level cache per rank. */
double    xd_machine_cache(int ranks);
xd_status xd_machine_check(const xd_machine *m, const char *what, xd_err *e);
/* Appends the machine as JSON. */
void      xd_machine_write(const xd_machine *m, xd_text_buf *out);
/* Returns the name of the i-th known device; NULL at the end. */
const char *xd_machine_device(int i);
/* Returns the known device that a product name contains, as H100 in "NVIDIA H100 80GB HBM3"; or
 * NULL. */
const char *xd_machine_like(const char *product);
/* Returns the bytes that a request may use out of `have` free bytes of a device, without those that
 * libraries use. */
double    xd_machine_device_room(const xd_dev *dev, double have);
/* Fills *m with a cluster of known devices: DEVICE, NxDEVICE, or HxNxDEVICE on H hosts. Returns 0
 * if the device is unknown. */
int       xd_machine_known(xd_machine *m, const char *name);

const xd_rates *xd_machine_rates(const xd_machine *m, xd_dtype compute);

/* ---- a device that predicts times and computes nothing ---------------------- */

typedef struct xd_cost_device xd_cost_device;
/* Opens a device that forwards to a count device (borrowed) and sums the predicted seconds on this
 * machine (borrowed). type: the model's compute type. */
xd_status xd_cost_device_open(xd_cost_device **r, xd_dev *count, const xd_machine *m, xd_dtype type,
                              xd_err *e);
void      xd_cost_device_close(xd_cost_device **r);
xd_dev   *xd_cost_device_dev(xd_cost_device *r);
/* Sets the bytes of weights that later calls cycle through (for the cache model). */
void      xd_cost_device_weights(xd_cost_device *r, double bytes);
/* Returns the predicted seconds since the last lap; `alone`: with all other ranks idle. */
double    xd_cost_device_lap_s(xd_cost_device *r, int alone);

#endif
