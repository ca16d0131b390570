/* callbacks.h - calls the callbacks of a running request. */
#ifndef XD_PIPELINE_CALLBACKS_H
#define XD_PIPELINE_CALLBACKS_H

#include "pipeline/job.h"

/* Calls the request's callback on_tensor, or on_stage, if the request sets it. */
void xd_callback_tensor(const xd_job *j, const char *name, int step, int nd, const int64_t *d,
                        const float *data);
void xd_callback_stage(const xd_job *j, const char *name);

/* Calls the request's callback on_tensor with latents of shape [C,h,w] or, for a video or layers,
 * [t,C,h,w]. */
void xd_callback_latents(const xd_job *j, const char *name, int step, const float *lat);
/* Calls the request's callback on_latents with the latents. Returns nonzero if the callback has
 * changed the latents. */
int  xd_callback_change(const xd_job *j, const xd_progress *p, float *lat);

#endif
