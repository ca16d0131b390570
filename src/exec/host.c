/* host.c - copies between host and device memory */
#include "exec/host.h"

#include <stdlib.h>

static int skips_copy(const xd_exec *x, size_t bytes)
{
    return !bytes || !xd_ok(x) || xd_counting(x);
}

void xd_upload(xd_exec *x, void *to, const void *from, size_t bytes)
{
    xd_status s = XD_OK;
    if (!skips_copy(x, bytes))
        s = x->dev->mem->upload(x->dev, x->st, to, from, bytes);
    if (s != XD_OK)
        xd_exec_fail(x, s, "%zu bytes cannot be copied to %s", bytes, x->dev->name);
}

void xd_download(xd_exec *x, void *to, const void *from, size_t bytes)
{
    xd_status s = XD_OK;
    if (!skips_copy(x, bytes))
        s = x->dev->mem->download(x->dev, x->st, to, from, bytes);
    if (s != XD_OK)
        xd_exec_fail(x, s, "%zu bytes cannot be copied from %s", bytes, x->dev->name);
}

void *xd_host_open(xd_exec *x, void *p, size_t bytes)
{
    if (skips_copy(x, 1))
        return NULL;
    if (x->dev->host_memory) {
        x->dev->mem->sync(x->dev, x->st);
        return p;
    }
    void *host = malloc(bytes + 1);
    if (!host)
        xd_exec_fail(x, XD_ENOMEM, "no memory for %zu bytes of %s", bytes, x->dev->name);
    else
        xd_download(x, host, p, bytes);
    return host;
}

void xd_host_close(xd_exec *x, void *host, void *p, size_t written)
{
    if (!host || host == p)
        return;
    xd_upload(x, p, host, written);
    free(host);
}
