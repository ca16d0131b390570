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
 * - Launches are checked: sizes, and shared memory beyond 48 KiB only after it was allowed. A word
 *   of a kernel's arguments that is an address of host memory ends the program.
 * - An event of another process is waited for, while that process goes on by itself. Only an event
 *   that was created for other processes is lent to them, and only its own process records it.
 * - A thread must have made the context current.
 * - Each GPU has a context, memory and streams of its own. Work given to a stream of another GPU is
 *   refused, and so is a copy from or to another GPU's memory. A kernel that is given such memory
 *   ends the program.
 * XDIT_SIM_DEVICES (1), XDIT_SIM_MEMORY (bytes of a GPU), XDIT_SIM_CAPABILITY (90; with a comma
 * behind it that of the next GPU follows) and XDIT_SIM_VERSION (13000) say what the machine has.
 * XDIT_SIM_FAIL=G:N fails every launch on GPU G from the N-th on. */
#include "tests/sim/more.h"

#include <atomic>
#include <ctime>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define API extern "C" __attribute__((visibility("default")))

struct gpu_kernel {
    const char *name;
    unsigned size, threads;
    void (*run)(const void *);
};
typedef void launch_fn(const gpu_kernel *, const unsigned *, const unsigned *, unsigned,
                       const void *, uint64_t);

struct item {
    std::function<void()> run;
    std::function<bool()> poll; /* of messages: begins or goes on; true when all has ended */
    CUevent_st *record = nullptr, *await = nullptr;
    uint64_t number = 0;
};
enum { FROM_ELSEWHERE = 1 << 16 }; /* a flag of an event: another process records it          */

/* How often an event was recorded, and which of these records has been reached. */
struct event_state {
    std::atomic<uint64_t> recorded { 0 }, done { 0 };
};
struct CUevent_st {
    event_state own, *at = &own; /* at: in memory of all processes when the event is lent    */
    unsigned flags = 0;
    CUstream_st *on = nullptr; /* null: of another process                                   */
    double when = 0;
};
struct CUgraph_st {
    std::vector<item> items;
};
struct CUgraphExec_st {
    std::vector<item> items;
};
struct CUstream_st {
    CUctx_st *of;
    std::deque<item> q;
    CUgraph_st *into = nullptr;
};
struct CUmod_st {
    void *lib;
    launch_fn *launch;
};
struct CUfunc_st {
    const gpu_kernel *k;
    CUmod_st *mod;
    int shared = 48 << 10;
};
struct CUctx_st {
    size_t used; /* bytes of its memory that are given out                                    */
};

namespace
{
enum { PAGE = 4096 };
const size_t SPAN = (size_t)1 << 37;
std::recursive_mutex lock;
enum { GPUS = 16 };
CUctx_st gpus[GPUS];
thread_local CUcontext current;
char *far_, *near_;
int fd = -1, depth;
size_t next_, limit_;
std::map<char *, size_t> blocks; /* of device memory: where, bytes                            */
std::map<char *, CUcontext> owners; /* of blocks: the GPU                                     */
std::map<char *, size_t> opened; /* of other processes                                        */
std::map<char *, size_t> pinned;
std::vector<CUstream_st *> streams;
uint64_t seed, seeded;
long launched, waited;
int messages; /* other processes wait for this one: it goes on while its host waits      */
long last_call;

long time_ms()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

uint32_t draw(uint32_t n)
{
    seeded = seeded * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((seeded >> 33) % n);
}

[[noreturn]] void wrong(const char *what)
{
    fprintf(stderr, "simulated GPU: %s\n", what);
    abort();
}

void start()
{
    if (far_)
        return;
    const char *s = getenv("XDIT_SIM_SEED"), *m = getenv("XDIT_SIM_MEMORY");
    seed = seeded = s ? strtoull(s, nullptr, 10) : 0;
    limit_ = m ? strtoull(m, nullptr, 10) : (size_t)80 << 30;
    fd = memfd_create("gpu", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)SPAN))
        wrong("no memory file");
    far_ = (char *)mmap(nullptr, SPAN, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    near_ = (char *)mmap(nullptr, SPAN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (far_ == MAP_FAILED || near_ == MAP_FAILED)
        wrong("no address space");
}

/* Kernels may follow device addresses while this lives. */
struct window {
    window()
    {
        if (!depth++)
            reach(PROT_READ | PROT_WRITE);
    }
    ~window()
    {
        if (!--depth)
            reach(PROT_NONE);
    }
    static void reach(int how)
    {
        for (auto *m : { &blocks, &opened })
            for (auto &b : *m) {
                char *from = (char *)((uintptr_t)b.first & ~(uintptr_t)(PAGE - 1));
                mprotect(from, (size_t)(b.first + b.second - from), how);
            }
    }
};

int on_device(const void *p, size_t n)
{
    for (auto *m : { &blocks, &opened }) {
        auto b = m->upper_bound((char *)p);
        if (b == m->begin())
            continue;
        --b;
        if ((char *)p >= b->first && (char *)p + n <= b->first + b->second)
            return 1;
    }
    return 0;
}

/* 0: p is in memory of another GPU than the current one. */
int in_reach(const void *p)
{
    auto b = blocks.upper_bound((char *)p);
    if (b == blocks.begin())
        return 1;
    --b;
    return (char *)p >= b->first + b->second || owners[b->first] == current;
}

int in_far(const char *p)
{
    if (p >= far_ && p < far_ + SPAN)
        return in_reach(p);
    auto b = opened.upper_bound((char *)p);
    return b != opened.begin() && p < (--b)->first + b->second;
}

int is_pinned(const void *p, size_t n)
{
    auto b = pinned.upper_bound((char *)p);
    if (b == pinned.begin())
        return 0;
    --b;
    return (char *)p + n <= b->first + b->second;
}

int ready(CUstream_st *s)
{
    return !s->q.empty() &&
           (!s->q.front().await || s->q.front().await->at->done >= s->q.front().number) &&
           (!s->q.front().poll || s->q.front().poll());
}

void step(CUstream_st *s)
{
    item i = std::move(s->q.front());
    s->q.pop_front();
    if (i.run)
        i.run();
    if (i.record && i.record->at->done < i.number)
        i.record->at->done = i.number;
}

/* Runs work until `done`, of stream s first of all. */
void work(CUstream_st *s, const std::function<bool()> &done)
{
    window w;
    int idle = 0;
    waited++;
    while (!done()) {
        if (seed && draw(2)) {
            CUstream_st *o = streams[draw((uint32_t)streams.size())];
            if (ready(o)) {
                step(o);
                continue;
            }
        }
        CUstream_st *t = s;
        for (size_t k = 0; t && !t->q.empty() && !ready(t) && t->q.front().await && k < 1000; k++)
            t = t->q.front().await->on;
        if (t && ready(t)) {
            step(t);
            continue;
        }
        int other = 0; /* a message that a peer has not answered: the others go on         */
        for (CUstream_st *o : streams)
            if (!other && o != t && ready(o))
                step(o), other = 1;
        if (!other && !messages)
            wrong("streams wait for each other for ever");
        if (!other && ++idle > 30000)
            wrong("no peer answers a message or reaches an event for 30 seconds");
        if (!other)
            usleep(1000);
    }
}

/* A GPU goes on while its host waits for something else, as for MPI: work that nobody has asked for
 * in 20 ms runs. */
void *go_on(void *)
{
    for (;;) {
        usleep(5000);
        if (time_ms() - last_call < 20 || !lock.try_lock())
            continue;
        {
            window w;
            for (size_t i = 0; i < streams.size(); i++)
                if (ready(streams[i]))
                    step(streams[i]);
        }
        lock.unlock();
    }
    return nullptr;
}

void begin_to_go_on()
{
    pthread_t t;
    if (!messages++)
        pthread_create(&t, nullptr, go_on, nullptr);
}

CUresult add(CUstream_st *s, item i)
{
    last_call = time_ms();
    if (!current)
        return XD_CU_INVALID_CONTEXT;
    if (!s || s->of != current)
        return XD_CU_INVALID_HANDLE; /* the default stream; one of another GPU               */
    if (s->into) {
        s->into->items.push_back(std::move(i));
        return XD_CU_SUCCESS;
    }
    if (i.record)
        i.number = ++i.record->at->recorded, i.record->on = s;
    if (i.await)
        i.number = i.await->at->recorded;
    s->q.push_back(std::move(i));
    return XD_CU_SUCCESS;
}
} // namespace

/* For the stand-ins of the other libraries. */
API CUresult simgpu_enqueue(CUstream s, std::function<void()> *fn)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    item i;
    i.run = std::move(*fn);
    return add(s, std::move(i));
}
API CUresult simgpu_poll(CUstream s, std::function<bool()> *fn)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    item i;
    begin_to_go_on();
    i.poll = std::move(*fn);
    return add(s, std::move(i));
}
API int simgpu_on_device(const void *p, size_t n) { return on_device(p, n); }

/* ---- the machine
 * ----------------------------------------------------------------------------------- */

static int setting(const char *name, int usual)
{
    const char *s = getenv(name);
    return s ? atoi(s) : usual;
}
API CUresult cuInit(unsigned)
{
    start();
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
        *v = 232448;
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
API CUresult cuGetErrorString(CUresult r, const char **s)
{
    static char text[64];
    snprintf(text, sizeof text, "simulated error %d", (int)r);
    *s = text;
    return XD_CU_SUCCESS;
}
API CUresult cuCtxSynchronize()
{
    std::lock_guard<std::recursive_mutex> g(lock);
    for (CUstream_st *s : streams)
        work(s, [s] { return s->q.empty(); });
    return XD_CU_SUCCESS;
}

/* ---- memory
 * ---------------------------------------------------------------------------------------- */

API CUresult cuMemGetInfo_v2(size_t *f, size_t *t)
{
    start();
    if (!current)
        return XD_CU_INVALID_CONTEXT;
    *f = limit_ - current->used, *t = limit_;
    return XD_CU_SUCCESS;
}
API CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t bytes)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    size_t pages = (bytes + PAGE - 1) / PAGE * PAGE, lead = (pages - bytes) & ~(size_t)255;
    if (!current)
        return XD_CU_INVALID_CONTEXT;
    if (!bytes)
        return XD_CU_INVALID_VALUE;
    if (current->used + bytes > limit_ || next_ + pages + 2 * PAGE > SPAN)
        return XD_CU_OUT_OF_MEMORY;
    size_t at = next_ + PAGE + lead;
    next_ += pages + PAGE;
    current->used += bytes;
    blocks[far_ + at] = bytes;
    owners[far_ + at] = current;
    if (bytes < (size_t)1 << 30)
        memset(near_ + at, 0xff, bytes);
    *p = (CUdeviceptr)(far_ + at);
    return XD_CU_SUCCESS;
}
API CUresult cuMemFree_v2(CUdeviceptr p)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    if (!p)
        return XD_CU_SUCCESS;
    cuCtxSynchronize();
    auto b = blocks.find((char *)p);
    if (b == blocks.end())
        return XD_CU_INVALID_VALUE;
    size_t at = (size_t)(b->first - far_) / PAGE * PAGE;
    fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at,
              (off_t)((b->second + 2 * PAGE - 1) / PAGE * PAGE - PAGE));
    owners[b->first]->used -= b->second;
    owners.erase(b->first);
    blocks.erase(b);
    return XD_CU_SUCCESS;
}
API CUresult cuMemHostAlloc(void **p, size_t bytes, unsigned)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    if (!(*p = aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE)))
        return XD_CU_OUT_OF_MEMORY;
    memset(*p, 0xff, bytes);
    pinned[(char *)*p] = bytes;
    return XD_CU_SUCCESS;
}
API CUresult cuMemFreeHost(void *p)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    cuCtxSynchronize();
    pinned.erase((char *)p);
    free(p);
    return XD_CU_SUCCESS;
}

static CUresult move(void *to, const void *from, size_t n, CUstream s)
{
    item i;
    i.run = [=] { memmove(to, from, n); };
    return n ? add(s, std::move(i)) : XD_CU_SUCCESS;
}
API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t n, CUstream s)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    return is_pinned(from, n) && on_device((void *)to, n) && in_reach((void *)to)
               ? move((void *)to, from, n, s)
               : XD_CU_INVALID_VALUE;
}
API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t n, CUstream s)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    if (!is_pinned(to, n) || !on_device((void *)from, n) || !in_reach((void *)from))
        return XD_CU_INVALID_VALUE;
    memset(to, 0xff, n);
    return move(to, (void *)from, n, s);
}
API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    return on_device((void *)to, n) && on_device((void *)from, n) && in_reach((void *)to) &&
                   in_reach((void *)from)
               ? move((void *)to, (void *)from, n, s)
               : XD_CU_INVALID_VALUE;
}
API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char v, size_t n, CUstream s)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    if (!on_device((void *)to, n) || !in_reach((void *)to))
        return XD_CU_INVALID_VALUE;
    item i;
    i.run = [=] { memset((void *)to, v, n); };
    return n ? add(s, std::move(i)) : XD_CU_SUCCESS;
}

/* Memory of another process: its file through /proc, mapped where nobody may follow it either. */
struct handle {
    int pid, fd;
    size_t at, bytes;
};
API CUresult cuIpcGetMemHandle(CUipcMemHandle *h, CUdeviceptr p)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    auto b = blocks.find((char *)p);
    if (b == blocks.end())
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
        return XD_CU_INVALID_CONTEXT; /* as the driver: not in the process that has it    */
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
    munmap(from, (size_t)(b->first + b->second - from));
    opened.erase(b);
    return XD_CU_SUCCESS;
}

/* ---- streams and events
 * ---------------------------------------------------------------------------- */

API CUresult cuStreamCreateWithPriority(CUstream *s, unsigned, int)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    if (!current)
        return XD_CU_INVALID_CONTEXT;
    streams.push_back(*s = new CUstream_st);
    (*s)->of = current;
    return XD_CU_SUCCESS;
}
API CUresult cuStreamSynchronize(CUstream s)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    if (!s || s->into)
        return XD_CU_INVALID_HANDLE;
    work(s, [s] { return s->q.empty(); });
    return XD_CU_SUCCESS;
}
API CUresult cuStreamDestroy_v2(CUstream s)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    cuStreamSynchronize(s);
    for (size_t i = 0; i < streams.size(); i++)
        if (streams[i] == s)
            streams.erase(streams.begin() + (long)i);
    delete s;
    return XD_CU_SUCCESS;
}
API CUresult cuEventCreate(CUevent *e, unsigned flags)
{
    *e = new CUevent_st;
    (*e)->flags = flags;
    return XD_CU_SUCCESS;
}
API CUresult cuEventDestroy_v2(CUevent)
{
    return XD_CU_SUCCESS;
} /* items may still name it         */
API CUresult cuEventRecord(CUevent e, CUstream s)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    item i;
    if (e->flags & FROM_ELSEWHERE)
        return XD_CU_INVALID_HANDLE;
    i.record = e;
    return add(s, std::move(i));
}
API CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    item i;
    i.await = e;
    return add(s, std::move(i));
}
API CUresult cuEventQuery(CUevent e)
{
    return e->at->done >= e->at->recorded ? XD_CU_SUCCESS : XD_CU_NOT_READY;
}
API CUresult cuEventSynchronize(CUevent e)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    uint64_t n = e->at->recorded;
    if (e->at->done < n)
        work(e->on, [e, n] { return e->at->done >= n; });
    return XD_CU_SUCCESS;
}

/* Events of another process: their states lie in a file of the process that records them. */
namespace
{
enum { LENT_EVENTS = 4096 };
event_state *lent_events; /* of this process                                                   */
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
    unsigned need = XD_CU_EVENT_DISABLE_TIMING | SIM_EVENT_INTERPROCESS;
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
    static std::map<int, event_state *> known; /* by process                                   */
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

/* ---- graphs: what was captured, in the order in which it was
 * ----------------------------------------- */

API CUresult cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode)
{
    s->into = new CUgraph_st;
    return XD_CU_SUCCESS;
}
API CUresult cuStreamEndCapture(CUstream s, CUgraph *g)
{
    *g = s->into;
    s->into = nullptr;
    return XD_CU_SUCCESS;
}
API CUresult cuGraphInstantiateWithFlags(CUgraphExec *x, CUgraph g, unsigned long long)
{
    *x = new CUgraphExec_st { g->items };
    return XD_CU_SUCCESS;
}
API CUresult cuGraphLaunch(CUgraphExec x, CUstream s)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    for (item &i : x->items)
        add(s, i);
    return XD_CU_SUCCESS;
}
API CUresult cuGraphExecDestroy(CUgraphExec x)
{
    delete x;
    return XD_CU_SUCCESS;
}
API CUresult cuGraphDestroy(CUgraph g)
{
    delete g;
    return XD_CU_SUCCESS;
}

/* ---- kernels
 * --------------------------------------------------------------------------------------- */

/* The file is a shared library of kernels for the CPU. */
API CUresult cuModuleLoad(CUmodule *m, const char *path)
{
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        fprintf(stderr, "simulated GPU: %s\n", dlerror());
        return XD_CU_FILE_NOT_FOUND;
    }
    *m = (CUmodule) new CUmod_st { lib, (launch_fn *)dlsym(lib, "gpu_cpu_launch") };
    return ((CUmod_st *)*m)->launch ? XD_CU_SUCCESS : XD_CU_INVALID_IMAGE;
}
/* Code for a GPU is nothing that can run here. */
API CUresult cuModuleLoadData(CUmodule *, const void *) { return XD_CU_NO_BINARY_FOR_GPU; }
API CUresult cuModuleUnload(CUmodule m)
{
    delete (CUmod_st *)m;
    return XD_CU_SUCCESS;
}
API CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name)
{
    auto *k = (const gpu_kernel *)dlsym(((CUmod_st *)m)->lib, name);
    if (!k)
        return XD_CU_NOT_FOUND;
    *f = (CUfunction) new CUfunc_st { k, (CUmod_st *)m };
    return XD_CU_SUCCESS;
}
API CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v)
{
    if (a != XD_CU_FUNCTION_SHARED_MEMORY || v > 232448)
        return XD_CU_INVALID_VALUE;
    ((CUfunc_st *)f)->shared = v;
    return XD_CU_SUCCESS;
}
/* Has the current GPU failed, as XDIT_SIM_FAIL says? */
static int is_broken()
{
    enum { ILLEGAL_ADDRESS = 700 };
    static const char *fail = getenv("XDIT_SIM_FAIL");
    static long calls;
    int gpu = -1;
    long from = 0;
    if (!fail || sscanf(fail, "%d:%ld", &gpu, &from) != 2 || current != &gpus[gpu])
        return 0;
    return ++calls >= from ? ILLEGAL_ADDRESS : 0;
}
API CUresult cuLaunchKernel(CUfunction f_, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                            unsigned by, unsigned bz, unsigned shared, CUstream s, void **params,
                            void **)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    CUfunc_st *f = (CUfunc_st *)f_;
    if (!gx || !gy || !gz || !bx || !by || !bz || gx > 2147483647u || gy > 65535 || gz > 65535 ||
        bx * by * bz > f->k->threads || shared > (unsigned)f->shared)
        return XD_CU_INVALID_VALUE;
    if (int r = is_broken())
        return (CUresult)r;
    std::vector<char> args((char *)params[0], (char *)params[0] + f->k->size);
    for (size_t at = 0; at + 8 <= args.size(); at += 8) {
        uintptr_t word;
        unsigned char there;
        memcpy(&word, &args[at], 8);
        if (word >= 65536 && word < (uintptr_t)1 << 47 && !in_far((char *)word) &&
            mincore((void *)(word & ~(uintptr_t)(PAGE - 1)), 1, &there) == 0) {
            fprintf(stderr, "simulated GPU: kernel %s is given memory of others: word %zu is %p\n",
                    f->k->name, at / 8, (void *)word);
            abort();
        }
    }
    uint64_t number = ++launched;
    item i;
    i.run = [=] {
        unsigned grid[3] = { gx, gy, gz }, block[3] = { bx, by, bz };
        f->mod->launch(f->k, grid, block, shared, args.data(), seed + number);
    };
    return add(s, std::move(i));
}
