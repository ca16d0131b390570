/* bench_compare.h - the work of a plan of several ranks against the same work on one rank.
 *
 * Both are timed in turn within one run, because the clock of a machine moves, and by the code that
 * generates (xd_flow_*, xd_vae_decode). A round has three turns: rank 0 computes alone while the others
 * sleep; all ranks work as the plan says; all ranks compute alone at the same time. The second
 * against the first is what a user gains. The third tells what of the loss is the machine's (ranks
 * share memory bandwidth and the clock of the package) and what the method's. */
#ifndef XD_REPORT_BENCH_COMPARE_H
#define XD_REPORT_BENCH_COMPARE_H

#include "pipeline/denoise.h"
#include "report/bench.h"

enum { XD_MAXROUNDS = 128 };

typedef enum xd_bench_run { XD_RUN_ALONE, XD_RUN_PLAN, XD_RUN_BUSY, XD_NRUNS } xd_bench_run;

typedef struct xd_bench_side {        /* one way of doing the work                                   */
    xd_engine *g;
    xd_request r;
    xd_job     job;
    xd_net     net;             /* not closed: a view of weights that a part has                */
    xd_arena   a;
    size_t     bytes;           /* of it                                                       */
    xd_denoise    f;
    xd_exec    x;               /* the VAE's                                                   */
    float     *rgb;
    int        step, going;     /* the next one; 0 when the ranks have agreed on a failure      */
} xd_bench_side;

typedef struct xd_bench_pair {
    const xd_bench_args *a;
    xd_bench_side   one, all;         /* one rank; the plan                                          */
    xd_cond   text;             /* what stands for a prompt                                    */
    float    *lat;              /* what is decoded                                             */
    const char *unit;           /* "a step"                                                    */
    void    (*work)(struct xd_bench_pair *d, xd_bench_side *s);
    int       warm, rounds;     /* before and in what is reported                              */
    int       exact;            /* steps at the start that use nothing stale, when later ones do */
    int       lead, span;       /* steps of a turn before and in what is timed                  */
    double    flops;            /* of the work of one rank                                     */
    double    t[XD_NRUNS][XD_MAXROUNDS];       /* seconds, on rank 0                          */
    int64_t   sent[2], count[2];        /* bytes of my first timed step, of all of them; counted */
    int       parts;            /* printed so far                                              */
} xd_bench_pair;

/* All rounds. Collective; they end early when a rank has failed. */
xd_status xd_bench_pair_run(xd_bench_pair *d, xd_err *e);
/* Says how it went, on rank 0. Collective. */
xd_status xd_bench_pair_report(xd_bench_pair *d, const char *name, const char *what, xd_err *e);

#endif
