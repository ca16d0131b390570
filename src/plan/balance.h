/* balance.h - shares that follow how fast ranks are
 *
 * Every rank times a small product while the others do, too. What ranks with the same tokens (of other
 * stages, halves of cfg, tensor shares, replicas) do together goes by the slowest of them. */
#ifndef XD_PLAN_BALANCE_H
#define XD_PLAN_BALANCE_H

#include "plan/plan.h"
#include "ranks/world.h"

typedef struct xd_balance xd_balance;

/* Fills *b; leaves it NULL where no rank is more than a tenth slower than the fastest.
 * Collective over the ranks in use. */
xd_status xd_balance_open(xd_balance **b, const xd_world *w, const xd_plan *plan, xd_dev *dev,
                          xd_dtype type, xd_err *e);
void      xd_balance_close(xd_balance **b);

/* What is uneven of a layout of tokens, and of one of rows of the image. b may be NULL. */
void      xd_balance_tokens(const xd_balance *b, xd_layout *l);
void      xd_balance_rows(const xd_balance *b, xd_layout *l);
/* Speed of each stage beside the fastest, or NULL: even. */
const double *xd_balance_stages(const xd_balance *b);
/* Logs on rank 0 the shares of a request: of tokens, heads, and rows of latents (0: the VAE is not cut). */
void      xd_balance_log(const xd_balance *b, const xd_comm *used, int64_t tokens, int heads, int64_t rows);

#endif
