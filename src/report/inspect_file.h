/* inspect_file.h - the contents of a single weight file */
#ifndef XD_REPORT_INSPECT_FILE_H
#define XD_REPORT_INSPECT_FILE_H

#include "model/single_file.h"
#include "xdit/tools.h"

/* Prints one line through the callback of `a`. */
void      xd_inspect_line(const xd_inspect_args *a, const char *fmt, ...) XD_PRINTF(2, 3);

/* Prints a tensor's line; `first` marks the first line of a list. In JSON, a tensor that no network
 * reads has "read": false. */
void      xd_inspect_tensor(const xd_inspect_args *a, const char *name, int nd, const int64_t *d,
                            int unread, int first);
/* Lists the components of the file a->model by layout; with a->tensors every tensor under its own
 * name. */
xd_status xd_inspect_file(const xd_inspect_args *a, xd_err *e);

#endif
