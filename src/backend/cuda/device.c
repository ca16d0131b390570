/* device.c - implements the device kind "cuda": finds, opens and closes a GPU */
#include "backend/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/load.h"
#include "base/clock.h"
#include "base/log.h"

static size_t scratch(xd_dev *d, xd_op op, const void *args)
{
    if (op == XD_OP_ATTN)
        return xd_cuda_attention_scratch(xd_cuda_of(d), args);
    if (op == XD_OP_CONV)
        xd_cuda_conv_expect(xd_cuda_of(d), args);
    return op == XD_OP_GEMM ? xd_cuda_gemm_scratch(args) : 0;
}

static xd_status rotate(xd_dev *d, xd_stream *s, const xd_rotate *a, void *tmp)
{
    (void)d, (void)s, (void)a, (void)tmp;
    return XD_EUNSUPPORTED;
}

const xd_ops xd_cuda_ops = {
    .name = "cuda",
    .scratch = scratch,
    .pack_size = xd_cuda_pack_size,
    .pack_tmp = xd_cuda_pack_tmp,
    .pack = xd_cuda_pack,
    .pack_band = xd_cuda_pack_band,
    .pack_rows = xd_cuda_pack_rows,
    .gemm = xd_cuda_gemm,
    .attn = xd_cuda_attention,
    .norm = xd_cuda_norm,
    .moments = xd_cuda_moments,
    .gnorm = xd_cuda_gnorm,
    .glu = xd_cuda_glu,
    .addmul = xd_cuda_addmul,
    .axpby = xd_cuda_axpby,
    .conv = xd_cuda_conv,
    .resize = xd_cuda_resize,
    .lookup = xd_cuda_lookup,
    .copy = xd_cuda_copy,
    .qknorm = xd_cuda_qknorm,
    .rotate = rotate,
    .linattn = xd_cuda_linattn,
    .code = xd_cuda_code,
};

/* ---- opening ------------------------------------------------------------------------------ */

void xd_cuda_close(xd_dev *d)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    if (c->context) {
        c->cu->cuCtxSetCurrent(c->context);
        xd_cuda_close_lanes(c);
        xd_cuda_close_fetch(c);
        xd_cuda_close_memory(c);
        xd_cuda_close_stamps(c);
        xd_cuda_close_cudnn(c);
        if (c->lt)
            xd_cuda_close_cublaslt(c);
        if (c->module)
            c->cu->cuModuleUnload(c->module);
        if (c->stream)
            c->cu->cuStreamDestroy_v2(c->stream);
        c->cu->cuDevicePrimaryCtxRelease_v2(c->device);
    }
    pthread_cond_destroy(&c->stage_is_free);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* Parses the GPU number after "cuda:" in a device name. */
static xd_status parse_which(const char *which, int *n, xd_err *e)
{
    char *end = NULL;
    long  v = *which ? strtol(which, &end, 10) : 0;
    if (*which && (*end || *which < '0' || *which > '9' || v > 1000))
        return xd_fail(e, XD_EINVAL,
                       "\"cuda:%s\" is no device: a GPU has a number, as in "
                       "cuda:1",
                       which);
    *n = (int)v;
    return XD_OK;
}

static xd_status find_device(xd_cuda_dev *c, int n, xd_err *e)
{
    const xd_cuda_driver *cu = c->cu;
    char                  name[100] = "?";
    int                   count = 0, major = 0, minor = 0;
    cu->cuDeviceGetCount(&count);
    if (n >= count)
        return xd_fail(e, XD_EINVAL, "there is no device cuda:%d: this machine has %d GPU%s", n,
                       count, count == 1 ? "" : "s");
    CUresult r = cu->cuDeviceGet(&c->device, n);
    if (r == XD_CU_SUCCESS)
        r = cu->cuDeviceGetName(name, sizeof name, c->device);
    if (r == XD_CU_SUCCESS)
        r = cu->cuDeviceGetAttribute(&major, XD_CU_CAPABILITY_MAJOR, c->device);
    if (r == XD_CU_SUCCESS)
        r = cu->cuDeviceGetAttribute(&minor, XD_CU_CAPABILITY_MINOR, c->device);
    if (r != XD_CU_SUCCESS)
        return xd_fail(e, XD_EDEVICE, "the properties of cuda:%d cannot be read: %s", n,
                       xd_cuda_words(cu, r));
    if (10 * major + minor < XD_CUDA_OLDEST_CAPABILITY)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "cuda:%d (%s) has compute capability %d.%d, and xdit needs %d.%d or higher",
                       n, name, major, minor, XD_CUDA_OLDEST_CAPABILITY / 10,
                       XD_CUDA_OLDEST_CAPABILITY % 10);
    snprintf(c->dev.name, sizeof c->dev.name, "cuda:%d", n);
    c->dev.fp8_gemm = 10 * major + minor >= XD_CUDA_FP8_CAPABILITY;
    xd_log(XD_LOG_DEBUG, "device cuda:%d: %s, compute capability %d.%d", n, name, major, minor);
    return XD_OK;
}

static xd_status open_context(xd_cuda_dev *c, xd_err *e)
{
    CUresult r = c->cu->cuDevicePrimaryCtxRetain(&c->context, c->device);
    if (r == XD_CU_SUCCESS)
        r = c->cu->cuCtxSetCurrent(c->context);
    if (r == XD_CU_SUCCESS)
        r = c->cu->cuStreamCreateWithPriority(&c->stream, XD_CU_STREAM_NON_BLOCKING, 0);
    return r == XD_CU_SUCCESS ? XD_OK
                              : xd_fail(e, xd_cuda_status(r), "%s cannot be opened: %s",
                                        c->dev.name, xd_cuda_words(c->cu, r));
}

static xd_status open_cuda(xd_dev **out, const char *which, xd_err *e)
{
    int          n = 0;
    xd_status    s = parse_which(which, &n, e);
    xd_cuda_dev *c = s == XD_OK ? calloc(1, sizeof *c) : NULL;
    if (s != XD_OK)
        return s;
    if (!c)
        return xd_fail(e, XD_ENOMEM, "no memory for a CUDA device");
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->stage_is_free, NULL);
    c->dev = (xd_dev){ .mem = &xd_cuda_memory_ops,
                       .ops = &xd_cuda_ops,
                       .lanes = &xd_cuda_lanes,
                       .graphs = &xd_cuda_graphs,
                       .narrow_bias = 1,
                       .norm_adds = 1,
                       .priv = c };
    c->waits = xd_cuda_waits();
    s = xd_cuda_load_driver(&c->cu, e);
    if (s == XD_OK)
        s = find_device(c, n, e);
    if (s == XD_OK)
        s = open_context(c, e);
    if (s == XD_OK)
        s = xd_cuda_open_kernels(c, e);
    if (s == XD_OK)
        s = xd_cuda_open_memory(c, e);
    if (s == XD_OK)
        s = xd_cuda_open_cublaslt(c, e);
    if (s == XD_OK)
        *out = &c->dev;
    else
        xd_cuda_close(&c->dev);
    return s;
}

static xd_status count_gpus(int *n, xd_err *e)
{
    const xd_cuda_driver *cu = NULL;
    xd_status             s = xd_cuda_load_driver(&cu, e);
    *n = 0;
    return s == XD_OK ? xd_cuda_check("cuDeviceGetCount", cu->cuDeviceGetCount(n)) : s;
}

const xd_dev_kind xd_dev_kind_cuda = {
    .name = "cuda",
    .open = open_cuda,
    .open_sizes = xd_cuda_open_sizes,
    .instances = count_gpus,
    .about = xd_cuda_about,
};
