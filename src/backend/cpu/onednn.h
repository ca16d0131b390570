/* onednn.h - declares a common interface to versions 2 and 3 of oneDNN, and a cache of oneDNN's
 * primitives.
 *
 * Version 2 of oneDNN passes memory descriptors by value, version 3 as opaque handles; only this
 * file, onednn_lib.h and the onednn*.c files depend on oneDNN's version. */
#ifndef XD_BACKEND_CPU_ONEDNN_H
#define XD_BACKEND_CPU_ONEDNN_H

#include "backend/cpu/cpu.h"
#include "backend/cpu/onednn_lib.h"

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t       xd_md;
typedef const_dnnl_memory_desc_t xd_md_ref;
#else
typedef dnnl_memory_desc_t        xd_md;
typedef const dnnl_memory_desc_t *xd_md_ref;
#endif

enum { XD_PRIM_KEY = 32, XD_PRIM_ARGS = 8 };

/* A cached oneDNN primitive. The key of a primitive consists of all types, shapes and options that
 * determine it. The primitive descriptor is created together with the cache entry, because it
 * determines the scratch bytes. The primitive itself, which contains the generated code, is created
 * at the first run. */
typedef struct xd_prim {
    int64_t               key[XD_PRIM_KEY];
    dnnl_primitive_desc_t pd; /* NULL: oneDNN cannot compute this kind of call */
    dnnl_primitive_t      p;
    dnnl_memory_t         mem[XD_PRIM_ARGS];
    int                   arg[XD_PRIM_ARGS], nargs;
    size_t                scratch; /* bytes of scratch memory of a call */
    /* Primitive that reorders the weight, if the weight was packed in another layout than this
     * primitive reads; else NULL. */
    struct xd_prim       *repack;
    size_t                repack_bytes;
    struct xd_prim       *next; /* next primitive in the same hash bucket */
} xd_prim;

enum { XD_PRIM_BUCKETS = 1024, XD_PRIM_MOST = 4096 };

struct xd_dnn {
    dnnl_engine_t     engine;
    dnnl_stream_t     stream;
    const xd_kernels *k;
    xd_prim          *bucket[XD_PRIM_BUCKETS];
    int               nprims;
};

/* Post-operations of a oneDNN primitive, which are applied in the order of the fields. */
typedef struct xd_post {
    xd_act  act;
    /* number of columns of the gate, a row by which the output is multiplied; 0: no gate */
    int64_t gate;
    int     sum; /* 1: the primitive adds its result to the output */
} xd_post;

/* Returns the cached primitive that has this key, or NULL if the cache has no such primitive. */
xd_prim    *xd_prim_find(xd_dnn *d, const int64_t key[XD_PRIM_KEY]);
/* Adds a primitive descriptor (or NULL) to the cache, which then owns the descriptor. */
xd_prim    *xd_prim_add(xd_dnn *d, const int64_t key[XD_PRIM_KEY], dnnl_primitive_desc_t pd);
/* Creates a primitive that is not in the cache of primitives. The caller must free the new
 * primitive with xd_prim_free. */
xd_prim    *xd_prim_new(dnnl_primitive_desc_t pd);
void        xd_prim_free(xd_prim *p);
/* Exchanges the contents of primitive `p`, which is in the cache, and primitive `q`. */
void        xd_prim_swap(xd_prim *p, xd_prim *q);
/* Prepares argument `arg` of a call, whose data is at `data`. The argument's memory object is
 * created once, with the memory descriptor that the primitive descriptor returns for the query
 * `what` and the index `index`. */
void        xd_prim_arg(xd_dnn *d, xd_prim *p, int arg, dnnl_query_t what, int index, void *data);
void        xd_prim_post(xd_dnn *d, xd_prim *p, int arg, int64_t n, void *data);
xd_status   xd_prim_run(xd_dnn *d, xd_prim *p, void *tmp);
const char *xd_prim_impl(const xd_prim *p); /* returns oneDNN's name of the implementation */

dnnl_data_type_t xd_dnn_type(xd_dtype t);
xd_status xd_md_strided(xd_md *m, int nd, const int64_t *dims, xd_dtype t, const int64_t *strides);
xd_status xd_md_tag(xd_md *m, int nd, const int64_t *dims, xd_dtype t, dnnl_format_tag_t tag);
xd_status xd_md_clone(xd_md *to, xd_md_ref from);
void      xd_md_free(xd_md *m);
xd_md_ref xd_md_as_ref(const xd_md *m);
size_t    xd_md_bytes(xd_md_ref m);
xd_md_ref xd_pd_md(dnnl_primitive_desc_t pd, dnnl_query_t what, int index);

/* Returns primitive attributes with the post-operations and a scratchpad that the caller provides,
 * or NULL if out of memory. */
dnnl_primitive_attr_t xd_dnn_attr(const xd_post *post);

/* The functions that return a dnnl_primitive_desc_t return NULL when oneDNN has no implementation
 * of the operation. oneDNN's reference code counts as an implementation; xd_prim_impl identifies
 * it. */
dnnl_primitive_desc_t xd_pd_matmul(xd_dnn *d, xd_md_ref src, xd_md_ref w, xd_md_ref bias,
                                   xd_md_ref dst, const xd_post *post);
typedef struct xd_conv_geometry { /* spatial dimensions in oneDNN's order: (t,) h, w */
    dnnl_dims_t stride, lo, hi;
} xd_conv_geometry;
dnnl_primitive_desc_t xd_pd_conv(xd_dnn *d, xd_md_ref src, xd_md_ref w, xd_md_ref bias,
                                 xd_md_ref dst, const xd_conv_geometry *g, const xd_post *post);
dnnl_primitive_desc_t xd_pd_reorder(xd_dnn *d, xd_md_ref from, xd_md_ref to);

/* Writes two memory descriptors of a weight. `plain` describes the weight as the source stores it
 * ([out,in(,taps)], in the source's type). `packed` describes the weight in the layout in which
 * this device packs it. The caller must free both memory descriptors. */
xd_status xd_gemm_weight_md(xd_dnn *d, const xd_weight *w, xd_md *plain, xd_md *packed);
xd_status xd_conv_weight_md(xd_dnn *d, const xd_weight *w, xd_md *plain, xd_md *packed);
/* Returns the primitive that converts a weight from the plain to the packed layout, or NULL if
 * oneDNN has no such primitive. Primitives that reorder weights are cached, because a network has
 * many weights of a few shapes. */
xd_prim  *xd_weight_prim(xd_dnn *d, const xd_weight *w);
xd_md_ref xd_weight_packed(const xd_prim *p); /* returns the packed descriptor of reorder p */
/* Empties the cache of primitives if it is full. Without this limit on the cache, the memory of a
 * server that receives requests of ever new sizes would grow without bound. Every entry point of
 * the oneDNN code calls xd_dnn_enter first. Primitives stay valid until the next call of
 * xd_dnn_enter. */
void      xd_dnn_enter(xd_dnn *d);

#endif
