/* request_log.h - logs a line that describes an accepted request before the request runs. */
#ifndef XD_ENGINE_REQUEST_LOG_H
#define XD_ENGINE_REQUEST_LOG_H

#include "pipeline/memory_plan.h"
#include "predict/auto_plan.h"

/* On rank 0, logs one line at level INFO with the model, image size, steps, element types, device
 * and ranks of the request. The logged line also tells how many bytes of memory the request needs
 * on this host or on the device. The logged line ends with the predicted time of the request in
 * seconds, unless the time was already logged together with the chosen plan. Call xd_log_request
 * after xd_memory_plan. `predicted` contains the predicted times of this request, or is NULL if
 * they are unknown. */
void xd_log_request(const xd_job *j, const xd_memory_limits *limits,
                    const xd_predicted_times *predicted);

#endif
