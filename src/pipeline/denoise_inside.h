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

/* Returns 1 if this rank computes the guidance pass number `pass`. */
static inline int xd_denoise_is_mine(const xd_denoise *f, int pass)
{
    return pass % f->topo->deg.n[XD_CFG] == f->topo->at[XD_CFG];
}

/* Returns the number of exact steps, which use no stale data, with which each transformer
 * begins. */
int       xd_denoise_exact(const xd_denoise *f);
/* Returns the range of this rank's rows that belong to one stream (text, reference or image) of
 * patch `unit`, or of all patches if `unit` is XD_ALL. */
xd_span   xd_denoise_rows(const xd_denoise *f, xd_stream_id stream, int unit);
/* Returns a view of the rows of patch `unit` in `t`, a tensor with all image rows of this rank. If
 * `unit` is XD_ALL, the view has all rows. */
xd_tensor xd_denoise_part(const xd_denoise *f, xd_tensor t, int unit);
/* Returns a view of the audio rows of patch `unit`, or of all patches (XD_ALL), in `t`, a tensor
 * whose audio rows follow the image rows. */
xd_tensor xd_denoise_audio(const xd_denoise *f, xd_tensor t, int unit);
/* Maximum number of ranges that xd_denoise_free_rows returns. */
enum { XD_FREE_RUNS = 64 };
/* Writes the ranges of rows of a patch's tensor (xd_denoise_part) that the sampler changes in a
 * step. Returns the number of ranges, at least 1. Tokens that an input image fixes are left out. */
int           xd_denoise_free_rows(xd_denoise *f, int step, int unit, xd_span out[XD_FREE_RUNS]);
/* Sets f->frame_t to the timesteps of the frames in a step. */
void          xd_denoise_set_times(xd_denoise *f, int step);
/* Adds this step's noise to the rows of `unit` in f->lat that belong to given frames. A second call
 * of xd_denoise_add_noise has no effect. */
void          xd_denoise_add_noise(xd_denoise *f, int step, int unit);
/* Converts the latents `lat` [t,C,h,w] to tokens, and copies this rank's tokens to the tensor `to`
 * on the device; overwrites f->rows and f->mine. */
void          xd_denoise_set_rows(xd_denoise *f, xd_tensor to, float *lat);
/* Gathers the rows `from` of the last pipeline stage's members as latents on all ranks of the
 * replica. */
void          xd_denoise_gather(xd_denoise *f, xd_tensor from, float *out);
/* Gathers the state after a step (xd_job_state_tensors) on all ranks of the replica. Each tensor of
 * the state is written `stride` floats after the one before. stride 0: the caller does not need the
 * state, and all its tensors are written to the same place. */
void          xd_denoise_gather_state(xd_denoise *f, float *state, int64_t stride);
/* Sets the state and the generator to those after `finished` steps. `f` has been opened for step
 * `finished` and has drawn the initial noise. */
void          xd_denoise_set_state(xd_denoise *f, int finished, float *state);
/* Returns the value that the replica's first rank passes, on all ranks of the replica, because
 * clocks and callbacks differ. */
int           xd_denoise_decide(xd_denoise *f, int mine);
/* Draws the initial noise of a video with given frames, and mixes it with the latents of the given
 * frames. given: noise to use in place of drawn noise, or NULL. */
void          xd_denoise_start_conditions(xd_denoise *f, const float *given);
/* Returns the number of sums, f->nsums, for a request. */
int64_t       xd_denoise_nsums(const struct xd_job *j);
/* Combines the predictions p of a step's passes, which are views of f->pred, and writes the guided
 * prediction to p[0]. */
void          xd_denoise_guide(xd_denoise *f, int step, int unit, const xd_tensor p[XD_MAXPASS]);
/* Combines the predictions of a video and of its audio like xd_denoise_guide. */
void          xd_denoise_guide_streams(xd_denoise *f, int step, int unit);
/* Adds up the sums over the complete image. Returns the sums of the prompt's prediction, which are
 * followed by the sums of the guided prediction. Each rank that has tokens has summed its own rows
 * before. */
const double *xd_denoise_sum_members(xd_denoise *f, int unit);
double       *xd_denoise_sums(const xd_denoise *f, int patch, int guided);
/* Runs blocks [from, to) of the transformer. */
void          xd_denoise_blocks(xd_denoise *f, int from, int to, xd_state *s);
/* Waits until a message is sent or received. If the communication fails, xd_denoise_wait marks the
 * context f->x as failed. */
void          xd_denoise_wait(xd_denoise *f, xd_comm *c, xd_req *r);
/* Allocates n floats of host memory with malloc. If memory is short, returns NULL and marks the
 * context f->x as failed. */
float        *xd_denoise_buffer(xd_denoise *f, int64_t n, const char *what);
/* Returns the number of features per token of f->extra, the transformer's further input
 * channels. */
int64_t       xd_denoise_extra(const xd_denoise *f);
/* On the first and the last pipeline stage, draws the noise of this step: the noise of given
 * frames, and the noise that the sampler adds. */
void          xd_denoise_draw(xd_denoise *f, int step);

#endif
