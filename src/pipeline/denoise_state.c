/* denoise_state.c - what a later step needs of the steps before it: the latents and the sampler's
 * history, complete on every rank */
#include "pipeline/denoise_inside.h"
#include "pipeline/job.h"

int xd_denoise_items(const xd_denoise *f)
{
    return 1 + f->j->sampler->history(&f->j->samp.cfg);
}

void xd_denoise_gather_state(xd_denoise *f, float *state)
{
    for (int i = 0; i < xd_denoise_items(f); i++)
        xd_denoise_gather(f, i ? f->hist[i - 1] : f->lat, state + i * f->j->numbers);
}

void xd_denoise_set_state(xd_denoise *f, int finished, float *state)
{
    for (int i = 0; i < finished; i++) /* the numbers that the finished steps have drawn */
        xd_denoise_draw(f, i);
    for (int i = 0; i < xd_denoise_items(f) && xd_ok(&f->x); i++)
        xd_denoise_set_rows(f, i ? f->hist[i - 1] : f->lat, state + i * f->j->numbers);
}
