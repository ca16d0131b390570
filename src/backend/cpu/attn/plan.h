/* plan.h - how an attention call is split into blocks, for all instruction sets
 *
 * Keys and values of a group of (batch, key head) pairs are packed into scratch and shared by all
 * query blocks of those pairs. Key blocks are cut from the global token order, depending only on
 * the number of keys, so nothing else affects the order of sums. */
#ifndef XD_BACKEND_CPU_ATTN_PLAN_H
#define XD_BACKEND_CPU_ATTN_PLAN_H

#include "backend/op_args.h"

enum {
    XD_ATTN_ROWS = 96,                  /* maximum queries of a block; multiple of 12         */
    XD_ATTN_KEYS = 384,                 /* maximum keys of a block; multiple of 64            */
    XD_ATTN_LDS = XD_ATTN_KEYS + 16,    /* floats between rows of scores                      */
    XD_ATTN_INT_KEYS = 768,             /* maximum keys of a block with 16-bit scores         */
    XD_ATTN_INT_LDS = XD_ATTN_INT_KEYS / 2 + 16,        /* units between rows of 16-bit scores    */
    XD_ATTN_INT_ROW = 8,                /* floats for the parameters of a row in int8.c       */
    XD_ATTN_TILE_ROWS = 512,            /* maximum queries of a block with AMX tiles;         */
    /* halved while their queries and accumulators exceed this many bytes. All keys and values are
     * read once for each block */
    XD_ATTN_TILE_BYTES = 512 << 10,
    XD_ATTN_TILE_KEYS = 64,
    XD_ATTN_STRIP = 32,                 /* a strip: queries of a tile multiply                */
    XD_ATTN_STEP_KEYS = 32,             /* keys in a step of a strip                          */
    XD_ATTN_PART = 8,                   /* steps of a part, whose values are multiplied together */
    /* size in floats of the workspace of amx.c */
    XD_ATTN_WORKSPACE = XD_ATTN_STRIP * XD_ATTN_STEP_KEYS * (XD_ATTN_PART / 2 + 4),
};

/* The properties of an instruction set that determine blocks and layouts. */
typedef struct xd_attn_form {
    int lanes;                  /* floats in a vector                                         */
    int pairs;                  /* 1: a unit is two bf16                                      */
    int tiles;                 /* 1: tile registers; keys and values are padded to full tiles     */
    int quads;                  /* 1: a unit of queries and keys is four int8                 */
} xd_attn_form;

typedef struct xd_attn_plan {
    int64_t B, n, H, D, Hk, m;  /* as in the arguments; m over all segments                   */
    int64_t rep;                /* query heads per key head                                   */
    int64_t rows, blocks;       /* queries in a block; blocks of one head                     */
    int64_t max_rows;           /* rows for which a thread's scratch has space                */
    int64_t keys, kblocks;      /* keys in a block; number of key blocks                      */
    int64_t du;         /* 4-byte units in a row of q or k: floats, pairs of bf16, or four int8 */
    int64_t ldq;                /* du rounded up to full vectors                              */
    int64_t kdu;                /* units of a packed key                                      */
    int64_t dp;                 /* floats in a row of value accumulators: D rounded up         */
    int64_t group;              /* pairs (batch, key head) packed at a time                   */
    int64_t kunits, vunits;     /* units in a packed block of keys; of values                 */
    /* Units from the keys of one block to the keys of the next. The values of a block are between
     * its keys and the keys of the next block; with tiles, all values follow the keys of all
     * blocks. */
    int64_t knext;
    int64_t lengths;        /* with tiles: offset of the largest key norms of blocks, in units */
    /* with quads: offset in units of the keys' scales in a key block, and of the means in a pair */
    int64_t scales, means;
    size_t  pair_bytes;         /* packed keys and values of one pair                         */
    size_t  q, s, o, ml;        /* offsets of the parts of a thread's scratch                 */
    size_t  thread_bytes;
    size_t  bytes;              /* all scratch: that of the threads, followed by the group    */
} xd_attn_plan;

/* The arguments must have passed xd_attn_check. */
void xd_attn_cut(xd_attn_plan *p, const xd_attn_args *a, int threads, const xd_attn_form *f);

/* Scratch bytes of a call; 0 for arguments that are rejected. */
size_t xd_attn_bytes(const xd_attn_args *a, int threads, const xd_attn_form *f);

/* Number of valid keys of batch b: kv_len[b], or m. */
int64_t xd_attn_len(const xd_attn_args *a, int64_t b, int64_t m);

/* The range [*lo, *hi) of keys among the first m that query i attends to. */
void xd_attn_range(const xd_attn_args *a, int64_t i, int64_t m, int64_t *lo, int64_t *hi);

/* Writes the addresses of rows j0 .. j0+n of key head h of batch b to k[] and v[]. */
void xd_attn_rows(const xd_attn_args *a, int64_t b, int64_t h, int64_t j0, int64_t n,
                  const char **k, const char **v);

/* Writes the addresses of query and output rows i0 .. i0+n of head h of batch b to q[] and out[];
 * either may be NULL. */
void xd_attn_queries(const xd_attn_args *a, int64_t b, int64_t h, int64_t i0, int64_t n,
                     const char **q, char **out);

#endif
