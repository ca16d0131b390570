/* doctor.h - declares the checks of xdit doctor and their results. A failed check has an advice,
 * which names the change to make. */
#ifndef XD_CLI_DOCTOR_H
#define XD_CLI_DOCTOR_H

#include <stdint.h>

#include "base/err.h"

typedef enum xd_check_state { XD_CHECK_OK, XD_CHECK_WARN, XD_CHECK_FAIL } xd_check_state;

typedef struct xd_finding {
    xd_check_state state;
    char      name[16], text[384], advice[256];         /* name of the check, result, and advice
                                                           (the cure; empty if the check
                                                           succeeds) */
} xd_finding;

typedef struct xd_findings {    /* a list of results; initialize with {0}                      */
    int        n;
    xd_finding v[48];
} xd_findings;

/* Adds a finding to the list; `advice` is ignored for XD_CHECK_OK. */
void xd_findings_add(xd_findings *f, xd_check_state state, const char *name, const char *advice,
             const char *fmt, ...) XD_PRINTF(5, 6);
/* Prints the findings from index `from` on, one line each. */
void xd_findings_print(const xd_findings *f, int from);
void xd_findings_json(const xd_findings *f);            /* prints the findings as a JSON object */
int  xd_findings_worst(const xd_findings *f);

/* Formats a number of bytes: "1.5 GB". */
const char *xd_bytes_text(double bytes, char text[16]);

enum { XD_GPUS = 16 };          /* maximum number of GPUs that are listed                      */
enum { XD_GPU_CUBLASLT, XD_GPU_NCCL, XD_GPU_CUDNN, XD_GPU_LIBRARIES };
typedef struct xd_gpus {        /* facts about CUDA; texts are empty if unknown                */
    int  n;
    char text[XD_GPUS][256], driver[384], peers[128], libraries[XD_GPU_LIBRARIES][384];
    int  old[XD_GPUS], lacks[XD_GPU_LIBRARIES]; /* old[i] 1: GPU i is too old; lacks[i] 1:
                                                   library i cannot be loaded, and its text in
                                                   `libraries` has the reason */
    char none[384];             /* the reason why no GPU can be used                           */
    char no_kernels[256];       /* the reason why no kernels can be compiled                   */
} xd_gpus;

typedef struct xd_host {
    int         cores;          /* number of CPU cores that this process may use               */
    double      free_bytes, mapped;     /* bytes of free memory; bytes of mapped address space */
    char        hub[1024], type[16];    /* directory of the Hugging Face cache; default compute
                                           type */
    xd_gpus     gpus;
    const char *model;          /* model whose weights are compared with the free memory; NULL:
                                   none */
    int         ranks;          /* number of ranks whose CPUs are printed                      */
} xd_host;
/* Adds findings about cores, threads, memory, limits, pages, GPUs and directories. */
void xd_check_host(xd_findings *f, const xd_host *m);

#endif
