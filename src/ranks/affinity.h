/* affinity.h - binds a rank to CPUs of its host. */
#ifndef XD_RANKS_AFFINITY_H
#define XD_RANKS_AFFINITY_H

#include "base/err.h"

/* Checks `bind`, the option that tells how ranks are bound to CPUs. Returns XD_EINVAL if the value
 * of `bind` is unknown. The option `bind` may be NULL. */
xd_status xd_affinity_check(const char *bind, xd_err *e);
/* Binds the calling thread, and the threads that it starts later, to this rank's share of its
 * host's CPUs. `bind` is "auto" (bind if the host has several ranks), "cores" (always bind; a
 * single rank binds to as many cores as it has threads), or "none" or NULL (never). If binding is
 * impossible, or if the user (OMP_PROC_BIND, ...) or the launcher has already bound threads,
 * xd_affinity_bind does nothing and logs the reason. Call xd_affinity_bind once, after the world is
 * open, and before large allocations and the start of the thread pool. */
void      xd_affinity_bind(const char *bind, int threads);

#endif
