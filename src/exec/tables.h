/* tables.h - tensors that are filled once and serve all steps of a request
 *
 * Positions and rotary angles depend on the tokens alone. On a device whose memory the host cannot
 * reach, filling them costs a copy through host memory, so they are kept. They lie at the end of
 * the arena, at the same address in every step. */
#ifndef XD_EXEC_TABLES_H
#define XD_EXEC_TABLES_H

#include "exec/exec.h"

/* What a table holds, beside its shape and the patch of its tokens. Unused members are NULL. */
typedef struct xd_table_key {
    const void *of;                             /* a weight or a text that it is about          */
    void      (*fill)(void *ctx, float *buf);   /* what fills it                               */
    double    (*fn)(double);                    /* a function that `fill` takes                */
} xd_table_key;

typedef struct xd_table { xd_table_key key; int patch; xd_tensor t; } xd_table;

struct xd_tables {
    xd_arena *a;
    xd_table *v;
    int       n, cap;
};

void xd_tables_open(xd_tables *s, xd_arena *a);
void xd_tables_close(xd_tables *s);     /* gives the memory back to the arena                   */
/* The tensor *t of `rows` x `cols` for a key. Returns 1 if it is filled. 0: the caller fills it; it
 * is new, and belongs to the tables or, where x has none, to the arena. */
int  xd_table_find(xd_exec *x, const xd_table_key *key, xd_dtype type, const int64_t d[2],
                   xd_tensor *t);

#endif
