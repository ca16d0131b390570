/* links.c - implements links between ranks as NCCL communicators, each with its own stream */
#include "backend/cuda/cuda.h"
#include "backend/cuda/load.h"
#include "backend/lanes.h"

#include <stdlib.h>
#include <string.h>

struct xd_link {
    xd_cuda_dev   *c;
    const xd_nccl *nccl;
    ncclComm_t     comm;
    CUstream       stream;
    ncclResult_t   failed;
};

_Static_assert(sizeof(xd_link_id) == sizeof(ncclUniqueId), "an id");

static xd_status link_id(xd_dev *d, xd_link_id *id, xd_err *e)
{
    const xd_nccl *nccl = NULL;
    ncclUniqueId   made;
    xd_status      s = xd_cuda_load_nccl(&nccl, e);
    if (s != XD_OK || !id)
        return s;
    xd_cuda_of(d)->cu->cuCtxSetCurrent(xd_cuda_of(d)->context);
    ncclResult_t r = nccl->ncclGetUniqueId(&made);
    if (r != XD_NCCL_SUCCESS)
        return xd_fail(e, XD_EDEVICE, "NCCL does not start: %s", nccl->ncclGetErrorString(r));
    memcpy(id, &made, sizeof *id);
    return XD_OK;
}

/* Closes a link between ranks. If `abort` is 1, the link is closed without waiting for its queued
 * work. */
static void link_close(xd_link *k, int abort)
{
    k->c->cu->cuCtxSetCurrent(k->c->context);
    if (k->comm)
        (abort ? k->nccl->ncclCommAbort : k->nccl->ncclCommDestroy)(k->comm);
    if (k->stream)
        k->c->cu->cuStreamDestroy_v2(k->stream);
    free(k);
}

static xd_link *link_open(xd_dev *d, const xd_link_id *id, int rank, int size, xd_err *e)
{
    xd_link     *k = calloc(1, sizeof *k);
    ncclUniqueId given;
    memcpy(&given, id, sizeof given);
    if (!k || xd_cuda_load_nccl(&k->nccl, e) != XD_OK) {
        free(k);
        return NULL;
    }
    k->c = xd_cuda_of(d);
    k->c->cu->cuCtxSetCurrent(k->c->context);
    CUresult made = k->c->cu->cuStreamCreateWithPriority(&k->stream, XD_CU_STREAM_NON_BLOCKING, 0);
    ncclResult_t r = k->nccl->ncclCommInitRank(&k->comm, size, given, rank);
    if (r == XD_NCCL_SUCCESS && made == XD_CU_SUCCESS)
        return k;
    xd_fail(e, XD_EDEVICE, "NCCL cannot connect %d ranks: %s", size,
            k->nccl->ncclGetErrorString(r));
    k->comm = r == XD_NCCL_SUCCESS ? k->comm : NULL;
    link_close(k, 1);
    return NULL;
}

static void link_begin(xd_link *k, xd_mark *behind)
{
    k->c->cu->cuCtxSetCurrent(k->c->context);
    if (k->c->cu->cuStreamWaitEvent(k->stream, xd_cuda_mark_event(behind), 0) != XD_CU_SUCCESS)
        k->failed = k->failed ? k->failed : -1;
    k->nccl->ncclGroupStart();
}

static void note_result(xd_link *k, ncclResult_t r)
{
    k->failed = k->failed ? k->failed : r;
}

static void link_send(xd_link *k, const void *p, size_t bytes, int to)
{
    note_result(k, k->nccl->ncclSend(p, bytes, XD_NCCL_UINT8, to, k->comm, k->stream));
}

static void link_recv(xd_link *k, void *p, size_t bytes, int from)
{
    note_result(k, k->nccl->ncclRecv(p, bytes, XD_NCCL_UINT8, from, k->comm, k->stream));
}

static xd_status link_check(xd_link *k, xd_err *e)
{
    ncclResult_t r = XD_NCCL_SUCCESS;
    if (!k->failed && k->nccl->ncclCommGetAsyncError(k->comm, &r) == XD_NCCL_SUCCESS &&
        r != XD_NCCL_IN_PROGRESS)
        note_result(k, r);
    return !k->failed ? XD_OK
                      : xd_fail(e, XD_ECOMM, "an NCCL message failed: %s",
                                k->failed < 0 ? "the GPU has failed"
                                              : k->nccl->ncclGetErrorString(k->failed));
}

static void link_end(xd_link *k, xd_mark *done)
{
    note_result(k, k->nccl->ncclGroupEnd());
    k->c->cu->cuEventRecord(xd_cuda_mark_event(done), k->stream);
}

const xd_dev_links xd_cuda_links = {
    .name = "NCCL",
    .id = link_id,
    .open = link_open,
    .begin = link_begin,
    .send = link_send,
    .recv = link_recv,
    .end = link_end,
    .check = link_check,
    .close = link_close,
};
