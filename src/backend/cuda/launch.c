/* launch.c - loads the module of CUDA kernels and launches the kernels */
#include "backend/cuda/cuda.h"
#include "backend/cuda/load.h"

#include <stdio.h>
#include <unistd.h>

static const struct {
    const char *name;
    int         shared; /* bytes of dynamic shared memory of a block */
} kernels[XD_CUDA_NKERNELS] = {
#define ROW(name, shared) { #name, shared },
    XD_CUDA_KERNELS(ROW)
#undef ROW
};

/* Returns 1 if the folder XDIT_CUDA_DIR contains the library xdit_kernels.so, which replaces the
 * kernels of this build in tests. */
static int has_stand_in(char *path, size_t size)
{
    return xd_cuda_stand_in(path, size, "xdit_kernels.so") && access(path, R_OK) == 0;
}

static xd_status refuse_none(xd_err *e)
{
    return xd_fail(e, XD_EUNSUPPORTED,
                   "this build has no CUDA kernels: it was made without nvcc (-Dcuda)");
}

/* Reports the error that the kernels were built with a newer CUDA version than the driver's. A
 * driver loads kernels of its own major version of CUDA and of earlier major versions. A driver
 * also loads kernels of a later minor version of CUDA, unless the driver has to compile these
 * kernels from PTX. `why` is the driver's message. */
static xd_status refuse_later(int release, int version, const char *why, xd_err *e)
{
    return xd_fail(e, XD_EUNSUPPORTED,
                   "the kernels of this build were made by CUDA %d.%d, but the "
                   "driver supports CUDA %d.%d%s: install a newer driver, or build xdit with "
                   "an older nvcc (-Dnvcc)",
                   release / 1000, release % 1000 / 10, version / 1000, version % 1000 / 10, why);
}

xd_status xd_cuda_check_kernels(const xd_cuda_driver *cu, xd_err *e)
{
    char path[4096];
    int  release, version = xd_cuda_driver_version(cu);
    if (has_stand_in(path, sizeof path))
        return XD_OK;
    if (!xd_cuda_fatbin(&release))
        return refuse_none(e);
    if (version && release / 1000 > version / 1000)
        return refuse_later(release, version, "", e);
    return XD_OK;
}

/* Returns an error with the reason why the module of kernels was not loaded. `release` is the CUDA
 * version of the nvcc that compiled the module, or 0 if the version is unknown. */
static xd_status refuse_module(const xd_cuda_dev *c, CUresult r, int release, xd_err *e)
{
    const int   version = xd_cuda_driver_version(c->cu);
    const char *words = xd_cuda_words(c->cu, r);
    char        why[128];
    if (version && release > version) {
        snprintf(why, sizeof why, " (%s)", words);
        return refuse_later(release, version, why, e);
    }
    if (r == XD_CU_NO_BINARY_FOR_GPU)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "this build has no kernels for this GPU (%s): build it with the GPU's "
                       "architecture in -Dnvcc_archs",
                       c->dev.name);
    return xd_fail(e, xd_cuda_status(r), "the kernels cannot be loaded: %s", words);
}

static xd_status load_module(xd_cuda_dev *c, xd_err *e)
{
    char     path[4096];
    int      release = 0;
    CUresult r;
    if (has_stand_in(path, sizeof path)) {
        r = c->cu->cuModuleLoad(&c->module, path);
    } else {
        const unsigned char *fatbin = xd_cuda_fatbin(&release);
        if (!fatbin)
            return refuse_none(e);
        r = c->cu->cuModuleLoadData(&c->module, fatbin);
    }
    return r == XD_CU_SUCCESS ? XD_OK : refuse_module(c, r, release, e);
}

xd_status xd_cuda_open_kernels(xd_cuda_dev *c, xd_err *e)
{
    xd_status s = load_module(c, e);
    for (int i = 0; i < XD_CUDA_NKERNELS && s == XD_OK; i++) {
        CUresult r = c->cu->cuModuleGetFunction(&c->kernel[i], c->module, kernels[i].name);
        if (r == XD_CU_SUCCESS && kernels[i].shared > 48 << 10)
            r = c->cu->cuFuncSetAttribute(c->kernel[i], XD_CU_FUNCTION_SHARED_MEMORY,
                                          kernels[i].shared);
        if (r != XD_CU_SUCCESS)
            s = xd_fail(e, xd_cuda_status(r), "kernel %s cannot be loaded: %s", kernels[i].name,
                        xd_cuda_words(c->cu, r));
    }
    return s;
}

xd_status xd_cuda_launch(xd_cuda_dev *c, int kernel, int64_t gx, int64_t gy, int threads,
                         size_t shared, void *args)
{
    void *list[1] = { args };
    if (gx < 1 || gy < 1)
        return XD_OK;
    if (gx > INT32_MAX || gy > 65535)
        return XD_EUNSUPPORTED;
    c->cu->cuCtxSetCurrent(c->context);
    CUresult r = c->cu->cuLaunchKernel(c->kernel[kernel], (unsigned)gx, (unsigned)gy, 1,
                                       (unsigned)threads, 1, 1, (unsigned)shared, c->stream, list,
                                       NULL);
    if (r == XD_CU_SUCCESS && c->waits)
        r = c->cu->cuStreamSynchronize(c->stream);
    return xd_cuda_check(kernels[kernel].name, r);
}

xd_status xd_cuda_launch_each(xd_cuda_dev *c, int kernel, int64_t n, void *args)
{
    return xd_cuda_launch(c, kernel, (n + 255) / 256, 1, 256, 0, args);
}
