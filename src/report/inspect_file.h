/* inspect_file.h - prints the contents of a single weight file (`xdit inspect`). */
#ifndef XD_REPORT_INSPECT_FILE_H
#define XD_REPORT_INSPECT_FILE_H

#include "model/single_file.h"
#include "xdit/tools.h"

/* Prints one line through the callback of `a`. */
void xd_inspect_line(const xd_inspect_args *a, const char *fmt, ...) XD_PRINTF(2, 3);

/* Prints the line that describes one tensor. `first` is 1 for the first line of a list. `unread` is
 * 1 if no network reads the tensor; in JSON, the tensor then has the member "read": false. */
void      xd_inspect_tensor(const xd_inspect_args *a, const char *name, int nd, const int64_t *d,
                            int unread, int first);
/* Lists the components that the file a->model contains, and the known layout of tensor names that
 * each component follows. If a->tensors is not NULL, also lists every tensor by its name in the
 * file. */
xd_status xd_inspect_file(const xd_inspect_args *a, xd_err *e);

#endif
