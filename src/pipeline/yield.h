/* yield.h - points at which a request yields to the program, which may then run other engines
 * (callback on_turn).
 *
 * Between two steps all ranks yield together. Texts and pixels are computed by some ranks, in
 * parts, while the other ranks wait. The computing ranks then announce each yield, and the waiting
 * ranks yield with them until the work ends. Functions are collective over the ranks in use unless
 * their comments say otherwise. */
#ifndef XD_PIPELINE_YIELD_H
#define XD_PIPELINE_YIELD_H

#include "pipeline/job.h"

/* Yields once on all ranks, after the steps of an image or before the steps of the next image. */
xd_status xd_yield_now(xd_job *j, xd_err *e);
/* Yields once between two steps. A failure is stored in the context x. */
void      xd_yield_in_step(xd_job *j, xd_exec *x);
/* For a rank that computes. Between xd_yield_begin and xd_yield_end, xd_pause yields if it is
 * called with a context for which xd_yield_watch was called. A rank that has failed calls
 * xd_yield_begin and xd_yield_end, too. */
void      xd_yield_begin(xd_job *j);
void      xd_yield_watch(xd_job *j, xd_exec *x);        /* watches a context; the call is local */
void      xd_yield_end(xd_job *j);
/* For a rank that waits. Yields together with the computing ranks until one of the computing ranks
 * calls xd_yield_end. */
xd_status xd_yield_follow(xd_job *j, xd_err *e);
/* Returns the seconds spent in on_turn since the last call of this function. The call is local. */
double    xd_yield_seconds(xd_job *j);

#endif
