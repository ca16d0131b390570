/* scale_rows.h - inside vae: the normalization of latents channel by channel */
#ifndef XD_VAE_SCALE_ROWS_H
#define XD_VAE_SCALE_ROWS_H

#include "exec/op.h"

/* in * gain + bias of every row of in [rows,C] F32, in the arena: [rows,C] F32. gain and bias [C]
 * are host memory. */
xd_tensor xd_scale_rows(xd_exec *x, xd_tensor in, const float *gain, const float *bias);

#endif
