/* fetch.c - copies data from pinned host memory to the device on a separate stream, concurrently
 * with the computation
 *
 * The copy (a fetch) waits for an event of the compute stream, and later work on the compute stream
 * waits for an event of the copy. The host waits for neither stream. */
#include "backend/cuda/cuda.h"

#include "backend/cuda/load.h"
#include "base/clock.h"

static CUresult open_stream(xd_cuda_dev *c)
{
    const xd_cuda_driver *cu = c->cu;
    CUresult              r = XD_CU_SUCCESS;
    if (!c->fetching)
        r = cu->cuStreamCreateWithPriority(&c->fetching, XD_CU_STREAM_NON_BLOCKING, 0);
    for (int i = 0; i < XD_FETCH_PLACES && r == XD_CU_SUCCESS; i++) {
        if (!c->place[i].free)
            r = cu->cuEventCreate(&c->place[i].free, XD_CU_EVENT_DISABLE_TIMING);
        if (r == XD_CU_SUCCESS && !c->place[i].filled)
            r = cu->cuEventCreate(&c->place[i].filled, XD_CU_EVENT_DISABLE_TIMING);
    }
    return r;
}

void xd_cuda_close_fetch(xd_cuda_dev *c)
{
    for (int i = 0; i < XD_FETCH_PLACES; i++) {
        if (c->place[i].free)
            c->cu->cuEventDestroy_v2(c->place[i].free);
        if (c->place[i].filled)
            c->cu->cuEventDestroy_v2(c->place[i].filled);
    }
    if (c->fetching)
        c->cu->cuStreamDestroy_v2(c->fetching);
}

void *xd_cuda_pin(xd_dev *d, size_t bytes)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    void        *p = NULL;
    CUresult     r = c->cu->cuCtxSetCurrent(c->context);
    if (r == XD_CU_SUCCESS)
        r = open_stream(c);
    if (r == XD_CU_SUCCESS)
        r = c->cu->cuMemHostAlloc(&p, bytes ? bytes : 1, 0);
    return r == XD_CU_SUCCESS ? p : NULL;
}

void xd_cuda_unpin(xd_dev *d, void *p)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    c->cu->cuCtxSetCurrent(c->context);
    if (p) {
        c->cu->cuStreamSynchronize(c->fetching); /* a copy may still read the pinned memory */
        c->cu->cuMemFreeHost(p);
    }
}

xd_status xd_cuda_pin_pages(xd_dev *d, void *p, size_t bytes)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    CUresult     r = c->cu->cuCtxSetCurrent(c->context);
    if (r == XD_CU_SUCCESS)
        r = open_stream(c);
    if (r == XD_CU_SUCCESS)
        r = c->cu->cuMemHostRegister_v2(p, bytes, 0);
    return xd_cuda_status(r);
}

void xd_cuda_unpin_pages(xd_dev *d, void *p)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    c->cu->cuCtxSetCurrent(c->context);
    c->cu->cuStreamSynchronize(c->fetching); /* a copy may still read the pinned pages */
    c->cu->cuMemHostUnregister(p);
}

xd_status xd_cuda_fetch(xd_dev *d, int place, void *to, const void *from, size_t bytes)
{
    xd_cuda_dev          *c = xd_cuda_of(d);
    const xd_cuda_driver *cu = c->cu;
    xd_cuda_place        *l = &c->place[place];
    CUresult              r = cu->cuCtxSetCurrent(c->context);
    if (r == XD_CU_SUCCESS)
        r = cu->cuEventRecord(l->free, c->stream);
    if (r == XD_CU_SUCCESS)
        r = cu->cuStreamWaitEvent(c->fetching, l->free, 0);
    if (r == XD_CU_SUCCESS && bytes)
        r = cu->cuMemcpyHtoDAsync_v2((CUdeviceptr)(uintptr_t)to, from, bytes, c->fetching);
    if (r == XD_CU_SUCCESS)
        r = cu->cuEventRecord(l->filled, c->fetching);
    return xd_cuda_check("a fetch", r);
}

xd_status xd_cuda_fetched(xd_dev *d, int place)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    CUresult     r = c->cu->cuCtxSetCurrent(c->context);
    if (r == XD_CU_SUCCESS)
        r = c->cu->cuStreamWaitEvent(c->stream, c->place[place].filled, 0);
    return xd_cuda_check("cuStreamWaitEvent", r);
}

/* Measures the bytes per second of a copy of one staging buffer to the GPU or back. An untimed copy
 * before the measured copy warms up the GPU. */
double xd_cuda_link(xd_dev *d, int back)
{
    xd_cuda_dev          *c = xd_cuda_of(d);
    const xd_cuda_driver *cu = c->cu;
    /* The device memory of the copy is cuBLASLt's workspace, which no kernel uses at that time
     * because all queued work has ended. */
    CUdeviceptr           p = c->work;
    CUresult              r = XD_CU_SUCCESS;
    double                s = 0;
    xd_cuda_pinned       *b = NULL;
    if (xd_cuda_stage_open(c, &b) != XD_OK)
        return 0;
    for (int i = 0; i < 2 && r == XD_CU_SUCCESS; i++) {
        cu->cuStreamSynchronize(c->stream);
        s = xd_now_s();
        r = back ? cu->cuMemcpyDtoHAsync_v2(b->p, p, XD_CUDA_STAGE, c->stream)
                 : cu->cuMemcpyHtoDAsync_v2(p, b->p, XD_CUDA_STAGE, c->stream);
        cu->cuStreamSynchronize(c->stream);
        s = xd_now_s() - s;
    }
    xd_cuda_stage_close(c, b);
    return r == XD_CU_SUCCESS && s > 0 ? XD_CUDA_STAGE / s : 0;
}
