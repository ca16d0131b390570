/* par.h - declares the thread pool of CPU kernels.
 *
 * Inside a process, only kernels run in parallel: the main thread runs the model, and kernels
 * distribute their work over the threads of the pool with xd_par_for. The range of indices that
 * each thread gets depends only on n and the number of threads, so results do not depend on timing.
 * Idle threads spin for about 20 microseconds and then sleep; with OMP_WAIT_POLICY=passive, or if
 * there are more threads than cores, idle threads sleep at once. If xd_par_for is called by a
 * function that xd_par_for runs, or while another thread is in xd_par_for, all work of the call is
 * done on the calling thread. */
#ifndef XD_BASE_PAR_H
#define XD_BASE_PAR_H

#include <stdint.h>

/* Sets the number of threads of all later kernels. If n < 1, kernels use one thread for each core
 * on which this process may run. Returns the new number of threads. */
int xd_par_set(int n);
int xd_par_threads(void);
int xd_par_cores(void); /* returns the number of cores in the process's affinity mask */

/* Divides [0, n) into contiguous ranges, one for each thread, and calls fn(ctx, begin, end, thread)
 * for each range. If n is less than the number of threads, there are only n ranges; if n is not
 * positive, fn is not called. */
void xd_par_for(int64_t n, void (*fn)(void *ctx, int64_t begin, int64_t end, int thread),
                void *ctx);

/* Calls fn(ctx, i, i + 1, thread) for every i in [0, n), each on the next free thread.
 * xd_par_dynamic is for work items of uneven cost whose results do not depend on the order. */
void xd_par_dynamic(int64_t n, void (*fn)(void *ctx, int64_t begin, int64_t end, int thread),
                    void *ctx);

/* Makes later kernels run on the threads of the OpenMP runtime that oneDNN uses. `omp` (borrowed)
 * contains pointers to the runtime's functions GOMP_parallel and omp_get_thread_num, which must
 * stay valid. If `omp` or omp->parallel is NULL, later kernels run on xdit's own thread pool. The
 * GEMM backend selects the pool, because two spinning pools would compete for cores. */
typedef struct xd_par_omp {
    void (*parallel)(void (*fn)(void *data), void *data, unsigned n, unsigned flags);
    int  (*number)(void);
} xd_par_omp;
void xd_par_team(const xd_par_omp *omp);

/* Sets the function fn (the hook) that xd_par_poke calls between computations, for example to let
 * messages make progress. xd_par_poke calls the hook at most every 50 microseconds, and only on the
 * thread that set it; xd_par_dynamic calls xd_par_poke after each item. If fn is NULL, the hook is
 * removed. A process has only one hook. */
void xd_par_hook(void (*fn)(void *arg), void *arg);
void xd_par_poke(void);

#endif
