/* hunyuanvideo.h - used only in src/vae: declares the config and the weights of
 * AutoencoderKLHunyuanVideo and of AutoencoderKLHunyuanVideo15. */
#ifndef XD_VAE_HUNYUANVIDEO_H
#define XD_VAE_HUNYUANVIDEO_H

#include "exec/net.h"

enum {
    /* maximum number of levels (resolutions); with this number, a latent cell has 128 x 128
     * pixels */
    XD_HYV_LEVELS = 8,
    XD_HYV_RES = 16, /* maximum number of residual blocks per level */
    XD_HYV_MID = 2,  /* number of residual blocks in the middle, at the lowest resolution */
    XD_HYV_RATIO = 4 /* number of video frames per latent frame */
};

typedef struct xd_hyv_cfg {
    int64_t  in_channels, out_channels, latent_channels, groups, cell, ratio;
    int      layers, attention;
    double   scaling;
    char     act[XD_FIELD_TEXT];
    xd_names down, up;
    xd_ints  widths; /* number of channels of each level (block_out_channels), finest level first */
    int      halvings; /* log2 of the config key spatial_compression_ratio */
} xd_hyv_cfg;

typedef struct xd_hyv_norm { xd_tensor gain, bias; } xd_hyv_norm; /* a group norm */

typedef struct xd_hyv_res {
    xd_hyv_norm norm1, norm2;
    xd_cnv      conv1, conv2;
    xd_lin      shortcut;
} xd_hyv_res;

typedef struct xd_hyv_level { /* a level: residual blocks at one resolution, then resampling */
    xd_hyv_res res[XD_HYV_RES];
    xd_cnv     resample;
} xd_hyv_level;

typedef struct xd_hyv_half { /* weights of the encoder, or of the decoder */
    xd_cnv       in, out;
    xd_hyv_level level[XD_HYV_LEVELS]; /* levels of the encoder or decoder in execution order */
    xd_hyv_res   mid[XD_HYV_MID];
    xd_hyv_norm  attn_norm, norm;
    xd_lin       q, kv, proj;
} xd_hyv_half;

typedef struct xd_hyv_glob {
    xd_hyv_half enc, dec;
    xd_lin      quant, post_quant;
} xd_hyv_glob;

static inline int xd_hyv_levels(const xd_hyv_cfg *c)
{
    return c->widths.n;
}

/* Returns the number of residual blocks in each level of the encoder (`dec` 0) or the decoder
 * (`dec` 1). */
static inline int xd_hyv_residuals(const xd_hyv_cfg *c, int dec)
{
    return c->layers + dec;
}

/* Return 1 if the number of rows and columns (xd_hyv_rows) or of frames (xd_hyv_time) changes at
 * the end of level l, counted in execution order. The result is valid for the encoder and for the
 * decoder. */
static inline int xd_hyv_rows(const xd_hyv_cfg *c, int l)
{
    return l < c->halvings;
}

static inline int xd_hyv_time(const xd_hyv_cfg *c, int l)
{
    return l < c->widths.n - 1 && l >= c->widths.n - 3;
}

/* Implementations of the functions decode and encode of xd_vae. */
void xd_hyv_decode(xd_exec *x, const xd_net *n, xd_tensor lat, xd_tensor rgb);
void xd_hyv_encode(xd_exec *x, const xd_net *n, xd_tensor rgb, xd_tensor moments);

/* ---- HunyuanVideo-1.5 ---------------------------------------------------------------------- */

enum {
    XD_HY15_LEVELS = 8, /* maximum number of levels (resolutions) */
    XD_HY15_RES = 16,   /* maximum number of residual blocks per level */
    XD_HY15_MID = 2     /* number of residual blocks in the middle, at the lowest resolution */
};

typedef struct xd_hy15_cfg {
    int64_t in_channels, out_channels, latent_channels, cell, ratio;
    int     layers, match_down, match_up;
    double  scaling;
    xd_ints widths; /* number of channels of each level (block_out_channels), finest level first */
    int     halvings, times; /* log2 of the compression ratios of pixels and of frames */
} xd_hy15_cfg;

typedef struct xd_hy15_res {
    xd_tensor gain1, gain2; /* gains of the RMS norms before conv1 and conv2 */
    xd_cnv    conv1, conv2;
} xd_hy15_res;

typedef struct xd_hy15_level { /* a level: residual blocks at one resolution, then resampling */
    xd_hy15_res res[XD_HY15_RES];
    xd_cnv      resample;
} xd_hy15_level;

typedef struct xd_hy15_half { /* weights of the encoder, or of the decoder */
    xd_cnv        in, out;
    xd_hy15_level level[XD_HY15_LEVELS]; /* levels of the encoder or decoder in execution order */
    xd_hy15_res   mid[XD_HY15_MID];
    xd_tensor     attn_gain, gain;
    xd_lin        q, k, v, proj;
} xd_hy15_half;

typedef struct xd_hy15_glob { xd_hy15_half enc, dec; } xd_hy15_glob;

/* Returns the number of residual blocks in each level of the encoder (`dec` 0) or the decoder
 * (`dec` 1). */
static inline int xd_hy15_residuals(const xd_hy15_cfg *c, int dec)
{
    return c->layers + dec;
}

/* Return 1 if the number of rows and columns (xd_hy15_rows), or also of frames (xd_hy15_time),
 * changes at the end of level l, counted in execution order. */
static inline int xd_hy15_rows(const xd_hy15_cfg *c, int l)
{
    return l < c->halvings;
}

static inline int xd_hy15_time(const xd_hy15_cfg *c, int dec, int l)
{
    return dec ? l < c->times : xd_hy15_rows(c, l) && l >= c->halvings - c->times;
}

/* Implementations of the functions decode and encode of xd_vae. */
void xd_hy15_decode(xd_exec *x, const xd_net *n, xd_tensor lat, xd_tensor rgb);
void xd_hy15_encode(xd_exec *x, const xd_net *n, xd_tensor rgb, xd_tensor moments);

#endif
