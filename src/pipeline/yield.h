/* yield.h - points at which a request yields, so that the program may run other engines (on_turn)
 *
 * Between two steps all ranks yield together. Texts and pixels are computed by some ranks, in
 * parts, while the others wait: the computing ranks announce each yield, and the waiting ranks
 * follow them until the end. Functions are collective over the ranks in use unless their comments
 * say otherwise. */
#ifndef XD_PIPELINE_YIELD_H
#define XD_PIPELINE_YIELD_H

#include "pipeline/job.h"

/* Yields once on all ranks: after the steps of an image, or before those of the next one. */
xd_status xd_yield_now(xd_job *j, xd_err *e);
/* Yields once between two steps; a failure is sticky on x. */
void      xd_yield_in_step(xd_job *j, xd_exec *x);
/* On a computing rank: between begin and end each xd_pause on x (xd_yield_watch) yields. A rank
 * that has failed calls begin and end, too. */
void      xd_yield_begin(xd_job *j);
void      xd_yield_watch(xd_job *j, xd_exec *x);        /* local                               */
void      xd_yield_end(xd_job *j);
/* On a waiting rank: yields together with the computing ranks until one of them ends. */
xd_status xd_yield_follow(xd_job *j, xd_err *e);
/* Returns the seconds spent in on_turn since the last call; local. */
double    xd_yield_seconds(xd_job *j);

#endif
