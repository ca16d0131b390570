/* timed.h - declares modulation of video tokens that have one of several timesteps: the tokens of
 * frames that are given as images or videos have lower timesteps than the other tokens. */
#ifndef XD_DIT_TIMED_H
#define XD_DIT_TIMED_H

#include "dit/dit.h"
#include "exec/op.h"

/* Maximum number of timesteps in a forward pass, and of runs of tokens with one timestep. */
enum { XD_TIMES = 17, XD_TIME_RUNS = 64 };

typedef struct xd_time_run {
    xd_span rows;
    int     time; /* index of the run's timestep */
} xd_time_run;

typedef struct xd_timed {
    int         times; /* number of timesteps in one forward pass, on all ranks together */
    int         n; /* number of runs, at least 1; together the runs contain all rows of this rank */
    xd_time_run run[XD_TIME_RUNS];
} xd_timed;

/* Returns the runs of this rank's tokens, and writes the timesteps to `time`. */
xd_timed  xd_timed_of(xd_exec *x, const xd_input *in, double time[XD_TIMES]);
/* Computes norm(h) * (1 + scale) + shift, and returns it in the type that the layer w reads (fp8
 * with scales, for a layer with fp8 inputs). A row of h with timestep t uses the rows number
 * `scale` and `shift` of the modulation mod[t]. xd_timed_norm uses the gain, the epsilon and the
 * kind of norm (rms) of `as`. */
xd_tensor xd_timed_norm(xd_exec *x, const xd_timed *l, const xd_norm *as, xd_tensor h,
                        const xd_tensor *mod, int scale, int shift, const xd_lin *w);
/* Computes h += gate * linear(in), where the gate of a row depends on the row's timestep. */
void      xd_timed_add(xd_exec *x, const xd_timed *l, xd_tensor h, const xd_tensor *mod, int gate,
                       xd_tensor in, const xd_lin *w);

#endif
