/* peak.c - measures the processor's peak FLOP rate, to which measured rates of kernels are compared
 *
 * The peak rate is the median of short bursts of multiply-adds. A single burst that another process
 * interrupts does not change the median, while a core that is slow for a long time is measured at
 * its actual rate. */
#include "backend/cpu/cpu.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/par.h"

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_burst(double (*burst)(void), double seconds)
{
    enum { MOST = 400 };
    double rate[MOST], end = xd_now_s() + seconds;
    int    n = 0;
    while (n < MOST && (n < 5 || xd_now_s() < end))
        rate[n++] = burst();
    qsort(rate, (size_t)n, sizeof *rate, by_size);
    return rate[n / 2];
}

typedef struct peak_ctx {
    double  (*burst)(void);
    double *each, seconds;
} peak_ctx;

static void peak_run(void *ctx, int64_t begin, int64_t end, int thread)
{
    const peak_ctx *p = ctx;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        p->each[i] = median_burst(p->burst, p->seconds);
}

double xd_cpu_peak(xd_dev *d, xd_dtype t, int threads, double seconds)
{
    enum { MOST = 1024 };
    double            each[MOST] = { 0 }, sum = 0;
    const xd_cpu_dev *c = d->priv;
    int               before = xd_par_threads();
    peak_ctx          p = { c->k->burst, each, seconds };
#if defined(__x86_64__)
    if (t == XD_BF16 && c->isa >= XD_ISA_AVX512BF16)
        p.burst = xd_burst_bf16;
#ifdef XD_WITH_AMX
    if (t == XD_BF16 && c->isa == XD_ISA_AMX)
        p.burst = xd_burst_amx;
#endif
#else
    (void)t;
#endif
    threads = threads < 1 ? before : threads > MOST ? MOST : threads;
    xd_par_set(threads);
    xd_par_for(threads, peak_run, &p);
    xd_par_set(before);
    for (int i = 0; i < threads; i++)
        sum += each[i];
    return sum;
}
