/* op_args.h - what the arguments of an op must hold on every device: types, shapes and strides as
 * backend.h says.
 *
 * A check follows no address of device memory. XD_EINVAL: the arguments do not fit each other.
 * XD_EUNSUPPORTED: attention of such types or widths is not computed. */
#ifndef XD_BACKEND_OP_ARGS_H
#define XD_BACKEND_OP_ARGS_H

#include "backend/backend.h"

/* The compute types of a device: bit 1 << t for each type t. */
typedef unsigned xd_types;
#define XD_TYPES_F32_BF16 (1u << XD_F32 | 1u << XD_BF16)

enum { XD_ATTN_MAXD = 1024 };           /* elements of a head, at most                        */

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
/* The ids are not read: an id outside the table is for the device to find. */
xd_status xd_lookup_check(const xd_lookup *a, xd_types types);
xd_status xd_copy_check(const xd_copy *a, xd_types types);
xd_status xd_qknorm_check(const xd_qknorm *a, xd_types types);
xd_status xd_rotate_check(const xd_rotate *a, xd_types types);

int64_t   xd_attn_keys(const xd_attn_args *a);          /* keys of all segments               */
int64_t   xd_attn_heads_kv(const xd_attn_args *a);      /* Hk; H when there are no keys       */

#endif
