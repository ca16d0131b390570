/* yield.h - lets a request yield to the program at certain points. A request yields by calling its
 * callback on_turn, in which the program may run other engines.
 *
 * Between two steps, all ranks yield together. Text encoding and decoding run on some ranks only,
 * while the other ranks wait. The computing ranks announce each yield, and the waiting ranks yield
 * together with them until the computation ends. The functions of yield.h are collective over the
 * ranks in use, unless their comments say otherwise. */
#ifndef XD_PIPELINE_YIELD_H
#define XD_PIPELINE_YIELD_H

#include "pipeline/job.h"

/* Yields once on all ranks, after the steps of an image or before the steps of the next image. */
xd_status xd_yield_now(xd_job *j, xd_err *e);
/* Yields once between two steps. A failure of the yield is stored in the context x. */
void      xd_yield_in_step(xd_job *j, xd_exec *x);
/* Functions for a rank that computes while other ranks wait. Between xd_yield_begin and
 * xd_yield_end, xd_pause(x) yields for every context x that was passed to xd_yield_watch. A rank
 * that has failed also calls xd_yield_begin and xd_yield_end. */
void      xd_yield_begin(xd_job *j);
void      xd_yield_watch(xd_job *j, xd_exec *x); /* makes xd_pause(x) yield; a local call */
void      xd_yield_end(xd_job *j);
/* For a rank that waits while other ranks compute. Yields together with the computing ranks until
 * one of the computing ranks calls xd_yield_end. */
xd_status xd_yield_follow(xd_job *j, xd_err *e);
/* Returns the seconds spent in on_turn since the last call of xd_yield_seconds. xd_yield_seconds is
 * a local call. */
double    xd_yield_seconds(xd_job *j);

#endif
