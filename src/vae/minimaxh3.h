/* minimaxh3.h - used only in src/vae: declares the config and the weights of the decoder of
 * AutoencoderKLMiniMaxH3 */
#ifndef XD_VAE_MINIMAXH3_H
#define XD_VAE_MINIMAXH3_H

#include "exec/net.h"
#include "vae/vae.h"

enum { XD_VIT_LAYERS = 128, XD_VIT_AXES = 3 };

typedef struct xd_vit_cfg {
    int64_t  channels, in_channels, out_channels, heads, head_dim, registers, ff_mult, clip, drop;
    int      nlayers;
    float    eps;
    double   theta, ratio;
    xd_ints  side, frames; /* spatial_downsample_factors and temporal_downsample_factors */
    xd_ints  widths;       /* block_out_channels of the encoder */
    int64_t  layers;       /* layers_per_block of the encoder */
    xd_reals mean, std;
    int      cell[2]; /* number of frames, and of pixel rows and columns, per latent cell */
    int64_t  freqs;   /* number of RoPE frequencies of each axis */
    /* chunk: number of latent frames of a chunk. overlap: number of latent frames of the next chunk
     * that the decoder also reads. before: number of frames before the clip's first frame that the
     * first latent frame represents. */
    int64_t  chunk, overlap, before;
} xd_vit_cfg;

typedef struct xd_vit_block {
    xd_lin    qkv, out, up, down;
    xd_tensor norm1, norm2, scale1, scale2; /* [D] */
} xd_vit_block;

typedef struct xd_vit_glob {
    xd_lin       latents, in, out;
    xd_tensor    registers; /* [registers,D] */
    xd_tensor    gain, bias;
    xd_vit_block block[XD_VIT_LAYERS];
} xd_vit_glob;

/* Returns the number of frames that two consecutive chunks have in common. */
static inline int64_t xd_vit_shared_frames(const xd_vit_cfg *c)
{
    return c->overlap * c->cell[0] - c->before;
}

/* Implements the function decode of xd_vae. */
void xd_vit_decode(xd_exec *x, const xd_net *n, xd_tensor lat, xd_tensor rgb);

#endif
