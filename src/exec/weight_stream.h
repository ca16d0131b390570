/* weight_stream.h - blocks of a network whose weights wait in the host's memory, or in files
 *
 * Where a device's memory does not hold all blocks, some of them are streamed: their weights lie in
 * pinned host memory and take turns in a few slots of device memory. While a block computes, the
 * weights of the next ones are copied. Streamed blocks are spread evenly over the network, so that
 * copies also run beside blocks that are on the device. A block always uses the same slot, so its
 * addresses do not change, and neither do its results.
 *
 * On a device in the host's memory, the weights of streamed blocks stay as their files store them
 * (stored.h), and those of the next blocks are read ahead. */
#ifndef XD_EXEC_WEIGHT_STREAM_H
#define XD_EXEC_WEIGHT_STREAM_H

#include "exec/exec.h"
#include "exec/weight.h"

enum { XD_STREAM_SLOTS = 3 };   /* most slots: two blocks are copied ahead                      */

/* Bytes of a network's weights: all of them, and of them those of the blocks [first, first + n),
 * which this stage has. */
typedef struct xd_block_sizes {
    size_t        all;
    int           first, n;
    const size_t *block;        /* [n]                                                         */
} xd_block_sizes;

typedef struct xd_stream_plan { /* {0}: nothing is streamed                                     */
    int    slots, streamed;     /* streamed blocks; the slots in which they take turns, or the  */
                                /* blocks of files that the page cache holds at a time          */
    size_t slot;                /* bytes of a slot                                             */
    size_t resident;            /* bytes of all other weights, which stay on the device         */
    size_t host;                /* bytes of the streamed ones: of pinned memory, and of copies  */
                                /* each time the blocks run                                    */
} xd_stream_plan;

/* Bytes of device memory that the weights take. */
size_t xd_stream_plan_bytes(const xd_stream_plan *p, const xd_block_sizes *w);
/* Streams as few blocks as possible so that the weights take at most `have` bytes; all: every
 * block. 0: even the least does not fit, and p is that. */
int    xd_stream_plan_make(xd_stream_plan *p, const xd_block_sizes *w, double have, int all);
/* Is block i of n streamed? */
int    xd_stream_plan_has(const xd_stream_plan *p, int n, int i);

typedef struct xd_weight_stream xd_weight_stream;

typedef struct xd_stream_memory {       /* borrowed                                            */
    xd_dev   *dev;
    xd_store *store;            /* gets the slots, and all other weights                        */
    /* NULL: the stream pins memory of its own. Else plan.host pinned bytes that `parts` processes
     * share: each loads the streamed blocks k with k % parts == part, and none uses a block before
     * all have loaded theirs. */
    char     *copy;
    int       part, parts;
} xd_stream_memory;

/* Opens pinned memory, and device memory in `store`, for all weights of a network. XD_ENOMEM: one
 * of the two is short. */
xd_status xd_weight_stream_open(xd_weight_stream **s, const xd_stream_plan *p,
                                const xd_block_sizes *w, const xd_stream_memory *m, xd_err *e);
/* The same for weights that stay in files. next(self, k) is called before the k-th streamed block
 * is used. */
xd_status xd_weight_stream_files(xd_weight_stream **s, const xd_stream_plan *p,
                                 const xd_block_sizes *w, void (*next)(void *self, int k),
                                 void *self, xd_err *e);
void      xd_weight_stream_close(xd_weight_stream **s);
/* Around the loading of a block by `d`: its weights are loaded into its slot, then copied to the
 * host, or they stay in files. A block of another process gets addresses alone. */
void      xd_weight_stream_enter(xd_weight_stream *s, xd_decl *d, int layer);
void      xd_weight_stream_leave(xd_weight_stream *s, xd_decl *d, int layer);
/* Before work on a block is queued: that work waits for the weights, and those of the next blocks
 * are fetched. Blocks follow each other in order, again and again. */
void      xd_weight_stream_begin(xd_weight_stream *s, xd_exec *x, int layer);

#endif
