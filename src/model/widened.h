/* widened.h - a weight source that wraps another source and gives one of its tensors more columns,
 * which are zeros. LoRA files of a transformer that reads a control image add terms to the
 * additional columns. */
#ifndef XD_MODEL_WIDENED_H
#define XD_MODEL_WIDENED_H

#include "exec/weight.h"

typedef struct xd_widened xd_widened;

/* Reads tensor `name` of the source `from`, which is copied, and makes it `cols` columns wide. An
 * error says that a file of the source is wrong. */
xd_status xd_widened_open(xd_widened **w, const xd_source *from, const char *name, int64_t cols,
                          xd_err *e);
/* Returns the weight source that has the wider tensor. The source is valid until
 * xd_widened_close. */
xd_source xd_widened_source(const xd_widened *w);
void      xd_widened_close(xd_widened **w);

#endif
