/* predict_memory.h - memory of a predicted request */
#ifndef XD_PREDICT_PREDICT_MEMORY_H
#define XD_PREDICT_PREDICT_MEMORY_H

#include "pipeline/offload.h"
#include "predict/predict.h"

/* Sums the needs of all ranks, streams blocks that devices cannot hold, and keeps two transformers
 * loaded where memory allows. parts: [ranks], sizes of blocks. */
void xd_predict_memory(xd_prediction *f, xd_job *j, xd_offload_parts *parts, const xd_machine *m);
/* Returns a copy of the sizes of a component's blocks as counted on this rank, for `parts`. */
xd_block_sizes xd_predict_block_sizes(const xd_component *p);
/* Frees the parts and their copies; NULL is accepted. */
void           xd_predict_free_parts(xd_offload_parts *parts, int ranks);

#endif
