/* vae_shards.h - splits the image that a VAE encodes or decodes over the ranks of a replica, into
 * bands of rows or into tiles.
 *
 * Complete images are in the host memory of rank 0 of the replica. A failed rank still sends and
 * receives messages with undefined data, so that the other ranks do not wait. */
#ifndef XD_PIPELINE_VAE_SHARDS_H
#define XD_PIPELINE_VAE_SHARDS_H

#include "pipeline/job.h"
#include "parallel/method.h"

typedef struct xd_vae_shards {
    xd_exec  *x;
    xd_comm  *c;                /* the ranks of this replica                                   */
    xd_layout lay;
    xd_method_stack stack;
    /* Number of ranks with a band of rows; 1: the image is not split into bands. */
    int       bands;
    int       tiled;            /* 1: the image is split into more than one tile               */
    xd_span   own; /* the rows of latents that this rank computes: all rows, or a band */
    int       whole;            /* 1: this rank gets the complete result                       */
    xd_deal   deal; /* the rank of each tile; deal.owner NULL: this rank has all tiles */
    int      *owner;
    xd_req   *out;              /* [nout] pending sends, at most one per tile of this rank     */
    int64_t   nout;
    int64_t  *rows;             /* [bands] number of rows of each band                         */
    xd_req   *in;               /* pending receives from each rank                             */
} xd_vae_shards;

/* Chooses how an image of `cells` latent cells is split; v has the tile sizes. Installs the hooks
 * for split images on x until xd_vae_shards_close. Returns 0 if a rank of the replica lacks
 * resources; then x has the error on all ranks, and no rank may send. */
int  xd_vae_shards_open(xd_vae_shards *s, xd_exec *x, const xd_job *j, const xd_vae_info *v,
                        xd_grid cells);
void xd_vae_shards_close(xd_vae_shards *s);
/* Returns the assignment of tiles to ranks, or NULL if this rank computes all tiles. */
const xd_deal *xd_vae_shards_tiles(const xd_vae_shards *s);

/* Collect bands: `mine` has this rank's rows, with `wide` F32 elements each and `cell` rows per
 * latent row. The complete image `all` in host memory is filled on rank 0 of the replica (gather)
 * or on every rank (allgather). */
void xd_vae_shards_gather(xd_vae_shards *s, xd_tensor mine, int64_t wide, int64_t cell, float *all);
void xd_vae_shards_allgather(xd_vae_shards *s, xd_tensor mine, int64_t wide, int64_t cell,
                             float *all);
/* Broadcasts the n F32 elements of `all` from rank 0 to all ranks of the replica. */
void xd_vae_shards_broadcast(xd_vae_shards *s, float *all, int64_t n);

#endif
