/* checkpoint.h - saves in files what an image needs to continue after an interruption, and
 * continues images from these files.
 *
 * The request's `checkpoint` names a folder. During denoising, the folder has a safetensors file
 * for each unfinished image: the latents after the last saved step and the sampler's history, as
 * tensors "latents", "history.0", ... [t,C,h,w] in F32. The metadata has the number of finished
 * steps, and everything that determines the image: the model's hash, the prompt and the options.
 * The plan is not part of it, so that another number of ranks can continue. */
#ifndef XD_PIPELINE_CHECKPOINT_H
#define XD_PIPELINE_CHECKPOINT_H

#include "pipeline/denoise.h"
#include "pipeline/job.h"

/* Sets j->finished, the number of finished steps of each image, from the files of rank 0. Creates
 * the folder if it is missing, and locks it. Refuses files of another request. Collective over the
 * used ranks. */
xd_status xd_checkpoint_find(xd_job *j, xd_err *e);
/* Releases the folder, so that other requests may use it. */
void      xd_checkpoint_close(xd_job *j);
/* Returns the number of steps of image `image` that need not be computed. */
int       xd_checkpoint_finished(const xd_job *j, int image);
/* Sets the latents, the sampler's history and the state of the generator to those after `finished`
 * steps. `f` has been opened for step `finished` and has drawn the initial noise. Collective over
 * the replica. */
void      xd_checkpoint_restore(xd_denoise *f, int image, int finished);
/* Writes the file of an image after a step if it is due. A file that cannot be written is a
 * warning, because the image does not need it. `lat` is a buffer for the latents. Collective over
 * the replica. */
void      xd_checkpoint_save(xd_denoise *f, int image, int step, float *lat);
/* Removes the file of an image that is complete. */
void      xd_checkpoint_remove(const xd_job *j, int image);

#endif
