/* inspect_file.h - what a single weight file holds */
#ifndef XD_REPORT_INSPECT_FILE_H
#define XD_REPORT_INSPECT_FILE_H

#include "model/single_file.h"
#include "xdit/xdit.h"

/* Hands one line to whoever asked. */
void      xd_inspect_line(const xd_inspect_args *a, const char *fmt, ...) XD_PRINTF(2, 3);

/* A tensor's line, of a list that begins with the first. */
void      xd_inspect_tensor(const xd_inspect_args *a, const char *name, int nd, const int64_t *d, int first);
/* a->model is a file: its components by layout, or with a->tensors every tensor under its own
 * name. */
xd_status xd_inspect_file(const xd_inspect_args *a, xd_err *e);

#endif
