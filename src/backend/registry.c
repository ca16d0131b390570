/* registry.c - lists the device kinds (cpu, cuda), and opens a device by its name */
#include "backend/backend.h"

#include <stdio.h>
#include <string.h>

#include "backend/count/count.h"
#include "backend/cpu/cpu.h"
#ifdef XD_WITH_CUDA
#include "backend/cuda/cuda.h"
#endif
#include "base/json.h"

const xd_dev_kind *const xd_dev_kinds[] = {
    &xd_dev_kind_cpu,
#ifdef XD_WITH_CUDA
    &xd_dev_kind_cuda,
#endif
    NULL,
};

/* Returns the device kind of a device name, which is the part before ':', or NULL if there is no
 * such kind. */
static const xd_dev_kind *find_kind(const char *name)
{
    size_t n = strcspn(name, ":");
    for (int i = 0; xd_dev_kinds[i]; i++) {
        const char *kind = xd_dev_kinds[i]->name;
        if (strlen(kind) == n && memcmp(kind, name, n) == 0)
            return xd_dev_kinds[i];
    }
    return NULL;
}

static xd_status no_such_kind(const char *name, xd_err *e)
{
    xd_text_buf known = { 0 };
    for (int i = 0; xd_dev_kinds[i]; i++)
        xd_buf_add(&known, "%s%s", i ? ", " : "", xd_dev_kinds[i]->name);
    xd_fail(e, XD_EINVAL, "there is no device \"%s\"; this build has: %s", name,
            known.failed || !known.p ? "" : known.p);
    xd_buf_free(&known);
    return XD_EINVAL;
}

xd_status xd_dev_open(xd_dev **d, const char *name, xd_err *e)
{
    const char        *s = name ? name : xd_dev_kinds[0]->name, *colon = strchr(s, ':');
    const xd_dev_kind *kind = find_kind(s);
    *d = NULL;
    return kind ? kind->open(d, colon ? colon + 1 : "", e) : no_such_kind(s, e);
}

xd_status xd_dev_open_sizes(xd_dev **d, const char *name, xd_err *e)
{
    const xd_dev_kind *kind = find_kind(name);
    *d = NULL;
    if (!kind)
        return no_such_kind(name, e);
    return kind->open_sizes ? kind->open_sizes(d, e) : xd_dev_open(d, name, e);
}

xd_status xd_dev_instances(const char *name, int *n, xd_err *e)
{
    const xd_dev_kind *kind = find_kind(name);
    *n = 1;
    if (!kind)
        return no_such_kind(name, e);
    return kind->instances && !strchr(name, ':') ? kind->instances(n, e) : XD_OK;
}

xd_status xd_dev_of_rank(xd_dev_name *out, const char *name, int rank, int ranks, xd_err *e)
{
    const char        *s = name ? name : xd_dev_kinds[0]->name;
    const xd_dev_kind *kind = find_kind(s);
    int                n = 0;
    *out = (xd_dev_name){ "" };
    if (ranks < 2 || strchr(s, ':') || !kind || !kind->instances)
        return XD_OK;
    xd_status st = kind->instances(&n, e);
    if (st == XD_OK && n < ranks)
        st = xd_fail(e, XD_EINVAL,
                     "%d ranks of this host need %d devices \"%s\", but there %s %d: start %d "
                     "rank%s (xdit plan --world %d lists plans), or share one with --device %s:0",
                     ranks, ranks, s, n == 1 ? "is" : "are", n, n, n == 1 ? "" : "s", n, s);
    if (st == XD_OK)
        snprintf(out->s, sizeof out->s, "%s:%d", s, rank);
    return st;
}

xd_status xd_dev_open_best(xd_dev **d, int rank, int ranks, xd_err *e)
{
    *d = NULL;
    for (int i = 1; xd_dev_kinds[i]; i++) {
        const xd_dev_kind *k = xd_dev_kinds[i];
        char               which[16];
        int                n = 0;
        if (!k->instances)
            continue;
        xd_status s = k->instances(&n, e);
        if (s != XD_OK || n == 0)
            return s == XD_OK ? xd_fail(e, XD_EUNSUPPORTED, "there is no %s", k->name) : s;
        if (n < ranks)
            return xd_fail(e, XD_EINVAL,
                           "%d ranks of this host would need %d devices \"%s\", but "
                           "there %s %d",
                           ranks, ranks, k->name, n == 1 ? "is" : "are", n);
        snprintf(which, sizeof which, "%d", rank);
        s = k->open(d, which, e);
        if (e && s == XD_EUNSUPPORTED)
            e->code = XD_EDEVICE;
        return s;
    }
    return xd_fail(e, XD_EUNSUPPORTED, "this build computes on the CPU only");
}

void xd_dev_early(void)
{
    for (int i = 0; xd_dev_kinds[i]; i++)
        if (xd_dev_kinds[i]->early)
            xd_dev_kinds[i]->early();
}

void xd_dev_about(xd_fact *fact, void *cookie)
{
    for (int i = 0; xd_dev_kinds[i]; i++)
        if (xd_dev_kinds[i]->about)
            xd_dev_kinds[i]->about(fact, cookie);
}

void xd_dev_close(xd_dev **d)
{
    if (d && *d)
        (*d)->mem->close(*d);
    if (d)
        *d = NULL;
}

/* Returns the device that d simulates if d is a count device (which computes nothing), else d
 * itself. */
static const xd_dev *real_device(const xd_dev *d)
{
    return d->counts ? xd_count_real(d) : d;
}

xd_dtype xd_dev_compute(const xd_dev *d, xd_dtype want)
{
    const xd_dev *r = real_device(d);
    return r ? r->mem->compute(r, want) : want;
}

xd_dtype xd_dev_best(const xd_dev *d)
{
    const xd_dev *r = real_device(d);
    return r ? r->mem->best(r) : XD_F32;
}

double xd_dev_peak(xd_dev *d, xd_dtype t, int threads, double seconds)
{
    return d->mem->peak(d, t, threads, seconds);
}

size_t xd_dev_kernel_bytes(const xd_dev *d)
{
    return d->mem->kernel_bytes(d);
}

uint64_t xd_dev_identity(const xd_dev *d)
{
    return d->mem->identity ? d->mem->identity(d) : 0;
}

void xd_dev_forget(xd_dev *d)
{
    d->mem->forget(d);
}
