/* denoise_state.c - what a later step needs of the steps before it: the latents and the sampler's
 * history, complete on every rank */
#include "pipeline/denoise_inside.h"
#include "pipeline/job.h"

void xd_denoise_gather_state(xd_denoise *f, float *state, int64_t stride)
{
    for (int i = 0; i < xd_job_state_tensors(f->j); i++)
        xd_denoise_gather(f, i ? f->hist[i - 1] : f->lat, state + i * stride);
}

void xd_denoise_set_state(xd_denoise *f, int finished, float *state)
{
    for (int i = 0; i < finished; i++) /* the numbers that the finished steps have drawn */
        xd_denoise_draw(f, i);
    for (int i = 0; i < xd_job_state_tensors(f->j) && xd_ok(&f->x); i++)
        xd_denoise_set_rows(f, i ? f->hist[i - 1] : f->lat, state + i * f->j->numbers);
}

int xd_denoise_decide(xd_denoise *f, int mine)
{
    xd_comm      *c = f->topo->replica;
    const int64_t one = 1;
    int32_t       value = mine;
    if (c->size > 1) {
        xd_req r = c->ops->bcast(c, xd_view(&value, XD_I32, 1, &one), 0);
        xd_denoise_wait(f, c, &r);
    }
    return value;
}
