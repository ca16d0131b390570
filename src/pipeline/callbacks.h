/* callbacks.h - calls the callbacks of a running request */
#ifndef XD_PIPELINE_CALLBACKS_H
#define XD_PIPELINE_CALLBACKS_H

#include "pipeline/job.h"

/* Calls the request's on_tensor, if it is set. */
void xd_callback_tensor(const xd_job *j, const char *name, int step, int nd, const int64_t *d,
                        const float *data);
void xd_callback_stage(const xd_job *j, const char *name);

/* Calls on_tensor with latents of shape [C,h,w] or, for a video, [t,C,h,w]. */
void      xd_callback_latents(const xd_job *j, const char *name, int step, const float *lat);
/* Calls on_latents with the latents; returns nonzero if it has changed them. */
int       xd_callback_change(const xd_job *j, const xd_progress *p, float *lat);

#endif
