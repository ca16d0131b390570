/* wide.h - declares RMS norms of queries and keys over the features of all heads together. If
 * tensor parallelism splits the heads over ranks, the ranks exchange sums of squares. */
#ifndef XD_EXEC_WIDE_H
#define XD_EXEC_WIDE_H

#include "exec/net.h"
#include "exec/op.h"

typedef struct xd_wide {
    int64_t dim, head_dim; /* number of features of all heads, and of one head */
    float   eps;
    xd_span features; /* this rank's range of the features */
    int     cut;      /* 1: the heads are split over ranks */
    int     halves; /* 1: RoPE rotates elements i and i + head_dim/2 of a head; 0: 2i and 2i + 1 */
} xd_wide;

/* Returns the description of the query and key norms of a network whose weights are being
 * declared. */
xd_wide xd_wide_of(const xd_decl *d, int64_t heads, int64_t head_dim, float eps);

/* RoPE tables, F32: [n,head_dim/2] if all heads of a row have the same angles, or [n H,head_dim/2]
 * with a row for each of this rank's heads. If cos and sin are absent, heads are not rotated. */
typedef struct xd_turn { xd_tensor cos, sin; } xd_turn;

/* Returns factors that turn norms over this rank's features into norms over all features: one row
 * per token, one column for each of the tensors in[0..k). Returns an absent tensor if this rank
 * holds all heads. The call is collective over the ranks that split the heads. */
xd_tensor xd_wide_factors(xd_exec *x, const xd_wide *w, const xd_tensor *in, int k);
/* Returns the column of `factors` that corrects the norms of tensor i. */
xd_tensor xd_wide_factor(xd_tensor factors, int i);
typedef struct xd_wide_how {
    xd_tensor gain; /* gain of the norm, [dim] */
    /* factors by which rows are multiplied after the norm over this rank's features only */
    xd_tensor factor;
    xd_turn   turn; /* rotates the result */
} xd_wide_how;
/* Writes to `out` this rank's features of the RMS norm of `in` over the features of all ranks. */
void xd_wide_norm(xd_exec *x, const xd_wide *w, xd_tensor out, xd_tensor in,
                  const xd_wide_how *how);

/* Multiplies the heads of an attention's output y [n, own features] by their gates. A gate is twice
 * the sigmoid of a logit; the logits [n, own heads] F32 are overwritten. Only the linear layer w
 * may read the rows that xd_wide_gated returns. If the logits are absent, xd_wide_gated returns
 * y. */
xd_tensor xd_wide_gated(xd_exec *x, const xd_wide *g, xd_tensor y, xd_tensor logits,
                        const xd_lin *w);

/* RoPE angles of tokens whose D features are rotated by the token's positions on one or more axes.
 * With A axes, pair i of the D / 2 pairs of features is rotated by the token's position on axis i %
 * A times frequency number i / A. If D / 2 is not a multiple of A, the excess pairs come first and
 * are not rotated. The frequencies go from pi / 2 to theta pi / 2 and are computed in f64
 * (rope_double_precision of diffusers). */
enum { XD_WIDE_AXES = 3 };
typedef struct xd_wide_angles {
    const xd_wide *of;
    int64_t        rows;
    int            axes;
    double         theta;
    double         (*fn)(double); /* function of the angles: cos or sin */
    /* Writes the position of token `row` on each axis, from -1 to 1. */
    void           (*fractions)(const void *ctx, int64_t row, float f[XD_WIDE_AXES]);
    const void    *ctx;
} xd_wide_angles;
/* Writes the cosines or sines of the angles as [rows, own features / 2]. Each row contains the
 * values of this rank's heads one after the other. */
void xd_wide_fill(const xd_wide_angles *t, float *buf);

#endif
