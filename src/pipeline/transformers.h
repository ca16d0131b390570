/* transformers.h - loads and drops the two transformers of a model */
#ifndef XD_PIPELINE_TRANSFORMERS_H
#define XD_PIPELINE_TRANSFORMERS_H

#include "pipeline/job.h"

/* Returns the transformer of a step. */
xd_component *xd_transformer_of(const xd_job *j, int step);
/* Frees the weights of the other transformer unless both stay loaded. Collective over its share
 * group. */
void      xd_transformer_alone(const xd_job *j, int step);
/* Loads the transformer of `step`. Call between two steps of different transformers, and before the
 * next image. vae: this rank decodes. `s`: this rank's status so far. Collective over the ranks in
 * use, including a replica without an image; all return the same status. */
xd_status xd_transformer_change(xd_job *j, int vae, int step, xd_status s, xd_err *e);

#endif
