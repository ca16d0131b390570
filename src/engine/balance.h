/* balance.h - shares that follow how fast ranks are
 *
 * Every rank times a small product while the others do, too. What ranks with the same tokens (of other
 * stages, halves of cfg, tensor shares, replicas) do together goes by the slowest of them. */
#ifndef XD_ENGINE_BALANCE_H
#define XD_ENGINE_BALANCE_H

#include "engine/engine.h"

typedef struct xd_balance xd_balance;

/* Fills g->balance; leaves it NULL where no rank is more than a tenth slower than the fastest.
 * Collective over the ranks in use. */
xd_status xd_balance_open(xd_engine *g, xd_err *e);
void      xd_balance_close(xd_balance **b);

/* What is uneven of a layout of tokens, and of one of rows of the picture. b may be NULL. */
void      xd_balance_tokens(const xd_balance *b, xd_layout *l);
void      xd_balance_rows(const xd_balance *b, xd_layout *l);
/* Speed of each stage beside the fastest, or NULL: even. */
const double *xd_balance_stages(const xd_balance *b);
/* Rank 0 says the shares of a request. */
void      xd_balance_say(const xd_job *j);

/* For tests: where XDIT_SLOW has "RANK:FACTOR", its kernels take FACTOR times as long. */
xd_status xd_slow_dev(xd_dev **d, int rank, xd_err *e);

#endif
