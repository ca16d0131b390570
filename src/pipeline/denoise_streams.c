/* denoise_streams.c - computes the guided predictions of a step for a video and its audio, each
 * with numbers of its own (job_streams.c), like diffusers' LTX2Pipeline
 *
 * With the prediction p of the prompt, the guided prediction is p plus the differences between p
 * and the predictions of the other passes, each times a number. All numbers sum to 1, so guidance
 * of predictions v is that of the clean latents x - level v. Guidance rescale changes the clean
 * latents by a factor. */
#include <math.h>
#include <string.h>

#include "exec/op.h"
#include "pipeline/denoise_inside.h"
#include "pipeline/job.h"

static xd_tensor part_of(const xd_denoise *f, xd_tensor t, int stream, int unit)
{
    return (stream == XD_AUDIO_STREAM ? xd_denoise_audio : xd_denoise_part)(f, t, unit);
}

/* Returns the number by which the difference to a pass is multiplied. */
static double number_of(const xd_job *j, const xd_job_stream *s, int pass)
{
    switch (j->kinds[pass]) {
    case XD_PASS_NEGATIVE: return s->guidance - 1;
    case XD_PASS_PERTURBED: return s->stg;
    case XD_PASS_ISOLATED: return s->modality - 1;
    default: return 0;
    }
}

/* Replaces the prompt's prediction by the guided prediction. */
static void combine(xd_denoise *f, int stream, int unit)
{
    const xd_job        *j = f->j;
    const xd_job_stream *s = &j->streams[stream];
    xd_tensor            out = part_of(f, f->pred[0], stream, unit);
    double               own = 1;
    for (int i = 1; i < j->npass; i++)
        own += number_of(j, s, i);
    for (int i = 1; i < j->npass; i++)
        xd_axpby(&f->x, out, (float)-number_of(j, s, i), part_of(f, f->pred[i], stream, unit),
                 i == 1 ? (float)own : 1.0f);
}

/* Adds up the elements of the clean latents of this rank's tokens of a patch, and their squares. */
static void add_patch(xd_denoise *f, int step, int stream, int patch, int guided)
{
    xd_exec  *x = &f->x;
    xd_tensor v = part_of(f, f->pred[0], stream, patch), clean = xd_new_f32(x, v.d[0], v.d[1]);
    double   *sum = xd_denoise_sums(f, patch, guided) + 2 * stream;
    xd_copy_to(x, clean, v);
    xd_axpby(x, clean, 1, part_of(f, f->lat, stream, patch), -(float)xd_job_level(f->j, step));
    if (xd_counting(x) || !xd_ok(x))
        return;
    xd_get(x, f->mine, clean);
    sum[0] = sum[1] = 0;
    for (int64_t i = 0; i < xd_count(clean); i++) {
        sum[0] += (double)f->mine[i];
        sum[1] += (double)f->mine[i] * (double)f->mine[i];
    }
}

static void add_up(xd_denoise *f, int step, int unit, int guided)
{
    for (int p = 0; p < f->lay.npatch; p++)
        for (int i = 0; i < XD_JOB_STREAMS; i++) {
            size_t mark = xd_arena_mark(f->x.tmp);
            if (unit == XD_ALL || p == unit)
                add_patch(f, step, i, p, guided);
            xd_arena_rewind(f->x.tmp, mark);
        }
}

/* Multiplies the clean latents of a stream by a factor that moves their standard deviation towards
 * that of the prompt's clean latents (Lin et al. 2023, section 3.4). s: the sums. */
static void rescale(xd_denoise *f, int step, int stream, int unit, const double *s)
{
    const xd_job *j = f->j;
    double n = (double)(stream == XD_AUDIO_STREAM ? j->audio_numbers : j->numbers), of[2], by = 1;
    double share = j->streams[stream].rescale;
    for (int i = 0; i < 2; i++) {
        const double *sum = s + i * f->nsums + 2 * stream;
        of[i] = sqrt((sum[1] - sum[0] * sum[0] / n) / (n - 1));
    }
    if (of[1] > 0)
        by = share * of[0] / of[1] + 1 - share;
    xd_axpby(&f->x, part_of(f, f->pred[0], stream, unit), (float)((1 - by) / xd_job_level(j, step)),
             part_of(f, f->lat, stream, unit), (float)by);
}

void xd_denoise_guide_streams(xd_denoise *f, int step, int unit)
{
    const int rescales = xd_job_rescales_streams(f->j);
    if (rescales)
        add_up(f, step, unit, 0);
    for (int i = 0; i < XD_JOB_STREAMS; i++)
        combine(f, i, unit);
    if (!rescales)
        return;
    add_up(f, step, unit, 1);
    const double *s = xd_denoise_sum_members(f, unit);
    for (int i = 0; i < XD_JOB_STREAMS; i++)
        if (f->j->streams[i].rescale > 0)
            rescale(f, step, i, unit, s);
}
