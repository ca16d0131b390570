/* transformers.h - loads and frees the weights of the transformers, for models that have two
 * transformers. */
#ifndef XD_PIPELINE_TRANSFORMERS_H
#define XD_PIPELINE_TRANSFORMERS_H

#include "pipeline/job.h"

/* Returns the transformer that computes a step. */
xd_component *xd_transformer_of(const xd_job *j, int step);
/* Unless both transformers stay loaded, frees the weights of the transformer that does not compute
 * `step`. The call is collective over the ranks that share the weights of the freed transformer. */
void          xd_transformer_alone(const xd_job *j, int step);
/* Loads the transformer that computes `step`. Call xd_transformer_change between two steps with
 * different transformers, and before the next image. `vae` is 1 if this rank decodes images. `s` is
 * this rank's status so far. The call is collective over the ranks in use, including the ranks of a
 * replica that has no image to compute. xd_transformer_change returns the same status on all
 * ranks. */
xd_status     xd_transformer_change(xd_job *j, int vae, int step, xd_status s, xd_err *e);

#endif
