/* sizes.c - implements a stand-in for a CUDA device on machines without a GPU. A count device,
 * which computes nothing, simulates a CUDA device by this stand-in.
 *
 * The stand-in device returns the sizes of scratch and packed weights, which are the same for all
 * GPUs. The stand-in device has no memory, and its kernels must not be called. */
#include "backend/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

static void *get_none(xd_dev *d, size_t bytes)
{
    (void)d, (void)bytes;
    return NULL;
}

static void put_none(xd_dev *d, void *p, size_t bytes)
{
    (void)d, (void)p, (void)bytes;
}

static void sync_none(xd_dev *d, xd_stream *s)
{
    (void)d, (void)s;
}

static void memory_none(xd_dev *d, size_t *available, size_t *total)
{
    (void)d;
    *available = *total = 0;
}

static int owns_none(xd_dev *d, const void *p)
{
    (void)d, (void)p;
    return 0;
}

/* Returns 0 bytes for the memory of libraries, because the memory limit in a machine description
 * does not include that memory. */
static size_t kernel_bytes(const xd_dev *d)
{
    (void)d;
    return 0;
}

/* Returns an arbitrary id that is not 0, because the id 0 means host memory. */
static uint64_t identity(const xd_dev *d)
{
    (void)d;
    return 1;
}

static xd_dtype compute(const xd_dev *d, xd_dtype want)
{
    (void)d;
    return want;
}

static xd_dtype best(const xd_dev *d)
{
    (void)d;
    return XD_BF16;
}

static void forget(xd_dev *d)
{
    (void)d;
}

static void close_sizes(xd_dev *d)
{
    free(d);
}

static const xd_dev_ops memory_ops = {
    .get = get_none,
    .put = put_none,
    .sync = sync_none,
    .memory = memory_none,
    .owns = owns_none,
    .identity = identity,
    .compute = compute,
    .best = best,
    .kernel_bytes = kernel_bytes,
    .forget = forget,
    .close = close_sizes,
};

xd_status xd_cuda_open_sizes(xd_dev **out, xd_err *e)
{
    xd_dev *d = *out = calloc(1, sizeof *d);
    if (!d)
        return xd_fail(e, XD_ENOMEM, "no memory for a CUDA device");
    *d = (xd_dev){
        .mem = &memory_ops, .ops = &xd_cuda_ops, .name = "cuda", .narrow_bias = 1, .norm_adds = 1
    };
    return XD_OK;
}
