/* attn.c - speed of the attention kernels against what this machine's registers can do.
 *
 *   bench_attn [--json] [isa=avx512bf16] [type=bf16] [threads=N] [seconds=0.5]
 *              [n=4096 m=4096 H=16 Hk=H D=72 bias=0] [against=avx512bf16]
 *
 * Without n a list of shapes that models have is run, with threads=1 and then as many as there
 * are cores; without isa= and type= the best instruction set, and bf16 where it has products of
 * bf16. Calls alternate with bursts of multiply-adds (vdpbf16ps, tiles) on registers alone by
 * the same threads; a call's share is its 4 H n m D flops a second through the mean rate of the
 * bursts before and after it. Printed are the median share and what the middle 80 % of calls lie
 * between: the clock of a shared machine moves, and shares move less than times.
 *
 * isa=int8 makes scores of int8 (and its share is not one of a peak that int8 has). With against=
 * calls of two kernels alternate, and printed is how many times as long the second one takes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/attn/attn.h"
#include "backend/cpu/cpu.h"
#include "base/clock.h"
#include "base/pages.h"
#include "base/par.h"
#include "base/rng.h"

enum { MOST = 1000, MAXTHREADS = 256 };

typedef struct variant {
    const char *name;
    size_t      (*scratch)(const xd_attn_args *a, int threads);
    xd_status   (*run)(const xd_attn_args *a, void *tmp);
    xd_isa      needs;
    double (*f32)(void), (*bf16)(void); /* bursts of the peak loop */
} variant;

typedef struct shape {
    int64_t     n, m, H, Hk, D, bias;
    const char *what;
} shape;

typedef struct peak_job {
    double (*burst)(void);
    double rate[MAXTHREADS];
} peak_job;

static const shape usual[] = {
    { 1024, 1024, 16, 16, 64, 0, "itself" },  { 4096, 4096, 8, 8, 64, 0, "itself" },
    { 17776, 17776, 2, 2, 64, 0, "itself" },  { 1024, 1024, 16, 16, 72, 0, "itself" },
    { 4096, 4096, 8, 8, 72, 0, "itself" },    { 17776, 17776, 2, 2, 72, 0, "itself" },
    { 1024, 1024, 16, 16, 88, 0, "itself" },  { 4096, 4096, 8, 8, 88, 0, "itself" },
    { 1024, 1024, 24, 24, 128, 0, "itself" }, { 4096, 4096, 8, 8, 128, 0, "itself" },
    { 17776, 17776, 2, 2, 128, 0, "itself" }, { 1024, 120, 16, 16, 72, 0, "text" },
    { 1024, 226, 16, 16, 72, 0, "text" },     { 1024, 512, 16, 16, 72, 0, "text" },
    { 4096, 120, 16, 16, 72, 0, "text" },     { 4096, 300, 16, 16, 72, 0, "text" },
    { 120, 120, 64, 64, 64, 1, "T5" },        { 226, 226, 64, 64, 64, 1, "T5" },
    { 512, 512, 64, 64, 64, 1, "T5" },        { 4096, 4096, 1, 1, 512, 0, "VAE" },
};

static variant find(const char *name)
{
    const variant all[] = {
        { "c", xd_attn_scratch_c, xd_attn_c, XD_ISA_C, xd_kernels_c.burst, xd_kernels_c.burst },
#if defined(__x86_64__)
        { "avx2", xd_attn_scratch_avx2, xd_attn_avx2, XD_ISA_AVX2, xd_kernels_avx2.burst,
          xd_kernels_avx2.burst },
        { "avx512", xd_attn_scratch_avx512, xd_attn_avx512, XD_ISA_AVX512, xd_kernels_avx512.burst,
          xd_kernels_avx512.burst },
        { "avx512bf16", xd_attn_scratch_avx512bf16, xd_attn_avx512bf16, XD_ISA_AVX512BF16,
          xd_kernels_avx512.burst, xd_burst_bf16 },
        { "int8", xd_attn_scratch_int8, xd_attn_int8, XD_ISA_AVX512BF16, xd_kernels_avx512.burst,
          xd_burst_bf16 },
#endif
#ifdef XD_WITH_AMX
        { "amx", xd_attn_scratch_amx, xd_attn_amx, XD_ISA_AMX, xd_kernels_avx512.burst,
          xd_burst_amx },
#endif
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].name, name) == 0)
            return all[i];
    return (variant){ .name = NULL };
}

/* The first of the better ones that runs here. */
static variant best_variant(void)
{
    static const char *const order[] = { "amx", "avx512bf16", "avx512", "avx2" };
    for (int i = 0; i < 4; i++) {
        variant v = find(order[i]);
        if (v.name && xd_isa_has(v.needs))
            return v;
    }
    return find("c");
}

static void peak_thread(void *ctx, int64_t begin, int64_t end, int thread)
{
    peak_job *p = ctx;
    (void)begin, (void)end;
    p->burst(); /* brings the threads together */
    p->rate[thread % MAXTHREADS] = p->burst();
}

static double peak(double (*burst)(void))
{
    peak_job p = { .burst = burst };
    double   sum = 0;
    xd_par_for(xd_par_threads(), peak_thread, &p);
    for (int i = 0; i < MAXTHREADS; i++)
        sum += p.rate[i];
    return sum;
}

static xd_tensor fresh(xd_dtype t, int64_t n, int64_t H, int64_t D, int64_t seed)
{
    int64_t   d[] = { 1, n, H, D };
    size_t    count = (size_t)(n * H * D);
    float    *f = malloc(count * sizeof(float));
    void     *p = xd_pages_map(count * xd_dtype_size(t), -1);
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
    xd_pages_unmap(t.p, xd_bytes(t));
}

typedef struct result {
    int    calls;
    double seconds[MOST], share[MOST], peak[MOST];
} result;

static int less(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* The value that `part` of the n sorted values do not exceed. */
static double quantile(const double *sorted, int n, double part)
{
    return sorted[(int)(part * (n - 1) + 0.5)];
}

static void repeat(const variant *v, const xd_attn_args *a, void *tmp, double seconds, double gflop,
                   result *r)
{
    double (*burst)(void) = a->q.type == XD_BF16 ? v->bf16 : v->f32;
    v->run(a, tmp);
    double end = xd_now_s() + seconds, before = peak(burst);
    for (r->calls = 0; r->calls < MOST && (r->calls < 5 || xd_now_s() < end);) {
        double t = xd_now_s();
        v->run(a, tmp);
        t = xd_now_s() - t;
        double after = peak(burst), mean = (before + after) / 2;
        r->seconds[r->calls] = t, r->peak[r->calls] = mean;
        r->share[r->calls++] = gflop / t / mean;
        before = after;
    }
    qsort(r->seconds, (size_t)r->calls, sizeof(double), less);
    qsort(r->share, (size_t)r->calls, sizeof(double), less);
    qsort(r->peak, (size_t)r->calls, sizeof(double), less);
}

static double time_of(const variant *v, const xd_attn_args *a, void *tmp)
{
    double t = xd_now_s();
    v->run(a, tmp);
    return xd_now_s() - t;
}

/* Calls of two kernels in turn: prints the times of the first, and the ratio of neighbours. */
static void print_ratio(const variant *v, const variant *other, const xd_attn_args *a, shape s,
                        double seconds)
{
    static result r;
    const size_t  x = v->scratch(a, xd_par_threads()), y = other->scratch(a, xd_par_threads());
    const size_t  bytes = x > y ? x : y;
    void         *tmp = xd_pages_map(bytes, -1);
    if (!tmp)
        exit(1);
    time_of(v, a, tmp), time_of(other, a, tmp);
    for (double end = xd_now_s() + seconds; r.calls < MOST && (r.calls < 5 || xd_now_s() < end);
         r.calls++) {
        r.seconds[r.calls] = time_of(v, a, tmp);
        r.share[r.calls] = time_of(other, a, tmp) / r.seconds[r.calls];
    }
    qsort(r.seconds, (size_t)r.calls, sizeof(double), less);
    qsort(r.share, (size_t)r.calls, sizeof(double), less);
    printf("threads %-2d n %-6lld m %-6lld H %-3lld D %-4lld %4d calls %9.3f ms, %s / %s: %.3f "
           "(%.3f to %.3f)\n",
           xd_par_threads(), (long long)s.n, (long long)s.m, (long long)s.H, (long long)s.D,
           r.calls, quantile(r.seconds, r.calls, 0.5) * 1e3, other->name, v->name,
           quantile(r.share, r.calls, 0.5), quantile(r.share, r.calls, 0.1),
           quantile(r.share, r.calls, 0.9));
    fflush(stdout);
    r.calls = 0;
    xd_pages_unmap(tmp, bytes);
}

static void print(const variant *v, xd_dtype t, shape s, const result *r, double gflop, int json)
{
    double      half = quantile(r->seconds, r->calls, 0.5), p = quantile(r->peak, r->calls, 0.5);
    double      low = quantile(r->share, r->calls, 0.1), high = quantile(r->share, r->calls, 0.9);
    const char *how = json
                          ? "{\"isa\":\"%s\",\"type\":\"%s\",\"threads\":%d,\"n\":%lld,\"m\":%lld,"
                            "\"H\":%lld,\"Hk\":%lld,\"D\":%lld,\"what\":\"%s\",\"calls\":%d,"
                            "\"ms\":%.4f,\"gflops\":%.1f,\"peak\":%.1f,\"share\":%.4f,"
                            "\"low\":%.4f,\"high\":%.4f}\n"
                          : "%-10s %-4s threads %-2d n %-6lld m %-6lld H %-3lld Hk %-3lld D %-4lld "
                            "%-7s %4d calls %9.3f ms %7.1f of %6.1f GFLOP/s: %5.1f %% "
                            "(%.1f to %.1f)\n";
    double      gs = gflop / half, unit = json ? 1 : 100;
    printf(how, v->name, xd_dtype_name(t), xd_par_threads(), (long long)s.n, (long long)s.m,
           (long long)s.H, (long long)s.Hk, (long long)s.D, s.what, r->calls, half * 1e3, gs, p,
           unit * quantile(r->share, r->calls, 0.5), unit * low, unit * high);
    fflush(stdout);
}

/* other: the kernel that `against` names, or NULL */
static void run(const variant *v, const variant *other, xd_dtype t, shape s, double seconds,
                int json)
{
    static result r;
    xd_kv         kv = { fresh(t, s.m, s.Hk, s.D, 2), fresh(t, s.m, s.Hk, s.D, 3) };
    xd_attn_args  a = { .q = fresh(t, s.n, s.H, s.D, 1), .kv = &kv, .nkv = 1, .scale = 0.1f };
    int64_t       band = s.n + s.m - 1; /* the bias of T5: of the distance alone */
    float        *bias = s.bias ? calloc((size_t)(s.H * band), sizeof *bias) : NULL;
    a.out = fresh(t, s.n, s.H, s.D, 4);
    if (bias)
        a.bias = (xd_tensor){ .p = bias + s.n - 1,
                              .d = { s.H, s.n, s.m, 1, 1 },
                              .nd = 3,
                              .s = { band, -1, 1, 0, 0 },
                              .type = XD_F32 };
    size_t bytes = v->scratch(&a, xd_par_threads());
    void  *tmp = xd_pages_map(bytes, -1);
    if (!tmp || (s.bias && !bias))
        exit(1);
    if (bias)
        xd_noise_philox(bias, 0, s.H * band, 5);
    double gflop = 4e-9 * (double)s.H * (double)s.n * (double)s.m * (double)s.D;
    if (other) {
        print_ratio(v, other, &a, s, seconds);
    } else {
        repeat(v, &a, tmp, seconds, gflop, &r);
        print(v, t, s, &r, gflop, json);
    }
    xd_pages_unmap(tmp, bytes);
    free(bias);
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
    const char *seconds = given(argc, argv, "seconds"), *against = given(argc, argv, "against");
    variant     v = isa ? find(isa) : best_variant();
    variant     other = against ? find(against) : (variant){ .name = NULL };
    xd_dtype    t = v.bf16 == v.f32 ? XD_F32 : XD_BF16;
    double      time = seconds ? strtod(seconds, NULL) : 0.5;
    int64_t     n = number(argc, argv, "n", 0), threads = number(argc, argv, "threads", 0);
    shape       s = { .n = n, .m = number(argc, argv, "m", n), .D = number(argc, argv, "D", 64) };
    int         json = 0, most = (int)(threads ? threads : xd_par_cores());
    s.H = number(argc, argv, "H", 16);
    s.Hk = number(argc, argv, "Hk", s.H);
    s.bias = number(argc, argv, "bias", 0);
    s.what = s.bias ? "bias" : "given";
    for (int i = 1; i < argc; i++)
        json |= strcmp(argv[i], "--json") == 0;
    if (!v.name || !xd_isa_has(v.needs)) {
        printf("skipped: this machine has no %s\n", isa);
        return 0;
    }
    if (against && (!other.name || !xd_isa_has(other.needs))) {
        printf("skipped: this machine has no %s\n", against);
        return 0;
    }
    if (type)
        t = strcmp(type, "bf16") == 0 ? XD_BF16 : XD_F32;
    for (int use = threads ? most : 1;; use = most) {
        xd_par_set(use);
        if (n > 0)
            run(&v, against ? &other : NULL, t, s, time, json);
        for (size_t i = 0; n <= 0 && i < sizeof usual / sizeof *usual; i++)
            run(&v, against ? &other : NULL, t, usual[i], time, json);
        if (use >= most)
            return 0;
    }
}
