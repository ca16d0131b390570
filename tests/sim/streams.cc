/* streams.cc - streams and events of the simulated GPUs: what runs, and when */
#include "tests/sim/sim.h"

#include <pthread.h>

/* How long to wait for another process. */
API long simgpu_patience_ms()
{
    const char *s = getenv("XDIT_SIM_PATIENCE");
    return s ? 1000 * atol(s) : 30000;
}

namespace sim
{
std::vector<CUstream_st *> streams;

namespace
{
uint64_t seeded;
long last_call;
int messages; /* other processes wait for this one: it goes on while its host waits */
long idle;    /* ms in which nothing could run while this host waited or asked */

long time_ms()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Work that the libraries' stand-ins only claim to have done, in ms. */
static double claimed;
API void simgpu_spend(double ms)
{
    claimed += ms;
}

/* ms at which an event is reached: later than all others before it. */
double moment()
{
    static double last;
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    double now = (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6 + claimed;
    return last = now > last + 5e-4 ? now : last + 5e-4;
}

uint32_t draw(uint32_t n)
{
    seeded = seeded * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((seeded >> 33) % n);
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
    idle = 0;
    if (i.run)
        i.run();
    if (i.record && i.record->at->done < i.number) {
        i.record->when = moment();
        i.record->at->done = i.number;
    }
}

/* Runs a piece of work, of stream s first of all, or waits 1 ms for other processes. */
void work_once(CUstream_st *s)
{
    if (seed && draw(2)) {
        CUstream_st *o = streams[draw((uint32_t)streams.size())];
        if (ready(o))
            return step(o);
    }
    CUstream_st *t = s;
    for (size_t k = 0; t && !t->q.empty() && !ready(t) && t->q.front().await && k < 1000; k++)
        t = t->q.front().await->on;
    if (t && ready(t))
        return step(t);
    for (CUstream_st *o : streams) /* a message that a peer has not answered: the others go on */
        if (o != t && ready(o))
            return step(o);
    if (!messages)
        wrong("streams wait for each other for ever");
    if (++idle > simgpu_patience_ms())
        wrong("no peer answers a message or reaches an event for many seconds");
    usleep(1000);
}

/* Runs work until `done`. */
void work(CUstream_st *s, const std::function<bool()> &done)
{
    window w;
    for (idle = 0; !done();)
        work_once(s);
    idle = 0;
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
} // namespace

void start_order()
{
    seeded = seed;
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
        return XD_CU_INVALID_HANDLE; /* the default stream; one of another GPU */
    if (s->into && (i.record || i.await || i.poll)) {
        breaks_capture();
        return XD_CU_CAPTURE_REFUSED;
    }
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
} // namespace sim
using namespace sim;

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
    if (breaks_capture())
        return XD_CU_CAPTURE_REFUSED;
    if (!s)
        return XD_CU_INVALID_HANDLE;
    counts.waits++;
    work(s, [s] { return s->q.empty(); });
    return XD_CU_SUCCESS;
}
API CUresult cuCtxSynchronize()
{
    std::lock_guard<std::recursive_mutex> g(lock);
    if (breaks_capture())
        return XD_CU_CAPTURE_REFUSED;
    counts.waits++;
    for (CUstream_st *s : streams)
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
/* Work in a stream may still name it, so it is kept. */
API CUresult cuEventDestroy_v2(CUevent e)
{
    static auto *kept = new std::vector<CUevent>;
    std::lock_guard<std::recursive_mutex> g(lock);
    kept->push_back(e);
    return XD_CU_SUCCESS;
}
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
/* A GPU works while its host asks again and again: a piece of what the event waits for runs. Hosts
 * that ask one another's GPUs in vain end as those that wait do. */
API CUresult cuEventQuery(CUevent e)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    if (breaks_capture())
        return XD_CU_CAPTURE_REFUSED;
    uint64_t n = e->at->recorded;
    if (e->at->done < n && e->on) {
        window w;
        work_once(e->on);
    }
    if (e->at->done < n)
        return XD_CU_NOT_READY;
    idle = 0;
    return XD_CU_SUCCESS;
}
API CUresult cuEventSynchronize(CUevent e)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    if (breaks_capture())
        return XD_CU_CAPTURE_REFUSED;
    uint64_t n = e->at->recorded;
    if (e->at->done < n) {
        counts.waits++;
        work(e->on, [e, n] { return e->at->done >= n; });
    }
    return XD_CU_SUCCESS;
}
/* Both have been reached, and were made to be timed. */
API CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    if ((from->flags | to->flags) & XD_CU_EVENT_DISABLE_TIMING || !from->at->recorded ||
        !to->at->recorded)
        return XD_CU_INVALID_HANDLE;
    if (from->at->done < from->at->recorded || to->at->done < to->at->recorded)
        return XD_CU_NOT_READY;
    *ms = (float)(to->when - from->when);
    return XD_CU_SUCCESS;
}
