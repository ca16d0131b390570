/* vae.h - autoencoders of images and videos: latents to pixels and back */
#ifndef XD_VAE_VAE_H
#define XD_VAE_VAE_H

#include "exec/net.h"

typedef struct xd_vae_info {
    int64_t channels;           /* channels of the latents                                     */
    int     cell[3];            /* pixels per latent cell: t, h, w                             */
    double  scaling, shift;     /* model latent = (vae latent - shift) * scaling               */
    int     invert;             /* 1: the start image of a video is scaled by 1 / scaling        */
    int     alone;              /* 1: the first latent frame always is one frame               */
    int64_t tile[2];            /* latent cells per tile: rows, columns                        */
    double  overlap[2];         /* overlap of neighbouring tiles, as fraction of a tile        */
    int     patch;              /* pixels per side of the decoder's positions, in which tiles are */
                                /* blended; the encoder's tiles are `patch` times larger (as in   */
                                /* diffusers). 0 means 1                                       */
    int     pack;               /* P >= 1: latent channel c P^2 + P y + x is channel c of the     */
                                /* inner cell in row y and column x of P x P                   */
    /* [channels / P^2 + 1] RGB in [-1,1]: contribution of each channel of an inner cell to its
     * pixel, then a constant; NULL: unknown. */
    const float (*rgb)[3];
} xd_vae_info;

typedef struct xd_vae {
    xd_net_def net;
    void (*info)(const void *cfg, xd_vae_info *out);
    /* Decodes lat [T,h,w,C] F32, already unscaled, to rgb [T',h f,w f,3] F32 in about [-1,1], in
     * the caller's memory. Allocates from x->tmp and rewinds it. */
    void (*decode)(xd_exec *x, const xd_net *n, xd_tensor lat, xd_tensor rgb);
    /* Encodes rgb [T,H,W,3] F32 in [-1,1] to moments [T',h,w,2C] F32: mean and log variance. */
    void (*encode)(xd_exec *x, const xd_net *n, xd_tensor rgb, xd_tensor moments);
} xd_vae;

extern const xd_vae *const xd_vaes[];           /* the registry; ends with NULL                */

/* XD_EUNSUPPORTED unless both channel counts are 3 (RGB). */
xd_status xd_vae_colours(int64_t in_channels, int64_t out_channels, xd_err *e);

/* Returns the number of frames that t latent frames (t >= 1) decode to: t if cell[0] is 1.
 * Otherwise each latent frame is cell[0] frames, except that the first latent frame is a single
 * frame if t is odd or `alone` is set. */
int64_t xd_vae_frames(const xd_vae_info *v, int64_t t);
/* Returns the number of latent frames that n frames (n >= 1) encode to. With `alone` the frames
 * after the last complete latent frame are not encoded. */
int64_t xd_vae_latents(const xd_vae_info *v, int64_t n);

/* Distribution of tiles over the ranks that share an image: each rank computes its tiles, rank 0
 * assembles the image. The callbacks send the messages. A failed rank still takes part in all of
 * them. */
typedef struct xd_deal xd_deal;
struct xd_deal {
    int        rank;            /* this rank                                                   */
    const int *owner;           /* [xd_vae_tiles]: rank of every tile, row by row              */
    /* Sends a tile (F32, contiguous) of this rank to rank 0, in the order of the tiles. The tile
     * must not change until `wait`. */
    void (*send)(const xd_deal *d, xd_exec *x, xd_tensor tile);
    void (*receive)(const xd_deal *d, xd_exec *x, xd_tensor tile, int from);    /* on rank 0 */
    void (*wait)(const xd_deal *d, xd_exec *x);         /* waits until rank 0 has the tiles  */
};

/* Returns the info with the tile sizes of encoding. */
xd_vae_info xd_vae_encoding(const xd_vae_info *v);
/* Returns the number of tiles of h x w latent cells; 1: no tiling. */
int64_t   xd_vae_tiles(const xd_vae_info *v, int64_t h, int64_t w);
/* Assigns tiles to ranks, largest first, each to the rank with the smallest area so far. Writes
 * owner[xd_vae_tiles]. */
xd_status xd_vae_owners(const xd_vae_info *v, int64_t h, int64_t w, int ranks, int *owner,
                        xd_err *e);

/* Decode and encode in overlapping tiles that are blended as in diffusers (tiled_decode,
 * tiled_encode). If one tile is enough, they call v->decode or v->encode. deal NULL: this rank has
 * all tiles. Otherwise only rank 0 gets the result; on other ranks the output tensor is not written
 * and its address may be anything. */
void xd_vae_decode_tiled(xd_exec *x, const xd_vae *v, const xd_net *n, xd_tensor lat,
                         xd_tensor rgb, const xd_deal *deal);
void xd_vae_encode_tiled(xd_exec *x, const xd_vae *v, const xd_net *n, xd_tensor rgb,
                         xd_tensor moments, const xd_deal *deal);

#endif
