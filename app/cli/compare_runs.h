/* compare_runs.h - measures how approximations change the images, for xdit generate --compare */
#ifndef XDIT_CLI_COMPARE_RUNS_H
#define XDIT_CLI_COMPARE_RUNS_H

#include "xdit/tools.h"

/* Checks whether the request has approximations (cache, attention, ...) that --compare can measure.
 * XD_EINVAL: no option of the request changes the image to save time. */
xd_status xd_compare_check(const xd_request *r, xd_err *e);
/* Generates the request again without its approximations, and writes no files. `saved` is the
 * result of the request with its approximations. Rank 0 prints the difference between the new
 * images and the images of `saved`: one line per image, or a JSON object. name(cookie, i) returns
 * the file name of image i. All ranks must call xd_compare_runs. */
xd_status xd_compare_runs(xd_engine *g, const xd_request *r, const xd_result *saved, int json,
                          const char *(*name)(void *cookie, int i), void *cookie, xd_err *e);

#endif
