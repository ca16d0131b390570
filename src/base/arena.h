/* arena.h - declares a bump allocator for memory that is freed together.
 *
 * An arena allocates from one region of device memory (backend/backend.h). Rewinding an arena to a
 * mark frees everything that was allocated later. To find the size of the region, the same
 * computation first runs on a count device, which allocates no memory and computes nothing; the
 * arena of this run measures the peak. A region of the measured size is always large enough for the
 * real run.
 *
 * xd_arena_keep allocates from the end of the region; rewinding the arena does not free this
 * memory. */
#ifndef XD_BASE_ARENA_H
#define XD_BASE_ARENA_H

#include <stddef.h>

enum { XD_ALIGN = 64 }; /* every allocation starts at a multiple of this number of bytes */

typedef struct xd_arena {
    /* Start of the arena's memory region, which the arena does not own. On a count device, which
     * computes nothing, the address is not valid. */
    char  *base;
    /* Sizes in bytes. cap: size of the memory region without `kept`; used: bytes in use; peak:
     * largest value of `used` so far. */
    size_t cap, used, peak;
    size_t kept; /* bytes allocated by xd_arena_keep at the end of the memory region */
} xd_arena;

/* Initializes an arena in the `cap` bytes of memory at `base`. `base` must be a multiple of
 * XD_ALIGN, and the memory must outlive the arena. */
void   xd_arena_init(xd_arena *a, void *base, size_t cap);
void  *xd_arena_get(xd_arena *a, size_t bytes); /* returns NULL if the arena has no space left */
size_t xd_arena_mark(const xd_arena *a);
/* Frees all memory that was allocated after the position `mark`. */
void   xd_arena_rewind(xd_arena *a, size_t mark);
/* Allocates memory that xd_arena_rewind does not free; xd_arena_free_kept frees all memory of
 * xd_arena_keep. Returns NULL if the arena has no space left. */
void  *xd_arena_keep(xd_arena *a, size_t bytes);
void   xd_arena_free_kept(xd_arena *a);
/* Returns the peak in bytes, including the memory of xd_arena_keep. */
size_t xd_arena_peak(const xd_arena *a);

#endif
