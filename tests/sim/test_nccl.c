/* test_nccl.c - what the stand-in of NCCL must do right and what it must notice: two ranks, each a
 * process with a GPU of its own */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/cuda/nccl.h"
#include "tests/sim/more.h"

#define PROTOTYPE(ret, name, args) ret name args;
XD_NCCL_FUNCTIONS(PROTOTYPE)

enum { BYTES = 1000 };

typedef struct rank {
    int            number, in, out; /* pipes from and to the other rank */
    ncclComm_t     comm;
    CUstream       s;
    CUdeviceptr    give, get;
    unsigned char *host;
} rank;

typedef int test(rank *r); /* what the process returns */

static int checks, failed;

static void tap(int ok, const char *what)
{
    failed += !ok;
    printf("%sok %d - %s\n", ok ? "" : "not ", ++checks, what);
    fflush(stdout);
}

static void *at(CUdeviceptr p)
{
    return (void *)(uintptr_t)p;
}

static int open_rank(rank *r, int gpu)
{
    CUcontext    c = NULL;
    ncclUniqueId id;
    void        *p = NULL;
    cuInit(0);
    cuDevicePrimaryCtxRetain(&c, gpu);
    cuCtxSetCurrent(c);
    cuStreamCreateWithPriority(&r->s, XD_CU_STREAM_NON_BLOCKING, 0);
    cuMemAlloc_v2(&r->give, BYTES);
    cuMemAlloc_v2(&r->get, BYTES);
    cuMemHostAlloc(&p, BYTES, 0);
    r->host = p;
    if (r->number == 0 && (ncclGetUniqueId(&id) || write(r->out, &id, sizeof id) != sizeof id))
        return 0;
    if (r->number == 1 && read(r->in, &id, sizeof id) != sizeof id)
        return 0;
    return ncclCommInitRank(&r->comm, 2, id, r->number) == XD_NCCL_SUCCESS;
}

/* The first byte of what was received. */
static int received(rank *r)
{
    cuMemcpyDtoHAsync_v2(r->host, r->get, BYTES, r->s);
    cuStreamSynchronize(r->s);
    return r->host[0] == r->host[BYTES - 1] ? r->host[0] : -1;
}

static void send_one(rank *r, size_t bytes)
{
    ncclGroupStart();
    ncclSend(at(r->give), bytes, XD_NCCL_UINT8, !r->number, r->comm, r->s);
    ncclGroupEnd();
}

static void receive_one(rank *r)
{
    ncclGroupStart();
    ncclRecv(at(r->get), BYTES, XD_NCCL_UINT8, !r->number, r->comm, r->s);
    ncclGroupEnd();
}

static int swap(rank *r)
{
    for (int i = 0; i < 30; i++) {
        cuMemsetD8Async(r->give, (unsigned char)(100 * r->number + i), BYTES, r->s);
        ncclGroupStart();
        ncclSend(at(r->give), BYTES, XD_NCCL_UINT8, !r->number, r->comm, r->s);
        ncclRecv(at(r->get), BYTES, XD_NCCL_UINT8, !r->number, r->comm, r->s);
        ncclGroupEnd();
        if (received(r) != 100 * !r->number + i)
            return 1;
    }
    return 0;
}

/* Both send before they receive, outside of a group. */
static int send_first(rank *r)
{
    send_one(r, BYTES);
    receive_one(r);
    return received(r) < 0;
}

/* The same, and the host asks whether an event has been reached instead of waiting. */
static int send_first_and_ask(rank *r)
{
    CUevent e = NULL;
    send_one(r, BYTES);
    receive_one(r);
    cuEventCreate(&e, XD_CU_EVENT_DISABLE_TIMING);
    cuEventRecord(e, r->s);
    while (cuEventQuery(e) == XD_CU_NOT_READY)
        ;
    return 1;
}

static int other_size(rank *r)
{
    if (r->number)
        receive_one(r);
    else
        send_one(r, BYTES / 2);
    return cuStreamSynchronize(r->s) != XD_CU_SUCCESS;
}

/* Rank 0 waits for rank 1 by a pipe: its GPU has to go on by itself. */
static int go_on_alone(rank *r)
{
    char any = 1;
    if (r->number) {
        receive_one(r);
        return received(r) != 77 || write(r->out, &any, 1) != 1;
    }
    cuMemsetD8Async(r->give, 77, BYTES, r->s);
    send_one(r, BYTES);
    return read(r->in, &any, 1) != 1;
}

static int give_up(rank *r)
{
    receive_one(r);
    return ncclCommAbort(r->comm) || cuStreamSynchronize(r->s);
}

static int refused(rank *r)
{
    CUstream other = NULL;
    cuStreamCreateWithPriority(&other, XD_CU_STREAM_NON_BLOCKING, 0);
    ncclGroupStart();
    int bad = !ncclSend(r->host, BYTES, XD_NCCL_UINT8, !r->number, r->comm, r->s) ||
              !ncclSend(at(r->give), BYTES, XD_NCCL_UINT8, r->number, r->comm, r->s);
    ncclGroupEnd();
    send_one(r, BYTES);
    ncclGroupStart();
    bad |= !ncclRecv(at(r->get), BYTES, XD_NCCL_UINT8, !r->number, r->comm, other);
    ncclGroupEnd();
    ncclCommAbort(r->comm);
    return bad;
}

static pid_t start(test *f, int number, int in, int out, int shared)
{
    pid_t p = fork();
    if (p)
        return p;
    const struct rlimit none = { 0, 0 };
    rank                r = { .number = number, .in = in, .out = out };
    setrlimit(RLIMIT_CORE, &none);
    if (!freopen("/dev/null", "w", stderr))
        _exit(9);
    _exit(!open_rank(&r, shared ? 0 : number) ? 8 : f(&r));
}

/* Runs two ranks. 0: both return 0; 8: NCCL refuses them; 100: a rank ends by a signal. */
static int run(test *f, int shared)
{
    int   up[2], down[2], st[2] = { 0 }, worst = 0;
    pid_t p[2];
    if (pipe(up) || pipe(down))
        return 99;
    p[0] = start(f, 0, up[0], down[1], shared);
    p[1] = start(f, 1, down[0], up[1], shared);
    for (int i = 0; i < 2; i++) {
        waitpid(p[i], &st[i], 0);
        int now = WIFSIGNALED(st[i]) ? 100 : WEXITSTATUS(st[i]);
        worst = now > worst ? now : worst;
    }
    return worst;
}

int main(void)
{
    setenv("XDIT_SIM_DEVICES", "2", 1);
    tap(run(swap, 0) == 0, "two ranks swap bytes in groups");
    tap(run(go_on_alone, 0) == 0, "a GPU goes on while its host waits for something else");
    tap(run(give_up, 0) == 0, "an abort ends a receive that nobody answers");
    tap(run(refused, 0) == 0, "host memory, messages to oneself, a second stream are refused");
    tap(run(swap, 1) == 8, "two ranks on one GPU are refused");
    setenv("XDIT_SIM_PATIENCE", "2", 1);
    tap(run(other_size, 0) == 100, "messages of different sizes end the program");
    tap(run(send_first, 0) == 100, "two ranks that send before they receive wait for ever");
    tap(run(send_first_and_ask, 0) == 100, "two ranks that ask and do not wait are noticed, too");
    printf("1..%d\n", checks);
    return failed != 0;
}
