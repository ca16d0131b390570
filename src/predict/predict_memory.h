/* predict_memory.h - predicts the memory that a request needs with a plan. */
#ifndef XD_PREDICT_PREDICT_MEMORY_H
#define XD_PREDICT_PREDICT_MEMORY_H

#include "pipeline/offload.h"
#include "predict/predict.h"

/* Computes the memory need of all ranks for a predicted request. xd_predict_memory also selects
 * which blocks stay in host memory so that the request fits, and keeps two transformers loaded if
 * memory allows. For each rank, `parts` contains the sizes of the networks' blocks. */
void xd_predict_memory(xd_prediction *f, xd_job *j, xd_offload_parts *parts, const xd_machine *m);
/* Returns a copy of the sizes of a component's blocks that were counted for this rank; the memory
 * is malloc'ed, and xd_predict_free_parts frees it. */
xd_block_sizes xd_predict_block_sizes(const xd_component *p);
/* Frees the array `parts`, which may be NULL, and the block sizes in it. */
void           xd_predict_free_parts(xd_offload_parts *parts, int ranks);

#endif
