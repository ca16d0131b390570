/* vae.h - autoencoders of images and videos: latents become pixels and back */
#ifndef XD_VAE_VAE_H
#define XD_VAE_VAE_H

#include "exec/net.h"

typedef struct xd_vae_info {
    int64_t channels;           /* of the latent                                               */
    int     cell[3];            /* pixels of a latent cell: t, h, w                            */
    double  scaling, shift;     /* model latent = (vae latent - shift) * scaling               */
    int     invert;             /* 1: an image to start a video from is scaled by 1 / scaling    */
    int64_t tile[2];            /* latent cells of a tile when tiling: rows, columns           */
    double  overlap[2];         /* shares of them that neighbours overlap                      */
} xd_vae_info;

typedef struct xd_vae {
    xd_net_def net;
    void (*info)(const void *cfg, xd_vae_info *out);
    /* lat [T,h,w,C] F32, already unscaled -> rgb [T',h f,w f,3] F32 in about [-1,1], given by the
     * caller. Uses x->tmp and leaves it as it was. */
    void (*decode)(xd_exec *x, const xd_net *n, xd_tensor lat, xd_tensor rgb);
    /* rgb [T,H,W,3] F32 in [-1,1] -> moments [T',h,w,2C] F32: mean and log variance. */
    void (*encode)(xd_exec *x, const xd_net *n, xd_tensor rgb, xd_tensor moments);
} xd_vae;

extern const xd_vae *const xd_vaes[];           /* the registry, NULL at the end               */

/* XD_EUNSUPPORTED unless both are 3: what is encoded and decoded is red, green and blue. */
xd_status xd_vae_colours(int64_t in_channels, int64_t out_channels, xd_err *e);

/* Frames that t latent frames (t >= 1) decode to. With frames of their own (cell[0] is 1) t; else an
 * odd number of latent frames begins with one that stands for one frame alone. */
int64_t xd_vae_frames(const xd_vae_info *v, int64_t t);
/* Latent frames that n frames (n >= 1) are encoded to. */
int64_t xd_vae_latents(const xd_vae_info *v, int64_t n);

/* Tiles dealt over the ranks that share an image: each computes its own, rank 0 joins all. Who fills
 * this in sends the messages; a rank that failed still gives and takes. */
typedef struct xd_deal xd_deal;
struct xd_deal {
    int        rank;            /* mine                                                        */
    const int *owner;           /* [xd_vae_tiles]: the rank of every tile, row by row          */
    /* My tile (F32, contiguous), which stays as it is until done, to rank 0; in the tiles' order. */
    void (*give)(const xd_deal *d, xd_exec *x, xd_tensor tile);
    void (*take)(const xd_deal *d, xd_exec *x, xd_tensor tile, int from);       /* on rank 0   */
    void (*done)(const xd_deal *d, xd_exec *x);         /* what I gave has arrived             */
};

/* Tiles of h x w latent cells; 1: not tiled. */
int64_t   xd_vae_tiles(const xd_vae_info *v, int64_t h, int64_t w);
/* Deals them, the largest first to the rank that has the least area: owner[xd_vae_tiles]. */
xd_status xd_vae_owners(const xd_vae_info *v, int64_t h, int64_t w, int ranks, int *owner,
                        xd_err *e);

/* The same in overlapping tiles, blended as diffusers' classes do
 * (tiled_decode, tiled_encode); falls back to the plain call when one tile is enough. deal NULL:
 * all tiles are mine; else the result is rank 0's, that of others (any p) is not touched. */
void xd_vae_decode_tiled(xd_exec *x, const xd_vae *v, const xd_net *n, xd_tensor lat,
                         xd_tensor rgb, const xd_deal *deal);
void xd_vae_encode_tiled(xd_exec *x, const xd_vae *v, const xd_net *n, xd_tensor rgb,
                         xd_tensor moments, const xd_deal *deal);

#endif
