/* wide.h - declares RMS norms of queries and keys over the features of all heads together. With
 * tensor parallelism, which splits the heads over ranks, the ranks exchange sums of squares. */
#ifndef XD_DIT_WIDE_H
#define XD_DIT_WIDE_H

#include "exec/net.h"
#include "exec/op.h"

typedef struct xd_wide {
    int64_t dim, head_dim; /* features of all heads, and of one head */
    float   eps;
    xd_span features; /* this rank's range of the features */
    int     cut;      /* 1: the heads are split over ranks */
    int     halves; /* 1: RoPE rotates elements i and i + head_dim/2 of a head; 0: 2i and 2i + 1 */
} xd_wide;

/* Describes the norms of a network whose weights are being declared. */
xd_wide xd_wide_of(const xd_decl *d, int64_t heads, int64_t head_dim, float eps);

/* RoPE tables, F32: [n,head_dim/2] if all heads of a row have the same angles, or [n H,head_dim/2]
 * with a row for each of this rank's heads. Absent: no rotation. */
typedef struct xd_turn { xd_tensor cos, sin; } xd_turn;

/* Returns the factors that correct the norms of the rows of in[0..k), one column per tensor. The
 * result is absent if this rank has all heads. Collective over the ranks that split the heads. */
xd_tensor xd_wide_factors(xd_exec *x, const xd_wide *w, const xd_tensor *in, int k);
/* Returns the factors of tensor i. */
xd_tensor xd_wide_factor(xd_tensor factors, int i);
/* Computes out [n, own features], the RMS norm of `in` over the features of all ranks, and rotates
 * the result by `t`. `factor` corrects the rows, which are first normed over this rank's features
 * only. gain: [dim]. */
void      xd_wide_norm(xd_exec *x, const xd_wide *w, xd_tensor out, xd_tensor in, xd_tensor gain,
                       xd_tensor factor, xd_turn t);

#endif
