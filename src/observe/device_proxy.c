/* device_proxy.c - the functions that a proxy device passes on to the real one */
#include "observe/device_proxy.h"

#define ONE(slot, type, op) +1
_Static_assert(XD_KERNELS(ONE) == XD_NOPS, "a new op is put into the list of kernels");

static xd_dev *real(xd_dev *d)
{
    return ((xd_device_proxy *)(void *)d)->real;
}

static void *get(xd_dev *d, size_t bytes)
{
    return real(d)->mem->get(real(d), bytes);
}

static void put(xd_dev *d, void *p, size_t bytes)
{
    real(d)->mem->put(real(d), p, bytes);
}

static void sync(xd_dev *d, xd_stream *s)
{
    real(d)->mem->sync(real(d), s);
}

static void memory(xd_dev *d, size_t *available, size_t *total)
{
    real(d)->mem->memory(real(d), available, total);
}

static xd_status upload(xd_dev *d, xd_stream *s, void *to, const void *from, size_t bytes)
{
    return real(d)->mem->upload(real(d), s, to, from, bytes);
}

static xd_status download(xd_dev *d, xd_stream *s, void *to, const void *from, size_t bytes)
{
    return real(d)->mem->download(real(d), s, to, from, bytes);
}

static xd_status fill(xd_dev *d, xd_stream *s, void *p, int value, size_t bytes)
{
    return real(d)->mem->fill(real(d), s, p, value, bytes);
}

static int owns(xd_dev *d, const void *p)
{
    return real(d)->mem->owns(real(d), p);
}

static const xd_dev *behind(const xd_dev *d)
{
    return ((const xd_device_proxy *)(const void *)d)->real;
}

static xd_dtype compute(const xd_dev *d, xd_dtype want)
{
    return xd_dev_compute(behind(d), want);
}

static xd_dtype best(const xd_dev *d)
{
    return xd_dev_best(behind(d));
}

static double peak(xd_dev *d, xd_dtype t, int threads, double seconds)
{
    return xd_dev_peak(real(d), t, threads, seconds);
}

static size_t kernel_bytes(const xd_dev *d)
{
    return xd_dev_kernel_bytes(behind(d));
}

static void forget(xd_dev *d)
{
    xd_dev_forget(real(d));
}

static size_t scratch(xd_dev *d, xd_op op, const void *args)
{
    return real(d)->ops->scratch(real(d), op, args);
}

static size_t pack_size(xd_dev *d, xd_weight *w)
{
    return real(d)->ops->pack_size(real(d), w);
}

static size_t pack_tmp(xd_dev *d, const xd_weight *w, xd_dtype src)
{
    return real(d)->ops->pack_tmp(real(d), w, src);
}

static int64_t pack_band(xd_dev *d, const xd_weight *w)
{
    return real(d)->ops->pack_band(real(d), w);
}

static xd_status pack_rows(xd_dev *d, xd_weight *w, xd_tensor src, int64_t row0)
{
    return real(d)->ops->pack_rows(real(d), w, src, row0);
}

static xd_status pack(xd_dev *d, xd_weight *w, xd_tensor src, void *tmp)
{
    return real(d)->ops->pack(real(d), w, src, tmp);
}

void xd_device_proxy_open(xd_device_proxy *w, xd_dev *real_dev, void (*close)(xd_dev *d))
{
    w->real = real_dev;
    w->mem = (xd_dev_ops){
        .get = get, .put = put, .sync = sync, .memory = memory, .upload = upload,
        .download = download, .fill = fill,
        .owns = owns, .compute = compute, .best = best, .peak = peak, .kernel_bytes = kernel_bytes,
        .forget = forget, .close = close,
    };
    w->ops = (xd_ops){
        .name = real_dev->ops->name, .scratch = scratch, .pack_size = pack_size,
        .pack_tmp = pack_tmp, .pack = pack, .pack_band = pack_band, .pack_rows = pack_rows,
    };
    w->dev.host_memory = real_dev->host_memory;
    w->dev.mem = &w->mem;
    w->dev.ops = &w->ops;
}
