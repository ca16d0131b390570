/* turns.h - moments of a request in which the program may use other engines (on_turn of a request)
 *
 * Between two steps all ranks of a request meet. Texts and pixels are computed by some of them, in
 * parts, while the others wait: those that compute say before each turn that there is one, and the
 * others attend until the end. Functions are collective over the used ranks unless their comments
 * say otherwise. */
#ifndef XD_PIPELINE_TURNS_H
#define XD_PIPELINE_TURNS_H

#include "pipeline/job.h"

/* One turn, where all ranks come at the same time: behind the steps of an image, or before those of
 * the next one. */
xd_status xd_turns_take(xd_job *j, xd_err *e);
/* One between two steps, whose failure is one of x. */
void      xd_turns_step(xd_job *j, xd_exec *x);
/* Of a rank that computes: xd_pause on x (xd_turns_watch) is a turn, until xd_turns_end. A rank
 * that has failed calls begin and end, too. */
void      xd_turns_begin(xd_job *j);
void      xd_turns_watch(xd_job *j, xd_exec *x);        /* local                               */
void      xd_turns_end(xd_job *j);
/* Of a rank that waits: takes part in the turns of those that compute, until one of them ends. */
xd_status xd_turns_attend(xd_job *j, xd_err *e);
/* Seconds in turns since the last call; local. */
double    xd_turns_seconds(xd_job *j);

#endif
