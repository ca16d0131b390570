/* preview.h - previews: small images of the clean latents that a step predicts
 *
 * The engine's preview decoder (preview_decoder.h) turns latents into an image. Without one, a
 * linear map of the latent channels gives the colours: that of the autoencoder (xd_vae_info.rgb),
 * else a least-squares fit to the images that this engine has decoded. Before the first image,
 * previews are grey. */
#ifndef XD_PIPELINE_PREVIEW_H
#define XD_PIPELINE_PREVIEW_H

#include "pipeline/job.h"

enum { XD_PREVIEW_SIDE = 512 }; /* max pixels per side                                        */

/* Sums over decoded images for the least-squares fit. */
typedef struct xd_colours xd_colours;

void xd_colours_close(xd_colours **c);
/* Return 1 if the request wants previews, and one of this step. Equal on all ranks. */
int  xd_preview_asked(const xd_job *j);
int  xd_preview_due(const xd_job *j, int step);
/* Makes the preview of clean latents [t,C,h,w] and calls on_preview. Without memory the preview is
 * skipped and the request continues. */
void xd_preview_report(const xd_job *j, const float *clean, const xd_progress *p);
/* Adds decoded latents [t,C,h,w] and their pixels [frames,H,W,3] of the generated size to the fit,
 * if no colours are known and the engine serves further requests. */
void xd_preview_learn(const xd_job *j, const float *lat, const float *rgb);

#endif
