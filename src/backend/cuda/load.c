/* load.c - loads the CUDA libraries (driver, cuBLASLt, cuDNN, NCCL) and looks up their functions */
#include "backend/cuda/load.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/library.h"
#include "base/log.h"

enum {
    /* minimum CUDA version that the driver supports: 12.0, the first version with sm_90a */
    OLDEST_DRIVER = 12000,
    /* minimum cuDNN version, 9.15, whose attention supports a key count for each sample */
    OLDEST_CUDNN = 91500,
};

static const xd_symbol driver_symbols[] = {
#define ROW(name, args) { #name, offsetof(xd_cuda_driver, name) },
    XD_CUDA_FUNCTIONS(ROW)
#undef ROW
};

static const xd_symbol cublaslt_symbols[] = {
#define ROW(name, args) { #name, offsetof(xd_cublaslt, name) },
    XD_CUBLASLT_FUNCTIONS(ROW)
#undef ROW
};

static const xd_symbol version_symbol = { "cublasLtGetVersion", 0 };

static const xd_symbol cudnn_symbols[] = {
#define ROW(ret, name, args) { #name, offsetof(xd_cudnn, name) },
    XD_CUDNN_FUNCTIONS(ROW)
#undef ROW
};

static const xd_symbol nccl_symbols[] = {
#define ROW(ret, name, args) { #name, offsetof(xd_nccl, name) },
    XD_NCCL_FUNCTIONS(ROW)
#undef ROW
};

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static xd_cuda_driver  driver;
static xd_cublaslt     cublaslt;
static xd_cudnn        cudnn;
static xd_nccl         nccl;
static size_t          (*cublaslt_version)(void);
static int             has_driver, has_cublaslt, has_cudnn, has_nccl;

static const char *other_dir(void)
{
    const char *dir = getenv("XDIT_CUDA_DIR");
    return dir && *dir ? dir : NULL;
}

int xd_cuda_stand_in(char *path, size_t size, const char *name)
{
    if (!other_dir())
        return 0;
    snprintf(path, size, "%s/%s", other_dir(), name);
    return 1;
}

xd_status xd_cuda_status(CUresult r)
{
    return r == XD_CU_SUCCESS ? XD_OK : r == XD_CU_OUT_OF_MEMORY ? XD_ENOMEM : XD_EDEVICE;
}

xd_status xd_cuda_check(const char *call, CUresult r)
{
    static atomic_flag logged = ATOMIC_FLAG_INIT;
    const char        *name = NULL;
    if (r != XD_CU_SUCCESS && r != XD_CU_OUT_OF_MEMORY && !atomic_flag_test_and_set(&logged)) {
        driver.cuGetErrorName(r, &name);
        xd_log(XD_LOG_WARN, "CUDA error %d (%s: %s) by %s%s", r, name ? name : "no name",
               xd_cuda_words(&driver, r), call,
               xd_cuda_waits() ? ""
                               : ", or by earlier GPU work: with XDIT_CUDA_SYNC=1 xdit waits "
                                 "after each call and names the one that failed");
    }
    return xd_cuda_status(r);
}

int xd_cuda_waits(void)
{
    const char *value = getenv("XDIT_CUDA_SYNC");
    return value && *value && strcmp(value, "0") != 0;
}

const char *xd_cuda_words(const xd_cuda_driver *cu, CUresult r)
{
    const char *text = NULL;
    return cu->cuGetErrorString(r, &text) == XD_CU_SUCCESS && text ? text : "unknown error";
}

int xd_cuda_driver_version(const xd_cuda_driver *cu)
{
    int version = 0;
    return cu->cuDriverGetVersion(&version) == XD_CU_SUCCESS ? version : 0;
}

static xd_status load_once(int *has, xd_status (*load)(xd_err *), xd_err *e)
{
    pthread_mutex_lock(&guard);
    xd_status s = *has ? XD_OK : load(e);
    *has = s == XD_OK;
    pthread_mutex_unlock(&guard);
    return s;
}

static xd_status load_driver(xd_err *e)
{
    char  why[200];
    void *lib = xd_library_open(XD_LIB_CUDA, other_dir(), why, sizeof why);
    if (!lib)
        return xd_fail(e, XD_EUNSUPPORTED, "there is no CUDA driver on this machine (%s)", why);
    const char *lacks = xd_library_find(lib, driver_symbols,
                                        sizeof driver_symbols / sizeof *driver_symbols, &driver);
    const int   version = lacks ? 0 : xd_cuda_driver_version(&driver);
    if (version && version < OLDEST_DRIVER)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "the CUDA driver is too old: it supports CUDA %d.%d, and xdit needs "
                       "%d.%d or newer",
                       version / 1000, version % 1000 / 10, OLDEST_DRIVER / 1000,
                       OLDEST_DRIVER % 1000 / 10);
    if (lacks)
        return xd_fail(e, XD_EUNSUPPORTED, "the CUDA driver is too old: it has no function %s",
                       lacks);
    /* The engine raises the number of hardware queues above the driver's default of 8, because a
     * rank uses more than 8 streams, and streams that share a hardware queue wait for each
     * other. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    CUresult r = driver.cuInit(0);
    if (r == XD_CU_NO_DEVICE)
        return xd_fail(e, XD_EUNSUPPORTED, "there is a CUDA driver, but no GPU");
    if (r != XD_CU_SUCCESS)
        return xd_fail(e, XD_EDEVICE, "the CUDA driver does not start: %s",
                       xd_cuda_words(&driver, r));
    return XD_OK;
}

xd_status xd_cuda_load_driver(const xd_cuda_driver **cu, xd_err *e)
{
    *cu = &driver;
    return load_once(&has_driver, load_driver, e);
}

/* Opens cuBLASLt. CUDA 13's cuBLASLt does not start on a CUDA 12 driver. With such a driver, the
 * cuBLASLt of CUDA 12 is tried first. */
static void *open_cublaslt(char *why, size_t size)
{
    static const xd_library which[2] = { XD_LIB_CUBLASLT_13, XD_LIB_CUBLASLT_12 };
    const int               older = has_driver && xd_cuda_driver_version(&driver) < 13000;
    void                   *lib = xd_library_open(which[older], other_dir(), why, size);
    return lib ? lib : xd_library_open(which[!older], other_dir(), why, size);
}

static xd_status load_cublaslt(xd_err *e)
{
    char  why[200];
    void *lib = open_cublaslt(why, sizeof why);
    if (!lib)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "cuBLASLt cannot be loaded (libcublasLt.so.13 or .12, of the CUDA toolkit): "
                       "%s",
                       why);
    const char *lacks = xd_library_find(
        lib, cublaslt_symbols, sizeof cublaslt_symbols / sizeof *cublaslt_symbols, &cublaslt);
    if (lacks)
        return xd_fail(e, XD_EUNSUPPORTED, "cuBLASLt has no function %s", lacks);
    xd_library_find(lib, &version_symbol, 1, &cublaslt_version);
    return XD_OK;
}

xd_status xd_cuda_load_cublaslt(const xd_cublaslt **lt, xd_err *e)
{
    *lt = &cublaslt;
    return load_once(&has_cublaslt, load_cublaslt, e);
}

size_t xd_cuda_cublaslt_version(void)
{
    return has_cublaslt && cublaslt_version ? cublaslt_version() : 0;
}

static xd_status load_cudnn(xd_err *e)
{
    char  why[200];
    void *lib = xd_library_open(XD_LIB_CUDNN, other_dir(), why, sizeof why);
    if (!lib)
        return xd_fail(e, XD_EUNSUPPORTED, "cuDNN cannot be loaded: %s", why);
    const char *lacks =
        xd_library_find(lib, cudnn_symbols, sizeof cudnn_symbols / sizeof *cudnn_symbols, &cudnn);
    const size_t version = lacks ? 0 : cudnn.cudnnGetVersion();
    if (lacks || version < OLDEST_CUDNN)
        return xd_fail(e, XD_EUNSUPPORTED, "cuDNN is too old: xdit needs %d.%d or newer",
                       OLDEST_CUDNN / 10000, OLDEST_CUDNN % 10000 / 100);
    return XD_OK;
}

xd_status xd_cuda_load_cudnn(const xd_cudnn **out, xd_err *e)
{
    *out = &cudnn;
    return load_once(&has_cudnn, load_cudnn, e);
}

static xd_status load_nccl(xd_err *e)
{
    char  why[200];
    void *lib = xd_library_open(XD_LIB_NCCL, other_dir(), why, sizeof why);
    if (!lib)
        return xd_fail(e, XD_EUNSUPPORTED, "NCCL cannot be loaded: %s", why);
    const char *lacks =
        xd_library_find(lib, nccl_symbols, sizeof nccl_symbols / sizeof *nccl_symbols, &nccl);
    if (lacks)
        return xd_fail(e, XD_EUNSUPPORTED, "NCCL has no function %s", lacks);
    return XD_OK;
}

xd_status xd_cuda_load_nccl(const xd_nccl **out, xd_err *e)
{
    *out = &nccl;
    return load_once(&has_nccl, load_nccl, e);
}
