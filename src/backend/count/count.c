/* count.c - implements the count device, which computes nothing and only adds up the operations,
 * the moved bytes and the memory of a model that runs on this device
 *
 * The memory of this device is a range of addresses without storage. Allocated blocks have
 * consecutive addresses, are never NULL, never overlap, and must not be dereferenced. */
#include "backend/count/count.h"

#include <stdint.h>
#include <stdlib.h>

#include "backend/op_args.h"
#include "base/arena.h"

typedef struct count {
    xd_dev    dev;
    xd_dev   *real;
    uintptr_t next; /* address of the next allocated block of memory */
    xd_counts sum;
} count;

static count *count_of(const xd_dev *d)
{
    return d->priv;
}

const xd_dev *xd_count_real(const xd_dev *d)
{
    return count_of(d)->real;
}

/* ---- memory ------------------------------------------------------------------------------- */

static void *count_get(xd_dev *d, size_t bytes)
{
    count    *c = count_of(d);
    uintptr_t p = c->next, size = (bytes + XD_ALIGN) / XD_ALIGN * XD_ALIGN;
    if (bytes > UINTPTR_MAX - XD_ALIGN || size > UINTPTR_MAX - p)
        return NULL;
    c->next += size;
    return (void *)p;
}

/* Frees a block of memory. If the block is the last allocated one, the next allocation uses the
 * block's addresses again. Without this reuse the addresses would run out, because an engine counts
 * every request in arenas of 2^60 bytes, and only fifteen such arenas fit into the address
 * space. */
static void count_put(xd_dev *d, void *p, size_t bytes)
{
    count    *c = count_of(d);
    uintptr_t size = (bytes + XD_ALIGN) / XD_ALIGN * XD_ALIGN;
    if (p && (uintptr_t)p + size == c->next)
        c->next = (uintptr_t)p;
}

static void count_sync(xd_dev *d, xd_stream *s)
{
    (void)d;
    (void)s;
}

static void count_memory(xd_dev *d, size_t *available, size_t *total)
{
    (void)d;
    *available = *total = SIZE_MAX / 4;
}

static void close_count(xd_dev *d)
{
    free(count_of(d));
}

static xd_status count_move(xd_dev *d, xd_stream *s, void *to, const void *from, size_t bytes)
{
    (void)d, (void)s, (void)to, (void)from, (void)bytes;
    return XD_OK;
}

static xd_status count_fill(xd_dev *d, xd_stream *s, void *p, int value, size_t bytes)
{
    (void)d, (void)s, (void)p, (void)value, (void)bytes;
    return XD_OK;
}

static int count_owns(xd_dev *d, const void *p)
{
    (void)d, (void)p;
    return 1;
}

static size_t kernel_bytes(const xd_dev *d)
{
    const xd_dev *real = count_of(d)->real;
    return real ? real->mem->kernel_bytes(real) : 0;
}

static uint64_t identity(const xd_dev *d)
{
    const xd_dev *real = count_of(d)->real;
    return real ? xd_dev_identity(real) : 0;
}

static void count_forget(xd_dev *d)
{
    if (count_of(d)->real)
        xd_dev_forget(count_of(d)->real);
}

static const xd_dev_ops mem_ops = {
    .get = count_get,
    .put = count_put,
    .sync = count_sync,
    .memory = count_memory,
    .upload = count_move,
    .download = count_move,
    .fill = count_fill,
    .owns = count_owns,
    .identity = identity,
    .kernel_bytes = kernel_bytes,
    .forget = count_forget,
    .close = close_count,
};

/* ---- weights ------------------------------------------------------------------------------ */

static size_t scratch(xd_dev *d, xd_op op, const void *args)
{
    xd_dev *real = count_of(d)->real;
    return real ? real->ops->scratch(real, op, args) : 0;
}

static size_t pack_size(xd_dev *d, xd_weight *w)
{
    xd_dev *real = count_of(d)->real;
    if (real)
        return real->ops->pack_size(real, w);
    w->layout = 0;
    w->bytes = (size_t)(w->out * w->in * xd_weight_taps(w)) * xd_dtype_size(w->type);
    if (xd_is_quantized(w->type))
        w->bytes += (size_t)w->out * sizeof(float);
    return w->bytes;
}

static size_t pack_tmp(xd_dev *d, const xd_weight *w, xd_dtype src)
{
    xd_dev *real = count_of(d)->real;
    return real ? real->ops->pack_tmp(real, w, src) : 0;
}

static int64_t pack_band(xd_dev *d, const xd_weight *w)
{
    xd_dev *real = count_of(d)->real;
    return real ? real->ops->pack_band(real, w) : 0;
}

static xd_status pack(xd_dev *d, xd_weight *w, xd_tensor src, void *tmp)
{
    (void)d;
    (void)w;
    (void)src;
    (void)tmp;
    return XD_OK;
}

/* ---- ops ---------------------------------------------------------------------------------- */

static double bytes_of(const xd_tensor *t)
{
    return t->p ? (double)xd_bytes(*t) : 0.0;
}

/* Adds the bytes that an op call moves and its floating-point operations to the device's counters.
 * The operations are also added to *part unless `part` is NULL. */
static xd_status add_call(xd_dev *d, double bytes, double *part, double flops)
{
    count *c = count_of(d);
    c->sum.calls++;
    c->sum.bytes += bytes;
    c->sum.flops += flops;
    c->sum.small += flops < 4e9 && bytes < 20e6;
    if (part)
        *part += flops;
    return XD_OK;
}

static xd_status gemm(xd_dev *d, xd_stream *s, const xd_gemm *a, void *tmp)
{
    double M = (double)a->out.d[0], N = (double)a->w->out, K = (double)a->w->in;
    (void)s;
    (void)tmp;
    return add_call(d,
                    bytes_of(&a->out) + bytes_of(&a->in) + bytes_of(&a->bias) + bytes_of(&a->gate) +
                        bytes_of(&a->residual) + bytes_of(&a->sx) + (double)a->w->bytes,
                    &count_of(d)->sum.gemm_flops, 2 * M * N * K);
}

/* Returns the number of (query, key) pairs whose scores attention computes. With a causal mask,
 * about half of all pairs are counted. With a window, only the pairs inside the window are counted.
 * The keys beyond kv_len are also counted, because a count device does not read the values of
 * kv_len. */
static double score_pairs(const xd_attn_args *a, double n, double m)
{
    double p = n * m;
    if (a->window > 0 && 2.0 * (double)a->window + 1 < m)
        p = n * (2.0 * (double)a->window + 1);
    return a->causal ? p / 2 : p;
}

static xd_status attn(xd_dev *d, xd_stream *s, const xd_attn_args *a, void *tmp)
{
    double bytes = bytes_of(&a->out) + bytes_of(&a->lse) + bytes_of(&a->q) + bytes_of(&a->bias);
    double m = 0;
    (void)s;
    (void)tmp;
    for (int i = 0; i < a->nkv; i++) {
        m += (double)a->kv[i].k.d[1];
        bytes += bytes_of(&a->kv[i].k) + bytes_of(&a->kv[i].v);
    }
    double heads = (double)(a->q.d[0] * a->q.d[2] * a->q.d[3]);
    return add_call(d, bytes, &count_of(d)->sum.attn_flops,
                    4 * heads * score_pairs(a, (double)a->q.d[1], m));
}

static xd_status conv(xd_dev *d, xd_stream *s, const xd_conv *a, void *tmp)
{
    (void)s;
    (void)tmp;
    double taps = a->w->kernel[0] * a->w->kernel[1] * (double)a->w->kernel[2];
    return add_call(d,
                    bytes_of(&a->out) + bytes_of(&a->in) + bytes_of(&a->bias) +
                        bytes_of(&a->residual) + (double)a->w->bytes,
                    &count_of(d)->sum.conv_flops,
                    2 * (double)xd_count(a->out) * (double)a->w->in * taps);
}

/* The following ops only move bytes. The bytes of an operand are counted once, or twice if the
 * operand is both read and written. */
#define MOVES(op, type, bytes)                                                       \
    static xd_status op(xd_dev *d, xd_stream *s, const type *a, void *tmp)           \
    {                                                                                \
        (void)s;                                                                     \
        (void)tmp;                                                                   \
        return add_call(d, bytes, NULL, 0);                                               \
    }

MOVES(norm, xd_norm,
      bytes_of(&a->out) + bytes_of(&a->in) + bytes_of(&a->gain) + bytes_of(&a->bias) +
          bytes_of(&a->scale) + bytes_of(&a->shift) + bytes_of(&a->like) + bytes_of(&a->add) +
          bytes_of(&a->gate) + bytes_of(&a->sx) + (a->add.p ? bytes_of(&a->in) : 0))
MOVES(moments, xd_moments, bytes_of(&a->out) + bytes_of(&a->in))
MOVES(gnorm, xd_gnorm,
      bytes_of(&a->out) + bytes_of(&a->in) + bytes_of(&a->sums) + bytes_of(&a->gain) +
          bytes_of(&a->bias) + bytes_of(&a->scale) + bytes_of(&a->shift))
MOVES(glu, xd_glu, bytes_of(&a->out) + bytes_of(&a->a) + bytes_of(&a->b) + bytes_of(&a->sx))
MOVES(addmul, xd_addmul, 2 * bytes_of(&a->acc) + bytes_of(&a->gate) + bytes_of(&a->in))
MOVES(axpby, xd_axpby_args, 2 * bytes_of(&a->y) + bytes_of(&a->x))
MOVES(resize, xd_resize, bytes_of(&a->out) + bytes_of(&a->in))
MOVES(lookup, xd_lookup, 2 * bytes_of(&a->out) + bytes_of(&a->ids))
MOVES(qknorm, xd_qknorm,
      bytes_of(&a->out) + bytes_of(&a->in) + bytes_of(&a->gain) + bytes_of(&a->bias) +
          bytes_of(&a->cos) + bytes_of(&a->sin) + bytes_of(&a->also.out) + bytes_of(&a->also.in) +
          bytes_of(&a->also.gain) + bytes_of(&a->also.bias))
MOVES(rotate, xd_rotate, bytes_of(&a->out) + bytes_of(&a->in))

static xd_status linattn(xd_dev *d, xd_stream *s, const xd_linattn *a, void *tmp)
{
    double rows = (a->k.p ? (double)a->k.d[0] : 0) + (a->q.p ? (double)a->q.d[0] : 0);
    (void)s;
    (void)tmp;
    return add_call(d,
                    bytes_of(&a->out) + bytes_of(&a->q) + bytes_of(&a->k) + bytes_of(&a->v) +
                        bytes_of(&a->sums),
                    &count_of(d)->sum.attn_flops, 2 * rows * (double)xd_count(a->sums));
}

MOVES(copy, xd_copy, bytes_of(&a->out) + bytes_of(&a->in))
MOVES(code, xd_code, bytes_of(&a->out) + bytes_of(&a->in))

static const xd_ops ops = {
    .name = "count",
    .scratch = scratch,
    .pack_size = pack_size,
    .pack_tmp = pack_tmp,
    .pack = pack,
    .pack_band = pack_band,
    .gemm = gemm,
    .attn = attn,
    .norm = norm,
    .moments = moments,
    .gnorm = gnorm,
    .glu = glu,
    .addmul = addmul,
    .axpby = axpby,
    .conv = conv,
    .resize = resize,
    .lookup = lookup,
    .copy = copy,
    .qknorm = qknorm,
    .rotate = rotate,
    .linattn = linattn,
    .code = code,
};

xd_status xd_dev_open_count(xd_dev **d, xd_dev *real, xd_err *e)
{
    count *c = calloc(1, sizeof *c);
    *d = NULL;
    if (!c)
        return xd_fail(e, XD_ENOMEM, "no memory for the count device");
    c->real = real;
    c->next = (uintptr_t)1 << 20;
    c->dev = (xd_dev){ .mem = &mem_ops,
                       .ops = &ops,
                       .name = "count",
                       .counts = 1,
                       .host_memory = !real || real->host_memory,
                       .rotates = !real || real->rotates,
                       .int8_attn = real ? real->int8_attn : 0,
                       .fp8_gemm = real ? real->fp8_gemm : 0,
                       .narrow_bias = real ? real->narrow_bias : 0,
                       .norm_adds = real ? real->norm_adds : 0,
                       .priv = c };
    *d = &c->dev;
    return XD_OK;
}

void xd_dev_counts(xd_dev *d, xd_counts *out, int reset)
{
    count *c = count_of(d);
    *out = (xd_counts){ 0 };
    if (!d->counts)
        return;
    *out = c->sum;
    if (reset)
        c->sum = (xd_counts){ 0 };
}
