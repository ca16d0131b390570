/* plan.h - describes how an attention call is split into blocks, for all instruction sets
 *
 * The files of this directory use these words. A unit is 32 bits of a query, key or value row: one
 * float, two bf16 or four int8. A block of queries is processed against one key block after the
 * other. A pair is a key head of one batch (sample). A strip, with AMX tiles, is the 32 queries of
 * a block that are multiplied together. A step is the keys whose scores become probabilities
 * together. A part, with AMX tiles, is 8 steps, whose values are multiplied together.
 *
 * The keys and values of a group of pairs are packed into scratch memory, which all query blocks of
 * those pairs read. The keys of all segments are split into blocks in the order of tokens, and the
 * split depends only on the number of keys. Nothing else affects the order in which products are
 * added. */
#ifndef XD_BACKEND_CPU_ATTN_PLAN_H
#define XD_BACKEND_CPU_ATTN_PLAN_H

#include "backend/op_args.h"

enum {
    XD_ATTN_ROWS = 96,                  /* maximum queries of a block; multiple of 12         */
    XD_ATTN_KEYS = 384,                 /* maximum keys of a block; multiple of 64            */
    XD_ATTN_LDS = XD_ATTN_KEYS + 16, /* floats from the start of a row of scores to the next row */
    XD_ATTN_INT_KEYS = 768,             /* maximum keys of a block with 16-bit scores         */
    /* 32-bit words from the start of one row of 16-bit scores to the next row */
    XD_ATTN_INT_LDS = XD_ATTN_INT_KEYS / 2 + 16,
    XD_ATTN_INT_ROW = 8,                /* floats for the parameters of a query row in int8.c */
    XD_ATTN_TILE_ROWS = 512,            /* maximum queries of a block with AMX tiles          */
    /* With AMX tiles, the size of a block of queries is halved while the queries and accumulators
     * of the block exceed this many bytes. All keys and values are read once for each block of
     * queries. */
    XD_ATTN_TILE_BYTES = 512 << 10,
    XD_ATTN_TILE_KEYS = 64,
    XD_ATTN_STRIP = 32,         /* queries of a strip, which are multiplied together in AMX tiles */
    XD_ATTN_STEP_KEYS = 32,             /* keys in a step of the softmax                      */
    /* number of softmax steps (a part) whose probabilities are multiplied by the values together */
    XD_ATTN_PART = 8,
    /* number of floats in the workspace of amx.c */
    XD_ATTN_WORKSPACE = XD_ATTN_STRIP * XD_ATTN_STEP_KEYS * (XD_ATTN_PART / 2 + 4),
};

/* The properties of an instruction set that determine the sizes of blocks and the packed
 * layouts. */
typedef struct xd_attn_form {
    int lanes;                  /* number of floats in a vector                               */
    int pairs;                  /* 1: a 32-bit unit is two bf16                               */
    int tiles;                 /* 1: uses AMX tiles; keys and values are padded to full tiles     */
    int quads;                  /* 1: a 32-bit unit of queries and keys is four int8          */
} xd_attn_form;

typedef struct xd_attn_plan {
    /* dimensions as in xd_attn_args; m is the number of keys in all segments */
    int64_t B, n, H, D, Hk, m;
    int64_t rep;                /* number of query heads for each key head                    */
    int64_t rows, blocks;       /* queries in a block; number of query blocks of a head       */
    int64_t max_rows;        /* maximum queries of a block for which a thread's scratch has space */
    int64_t keys, kblocks;      /* keys in a block; number of key blocks                      */
    int64_t du;         /* 32-bit units in a row of q or k: floats, pairs of bf16, or four int8 */
    int64_t ldq;                /* `du` rounded up to vectors: units of a packed query row    */
    int64_t kdu;                /* 32-bit units of a packed key                               */
    int64_t dp;                 /* floats in a row of value accumulators: D rounded up         */
    int64_t group;              /* number of (batch, key head) pairs that are packed at a time */
    int64_t kunits, vunits;     /* 32-bit units in a packed block of keys; of values            */
    /* Number of 32-bit units from the first key of one key block to the first key of the next key
     * block. The values of a block are stored between its keys and the keys of the next block; with
     * tiles, all values follow the keys of all blocks. */
    int64_t knext;
    /* with AMX tiles: offset, in 32-bit units, of the largest key norm of each key block */
    int64_t lengths;
    /* with quads (four int8 a unit): offset, in 32-bit units, of the keys' scales in a key block,
     * and of the keys' means in the data of a (batch, key head) pair */
    int64_t scales, means;
    size_t  pair_bytes; /* bytes of the packed keys and values of one (batch, key head) pair */
    /* offsets in a thread's scratch of the queries, the scores, the accumulators, and the maxima
     * and sums of rows */
    size_t  q, s, o, ml;
    size_t  thread_bytes;
    /* bytes of all scratch memory: the scratch of each thread, then the packed keys and values of a
     * group of pairs */
    size_t  bytes;
} xd_attn_plan;

/* Splits an attention call into blocks. The arguments must have passed xd_attn_check. */
void xd_attn_cut(xd_attn_plan *p, const xd_attn_args *a, int threads, const xd_attn_form *f);

/* Returns the scratch bytes of an attention call; 0 for arguments that are rejected. */
size_t xd_attn_bytes(const xd_attn_args *a, int threads, const xd_attn_form *f);

/* Returns the number of valid keys of sample b, which is kv_len[b], or m if kv_len is absent. */
int64_t xd_attn_len(const xd_attn_args *a, int64_t b, int64_t m);

/* Sets [*lo, *hi) to the range of keys among the first m that query i attends to. */
void xd_attn_range(const xd_attn_args *a, int64_t i, int64_t m, int64_t *lo, int64_t *hi);

/* Writes the addresses of n keys and values of key head h of sample b, from key j0 on, to k[] and
 * v[]. */
void xd_attn_rows(const xd_attn_args *a, int64_t b, int64_t h, int64_t j0, int64_t n,
                  const char **k, const char **v);

/* For n rows of head h of sample b, from row i0 on, writes the addresses of the queries to q[] and
 * the addresses of the output rows to out[]. q or out may be NULL. */
void xd_attn_queries(const xd_attn_args *a, int64_t b, int64_t h, int64_t i0, int64_t n,
                     const char **q, char **out);

#endif
