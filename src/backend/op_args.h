/* op_args.h - checks, for all devices, that the arguments of an op have the types, shapes and
 * strides that backend.h documents. The functions that check arguments do not dereference device
 * addresses.
 *
 * A function that checks arguments returns XD_EINVAL if they are invalid or inconsistent, and
 * XD_EUNSUPPORTED if attention does not support the types or widths. */
#ifndef XD_BACKEND_OP_ARGS_H
#define XD_BACKEND_OP_ARGS_H

#include "backend/backend.h"

/* Set of the element types in which a device computes, with bit 1 << t for each type t. */
typedef unsigned xd_types;
#define XD_TYPES_F32_BF16 (1u << XD_F32 | 1u << XD_BF16)

enum { XD_ATTN_MAXD = 1152 }; /* maximum number of elements of an attention head */

int       xd_types_has(xd_types types, xd_dtype t);
xd_status xd_gemm_check(const xd_gemm *a, xd_types types);
xd_status xd_attn_check(const xd_attn_args *a, xd_types types);
xd_status xd_norm_check(const xd_norm *a, xd_types types);
xd_status xd_moments_check(const xd_moments *a, xd_types types);
xd_status xd_gnorm_check(const xd_gnorm *a, xd_types types);
xd_status xd_glu_check(const xd_glu *a, xd_types types);
xd_status xd_addmul_check(const xd_addmul *a, xd_types types);
xd_status xd_axpby_check(const xd_axpby_args *a);
xd_status xd_conv_check(const xd_conv *a, xd_types types);
xd_status xd_resize_check(const xd_resize *a);
/* Checks the arguments of a table lookup without reading the ids of the rows. The device detects an
 * id outside the table when it executes the lookup. */
xd_status xd_lookup_check(const xd_lookup *a, xd_types types);
xd_status xd_copy_check(const xd_copy *a, xd_types types);
xd_status xd_qknorm_check(const xd_qknorm *a, xd_types types);
xd_status xd_rotate_check(const xd_rotate *a, xd_types types);
xd_status xd_linattn_check(const xd_linattn *a, xd_types types);
xd_status xd_code_check(const xd_code *a, xd_types types);

/* Returns the number of elements of a convolution's kernel; 1 for a linear layer. */
int64_t xd_weight_taps(const xd_weight *w);
/* returns the number of keys in all segments of an attention call */
int64_t xd_attn_keys(const xd_attn_args *a);
/* Returns the number of key heads Hk of an attention call, or the number of query heads H if the
 * call has no keys. */
int64_t xd_attn_heads_kv(const xd_attn_args *a);

#endif
