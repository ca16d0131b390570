/* vae_codec.h - decodes latents to pixels and encodes pixels to moments of latents with the VAE. */
#ifndef XD_PIPELINE_VAE_CODEC_H
#define XD_PIPELINE_VAE_CODEC_H

#include "pipeline/job.h"

/* Decodes latents [t,C,h,w] in host memory to rgb [frames,H,W,K] F32 in host memory, in about
 * [-1,1], with the K channels of xd_job.channels. With a parallel VAE all ranks of the replica call
 * xd_vae_decode with equal latents, and rank 0 of the replica gets the image. */
void xd_vae_decode(xd_exec *x, const xd_job *j, const xd_net *net, const float *lat, float *rgb);
/* Returns 1 if this rank takes part in encoding and decoding with the VAE of its replica. */
int  xd_vae_on_this_rank(const xd_job *j);
xd_status xd_vae_decode_count(xd_job *j, size_t *bytes, xd_err *e);
/* Encodes a video of any size; an image is a video of one frame. The input is rgb [frames,H,W,3],
 * F32 in [-1,1] in host memory. The output is `moments` [t,h,w,2C], F32 in host memory: the mean
 * and the log variance of the VAE's unscaled latents. With a parallel VAE, all ranks of the replica
 * call xd_vae_encode_frames with equal images, and all ranks get the moments. */
typedef struct xd_vae_clip {
    int64_t frames;
    xd_grid pixels;
    int     whole; /* 1: pixels[0] of xd_vae_encode_clip contains all frames of the clip */
    /* 4: the pixels have an alpha channel, which the autoencoder must read. 0: the pixels are RGB;
     * if the autoencoder reads an alpha channel, the image is opaque. */
    int     channels;
    /* 1 + the number of a control image, from whose pixels a side network computes features
     * (xd_side). The features [h,w,C] of the side network replace the moments, and only rank 0
     * computes them. If `side` is 0, the VAE encodes the clip. */
    int     side;
} xd_vae_clip;
void xd_vae_encode_frames(xd_exec *x, const xd_job *j, const xd_net *net, const xd_vae_clip *clip,
                          const float *rgb, float *moments);
xd_status xd_vae_encode_frames_count(xd_job *j, const xd_vae_clip *clip, size_t *bytes, xd_err *e);
xd_status xd_vae_encode_count(xd_job *j, size_t *bytes, xd_err *e);
/* Returns 1 if the VAE encodes an image of a request with images. Returns 0 if only side networks
 * read the images, with their own layers. */
int       xd_vae_encodes(const xd_job *j);
/* Decodes latents on the ranks that take part in decoding, with the complete arena `a` as scratch
 * memory. After decoding, rank 0 of the replica resizes the image to the requested size. On rank 0,
 * *rgb is a buffer for an image of the generated size; on the other ranks, *rgb is NULL.
 * xd_vae_decode_image may call the request's callback on_turn (yield.h), and adds the image to the
 * fit of preview colours (preview.h). */
xd_status xd_vae_decode_image(xd_job *j, xd_arena *a, const float *lat, float **rgb, xd_err *e);
/* Encodes a clip to moments [t,h,w,2C], the mean and log variance of a Gaussian distribution of
 * latents. *moments is malloc'ed on every rank. Rank 0 passes either the pixels of all frames
 * (xd_vae_clip.whole), or those of the first and of the last frame (each may be NULL), between
 * which all frames are grey. xd_vae_encode_clip frees the pixels. The VAE must be loaded on the
 * ranks that decode images. All ranks must call xd_vae_encode_clip. */
xd_status xd_vae_encode_clip(xd_job *j, xd_arena *a, const xd_vae_clip *clip, float **pixels[2],
                             float **moments, xd_err *e);
/* Encodes a clip of this replica, of which the first rank of the replica passes all frames, like
 * xd_vae_encode_clip. `s` is this rank's status so far. The call is collective over the ranks of
 * the replica. */
xd_status xd_vae_encode_own_clip(xd_job *j, xd_arena *a, const xd_vae_clip *clip, float **pixels,
                                 float **moments, xd_status s, xd_err *e);
/* Computes the moments for xd_vae_encode_clip on a rank that holds the clip's pixels. The call is
 * collective over the ranks that encode together. */
xd_status xd_vae_compute_clip(xd_job *j, xd_arena *a, const xd_vae_clip *clip, float **pixels[2],
                              float *moments, xd_err *e);

#endif
