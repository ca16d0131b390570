/* arena.h - declares a bump allocator for pieces of memory that are freed together.
 *
 * An arena divides one block of device memory (backend/backend.h) into pieces. Pieces of an arena
 * are freed by rewinding it to a mark. To find the size of the block, the same computation first
 * runs on a count device, which allocates no memory and computes nothing; the arena of this run
 * measures the peak. A block of the measured size is always large enough for the real run.
 *
 * xd_arena_keep allocates from the end of the block; rewinding the arena does not free these
 * pieces. */
#ifndef XD_BASE_ARENA_H
#define XD_BASE_ARENA_H

#include <stddef.h>

enum { XD_ALIGN = 64 }; /* every piece starts at a multiple of this number of bytes */

typedef struct xd_arena {
    /* Start of the block, which the arena does not own. On a count device, the address is not
     * valid. */
    char  *base;
    /* Sizes in bytes. cap: size of the block without `kept`; used: bytes in use; peak: largest
     * value of `used` so far. */
    size_t cap, used, peak;
    size_t kept; /* bytes allocated by xd_arena_keep at the end of the block */
} xd_arena;

/* Initializes an arena on the block `base` of `cap` bytes. `base` is a multiple of XD_ALIGN, and
 * the block outlives the arena. */
void   xd_arena_init(xd_arena *a, void *base, size_t cap);
void  *xd_arena_get(xd_arena *a, size_t bytes); /* returns NULL if the block has no space left */
size_t xd_arena_mark(const xd_arena *a);
/* Frees the pieces allocated after `mark`. */
void   xd_arena_rewind(xd_arena *a, size_t mark);
/* Allocates a piece that xd_arena_rewind does not free; xd_arena_free_kept frees all pieces of
 * xd_arena_keep. Returns NULL if the block has no space left. */
void  *xd_arena_keep(xd_arena *a, size_t bytes);
void   xd_arena_free_kept(xd_arena *a);
/* Returns the peak in bytes, including the memory of xd_arena_keep. */
size_t xd_arena_peak(const xd_arena *a);

#endif
