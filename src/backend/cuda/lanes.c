/* lanes.c - implements the CUDA device's lanes (the compute stream and the streams of messages
 * between ranks), the events that order these streams, and the pinned host memory for messages */
#include "backend/lanes.h"

#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/load.h"

struct xd_mark { CUevent e; };

CUevent xd_cuda_mark_event(const xd_mark *m)
{
    return m->e;
}

/* Returns the CUDA stream of a lane, and makes the device's CUDA context current. Returns NULL if
 * the stream cannot be created. */
static CUstream stream_of(xd_cuda_dev *c, xd_dev_lane lane)
{
    c->cu->cuCtxSetCurrent(c->context);
    if (lane == XD_LANE_COMPUTE)
        return c->stream;
    if (!c->lane[lane])
        c->cu->cuStreamCreateWithPriority(&c->lane[lane], XD_CU_STREAM_NON_BLOCKING, 0);
    return c->lane[lane];
}

void xd_cuda_close_lanes(xd_cuda_dev *c)
{
    for (int i = 0; i < XD_NLANES; i++)
        if (c->lane[i])
            c->cu->cuStreamDestroy_v2(c->lane[i]);
}

static void mark_put(xd_dev *d, xd_mark *m)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    if (!m)
        return;
    c->cu->cuCtxSetCurrent(c->context);
    c->cu->cuEventDestroy_v2(m->e);
    free(m);
}

static xd_mark *mark_get(xd_dev *d)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    xd_mark     *m = calloc(1, sizeof *m);
    c->cu->cuCtxSetCurrent(c->context);
    if (m && c->cu->cuEventCreate(&m->e, XD_CU_EVENT_DISABLE_TIMING) == XD_CU_SUCCESS)
        return m;
    free(m);
    return NULL;
}

static xd_status set_mark(xd_dev *d, xd_mark *m, xd_dev_lane lane)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    CUstream     s = stream_of(c, lane);
    return xd_cuda_check("cuEventRecord", c->cu->cuEventRecord(m->e, s));
}

static xd_status follow(xd_dev *d, xd_dev_lane lane, xd_mark *m)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    CUstream     s = stream_of(c, lane);
    return xd_cuda_check("cuStreamWaitEvent", c->cu->cuStreamWaitEvent(s, m->e, 0));
}

static int reached(xd_dev *d, xd_mark *m)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    c->cu->cuCtxSetCurrent(c->context);
    return c->cu->cuEventQuery(m->e) != XD_CU_NOT_READY;
}

static void *pinned_get(xd_dev *d, size_t bytes)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    void        *p = NULL;
    c->cu->cuCtxSetCurrent(c->context);
    return c->cu->cuMemHostAlloc(&p, bytes ? bytes : 1, 0) == XD_CU_SUCCESS ? p : NULL;
}

static void pinned_put(xd_dev *d, void *p)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    c->cu->cuCtxSetCurrent(c->context);
    c->cu->cuMemFreeHost(p);
}

static CUdeviceptr address(const void *p)
{
    return (CUdeviceptr)(uintptr_t)p;
}

static xd_status copy_down(xd_dev *d, xd_dev_lane lane, void *to, const void *from, size_t bytes)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    CUstream     s = stream_of(c, lane);
    return xd_cuda_check("cuMemcpyDtoHAsync",
                         c->cu->cuMemcpyDtoHAsync_v2(to, address(from), bytes, s));
}

static xd_status copy_up(xd_dev *d, xd_dev_lane lane, void *to, const void *from, size_t bytes)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    CUstream     s = stream_of(c, lane);
    return xd_cuda_check("cuMemcpyHtoDAsync",
                         c->cu->cuMemcpyHtoDAsync_v2(address(to), from, bytes, s));
}

static xd_status copy_within(xd_dev *d, xd_dev_lane lane, void *to, const void *from, size_t bytes)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    CUstream     s = stream_of(c, lane);
    return xd_cuda_check("cuMemcpyDtoDAsync",
                         c->cu->cuMemcpyDtoDAsync_v2(address(to), address(from), bytes, s));
}

/* ---- memory and marks shared with other processes ----------------------------------------- */

_Static_assert(sizeof(xd_handle) == sizeof(CUipcMemHandle) &&
                   sizeof(xd_handle) == sizeof(CUipcEventHandle),
               "a handle");

static void *lend(xd_dev *d, size_t bytes, xd_handle *h)
{
    xd_cuda_dev   *c = xd_cuda_of(d);
    CUipcMemHandle lent;
    CUdeviceptr    p = 0;
    c->cu->cuCtxSetCurrent(c->context);
    if (c->cu->cuMemAlloc_v2(&p, bytes) != XD_CU_SUCCESS)
        return NULL;
    if (c->cu->cuIpcGetMemHandle(&lent, p) != XD_CU_SUCCESS) {
        c->cu->cuMemFree_v2(p);
        return NULL;
    }
    memcpy(h, &lent, sizeof *h);
    return (void *)(uintptr_t)p;
}

static void lend_end(xd_dev *d, void *p)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    c->cu->cuCtxSetCurrent(c->context);
    c->cu->cuMemFree_v2(address(p));
}

static xd_mark *mark_lend(xd_dev *d, xd_handle *h)
{
    xd_cuda_dev     *c = xd_cuda_of(d);
    xd_mark         *m = calloc(1, sizeof *m);
    CUipcEventHandle lent;
    c->cu->cuCtxSetCurrent(c->context);
    if (m && c->cu->cuEventCreate(&m->e, XD_CU_EVENT_DISABLE_TIMING | XD_CU_EVENT_INTERPROCESS) ==
                 XD_CU_SUCCESS) {
        if (c->cu->cuIpcGetEventHandle(&lent, m->e) == XD_CU_SUCCESS) {
            memcpy(h, &lent, sizeof *h);
            return m;
        }
        c->cu->cuEventDestroy_v2(m->e);
    }
    free(m);
    return NULL;
}

static void *borrow(xd_dev *d, const xd_handle *h)
{
    xd_cuda_dev   *c = xd_cuda_of(d);
    CUipcMemHandle lent;
    CUdeviceptr    p = 0;
    memcpy(&lent, h, sizeof lent);
    c->cu->cuCtxSetCurrent(c->context);
    return c->cu->cuIpcOpenMemHandle_v2(&p, lent, XD_CU_IPC_PEER_ACCESS) == XD_CU_SUCCESS
               ? (void *)(uintptr_t)p
               : NULL;
}

static void borrow_end(xd_dev *d, void *p)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    c->cu->cuCtxSetCurrent(c->context);
    c->cu->cuIpcCloseMemHandle(address(p));
}

static xd_mark *mark_borrow(xd_dev *d, const xd_handle *h)
{
    xd_cuda_dev     *c = xd_cuda_of(d);
    xd_mark         *m = calloc(1, sizeof *m);
    CUipcEventHandle lent;
    memcpy(&lent, h, sizeof lent);
    c->cu->cuCtxSetCurrent(c->context);
    if (m && c->cu->cuIpcOpenEventHandle(&m->e, lent) == XD_CU_SUCCESS)
        return m;
    free(m);
    return NULL;
}

const xd_dev_lanes xd_cuda_lanes = {
    .mark_get = mark_get,
    .mark_put = mark_put,
    .set = set_mark,
    .follow = follow,
    .reached = reached,
    .pinned_get = pinned_get,
    .pinned_put = pinned_put,
    .down = copy_down,
    .up = copy_up,
    .copy = copy_within,
    .lend = lend,
    .mark_lend = mark_lend,
    .borrow = borrow,
    .mark_borrow = mark_borrow,
    .lend_end = lend_end,
    .borrow_end = borrow_end,
    .links = &xd_cuda_links,
};
