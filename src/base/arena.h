/* arena.h - bump memory of one lifetime.
 *
 * An arena hands out pieces of one block of memory that it does not own (a device does, see
 * backend/backend.h). Memory is freed by moving the mark back. A run that was counted first cannot
 * run out of memory here: the block has the size that the counting run needed.
 *
 * Pieces that outlive marks come from the end of the block (xd_arena_keep). */
#ifndef XD_BASE_ARENA_H
#define XD_BASE_ARENA_H

#include <stddef.h>

enum { XD_ALIGN = 64 };         /* bytes; every piece starts on a multiple                   */

typedef struct xd_arena {
    char  *base;                /* borrowed; while counting, not a valid address             */
    size_t cap, used, peak;     /* bytes; cap: without `kept`; peak: the most ever in use      */
    size_t kept;                /* bytes at the end of the block                               */
} xd_arena;

/* `base` is a multiple of XD_ALIGN and outlives the arena. */
void   xd_arena_init(xd_arena *a, void *base, size_t cap);
void  *xd_arena_get(xd_arena *a, size_t bytes);         /* NULL: it does not fit              */
size_t xd_arena_mark(const xd_arena *a);
void   xd_arena_rewind(xd_arena *a, size_t mark);       /* frees all that was got since the mark */
/* A piece that stays until xd_arena_let_go, which frees all such pieces; NULL: it does not fit. */
void  *xd_arena_keep(xd_arena *a, size_t bytes);
void   xd_arena_let_go(xd_arena *a);
size_t xd_arena_peak(const xd_arena *a);                /* with the bytes that are kept        */

#endif
