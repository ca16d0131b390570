/* causal.h - used only in src/vae: declares a video autoencoder with causal convolutions, which
 * read only the current and earlier frames. Several autoencoder classes of diffusers use this
 * network. */
#ifndef XD_VAE_CAUSAL_H
#define XD_VAE_CAUSAL_H

#include "exec/net.h"
#include "vae/vae.h"

enum {
    XD_CAUSAL_LEVELS = 8, /* maximum number of resolutions */
    XD_CAUSAL_RES = 8,    /* maximum number of residual blocks per level */
    XD_CAUSAL_MID = 2,    /* number of residual blocks in the middle, at the lowest resolution */
};

typedef struct xd_causal_cfg {
    int64_t  in_channels, out_channels, latent_channels;
    /* number of channels of level i, divided by mult[i]; the decoder uses dec_width unless it is
     * 0 */
    int64_t  width, dec_width;
    int      layers;
    /* For each level, its number of channels divided by `width` (dim_mult). The level with the
     * finest resolution is first. */
    xd_ints  mult;
    /* temperal_downsample: for each encoder level except the last, 1 if the level halves the number
     * of frames */
    xd_ints  halve;
    xd_reals attn_scales, mean, std;
    int      residual; /* 1: levels of the autoencoder have shortcuts (is_residual) */
    /* The network's largest feature map has one position for each square of patch x patch
     * pixels. */
    int64_t  patch;
    int      images; /* 1: frames are independent images; the network's class sets this field */
    /* 1: the files store the kernels of 3D convolutions without the axis of frames (only if
     * `images` is 1) */
    int      flat;
    /* Number of channels of a pixel: 3 for RGB, 4 for RGB and alpha. If `colours` is 4, decoding
     * returns only RGB, and images to encode are opaque. */
    int      colours;
} xd_causal_cfg;

typedef struct xd_causal_res {
    xd_tensor gain1, gain2;
    xd_cnv    conv1, conv2;
    xd_lin    shortcut;
} xd_causal_res;

typedef struct xd_causal_level { /* a level: residual blocks at one resolution, then resampling */
    xd_causal_res res[XD_CAUSAL_RES];
    xd_cnv        down;  /* encoder: downsampling convolution */
    xd_cnv        up[4]; /* upsampling convolution of the decoder (xd_band_enlarge) */
    xd_cnv        time;  /* convolution over frames that halves or doubles the number of frames */
} xd_causal_level;

typedef struct xd_causal_half { /* weights of the encoder, or of the decoder */
    xd_cnv          in, out;
    /* levels of the encoder or decoder in execution order */
    xd_causal_level level[XD_CAUSAL_LEVELS];
    xd_causal_res   mid[XD_CAUSAL_MID];
    /* Gains of the norms before the attention layer (attn_gain) and before the output convolution
     * (gain). */
    xd_tensor       attn_gain, gain;
    xd_lin          qkv, proj;
} xd_causal_half;

typedef struct xd_causal_glob {
    xd_causal_half enc, dec;
    xd_lin         quant, post_quant;
} xd_causal_glob;

/* Rows of a table of config keys (xd_field) that read config.json into a struct that begins with an
 * xd_causal_cfg. */
#define XD_CAUSAL_FIELDS                                                                          \
    { "base_dim", offsetof(xd_causal_cfg, width), 'l', 96, NULL },                                \
    { "z_dim", offsetof(xd_causal_cfg, latent_channels), 'l', 16, NULL },                         \
    { "dim_mult", offsetof(xd_causal_cfg, mult), 'L', 0, NULL },                                  \
    { "num_res_blocks", offsetof(xd_causal_cfg, layers), 'i', 2, NULL },                          \
    { "attn_scales", offsetof(xd_causal_cfg, attn_scales), 'D', 0, NULL },                        \
    { "temperal_downsample", offsetof(xd_causal_cfg, halve), 'B', 0, NULL },                      \
    { "latents_mean", offsetof(xd_causal_cfg, mean), 'D', 0, NULL },                              \
    { "latents_std", offsetof(xd_causal_cfg, std), 'D', 0, NULL },                                \
    { "dropout", 0, '-', 0, NULL },                                                               \
    { "_class_name", 0, '-', 0, NULL },                                                           \
    { "_diffusers_version", 0, '-', 0, NULL },                                                    \
    { "_name_or_path", 0, '-', 0, NULL }

static inline int xd_causal_levels(const xd_causal_cfg *c)
{
    return c->mult.n;
}

/* Returns the number of residual blocks in each level of the encoder (`dec` 0) or the decoder
 * (`dec` 1). */
static inline int xd_causal_residuals(const xd_causal_cfg *c, int dec)
{
    return c->layers + dec;
}

/* Returns 1 if level l, counted in execution order, changes the number of frames. */
static inline int xd_causal_time(const xd_causal_cfg *c, int dec, int l)
{
    int last = c->mult.n - 1;
    return l < last && c->halve.v[dec ? last - 1 - l : l] != 0;
}

xd_status xd_causal_check(xd_causal_cfg *c, xd_err *e);
void      xd_causal_info(const xd_causal_cfg *c, xd_vae_info *out);
void      xd_causal_weights(xd_decl *d, const xd_causal_cfg *c, xd_causal_glob *g);
/* Implementations of the functions decode and encode of xd_vae. */
void      xd_causal_decode(xd_exec *x, const xd_net *n, xd_tensor lat, xd_tensor rgb);
void      xd_causal_encode(xd_exec *x, const xd_net *n, xd_tensor rgb, xd_tensor moments);

#endif
