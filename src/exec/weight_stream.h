/* weight_stream.h - blocks of a network whose weights stay in host memory, or in files
 *
 * If a device's memory cannot hold all blocks, some of them are streamed: their weights are in
 * pinned host memory and are copied to a few slots of device memory in turn. While a block
 * computes, the weights of the next ones are copied. Streamed blocks are spread evenly over the
 * network, so that copies also overlap blocks that are on the device. A block always uses the same
 * slot, so its addresses and results do not change.
 *
 * On a device in host memory, the weights of streamed blocks stay as stored in their files
 * (stored.h), and those of the next blocks are read ahead. */
#ifndef XD_EXEC_WEIGHT_STREAM_H
#define XD_EXEC_WEIGHT_STREAM_H

#include "exec/exec.h"
#include "exec/weight.h"

enum { XD_STREAM_SLOTS = 3 };   /* max slots: two blocks are copied ahead                       */

/* Bytes of a network's weights: total, and per block [first, first + n) of this stage. */
typedef struct xd_block_sizes {
    size_t        all;
    int           first, n;
    const size_t *block;        /* [n]                                                         */
} xd_block_sizes;

typedef struct xd_stream_plan { /* {0}: no streaming                                            */
    int    slots, streamed;     /* slots (files: blocks in the page cache at the same time);    */
                                /* number of streamed blocks                                   */
    size_t slot;                /* bytes per slot                                              */
    size_t resident;            /* bytes of the weights that stay on the device                 */
    size_t host;                /* bytes of streamed weights: pinned memory, and bytes copied   */
                                /* each time the blocks run                                    */
} xd_stream_plan;

/* Returns the bytes of device memory for the weights. */
size_t xd_stream_plan_bytes(const xd_stream_plan *p, const xd_block_sizes *w);
/* Streams as few blocks as possible so that the weights need at most `have` bytes; all: streams
 * every block. Returns 0 if even the minimum does not fit; *p is the minimum then. */
int    xd_stream_plan_make(xd_stream_plan *p, const xd_block_sizes *w, double have, int all);
/* Returns 1 if block i of n is streamed. */
int    xd_stream_plan_has(const xd_stream_plan *p, int n, int i);

typedef struct xd_weight_stream xd_weight_stream;

typedef struct xd_stream_memory {       /* borrowed                                            */
    xd_dev   *dev;
    xd_store *store;            /* for the slots and all other weights                          */
    /* NULL: the stream pins its own memory. Otherwise plan.host pinned bytes shared by `parts`
     * processes: each loads the streamed blocks k with k % parts == part, and none uses a block
     * before all have loaded theirs. */
    char     *copy;
    int       part, parts;
} xd_stream_memory;

/* Allocates pinned memory, and device memory in `store`, for all weights of a network. XD_ENOMEM:
 * one of the two is too small. */
xd_status xd_weight_stream_open(xd_weight_stream **s, const xd_stream_plan *p,
                                const xd_block_sizes *w, const xd_stream_memory *m, xd_err *e);
/* The same for weights that stay in files. Calls next(self, k) before the k-th streamed block is
 * used. */
xd_status xd_weight_stream_files(xd_weight_stream **s, const xd_stream_plan *p,
                                 const xd_block_sizes *w, void (*next)(void *self, int k),
                                 void *self, xd_err *e);
void      xd_weight_stream_close(xd_weight_stream **s);
/* Call around the loading of a block by `d`: its weights are loaded into its slot and copied to the
 * host, or stay in files. A block that another process loads only gets addresses. */
void      xd_weight_stream_enter(xd_weight_stream *s, xd_decl *d, int layer);
void      xd_weight_stream_leave(xd_weight_stream *s, xd_decl *d, int layer);
/* Call before work on a block is queued: the work waits for the weights, and those of the next
 * blocks are fetched. Blocks follow each other in order, repeatedly. */
void      xd_weight_stream_begin(xd_weight_stream *s, xd_exec *x, int layer);

#endif
