/* component_prefetch.c - readahead of a component's files while cores or disk are idle
 *
 * The disk is idle while a text encoder computes. While matrices are packed, the packing
 * waits for the disk: tensors are mapped one by one, and the system reads a large one only
 * window by window. */

#include "model/component.h"

#include <stdlib.h>

#include "model/component.h"

void xd_component_will_read(void *self, const char *name, int64_t first, int64_t n)
{
    xd_component *p = self;
    int64_t  i = xd_st_find(p->files, name);
    if (i < 0 || !p->reader)
        return;
    size_t at, one = xd_dtype_size(xd_st_shape(p->files, i).type);
    int    fd = xd_st_place(p->files, i, &at);
    xd_readahead_add(p->reader, fd, at + (size_t)first * one, (size_t)n * one);
    p->upto[i] = xd_readahead_bytes(p->reader);
}

/* The ranks of a group read their parts of the list in parallel. What this rank has read of the
 * first part stands for an equal amount of each part. */
void xd_component_was_read(const xd_component *p, int64_t i)
{
    if (p->reader)
        xd_readahead_used(p->reader, p->upto[i] * (size_t)(p->shared ? p->group.c->size : 1));
}

/* 0: there is no memory. */
static int open_readahead(xd_component *p, size_t max_bytes, const atomic_int *cancel)
{
    p->upto = calloc((size_t)xd_st_count(p->files) + 1, sizeof *p->upto);
    if (p->upto && (p->reader = xd_readahead_open(max_bytes, cancel)))
        return 1;
    xd_component_prefetch_end(p);
    return 0;
}

void xd_component_prefetch(xd_component *p, xd_dev *count, xd_dtype type, size_t max_bytes,
                           const atomic_int *cancel)
{
    if (p->store || p->reader || !p->files || (p->group.c && p->group.c->rank) ||
        max_bytes < XD_PREFETCH_LEAST || xd_st_bytes(p->files) < XD_PREFETCH_LEAST)
        return;
    if (!open_readahead(p, max_bytes, cancel))
        return;
    xd_component_list_reads(p, count, type);
    xd_readahead_start(p->reader);
}

size_t xd_component_cold_bytes(xd_component *p, xd_dev *count, xd_dtype type)
{
    if (p->store || p->reader || !p->files || !open_readahead(p, 0, NULL))
        return 0;
    xd_component_list_reads(p, count, type);
    size_t cold = xd_readahead_cold_bytes(p->reader);
    xd_component_prefetch_end(p);
    return cold;
}

void xd_component_prefetch_end(xd_component *p)
{
    xd_readahead_close(&p->reader);
    free(p->upto);
    p->upto = NULL;
}
