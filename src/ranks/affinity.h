/* affinity.h - which cpus of its host a rank computes on */
#ifndef XD_RANKS_AFFINITY_H
#define XD_RANKS_AFFINITY_H

#include "base/err.h"

/* Refuses what is no way to bind; NULL is one. */
xd_status xd_affinity_check(const char *bind, xd_err *e);
/* Binds this thread, and so those that it will start, to this rank's share of the cpus that the ranks of its host
 * may use: "auto" where there are several ranks, "cores" always (a rank that is alone: to as many cores as
 * it has threads), "none" and NULL never. Where that cannot be or was done by others nothing is, and the log
 * says why. To be called once, with the world open, before there is much memory and before the pool's threads. */
void      xd_affinity_bind(const char *bind, int threads);

#endif
