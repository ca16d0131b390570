/* onednn.h - inside the oneDNN side of the CPU device: one view of its versions 2 and 3, and the
 * cache of primitives.
 *
 * Version 2 passes memory descriptors by value, version 3 as opaque handles; what differs is in
 * this file and in dnn.c. */
#ifndef XD_BACKEND_CPU_ONEDNN_H
#define XD_BACKEND_CPU_ONEDNN_H

#include "backend/cpu/cpu.h"
#include "backend/cpu/onednn_lib.h"

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t xd_md;
typedef const_dnnl_memory_desc_t xd_md_ref;
#else
typedef dnnl_memory_desc_t xd_md;
typedef const dnnl_memory_desc_t *xd_md_ref;
#endif

enum { XD_PRIM_KEY = 32, XD_PRIM_ARGS = 8 };

/* A primitive that fits one kind of call: everything that it depends on is in the key. The
 * descriptor is made first (enough to know the scratch), the code when it first runs. */
typedef struct xd_prim {
    int64_t               key[XD_PRIM_KEY];
    dnnl_primitive_desc_t pd;           /* NULL: oneDNN has nothing for this call              */
    dnnl_primitive_t      p;
    dnnl_memory_t         mem[XD_PRIM_ARGS];
    int                   arg[XD_PRIM_ARGS], nargs;
    size_t                scratch;      /* bytes                                               */
    struct xd_prim       *repack;       /* weights of another layout than the pinned one       */
    size_t                repack_bytes;
    struct xd_prim       *next;         /* same bucket                                         */
} xd_prim;

enum { XD_PRIM_BUCKETS = 1024, XD_PRIM_MOST = 4096 };

struct xd_dnn {
    dnnl_engine_t     engine;
    dnnl_stream_t     stream;
    const xd_kernels *k;
    xd_prim          *bucket[XD_PRIM_BUCKETS];
    int               nprims;
};

/* What a primitive does after its main work, in this order. */
typedef struct xd_post {
    xd_act  act;
    int64_t gate;               /* columns of the row that multiplies, or 0                    */
    int     sum;                /* 1: adds what the output held before                         */
} xd_post;

/* The cached primitive of this key, or NULL. */
xd_prim *xd_prim_find(xd_dnn *d, const int64_t key[XD_PRIM_KEY]);
/* Takes a pd (which may be NULL) into the cache. */
xd_prim *xd_prim_add(xd_dnn *d, const int64_t key[XD_PRIM_KEY], dnnl_primitive_desc_t pd);
/* The same without the cache; xd_prim_free ends it. */
xd_prim *xd_prim_new(dnnl_primitive_desc_t pd);
void     xd_prim_free(xd_prim *p);
/* `p` in the cache becomes what `q` is, and the other way round. */
void     xd_prim_swap(xd_prim *p, xd_prim *q);
/* Starts a call: declares argument `arg`, whose descriptor is query(what, index) of the pd
 * (made once), to be at `p`. */
void      xd_prim_arg(xd_dnn *d, xd_prim *p, int arg, dnnl_query_t what, int index, void *data);
void      xd_prim_post(xd_dnn *d, xd_prim *p, int arg, int64_t n, void *data);
xd_status xd_prim_run(xd_dnn *d, xd_prim *p, void *tmp);
const char *xd_prim_impl(const xd_prim *p);     /* oneDNN's name of the implementation         */

dnnl_data_type_t xd_dnn_type(xd_dtype t);
xd_status xd_md_strided(xd_md *m, int nd, const int64_t *dims, xd_dtype t, const int64_t *strides);
xd_status xd_md_tag(xd_md *m, int nd, const int64_t *dims, xd_dtype t, dnnl_format_tag_t tag);
xd_status xd_md_clone(xd_md *to, xd_md_ref from);
void      xd_md_free(xd_md *m);
xd_md_ref xd_md_as_ref(const xd_md *m);
size_t    xd_md_bytes(xd_md_ref m);
xd_md_ref xd_pd_md(dnnl_primitive_desc_t pd, dnnl_query_t what, int index);

/* Attributes with the caller's scratchpad and post-operations; NULL without memory. */
dnnl_primitive_attr_t xd_dnn_attr(const xd_post *post);

/* Each returns NULL when oneDNN has no implementation but a naive one (`naive`: also that one). */
dnnl_primitive_desc_t xd_pd_matmul(xd_dnn *d, xd_md_ref src, xd_md_ref w, xd_md_ref bias,
                                   xd_md_ref dst, const xd_post *post);
typedef struct xd_conv_geometry {       /* in oneDNN's order: (t,) h, w                        */
    dnnl_dims_t stride, lo, hi;
} xd_conv_geometry;
dnnl_primitive_desc_t xd_pd_conv(xd_dnn *d, xd_md_ref src, xd_md_ref w, xd_md_ref bias,
                                 xd_md_ref dst, const xd_conv_geometry *g, const xd_post *post);
dnnl_primitive_desc_t xd_pd_reorder(xd_dnn *d, xd_md_ref from, xd_md_ref to);

/* Descriptors of a weight: as it comes ([out,in(,taps)], of the weight's own type) and as this
 * device packs it (pinned: the same for every use). Freed by the caller. */
xd_status xd_gemm_weight_md(xd_dnn *d, const xd_weight *w, xd_md *plain, xd_md *packed);
xd_status xd_conv_weight_md(xd_dnn *d, const xd_weight *w, xd_md *plain, xd_md *packed);
/* The reorder from the one to the other, from the cache: networks have many weights of a few
 * shapes. NULL: oneDNN cannot. */
xd_prim  *xd_weight_prim(xd_dnn *d, const xd_weight *w);
xd_md_ref xd_weight_packed(const xd_prim *p);   /* its packed descriptor                       */
/* Called first by everything that comes in from outside: a full cache starts afresh, so that a
 * server that sees ever new sizes does not grow for ever. Primitives stay valid in between. */
void      xd_dnn_enter(xd_dnn *d);

#endif
