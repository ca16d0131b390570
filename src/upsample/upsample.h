/* upsample.h - declares networks that enlarge the latents of a video: their rows and columns, their
 * frames, or both. */
#ifndef XD_UPSAMPLE_UPSAMPLE_H
#define XD_UPSAMPLE_UPSAMPLE_H

#include "exec/net.h"

typedef struct xd_upsampler_info {
    int64_t channels; /* number of channels of the latents */
    /* Factors by which the numbers of frames, rows and columns grow. From the frames that the first
     * latent frame becomes, only the last one is kept. */
    int     by[3];
} xd_upsampler_info;

typedef struct xd_upsampler {
    xd_net_def net;
    void       (*info)(const void *cfg, xd_upsampler_info *out);
    /* Enlarges latents in [T,h,w,C] F32 that are not normalized to out [T',h',w',C] F32, in the
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

/* Changes the mean and the deviation of each channel of latents [T,C,n] towards those of `like`
 * [S,C,m]. factor: 1 for completely, 0 for not at all (adaptive instance normalization, Huang and
 * Belongie 2017, arXiv:1703.06868; diffusers' adain_filter_latent). */
void xd_upsample_adain(float *latents, const int64_t d[3], const float *like, const int64_t s[3],
                       double factor);
/* Compresses large values of n latents. ratio: 0 for no compression, up to 1 (diffusers'
 * tone_map_latents). */
void xd_upsample_tone_map(float *latents, int64_t n, double ratio);

#endif
