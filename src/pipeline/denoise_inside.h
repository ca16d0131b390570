/* denoise_inside.h - shared by the files of the denoising loop: denoise.c, denoise_latents.c,
 * step_cache.c */
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

/* Returns 1 if this rank computes the pass. */
static inline int xd_denoise_is_mine(const xd_denoise *f, int pass)
{
    return pass % f->topo->deg.n[XD_CFG] == f->topo->at[XD_CFG];
}

/* Returns the number of exact steps at the start of a transformer. */
int     xd_denoise_exact(const xd_denoise *f);
/* Returns this rank's rows of a stream in a patch or XD_ALL, as a range of its rows of all
 * patches. */
xd_span xd_denoise_rows(const xd_denoise *f, xd_stream_id stream, int unit);
/* Returns this rank's rows of a patch or XD_ALL in `t`, a tensor of all its image rows. */
xd_tensor xd_denoise_part(const xd_denoise *f, xd_tensor t, int unit);
/* Applies guidance to the predictions p of a step's passes, parts of f->pred; result in p[0]. */
void   xd_denoise_guide(xd_denoise *f, int step, int unit, const xd_tensor p[XD_MAXPASS]);
/* Runs blocks [from, to). */
void   xd_denoise_blocks(xd_denoise *f, int from, int to, xd_state *s);
/* Waits for a message; its failure is sticky on f->x. */
void   xd_denoise_wait(xd_denoise *f, xd_comm *c, xd_req *r);
/* Allocates n floats of host memory with malloc; returns NULL and fails f->x if there is none. */
float *xd_denoise_buffer(xd_denoise *f, int64_t n, const char *what);
/* Returns the features per token of f->extra. */
int64_t xd_denoise_extra(const xd_denoise *f);
/* Last stage: the noise that the sampler draws in this step. */
void   xd_denoise_draw(xd_denoise *f, int step);

#endif
