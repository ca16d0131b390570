/* processes.cc - memory and events that the simulated driver lends to other processes */
#include "tests/sim/sim.h"

#include <fcntl.h>
#include <sys/mman.h>

using namespace sim;

/* Memory of another process: its file through /proc, mapped where nobody may follow it either. */
enum { NOT_PERMITTED = 800 };
struct handle {
    int pid, fd;
    size_t at, bytes;
};
API CUresult cuIpcGetMemHandle(CUipcMemHandle *h, CUdeviceptr p)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    auto b = blocks.find((char *)p);
    if (b == blocks.end() || b->second % (2 << 20))     /* smaller ones share a block, lent whole */
        return XD_CU_INVALID_VALUE;
    handle x = { getpid(), fd, (size_t)(b->first - far_), b->second };
    memset(h, 0, sizeof *h);
    memcpy(h, &x, sizeof x);
    return XD_CU_SUCCESS;
}
API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *p, CUipcMemHandle h, unsigned)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    handle x;
    char name[64];
    memcpy(&x, &h, sizeof x);
    if (x.pid == getpid())
        return XD_CU_INVALID_CONTEXT; /* as the driver: not in the process that has it */
    if (getenv("XDIT_SIM_NO_IPC"))
        return NOT_PERMITTED;
    snprintf(name, sizeof name, "/proc/%d/fd/%d", x.pid, x.fd);
    int f = open(name, O_RDWR | O_CLOEXEC);
    size_t from = x.at / PAGE * PAGE, size = (x.at + x.bytes - from + PAGE - 1) / PAGE * PAGE;
    char *m = f < 0 ? (char *)MAP_FAILED
                    : (char *)mmap(nullptr, size, PROT_NONE, MAP_SHARED, f, (off_t)from);
    if (f >= 0)
        close(f);
    if (m == MAP_FAILED)
        return XD_CU_INVALID_VALUE;
    opened[m + (x.at - from)] = x.bytes;
    close_edges(m + (x.at - from), x.bytes);
    *p = (CUdeviceptr)(m + (x.at - from));
    return XD_CU_SUCCESS;
}
API CUresult cuIpcCloseMemHandle(CUdeviceptr p)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    auto b = opened.find((char *)p);
    if (b == opened.end())
        return XD_CU_INVALID_VALUE;
    cuCtxSynchronize();
    char *from = (char *)((uintptr_t)p & ~(uintptr_t)(PAGE - 1));
    sim_open(from, (size_t)(b->first + b->second - from) + PAGE);
    munmap(from, (size_t)(b->first + b->second - from));
    opened.erase(b);
    return XD_CU_SUCCESS;
}

/* Events of another process: their states lie in a file of the process that records them. */
namespace
{
enum { LENT_EVENTS = 4096 };
event_state *lent_events; /* of this process */
int lent_fd = -1, lent_count;

event_state *map_events(int file)
{
    void *p = mmap(nullptr, LENT_EVENTS * sizeof(event_state), PROT_READ | PROT_WRITE, MAP_SHARED,
                   file, 0);
    return p == MAP_FAILED ? nullptr : (event_state *)p;
}
} // namespace

API CUresult cuIpcGetEventHandle(CUipcEventHandle *h, CUevent e)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    unsigned need = XD_CU_EVENT_DISABLE_TIMING | XD_CU_EVENT_INTERPROCESS;
    if ((e->flags & need) != need || e->flags & FROM_ELSEWHERE || lent_count == LENT_EVENTS)
        return XD_CU_INVALID_HANDLE;
    if (lent_fd < 0) {
        lent_fd = memfd_create("events", MFD_CLOEXEC);
        if (lent_fd < 0 || ftruncate(lent_fd, (off_t)(LENT_EVENTS * sizeof(event_state))) ||
            !(lent_events = map_events(lent_fd)))
            wrong("no memory for events of several processes");
    }
    if (e->at == &e->own) {
        e->at = &lent_events[lent_count++];
        e->at->recorded = e->own.recorded.load();
        e->at->done = e->own.done.load();
    }
    handle x = { getpid(), lent_fd, (size_t)(e->at - lent_events), 0 };
    memset(h, 0, sizeof *h);
    memcpy(h, &x, sizeof x);
    begin_to_go_on();
    return XD_CU_SUCCESS;
}
API CUresult cuIpcOpenEventHandle(CUevent *e, CUipcEventHandle h)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    static std::map<int, event_state *> known; /* by process */
    handle x;
    char name[64];
    memcpy(&x, &h, sizeof x);
    if (x.pid == getpid())
        return XD_CU_INVALID_CONTEXT;
    snprintf(name, sizeof name, "/proc/%d/fd/%d", x.pid, x.fd);
    event_state *&states = known[x.pid];
    int f = states ? -1 : open(name, O_RDWR | O_CLOEXEC);
    if (f >= 0) {
        states = map_events(f);
        close(f);
    }
    if (!states || x.at >= LENT_EVENTS)
        return XD_CU_INVALID_VALUE;
    *e = new CUevent_st;
    (*e)->at = states + x.at;
    (*e)->flags = FROM_ELSEWHERE;
    begin_to_go_on();
    return XD_CU_SUCCESS;
}
