/* attn.c - speed of the attention kernels against what this machine's registers can do.
 *
 *   bench_attn [isa=avx512] [type=f32] [threads=1] [seconds=1] [n=4096 m=4096 H=16 Hk=H D=72 ...]
 *
 * Without n, m, H or D a list of usual shapes is run. A line gives the best of the repetitions in
 * 4 H n m D flops a second, and its share of the peak: multiply-adds (or vdpbf16ps) on registers
 * alone, by the same threads, measured right before and after; the larger of the two. On a
 * machine that others use too, the share of what the processor time that was got could do on
 * average (the last percentage) says more; it is blind to sleeping threads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/cpu/attn/attn.h"
#include "backend/cpu/cpu.h"
#include "base/clock.h"
#include "base/par.h"
#include "base/rng.h"

typedef struct variant {
    const char *name;
    size_t    (*scratch)(const xd_attn_args *a, int threads);
    xd_status (*run)(const xd_attn_args *a, void *tmp);
    xd_isa      needs;
    double    (*f32)(void), (*bf16)(void);     /* bursts of the peak loop                     */
} variant;

typedef struct shape {
    int64_t n, m, H, Hk, D;
} shape;

typedef struct peak_job {
    double (*burst)(void);
    double best[256];           /* of each thread                                             */
} peak_job;

static const shape usual[] = {
    { 1024, 1024, 16, 16, 64 },  { 4096, 4096, 16, 16, 64 },  { 1024, 1024, 16, 16, 72 },
    { 4096, 4096, 16, 16, 72 },  { 1024, 1024, 24, 24, 128 }, { 4096, 4096, 24, 24, 128 },
    { 1024, 1024, 16, 16, 88 },  { 1024, 1024, 16, 16, 40 },  { 4096, 300, 16, 16, 72 },
    { 4096, 77, 16, 16, 64 },    { 512, 512, 64, 64, 64 },    { 4096, 4096, 1, 1, 512 },
};

static variant find(const char *name)
{
    const variant all[] = {
        { "c", xd_attn_scratch_c, xd_attn_c, XD_ISA_C, xd_kernels_c.burst, xd_kernels_c.burst },
#if defined(__x86_64__)
        { "avx2", xd_attn_scratch_avx2, xd_attn_avx2, XD_ISA_AVX2, xd_kernels_avx2.burst,
          xd_kernels_avx2.burst },
        { "avx512", xd_attn_scratch_avx512, xd_attn_avx512, XD_ISA_AVX512,
          xd_kernels_avx512.burst, xd_kernels_avx512.burst },
        { "avx512bf16", xd_attn_scratch_avx512bf16, xd_attn_avx512bf16, XD_ISA_AVX512BF16,
          xd_kernels_avx512.burst, xd_burst_bf16 },
#endif
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].name, name) == 0)
            return all[i];
    return (variant){ .name = NULL };
}

static void peak_thread(void *ctx, int64_t begin, int64_t end, int thread)
{
    peak_job *p = ctx;
    double    end_s = xd_now_s() + 0.03, *best = &p->best[thread % 256];
    (void)begin, (void)end;
    while (xd_now_s() < end_s) {
        double rate = p->burst();
        *best = rate > *best ? rate : *best;
    }
}

static double peak(double (*burst)(void))
{
    peak_job p = { .burst = burst };
    double   sum = 0;
    xd_par_for(xd_par_threads(), peak_thread, &p);
    for (int i = 0; i < 256; i++)
        sum += p.best[i];
    return sum;
}

static xd_tensor fresh(xd_dtype t, int64_t n, int64_t H, int64_t D, int64_t seed)
{
    int64_t   d[] = { 1, n, H, D };
    size_t    count = (size_t)(n * H * D);
    float    *f = malloc(count * sizeof(float));
    void     *p = xd_mem_get(count * xd_dtype_size(t));
    xd_tensor x = xd_view(p, t, 4, d);
    if (!f || !p)
        exit(1);
    xd_noise_philox(f, 0, (int64_t)count, seed);
    xd_convert(p, t, f, XD_F32, (int64_t)count);
    free(f);
    return x;
}

static void drop(xd_tensor t)
{
    xd_mem_put(t.p, xd_bytes(t));
}

typedef struct times {
    double wall, cpu;           /* seconds; cpu: all threads together                         */
} times;

static times now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (times){ xd_now_s(), (double)t.tv_sec + 1e-9 * (double)t.tv_nsec };
}

/* The shortest wall time and the mean processor time. */
static times best_of(const variant *v, const xd_attn_args *a, void *tmp, double seconds)
{
    v->run(a, tmp);
    times  start = now(), best = { 1e30, 0 };
    double last = start.wall;
    int    n = 0;
    while (n < 3 || last < start.wall + seconds) {
        v->run(a, tmp);
        double t = xd_now_s();
        best.wall = t - last < best.wall ? t - last : best.wall;
        last = t;
        n++;
    }
    best.cpu = (now().cpu - start.cpu) / n;
    return best;
}

static void run(const variant *v, xd_dtype t, shape s, double seconds)
{
    xd_kv        kv = { fresh(t, s.m, s.Hk, s.D, 2), fresh(t, s.m, s.Hk, s.D, 3) };
    xd_attn_args a = { .q = fresh(t, s.n, s.H, s.D, 1), .kv = &kv, .nkv = 1, .scale = 0.1f };
    a.out = fresh(t, s.n, s.H, s.D, 4);
    size_t bytes = v->scratch(&a, xd_par_threads());
    void  *tmp = xd_mem_get(bytes);
    if (!tmp)
        exit(1);
    double (*burst)(void) = t == XD_BF16 ? v->bf16 : v->f32;
    double p0 = peak(burst);
    times  best = best_of(v, &a, tmp, seconds);
    double p1 = peak(burst), gflop = 4e-9 * (double)s.H * (double)s.n * (double)s.m * (double)s.D;
    p0 = p1 > p0 ? p1 : p0;
    printf("%-10s %-4s threads %-3d n %-6lld m %-6lld H %-3lld Hk %-3lld D %-4lld %9.2f ms %8.1f "
           "GFLOP/s %5.1f %% of %.0f, by processor time %5.1f %%, scratch %.1f MB\n",
           v->name, xd_dtype_name(t), xd_par_threads(), (long long)s.n, (long long)s.m,
           (long long)s.H, (long long)s.Hk, (long long)s.D, best.wall * 1e3, gflop / best.wall,
           100 * gflop / best.wall / p0, p0, 100 * gflop / best.cpu * xd_par_threads() / p0,
           (double)bytes * 1e-6);
    fflush(stdout);
    xd_mem_put(tmp, bytes);
    drop(a.q), drop(a.out), drop(kv.k), drop(kv.v);
}

/* The value of "key=value" among the arguments, or NULL. */
static const char *given(int argc, char **argv, const char *key)
{
    size_t len = strlen(key);
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], key, len) == 0 && argv[i][len] == '=')
            return argv[i] + len + 1;
    return NULL;
}

static int64_t number(int argc, char **argv, const char *key, int64_t otherwise)
{
    const char *s = given(argc, argv, key);
    return s ? strtoll(s, NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
    const char *isa = given(argc, argv, "isa"), *type = given(argc, argv, "type");
    variant     v = find(isa ? isa : "avx512");
    xd_dtype    t = type && strcmp(type, "bf16") == 0 ? XD_BF16 : XD_F32;
    const char *seconds = given(argc, argv, "seconds");
    double      time = seconds ? strtod(seconds, NULL) : 1;
    int64_t     n = number(argc, argv, "n", 0);
    shape       s = { .n = n, .m = number(argc, argv, "m", n), .D = number(argc, argv, "D", 64) };
    s.H = number(argc, argv, "H", 16);
    s.Hk = number(argc, argv, "Hk", s.H);
    if (!v.name || !xd_isa_has(v.needs)) {
        printf("skipped: this machine has no %s\n", isa ? isa : "avx512");
        return 0;
    }
    xd_par_set((int)number(argc, argv, "threads", 1));
    if (n > 0) {
        run(&v, t, s, time);
        return 0;
    }
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        run(&v, t, usual[i], time);
    return 0;
}
