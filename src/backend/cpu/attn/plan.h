/* plan.h - how an attention call is cut into blocks, for all instruction sets.
 *
 * Keys and values of a group of (batch, key head) pairs are packed into scratch and shared by all
 * query blocks of those pairs. Key blocks are cut from the global token order by the number of keys
 * alone, so nothing else decides the order of sums. */
#ifndef XD_BACKEND_CPU_ATTN_PLAN_H
#define XD_BACKEND_CPU_ATTN_PLAN_H

#include "backend/op_args.h"

enum {
    XD_ATTN_ROWS = 96,                  /* queries of a block, at most; multiple of 12        */
    XD_ATTN_KEYS = 384,                 /* keys of a block, at most; multiple of 64           */
    XD_ATTN_LDS = XD_ATTN_KEYS + 16,    /* floats from one row of scores to the next          */
    XD_ATTN_INT_KEYS = 768,             /* keys of a block where scores have 16 bits          */
    XD_ATTN_INT_LDS = XD_ATTN_INT_KEYS / 2 + 16,        /* units from one row of them to the next */
    XD_ATTN_INT_ROW = 8,                /* floats that int8.c knows of a row                  */
    XD_ATTN_TILE_ROWS = 512,            /* queries of a block on AMX tiles, at most;          */
    /* halved while their queries and sums exceed this. All keys and values are read once per
     * block */
    XD_ATTN_TILE_BYTES = 512 << 10,
    XD_ATTN_TILE_KEYS = 64,
    XD_ATTN_STRIP = 32,                 /* queries of a tile multiply: a strip                */
    XD_ATTN_STEP_KEYS = 32,             /* keys of a step of a strip                          */
    XD_ATTN_PART = 8,                   /* steps of a part: their values are summed together  */
    /* floats of the workspace of amx.c */
    XD_ATTN_WORKSPACE = XD_ATTN_STRIP * XD_ATTN_STEP_KEYS * (XD_ATTN_PART / 2 + 4),
};

/* Properties of an instruction set. */
typedef struct xd_attn_form {
    int lanes;                  /* floats of a vector                                         */
    int pairs;                  /* 1 when a unit is two bf16                                  */
    int tiles;                 /* 1 for tile registers: keys and values are padded to whole tiles */
    int quads;                  /* 1 when a unit of queries and keys is four int8             */
} xd_attn_form;

typedef struct xd_attn_plan {
    int64_t B, n, H, D, Hk, m;  /* of the arguments; m over all segments                      */
    int64_t rep;                /* query heads per key head                                   */
    int64_t rows, blocks;       /* queries of a block; blocks of one head                     */
    int64_t max_rows;           /* rows that the scratch of a thread has space for            */
    int64_t keys, kblocks;      /* keys of a block; key blocks                                */
    int64_t du;         /* 4-byte units of a row of q or k: floats, pairs of bf16, four int8  */
    int64_t ldq;                /* du rounded up to whole vectors                             */
    int64_t kdu;                /* units of a packed key                                      */
    int64_t dp;                 /* floats of a row of the output sum: D rounded up             */
    int64_t group;              /* pairs (batch, key head) packed at a time                   */
    int64_t kunits, vunits;     /* units of a packed key block                                */
    /* Units from the keys of one block to the keys of the next. The values of a block lie between
     * its keys and the keys of the next block; for tiles all values lie after the keys of all
     * blocks. */
    int64_t knext;
    int64_t lengths;            /* for tiles: units before the norms of the longest keys      */
    /* for quads: units of a key block before the scales of its keys; of a pair before the means */
    int64_t scales, means;
    size_t  pair_bytes;         /* packed keys and values of one pair                         */
    size_t  q, s, o, ml;        /* offsets in the scratch of a thread                         */
    size_t  thread_bytes;
    size_t  bytes;              /* all scratch: that of the threads, then the group           */
} xd_attn_plan;

/* The arguments must have passed xd_attn_check. */
void xd_attn_cut(xd_attn_plan *p, const xd_attn_args *a, int threads, const xd_attn_form *f);

/* Scratch bytes of a call; 0 for arguments that are refused. */
size_t xd_attn_bytes(const xd_attn_args *a, int threads, const xd_attn_form *f);

/* Keys that count for batch b: kv_len[b], or m. */
int64_t xd_attn_len(const xd_attn_args *a, int64_t b, int64_t m);

/* Keys [*lo, *hi) that query i may see among the first m. */
void xd_attn_range(const xd_attn_args *a, int64_t i, int64_t m, int64_t *lo, int64_t *hi);

/* Fills k[] and v[] with the addresses of rows j0 .. j0+n of key head h of batch b. */
void xd_attn_rows(const xd_attn_args *a, int64_t b, int64_t h, int64_t j0, int64_t n,
                  const char **k, const char **v);

/* Fills q[] and out[] with the addresses of the rows i0 .. i0+n of head h of batch b, of queries
 * and of outputs; either may be NULL. */
void xd_attn_queries(const xd_attn_args *a, int64_t b, int64_t h, int64_t i0, int64_t n,
                     const char **q, char **out);

#endif
