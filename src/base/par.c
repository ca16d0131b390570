/* par.c - OpenMP behind two calls */
#define _GNU_SOURCE             /* sched_getaffinity */
#include "base/par.h"

#include "base/clock.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

static int threads;

static struct {
    void    (*fn)(void *arg);
    void     *arg;
    pthread_t owner;
    double    last_s;           /* when it ended last */
} hook;

/* Not CPU_COUNT on a fixed set: hosts with more than 1024 cores need a longer mask. */
int xd_par_cores(void)
{
    for (int max = 1024; max <= 1 << 18; max *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)max);
        size_t     size = CPU_ALLOC_SIZE((size_t)max);
        int        n = 0;
        if (set && sched_getaffinity(0, size, set) == 0)
            n = CPU_COUNT_S(size, set);
        CPU_FREE(set);
        if (n > 0)
            return n;
    }
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

int xd_par_set(int n)
{
    threads = n >= 1 ? n : xd_par_cores();
    omp_set_num_threads(threads);
    return threads;
}

int xd_par_threads(void)
{
    return threads ? threads : xd_par_set(0);
}

void xd_par_for(int64_t n, void (*fn)(void *ctx, int64_t begin, int64_t end, int thread),
                void *ctx)
{
    int64_t t = xd_par_threads() < n ? xd_par_threads() : n;
    if (n <= 0)
        return;
    if (t == 1) {
        fn(ctx, 0, n, 0);
        return;
    }
#pragma omp parallel num_threads((int)t)
    {
        int64_t k = omp_get_num_threads(), i = omp_get_thread_num();
        if (n * i / k < n * (i + 1) / k)
            fn(ctx, n * i / k, n * (i + 1) / k, (int)i);
    }
}

void xd_par_deal(int64_t n, void (*fn)(void *ctx, int64_t begin, int64_t end, int thread),
                 void *ctx)
{
    int64_t t = xd_par_threads() < n ? xd_par_threads() : n;
    if (n <= 0)
        return;
#pragma omp parallel for schedule(dynamic, 1) num_threads((int)t)
    for (int64_t i = 0; i < n; i++) {
        fn(ctx, i, i + 1, omp_get_thread_num());
        xd_par_poke();
    }
}

void xd_par_hook(void (*fn)(void *arg), void *arg)
{
    hook.fn = fn;
    hook.arg = arg;
    hook.owner = pthread_self();
    hook.last_s = 0;
}

void xd_par_poke(void)
{
    if (!hook.fn || !pthread_equal(hook.owner, pthread_self()) || xd_now_s() - hook.last_s < 50e-6)
        return;
    hook.fn(hook.arg);
    hook.last_s = xd_now_s();
}
