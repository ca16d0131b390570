/* timed.h - declares adaLN modulation for videos in which tokens have different timesteps: tokens
 * of frames that are given as images or videos have lower timesteps than the other tokens. */
#ifndef XD_DIT_TIMED_H
#define XD_DIT_TIMED_H

#include "dit/dit.h"
#include "exec/op.h"

/* Maximum number of timesteps in a forward pass, and maximum number of runs of consecutive tokens
 * with one timestep. */
enum { XD_TIMES = 17, XD_TIME_RUNS = 64 };

typedef struct xd_time_run {
    xd_span rows;
    int     time; /* index of the timestep of this run of tokens */
} xd_time_run;

typedef struct xd_timed {
    int         times; /* number of timesteps in one forward pass, on all ranks together */
    int         n;     /* number of runs, at least 1, into which this rank's tokens are divided */
    xd_time_run run[XD_TIME_RUNS];
} xd_timed;

/* Divides this rank's tokens into runs with one timestep each, and writes the timesteps to
 * `time`. */
xd_timed  xd_timed_of(xd_exec *x, const xd_input *in, double time[XD_TIMES]);
/* Computes norm(h) * (1 + scale) + shift, and returns it in the type that the layer w reads (fp8
 * with scales, for a layer with fp8 inputs). For a token with timestep t, the scale is row number
 * `scale` and the shift is row number `shift` of the modulation mod[t]. xd_timed_norm uses the
 * gain, the epsilon and the kind of norm (rms) of `as`. */
xd_tensor xd_timed_norm(xd_exec *x, const xd_timed *l, const xd_norm *as, xd_tensor h,
                        const xd_tensor *mod, int scale, int shift, const xd_lin *w);
/* Computes h += gate * linear(in), where the gate of a token depends on the token's timestep. */
void      xd_timed_add(xd_exec *x, const xd_timed *l, xd_tensor h, const xd_tensor *mod, int gate,
                       xd_tensor in, const xd_lin *w);

#endif
