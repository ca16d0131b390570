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

/* Returns 1 if this rank computes the guidance pass. */
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
/* Returns the value of f->nsums for a request. */
int64_t   xd_denoise_nsums(const struct xd_job *j);
/* Combines the predictions p of a step's passes, which are views of f->pred, and writes the guided
 * prediction to p[0]. */
void      xd_denoise_guide(xd_denoise *f, int step, int unit, const xd_tensor p[XD_MAXPASS]);
/* Runs blocks [from, to) of the transformer. */
void      xd_denoise_blocks(xd_denoise *f, int from, int to, xd_state *s);
/* Waits until a message is sent or received. If the communication fails, marks the context f->x as
 * failed. */
void      xd_denoise_wait(xd_denoise *f, xd_comm *c, xd_req *r);
/* Allocates n floats of host memory with malloc. If memory is short, returns NULL and marks the
 * context f->x as failed. */
float    *xd_denoise_buffer(xd_denoise *f, int64_t n, const char *what);
/* Returns the number of features per token of f->extra, the transformer's further input
 * channels. */
int64_t   xd_denoise_extra(const xd_denoise *f);
/* On the last pipeline stage, draws the noise that the sampler adds in this step. */
void      xd_denoise_draw(xd_denoise *f, int step);

#endif
