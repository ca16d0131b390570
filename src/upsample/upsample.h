/* upsample.h - declares networks that enlarge the latents of a video in their rows and columns, in
 * their frames, or in both. */
#ifndef XD_UPSAMPLE_UPSAMPLE_H
#define XD_UPSAMPLE_UPSAMPLE_H

#include "exec/net.h"

typedef struct xd_upsampler_info {
    int64_t channels; /* number of channels of the latents */
    /* Factors by which the numbers of frames, rows and columns grow. Of the frames into which the
     * first latent frame is enlarged, only the last one is kept. */
    int     by[3];
} xd_upsampler_info;

typedef struct xd_upsampler {
    xd_net_def net;
    void       (*info)(const void *cfg, xd_upsampler_info *out);
    /* Enlarges the latents `in` [T,h,w,C] F32, which are not normalized, to `out`, F32, in the
     * caller's memory. `run` allocates scratch memory from the arena x->tmp and rewinds the
     * arena. */
    void       (*run)(xd_exec *x, const xd_net *n, xd_tensor in, xd_tensor out);
} xd_upsampler;

/* all upsampling networks; the array ends with NULL */
extern const xd_upsampler *const xd_upsamplers[];

/* Returns the number of frames to which T latent frames are enlarged. */
static inline int64_t xd_upsampler_frames(const xd_upsampler_info *i, int64_t T)
{
    return i->by[0] * T - (i->by[0] - 1);
}

/* Changes the mean and the standard deviation of each channel of the latents [T,C,n] towards those
 * of `like` [S,C,m]. factor: 1 makes them equal, 0 changes nothing (adaptive instance
 * normalization, Huang and Belongie 2017, arXiv:1703.06868; diffusers' adain_filter_latent). */
void xd_upsample_adain(float *latents, const int64_t d[3], const float *like, const int64_t s[3],
                       double factor);
/* Reduces large values among n latents, as diffusers' tone_map_latents does. ratio: strength from 0
 * (no change) to 1. */
void xd_upsample_tone_map(float *latents, int64_t n, double ratio);

#endif
