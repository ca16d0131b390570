/* balance.h - makes the shards of ranks uneven, in proportion to the measured speeds of the ranks.
 *
 * All ranks time a small GEMM at the same time. Ranks that differ only in stage, cfg half, tensor
 * shard or replica have the same tokens. The speed of the slowest of such ranks counts for all of
 * them. */
#ifndef XD_PLAN_BALANCE_H
#define XD_PLAN_BALANCE_H

#include "plan/plan.h"
#include "ranks/world.h"

typedef struct xd_balance xd_balance;

/* Measures the speeds of all ranks in use and stores them in *b. Sets *b to NULL if no rank is more
 * than 10 % slower than the fastest. The call is collective. */
xd_status xd_balance_open(xd_balance **b, const xd_world *w, const xd_plan *plan, xd_dev *dev,
                          xd_dtype type, xd_err *e);
void      xd_balance_close(xd_balance **b);

/* Set the uneven shards of a layout of tokens, or of a layout of image rows. If b is NULL, the
 * shards are even. */
void          xd_balance_tokens(const xd_balance *b, xd_layout *l);
void          xd_balance_rows(const xd_balance *b, xd_layout *l);
/* Returns the speed of each pipeline stage relative to the fastest stage, or NULL if all stages are
 * equally fast. */
const double *xd_balance_stages(const xd_balance *b);
/* Logs on rank 0 how many tokens, attention heads and latent rows of a request each rank has.
 * `rows` is the number of latent rows, or 0 if the VAE is not split. */
void          xd_balance_log(const xd_balance *b, const xd_comm *used, int64_t tokens, int heads,
                             int64_t rows);

#endif
