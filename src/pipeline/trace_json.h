/* trace_json.h - writes the trace of a request to a file */
#ifndef XD_PIPELINE_TRACE_JSON_H
#define XD_PIPELINE_TRACE_JSON_H

#include "pipeline/job.h"

/* Ends the recording of a request with outcome `s` and `sent` bytes (-1: unknown), and writes the
 * file on rank 0, completely or not at all. Collective over the ranks in use, except after a
 * communication failure (XD_ECOMM): then rank 0 writes its own events. Returns `s`; if `s` is
 * XD_OK, the result of writing. */
xd_status xd_trace_write(xd_job *j, int64_t sent, xd_status s, xd_err *e);

#endif
