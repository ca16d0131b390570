/* taehv.h - inside vae: declares the config and the weights of TAEHV, a class of small autoencoders
 * of videos (https://github.com/madebyollin/taehv, and taem1 of the same author) */
#ifndef XD_VAE_TAEHV_H
#define XD_VAE_TAEHV_H

#include "exec/net.h"
#include "vae/vae.h"

enum {
    XD_TAEHV_LEVELS = 4,   /* maximum number of levels, each of which changes the resolution */
    XD_TAEHV_BLOCKS = 8,   /* maximum number of blocks per level */
    XD_TAEHV_FRAMES = 8,   /* maximum number of frames that a level makes of a frame */
    XD_TAEHV_WIDTH = 4096, /* maximum number of channels of a map */
    XD_TAEHV_PATCH = 16,   /* maximum side of a patch in pixels */
    XD_TAEHV_SUPER = 7,    /* side of the kernel of the blocks of a "super" decoder */
};

typedef struct xd_taehv_cfg {
    int64_t latent_channels, patch;
    int64_t encoder_width; /* channels of all maps of the encoder */
    int64_t blocks;        /* number of blocks of each level */
    /* Channels of the decoder's maps: one for each level, then that of the last map. */
    xd_ints width;
    /* For each level, in the order of execution, the frames that the decoder makes of a frame, and
     * the frames of which the encoder makes a frame. */
    xd_ints grow, pool;
    int     super;   /* 1: blocks of the decoder have a convolution of each channel */
    int     encodes; /* 1: files have the encoder */
    int     images;  /* 1: latent frames are independent images */
    int     alone;   /* 1: the first latent frame is always a single frame (xd_vae_info) */
    double scaling; /* scaling and invert of xd_vae_info; published files other than taecvx: 1, 0 */
    int    invert;
    xd_ints chunk, shared; /* chunk and shared of xd_vae_info; empty: a video has no chunks */
} xd_taehv_cfg;

typedef struct xd_taehv_block {
    /* Convolutions of the current and the previous frame, then of the result. */
    xd_cnv conv[3];
    xd_lin up, down; /* layers of a block of a "super" decoder, in place of conv[1] and conv[2] */
} xd_taehv_block;

typedef struct xd_taehv_level {
    xd_taehv_block block[XD_TAEHV_BLOCKS];
    xd_lin         time; /* layer that changes the number of frames */
    xd_cnv         side; /* convolution at the change of the resolution */
} xd_taehv_level;

typedef struct xd_taehv_half { /* weights of the encoder (0) or the decoder (1) */
    xd_cnv         in, out;
    xd_taehv_level level[XD_TAEHV_LEVELS];
} xd_taehv_half;

typedef struct xd_taehv_glob { xd_taehv_half side[2]; } xd_taehv_glob;

static inline int xd_taehv_levels(const xd_taehv_cfg *c)
{
    return c->grow.n;
}

/* Returns the number of frames per latent frame, of the decoder (`dec` 1) or the encoder. */
static inline int64_t xd_taehv_frames(const xd_taehv_cfg *c, int dec)
{
    const xd_ints *of = dec ? &c->grow : &c->pool;
    int64_t        n = 1;
    for (int i = 0; i < of->n; i++)
        n *= of->v[i];
    return n;
}

void xd_taehv_info(const void *cfg, xd_vae_info *out);
/* Implementations of the functions decode and encode of xd_vae. */
void xd_taehv_decode(xd_exec *x, const xd_net *n, xd_tensor lat, xd_tensor rgb);
void xd_taehv_encode(xd_exec *x, const xd_net *n, xd_tensor rgb, xd_tensor moments);

#endif
