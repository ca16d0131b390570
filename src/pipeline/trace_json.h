/* trace_json.h - the trace of a request as a file */
#ifndef XD_PIPELINE_TRACE_JSON_H
#define XD_PIPELINE_TRACE_JSON_H

#include "pipeline/job.h"

/* Ends the recording of a request that went as `s` says, with `sent` bytes (-1: unknown), and writes
 * the file on rank 0: whole or not at all. Collective over the ranks in use, unless messages fail
 * (XD_ECOMM): then rank 0 writes what it has. Returns `s`, or why the file of a good request could
 * not be written. */
xd_status xd_trace_write(xd_job *j, int64_t sent, xd_status s, xd_err *e);

#endif
