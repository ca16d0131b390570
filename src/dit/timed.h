/* timed.h - declares modulation of video tokens that have one of two timesteps: the tokens of a
 * frame that is given as an image have timestep 0, and other video tokens have the timestep of the
 * step. */
#ifndef XD_DIT_TIMED_H
#define XD_DIT_TIMED_H

#include "dit/dit.h"
#include "exec/op.h"

enum { XD_TIMES = 2 };

/* On each rank, the tokens with timestep 0 come first. */
typedef struct xd_timed {
    /* Number of timesteps in one forward pass: 2 if a frame is given to any rank, else 1. */
    int     times;
    /* for each timestep: the range of this rank's tokens that have it */
    xd_span rows[XD_TIMES];
} xd_timed;

/* Returns the ranges of this rank's tokens, and writes the timesteps to `time`. */
xd_timed  xd_timed_of(const xd_exec *x, const xd_input *in, double time[XD_TIMES]);
/* Computes norm(h) * (1 + scale) + shift, and returns it in the type that the layer w reads (for a
 * layer with fp8 inputs, fp8 with scales). A row of h with timestep t uses rows `scale` and `shift`
 * of the modulation mod[t]. The norm has the epsilon and the kind (rms) of `as`. */
xd_tensor xd_timed_norm(xd_exec *x, const xd_timed *l, const xd_norm *as, xd_tensor h,
                        const xd_tensor *mod, int scale, int shift, const xd_lin *w);
/* Computes h += gate * linear(in), where each row's gate is that of the row's timestep. */
void      xd_timed_add(xd_exec *x, const xd_timed *l, xd_tensor h, const xd_tensor *mod, int gate,
                       xd_tensor in, const xd_lin *w);

#endif
