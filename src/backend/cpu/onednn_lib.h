/* onednn_lib.h - declares pointers to oneDNN's functions, which are looked up in the library when
 * the first CPU device is opened.
 *
 * Loading oneDNN takes some 2 ms and starts OpenMP. Because of the loading time, the program is not
 * linked to oneDNN; xd_cpu_early loads the library on a thread while the program starts. The
 * program is compiled with the oneDNN headers of the build machine, and the loaded library must
 * have the same major version as these headers. Macros at the end of onednn_lib.h let the code call
 * oneDNN's functions by their usual names. */
#ifndef XD_BACKEND_CPU_ONEDNN_LIB_H
#define XD_BACKEND_CPU_ONEDNN_LIB_H

#include <dnnl.h>

#include "base/err.h"
#include "base/par.h"

#if DNNL_VERSION_MAJOR >= 3
#define XD_DNN_OF_VERSION(X)                                                                      \
    X(dnnl_convolution_forward_primitive_desc_create) X(dnnl_matmul_primitive_desc_create)        \
    X(dnnl_memory_desc_clone) X(dnnl_memory_desc_create_with_strides)                             \
    X(dnnl_memory_desc_create_with_tag) X(dnnl_memory_desc_destroy)
#else
#define XD_DNN_OF_VERSION(X)                                                                      \
    X(dnnl_dilated_convolution_forward_desc_init) X(dnnl_matmul_desc_init)                        \
    X(dnnl_memory_desc_init_by_strides) X(dnnl_memory_desc_init_by_tag)                           \
    X(dnnl_primitive_desc_create)
#endif
#define XD_DNN_FUNCTIONS(X)                                                                       \
    X(dnnl_engine_create) X(dnnl_engine_destroy) X(dnnl_get_effective_cpu_isa)                    \
    X(dnnl_memory_create) X(dnnl_memory_desc_get_size) X(dnnl_memory_destroy)                     \
    X(dnnl_memory_set_data_handle) X(dnnl_post_ops_append_binary)                                 \
    X(dnnl_post_ops_append_eltwise) X(dnnl_post_ops_append_sum) X(dnnl_post_ops_create)           \
    X(dnnl_post_ops_destroy) X(dnnl_primitive_attr_create) X(dnnl_primitive_attr_destroy)         \
    X(dnnl_primitive_attr_set_post_ops) X(dnnl_primitive_attr_set_scratchpad_mode)                \
    X(dnnl_primitive_create) X(dnnl_primitive_desc_destroy) X(dnnl_primitive_desc_query)          \
    X(dnnl_primitive_desc_query_md) X(dnnl_primitive_destroy) X(dnnl_primitive_execute)           \
    X(dnnl_reorder_primitive_desc_create) X(dnnl_set_max_cpu_isa) X(dnnl_stream_create)           \
    X(dnnl_stream_destroy) X(dnnl_stream_wait) X(dnnl_version) XD_DNN_OF_VERSION(X)

typedef struct xd_dnn_api {
#define XD_DNN_FIELD(name) __typeof__(name) *name;
    XD_DNN_FUNCTIONS(XD_DNN_FIELD)
#undef XD_DNN_FIELD
    /* sets the number of threads of oneDNN's OpenMP; NULL if oneDNN has no OpenMP */
    void       (*set_threads)(int n);
    /* functions that run our kernels on the thread team of oneDNN's OpenMP; `parallel` is NULL
     * unless oneDNN uses GNU's OpenMP */
    xd_par_omp team;
} xd_dnn_api;

extern xd_dnn_api xd_dnn_lib; /* pointers to oneDNN's functions, set by xd_dnn_load */

/* Loads oneDNN once per process. xd_dnn_load returns XD_EUNSUPPORTED on failure, with the reason in
 * e. */
xd_status xd_dnn_load(xd_err *e);
int       xd_dnn_is_loaded(void);
int       xd_dnn_has_run(void); /* returns 1 if a primitive has run in this process */
/* Return the approximate number of bytes that oneDNN will allocate for the code of convolutions
 * that have a primitive descriptor but no primitive yet: convolutions with AMX tiles
 * (xd_dnn_to_come) or without (xd_dnn_plain_to_come). */
size_t    xd_dnn_to_come(void);
size_t    xd_dnn_plain_to_come(void);

#ifndef XD_DNN_OWN_NAMES
#define dnnl_engine_create xd_dnn_lib.dnnl_engine_create
#define dnnl_engine_destroy xd_dnn_lib.dnnl_engine_destroy
#define dnnl_get_effective_cpu_isa xd_dnn_lib.dnnl_get_effective_cpu_isa
#define dnnl_memory_create xd_dnn_lib.dnnl_memory_create
#define dnnl_memory_desc_get_size xd_dnn_lib.dnnl_memory_desc_get_size
#define dnnl_memory_destroy xd_dnn_lib.dnnl_memory_destroy
#define dnnl_memory_set_data_handle xd_dnn_lib.dnnl_memory_set_data_handle
#define dnnl_post_ops_append_binary xd_dnn_lib.dnnl_post_ops_append_binary
#define dnnl_post_ops_append_eltwise xd_dnn_lib.dnnl_post_ops_append_eltwise
#define dnnl_post_ops_append_sum xd_dnn_lib.dnnl_post_ops_append_sum
#define dnnl_post_ops_create xd_dnn_lib.dnnl_post_ops_create
#define dnnl_post_ops_destroy xd_dnn_lib.dnnl_post_ops_destroy
#define dnnl_primitive_attr_create xd_dnn_lib.dnnl_primitive_attr_create
#define dnnl_primitive_attr_destroy xd_dnn_lib.dnnl_primitive_attr_destroy
#define dnnl_primitive_attr_set_post_ops xd_dnn_lib.dnnl_primitive_attr_set_post_ops
#define dnnl_primitive_attr_set_scratchpad_mode xd_dnn_lib.dnnl_primitive_attr_set_scratchpad_mode
#define dnnl_primitive_create xd_dnn_lib.dnnl_primitive_create
#define dnnl_primitive_desc_destroy xd_dnn_lib.dnnl_primitive_desc_destroy
#define dnnl_primitive_desc_query xd_dnn_lib.dnnl_primitive_desc_query
#define dnnl_primitive_desc_query_md xd_dnn_lib.dnnl_primitive_desc_query_md
#define dnnl_primitive_destroy xd_dnn_lib.dnnl_primitive_destroy
#define dnnl_primitive_execute xd_dnn_lib.dnnl_primitive_execute
#define dnnl_reorder_primitive_desc_create xd_dnn_lib.dnnl_reorder_primitive_desc_create
#define dnnl_set_max_cpu_isa xd_dnn_lib.dnnl_set_max_cpu_isa
#define dnnl_stream_create xd_dnn_lib.dnnl_stream_create
#define dnnl_stream_destroy xd_dnn_lib.dnnl_stream_destroy
#define dnnl_stream_wait xd_dnn_lib.dnnl_stream_wait
#define dnnl_version xd_dnn_lib.dnnl_version
#if DNNL_VERSION_MAJOR >= 3
#define dnnl_convolution_forward_primitive_desc_create \
    xd_dnn_lib.dnnl_convolution_forward_primitive_desc_create
#define dnnl_matmul_primitive_desc_create xd_dnn_lib.dnnl_matmul_primitive_desc_create
#define dnnl_memory_desc_clone xd_dnn_lib.dnnl_memory_desc_clone
#define dnnl_memory_desc_create_with_strides xd_dnn_lib.dnnl_memory_desc_create_with_strides
#define dnnl_memory_desc_create_with_tag xd_dnn_lib.dnnl_memory_desc_create_with_tag
#define dnnl_memory_desc_destroy xd_dnn_lib.dnnl_memory_desc_destroy
#else
#define dnnl_dilated_convolution_forward_desc_init \
    xd_dnn_lib.dnnl_dilated_convolution_forward_desc_init
#define dnnl_matmul_desc_init xd_dnn_lib.dnnl_matmul_desc_init
#define dnnl_memory_desc_init_by_strides xd_dnn_lib.dnnl_memory_desc_init_by_strides
#define dnnl_memory_desc_init_by_tag xd_dnn_lib.dnnl_memory_desc_init_by_tag
#define dnnl_primitive_desc_create xd_dnn_lib.dnnl_primitive_desc_create
#endif
#endif

#endif
