/* compare_runs.h - what a saving costs the images of a request: xdit generate --compare */
#ifndef XDIT_CLI_COMPARE_RUNS_H
#define XDIT_CLI_COMPARE_RUNS_H

#include "xdit/tools.h"

/* XD_EINVAL: the request saves nothing that it could be compared without. */
xd_status xd_compare_check(const xd_request *r, xd_err *e);
/* Generates the request again without its step cache and with all of attention, and writes nothing
 * of it. Rank 0 prints a line an image that says how far `saved`, the result with the savings, is
 * apart, or with `json` one object. name(cookie, i) is the name of image i. Collective. */
xd_status xd_compare_runs(xd_engine *g, const xd_request *r, const xd_result *saved, int json,
                          const char *(*name)(void *cookie, int i), void *cookie, xd_err *e);

#endif
