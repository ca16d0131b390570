/* adapt.h - changes the ranks' shares of the tokens between two steps, if a rank has become slower
 * or faster since the shares were measured. */
#ifndef XD_PIPELINE_ADAPT_H
#define XD_PIPELINE_ADAPT_H

#include "pipeline/loop.h"

/* Call after a step that took `seconds`; `from` is the first step that other shares could compute.
 * If steps have become slower, or if shares have been uneven for some seconds, measures the speeds
 * of the ranks. Returns 1 if the context has new shares, for which the image's denoising must be
 * opened again before step `from`. A failure is stored in l->f.x. Collective over the replica. */
int xd_adapt(xd_loop *l, int from, double seconds);

#endif
