/* plan.h - describes how an attention call is split into blocks, for all instruction sets.
 *
 * The files of src/backend/cpu/attn use the words unit, block, pair, step, strip and part. A unit
 * is 32 bits of a row of queries, keys or values: one float, two bf16 or four int8. A block is a
 * group of consecutive queries or keys; a block of queries is multiplied by one key block after the
 * other. In attention, a pair is a sample of the batch together with one of its key heads. A step
 * is a group of keys whose scores become probabilities together. The words strip and part are used
 * only with AMX tiles: a strip is 32 queries of a block that are multiplied together, and a part is
 * 8 steps of keys whose values are multiplied together.
 *
 * The keys and values of a group of pairs are packed into scratch memory, which all query blocks of
 * those pairs read. The keys of all segments are split into blocks in the order of tokens. The
 * split of the keys into blocks, and therefore the order in which products are added, depends only
 * on the number of keys. */
#ifndef XD_BACKEND_CPU_ATTN_PLAN_H
#define XD_BACKEND_CPU_ATTN_PLAN_H

#include "backend/op_args.h"

enum {
    XD_ATTN_ROWS = 96,               /* maximum number of queries in a block, a multiple of 12 */
    XD_ATTN_KEYS = 384,              /* maximum number of keys in a block, a multiple of 64 */
    XD_ATTN_LDS = XD_ATTN_KEYS + 16, /* floats from the start of a row of scores to the next row */
    /* maximum number of keys in a block whose scores have 16 bits */
    XD_ATTN_INT_KEYS = 768,
    /* 32-bit words from the start of one row of 16-bit scores to the next row */
    XD_ATTN_INT_LDS = XD_ATTN_INT_KEYS / 2 + 16,
    XD_ATTN_INT_ROW = 8,     /* number of floats reserved for a struct `query` of int8.c */
    XD_ATTN_TILE_ROWS = 512, /* maximum number of queries in a block with AMX tiles */
    /* With AMX tiles, the size of a block of queries is halved until the queries and accumulators
     * of the block fit into this many bytes. For each block of queries, all keys and values are
     * read once, so large blocks are better. */
    XD_ATTN_TILE_BYTES = 512 << 10,
    XD_ATTN_TILE_KEYS = 64,
    /* number of queries in a strip, which are multiplied together in AMX tiles */
    XD_ATTN_STRIP = 32,
    XD_ATTN_STEP_KEYS = 32, /* number of keys in a step of the softmax */
    /* number of steps of the softmax whose probabilities are multiplied by the values together */
    XD_ATTN_PART = 8,
    /* number of floats in the workspace of amx.c */
    XD_ATTN_WORKSPACE = XD_ATTN_STRIP * XD_ATTN_STEP_KEYS * (XD_ATTN_PART / 2 + 4),
};

/* Properties of an instruction set that determine the sizes of blocks of queries and keys and the
 * layouts of packed data. */
typedef struct xd_attn_form {
    int lanes; /* number of floats in a vector */
    int pairs; /* 1: a 32-bit unit is two bf16 */
    int tiles; /* 1: uses AMX tiles; keys and values are padded to full tiles */
    int quads; /* 1: a 32-bit unit of queries and keys is four int8 */
} xd_attn_form;

typedef struct xd_attn_plan {
    /* extents of the tensors of xd_attn_args; m is the number of keys in all segments together */
    int64_t B, n, H, D, Hk, m;
    int64_t rep;          /* number of query heads for each key head */
    int64_t rows, blocks; /* number of queries in a block; number of such blocks of a head */
    /* maximum number of queries in a block, for which the scratch memory of a thread suffices */
    int64_t max_rows;
    int64_t keys, kblocks; /* number of keys in a block; number of such blocks */
    /* number of 32-bit units in a row of queries or keys, each one float, two bf16 or four int8 */
    int64_t du;
    /* number of 32-bit units in a packed query row: `du` rounded up to full vectors */
    int64_t ldq;
    int64_t kdu; /* number of 32-bit units of a packed key */
    /* number of floats in a row of value accumulators: D rounded up to full vectors */
    int64_t dp;
    int64_t group;          /* number of (batch, key head) pairs that are packed together */
    int64_t kunits, vunits; /* 32-bit units in a packed block of keys, and of values */
    /* Number of 32-bit units from the first key of one key block to the first key of the next key
     * block. Without AMX tiles, the values of a block are stored between its keys and the keys of
     * the next block. With AMX tiles, the values of all blocks follow the keys of all blocks. */
    int64_t knext;
    /* offset, in 32-bit units, of an array with the largest norm of a key in each key block; only
     * with AMX tiles */
    int64_t lengths;
    /* Two offsets in 32-bit units that are used only for int8 scores. `scales` is the offset from
     * the start of a key block to the scales of its keys. `means` is the offset from the start of a
     * (batch, key head) pair to the mean of its keys. */
    int64_t scales, means;
    size_t  pair_bytes; /* bytes of the packed keys and values of one (batch, key head) pair */
    /* Offsets in a thread's scratch memory: of the queries (q), of the scores (s), of the
     * accumulators (o), and of the maxima and sums of the rows (ml). */
    size_t  q, s, o, ml;
    size_t  thread_bytes;
    /* bytes of all scratch memory: the scratch of each thread, then the packed keys and values of a
     * group of pairs */
    size_t  bytes;
} xd_attn_plan;

/* Splits an attention call into blocks. The caller must have checked the arguments with
 * xd_attn_check. */
void xd_attn_cut(xd_attn_plan *p, const xd_attn_args *a, int threads, const xd_attn_form *f);

/* Returns the scratch bytes of an attention call, or 0 if xd_attn_check rejects the arguments. */
size_t xd_attn_bytes(const xd_attn_args *a, int threads, const xd_attn_form *f);

/* Returns the number of valid keys of sample b, which is kv_len[b], or m if kv_len is absent. */
int64_t xd_attn_len(const xd_attn_args *a, int64_t b, int64_t m);

/* Sets [*lo, *hi) to the range of keys among the first m that query i attends to. */
void xd_attn_range(const xd_attn_args *a, int64_t i, int64_t m, int64_t *lo, int64_t *hi);

/* Writes the addresses of n keys and values of key head h of sample b, from key j0 on, to k[] and
 * v[]. */
void xd_attn_rows(const xd_attn_args *a, int64_t b, int64_t h, int64_t j0, int64_t n,
                  const char **k, const char **v);

/* For n queries of head h of sample b, from query i0 on, writes the addresses of the queries to q[]
 * and the addresses of their output rows to out[]. q or out may be NULL. */
void xd_attn_queries(const xd_attn_args *a, int64_t b, int64_t h, int64_t i0, int64_t n,
                     const char **q, char **out);

#endif
