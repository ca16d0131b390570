/* product.h - products of two matrices with few columns between them, on the host
 *
 *   to[i,j] += gain sum_k up[i,k] across[j,k]
 *
 * as GEMMs of the best instruction set, whatever the device. Threads may add to different rows at
 * the same time. An element is the same number whatever other rows and columns there are: its sum
 * goes over k in f32, in an order that depends on the rank alone. */
#ifndef XD_BACKEND_PRODUCT_H
#define XD_BACKEND_PRODUCT_H

#include "base/err.h"
#include "tensor/tensor.h"

typedef struct xd_product xd_product;

/* The type in which matrices that are stored as types a and b are multiplied: F32, or BF16 where
 * both are and the machine multiplies it; its products are exact in f32. */
xd_dtype  xd_product_type(xd_dtype a, xd_dtype b);
/* up [rows, rank], borrowed, and across [cols, rank], of this type, contiguous; rank > 0. */
xd_status xd_product_open(xd_product **p, xd_tensor up, xd_tensor across, float gain, xd_err *e);
void      xd_product_close(xd_product **p);
/* Bytes of memory that a product takes, without `up` and `across`. */
size_t    xd_product_bytes(int64_t rank, int64_t cols);
/* Bytes of scratch for up to `n` rows. */
size_t    xd_product_scratch(const xd_product *p, int64_t n);
/* Adds rows [row, row + n) to the rows of `to`, which have `cols` floats. tmp: scratch of this
 * call. */
void      xd_product_add(const xd_product *p, int64_t row, int64_t n, float *to, void *tmp);

#endif
