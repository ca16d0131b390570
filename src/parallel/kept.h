/* kept.h - inside parallel: buffers for keys and values that are kept from step to step. */
#ifndef XD_PARALLEL_KEPT_H
#define XD_PARALLEL_KEPT_H

#include "exec/op.h"
#include "parallel/rows.h"

/* Buffers in device memory with K and V of `rows` tokens, for each pass, block and attention that
 * this rank computes. */
typedef struct xd_kept {
    const xd_topo *topo;
    xd_dev        *dev;
    char          *mem;
    size_t         bytes;
    int64_t        rows, heads, head_dim;
    xd_dtype       type;
    int            first, nlayers, sites;
} xd_kept;

/* Allocates the buffers. XD_ENOMEM: not enough memory. whose: name in the error of whose keys and
 * values these are. */
xd_status xd_kept_open(xd_kept *k, const xd_method_args *a, int64_t rows, const char *whose,
                       xd_err *e);
void      xd_kept_close(xd_kept *k);
/* Returns the buffers for K and V of the current pass, block and attention, [1,rows,H,D] each. */
xd_kv     xd_kept_now(const xd_exec *x, const xd_kept *k);
/* Returns the number of tokens of stream s in the first `patches` patches, summed over the Ulysses
 * ranks of this rank's ring member. */
int64_t   xd_member_tokens(const xd_layout *l, const xd_topo *t, xd_stream_id s, int patches);

#endif
