/* step_hash.h - hashes the latents after each step, and the hidden state after each transformer
 * block, to find the first step and block in which two runs or two ranks differ.
 *
 * A hash is a sum over rows, that is over tokens: each rank adds the hashes of its own rows, and
 * the hash of a row depends on the number of the token and on the bits of its elements. Therefore a
 * plan that computes the same bits has the same hashes, on any number of ranks. The sums are
 * gathered on all ranks of the replica after each step. Ranks that compute the same rows, along the
 * axes of tensor and CFG parallelism, must have equal hashes. */
#ifndef XD_PIPELINE_STEP_HASH_H
#define XD_PIPELINE_STEP_HASH_H

#include "exec/exec.h"
#include "xdit/tools.h"

struct xd_denoise;
struct xd_job;

typedef struct xd_step_hashing {
    int           n;    /* number of hashes of a step; 0: the request has no determinism_check */
    xd_step_hash *mine; /* [n] hashes of this rank's rows in the current step */
    xd_step_hash *all;  /* [ranks of the replica][n] hashes of all ranks, rank after rank */
    int64_t      *rows; /* [ranks of the replica] n for each rank */
} xd_step_hashing;

/* Returns the number of hashes of a step: one of the latents, and one of each block in each
 * guidance pass if determinism_check is "blocks". 0: the request has no determinism_check. */
int  xd_step_hash_count(const struct xd_job *j);
/* Allocates the memory of the hashes; errors are stored in f->x. */
void xd_step_hash_open(struct xd_denoise *f);
void xd_step_hash_close(struct xd_denoise *f);
/* Returns 1 if the hidden state is hashed after each block. */
int  xd_step_hash_of_blocks(const struct xd_denoise *f);
/* Adds the hash of the hidden state h after a block. */
void xd_step_hash_block(struct xd_denoise *f, int block, xd_tensor h);
/* Ends a step: hashes the latents, gathers the hashes of the step, and stores their sums in
 * j->hashes. Fails with XD_EDEVICE on all ranks of the replica if ranks differ that compute the
 * same rows; the message names the step, the block and the rank. Collective over the replica. */
void xd_step_hash_end(struct xd_denoise *f, int step);

#endif
