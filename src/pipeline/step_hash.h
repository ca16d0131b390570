/* step_hash.h - hashes the latents after each step, and the hidden state after each transformer
 * block, to find the first step and block in which two runs or two ranks differ.
 *
 * A hash of a tensor is the sum of the hashes of its tokens; the hash of a token depends on the
 * token's number and on the bits of its elements. Each rank sums the hashes of its own tokens.
 * Because the hash is a sum over tokens, two parallel plans that compute the same bits have the
 * same hashes, on any number of ranks. The hashes are gathered on all ranks of the replica after
 * each step. Ranks that compute the same tokens, as with tensor and CFG parallelism, must have
 * equal hashes. */
#ifndef XD_PIPELINE_STEP_HASH_H
#define XD_PIPELINE_STEP_HASH_H

#include "exec/exec.h"
#include "xdit/tools.h"

struct xd_denoise;
struct xd_job;

typedef struct xd_step_hashing {
    int           n;    /* number of hashes of a step; 0: the request has no determinism_check */
    xd_step_hash *mine; /* [n] hashes of this rank's tokens in the current step */
    xd_step_hash *all;  /* [ranks of the replica][n] hashes of all ranks, rank after rank */
    int64_t      *rows; /* [ranks of the replica] number of hashed tokens of each rank */
} xd_step_hashing;

/* Returns the number of hashes of a step: one hash of the latents and, if determinism_check is
 * "blocks", one hash of each block in each guidance pass. Returns 0 if the request does not set
 * determinism_check. */
int  xd_step_hash_count(const struct xd_job *j);
/* Allocates the memory of the hashes; errors are stored in f->x. */
void xd_step_hash_open(struct xd_denoise *f);
void xd_step_hash_close(struct xd_denoise *f);
/* Returns 1 if the hidden state is hashed after each block. */
int  xd_step_hash_of_blocks(const struct xd_denoise *f);
/* Adds the hash of the hidden state h, the output of block number `block`. */
void xd_step_hash_block(struct xd_denoise *f, int block, xd_tensor h);
/* Ends a step: hashes the latents, gathers the hashes of the step, and stores their sums in
 * j->hashes. If ranks that compute the same tokens have different hashes, xd_step_hash_end fails
 * with XD_EDEVICE on all ranks of the replica; the message names the step, the block and the rank.
 * The call is collective over the ranks of the replica. */
void xd_step_hash_end(struct xd_denoise *f, int step);

#endif
