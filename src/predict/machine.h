/* machine.h - describes a machine for predictions by the rates of its kernels and links, which are
 * measured by `xdit probe`, read from a file, or built in.
 *
 * One rank computes on one device: a GPU, or the threads of a CPU rank. All rates are rates of one
 * rank, measured while all ranks of its host compute. */
#ifndef XD_PREDICT_MACHINE_H
#define XD_PREDICT_MACHINE_H

#include <stdio.h>

#include "backend/backend.h"
#include "base/json.h"

typedef struct xd_rates { /* rates of the kernels of one rank in one compute type */
    double gemm;          /* flop/s of large GEMMs */
    double gemm_rows;     /* number of rows for which a GEMM reaches half the rate `gemm` */
    double attn[2];       /* flop/s of attention with head widths 64 and 128 */
    double attn_keys;     /* number of keys for which attention reaches half the rate `attn` */
    double conv;          /* flop/s of convolutions */
    /* rate in bytes/s of kernels other than GEMM, attention and convolution */
    double bytes;
    double call_s; /* overhead of one kernel call in seconds */
    /* Rates in bytes/s of three kinds of kernels: norms (including norms of attention heads), group
     * norms, and activation functions. If the rate of a kind of kernels is 0, the rate `bytes` is
     * used for these kernels. */
    double norm, gnorm, act;
    /* rate in bytes/s of reading weights that are not in a CPU cache; 0: the rate `bytes`. */
    double weights;
    double attn_rows; /* number of queries for which attention reaches half the rate `attn` */
    /* Speedup of GEMMs with int8 weights, and of GEMMs with fp8 weights, over GEMMs with weights of
     * the compute type. 0: the speedup is estimated. */
    double int8, fp8;
    /* Speedup of GEMMs whose inputs and weights are both e4m3. 0: the speedup `fp8` is used. */
    double fp8_gemm;
    /* flop/s of convolutions over several frames; 0: the rate `conv` is used */
    double conv_3d;
    double conv_rows; /* number of output rows for which a convolution reaches half its rate */
} xd_rates;

typedef struct xd_wire {     /* communication link between two ranks */
    double latency_s, bytes; /* latency of a message in seconds; rate in bytes/s in one direction */
    /* Speed of a rank's computation while a message arrives, as a fraction (0 to 1) of the full
     * speed. */
    double overlap;
    double shared; /* maximum rate in bytes/s of all ranks of a host together; 0: no limit */
} xd_wire;

typedef struct xd_machine {
    char     name[XD_FIELD_TEXT];
    int      hosts, ranks; /* number of hosts; number of ranks per host */
    int      threads;      /* threads of a CPU rank; 0: each rank has a device */
    double   memory;       /* bytes of memory per host (CPU) or per device */
    int      shares;       /* 1: ranks of a host share one copy of equal weights */
    /* factor by which a rank computes faster while the other ranks of its host are idle */
    double   alone;
    xd_rates f32, bf16;
    /* inside: links between ranks of one host; between: links between hosts */
    xd_wire  inside, between;
    int      sheet; /* 1: all rates are from data sheets, and none was measured */
    double   read;  /* bytes/s of reading files outside the page cache; 0: unknown */
    /* rates in bytes/s of copies from host memory to device memory (upload), and back (download);
     * 0: unknown. */
    double   upload, download;
    char     device[XD_FIELD_TEXT]; /* kind of the devices, for example "cuda"; "": any kind */
    double   cache;                 /* bytes of weights that stay in the CPU caches of a rank */
} xd_machine;

/* Reads the description of a machine from a file that xd_machine_write has written, or makes a
 * description from a name such as "8xH100", "2x8xL40" or "H200". */
xd_status   xd_machine_read(xd_machine *m, const char *name, xd_err *e);
/* Describes the machine on which this process runs, for `ranks` ranks. The description is read from
 * the result of `xdit probe` (the file of xd_machine_home). If `xdit probe` was not run on this
 * machine, xd_machine_here briefly measures the machine's peak FLOP rate, and estimates the FLOP
 * rates of GEMM, attention and convolution kernels as fractions of it. The text m->name tells
 * whether the rates are measured or estimated. The disk speed may come from a run of `xdit probe`
 * with another number of ranks. `dev` must be a device that computes, because its rates are
 * measured. */
xd_status   xd_machine_here(xd_machine *m, xd_dev *dev, int ranks, int threads, xd_err *e);
/* Describes a machine as xd_machine_here does, for ranks on devices with their own memory. `dev` is
 * this rank's device. `device` names the devices of all ranks: "cuda" for one GPU per rank, or
 * "cuda:0" for one GPU that all ranks share. If `device` is NULL, the ranks' devices are of the
 * same kind as `dev`. If `xdit probe` was not run for the ranks' devices, a known device gets its
 * built-in rates, and an unknown device is measured briefly. */
xd_status   xd_machine_of_devices(xd_machine *m, xd_dev *dev, const char *device, int ranks,
                                  xd_err *e);
/* Writes the path of the file in which `xdit probe` stores its result for this many ranks and
 * threads on this host. The file is in a cache directory below $XDG_CACHE_HOME or ~/.cache. Returns
 * 0 if there is no cache directory or the path is too long. */
int         xd_machine_home(int ranks, int threads, char *path, size_t size);
/* Writes the path of the file in which `xdit probe` stores its result for ranks on devices with the
 * name `device`. */
int         xd_machine_device_home(int ranks, const char *device, char *path, size_t size);
/* If the ranks together have more threads than this host has cores, reduces the rates, because
 * ranks then share cores. A rank that computes while the others are idle is not slowed down, so
 * m->alone is increased. */
void        xd_machine_oversubscribe(xd_machine *m);
/* Returns the size of this machine's last-level cache, in bytes, divided by the number of ranks. */
double      xd_machine_cache(int ranks);
xd_status   xd_machine_check(const xd_machine *m, const char *what, xd_err *e);
/* Appends the machine description as JSON. */
void        xd_machine_write(const xd_machine *m, xd_text_buf *out);
/* Returns the name of the i-th device whose rates are built in, or NULL after the last device. */
const char *xd_machine_device(int i);
/* Returns the name of the device with built-in rates that the product name `product` contains, such
 * as "H100" for "NVIDIA H100 80GB HBM3", or NULL if there is none. */
const char *xd_machine_like(const char *product);
/* Returns how many of the device's `have` free bytes a request may use. The device's libraries use
 * the free bytes that a request may not use. */
double      xd_machine_device_room(const xd_dev *dev, double have);
/* Sets *m to the description of a cluster of known devices. The name of a cluster is DEVICE,
 * NxDEVICE for N devices, or HxNxDEVICE for H hosts with N devices each. Returns 0 if the device in
 * the name is unknown. */
int         xd_machine_known(xd_machine *m, const char *name);

const xd_rates *xd_machine_rates(const xd_machine *m, xd_dtype compute);

/* ---- a device that predicts times and computes nothing ---------------------- */

typedef struct xd_cost_device xd_cost_device;
/* Opens a device that forwards all calls to the device `count`, which computes nothing, and sums
 * the predicted times of the calls on machine m. `count` and m must exist as long as the device.
 * `type` is the model's compute type. */
xd_status xd_cost_device_open(xd_cost_device **r, xd_dev *count, const xd_machine *m, xd_dtype type,
                              xd_err *e);
void      xd_cost_device_close(xd_cost_device **r);
xd_dev   *xd_cost_device_dev(xd_cost_device *r);
/* Sets the size in bytes of the weights that later kernels read repeatedly. If the weights are
 * larger than the machine's cache, kernels are predicted to read the weights from memory. */
void      xd_cost_device_weights(xd_cost_device *r, double bytes);
/* Returns the predicted seconds of the kernels since the last call of xd_cost_device_lap_s. If
 * `alone` is 1, the times are predicted as if all other ranks were idle. */
double    xd_cost_device_lap_s(xd_cost_device *r, int alone);

#endif
