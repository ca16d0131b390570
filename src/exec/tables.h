/* tables.h - caches tensors (tables) that are filled once and used in all steps of a request.
 *
 * Tables of positions and rotary angles depend only on the layout of the tokens. On a device whose
 * memory the host cannot address, filling a table costs a copy, so tables are kept between steps.
 * Tables are allocated at the end of the arena, so that their addresses do not change from step to
 * step. */
#ifndef XD_EXEC_TABLES_H
#define XD_EXEC_TABLES_H

#include "exec/exec.h"

/* Key by which the cache finds a table. A cached table is used again if the key, the shape and the
 * patch of tokens are equal. Members of the key that a table does not need are NULL. */
typedef struct xd_table_key {
    const void *of;                             /* weight or text on which the table depends */
    void        (*fill)(void *ctx, float *buf); /* function that writes the values of the table */
    /* cos or sin, if `fill` writes the cosines or sines of RoPE angles to the table. */
    double      (*fn)(double);
} xd_table_key;

typedef struct xd_table {
    xd_table_key key;
    int          patch;
    xd_tensor    t;
} xd_table;

struct xd_tables {
    xd_arena *a;
    xd_table *v;
    int       n, cap;
};

void xd_tables_open(xd_tables *s, xd_arena *a);
void xd_tables_close(xd_tables *s); /* frees the arena memory of all tables */
/* Sets *t to the table with the given key and shape. Returns 1 if the table is filled already, and
 * 0 if the caller must fill the table. The table's memory belongs to x->tables or, if x->tables is
 * NULL, to the arena. */
int  xd_table_find(xd_exec *x, const xd_table_key *key, xd_dtype type, const int64_t d[2],
                   xd_tensor *t);

#endif
