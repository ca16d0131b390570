/* mochi.h - inside vae: declares the config and the weights of AutoencoderKLMochi */
#ifndef XD_VAE_MOCHI_H
#define XD_VAE_MOCHI_H

#include "exec/net.h"
#include "vae/vae.h"

enum {
    XD_MOCHI_LEVELS = 8,                   /* maximum number of resolutions */
    XD_MOCHI_RES = 16,                     /* maximum number of residual blocks per stage */
    XD_MOCHI_STAGES = XD_MOCHI_LEVELS + 1, /* number of stages: block_in, up_blocks, block_out */
    XD_MOCHI_GROUPS = 32,                  /* number of groups of the group norms */
};

typedef struct xd_mochi_cfg {
    int64_t  in_channels, out_channels, latent_channels;
    /* widths: channels of each level of the decoder (decoder_block_out_channels), finest first.
     * frames, sides: temporal_expansions and spatial_expansions. */
    xd_ints  widths, layers, frames, sides;
    xd_ints  enc_widths, attends; /* lists for the encoder, which are not used */
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
    /* layer of a stage of up_blocks that makes the channels of the next resolution */
    xd_lin       proj;
} xd_mochi_stage;

typedef struct xd_mochi_glob {
    xd_lin         in, out;
    xd_mochi_stage stage[XD_MOCHI_STAGES];
} xd_mochi_glob;

/* Stages of the decoder are counted in execution order: stage 0 is block_in, the last stage is
 * block_out. */
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

/* Returns the number of frames (or of rows and columns, if `of` is c->sides) that stage s of
 * up_blocks makes of one frame (or row and column). */
static inline int64_t xd_mochi_growth(const xd_mochi_cfg *c, int s, const xd_ints *of)
{
    return of->v[c->widths.n - 1 - s];
}

void xd_mochi_info(const void *cfg, xd_vae_info *out);
/* Implementation of the function decode of xd_vae. */
void xd_mochi_decode(xd_exec *x, const xd_net *n, xd_tensor lat, xd_tensor rgb);

#endif
