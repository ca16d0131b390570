/* adapt.h - changes the ranks' shares of the tokens between two steps, if a rank has become slower
 * or faster since the shares were measured. */
#ifndef XD_PIPELINE_ADAPT_H
#define XD_PIPELINE_ADAPT_H

#include "pipeline/loop.h"

/* Call xd_adapt after a step that took `seconds`. `from` is the first step that could use new
 * shares of the tokens. If steps have become slower, or if the ranks have had uneven shares for
 * some seconds, xd_adapt measures the speeds of the ranks. Returns 1 if the ranks have new shares;
 * the caller must then call xd_denoise_open again before step `from`. A failure is stored in the
 * execution context l->f.x. Every rank of the replica must call xd_adapt. */
int xd_adapt(xd_loop *l, int from, double seconds);

#endif
