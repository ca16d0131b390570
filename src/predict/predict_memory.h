/* predict_memory.h - what a predicted request takes of memory */
#ifndef XD_PREDICT_PREDICT_MEMORY_H
#define XD_PREDICT_PREDICT_MEMORY_H

#include "pipeline/offload.h"
#include "predict/predict.h"

/* Sums up what all ranks need, streams blocks where devices do not hold them, and keeps two
 * transformers where there is room. parts: [ranks], sizes of blocks. */
void xd_predict_memory(xd_prediction *f, xd_job *j, xd_offload_parts *parts, const xd_machine *m);
/* A copy of the sizes of a component's blocks as this rank has counted them, for `parts`. */
xd_block_sizes xd_predict_block_sizes(const xd_component *p);
/* Frees the parts with their copies; NULL: does nothing. */
void           xd_predict_free_parts(xd_offload_parts *parts, int ranks);

#endif
