/* bench.h - declares functions that the benchmarks of `xdit bench` share. The benchmarks measure
 * one rank, or compare a plan with one rank. */
#ifndef XD_REPORT_BENCH_H
#define XD_REPORT_BENCH_H

#include "engine/engine.h"
#include "pipeline/job.h"

void      xd_bench_print(const xd_bench_args *a, const char *fmt, ...) XD_PRINTF(2, 3);
int       xd_bench_wants(const xd_bench_args *a, const char *part);
/* Refuses an empty list of benchmarks, and names that are not in the list `known`, for example
 * "step vae". */
xd_status xd_bench_check_parts(const xd_bench_args *a, const char *known, xd_err *e);
double    xd_bench_median(double *v, int n); /* returns the median of n values; sorts v in place */
/* Fills v with small numbers that are equal on all machines. */
void      xd_bench_fill(float *v, int64_t n);
/* Makes a synthetic encoded prompt of maximum length. Call xd_bench_text_free also after a
 * failure. `images` receives the reference images of *c. */
xd_status xd_bench_text(xd_cond *c, const xd_job *j, xd_cond_image images[XD_MAXREFS], xd_err *e);
void      xd_bench_text_free(xd_cond *c, xd_engine *g);
/* Refuses a benchmark that needs more memory than this process may use: memory for the weights of
 * component p, and either the `beside` bytes of the computation or the working memory for loading
 * weights, whichever is larger. The component's memory must have been counted before. `ranks` is
 * the number of ranks of this host that run the same benchmark. */
xd_status xd_bench_room(const xd_dev *d, const xd_component *p, size_t beside, int ranks,
                        xd_err *e);
/* Writes the name of the VAE benchmark for job j: "decode 49 x 720 x 480". */
void      xd_bench_decode_name(char *what, size_t size, const xd_job *j);
/* Makes the request that a benchmark runs, with the image size given in `a` and one of the
 * registered samplers. */
void      xd_bench_request(xd_request *r, const xd_bench_args *a, const xd_engine *g);

/* Compares the time of a step or of decoding with a parallel plan to the time on one rank. All
 * ranks must call xd_bench_plan. */
xd_status xd_bench_plan(const xd_bench_args *a, xd_err *e);

#endif
