/* callbacks.c - calls the callbacks that a request sets to receive tensors, latents and the names
 * of stages */
#include "pipeline/callbacks.h"

#include "observe/trace.h"
#include "pipeline/job.h"

/* Returns 1 if the latents are those of a single image. */
static int is_image(const xd_job *j)
{
    return j->fps <= 0 && j->lat[0] == 1;
}

void xd_callback_latents(const xd_job *j, const char *name, int step, const float *lat)
{
    int image = is_image(j);
    xd_callback_tensor(j, name, step, 4 - image, j->lat + image, lat);
}

int xd_callback_change(const xd_job *j, const xd_progress *p, float *lat)
{
    int image = is_image(j);
    return j->r->callbacks.on_latents(j->r->callbacks.cookie, p, 4 - image, j->lat + image, lat);
}

void xd_callback_tensor(const xd_job *j, const char *name, int step, int nd, const int64_t *d,
                        const float *data)
{
    if (j->r->callbacks.on_tensor)
        j->r->callbacks.on_tensor(j->r->callbacks.cookie, name, step, nd, d, data);
}

void xd_callback_stage(const xd_job *j, const char *name)
{
    xd_trace_phase(j->ctx->trace, name);
    if (j->r->callbacks.on_stage)
        j->r->callbacks.on_stage(j->r->callbacks.cookie, name);
}
