/* doctor.h - findings about this build and this machine, each with what to do */
#ifndef XD_CLI_DOCTOR_H
#define XD_CLI_DOCTOR_H

#include <stdint.h>

#include "base/err.h"

typedef enum xd_health { XD_WELL, XD_WARN, XD_SICK } xd_health;

typedef struct xd_finding {
    xd_health state;
    char      name[16], text[384], advice[256];         /* advice: empty when all is well      */
} xd_finding;

typedef struct xd_findings {    /* start with {0}                                              */
    int        n;
    xd_finding v[48];
} xd_findings;

void xd_find(xd_findings *f, xd_health state, const char *name, const char *advice, const char *fmt,
             ...) XD_PRINTF(5, 6);
void xd_findings_print(const xd_findings *f, int from); /* lines from finding `from` on        */
void xd_findings_json(const xd_findings *f);            /* one object                          */
int  xd_findings_worst(const xd_findings *f);

/* "1.5 GB" */
const char *xd_bytes_text(double bytes, char text[16]);

/* What the system says of this host: cores, threads, memory, limits, pages, GPU, directories.
 * `cores` that this process may use, `free_bytes` bytes of memory, `mapped` bytes of address space,
 * `hub` the Hugging Face cache or NULL. */
enum { XD_GPUS = 16 };          /* of which doctor speaks one by one                           */
enum { XD_GPU_CUBLASLT, XD_GPU_NCCL, XD_GPU_CUDNN, XD_GPU_LIBRARIES };
typedef struct xd_gpus {        /* of the device cuda; texts are empty where nothing is known  */
    int  n;
    char text[XD_GPUS][256], driver[384], peers[128], libraries[XD_GPU_LIBRARIES][384];
    int  old[XD_GPUS], lacks[XD_GPU_LIBRARIES]; /* 1: cannot be used; cannot be loaded, and why */
    char none[384];             /* why there is no GPU                                         */
    char no_kernels[256];
} xd_gpus;

typedef struct xd_host {
    int         cores;
    double      free_bytes, mapped;
    char        hub[1024], type[16];
    xd_gpus     gpus;
    const char *model;          /* whose weights are to fit, or NULL                           */
    int         ranks;          /* whose cpus are asked for                                    */
} xd_host;
void xd_find_host(xd_findings *f, const xd_host *m);

#endif
