/* work.h - defines xd_work, a table of the functions that a rank calls between the messages of a
 * request.
 *
 * An engine computes with the functions of xd_work_computes. A prediction of time runs the
 * request's code (loop.h) with other functions, which compute nothing and add up times that were
 * predicted before. Engines and predictions exchange the same messages between the functions of an
 * xd_work. */
#ifndef XD_PIPELINE_WORK_H
#define XD_PIPELINE_WORK_H

#include "pipeline/memory_plan.h"
#include "pipeline/vae_codec.h"

struct xd_loop;

typedef struct xd_work {
    /* Tokenizes the texts of the request, and splits the transformer's blocks into pipeline
     * stages. */
    xd_status (*prepare)(xd_job *j, xd_prompts *w, xd_err *e);
    /* Counts the bytes that this rank needs for text encoding, denoising and decoding. */
    xd_status (*count)(xd_job *j, const xd_prompts *w, xd_need *need, xd_err *e);
    /* Runs text encoder number k, as xd_prompts_compute does. */
    xd_status (*encode_text)(xd_prompts *w, xd_job *j, int k, xd_arena *a, xd_err *e);
    /* Encodes a clip of frames with the VAE, as xd_vae_compute_clip does. */
    xd_status (*encode_clip)(xd_job *j, xd_arena *a, const xd_vae_clip *clip, float **pixels[2],
                             float *moments, xd_err *e);
    /* Denoises image number `nth` of the request, from step `step` to the last step that the same
     * transformer computes. lat: memory for the latents [t,C,h,w], which the image's last steps
     * write on every rank of the replica; NULL if out of memory. The call is collective over the
     * ranks of the replica. */
    xd_status (*denoise)(struct xd_loop *l, int nth, int step, float *lat, xd_err *e);
    /* Enlarges the latents of the first denoising pass, as xd_upsampling_compute does. */
    xd_status (*upsample)(xd_job *j, xd_arena *a, const float *small, float *out, xd_err *e);
    /* Decodes latents to pixels, as xd_vae_decode_image does. */
    xd_status (*decode)(xd_job *j, xd_arena *a, const float *lat, float **rgb, xd_err *e);
    /* Adds the latents v[0] and the pixels v[1] of an image to the result on rank 0, which takes
     * ownership of both. */
    xd_status (*deliver)(struct xd_loop *l, int image, float *v[2], xd_err *e);
} xd_work;

extern const xd_work xd_work_computes;

#endif
