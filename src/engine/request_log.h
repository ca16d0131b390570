/* request_log.h - logs a line that describes an accepted request before the request runs. */
#ifndef XD_ENGINE_REQUEST_LOG_H
#define XD_ENGINE_REQUEST_LOG_H

#include "pipeline/memory_plan.h"
#include "predict/auto_plan.h"

/* On rank 0, logs one line at level INFO with the model, image size, steps, element types, device,
 * ranks, bytes of memory (of all ranks of this host, or of the device), and the predicted seconds
 * unless they were logged with the plan. Call after xd_memory_plan. `predicted` has the predicted
 * times of this request, or is NULL if they are unknown. */
void xd_log_request(const xd_job *j, const xd_memory_limits *limits,
                    const xd_predicted_times *predicted);

#endif
