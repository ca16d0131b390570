/* work.c - the work of a rank of an engine between the messages of a request */
#include "pipeline/work.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "model/model.h"
#include "observe/trace.h"
#include "pipeline/adapt.h"
#include "pipeline/arenas.h"
#include "pipeline/audio_decode.h"
#include "pipeline/checkpoint.h"
#include "pipeline/context.h"
#include "pipeline/denoise_inside.h"
#include "pipeline/loop.h"
#include "pipeline/preview.h"
#include "pipeline/stages.h"
#include "pipeline/transformers.h"
#include "pipeline/upsampling.h"
#include "pipeline/yield.h"
#include "plan/balance.h"
#include "ranks/world.h"

static xd_status prepare(xd_job *j, xd_prompts *w, xd_err *e)
{
    xd_status s = xd_prompts_tokenize(w, j, e);
    if (s == XD_OK)
        s = xd_stages_open(j, e);
    if (s == XD_OK)
        xd_balance_log(j->ctx->balance, j->ctx->world.used, "", j->tokens,
                       xd_dit_key_heads(&j->ctx->model.dit_info),
                       j->ctx->plan.vae_rows ? j->cells[1] : 0);
    return s;
}

/* ---- denoising ---------------------------------------------------------------------------- */

static int all_finite(const float *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(v[i]))
            return 0;
    return 1;
}

/* Returns the progress of an image; `nth` is the index of the image among the request's images. */
static xd_progress progress_of(const xd_job *j, int nth, int step, double t0)
{
    int all = j->all_steps ? j->all_steps : j->samp.steps;
    return (xd_progress){ j->steps_before + step + 1,
                          all,
                          nth + 1,
                          j->ntodo,
                          xd_now_s() - t0,
                          xd_now_s() - j->start_s,
                          j->samp.time[step] };
}

static void report_step(const xd_job *j, const xd_progress *p, const float *clean)
{
    if (j->r->callbacks.on_step)
        j->r->callbacks.on_step(j->r->callbacks.cookie, p);
    if (clean && j->r->callbacks.on_preview && j->ctx->topo.replica->rank == 0)
        xd_preview_report(j, clean, p);
}

/* Runs the steps of one transformer from *step on, and ends before *step, the next step, if it is
 * to be computed with other shares (*other). `lat` is memory for the latents. */
static xd_status run_steps(xd_loop *l, int nth, int *next, int *other, float *lat, xd_err *e)
{
    xd_denoise *f = &l->f;
    xd_job     *j = l->j;
    xd_context *ctx = j->ctx;
    int         decodes = !j->r->output.latents_only && xd_vae_on_this_rank(j);
    int         ready = xd_denoise_ready(f), going = ready, step = *next;
    int         end = xd_job_dit_end(j, step);
    for (*other = 0; step < end && going; step++) {
        double t0 = xd_now_s();
        if (l->first_s == 0)
            xd_result_time(l->r, "first_step", (l->first_s = t0) - j->start_s);
        if (step == j->samp.steps - 1 && decodes)
            xd_prefetch_component(ctx, &ctx->model.vae);
        else if (step == end - 1 && end < j->samp.steps)
            xd_prefetch_component(ctx, xd_transformer_of(j, end));
        int64_t begin = xd_trace_now(ctx->trace);
        going = xd_denoise_step(f, step);
        xd_trace_collect(ctx->trace);
        xd_trace_add(ctx->trace, XD_EV_STEP, begin, step, 0, 0);
        xd_progress p = progress_of(j, nth, step, t0);
        if (going)
            xd_denoise_report(f, step, &p, lat);
        if (going)
            xd_checkpoint_save(f, xd_job_image(j, nth), step, lat);
        int previews = going && xd_preview_due(j, step);
        if (previews)
            xd_denoise_clean(f, lat);
        if (xd_ok(&f->x) && going)
            report_step(j, &p, previews ? lat : NULL);
        /* Stages have already posted the receives of the next step, so that is computed first. */
        if (going && !*other && step + 2 < end && xd_adapt(l, step + 2, xd_now_s() - t0)) {
            *other = 1;
            end = f->end = step + 2;
        }
        if (going && step + 1 < j->samp.steps)
            xd_yield_in_step(j, &f->x);
    }
    *next = step;
    if (ready)
        xd_denoise_finish(f);
    return xd_exec_status(&f->x, e);
}

/* Opens the denoising of an image from `step` on. */
static void open_denoising(xd_loop *l, int image, int step, const float *lat)
{
    xd_job           *j = l->j;
    xd_context       *ctx = j->ctx;
    const xd_prompts *w = l->w;
    int               prompt = image / j->r->num_images_per_prompt;
    xd_cond           cond[XD_MAXPASS] = { w->text[prompt].cond,
                                           w->text[xd_prompts_negative(w, prompt)].cond };
    for (int i = 0; i < 2; i++)
        if (cond[i].tok.p)
            cond[i].tok = xd_rows(cond[i].tok, 0, xd_prompts_rows(w, j, prompt, i));
    xd_arena_rewind(&l->a, 0);
    xd_denoise_open(&l->f, j, ctx->dev, &ctx->topo, &l->a, &xd_transformer_of(j, step)->w->net,
                    cond, step);
    if (!lat)
        xd_exec_fail(&l->f.x, XD_ENOMEM, "no memory for latents");
    xd_denoise_noise(&l->f, (int64_t)((uint64_t)j->r->seed + (uint64_t)image), image);
}

/* Opens the denoising again before `step`, with the present shares of the ranks. */
static xd_status open_again(xd_loop *l, int image, int step, const float *lat, xd_err *e)
{
    xd_denoise *f = &l->f;
    int64_t     n = l->j->numbers;
    float      *state = xd_denoise_buffer(f, xd_job_state_tensors(l->j) * n, "latents");
    if (xd_denoise_ready(f))
        xd_denoise_gather_state(f, state, n);
    xd_status s = xd_exec_status(&f->x, e);
    if (s == XD_OK) {
        xd_denoise_close(f);
        open_denoising(l, image, step, lat);
        xd_denoise_set_state(f, step, state);
    }
    free(state);
    return s;
}

static xd_status denoise(xd_loop *l, int nth, int step, float *lat, xd_err *e)
{
    xd_job *j = l->j;
    int     image = xd_job_image(j, nth), other;
    if (l->f.j) {
        xd_denoise_change(&l->f, &xd_transformer_of(j, step)->w->net, step);
    } else {
        open_denoising(l, image, step, lat);
        if (step > 0) /* steps that a checkpoint has finished */
            xd_checkpoint_restore(&l->f, image, step);
    }
    xd_status s = run_steps(l, nth, &step, &other, lat, e);
    while (s == XD_OK && other) {
        s = open_again(l, image, step, lat, e);
        if (s == XD_OK)
            s = run_steps(l, nth, &step, &other, lat, e);
    }
    if (s != XD_OK || l->f.end < j->samp.steps)
        return s;
    xd_denoise_latents(&l->f, lat);
    if (j->audio_numbers && xd_ok(&l->f.x)) {
        free(j->audio_latents);
        j->audio_latents = xd_denoise_buffer(&l->f, j->audio_numbers, "audio");
    }
    if (j->audio_numbers)
        xd_denoise_audio_latents(&l->f, j->audio_latents);
    s = xd_exec_status(&l->f.x, e);
    return s == XD_OK && !all_finite(lat, j->numbers) ? xd_result_fail_odd(j, image, 0, e) : s;
}

/* ---- the result --------------------------------------------------------------------------- */

static xd_status deliver(xd_loop *l, int image, float *v[2], xd_err *e)
{
    const xd_request *r = l->j->r;
    xd_status         s = xd_result_add(l->r, l->j, image, v[0], v[1], e);
    v[0] = v[1] = NULL;
    if (s == XD_OK && r->callbacks.on_image)
        s = r->callbacks.on_image(r->callbacks.cookie, l->r, image, e);
    if (s == XD_OK)
        xd_checkpoint_remove(l->j, image);
    return s;
}

/* Decodes the frames and, on the first rank of the replica, the audio. */
static xd_status decode(xd_job *j, xd_arena *a, const float *lat, float **rgb, xd_err *e)
{
    xd_status s = xd_vae_decode_image(j, a, lat, rgb, e);
    return s == XD_OK ? xd_audio_decode(j, e) : s;
}

const xd_work xd_work_computes = { prepare,
                                   xd_memory_count,
                                   xd_prompts_compute,
                                   xd_vae_compute_clip,
                                   denoise,
                                   xd_upsampling_compute,
                                   decode,
                                   deliver };
