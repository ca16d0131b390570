/* scale_rows.h - used only in src/vae: multiplies latents by a factor per channel and adds an
 * offset per channel. */
#ifndef XD_VAE_SCALE_ROWS_H
#define XD_VAE_SCALE_ROWS_H

#include "exec/op.h"

/* Computes in * gain + bias for every row of in [rows,C] F32, and returns [rows,C] F32 in the
 * arena. gain and bias [C] are in host memory. */
xd_tensor xd_scale_rows(xd_exec *x, xd_tensor in, const float *gain, const float *bias);

#endif
