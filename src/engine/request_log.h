/* request_log.h - the line that describes an accepted request before its first stage */
#ifndef XD_ENGINE_REQUEST_LOG_H
#define XD_ENGINE_REQUEST_LOG_H

#include "pipeline/memory_plan.h"
#include "predict/auto_plan.h"

/* Logs on rank 0, at INFO: model, size, steps, types, device, ranks, bytes of memory (of all ranks
 * of this host, or of the device), and the predicted seconds unless they were logged with the plan.
 * After xd_memory_plan. predicted: of this request; NULL: unknown. */
void xd_log_request(const xd_job *j, const xd_memory_limits *limits,
                    const xd_predicted_times *predicted);

#endif
