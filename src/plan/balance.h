/* balance.h - shares in proportion to the measured speeds of ranks
 *
 * Every rank times a small GEMM while the other ranks do the same. Ranks that hold the same
 * tokens (of other stages, cfg halves, tensor shares, replicas) count with the speed of the
 * slowest of them. */
#ifndef XD_PLAN_BALANCE_H
#define XD_PLAN_BALANCE_H

#include "plan/plan.h"
#include "ranks/world.h"

typedef struct xd_balance xd_balance;

/* Fills *b; leaves it NULL if no rank is more than a tenth slower than the fastest. Collective
 * over the ranks in use. */
xd_status xd_balance_open(xd_balance **b, const xd_world *w, const xd_plan *plan, xd_dev *dev,
                          xd_dtype type, xd_err *e);
void      xd_balance_close(xd_balance **b);

/* Set the uneven shares of a layout of tokens, or of a layout of image rows. b may be NULL. */
void      xd_balance_tokens(const xd_balance *b, xd_layout *l);
void      xd_balance_rows(const xd_balance *b, xd_layout *l);
/* Speed of each stage relative to the fastest, or NULL: even. */
const double *xd_balance_stages(const xd_balance *b);
/* Logs on rank 0 the shares of a request: of tokens, heads, and rows of latents (0: the
 * VAE is not cut). */
void      xd_balance_log(const xd_balance *b, const xd_comm *used, int64_t tokens, int heads,
                         int64_t rows);

#endif
