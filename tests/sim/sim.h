/* sim.h - inside the simulated driver: its state and what its files share (driver.cc has the
 * rules) */
#ifndef XD_TESTS_SIM_SIM_H
#define XD_TESTS_SIM_SIM_H

#include "tests/sim/asan.h"
#include "tests/sim/counts.h"
#include "tests/sim/more.h"

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include <unistd.h>

#define API extern "C" __attribute__((visibility("default")))

struct gpu_kernel {
    const char *name;
    unsigned    size, threads;
    void        (*run)(const void *);
};
typedef void launch_fn(const gpu_kernel *, const unsigned *, const unsigned *, unsigned,
                       const void *, uint64_t);

struct item {
    std::function<void()> run;
    std::function<bool()> poll; /* of messages: begins or goes on; true when all has ended */
    CUevent_st           *record = nullptr, *await = nullptr;
    uint64_t              number = 0;
};
enum { FROM_ELSEWHERE = 1 << 16 }; /* a flag of an event: another process records it */

/* How often an event was recorded, and which of these records has been reached. */
struct event_state { std::atomic<uint64_t> recorded{ 0 }, done{ 0 }; };
struct CUevent_st {
    event_state  own, *at = &own; /* at: in memory of all processes when the event is lent */
    unsigned     flags = 0;
    CUstream_st *on = nullptr; /* null: of another process */
    double       when = 0;
};
struct CUgraph_st {
    std::vector<item> items;
    int               lost = 0; /* something was asked that cannot be captured */
};
struct CUgraphExec_st { std::vector<item> items; };
struct CUstream_st {
    CUctx_st        *of;
    std::deque<item> q;
    CUgraph_st      *into = nullptr;
};
struct CUfunc_st;
struct CUmod_st {
    void                    *lib;
    launch_fn               *launch;
    std::vector<CUfunc_st *> functions;
};
struct CUfunc_st {
    const gpu_kernel *k;
    CUmod_st         *mod;
    int               shared = 48 << 10;
};
struct CUctx_st { size_t used; /* bytes of its memory that are given out */ };

namespace sim
{
enum { PAGE = 4096, GPUS = 16 };
enum { SHARED = 99 << 10 }; /* bytes that a block may ask for: the least of all capabilities */
const size_t SPAN = (size_t)1 << 37;

/* driver.cc */
extern std::recursive_mutex   lock;
extern CUctx_st               gpus[GPUS];
extern thread_local CUcontext current;
extern uint64_t               seed;
extern sim_counts             counts;
void                          start(); /* reads the settings, makes the memory */
[[noreturn]] void             wrong(const char *what);

/* memory.cc */
extern char  *far_, *near_;             /* the addresses that are handed out; the host's own */
extern int    fd;                       /* of the memory */
extern size_t limit_;                   /* bytes of a GPU */
extern std::map<char *, size_t> blocks; /* of device memory: where, bytes */
extern std::map<char *, size_t> opened; /* of other processes */
void                            start_memory();
int                             on_device(const void *p, size_t n);
void                            close_edges(char *p, size_t n); /* what pages have beside a block */
int in_far(const char *p); /* 1: in memory that the current GPU may follow */

/* Kernels may follow device addresses while this lives. */
struct window {
    window();
    ~window();
};

/* streams.cc */
extern std::vector<CUstream_st *> streams;
void                              start_order();
CUresult                          add(CUstream_st *s, item i);
void begin_to_go_on(); /* other processes wait for this one from now on */

/* graphs.cc */
int breaks_capture(); /* 1: this thread captures, and the capture is lost */
} // namespace sim

#endif
