/* cogvideox.h - used only in src/vae: declares the config and the weights of
 * AutoencoderKLCogVideoX. */
#ifndef XD_VAE_COGVIDEOX_H
#define XD_VAE_COGVIDEOX_H

#include "exec/net.h"

enum {
    /* maximum number of levels (resolutions); with this number, a latent cell has 128 x 128
     * pixels */
    XD_COG_LEVELS = 8,
    XD_COG_RES = 16, /* maximum number of residual blocks per level */
    XD_COG_MID = 2,  /* number of residual blocks in the middle, at the lowest resolution */
};

typedef struct xd_cog_cfg {
    int64_t  in_channels, out_channels, latent_channels, groups, height, width;
    int      layers, quant, post_quant, invert;
    double   scaling, shift, mean, std, eps, ratio;
    char     act[XD_FIELD_TEXT];
    xd_names down, up;
    xd_ints  widths; /* number of channels of each level (block_out_channels), finest level first */
    int      halvings; /* log2 of the config key temporal_compression_ratio */
} xd_cog_cfg;

/* Weights of a group norm. In the decoder, the norm is a spatial norm, which reads the latents z:
 * the normalized map is multiplied by the result of a convolution y of z, and then the result of a
 * convolution b of z is added. */
typedef struct xd_cog_norm {
    xd_tensor gain, bias;
    xd_lin    y, b;
    float     eps;
} xd_cog_norm;

typedef struct xd_cog_res {
    xd_cog_norm norm1, norm2;
    xd_cnv      conv1, conv2;
    xd_lin      shortcut;
} xd_cog_res;

typedef struct xd_cog_level { /* a level: residual blocks at one resolution, then resampling */
    xd_cog_res res[XD_COG_RES];
    xd_cnv     down;  /* encoder: downsampling convolution */
    xd_cnv     up[4]; /* upsampling convolution of the decoder (xd_band_enlarge) */
} xd_cog_level;

typedef struct xd_cog_half { /* weights of the encoder, or of the decoder */
    xd_cnv       in, out;
    xd_cog_level level[XD_COG_LEVELS]; /* levels of the encoder or decoder in execution order */
    xd_cog_res   mid[XD_COG_MID];
    xd_cog_norm  norm;
} xd_cog_half;

typedef struct xd_cog_glob {
    xd_cog_half enc, dec;
    xd_lin      quant, post_quant;
} xd_cog_glob;

static inline int xd_cog_levels(const xd_cog_cfg *c)
{
    return c->widths.n;
}

/* Returns the number of residual blocks in each level of the encoder (`dec` 0) or the decoder
 * (`dec` 1). */
static inline int xd_cog_residuals(const xd_cog_cfg *c, int dec)
{
    return c->layers + dec;
}

/* Implementations of the functions decode and encode of xd_vae. */
void xd_cog_decode(xd_exec *x, const xd_net *n, xd_tensor lat, xd_tensor rgb);
void xd_cog_encode(xd_exec *x, const xd_net *n, xd_tensor rgb, xd_tensor moments);

#endif
