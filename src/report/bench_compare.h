/* bench_compare.h - compares the time of work on several ranks (a plan) with the time of the same
 * work on one rank.
 *
 * The measurements of a plan and of one rank alternate within one run of the program, because the
 * clock rate of a machine varies. The measurements of a plan and of one rank both run the code of
 * image generation (xd_denoise_*, xd_vae_decode). Each round of the comparison has three timed
 * runs. In the first run, rank 0 does the work of one rank while the other ranks sleep. In the
 * second run, all ranks run the plan. In the third run, every rank does the work of one rank, all
 * at the same time. The ratio of the times of the first two runs is the speed-up that a user sees.
 * The third run shows how much of the lost speed-up is due to the machine, on which the ranks share
 * the memory bandwidth and the clock of the processor package; the rest is due to the parallel
 * method. */
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
    /* step: index of the next step; going: 0 after all ranks have learned that a rank failed */
    int        step, going;
} xd_bench_side;

typedef struct xd_bench_pair {
    const xd_bench_args *a;
    xd_bench_side        one, all; /* one: the setup of one rank; all: the setup of the plan */
    xd_cond              text;     /* synthetic encoded prompt */
    xd_cond_image        images[XD_MAXREFS]; /* reference images of `text` */
    float               *lat;                /* latents that the VAE decodes in the benchmark */
    const char          *unit; /* name of the timed work in printed results: "a step" */
    void                 (*work)(struct xd_bench_pair *d, xd_bench_side *s);
    int     warm, rounds; /* warm: number of warm-up rounds; rounds: number of reported rounds */
    int     exact;        /* number of exact steps before the steps that use stale data */
    /* lead: number of steps before the timed steps; span: number of timed steps */
    int     lead, span;
    double  flops;                     /* FLOPs of the timed work if one rank does all of it */
    double  t[XD_NRUNS][XD_MAXROUNDS]; /* seconds of each run, measured on rank 0 */
    /* Bytes that this rank sends, as measured (sent) and as counted before the measurement (count).
     * Element 0 counts the first timed step, and element 1 all timed steps of the reported
     * rounds. */
    int64_t sent[2], count[2];
    int     parts; /* number of results that were printed so far */
} xd_bench_pair;

/* Runs all rounds of the comparison; stops early if a rank has failed. The call is collective. */
xd_status xd_bench_pair_run(xd_bench_pair *d, xd_err *e);
/* Prints the results of the comparison on rank 0. The call is collective. */
xd_status xd_bench_pair_report(xd_bench_pair *d, const char *name, const char *what, xd_err *e);

#endif
