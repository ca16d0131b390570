/* step_hashes.h - writes the hashes of a request's steps to a file, and compares two such files.
 *
 * Hashes are stored in a text file. Each line of the file contains one hash: the numbers of image
 * and step, the tensor ("latents", or "pass P block B" for guidance pass P and transformer block
 * B), the hash of the bits, the sum of squares, and the sums of xd_step_hash. The hashes of a
 * step's transformer blocks precede the hash of the step's latents, in the order of computation. */
#ifndef XD_CLI_STEP_HASHES_H
#define XD_CLI_STEP_HASHES_H

#include "xdit/tools.h"

/* Checks, before a request begins, that the file `path` can be written or, if it exists, read. */
xd_status xd_step_hashes_begin(const char *path, xd_err *e);
/* Writes the hashes of all images of a result to the file `path`; if the file exists already,
 * compares the hashes with those of the file and does not write. XD_EFORMAT: hashes differ; the
 * message names the first step and block at which the hashes differ. `summary` receives a sentence
 * about the comparison, or "" if the file was written. */
xd_status xd_step_hashes_check(const xd_result *r, const char *path, char summary[512], xd_err *e);
/* Compares the hashes in two files in the same way as xd_step_hashes_check. */
xd_status xd_step_hashes_compare(const char *a, const char *b, char summary[512], xd_err *e);

#endif
