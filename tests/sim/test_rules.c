/* test_rules.c - what the simulated GPU must notice, and what it must do right: memory, order,
 * copies, launches, graphs, memory of another process */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/sim/asan.h"
#include "tests/sim/more.h"

#if SIM_ASAN
/* What is opened here is not closed. */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int                                        __lsan_is_turned_off(void)
{
    return 1;
}
#endif

static CUstream a, b;
static int      checks, failed;

static void tap(int ok, const char *what)
{
    failed += !ok;
    printf("%sok %d - %s\n", ok ? "" : "not ", ++checks, what);
    fflush(stdout);
}

static void begin(void)
{
    CUcontext c = NULL;
    cuInit(0);
    cuDevicePrimaryCtxRetain(&c, 0);
    cuCtxSetCurrent(c);
    cuStreamCreateWithPriority(&a, XD_CU_STREAM_NON_BLOCKING, 0);
    cuStreamCreateWithPriority(&b, XD_CU_STREAM_NON_BLOCKING, 0);
}

/* The signal that ends a process that does this; 0: it ends by itself. */
static int signal_of(void (*f)(void))
{
    int   st = 0;
    pid_t p = fork();
    if (!p) {
        const struct rlimit none = { 0, 0 };
        setrlimit(RLIMIT_CORE, &none);
        if (!freopen("/dev/null", "w", stderr))
            _exit(1);
        signal(SIGSEGV, SIG_DFL); /* a sanitizer would report it and exit */
        begin();
        f();
        _exit(0);
    }
    waitpid(p, &st, 0);
    return WIFSIGNALED(st) ? WTERMSIG(st) : 0;
}

static CUdeviceptr block_of(size_t bytes)
{
    CUdeviceptr p = 0;
    cuMemAlloc_v2(&p, bytes);
    return p;
}

static unsigned char *pinned(size_t bytes)
{
    void *p = NULL;
    cuMemHostAlloc(&p, bytes, 0);
    return p;
}

/* ---- memory ------------------------------------------------------------------------------- */

static void follow(void)
{
    *(volatile char *)(uintptr_t)block_of(4096);
}

static void follow_after_work(void)
{
    CUdeviceptr p = block_of(4096);
    cuMemsetD8Async(p, 1, 4096, a);
    cuStreamSynchronize(a);
    *(volatile char *)(uintptr_t)p;
}

static int new_memory_is_nan(void)
{
    unsigned char *h = pinned(64);
    cuMemcpyDtoHAsync_v2(h, block_of(64), 64, a);
    cuStreamSynchronize(a);
    return h[0] == 0xff && h[63] == 0xff;
}

static int memory_ends(void)
{
    CUdeviceptr p = 0;
    size_t      available = 0, total = 0;
    cuMemGetInfo_v2(&available, &total);
    return cuMemAlloc_v2(&p, total + 1) == XD_CU_OUT_OF_MEMORY && available < total;
}

/* ---- order -------------------------------------------------------------------------------- */

/* a fills x, b copies it to the host. Tens: nothing was there before the wait; ones: the fill was
 * seen. */
static int two_streams(int with_event)
{
    CUdeviceptr    x = block_of(64);
    CUevent        e = NULL;
    unsigned char *h = pinned(64);
    cuEventCreate(&e, XD_CU_EVENT_DISABLE_TIMING);
    cuMemsetD8Async(x, 7, 64, a);
    if (with_event) {
        cuEventRecord(e, a);
        cuStreamWaitEvent(b, e, 0);
    }
    cuMemcpyDtoHAsync_v2(h, x, 64, b);
    int early = h[0] == 0xff;
    cuStreamSynchronize(b);
    return early * 10 + (h[5] == 7);
}

/* Two events with a fill between them have times once both are reached, one without timing none. */
static int event_times(void)
{
    CUdeviceptr x = block_of(64);
    CUevent     e[3] = { NULL };
    float       ms = -1, back = 1;
    cuEventCreate(&e[0], XD_CU_EVENT_DEFAULT);
    cuEventCreate(&e[1], XD_CU_EVENT_DEFAULT);
    cuEventCreate(&e[2], XD_CU_EVENT_DISABLE_TIMING);
    int never = cuEventElapsedTime(&ms, e[0], e[1]) == XD_CU_INVALID_HANDLE;
    cuEventRecord(e[0], a);
    cuMemsetD8Async(x, 7, 64, a);
    cuEventRecord(e[1], a);
    cuEventRecord(e[2], a);
    int early = cuEventElapsedTime(&ms, e[0], e[1]) == XD_CU_NOT_READY;
    cuStreamSynchronize(a);
    return never && early && cuEventElapsedTime(&ms, e[0], e[1]) == XD_CU_SUCCESS && ms > 0 &&
           cuEventElapsedTime(&back, e[1], e[0]) == XD_CU_SUCCESS && back < 0 &&
           cuEventElapsedTime(&ms, e[0], e[2]) == XD_CU_INVALID_HANDLE;
}

/* The host changes what a copy has not read yet. */
static int reused(void)
{
    CUdeviceptr    x = block_of(64);
    unsigned char *h = pinned(64), *g = pinned(64);
    memset(h, 1, 64);
    cuMemcpyHtoDAsync_v2(x, h, 64, a);
    memset(h, 2, 64);
    cuMemcpyDtoHAsync_v2(g, x, 64, a);
    cuStreamSynchronize(a);
    return g[0];
}

/* What is captured runs when the graph is launched, once for each launch, and in its order. */
static int graph(void)
{
    CUdeviceptr    x = block_of(64);
    CUgraph        g = NULL;
    CUgraphExec    exec = NULL;
    unsigned char *h = pinned(64);
    cuMemsetD8Async(x, 1, 64, a);
    cuStreamBeginCapture_v2(a, XD_CU_CAPTURE_THREAD_LOCAL);
    cuMemsetD8Async(x, 8, 64, a);
    cuMemsetD8Async(x, 9, 32, a);
    cuStreamEndCapture(a, &g);
    cuGraphInstantiateWithFlags(&exec, g, 0);
    cuGraphDestroy(g);
    cuMemcpyDtoHAsync_v2(h, x, 64, a);
    cuStreamSynchronize(a);
    int before = h[0] == 1 && h[63] == 1;
    for (int i = 0; i < 2; i++) {
        cuMemsetD8Async(x, 2, 64, a);
        cuGraphLaunch(exec, a);
        cuMemcpyDtoHAsync_v2(h, x, 64, a);
        cuStreamSynchronize(a);
        before = before && h[0] == 9 && h[63] == 8;
    }
    return before && cuGraphExecDestroy(exec) == XD_CU_SUCCESS;
}

/* The result of f in a capture, which is lost with it. */
static int refused_in_capture(CUresult (*f)(void))
{
    CUgraph g = NULL;
    cuStreamBeginCapture_v2(a, XD_CU_CAPTURE_THREAD_LOCAL);
    CUresult r = f();
    return r == XD_CU_CAPTURE_REFUSED && cuStreamEndCapture(a, &g) == XD_CU_CAPTURE_LOST && !g;
}

static CUresult do_wait(void)
{
    return cuStreamSynchronize(b);
}
static CUresult do_sync(void)
{
    return cuCtxSynchronize();
}
static CUresult do_alloc(void)
{
    CUdeviceptr p;
    return cuMemAlloc_v2(&p, 64);
}

static CUevent     event_in_capture;
static CUdeviceptr block_in_capture;
static void       *pinned_in_capture;

static CUresult do_record(void)
{
    return cuEventRecord(event_in_capture, a);
}
static CUresult do_await(void)
{
    return cuEventSynchronize(event_in_capture);
}
static CUresult do_free(void)
{
    return cuMemFree_v2(block_in_capture);
}

static CUresult do_upload(void)
{
    return cuMemcpyHtoDAsync_v2(block_in_capture, pinned_in_capture, 64, a);
}

static int captures_are_strict(void)
{
    CUresult (*const all[])(void) = { do_wait,  do_sync, do_alloc, do_record,
                                      do_await, do_free, do_upload };
    int      ok = 1;
    cuEventCreate(&event_in_capture, XD_CU_EVENT_DEFAULT);
    block_in_capture = block_of(64);
    pinned_in_capture = pinned(64);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        ok = refused_in_capture(all[i]) && ok;
    return ok && cuMemsetD8Async(block_in_capture, 0, 64, a) == XD_CU_SUCCESS &&
           cuStreamSynchronize(a) == XD_CU_SUCCESS;
}

/* ---- launches ----------------------------------------------------------------------------- */

static CUfunction widen(void)
{
    CUmodule    m = NULL;
    CUfunction  f = NULL;
    const char *dir = getenv("XDIT_CUDA_DIR");
    char        path[4096];
    snprintf(path, sizeof path, "%s/xdit_kernels.so", dir ? dir : ".");
    if (cuModuleLoad(&m, path) == XD_CU_SUCCESS)
        cuModuleGetFunction(&f, m, "widen");
    return f;
}

typedef struct args {
    void       *out;
    const void *in;
    int64_t     n;
    int         out_bf16, rest;
} args;

static CUresult launch(void *out, const void *in, unsigned threads, unsigned shared)
{
    args  w = { out, in, 16, 0, 0 };
    void *list[] = { &w };
    return cuLaunchKernel(widen(), 1, 1, 1, threads, 1, 1, shared, a, list, NULL);
}

static void host_memory(void)
{
    launch(malloc(64), (void *)(uintptr_t)block_of(64), 256, 0);
}

/* The struct of a kernel's arguments changes after it was captured. */
static int graph_keeps_arguments(void)
{
    CUdeviceptr    x = block_of(64), y = block_of(64), in = block_of(64);
    CUgraph        g = NULL;
    CUgraphExec    exec = NULL;
    args           w = { (void *)(uintptr_t)x, (void *)(uintptr_t)in, 16, 0, 0 };
    void          *list[] = { &w };
    unsigned char *h = pinned(128);
    CUfunction     f = widen();
    cuMemsetD8Async(in, 0, 64, a);
    cuStreamBeginCapture_v2(a, XD_CU_CAPTURE_THREAD_LOCAL);
    cuLaunchKernel(f, 1, 1, 1, 256, 1, 1, 0, a, list, NULL);
    cuStreamEndCapture(a, &g);
    w.out = (void *)(uintptr_t)y;
    cuGraphInstantiateWithFlags(&exec, g, 0);
    cuGraphLaunch(exec, a);
    cuMemcpyDtoHAsync_v2(h, x, 64, a);
    cuMemcpyDtoHAsync_v2(h + 64, y, 64, a);
    cuStreamSynchronize(a);
    return f && h[0] == 0 && h[63] == 0 && h[64] == 0xff;
}

/* 16 bytes are read behind a block. */
static void overrun(void)
{
    launch((void *)(uintptr_t)block_of(64), (void *)(uintptr_t)(block_of(256) + 256), 256, 0);
    cuStreamSynchronize(a);
}

/* Makes the second GPU current. */
static void second_gpu(void)
{
    CUcontext c = NULL;
    cuDevicePrimaryCtxRetain(&c, 1);
    cuCtxSetCurrent(c);
}

static void memory_of_another_gpu(void)
{
    CUdeviceptr x = block_of(64);
    second_gpu();
    CUdeviceptr y = block_of(64);
    cuStreamCreateWithPriority(&a, XD_CU_STREAM_NON_BLOCKING, 0);
    launch((void *)(uintptr_t)y, (void *)(uintptr_t)x, 256, 0);
}

/* Each GPU has memory and streams of its own. */
static int two_gpus(void)
{
    CUdeviceptr x = block_of(64), y = 0;
    CUstream    s = NULL;
    CUdevice    d = -1;
    CUcontext   first = NULL;
    size_t      before = 0, after = 0, total = 0;
    int         n = 0;
    cuDeviceGetCount(&n);
    cuDevicePrimaryCtxRetain(&first, 0);
    cuMemGetInfo_v2(&before, &total);
    second_gpu();
    y = block_of(4096);
    cuStreamCreateWithPriority(&s, XD_CU_STREAM_NON_BLOCKING, 0);
    int ok = n == 2 && cuDeviceGet(&d, 2) != XD_CU_SUCCESS &&
             cuMemsetD8Async(y, 0, 64, s) == XD_CU_SUCCESS &&
             cuMemsetD8Async(y, 0, 64, a) != XD_CU_SUCCESS &&
             cuMemsetD8Async(x, 0, 64, s) != XD_CU_SUCCESS &&
             cuMemcpyDtoDAsync_v2(y, x, 64, s) != XD_CU_SUCCESS;
    cuCtxSetCurrent(first);
    cuMemGetInfo_v2(&after, &total);
    return ok && after == before;
}

static int launches(void)
{
    void *x = (void *)(uintptr_t)block_of(64), *y = (void *)(uintptr_t)block_of(64);
    return widen() && launch(x, y, 256, 0) == XD_CU_SUCCESS &&
           launch(x, y, 512, 0) != XD_CU_SUCCESS && launch(x, y, 256, 64 << 10) != XD_CU_SUCCESS &&
           cuStreamSynchronize(a) == XD_CU_SUCCESS;
}

static int shared_memory_ends(void)
{
    CUfunction f = widen();
    return f && !cuFuncSetAttribute(f, XD_CU_FUNCTION_SHARED_MEMORY, 99 << 10) &&
           cuFuncSetAttribute(f, XD_CU_FUNCTION_SHARED_MEMORY, (99 << 10) + 1);
}

/* ---- two processes ------------------------------------------------------------------------ */

static void lend_child(int from, int to)
{
    CUdeviceptr    x = 0;
    CUipcMemHandle h;
    begin();
    if (read(from, &h, sizeof h) != sizeof h || cuIpcOpenMemHandle_v2(&x, h, 1))
        _exit(2);
    cuMemsetD8Async(x + 100, 5, 50, a);
    cuStreamSynchronize(a);
    cuIpcCloseMemHandle(x);
    if (write(to, "x", 1) != 1)
        _exit(3);
    pause();
}

/* A child writes to memory that its parent lends. */
static int lent(void)
{
    int            up[2], down[2], st;
    char           any;
    CUipcMemHandle h;
    if (pipe(up) || pipe(down))
        return 0;
    pid_t p = fork();
    if (!p)
        lend_child(down[0], up[1]);
    begin();
    CUdeviceptr    x = block_of(2 << 20);
    unsigned char *g = pinned(200);
    if (cuIpcGetMemHandle(&h, block_of(1000)) == XD_CU_SUCCESS) /* it shares 2 MiB */
        return 0;
    cuMemsetD8Async(x, 3, 1000, a);
    cuStreamSynchronize(a);
    cuIpcGetMemHandle(&h, x);
    if (write(down[1], &h, sizeof h) != sizeof h || read(up[0], &any, 1) != 1)
        return 0;
    cuMemcpyDtoHAsync_v2(g, x, 200, a);
    cuStreamSynchronize(a);
    kill(p, SIGTERM);
    waitpid(p, &st, 0);
    return g[99] == 3 && g[100] == 5 && g[149] == 5 && g[150] == 3;
}

typedef struct lent_work {
    CUipcMemHandle   memory;
    CUipcEventHandle event;
} lent_work;

/* Reads what the parent has queued, behind its event or at once. */
static void await_child(int from, int to, int with_event)
{
    CUdeviceptr x = 0;
    CUevent     e = NULL;
    lent_work   w;
    begin();
    unsigned char *h = pinned(64);
    if (read(from, &w, sizeof w) != sizeof w || cuIpcOpenMemHandle_v2(&x, w.memory, 1))
        _exit(2);
    if (with_event && (cuIpcOpenEventHandle(&e, w.event) || cuStreamWaitEvent(b, e, 0)))
        _exit(3);
    cuMemcpyDtoHAsync_v2(h, x, 64, b);
    cuStreamSynchronize(b);
    unsigned char said = e && cuEventRecord(e, b) == XD_CU_SUCCESS ? 0 : h[63];
    _exit(write(to, &said, 1) != 1);
}

/* What a child reads of memory that its parent's stream fills while the parent waits for it: 255 is
 * new memory. 0: an error. */
static int awaited(int with_event)
{
    int           up[2], down[2], st;
    unsigned char got = 0;
    lent_work     w = { { "" }, { "" } };
    CUevent       e = NULL, private_event = NULL;
    if (pipe(up) || pipe(down))
        return 0;
    pid_t p = fork();
    if (!p)
        await_child(down[0], up[1], with_event);
    begin();
    CUdeviceptr x = block_of(2 << 20);
    cuEventCreate(&private_event, XD_CU_EVENT_DISABLE_TIMING);
    cuEventCreate(&e, XD_CU_EVENT_DISABLE_TIMING | XD_CU_EVENT_INTERPROCESS);
    cuMemsetD8Async(x, 7, 64, a);
    cuEventRecord(e, a);
    if (cuIpcGetEventHandle(&w.event, private_event) == XD_CU_SUCCESS ||
        (with_event && cuIpcGetEventHandle(&w.event, e)) || cuIpcGetMemHandle(&w.memory, x) ||
        write(down[1], &w, sizeof w) != sizeof w || read(up[0], &got, 1) != 1)
        got = 0;
    waitpid(p, &st, 0);
    return got;
}

/* What f returns in a process that has not begun. */
static int in_new_process(int (*f)(int), int arg)
{
    int   st = 0;
    pid_t p = fork();
    if (!p)
        _exit(f(arg));
    waitpid(p, &st, 0);
    return WIFEXITED(st) ? WEXITSTATUS(st) : -1;
}

int main(void)
{
    CUdeviceptr x;
    char       *plain = malloc(64);
    tap(in_new_process(awaited, 1) == 7, "a stream waits for an event of another process");
    tap(in_new_process(awaited, 0) == 0xff, "without it, it reads too early");
    tap(lent(), "memory is lent to another process");
    x = block_of(64);
    tap(signal_of(follow) == SIGSEGV, "a host that follows a device address dies");
    tap(signal_of(follow_after_work) == SIGSEGV, "and dies after work, too");
    tap(new_memory_is_nan(), "new memory holds NaNs");
    tap(memory_ends(), "memory ends");
    tap(two_streams(0) == 10, "without an event another stream reads too early");
    tap(two_streams(1) == 11, "with an event it waits, and nothing is there before");
    tap(reused() == 2, "a copy reads late: a buffer that is reused too early is seen");
    tap(cuMemcpyHtoDAsync_v2(x, plain, 64, a) != XD_CU_SUCCESS, "pageable memory is refused");
    tap(cuMemsetD8Async(x, 0, 64, NULL) != XD_CU_SUCCESS, "the default stream is refused");
    tap(cuMemsetD8Async(x, 0, 65, a) != XD_CU_SUCCESS, "a copy beyond its block is refused");
    tap(event_times(), "events have times once they are reached, if they were made for it");
    tap(graph(), "a graph runs what was captured, when it is launched");
    tap(graph_keeps_arguments(), "a graph keeps the arguments that a kernel had");
    tap(captures_are_strict(), "waits, memory, events and copies up are refused in a capture");
    tap(launches(), "launches beyond a kernel's limits are refused");
    tap(shared_memory_ends(), "no kernel gets more shared memory than every GPU has");
    /* Arguments are not checked under AddressSanitizer (launches.cc). */
    tap(SIM_ASAN || signal_of(host_memory) == SIGABRT,
        "a kernel that is given host memory ends the program");
    tap(signal_of(overrun) == SIGSEGV || signal_of(overrun) == SIGBUS,
        "a kernel that reads beyond a block dies");
    setenv("XDIT_SIM_DEVICES", "2", 1);
    tap(two_gpus(), "a GPU has memory and streams of its own");
    tap(SIM_ASAN || signal_of(memory_of_another_gpu) == SIGABRT,
        "a kernel that is given memory of another GPU ends the program");
    cuCtxSetCurrent(NULL);
    tap(cuMemsetD8Async(x, 0, 64, a) != XD_CU_SUCCESS, "a thread without a context is refused");
    free(plain);
    printf("1..%d\n", checks);
    return failed != 0;
}
