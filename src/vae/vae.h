/* vae.h - image autoencoders: latents become pixels and back */
#ifndef XD_VAE_VAE_H
#define XD_VAE_VAE_H

#include "exec/net.h"

typedef struct xd_vae_info {
    int64_t channels;           /* of the latent                                               */
    int     cell[3];            /* pixels of a latent cell: t, h, w                            */
    double  scaling, shift;     /* model latent = (vae latent - shift) * scaling               */
    int64_t tile;               /* latent cells of a tile's side when tiling                   */
    double  overlap;            /* share of a tile that neighbours overlap                     */
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

/* The same in overlapping tiles, blended as diffusers' AutoencoderKL does
 * (tiled_decode, tiled_encode); falls back to the plain call when one tile is enough. */
void xd_vae_decode_tiled(xd_exec *x, const xd_vae *v, const xd_net *n, xd_tensor lat,
                         xd_tensor rgb);
void xd_vae_encode_tiled(xd_exec *x, const xd_vae *v, const xd_net *n, xd_tensor rgb,
                         xd_tensor moments);

#endif
