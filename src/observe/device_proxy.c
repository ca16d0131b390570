/* device_proxy.c - implements those functions of a proxy device that only call the real device */
#include "observe/device_proxy.h"

#define ONE(slot, type, op) +1
_Static_assert(XD_KERNELS(ONE) == XD_NOPS, "add the new op to XD_KERNELS");

static xd_dev *real_of(xd_dev *d)
{
    return ((xd_device_proxy *)(void *)d)->real;
}

static void *proxy_get(xd_dev *d, size_t bytes)
{
    return real_of(d)->mem->get(real_of(d), bytes);
}

static void proxy_put(xd_dev *d, void *p, size_t bytes)
{
    real_of(d)->mem->put(real_of(d), p, bytes);
}

static void proxy_sync(xd_dev *d, xd_stream *s)
{
    real_of(d)->mem->sync(real_of(d), s);
}

static void proxy_memory(xd_dev *d, size_t *available, size_t *total)
{
    real_of(d)->mem->memory(real_of(d), available, total);
}

static xd_status proxy_upload(xd_dev *d, xd_stream *s, void *to, const void *from, size_t bytes)
{
    return real_of(d)->mem->upload(real_of(d), s, to, from, bytes);
}

static xd_status proxy_download(xd_dev *d, xd_stream *s, void *to, const void *from, size_t bytes)
{
    return real_of(d)->mem->download(real_of(d), s, to, from, bytes);
}

static xd_status proxy_fill(xd_dev *d, xd_stream *s, void *p, int value, size_t bytes)
{
    return real_of(d)->mem->fill(real_of(d), s, p, value, bytes);
}

static int proxy_owns(xd_dev *d, const void *p)
{
    return real_of(d)->mem->owns(real_of(d), p);
}

static const xd_dev *proxy_behind(const xd_dev *d)
{
    return ((const xd_device_proxy *)(const void *)d)->real;
}

static xd_dtype proxy_compute(const xd_dev *d, xd_dtype want)
{
    return xd_dev_compute(proxy_behind(d), want);
}

static xd_dtype proxy_best(const xd_dev *d)
{
    return xd_dev_best(proxy_behind(d));
}

static double proxy_peak(xd_dev *d, xd_dtype t, int threads, double seconds)
{
    return xd_dev_peak(real_of(d), t, threads, seconds);
}

static double proxy_bandwidth(xd_dev *d)
{
    return real_of(d)->mem->bandwidth(real_of(d));
}

static size_t kernel_bytes(const xd_dev *d)
{
    return xd_dev_kernel_bytes(proxy_behind(d));
}

static void *proxy_pin(xd_dev *d, size_t bytes)
{
    return real_of(d)->mem->pin(real_of(d), bytes);
}

static void proxy_unpin(xd_dev *d, void *p)
{
    real_of(d)->mem->unpin(real_of(d), p);
}

static xd_status proxy_pin_pages(xd_dev *d, void *p, size_t bytes)
{
    return real_of(d)->mem->pin_pages(real_of(d), p, bytes);
}

static void proxy_unpin_pages(xd_dev *d, void *p)
{
    real_of(d)->mem->unpin_pages(real_of(d), p);
}

static xd_status proxy_fetch(xd_dev *d, int place, void *to, const void *from, size_t bytes)
{
    return real_of(d)->mem->fetch(real_of(d), place, to, from, bytes);
}

static xd_status proxy_fetched(xd_dev *d, int place)
{
    return real_of(d)->mem->fetched(real_of(d), place);
}

static double proxy_link(xd_dev *d, int back)
{
    return real_of(d)->mem->link(real_of(d), back);
}

static uint64_t proxy_identity(const xd_dev *d)
{
    return xd_dev_identity(proxy_behind(d));
}

static void proxy_forget(xd_dev *d)
{
    xd_dev_forget(real_of(d));
}

static int64_t proxy_stamp(xd_dev *d, xd_stream *s)
{
    return real_of(d)->mem->stamp(real_of(d), s);
}

static int64_t proxy_stamps(xd_dev *d, int64_t *ns, int64_t most)
{
    return real_of(d)->mem->stamps(real_of(d), ns, most);
}

static size_t scratch(xd_dev *d, xd_op op, const void *args)
{
    return real_of(d)->ops->scratch(real_of(d), op, args);
}

static size_t pack_size(xd_dev *d, xd_weight *w)
{
    return real_of(d)->ops->pack_size(real_of(d), w);
}

static size_t pack_tmp(xd_dev *d, const xd_weight *w, xd_dtype src)
{
    return real_of(d)->ops->pack_tmp(real_of(d), w, src);
}

static int64_t pack_band(xd_dev *d, const xd_weight *w)
{
    return real_of(d)->ops->pack_band(real_of(d), w);
}

static xd_status pack_rows(xd_dev *d, xd_weight *w, xd_tensor src, int64_t row0)
{
    return real_of(d)->ops->pack_rows(real_of(d), w, src, row0);
}

static xd_status pack(xd_dev *d, xd_weight *w, xd_tensor src, void *tmp)
{
    return real_of(d)->ops->pack(real_of(d), w, src, tmp);
}

void xd_device_proxy_open(xd_device_proxy *w, xd_dev *real_dev, void (*close)(xd_dev *d))
{
    w->real = real_dev;
    w->mem = (xd_dev_ops){
        .get = proxy_get,
        .put = proxy_put,
        .sync = proxy_sync,
        .memory = proxy_memory,
        .upload = proxy_upload,
        .download = proxy_download,
        .fill = proxy_fill,
        .owns = proxy_owns,
        .pin = real_dev->mem->pin ? proxy_pin : NULL,
        .unpin = proxy_unpin,
        .pin_pages = proxy_pin_pages,
        .unpin_pages = proxy_unpin_pages,
        .fetch = proxy_fetch,
        .fetched = proxy_fetched,
        .link = real_dev->mem->link ? proxy_link : NULL,
        .bandwidth = real_dev->mem->bandwidth ? proxy_bandwidth : NULL,
        .identity = proxy_identity,
        .compute = proxy_compute,
        .best = proxy_best,
        .peak = proxy_peak,
        .kernel_bytes = kernel_bytes,
        .forget = proxy_forget,
        .close = close,
    };
    if (real_dev->mem->stamp)
        w->mem.stamp = proxy_stamp, w->mem.stamps = proxy_stamps;
    w->ops = (xd_ops){
        .name = real_dev->ops->name,
        .scratch = scratch,
        .pack_size = pack_size,
        .pack_tmp = pack_tmp,
        .pack = pack,
        .pack_band = pack_band,
        .pack_rows = pack_rows,
    };
    w->dev.host_memory = real_dev->host_memory;
    w->dev.rotates = real_dev->rotates;
    w->dev.int8_attn = real_dev->int8_attn;
    w->dev.fp8_gemm = real_dev->fp8_gemm;
    w->dev.narrow_bias = real_dev->narrow_bias;
    w->dev.norm_adds = real_dev->norm_adds;
    w->dev.mem = &w->mem;
    w->dev.ops = &w->ops;
}
