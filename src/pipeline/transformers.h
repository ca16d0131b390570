/* transformers.h - which of two transformers is loaded */
#ifndef XD_PIPELINE_TRANSFORMERS_H
#define XD_PIPELINE_TRANSFORMERS_H

#include "pipeline/job.h"

/* The transformer of a step. */
xd_component *xd_transformer_of(const xd_job *j, int step);
/* Frees the weights of the other one unless both stay loaded. Collective over its share group. */
void      xd_transformer_alone(const xd_job *j, int step);
/* Between two steps of different transformers, and before the next image: loads the transformer of
 * `step`. vae: this rank decodes. `s` is this rank's status so far. Collective over the ranks in
 * use, which agree; also those of a replica without an image call it. */
xd_status xd_transformer_change(xd_job *j, int vae, int step, xd_status s, xd_err *e);

#endif
