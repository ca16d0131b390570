/* preview.h - makes previews, which are small images of the final latents that a denoising step
 * predicts.
 *
 * The engine's preview decoder (preview_decoder.h) turns latents into an image. Without a preview
 * decoder, the colours are a linear function of the latent channels. If the factors are known for
 * the autoencoder (xd_vae_info.rgb), previews use them. If the factors are not known, they are a
 * least-squares fit to the images that this engine has decoded. As long as the engine has decoded
 * no image, previews without known factors are grey. */
#ifndef XD_PIPELINE_PREVIEW_H
#define XD_PIPELINE_PREVIEW_H

#include "pipeline/job.h"

enum { XD_PREVIEW_SIDE = 512 }; /* maximum number of pixels per side of a preview */

/* Sums over the decoded images, from which the colours of previews are computed by least
 * squares. */
typedef struct xd_colours xd_colours;

void xd_colours_close(xd_colours **c);
/* xd_preview_asked returns 1 if the request wants previews, and xd_preview_due returns 1 if the
 * request wants a preview of this step. xd_preview_asked and xd_preview_due return the same value
 * on all ranks. */
int  xd_preview_asked(const xd_job *j);
int  xd_preview_due(const xd_job *j, int step);
/* Makes the preview of predicted final latents [t,C,h,w] and calls the request's callback
 * on_preview. If out of memory, the preview is skipped and the request continues. */
void xd_preview_report(const xd_job *j, const float *clean, const xd_progress *p);
/* Adds latents [t,C,h,w], and the pixels [frames,H,W,K] into which they were decoded, to the
 * least-squares fit of preview colours. Does nothing if the factors of the autoencoder are known,
 * or if the engine serves no further requests. */
void xd_preview_learn(const xd_job *j, const float *lat, const float *rgb);

#endif
