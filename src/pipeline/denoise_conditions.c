/* denoise_conditions.c - given frames in the denoising loop: their timesteps, the rows that a step
 * does not change, and the noise that steps add to them */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/minmax.h"
#include "exec/op.h"
#include "pipeline/callbacks.h"
#include "pipeline/denoise_inside.h"
#include "pipeline/image_roles.h"
#include "pipeline/job.h"
#include "pipeline/upsampling.h"

/* Tolerance of diffusers for comparisons of noise levels and strengths. */
static const float eps = 1e-6f;

void xd_denoise_set_times(xd_denoise *f, int step)
{
    float t = (float)f->j->samp.time[step];
    for (int64_t i = 0; f->frame_t && i < f->j->cells[0]; i++) {
        float free = 1 - f->j->frame_strength[i];
        f->frame_t[i] = f->j->role->keyframes ? t * free : fminf(t, free * 1000);
    }
}

/* Returns 1 if a step changes the token `at`. Sets *n to the number of tokens from `at` on for
 * which this is decided together. */
static int is_free(const xd_denoise *f, int step, int64_t at, int64_t *n)
{
    const xd_job *j = f->j;
    int64_t       frame = j->lay.grid[1] * j->lay.grid[2];
    *n = at < j->held ? j->held - at : f->frame_t ? frame - at % frame : INT64_MAX;
    if (at < j->held || !f->frame_t)
        return at >= j->held;
    return j->role->keyframes
               ? j->frame_strength[at / frame] < 1
               : (float)j->samp.time[step] / 1000 - eps < 1 - j->frame_strength[at / frame];
}

/* Finds the next run of rows of this rank in `unit` that begins at row `row`, and in which all rows
 * are free or all are not. Returns its length, or 0 at the end. */
static int64_t next_run(const xd_denoise *f, int step, int unit, int64_t row, int *is)
{
    for (int p = 0; p < f->lay.npatch; p++) {
        xd_span s = xd_own(&f->lay, XD_IMG, p, f->x.sp);
        int64_t n;
        if (unit != XD_ALL && p != unit)
            continue;
        if (row < s.n) {
            *is = is_free(f, step, s.start + row, &n);
            return xd_min(n, s.n - row);
        }
        row -= s.n;
    }
    return 0;
}

int xd_denoise_free_rows(xd_denoise *f, int step, int unit, xd_span out[XD_FREE_RUNS])
{
    int     n = 1, is = 0;
    int64_t run;
    out[0] = (xd_span){ 0, 0 };
    for (int64_t row = 0; (run = next_run(f, step, unit, row, &is)) > 0; row += run) {
        xd_span *last = &out[n - 1];
        if (!is)
            continue;
        if (!last->n || last->start + last->n == row)
            *last = (xd_span){ last->n ? last->start : row, last->n + run };
        else if (xd_check(&f->x, n < XD_FREE_RUNS, "given frames change more than %d times",
                          XD_FREE_RUNS))
            out[n++] = (xd_span){ row, run };
    }
    return n;
}

void xd_denoise_add_noise(xd_denoise *f, int step, int unit)
{
    const xd_job *j = f->j;
    int64_t       frame = j->lay.grid[1] * j->lay.grid[2], run = 0, row = 0;
    float         t = (float)j->samp.time[step] / 1000;
    if (!f->given_noise.nd)
        return;
    xd_tensor lat = xd_denoise_part(f, f->lat, unit), from = xd_denoise_part(f, f->given, unit),
              noise = xd_denoise_part(f, f->given_noise, unit);
    for (int p = 0; p < f->lay.npatch; p++) {
        xd_span s = xd_own(&f->lay, XD_IMG, p, f->x.sp);
        for (int64_t at = 0; at < s.n && (unit == XD_ALL || p == unit); at += run, row += run) {
            int64_t token = s.start + at;
            run = xd_min(frame - token % frame, s.n - at);
            if (!(j->frame_strength[token / frame] > 1 - eps))
                continue;
            xd_copy_to(&f->x, xd_rows(lat, row, run), xd_rows(from, row, run));
            xd_axpby(&f->x, xd_rows(lat, row, run), (float)xd_role_conditions_noise(j) * (t * t),
                     xd_rows(noise, row, run), 1);
        }
    }
}

void xd_denoise_blend(xd_denoise *f, int step, int unit)
{
    const xd_job *j = f->j;
    int64_t       frame = j->lay.grid[1] * j->lay.grid[2], run = 0, row = 0;
    if (!xd_role_conditions_blends(j))
        return;
    double    level = xd_job_level(j, step);
    xd_tensor lat = xd_denoise_part(f, f->lat, unit), from = xd_denoise_part(f, f->given, unit),
              pred = xd_denoise_part(f, f->pred[0], unit);
    for (int p = 0; p < f->lay.npatch; p++) {
        xd_span s = xd_own(&f->lay, XD_IMG, p, f->x.sp);
        for (int64_t at = 0; at < s.n && (unit == XD_ALL || p == unit); at += run, row += run) {
            int64_t token = s.start + at;
            float   strength = j->frame_strength[token / frame];
            float   share = (float)(strength / level);
            run = xd_min(frame - token % frame, s.n - at);
            if (!(strength > 0 && strength < 1))
                continue;
            xd_tensor to = xd_rows(pred, row, run);
            xd_axpby(&f->x, to, share, xd_rows(lat, row, run), 1 - strength);
            xd_axpby(&f->x, to, -share, xd_rows(from, row, run), 1);
        }
    }
}

/* Mixes the noise in f->whole with the latents from which denoising starts, which are those of
 * given frames, and the enlarged ones of a second pass. */
static void start_keyframes(xd_denoise *f)
{
    const xd_job *j = f->j;
    size_t        bytes = (size_t)j->numbers * sizeof(float);
    float        *latents = xd_denoise_buffer(f, j->numbers, "given frames");
    if (!latents)
        return;
    if (j->start_latents)
        memcpy(latents, j->start_latents, bytes);
    else
        memset(latents, 0, bytes);
    xd_role_conditions_clean(j, latents);
    if (f->given.nd)
        xd_denoise_set_rows(f, f->given, latents);
    xd_role_conditions_mix_clean(j, latents, f->whole);
    free(latents);
}

void xd_denoise_start_conditions(xd_denoise *f, const float *given)
{
    const xd_job *j = f->j;
    float        *samples[XD_MAXREFS] = { 0 };
    if (!xd_role_conditions_draw(j, &f->rng, f->whole, samples))
        xd_exec_fail(&f->x, XD_ENOMEM, "no memory for given frames");
    if (given)
        memcpy(f->whole, given, (size_t)j->numbers * sizeof *given);
    if (xd_ok(&f->x)) {
        xd_callback_latents(j, j->enlarged ? "upsampled_noise" : "noise", 0, f->whole);
        if (j->role->keyframes) {
            start_keyframes(f);
        } else {
            xd_upsampling_mix(j, f->whole);
            xd_role_conditions_mix(j, samples, f->whole);
        }
        xd_denoise_set_rows(f, f->lat, f->whole);
        if (f->given_noise.nd && f->given.d[0]) /* not between the ends of the pipeline */
            xd_copy_to(&f->x, f->given, xd_denoise_part(f, f->lat, XD_ALL));
        if (j->samp.init_scale != 1 && !j->start_latents)
            xd_axpby(&f->x, f->lat, 0, (xd_tensor){ 0 }, (float)j->samp.init_scale);
    }
    for (int i = 0; i < j->nconditions; i++)
        free(samples[i]);
}
