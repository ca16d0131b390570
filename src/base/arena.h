/* arena.h - bump allocator for allocations that are freed together.
 *
 * An arena allocates pieces of one block of memory, which a device owns (backend/backend.h). Pieces
 * are freed by rewinding to a mark. The count device first runs the same code without computing and
 * measures the arena's peak; a block of that size cannot run out during the real run.
 *
 * xd_arena_keep allocates from the end of the block; these pieces survive a rewind. */
#ifndef XD_BASE_ARENA_H
#define XD_BASE_ARENA_H

#include <stddef.h>

enum { XD_ALIGN = 64 };         /* bytes; every piece starts on a multiple                   */

typedef struct xd_arena {
    char  *base;                /* borrowed; while counting, not a valid address             */
    size_t cap, used, peak;     /* bytes; cap: without `kept`; peak: the maximum of `used`     */
    size_t kept;                /* bytes at the end of the block, from xd_arena_keep           */
} xd_arena;

/* `base` is a multiple of XD_ALIGN and outlives the arena. */
void   xd_arena_init(xd_arena *a, void *base, size_t cap);
void  *xd_arena_get(xd_arena *a, size_t bytes);         /* NULL: it does not fit              */
size_t xd_arena_mark(const xd_arena *a);
void   xd_arena_rewind(xd_arena *a, size_t mark);       /* frees all pieces since the mark       */
/* Allocates a piece that stays until xd_arena_free_kept, which frees all such pieces. NULL: it does
 * not fit. */
void  *xd_arena_keep(xd_arena *a, size_t bytes);
void   xd_arena_free_kept(xd_arena *a);
size_t xd_arena_peak(const xd_arena *a);                /* peak bytes, including kept ones     */

#endif
