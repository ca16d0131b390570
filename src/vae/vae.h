/* vae.h - declares autoencoders of images and videos, which decode latents to pixels and encode
 * pixels to latents. */
#ifndef XD_VAE_VAE_H
#define XD_VAE_VAE_H

#include "exec/net.h"

typedef struct xd_vae_info {
    int64_t     channels; /* number of channels of the latents */
    /* Channels of pixels: 3, RGB, or 4, RGB and alpha, from -1 (transparent) to 1. 0 means 3. */
    int         pixel_channels;
    int         cell[3];        /* number of frames, pixel rows and pixel columns per latent cell */
    double      scaling, shift; /* the model's latents are (latents of the VAE - shift) * scaling */
    /* 1: the latents of a video's first image are multiplied by 1 / scaling, not by scaling. */
    int         invert;
    int         timed; /* 1: the decoder reads a timestep (xd_decoding) */
    int         alone; /* 1: the first latent frame always decodes to one frame */
    /* Above 0: a video consists of clips of chunk[1] frames, which chunk[0] latent frames stand
     * for. shared[0] more latent frames, with shared[1] more frames, are at its end. There is at
     * least one clip. */
    int64_t     chunk[2], shared[2];
    int64_t     tile[2];    /* number of rows and of columns of latent cells in a tile */
    double      overlap[2]; /* overlap of neighbouring tiles, as a fraction of a tile */
    /* Distance between neighbouring tiles in latent cells; 0: the distance follows from
     * `overlap`. */
    int64_t     step[2];
    /* 1: the decoder always runs in tiles, and tiles all have the same size: they are as few as
     * cover the image with distances up to `step`, and their distances are as equal as cells allow,
     * smaller ones first. Tiles are blended with others as the decoder has made them. 0: the last
     * tiles of an image are smaller, and are blended with others that have been blended. */
    int         covers;
    /* Side of a patch in pixels; a patch of pixels is one position of the decoder's outermost map.
     * Tiles are blended on this outermost map, not on pixels. The encoder's tiles are `patch` times
     * larger than the decoder's tiles, as in diffusers. A `patch` of 0 means 1. */
    int         patch;
    /* P above 0: each latent cell packs P x P inner cells. Latent channel c P^2 + P y + x is
     * channel c of the inner cell in row y and column x. */
    int         pack;
    /* [channels / P^2 + 1] RGB values in [-1,1]. Each channel of an inner cell has one RGB value,
     * its contribution to the cell's colour; the last RGB value is a constant. rgb NULL: the map to
     * colours is unknown. */
    const float (*rgb)[3];
} xd_vae_info;

typedef struct xd_vae {
    xd_net_def net;
    void       (*info)(const void *cfg, xd_vae_info *out);
    /* Appends the config of an autoencoder of this class in a weight file without config.json to b,
     * as a JSON object. own: properties of the autoencoder that the file replaces, or NULL. Appends
     * nothing for the files of other networks. NULL: weight files of this class have no config. */
    xd_status (*describe)(const xd_source *file, const xd_vae_info *own, xd_text_buf *b, xd_err *e);
    /* Decodes latents lat [T,h,w,C] F32 to rgb [T',h f,w f,3] F32 in about [-1,1], in the caller's
     * memory. The caller must undo the scaling of the latents before the call. `decode` allocates
     * scratch memory from the arena x->tmp and rewinds the arena. */
    void      (*decode)(xd_exec *x, const xd_net *n, xd_tensor lat, xd_tensor rgb);
    /* Returns latents z [T,h,w,C] F32 that are normalized like the decoder's input, for
     * autoencoders whose weights have the mean and deviation of latents. normalize NULL: latents
     * are not normalized. */
    xd_tensor (*normalize)(xd_exec *x, const xd_net *n, xd_tensor z);
    /* Returns latents whose normalization is undone, with which the decoder computes. denormalize
     * is NULL if `normalize` is NULL. */
    xd_tensor (*denormalize)(xd_exec *x, const xd_net *n, xd_tensor z);
    /* Encodes pixels rgb [T,H,W,K] F32 in [-1,1] to moments [T',h,w,2C] F32, which are the mean and
     * the log variance of the latents. */
    void      (*encode)(xd_exec *x, const xd_net *n, xd_tensor rgb, xd_tensor moments);
} xd_vae;

extern const xd_vae *const xd_vaes[]; /* list of all autoencoders; the array ends with NULL */

/* Returns the number of channels of pixels, 3 or 4. */
static inline int xd_vae_pixel_channels(const xd_vae_info *v)
{
    return v->pixel_channels ? v->pixel_channels : 3;
}

/* Returns XD_EUNSUPPORTED unless an autoencoder has 3 input channels and 3 output channels
 * (RGB). */
xd_status xd_vae_colours(int64_t in_channels, int64_t out_channels, xd_err *e);
/* Checks the list of block types in the config key `key` of an autoencoder with n levels, whose
 * blocks all have the same type. An empty list of block types gets diffusers' default of four
 * blocks. */
xd_status xd_vae_blocks(xd_names *types, const char *key, const char *type, int n, xd_err *e);

/* Returns the number of frames to which t latent frames (t >= 1) decode. Returns t if cell[0] is 1.
 * If cell[0] is larger than 1, each latent frame decodes to cell[0] frames, except that the first
 * latent frame decodes to a single frame if t is odd or `alone` is set. */
int64_t xd_vae_frames(const xd_vae_info *v, int64_t t);
/* Returns the number of latent frames to which n frames (n >= 1) are encoded. If `alone` is set,
 * the frames after the last complete latent frame are not encoded; with chunks, the number is that
 * of the next number of frames of complete clips. */
int64_t xd_vae_latents(const xd_vae_info *v, int64_t n);

/* Distribution of tiles over the ranks that compute one image together: each rank computes its
 * tiles, and rank 0 assembles the image. The callbacks of xd_deal exchange the tiles. A failed rank
 * still takes part in all messages about tiles. */
typedef struct xd_deal xd_deal;
struct xd_deal {
    int        rank; /* number of this rank */
    /* [xd_vae_tiles] rank of each tile; tiles are in row-major order. */
    const int *owner;
    /* Sends one of this rank's tiles (F32, contiguous) to rank 0. A rank sends its tiles in
     * ascending order of their numbers. The tile must not change until `wait` is called. */
    void       (*send)(const xd_deal *d, xd_exec *x, xd_tensor tile);
    /* Called on rank 0: receives a tile that rank `from` has computed. */
    void       (*receive)(const xd_deal *d, xd_exec *x, xd_tensor tile, int from);
    /* Waits until rank 0 has received all tiles of this rank. */
    void       (*wait)(const xd_deal *d, xd_exec *x);
};

/* Sets the sizes of tiles, and the distance that follows from an overlap, in pixel rows (0) and
 * pixel columns (1). Size 0 and overlap -1: the tile size and the relative overlap do not change.
 * XD_EINVAL: a number is not a multiple of a latent cell's pixels, or an overlap is not less than
 * the tile. */
xd_status   xd_vae_set_tiles(xd_vae_info *v, const int64_t size[2], const int64_t overlap[2],
                             xd_err *e);
/* Returns a copy of the properties *v in which the tile sizes are those for encoding. */
xd_vae_info xd_vae_encoding(const xd_vae_info *v);
/* Returns the number of tiles into which h x w latent cells are split, or 1 if one tile is
 * enough. */
int64_t     xd_vae_tiles(const xd_vae_info *v, int64_t h, int64_t w);
/* Assigns tiles to ranks, the largest tile first: each tile to the rank whose tiles have the
 * smallest area so far. Writes the rank of each tile to owner[xd_vae_tiles]. */
xd_status   xd_vae_owners(const xd_vae_info *v, int64_t h, int64_t w, int ranks, int *owner,
                          xd_err *e);

/* Functions that decode and encode in overlapping tiles, which are blended as in diffusers
 * (tiled_decode, tiled_encode). The tiles are those of `info`, the properties of the autoencoder,
 * with the sizes for decoding in both functions. If one tile is enough, xd_vae_decode_tiled and
 * xd_vae_encode_tiled call v->decode or v->encode. If `deal` is NULL, this rank computes all tiles.
 * If `deal` is not NULL, only rank 0 gets the result; on other ranks the output tensor is not
 * written, and its address is not used. */
void xd_vae_decode_tiled(xd_exec *x, const xd_vae *v, const xd_vae_info *info, const xd_net *n,
                         xd_tensor lat, xd_tensor rgb, const xd_deal *deal);
void xd_vae_encode_tiled(xd_exec *x, const xd_vae *v, const xd_vae_info *info, const xd_net *n,
                         xd_tensor rgb, xd_tensor moments, const xd_deal *deal);

#endif
