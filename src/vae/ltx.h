/* ltx.h - used only in src/vae: declares the config and the weights of AutoencoderKLLTXVideo and
 * AutoencoderKLLTX2Video. */
#ifndef XD_VAE_LTX_H
#define XD_VAE_LTX_H

#include "exec/net.h"
#include "vae/vae.h"

enum {
    XD_LTX_LEVELS = 8, /* maximum number of levels */
    XD_LTX_RES = 32,   /* maximum number of residual blocks per level */
};

/* Describes how a level of the encoder reduces the resolution: by a convolution with stride 2, or
 * by moving frames, rows or columns of a convolution's result to channels. */
typedef struct xd_ltx_down {
    int strided; /* 1: a convolution with stride 2 */
    int by[3];   /* factors by which frames, rows and columns shrink */
} xd_ltx_down;

typedef struct xd_ltx_cfg {
    int64_t     in_channels, out_channels, latent_channels, patch, patch_t, wide, time;
    xd_ints     widths, dec_widths; /* number of channels of each level, finest level first */
    xd_ints     layers, dec_layers, scales, dec_scales, noise, residual, factor;
    xd_names    blocks, downs, ups;
    char        enc_pad[XD_FIELD_TEXT], dec_pad[XD_FIELD_TEXT];
    int         second; /* 1: AutoencoderKLLTX2Video */
    int         timed, enc_causal, dec_causal;
    float       eps;
    double      scaling;
    int         levels[2]; /* number of levels of encoder and decoder */
    int         moves;     /* 1: the encoder's levels are those of version 0.9.5 of LTX-Video */
    xd_ltx_down down[XD_LTX_LEVELS]; /* change of resolution in each level of the encoder */
    /* Factors by which each level of the decoder multiplies frames, rows and columns, in execution
     * order. */
    int         up[XD_LTX_LEVELS][3];
    int         mirrors; /* 1: convolutions of the decoder read mirrored pixels at edges */
    int         cell[2]; /* number of frames, and of rows and columns, per latent cell */
} xd_ltx_cfg;

typedef struct xd_ltx_res {
    xd_cnv    conv[2];
    xd_tensor gain, bias; /* norm before the shortcut, or absent */
    xd_lin    shortcut;
    xd_tensor table; /* [4,C]: shifts and scales of both norms, or absent */
    /* [C]: factors of the noise that is added after each convolution, or absent */
    xd_tensor noise[2];
} xd_ltx_res;

typedef struct xd_ltx_level { /* a level of the network, or its middle: residual blocks at one
                               * resolution */
    /* `side`: residual block that changes the number of channels */
    xd_ltx_res res[XD_LTX_RES], side;
    xd_cnv     resample;
    xd_lin     time[2]; /* layers of the timestep embedding */
} xd_ltx_level;

typedef struct xd_ltx_half { /* weights of the encoder, or of the decoder */
    xd_cnv       in, out;
    /* levels of the encoder or decoder in execution order */
    xd_ltx_level level[XD_LTX_LEVELS], mid;
    xd_lin       time[2];
    /* table: modulation table [2,C]; scale: factor by which the timestep is multiplied */
    xd_tensor    table, scale;
} xd_ltx_half;

typedef struct xd_ltx_glob {
    xd_ltx_half enc, dec;
    xd_tensor   mean, std; /* mean and standard deviation of the latents, [latent_channels] */
} xd_ltx_glob;

/* Returns the number of channels of a decoder level after its upsampling; level -1 is the middle of
 * the network. */
static inline int64_t xd_ltx_dec_width(const xd_ltx_cfg *c, int l)
{
    int n = c->dec_widths.n;
    return l < 0 ? c->dec_widths.v[n - 1] : c->dec_widths.v[n - 1 - l] / c->factor.v[n - 1 - l];
}

/* Returns the factor by which upsampling in level l of the decoder multiplies the number of
 * positions (frames x rows x columns). */
static inline int64_t xd_ltx_up_cells(const xd_ltx_cfg *c, int l)
{
    return c->up[l][0] * c->up[l][1] * c->up[l][2];
}

/* Returns the number of channels before level l of the encoder. */
static inline int64_t xd_ltx_enc_width(const xd_ltx_cfg *c, int l)
{
    return c->widths.v[l < c->widths.n ? l : c->widths.n - 1];
}

void      xd_ltx_info(const void *cfg, xd_vae_info *out);
/* Implementations of the functions of xd_vae. */
void      xd_ltx_decode(xd_exec *x, const xd_net *n, xd_tensor lat, xd_tensor rgb);
void      xd_ltx_encode(xd_exec *x, const xd_net *n, xd_tensor rgb, xd_tensor moments);
xd_tensor xd_ltx_normalize(xd_exec *x, const xd_net *n, xd_tensor z);
xd_tensor xd_ltx_denormalize(xd_exec *x, const xd_net *n, xd_tensor z);

#endif
