/* inspect_file.h - the contents of a single weight file */
#ifndef XD_REPORT_INSPECT_FILE_H
#define XD_REPORT_INSPECT_FILE_H

#include "model/single_file.h"
#include "xdit/tools.h"

/* Prints one line through the caller's callback. */
void      xd_inspect_line(const xd_inspect_args *a, const char *fmt, ...) XD_PRINTF(2, 3);

/* Prints a tensor's line; `first` marks the first line of a list. In JSON, what files hold and
 * nothing reads has "read": false. */
void      xd_inspect_tensor(const xd_inspect_args *a, const char *name, int nd, const int64_t *d,
                            int unread, int first);
/* a->model is a file: lists its components by layout, or with a->tensors every tensor under
 * its own name. */
xd_status xd_inspect_file(const xd_inspect_args *a, xd_err *e);

#endif
