/* fibers.cc - blocks of kernels on the CPU: a fiber a thread, one block after the other
 *
 * Which of the threads that may go on goes on is drawn from a seed, so that a missing barrier gives
 * another result with another seed. Shared memory is filled with NaNs before every block and ends
 * at a page that nobody may touch. A sentence ends the program where lanes meet at other places,
 * where threads wait for ever, and at an access to closed memory. It ends at once: a test program
 * that catches signals would go on with the locks of the device held. */
#include "backend/cuda/kernels/gpu.cuh"
#include "tests/sim/asan.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

gpu_dim3 gpu_thread, gpu_block, gpu_threads, gpu_blocks;

namespace
{
/* A sanitizer's frames are larger. */
enum { MOST = 1024, STACK = SIM_ASAN ? 512 << 10 : 128 << 10, SHARED = 256 << 10, COPIES = 256 };
enum state { RUNS, MEETS, WAITS, ENDED };
struct copy {
    void *to;
    const void *from;
    int bytes, group;
};
struct fiber {
    void *sp, *kept;
    ucontext_t uc;
    state st;
    gpu_dim3 id;
    int ncopies, groups;
    copy copies[COPIES];
};
struct warp {
    gpu_shown slot[2][32];
    int turn, arrived, alive, where;
};
fiber fibers[MOST];
warp warps[MOST / 32];
char *stacks, *shared;
int order[MOST];
int now, nthreads, waiting, alive, shared_bytes, shared_asked, early;
void *host_sp, *host_kept;
const void *host_stack; /* its lowest byte, and its size: for AddressSanitizer */
size_t host_stack_size;
#if !defined(__x86_64__)
ucontext_t host_uc;
#endif
uint64_t seed = 1;
const gpu_kernel *kernel;
const void *kernel_args;

uint32_t draw(uint32_t n)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((seed >> 33) % n);
}
[[noreturn]] void wrong(const char *what, int where)
{
    fprintf(stderr, "kernel %s, block %u,%u,%u, thread %d: %s (line %d)\n", kernel->name,
            gpu_block.x, gpu_block.y, gpu_block.z, now, what, where);
    abort();
}

/* The access is made again, and dies. */
void closed_memory(int number)
{
    fprintf(stderr, "kernel %s, block %u,%u,%u, thread %d: an access to closed memory\n",
            kernel->name, gpu_block.x, gpu_block.y, gpu_block.z, now);
    signal(number, SIG_DFL);
}

/* While this lives, no handler of the program's own sees what a kernel does wrong. */
struct signals {
    struct sigaction segv, bus, abrt;
    signals()
    {
        struct sigaction ends = {}, dies = {};
        ends.sa_handler = closed_memory;
        dies.sa_handler = SIG_DFL;
        sigaction(SIGSEGV, &ends, &segv);
        sigaction(SIGBUS, &ends, &bus);
        sigaction(SIGABRT, &dies, &abrt);
    }
    ~signals()
    {
        sigaction(SIGSEGV, &segv, nullptr);
        sigaction(SIGBUS, &bus, nullptr);
        sigaction(SIGABRT, &abrt, nullptr);
    }
};
} // namespace

#if defined(__x86_64__)
extern "C" void gpu_swap(void **save, void *to);
asm(".text\n.globl gpu_swap\n.hidden gpu_swap\ngpu_swap:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
#endif

static void enter()
{
    sim_after_switch(nullptr, &host_stack, &host_stack_size);
    kernel->run(kernel_args);
    fibers[now].st = ENDED;
    warp &w = warps[now / 32];
    alive--;
    if (--w.alive && w.arrived == w.alive)
        wrong("some lanes ended while others meet", w.where);
    sim_before_switch(nullptr, host_stack, host_stack_size);
#if defined(__x86_64__)
    gpu_swap(&fibers[now].sp, host_sp);
#else
    setcontext(&host_uc);
#endif
    abort();
}

static void leave()
{
    fiber &f = fibers[now];
    sim_before_switch(&f.kept, host_stack, host_stack_size);
#if defined(__x86_64__)
    gpu_swap(&f.sp, host_sp);
#else
    swapcontext(&f.uc, &host_uc);
#endif
    sim_after_switch(f.kept, &host_stack, &host_stack_size);
}

static void resume(int i)
{
    now = i;
    gpu_thread = fibers[i].id;
    sim_before_switch(&host_kept, stacks + (size_t)i * STACK, STACK);
#if defined(__x86_64__)
    gpu_swap(&host_sp, fibers[i].sp);
#else
    swapcontext(&host_uc, &fibers[i].uc);
#endif
    sim_after_switch(host_kept, nullptr, nullptr);
}

static void start(int i)
{
    fiber &f = fibers[i];
    char *top = stacks + (size_t)(i + 1) * STACK;
#if defined(__x86_64__)
    void **sp = (void **)(top - 64);
    *--sp = nullptr; /* alignment: as after a call */
    *--sp = (void *)enter;
    sp -= 6;
    f.sp = sp;
#else
    getcontext(&f.uc);
    f.uc.uc_stack.ss_sp = top - STACK, f.uc.uc_stack.ss_size = STACK, f.uc.uc_link = nullptr;
    makecontext(&f.uc, enter, 0);
#endif
    f.st = RUNS;
    f.ncopies = f.groups = 0;
    f.id = { (unsigned)i % gpu_threads.x, (unsigned)i / gpu_threads.x, 0 };
}

char *gpu_shared() { return shared + SHARED - shared_bytes; }

gpu_shown *gpu_show(const gpu_shown &mine, int where, void (*last)(gpu_shown *))
{
    int me = now;
    warp &w = warps[me / 32];
    int turn = w.turn;
    if (w.arrived && w.where != where)
        wrong("lanes of a warp meet at different places", where);
    w.where = where;
    w.slot[turn][me % 32] = mine;
    if (++w.arrived == w.alive) {
        if (w.alive != 32 && nthreads - me / 32 * 32 >= 32)
            wrong("lanes meet after others ended", where);
        w.arrived = 0;
        w.turn = !turn;
        if (last)
            last(w.slot[turn]);
        for (int i = me / 32 * 32; i < me / 32 * 32 + 32 && i < nthreads; i++)
            if (fibers[i].st == MEETS)
                fibers[i].st = RUNS;
    } else {
        fibers[me].st = MEETS;
        leave();
    }
    return w.slot[turn];
}

void gpu_wait_block(int)
{
    if (++waiting == alive) {
        waiting = 0;
        for (int i = 0; i < nthreads; i++)
            if (fibers[i].st == WAITS)
                fibers[i].st = RUNS;
        return;
    }
    fibers[now].st = WAITS;
    leave();
}

void gpu_copy_later(void *to, const void *from, int bytes)
{
    fiber &f = fibers[now];
    if (f.ncopies == COPIES)
        wrong("too many copies under way", 0);
    if (early) { /* at once, in blocks drawn from the seed: it may, too */
        if (bytes)
            memcpy(to, from, (size_t)bytes);
        memset((char *)to + bytes, 0, (size_t)(16 - bytes));
        return;
    }
    f.copies[f.ncopies++] = { to, from, bytes, f.groups };
}
void gpu_copy_group() { fibers[now].groups++; }
void gpu_copy_wait(int left)
{
    fiber &f = fibers[now];
    int n = 0;
    for (int i = 0; i < f.ncopies; i++) {
        copy &c = f.copies[i];
        if (c.group >= f.groups - left) {
            f.copies[n++] = c;
            continue;
        }
        if (c.bytes)
            memcpy(c.to, c.from, (size_t)c.bytes);
        memset((char *)c.to + c.bytes, 0, (size_t)(16 - c.bytes));
    }
    f.ncopies = n;
}

template <float (*from)(uint16_t)> static void mma(gpu_shown *s)
{
    float A[16][16], B[16][8], C[16][8];
    for (int l = 0; l < 32; l++) {
        int g = l / 4, t = l % 4 * 2;
        for (int i = 0; i < 4; i++)
            for (int h = 0; h < 2; h++)
                A[g + i % 2 * 8][t + i / 2 * 8 + h] = from((uint16_t)(s[l].a[i] >> (16 * h)));
        for (int i = 0; i < 2; i++)
            for (int h = 0; h < 2; h++)
                B[t + i * 8 + h][g] = from((uint16_t)(s[l].b[i] >> (16 * h)));
        for (int i = 0; i < 4; i++)
            C[g + i / 2 * 8][t + i % 2] = s[l].c[i];
    }
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 16; k++)
            for (int j = 0; j < 8; j++)
                C[i][j] += A[i][k] * B[k][j];
    for (int l = 0; l < 32; l++)
        for (int i = 0; i < 4; i++)
            s[l].c[i] = C[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2];
}
void gpu_mma_bf16(gpu_shown *s) { mma<gpu_from_bf16>(s); }
void gpu_mma_f16(gpu_shown *s) { mma<gpu_from_f16>(s); }

/* All lanes at once, in the order of the exchanges of a GPU. */
template <float (*join)(float, float)> static void join_lanes(gpu_shown *s)
{
    for (int m = 16; m; m >>= 1) {
        float f[32];
        for (int l = 0; l < 32; l++)
            f[l] = join(s[l].f, s[l ^ m].f);
        for (int l = 0; l < 32; l++)
            s[l].f = f[l];
    }
}
static float add(float a, float b) { return a + b; }
static float larger(float a, float b) { return fmaxf(a, b); }
void gpu_sum_lanes(gpu_shown *s) { join_lanes<add>(s); }
void gpu_max_lanes(gpu_shown *s) { join_lanes<larger>(s); }

static void run_block()
{
    memset(gpu_shared(), 0xff, (size_t)shared_asked);
    alive = nthreads, waiting = 0, early = (int)draw(2);
    for (int i = 0; i < nthreads; i++) {
        start(i);
        order[i] = i;
    }
    for (int i = 0; i * 32 < nthreads; i++)
        warps[i].turn = warps[i].arrived = 0,
        warps[i].alive = nthreads - 32 * i < 32 ? nthreads - 32 * i : 32;
    int left = nthreads;
    while (left) {
        int went = 0, n = (nthreads + 31) / 32, first = (int)draw((uint32_t)n),
            from = (int)draw(32);
        for (int k = 0; k < n; k++) { /* warps from a drawn one on, each as far as it comes alone */
            int w = (first + k) % n;
            for (int again = 1; again;) {
                again = 0;
                for (int j = 0; j < 32; j++) {
                    int i = w * 32 + (from + j) % 32;
                    if (i >= nthreads || fibers[i].st != RUNS)
                        continue;
                    resume(i);
                    again = went = 1;
                    left -= fibers[i].st == ENDED;
                }
            }
        }
        if (!went && left) {
            if (waiting && waiting == alive) { /* the last to come has ended instead */
                waiting = 0;
                for (int i = 0; i < nthreads; i++)
                    if (fibers[i].st == WAITS)
                        fibers[i].st = RUNS;
                continue;
            }
            wrong("threads wait for ever", 0);
        }
    }
}

/* Runs a kernel over its whole grid. The order of blocks is drawn, too. */
extern "C" __attribute__((visibility("default"))) void
gpu_cpu_launch(const gpu_kernel *k, const unsigned grid[3], const unsigned block[3], unsigned bytes,
               const void *args, uint64_t with_seed)
{
    if (!stacks) {
        stacks = (char *)mmap(nullptr, (size_t)MOST * STACK, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        shared = (char *)mmap(nullptr, SHARED + 4096, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(shared + SHARED, 4096, PROT_NONE);
    }
    const signals while_here;
    kernel = k, kernel_args = args, seed = with_seed * 2 + 1;
    shared_asked = (int)bytes, shared_bytes = (int)((bytes + 127) / 128 * 128);
    sim_open(shared, SHARED);
    memset(gpu_shared(), 0xff, (size_t)shared_bytes);
    sim_close(shared, SHARED - (size_t)shared_bytes);
    sim_close(gpu_shared() + bytes, (size_t)shared_bytes - bytes);
    gpu_threads = { block[0], block[1], block[2] };
    gpu_blocks = { grid[0], grid[1], grid[2] };
    nthreads = (int)(block[0] * block[1] * block[2]);
    uint64_t total = (uint64_t)grid[0] * grid[1] * grid[2];
    uint64_t from = total ? ((uint64_t)draw(1u << 30)) % total : 0;
    for (uint64_t i = 0; i < total; i++) {
        uint64_t b = (i + from) % total;
        gpu_block = { (unsigned)(b % grid[0]), (unsigned)(b / grid[0] % grid[1]),
                      (unsigned)(b / grid[0] / grid[1]) };
        run_block();
    }
}
