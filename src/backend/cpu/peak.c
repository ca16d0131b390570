/* peak.c - what the processor could do: the number that speeds are compared with */
#include "backend/cpu/cpu.h"

#include "base/par.h"

typedef struct peak_ctx {
    double (*one)(double seconds);
    double  *sum;
} peak_ctx;

static void peak_run(void *ctx, int64_t begin, int64_t end, int thread)
{
    const peak_ctx *p = ctx;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        p->sum[i] = p->one(0.03);
}

double xd_cpu_peak(xd_dev *d, xd_dtype t, int threads)
{
    enum { MOST = 1024 };
    double        each[MOST] = { 0 }, sum = 0;
    const xd_cpu *c = d->priv;
    int           before = xd_par_threads();
    peak_ctx      p = { c->k->peak, each };
#if defined(__x86_64__)
    if (t == XD_BF16 && c->isa == XD_ISA_AVX512BF16)
        p.one = xd_peak_bf16;
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
