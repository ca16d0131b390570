/* weight_groups.h - one copy of the weights per host, shared by the ranks that need it
 *
 * A share group is the ranks of a host with the same stage and the same shard of a component. Each
 * of them packs a part of the weights into one block of shared memory, and all read all of it. */
#ifndef XD_PIPELINE_WEIGHT_GROUPS_H
#define XD_PIPELINE_WEIGHT_GROUPS_H

#include "pipeline/context.h"

/* The transformers (a model may lack the second one) and the VAE. */
enum { XD_SHARED_DIT, XD_SHARED_DIT2, XD_SHARED_VAE, XD_SHARED_PARTS };

/* Finds the group of this rank for components that are not loaded yet but counted and split into
 * stages. `vae`: this rank decodes. Collective over the ranks in use; all return the same
 * status. */
xd_status xd_weight_groups_find(xd_context *ctx, int vae, xd_err *e);

/* Finds the group for the transformer or the VAE (`vae`) of one-rank engines: the ranks in use of
 * `among`, each of which calls with its own one-rank engine. */
xd_status xd_weight_groups_whole(xd_context *ctx, xd_context *among, int vae, xd_err *e);

/* Counts the messages of the functions above and of loading in groups. group[i]: ranks of this host
 * that share part i. For a context that represents a rank and only counts. */
xd_status xd_weight_groups_count(xd_context *ctx, const int group[XD_SHARED_PARTS], xd_err *e);

/* Logs on rank 0 the names of weights with NaN or infinities if only other ranks have found them.
 * Collective over the ranks in use. */
void      xd_weight_groups_nonfinite(const xd_context *ctx, const xd_component *p);

#endif
