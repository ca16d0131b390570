/* type_rows.h - the flags that name types, in the tables of several commands */
#ifndef XD_CLI_TYPE_ROWS_H
#define XD_CLI_TYPE_ROWS_H

#include "xdit/tools.h"

#define XD_WEIGHT_TYPES "f32 bf16 int8 fp8 int4 auto"

/* Three rows of xd_option. AT(field): the offset of a field in the record of the table. */
#define XD_TYPE_ROWS                                                                              \
    { "dtype", XD_OPT_TEXT, AT(dtype), 0, 0, "f32 bf16 f16", "TYPE",                              \
      "of weights and GEMMs; f16 on a GPU alone (default: the machine's best)" },                 \
    { "weights_dtype", XD_OPT_TEXT, AT(weights_dtype), 0, 0, XD_WEIGHT_TYPES, "TYPE",             \
      "of the transformer's matrices: int8 and fp8 take half of bf16's memory, int8 is faster, "  \
      "too, for an image that is a little different; int4 takes a quarter, on the CPU, for one "  \
      "that is more so; auto: int8 or fp8 where the files have it (default: as --dtype)" },       \
    { "text_weights_dtype", XD_OPT_TEXT, AT(text_weights_dtype), 0, 0, XD_WEIGHT_TYPES, "TYPE",   \
      "the same of the T5 text encoder" }

#endif
