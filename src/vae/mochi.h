/* mochi.h - used only in src/vae: declares the config and the weights of AutoencoderKLMochi */
#ifndef XD_VAE_MOCHI_H
#define XD_VAE_MOCHI_H

#include "exec/net.h"
#include "vae/vae.h"

enum {
    XD_MOCHI_LEVELS = 8, /* maximum number of resolutions */
    XD_MOCHI_RES = 16,   /* maximum number of residual blocks per stage */
    /* number of stages of the decoder: block_in, each of up_blocks, and block_out */
    XD_MOCHI_STAGES = XD_MOCHI_LEVELS + 1,
    XD_MOCHI_GROUPS = 32, /* number of groups of the group norms */
};

typedef struct xd_mochi_cfg {
    int64_t  in_channels, out_channels, latent_channels;
    /* widths: channels of each level of the decoder (decoder_block_out_channels), finest first.
     * frames, sides: the factors temporal_expansions and spatial_expansions of each level. */
    xd_ints  widths, layers, frames, sides;
    xd_ints  enc_widths, attends; /* config lists for the encoder, which is not implemented */
    xd_reals mean, std;
    double   scaling;
    char     act[XD_FIELD_TEXT];
    int      cell[2]; /* number of frames, and of rows and columns, per latent cell */
} xd_mochi_cfg;

typedef struct xd_mochi_res {
    xd_tensor gain[2], bias[2];
    xd_cnv    conv[2];
} xd_mochi_res;

typedef struct xd_mochi_stage { /* residual blocks at one resolution, then a linear layer */
    xd_mochi_res res[XD_MOCHI_RES];
    /* in a stage of up_blocks, the layer that computes the channels of the next resolution */
    xd_lin       proj;
} xd_mochi_stage;

typedef struct xd_mochi_glob {
    xd_lin         in, out;
    xd_mochi_stage stage[XD_MOCHI_STAGES];
} xd_mochi_glob;

/* Returns the index of the decoder's last stage, block_out. Stages are counted in execution order;
 * stage 0 is block_in. */
static inline int xd_mochi_last(const xd_mochi_cfg *c)
{
    return c->widths.n;
}

static inline int xd_mochi_is_up(const xd_mochi_cfg *c, int s)
{
    return s > 0 && s < xd_mochi_last(c);
}

static inline int64_t xd_mochi_width(const xd_mochi_cfg *c, int s)
{
    int n = c->widths.n;
    return c->widths.v[s == 0 ? n - 1 : n - s];
}

/* Returns the number of residual blocks of a stage. */
static inline int xd_mochi_layers(const xd_mochi_cfg *c, int s)
{
    return (int)c->layers.v[c->widths.n - s];
}

/* Returns the factor by which stage s of up_blocks multiplies the number of frames (`of` is
 * c->frames), or of rows and columns (`of` is c->sides). */
static inline int64_t xd_mochi_growth(const xd_mochi_cfg *c, int s, const xd_ints *of)
{
    return of->v[c->widths.n - 1 - s];
}

void xd_mochi_info(const void *cfg, xd_vae_info *out);
/* Implementation of the function decode of xd_vae. */
void xd_mochi_decode(xd_exec *x, const xd_net *n, xd_tensor lat, xd_tensor rgb);

#endif
