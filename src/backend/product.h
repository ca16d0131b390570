/* product.h - products of two low-rank matrices on the host (LoRA weights)
 *
 *   to[i,j] += gain sum_k up[i,k] across[j,k]
 *
 * Runs as GEMMs of the best instruction set, whatever the device is. Threads may add to different
 * rows concurrently. An element does not depend on which other rows and columns are computed: its
 * sum runs over k in f32, in an order that depends on the rank alone. */
#ifndef XD_BACKEND_PRODUCT_H
#define XD_BACKEND_PRODUCT_H

#include "base/err.h"
#include "tensor/tensor.h"

typedef struct xd_product xd_product;

/* The type in which matrices that are stored as types a and b are multiplied: BF16 if both are and
 * the machine has bf16 products, else F32. Products of bf16 are exact in f32. */
xd_dtype  xd_product_type(xd_dtype a, xd_dtype b);
/* up [rows, rank], borrowed, and across [cols, rank], of xd_product_type, contiguous; rank > 0. */
xd_status xd_product_open(xd_product **p, xd_tensor up, xd_tensor across, float gain, xd_err *e);
void      xd_product_close(xd_product **p);
/* Bytes of memory that a product allocates, excluding `up` and `across`. */
size_t    xd_product_bytes(int64_t rank, int64_t cols);
/* Bytes of scratch that xd_product_add needs for up to `n` rows. */
size_t    xd_product_scratch(const xd_product *p, int64_t n);
/* Adds rows [row, row + n) of the product to `to` [n, cols], F32. tmp: scratch that no concurrent
 * call uses. */
void      xd_product_add(const xd_product *p, int64_t row, int64_t n, float *to, void *tmp);

#endif
