/* cpu.c - implements the CPU device: its memory and its table of ops
 *
 * The op tables of all instruction sets share the functions of this file. These functions call the
 * code of an instruction set through pointers: the device's row kernels, oneDNN if the device uses
 * it, and the attention functions of the op table. */
#include "backend/cpu/cpu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/attn/attn.h"
#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/onednn_lib.h"
#include "backend/op_args.h"
#include "base/log.h"
#include "base/pages.h"
#include "base/par.h"

static xd_cpu_dev *cpu_of(const xd_dev *d)
{
    return d->priv;
}

/* ---- memory ------------------------------------------------------------------------------- */

static void *cpu_get(xd_dev *d, size_t bytes)
{
    (void)d;
    return xd_pages_map(bytes, -1);
}

static void cpu_put(xd_dev *d, void *p, size_t bytes)
{
    (void)d;
    xd_pages_unmap(p, bytes);
}

static void cpu_sync(xd_dev *d, xd_stream *s)
{
    /* this function does not wait, because a CPU kernel has ended when its call returns */
    (void)d;
    (void)s;
}

static void cpu_memory(xd_dev *d, size_t *available, size_t *total)
{
    (void)d;
    xd_host_memory_free(available, total);
}

static void close_cpu(xd_dev *d)
{
    xd_cpu_dev *c = cpu_of(d);
    xd_dnn_close(&c->dnn);
    free(c);
}

static xd_status cpu_move(xd_dev *d, xd_stream *s, void *to, const void *from, size_t bytes)
{
    (void)d, (void)s;
    memcpy(to, from, bytes);
    return XD_OK;
}

static xd_status cpu_fill(xd_dev *d, xd_stream *s, void *p, int value, size_t bytes)
{
    (void)d, (void)s;
    memset(p, value, bytes);
    return XD_OK;
}

/* Returns 1 for any memory of the process, because kernels accept any address. */
static int cpu_owns(xd_dev *d, const void *p)
{
    (void)d, (void)p;
    return 1;
}

/* Returns the type in which this device computes. On processors without bf16 dot products, oneDNN's
 * bf16 GEMM reaches a quarter of the speed of its f32 GEMM (doc/performance.md). On such processors
 * this function returns F32 instead of BF16, unless XDIT_BF16=emulate requests bf16. */
static xd_dtype cpu_compute(const xd_dev *d, xd_dtype want)
{
    const xd_cpu_dev *c = cpu_of(d);
    int               keep = c->isa >= XD_ISA_AVX512BF16 || (c->isa == XD_ISA_AVX512 && c->emulate);
    return want == XD_BF16 && keep ? XD_BF16 : XD_F32;
}

static xd_dtype cpu_best(const xd_dev *d)
{
    return cpu_of(d)->isa >= XD_ISA_AVX512BF16 ? XD_BF16 : XD_F32;
}

static size_t kernel_bytes(const xd_dev *d)
{
    (void)d;
    return xd_dnn_to_come() + xd_dnn_plain_to_come();
}

static void cpu_forget(xd_dev *d)
{
    if (cpu_of(d)->dnn)
        xd_dnn_forget(cpu_of(d)->dnn);
}

static const xd_dev_ops mem_ops = {
    .get = cpu_get,
    .put = cpu_put,
    .sync = cpu_sync,
    .memory = cpu_memory,
    .upload = cpu_move,
    .download = cpu_move,
    .fill = cpu_fill,
    .owns = cpu_owns,
    .compute = cpu_compute,
    .best = cpu_best,
    .peak = xd_cpu_peak,
    .kernel_bytes = kernel_bytes,
    .forget = cpu_forget,
    .close = close_cpu,
};

/* Returns the bytes of address space that kernels map when they first run: for oneDNN's code,
 * tables and heap, and for the stacks of the threads of oneDNN and of the engine. No memory plan
 * includes these bytes. In measurements, oneDNN mapped 40 to 53 MB if no convolutions ran on AMX
 * tiles, and more if many convolutions did. oneDNN aborts the process if it cannot map memory. */
static double address_space(void)
{
    pthread_attr_t attr;
    size_t         stack = 0;
    double         to_come = (double)xd_dnn_to_come(), plain = (double)xd_dnn_plain_to_come();
    if (xd_dnn_has_run())
        return to_come + plain + (to_come + plain > 0 ? 8e6 : 0);
    if (pthread_attr_init(&attr) == 0) {
        pthread_attr_getstacksize(&attr, &stack);
        pthread_attr_destroy(&attr);
    }
    double stacks = (double)(xd_par_threads() - 1) * (double)stack;
    double most = 16e6 + plain > 56e6 ? 16e6 + plain : 56e6;
    return xd_dnn_is_loaded() ? most + 2 * stacks + to_come : stacks;
}

/* ---- weights ------------------------------------------------------------------------------ */

/* Returns 1 if the weight has no elements. A tensor-parallel rank without attention heads has
 * weights with zero rows. oneDNN is not called for such weights, because oneDNN 2.6 divides by the
 * number of rows of a bf16 weight. */
static int is_empty(const xd_weight *w)
{
    return w->in == 0 || w->out == 0;
}

/* Returns the bytes of a packed weight. If this processor cannot multiply the weight's type,
 * returns the size of the weight on a processor that can. This size is needed because plans for
 * other machines are also computed on this processor. */
static size_t pack_size(xd_dev *d, xd_weight *w)
{
    xd_cpu_dev *c = cpu_of(d);
    if (xd_cpu_gemm_takes(c->isa, w))
        return xd_cpu_gemm_pack_size(c->isa, w);
    if (xd_is_quantized(w->type))
        return xd_quant_pack_size(w);
    size_t bytes = c->dnn && !is_empty(w) ? xd_dnn_pack_size(c->dnn, w) : 0;
    return bytes ? bytes : xd_plain_pack_size(w);
}

static size_t pack_tmp(xd_dev *d, const xd_weight *w, xd_dtype src)
{
    xd_cpu_dev *c = cpu_of(d);
    if (xd_cpu_gemm_takes(c->isa, w))
        return 0;
    return c->dnn && !is_empty(w) && !xd_is_quantized(w->type) ? xd_dnn_pack_tmp(c->dnn, w, src)
                                                               : 0;
}

static xd_status pack(xd_dev *d, xd_weight *w, xd_tensor src, void *tmp)
{
    xd_cpu_dev *c = cpu_of(d);
    if (is_empty(w))
        return XD_OK;
    if (xd_cpu_gemm_takes(c->isa, w))
        return xd_cpu_gemm_pack(c->isa, w, src);
    if (xd_is_quantized(w->type))
        return xd_quant_pack_rows(c->k, w, src, 0);
    return c->dnn ? xd_dnn_pack(c->dnn, w, src, tmp) : xd_plain_pack(w, src);
}

static int64_t pack_band(xd_dev *d, const xd_weight *w)
{
    xd_cpu_dev *c = cpu_of(d);
    if (!xd_cpu_gemm_takes(c->isa, w))
        return xd_is_quantized(w->type) ? XD_QUANT_BAND : 0;
    return xd_cpu_gemm_pack_band(c->isa, w);
}

static xd_status pack_rows(xd_dev *d, xd_weight *w, xd_tensor src, int64_t row0)
{
    xd_cpu_dev *c = cpu_of(d);
    return xd_cpu_gemm_takes(c->isa, w) ? xd_cpu_gemm_pack_rows(c->isa, w, src, row0)
                                        : xd_quant_pack_rows(c->k, w, src, row0);
}

/* ---- ops ---------------------------------------------------------------------------------- */

/* Returns the bytes of the bf16 copy of a GEMM's f32 input, which is made before the GEMM, or 0 if
 * the input is not converted. */
static size_t rounded_bytes(const xd_cpu_dev *c, const xd_gemm *a)
{
    if (a->in.type != XD_F32 || a->w->type != XD_BF16 ||
        (xd_cpu_gemm_takes(c->isa, a->w) && xd_cpu_gemm_reads_floats(c->isa, a->w)))
        return 0;
    return ((size_t)xd_count(a->in) * 2 + 63) / 64 * 64;
}

/* Returns a copy of the GEMM's arguments in which the input is the BF16 copy at p. */
static xd_gemm with_bf16_input(const xd_gemm *a, void *p)
{
    xd_gemm b = *a;
    b.in = xd_view2(p, XD_BF16, a->in.d[0], a->in.d[1]);
    return b;
}

static xd_status gemm(xd_dev *d, xd_stream *s, const xd_gemm *a, void *tmp)
{
    xd_cpu_dev *c = cpu_of(d);
    int         quantized = xd_is_quantized(a->w->type);
    xd_status   st = a->sx.p ? XD_EUNSUPPORTED : xd_gemm_check(a, XD_TYPES_F32_BF16);
    if (st != XD_OK || a->w->out == 0)
        return st;
    size_t bytes = rounded_bytes(c, a);
    if (bytes) {
        xd_gemm b = with_bf16_input(a, tmp);
        c->k->copy(&(xd_copy){ b.in, a->in });
        return gemm(d, s, &b, (char *)tmp + bytes);
    }
    if (xd_cpu_gemm_takes(c->isa, a->w)) {
        xd_par_team(NULL);
        return xd_cpu_gemm_gemm(c->isa, a, tmp);
    }
    if (quantized)
        return xd_quant_gemm(c->k, a, tmp);
    if (c->dnn)
        return xd_dnn_gemm(c->dnn, a, tmp);
    if (a->w->type != XD_F32)
        return XD_EUNSUPPORTED;
    xd_plain_gemm(c->k, a);
    return XD_OK;
}

static xd_status conv(xd_dev *d, xd_stream *s, const xd_conv *a, void *tmp)
{
    xd_cpu_dev *c = cpu_of(d);
    xd_status   st = xd_conv_check(a, XD_TYPES_F32_BF16);
    (void)s;
    if (st != XD_OK)
        return st;
    if (c->dnn)
        return xd_dnn_conv(c->dnn, a, tmp);
    if (a->w->type != XD_F32)
        return XD_EUNSUPPORTED;
    xd_plain_conv(c->k, a);
    return XD_OK;
}

static xd_status norm(xd_dev *d, xd_stream *s, const xd_norm *a, void *tmp)
{
    xd_status st = a->sx.p ? XD_EUNSUPPORTED : xd_norm_check(a, XD_TYPES_F32_BF16);
    (void)s, (void)tmp;
    if (st != XD_OK)
        return st;
    if (a->add.p)
        cpu_of(d)->k->addmul(&(xd_addmul){ .acc = a->in, .gate = a->gate, .in = a->add });
    cpu_of(d)->k->norm(a);
    return XD_OK;
}

static void add_rows(double *out, const xd_tensor *in)
{
    for (int64_t i = 0; i < in->d[1]; i++) {
        const double *p = (const double *)in->p + i;
        double        sum = 0;
        for (int64_t r = 0; r < in->d[0]; r++)
            sum += p[r * in->s[0]];
        out[i] = sum;
    }
}

static xd_status moments(xd_dev *d, xd_stream *s, const xd_moments *a, void *tmp)
{
    xd_status st = xd_moments_check(a, XD_TYPES_F32_BF16);
    (void)s, (void)tmp;
    if (st == XD_OK && !a->groups)
        add_rows(a->out.p, &a->in);
    else if (st == XD_OK)
        cpu_of(d)->k->moments(a);
    return st;
}

static xd_status gnorm(xd_dev *d, xd_stream *s, const xd_gnorm *a, void *tmp)
{
    xd_status st = xd_gnorm_check(a, XD_TYPES_F32_BF16);
    (void)s;
    if (st == XD_OK)
        cpu_of(d)->k->gnorm(a, tmp);
    return st;
}

static xd_status glu(xd_dev *d, xd_stream *s, const xd_glu *a, void *tmp)
{
    xd_status st = a->sx.p ? XD_EUNSUPPORTED : xd_glu_check(a, XD_TYPES_F32_BF16);
    (void)s, (void)tmp;
    if (st == XD_OK)
        cpu_of(d)->k->glu(a);
    return st;
}

static xd_status addmul(xd_dev *d, xd_stream *s, const xd_addmul *a, void *tmp)
{
    xd_status st = xd_addmul_check(a, XD_TYPES_F32_BF16);
    (void)s, (void)tmp;
    if (st == XD_OK)
        cpu_of(d)->k->addmul(a);
    return st;
}

static xd_status axpby(xd_dev *d, xd_stream *s, const xd_axpby_args *a, void *tmp)
{
    xd_status st = xd_axpby_check(a);
    (void)s, (void)tmp;
    if (st == XD_OK)
        cpu_of(d)->k->axpby(a);
    return st;
}

static xd_status resize(xd_dev *d, xd_stream *s, const xd_resize *a, void *tmp)
{
    xd_status st = xd_resize_check(a);
    (void)s, (void)tmp;
    if (st == XD_OK)
        cpu_of(d)->k->resize(a);
    return st;
}

static xd_status lookup(xd_dev *d, xd_stream *s, const xd_lookup *a, void *tmp)
{
    const int32_t *id = a->ids.p;
    xd_status      st = xd_lookup_check(a, XD_TYPES_F32_BF16);
    (void)s, (void)tmp;
    for (int64_t i = 0; st == XD_OK && i < a->ids.d[0]; i++)
        if (id[i * a->ids.s[0]] < 0 || id[i * a->ids.s[0]] >= a->table.d[0])
            st = XD_EINVAL;
    if (st == XD_OK)
        cpu_of(d)->k->lookup(a);
    return st;
}

static xd_status copy(xd_dev *d, xd_stream *s, const xd_copy *a, void *tmp)
{
    xd_status st = xd_copy_check(a, XD_TYPES_F32_BF16);
    (void)s, (void)tmp;
    if (st == XD_OK)
        cpu_of(d)->k->copy(a);
    return st;
}

static xd_status qknorm(xd_dev *d, xd_stream *s, const xd_qknorm *a, void *tmp)
{
    xd_status st = xd_qknorm_check(a, XD_TYPES_F32_BF16);
    (void)s, (void)tmp;
    if (st != XD_OK)
        return st;
    cpu_of(d)->k->qknorm(a);
    if (a->also.in.p) {
        xd_qknorm b = *a;
        b.out = a->also.out, b.in = a->also.in, b.gain = a->also.gain, b.bias = a->also.bias;
        cpu_of(d)->k->qknorm(&b);
    }
    return XD_OK;
}

static xd_status rotate(xd_dev *d, xd_stream *s, const xd_rotate *a, void *tmp)
{
    xd_status st = xd_rotate_check(a, XD_TYPES_F32_BF16);
    (void)s, (void)tmp;
    if (st == XD_OK)
        cpu_of(d)->k->rotate(a);
    return st;
}

static xd_status linattn(xd_dev *d, xd_stream *s, const xd_linattn *a, void *tmp)
{
    xd_status st = xd_linattn_check(a, XD_TYPES_F32_BF16);
    (void)s, (void)tmp;
    if (st == XD_OK)
        cpu_of(d)->k->linattn(a);
    return st;
}

static xd_status code(xd_dev *d, xd_stream *s, const xd_code *a, void *tmp)
{
    xd_status st = xd_code_check(a, XD_TYPES_F32_BF16);
    (void)s, (void)tmp;
    if (st == XD_OK)
        xd_code_rows(cpu_of(d)->k, a);
    return st;
}

/* ---- tables ------------------------------------------------------------------------------- */

/* Returns the scratch bytes of a call of any op except attention. */
static size_t scratch_of(const xd_cpu_dev *c, xd_op op, const void *args)
{
    size_t bytes = op == XD_OP_GEMM ? rounded_bytes(c, args) : 0;
    if (bytes) {
        xd_gemm b = with_bf16_input(args, NULL);
        return bytes + scratch_of(c, op, &b);
    }
    if (op == XD_OP_GEMM && xd_cpu_gemm_takes(c->isa, ((const xd_gemm *)args)->w))
        return xd_cpu_gemm_scratch(c->isa, args, xd_par_threads());
    if (op == XD_OP_GEMM && xd_is_quantized(((const xd_gemm *)args)->w->type))
        return xd_quant_gemm_scratch(args);
    if (op == XD_OP_GEMM && c->dnn)
        return ((const xd_gemm *)args)->w->out ? xd_dnn_gemm_scratch(c->dnn, args) : 0;
    if (op == XD_OP_CONV && c->dnn)
        return xd_dnn_conv_scratch(c->dnn, args);
    if (op == XD_OP_GNORM) {
        const xd_gnorm *a = args;
        return (size_t)(2 * a->in.d[a->in.nd - 1]) * sizeof(float);
    }
    return 0;
}

/* Returns 1 if the kernel with int8 scores computes this attention. The instruction set "c" has a
 * single attention kernel, which also computes int8 scores. */
static int in_int8(const xd_dev *d, const xd_attn_args *a)
{
    return cpu_of(d)->isa != XD_ISA_C && d->int8_attn >> a->q.type & 1 && xd_attn_in_int8(a);
}

#if !defined(__x86_64__)
#define xd_attn_scratch_int8 xd_attn_scratch_c
#define xd_attn_int8 xd_attn_c
#endif

/* Returns the types of queries for which int8 attention scores can be requested. With AMX there are
 * no such types, because AMX tiles multiply bf16 faster than VNNI multiplies int8. */
static unsigned int8_types(xd_isa isa)
{
    if (isa == XD_ISA_C)
        return 1u << XD_F32 | 1u << XD_BF16;
    return isa == XD_ISA_AVX512BF16 && xd_isa_has_vnni() ? 1u << XD_BF16 : 0;
}

#define TABLE(isa)                                                                          \
    static size_t scratch_##isa(xd_dev *d, xd_op op, const void *args)                      \
    {                                                                                       \
        if (op == XD_OP_ATTN && in_int8(d, args))                                           \
            return xd_attn_scratch_int8(args, xd_par_threads());                            \
        return op == XD_OP_ATTN ? xd_attn_scratch_##isa(args, xd_par_threads())             \
                                : scratch_of(cpu_of(d), op, args);                          \
    }                                                                                       \
    static xd_status attn_##isa(xd_dev *d, xd_stream *s, const xd_attn_args *a, void *tmp)  \
    {                                                                                       \
        (void)s;                                                                            \
        return in_int8(d, a) ? xd_attn_int8(a, tmp) : xd_attn_##isa(a, tmp);                \
    }                                                                                       \
    static const xd_ops ops_##isa = {                                                       \
        .name = #isa, .scratch = scratch_##isa, .pack_size = pack_size,                     \
        .pack_tmp = pack_tmp, .pack = pack, .pack_band = pack_band, .pack_rows = pack_rows, \
        .gemm = gemm, .attn = attn_##isa,                                                   \
        .norm = norm, .moments = moments, .gnorm = gnorm, .glu = glu,                       \
        .addmul = addmul, .axpby = axpby, .conv = conv, .resize = resize,                   \
        .lookup = lookup, .copy = copy, .qknorm = qknorm, .rotate = rotate,                 \
        .linattn = linattn, .code = code,                                                   \
    };

TABLE(c)
#if defined(__x86_64__)
TABLE(avx2)
TABLE(avx512)
TABLE(avx512bf16)
#ifdef XD_WITH_AMX
TABLE(amx)
#endif
/* The op tables, indexed by instruction set. A build without AMX has no op table for AMX, and never
 * selects that instruction set. */
static const xd_ops *const tables[XD_NISAS] = {
    &ops_c,   &ops_avx2, &ops_avx512, &ops_avx512bf16,
#ifdef XD_WITH_AMX
    &ops_amx,
#endif
};
static const xd_kernels *const kernels[XD_NISAS] = { &xd_kernels_c, &xd_kernels_avx2,
                                                     &xd_kernels_avx512, &xd_kernels_avx512bf16,
                                                     &xd_kernels_avx512bf16 };
#else
static const xd_ops *const     tables[XD_NISAS] = { &ops_c };
static const xd_kernels *const kernels[XD_NISAS] = { &xd_kernels_c };
#endif

const xd_kernels *xd_cpu_kernels(xd_isa isa)
{
    return kernels[isa];
}

/* ---- opening ------------------------------------------------------------------------------ */

static xd_status open_cpu(xd_dev **out, const char *which, xd_err *e)
{
    const char *bf16 = getenv("XDIT_BF16");
    xd_isa      isa;
    int         forced;
    xd_status   s = xd_isa_choose(&isa, &forced, e);
    if (s)
        return s;
    if (*which)
        return xd_fail(e, XD_EINVAL,
                       "there is no device \"cpu:%s\": the only CPU device is "
                       "\"cpu\"",
                       which);
    if (bf16 && *bf16 && strcmp(bf16, "emulate") != 0)
        return xd_fail(e, XD_EINVAL, "XDIT_BF16=%s is invalid; the only value is emulate", bf16);
    xd_cpu_dev *c = calloc(1, sizeof *c);
    if (!c)
        return xd_fail(e, XD_ENOMEM, "no memory for the CPU device");
    c->isa = isa;
    c->k = kernels[isa];
    c->emulate = bf16 && strcmp(bf16, "emulate") == 0;
    c->dev = (xd_dev){ .mem = &mem_ops,
                       .ops = tables[isa],
                       .host_memory = 1,
                       .rotates = 1,
                       .int8_attn = int8_types(isa),
                       .priv = c };
    snprintf(c->dev.name, sizeof c->dev.name, "cpu-%s", xd_isa_name(isa));
    if (isa != XD_ISA_C)
        s = xd_dnn_open(&c->dnn, isa, forced, c->k, e);
    if (s) {
        free(c);
        return s;
    }
    xd_log(XD_LOG_DEBUG, "device %s, %d threads", c->dev.name, xd_par_threads());
    *out = &c->dev;
    return XD_OK;
}

const xd_dev_kind xd_dev_kind_cpu = {
    .name = "cpu",
    .open = open_cpu,
    .early = xd_cpu_early,
    .about = xd_cpu_about,
    .address_space = address_space,
};
