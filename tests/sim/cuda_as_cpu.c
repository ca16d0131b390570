/* cuda_as_cpu.c - puts the CUDA device in the place of the CPU's (--wrap=xd_dev_kind_cpu), so that
 * a test that opens "cpu" or the default runs on it */
#include "backend/cuda/cuda.h"

extern const xd_dev_kind __wrap_xd_dev_kind_cpu;

static xd_status open_cuda(xd_dev **d, const char *which, xd_err *e)
{
    return xd_dev_kind_cuda.open(d, which, e);
}

const xd_dev_kind __wrap_xd_dev_kind_cpu = { .name = "cpu", .open = open_cuda };
