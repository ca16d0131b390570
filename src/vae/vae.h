/* vae.h - declares autoencoders of images and videos, which decode latents to pixels and encode
 * pixels to latents. */
#ifndef XD_VAE_VAE_H
#define XD_VAE_VAE_H

#include "exec/net.h"

typedef struct xd_vae_info {
    int64_t     channels; /* number of channels of the latents */
    /* Channels of pixels: 3, RGB, or 4, RGB and alpha, from -1 (transparent) to 1. 0 means 3. */
    int         pixel_channels;
    /* number of frames, pixel rows and pixel columns that a latent cell represents */
    int         cell[3];
    double      scaling, shift; /* the model's latents are (latents of the VAE - shift) * scaling */
    /* 1: the latents of an image from which a video starts are multiplied by 1 / scaling, not by
     * scaling. */
    int         invert;
    int         timed; /* 1: the decoder reads a timestep (xd_decoding) */
    int         alone; /* 1: the first latent frame always decodes to one frame */
    /* Above 0: a video consists of at least one clip of chunk[1] frames, which are encoded as
     * chunk[0] latent frames. At the end of the video, shared[1] more frames are encoded as
     * shared[0] more latent frames. */
    int64_t     chunk[2], shared[2];
    int64_t     tile[2];    /* number of rows and of columns of latent cells in a tile */
    double      overlap[2]; /* overlap of neighbouring tiles, as a fraction of a tile */
    /* Distance between neighbouring tiles in latent cells; 0: the distance follows from
     * `overlap`. */
    int64_t     step[2];
    /* 1: the decoder always runs in tiles of equal size: the fewest tiles that cover the image with
     * distances up to `step`. The distances between tiles are as equal as possible, smaller
     * distances first. A tile is blended with its neighbours as the decoder computed them. 0: the
     * last tiles of an image are smaller, and a tile is blended with neighbours that have already
     * been blended. */
    int         covers;
    /* The decoder's last feature map has one position for each square of patch x patch pixels.
     * Tiles are blended in this feature map, not in pixels. The encoder's tiles are `patch` times
     * larger than the decoder's tiles, as in diffusers. A `patch` of 0 means 1. */
    int         patch;
    /* A value P above 0: each latent cell combines P x P smaller cells (inner cells). Latent
     * channel c P^2 + P y + x is channel c of the inner cell in row y and column x. */
    int         pack;
    /* Array of channels / P^2 + 1 RGB colours in [-1,1], for previews. Element i is the colour that
     * channel i of an inner cell contributes to the cell's colour; the last element is a constant
     * colour. If `rgb` is NULL, the colours are unknown. */
    const float (*rgb)[3];
} xd_vae_info;

typedef struct xd_vae {
    xd_net_def net;
    void       (*info)(const void *cfg, xd_vae_info *out);
    /* Appends the config of an autoencoder of this class in a weight file without config.json to b,
     * as a JSON object. own: properties of the autoencoder that the file replaces, or NULL. Appends
     * nothing for the files of other networks. NULL: weight files of this class have no config. */
    xd_status (*describe)(const xd_source *file, const xd_vae_info *own, xd_text_buf *b, xd_err *e);
    /* Decodes latents `lat` [T,h,w,C] F32 to pixels `rgb` [frames,height,width,3] F32 in about
     * [-1,1], in the caller's memory. The caller must have undone the scaling of the latents before
     * it calls `decode`. `decode` allocates scratch memory from the arena x->tmp and rewinds the
     * arena. */
    void      (*decode)(xd_exec *x, const xd_net *n, xd_tensor lat, xd_tensor rgb);
    /* Returns the latents z [T,h,w,C] F32 normalized, for autoencoders whose weight files contain
     * the mean and the standard deviation of latents. If `normalize` is NULL, latents are not
     * normalized. */
    xd_tensor (*normalize)(xd_exec *x, const xd_net *n, xd_tensor z);
    /* Undoes the normalization of latents, as the decoder needs. `denormalize` is NULL if
     * `normalize` is NULL. */
    xd_tensor (*denormalize)(xd_exec *x, const xd_net *n, xd_tensor z);
    /* Encodes pixels `rgb` [frames,H,W,K] F32 in [-1,1] to `moments` [T,h,w,2C] F32, which are the
     * mean and the log variance of the latents. */
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

/* Returns the number of frames to which t latent frames (t >= 1) decode. If a latent frame
 * represents one frame (cell[0] is 1), returns t. If cell[0] is larger than 1, each latent frame
 * decodes to cell[0] frames, except that the first latent frame decodes to a single frame if t is
 * odd or `alone` is set. */
int64_t xd_vae_frames(const xd_vae_info *v, int64_t t);
/* Returns the number of latent frames to which n frames (n >= 1) are encoded. If `alone` is set,
 * frames after the last complete latent frame are not encoded. If videos consist of clips
 * (`chunk`), n is first rounded up to complete clips. */
int64_t xd_vae_latents(const xd_vae_info *v, int64_t n);

/* Distribution of tiles over the ranks that compute one image together, and callbacks that exchange
 * the tiles: each rank computes its tiles, and rank 0 assembles the image. A failed rank still
 * takes part in all messages about tiles. */
typedef struct xd_deal xd_deal;
struct xd_deal {
    int        rank; /* number of this rank */
    /* [xd_vae_tiles] rank of each tile; tiles are in row-major order. */
    const int *owner;
    /* Function that sends one of this rank's tiles (F32, contiguous) to rank 0. A rank sends its
     * tiles in ascending order of their numbers. The tile that is sent must not change until `wait`
     * is called. */
    void       (*send)(const xd_deal *d, xd_exec *x, xd_tensor tile);
    /* Function that rank 0 calls to receive a tile that rank `from` has computed. */
    void       (*receive)(const xd_deal *d, xd_exec *x, xd_tensor tile, int from);
    /* Waits until rank 0 has received all tiles that this rank has sent. */
    void       (*wait)(const xd_deal *d, xd_exec *x);
};

/* Sets the height [0] and the width [1] of tiles in pixels, and the overlap of neighbouring tiles.
 * A size of 0 or an overlap of -1 leaves the tile size or the relative overlap unchanged. Returns
 * XD_EINVAL if a number is not a multiple of a latent cell's pixels, or if an overlap is not less
 * than the tile. */
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

/* Decode and encode in overlapping tiles, which are blended as in diffusers (tiled_decode,
 * tiled_encode). `info` contains the tile sizes; both functions expect the sizes for decoding. If
 * one tile is enough, xd_vae_decode_tiled and xd_vae_encode_tiled call v->decode or v->encode. If
 * `deal` is NULL, this rank computes all tiles. If `deal` is not NULL, only rank 0 gets the result;
 * on other ranks the output tensor is not written, and its address is not used. */
void xd_vae_decode_tiled(xd_exec *x, const xd_vae *v, const xd_vae_info *info, const xd_net *n,
                         xd_tensor lat, xd_tensor rgb, const xd_deal *deal);
void xd_vae_encode_tiled(xd_exec *x, const xd_vae *v, const xd_vae_info *info, const xd_net *n,
                         xd_tensor rgb, xd_tensor moments, const xd_deal *deal);

#endif
