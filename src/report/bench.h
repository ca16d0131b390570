/* bench.h - what the two halves of xdit bench share: parts on one rank, and plans of several */
#ifndef XD_REPORT_BENCH_H
#define XD_REPORT_BENCH_H

#include "engine/engine.h"
#include "pipeline/job.h"

void   xd_bench_print(const xd_bench_args *a, const char *fmt, ...) XD_PRINTF(2, 3);
int    xd_bench_wants(const xd_bench_args *a, const char *part);
/* Refuses a list of parts that is empty or names others than those of `known`, "step vae". */
xd_status xd_bench_check_parts(const xd_bench_args *a, const char *known, xd_err *e);
double xd_bench_median(double *v, int n);       /* sorts v                                     */
void   xd_bench_fill(float *v, int64_t n);      /* the same small numbers everywhere           */
/* What stands for an encoded prompt of the most tokens; freed also after a failure. */
xd_status xd_bench_text(xd_cond *c, const xd_job *j, xd_err *e);
void      xd_bench_text_free(xd_cond *c, xd_engine *g);
/* Refuses, as a request is, what this process has no memory for: the weights of a part that is
 * counted, and the larger of `beside` and what loading takes. ranks: of this host, which do the
 * same. */
xd_status xd_bench_room(const xd_dev *d, const xd_component *p, size_t beside, int ranks, xd_err *e);
/* "decode 49 x 720 x 480": what the autoencoder does for the job. */
void   xd_bench_decode_name(char *what, size_t size, const xd_job *j);
/* A request for the size asked for, with a sampler that is there. */
void   xd_bench_request(xd_request *r, const xd_bench_args *a, const xd_engine *g);

/* The plan's work against the same work on one rank. Collective over all ranks. */
xd_status xd_bench_plan(const xd_bench_args *a, xd_err *e);

#endif
