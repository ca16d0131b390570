/* tensor.h - defines xd_tensor, a view of elements in memory, which owns no memory and is passed by
 * value.
 *
 * The memory of a tensor belongs to an arena, a weight store or a file mapping. */
#ifndef XD_TENSOR_TENSOR_H
#define XD_TENSOR_TENSOR_H

#include <stddef.h>
#include <stdint.h>

/* The library requires that the machine is little-endian, like weight files, and that size_t can
 * hold any offset in a file. */
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__ || SIZE_MAX < UINT64_MAX
#error "xdit needs a little-endian machine of 64 bits"
#endif

typedef enum xd_dtype {
    XD_F32,
    XD_F16,
    XD_BF16,
    XD_F64,
    XD_F8E4M3,
    XD_F8E5M2,
    XD_I8,
    XD_U8,
    XD_I16,
    XD_I32,
    XD_I64,
    XD_BOOL,
    /* Block types, which only occur in GGUF files: 32 elements, or 256 elements for types whose
     * name ends in _K and for XD_IQ4_XS, are stored together with their scales as one block. A
     * function accepts tensors of GGUF block types only if its comment says so. */
    XD_Q8_0,
    XD_Q4_0,
    XD_Q4_1,
    XD_Q5_0,
    XD_Q5_1,
    XD_Q2_K,
    XD_Q3_K,
    XD_Q4_K,
    XD_Q5_K,
    XD_Q6_K,
    XD_IQ4_NL,
    XD_IQ4_XS,
    XD_NDTYPES,
} xd_dtype;

enum { XD_MAXDIM = 5 }; /* maximum number of dimensions, as in [B,C,T,H,W] */

typedef struct xd_tensor {
    /* address of the first element (not valid on a count device); NULL: the tensor is absent */
    void    *p;
    int64_t  d[XD_MAXDIM]; /* extents, outermost dimension first; 1 in unused dimensions */
    int64_t  s[XD_MAXDIM]; /* strides in elements; 0 in unused dimensions */
    xd_dtype type;
    int      nd;
} xd_tensor;

size_t      xd_dtype_size(xd_dtype t); /* returns bytes per element; 0: a block type */
/* returns the name of an element type, such as "f32", "bf16", "q4_k" */
const char *xd_dtype_name(xd_dtype t);
/* returns the number of elements per quantization block; 1: t is not a block type */
int64_t     xd_dtype_block(xd_dtype t);
size_t      xd_dtype_block_bytes(xd_dtype t);
/* returns the bytes of n elements (complete quantization blocks) */
size_t      xd_dtype_bytes(xd_dtype t, int64_t n);

/* Returns a contiguous tensor of the given type and shape. */
xd_tensor xd_view(void *p, xd_dtype t, int nd, const int64_t *d);
xd_tensor xd_view2(void *p, xd_dtype t, int64_t rows, int64_t cols);
/* returns a view of rows [start, start+n) */
xd_tensor xd_rows(xd_tensor t, int64_t start, int64_t n);
/* Returns a view of columns [start, start+n). */
xd_tensor xd_cols(xd_tensor t, int64_t start, int64_t n);
xd_tensor xd_heads(xd_tensor t, int64_t hd); /* returns a view of [n,H*hd] as [n,H,hd] */
xd_tensor xd_flat(xd_tensor t);              /* returns a view of [n,H,hd] as [n,H*hd] */
/* changes the shape of t, which must be contiguous */
xd_tensor xd_reshape(xd_tensor t, int nd, const int64_t *d);
xd_tensor xd_permute(xd_tensor t, const int *order); /* dimension i of the result
                                                                   is dimension order[i] */
int64_t   xd_count(xd_tensor t);                     /* returns the number of elements */
size_t    xd_bytes(xd_tensor t); /* returns the bytes of all elements, also of a block type */
int       xd_contiguous(xd_tensor t);
/* Returns the address of element [i,j]. */
void     *xd_at(xd_tensor t, int64_t i, int64_t j);

/* Writes a shape as text, as in tensors.txt: "4x3x2", "7" (one dimension), "scalar". xd_shape_text
 * returns `buf`. */
char *xd_shape_text(int nd, const int64_t *d, char *buf, size_t size);

/* Convert one element, rounding to nearest even. f16 and bf16 values are passed as uint16_t. */
float    xd_bf16_f32(uint16_t v);
uint16_t xd_f32_bf16(float v);
float    xd_f16_f32(uint16_t v);
uint16_t xd_f32_f16(float v);

/* Convert one 8-bit float. e4m3 has no infinities, so values beyond its maximum 448, including
 * infinities, become +-448; NaN stays NaN. e5m2 values are only read. */
float   xd_f8e4m3_f32(uint8_t v);
uint8_t xd_f32_f8e4m3(float v);
float   xd_f8e5m2_f32(uint8_t v);

/* Copies n contiguous elements of a float type (F32 F16 BF16 F64 F8E4M3 F8E5M2), or complete
 * quantization blocks of a GGUF block type, to another float type (F32 F16 BF16 F8E4M3). The data
 * at `from` need not be aligned. xd_convert is scalar C code, for loading and tests, not for inner
 * loops. */
void xd_convert(void *to, xd_dtype tt, const void *from, xd_dtype ft, int64_t n);
/* Converts elements [first, first + n) of the tensor at `from`, as xd_convert does. For block
 * types, the range may begin and end inside a quantization block. */
void xd_convert_at(void *to, xd_dtype tt, const void *from, xd_dtype ft, int64_t first, int64_t n);

#endif
