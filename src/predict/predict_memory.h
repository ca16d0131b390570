/* predict_memory.h - predicts the memory that a request needs with a plan. */
#ifndef XD_PREDICT_PREDICT_MEMORY_H
#define XD_PREDICT_PREDICT_MEMORY_H

#include "pipeline/offload.h"
#include "predict/predict.h"

/* Computes the memory need of all ranks for a predicted request. Plans to stream blocks that do not
 * fit into device memory, and to keep two transformers loaded if memory allows. `parts` has the
 * block sizes of the networks of each of the ranks. */
void xd_predict_memory(xd_prediction *f, xd_job *j, xd_offload_parts *parts, const xd_machine *m);
/* Returns a malloc'ed copy of the sizes of a component's blocks, as counted for this rank, to be
 * stored in `parts`. */
xd_block_sizes xd_predict_block_sizes(const xd_component *p);
/* Frees `parts` and the block sizes in it; parts may be NULL. */
void           xd_predict_free_parts(xd_offload_parts *parts, int ranks);

#endif
