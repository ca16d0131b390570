/* par.h - threads inside one kernel.
 *
 * The only parallelism inside a process: the main thread drives, kernels spread their work
 * with xd_par_for. Work is cut the same way for the same n and thread count, so results do
 * not depend on timing. Threads that have nothing to do spin for some 20 microseconds and then sleep (at
 * once with OMP_WAIT_POLICY=passive, or when there are more threads than cores). A call from
 * within a piece, or while another thread's call is under way, is done by its own thread alone. */
#ifndef XD_BASE_PAR_H
#define XD_BASE_PAR_H

#include <stdint.h>

/* Threads that kernels use from now on; n < 1: one per core this process may run on.
 * Returns the number taken. */
int xd_par_set(int n);
int xd_par_threads(void);
int xd_par_cores(void);         /* cores this process may run on (its affinity mask)         */

/* Calls fn(ctx, begin, end, thread) so that the ranges cut [0, n) into one contiguous piece a
 * thread (none for n <= 0; fewer pieces when n is below the thread count). */
void xd_par_for(int64_t n, void (*fn)(void *ctx, int64_t begin, int64_t end, int thread),
                void *ctx);

/* Calls fn(ctx, i, i + 1, thread) for every i in [0, n), dealt to whichever thread is free:
 * for pieces of uneven cost whose results do not depend on the order. */
void xd_par_dynamic(int64_t n, void (*fn)(void *ctx, int64_t begin, int64_t end, int thread),
                 void *ctx);

/* From the next call on the threads are those of an OpenMP that a library computes with: its GOMP_parallel and
 * omp_get_thread_num, which stay the caller's and must last. NULL, or no such functions: our own again. Who
 * multiplies says whose threads do what follows, since two sets would spin on each other's cores. */
typedef struct xd_par_omp {
    void (*parallel)(void (*fn)(void *data), void *data, unsigned n, unsigned flags);
    int  (*number)(void);
} xd_par_omp;
void xd_par_team(const xd_par_omp *omp);

/* Something to do now and then while this thread computes, such as letting messages progress: fn
 * is called by xd_par_poke, only on the thread that set it and at most every 50 microseconds.
 * The pieces of xd_par_dynamic poke. NULL: nothing. One hook a process, the last one set. */
void xd_par_hook(void (*fn)(void *arg), void *arg);
void xd_par_poke(void);

#endif
