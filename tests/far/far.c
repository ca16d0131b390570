/* far.c - a test device: the CPU's kernels on memory that the host cannot reach, and work that
 * runs late
 *
 * Put before the CPU device by the linker (--wrap=xd_dev_kind_cpu). Memory is a file mapped
 * twice: the addresses that are handed out are closed (PROT_NONE), kernels use the other
 * mapping. A host access ends the program. Fresh memory holds NaNs. Ops are queued and run when
 * the host waits or downloads: an access that comes too early sees old contents. */
#define _GNU_SOURCE /* memfd_create, fallocate */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/backend.h"

extern const xd_dev_kind __real_xd_dev_kind_cpu;
extern const xd_dev_kind __wrap_xd_dev_kind_cpu;

enum { PAGE = 4096, MOST = 64 }; /* MOST: segments, pieces and samples of an attention */
static const size_t SPAN = (size_t)1 << 38;

typedef union args {
    xd_gemm       gemm;
    xd_attn_args  attn;
    xd_norm       norm;
    xd_moments    moments;
    xd_gnorm      gnorm;
    xd_glu        glu;
    xd_addmul     addmul;
    xd_axpby_args axpby;
    xd_conv       conv;
    xd_resize     resize;
    xd_lookup     lookup;
    xd_copy       copy;
    xd_qknorm     qknorm;
    xd_rotate     rotate;
    xd_linattn    linattn;
    xd_code       code;
} args;

typedef struct item { /* an op or an upload that waits */
    struct item *next;
    xd_op        op; /* XD_NOPS: `bytes` bytes of `tmp`, which is malloc'ed, to `to` */
    args         a;
    xd_weight    w;
    xd_kv        kv[MOST];
    xd_qo        part[MOST];
    int64_t      kv_len[MOST];
    void        *tmp, *to;
    size_t       bytes;
} item;

typedef struct far {
    xd_dev    dev, *real;
    xd_ops    ops;
    xd_status failed; /* of an op that has run */
    item     *first, **last;
} far;

static char  *closed, *opened; /* the two mappings: as handed out, as kernels see it */
static size_t next;            /* of the mapping */
static int    file = -1;

static far *of(const xd_dev *d)
{
    return (far *)(void *)(uintptr_t)d;
}

static void die(const char *what)
{
    fprintf(stderr, "far device: %s\n", what);
    abort();
}

/* ---- memory ------------------------------------------------------------------------------- */

static void open_memory(void)
{
    if (file >= 0)
        return;
    file = memfd_create("far", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)SPAN) != 0)
        die("no memory file");
    closed = mmap(NULL, SPAN, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
    opened = mmap(NULL, SPAN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (closed == MAP_FAILED || opened == MAP_FAILED)
        die("memory cannot be mapped");
}

static int is_far(const void *p)
{
    return (const char *)p >= closed && (const char *)p < closed + SPAN;
}

/* An address as kernels see it; they never get one of the host's. */
static void *seen(const void *p)
{
    if (!p)
        return NULL;
    if (!is_far(p))
        die("a kernel is given host memory");
    return opened + ((const char *)p - closed);
}

static void see(xd_tensor *t)
{
    if (t->p && xd_count(*t))
        t->p = seen(t->p);
}

/* A page between blocks stays unused. */
static void *get(xd_dev *d, size_t bytes)
{
    size_t at = __atomic_fetch_add(&next, (bytes + 2 * PAGE) / PAGE * PAGE, __ATOMIC_RELAXED);
    (void)d;
    if (at + bytes + PAGE > SPAN)
        return NULL;
    memset(opened + at, 0xff, bytes < ((size_t)64 << 20) ? bytes : (size_t)64 << 20);
    return closed + at;
}

static void run_all(far *f);

static void put(xd_dev *d, void *p, size_t bytes)
{
    if (!p)
        return;
    run_all(of(d));
    fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (char *)p - closed,
              (off_t)((bytes + PAGE - 1) / PAGE * PAGE));
}

static void memory(xd_dev *d, size_t *available, size_t *total)
{
    of(d)->real->mem->memory(of(d)->real, available, total);
}

/* ---- late work ---------------------------------------------------------------------------- */

static xd_status run_one(far *f, item *n)
{
    const xd_ops *o = f->real->ops;
    xd_dev       *d = f->real;
    switch (n->op) {
    case XD_OP_GEMM: return o->gemm(d, NULL, &n->a.gemm, n->tmp);
    case XD_OP_ATTN: return o->attn(d, NULL, &n->a.attn, n->tmp);
    case XD_OP_NORM: return o->norm(d, NULL, &n->a.norm, n->tmp);
    case XD_OP_MOMENTS: return o->moments(d, NULL, &n->a.moments, n->tmp);
    case XD_OP_GNORM: return o->gnorm(d, NULL, &n->a.gnorm, n->tmp);
    case XD_OP_GLU: return o->glu(d, NULL, &n->a.glu, n->tmp);
    case XD_OP_ADDMUL: return o->addmul(d, NULL, &n->a.addmul, n->tmp);
    case XD_OP_AXPBY: return o->axpby(d, NULL, &n->a.axpby, n->tmp);
    case XD_OP_CONV: return o->conv(d, NULL, &n->a.conv, n->tmp);
    case XD_OP_RESIZE: return o->resize(d, NULL, &n->a.resize, n->tmp);
    case XD_OP_LOOKUP: return o->lookup(d, NULL, &n->a.lookup, n->tmp);
    case XD_OP_COPY: return o->copy(d, NULL, &n->a.copy, n->tmp);
    case XD_OP_QKNORM: return o->qknorm(d, NULL, &n->a.qknorm, n->tmp);
    case XD_OP_ROTATE: return o->rotate(d, NULL, &n->a.rotate, n->tmp);
    case XD_OP_LINATTN: return o->linattn(d, NULL, &n->a.linattn, n->tmp);
    case XD_OP_CODE: return o->code(d, NULL, &n->a.code, n->tmp);
    case XD_NOPS: break;
    }
    memcpy(n->to, n->tmp, n->bytes);
    free(n->tmp);
    return XD_OK;
}

static void run_all(far *f)
{
    for (item *n = f->first, *then; n; n = then) {
        xd_status s = run_one(f, n);
        then = n->next;
        f->failed = f->failed == XD_OK ? s : f->failed;
        free(n);
    }
    f->first = NULL;
    f->last = &f->first;
}

static item *new_item(xd_op op)
{
    item *n = calloc(1, sizeof *n);
    if (!n)
        die("no memory for an op");
    n->op = op;
    return n;
}

/* A failure of earlier work is told by the next call, as devices do. */
static xd_status queue(far *f, item *n)
{
    xd_status s = f->failed;
    *f->last = n;
    f->last = &n->next;
    f->failed = XD_OK;
    return s;
}

static void await_all(xd_dev *d, xd_stream *s)
{
    (void)s;
    run_all(of(d));
}

static xd_status upload(xd_dev *d, xd_stream *s, void *to, const void *from, size_t bytes)
{
    item *n = new_item(XD_NOPS);
    (void)s;
    n->to = seen(to);
    n->bytes = bytes;
    if (!(n->tmp = malloc(bytes + 1)))
        die("no memory for an upload");
    memcpy(n->tmp, from, bytes);
    return queue(of(d), n);
}

static xd_status download(xd_dev *d, xd_stream *s, void *to, const void *from, size_t bytes)
{
    (void)s;
    run_all(of(d));
    memcpy(to, seen(from), bytes);
    return of(d)->failed;
}

static xd_status fill(xd_dev *d, xd_stream *s, void *p, int value, size_t bytes)
{
    (void)s;
    run_all(of(d));
    memset(seen(p), value, bytes);
    return XD_OK;
}

static int owns(xd_dev *d, const void *p)
{
    (void)d;
    return is_far(p);
}

/* ---- ops ---------------------------------------------------------------------------------- */

#define BEGIN(OP, slot)                                                                        \
    item *n = new_item(XD_OP_##OP);                                                            \
    (void)s;                                                                                   \
    n->a.slot = *a;                                                                            \
    n->tmp = seen(tmp)

static void see_weight(item *n, const xd_weight **w)
{
    n->w = **w;
    n->w.p = seen(n->w.p);
    *w = &n->w;
}

static xd_status gemm(xd_dev *d, xd_stream *s, const xd_gemm *a, void *tmp)
{
    BEGIN(GEMM, gemm);
    xd_gemm *b = &n->a.gemm;
    see(&b->out), see(&b->in), see(&b->bias), see(&b->gate), see(&b->residual);
    see_weight(n, &b->w);
    return queue(of(d), n);
}

static xd_status attn(xd_dev *d, xd_stream *s, const xd_attn_args *a, void *tmp)
{
    BEGIN(ATTN, attn);
    xd_attn_args *b = &n->a.attn;
    if (a->nkv > MOST || a->nparts > MOST || (a->kv_len && a->q.d[0] > MOST))
        die("an attention of too many segments");
    if (!a->nparts)
        see(&b->out), see(&b->q);
    see(&b->lse), see(&b->bias);
    for (int i = 0; i < a->nkv; i++) {
        n->kv[i] = a->kv[i];
        see(&n->kv[i].k), see(&n->kv[i].v);
    }
    for (int i = 0; i < a->nparts; i++) {
        n->part[i] = a->part[i];
        see(&n->part[i].q), see(&n->part[i].out);
    }
    b->kv = n->kv;
    b->part = a->part ? n->part : NULL;
    if (a->kv_len)
        b->kv_len = memcpy(n->kv_len, a->kv_len, (size_t)a->q.d[0] * sizeof *n->kv_len);
    return queue(of(d), n);
}

static xd_status conv(xd_dev *d, xd_stream *s, const xd_conv *a, void *tmp)
{
    BEGIN(CONV, conv);
    xd_conv *b = &n->a.conv;
    see(&b->out), see(&b->in), see(&b->bias), see(&b->residual);
    see_weight(n, &b->w);
    return queue(of(d), n);
}

/* An op whose operands are the tensors that SEE names. */
#define OPERANDS(OP, slot, type, ...)                                                          \
    static xd_status slot(xd_dev *d, xd_stream *s, const type *a, void *tmp)                   \
    {                                                                                          \
        BEGIN(OP, slot);                                                                       \
        type      *b = &n->a.slot;                                                             \
        xd_tensor *t[] = { __VA_ARGS__ };                                                      \
        for (size_t i = 0; i < sizeof t / sizeof *t; i++)                                      \
            see(t[i]);                                                                         \
        return queue(of(d), n);                                                                \
    }

OPERANDS(NORM, norm, xd_norm, &b->out, &b->in, &b->gain, &b->bias, &b->scale, &b->shift, &b->like,
         &b->add, &b->gate)
OPERANDS(MOMENTS, moments, xd_moments, &b->out, &b->in)
OPERANDS(GNORM, gnorm, xd_gnorm, &b->out, &b->in, &b->sums, &b->gain, &b->bias, &b->scale,
         &b->shift)
OPERANDS(GLU, glu, xd_glu, &b->out, &b->a, &b->b)
OPERANDS(ADDMUL, addmul, xd_addmul, &b->acc, &b->gate, &b->in)
OPERANDS(AXPBY, axpby, xd_axpby_args, &b->y, &b->x)
OPERANDS(RESIZE, resize, xd_resize, &b->out, &b->in)
OPERANDS(LOOKUP, lookup, xd_lookup, &b->out, &b->table, &b->ids)
OPERANDS(COPY, copy, xd_copy, &b->out, &b->in)
OPERANDS(ROTATE, rotate, xd_rotate, &b->out, &b->in)
OPERANDS(CODE, code, xd_code, &b->out, &b->in)
OPERANDS(LINATTN, linattn, xd_linattn, &b->out, &b->q, &b->k, &b->v, &b->sums, &b->cos, &b->sin)
OPERANDS(QKNORM, qknorm, xd_qknorm, &b->out, &b->in, &b->gain, &b->bias, &b->cos, &b->sin,
         &b->also.out, &b->also.in, &b->also.gain, &b->also.bias)

/* ---- weights: packed at once, from host memory -------------------------------------------- */

static size_t scratch(xd_dev *d, xd_op op, const void *a)
{
    return of(d)->real->ops->scratch(of(d)->real, op, a);
}

static size_t pack_size(xd_dev *d, xd_weight *w)
{
    return of(d)->real->ops->pack_size(of(d)->real, w);
}

static size_t pack_tmp(xd_dev *d, const xd_weight *w, xd_dtype t)
{
    return of(d)->real->ops->pack_tmp(of(d)->real, w, t);
}

static int64_t pack_band(xd_dev *d, const xd_weight *w)
{
    return of(d)->real->ops->pack_band(of(d)->real, w);
}

static xd_status pack(xd_dev *d, xd_weight *w, xd_tensor src, void *tmp)
{
    xd_weight b = *w;
    if (is_far(src.p))
        die("a weight comes from device memory");
    b.p = seen(w->p);
    xd_status s = of(d)->real->ops->pack(of(d)->real, &b, src, seen(tmp));
    b.p = w->p;
    *w = b;
    return s;
}

static xd_status pack_rows(xd_dev *d, xd_weight *w, xd_tensor src, int64_t row0)
{
    xd_weight b = *w;
    if (is_far(src.p))
        die("a weight comes from device memory");
    b.p = seen(w->p);
    xd_status s = of(d)->real->ops->pack_rows(of(d)->real, &b, src, row0);
    b.p = w->p;
    *w = b;
    return s;
}

/* ---- the device --------------------------------------------------------------------------- */

static xd_dtype compute(const xd_dev *d, xd_dtype want)
{
    return xd_dev_compute(of(d)->real, want);
}

static xd_dtype best(const xd_dev *d)
{
    return xd_dev_best(of(d)->real);
}

static double peak(xd_dev *d, xd_dtype t, int threads, double seconds)
{
    return xd_dev_peak(of(d)->real, t, threads, seconds);
}

static size_t kernel_bytes(const xd_dev *d)
{
    return xd_dev_kernel_bytes(of(d)->real);
}

static void forget(xd_dev *d)
{
    xd_dev_forget(of(d)->real);
}

static void close_far(xd_dev *d)
{
    run_all(of(d));
    xd_dev_close(&of(d)->real);
    free(of(d));
}

static const xd_dev_ops mem = {
    .get = get,
    .put = put,
    .sync = await_all,
    .memory = memory,
    .upload = upload,
    .download = download,
    .fill = fill,
    .owns = owns,
    .compute = compute,
    .best = best,
    .peak = peak,
    .kernel_bytes = kernel_bytes,
    .forget = forget,
    .close = close_far,
};

static xd_status open_far(xd_dev **out, const char *which, xd_err *e)
{
    far      *f = calloc(1, sizeof *f);
    xd_status s = f ? __real_xd_dev_kind_cpu.open(&f->real, which, e)
                    : xd_fail(e, XD_ENOMEM, "no memory");
    if (s != XD_OK) {
        free(f);
        return s;
    }
    open_memory();
    f->last = &f->first;
    f->ops = (xd_ops){
        .name = f->real->ops->name,
        .scratch = scratch,
        .pack_size = pack_size,
        .pack_tmp = pack_tmp,
        .pack = pack,
        .pack_band = pack_band,
        .pack_rows = pack_rows,
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
    f->dev = (xd_dev){ .mem = &mem, .ops = &f->ops, .priv = f->real->priv, .rotates = 1 };
    snprintf(f->dev.name, sizeof f->dev.name, "far-%.24s", f->real->name);
    *out = &f->dev;
    return XD_OK;
}

static void early(void)
{
    __real_xd_dev_kind_cpu.early();
}

static void about(xd_fact *fact, void *cookie)
{
    __real_xd_dev_kind_cpu.about(fact, cookie);
}

static double address_space(void)
{
    return __real_xd_dev_kind_cpu.address_space();
}

const xd_dev_kind __wrap_xd_dev_kind_cpu = {
    .name = "cpu",
    .open = open_far,
    .early = early,
    .about = about,
    .address_space = address_space,
};
