/* kept.h - used only in src/parallel: defines buffers for those keys and values (K and V) of
 * attention layers that later denoising steps reuse. */
#ifndef XD_PARALLEL_KEPT_H
#define XD_PARALLEL_KEPT_H

#include "exec/op.h"
#include "parallel/rows.h"

/* Buffers in device memory that store K and V of `rows` tokens for each guidance pass, block and
 * attention layer that this rank computes. */
typedef struct xd_kept {
    const xd_topo *topo;
    xd_dev        *dev;
    char          *mem;
    size_t         bytes;
    int64_t        rows, heads, head_dim;
    xd_dtype       type;
    int            first, nlayers, sites;
} xd_kept;

/* Allocates the buffers for keys and values that later steps reuse. Returns XD_ENOMEM if out of
 * memory. `whose` names the tokens in the error message, such as tokens of reference images. */
xd_status xd_kept_open(xd_kept *k, const xd_method_args *a, int64_t rows, const char *whose,
                       xd_err *e);
void      xd_kept_close(xd_kept *k);
/* Returns the K and V buffers, [1,rows,H,D] each, of the current guidance pass, block and attention
 * layer. D is the number of elements of an attention head, at most k->head_dim. */
xd_kv     xd_kept_now(const xd_exec *x, const xd_kept *k, int64_t D);
/* Returns how many tokens of stream s (text, reference or image) in the first `patches` PipeFusion
 * patches the Ulysses ranks with this rank's ring coordinate hold together. */
int64_t   xd_member_tokens(const xd_layout *l, const xd_topo *t, xd_stream_id s, int patches);

#endif
