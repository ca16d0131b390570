/* weight_groups.h - finds groups of ranks on one host that share one copy of a component's weights.
 *
 * A share group consists of those ranks of a host that compute the same pipeline stage with the
 * same shard of a component. Each rank of a share group reads some of the weights and writes them,
 * in the layout of the kernels, to shared memory. All ranks of the share group compute with the
 * complete weights in shared memory. */
#ifndef XD_PIPELINE_WEIGHT_GROUPS_H
#define XD_PIPELINE_WEIGHT_GROUPS_H

#include "pipeline/context.h"

/* Numbers of the components whose weights ranks share: the transformer, the second transformer of
 * some models, and the VAE. xd_model_part uses the same numbers. */
enum { XD_SHARED_DIT, XD_SHARED_DIT2, XD_SHARED_VAE, XD_SHARED_PARTS };

/* Finds the group of ranks with which this rank shares weights (its share group), for each
 * component that is not loaded yet. Before xd_weight_groups_find, the components must be counted
 * and split into stages. `vae` is 1 if this rank decodes images. The call is collective over the
 * ranks in use, which all return the same status. */
xd_status xd_weight_groups_find(xd_context *ctx, int vae, xd_err *e);

/* For one-rank engines that run at the same time: finds the share group of their transformer or, if
 * `vae` is 1, of their VAE. Each of the ranks that the context `among` uses must call
 * xd_weight_groups_whole with the context `ctx` of its own one-rank engine. */
xd_status xd_weight_groups_whole(xd_context *ctx, xd_context *among, int vae, xd_err *e);

/* If rank 0 has found no NaN or infinite weights but other ranks have, rank 0 logs the name of the
 * weight that the lowest of these ranks has found. The call is collective over the ranks in use. */
void xd_weight_groups_nonfinite(const xd_context *ctx, const xd_component *p);

#endif
