/* vae_codec.h - decodes latents to pixels and encodes pixels to moments of latents with the VAE. */
#ifndef XD_PIPELINE_VAE_CODEC_H
#define XD_PIPELINE_VAE_CODEC_H

#include "pipeline/job.h"

/* Decodes latents [t,C,h,w] in host memory to rgb [frames,H,W,3] F32 in host memory, in about
 * [-1,1]. With a parallel VAE all ranks of the replica call xd_vae_decode with equal latents, and
 * rank 0 of the replica gets the image. */
void      xd_vae_decode(xd_exec *x, const xd_job *j, const xd_net *net, const float *lat,
                        float *rgb);
/* Returns 1 if this rank takes part in the VAE work of its replica. */
int       xd_vae_on_this_rank(const xd_job *j);
xd_status xd_vae_decode_count(xd_job *j, size_t *bytes, xd_err *e);
/* Encodes a video, or an image of one frame, of any size: rgb [frames,H,W,3] F32 on the host, in
 * [-1,1], to moments [t,h,w,2C] F32 on the host: mean and log variance of the VAE's unscaled
 * latents. With a parallel VAE all ranks of the replica call xd_vae_encode_frames with equal
 * images, and all get the moments. */
typedef struct xd_vae_clip { int64_t frames; xd_grid pixels; } xd_vae_clip;
void      xd_vae_encode_frames(xd_exec *x, const xd_job *j, const xd_net *net,
                               const xd_vae_clip *clip, const float *rgb, float *moments);
xd_status xd_vae_encode_frames_count(xd_job *j, const xd_vae_clip *clip, size_t *bytes, xd_err *e);
xd_status xd_vae_encode_count(xd_job *j, size_t *bytes, xd_err *e);
/* Decodes latents on the ranks that take part, in the arena `a` from its start, and resizes the
 * image to the requested size on rank 0 of the replica. There *rgb has memory for the generated
 * size; elsewhere it is NULL. Yields (yield.h) and makes previews (preview.h). */
xd_status xd_vae_decode_image(xd_job *j, xd_arena *a, const float *lat, float **rgb, xd_err *e);

/* Resizes (bilinear) an image [from.rows,from.cols,3] so that it covers [to.rows,to.cols,3], and
 * crops equally on both sides. */
void      xd_vae_fit(const float *rgb, xd_grid from, float *out, xd_grid to);

#endif
