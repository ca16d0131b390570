/* component_prefetch.c - reads a component's files ahead while cores or the disk are idle.
 *
 * The disk is idle while a text encoder computes. Loading without readahead waits for the disk,
 * because tensors are mapped one after the other, and the operating system reads only a small part
 * of a large tensor ahead. */

#include "model/component.h"

#include <stdlib.h>

void xd_component_will_read(void *self, const char *name, int64_t first, int64_t n)
{
    xd_component *p = self;
    int64_t       i = xd_st_find(p->files, name);
    if (i < 0 || !p->w->reader)
        return;
    xd_tensor stored = xd_st_shape(p->files, i);
    int64_t   all = xd_count(xd_quantized_shape(p->quantized, p->files, i));
    if (all != xd_count(stored)) { /* a stored element has several codes */
        first = first * xd_count(stored) / all;
        n = (n * xd_count(stored) + all - 1) / all;
    }
    size_t at, skip = xd_dtype_bytes(stored.type, first);
    int    fd = xd_st_place(p->files, i, &at);
    xd_readahead_add(p->w->reader, fd, at + skip, xd_dtype_bytes(stored.type, first + n) - skip);
    p->w->upto[i] = xd_readahead_bytes(p->w->reader);
}

/* The ranks of a share group read their parts of the list in parallel. This function assumes that
 * each of the other ranks has read as many bytes of its own part as this rank. */
void xd_component_was_read(const xd_component *p, int64_t i)
{
    if (p->w->reader)
        xd_readahead_used(p->w->reader,
                          p->w->upto[i] * (size_t)(p->w->shared ? p->w->group.c->size : 1));
}

/* Opens the readahead, and allocates the list of the tensors' positions in the data that are read
 * ahead. Returns 0 if out of memory. */
static int open_readahead(xd_component *p, size_t max_bytes, const xd_canceller *cancel)
{
    p->w->upto = calloc((size_t)xd_st_count(p->files) + 1, sizeof *p->w->upto);
    if (p->w->upto && (p->w->reader = xd_readahead_open(max_bytes, cancel)))
        return 1;
    xd_component_prefetch_end(p);
    return 0;
}

void xd_component_prefetch(xd_component *p, xd_dev *count, xd_dtype type, size_t max_bytes,
                           const xd_canceller *cancel)
{
    if (p->w->store || p->w->reader || !p->files || p->w->stream.streamed ||
        (p->w->group.c && p->w->group.c->rank) || max_bytes < XD_PREFETCH_MIN ||
        xd_st_bytes(p->files) < XD_PREFETCH_MIN)
        return;
    if (!open_readahead(p, max_bytes, cancel))
        return;
    xd_component_list_reads(p, count, type);
    xd_readahead_start(p->w->reader);
}

size_t xd_component_cold_bytes(xd_component *p, xd_dev *count, xd_dtype type)
{
    if (p->w->store || p->w->reader || !p->files || !open_readahead(p, 0, NULL))
        return 0;
    xd_component_list_reads(p, count, type);
    size_t cold = xd_readahead_cold_bytes(p->w->reader);
    xd_component_prefetch_end(p);
    return cold;
}

void xd_component_prefetch_end(xd_component *p)
{
    if (!p->w)
        return;
    xd_readahead_close(&p->w->reader);
    free(p->w->upto);
    p->w->upto = NULL;
}

/* ---- streamed blocks ---------------------------------------------------------------------- */

/* Lists the tensors of all streamed blocks, then again those of the first streamed block, which the
 * next step reads first. */
static void list_streamed(xd_component *p, xd_dev *dev, xd_dtype type)
{
    int n = p->w->net.last - p->w->net.first, first = -1, k = 0;
    for (int i = 0; i < n; i++) {
        if (!xd_stream_plan_has(&p->w->stream, n, i))
            continue;
        first = first < 0 ? i : first;
        xd_component_list_block(p, dev, type, i);
        p->w->ahead_upto[k++] = xd_readahead_bytes(p->w->reader);
    }
    if (first >= 0)
        xd_component_list_block(p, dev, type, first);
}

void xd_component_stream_open(xd_component *p, xd_dev *dev, xd_dtype type)
{
    xd_weights *w = p->w;
    size_t      window = w->stream.slot * (size_t)w->stream.slots;
    if (w->ahead || !(w->ahead_upto = calloc((size_t)w->stream.streamed, sizeof *w->ahead_upto)) ||
        !open_readahead(p, window, NULL))
        return;
    list_streamed(p, dev, type);
    w->ahead = w->reader;
    w->reader = NULL;
    xd_component_prefetch_end(p);
}

void xd_component_stream_next(void *self, int k)
{
    const xd_weights *w = self;
    if (w->ahead && k == 0)
        xd_readahead_again(w->ahead);
    else if (w->ahead)
        xd_readahead_used(w->ahead, w->ahead_upto[k - 1]);
}

void xd_component_stream_close(xd_component *p)
{
    xd_readahead_close(&p->w->ahead);
    free(p->w->ahead_upto);
    p->w->ahead_upto = NULL;
}
