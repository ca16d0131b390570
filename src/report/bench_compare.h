/* bench_compare.h - compares the time of denoising steps or of decoding on several ranks (with a
 * parallel plan) with the time on one rank.
 *
 * The measurements of the plan and of one rank alternate within one run of the program, because the
 * clock rate of a machine varies. All measurements run the code of image generation (xd_denoise_*,
 * xd_vae_decode). Each round of the comparison has three timed runs. In the first run, rank 0
 * computes everything alone while the other ranks sleep. In the second run, all ranks run the plan.
 * In the third run, every rank computes everything by itself, all at the same time. The time of one
 * rank alone divided by the time of the plan is the speed-up that a user sees. The third run shows
 * how much of the lost speed-up is due to the machine, on which the ranks share the memory
 * bandwidth and the clock of the processor package; the rest is due to the parallel method. */
#ifndef XD_REPORT_BENCH_COMPARE_H
#define XD_REPORT_BENCH_COMPARE_H

#include "pipeline/denoise.h"
#include "report/bench.h"

enum { XD_MAXROUNDS = 128 };

typedef enum xd_bench_run { XD_RUN_ALONE, XD_RUN_PLAN, XD_RUN_BUSY, XD_NRUNS } xd_bench_run;

typedef struct xd_bench_side { /* one of the two setups that are compared: one rank, or the plan */
    xd_engine *g;
    xd_request r;
    xd_job     job;
    xd_net     net; /* network whose weights are borrowed from a component */
    xd_arena   a;
    size_t     bytes; /* size of the arena in bytes */
    xd_denoise f;
    xd_exec    x; /* execution context that runs the VAE */
    float     *rgb;
    /* step: index of the next denoising step; going: 0 after all ranks have learned that a rank
     * failed */
    int        step, going;
} xd_bench_side;

typedef struct xd_bench_pair {
    const xd_bench_args *a;
    xd_bench_side        one, all; /* one: the setup of one rank; all: the setup of the plan */
    xd_cond              text;     /* synthetic encoded prompt */
    xd_cond_image        images[XD_MAXREFS]; /* reference images of the synthetic prompt `text` */
    float               *lat;                /* latents that the VAE decodes in the benchmark */
    const char          *unit; /* name of what is timed in printed results, such as "a step" */
    void                 (*work)(struct xd_bench_pair *d, xd_bench_side *s);
    int     warm, rounds; /* warm: number of warm-up rounds; rounds: number of reported rounds */
    /* number of exact steps, which come before the steps that use values of earlier steps */
    int     exact;
    /* lead: number of steps before the timed steps; span: number of timed steps */
    int     lead, span;
    /* FLOPs of the timed computation if one rank does all of it */
    double  flops;
    double  t[XD_NRUNS][XD_MAXROUNDS]; /* seconds of each run, measured on rank 0 */
    /* Bytes that this rank sends, as measured (sent) and as counted before the measurement (count).
     * Element 0 is for the first timed step, and element 1 for all timed steps of the reported
     * rounds. */
    int64_t sent[2], count[2];
    int     parts; /* number of results that were printed so far */
} xd_bench_pair;

/* Runs all rounds of the comparison; stops early if a rank has failed. The call is collective. */
xd_status xd_bench_pair_run(xd_bench_pair *d, xd_err *e);
/* Prints the results of the comparison on rank 0. The call is collective. */
xd_status xd_bench_pair_report(xd_bench_pair *d, const char *name, const char *what, xd_err *e);

#endif
