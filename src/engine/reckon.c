/* reckon.c - a count device that knows how long each call would take on a machine
 *
 * A product or an attention takes its flops at the machine's rate, less while it has few rows or keys,
 * or its bytes, whichever is longer; everything else takes its bytes (Williams et al. 2009, the roofline
 * model, with a half-speed point as in Hockney and Jesshope 1988). */
#include <stdlib.h>
#include <string.h>

#include "engine/machine.h"
#include "engine/wrap.h"

struct xd_reckoner {            /* the wrap comes first: its device is ours                    */
    xd_wrap           w;
    const xd_machine *m;
    const xd_rates   *rate;
    double            seconds;
};

const xd_rates *xd_machine_rates(const xd_machine *m, xd_dtype compute)
{
    return compute == XD_BF16 ? &m->bf16 : &m->f32;
}

/* A rate that half of is reached at `half`. */
static double at(double rate, double n, double half)
{
    return n > 0 ? rate * n / (n + half) : rate;
}

static double longer(double a, double b)
{
    return a > b ? a : b;
}

static double seconds_gemm(const xd_rates *r, const xd_gemm *a, const xd_counts *c)
{
    return longer(c->flops / at(r->gemm, (double)a->out.d[0], r->gemm_rows), c->bytes / r->bytes);
}

/* Heads between 64 and 128 features in proportion, others as the nearer of both. */
static double seconds_attn(const xd_rates *r, const xd_attn_args *a, const xd_counts *c)
{
    double keys = 0, D = (double)a->q.d[3], w = D <= 64 ? 0 : D >= 128 ? 1 : (D - 64) / 64;
    for (int i = 0; i < a->nkv; i++)
        keys += (double)a->kv[i].k.d[1];
    double rate = r->attn[0] * (1 - w) + r->attn[1] * w;
    return longer(c->flops / at(rate, keys, r->attn_keys), c->bytes / r->bytes);
}

static double seconds_of(const xd_rates *r, xd_op op, const void *a, const xd_counts *c)
{
    switch (op) {
    case XD_OP_GEMM: return seconds_gemm(r, a, c);
    case XD_OP_ATTN: return seconds_attn(r, a, c);
    case XD_OP_CONV: return longer(c->flops / r->conv, c->bytes / r->bytes);
    default:         return c->bytes / r->bytes;
    }
}

#define RECKONED(slot, type, op)                                                                   \
    static xd_status slot(xd_dev *d, xd_stream *s, const type *a, void *tmp)                        \
    {                                                                                               \
        xd_reckoner *r = d->priv;                                                                   \
        xd_dev      *real = r->w.real;                                                              \
        xd_counts    b, c;                                                                          \
        xd_dev_counts(real, &b, 0);                                                                 \
        xd_status st = real->ops->slot(real, s, a, tmp);                                            \
        xd_dev_counts(real, &c, 0);                                                                 \
        c.flops -= b.flops, c.bytes -= b.bytes;                                                     \
        r->seconds += r->rate->call_s + seconds_of(r->rate, XD_OP_##op, a, &c);                     \
        return st;                                                                                  \
    }

XD_KERNELS(RECKONED)

static void close_none(xd_dev *d)
{
    (void)d;
}

#define PUT(slot, type, op) r->w.ops.slot = slot;

xd_status xd_reckoner_open(xd_reckoner **out, xd_dev *count, const xd_machine *m, xd_dtype type,
                           xd_err *e)
{
    xd_reckoner *r = *out = calloc(1, sizeof *r);
    if (!r)
        return xd_fail(e, XD_ENOMEM, "no memory to reckon a plan");
    r->m = m;
    r->rate = xd_machine_rates(m, type);
    xd_wrap_open(&r->w, count, close_none);
    XD_KERNELS(PUT)
    r->w.dev.priv = r;
    r->w.dev.counts = 1;
    strcpy(r->w.dev.name, "reckon");
    return XD_OK;
}

void xd_reckoner_close(xd_reckoner **r)
{
    free(*r);
    *r = NULL;
}

xd_dev *xd_reckoner_dev(xd_reckoner *r)
{
    return &r->w.dev;
}

double xd_reckoner_lap(xd_reckoner *r, int alone)
{
    double s = alone ? r->seconds / r->m->alone : r->seconds;
    r->seconds = 0;
    return s;
}
