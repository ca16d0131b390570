/* about.c - reports facts about this machine's GPUs and CUDA libraries, for `xdit doctor` */
#define _GNU_SOURCE /* makes dlfcn.h declare dladdr */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/load.h"

/* Returns the path of the library from which a function was loaded. */
static const char *file_of(const void *function)
{
    Dl_info i;
    return dladdr(function, &i) && i.dli_fname ? i.dli_fname : "an unknown file";
}

/* Writes the version of the driver's kernel module to `version`, for example 570.86.15. If the
 * version is unknown, leaves `version` unchanged. */
static void read_module(char *version, size_t size)
{
    FILE *f = fopen("/proc/driver/nvidia/version", "r");
    char  line[256] = "";
    if (f && fgets(line, sizeof line, f)) {
        const char *p = strpbrk(line, "0123456789");
        while (p && strspn(p, "0123456789.") <= strspn(p, "0123456789"))
            p = strpbrk(p + strspn(p, "0123456789"), "0123456789");
        if (p)
            snprintf(version, size, "%.*s", (int)strspn(p, "0123456789."), p);
    }
    if (f)
        fclose(f);
}

static void tell_driver(const xd_cuda_driver *cu, xd_fact *fact, void *cookie)
{
    int   version = xd_cuda_driver_version(cu);
    char  module[32] = "", text[512];
    void *p;
    memcpy(&p, &cu->cuInit, sizeof p);
    read_module(module, sizeof module);
    snprintf(text, sizeof text, "CUDA %d.%d%s%s, %s", version / 1000, version % 1000 / 10,
             module[0] ? ", kernel module " : "", module, file_of(p));
    fact(cookie, "cuda_driver", text);
}

/* Opens a CUDA context and returns the number of free bytes of a GPU's memory, or 0 if the number
 * cannot be read. */
static size_t free_bytes(const xd_cuda_driver *cu, CUdevice d)
{
    CUcontext c = NULL;
    size_t    have = 0, total = 0;
    if (cu->cuDevicePrimaryCtxRetain(&c, d) != XD_CU_SUCCESS)
        return 0;
    if (cu->cuCtxSetCurrent(c) != XD_CU_SUCCESS ||
        cu->cuMemGetInfo_v2(&have, &total) != XD_CU_SUCCESS)
        have = 0;
    cu->cuDevicePrimaryCtxRelease_v2(d);
    return have;
}

static void tell_gpu(const xd_cuda_driver *cu, int i, xd_fact *fact, void *cookie)
{
    char     name[100], text[256], key[32];
    int      major = 0, minor = 0;
    size_t   bytes = 0;
    CUdevice d;
    if (cu->cuDeviceGet(&d, i) || cu->cuDeviceGetName(name, sizeof name, d) ||
        cu->cuDeviceTotalMem_v2(&bytes, d) ||
        cu->cuDeviceGetAttribute(&major, XD_CU_CAPABILITY_MAJOR, d) ||
        cu->cuDeviceGetAttribute(&minor, XD_CU_CAPABILITY_MINOR, d))
        return;
    int old = 10 * major + minor < XD_CUDA_OLDEST_CAPABILITY;
    snprintf(key, sizeof key, "%s:%d", old ? "cuda_old" : "cuda", i);
    if (old)
        snprintf(text, sizeof text,
                 "cuda:%d: %s, %s, compute capability %d.%d; xdit needs %d.%d or "
                 "higher",
                 i, name, xd_size_text((double)bytes).s, major, minor,
                 XD_CUDA_OLDEST_CAPABILITY / 10, XD_CUDA_OLDEST_CAPABILITY % 10);
    else
        snprintf(text, sizeof text, "cuda:%d: %s, compute capability %d.%d, %s of %s free", i, name,
                 major, minor, xd_size_text((double)free_bytes(cu, d)).s,
                 xd_size_text((double)bytes).s);
    fact(cookie, key, text);
}

/* Reports whether each GPU has peer access to the memory of all other GPUs and, if this is not so,
 * reports the first pair of GPUs without peer access. */
static void tell_peers(const xd_cuda_driver *cu, int n, xd_fact *fact, void *cookie)
{
    char text[128];
    snprintf(text, sizeof text, "each of the %d GPUs has peer access to the others' memory", n);
    for (int i = 0, all = 1; i < n && all; i++)
        for (int k = 0; k < n && all; k++) {
            CUdevice a = 0, b = 0;
            int      can = 1;
            if (i == k || cu->cuDeviceGet(&a, i) || cu->cuDeviceGet(&b, k) ||
                cu->cuDeviceCanAccessPeer(&can, a, b) || can)
                continue;
            all = 0;
            snprintf(text, sizeof text,
                     "cuda:%d has no peer access to cuda:%d: messages "
                     "pass through host memory",
                     i, k);
        }
    fact(cookie, "cuda_peers", text);
}

/* Reports the version and the path of a library. The version v is an integer, for example 91900 for
 * 9.19.0. `function` is the address of any function of the library, from which the library's path
 * is found. */
static void tell_library(const char *key, const char *name, size_t v, const void *function,
                         xd_fact *fact, void *cookie)
{
    char text[512];
    snprintf(text, sizeof text, "%s %zu.%zu.%zu, %s", name, v / 10000, v % 10000 / 100, v % 100,
             file_of(function));
    fact(cookie, key, text);
}

static void tell_libraries(xd_fact *fact, void *cookie)
{
    const xd_cublaslt *lt = NULL;
    const xd_cudnn    *dnn = NULL;
    const xd_nccl     *nccl = NULL;
    xd_err             e = { 0 };
    int                version = 0;
    void              *p;
    if (xd_cuda_load_cublaslt(&lt, &e) == XD_OK) {
        memcpy(&p, &lt->cublasLtCreate, sizeof p);
        tell_library("cublaslt", "cuBLASLt", xd_cuda_cublaslt_version(), p, fact, cookie);
    } else {
        fact(cookie, "cublaslt_error", e.msg);
    }
    e = (xd_err){ 0 };
    if (xd_cuda_load_cudnn(&dnn, &e) == XD_OK) {
        memcpy(&p, &dnn->cudnnCreate, sizeof p);
        tell_library("cudnn", "cuDNN", dnn->cudnnGetVersion(), p, fact, cookie);
    } else {
        fact(cookie, "cudnn_error", e.msg);
    }
    e = (xd_err){ 0 };
    if (xd_cuda_load_nccl(&nccl, &e) == XD_OK &&
        nccl->ncclGetVersion(&version) == XD_NCCL_SUCCESS) {
        memcpy(&p, &nccl->ncclGetVersion, sizeof p);
        tell_library("nccl", "NCCL", (size_t)version, p, fact, cookie);
    } else {
        fact(cookie, "nccl_error", e.code ? e.msg : "NCCL does not report its version");
    }
}

/* If there is no GPU, reports the fact "cuda" with the reason. If there are GPUs, the reported
 * facts are "cuda_driver"; "cuda:N" or "cuda_old:N" for each GPU; "cuda_peers" if there are several
 * GPUs; and for each CUDA library its version or the reason why the library cannot be loaded. */
void xd_cuda_about(xd_fact *fact, void *cookie)
{
    const xd_cuda_driver *cu = NULL;
    int                   count = 0;
    xd_err                e = { 0 };
    if (xd_cuda_load_driver(&cu, &e) != XD_OK) {
        fact(cookie, "cuda", e.msg);
        return;
    }
    tell_driver(cu, fact, cookie);
    cu->cuDeviceGetCount(&count);
    for (int i = 0; i < count; i++)
        tell_gpu(cu, i, fact, cookie);
    if (count > 1)
        tell_peers(cu, count, fact, cookie);
    if (xd_cuda_check_kernels(cu, &e) != XD_OK)
        fact(cookie, "cuda_kernels_error", e.msg);
    tell_libraries(fact, cookie);
}
