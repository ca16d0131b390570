/* weight_groups.h - one copy of weights per host: ranks that need the same ones hold them together.
 *
 * Kin of a rank are the ranks of its host with the same stage and the same share of a component.
 * They pack its weights into one block of shared memory, each a part of it, and read all of it. */
#ifndef XD_PIPELINE_WEIGHT_GROUPS_H
#define XD_PIPELINE_WEIGHT_GROUPS_H

#include "pipeline/context.h"

/* Finds the group of this rank for components that are not loaded yet. The components are counted and cut
 * into stages. `vae`: this rank decodes. Collective over the ranks in use, which agree on the outcome. */
xd_status xd_weight_groups_find(xd_context *ctx, int vae, xd_err *e);

/* The same for the transformer of an engine of one rank, or its autoencoder (`vae`): those of the ranks that
 * `among` has in use, each of which calls with such an engine of its own. */
xd_status xd_weight_groups_whole(xd_context *ctx, xd_context *among, int vae, xd_err *e);

/* The messages of the above and of loading with the group, when `group` ranks of this host share component
 * i (0 the transformer, 1 the autoencoder): for an engine that stands for a rank and counts. */
xd_status xd_weight_groups_count(xd_context *ctx, const int group[2], xd_err *e);


/* Says on rank 0 which weights hold NaN or infinite numbers when only others have seen them.
 * Collective over the ranks in use. */
void      xd_weight_groups_nonfinite(const xd_context *ctx, const xd_component *p);


#endif
