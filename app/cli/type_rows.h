/* type_rows.h - defines the options for element types, which the option tables of several commands
 * include */
#ifndef XD_CLI_TYPE_ROWS_H
#define XD_CLI_TYPE_ROWS_H

#include "xdit/tools.h"

#define XD_WEIGHT_TYPES "f32 bf16 int8 fp8 int4 auto"

/* Three rows of the type xd_option, for the options --dtype, --weights_dtype and
 * --text_weights_dtype. The including file must define the macro AT(field) as the offset of a field
 * in the record that its option table fills. */
#define XD_TYPE_ROWS                                                                              \
    { "dtype", XD_OPT_TEXT, AT(dtype), 0, 0, "f32 bf16 f16", "TYPE",                              \
      "compute type: f32, bf16, or f16 (only on GPUs) (default: the fastest)" },                  \
    { "weights_dtype", XD_OPT_TEXT, AT(weights_dtype), 0, 0, XD_WEIGHT_TYPES, "TYPE",             \
      "weights: f32, bf16, int8, fp8, int4 or auto (default: as --dtype), for transformer "       \
      "matrices. int8: half the memory of bf16, and also faster. fp8: half the memory. int4 (CPU "\
      "only): a quarter of the memory, with larger changes of the image. auto: int8 or fp8 if "   \
      "the files have this type" },                                                               \
    { "text_weights_dtype", XD_OPT_TEXT, AT(text_weights_dtype), 0, 0, XD_WEIGHT_TYPES, "TYPE",   \
      "type of T5 weights: f32, bf16, int8, fp8, int4 or auto (default: as --dtype)" }

#endif
