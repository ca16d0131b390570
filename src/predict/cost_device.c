/* cost_device.c - a device that computes nothing, and predicts the time of each kernel call on a
 * machine. It forwards the calls to a count device, which counts memory and operations.
 *
 * The predicted time of a GEMM, an attention or a convolution is the longer of two times. The first
 * is the kernel's FLOPs divided by the machine's FLOP rate, which is lower for few rows or keys.
 * The second is the kernel's bytes divided by the machine's byte rate. For all other kernels only
 * the bytes count. This is a roofline model (Williams et al. 2009), with a half-speed point for few
 * rows or keys as in Hockney and Jesshope 1988. A machine with CPUs has a separate rate of reading
 * weights. On such a machine, the predicted time of a GEMM or a convolution also includes the
 * epilogue, and reading those weights that are no longer in a cache. */
#include <stdlib.h>
#include <string.h>

#include "base/minmax.h"
#include "observe/device_proxy.h"
#include "predict/machine.h"

struct xd_cost_device { /* the device proxy is the first member */
    xd_device_proxy   w;
    const xd_machine *m;
    const xd_rates   *rate;
    /* sum of the predicted times in seconds; bytes of the weights that ops read repeatedly */
    double            seconds, weights;
};

const xd_rates *xd_machine_rates(const xd_machine *m, xd_dtype compute)
{
    return compute == XD_F32 ? &m->f32 : &m->bf16;
}

/* Returns the rate of a kernel for n rows or keys. `rate` is the kernel's full rate, and the kernel
 * reaches half of this rate with `half` rows or keys. */
static double rate_at(double rate, double n, double half)
{
    return n > 0 ? rate * n / (n + half) : rate;
}

/* Returns the time in seconds that a kernel needs to move `bytes`. `own` is the byte rate of this
 * kind of kernel; if it is 0, the byte rate of kernels in general is used. */
static double seconds_moved(const xd_rates *r, double own, double bytes)
{
    return bytes / (own > 0 ? own : r->bytes);
}

/* Returns the rate of a GEMM with quantized weights. If the speed-up was not measured, a GEMM with
 * int8 weights is assumed to be 1.5 times as fast as one with unquantized weights. A GEMM with e4m3
 * weights is assumed to be equally fast, because the weights are expanded before the GEMM. */
static double quant_rate(const xd_rates *r, const xd_gemm *a)
{
    const double fp8 = a->fp8 && r->fp8_gemm > 0 ? r->fp8_gemm : r->fp8;
    if (a->w->type == XD_I8)
        return r->gemm * (r->int8 > 0 ? r->int8 : 1.5);
    return a->w->type == XD_F8E4M3 && fp8 > 0 ? r->gemm * fp8 : r->gemm;
}

/* Returns the time in which a CPU reads a weight, which other weights may have displaced from the
 * caches. */
static double seconds_weight(const xd_cost_device *k, const xd_weight *w)
{
    return (double)w->bytes / (k->weights > k->m->cache ? k->rate->weights : k->rate->bytes);
}

static double seconds_gemm(const xd_cost_device *k, const xd_gemm *a, const xd_counts *c)
{
    const xd_rates *r = k->rate;
    double          t = c->flops / rate_at(quant_rate(r, a), (double)a->out.d[0], r->gemm_rows),
                    out = (double)xd_bytes(a->out);
    if (!(r->weights > 0))
        return xd_max_double(t, c->bytes / r->bytes);
    t += seconds_weight(k, a->w);
    if (a->act != XD_NONE)
        t += seconds_moved(r, r->act, 2 * out);
    if (a->residual.p)
        t += (out + (double)xd_bytes(a->residual)) / r->bytes;
    return t;
}

/* Returns 1 if a convolution by oneDNN reads or writes the images t without a copy. Images of 2-D
 * kernels need not be adjacent. */
static int is_dense(const xd_tensor *t, int nk)
{
    int64_t row = t->d[2] * t->d[3];
    return (t->s[2] == t->d[3] || t->d[2] == 1) && (t->s[1] == row || t->d[1] == 1) &&
           (nk == 2 || t->s[0] == t->d[1] * row || t->d[0] == 1);
}

/* Returns the time of a convolution. A CPU copies a residual to the output, to which the
 * convolution then adds its result; it copies views to dense images, and converts a narrower
 * output. */
static double seconds_conv(const xd_cost_device *k, const xd_conv *a, const xd_counts *c)
{
    const xd_rates *r = k->rate;
    double          rate = a->w->kernel[0] > 1 && r->conv_3d > 0 ? r->conv_3d : r->conv;
    double          t = c->flops / rate_at(rate, (double)a->out.d[1], r->conv_rows);
    double          in = (double)xd_bytes(a->in), out = (double)xd_bytes(a->out), moved = 0;
    double          wide = (double)xd_count(a->out) * sizeof(float);
    if (!(r->weights > 0))
        return xd_max_double(t, c->bytes / r->bytes);
    if (!is_dense(&a->in, a->w->nk))
        moved += 2 * in;
    if (a->in.type == XD_F32 && a->out.type != XD_F32)
        moved += wide + out;
    else if (!is_dense(&a->out, a->w->nk))
        moved += 2 * out;
    if (a->residual.p)
        moved += out + (a->residual.p == a->out.p ? 0 : (double)xd_bytes(a->residual) + out);
    return t + seconds_weight(k, a->w) + moved / r->bytes;
}

/* Returns the rate of attention with head width D. The time of each pair of query and key is a
 * constant time plus the time of its FLOPs. The rates for head widths 64 and 128 determine this
 * constant time, which dominates for widths below 64. Rates for head widths between 64 and 128 are
 * interpolated. */
static double attn_rate(const xd_rates *r, double D)
{
    double w = D <= 64 ? 0 : D >= 128 ? 1 : (D - 64) / 64;
    double same = 64 * (2 * (r->attn[1] / r->attn[0]) - 2) / (2 - r->attn[1] / r->attn[0]);
    if (D < 64 && same > 0)
        return r->attn[0] * (64 + same) / 64 * D / (D + same);
    return r->attn[0] * (1 - w) + r->attn[1] * w;
}

/* The speed of attention with int8 scores relative to attention in bf16 (doc/lab/attention.md). */
static const double INT8_GAIN = 1.3;

static double seconds_attn(const xd_rates *r, const xd_attn_args *a, const xd_counts *c)
{
    double keys = 0;
    for (int i = 0; i < a->nkv; i++)
        keys += (double)a->kv[i].k.d[1];
    double rate = rate_at(attn_rate(r, (double)a->q.d[3]), keys, r->attn_keys);
    if (a->int8)
        rate *= INT8_GAIN;
    return xd_max_double(c->flops / rate_at(rate, (double)a->q.d[1], r->attn_rows),
                         c->bytes / r->bytes);
}

static double seconds_of(const xd_cost_device *k, xd_op op, const void *a, const xd_counts *c)
{
    const xd_rates *r = k->rate;
    switch (op) {
    case XD_OP_GEMM: return seconds_gemm(k, a, c);
    case XD_OP_ATTN: return seconds_attn(r, a, c);
    case XD_OP_CONV: return seconds_conv(k, a, c);
    case XD_OP_NORM:
    case XD_OP_ADDMUL: /* often follows a sum over ranks, so the operands are not in a cache */
    case XD_OP_ROTATE:
    case XD_OP_QKNORM: return seconds_moved(r, r->norm, c->bytes);
    case XD_OP_LINATTN: return xd_max_double(c->flops / r->attn[0], c->bytes / r->bytes);
    case XD_OP_MOMENTS:
    case XD_OP_GNORM: return seconds_moved(r, r->gnorm, c->bytes);
    case XD_OP_GLU: return seconds_moved(r, r->act, c->bytes);
    default: return seconds_moved(r, 0, c->bytes);
    }
}

#define COSTED(slot, type, op)                                                                   \
    static xd_status slot(xd_dev *d, xd_stream *s, const type *a, void *tmp)                     \
    {                                                                                            \
        xd_cost_device *r = d->priv;                                                             \
        xd_dev      *real = r->w.real;                                                           \
        xd_counts    b, c;                                                                       \
        xd_dev_counts(real, &b, 0);                                                              \
        xd_status st = real->ops->slot(real, s, a, tmp);                                         \
        xd_dev_counts(real, &c, 0);                                                              \
        c.flops -= b.flops, c.bytes -= b.bytes;                                                  \
        r->seconds += r->rate->call_s + seconds_of(r, XD_OP_##op, a, &c);                        \
        return st;                                                                               \
    }

XD_KERNELS(COSTED)

static void close_none(xd_dev *d)
{
    (void)d;
}

#define PUT(slot, type, op) r->w.ops.slot = slot;

xd_status xd_cost_device_open(xd_cost_device **out, xd_dev *count, const xd_machine *m,
                              xd_dtype type, xd_err *e)
{
    xd_cost_device *r = *out = calloc(1, sizeof *r);
    if (!r)
        return xd_fail(e, XD_ENOMEM, "no memory to predict a plan");
    r->m = m;
    r->rate = xd_machine_rates(m, type);
    xd_device_proxy_open(&r->w, count, close_none);
    XD_KERNELS(PUT)
    r->w.dev.priv = r;
    r->w.dev.counts = 1;
    strcpy(r->w.dev.name, "predict");
    return XD_OK;
}

void xd_cost_device_close(xd_cost_device **r)
{
    free(*r);
    *r = NULL;
}

xd_dev *xd_cost_device_dev(xd_cost_device *r)
{
    return &r->w.dev;
}

void xd_cost_device_weights(xd_cost_device *r, double bytes)
{
    r->weights = bytes;
}

double xd_cost_device_lap_s(xd_cost_device *r, int alone)
{
    double s = alone ? r->seconds / r->m->alone : r->seconds;
    r->seconds = 0;
    return s;
}
