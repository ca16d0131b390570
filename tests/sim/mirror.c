/* mirror.c - the CUDA device for tests that know host memory alone
 *
 * Put in the place of the CPU device by the linker (--wrap=xd_dev_kind_cpu). Memory that a test
 * takes is the host's. For a call the bytes of all its operands are copied to the device, and back
 * when it has run; operands that overlap stay one. Guard bytes around each copy must be unchanged
 * then. A copy has the alignment of the operand. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/cuda/cuda.h"
#include "tests/sim/asan.h"

enum { MOST = 160, GUARD = 0x5a, EDGE = 256 };

/* Host bytes [from, end), and where they are on the device. */
typedef struct range {
    char *from, *end, *block, *at;
    int   fresh; /* 1: scratch: not copied, holds NaNs */
} range;

typedef struct call {
    range r[MOST];
    int   n;
} call;

typedef struct mirror { xd_dev dev, *real; } mirror;

static xd_dev *real_of(const xd_dev *d)
{
    return ((const mirror *)(const void *)d)->real;
}

static void die(const char *what)
{
    fprintf(stderr, "mirror: %s\n", what);
    abort();
}

/* ---- ranges ------------------------------------------------------------------------------- */

static void add_range(call *c, char *from, char *end, int fresh)
{
    for (int i = 0; i < c->n; i++) /* one range for all that touch */
        if (!fresh && !c->r[i].fresh && from <= c->r[i].end && c->r[i].from <= end) {
            from = from < c->r[i].from ? from : c->r[i].from;
            end = end > c->r[i].end ? end : c->r[i].end;
            c->r[i] = c->r[--c->n];
            i = -1;
        }
    if (c->n == MOST)
        die("too many operands");
    c->r[c->n++] = (range){ .from = from, .end = end, .fresh = fresh };
}

static void add(call *c, const xd_tensor *t)
{
    int64_t last = 0;
    if (!t->p || !xd_count(*t))
        return;
    for (int i = 0; i < t->nd; i++)
        last += (t->d[i] - 1) * t->s[i];
    add_range(c, t->p, (char *)t->p + (size_t)(last + 1) * xd_dtype_size(t->type), 0);
}

static void *moved(const call *c, const void *p)
{
    for (int i = 0; i < c->n; i++)
        if ((const char *)p >= c->r[i].from && (const char *)p < c->r[i].end)
            return c->r[i].at + ((const char *)p - c->r[i].from);
    return NULL;
}

/* An operand without elements stays present. */
static void move(const call *c, xd_tensor *t)
{
    static char *const somewhere = (char *)4096;
    if (t->p)
        t->p = xd_count(*t) ? moved(c, t->p) : somewhere;
}

static void send(xd_dev *d, call *c)
{
    for (int i = 0; i < c->n; i++) {
        range *r = &c->r[i];
        size_t n = (size_t)(r->end - r->from);
        r->block = d->mem->get(d, n + 3 * EDGE);
        if (!r->block)
            die("no device memory");
        r->at = r->block + EDGE + (uintptr_t)r->from % EDGE;
        int s = d->mem->fill(d, NULL, r->block, GUARD, n + 3 * EDGE) ||
                (r->fresh ? d->mem->fill(d, NULL, r->at, 0xff, n)
                          : d->mem->upload(d, NULL, r->at, r->from, sim_present(r->from, n)));
        if (s)
            die("an upload failed");
    }
}

/* AddressSanitizer sees what is read beside an operand, too. Copies to the device have ended. */
static void close_edges(xd_dev *d, const call *c)
{
    if (!SIM_ASAN)
        return;
    d->mem->sync(d, NULL);
    for (int i = 0; i < c->n; i++) {
        const range *r = &c->r[i];
        size_t       n = (size_t)(r->end - r->from), lead = (size_t)(r->at - r->block);
        sim_close(r->block, lead);
        sim_close(r->at + n, 3 * EDGE - lead);
    }
}

/* What a refused call was given may not exist as it says. */
static xd_status fetch(xd_dev *d, call *c, xd_status ran)
{
    xd_status all = ran;
    for (int i = 0; i < c->n; i++) {
        range         *r = &c->r[i];
        size_t         n = (size_t)(r->end - r->from), lead = (size_t)(r->at - r->block);
        unsigned char *copy = malloc(n + 3 * EDGE);
        if (!copy)
            die("no host memory");
        if (SIM_ASAN)
            d->mem->sync(d, NULL);
        sim_open(r->block, n + 3 * EDGE);
        xd_status s = d->mem->download(d, NULL, copy, r->block, n + 3 * EDGE);
        all = all == XD_OK ? s : all;
        for (size_t k = 0; k < n + 3 * EDGE; k++)
            if ((k < lead || k >= lead + n) && copy[k] != GUARD)
                die("a kernel wrote beside its operands");
        if (!r->fresh && ran == XD_OK)
            memcpy(r->from, copy + lead, n);
        free(copy);
        d->mem->put(d, r->block, n + 3 * EDGE);
    }
    return all;
}

/* ---- ops ---------------------------------------------------------------------------------- */

/* A call of an op whose operands are the tensors in the list. */
#define MIRRORED(OP, slot, type, extra_add, extra_move, ...)                                       \
    static xd_status slot(xd_dev *m, xd_stream *s, const type *a, void *tmp)                       \
    {                                                                                              \
        xd_dev    *d = real_of(m);                                                                 \
        type       b = *a;                                                                         \
        call       c = { .n = 0 };                                                                 \
        size_t     bytes = tmp ? d->ops->scratch(d, OP, a) : 0;                                    \
        xd_tensor *t[] = { __VA_ARGS__ };                                                          \
        for (size_t i = 0; i < sizeof t / sizeof *t; i++)                                          \
            add(&c, t[i]);                                                                         \
        extra_add;                                                                                 \
        if (bytes)                                                                                 \
            add_range(&c, tmp, (char *)tmp + bytes, 1);                                            \
        send(d, &c);                                                                               \
        for (size_t i = 0; i < sizeof t / sizeof *t; i++)                                          \
            move(&c, t[i]);                                                                        \
        extra_move;                                                                                \
        close_edges(d, &c);                                                                        \
        xd_status st = d->ops->slot(d, s, &b, bytes ? moved(&c, tmp) : NULL);                      \
        return fetch(d, &c, st);                                                                   \
    }

#define WEIGHT_ADD                                                                                 \
    xd_weight w = *b.w;                                                                            \
    add_range(&c, w.p, (char *)w.p + w.bytes, 0)
#define WEIGHT_MOVE                                                                                \
    w.p = moved(&c, w.p);                                                                          \
    b.w = &w

MIRRORED(XD_OP_GEMM, gemm, xd_gemm, WEIGHT_ADD, WEIGHT_MOVE, &b.out, &b.in, &b.bias, &b.gate,
         &b.residual, &b.sx)
MIRRORED(XD_OP_CONV, conv, xd_conv, WEIGHT_ADD, WEIGHT_MOVE, &b.out, &b.in, &b.bias, &b.residual)
MIRRORED(XD_OP_NORM, norm, xd_norm, , , &b.out, &b.in, &b.gain, &b.bias, &b.scale, &b.shift,
         &b.like, &b.add, &b.gate, &b.sx)
MIRRORED(XD_OP_MOMENTS, moments, xd_moments, , , &b.out, &b.in)
MIRRORED(XD_OP_GNORM, gnorm, xd_gnorm, , , &b.out, &b.in, &b.sums, &b.gain, &b.bias, &b.scale,
         &b.shift)
MIRRORED(XD_OP_GLU, glu, xd_glu, , , &b.out, &b.a, &b.b, &b.sx)
MIRRORED(XD_OP_ADDMUL, addmul, xd_addmul, , , &b.acc, &b.gate, &b.in)
MIRRORED(XD_OP_AXPBY, axpby, xd_axpby_args, , , &b.y, &b.x)
MIRRORED(XD_OP_RESIZE, resize, xd_resize, , , &b.out, &b.in)
MIRRORED(XD_OP_LOOKUP, lookup, xd_lookup, , , &b.out, &b.table, &b.ids)
MIRRORED(XD_OP_CODE, code, xd_code, , , &b.out, &b.in)
MIRRORED(XD_OP_COPY, copy, xd_copy, , , &b.out, &b.in)
MIRRORED(XD_OP_QKNORM, qknorm, xd_qknorm, , , &b.out, &b.in, &b.gain, &b.bias, &b.cos, &b.sin,
         &b.also.out, &b.also.in, &b.also.gain, &b.also.bias)
MIRRORED(XD_OP_ROTATE, rotate, xd_rotate, , , &b.out, &b.in)
MIRRORED(XD_OP_LINATTN, linattn, xd_linattn, , , &b.out, &b.q, &b.k, &b.v, &b.sums, &b.cos, &b.sin)

enum { PIECES = 64 };

static void attn_add(call *c, xd_attn_args *b, xd_kv *kv, xd_qo *part)
{
    if (b->nkv > PIECES || b->nparts > PIECES)
        die("too many segments");
    for (int i = 0; i < b->nkv; i++) {
        kv[i] = b->kv[i];
        add(c, &kv[i].k), add(c, &kv[i].v);
    }
    for (int i = 0; i < b->nparts; i++) {
        part[i] = b->part[i];
        add(c, &part[i].q), add(c, &part[i].out);
    }
    if (!b->nparts)
        add(c, &b->q), add(c, &b->out);
}

static void attn_move(const call *c, xd_attn_args *b, xd_kv *kv, xd_qo *part)
{
    for (int i = 0; i < b->nkv; i++)
        move(c, &kv[i].k), move(c, &kv[i].v);
    for (int i = 0; i < b->nparts; i++)
        move(c, &part[i].q), move(c, &part[i].out);
    move(c, &b->q), move(c, &b->out);
    b->kv = kv;
    b->part = part;
}

MIRRORED(XD_OP_ATTN, attn, xd_attn_args, xd_kv kv[PIECES]; xd_qo part[PIECES];
         attn_add(&c, &b, kv, part), attn_move(&c, &b, kv, part), &b.lse, &b.bias)

/* ---- weights ------------------------------------------------------------------------------ */

static size_t scratch(xd_dev *m, xd_op op, const void *a)
{
    return real_of(m)->ops->scratch(real_of(m), op, a);
}

static size_t pack_size(xd_dev *m, xd_weight *w)
{
    return real_of(m)->ops->pack_size(real_of(m), w);
}

static size_t pack_tmp(xd_dev *m, const xd_weight *w, xd_dtype src)
{
    return real_of(m)->ops->pack_tmp(real_of(m), w, src);
}

/* By bands of rows where the device takes them, the last band first. */
static xd_status pack(xd_dev *m, xd_weight *w, xd_tensor src, void *tmp)
{
    xd_dev   *d = real_of(m);
    xd_weight b = *w;
    call      c = { .n = 0 };
    int64_t   band = d->ops->pack_band(d, w);
    xd_status s = XD_OK;
    (void)tmp;
    add_range(&c, w->p, (char *)w->p + w->bytes, 0);
    send(d, &c);
    b.p = moved(&c, w->p);
    close_edges(d, &c);
    if (!band || !w->in)
        s = d->ops->pack(d, &b, src, NULL);
    for (int64_t i = band && w->in ? (w->out + band - 1) / band - 1 : -1; i >= 0 && !s; i--) {
        int64_t n = w->out - i * band < band ? w->out - i * band : band;
        s = d->ops->pack_rows(d, &b, xd_rows(src, i * band, n), i * band);
    }
    return fetch(d, &c, s);
}

static int64_t pack_band(xd_dev *m, const xd_weight *w)
{
    (void)m, (void)w;
    return 0;
}

static const xd_ops ops = {
    .name = "cuda",
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

/* ---- the device --------------------------------------------------------------------------- */

static void *get(xd_dev *m, size_t bytes)
{
    (void)m;
    return bytes > (size_t)1 << 40 ? NULL : aligned_alloc(64, (bytes + 127) / 64 * 64);
}

static void put(xd_dev *m, void *p, size_t bytes)
{
    (void)m, (void)bytes;
    free(p);
}

static void wait_for_all(xd_dev *m, xd_stream *s)
{
    real_of(m)->mem->sync(real_of(m), s);
}

static void memory(xd_dev *m, size_t *available, size_t *total)
{
    real_of(m)->mem->memory(real_of(m), available, total);
}

static xd_dtype compute(const xd_dev *m, xd_dtype want)
{
    return xd_dev_compute(real_of(m), want);
}

static xd_dtype best(const xd_dev *m)
{
    return xd_dev_best(real_of(m));
}

static double peak(xd_dev *m, xd_dtype t, int threads, double seconds)
{
    return xd_dev_peak(real_of(m), t, threads, seconds);
}

static void close_mirror(xd_dev *m)
{
    xd_dev *d = real_of(m);
    xd_dev_close(&d);
    free(m);
}

static const xd_dev_ops mem = {
    .get = get,
    .put = put,
    .sync = wait_for_all,
    .memory = memory,
    .compute = compute,
    .best = best,
    .peak = peak,
    .close = close_mirror,
};

static xd_status open_mirror(xd_dev **out, const char *which, xd_err *e)
{
    mirror   *m = calloc(1, sizeof *m);
    xd_status s = m ? xd_dev_kind_cuda.open(&m->real, which, e)
                    : xd_fail(e, XD_ENOMEM, "no memory");
    if (s != XD_OK) {
        free(m);
        return s;
    }
    m->dev = (xd_dev){ .mem = &mem,
                       .ops = &ops,
                       .name = "cuda-mirror",
                       .host_memory = 1,
                       .fp8_gemm = m->real->fp8_gemm,
                       .narrow_bias = m->real->narrow_bias,
                       .norm_adds = m->real->norm_adds };
    *out = &m->dev;
    return XD_OK;
}

/* GNU ld crashes on the line numbers of a wrapped object that AddressSanitizer knows; an alias has
 * none. */
static const xd_dev_kind mirrored = { .name = "cpu", .open = open_mirror };
extern const xd_dev_kind __wrap_xd_dev_kind_cpu __attribute__((alias("mirrored")));
