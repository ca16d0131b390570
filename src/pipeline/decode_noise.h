/* decode_noise.h - mixes latents with noise before decoders that read a timestep. */
#ifndef XD_PIPELINE_DECODE_NOISE_H
#define XD_PIPELINE_DECODE_NOISE_H

#include "exec/exec.h"
#include "pipeline/job.h"

/* Returns the inputs that the decoder reads in addition to the latents. `row` is this rank's first
 * row of latents. */
xd_decoding xd_decode_input(const xd_job *j, int64_t row);
/* If the decoder reads a timestep, mixes the latents `lat` in place with noise from the request's
 * seed. `lat` contains rows [row, row + n) of all T latent frames, as [T,n,w,C]. */
void xd_decode_mix(xd_exec *x, const xd_job *j, const xd_net *net, xd_tensor lat, int64_t row);

#endif
