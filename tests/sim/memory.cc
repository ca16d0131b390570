/* memory.cc - memory of the simulated GPUs, pinned memory, copies */
#include "tests/sim/sim.h"

#include <fcntl.h>
#include <sys/mman.h>

namespace sim
{
char *far_, *near_;
int fd = -1;
size_t limit_;
std::map<char *, size_t> blocks, opened;

namespace
{
int depth;
size_t next_;
std::map<char *, CUcontext> owners; /* of blocks: the GPU */
std::map<char *, size_t> pinned;

void reach(int how)
{
    for (auto *m : { &blocks, &opened })
        for (auto &b : *m) {
            char *from = (char *)((uintptr_t)b.first & ~(uintptr_t)(PAGE - 1));
            mprotect(from, (size_t)(b.first + b.second - from), how);
        }
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

int is_pinned(const void *p, size_t n)
{
    auto b = pinned.upper_bound((char *)p);
    if (b == pinned.begin())
        return 0;
    --b;
    return (char *)p + n <= b->first + b->second;
}
} // namespace

void start_memory()
{
    const char *m = getenv("XDIT_SIM_MEMORY");
    limit_ = m ? strtoull(m, nullptr, 10) : (size_t)80 << 30;
    fd = memfd_create("gpu", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)SPAN))
        wrong("no memory file");
    far_ = (char *)mmap(nullptr, SPAN, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    near_ = (char *)mmap(nullptr, SPAN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (far_ == MAP_FAILED || near_ == MAP_FAILED)
        wrong("no address space");
}

window::window()
{
    if (!depth++)
        reach(PROT_READ | PROT_WRITE);
}

window::~window()
{
    if (!--depth)
        reach(PROT_NONE);
}

void close_edges(char *p, size_t n)
{
    size_t before = (uintptr_t)p & (PAGE - 1);
    sim_close(p - before, before);
    sim_close(p + n, (PAGE - (before + n) % PAGE) % PAGE);
}

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

int in_far(const char *p)
{
    if (p >= far_ && p < far_ + SPAN)
        return in_reach(p);
    auto b = opened.upper_bound((char *)p);
    return b != opened.begin() && p < (--b)->first + b->second;
}
} // namespace sim
using namespace sim;

API CUresult cuMemGetInfo_v2(size_t *f, size_t *t)
{
    start();
    if (!current)
        return XD_CU_INVALID_CONTEXT;
    *f = limit_ - current->used, *t = limit_;
    return XD_CU_SUCCESS;
}
/* Is it this allocation that XDIT_SIM_NO_MEMORY fails? */
static bool is_failing()
{
    static const char *s = getenv("XDIT_SIM_NO_MEMORY");
    static long calls;
    return s && ++calls == atol(s);
}
API CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t bytes)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    if (breaks_capture())
        return XD_CU_CAPTURE_REFUSED;
    size_t pages = (bytes + PAGE - 1) / PAGE * PAGE, lead = (pages - bytes) & ~(size_t)255;
    if (!current)
        return XD_CU_INVALID_CONTEXT;
    if (!bytes)
        return XD_CU_INVALID_VALUE;
    if (is_failing() || current->used + bytes > limit_ || next_ + pages + 2 * PAGE > SPAN)
        return XD_CU_OUT_OF_MEMORY;
    size_t at = next_ + PAGE + lead;
    next_ += pages + PAGE;
    counts.memory++;
    current->used += bytes;
    blocks[far_ + at] = bytes;
    owners[far_ + at] = current;
    close_edges(far_ + at, bytes);
    if (bytes < (size_t)1 << 30)
        memset(near_ + at, 0xff, bytes);
    *p = (CUdeviceptr)(far_ + at);
    return XD_CU_SUCCESS;
}
API CUresult cuMemFree_v2(CUdeviceptr p)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    if (breaks_capture())
        return XD_CU_CAPTURE_REFUSED;
    if (!p)
        return XD_CU_SUCCESS;
    counts.memory++;
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
    if (breaks_capture())
        return XD_CU_CAPTURE_REFUSED;
    if (is_failing() || !(*p = aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE)))
        return XD_CU_OUT_OF_MEMORY;
    memset(*p, 0xff, bytes);
    counts.memory++;
    pinned[(char *)*p] = bytes;
    return XD_CU_SUCCESS;
}
API CUresult cuMemFreeHost(void *p)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    if (breaks_capture())
        return XD_CU_CAPTURE_REFUSED;
    counts.memory++;
    cuCtxSynchronize();
    pinned.erase((char *)p);
    free(p);
    return XD_CU_SUCCESS;
}
/* Pages that are not there, or are pinned already, are refused. */
API CUresult cuMemHostRegister_v2(void *p, size_t bytes, unsigned)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    std::vector<unsigned char> there((bytes + PAGE - 1) / PAGE);
    if (breaks_capture())
        return XD_CU_CAPTURE_REFUSED;
    if (!bytes || (uintptr_t)p % PAGE || mincore(p, bytes, there.data()))
        return XD_CU_INVALID_VALUE;
    auto next = pinned.lower_bound((char *)p);
    if (is_pinned(p, 1) || (next != pinned.end() && next->first < (char *)p + bytes))
        return XD_CU_ALREADY_REGISTERED;
    if (is_failing())
        return XD_CU_OUT_OF_MEMORY;
    counts.memory++;
    pinned[(char *)p] = bytes;
    return XD_CU_SUCCESS;
}
API CUresult cuMemHostUnregister(void *p)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    if (breaks_capture())
        return XD_CU_CAPTURE_REFUSED;
    counts.memory++;
    cuCtxSynchronize();
    return pinned.erase((char *)p) ? XD_CU_SUCCESS : XD_CU_NOT_REGISTERED;
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
    if (s && s->into && breaks_capture())
        return XD_CU_CAPTURE_REFUSED;
    counts.uploads++;
    return is_pinned(from, n) && on_device((void *)to, n) && in_reach((void *)to)
               ? move((void *)to, from, n, s)
               : XD_CU_INVALID_VALUE;
}
API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t n, CUstream s)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    if (s && s->into && breaks_capture())
        return XD_CU_CAPTURE_REFUSED;
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
