/* par.h - the thread pool of CPU kernels.
 *
 * This is the only parallelism inside a process: the main thread runs the model, and kernels
 * distribute their work over the pool with xd_par_for. The same n and thread count always give the
 * same ranges, so results do not depend on timing. Idle threads spin for about 20 microseconds and
 * then sleep (at once with OMP_WAIT_POLICY=passive, or if there are more threads than cores). A
 * call from inside a range, or during another thread's call, runs on the calling thread alone. */
#ifndef XD_BASE_PAR_H
#define XD_BASE_PAR_H

#include <stdint.h>

/* Sets the number of threads of all later kernels; n < 1: one for each core this process may run
 * on. Returns the number set. */
int xd_par_set(int n);
int xd_par_threads(void);
int xd_par_cores(void);         /* cores this process may run on (its affinity mask)         */

/* Calls fn(ctx, begin, end, thread) on contiguous ranges that partition [0, n), one for each thread
 * (no call for n <= 0; fewer ranges if n is less than the thread count). */
void xd_par_for(int64_t n, void (*fn)(void *ctx, int64_t begin, int64_t end, int thread),
                void *ctx);

/* Calls fn(ctx, i, i + 1, thread) for every i in [0, n), each on the next free thread: for items of
 * uneven cost whose results do not depend on the order. */
void xd_par_dynamic(int64_t n, void (*fn)(void *ctx, int64_t begin, int64_t end, int thread),
                 void *ctx);

/* Switches later calls to the threads of an OpenMP runtime that a library (oneDNN) computes with,
 * through its GOMP_parallel and omp_get_thread_num (borrowed, must stay valid). NULL, or missing
 * functions: our own pool again. The GEMM backend selects the pool, since two spinning pools would
 * compete for cores. */
typedef struct xd_par_omp {
    void (*parallel)(void (*fn)(void *data), void *data, unsigned n, unsigned flags);
    int  (*number)(void);
} xd_par_omp;
void xd_par_team(const xd_par_omp *omp);

/* Sets a hook for work between computations, such as message progress. xd_par_poke calls fn, only
 * on the thread that set it and at most every 50 microseconds; xd_par_dynamic pokes after each
 * item. NULL: no hook. One hook per process: the last one set. */
void xd_par_hook(void (*fn)(void *arg), void *arg);
void xd_par_poke(void);

#endif
