/* trace_json.h - writes the recorded trace of a request to a file. */
#ifndef XD_PIPELINE_TRACE_JSON_H
#define XD_PIPELINE_TRACE_JSON_H

#include "pipeline/job.h"

/* Ends the recording of a request's events. After the end of the recording, rank 0 writes the trace
 * file, completely or not at all. `s` is the status of the request, and `sent` is the number of
 * bytes that the ranks have sent to each other, or -1 if it is unknown. The call is collective over
 * the ranks in use. After a communication failure (XD_ECOMM), xd_trace_write is not collective, and
 * rank 0 writes only its own events. Returns `s` if `s` is a failure, otherwise the status of
 * writing the file. */
xd_status xd_trace_write(xd_job *j, int64_t sent, xd_status s, xd_err *e);

#endif
