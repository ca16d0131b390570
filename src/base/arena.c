/* arena.c - implements a bump allocator, which divides a block of memory into pieces */
#include "base/arena.h"

void xd_arena_init(xd_arena *a, void *base, size_t cap)
{
    *a = (xd_arena){ .base = base, .cap = cap };
}

void *xd_arena_get(xd_arena *a, size_t bytes)
{
    size_t at = (a->used + XD_ALIGN - 1) / XD_ALIGN * XD_ALIGN;
    if (at > a->cap || bytes > a->cap - at)
        return NULL;
    a->used = at + bytes;
    if (a->used > a->peak)
        a->peak = a->used;
    return a->base + at;
}

size_t xd_arena_mark(const xd_arena *a)
{
    return a->used;
}

void xd_arena_rewind(xd_arena *a, size_t mark)
{
    a->used = mark;
}

void *xd_arena_keep(xd_arena *a, size_t bytes)
{
    size_t end = a->cap / XD_ALIGN * XD_ALIGN, size = (bytes + XD_ALIGN - 1) / XD_ALIGN * XD_ALIGN;
    if (size < bytes || end < a->used || size > end - a->used)
        return NULL;
    a->kept += a->cap - (end - size);
    a->cap = end - size;
    return a->base + a->cap;
}

void xd_arena_free_kept(xd_arena *a)
{
    a->cap += a->kept;
    a->kept = 0;
}

size_t xd_arena_peak(const xd_arena *a)
{
    return a->peak + a->kept;
}
