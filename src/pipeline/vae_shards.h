/* vae_shards.h - splits the image that a VAE encodes or decodes into bands of rows or into tiles,
 * which the ranks of a replica compute.
 *
 * Only rank 0 of the replica has the complete image, in host memory. A rank that has failed still
 * sends and receives messages with undefined data, so that the other ranks do not wait forever. */
#ifndef XD_PIPELINE_VAE_SHARDS_H
#define XD_PIPELINE_VAE_SHARDS_H

#include "pipeline/job.h"
#include "parallel/method.h"

typedef struct xd_vae_shards {
    xd_exec        *x;
    xd_comm        *c; /* communicator of the ranks of this replica */
    xd_layout       lay;
    xd_method_stack stack;
    /* Number of ranks with a band of rows; 1: the image is not split into bands. */
    int             bands;
    /* 1: the image is split into more than one tile, or the decoder always runs in tiles */
    int             tiled; /* 1: the image is split into more than one tile */
    xd_span         own;   /* rows of latents that this rank computes: all rows, or a band */
    int             whole; /* 1: this rank holds the complete image */
    /* deal.owner[i] is the rank that computes tile i. If deal.owner is NULL, this rank computes all
     * tiles. */
    xd_deal         deal;
    int            *owner;
    xd_req         *out; /* [nout] pending sends, at most one per tile of this rank */
    int64_t         nout;
    int64_t        *rows; /* [bands] number of rows of each band */
    xd_req         *in;   /* pending receives from each rank */
} xd_vae_shards;

/* Chooses how the image that a VAE computes is split over ranks. The latents of the image have
 * cells.rows rows and cells.cols columns, and `v` contains the tile sizes. Until
 * xd_vae_shards_close is called, layers that run in the context x call hooks that exchange rows of
 * split images. If a rank of the replica lacks memory, xd_vae_shards_open returns 0 on all ranks.
 * After a failure of xd_vae_shards_open, the execution context x holds the error, and no rank may
 * send messages. */
int  xd_vae_shards_open(xd_vae_shards *s, xd_exec *x, const xd_job *j, const xd_vae_info *v,
                        xd_grid cells);
void xd_vae_shards_close(xd_vae_shards *s);
/* Returns which rank computes each tile, or NULL if this rank computes all tiles. */
const xd_deal *xd_vae_shards_tiles(const xd_vae_shards *s);

/* Collect the bands of all ranks in the complete image `all` in host memory. xd_vae_shards_gather
 * collects the bands on rank 0 of the replica, xd_vae_shards_allgather on every rank. `mine` is the
 * band of this rank. A row of the image has `wide` F32 elements, and one row of latents represents
 * `cell` rows of the image. */
void xd_vae_shards_gather(xd_vae_shards *s, xd_tensor mine, int64_t wide, int64_t cell, float *all);
void xd_vae_shards_allgather(xd_vae_shards *s, xd_tensor mine, int64_t wide, int64_t cell,
                             float *all);
/* Broadcasts `all`, n F32 elements in host memory, from rank 0 to all ranks of the replica. */
void xd_vae_shards_broadcast(xd_vae_shards *s, float *all, int64_t n);

#endif
