/* vae_shards.h - an image of the autoencoder over the ranks of a replica: bands of rows, or tiles.
 *
 * Whole images lie on the host of rank 0 of the replica. A rank that failed sends and takes
 * rubbish, so that the others do not wait. */
#ifndef XD_PIPELINE_VAE_SHARDS_H
#define XD_PIPELINE_VAE_SHARDS_H

#include "pipeline/job.h"
#include "parallel/method.h"

typedef struct xd_vae_shards {
    xd_exec  *x;
    xd_comm  *c;                /* my replica                                                  */
    xd_layout lay;
    xd_method_stack  chain;
    int       bands;            /* ranks that have a band of rows; 1: nobody                   */
    int       tiled;            /* in more than one tile                                       */
    xd_span   own;              /* my rows of the latent: all of them, or a band               */
    int       whole;            /* the whole result comes about on this rank                   */
    xd_deal   deal;             /* owner NULL: all tiles are mine                              */
    int      *owner;
    xd_req   *out;              /* sends under way: nout of as many as I have tiles             */
    int64_t   nout;
    int64_t  *rows;             /* of the bands                                                */
    xd_req   *in;               /* from each rank                                              */
} xd_vae_shards;

/* Chooses how the image of j is cut and makes it so on x, until xd_vae_shards_close. 0: a rank of the
 * replica has not what it takes, which is on x of all of them; then nothing may be sent. */
int  xd_vae_shards_open(xd_vae_shards *s, xd_exec *x, const xd_job *j);
void xd_vae_shards_close(xd_vae_shards *s);
/* The deal of tiles for the autoencoder, or NULL. */
const xd_deal *xd_vae_shards_tiles(const xd_vae_shards *s);

/* Bands come together: `mine` has my rows, of `wide` F32 numbers and `cell` for a latent's row;
 * `all` is on the host, at rank 0 of the replica (join) or at every rank (share). */
void xd_vae_shards_gather(xd_vae_shards *s, xd_tensor mine, int64_t wide, int64_t cell, float *all);
void xd_vae_shards_allgather(xd_vae_shards *s, xd_tensor mine, int64_t wide, int64_t cell, float *all);
/* n numbers of rank 0 to all ranks of the replica. */
void xd_vae_shards_broadcast(xd_vae_shards *s, float *all, int64_t n);

#endif
