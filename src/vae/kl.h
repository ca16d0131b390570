/* kl.h - used only in src/vae: declares the network of diffusers' AutoencoderKL, which several
 * autoencoder classes use. */
#ifndef XD_VAE_KL_H
#define XD_VAE_KL_H

#include "vae/vae.h"

enum {
    /* maximum number of levels (resolutions); with this number, a latent cell has 128 x 128
     * pixels */
    XD_KL_LEVELS = 8,
    XD_KL_RES = 16, /* maximum number of residual blocks per level */
};

typedef struct xd_kl_cfg {
    int64_t  in_channels, out_channels, latent_channels, groups, sample_size;
    int      layers, quant, post_quant, mid_attention;
    double   scaling, shift, mean, std;
    char     act[XD_FIELD_TEXT];
    xd_names down, up;
    xd_ints  width; /* number of channels of each level (block_out_channels), finest level first */
    /* number of channels of the decoder's levels (decoder_block_out_channels) */
    xd_ints  dec_width;
} xd_kl_cfg;

typedef struct xd_kl_norm { xd_tensor gain, bias; } xd_kl_norm;
typedef struct xd_kl_res {
    xd_kl_norm norm1, norm2;
    xd_cnv     conv1, conv2, shortcut;
} xd_kl_res;
typedef struct xd_kl_attn {
    xd_kl_norm norm;
    xd_lin     qkv, out;
} xd_kl_attn;

typedef struct xd_kl_level { /* a level: residual blocks at one resolution, then resampling */
    xd_kl_res  res[XD_KL_RES];
    xd_kl_attn attn[XD_KL_RES];
    xd_cnv     down;  /* encoder: downsampling convolution */
    xd_cnv     up[4]; /* upsampling convolution of the decoder (xd_band_enlarge) */
} xd_kl_level;

typedef struct xd_kl_half { /* weights of the encoder, or of the decoder */
    xd_cnv      in, out;
    xd_kl_level level[XD_KL_LEVELS]; /* levels of the encoder or decoder in execution order */
    xd_kl_res   mid[2];
    xd_kl_attn  mid_attn;
    xd_kl_norm  norm;
} xd_kl_half;

typedef struct xd_kl_glob {
    xd_kl_half enc, dec;
    xd_cnv     quant, post_quant;
} xd_kl_glob;

/* Rows of a table of config keys (xd_field) that read config.json into a struct that begins with an
 * xd_kl_cfg. The parameters of the macro are diffusers' defaults of layers_per_block,
 * latent_channels and sample_size (pixels per side of a tile). */
#define XD_KL_FIELDS(layers_, latents_, sample_)                                                  \
    { "in_channels", offsetof(xd_kl_cfg, in_channels), 'l', 3, NULL },                            \
    { "out_channels", offsetof(xd_kl_cfg, out_channels), 'l', 3, NULL },                          \
    { "down_block_types", offsetof(xd_kl_cfg, down), 'S', 0, NULL },                              \
    { "up_block_types", offsetof(xd_kl_cfg, up), 'S', 0, NULL },                                  \
    { "block_out_channels", offsetof(xd_kl_cfg, width), 'L', 0, NULL },                           \
    { "decoder_block_out_channels", offsetof(xd_kl_cfg, dec_width), 'L', 0, NULL },               \
    { "layers_per_block", offsetof(xd_kl_cfg, layers), 'i', layers_, NULL },                      \
    { "act_fn", offsetof(xd_kl_cfg, act), 's', 0, "silu" },                                       \
    { "latent_channels", offsetof(xd_kl_cfg, latent_channels), 'l', latents_, NULL },             \
    { "norm_num_groups", offsetof(xd_kl_cfg, groups), 'l', 32, NULL },                            \
    { "sample_size", offsetof(xd_kl_cfg, sample_size), 'l', sample_, NULL },                      \
    { "latents_mean", offsetof(xd_kl_cfg, mean), 'd', 0, NULL },  /* number, not a list */        \
    { "latents_std", offsetof(xd_kl_cfg, std), 'd', 0, NULL },                                    \
    { "use_quant_conv", offsetof(xd_kl_cfg, quant), 'b', 1, NULL },                               \
    { "use_post_quant_conv", offsetof(xd_kl_cfg, post_quant), 'b', 1, NULL },                     \
    { "mid_block_add_attention", offsetof(xd_kl_cfg, mid_attention), 'b', 1, NULL },              \
    { "force_upcast", 0, '-', 0, NULL },    /* ignored: norms and sums are always f32 */          \
    { "_class_name", 0, '-', 0, NULL },                                                           \
    { "_diffusers_version", 0, '-', 0, NULL },                                                    \
    { "_name_or_path", 0, '-', 0, NULL }

xd_status xd_kl_check(xd_kl_cfg *c, xd_err *e);
void      xd_kl_weights(xd_decl *d, const xd_kl_cfg *c, xd_kl_glob *g);
/* Declares the weights of a residual block, "resnets.I", from `in` to `out` channels. */
void      xd_kl_res_weights(xd_decl *d, xd_kl_res *w, int i, int64_t in, int64_t out);
/* returns the number of pixel rows, and of columns, per latent cell */
int64_t   xd_kl_cell(const xd_kl_cfg *c);
/* Implementations of the functions decode and encode of xd_vae. */
void      xd_kl_decode(xd_exec *x, const xd_kl_cfg *c, const xd_kl_glob *g, xd_tensor lat,
                       xd_tensor rgb);
void      xd_kl_encode(xd_exec *x, const xd_kl_cfg *c, const xd_kl_glob *g, xd_tensor rgb,
                       xd_tensor moments);

#endif
