/* doctor.h - declares the checks of xdit doctor and their results. A failed check has an advice: a
 * text that tells the user what to change. */
#ifndef XD_CLI_DOCTOR_H
#define XD_CLI_DOCTOR_H

#include <stdint.h>

#include "base/err.h"

typedef enum xd_check_state { XD_CHECK_OK, XD_CHECK_WARN, XD_CHECK_FAIL } xd_check_state;

typedef struct xd_finding {
    xd_check_state state;
    /* Name of the check; result of the check as a text; advice to the user (empty if the check
     * succeeded). */
    char           name[16], text[384], advice[256];
} xd_finding;

typedef struct xd_findings { /* a list of results; initialize with {0} */
    int        n;
    xd_finding v[48];
} xd_findings;

/* Adds a result to the list; `advice` is ignored for XD_CHECK_OK. */
void xd_findings_add(xd_findings *f, xd_check_state state, const char *name, const char *advice,
                     const char *fmt, ...) XD_PRINTF(5, 6);
/* Prints all results of the list from index `from` on, one line each. */
void xd_findings_print(const xd_findings *f, int from);
void xd_findings_json(const xd_findings *f); /* prints the findings as a JSON object */
int  xd_findings_worst(const xd_findings *f);

/* Formats a number of bytes: "1.5 GB". */
const char *xd_bytes_text(double bytes, char text[16]);

enum { XD_GPUS = 16 }; /* maximum number of GPUs that are listed */
enum { XD_GPU_CUBLASLT, XD_GPU_NCCL, XD_GPU_CUDNN, XD_GPU_LIBRARIES };
typedef struct xd_gpus { /* properties of CUDA and its GPUs; texts are empty if unknown */
    int  n;
    char text[XD_GPUS][256], driver[384], peers[128], libraries[XD_GPU_LIBRARIES][384];
    /* old[i] is 1 if GPU i is too old to be used. lacks[i] is 1 if GPU library i cannot be loaded;
     * libraries[i] is the reason. */
    int  old[XD_GPUS], lacks[XD_GPU_LIBRARIES];
    char none[384];       /* the reason why no GPU can be used; "": a GPU can be used */
    char no_kernels[256]; /* the reason why no kernels can be compiled */
} xd_gpus;

typedef struct xd_host {
    int         cores;              /* number of CPU cores that this process may use */
    double      free_bytes, mapped; /* bytes of free memory, and bytes of mapped address space */
    /* Directory of the Hugging Face cache, and the default compute type. */
    char        hub[1024], type[16];
    xd_gpus     gpus;
    const char *model; /* model whose weights are compared with the free memory; NULL:
                                   none */
    int         ranks; /* number of ranks whose CPUs are printed */
} xd_host;
/* Adds the results of all checks of the host: cores, threads, memory, resource limits, pages, GPUs
 * and directories. */
void xd_check_host(xd_findings *f, const xd_host *m);

#endif
