/* balance.h - uneven shards in proportion to the measured speeds of ranks
 *
 * Every rank times a small GEMM at the same time as the others. Ranks with the same tokens (in
 * other stages, cfg halves, tensor shards or replicas) count with the speed of the slowest one. */
#ifndef XD_PLAN_BALANCE_H
#define XD_PLAN_BALANCE_H

#include "plan/plan.h"
#include "ranks/world.h"

typedef struct xd_balance xd_balance;

/* Measures all ranks in use and fills *b; *b is NULL if no rank is more than 10 % slower than the
 * fastest. Collective. */
xd_status xd_balance_open(xd_balance **b, const xd_world *w, const xd_plan *plan, xd_dev *dev,
                          xd_dtype type, xd_err *e);
void      xd_balance_close(xd_balance **b);

/* Set the uneven shards of a layout of tokens or of image rows. b may be NULL (even). */
void      xd_balance_tokens(const xd_balance *b, xd_layout *l);
void      xd_balance_rows(const xd_balance *b, xd_layout *l);
/* Returns the speed of each stage relative to the fastest; NULL: all equal. */
const double *xd_balance_stages(const xd_balance *b);
/* Logs a request's shards on rank 0: tokens, heads, and rows of latents (0: the VAE is not
 * split). */
void      xd_balance_log(const xd_balance *b, const xd_comm *used, int64_t tokens, int heads,
                         int64_t rows);

#endif
