/* stamps.c - measures timestamps of GPU work by events of the stream, which are read in batches
 *
 * The driver returns the milliseconds between two events as a float. Timestamps are therefore
 * measured from the last event of the previous batch, so that the float is accurate to less than a
 * microsecond. The host waits for the very first event and then reads the host's clock, so that the
 * times of all events can be converted to the host's clock. */
#include "backend/cuda/cuda.h"

#include <stdlib.h>

#include "backend/cuda/load.h"
#include "base/clock.h"

/* Returns event number i, and creates the event if it does not exist. Returns NULL on failure. */
static CUevent event_at(xd_cuda_stamps *s, const xd_cuda_driver *cu, int64_t i)
{
    if (i == s->most) {
        int64_t  most = s->most ? 2 * s->most : 256;
        CUevent *v = realloc(s->v, (size_t)most * sizeof *v);
        if (!v)
            return NULL;
        for (int64_t k = s->most; k < most; k++)
            v[k] = NULL;
        s->v = v;
        s->most = most;
    }
    if (!s->v[i] && cu->cuEventCreate(&s->v[i], XD_CU_EVENT_DEFAULT) != XD_CU_SUCCESS)
        s->v[i] = NULL;
    return s->v[i];
}

static CUresult record_first(xd_cuda_dev *c)
{
    const xd_cuda_driver *cu = c->cu;
    CUresult              r = cu->cuEventCreate(&c->stamps.first, XD_CU_EVENT_DEFAULT);
    if (r == XD_CU_SUCCESS)
        r = cu->cuEventRecord(c->stamps.first, c->stream);
    if (r == XD_CU_SUCCESS)
        r = cu->cuEventSynchronize(c->stamps.first);
    c->stamps.first_ns = xd_now_ns();
    return r;
}

int64_t xd_cuda_stamp(xd_dev *d, xd_stream *st)
{
    xd_cuda_dev    *c = xd_cuda_of(d);
    xd_cuda_stamps *s = &c->stamps;
    (void)st;
    c->cu->cuCtxSetCurrent(c->context);
    if (!s->first && record_first(c) != XD_CU_SUCCESS)
        return -1;
    CUevent e = event_at(s, c->cu, s->n);
    return e && c->cu->cuEventRecord(e, c->stream) == XD_CU_SUCCESS ? s->n++ : -1;
}

int64_t xd_cuda_stamps_read(xd_dev *d, int64_t *ns, int64_t most)
{
    xd_cuda_dev    *c = xd_cuda_of(d);
    xd_cuda_stamps *s = &c->stamps;
    int64_t         n = s->n, i = 0;
    float           ms = 0;
    s->n = 0;
    c->cu->cuCtxSetCurrent(c->context);
    if (!n || c->cu->cuEventSynchronize(s->v[n - 1]) != XD_CU_SUCCESS)
        return 0;
    for (; i < n && i < most; i++) {
        if (c->cu->cuEventElapsedTime(&ms, s->first, s->v[i]) != XD_CU_SUCCESS)
            return i;
        ns[i] = s->first_ns + (int64_t)((double)ms * 1e6);
    }
    c->cu->cuEventElapsedTime(&ms, s->first, s->v[n - 1]);
    s->first_ns += (int64_t)((double)ms * 1e6);
    CUevent e = s->first;
    s->first = s->v[n - 1];
    s->v[n - 1] = e;
    return i;
}

void xd_cuda_close_stamps(xd_cuda_dev *c)
{
    xd_cuda_stamps *s = &c->stamps;
    for (int64_t i = 0; i < s->most; i++)
        if (s->v[i])
            c->cu->cuEventDestroy_v2(s->v[i]);
    if (s->first)
        c->cu->cuEventDestroy_v2(s->first);
    free(s->v);
}
