/* balance.h - makes the shards of ranks uneven, in proportion to the measured speeds of the ranks.
 *
 * All ranks time a small GEMM at the same time, before the first request and, with adaptive shares,
 * again during requests. Ranks that differ only in pipeline stage, cfg half, tensor shard or
 * replica have the same tokens. Among ranks with the same tokens, the speed of the slowest one
 * counts for all of them. */
#ifndef XD_PLAN_BALANCE_H
#define XD_PLAN_BALANCE_H

#include "plan/plan.h"
#include "ranks/world.h"

typedef struct xd_balance xd_balance;

/* Measures the speeds of all ranks in use and stores them in *b. Sets *b to NULL if no rank is more
 * than 10 % slower than the fastest rank. The call is collective. */
xd_status xd_balance_open(xd_balance **b, const xd_world *w, const xd_plan *plan, xd_dev *dev,
                          xd_dtype type, xd_err *e);
/* Measures the speeds of the ranks of `replica` again. If other shares of tokens would make steps
 * at least 8 % faster, *b becomes an object with these shares, and *changed becomes 1. Shares of
 * stages and of rows stay. Layouts may still use the shares of the former object, so *b owns it.
 * The call is collective over the replica. */
xd_status xd_balance_again(xd_balance **b, xd_comm *replica, const xd_plan *plan, xd_dev *dev,
                           xd_dtype type, int *changed, xd_err *e);
/* Returns to the shares before the last change. */
void      xd_balance_undo(xd_balance **b);
/* Sets *b to shares of which rank `at` of a replica has the largest that xd_balance_again gives,
 * for counting memory. The caller frees *b by xd_balance_close. */
xd_status xd_balance_largest(xd_balance **b, const xd_plan *plan, int at, xd_err *e);
/* Returns 1 if the tokens are divided unevenly. */
int       xd_balance_uneven(const xd_balance *b);
void      xd_balance_close(xd_balance **b);

/* Functions that set the uneven shards of a layout of tokens, or of a layout of image rows. If b is
 * NULL, the shards are even. */
void          xd_balance_tokens(const xd_balance *b, xd_layout *l);
void          xd_balance_rows(const xd_balance *b, xd_layout *l);
/* Returns the speed of each pipeline stage relative to the fastest stage, or NULL if all stages are
 * equally fast. */
const double *xd_balance_stages(const xd_balance *b);
/* Logs on rank 0 how many tokens, attention heads and latent rows of a request each rank has.
 * `when` begins the line, for example "from step 3 on:"; "" if the shares are those of the start.
 * `rows` is the number of latent rows, or 0 if the VAE is not split. */
void xd_balance_log(const xd_balance *b, const xd_comm *used, const char *when, int64_t tokens,
                    int heads, int64_t rows);

#endif
