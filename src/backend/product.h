/* product.h - multiplies two low-rank matrices on the host (for LoRA weights): to[i,j] += gain
 * sum_k up[i,k] across[j,k]
 *
 * The products are computed as GEMMs of the host's best instruction set, whatever the device is.
 * Threads may add products to different rows of `to` concurrently. An element of the result does
 * not depend on which other rows and columns are computed, because its products over k are added in
 * f32, in an order that depends only on the rank of the matrices. */
#ifndef XD_BACKEND_PRODUCT_H
#define XD_BACKEND_PRODUCT_H

#include "base/err.h"
#include "tensor/tensor.h"

typedef struct xd_product xd_product;

/* Returns the type in which matrices stored as types a and b are multiplied: BF16 if both are BF16
 * and the machine has bf16 products, else F32. Products of bf16 are exact in f32. */
xd_dtype  xd_product_type(xd_dtype a, xd_dtype b);
/* Opens a product of up [rows, rank], which must stay valid until the product is closed, and across
 * [cols, rank], which is copied. `up` and `across` are contiguous and of type xd_product_type; rank
 * > 0. */
xd_status xd_product_open(xd_product **p, xd_tensor up, xd_tensor across, float gain, xd_err *e);
void      xd_product_close(xd_product **p);
/* Returns the bytes of memory that a product allocates, excluding `up` and `across`. */
size_t    xd_product_bytes(int64_t rank, int64_t cols);
/* Returns the bytes of scratch that xd_product_add needs for up to `n` rows. */
size_t    xd_product_scratch(const xd_product *p, int64_t n);
/* Adds rows [row, row + n) of the product to the F32 matrix `to` [n, cols]. tmp is scratch that no
 * concurrent call uses. */
void      xd_product_add(const xd_product *p, int64_t row, int64_t n, float *to, void *tmp);

#endif
