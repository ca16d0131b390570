/* kept.h - inside parallel: keys and values that stay from step to step */
#ifndef XD_PARALLEL_KEPT_H
#define XD_PARALLEL_KEPT_H

#include "exec/op.h"
#include "parallel/rows.h"

/* For each pass, block and attention of this rank: K and V of `rows` tokens, in memory of the
 * device. */
typedef struct xd_kept {
    const xd_topo *topo;
    xd_dev        *dev;
    char          *mem;
    size_t         bytes;
    int64_t        rows, heads, head_dim;
    xd_dtype       type;
    int            first, nlayers, sites;
} xd_kept;

/* XD_ENOMEM: there is no memory for the keys and values of `whose`. */
xd_status xd_kept_open(xd_kept *k, const xd_method_args *a, int64_t rows, const char *whose,
                       xd_err *e);
void      xd_kept_close(xd_kept *k);
/* Those of the current pass, block and attention: [1, rows, H, D] each. */
xd_kv     xd_kept_now(const xd_exec *x, const xd_kept *k);
/* Tokens of a stream in the first `patches` patches, of all Ulysses ranks of my ring member. */
int64_t   xd_member_tokens(const xd_layout *l, const xd_topo *t, xd_stream_id s, int patches);

#endif
