/* reading.c - predicts how long a request waits for weights that are read from disk */
#include "predict/predict.h"

#include <math.h>

#include "pipeline/context.h"
#include "pipeline/job.h"

double xd_reading_wait_s(double cold, double speed, double room, double beside_s)
{
    double ahead = cold < XD_PREFETCH_MIN || room < XD_PREFETCH_MIN ? 0 : fmin(cold, room);
    return cold / speed - fmin(ahead / speed, beside_s);
}

double xd_predicted_reading(const xd_prediction *f)
{
    double s = 0;
    for (int k = 0; k < XD_KINDS; k++)
        s += f->read_s[k];
    return s;
}

double xd_predicted_reading_to_decode(const xd_prediction *f)
{
    return f->early ? 0 : f->read_s[XD_KIND_VAE];
}

double xd_predicted_reading_to_load(const xd_prediction *f)
{
    return f->read_s[XD_KIND_DIT] + (f->early ? f->read_s[XD_KIND_VAE] : 0);
}

/* Adds the times of waiting for the disk to a prediction. The ranks of a host share the page cache,
 * so with any plan each byte is read once per host. The transformer's weights are read while the
 * last text encoder computes, and the VAE's weights during the last denoising step. */
void xd_predict_reading(xd_prediction *f, const xd_job *j, const xd_machine *m, double last_text_s)
{
    const double *cold = j->ctx->cold;
    int           begins = xd_job_begins_with_vae(j);
    int           decodes = !j->r->output.latents_only || begins;
    double        speed = m->read, room = m->memory - f->peak;
    f->early = f->plan.vae_rows || f->plan.deg.n[XD_DATA] > 1 || begins;
    if (speed <= 0)
        return;
    f->read_s[XD_KIND_TEXT] = xd_reading_wait_s(cold[XD_KIND_TEXT], speed, room, 0);
    f->read_s[XD_KIND_DIT] = xd_reading_wait_s(cold[XD_KIND_DIT], speed, room, last_text_s);
    if (decodes)
        f->read_s[XD_KIND_VAE] =
            xd_reading_wait_s(cold[XD_KIND_VAE], speed, room, f->early ? 0 : f->step_s);
    f->request_s += xd_predicted_reading(f);
    f->text_s += f->read_s[XD_KIND_TEXT];
}
