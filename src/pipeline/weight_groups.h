/* weight_groups.h - one copy of weights per host, shared by the ranks that need it
 *
 * A share group consists of the ranks of a host with the same stage and the same share of a
 * component. Each of them packs a part of the weights into one block of shared memory, and all
 * read the whole. */
#ifndef XD_PIPELINE_WEIGHT_GROUPS_H
#define XD_PIPELINE_WEIGHT_GROUPS_H

#include "pipeline/context.h"

/* Both transformers, the second of which a model may lack, and the VAE. */
enum { XD_SHARED_DIT, XD_SHARED_DIT2, XD_SHARED_VAE, XD_SHARED_PARTS };

/* Finds the group of this rank for components that are not loaded yet. The components are
 * counted and cut into stages. `vae`: this rank decodes. Collective over the ranks in use, which
 * agree on the outcome. */
xd_status xd_weight_groups_find(xd_context *ctx, int vae, xd_err *e);

/* Finds the group for the transformer, or the VAE (`vae`), of an engine of one rank: the ranks in
 * use of `among`, each of which calls with its own one-rank engine. */
xd_status xd_weight_groups_whole(xd_context *ctx, xd_context *among, int vae, xd_err *e);

/* Counts the messages of the functions above and of loading in groups. group[i] ranks of this
 * host share part i. For a context that stands for a rank and counts. */
xd_status xd_weight_groups_count(xd_context *ctx, const int group[XD_SHARED_PARTS], xd_err *e);

/* Logs on rank 0 which weights hold NaN or infinities if only other ranks have seen them.
 * Collective over the ranks in use. */
void      xd_weight_groups_nonfinite(const xd_context *ctx, const xd_component *p);

#endif
