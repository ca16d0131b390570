/* checkpoint.h - saves the state of unfinished images in files, and continues interrupted images
 * from these files.
 *
 * The request's option `checkpoint` names the folder of the checkpoint files. During denoising, the
 * checkpoint folder contains one safetensors file for each unfinished image. A checkpoint file
 * contains the latents after the last saved step and the earlier predictions that the sampler
 * reads, as F32 tensors "latents", "history.0", "history.1", ..., each of shape [t,C,h,w]. The
 * metadata of a checkpoint file contain the number of finished steps, and everything that
 * determines the image: the model's hash, the prompt and the options. A checkpoint does not depend
 * on the number of ranks, so that another number of ranks can continue the image. */
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
/* Returns the number of steps of image `image` that a checkpoint makes unnecessary. */
int       xd_checkpoint_finished(const xd_job *j, int image);
/* Sets the latents, the sampler's history and the state of the random generator to their values
 * after `finished` steps. The caller must have opened `f` for step `finished` and drawn the initial
 * noise. The call is collective over the ranks of the replica. */
void      xd_checkpoint_restore(xd_denoise *f, int image, int finished);
/* Writes the checkpoint of an image after a step, if the interval between two checkpoints has
 * passed. If writing the checkpoint fails, the engine prints a warning and continues, because the
 * image does not need the checkpoint. `lat` is a buffer in host memory that receives the latents.
 * The call is collective over the ranks of the replica. */
void      xd_checkpoint_save(xd_denoise *f, int image, int step, float *lat);
/* Removes the checkpoint of an image that is complete. */
void      xd_checkpoint_remove(const xd_job *j, int image);

#endif
