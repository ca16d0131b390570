/* onednn.c - opens oneDNN, hides the differences between the descriptors of its versions 2 and 3,
 * caches primitives and packs weights
 *
 * oneDNN limits the instruction sets that it uses by a setting that is global to the process and
 * can be set only once, before the first use of oneDNN. Opening a second device with another limit
 * on instruction sets fails. */
#include "backend/cpu/onednn.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/op_args.h"
#include "base/log.h"
#include "base/par.h"

/* ---- descriptors -------------------------------------------------------------------------- */

dnnl_data_type_t xd_dnn_type(xd_dtype t)
{
    return t == XD_BF16 ? dnnl_bf16 : t == XD_F16 ? dnnl_f16 : dnnl_f32;
}

static xd_status status_of(dnnl_status_t s)
{
    return s == dnnl_success         ? XD_OK
           : s == dnnl_out_of_memory ? XD_ENOMEM
           : s == dnnl_unimplemented ? XD_EUNSUPPORTED
                                     : XD_EDEVICE;
}

static void dims_of(dnnl_dims_t to, const int64_t *from, int nd)
{
    for (int i = 0; i < nd; i++)
        to[i] = from[i];
}

#if DNNL_VERSION_MAJOR >= 3
#define INIT_STRIDED dnnl_memory_desc_create_with_strides
#define INIT_TAG dnnl_memory_desc_create_with_tag

xd_status xd_md_clone(xd_md *to, xd_md_ref from)
{
    return status_of(dnnl_memory_desc_clone(to, from));
}

void xd_md_free(xd_md *m)
{
    if (*m)
        dnnl_memory_desc_destroy(*m);
    *m = NULL;
}

xd_md_ref xd_md_as_ref(const xd_md *m)
{
    return *m;
}
#else
#define INIT_STRIDED dnnl_memory_desc_init_by_strides
#define INIT_TAG dnnl_memory_desc_init_by_tag

xd_status xd_md_clone(xd_md *to, xd_md_ref from)
{
    *to = *from;
    return XD_OK;
}

void xd_md_free(xd_md *m)
{
    (void)m;
}

xd_md_ref xd_md_as_ref(const xd_md *m)
{
    return m;
}
#endif

xd_status xd_md_strided(xd_md *m, int nd, const int64_t *dims, xd_dtype t, const int64_t *strides)
{
    dnnl_dims_t d, s;
    dims_of(d, dims, nd);
    dims_of(s, strides, nd);
    return status_of(INIT_STRIDED(m, nd, d, xd_dnn_type(t), s));
}

xd_status xd_md_tag(xd_md *m, int nd, const int64_t *dims, xd_dtype t, dnnl_format_tag_t tag)
{
    dnnl_dims_t d;
    dims_of(d, dims, nd);
    return status_of(INIT_TAG(m, nd, d, xd_dnn_type(t), tag));
}

size_t xd_md_bytes(xd_md_ref m)
{
    return dnnl_memory_desc_get_size(m);
}

xd_md_ref xd_pd_md(dnnl_primitive_desc_t pd, dnnl_query_t what, int index)
{
    return dnnl_primitive_desc_query_md(pd, what, index);
}

/* ---- attributes and primitive descriptors ------------------------------------------------- */

static const dnnl_alg_kind_t eltwise[XD_NACTS] = {
    [XD_GELU_TANH] = dnnl_eltwise_gelu_tanh, [XD_GELU_ERF] = dnnl_eltwise_gelu_erf,
    [XD_SILU] = dnnl_eltwise_swish,          [XD_RELU] = dnnl_eltwise_relu,
    [XD_GELU_QUICK] = dnnl_eltwise_swish,    [XD_TANH] = dnnl_eltwise_tanh,
    [XD_SIGMOID] = dnnl_eltwise_logistic,
};

static dnnl_status_t append_act(dnnl_post_ops_t ops, xd_act act)
{
    float alpha = act == XD_SILU ? 1.0f : act == XD_GELU_QUICK ? 1.702f : 0.0f;
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_post_ops_append_eltwise(ops, eltwise[act], alpha, 0.0f);
#else
    return dnnl_post_ops_append_eltwise(ops, 1.0f, eltwise[act], alpha, 0.0f);
#endif
}

static dnnl_status_t append_gate(dnnl_post_ops_t ops, int64_t n)
{
    xd_md         m;
    dnnl_status_t s = dnnl_out_of_memory;
    if (xd_md_tag(&m, 2, (int64_t[]){ 1, n }, XD_F32, dnnl_ab))
        return s;
    s = dnnl_post_ops_append_binary(ops, dnnl_binary_mul, xd_md_as_ref(&m));
    xd_md_free(&m);
    return s;
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
#else
    return dnnl_post_ops_append_sum(ops, 1.0f);
#endif
}

/* Sets OpenMP's number of threads. oneDNN reads this number when a primitive is described (to
 * divide the work and to size each thread's workspace), created and executed. */
static void set_threads(void)
{
    if (xd_dnn_lib.set_threads)
        xd_dnn_lib.set_threads(xd_par_threads());
}

/* Returns oneDNN attributes for a primitive. Also sets OpenMP's number of threads, because this
 * function is called first whenever a primitive is described. */
dnnl_primitive_attr_t xd_dnn_attr(const xd_post *post)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t       ops = NULL;
    set_threads();
    dnnl_status_t s = dnnl_primitive_attr_create(&attr);
    if (s == dnnl_success)
        s = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (s == dnnl_success && post && (post->act != XD_NONE || post->gate || post->sum)) {
        s = dnnl_post_ops_create(&ops);
        if (s == dnnl_success && post->act != XD_NONE)
            s = append_act(ops, post->act);
        if (s == dnnl_success && post->gate)
            s = append_gate(ops, post->gate);
        if (s == dnnl_success && post->sum)
            s = append_sum(ops);
        if (s == dnnl_success)
            s = dnnl_primitive_attr_set_post_ops(attr, ops);
        if (ops)
            dnnl_post_ops_destroy(ops);
    }
    if (s != dnnl_success && attr) {
        dnnl_primitive_attr_destroy(attr);
        attr = NULL;
    }
    return attr;
}

static const char *impl_of(dnnl_primitive_desc_t pd)
{
    const char *text = NULL;
    if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &text) != dnnl_success)
        text = NULL;
    return text ? text : "?";
}

const char *xd_prim_impl(const xd_prim *p)
{
    return p->pd ? impl_of(p->pd) : "none";
}

dnnl_primitive_desc_t xd_pd_matmul(xd_dnn *d, xd_md_ref src, xd_md_ref w, xd_md_ref bias,
                                   xd_md_ref dst, const xd_post *post)
{
    dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_attr_t attr = xd_dnn_attr(post);
    if (!attr)
        return NULL;
#if DNNL_VERSION_MAJOR >= 3
    dnnl_status_t s = dnnl_matmul_primitive_desc_create(&pd, d->engine, src, w, bias, dst, attr);
#else
    dnnl_matmul_desc_t md;
    dnnl_status_t      s = dnnl_matmul_desc_init(&md, src, w, bias, dst);
    if (s == dnnl_success)
        s = dnnl_primitive_desc_create(&pd, &md, attr, d->engine, NULL);
#endif
    dnnl_primitive_attr_destroy(attr);
    return s == dnnl_success ? pd : NULL;
}

dnnl_primitive_desc_t xd_pd_conv(xd_dnn *d, xd_md_ref src, xd_md_ref w, xd_md_ref bias,
                                 xd_md_ref dst, const xd_conv_geometry *g, const xd_post *post)
{
    static const dnnl_dims_t none = { 0 };
    dnnl_primitive_desc_t    pd = NULL;
    dnnl_primitive_attr_t    attr = xd_dnn_attr(post);
    if (!attr)
        return NULL;
#if DNNL_VERSION_MAJOR >= 3
    dnnl_status_t s = dnnl_convolution_forward_primitive_desc_create(
        &pd, d->engine, dnnl_forward_inference, dnnl_convolution_direct, src, w, bias, dst,
        g->stride, none, g->lo, g->hi, attr);
#else
    dnnl_convolution_desc_t cd;
    dnnl_status_t           s = dnnl_dilated_convolution_forward_desc_init(
        &cd, dnnl_forward_inference, dnnl_convolution_direct, src, w, bias, dst, g->stride, none,
        g->lo, g->hi);
    if (s == dnnl_success)
        s = dnnl_primitive_desc_create(&pd, &cd, attr, d->engine, NULL);
#endif
    dnnl_primitive_attr_destroy(attr);
    return s == dnnl_success ? pd : NULL;
}

dnnl_primitive_desc_t xd_pd_reorder(xd_dnn *d, xd_md_ref from, xd_md_ref to)
{
    dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_attr_t attr = xd_dnn_attr(NULL);
    dnnl_status_t         s = dnnl_out_of_memory;
    if (attr)
        s = dnnl_reorder_primitive_desc_create(&pd, from, d->engine, to, d->engine, attr);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    return s == dnnl_success ? pd : NULL;
}

/* ---- primitives --------------------------------------------------------------------------- */

/* The bytes of code and tables that oneDNN will allocate for convolutions that are described but
 * not created yet. Convolutions with AMX tiles and without are counted separately. The bytes were
 * measured per convolution. With AMX tiles a wide convolution needs 0.2 to 7.7 MB (1.4 to 4.5 MB on
 * average in an autoencoder), and a narrow convolution 0.2 to 0.8 MB. Without tiles a convolution
 * of small feature maps needs 1.0 to 1.5 MB, and one of large feature maps up to 2.3 MB, because
 * the code for large feature maps has more variants for the ends of rows. A primitive of another
 * kind needs 0.1 to 0.4 MB. */
static atomic_long by_tiles, without;

static void note_unmade(const xd_prim *p, int sign)
{
    const char *impl = p->pd && !p->p ? impl_of(p->pd) : "";
    /* The names of convolution implementations contain "brgconv" in oneDNN 2 and "brg_conv" in
     * oneDNN 3. */
    if (!strstr(impl, "brgconv") && !strstr(impl, "brg_conv"))
        return;
    int       tiles = strstr(impl, "amx") != NULL;
    xd_md_ref w = xd_pd_md(p->pd, dnnl_query_weights_md, 0);
    xd_md_ref in = xd_pd_md(p->pd, dnnl_query_src_md, 0);
    int       wide = w && xd_md_bytes(w) >= 32000, large = in && xd_md_bytes(in) >= 1000000;
    if (tiles)
        atomic_fetch_add(&by_tiles, sign * (wide ? 2500000L : 500000L));
    else
        atomic_fetch_add(&without, sign * (large ? 2300000L : 1500000L));
}

static size_t next_number(atomic_long *at)
{
    long n = atomic_load(at);
    return n > 0 ? (size_t)n : 0;
}

size_t xd_dnn_to_come(void)
{
    return next_number(&by_tiles);
}

size_t xd_dnn_plain_to_come(void)
{
    return next_number(&without);
}

xd_prim *xd_prim_new(dnnl_primitive_desc_t pd)
{
    xd_prim *p = calloc(1, sizeof *p);
    if (!p) {
        if (pd)
            dnnl_primitive_desc_destroy(pd);
        return NULL;
    }
    p->pd = pd;
    if (pd) {
        xd_md_ref m = xd_pd_md(pd, dnnl_query_scratchpad_md, 0);
        p->scratch = m ? xd_md_bytes(m) : 0;
        note_unmade(p, 1);
    }
    return p;
}

void xd_prim_free(xd_prim *p)
{
    if (!p)
        return;
    note_unmade(p, -1);
    xd_prim_free(p->repack);
    for (int i = 0; i < p->nargs; i++)
        dnnl_memory_destroy(p->mem[i]);
    if (p->p)
        dnnl_primitive_destroy(p->p);
    if (p->pd)
        dnnl_primitive_desc_destroy(p->pd);
    free(p);
}

void xd_prim_swap(xd_prim *p, xd_prim *q)
{
    xd_prim t = *p;
    *p = *q;
    *q = t;
    memcpy(q->key, p->key, sizeof q->key);
    memcpy(p->key, t.key, sizeof p->key);
    q->next = p->next;
    p->next = t.next;
}

static int64_t bucket_of(const int64_t key[XD_PRIM_KEY])
{
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (int i = 0; i < XD_PRIM_KEY; i++) {
        h ^= (uint64_t)key[i];
        h *= 0xbf58476d1ce4e5b9u;
        h ^= h >> 29;
    }
    return (int64_t)(h % XD_PRIM_BUCKETS);
}

xd_prim *xd_prim_find(xd_dnn *d, const int64_t key[XD_PRIM_KEY])
{
    for (xd_prim *p = d->bucket[bucket_of(key)]; p; p = p->next)
        if (memcmp(p->key, key, sizeof p->key) == 0)
            return p;
    return NULL;
}

void xd_dnn_forget(xd_dnn *d)
{
    for (int i = 0; i < XD_PRIM_BUCKETS; i++)
        for (xd_prim *p = d->bucket[i], *next; p; p = next) {
            next = p->next;
            xd_prim_free(p);
        }
    memset(d->bucket, 0, sizeof d->bucket);
    d->nprims = 0;
}

void xd_dnn_enter(xd_dnn *d)
{
    if (d->nprims >= XD_PRIM_MOST)
        xd_dnn_forget(d);
}

xd_prim *xd_prim_add(xd_dnn *d, const int64_t key[XD_PRIM_KEY], dnnl_primitive_desc_t pd)
{
    xd_prim *p = xd_prim_new(pd);
    int64_t  b = bucket_of(key);
    if (!p)
        return NULL;
    memcpy(p->key, key, sizeof p->key);
    p->next = d->bucket[b];
    d->bucket[b] = p;
    d->nprims++;
    return p;
}

static void add_memory(xd_dnn *d, xd_prim *p, int arg, xd_md_ref m, void *data)
{
    for (int i = 0; i < p->nargs; i++)
        if (p->arg[i] == arg) {
            dnnl_memory_set_data_handle(p->mem[i], data);
            return;
        }
    if (p->nargs == XD_PRIM_ARGS || !m ||
        dnnl_memory_create(&p->mem[p->nargs], m, d->engine, data) != dnnl_success)
        return; /* after this failure, executing the primitive will return an error */
    p->arg[p->nargs++] = arg;
}

void xd_prim_arg(xd_dnn *d, xd_prim *p, int arg, dnnl_query_t what, int index, void *data)
{
    add_memory(d, p, arg, xd_pd_md(p->pd, what, index), data);
}

void xd_prim_post(xd_dnn *d, xd_prim *p, int arg, int64_t n, void *data)
{
    xd_md m;
    if (xd_md_tag(&m, 2, (int64_t[]){ 1, n }, XD_F32, dnnl_ab))
        return;
    add_memory(d, p, arg, xd_md_as_ref(&m), data);
    xd_md_free(&m);
}

static atomic_int has_run;

int xd_dnn_has_run(void)
{
    return atomic_load(&has_run);
}

xd_status xd_prim_run(xd_dnn *d, xd_prim *p, void *tmp)
{
    atomic_store_explicit(&has_run, 1, memory_order_relaxed);
    dnnl_exec_arg_t args[XD_PRIM_ARGS];
    dnnl_status_t   s = dnnl_success;
    xd_par_team(&xd_dnn_lib.team); /* from this call on, our own kernels run on oneDNN's threads */
    set_threads();
    if (!p->p) {
        note_unmade(p, -1);
        s = dnnl_primitive_create(&p->p, p->pd);
    }
    if (s != dnnl_success) {
        p->p = NULL;
        note_unmade(p, 1);
        return status_of(s);
    }
    if (p->scratch)
        xd_prim_arg(d, p, DNNL_ARG_SCRATCHPAD, dnnl_query_scratchpad_md, 0, tmp);
    for (int i = 0; i < p->nargs; i++)
        args[i] = (dnnl_exec_arg_t){ p->arg[i], p->mem[i] };
    s = dnnl_primitive_execute(p->p, d->stream, p->nargs, args);
    if (s == dnnl_success)
        s = dnnl_stream_wait(d->stream);
    return status_of(s);
}

/* ---- packing ------------------------------------------------------------------------------ */

static dnnl_primitive_desc_t weight_pd(xd_dnn *d, const xd_weight *w)
{
    xd_md     plain, packed;
    xd_status s = w->nk ? xd_conv_weight_md(d, w, &plain, &packed)
                        : xd_gemm_weight_md(d, w, &plain, &packed);
    if (s)
        return NULL;
    dnnl_primitive_desc_t pd = xd_pd_reorder(d, xd_md_as_ref(&plain), xd_md_as_ref(&packed));
    xd_md_free(&plain);
    xd_md_free(&packed);
    return pd;
}

xd_prim *xd_weight_prim(xd_dnn *d, const xd_weight *w)
{
    int64_t key[XD_PRIM_KEY] = { 'w', xd_par_threads(), w->type, w->out, w->in, w->nk };
    for (int i = 0; i < 3 && w->nk; i++) {
        key[6 + i] = w->kernel[i];
        key[9 + i] = w->stride[i];
        key[12] = w->groups;
    }
    xd_prim *p = xd_prim_find(d, key);
    if (!p)
        p = xd_prim_add(d, key, weight_pd(d, w));
    return p && p->pd ? p : NULL;
}

xd_md_ref xd_weight_packed(const xd_prim *p)
{
    return xd_pd_md(p->pd, dnnl_query_dst_md, 0);
}

/* Returns the number of elements of a weight before packing. */
static int64_t element_count(const xd_weight *w)
{
    return w->out * w->in * xd_weight_taps(w);
}

static size_t round_up_64(size_t n)
{
    return (n + 63) / 64 * 64;
}

size_t xd_dnn_pack_size(xd_dnn *d, xd_weight *w)
{
    xd_dnn_enter(d);
    xd_prim *p = xd_weight_prim(d, w);
    w->layout = 1;
    w->bytes = p ? xd_md_bytes(xd_weight_packed(p)) : 0;
    return w->bytes;
}

size_t xd_dnn_pack_tmp(xd_dnn *d, const xd_weight *w, xd_dtype src)
{
    (void)src;
    xd_dnn_enter(d);
    xd_prim *p = xd_weight_prim(d, w);
    return round_up_64((size_t)element_count(w) * xd_dtype_size(w->type)) + (p ? p->scratch : 0);
}

/* Returns the unpacked weight in the type of `w`. The result is `src` itself, or a copy that is
 * converted to this type in the memory `tmp`. */
static void *as_own_type(xd_dnn *d, const xd_weight *w, xd_tensor src, void *tmp)
{
    if (src.type == w->type && (uintptr_t)src.p % xd_dtype_size(src.type) == 0)
        return src.p;
    xd_tensor from = xd_view2(src.p, src.type, 1, element_count(w));
    if ((uintptr_t)src.p % xd_dtype_size(src.type) == 0)
        d->k->copy(&(xd_copy){ xd_view2(tmp, w->type, 1, element_count(w)), from });
    else if (src.type == w->type)
        memcpy(tmp, src.p, xd_bytes(from));
    else
        xd_convert(tmp, w->type, src.p, src.type, element_count(w));
    return tmp;
}

xd_status xd_dnn_pack(xd_dnn *d, xd_weight *w, xd_tensor src, void *tmp)
{
    xd_dnn_enter(d);
    xd_prim *p = xd_weight_prim(d, w);
    size_t   own = round_up_64((size_t)element_count(w) * xd_dtype_size(w->type));
    if (!p)
        return XD_EUNSUPPORTED;
    xd_prim_arg(d, p, DNNL_ARG_FROM, dnnl_query_src_md, 0, as_own_type(d, w, src, tmp));
    xd_prim_arg(d, p, DNNL_ARG_TO, dnnl_query_dst_md, 0, w->p);
    return xd_prim_run(d, p, (char *)tmp + own);
}

/* ---- opening ------------------------------------------------------------------------------ */

static dnnl_cpu_isa_t limit_of(xd_isa isa)
{
    return isa == XD_ISA_AVX2     ? dnnl_cpu_isa_avx2
           : isa == XD_ISA_AVX512 ? dnnl_cpu_isa_avx512_core
           : isa == XD_ISA_AMX    ? dnnl_cpu_isa_avx512_core_amx
                                  : dnnl_cpu_isa_avx512_core_bf16;
}

xd_status xd_dnn_open(xd_dnn **out, xd_isa isa, int cap, const xd_kernels *k, xd_err *e)
{
    dnnl_status_t s = dnnl_success;
    *out = NULL;
    if (xd_dnn_load(e) != XD_OK)
        return XD_EUNSUPPORTED;
    xd_dnn *d = *out = calloc(1, sizeof *d);
    if (!d)
        return xd_fail(e, XD_ENOMEM, "no memory for the CPU device");
    if (cap && dnnl_set_max_cpu_isa(limit_of(isa)) != dnnl_success &&
        dnnl_get_effective_cpu_isa() != limit_of(isa))
        s = dnnl_invalid_arguments;
    if (s != dnnl_success) {
        xd_dnn_close(out);
        return xd_fail(e, XD_EUNSUPPORTED,
                       "oneDNN already runs in this process with another instruction set than %s",
                       xd_isa_name(isa));
    }
    d->k = k;
    s = dnnl_engine_create(&d->engine, dnnl_cpu, 0);
    if (s == dnnl_success)
        s = dnnl_stream_create(&d->stream, d->engine, dnnl_stream_default_flags);
    if (s != dnnl_success) {
        xd_dnn_close(out);
        return xd_fail(e, XD_EDEVICE, "oneDNN does not start (status %d)", (int)s);
    }
    return XD_OK;
}

void xd_dnn_close(xd_dnn **out)
{
    xd_dnn *d = *out;
    if (!d)
        return;
    xd_dnn_forget(d);
    if (d->stream)
        dnnl_stream_destroy(d->stream);
    if (d->engine)
        dnnl_engine_destroy(d->engine);
    free(d);
    *out = NULL;
}

/* Reports the version of the loaded oneDNN library, which may be newer than the version at build
 * time. */
void xd_cpu_about(xd_fact *fact, void *cookie)
{
    char   text[640];
    xd_err e = { 0 };
    if (xd_dnn_load(&e) == XD_OK) {
        const dnnl_version_t *v = dnnl_version();
        snprintf(text, sizeof text, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
    } else {
        snprintf(text, sizeof text, "%.600s", e.msg);
    }
    fact(cookie, "library", text);
    if (xd_dnn_lib.set_threads)
        fact(cookie, "library", "OpenMP of oneDNN");
}
