/* product.h - multiplies the two low-rank matrices of a LoRA weight on the host: to[i,j] += gain *
 * sum over k of up[i,k] * across[j,k].
 *
 * Products are computed by the GEMM kernels of the host processor's best instruction set, even if
 * the device is a GPU. Threads may add products to different rows of `to` concurrently. The terms
 * of an element's sum are added in f32, in an order that depends only on the rank of the matrices.
 * An element of the product does not depend on which other rows and columns are computed. */
#ifndef XD_BACKEND_PRODUCT_H
#define XD_BACKEND_PRODUCT_H

#include "base/err.h"
#include "tensor/tensor.h"

typedef struct xd_product xd_product;

/* Returns the element type in which matrices of types a and b are multiplied. Returns BF16 if both
 * matrices are BF16 and the processor has bf16 dot products, else F32. (Products of two bf16
 * numbers are exact in f32.) */
xd_dtype  xd_product_type(xd_dtype a, xd_dtype b);
/* Prepares the product of the matrices `up` [rows, rank] and `across` [cols, rank]. `up` must stay
 * valid until the product is closed; `across` is copied. The matrices `up` and `across` must be
 * contiguous and have the type that xd_product_type returns; the rank must be above 0. */
xd_status xd_product_open(xd_product **p, xd_tensor up, xd_tensor across, float gain, xd_err *e);
void      xd_product_close(xd_product **p);
/* Returns the bytes of memory that a product allocates, excluding `up` and `across`. */
size_t    xd_product_bytes(int64_t rank, int64_t cols);
/* Returns the bytes of scratch memory that xd_product_add needs for up to `n` rows. */
size_t    xd_product_scratch(const xd_product *p, int64_t n);
/* Adds rows [row, row + n) of the product to the F32 matrix `to` [n, cols]. `tmp` is scratch
 * memory, which concurrent calls must not share. */
void      xd_product_add(const xd_product *p, int64_t row, int64_t n, float *to, void *tmp);

#endif
