/* balance.h - divides tokens, pipeline stages and image rows unevenly among ranks, in proportion to
 * the measured speeds of the ranks.
 *
 * All ranks time a small GEMM at the same time, before the first request and, with adaptive shares,
 * again during requests. Ranks that differ only in pipeline stage, guidance pass, tensor shard or
 * replica compute the same tokens; the speed of the slowest of them counts for all of them. */
#ifndef XD_PLAN_BALANCE_H
#define XD_PLAN_BALANCE_H

#include "plan/plan.h"
#include "ranks/world.h"

typedef struct xd_balance xd_balance;

/* Measures the speeds of all ranks in use and stores them in *b. Sets *b to NULL if no rank is more
 * than 10 % slower than the fastest rank. All ranks in use must call xd_balance_open. */
xd_status xd_balance_open(xd_balance **b, const xd_world *w, const xd_plan *plan, xd_dev *dev,
                          xd_dtype type, xd_err *e);
/* Measures the speeds of the ranks of `replica` again. If other shares of tokens would make steps
 * at least 8 % faster, sets *b to a new object with these shares, and *changed to 1. The shares of
 * pipeline stages and of image rows do not change. Layouts may still use the shares of the previous
 * object, so the new one owns it. All ranks of the replica must call xd_balance_again. */
xd_status xd_balance_again(xd_balance **b, xd_comm *replica, const xd_plan *plan, xd_dev *dev,
                           xd_dtype type, int *changed, xd_err *e);
/* Restores the shares that *b had before the last xd_balance_again changed them. */
void      xd_balance_undo(xd_balance **b);
/* For counting memory: sets *b to shares in which rank `at` of a replica has the largest share that
 * xd_balance_again can give to a rank. The caller must free *b with xd_balance_close. */
xd_status xd_balance_largest(xd_balance **b, const xd_plan *plan, int at, xd_err *e);
/* Returns 1 if the tokens are divided unevenly among ranks. */
int       xd_balance_uneven(const xd_balance *b);
void      xd_balance_close(xd_balance **b);

/* Set the shares of the ranks in a layout of tokens, or in a layout of image rows. If b is NULL,
 * the shares are even. */
void          xd_balance_tokens(const xd_balance *b, xd_layout *l);
void          xd_balance_rows(const xd_balance *b, xd_layout *l);
/* Returns the speed of each pipeline stage relative to the fastest stage, or NULL if all stages are
 * equally fast. */
const double *xd_balance_stages(const xd_balance *b);
/* Logs on rank 0 how many tokens, attention heads and latent rows of a request each rank computes.
 * `when` begins the log line, for example "from step 3 on:"; it is "" for the shares at the start
 * of a request. `rows` is the number of latent rows, or 0 if the VAE is not split. */
void xd_balance_log(const xd_balance *b, const xd_comm *used, const char *when, int64_t tokens,
                    int heads, int64_t rows);

#endif
