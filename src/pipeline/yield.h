/* yield.h - lets the program run other code while a request is paused at certain points. A request
 * yields by calling its callback on_turn, in which the program may run other engines.
 *
 * Between two denoising steps, all ranks call on_turn (yield) together. Text encoding and decoding
 * run on some ranks only, while the other ranks wait. In text encoding and decoding, the computing
 * ranks announce each yield, and the waiting ranks yield together with them until the computation
 * ends. The functions of yield.h are collective over the ranks in use, unless their comments say
 * otherwise. */
#ifndef XD_PIPELINE_YIELD_H
#define XD_PIPELINE_YIELD_H

#include "pipeline/job.h"

/* Calls the callback on_turn once on all ranks, after the steps of an image or before the steps of
 * the next image. */
xd_status xd_yield_now(xd_job *j, xd_err *e);
/* Calls the callback on_turn once between two steps. A failure is stored in the execution context
 * x. */
void      xd_yield_in_step(xd_job *j, xd_exec *x);
/* Functions for a rank that computes while other ranks wait. Between xd_yield_begin and
 * xd_yield_end, xd_pause(x) calls the callback on_turn for every execution context x that was
 * passed to xd_yield_watch. A rank that has failed also calls xd_yield_begin and xd_yield_end. */
void      xd_yield_begin(xd_job *j);
/* makes xd_pause(x) call on_turn; exchanges no messages */
void      xd_yield_watch(xd_job *j, xd_exec *x);
void      xd_yield_end(xd_job *j);
/* For a rank that waits while other ranks compute: calls on_turn whenever the computing ranks call
 * it, until one of the computing ranks calls xd_yield_end. */
xd_status xd_yield_follow(xd_job *j, xd_err *e);
/* Returns the seconds spent in on_turn since the last call of xd_yield_seconds. xd_yield_seconds
 * exchanges no messages. */
double    xd_yield_seconds(xd_job *j);

#endif
