/* decode_noise.h - mixes latents with noise before decoders that read a timestep. */
#ifndef XD_PIPELINE_DECODE_NOISE_H
#define XD_PIPELINE_DECODE_NOISE_H

#include "exec/exec.h"
#include "pipeline/job.h"

/* Returns the inputs that the decoder reads besides the latents. row: this rank's first row of
 * latents. */
xd_decoding xd_decode_input(const xd_job *j, int64_t row);
/* Mixes the latents lat [T,n,w,C] in place with noise from the request's seed, if the decoder reads
 * a timestep. `lat` has rows [row, row + n) of the latents. */
void xd_decode_mix(xd_exec *x, const xd_job *j, const xd_net *net, xd_tensor lat, int64_t row);

#endif
