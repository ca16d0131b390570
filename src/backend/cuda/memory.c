/* memory.c - allocates device memory, and copies between host and device through pinned host memory
 *
 * A copy of at most XD_CUDA_SLOT bytes uses a slot of a ring of pinned memory, and does not wait if
 * a slot is free. Larger copies use the staging buffers in turn: while the host fills one buffer,
 * the GPU copies the contents of others. A thread holds the buffer that it fills, and several
 * threads fill buffers at the same time. */
#include "backend/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/load.h"

/* ---- blocks ------------------------------------------------------------------------------- */

static int note_block(xd_cuda_dev *c, char *p, size_t bytes)
{
    if (c->nblocks == c->most_blocks) {
        size_t         most = c->most_blocks ? 2 * c->most_blocks : 64;
        xd_cuda_block *b = realloc(c->blocks, most * sizeof *b);
        if (!b)
            return 0;
        c->blocks = b;
        c->most_blocks = most;
    }
    c->blocks[c->nblocks++] = (xd_cuda_block){ p, bytes };
    return 1;
}

static void *get_block(xd_dev *d, size_t bytes)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    CUdeviceptr  p = 0;
    size_t       size = bytes ? bytes : 1;
    c->cu->cuCtxSetCurrent(c->context);
    if (c->cu->cuMemAlloc_v2(&p, size) != XD_CU_SUCCESS)
        return NULL;
    pthread_mutex_lock(&c->lock);
    int noted = note_block(c, (char *)(uintptr_t)p, size);
    pthread_mutex_unlock(&c->lock);
    if (!noted)
        c->cu->cuMemFree_v2(p);
    return noted ? (void *)(uintptr_t)p : NULL;
}

/* Frees a block of device memory. The driver function cuMemFree waits for work that uses the
 * block. */
static void free_block(xd_dev *d, void *p, size_t bytes)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    (void)bytes;
    c->cu->cuCtxSetCurrent(c->context);
    pthread_mutex_lock(&c->lock);
    size_t i = 0;
    while (i < c->nblocks && c->blocks[i].p != p)
        i++;
    if (p && i < c->nblocks)
        c->blocks[i] = c->blocks[--c->nblocks];
    pthread_mutex_unlock(&c->lock);
    if (p)
        c->cu->cuMemFree_v2((CUdeviceptr)(uintptr_t)p);
}

static int owns(xd_dev *d, const void *p)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    int          ours = 0;
    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < c->nblocks && !ours; i++)
        ours = (const char *)p >= c->blocks[i].p &&
               (const char *)p < c->blocks[i].p + c->blocks[i].bytes;
    pthread_mutex_unlock(&c->lock);
    return ours;
}

static void memory(xd_dev *d, size_t *available, size_t *total)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    *available = *total = 0;
    c->cu->cuCtxSetCurrent(c->context);
    c->cu->cuMemGetInfo_v2(available, total);
}

/* ---- copies ------------------------------------------------------------------------------- */

/* Queues a copy of the first bytes of a pinned buffer to the device, and records its event. */
static CUresult send_pinned(xd_cuda_dev *c, xd_cuda_pinned *b, CUdeviceptr to, size_t bytes)
{
    CUresult r = c->cu->cuMemcpyHtoDAsync_v2(to, b->p, bytes, c->stream);
    return r == XD_CU_SUCCESS ? c->cu->cuEventRecord(b->done, c->stream) : r;
}

/* Takes n staging buffers that no thread holds, and waits until there are so many. The buffers that
 * were taken longest ago come first, so that their copies have most likely ended. */
static void take_stages(xd_cuda_dev *c, int n, xd_cuda_pinned **b)
{
    pthread_mutex_lock(&c->lock);
    while (c->free_stages < n)
        pthread_cond_wait(&c->stage_is_free, &c->lock);
    for (int i = 0; i < n;) {
        xd_cuda_pinned *s = &c->stage[c->next_stage++ % XD_CUDA_STAGES];
        if (!s->held)
            s->held = 1, b[i++] = s;
    }
    c->free_stages -= n;
    pthread_mutex_unlock(&c->lock);
}

static void give_stages(xd_cuda_dev *c, int n, xd_cuda_pinned **b)
{
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < n; i++)
        b[i]->held = 0;
    c->free_stages += n;
    pthread_cond_broadcast(&c->stage_is_free);
    pthread_mutex_unlock(&c->lock);
}

xd_status xd_cuda_stage_open(xd_cuda_dev *c, xd_cuda_pinned **b)
{
    CUresult r = c->cu->cuCtxSetCurrent(c->context);
    take_stages(c, 1, b);
    if (r == XD_CU_SUCCESS)
        r = c->cu->cuEventSynchronize((*b)->done);
    if (r != XD_CU_SUCCESS)
        give_stages(c, 1, b);
    return xd_cuda_check("an upload", r);
}

xd_status xd_cuda_stage_send(xd_cuda_dev *c, xd_cuda_pinned *b, void *to, size_t bytes)
{
    return xd_cuda_check("an upload", send_pinned(c, b, (CUdeviceptr)(uintptr_t)to, bytes));
}

void xd_cuda_stage_close(xd_cuda_dev *c, xd_cuda_pinned *b)
{
    give_stages(c, 1, &b);
}

static xd_status upload_small(xd_cuda_dev *c, void *to, const void *from, size_t bytes)
{
    CUresult r = c->cu->cuCtxSetCurrent(c->context);
    pthread_mutex_lock(&c->lock);
    xd_cuda_pinned *b = &c->slot[c->next_slot++ % XD_CUDA_SLOTS];
    if (r == XD_CU_SUCCESS)
        r = c->cu->cuEventSynchronize(b->done);
    if (r == XD_CU_SUCCESS) {
        memcpy(b->p, from, bytes);
        r = send_pinned(c, b, (CUdeviceptr)(uintptr_t)to, bytes);
    }
    pthread_mutex_unlock(&c->lock);
    return xd_cuda_check("an upload", r);
}

xd_status xd_cuda_upload(xd_cuda_dev *c, void *to, const void *from, size_t bytes)
{
    xd_status s = XD_OK;
    if (bytes && bytes <= XD_CUDA_SLOT)
        return upload_small(c, to, from, bytes);
    for (size_t at = 0, n; at < bytes && s == XD_OK; at += n) {
        xd_cuda_pinned *b = NULL;
        n = bytes - at < XD_CUDA_STAGE ? bytes - at : XD_CUDA_STAGE;
        s = xd_cuda_stage_open(c, &b);
        if (s != XD_OK)
            break;
        memcpy(b->p, (const char *)from + at, n);
        s = xd_cuda_stage_send(c, b, (char *)to + at, n);
        xd_cuda_stage_close(c, b);
    }
    return s;
}

static xd_status upload(xd_dev *d, xd_stream *s, void *to, const void *from, size_t bytes)
{
    (void)s;
    return xd_cuda_upload(xd_cuda_of(d), to, from, bytes);
}

/* Returns XD_EINVAL if a table lookup since the last call used an id outside its table. The caller
 * holds the device's lock, and all work has ended. */
static xd_status check_lookups(xd_cuda_dev *c)
{
    CUresult r = XD_CU_SUCCESS;
    if (!c->looked_up)
        return XD_OK;
    c->looked_up = 0;
    r = c->cu->cuMemcpyDtoHAsync_v2(c->failed_now, c->failed, sizeof *c->failed_now, c->stream);
    if (r == XD_CU_SUCCESS)
        r = c->cu->cuStreamSynchronize(c->stream);
    if (r != XD_CU_SUCCESS || !*c->failed_now)
        return xd_cuda_check("a lookup", r);
    c->cu->cuMemsetD8Async(c->failed, 0, sizeof *c->failed_now, c->stream);
    return XD_EINVAL;
}

/* Copies bytes from the device to the host. While the host copies the contents of one staging
 * buffer to the destination, the other buffer is filled. */
static xd_status download(xd_dev *d, xd_stream *s, void *to, const void *from, size_t bytes)
{
    xd_cuda_dev          *c = xd_cuda_of(d);
    const xd_cuda_driver *cu = c->cu;
    CUdeviceptr           p = (CUdeviceptr)(uintptr_t)from;
    size_t                asked = 0, had[2] = { 0, 0 };
    xd_cuda_pinned       *stage[2];
    (void)s;
    CUresult r = cu->cuCtxSetCurrent(c->context);
    take_stages(c, 2, stage);
    for (size_t done = 0, turn = 0; done < bytes && r == XD_CU_SUCCESS; turn++) {
        for (size_t ahead = turn; ahead < turn + 2 && asked < bytes && r == XD_CU_SUCCESS;
             ahead++) {
            xd_cuda_pinned *b = stage[ahead & 1];
            if (had[ahead & 1])
                continue;
            size_t n = bytes - asked < XD_CUDA_STAGE ? bytes - asked : XD_CUDA_STAGE;
            r = cu->cuEventSynchronize(b->done);
            if (r == XD_CU_SUCCESS)
                r = cu->cuMemcpyDtoHAsync_v2(b->p, p + asked, n, c->stream);
            if (r == XD_CU_SUCCESS)
                r = cu->cuEventRecord(b->done, c->stream);
            asked += had[ahead & 1] = n;
        }
        if (r == XD_CU_SUCCESS)
            r = cu->cuEventSynchronize(stage[turn & 1]->done);
        if (r == XD_CU_SUCCESS)
            memcpy((char *)to + done, stage[turn & 1]->p, had[turn & 1]);
        done += had[turn & 1];
        had[turn & 1] = 0;
    }
    give_stages(c, 2, stage);
    pthread_mutex_lock(&c->lock);
    xd_status st = r == XD_CU_SUCCESS ? check_lookups(c) : xd_cuda_check("a download", r);
    pthread_mutex_unlock(&c->lock);
    return st;
}

static xd_status fill(xd_dev *d, xd_stream *s, void *p, int value, size_t bytes)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    (void)s;
    c->cu->cuCtxSetCurrent(c->context);
    return !bytes ? XD_OK
                  : xd_cuda_check("cuMemsetD8Async",
                                  c->cu->cuMemsetD8Async((CUdeviceptr)(uintptr_t)p,
                                                         (unsigned char)value, bytes, c->stream));
}

static void wait_for_all(xd_dev *d, xd_stream *s)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    (void)s;
    c->cu->cuCtxSetCurrent(c->context);
    xd_cuda_check("cuStreamSynchronize", c->cu->cuStreamSynchronize(c->stream));
}

/* ---- opening ------------------------------------------------------------------------------ */

static CUresult open_pinned(xd_cuda_dev *c)
{
    const xd_cuda_driver *cu = c->cu;
    void                 *p = NULL;
    CUresult r = cu->cuMemHostAlloc(&p, XD_CUDA_SLOTS * XD_CUDA_SLOT + sizeof *c->failed_now, 0);
    if (r != XD_CU_SUCCESS)
        return r;
    c->slots = p;
    c->failed_now = (int32_t *)(void *)(c->slots + XD_CUDA_SLOTS * XD_CUDA_SLOT);
    for (int i = 0; i < XD_CUDA_SLOTS && r == XD_CU_SUCCESS; i++) {
        c->slot[i].p = c->slots + i * XD_CUDA_SLOT;
        r = cu->cuEventCreate(&c->slot[i].done, XD_CU_EVENT_DISABLE_TIMING);
    }
    for (int i = 0; i < XD_CUDA_STAGES && r == XD_CU_SUCCESS; i++) {
        r = cu->cuMemHostAlloc(&p, XD_CUDA_STAGE, 0);
        if (r == XD_CU_SUCCESS) {
            c->stage[i].p = p;
            r = cu->cuEventCreate(&c->stage[i].done, XD_CU_EVENT_DISABLE_TIMING);
        }
    }
    c->free_stages = XD_CUDA_STAGES;
    return r;
}

xd_status xd_cuda_open_memory(xd_cuda_dev *c, xd_err *e)
{
    CUresult r = open_pinned(c);
    if (r != XD_CU_SUCCESS)
        return xd_fail(e, xd_cuda_status(r), "%s has no pinned host memory left: %s", c->dev.name,
                       xd_cuda_words(c->cu, r));
    r = c->cu->cuMemAlloc_v2(&c->work, XD_CUDA_WORK);
    if (r == XD_CU_SUCCESS)
        r = c->cu->cuMemAlloc_v2(&c->failed, sizeof *c->failed_now);
    if (r == XD_CU_SUCCESS)
        r = c->cu->cuMemsetD8Async(c->failed, 0, sizeof *c->failed_now, c->stream);
    if (r != XD_CU_SUCCESS)
        return xd_fail(e, xd_cuda_status(r), "%s has no memory for a workspace of %s: %s",
                       c->dev.name, xd_size_text(XD_CUDA_WORK).s, xd_cuda_words(c->cu, r));
    return XD_OK;
}

void xd_cuda_close_memory(xd_cuda_dev *c)
{
    const xd_cuda_driver *cu = c->cu;
    if (c->stream)
        cu->cuStreamSynchronize(c->stream);
    for (int i = 0; i < XD_CUDA_SLOTS; i++)
        if (c->slot[i].done)
            cu->cuEventDestroy_v2(c->slot[i].done);
    for (int i = 0; i < XD_CUDA_STAGES; i++) {
        if (c->stage[i].done)
            cu->cuEventDestroy_v2(c->stage[i].done);
        if (c->stage[i].p)
            cu->cuMemFreeHost(c->stage[i].p);
    }
    if (c->slots)
        cu->cuMemFreeHost(c->slots);
    if (c->work)
        cu->cuMemFree_v2(c->work);
    if (c->failed)
        cu->cuMemFree_v2(c->failed);
    free(c->blocks);
}

/* ---- the table ---------------------------------------------------------------------------- */

static xd_dtype compute(const xd_dev *d, xd_dtype want)
{
    (void)d;
    return want;
}

static xd_dtype best(const xd_dev *d)
{
    (void)d;
    return XD_BF16;
}

/* Returns the bytes that the driver and cuBLASLt allocate after the device was opened: kernel code,
 * which is loaded when it first runs, and blocks that are rounded up to pages. The result is
 * limited to a fraction of the GPU's memory. */
static size_t kernel_bytes(const xd_dev *d)
{
    const xd_cuda_dev *c = xd_cuda_of(d);
    size_t             bytes = 0, total = 0;
    c->cu->cuCtxSetCurrent(c->context);
    c->cu->cuMemGetInfo_v2(&bytes, &total);
    return total / 32 < XD_CUDA_LATER ? total / 32 : XD_CUDA_LATER;
}

/* Returns a hash of the GPU's UUID. The hash of a GPU is the same in all processes, even if the
 * processes number the GPUs differently. */
static uint64_t identity(const xd_dev *d)
{
    const xd_cuda_dev *c = xd_cuda_of(d);
    CUuuid             id = { { 0 } };
    uint64_t           h = 14695981039346656037u;
    c->cu->cuDeviceGetUuid_v2(&id, c->device);
    for (size_t i = 0; i < sizeof id.bytes; i++)
        h = (h ^ (unsigned char)id.bytes[i]) * 1099511628211u;
    return h;
}

static void product(const xd_dev *d, char *name, size_t size)
{
    const xd_cuda_dev *c = xd_cuda_of(d);
    char               text[100] = "";
    c->cu->cuDeviceGetName(text, sizeof text, c->device);
    snprintf(name, size, "%s", text);
}

static void forget(xd_dev *d)
{
    (void)d;
}

const xd_dev_ops xd_cuda_memory_ops = {
    .get = get_block,
    .put = free_block,
    .sync = wait_for_all,
    .memory = memory,
    .upload = upload,
    .download = download,
    .fill = fill,
    .owns = owns,
    .identity = identity,
    .product = product,
    .pin = xd_cuda_pin,
    .unpin = xd_cuda_unpin,
    .pin_pages = xd_cuda_pin_pages,
    .unpin_pages = xd_cuda_unpin_pages,
    .fetch = xd_cuda_fetch,
    .fetched = xd_cuda_fetched,
    .link = xd_cuda_link,
    .bandwidth = xd_cuda_bandwidth,
    .compute = compute,
    .best = best,
    .peak = xd_cuda_peak,
    .kernel_bytes = kernel_bytes,
    .forget = forget,
    .stamp = xd_cuda_stamp,
    .stamps = xd_cuda_stamps_read,
    .close = xd_cuda_close,
};
