/* denoise_inside.h - declares the functions that the files of the denoising loop share: denoise.c,
 * denoise_latents.c, denoise_guide.c, step_cache.c. */
#ifndef XD_PIPELINE_DENOISE_INSIDE_H
#define XD_PIPELINE_DENOISE_INSIDE_H

#include "pipeline/denoise.h"

static inline int xd_denoise_is_last(const xd_denoise *f)
{
    return f->topo->at[XD_PIPE] == f->topo->deg.n[XD_PIPE] - 1;
}

static inline int xd_denoise_is_first(const xd_denoise *f)
{
    return f->topo->at[XD_PIPE] == 0;
}

/* Returns 1 if this rank computes guidance pass number `pass` (evaluation with the prompt or the
 * negative prompt). */
static inline int xd_denoise_is_mine(const xd_denoise *f, int pass)
{
    return pass % f->topo->deg.n[XD_CFG] == f->topo->at[XD_CFG];
}

/* Returns how many of a transformer's first steps are exact: they compute every token without
 * values of earlier steps. */
int       xd_denoise_exact(const xd_denoise *f);
/* Returns the range of this rank's tokens that belong to one stream (text, reference or image) of
 * patch `unit`, or of all patches if `unit` is XD_ALL. */
xd_span   xd_denoise_rows(const xd_denoise *f, xd_stream_id stream, int unit);
/* Returns a view of the tokens of patch `unit` in `t`, a tensor with all image tokens of this rank.
 * If `unit` is XD_ALL, the view contains all tokens of `t`. */
xd_tensor xd_denoise_part(const xd_denoise *f, xd_tensor t, int unit);
/* Returns a view of the audio tokens of patch `unit`, or of all patches (XD_ALL), in `t`, a tensor
 * whose audio tokens follow the image tokens. */
xd_tensor xd_denoise_audio(const xd_denoise *f, xd_tensor t, int unit);
/* Maximum number of token ranges that xd_denoise_free_rows returns. */
enum { XD_FREE_RUNS = 64 };
/* Writes the ranges of a patch's tokens (xd_denoise_part) that the sampler changes in a step;
 * tokens that an input image fixes are left out. Returns the number of token ranges, at least 1. */
int  xd_denoise_free_rows(xd_denoise *f, int step, int unit, xd_span out[XD_FREE_RUNS]);
/* Sets f->frame_t to the timestep of each frame in step `step`. */
void xd_denoise_set_times(xd_denoise *f, int step);
/* Adds this step's noise to the tokens of given frames in f->lat, for patch `unit`. A second call
 * of xd_denoise_add_noise for one step and patch has no effect. */
void xd_denoise_add_noise(xd_denoise *f, int step, int unit);
/* Replaces the predictions of given frames with strengths s between 0 and 1 by those of (1 - s)
 * times the predicted and s times the given clean latents. */
void xd_denoise_blend(xd_denoise *f, int step, int unit);
/* Converts the latents `lat` [t,C,h,w] to tokens, and copies this rank's tokens to the tensor `to`
 * on the device; overwrites f->rows and f->mine. */
void xd_denoise_set_rows(xd_denoise *f, xd_tensor to, float *lat);
/* Copies numbers [t,h,w,C] in the order of tokens of one latent cell to latents [t,C,h,w] with the
 * extents lat. The first frame is copied to frame `first`, and the last `first` frames to the first
 * ones. */
void xd_denoise_from_tokens(const float *tokens, const int64_t lat[4], int64_t first, float *out);
/* Gathers the tokens `from`, which the ranks of the last pipeline stage hold, on all ranks of the
 * replica, and writes them as latents to `out`. */
void xd_denoise_gather(xd_denoise *f, xd_tensor from, float *out);
/* Gathers the state of denoising after a step (xd_job_state_tensors) on all ranks of the replica.
 * Tensors of the state follow each other in `state` at distances of `stride` floats. If `stride` is
 * 0, the caller does not need the state, and each tensor overwrites the one before. */
void xd_denoise_gather_state(xd_denoise *f, float *state, int64_t stride);
/* Sets the latents, the sampler's history and the random generator to their values after `finished`
 * steps. The caller must have opened `f` for step `finished` and drawn the initial noise. */
void xd_denoise_set_state(xd_denoise *f, int finished, float *state);
/* Returns, on all ranks of the replica, the value `mine` of the replica's first rank. The ranks
 * would otherwise decide differently, because their clocks and callbacks differ. */
int  xd_denoise_decide(xd_denoise *f, int mine);
/* Draws the initial noise of a video with given frames, and mixes it with the latents of the given
 * frames. If `given` is not NULL, it is the noise, and no noise is drawn. */
void xd_denoise_start_conditions(xd_denoise *f, const float *given);
/* Returns f->nsums, the number of sums for each prediction that guidance_rescale or
 * cfg_normalization needs. */
int64_t       xd_denoise_nsums(const struct xd_job *j);
/* Combines the predictions `p` of a step's guidance passes to the guided prediction, and writes it
 * to p[0]. The tensors `p` are views of f->pred. */
void          xd_denoise_guide(xd_denoise *f, int step, int unit, const xd_tensor p[XD_MAXPASS]);
/* Does for the predictions of a video and of its audio what xd_denoise_guide does for an image:
 * combines the guidance passes. */
void          xd_denoise_guide_streams(xd_denoise *f, int step, int unit);
/* Adds up the sums of elements and squares (f->sums) of all ranks and patches, which gives the sums
 * over the complete image. Returns the sums of the prompt's prediction, which are followed by the
 * sums of the guided prediction. Each rank that holds tokens must have computed the sums of its own
 * tokens before xd_denoise_sum_members is called. */
const double *xd_denoise_sum_members(xd_denoise *f, int unit);
double       *xd_denoise_sums(const xd_denoise *f, int patch, int guided);
/* Runs the transformer's blocks from number `from` to number `to` - 1. */
void          xd_denoise_blocks(xd_denoise *f, int from, int to, xd_state *s);
/* Waits until a message is sent or received. If the communication fails, xd_denoise_wait marks the
 * context f->x as failed. */
void          xd_denoise_wait(xd_denoise *f, xd_comm *c, xd_req *r);
/* Allocates n floats of host memory with malloc. If memory is short, returns NULL and marks the
 * context f->x as failed. */
float        *xd_denoise_buffer(xd_denoise *f, int64_t n, const char *what);
/* Returns the number of features per token in f->extra, the transformer's input channels other than
 * the noisy latents. */
int64_t       xd_denoise_extra(const xd_denoise *f);
/* On the first and the last pipeline stage, draws the random noise of this step: noise for given
 * frames, and noise that the sampler adds. */
void          xd_denoise_draw(xd_denoise *f, int step);

#endif
