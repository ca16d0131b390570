/* given_noise.c - uses initial noise that the request passes, in place of noise drawn from the
 * seed */
#include <stdlib.h>
#include <string.h>

#include "pipeline/given_noise.h"
#include "pipeline/arenas.h"
#include "ranks/world.h"

xd_status xd_given_noise_check(const xd_job *j, xd_err *e)
{
    const int64_t *d = j->lat;
    if (!j->r->noise.values || j->r->noise.count == j->images * j->numbers)
        return XD_OK;
    return xd_fail(e, XD_EINVAL,
                   "the noise has %lld numbers, but %d images of %lld x %lld "
                   "pixels need %lld: [%lld,%lld,%lld,%lld] each",
                   (long long)j->r->noise.count, j->images, (long long)j->asked[1],
                   (long long)j->asked[0], (long long)(j->images * j->numbers), (long long)d[0],
                   (long long)d[1], (long long)d[2], (long long)d[3]);
}

xd_status xd_given_noise_share(xd_job *j, xd_err *e)
{
    const xd_world *w = &j->ctx->world;
    int64_t         bytes = j->images * j->numbers * (int64_t)sizeof(float);
    xd_status       s = XD_OK;
    if (!j->r->noise.values)
        return XD_OK;
    j->given_noise = xd_host_buffer(j->ctx, (size_t)bytes);
    if (!j->given_noise)
        s = xd_fail(e, XD_ENOMEM, "no memory for the noise of %d images", j->images);
    else if (w->used->rank == 0 && !j->ctx->dev->counts)
        memcpy(j->given_noise, j->r->noise.values, (size_t)bytes);
    s = xd_world_agree(w, s, e);
    return s == XD_OK ? xd_world_broadcast(w, j->given_noise, bytes, e) : s;
}

const float *xd_given_noise_of(const xd_job *j, int image)
{
    return j->given_noise ? j->given_noise + image * j->numbers : NULL;
}

void xd_given_noise_close(xd_job *j)
{
    free(j->given_noise);
    j->given_noise = NULL;
}
