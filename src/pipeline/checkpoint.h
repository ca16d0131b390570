/* checkpoint.h - saves in files what an image needs to continue after an interruption, and
 * continues images from these files.
 *
 * The request's `checkpoint` names a folder. During denoising, the folder has a safetensors file
 * for each unfinished image. The file has the latents after the last saved step and the sampler's
 * history, as F32 tensors "latents", "history.0", ... [t,C,h,w]. The metadata of a checkpoint has
 * the number of finished steps, and everything that determines the image: the model's hash, the
 * prompt and the options. A checkpoint does not depend on the plan, so that another number of ranks
 * can continue from it. */
#ifndef XD_PIPELINE_CHECKPOINT_H
#define XD_PIPELINE_CHECKPOINT_H

#include "pipeline/denoise.h"
#include "pipeline/job.h"

/* Sets j->finished, the number of finished steps of each image, from the files of rank 0. Creates
 * the checkpoint folder if it is missing, and locks it. Refuses checkpoint files of another
 * request. The call is collective over the used ranks. */
xd_status xd_checkpoint_find(xd_job *j, xd_err *e);
/* Waits until no file is being written. */
void      xd_checkpoint_settle(const xd_job *j);
/* Waits until no file is being written, and releases the checkpoint folder, so that other requests
 * may use it. */
void      xd_checkpoint_close(xd_job *j);
/* Returns the number of steps of image `image` that need not be computed. */
int       xd_checkpoint_finished(const xd_job *j, int image);
/* Sets the latents, the sampler's history and the state of the random generator to their values
 * after `finished` steps. `f` has been opened for step `finished` and has drawn the initial noise.
 * The call is collective over the ranks of the replica. */
void      xd_checkpoint_restore(xd_denoise *f, int image, int finished);
/* Writes the checkpoint of an image after a step, if a checkpoint is due. If the checkpoint cannot
 * be written, the engine only warns, because the image does not need it. `lat` is a buffer for the
 * latents. The call is collective over the ranks of the replica. */
void      xd_checkpoint_save(xd_denoise *f, int image, int step, float *lat);
/* Removes the checkpoint of an image that is complete. */
void      xd_checkpoint_remove(const xd_job *j, int image);

#endif
