/* vae_shards.h - splits a VAE image over the ranks of a replica: bands of rows, or tiles
 *
 * Complete images are on the host of rank 0 of the replica. A failed rank still sends and receives
 * undefined data, so that the others do not wait. */
#ifndef XD_PIPELINE_VAE_SHARDS_H
#define XD_PIPELINE_VAE_SHARDS_H

#include "pipeline/job.h"
#include "parallel/method.h"

typedef struct xd_vae_shards {
    xd_exec  *x;
    xd_comm  *c;                /* this rank's replica                                         */
    xd_layout lay;
    xd_method_stack stack;
    int       bands;            /* ranks with a band of rows; 1: no bands                      */
    int       tiled;            /* there is more than one tile                                 */
    xd_span   own;              /* this rank's rows of the latents: all, or a band             */
    int       whole;            /* 1: this rank gets the complete result                       */
    xd_deal   deal;             /* owner NULL: this rank has all tiles                         */
    int      *owner;
    xd_req   *out;              /* pending sends: nout, at most one for each tile of this rank */
    int64_t   nout;
    int64_t  *rows;             /* rows of each band                                           */
    xd_req   *in;               /* receives from each rank                                     */
} xd_vae_shards;

/* Chooses how an image of this many latent cells is split (into tiles of `v`), and installs the
 * hooks on x until xd_vae_shards_close. Returns 0 if a rank of the replica lacks resources; the
 * error is then on x of all ranks, and no rank may send. */
int  xd_vae_shards_open(xd_vae_shards *s, xd_exec *x, const xd_job *j, const xd_vae_info *v,
                        xd_grid cells);
void xd_vae_shards_close(xd_vae_shards *s);
/* Returns the assignment of tiles to ranks, or NULL. */
const xd_deal *xd_vae_shards_tiles(const xd_vae_shards *s);

/* Collect bands: `mine` has this rank's rows, with `wide` F32 elements each and `cell` rows
 * per latent row. `all` is on the host, on rank 0 of the replica (gather) or on every
 * rank (allgather). */
void xd_vae_shards_gather(xd_vae_shards *s, xd_tensor mine, int64_t wide, int64_t cell, float *all);
void xd_vae_shards_allgather(xd_vae_shards *s, xd_tensor mine, int64_t wide, int64_t cell,
                             float *all);
/* Broadcasts n elements from rank 0 to all ranks of the replica. */
void xd_vae_shards_broadcast(xd_vae_shards *s, float *all, int64_t n);

#endif
