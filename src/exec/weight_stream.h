/* weight_stream.h - streams the weights of some blocks of a network from host memory or from files
 * while the network computes.
 *
 * If a device's memory cannot hold all blocks, some of them are streamed: their weights are in
 * pinned host memory and are copied to a few slots of device memory in turn. While a block
 * computes, the weights of the next blocks are copied. Streamed blocks are spread evenly over the
 * network, so that copies also overlap blocks that are on the device. A streamed block always uses
 * the same slot, so the addresses of its weights do not change. Streaming does not change results.
 *
 * On a device in host memory, the weights of streamed blocks stay as stored in their files
 * (stored.h), and the weights of the next blocks are read ahead. */
#ifndef XD_EXEC_WEIGHT_STREAM_H
#define XD_EXEC_WEIGHT_STREAM_H

#include "exec/exec.h"
#include "exec/weight.h"

/* Maximum number of slots: one for the transformer block that computes, and two for blocks whose
 * weights are copied ahead. */
enum { XD_STREAM_SLOTS = 3 };

/* Sizes in bytes of a network's weights: of all weights, and of each block of this pipeline stage.
 * The stage runs the network's n blocks from block `first` on. */
typedef struct xd_block_sizes {
    size_t        all;
    int           first, n;
    const size_t *block; /* [n]: bytes of each block */
} xd_block_sizes;

typedef struct xd_stream_plan { /* tells which blocks are streamed; {0}: no block */
    /* slots: number of slots in device memory. If weights stay in files, `slots` is the maximum
     * number of streamed blocks whose weights are in the page cache at the same time. streamed:
     * number of streamed blocks. */
    int    slots, streamed;
    size_t slot;     /* bytes of a slot, which holds the weights of one block */
    size_t resident; /* bytes of weights that stay on the device */
    /* Bytes of the weights of all streamed blocks, which is the size of the pinned host memory and
     * the number of bytes that each evaluation of the network copies to the device. */
    size_t host;
} xd_stream_plan;

/* Returns the bytes of device memory that weights and slots need if blocks are streamed by the plan
 * p. */
size_t xd_stream_plan_bytes(const xd_stream_plan *p, const xd_block_sizes *w);
/* Makes a plan for `have` bytes of device memory: it streams only as many blocks as necessary for
 * the weights to fit. If `all` is 1, streams every block. Returns 0 if no plan fits into the
 * memory; *p is then the plan that needs the least memory. */
int    xd_stream_plan_make(xd_stream_plan *p, const xd_block_sizes *w, double have, int all);
/* Returns 1 if the plan p streams block i of n blocks. */
int    xd_stream_plan_has(const xd_stream_plan *p, int n, int i);

typedef struct xd_weight_stream xd_weight_stream;

typedef struct xd_stream_memory { /* memory that a weight stream uses; borrowed */
    xd_dev   *dev;
    xd_store *store; /* store that allocates the slots and the weights that are not streamed */
    /* Pinned host memory of xd_stream_plan.host bytes that `parts` processes share; NULL: the
     * stream allocates its own pinned memory. Each process loads the streamed blocks k with k %
     * parts == part into the shared memory. No process may use a block before all processes have
     * loaded their blocks. */
    char     *copy;
    int       part, parts;
} xd_stream_memory;

/* Allocates pinned memory, and device memory in `store`, for all weights of a network. Returns
 * XD_ENOMEM if the pinned memory or the device memory is too small. */
xd_status xd_weight_stream_open(xd_weight_stream **s, const xd_stream_plan *p,
                                const xd_block_sizes *w, const xd_stream_memory *m, xd_err *e);
/* Opens a stream for weights that stay in files, on a device in host memory. The weight stream
 * calls next(self, k) before the k-th streamed block is used. */
xd_status xd_weight_stream_files(xd_weight_stream **s, const xd_stream_plan *p,
                                 const xd_block_sizes *w, void (*next)(void *self, int k),
                                 void *self, xd_err *e);
void      xd_weight_stream_close(xd_weight_stream **s);
/* Call xd_weight_stream_enter before the weights of a block are loaded with d, and
 * xd_weight_stream_leave after the block is loaded. The weights of a streamed block are loaded into
 * its slot and copied to host memory, or stay in files. If another process loads the block, only
 * the addresses of the block's weights are set. */
void      xd_weight_stream_enter(xd_weight_stream *s, xd_decl *d, int layer);
void      xd_weight_stream_leave(xd_weight_stream *s, xd_decl *d, int layer);
/* Call xd_weight_stream_begin before work on a block is queued. Makes the block's computation wait
 * for its weights, and begins to fetch the weights of the next blocks. Call xd_weight_stream_begin
 * for all blocks in order, in every evaluation of the network. */
void      xd_weight_stream_begin(xd_weight_stream *s, xd_exec *x, int layer);

#endif
