/* widened.h - defines a weight source that wraps another source and adds columns of zeros to one of
 * its tensors. LoRA files of a transformer that reads a control image add terms to the additional
 * columns. */
#ifndef XD_MODEL_WIDENED_H
#define XD_MODEL_WIDENED_H

#include "exec/weight.h"

typedef struct xd_widened xd_widened;

/* Reads tensor `name` of the source `from` and extends it to `cols` columns. The struct `from` is
 * copied. Returns an error if a file of the source is invalid. */
xd_status xd_widened_open(xd_widened **w, const xd_source *from, const char *name, int64_t cols,
                          xd_err *e);
/* Returns the weight source that has the wider tensor. The source is valid until
 * xd_widened_close. */
xd_source xd_widened_source(const xd_widened *w);
void      xd_widened_close(xd_widened **w);

#endif
