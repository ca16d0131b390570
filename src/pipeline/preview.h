/* preview.h - previews: small images of the clean latents that a step predicts
 *
 * Latents become an image by the decoder that the engine was given for that (preview_decoder.h), or
 * colours by a linear map of their channels: the autoencoder's (xd_vae_info.rgb),
 * or, where none is known, the one that fits best the images that this engine has decoded; before
 * there is one, previews are grey. */
#ifndef XD_PIPELINE_PREVIEW_H
#define XD_PIPELINE_PREVIEW_H

#include "pipeline/job.h"

enum { XD_PREVIEW_SIDE = 512 }; /* most pixels of a side                                      */

/* Sums over decoded images, for a least-squares fit. */
typedef struct xd_colours xd_colours;

void xd_colours_close(xd_colours **c);
/* Does the request ask for previews, and for one of this step? The same on all ranks. */
int  xd_preview_asked(const xd_job *j);
int  xd_preview_due(const xd_job *j, int step);
/* Makes the preview of clean latents [t,C,h,w] and calls on_preview. Without memory there is none:
 * the request goes on. */
void xd_preview_report(const xd_job *j, const float *clean, const xd_progress *p);
/* Adds decoded latents [t,C,h,w] and their pixels [frames,H,W,3], of the generated size, where no
 * colours are known and the engine lives on. */
void xd_preview_learn(const xd_job *j, const float *lat, const float *rgb);

#endif
