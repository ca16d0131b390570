/* tables.h - tensors that are filled once and used in all steps of a request
 *
 * Positions and rotary angles depend only on the tokens. On a device whose memory the host cannot
 * address, filling them costs a copy through host memory, so they are kept. They are at the end of
 * the arena, at the same address in every step. */
#ifndef XD_EXEC_TABLES_H
#define XD_EXEC_TABLES_H

#include "exec/exec.h"

/* Identifies a table, together with its shape and the patch of its tokens. Unused members: NULL. */
typedef struct xd_table_key {
    const void *of;                             /* the weight or text that it depends on        */
    void      (*fill)(void *ctx, float *buf);   /* function that fills it                      */
    double    (*fn)(double);                    /* function that `fill` uses                   */
} xd_table_key;

typedef struct xd_table { xd_table_key key; int patch; xd_tensor t; } xd_table;

struct xd_tables {
    xd_arena *a;
    xd_table *v;
    int       n, cap;
};

void xd_tables_open(xd_tables *s, xd_arena *a);
void xd_tables_close(xd_tables *s);     /* frees the arena memory                               */
/* Finds the tensor *t of `rows` x `cols` for a key. Returns 1 if it is filled already. Returns 0 if
 * the caller must fill it; it belongs to the tables or, if x has none, to the arena. */
int  xd_table_find(xd_exec *x, const xd_table_key *key, xd_dtype type, const int64_t d[2],
                   xd_tensor *t);

#endif
