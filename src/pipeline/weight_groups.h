/* weight_groups.h - groups of ranks on one host that share one copy of a component's weights.
 *
 * A share group is the ranks of a host with the same stage and the same shard of a component. Each
 * rank of a share group packs a part of the weights into one block of shared memory, and all its
 * ranks compute with the complete block. */
#ifndef XD_PIPELINE_WEIGHT_GROUPS_H
#define XD_PIPELINE_WEIGHT_GROUPS_H

#include "pipeline/context.h"

/* The components whose weights ranks share, numbered as by xd_model_part: the transformer, the
 * second transformer (of some models), and the VAE. */
enum { XD_SHARED_DIT, XD_SHARED_DIT2, XD_SHARED_VAE, XD_SHARED_PARTS };

/* Finds this rank's share group for each component that is not loaded yet. Before the call, the
 * components must be counted and split into stages. `vae` is 1 if this rank decodes. Collective
 * over the ranks in use; all ranks return the same status. */
xd_status xd_weight_groups_find(xd_context *ctx, int vae, xd_err *e);

/* Finds the share group for the transformer, or for the VAE (`vae` 1), of one-rank engines. Each
 * used rank of `among` calls this function with the context `ctx` of its own one-rank engine. */
xd_status xd_weight_groups_whole(xd_context *ctx, xd_context *among, int vae, xd_err *e);

/* Counts the messages for finding share groups and for loading weights in them. group[i] is the
 * number of ranks of this host that share component i (XD_SHARED_DIT ...). `ctx` is a context that
 * only counts and represents one rank. */
xd_status xd_weight_groups_count(xd_context *ctx, const int group[XD_SHARED_PARTS], xd_err *e);

/* Logs on rank 0 the names of weights with NaN or infinities that only other ranks have found.
 * Collective over the ranks in use. */
void      xd_weight_groups_nonfinite(const xd_context *ctx, const xd_component *p);

#endif
