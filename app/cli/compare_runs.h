/* compare_runs.h - measures how approximations change the images, for xdit generate --compare */
#ifndef XDIT_CLI_COMPARE_RUNS_H
#define XDIT_CLI_COMPARE_RUNS_H

#include "xdit/tools.h"

/* Checks whether --compare makes sense. XD_EINVAL: the request has no approximation (cache,
 * attention, ...), so there is no effect to measure. */
xd_status xd_compare_check(const xd_request *r, xd_err *e);
/* Generates the request again without its approximations, and writes no files. Rank 0 prints the
 * difference between the new images and the images of `saved`, which is the result with
 * approximations: one line per image, or a JSON object. name(cookie, i) returns the file name of
 * image i. Collective. */
xd_status xd_compare_runs(xd_engine *g, const xd_request *r, const xd_result *saved, int json,
                          const char *(*name)(void *cookie, int i), void *cookie, xd_err *e);

#endif
