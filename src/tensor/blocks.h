/* blocks.h - used only in src/tensor: decodes elements of the block types of GGUF files. */
#ifndef XD_TENSOR_BLOCKS_H
#define XD_TENSOR_BLOCKS_H

#include "tensor/tensor.h"

/* Decodes n elements (complete quantization blocks) of a GGUF block type to f32, bit-identical to
 * ggml. The data at `from` need not be aligned. */
void xd_blocks_f32(float *to, const void *from, xd_dtype type, int64_t n);

#endif
