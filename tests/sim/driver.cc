/* driver.cc - a stand-in for libcuda.so.1: the driver's calls that the engine makes, without a GPU
 *
 * It is stricter than a driver.
 * - Device memory is a file that is mapped twice. The addresses that are handed out are closed
 *   (PROT_NONE) except while work runs, and work runs only inside calls that wait. A host that
 *   follows such an address dies there. Closed pages lie between blocks, and new memory holds NaNs.
 * - Work is noted and runs as late as the rules allow: when the host waits for it, and before it
 *   only what it waits for itself. With XDIT_SIM_SEED=n, n > 0, work of other streams also runs now
 *   and then, drawn from n.
 * - Copies take pinned memory alone. What is read back holds NaNs until the copy has run. There is
 *   no default stream.
 * - Launches are checked: sizes, and shared memory beyond 48 KiB only after it was allowed, up to
 *   99 KiB. A word of a kernel's arguments that is an address of host memory ends the program.
 * - An event of another process is waited for, while that process goes on by itself. Only an event
 *   that was created for other processes is lent to them, and only its own process records it.
 * - An event's time is that at which the work before it had run. It is told for events that were
 *   created for it and have been reached.
 * - Work that is captured does not run, keeps its arguments, and runs in its order where its graph
 *   is launched. A thread that captures may neither wait, nor take or give back memory, nor use
 *   events, nor copy from or to the host in that stream: it is refused, and the capture is lost.
 * - A thread must have made the context current.
 * - Each GPU has a context, memory and streams of its own. Work given to a stream of another GPU is
 *   refused, and so is a copy from or to another GPU's memory. A kernel that is given such memory
 *   ends the program.
 * XDIT_SIM_DEVICES (1), XDIT_SIM_MEMORY (bytes of a GPU), XDIT_SIM_CAPABILITY (90; with a comma
 * behind it that of the next GPU follows) and XDIT_SIM_VERSION (13000) say what the machine has.
 * With XDIT_SIM_NO_IPC processes may not open each other's memory, as in containers.
 * XDIT_SIM_FAIL=G:N fails every launch on GPU G from the N-th on. XDIT_SIM_NO_MEMORY=N fails the
 * N-th allocation of device or pinned memory. */
#include "tests/sim/sim.h"

namespace sim
{
std::recursive_mutex lock;
CUctx_st gpus[GPUS];
thread_local CUcontext current;
uint64_t seed;
sim_counts counts;

[[noreturn]] void wrong(const char *what)
{
    fprintf(stderr, "simulated GPU: %s\n", what);
    abort();
}

void start()
{
    const char *s = getenv("XDIT_SIM_SEED");
    if (far_)
        return;
    seed = s ? strtoull(s, nullptr, 10) : 0;
    start_order();
    start_memory();
}
} // namespace sim
using namespace sim;

API void simgpu_counts(sim_counts *out)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    *out = counts;
}

static int setting(const char *name, int usual)
{
    const char *s = getenv(name);
    return s ? atoi(s) : usual;
}
API CUresult cuInit(unsigned)
{
    start();
    counts.queues = setting("CUDA_DEVICE_MAX_CONNECTIONS", 8);
    return setting("XDIT_SIM_DEVICES", 1) ? XD_CU_SUCCESS : XD_CU_NO_DEVICE;
}
API CUresult cuDriverGetVersion(int *v)
{
    *v = setting("XDIT_SIM_VERSION", 13000);
    return XD_CU_SUCCESS;
}
API CUresult cuDeviceGetCount(int *n)
{
    *n = setting("XDIT_SIM_DEVICES", 1);
    return XD_CU_SUCCESS;
}
API CUresult cuDeviceGet(CUdevice *d, int i)
{
    *d = i;
    return i < 0 || i >= GPUS || i >= setting("XDIT_SIM_DEVICES", 1) ? XD_CU_INVALID_DEVICE
                                                                     : XD_CU_SUCCESS;
}

/* Ten times the compute capability. */
static int capability(CUdevice d)
{
    const char *s = getenv("XDIT_SIM_CAPABILITY"), *next;
    for (; s && d > 0 && (next = strchr(s, ',')); d--)
        s = next + 1;
    return s ? atoi(s) : 90;
}
API CUresult cuDeviceGetName(char *name, int n, CUdevice)
{
    snprintf(name, (size_t)n, "simulated GPU");
    return XD_CU_SUCCESS;
}
API CUresult cuDeviceGetUuid_v2(CUuuid *id, CUdevice d)
{
    memset(id, 0, sizeof *id);
    snprintf(id->bytes, sizeof id->bytes, "sim %d", (int)d);
    return XD_CU_SUCCESS;
}
API CUresult cuDeviceCanAccessPeer(int *can, CUdevice d, CUdevice peer)
{
    *can = d != peer && !getenv("XDIT_SIM_NO_PEER");
    return XD_CU_SUCCESS;
}
/* For the stand-in of NCCL: the number of the current GPU. */
API int simgpu_number() { return current ? (int)(current - gpus) : -1; }
API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice)
{
    const char *m = getenv("XDIT_SIM_MEMORY");
    *bytes = m ? strtoull(m, nullptr, 10) : (size_t)80 << 30;
    return XD_CU_SUCCESS;
}
API CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice d)
{
    switch ((int)a) {
    case XD_CU_CAPABILITY_MAJOR:
        *v = capability(d) / 10;
        return XD_CU_SUCCESS;
    case XD_CU_CAPABILITY_MINOR:
        *v = capability(d) % 10;
        return XD_CU_SUCCESS;
    case XD_CU_MULTIPROCESSORS:
        *v = 132;
        return XD_CU_SUCCESS;
    case XD_CU_SHARED_MEMORY_OPTIN:
        *v = SHARED;
        return XD_CU_SUCCESS;
    default:
        return XD_CU_INVALID_VALUE;
    }
}
API CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d)
{
    start();
    if (d < 0 || d >= GPUS || d >= setting("XDIT_SIM_DEVICES", 1))
        return XD_CU_INVALID_DEVICE;
    *c = &gpus[d];
    return XD_CU_SUCCESS;
}
API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return XD_CU_SUCCESS; }
API CUresult cuCtxSetCurrent(CUcontext c)
{
    current = c;
    return XD_CU_SUCCESS;
}
API CUresult cuGetErrorName(CUresult, const char **s)
{
    *s = "CUDA_ERROR_SIMULATED";
    return XD_CU_SUCCESS;
}
API CUresult cuGetErrorString(CUresult r, const char **s)
{
    static char text[64];
    snprintf(text, sizeof text, "simulated error %d", (int)r);
    *s = text;
    return XD_CU_SUCCESS;
}
